// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/under_ceres/covariance_setup.h"

#include <algorithm>
#include <functional>
#include <memory>

#include "ceres/parameter_block.h"
#include "ceres/preprocessor.h"
#include "ceres/problem_impl.h"
#include "ceres/program.h"
#include "ceres_ext/base/failure.h"
#include "ceres_ext/import/array_import.h"
#include "ceres_ext/plan/solve_plan.h"
#include "ceres_ext/under_ceres/solve_setup.h"

namespace ceres_ext {
namespace {

using ceres::internal::ParameterBlock;
using ceres::internal::PreprocessedProblem;
using ceres::internal::Program;
using kernels::Status;
using kernels::StatusCode;

// A parameter block of a problem.
struct SourceBlock {
  const double* values = nullptr;
  int size = 0;
  const ceres::Manifold* manifold = nullptr;
  bool is_constant = false;
  // In the tangent vector of what varies; -1: constant, or not used.
  int tangent_offset = -1;

  int tangent_size() const {
    return manifold == nullptr ? size : manifold->TangentSize();
  }
};

// The operations that differ between kinds of problems.
class Source {
 public:
  virtual ~Source() = default;
  // Sets up the problem. False with a sentence in *error.
  virtual bool Prepare(PreprocessedProblem* pp, std::string* error) = 0;
  virtual ArrayImport* arrays() { return nullptr; }
  // Finds the block at these values; false if there is none. tangent_offset is
  // set after the set-up of the solve.
  virtual bool Find(const double* values, SourceBlock* block) = 0;
  // Tangent offsets of all blocks of a parameter array without manifolds; -1:
  // constant, -2: not used.
  virtual void ListArray(int /*array*/, std::vector<int32_t>* /*offsets*/) {}
  // Name of the block in messages.
  virtual std::string Name(const double* values) = 0;
  // Calls fn for all blocks in order.
  virtual void ForEach(const std::function<void(const SourceBlock&)>& fn) = 0;
  // May be called after the set-up of the solve.
  virtual void SetState(const PreprocessedProblem& pp,
                        std::vector<double>* state) = 0;
};

class ProblemSource final : public Source {
 public:
  explicit ProblemSource(ceres::Problem* problem)
      : problem_(problem->mutable_impl()) {}
  ~ProblemSource() final {
    // As Ceres leaves it after a solve.
    Failure ignored;
    ignored.Guard(false, [&] {
      problem_->mutable_program()->SetParameterOffsetsAndIndex();
      return problem_->mutable_program()
          ->SetParameterBlockStatePtrsToUserStatePtrs();
    });
  }

  bool Prepare(PreprocessedProblem* pp, std::string* error) final {
    pp->problem = problem_;
    Program* const program = problem_->mutable_program();
    if (!program->SetParameterBlockStatePtrsToUserStatePtrs()) {
      *error = "The derivative of a manifold can't be computed.";
      return false;
    }
    if (!program->ParameterBlocksAreFinite(error)) {
      return false;
    }
    std::vector<double*> removed;
    double fixed_cost = 0.0;
    pp->reduced_program =
        program->CreateReducedProgram(&removed, &fixed_cost, error);
    reduced_ = pp->reduced_program.get();
    return reduced_ != nullptr;
  }

  bool Find(const double* values, SourceBlock* block) final {
    const auto& map = problem_->parameter_map();
    const auto found = map.find(const_cast<double*>(values));
    if (found == map.end()) {
      return false;
    }
    *block = Describe(*found->second);
    return true;
  }
  std::string Name(const double* values) final {
    const auto& blocks = problem_->program().parameter_blocks();
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (blocks[i]->user_state() == values) {
        return "parameter block " + std::to_string(i);
      }
    }
    return "a parameter block";
  }
  void ForEach(const std::function<void(const SourceBlock&)>& fn) final {
    for (const ParameterBlock* block : problem_->program().parameter_blocks()) {
      fn(Describe(*block));
    }
  }
  void SetState(const PreprocessedProblem& pp,
                std::vector<double>* state) final {
    state->resize(static_cast<size_t>(pp.reduced_program->NumParameters()));
    pp.reduced_program->ParameterBlocksToStateVector(state->data());
  }

 private:
  SourceBlock Describe(const ParameterBlock& block) const {
    SourceBlock result;
    result.values = block.user_state();
    result.size = block.Size();
    result.manifold = block.manifold();
    result.is_constant = block.IsConstant();
    const auto& varying = reduced_->parameter_blocks();
    const auto index = static_cast<size_t>(block.index());
    if (block.index() >= 0 && index < varying.size() &&
        varying[index] == &block) {
      result.tangent_offset = block.delta_offset();
    }
    return result;
  }

  ceres::internal::ProblemImpl* problem_;
  Program* reduced_ = nullptr;
};

class ArraySource final : public Source {
 public:
  explicit ArraySource(const ArrayProblem& problem)
      : problem_(problem), arrays_(&problem, &ignored_) {}

  bool Prepare(PreprocessedProblem* pp, std::string* error) final {
    pp->problem = nullptr;
    pp->reduced_program = std::make_unique<Program>();
    const std::string why = arrays_.WhyProblemIsNeeded(pp->options);
    if (!why.empty()) {
      *error = "The problem has no covariance, because " + why + ".";
    }
    return why.empty();
  }
  ArrayImport* arrays() final { return &arrays_; }

  bool Find(const double* values, SourceBlock* block) final {
    size_t array = 0;
    int64_t i = 0;
    if (!Locate(values, &array, &i)) {
      return false;
    }
    *block = Describe(array, i);
    return true;
  }
  std::string Name(const double* values) final {
    size_t array = 0;
    int64_t i = 0;
    return Locate(values, &array, &i)
               ? "block " + std::to_string(i) + " of parameter array " +
                     std::to_string(array)
               : "a parameter block";
  }
  void ForEach(const std::function<void(const SourceBlock&)>& fn) final {
    for (size_t a = 0; a < problem_.parameters().size(); ++a) {
      for (int64_t i = 0; i < problem_.parameters()[a].num_blocks; ++i) {
        fn(Describe(a, i));
      }
    }
  }
  void SetState(const PreprocessedProblem& /*pp*/,
                std::vector<double>* /*state*/) final {
    offsets_.resize(problem_.parameters().size());
    for (size_t a = 0; a < offsets_.size(); ++a) {
      arrays_.ListTangentOffsets(static_cast<int>(a), &offsets_[a]);
    }
  }
  void ListArray(int array, std::vector<int32_t>* offsets) final {
    const auto a = static_cast<size_t>(array);
    const ArrayProblem::Parameters& p = problem_.parameters()[a];
    *offsets = offsets_[a];
    for (size_t i = 0; i < offsets->size(); ++i) {
      if ((*offsets)[i] < 0) {
        (*offsets)[i] = p.is_constant != nullptr && p.is_constant[i] != 0
                            ? CovarianceResult::kZero
                            : CovarianceResult::kUnknown;
      }
    }
  }

 private:
  bool Locate(const double* values, size_t* array, int64_t* block) const {
    const std::less<const double*> less;
    for (size_t a = 0; a < problem_.parameters().size(); ++a) {
      const ArrayProblem::Parameters& p = problem_.parameters()[a];
      if (!less(values, p.values) &&
          less(values, p.values + p.num_blocks * p.size)) {
        *array = a;
        *block = (values - p.values) / p.size;
        return p.values + *block * p.size == values;
      }
    }
    return false;
  }
  SourceBlock Describe(size_t array, int64_t i) const {
    const ArrayProblem::Parameters& p = problem_.parameters()[array];
    SourceBlock result;
    result.values = p.values + i * p.size;
    result.size = p.size;
    result.manifold = p.ManifoldOf(i);
    result.is_constant = (p.is_constant != nullptr && p.is_constant[i] != 0) ||
                         result.tangent_size() == 0;
    if (!offsets_.empty() && !result.is_constant) {
      result.tangent_offset = offsets_[array][static_cast<size_t>(i)];
    }
    return result;
  }

  const ArrayProblem& problem_;
  const ceres::Solver::Summary ignored_;
  ArrayImport arrays_;
  std::vector<std::vector<int32_t>> offsets_;  // of each array's blocks
};

class Computation {
 public:
  Computation(const CovarianceRequest& request,
              Source* source,
              KeptMachines* kept,
              CovarianceResult* result,
              std::string* error)
      : request_(request),
        source_(source),
        kept_(kept),
        result_(result),
        error_(error) {}

  bool Run() {
    Attempts attempts(request_.options, {}, "The covariance is computed");
    const Outcome outcome = TryEach(&attempts, [&](const Attempt& attempt) {
      Outcome end = Try(attempt);
      if (!end.status.ok()) {
        kept_->Clear();
      }
      return end;
    });
    if (!outcome.status.ok()) {
      *error_ = outcome.status.message;
    } else if (!attempts.now().why_pcg.empty()) {
      result_->found.device +=
          "; PCG, since there is no factorisation: " + attempts.now().why_pcg;
    }
    return outcome.status.ok();
  }

 private:
  // A fault of the caller, which no other attempt mends.
  static Outcome Fault(const std::string& message) {
    return Outcome(Status(StatusCode::kInvalidArgument, message));
  }

  Outcome Try(const Attempt& attempt) {
    const bool use_pcg = request_.asked.method == COVARIANCE_METHOD_PCG ||
                         !attempt.why_pcg.empty();
    const bool may_use_pcg = request_.may_use_pcg && !use_pcg;
    *result_ = {};
    error_->clear();
    PreprocessedProblem pp;
    pp.options.linear_solver_type = ceres::DENSE_SCHUR;
    pp.options.num_threads = request_.asked.num_threads;
    if (use_pcg) {
      pp.options.linear_solver_type = ceres::ITERATIVE_SCHUR;
      pp.options.preconditioner_type = ceres::SCHUR_JACOBI;
      pp.options.max_linear_solver_iterations =
          request_.asked.max_num_pcg_iterations;
    }
    if (!source_->Prepare(&pp, error_)) {
      return Fault(*error_);
    }
    Failure failure;
    Summary record;
    SolveInput input;
    input.options = request_.options;
    input.num_threads = request_.asked.num_threads;
    input.attempt = attempt;
    input.purpose = Purpose::kCovariance;
    input.arrays = source_->arrays();
    input.kept = kept_;
    input.failure = &failure;
    input.record = &record;
    SolveSetup setup(input);
    const bool has_columns = source_->arrays() != nullptr ||
                             pp.reduced_program->NumParameterBlocks() > 0;
    const bool is_set_up = has_columns && setup.Take(&pp);
    if (has_columns && !is_set_up) {
      Outcome outcome(Outcome::kSetup,
                      failure.has_happened()
                          ? std::string(failure.sentence())
                          : "The problem has no covariance, because " +
                                AsClause(record.path_reason) + ".");
      outcome.is_exact = may_use_pcg;
      return outcome;
    }
    CovarianceWanted wanted;
    wanted.apply_loss = request_.asked.apply_loss_function;
    wanted.inner_constraints = request_.asked.gauge == COVARIANCE_GAUGE_INNER;
    wanted.pcg_tolerance = request_.asked.pcg_tolerance;
    source_->SetState(pp, &wanted.state);
    if (!ListBlocks(&wanted) || !ListDamping(&wanted)) {
      return Fault(*error_);
    }
    result_->found.device = record.device;
    if (!is_set_up) {
      return {};  // Nothing varies.
    }
    Outcome outcome(
        setup.machine()->ComputeCovariance(wanted, &result_->found));
    if (!outcome.status.ok()) {
      Explain(outcome.status, record);
      outcome.status.message = *error_;
      outcome.on_device = setup.is_on_device();
      // A factor of the host, where that may be, comes before PCG.
      outcome.is_exact =
          may_use_pcg && !(outcome.on_device && MayFallBack(request_.options));
    }
    return outcome;
  }

  bool ListBlocks(CovarianceWanted* wanted) {
    std::vector<int> offsets;
    for (const double* values : request_.parameter_blocks) {
      SourceBlock block;
      if (!source_->Find(values, &block)) {
        *error_ =
            "A covariance is wanted of a parameter block that is not in "
            "the problem.";
        return false;
      }
      if (!block.is_constant && block.tangent_offset < 0 &&
          request_.refuses_unused) {
        *error_ = "A covariance is wanted of " + source_->Name(values) +
                  ", which no residual block depends on.";
        return false;
      }
      offsets.push_back(block.is_constant          ? CovarianceResult::kZero
                        : block.tangent_offset < 0 ? CovarianceResult::kUnknown
                                                   : block.tangent_offset);
      CovarianceResult::Block of_result;
      of_result.size = block.size;
      of_result.tangent_size = block.tangent_size();
      if (block.manifold != nullptr && of_result.tangent_size > 0) {
        of_result.plus_jacobian.resize(
            static_cast<size_t>(block.size) *
            static_cast<size_t>(of_result.tangent_size));
        std::string what;
        if (!Succeeds(
                [&] {
                  return block.manifold->PlusJacobian(
                      block.values, of_result.plus_jacobian.data());
                },
                &what)) {
          *error_ = "PlusJacobian of the manifold of " + source_->Name(values) +
                    " " + what + ".";
          return false;
        }
      }
      result_->blocks.push_back(std::move(of_result));
    }
    for (const int array : request_.arrays) {
      std::vector<int32_t> of_array;
      source_->ListArray(array, &of_array);
      auto& place = result_->place_in_array.emplace_back();
      place.reserve(of_array.size());
      for (const int32_t offset : of_array) {
        place.push_back(
            offset < 0 ? offset : static_cast<int64_t>(wanted->blocks.size()));
        if (offset >= 0) {
          wanted->blocks.push_back({offset, offset});
        }
      }
    }
    for (const auto& [left, right] : request_.pairs) {
      const int at_left = offsets[static_cast<size_t>(left)];
      const int at_right = offsets[static_cast<size_t>(right)];
      if (at_left < 0 || at_right < 0) {
        const bool is_zero = at_left == CovarianceResult::kZero ||
                             at_right == CovarianceResult::kZero;
        result_->place.push_back(is_zero ? CovarianceResult::kZero
                                         : CovarianceResult::kUnknown);
        continue;
      }
      result_->place.push_back(static_cast<int64_t>(wanted->blocks.size()));
      wanted->blocks.push_back({at_left, at_right});
    }
    return true;
  }

  bool ListDamping(CovarianceWanted* wanted) {
    if (request_.asked.gauge != COVARIANCE_GAUGE_DAMPED) {
      return true;
    }
    size_t at = 0;
    int64_t num_columns = 0;
    bool is_long_enough = true;
    std::vector<std::pair<int, std::pair<size_t, int>>> places;
    source_->ForEach([&](const SourceBlock& block) {
      const int size = block.tangent_size();
      if (!block.is_constant && block.tangent_offset >= 0) {
        places.push_back({block.tangent_offset, {at, size}});
        num_columns += size;
      }
      at += static_cast<size_t>(size);
      is_long_enough = is_long_enough && at <= request_.asked.damping.size();
    });
    if (!is_long_enough || at != request_.asked.damping.size()) {
      *error_ = "damping has " + std::to_string(request_.asked.damping.size()) +
                " values; expected " + std::to_string(at) +
                ", those of the tangent spaces of all blocks.";
      return false;
    }
    wanted->diagonal.assign(static_cast<size_t>(num_columns), 0.0);
    for (const auto& [offset, from] : places) {
      for (int i = 0; i < from.second; ++i) {
        const double value =
            request_.asked.damping[from.first + static_cast<size_t>(i)];
        wanted->diagonal[static_cast<size_t>(offset) + static_cast<size_t>(i)] =
            value;
        result_->num_damped += value != 0.0 ? 1 : 0;
      }
    }
    return true;
  }

  // Fills *error_.
  void Explain(const Status& status, const Summary& record) {
    *error_ = status.message;
    if (status.code != StatusCode::kNumericalFailure ||
        request_.asked.gauge == COVARIANCE_GAUGE_DAMPED) {
      return;
    }
    const CovarianceFound& found = result_->found;
    const int64_t num_degenerate = record.degenerate_eliminated_blocks.count +
                                   record.degenerate_other_blocks.count;
    if (num_degenerate > 0) {
      const DegenerateBlocks& worst =
          record.degenerate_eliminated_blocks.count > 0
              ? record.degenerate_eliminated_blocks
              : record.degenerate_other_blocks;
      *error_ =
          "The residuals do not determine " + std::to_string(num_degenerate) +
          " parameter blocks by themselves, " + source_->Name(worst.worst) +
          " worst of all; hold them constant, take them out, or damp "
          "them (gauge = DAMPED).";
    } else if (found.num_free_directions > 0) {
      const bool has_more =
          found.num_free_directions >= CovarianceFound::kMostDirections;
      *error_ = std::string("The residuals leave ") +
                (has_more ? "at least " : "") +
                std::to_string(found.num_free_directions) +
                " directions free, which move " +
                std::to_string(found.num_moved_blocks) +
                " blocks that are not eliminated, ";
      for (size_t i = 0; i < found.moved_blocks.size(); ++i) {
        *error_ += (i == 0 ? "" : ", ") + source_->Name(found.moved_blocks[i]);
      }
      *error_ += request_.asked.gauge == COVARIANCE_GAUGE_INNER
                     ? " among them; inner constraints take at most 7."
                     : " among them; hold blocks constant, or set gauge = "
                       "INNER or DAMPED.";
    }
  }

  const CovarianceRequest& request_;
  Source* const source_;
  KeptMachines* const kept_;
  CovarianceResult* const result_;
  std::string* const error_;
};

}  // namespace

bool ComputeCovariance(const CovarianceRequest& request,
                       ceres::Problem* problem,
                       KeptMachines* kept,
                       CovarianceResult* result,
                       std::string* error) {
  ProblemSource source(problem);
  return Computation(request, &source, kept, result, error).Run();
}

bool ComputeCovariance(const CovarianceRequest& request,
                       const ArrayProblem& problem,
                       KeptMachines* kept,
                       CovarianceResult* result,
                       std::string* error) {
  ArraySource source(problem);
  return Computation(request, &source, kept, result, error).Run();
}

}  // namespace ceres_ext
