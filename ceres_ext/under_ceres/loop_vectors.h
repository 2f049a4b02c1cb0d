// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The vectors of Ceres's trust-region loop in the memory of a Machine. Sums
// have an order of their own (cuda_kernels/ops/vectors.h), so that neither
// threads nor runs change a bit.

#ifndef CERES_EXT_UNDER_CERES_LOOP_VECTORS_H_
#define CERES_EXT_UNDER_CERES_LOOP_VECTORS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "ceres/trust_region_vectors.h"
#include "ceres_ext/base/ceres_version.h"
#include "ceres_ext/base/failure.h"
#include "ceres_ext/base/machines.h"
#include "ceres_ext/import/caller_state.h"
#include "ceres_ext/import/problem_structure.h"
#include "ceres_ext/solver/rank_sums.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/vectors.h"

namespace ceres_ext {

template <typename Machine>
class LoopVectors final : public ceres::internal::TrustRegionVectors {
 public:
  // *machine and *failure outlive the vectors. caller_state: where the state
  // comes from and goes to in place of Ceres's memory, with the threads of
  // *host_context; both then outlive them too, or are null.
  // ranks: of a solve by several, or null; outlives the vectors.
  LoopVectors(Machine* machine,
              const CallerState* caller_state,
              kernels::HostContext* host_context,
              solver::RankSums<Machine>* ranks,
              Failure* failure)
      : machine_(machine),
        ranks_(ranks),
        caller_state_(caller_state),
        host_context_(host_context),
        failure_(failure) {}
  ~LoopVectors() final { SetBuffersLaunches(false); }

  struct Sizes {
    int num_parameters = 0;            // of x
    int num_effective_parameters = 0;  // of a step
    int num_residuals = 0;
    // The loop keeps the best x in a vector of its own.
    bool keeps_best = true;
    // No step raises the cost, so x is the best x.
    bool is_monotonic = false;
    // It searches along its steps, which takes the gradient beside them.
    bool searches = false;
    // The strategy is DOGLEG, and its type is SUBSPACE_DOGLEG.
    bool is_dogleg = false;
    bool is_subspace = false;
    // A gradient that is NaN, for example because float blocks are infinite,
    // fails the solve. Ceres takes it for convergence.
    bool nan_fails = false;
    // If several ranks solve, the values of x and of a step that this one has.
    ProblemStructure::Range own_parameters = {};
    ProblemStructure::Range own_effective_parameters = {};
  };
  // Bytes that Setup takes. has_scratch: it is given residuals.
  static int64_t NumBytes(const Sizes& sizes, bool shares, bool has_scratch) {
    int64_t num_values = 1;
    for (const auto& memory : Memories(sizes, shares)) {
      num_values += memory.is_scratch && has_scratch ? 0 : memory.size();
    }
    return num_values * static_cast<int64_t>(sizeof(double));
  }

  // Once, before anything else. Takes the memory of all vectors that the loop
  // will ask for, so that a lack of it shows while there is another way.
  // scratch_residuals: memory for the model's residuals that somebody else uses
  // where no step is being computed; or null.
  kernels::Status Setup(const Sizes& sizes, double* scratch_residuals) {
    CERES_EXT_RETURN_IF_ERROR(machine_->AllocateResult(&scalars_));
    CERES_EXT_RETURN_IF_ERROR(machine_->AllocateResult(&norms_of_plus_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(1, &num_invalid_));
    memories_ = Memories(sizes, Shares());
    vectors_.clear();
    for (Memory& memory : memories_) {
      if (memory.is_scratch && scratch_residuals != nullptr) {
        memory.data = scratch_residuals;
        continue;
      }
      vectors_.emplace_back();
      CERES_EXT_RETURN_IF_ERROR(
          machine_->Allocate(memory.size(), &vectors_.back()));
      memory.data = vectors_.back().data();
    }
    order_ = Order(sizes);
    nan_fails_ = sizes.nan_fails;
    judges_at_once_ = kIsHost<Machine> || sizes.is_dogleg;
    own_parameters_ = sizes.own_parameters;
    own_step_ = sizes.own_effective_parameters;
    num_asked_ = 0;
    num_used_ = 0;
    SetBuffersLaunches(true);
    return {};
  }

  // The model's residuals, which are free except from a step to its
  // ModelCostChange.
  double* model_residuals() const { return memories_[kModelResiduals].data; }

  // The caller's memory is not memory of Ceres.
  bool IsHost() const final {
    return kIsHost<Machine> && caller_state_ == nullptr;
  }

  // The vector that the loop asks for next, by Order; new memory for anything
  // else.
  double* Allocate(int n) final {
    double* data = nullptr;
    if (num_asked_ < order_.size() && memories_[order_[num_asked_]].n == n) {
      data = memories_[order_[num_asked_++]].data;
    } else if (Guarded([&] {
                 vectors_.emplace_back();
                 return machine_->Allocate(n, &vectors_.back());
               })) {
      data = vectors_.back().data();
    }
    num_used_ += data != nullptr ? 1 : 0;
    return data;
  }

  // Takes no memory: destructors call it. Another loop may begin after the last
  // vector of one.
  void Free(double* x) final {
    num_used_ -= x != nullptr ? 1 : 0;
    if (num_used_ == 0) {
      num_asked_ = 0;
    }
  }

  bool CopyFromHost(int n, const double* host_x, double* y) final {
    plus_from_ = nullptr;
    return Guarded([&] {
      return caller_state_ != nullptr
                 ? caller_state_->CopyToMachine(y, machine_)
                 : machine_->Upload(n, host_x, y);
    });
  }
  bool CopyToHost(int n, const double* x, double* host_y) final {
    return Guarded([&] {
      return caller_state_ != nullptr
                 ? caller_state_->CopyFromMachine(x, machine_, host_context_)
                 : machine_->Download(n, x, host_y);
    });
  }
  void Copy(int n, const double* x, double* y) final {
    if (x != y) {
      Run(kernels::CopyParams{n, x, y});
    }
  }
  void SetZero(int n, double* x) final {
    Run(kernels::SetConstantParams{n, 0.0, x});
  }
  void SetOne(int n, double* x) final {
    Run(kernels::SetConstantParams{n, 1.0, x});
  }
  void Negate(int n, const double* x, double* y) final {
    Run(kernels::NegateParams{n, x, y});
  }
  void Scale(int n, double factor, const double* x, double* y) final {
    Run(kernels::MultiplyByParams{n, factor, x, y});
    has_scaled_step_ = true;
  }
  void Multiply(int n, const double* x, const double* y, double* z) final {
    Run(kernels::MultiplyParams{n, x, y, z});
    has_scaled_step_ = true;
  }
  void JacobiScaling(int n, double* x) final {
    Run(kernels::JacobiScalingParams{n, x});
  }
  void Clamp(int n, double min_value, double max_value, double* x) final {
    Run(kernels::ClampParams{n, min_value, max_value, x});
  }
  void LevenbergMarquardtDiagonal(int n,
                                  const double* x,
                                  double radius,
                                  double* y) final {
    Run(kernels::LevenbergMarquardtDiagonalParams{n, radius, x, y});
  }
  void Invalidate(int n, double* x) final {
    Run(kernels::SetConstantParams{n, kernels::kImpossibleValue, x});
  }

  bool NegateIfValid(int n, double* x) final {
    kernels::LoopScalars scalars;
    if (ranks_ != nullptr) {
      Parts parts;
      const bool ok = RunAndReadParts(
          n,
          own_step_,
          [&](int begin, int size) {
            return kernels::CountInvalidParams{size, x + begin};
          },
          &parts);
      if (!ok || std::any_of(parts.begin(), parts.end(), [](const auto& part) {
            return part.num_invalid > 0;
          })) {
        return false;
      }
      Run(kernels::NegateParams{n, x, x});
      return !failure_->has_happened();
    }
    step_is_judged_ = judges_at_once_;
    return !failure_->has_happened() && Guarded([&]() -> kernels::Status {
      CERES_EXT_RETURN_IF_ERROR(kernels::Run(
          kernels::CountInvalidParams{
              n, x, scalars_.data(), num_invalid_.data()},
          machine_));
      CERES_EXT_RETURN_IF_ERROR(kernels::Run(
          kernels::NegateIfValidParams{n, x, num_invalid_.data()}, machine_));
      // On a device the host does not wait: ModelCostChange has the answer,
      // except that dogleg needs it for other sums.
      return step_is_judged_ ? machine_->ReadResult(scalars_, &scalars)
                             : kernels::Status();
    }) && scalars.num_invalid == 0;
  }

  bool ProjectedGradientNorms(int n,
                              const double* x,
                              const double* projected_x,
                              double* max_norm,
                              double* norm) final {
    kernels::LoopScalars scalars;
    const bool ok = RunAndReadOfAll(
        n,
        own_parameters_,
        [&](int begin, int size) {
          return kernels::ProjectedGradientNormsParams{
              size, x + begin, projected_x + begin};
        },
        &scalars);
    *max_norm = scalars.max_norm;
    *norm = scalars.norm;
    if (ok && nan_fails_ &&
        (std::isnan(scalars.max_norm) || std::isnan(scalars.norm))) {
      failure_->Explain("The gradient is not a number.");
      return false;
    }
    return ok;
  }

  bool StepNorms(int n,
                 const double* x,
                 const double* candidate_x,
                 double* x_norm,
                 double* step_norm) final {
    kernels::LoopScalars scalars;
    const bool ok =
        plus_from_ == x && plus_to_ == candidate_x
            ? Guarded([&] {
                return machine_->ReadResult(norms_of_plus_, &scalars);
              })
            : RunAndReadOfAll(
                  n,
                  own_parameters_,
                  [&](int begin, int size) {
                    return kernels::StepNormsParams{
                        size, x + begin, candidate_x + begin};
                  },
                  &scalars);
    *x_norm = scalars.x_norm;
    *step_norm = scalars.step_norm;
    return ok;
  }

  // Also judges the step, if the linear solver or NegateIfValid have not: one
  // that can't be used has no gain, and the loop takes it for invalid too.
  bool ModelCostChange(int n,
                       const double* residuals,
                       const double* model_residuals,
                       double* model_cost_change) final {
    kernels::LoopScalars scalars;
    bool has_step = true;
    // Each rank has rows of its own.
    const bool ok = RunAndReadOfAll(
        n,
        {0, n},
        [&](int begin, int size) {
          return kernels::ModelCostChangeParams{
              size, residuals + begin, model_residuals + begin};
        },
        &scalars,
        [&] { has_step = !finish_step_ || finish_step_(); });
    if (ok && has_step && !step_is_judged_ && scalars.num_invalid > 0) {
      has_step = false;
      LOG_IF(WARNING, failure_->is_logged())
          << "Linear solver failure. Failed to compute a finite step.";
    }
    step_is_judged_ = true;
    *model_cost_change = has_step ? scalars.model_cost_change
                                  : std::numeric_limits<double>::quiet_NaN();
    return ok && !failure_->has_happened();
  }
  bool DirectionalDerivative(int n,
                             const double* gradient,
                             const double* direction,
                             double* derivative,
                             double* max_norm) final {
    kernels::LoopScalars scalars;
    const bool ok = RunAndReadOfAll(
        n,
        own_step_,
        [&](int begin, int size) {
          return kernels::DirectionalDerivativeParams{
              size, gradient + begin, direction + begin};
        },
        &scalars);
    *derivative = scalars.dot;
    *max_norm = scalars.direction_max_norm;
    return ok;
  }
  void Divide(int n, const double* x, const double* y, double* z) final {
    Run(kernels::DivideParams{n, x, y, z});
  }
  void LinearCombination(int n,
                         double a,
                         const double* x,
                         double b,
                         const double* y,
                         double* z) final {
    Run(kernels::LinearCombinationParams{n, a, x, b, y, z});
  }
  bool StepDot(int n, const double* x, const double* y, double* dot) final {
    return Dot(n, own_step_, x, y, dot);
  }
  // Each rank has rows of its own.
  bool ResidualDot(int n, const double* x, const double* y, double* dot) final {
    return Dot(n, {0, n}, x, y, dot);
  }

  // Called by ModelCostChange: waits for the linear solver's step and returns
  // false if there is none.
  void SetFinishStep(std::function<bool()> finish_step) {
    finish_step_ = std::move(finish_step);
  }

  // candidate_x has become x (+) a step. If that is the vector that was scaled
  // last, StepNorms of both comes next: a device computes it beside the cost.
  void NotePlus(int n, const double* x, const double* candidate_x) {
    if (kIsHost<Machine> || ranks_ != nullptr || !has_scaled_step_) {
      plus_from_ = nullptr;
      return;
    }
    Run(kernels::StepNormsParams{n, x, candidate_x, norms_of_plus_.data()});
    plus_from_ = x;
    plus_to_ = candidate_x;
  }

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  // Memory of n values, of one vector or of several that never hold something
  // at the same time.
  struct Memory {
    int n = 0;
    bool is_scratch = false;  // of the model's residuals
    double* data = nullptr;

    // Ceres takes no null, which a rank without rows would have.
    int size() const { return std::max(n, 1); }
  };
  // By number in Memories. Ceres's host vectors are not aliased: other Ceres
  // code may use them in another order.
  enum Place {
    kX,
    kCandidate,
    kStep,
    kScaledStep,
    kScaling,
    kDiagonal,
    kResiduals,
    kModelResiduals,
    kBest,
    kDoglegGradient,
    kGaussNewton,
    kBasisU,
    kBasisV,
    kBasisResiduals,  // J D^-1 v
    kGradient,        // empty if it is in the memory of the step
    // Only where nothing is shared.
    kProjected,
    kNegativeGradient,
    kDiagonalRoot,
    kDoglegResiduals,
  };
  static std::vector<Memory> Memories(const Sizes& sizes, bool shares) {
    const int x = sizes.num_parameters;
    const int step = sizes.num_effective_parameters;
    const int residuals = sizes.num_residuals;
    std::vector<Memory> memories = {{x},
                                    {x},
                                    {step},
                                    {step},
                                    {step},
                                    {step},
                                    {residuals},
                                    {residuals, /*is_scratch=*/true},
                                    {KeepsBest(sizes, shares) ? x : 0},
                                    {sizes.is_dogleg ? step : 0},
                                    {sizes.is_dogleg ? step : 0},
                                    {sizes.is_subspace ? step : 0},
                                    {sizes.is_subspace ? step : 0},
                                    {sizes.is_subspace ? residuals : 0},
                                    {!shares || sizes.searches ? step : 0}};
    if (!shares) {
      memories.insert(memories.end(),
                      {{x}, {step}, {step}, {sizes.is_dogleg ? residuals : 0}});
    }
    return memories;
  }
  static bool KeepsBest(const Sizes& sizes, bool shares) {
    return sizes.keeps_best && !(shares && sizes.is_monotonic);
  }
  bool Shares() const { return !IsHost(); }
  // In the order in which the loop asks: TrustRegionMinimizer::Init, then
  // ComputeStep of the strategy. Vectors that share memory:
  //   x                     x; the best x, where no step raises the cost
  //   candidate             candidate; the projected gradient step, which is
  //                         read where it is made
  //   step                  step; gradient, until it is negated, unless the
  //                         loop searches along the step
  //   scaled step           scaled step; the negative gradient, which is read
  //                         where it is made; the damping, which the linear
  //                         solver reads before there is a step to scale
  //   model's residuals     model's residuals; J D^-1 x of dogleg, until there
  //                         is a step
  std::vector<Place> Order(const Sizes& sizes) const {
    const bool shares = Shares();
    std::vector<Place> order = {kX};
    if (sizes.keeps_best) {
      order.push_back(KeepsBest(sizes, shares) ? kBest : kX);
    }
    order.insert(order.end(),
                 {kResiduals,
                  kStep,
                  kScaledStep,
                  kCandidate,
                  shares && !sizes.searches ? kStep : kGradient,
                  kModelResiduals,
                  shares ? kScaledStep : kNegativeGradient,
                  shares ? kCandidate : kProjected,
                  kScaling,
                  kDiagonal,
                  shares ? kScaledStep : kDiagonalRoot});
    if (sizes.is_dogleg) {
      order.insert(order.end(),
                   {kDoglegGradient,
                    kGaussNewton,
                    shares ? kModelResiduals : kDoglegResiduals});
    }
    if (sizes.is_subspace) {
      order.insert(order.end(), {kBasisU, kBasisV, kBasisResiduals});
    }
    return order;
  }

  // While there is a loop, its launches on a device may wait for each other.
  void SetBuffersLaunches(bool buffers) {
    if constexpr (!kIsHost<Machine>) {
      machine_->context()->SetBuffersLaunches(buffers);
    }
  }
  // Methods that can't report an error leave that to the next one that can.
  // False: there has been one, after which nothing is done.
  template <typename Function>
  bool Guarded(Function&& fn) {
    return !failure_->has_happened() && failure_->Guard(false, [&] {
      const CurrentMachine<Machine> current(machine_);
      const kernels::Status status =
          current.status().ok() ? fn() : current.status();
      if (!status.ok()) {
        LOG_IF(ERROR, failure_->is_logged())
            << "A vector operation failed: " << status.message;
        failure_->Set(status);
      }
      return status.ok();
    });
  }

  template <typename Params>
  void Run(const Params& params) {
    has_scaled_step_ = false;
    plus_from_ = nullptr;
    Guarded([&] { return kernels::Run(params, machine_); });
  }

  // Runs an operation that sets some of the scalars and reads them. Calls
  // between() in between.
  template <typename Params, typename Between>
  bool RunAndRead(Params params,
                  kernels::LoopScalars* scalars,
                  const Between& between) {
    params.scalars = scalars_.data();
    if (!Guarded([&] { return kernels::Run(params, machine_); })) {
      return false;
    }
    between();
    return Guarded([&] { return machine_->ReadResult(scalars_, scalars); });
  }

  bool Dot(int n,
           const ProblemStructure::Range& own,
           const double* x,
           const double* y,
           double* dot) {
    kernels::LoopScalars scalars;
    const bool ok = RunAndReadOfAll(
        n,
        own,
        [&](int begin, int size) {
          return kernels::LoopDotParams{size, x + begin, y + begin};
        },
        &scalars);
    *dot = scalars.dot;
    return ok;
  }

  // The scalars of the values that all ranks have, in one or two parts, then
  // those of each rank's own.
  using Parts = std::vector<kernels::LoopScalars>;
  // make(begin, size): the operation on values begin .. begin + size - 1 of n.
  template <typename Make>
  bool RunAndReadParts(int n,
                       const ProblemStructure::Range& own,
                       const Make& make,
                       Parts* parts) {
    return Guarded([&]() -> kernels::Status {
      const auto run = [&](int begin, int end, kernels::LoopScalars* part) {
        auto params = make(begin, end - begin);
        params.scalars = scalars_.data();
        CERES_EXT_RETURN_IF_ERROR(kernels::Run(params, machine_));
        return machine_->ReadResult(scalars_, part);
      };
      kernels::LoopScalars mine;
      CERES_EXT_RETURN_IF_ERROR(run(own.begin, own.end, &mine));
      CERES_EXT_RETURN_IF_ERROR(ranks_->Gather(mine, parts));
      for (const auto& [begin, end] :
           {std::pair(own.end, n), std::pair(0, own.begin)}) {
        if (begin < end) {
          parts->emplace(parts->begin());
          CERES_EXT_RETURN_IF_ERROR(run(begin, end, &parts->front()));
        }
      }
      return {};
    });
  }

  // The scalars of all values of all ranks.
  template <typename Make>
  bool RunAndReadOfAll(int n,
                       const ProblemStructure::Range& own,
                       const Make& make,
                       kernels::LoopScalars* scalars) {
    return RunAndReadOfAll(n, own, make, scalars, [] {});
  }
  template <typename Make, typename Between>
  bool RunAndReadOfAll(int n,
                       const ProblemStructure::Range& own,
                       const Make& make,
                       kernels::LoopScalars* scalars,
                       const Between& between) {
    if (ranks_ == nullptr) {
      return RunAndRead(make(0, n), scalars, between);
    }
    Parts parts;
    if (!RunAndReadParts(n, own, make, &parts)) {
      return false;
    }
    const auto set_max = [](double of_part, double* max) {
      if (!(of_part <= *max)) {  // NaN stays.
        *max = std::isnan(*max) ? *max : of_part;
      }
    };
    *scalars = {};
    for (const kernels::LoopScalars& part : parts) {
      set_max(part.max_norm, &scalars->max_norm);
      set_max(part.direction_max_norm, &scalars->direction_max_norm);
      scalars->norm += part.norm * part.norm;
      scalars->x_norm += part.x_norm * part.x_norm;
      scalars->step_norm += part.step_norm * part.step_norm;
      scalars->model_cost_change += part.model_cost_change;
      scalars->dot += part.dot;
    }
    for (double* const norm :
         {&scalars->norm, &scalars->x_norm, &scalars->step_norm}) {
      *norm = std::sqrt(*norm);
    }
    return true;
  }

  Machine* machine_;
  solver::RankSums<Machine>* ranks_;  // null: there is one
  ProblemStructure::Range own_parameters_;
  ProblemStructure::Range own_step_;
  const CallerState* caller_state_;
  kernels::HostContext* host_context_;
  Failure* failure_;
  // An operation sets some of them, and all are read.
  typename Machine::template Result<kernels::LoopScalars> scalars_;
  Buffer<int64_t> num_invalid_;
  std::function<bool()> finish_step_;  // empty: steps are finished
  bool judges_at_once_ = kIsHost<Machine>;
  // False: ModelCostChange is to say whether NegateIfValid has been.
  bool step_is_judged_ = true;
  // The last operation was Scale or Multiply.
  bool has_scaled_step_ = false;
  // The vectors that norms_of_plus_ are of; null: none.
  const double* plus_from_ = nullptr;
  const double* plus_to_ = nullptr;
  typename Machine::template Result<kernels::LoopScalars> norms_of_plus_;
  std::vector<Memory> memories_;
  std::vector<Place> order_;
  bool nan_fails_ = false;
  size_t num_asked_ = 0;
  int num_used_ = 0;
  std::vector<Buffer<double>> vectors_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_UNDER_CERES_LOOP_VECTORS_H_
