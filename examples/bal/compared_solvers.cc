// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/compared_solvers.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "ceres/types.h"
#include "ceres_ext/options.h"
#include "examples/bal/adjuster_flags.h"
#include "examples/bal/solve_bal.h"
#include "gflags/gflags.h"

#ifdef CERES_EXT_WITH_CUDA
#include "cuda_kernels/machine/cuda_context.h"
#endif

namespace ceres_ext::bal {
namespace {

// If a device is requested, no other machine may replace it.
std::vector<std::pair<std::string, std::string>> Ext(
    const char* device,
    const char* jacobian,
    const char* precision,
    const char* linear_solver = "iterative_schur") {
  return {{"solver", "ceres_ext"},
          {"linear_solver", linear_solver},
          {"preconditioner", "schur_jacobi"},
          {"device", device},
          {"jacobian", jacobian},
          {"precision", precision},
          {"fallback", "refuse"}};
}

std::vector<std::pair<std::string, std::string>> Stock(
    const char* linear_solver, const char* preconditioner) {
  return {{"solver", "ceres"},
          {"linear_solver", linear_solver},
          {"preconditioner", preconditioner}};
}

template <typename Flags>
Flags With(Flags flags, const char* flag, const char* value) {
  flags.emplace_back(flag, value);
  return flags;
}

bool NeedsCuda(const SolveBalOptions& options) {
  const ceres::Solver::Options& stock = options.solver_options;
  return options.ext_options.enabled
             ? options.ext_options.device == DEVICE_CUDA
             : (stock.linear_solver_type == ceres::DENSE_SCHUR &&
                stock.dense_linear_algebra_library_type == ceres::CUDA) ||
                   (stock.linear_solver_type == ceres::CGNR &&
                    stock.sparse_linear_algebra_library_type ==
                        ceres::CUDA_SPARSE);
}

std::string WhyNoCuda() {
#ifdef CERES_EXT_WITH_CUDA
  std::string why_none;
  kernels::NumCudaDevices(&why_none);
  return why_none;
#else
  return "this program was built without CUDA";
#endif
}

int64_t MemoryBytes() {
  return int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
}

}  // namespace

const std::vector<ComparedSolver>& ComparedSolvers() {
  static const auto* const kSolvers = new std::vector<ComparedSolver>{
      {"ceres:sparse_schur", Stock("sparse_schur", "jacobi")},
      {"ceres:dense_schur", Stock("dense_schur", "jacobi")},
      {"ceres:iterative_schur", Stock("iterative_schur", "schur_jacobi")},
      {"ceres:iterative_schur+jacobi", Stock("iterative_schur", "jacobi")},
      {"ceres:cgnr", Stock("cgnr", "jacobi")},
      {"ceres:dense_schur+cuda",
       With(Stock("dense_schur", "jacobi"),
            "dense_linear_algebra_library",
            "cuda")},
      {"ceres:cgnr+cuda",
       With(Stock("cgnr", "jacobi"),
            "sparse_linear_algebra_library",
            "cuda_sparse")},
      {"ceres_ext:host", Ext("host", "stored", "double")},
      {"ceres_ext:cuda", Ext("cuda", "stored", "double")},
      {"ceres_ext:cuda+recomputed", Ext("cuda", "recomputed", "double")},
      {"ceres_ext:cuda+mixed", Ext("cuda", "stored", "mixed")},
      {"ceres_ext:cuda+dense_schur",
       Ext("cuda", "auto", "double", "dense_schur")},
  };
  return *kSolvers;
}

bool ParseComparedSolvers(const std::string& names,
                          std::vector<ComparedSolver>* solvers,
                          std::string* error) {
  std::set<std::string> wanted;
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, ',');) {
    wanted.insert(name);
  }
  const bool is_automatic = wanted == std::set<std::string>{"automatic"};
  std::string accepted = "automatic";
  solvers->clear();
  for (const ComparedSolver& solver : ComparedSolvers()) {
    accepted += ", " + solver.name;
    if (wanted.erase(solver.name) > 0 || is_automatic) {
      solvers->push_back(solver);
    }
  }
  if (!is_automatic && (!wanted.empty() || solvers->empty())) {
    *error = "--compare_solvers: expected some of " + accepted + ", found '" +
             (wanted.empty() ? "" : *wanted.begin()) + "'";
    return false;
  }
  return true;
}

std::string WhyLeftOut(const ComparedSolver& solver,
                       int64_t num_camera_columns) {
  const gflags::FlagSaver saver;
  for (const auto& [flag, value] : solver.flags) {
    gflags::SetCommandLineOption(flag.c_str(), value.c_str());
  }
  SolveBalOptions options;
  std::string why;
  if (!SolveOptionsFromFlags(&options, &why)) {
    return why;
  }
  if (options.ext_options.enabled &&
      options.ext_options.jacobian == JACOBIAN_RECOMPUTED &&
      options.cost_function != COST_FUNCTION_ANALYTIC) {
    return "a recomputed Jacobian needs --cost_function=analytic";
  }
  if (NeedsCuda(options)) {
    why = WhyNoCuda();
  }
  // The Schur complement, factorised in place.
  const double gigabytes = 8e-9 * static_cast<double>(num_camera_columns) *
                           static_cast<double>(num_camera_columns);
  const double memory = 1e-9 * static_cast<double>(MemoryBytes());
  if (why.empty() && !options.ext_options.enabled &&
      options.solver_options.linear_solver_type == ceres::DENSE_SCHUR &&
      gigabytes > memory) {
    why = "its Schur complement takes " +
          std::to_string(static_cast<int64_t>(gigabytes)) +
          " GB, the machine has " +
          std::to_string(static_cast<int64_t>(memory));
  }
  return why;
}

}  // namespace ceres_ext::bal
