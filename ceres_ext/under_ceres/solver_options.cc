// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/under_ceres/solver_options.h"

#include <cstring>
#include <string>

#include "ceres/context_impl.h"
#include "ceres/ordered_groups.h"
#include "ceres/parameter_block.h"
#include "ceres/program.h"
#include "ceres/residual_block.h"
#include "ceres/types.h"
#include "ceres_ext/base/machines.h"
#include "cuda_kernels/base/enum_value.h"
#include "cuda_kernels/machine/cuda_context.h"
#include "cuda_kernels/machine/cuda_process.h"

namespace ceres_ext {
namespace {

// False if Ceres has no name for the value.
template <typename Enum>
bool CheckEnum(const char* field,
               const Enum& given,
               const char* (*to_string)(Enum),
               std::string* error) {
  const int value = kernels::EnumValue(given);
  if (std::strcmp(to_string(static_cast<Enum>(value)), "UNKNOWN") != 0) {
    return true;
  }
  *error = std::string("Solver::Options::") + field + " = " +
           std::to_string(value) + "; expected a value that its type names";
  return false;
}

// The options for which Ceres calls CUDA, and ends the process if there is no
// device.
const char* WhatNeedsCuda(const ceres::Solver::Options& options) {
  switch (options.linear_solver_type) {
    case ceres::DENSE_NORMAL_CHOLESKY:
    case ceres::DENSE_SCHUR:
    case ceres::DENSE_QR:
      return options.dense_linear_algebra_library_type == ceres::CUDA
                 ? "dense_linear_algebra_library_type = CUDA"
                 : nullptr;
    case ceres::CGNR:
      return options.sparse_linear_algebra_library_type == ceres::CUDA_SPARSE
                 ? "sparse_linear_algebra_library_type = CUDA_SPARSE"
                 : nullptr;
    default:
      return nullptr;
  }
}

// True if Ceres finds a device, which it takes for granted. This library may be
// without CUDA, or on an emulated device, where Ceres is not.
bool HasCeresDevice() {
#ifdef CUDART_VERSION
  constexpr int kMajorVersion = CUDART_VERSION / 1000;
#else
  constexpr int kMajorVersion = 0;
#endif
  if constexpr (kHasCuda) {
    if (kernels::NumCudaDevices(nullptr) == 0) {
      return false;
    }
  }
  return kernels::HasDriverDevice(kMajorVersion);
}

// Ceres asks for the first group with a block that varies, if any block does.
bool HasGroup(const ceres::ParameterBlockOrdering& ordering,
              const ceres::internal::Program& program) {
  bool varies = false;
  for (const auto* row : program.residual_blocks()) {
    for (int i = 0; i < row->NumParameterBlocks(); ++i) {
      const auto* block = row->parameter_blocks()[i];
      if (!block->IsConstant()) {
        varies = true;
        if (ordering.IsMember(const_cast<double*>(block->user_state()))) {
          return true;
        }
      }
    }
  }
  return !varies;
}

bool HasBlocksAlone(const ceres::ParameterBlockOrdering& ordering,
                    const ceres::internal::ProblemImpl& problem) {
  for (const auto& group : ordering.group_to_elements()) {
    for (const double* block : group.second) {
      if (!problem.HasParameterBlock(block)) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

bool CanBeGivenToCeres(const ceres::Solver::Options& options,
                       const ceres::internal::ProblemImpl* problem,
                       std::string* error) {
#define CERES_EXT_CHECK_ENUM(field, to_string)                       \
  if (!CheckEnum(#field, options.field, &ceres::to_string, error)) { \
    return false;                                                    \
  }
  CERES_EXT_CHECK_ENUM(minimizer_type, MinimizerTypeToString)
  CERES_EXT_CHECK_ENUM(line_search_direction_type,
                       LineSearchDirectionTypeToString)
  CERES_EXT_CHECK_ENUM(line_search_type, LineSearchTypeToString)
  CERES_EXT_CHECK_ENUM(nonlinear_conjugate_gradient_type,
                       NonlinearConjugateGradientTypeToString)
  CERES_EXT_CHECK_ENUM(line_search_interpolation_type,
                       LineSearchInterpolationTypeToString)
  CERES_EXT_CHECK_ENUM(trust_region_strategy_type,
                       TrustRegionStrategyTypeToString)
  CERES_EXT_CHECK_ENUM(dogleg_type, DoglegTypeToString)
  CERES_EXT_CHECK_ENUM(linear_solver_type, LinearSolverTypeToString)
  CERES_EXT_CHECK_ENUM(preconditioner_type, PreconditionerTypeToString)
  CERES_EXT_CHECK_ENUM(visibility_clustering_type,
                       VisibilityClusteringTypeToString)
  CERES_EXT_CHECK_ENUM(dense_linear_algebra_library_type,
                       DenseLinearAlgebraLibraryTypeToString)
  CERES_EXT_CHECK_ENUM(sparse_linear_algebra_library_type,
                       SparseLinearAlgebraLibraryTypeToString)
  CERES_EXT_CHECK_ENUM(linear_solver_ordering_type,
                       LinearSolverOrderingTypeToString)
  CERES_EXT_CHECK_ENUM(logging_type, LoggingTypeToString)
  CERES_EXT_CHECK_ENUM(trust_region_problem_dump_format_type,
                       DumpFormatTypeToString)
#undef CERES_EXT_CHECK_ENUM
  // IsValid lets 0 through, on which the strategies abort.
  if (options.minimizer_type == ceres::TRUST_REGION &&
      options.min_lm_diagonal == 0.0) {
    *error = "Solver::Options::min_lm_diagonal = 0; expected a positive number";
    return false;
  }
  const char* const what = WhatNeedsCuda(options);
  if (what != nullptr && !HasCeresDevice()) {
    *error = std::string("Solver::Options::") + what +
             " needs a CUDA device, and there is none";
    return false;
  }
  if (options.minimizer_type == ceres::TRUST_REGION && problem != nullptr &&
      options.linear_solver_ordering != nullptr &&
      !HasGroup(*options.linear_solver_ordering, problem->program())) {
    *error =
        "Solver::Options::linear_solver_ordering has no parameter block that "
        "varies; expected all of the problem's";
    return false;
  }
  // Several groups Ceres compares with the problem itself.
  const auto& ordering = options.linear_solver_ordering;
  if (problem != nullptr && ordering != nullptr && ordering->NumGroups() == 1 &&
      !HasBlocksAlone(*ordering, *problem)) {
    *error =
        "Solver::Options::linear_solver_ordering has a block that is not in "
        "the problem";
    return false;
  }
  if (problem != nullptr && options.use_inner_iterations &&
      options.inner_iteration_ordering != nullptr &&
      !HasBlocksAlone(*options.inner_iteration_ordering, *problem)) {
    *error =
        "Solver::Options::inner_iteration_ordering has a block that is not in "
        "the problem";
    return false;
  }
  for (size_t i = 0; i < options.callbacks.size(); ++i) {
    if (options.callbacks[i] == nullptr) {
      *error = "Solver::Options::callbacks[" + std::to_string(i) +
               "] is null; expected a callback";
      return false;
    }
  }
  return true;
}

bool CanBeSolvedByCeres(const ceres::internal::PreprocessedProblem& pp,
                        std::string* error) {
  const ceres::Solver::Options& options = pp.options;
  if (options.sparse_linear_algebra_library_type != ceres::CUDA_SPARSE) {
    return true;
  }
  switch (options.linear_solver_type) {
    case ceres::DENSE_NORMAL_CHOLESKY:
    case ceres::DENSE_QR:
      return true;  // Nothing is sparse.
    case ceres::CGNR:
#ifndef CERES_NO_CUDA
      // Otherwise it stands for ITERATIVE_SCHUR, and Ceres has not started
      // CUDA.
      if (pp.problem->context()->IsCudaInitialized()) {
        return true;
      }
#endif
      break;
    default:
      break;
  }
  *error = std::string(
               "Solver::Options::sparse_linear_algebra_library_type = "
               "CUDA_SPARSE, with which Ceres has no ") +
           ceres::LinearSolverTypeToString(options.linear_solver_type) +
           "; expected SUITE_SPARSE or EIGEN_SPARSE";
  return false;
}

}  // namespace ceres_ext
