// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/one_of_batch.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "ceres_ext/array_problem.h"
#include "ceres_ext/base/failure.h"
#include "ceres_ext/covariance.h"
#include "ceres_ext/import/array_rows.h"
#include "ceres_ext/solve.h"

namespace ceres_ext {
namespace {

using Residuals = ArrayProblem::Residuals;

// One problem of a batch as a separate problem. It has its own arrays, except
// for the values of the parameters.
class OneOfBatch {
 public:
  OneOfBatch(const ProblemBatch& batch, int64_t i) {
    const auto& parameters = batch.problem.parameters();
    for (size_t a = 0; a < parameters.size(); ++a) {
      ArrayProblem::Parameters p = parameters[a];
      const int64_t begin = batch.parameter_begin[a][i];
      p.num_blocks = batch.parameter_begin[a][i + 1] - begin;
      p.values += p.values != nullptr ? begin * p.size : 0;
      p.manifolds += p.manifolds != nullptr ? begin : 0;
      p.is_constant += p.is_constant != nullptr ? begin : 0;
      p.lower_bounds += p.lower_bounds != nullptr ? begin * p.size : 0;
      p.upper_bounds += p.upper_bounds != nullptr ? begin * p.size : 0;
      problem_.AddParameters(p);
    }
    const auto& residuals = batch.problem.residuals();
    arrays_.resize(residuals.size());
    for (size_t r = 0; r < residuals.size(); ++r) {
      Add(batch, i, r, &arrays_[r]);
    }
  }

  ArrayProblem* problem() { return &problem_; }

 private:
  struct Arrays {
    std::vector<std::vector<int32_t>> blocks;
    std::vector<double> weights;
    std::vector<char> constants;
    std::vector<ceres::CostFunction*> cost_functions;
  };

  static bool IsActive(const std::vector<const uint8_t*>& flags,
                       size_t array,
                       int64_t k,
                       int64_t size) {
    return flags.empty() || flags[array] == nullptr || k < 0 || k >= size ||
           flags[array][k] != 0;
  }

  void Add(const ProblemBatch& batch, int64_t i, size_t r, Arrays* arrays) {
    Residuals residuals = batch.problem.residuals()[r];
    const size_t num_slots = residuals.blocks.size();
    arrays->blocks.resize(num_slots);
    const auto* const constants = static_cast<const char*>(residuals.constants);
    int64_t n = 0;
    for (int64_t k = batch.residual_begin[r][i];
         k < batch.residual_begin[r][i + 1];
         ++k) {
      bool is_active =
          IsActive(batch.residual_is_active, r, k, residuals.num_blocks);
      for (const ArrayProblem::Index& index : residuals.blocks) {
        is_active =
            is_active &&
            IsActive(batch.parameter_is_active,
                     index.parameters,
                     index.BlockOf(k),
                     batch.problem.parameters()[index.parameters].num_blocks);
      }
      if (!is_active) {
        continue;
      }
      ++n;
      for (size_t b = 0; b < num_slots; ++b) {
        const ArrayProblem::Index& index = residuals.blocks[b];
        arrays->blocks[b].push_back(static_cast<int32_t>(
            index.BlockOf(k) - batch.parameter_begin[index.parameters][i]));
      }
      if (residuals.weights != nullptr) {
        arrays->weights.push_back(residuals.weights[k]);
      }
      if (constants != nullptr) {
        const char* const begin = constants + k * residuals.constants_bytes;
        arrays->constants.insert(
            arrays->constants.end(), begin, begin + residuals.constants_bytes);
      }
      if (residuals.cost_functions != nullptr) {
        arrays->cost_functions.push_back(residuals.cost_functions[k]);
      }
    }
    if (n == 0) {
      return;
    }
    residuals.num_blocks = n;
    for (size_t b = 0; b < num_slots; ++b) {
      residuals.blocks[b].block = arrays->blocks[b].data();
    }
    if (residuals.weights != nullptr) {
      residuals.weights = arrays->weights.data();
    }
    if (constants != nullptr) {
      residuals.constants = arrays->constants.data();
    }
    if (residuals.cost_functions != nullptr) {
      residuals.cost_functions = arrays->cost_functions.data();
    }
    problem_.AddResiduals(residuals);
  }

  ArrayProblem problem_;
  std::vector<Arrays> arrays_;
};

// Sets the blocks and the values, or returns why there are none.
std::string FindCovarianceOfOne(const CovarianceOptions& options,
                                const ProblemBatch& batch,
                                int64_t i,
                                BlockCovariance* found) {
  std::vector<const double*> blocks;
  int64_t num_columns = 0;
  const auto& parameters = batch.problem.parameters();
  for (size_t a = 0; a < parameters.size(); ++a) {
    const uint8_t* const is_wanted = batch.covariance_is_wanted[a];
    for (int64_t b = batch.parameter_begin[a][i];
         is_wanted != nullptr && b < batch.parameter_begin[a][i + 1];
         ++b) {
      if (is_wanted[b] != 0 && !IsConstant(parameters[a], b)) {
        found->blocks.push_back({static_cast<int>(a), b});
        blocks.push_back(parameters[a].values + b * parameters[a].size);
        num_columns += TangentSize(parameters[a], b);
      }
    }
  }
  if (blocks.empty()) {
    return "";
  }
  OneOfBatch one(batch, i);
  Covariance covariance(options);
  found->values.resize(num_columns * num_columns);
  if (!covariance.Compute(blocks, *one.problem()) ||
      !covariance.GetCovarianceMatrixInTangentSpace(blocks,
                                                    found->values.data())) {
    found->values.clear();
    return covariance.error().empty() ? "the covariance was not computed"
                                      : covariance.error();
  }
  return "";
}

}  // namespace

void FindCovariance(const ceres::Solver::Options& options,
                    const Options& ext_options,
                    const ProblemBatch& batch,
                    int64_t i,
                    const ProblemSummary& summary,
                    BlockCovariance* covariance) noexcept {
  if (!covariance->values.empty() || !covariance->message.empty()) {
    return;
  }
  if (!summary.IsSolutionUsable()) {
    AssignOrShorten("the problem has no usable solution", &covariance->message);
    return;
  }
  Failure failure;
  failure.Guard(false, [&] {
    CovarianceOptions of_one;
    of_one.num_threads = options.num_threads;
    of_one.ext = ext_options;
    of_one.ext.device = DEVICE_HOST;  // Many small ones, on all threads.
    BlockCovariance found;
    found.message = FindCovarianceOfOne(of_one, batch, i, &found);
    *covariance = std::move(found);
    return true;
  });
  if (failure.has_happened()) {
    AssignOrShorten(failure.sentence(), &covariance->message);
  }
}

void SummarizeUnbegun(ProblemSummary* summary, Summary* full) {
  summary->termination_type = ceres::USER_FAILURE;
  summary->path_reason.clear();
  AssignOrShorten("Stopped from another thread before it began.",
                  &summary->message);
  if (full != nullptr) {
    full->termination_type = ceres::USER_FAILURE;
    AssignOrShorten(summary->message.c_str(), &full->message);
  }
}

void Summarize(const Summary& of_problem, ProblemSummary* summary) {
  summary->termination_type = of_problem.termination_type;
  AssignOrShorten(of_problem.message.c_str(), &summary->message);
  summary->initial_cost = of_problem.initial_cost;
  summary->final_cost = of_problem.final_cost;
  summary->fixed_cost = of_problem.fixed_cost;
  summary->num_successful_steps = of_problem.num_successful_steps;
  summary->num_unsuccessful_steps = of_problem.num_unsuccessful_steps;
}

void SolveOther(const ceres::Solver::Options& options,
                const Options& ext_options,
                const ProblemBatch& batch,
                int64_t i,
                ProblemSummary* summary,
                Summary* full) {
  OneOfBatch one(batch, i);
  Summary of_one;
  Solve(options, ext_options, one.problem(), &of_one);
  Summarize(of_one, summary);
  if (full != nullptr) {
    *full = std::move(of_one);
  }
}

}  // namespace ceres_ext
