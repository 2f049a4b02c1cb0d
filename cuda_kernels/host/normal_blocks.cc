// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/ops/normal_blocks.h"

#include <algorithm>

#include "cuda_kernels/host/host_jacobian.h"
#include "cuda_kernels/structure/host_workspace.h"

namespace ceres_ext::kernels {
namespace {

using namespace host;  // NOLINT: the loops of all bodies.

// V += Jp' Jp, packed.
template <typename Shape>
void AddPointMatrix(const double* jp, double* v) {
  constexpr int E = Shape::kE;
  for (int i = 0; i < E; ++i) {
    for (int j = 0; j <= i; ++j) {
      double sum = jp[i] * jp[j];
      for (int r = 1; r < Shape::kNumResiduals; ++r) {
        sum += jp[E * r + i] * jp[E * r + j];
      }
      v[PackedIndex(i, j)] += sum;
    }
  }
}

// A += Jc' T, packed, where Jc' T is symmetric; both are R x F.
template <typename Shape>
void AddSymmetricProduct(const double* jc, const double* t, double* a) {
  constexpr int F = Shape::kF;
  for (int i = 0; i < F; ++i) {
    double* row = a + PackedIndex(i, 0);
#pragma omp simd
    for (int j = 0; j <= i; ++j) {
      double sum = jc[i] * t[j];
      for (int r = 1; r < Shape::kNumResiduals; ++r) {
        sum += jc[F * r + i] * t[F * r + j];
      }
      row[j] += sum;
    }
  }
}

// S += Jc' (I - Jp Vi Jp') Jc, for a camera that sees the point once.
template <typename Shape>
void AddSchurDiagonal(const double* jc,
                      const double* jp,
                      const double* v_inverse,
                      double* s) {
  constexpr int R = Shape::kNumResiduals;
  constexpr int E = Shape::kE;
  constexpr int F = Shape::kF;
  double m[R * R];  // I - Jp Vi Jp'
  for (int i = 0; i < R; ++i) {
    double vi_jp[E];
    SymmetricMultiply<E>(v_inverse, jp + E * i, vi_jp);
    for (int j = 0; j < R; ++j) {
      double sum = jp[E * j] * vi_jp[0];
      for (int e = 1; e < E; ++e) {
        sum += jp[E * j + e] * vi_jp[e];
      }
      m[R * i + j] = (i == j ? 1.0 : 0.0) - sum;
    }
  }
  double m_jc[Shape::kFSize];
  for (int j = 0; j < F; ++j) {
    for (int i = 0; i < R; ++i) {
      // m is symmetric up to rounding: its upper triangle is used.
      double sum = m[i] * jc[j];
      for (int r = 1; r < R; ++r) {
        sum += m[i <= r ? R * i + r : R * r + i] * jc[F * r + j];
      }
      m_jc[F * i + j] = sum;
    }
  }
  AddSymmetricProduct<Shape>(jc, m_jc, s);
}

// W += Jc' Jp, F x E.
template <typename Shape>
void AddW(const double* jc, const double* jp, double* w) {
  constexpr int E = Shape::kE;
  for (int i = 0; i < Shape::kF; ++i) {
    for (int j = 0; j < E; ++j) {
      double sum = jc[i] * jp[j];
      for (int r = 1; r < Shape::kNumResiduals; ++r) {
        sum += jc[Shape::kF * r + i] * jp[E * r + j];
      }
      w[E * i + j] += sum;
    }
  }
}

// S -= W Vi W'.
template <typename Shape>
void SubtractOuterProduct(const double* w, const double* v_inverse, double* s) {
  constexpr int E = Shape::kE;
  for (int i = 0; i < Shape::kF; ++i) {
    double vi_w[E];
    SymmetricMultiply<E>(v_inverse, w + E * i, vi_w);
    for (int j = 0; j <= i; ++j) {
      double sum = w[E * j] * vi_w[0];
      for (int e = 1; e < E; ++e) {
        sum += w[E * j + e] * vi_w[e];
      }
      s[PackedIndex(i, j)] -= sum;
    }
  }
}

// The place of the sums of a camera in its row; -1 if they are not requested.
template <typename Params, int N>
struct Row {
  explicit Row(const Params& params) {
    u = Take(params.u.data != nullptr, PackedSize(N));
    camera_gradient = Take(params.camera_gradient != nullptr, N);
    schur_diagonal = Take(params.schur_diagonal.data != nullptr, PackedSize(N));
    schur_rhs = Take(params.schur_rhs != nullptr, N);
  }
  int u, camera_gradient, schur_diagonal, schur_rhs;
  int size = 0;

 private:
  int Take(bool wanted, int n) {
    if (!wanted) {
      return -1;
    }
    size += n;
    return size - n;
  }
};

template <typename Source>
class NormalBlocksBody {
 public:
  using Params = NormalBlocksParams<Source, kHostLayout>;
  using Jacobian = HostJacobian<Source>;
  using Blocks = typename Jacobian::Blocks;
  using Shape = typename Source::Shape;
  using Local = typename Jacobian::Local;
  static constexpr int R = Shape::kNumResiduals;
  static constexpr int E = Shape::kE;
  static constexpr int C = Shape::kF;

  NormalBlocksBody(const Params& params, HostMachine* machine)
      : params_(params),
        index_(params.index),
        jacobian_(params.jacobian, params.index, machine),
        row_(params),
        machine_(machine) {}

  void Compute() {
    ForEachPoint(index_,
                 row_.size,
                 machine_,
                 [&](int32_t p, int64_t first, int64_t last, int /*thread*/) {
                   double v_inverse[Shape::kPackedE] = {};
                   double vi_g[E] = {};
                   if (params_.v_inverse_is_given) {
                     std::copy_n(
                         &params_.v_inverse(p, 0), Shape::kPackedE, v_inverse);
                   } else {
                     PointBlocks(p, first, last, v_inverse, vi_g);
                   }
                   if (row_.size > 0) {
                     CameraBlocks(p, first, last, v_inverse, vi_g);
                   }
                 });
    if (params_.breakdown != nullptr) {
      params_.breakdown->first_block = first_breakdown_;
    }
    SumCameras();
  }

 private:
  // V, g_p, Vi and Vi g_p.
  void PointBlocks(
      int32_t p, int64_t first, int64_t last, double* v_inverse, double* vi_g) {
    double v[Shape::kPackedE] = {};
    double g[E] = {};
    Blocks blocks;
    for (int64_t k = first; k < last; ++k) {
      blocks.Load(jacobian_, k, index_.camera_id[k], p);
      AddPointMatrix<Local>(blocks.jp, v);
      if (params_.b != nullptr) {
        TransposeMultiplyPoint<Local>(blocks.jp, params_.b + R * k, g);
      }
    }
    if (params_.v.data != nullptr) {
      std::copy_n(v, Shape::kPackedE, &params_.v(p, 0));
    }
    if (params_.point_gradient != nullptr) {
      std::copy_n(g, E, params_.point_gradient + int64_t{E} * p);
    }
    if (params_.v_inverse.data != nullptr) {
      std::copy_n(v, Shape::kPackedE, v_inverse);
      if (params_.point_diagonal != nullptr) {
        AddSquaredDiagonal<E>(params_.point_diagonal + int64_t{E} * p,
                              v_inverse);
      }
      if (!InvertSymmetric<E>(
              v_inverse,
              E,
              /*is_definite=*/params_.point_diagonal != nullptr)) {
        AtomicMinimum(p, &first_breakdown_);
      }
      std::copy_n(v_inverse, Shape::kPackedE, &params_.v_inverse(p, 0));
      SymmetricMultiply<E>(v_inverse, g, vi_g);
    }
  }

  void CameraBlocks(int32_t p,
                    int64_t first,
                    int64_t last,
                    const double* v_inverse,
                    const double* vi_g) {
    double minus_vi_g[E];
    for (int i = 0; i < E; ++i) {
      minus_vi_g[i] = -vi_g[i];
    }
    Blocks blocks;
    for (int64_t k = first; k < last; ++k) {
      const int32_t c = index_.camera_id[k];
      blocks.Load(jacobian_, k, c, p);
      double* row = CameraSum(index_, row_.size, k);
      if (row_.u >= 0) {
        AddSymmetricProduct<Local>(blocks.jc, blocks.jc, row + row_.u);
      }
      if (row_.camera_gradient >= 0) {
        TransposeMultiplyCamera<Local>(
            blocks.jc, params_.b + R * k, row + row_.camera_gradient);
      }
      if (row_.schur_rhs >= 0) {
        // s_c += Jc' (b - Jp Vi g_p)
        double y[R];
        std::copy_n(params_.b + R * k, R, y);
        MultiplyPointAndAccumulate<Local>(blocks.jp, minus_vi_g, y);
        TransposeMultiplyCamera<Local>(blocks.jc, y, row + row_.schur_rhs);
      }
      if (row_.schur_diagonal >= 0) {
        const bool is_first = k == first || index_.camera_id[k - 1] != c;
        const bool is_last = k + 1 == last || index_.camera_id[k + 1] != c;
        double* s = row + row_.schur_diagonal;
        if (is_first && is_last) {
          AddSchurDiagonal<Local>(blocks.jc, blocks.jp, v_inverse, s);
        } else if (is_first) {
          AddRepeatedSchurDiagonal(p, k, last, v_inverse, s);
        }
      }
    }
  }

  // S += sum_k Jc' Jc - W Vi W', W = sum_k Jc' Jp over the observations of
  // point p by one camera that begin at `first`.
  void AddRepeatedSchurDiagonal(int32_t p,
                                int64_t first,
                                int64_t last,
                                const double* v_inverse,
                                double* s) {
    const int32_t c = index_.camera_id[first];
    double w[Local::kWSize] = {};
    Blocks blocks;
    for (int64_t k = first; k < last && index_.camera_id[k] == c; ++k) {
      blocks.Load(jacobian_, k, c, p);
      AddSymmetricProduct<Local>(blocks.jc, blocks.jc, s);
      AddW<Local>(blocks.jc, blocks.jp, w);
    }
    SubtractOuterProduct<Local>(w, v_inverse, s);
  }

  // Maps the sums of one output, from `offset` of a row on, to its place.
  template <int kNumSums, typename Function>
  void SumCameras(int offset, Function&& unmap) {
    if (offset >= 0) {
      ForEachCamera<kNumSums>(index_, row_.size, offset, machine_, unmap);
    }
  }

  void SumCameras() {
    constexpr int kPacked = Local::kPackedF;
    SumCameras<kPacked>(row_.u, [&](int32_t c, const double* sum) {
      jacobian_.UnmapMatrix(c, sum, &params_.u(c, 0));
    });
    SumCameras<Local::kF>(
        row_.camera_gradient, [&](int32_t c, const double* sum) {
          jacobian_.UnmapVector(
              c, sum, params_.camera_gradient + int64_t{C} * c);
        });
    SumCameras<kPacked>(row_.schur_diagonal, [&](int32_t c, const double* sum) {
      jacobian_.UnmapMatrix(c, sum, &params_.schur_diagonal(c, 0));
    });
    SumCameras<Local::kF>(row_.schur_rhs, [&](int32_t c, const double* sum) {
      jacobian_.UnmapVector(c, sum, params_.schur_rhs + int64_t{C} * c);
    });
  }

  const Params& params_;
  const ObservationIndexRef& index_;
  const Jacobian jacobian_;
  const Row<Params, Local::kF> row_;
  HostMachine* machine_;
  int32_t first_breakdown_ = Breakdown::kNone;
};

}  // namespace

template <typename Source>
Status Run(const NormalBlocksParams<Source, kHostLayout>& params,
           HostMachine* machine) {
  NormalBlocksBody<Source>(params, machine).Compute();
  return {};
}

#define CERES_EXT_INSTANTIATE(...)                                         \
  template Status Run(const NormalBlocksParams<__VA_ARGS__, kHostLayout>&, \
                      HostMachine*);
CERES_EXT_INSTANTIATE_ON_HOST()
CERES_EXT_INSTANTIATE(NestedJacobian<kHostLayout>)

}  // namespace ceres_ext::kernels
