// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Kernels that solve small dense problems of a cost function whole, each by a
// warp or a part of one (ceres_ext/device/cost_function.cuh).

#ifndef CERES_EXT_DEVICE_FIT_FORM_CUH_
#define CERES_EXT_DEVICE_FIT_FORM_CUH_

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>
#include <utility>

#include "ceres/jet.h"
#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/row_evaluation.h"
#include "ceres_ext/small/fit/fit.h"
#include "ceres_ext/small/fit/fit_solve.h"
#include "cuda_kernels/machine/cuda_warp.cuh"
#include "cuda_kernels/model/robust_loss.h"

namespace ceres_ext::internal {

namespace {

// The first value of a slot among those of the slots in the mask kVarying.
template <uint32_t kVarying, int... Ns>
CERES_HOST_DEVICE constexpr int FitBegin(int slot) {
  int begin = 0;
  for (int s = 0; s < slot; ++s) {
    begin += (kVarying >> s & 1) != 0 ? BlockValues<Ns...>::Size(s) : 0;
  }
  return begin;
}

// The slots of a model, of which those in the mask kVarying may vary. Values of
// these are one after the other, and so are columns.
template <uint32_t kVarying, int... Ns>
struct FitSlots {
  using Blocks = BlockValues<Ns...>;
  CERES_HOST_DEVICE static constexpr bool Varies(int slot) {
    return (kVarying >> slot & 1) != 0;
  }
  CERES_HOST_DEVICE static constexpr int Begin(int slot) {
    return FitBegin<kVarying, Ns...>(slot);
  }
  static constexpr int kColumns = FitBegin<kVarying, Ns...>(sizeof...(Ns));
};

// Evaluates a row at the values x of its blocks: R residuals and, if columns is
// not null, their derivatives by the columns of x (+) delta, R x kColumns.
// tangents: that of x (+) delta, kColumns x kColumns, or null: the identity.
template <typename Model, typename Slots>
struct FitRow {
  using Blocks = typename Slots::Blocks;
  static constexpr int R = Model::kNumResiduals;
  static constexpr int kColumns = Slots::kColumns;

  __device__ __forceinline__ static bool Evaluate(
      const typename Model::Constants& constants,
      const double* const* x,
      const double* tangents,
      double* residual,
      double* columns) {
    if (columns == nullptr) {
      return Model::Evaluate(constants, x, residual, nullptr);
    }
    double values[R * Blocks::kNumValues];
    double* jacobians[Blocks::kNumBlocks];
    Blocks::ForEach(
        [&](auto b) { jacobians[b] = values + R * Blocks::Begin(b); });
    if (!Model::Evaluate(constants, x, residual, jacobians)) {
      return false;
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        columns[kColumns * r + c] = 0.0;
      }
    }
    Blocks::ForEach([&](auto b) {
      if constexpr (Slots::Varies(b)) {
        constexpr int kBegin = Slots::Begin(b);
#pragma unroll
        for (int r = 0; r < R; ++r) {
          const double* const j = jacobians[b] + Blocks::Size(b) * r;
          double* const of_row = columns + kColumns * r + kBegin;
#pragma unroll
          for (int c = 0; c < Blocks::Size(b); ++c) {
            if (tangents == nullptr) {
              of_row[c] = j[c];
            } else {
#pragma unroll
              for (int e = 0; e < Blocks::Size(b); ++e) {
                of_row[c] +=
                    j[e] * tangents[kColumns * (kBegin + e) + kBegin + c];
              }
            }
          }
        }
      }
    });
    return true;
  }
};

// By Jets that have the columns of the blocks that may vary alone.
template <typename Functor, int kNumResiduals, int... Ns, typename Slots>
struct FitRow<AutoDiffModel<Functor, kNumResiduals, Ns...>, Slots> {
  using Model = AutoDiffModel<Functor, kNumResiduals, Ns...>;
  using Blocks = typename Slots::Blocks;
  static constexpr int R = kNumResiduals;
  static constexpr int kColumns = Slots::kColumns;

  __device__ __forceinline__ static bool Evaluate(
      const typename Model::Constants& constants,
      const double* const* x,
      const double* tangents,
      double* residual,
      double* columns) {
    const auto& functor = FunctorConstants<Functor>::Make(constants);
    const auto numbers = std::make_integer_sequence<int, Blocks::kNumBlocks>();
    if (columns == nullptr) {
      return Call(functor, x, residual, numbers);
    }
    using Jet = ceres::Jet<double, kColumns>;
    Jet values[Blocks::kNumValues];
    const Jet* blocks[Blocks::kNumBlocks];
    Blocks::ForEach([&](auto b) {
      blocks[b] = values + Blocks::Begin(b);
#pragma unroll
      for (int e = 0; e < Blocks::Size(b); ++e) {
        Jet value(x[b][e]);
        if constexpr (Slots::Varies(b)) {
          if (tangents == nullptr) {
            value.v[Slots::Begin(b) + e] = 1.0;
          } else {
#pragma unroll
            for (int c = 0; c < kColumns; ++c) {
              value.v[c] = tangents[kColumns * (Slots::Begin(b) + e) + c];
            }
          }
        }
        values[Blocks::Begin(b) + e] = value;
      }
    });
    Jet y[R];
    if (!Call(functor, blocks, y, numbers)) {
      return false;
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
      residual[r] = y[r].a;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        columns[kColumns * r + c] = y[r].v[c];
      }
    }
    return true;
  }

 private:
  template <typename T, int... kBs>
  __device__ __forceinline__ static bool Call(
      const Functor& functor,
      const T* const* x,
      T* y,
      std::integer_sequence<int, kBs...>) {
    return functor(x[kBs]..., y);
  }
};

// kLanes neighbours in a warp.
template <int kLanes>
class LaneTeam {
 public:
  __device__ bool is_first() const { return threadIdx.x % kLanes == 0; }
  __device__ static bool Any(bool value) {
    return __ballot_sync(kernels::kFullWarp, value ? 1 : 0) != 0;
  }
  __device__ static int FromFirst(int value) {
    return __shfl_sync(
        kernels::kFullWarp,
        value,
        static_cast<int>(threadIdx.x) % kernels::kWarpSize / kLanes * kLanes);
  }
  __device__ static double Sum(double value) {
#pragma unroll
    for (int offset = kLanes / 2; offset > 0; offset /= 2) {
      value += __shfl_xor_sync(kernels::kFullWarp, value, offset);
    }
    return value;
  }
  __device__ static void Barrier() { __syncwarp(); }
};

template <typename Model,
          uint32_t kVarying,
          int kLanes,
          bool kIsBounded,
          typename BlockSizes = typename Model::BlockSizes>
class FitProblem;
template <typename Model,
          uint32_t kVarying,
          int kLanes,
          bool kIsBounded,
          int... Ns>
class FitProblem<Model,
                 kVarying,
                 kLanes,
                 kIsBounded,
                 std::integer_sequence<int, Ns...>> {
 public:
  using Slots = FitSlots<kVarying, Ns...>;
  using Blocks = typename Slots::Blocks;
  using Row = FitRow<Model, Slots>;
  using Constants = typename Model::Constants;
  using Memory = FitMemory<Slots::kColumns>;
  using Sums = FitSums<Slots::kColumns>;
  static constexpr int kColumns = Slots::kColumns;
  static constexpr int R = Model::kNumResiduals;

  __device__ FitProblem(const FitParams& params,
                        const FitRecord& record,
                        Memory* memory)
      : params_(params),
        record_(record),
        memory_(memory),
        lane_(static_cast<int>(threadIdx.x) % kLanes) {}

  // Sets x to the start. False in some lane if a value is not finite or an
  // index is out of its range. *num_rows: the active rows of this lane.
  __device__ bool Load(int* num_rows) {
    bool is_valid = true;
    Blocks::ForEach([&](auto s) {
      const FitSlot& slot = params_.slots[s];
      const int64_t begin = slot.begin[record_.number];
      const int64_t end = slot.begin[record_.number + 1];
      const double* const values =
          slot.values + Blocks::Size(s) * (begin - slot.first);
      for (int64_t e = lane_; e < Blocks::Size(s) * (end - begin);
           e += kLanes) {
        is_valid = is_valid && IsFinite(values[e]);
      }
      if constexpr (Slots::Varies(s)) {
        for (int e = lane_; e < Blocks::Size(s); e += kLanes) {
          memory_->x[Slots::Begin(s) + e] = IsVarying(s) ? values[e] : 0.0;
        }
        used_columns_ |= IsVarying(s)
                             ? ((1U << ManifoldOf(s).tangent_size()) - 1)
                                   << Slots::Begin(s)
                             : 0U;
        has_tangents_ =
            has_tangents_ || !IsVarying(s) || ManifoldOf(s).num_factors != 0;
      }
    });
    int n = 0;
    ForEachRow</*kOnlyActive=*/false>([&](const FitRows& rows, int64_t k) {
      Blocks::ForEach([&](auto s) {
        const int64_t* const begin = params_.slots[s].begin + record_.number;
        const int64_t block = BlockOf(rows, s, k);
        is_valid = is_valid && block >= begin[0] && block < begin[1];
      });
      if (!is_valid || !IsActive(rows, k)) {
        return true;
      }
      if (rows.weights != nullptr) {
        const double weight = rows.weights[k - rows.first];
        is_valid = weight >= 0.0 && IsFinite(weight);
      }
      ++n;
      return true;
    });
    *num_rows = n;
    return is_valid;
  }
  __device__ uint32_t used_columns() const { return used_columns_; }

  // Moves x onto its bounds, after Load.
  __device__ void BoundStart() {
    Blocks::ForEach([&](auto s) {
      if constexpr (Slots::Varies(s)) {
        const FitSlot& slot = params_.slots[s];
        if (lane_ == 0 && IsVarying(s)) {
          slot.Bound(slot.begin[record_.number],
                     Blocks::Size(s),
                     memory_->x + Slots::Begin(s));
        }
      }
    });
    __syncwarp();
  }

  __device__ bool AddRows(const double* x, Sums* sums) {
    return ForEachRow</*kOnlyActive=*/true>(
        [&](const FitRows& rows, int64_t k) {
          double residual[R];
          double columns[R * kColumns];
          if (!Evaluate(rows, k, x, residual, columns)) {
            return false;
          }
          bool is_finite = true;
#pragma unroll
          for (int e = 0; e < R * kColumns; ++e) {
            is_finite = is_finite && IsFinite(columns[e]);
          }
          double rho[3];
          const double s = EvaluateLoss(rows, k, residual, rho);
          if (!kernels::LossCorrector::IsIdentity(rho)) {
            const kernels::LossCorrector corrector(s, rho);
            corrector.template CorrectJacobian<R, kColumns>(residual, columns);
            corrector.template CorrectResidual<R>(residual);
          }
#pragma unroll
          for (int r = 0; r < R; ++r) {
            sums->Add(residual[r], columns + kColumns * r);
          }
          sums->cost += 0.5 * rho[0];
          return is_finite && IsFinite(s);
        });
  }

  __device__ bool AddCosts(const double* x, double* cost) {
    return ForEachRow</*kOnlyActive=*/true>(
        [&](const FitRows& rows, int64_t k) {
          double residual[R];
          if (!Evaluate(rows, k, x, residual, nullptr)) {
            return false;
          }
          double rho[3];
          const double s = EvaluateLoss(rows, k, residual, rho);
          *cost += 0.5 * rho[0];
          return IsFinite(s);
        });
  }

  __device__ void Plus(const double* x, const double* delta, double* moved) {
    Blocks::ForEach([&](auto s) {
      if constexpr (Slots::Varies(s)) {
        constexpr int kBegin = Slots::Begin(s);
        if (IsVarying(s)) {
          ManifoldOf(s).Plus(x + kBegin, delta + kBegin, moved + kBegin);
          if constexpr (kIsBounded) {
            const FitSlot& slot = params_.slots[s];
            slot.Bound(
                slot.begin[record_.number], Blocks::Size(s), moved + kBegin);
          }
        } else {
          for (int e = 0; e < Blocks::Size(s); ++e) {
            moved[kBegin + e] = x[kBegin + e];
          }
        }
      }
    });
  }

  __device__ void SetTangents(const double* x) {
    if (!has_tangents_) {
      return;
    }
    for (int e = 0; e < kColumns * kColumns; ++e) {
      memory_->tangents[e] = 0.0;
    }
    Blocks::ForEach([&](auto s) {
      if constexpr (Slots::Varies(s)) {
        constexpr int kBegin = Slots::Begin(s);
        if (IsVarying(s)) {
          ManifoldOf(s).PlusJacobian(
              x + kBegin,
              kColumns,
              memory_->tangents + (kColumns + 1) * kBegin);
        }
      }
    });
  }

  // Writes x of the blocks that vary.
  __device__ void Store() const {
    Blocks::ForEach([&](auto s) {
      if constexpr (Slots::Varies(s)) {
        if (IsVarying(s)) {
          const FitSlot& slot = params_.slots[s];
          double* const to =
              slot.results +
              Blocks::Size(s) * (slot.begin[record_.number] - slot.first);
          for (int e = lane_; e < Blocks::Size(s); e += kLanes) {
            to[e] = memory_->x[Slots::Begin(s) + e];
          }
        }
      }
    });
  }

 private:
  __device__ static bool IsFinite(double x) {
    return x - x == 0.0;  // NOLINT(misc-redundant-expression)
  }
  __device__ bool IsVarying(int s) const {
    return (record_.varying >> s & 1) != 0;
  }
  __device__ FitManifold ManifoldOf(int s) const {
    const int32_t* const begin = params_.factor_begin + record_.manifold[s];
    return {params_.factors + begin[0], begin[1] - begin[0], Blocks::Size(s)};
  }
  __device__ static int64_t BlockOf(const FitRows& rows, int s, int64_t k) {
    return rows.block[s] == nullptr ? k : rows.block[s][k - rows.first];
  }
  __device__ bool IsActive(const FitRows& rows, int64_t k) const {
    bool is_active =
        rows.is_active == nullptr || rows.is_active[k - rows.first] != 0;
    Blocks::ForEach([&](auto s) {
      const FitSlot& slot = params_.slots[s];
      is_active =
          is_active && (slot.is_active == nullptr ||
                        slot.is_active[BlockOf(rows, s, k) - slot.first] != 0);
    });
    return is_active;
  }

  // Calls function(rows, k) for the rows of this lane. False if it ever returns
  // false.
  template <bool kOnlyActive, typename Function>
  __device__ __forceinline__ bool ForEachRow(const Function& function) const {
    bool result = true;
    for (int a = 0; a < params_.num_arrays; ++a) {
      const FitRows& rows = params_.rows[a];
      const int64_t end = rows.begin[record_.number + 1];
#pragma unroll 1
      for (int64_t k = rows.begin[record_.number] + lane_; k < end;
           k += kLanes) {
        if (!kOnlyActive || IsActive(rows, k)) {
          result = function(rows, k) && result;
        }
      }
    }
    return result;
  }

  __device__ __forceinline__ bool Evaluate(const FitRows& rows,
                                           int64_t k,
                                           const double* x,
                                           double* residual,
                                           double* columns) const {
    const double* of_row[Blocks::kNumBlocks];
    Blocks::ForEach([&](auto s) {
      if (Slots::Varies(s) && IsVarying(s)) {
        of_row[s] = x + Slots::Begin(s);
      } else {
        const FitSlot& slot = params_.slots[s];
        of_row[s] =
            slot.values + Blocks::Size(s) * (BlockOf(rows, s, k) - slot.first);
      }
    });
    const Constants constants =
        static_cast<const Constants*>(rows.constants)[k - rows.first];
    return Row::Evaluate(constants,
                         of_row,
                         has_tangents_ ? memory_->tangents : nullptr,
                         residual,
                         columns);
  }

  // Returns |r|^2.
  __device__ __forceinline__ double EvaluateLoss(const FitRows& rows,
                                                 int64_t k,
                                                 const double* residual,
                                                 double* rho) const {
    double s = 0.0;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      s += residual[r] * residual[r];
    }
    rho[0] = s;
    rho[1] = 1.0;
    rho[2] = 0.0;
    if (rows.loss >= 0) {
      kernels::RobustLoss::EvaluateChain(params_.losses, rows.loss, s, rho);
    }
    if (rows.weights != nullptr) {
      for (int i = 0; i < 3; ++i) {
        rho[i] *= rows.weights[k - rows.first];
      }
    }
    return s;
  }

  const FitParams& params_;
  const FitRecord& record_;
  Memory* const memory_;
  const int lane_;
  uint32_t used_columns_ = 0;
  bool has_tangents_ = false;
};

// Mapping: kLanes lanes of a warp solve a fit; each has every kLanes-th row.
// Order: the rows of a lane, then a tree over the lanes. Traffic: what a row
// refers to, in each evaluation.
template <typename Model, uint32_t kVarying, int kLanes, bool kIsBounded>
__global__ void __launch_bounds__(kFitBlock)
    SolveFitsKernel(const __grid_constant__ FitParams params) {
  using Problem = FitProblem<Model, kVarying, kLanes, kIsBounded>;
  using Memory = typename Problem::Memory;
  using Team = LaneTeam<kLanes>;
  constexpr int kTeams = kFitBlock / kLanes;
  static_assert(sizeof(Memory) % sizeof(double) == 0, "arrays of doubles");
  __shared__ double shared[kTeams * sizeof(Memory) / sizeof(double)];
  const int number = static_cast<int>(threadIdx.x) / kLanes;
  auto* const memory = reinterpret_cast<Memory*>(shared) + number;
  const int64_t fit = int64_t{blockIdx.x} * kTeams + number;
  // Whole warps stay, since their lanes exchange values.
  const bool is_fit = fit < params.num_fits;
  const FitRecord record = is_fit ? params.records[fit] : FitRecord();
  Team team;
  Problem problem(params, record, memory);
  int num_rows = 0;
  const bool is_valid_here = !is_fit || problem.Load(&num_rows);
  // The first lane reads the x that all lanes have loaded.
  Team::Barrier();
  const bool is_valid = Team::Sum(is_valid_here ? 0.0 : 1.0) == 0.0;
  const auto num_active = static_cast<int32_t>(Team::Sum(num_rows));
  const bool is_solved = is_fit && is_valid && num_active > 0;
  if constexpr (kIsBounded) {
    problem.BoundStart();
  }
  FitSolve<Problem::kColumns, Problem, Team, kIsBounded>(
      &problem, memory, &team)
      .Run(params.options, is_solved, problem.used_columns());
  if (is_solved) {
    problem.Store();
  }
  if (is_fit && team.is_first()) {
    FitResult* const result = params.results + record.number;
    result->region = memory->region;
    result->status = !is_valid   ? FitResult::kNotValid
                     : is_solved ? FitResult::kSolved
                                 : FitResult::kEmpty;
    result->num_rows = num_active;
  }
}

// The mask of the numbers, or of all blocks if there are none; 0 if there is no
// such block, or if there are too many blocks.
template <int... kBlocks, int... Ns>
constexpr uint32_t FitMask(std::integer_sequence<int, Ns...>) {
  constexpr int kNumBlocks = sizeof...(Ns);
  if (kNumBlocks > kMaxFitSlots ||
      !((kBlocks >= 0 && kBlocks < kNumBlocks) && ...)) {
    return 0;
  }
  uint32_t mask = 0;
  for (int b = 0; b < kNumBlocks; ++b) {
    mask |= sizeof...(kBlocks) == 0 || ((kBlocks == b) || ...) ? 1U << b : 0U;
  }
  return mask;
}

// True if the blocks of the mask are not too large in all.
template <uint32_t kVarying, int... Ns>
constexpr bool AreFitColumns(std::integer_sequence<int, Ns...>) {
  return kVarying != 0 &&
         FitBegin<kVarying, Ns...>(sizeof...(Ns)) <= kMaxFitColumns;
}

template <typename ModelIn, int... kBlocks>
struct FitForm {
  using Model = ModelIn;
  static constexpr FormKind kKind = FormKind::kFits;
  static constexpr int32_t kParamsSize = sizeof(FitParams);
  static constexpr int32_t kColumns = 0;
  static constexpr uint32_t kVarying =
      FitMask<kBlocks...>(typename Model::BlockSizes());
  static constexpr bool kIsPossible =
      AreFitColumns<kVarying>(typename Model::BlockSizes());
  static void CheckPossible() {
    static_assert(kIsPossible,
                  "form::Fits needs numbers of parameter blocks, from 0, that "
                  "have at most 16 values in all, of at most 8 blocks");
  }

  template <typename Function>
  static int WithKernel(int kernel, const Function& f) {
    return kernel == 0   ? f(&SolveFitsKernel<Model, kVarying, 8, false>)
           : kernel == 1 ? f(&SolveFitsKernel<Model, kVarying, 32, false>)
                         : f(&SolveFitsKernel<Model, kVarying, 32, true>);
  }
};

}  // namespace
}  // namespace ceres_ext::internal

#endif  // CERES_EXT_DEVICE_FIT_FORM_CUH_
