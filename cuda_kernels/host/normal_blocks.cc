// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/ops/normal_blocks.h"

#include <algorithm>
#include <atomic>

#include "cuda_kernels/base/host_atomic.h"
#include "cuda_kernels/host/host_jacobian.h"
#include "cuda_kernels/structure/host_workspace.h"

namespace ceres_ext::kernels {
namespace {

using namespace host;  // NOLINT: the loops of all bodies.

// V += Jp' Jp, packed.
void AddPointMatrix(const double* jp, double* v) {
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j <= i; ++j) {
      v[PackedIndex(i, j)] += jp[i] * jp[j] + jp[3 + i] * jp[3 + j];
    }
  }
}

// A += Jc' T, packed, where Jc' T is symmetric; both are 2 x N.
template <int N>
void AddSymmetricProduct(const double* jc, const double* t, double* a) {
  for (int i = 0; i < N; ++i) {
    double* row = a + PackedIndex(i, 0);
    const double jc0 = jc[i];
    const double jc1 = jc[N + i];
#pragma omp simd
    for (int j = 0; j <= i; ++j) {
      row[j] += jc0 * t[j] + jc1 * t[N + j];
    }
  }
}

// S += Jc' (I - Jp Vi Jp') Jc, for a camera that sees the point once.
template <int N>
void AddSchurDiagonal(const double* jc,
                      const double* jp,
                      const double* v_inverse,
                      double* s) {
  double m[4];  // I - Jp Vi Jp', 2 x 2
  for (int i = 0; i < 2; ++i) {
    double vi_jp[3];
    SymmetricMultiply<3>(v_inverse, jp + 3 * i, vi_jp);
    for (int j = 0; j < 2; ++j) {
      m[2 * i + j] = (i == j ? 1.0 : 0.0) -
                     (jp[3 * j] * vi_jp[0] + jp[3 * j + 1] * vi_jp[1] +
                      jp[3 * j + 2] * vi_jp[2]);
    }
  }
  double m_jc[2 * N];
  for (int j = 0; j < N; ++j) {
    m_jc[j] = m[0] * jc[j] + m[1] * jc[N + j];
    m_jc[N + j] = m[1] * jc[j] + m[3] * jc[N + j];
  }
  AddSymmetricProduct<N>(jc, m_jc, s);
}

// W += Jc' Jp, N x 3.
template <int N>
void AddW(const double* jc, const double* jp, double* w) {
  for (int i = 0; i < N; ++i) {
    for (int j = 0; j < 3; ++j) {
      w[3 * i + j] += jc[i] * jp[j] + jc[N + i] * jp[3 + j];
    }
  }
}

// S -= W Vi W'.
template <int N>
void SubtractOuterProduct(const double* w, const double* v_inverse, double* s) {
  for (int i = 0; i < N; ++i) {
    double vi_w[3];
    SymmetricMultiply<3>(v_inverse, w + 3 * i, vi_w);
    for (int j = 0; j <= i; ++j) {
      s[PackedIndex(i, j)] -=
          w[3 * j] * vi_w[0] + w[3 * j + 1] * vi_w[1] + w[3 * j + 2] * vi_w[2];
    }
  }
}

// Where the sums of a camera stand in its row; -1: not wanted.
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
  static constexpr int C = Source::kCameraDim;
  static constexpr int kLocalDim = Jacobian::kLocalDim;

  NormalBlocksBody(const Params& params, HostMachine* machine)
      : params_(params),
        index_(params.index),
        jacobian_(params.jacobian, params.index, machine),
        row_(params),
        machine_(machine) {}

  void Compute() {
    const bool has_camera_outputs = row_.size > 0 || params_.w.data != nullptr;
    ForEachPoint(index_,
                 row_.size,
                 machine_,
                 [&](int32_t p, int64_t first, int64_t last, int /*thread*/) {
                   double v_inverse[6] = {};
                   double vi_g[3] = {};
                   PointBlocks(p, first, last, v_inverse, vi_g);
                   if (has_camera_outputs) {
                     CameraBlocks(p, first, last, v_inverse, vi_g);
                   }
                 });
    if (params_.breakdown != nullptr) {
      params_.breakdown->first_point = first_breakdown_.load();
    }
    SumCameras();
  }

 private:
  // V, g_p, Vi and Vi g_p.
  void PointBlocks(
      int32_t p, int64_t first, int64_t last, double* v_inverse, double* vi_g) {
    double v[6] = {};
    double g[3] = {};
    Blocks blocks;
    for (int64_t k = first; k < last; ++k) {
      blocks.Load(jacobian_, k, index_.camera_id[k], p);
      AddPointMatrix(blocks.jp, v);
      TransposeMultiplyPoint(blocks.jp, params_.b + 2 * k, g);
    }
    if (params_.v.data != nullptr) {
      std::copy_n(v, 6, &params_.v(p, 0));
    }
    if (params_.point_gradient != nullptr) {
      std::copy_n(g, 3, params_.point_gradient + int64_t{3} * p);
    }
    if (params_.v_inverse.data != nullptr) {
      std::copy_n(v, 6, v_inverse);
      if (params_.point_diagonal != nullptr) {
        AddSquaredDiagonal<3>(params_.point_diagonal + int64_t{3} * p,
                              v_inverse);
      }
      if (!InvertSymmetric<3>(v_inverse)) {
        AtomicMinimum(p, &first_breakdown_);
      }
      std::copy_n(v_inverse, 6, &params_.v_inverse(p, 0));
      SymmetricMultiply<3>(v_inverse, g, vi_g);
    }
  }

  void CameraBlocks(int32_t p,
                    int64_t first,
                    int64_t last,
                    const double* v_inverse,
                    const double* vi_g) {
    const double minus_vi_g[3] = {-vi_g[0], -vi_g[1], -vi_g[2]};
    Blocks blocks;
    for (int64_t k = first; k < last; ++k) {
      const int32_t c = index_.camera_id[k];
      blocks.Load(jacobian_, k, c, p);
      double* row = row_.size > 0 ? CameraSum(index_, row_.size, k) : nullptr;
      if (row_.u >= 0) {
        AddSymmetricProduct<kLocalDim>(blocks.jc, blocks.jc, row + row_.u);
      }
      if (row_.camera_gradient >= 0) {
        TransposeMultiplyCamera<kLocalDim>(
            blocks.jc, params_.b + 2 * k, row + row_.camera_gradient);
      }
      if (row_.schur_rhs >= 0) {
        // s_c += Jc' (b - Jp Vi g_p)
        double y[2] = {params_.b[2 * k], params_.b[2 * k + 1]};
        MultiplyPointAndAccumulate(blocks.jp, minus_vi_g, y);
        TransposeMultiplyCamera<kLocalDim>(blocks.jc, y, row + row_.schur_rhs);
      }
      if (row_.schur_diagonal >= 0) {
        const bool is_first = k == first || index_.camera_id[k - 1] != c;
        const bool is_last = k + 1 == last || index_.camera_id[k + 1] != c;
        double* s = row + row_.schur_diagonal;
        if (is_first && is_last) {
          AddSchurDiagonal<kLocalDim>(blocks.jc, blocks.jp, v_inverse, s);
        } else if (is_first) {
          AddRepeatedSchurDiagonal(p, k, last, v_inverse, s);
        }
      }
      if (params_.w.data != nullptr) {
        StoreW(c, k, blocks);
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
    double w[3 * kLocalDim] = {};
    Blocks blocks;
    for (int64_t k = first; k < last && index_.camera_id[k] == c; ++k) {
      blocks.Load(jacobian_, k, c, p);
      AddSymmetricProduct<kLocalDim>(blocks.jc, blocks.jc, s);
      AddW<kLocalDim>(blocks.jc, blocks.jp, w);
    }
    SubtractOuterProduct<kLocalDim>(w, v_inverse, s);
  }

  void StoreW(int32_t c, int64_t k, const Blocks& blocks) {
    double local[3 * kLocalDim] = {};
    AddW<kLocalDim>(blocks.jc, blocks.jp, local);
    for (int j = 0; j < 3; ++j) {
      double column[kLocalDim];
      double mapped[C];
      for (int i = 0; i < kLocalDim; ++i) {
        column[i] = local[3 * i + j];
      }
      jacobian_.UnmapVector(c, column, mapped);
      for (int i = 0; i < C; ++i) {
        params_.w(k, 3 * i + j) =
            static_cast<typename Source::Value>(mapped[i]);
      }
    }
  }

  // Maps the sums of one output, from `offset` of a row on, to its place.
  template <int kNumSums, typename Function>
  void SumCameras(int offset, Function&& unmap) {
    if (offset >= 0) {
      ForEachCamera<kNumSums>(index_, row_.size, offset, machine_, unmap);
    }
  }

  void SumCameras() {
    constexpr int kPacked = PackedSize(kLocalDim);
    SumCameras<kPacked>(row_.u, [&](int32_t c, const double* sum) {
      jacobian_.UnmapMatrix(c, sum, &params_.u(c, 0));
    });
    SumCameras<kLocalDim>(
        row_.camera_gradient, [&](int32_t c, const double* sum) {
          jacobian_.UnmapVector(
              c, sum, params_.camera_gradient + int64_t{C} * c);
        });
    SumCameras<kPacked>(row_.schur_diagonal, [&](int32_t c, const double* sum) {
      jacobian_.UnmapMatrix(c, sum, &params_.schur_diagonal(c, 0));
    });
    SumCameras<kLocalDim>(row_.schur_rhs, [&](int32_t c, const double* sum) {
      jacobian_.UnmapVector(c, sum, params_.schur_rhs + int64_t{C} * c);
    });
  }

  const Params& params_;
  const ObservationIndexView& index_;
  const Jacobian jacobian_;
  const Row<Params, kLocalDim> row_;
  HostMachine* machine_;
  std::atomic<int32_t> first_breakdown_{Breakdown::kNone};
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
                      HostMachine*)

CERES_EXT_INSTANTIATE(StoredJacobian<double, 9, kHostLayout>);
CERES_EXT_INSTANTIATE(StoredJacobian<double, 10, kHostLayout>);
CERES_EXT_INSTANTIATE(StoredJacobian<float, 9, kHostLayout>);
CERES_EXT_INSTANTIATE(StoredJacobian<float, 10, kHostLayout>);
CERES_EXT_INSTANTIATE(RecomputedJacobian<double, 9>);
CERES_EXT_INSTANTIATE(RecomputedJacobian<double, 10>);

}  // namespace ceres_ext::kernels
