// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/front/ranks.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <typeinfo>
#include <utility>
#include <vector>

#include "ceres/types.h"
#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/front/device_arrays.h"
#include "ceres_ext/import/array_import.h"
#include "ceres_ext/import/array_rows.h"
#include "ceres_ext/plan/solver_choice.h"
#include "cuda_kernels/machine/communicator.h"
#include "cuda_kernels/machine/cuda_process.h"

namespace ceres_ext {
namespace {

using Parameters = ArrayProblem::Parameters;

// FNV-1a.
class Hash {
 public:
  void Add(const void* data, size_t bytes) {
    const auto* const from = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < bytes; ++i) {
      value_ = (value_ ^ from[i]) * 0x100000001b3ull;
    }
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325ull;
};

// Properties that all ranks must have alike, by name.
class Fields {
 public:
  void Add(const std::string& name, double value) {
    Add(name, &value, sizeof(value));
  }
  void Add(const std::string& name, const void* data, size_t bytes) {
    Hash hash;
    hash.Add(data, bytes);
    names_.push_back(name);
    values_.push_back(hash.value());
  }

  const std::vector<std::string>& names() const { return names_; }
  const std::vector<uint64_t>& values() const { return values_; }

 private:
  std::vector<std::string> names_;
  std::vector<uint64_t> values_;
};

void AddOptions(const ceres::Solver::Options& options, Fields* fields) {
#define CERES_EXT_ADD(field) fields->Add(#field, options.field)
  CERES_EXT_ADD(max_num_iterations);
  CERES_EXT_ADD(use_nonmonotonic_steps);
  CERES_EXT_ADD(max_consecutive_nonmonotonic_steps);
  CERES_EXT_ADD(initial_trust_region_radius);
  CERES_EXT_ADD(max_trust_region_radius);
  CERES_EXT_ADD(min_trust_region_radius);
  CERES_EXT_ADD(min_relative_decrease);
  CERES_EXT_ADD(min_lm_diagonal);
  CERES_EXT_ADD(max_lm_diagonal);
  CERES_EXT_ADD(max_num_consecutive_invalid_steps);
  CERES_EXT_ADD(function_tolerance);
  CERES_EXT_ADD(gradient_tolerance);
  CERES_EXT_ADD(parameter_tolerance);
  CERES_EXT_ADD(preconditioner_type);
  CERES_EXT_ADD(min_linear_solver_iterations);
  CERES_EXT_ADD(max_linear_solver_iterations);
  CERES_EXT_ADD(use_spse_initialization);
  CERES_EXT_ADD(max_num_spse_iterations);
  CERES_EXT_ADD(spse_tolerance);
  CERES_EXT_ADD(eta);
  CERES_EXT_ADD(jacobi_scaling);
  CERES_EXT_ADD(update_state_every_iteration);
  CERES_EXT_ADD(line_search_interpolation_type);
  CERES_EXT_ADD(line_search_sufficient_function_decrease);
  CERES_EXT_ADD(max_line_search_step_contraction);
  CERES_EXT_ADD(min_line_search_step_contraction);
  CERES_EXT_ADD(min_line_search_step_size);
  CERES_EXT_ADD(max_num_line_search_step_size_iterations);
#undef CERES_EXT_ADD
}

void AddParameters(const Parameters& p,
                   const std::string& name,
                   Fields* fields) {
  fields->Add("the size of " + name, p.size);
  fields->Add("is_own of " + name, p.is_own);
  fields->Add("is_eliminated of " + name, p.is_eliminated);
  if (p.is_own) {
    return;
  }
  fields->Add("the number of blocks of " + name,
              static_cast<double>(p.num_blocks));
  fields->Add("the values of " + name,
              p.values,
              static_cast<size_t>(p.num_blocks * p.size) * sizeof(double));
  const size_t n = static_cast<size_t>(p.num_blocks);
  std::vector<uint8_t> is_constant(n, 0);
  Hash manifolds;
  for (size_t i = 0; i < n; ++i) {
    const auto block = static_cast<int64_t>(i);
    is_constant[i] = IsConstant(p, block) ? 1 : 0;
    if (const ceres::Manifold* const manifold = p.ManifoldOf(block)) {
      const char* const type = typeid(*manifold).name();
      manifolds.Add(type, std::strlen(type));
      const int size = manifold->TangentSize();
      manifolds.Add(&size, sizeof(size));
    }
  }
  Hash bounds;
  for (int64_t i = 0; p.MayHaveBounds() && i < p.num_blocks; ++i) {
    for (int j = 0; j < p.size; ++j) {
      const double of_one[] = {p.LowerBoundOf(i, j), p.UpperBoundOf(i, j)};
      bounds.Add(of_one, sizeof(of_one));
    }
  }
  fields->Add("the constant blocks of " + name, is_constant.data(), n);
  const uint64_t of_bounds = bounds.value();
  fields->Add("the bounds of " + name, &of_bounds, sizeof(of_bounds));
  const uint64_t hash = manifolds.value();
  fields->Add("the manifolds of " + name, &hash, sizeof(hash));
}

// The reason why several ranks can't solve, a sentence without a period; empty
// if they can. Completes *solve.
std::string WhyNotByRanks(const ArrayProblem& problem, RankSolve* solve) {
  ceres::Solver::Options& options = solve->options;
  Options& ext_options = solve->ext_options;
  if (!ext_options.enabled) {
    return "enabled = false: stock Ceres has no ranks";
  }
  if (HasDeviceArrays(problem)) {
    return "arrays on a device are not supported by several ranks; expected "
           "host memory";
  }
  const auto num_own =
      std::count_if(problem.parameters().begin(),
                    problem.parameters().end(),
                    [](const Parameters& p) { return p.is_own; });
  if (num_own != 1) {
    return "expected one array of parameters with is_own, found " +
           std::to_string(num_own);
  }
  const int eliminated = EliminatedArray(problem);
  if (eliminated >= 0 && !problem.parameters()[eliminated].is_own) {
    return "parameters " + std::to_string(eliminated) +
           " have is_eliminated and not is_own; expected the array with is_own "
           "or none";
  }
  if (std::all_of(problem.residuals().begin(),
                  problem.residuals().end(),
                  [](const ArrayProblem::Residuals& residuals) {
                    return residuals.num_blocks == 0;
                  })) {
    return "it has no residual blocks";
  }
  const ceres::Solver::Summary unused;
  const std::string why =
      ArrayImport(&problem, &unused).WhyProblemIsNeeded(options);
  if (!why.empty()) {
    return why + ", which has no ranks";
  }
  if (options.trust_region_strategy_type == ceres::DOGLEG) {
    return "trust_region_strategy_type DOGLEG is not supported by several "
           "ranks; expected LEVENBERG_MARQUARDT";
  }
  ChooseLinearSolver(ext_options, &options);
  if (options.linear_solver_type != ceres::ITERATIVE_SCHUR) {
    return std::string("linear_solver_type ") +
           ceres::LinearSolverTypeToString(options.linear_solver_type) +
           " is not supported by several ranks; expected ITERATIVE_SCHUR";
  }
  if (options.use_explicit_schur_complement) {
    return "use_explicit_schur_complement is not supported by several ranks";
  }
  std::string why_ceres = WhyLeftToCeres(ext_options, options);
  if (!why_ceres.empty()) {
    return why_ceres;
  }
  // Merged blocks would depend on the rows of a rank.
  ext_options.preconditioner_blocks = PRECONDITIONER_BLOCKS_SINGLE;
  ext_options.fallback = FALLBACK_REFUSE;
  ext_options.cuda_devices.clear();
  return "";
}

// The first message of a rank.
struct Opening {
  char why_not[384] = {};
  char why_no_device[128] = {};
  int64_t num_fields = 0;
};

void Copy(const std::string& from, size_t size, char* to) {
  const size_t n = std::min(from.size(), size - 1);
  std::memcpy(to, from.data(), n);
  to[n] = '\0';
}

}  // namespace

bool HasNoRanks(const Options& ext_options,
                const char* what,
                std::string* error) {
  if (ext_options.communicator != nullptr) {
    *error = std::string("communicator: ") + what +
             " is not solved by several ranks; expected a "
             "ceres_ext::ArrayProblem";
  }
  return ext_options.communicator == nullptr;
}

bool PrepareRanks(const ceres::Solver::Options& options,
                  const Options& ext_options,
                  const ArrayProblem* problem,
                  std::string mine,
                  KeptMachines* kept,
                  RankSolve* solve,
                  std::string* error) {
  kernels::Communicator* const communicator = ext_options.communicator;
  const auto size = static_cast<size_t>(communicator->size());
  solve->options = options;
  solve->ext_options = ext_options;
  Fields fields;
  Opening opening;
  if (mine.empty()) {
    mine = WhyNotByRanks(*problem, solve);
  }
  if (mine.empty()) {
    fields.Add("the version of Ceres Ext", kBatchModelVersion);
    AddOptions(solve->options, &fields);
    fields.Add("linear_solver", ext_options.linear_solver);
    fields.Add("preconditioner", ext_options.preconditioner);
    fields.Add("precision", ext_options.precision);
    fields.Add("forcing_sequence", ext_options.forcing_sequence);
    fields.Add("model_cost_tolerance", ext_options.model_cost_tolerance);
    fields.Add("batch_evaluation", ext_options.batch_evaluation);
    fields.Add(
        "cuda_graph",
        kernels::IsUnderTool() ? CUDA_GRAPH_OFF : ext_options.cuda_graph);
    for (size_t a = 0; a < problem->parameters().size(); ++a) {
      AddParameters(
          problem->parameters()[a], "parameters " + std::to_string(a), &fields);
    }
    opening.num_fields = static_cast<int64_t>(fields.values().size());
    if (ext_options.device == DEVICE_HOST) {
      Copy("device = HOST",
           sizeof(opening.why_no_device),
           opening.why_no_device);
    } else {
      std::shared_ptr<KeptMachines::Device> device;
      const kernels::Status status =
          kept->GetDevice(ext_options, options.num_threads, &device);
      if (!status.ok() && ext_options.device == DEVICE_CUDA &&
          !MayFallBack(ext_options)) {
        mine = "device = CUDA is not available: " + status.message;
      }
      Copy(
          status.message, sizeof(opening.why_no_device), opening.why_no_device);
    }
  }
  Copy(mine, sizeof(opening.why_not), opening.why_not);

  std::vector<Opening> openings(size);
  if (!communicator->AllGather(
          &opening, sizeof(opening), openings.data(), error)) {
    return false;
  }
  const auto name_of = [](size_t rank) {
    return "Rank " + std::to_string(rank);
  };
  for (size_t rank = 0; rank < size; ++rank) {
    if (openings[rank].why_not[0] != '\0') {
      *error = name_of(rank) + ": " + openings[rank].why_not;
      return false;
    }
  }
  for (size_t rank = 1; rank < size; ++rank) {
    if (openings[rank].num_fields != openings[0].num_fields) {
      *error = name_of(rank) +
               " and rank 0 disagree about the number of arrays of parameters";
      return false;
    }
  }
  std::vector<uint64_t> values(size * fields.values().size());
  if (!communicator->AllGather(
          fields.values().data(),
          static_cast<int64_t>(fields.values().size() * sizeof(uint64_t)),
          values.data(),
          error)) {
    return false;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t field = i % fields.values().size();
    if (values[i] != values[field]) {
      *error = name_of(i / fields.values().size()) +
               " and rank 0 disagree about " + fields.names()[field];
      return false;
    }
  }
  // All are on a device, or none is: their bits differ.
  solve->ext_options.device = DEVICE_CUDA;
  for (size_t rank = 0; rank < size; ++rank) {
    if (openings[rank].why_no_device[0] != '\0' &&
        solve->ext_options.device == DEVICE_CUDA) {
      solve->ext_options.device = DEVICE_HOST;
      solve->attempt.why_host =
          "rank " + std::to_string(rank) + ": " + openings[rank].why_no_device;
    }
  }
  if (ext_options.device == DEVICE_HOST) {
    solve->attempt.why_host.clear();
  }
  return true;
}

}  // namespace ceres_ext
