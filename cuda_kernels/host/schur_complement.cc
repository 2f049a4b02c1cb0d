// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/ops/schur_complement.h"

#include <algorithm>
#include <string>

#include "cuda_kernels/host/host_jacobian.h"
#include "cuda_kernels/structure/host_workspace.h"

namespace ceres_ext::kernels {
namespace {

using namespace host;  // NOLINT: the loops of all bodies.

// Blocks of S per task: some microseconds where each has few couplings.
constexpr int64_t kBlockGrain = 64;

// out = G_i' sum G_j, C x C, of a sum in the Local shape.
template <typename T, typename Shape>
void UnmapBlock(const StoredJacobian<T, Shape, kHostLayout>& /*source*/,
                int32_t /*i*/,
                int32_t /*j*/,
                const double* sum,
                double* out) {
  std::copy_n(sum, Shape::kF * Shape::kF, out);
}
template <int C, bool kScaledRows>
void UnmapBlock(const RecomputedJacobian<double, C, kScaledRows>& source,
                int32_t i,
                int32_t j,
                const double* sum,
                double* out) {
  constexpr int F = kBalLocalCameraDim;
  const double* map = source.camera_maps + int64_t{F * C} * j;
  double product[F * C] = {};  // sum G_j
  for (int e = 0; e < F; ++e) {
    for (int f = 0; f < F; ++f) {
      for (int b = 0; b < C; ++b) {
        product[C * e + b] += sum[F * e + f] * map[C * f + b];
      }
    }
  }
  map = source.camera_maps + int64_t{F * C} * i;
  std::fill_n(out, C * C, 0.0);
  for (int e = 0; e < F; ++e) {
    for (int a = 0; a < C; ++a) {
      for (int b = 0; b < C; ++b) {
        out[C * a + b] += map[C * e + a] * product[C * e + b];
      }
    }
  }
}

template <typename Source>
class SchurComplementBody {
 public:
  using Params = SchurComplementParams<Source, kHostLayout>;
  using Jacobian = HostJacobian<Source>;
  using Blocks = typename Jacobian::Blocks;
  using Shape = typename Source::Shape;
  using Local = typename Jacobian::Local;
  static constexpr int R = Shape::kNumResiduals;
  static constexpr int E = Shape::kE;
  static constexpr int F = Local::kF;
  static constexpr int C = Shape::kF;

  SchurComplementBody(const Params& params, HostMachine* machine)
      : params_(params),
        index_(params.index),
        couplings_(params.couplings),
        jacobian_(params.jacobian, params.index, machine) {}

  void Compute(HostMachine* machine) {
    machine->context()->ParallelFor(
        couplings_.num_blocks, kBlockGrain, [&](int64_t begin, int64_t end) {
          for (int64_t b = begin; b < end; ++b) {
            Block(b);
          }
        });
  }

 private:
  void Block(int64_t block) {
    const int32_t i = couplings_.row[block];
    const int32_t j = couplings_.column[block];
    double s[C * C];
    if (i == j) {
      for (int a = 0; a < C; ++a) {
        for (int b = 0; b <= a; ++b) {
          s[C * a + b] = params_.schur_diagonal(i, PackedIndex(a, b));
        }
        if (params_.camera_diagonal != nullptr) {
          const double d = params_.camera_diagonal[int64_t{C} * i + a];
          s[C * a + a] += d * d;
        }
      }
    } else {
      double sum[F * F] = {};
      for (int64_t c = couplings_.coupling_begin[block];
           c < couplings_.coupling_begin[block + 1];
           ++c) {
        AddCoupling(couplings_.coupling[c], i, j, sum);
      }
      UnmapBlock(params_.jacobian, i, j, sum, s);
    }
    Store(block, i, j, s);
  }

  // sum -= Jc_k' (Jp_k Vi Jp_l') Jc_l.
  void AddCoupling(int64_t coupling, int32_t i, int32_t j, double* sum) const {
    const int64_t k = FirstOfCoupling(coupling);
    const int64_t l = SecondOfCoupling(coupling);
    const int32_t point = index_.point_id[k];
    Blocks first;
    Blocks second;
    first.Load(jacobian_, k, i, point);
    second.Load(jacobian_, l, j, point);
    double m[R * R];
    for (int q = 0; q < R; ++q) {
      double vi_jp[E];  // Vi Jp_l'
      SymmetricMultiply<E>(
          &params_.v_inverse(point, 0), second.jp + E * q, vi_jp);
      for (int r = 0; r < R; ++r) {
        double value = first.jp[E * r] * vi_jp[0];
        for (int e = 1; e < E; ++e) {
          value += first.jp[E * r + e] * vi_jp[e];
        }
        m[R * r + q] = value;
      }
    }
    for (int r = 0; r < R; ++r) {
      double right[F];  // of m Jc_l
      for (int b = 0; b < F; ++b) {
        right[b] = m[R * r] * second.jc[b];
        for (int q = 1; q < R; ++q) {
          right[b] += m[R * r + q] * second.jc[F * q + b];
        }
      }
      for (int a = 0; a < F; ++a) {
        for (int b = 0; b < F; ++b) {
          sum[F * a + b] -= first.jc[F * r + a] * right[b];
        }
      }
    }
  }

  void Store(int64_t block, int32_t i, int32_t j, const double* s) const {
    const SchurUnknownsView& unknowns = params_.unknowns;
    for (int a = 0; a < C; ++a) {
      const int32_t u = unknowns.id[int64_t{C} * i + a];
      for (int b = 0; b < (i == j ? a + 1 : C); ++b) {
        const int32_t v = unknowns.id[int64_t{C} * j + b];
        if (u >= 0 && v >= 0) {
          params_.target.At(u, v, block, unknowns.begin[j]) = s[C * a + b];
        }
      }
    }
  }

  const Params& params_;
  const ObservationIndexView& index_;
  const CouplingIndexView& couplings_;
  const Jacobian jacobian_;
};

}  // namespace

template <typename Source>
Status Run(const SchurComplementParams<Source, kHostLayout>& params,
           HostMachine* machine) {
  CERES_EXT_RETURN_IF_ERROR(CheckCouplings(params));
  const int64_t n = params.unknowns.num_unknowns;
  const SchurTarget& target = params.target;
  if (target.row_begin == nullptr) {
    if (target.stride < n) {
      return {StatusCode::kInvalidArgument,
              "A dense Schur complement of " + std::to_string(n) +
                  " unknowns needs columns of as many values, not " +
                  std::to_string(target.stride) + "."};
    }
    for (int64_t v = 0; v < n; ++v) {
      std::fill(target.values + target.stride * v + v,
                target.values + target.stride * (v + 1),
                0.0);
    }
  }
  SchurComplementBody<Source>(params, machine).Compute(machine);
  return {};
}

#define CERES_EXT_INSTANTIATE(...)                                            \
  template Status Run(const SchurComplementParams<__VA_ARGS__, kHostLayout>&, \
                      HostMachine*)

#define CERES_EXT_INSTANTIATE_STORED(C)                                    \
  CERES_EXT_INSTANTIATE(StoredJacobian<double, BalShape<C>, kHostLayout>); \
  CERES_EXT_INSTANTIATE(StoredJacobian<float, BalShape<C>, kHostLayout>);
CERES_EXT_FOR_EACH_STORED_COLUMNS(CERES_EXT_INSTANTIATE_STORED)
#undef CERES_EXT_INSTANTIATE_STORED
CERES_EXT_INSTANTIATE(RecomputedJacobian<double, 9>);
CERES_EXT_INSTANTIATE(RecomputedJacobian<double, 10>);
CERES_EXT_INSTANTIATE(RecomputedJacobian<double, 9, true>);
CERES_EXT_INSTANTIATE(RecomputedJacobian<double, 10, true>);

}  // namespace ceres_ext::kernels
