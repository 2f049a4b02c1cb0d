// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/ops/schur_complement.h"

#include <algorithm>
#include <string>

#include "cuda_kernels/base/simd.h"
#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/host/host_jacobian.h"
#include "cuda_kernels/host/schur_rows.h"
#include "cuda_kernels/structure/host_workspace.h"

namespace ceres_ext::kernels {
namespace {

using namespace host;  // NOLINT: the loops of all bodies.

// out = G_i' sum G_j, C x C, of a sum in the Local shape.
template <typename T, typename Shape>
void UnmapBlock(const StoredJacobian<T, Shape, kHostLayout>& /*source*/,
                int32_t /*i*/,
                int32_t /*j*/,
                const double* sum,
                double* out) {
  std::copy_n(sum, Shape::kF * Shape::kF, out);
}
void UnmapBlock(const NestedJacobian<kHostLayout>& /*source*/,
                int32_t /*i*/,
                int32_t /*j*/,
                const double* sum,
                double* out) {
  using Shape = NestedJacobian<kHostLayout>::Shape;
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

// Adds the couplings of a task of camera i, Jc_k' (Jp_k Vi Jp_l') Jc_l.
template <typename Source>
CERES_EXT_SIMD_CLONES void AddCouplings(
    const SchurComplementParams<Source, kHostLayout>& params,
    const HostJacobian<Source>& jacobian,
    int32_t i,
    const SchurRowTask& task) {
  using Local = typename HostJacobian<Source>::Local;
  constexpr int R = Source::Shape::kNumResiduals;
  constexpr int E = Source::Shape::kE;
  constexpr int F = Local::kF;
  constexpr int kGroups = NumGroups(F);
  const ObservationIndexRef& index = task.index;
  typename HostJacobian<Source>::Blocks first;
  typename HostJacobian<Source>::Blocks second;
  for (int64_t e = task.entry_begin; e < task.entry_end; ++e) {
    const int64_t k = index.camera_entry[e];
    const int32_t point = index.point_id[k];
    const int64_t begin = index.point_begin[point];
    const int64_t end = begin + NumCouplingsWithEarlier(index, k);
    if (begin == end) {
      continue;
    }
    first.Load(jacobian, k, i, point);
    double jp_vi[R * E];
    double jc[R * kRowGroup * kGroups] = {};
    for (int r = 0; r < R; ++r) {
      SymmetricMultiply<E>(
          &params.v_inverse(point, 0), first.jp + E * r, jp_vi + E * r);
      std::copy_n(first.jc + F * r, F, jc + kRowGroup * kGroups * r);
    }
    for (int64_t l = begin; l < end; ++l) {
      const int32_t j = index.camera_id[l];
      second.Load(jacobian, l, j, point);
      RowGroup left[R * kGroups];  // Jc_k' m
      for (int q = 0; q < R; ++q) {
        for (int g = 0; g < kGroups; ++g) {
          left[kGroups * q + g] = RowGroup{};
        }
        for (int r = 0; r < R; ++r) {
          double m = 0.0;
          for (int d = 0; d < E; ++d) {
            m += jp_vi[E * r + d] * second.jp[E * q + d];
          }
          for (int g = 0; g < kGroups; ++g) {
            left[kGroups * q + g] +=
                GroupAt(jc + kRowGroup * (kGroups * r + g)) * m;
          }
        }
      }
      double* sums = task.sums + task.offset[j];
      for (int b = 0; b < F; ++b) {
        for (int g = 0; g < kGroups; ++g, sums += kRowGroup) {
          RowGroup sum = GroupAt(sums);
          for (int q = 0; q < R; ++q) {
            sum += left[kGroups * q + g] * second.jc[F * q + b];
          }
          GroupAt(sums) = sum;
        }
      }
    }
  }
}

template <typename Source>
class SchurComplementBody {
 public:
  using Params = SchurComplementParams<Source, kHostLayout>;
  using Jacobian = HostJacobian<Source>;
  using Local = typename Jacobian::Local;
  static constexpr int F = Local::kF;
  static constexpr int C = Source::Shape::kF;

  SchurComplementBody(const Params& params, HostMachine* machine)
      : params_(params), jacobian_(params.jacobian, params.index, machine) {}

  void Compute(HostMachine* machine) {
    SumSchurRows(
        params_.index,
        params_.couplings,
        params_.rows,
        [&](int32_t i, const SchurRowTask& task) {
          AddCouplings(params_, jacobian_, i, task);
        },
        [&](int64_t block, int32_t i, int32_t j, const double* sums) {
          double sum[F * F];
          for (int a = 0; a < F; ++a) {
            for (int b = 0; b < F; ++b) {
              sum[F * a + b] = -sums[kRowGroup * NumGroups(F) * b + a];
            }
          }
          double s[C * C];
          UnmapBlock(params_.jacobian, i, j, sum, s);
          Store(block, i, j, s);
        },
        machine);
    machine->context()->ParallelFor(params_.couplings.num_cameras,
                                    kCameraGrain,
                                    [&](int64_t begin, int64_t end) {
                                      for (int64_t i = begin; i < end; ++i) {
                                        Diagonal(static_cast<int32_t>(i));
                                      }
                                    });
  }

 private:
  void Diagonal(int32_t i) {
    double s[C * C];
    for (int a = 0; a < C; ++a) {
      for (int b = 0; b <= a; ++b) {
        s[C * a + b] = params_.schur_diagonal(i, PackedIndex(a, b));
      }
      if (params_.camera_diagonal != nullptr) {
        const double d = params_.camera_diagonal[int64_t{C} * i + a];
        s[C * a + a] += d * d;
      }
    }
    Store(params_.couplings.row_begin[i + 1] - 1, i, i, s);
  }

  void Store(int64_t block, int32_t i, int32_t j, const double* s) const {
    const SchurUnknownsRef& unknowns = params_.unknowns;
    for (int b = 0; b < C; ++b) {
      const int32_t v = unknowns.id[int64_t{C} * j + b];
      for (int a = i == j ? b : 0; a < C; ++a) {
        const int32_t u = unknowns.id[int64_t{C} * i + a];
        if (u >= 0 && v >= 0) {
          params_.target.At(u, v, block, unknowns.begin[j]) = s[C * a + b];
        }
      }
    }
  }

  const Params& params_;
  const Jacobian jacobian_;
};

}  // namespace

template <typename Source>
Status Run(const SchurComplementParams<Source, kHostLayout>& params,
           HostMachine* machine) {
  const int64_t n = params.unknowns.num_unknowns;
  const SchurTarget& target = params.target;
  if (params.couplings.num_couplings > 0 && params.rows.num_parts == 0) {
    return {StatusCode::kInvalidArgument,
            "The Schur complement on the host needs its rows (HostSchurRows)."};
  }
  if (target.row_begin == nullptr) {
    if (target.stride < n) {
      return {StatusCode::kInvalidArgument,
              "A dense Schur complement of " + std::to_string(n) +
                  " unknowns needs columns of as many values, not " +
                  std::to_string(target.stride) + "."};
    }
    constexpr int64_t kColumnGrain = 64;
    machine->context()->ParallelFor(
        n, kColumnGrain, [&](int64_t begin, int64_t end) {
          for (int64_t v = begin; v < end; ++v) {
            std::fill(target.values + target.stride * v + v,
                      target.values + target.stride * (v + 1),
                      0.0);
          }
        });
  }
  SchurComplementBody<Source>(params, machine).Compute(machine);
  return {};
}

#define CERES_EXT_INSTANTIATE(...)                                            \
  template Status Run(const SchurComplementParams<__VA_ARGS__, kHostLayout>&, \
                      HostMachine*);
CERES_EXT_INSTANTIATE_ON_HOST()
CERES_EXT_INSTANTIATE(NestedJacobian<kHostLayout>)

}  // namespace ceres_ext::kernels
