// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The implementation of ceres_ext.covariance.

#include "ceres_ext/covariance.h"

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "nanobind/nanobind.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/tuple.h"
#include "nanobind/stl/vector.h"
#include "python/src/array.h"
#include "python/src/module.h"
#include "python/src/options.h"
#include "python/src/problem.h"

namespace nb = nanobind;
using namespace nanobind::literals;

namespace ceres_ext::python {
namespace {

// Array and block, twice.
using BlockPair = std::tuple<int, int64_t, int, int64_t>;

const double* AddressOf(const ArrayProblem& arrays, int array, int64_t block) {
  if (array < 0 || array >= static_cast<int>(arrays.parameters().size())) {
    throw ValueError("pairs: expected the number of a parameter array, found " +
                     std::to_string(array));
  }
  const auto& p = arrays.parameters()[static_cast<size_t>(array)];
  if (block < 0 || block >= p.num_blocks) {
    throw ValueError("pairs: expected a block of array " +
                     std::to_string(array) + ", found " +
                     std::to_string(block));
  }
  return p.values + block * p.size;
}

// Returns the diagonal blocks of the arrays, those of the pairs, each with as
// many columns as its second block has values, and fields of the summary.
nb::tuple Compute(Problem* problem,
                  const std::vector<int>& of_arrays,
                  const std::vector<BlockPair>& pairs,
                  const SolverOptions* given,
                  bool apply_loss_function,
                  int gauge,
                  int scale,
                  const std::vector<double>& damping,
                  int method,
                  double pcg_tolerance,
                  const nb::kwargs& values) {
  const SolverOptions options = OptionsOf(given, values);
  const Problem::Lock lock(problem);
  const ArrayProblem& arrays = *problem->arrays();
  CovarianceOptions covariance_options;
  covariance_options.num_threads = options.num_threads;
  covariance_options.apply_loss_function = apply_loss_function;
  covariance_options.gauge = static_cast<CovarianceGauge>(gauge);
  covariance_options.scale = static_cast<CovarianceScale>(scale);
  covariance_options.damping = damping;
  covariance_options.method = static_cast<CovarianceMethod>(method);
  covariance_options.pcg_tolerance = pcg_tolerance;
  covariance_options.ext = options;
  std::vector<std::pair<const double*, const double*>> blocks;
  for (const auto& [array0, block0, array1, block1] : pairs) {
    blocks.emplace_back(AddressOf(arrays, array0, block0),
                        AddressOf(arrays, array1, block1));
  }
  Covariance covariance(covariance_options);
  bool is_done = false;
  bool is_valid = true;
  {
    const nb::gil_scoped_release no_gil;
    is_done = covariance.ComputeDiagonals(of_arrays, blocks, arrays);
    std::string why;
    is_valid = is_done || arrays.IsValid(options.num_threads, &why);
  }
  if (!is_done) {
    if (!is_valid) {
      throw ValueError(covariance.error());
    }
    throw ArithmeticError(covariance.error());
  }
  nb::list diagonals;
  for (const int array : of_arrays) {
    const auto& p = arrays.parameters()[static_cast<size_t>(array)];
    std::vector<double> of_array(
        static_cast<size_t>(p.num_blocks * p.size * p.size));
    covariance.GetDiagonalBlocks(array, of_array.data());
    diagonals.append(
        MakeArray(std::move(of_array), static_cast<size_t>(p.size)));
  }
  nb::list of_pairs;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const int rows =
        arrays.parameters()[static_cast<size_t>(std::get<0>(pairs[i]))].size;
    const int columns =
        arrays.parameters()[static_cast<size_t>(std::get<2>(pairs[i]))].size;
    std::vector<double> block(static_cast<size_t>(rows * columns));
    covariance.GetCovarianceBlock(
        blocks[i].first, blocks[i].second, block.data());
    of_pairs.append(MakeArray(std::move(block), static_cast<size_t>(columns)));
  }
  const CovarianceSummary& summary = covariance.summary();
  return nb::make_tuple(diagonals,
                        of_pairs,
                        summary.device,
                        summary.cost,
                        summary.num_free_directions,
                        summary.redundancy,
                        summary.variance_factor,
                        summary.smallest_eigenvalue,
                        summary.num_pcg_iterations,
                        summary.memory_bytes,
                        summary.memory_forecast_bytes,
                        summary.total_time_in_seconds);
}

}  // namespace

void AddCovariance(nb::module_* module) {
  // ceres_ext/__init__.py has what users call.
  module->def("_covariance",
              &Compute,
              "problem"_a,
              "arrays"_a,
              "pairs"_a,
              "options"_a.none(),
              "apply_loss_function"_a,
              "gauge"_a,
              "scale"_a,
              "damping"_a,
              "method"_a,
              "pcg_tolerance"_a,
              "values"_a);
}

}  // namespace ceres_ext::python
