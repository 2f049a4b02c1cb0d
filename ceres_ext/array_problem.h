// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A problem given as arrays of parameter blocks and residual blocks, without an
// object per block.
//
//   ceres_ext::ArrayProblem problem;
//   const int cameras = problem.AddParameters({camera_values, 16, 9});
//   const int points = problem.AddParameters({point_values, 22106, 3});
//   problem.AddResiduals<ceres_ext::BalReprojectionError>(
//       83718, observations, {{cameras, camera_index}, {points, point_index}});
//   ceres_ext::Solve(options, ext_options, &problem, &summary);
//
// The caller owns the arrays and must not change them during a solve. A solve
// writes the values of parameters that vary, and nothing else.
//
// The result of a solve is bit-identical to that of a ceres::Problem to which
// the parameter blocks were added array by array, and then the residual blocks.
//
// Arrays may be in the memory of the CUDA device that solves: values, indices,
// constants and weights, each as its on_device says, in any mixture. A solve of
// observations (BAL) whose blocks all vary then reads and writes them there,
// and no array passes through the host. They are read and written on
// Options::cuda_stream; without it the call first waits for all work of the
// device, and the results are there when it returns. If the host has to read
// them, for another kind of problem or another solver, they are copied to the
// host and back, and Summary::path_reason says why.
//
// Thread safety: const member functions may be called from any thread.
// Concurrent solves need separate problems whose parameters do not overlap.
// Evaluate and Covariance::Compute only read the problem and its arrays, so
// that several threads may read one problem while no solve writes it.

#ifndef CERES_EXT_ARRAY_PROBLEM_H_
#define CERES_EXT_ARRAY_PROBLEM_H_

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ceres/cost_function.h"
#include "ceres/loss_function.h"
#include "ceres/manifold.h"
#include "ceres_ext/device_cost_function.h"

namespace ceres_ext {

class ArrayProblem {
 public:
  // Parameter blocks of one size.
  struct Parameters {
    double* values = nullptr;  // num_blocks x size
    int64_t num_blocks = 0;
    int size = 0;
    // The manifold of all blocks, or null for none.
    ceres::Manifold* manifold = nullptr;
    // If not null, manifolds[i] is the manifold of block i, or null for none,
    // and `manifold` is ignored.
    ceres::Manifold* const* manifolds = nullptr;
    // If not null, block i is constant if is_constant[i] is not 0.
    const uint8_t* is_constant = nullptr;
    bool on_device = false;  // of `values`
    // With Options::communicator: each rank has blocks of its own, which are
    // eliminated. One array has to be so, the points. All ranks have all others
    // with the same values.
    bool is_own = false;
    // True: Schur solvers eliminate these blocks, as they do the first group of
    // linear_solver_ordering. At most one array, and a residual block depends
    // on at most one block of it. If no array has it, or nothing in it varies,
    // the blocks that Ceres would choose are eliminated.
    bool is_eliminated = false;
    // Bounds of the values of all blocks, `size` of each, in host memory; null
    // or an infinity for none. A solve keeps lower <= value <= upper, to the
    // bit, as ceres::Problem does. Values that start outside are moved onto
    // their bounds first. It is an error if lower < upper does not hold, or if
    // a value that is constant, or that the manifold holds, starts outside.
    const double* lower_bound = nullptr;
    const double* upper_bound = nullptr;
    // If not null, num_blocks x size bounds, of each block its own, and
    // lower_bound or upper_bound is ignored.
    const double* lower_bounds = nullptr;
    const double* upper_bounds = nullptr;

    ceres::Manifold* ManifoldOf(int64_t i) const {
      return manifolds != nullptr ? manifolds[i] : manifold;
    }
    bool MayHaveBounds() const {
      return lower_bound != nullptr || upper_bound != nullptr ||
             lower_bounds != nullptr || upper_bounds != nullptr;
    }
    // The bounds of value j of block i; the largest numbers if it has none.
    double LowerBoundOf(int64_t i, int j) const {
      return lower_bounds != nullptr  ? lower_bounds[i * size + j]
             : lower_bound != nullptr ? lower_bound[j]
                                      : -std::numeric_limits<double>::max();
    }
    double UpperBoundOf(int64_t i, int j) const {
      return upper_bounds != nullptr  ? upper_bounds[i * size + j]
             : upper_bound != nullptr ? upper_bound[j]
                                      : std::numeric_limits<double>::max();
    }
    // True if value j of block i has a bound.
    bool IsBounded(int64_t i, int j) const {
      constexpr double kMost = std::numeric_limits<double>::max();
      return LowerBoundOf(i, j) > -kMost || UpperBoundOf(i, j) < kMost;
    }
  };

  // One parameter block of each residual block: residual block i depends on
  // block[i] of a parameter array, 0 <= block[i] < num_blocks. If `block` is
  // null, it depends on block i.
  struct Index {
    int parameters = 0;  // the number that AddParameters returned
    const int32_t* block = nullptr;
    bool on_device = false;  // of `block`

    // The block of residual block i, if `block` is in host memory.
    int64_t BlockOf(int64_t i) const { return block == nullptr ? i : block[i]; }
  };

  // Residual blocks of one type of cost function.
  struct Residuals {
    int64_t num_blocks = 0;
    // One index per parameter block of the cost function, in its order.
    std::vector<Index> blocks;
    // The loss of all residual blocks, or null for none.
    ceres::LossFunction* loss = nullptr;
    // If not null, rho of residual block i is multiplied by weights[i] >= 0, as
    // by ceres::ScaledLoss.
    const double* weights = nullptr;
    bool weights_on_device = false;

    // make_cost_function makes cost function i from the constants_bytes bytes
    // at constants + i * constants_bytes, or cost function i is
    // cost_functions[i].
    const void* constants = nullptr;
    int64_t constants_bytes = 0;
    bool constants_on_device = false;  // only if constants_are_of_model
    ceres::CostFunction* (*make_cost_function)(const void* constants) = nullptr;
    ceres::CostFunction* const* cost_functions = nullptr;
    // True if these bytes are what CopyConstants of a BatchableCostFunction
    // writes (ceres_ext/batchable_cost_function.h). They are then read
    // directly, and cost functions are made only if Ceres evaluates them.
    // Otherwise each cost function is made to call CopyConstants.
    bool constants_are_of_model = false;
  };

  // Returns the number of the array, 0 for the first.
  int AddParameters(const Parameters& parameters);
  // For fields that the AddResiduals below have no argument for.
  Residuals* mutable_residuals(int i) { return &residuals_[i]; }

  // Adds num_blocks residual blocks of a DeviceAutoDiffCostFunction, a
  // DeviceCostFunction or a cost function of this library, which this library
  // evaluates. constants has num_blocks values of Model::Constants; for BAL the
  // observed x and y, in pixels.
  template <typename CostFunction>
  void AddResiduals(int64_t num_blocks,
                    const typename CostFunction::Model::Constants* constants,
                    std::vector<Index> blocks,
                    ceres::LossFunction* loss = nullptr,
                    const double* weights = nullptr) {
    Residuals residuals;
    residuals.num_blocks = num_blocks;
    residuals.blocks = std::move(blocks);
    residuals.loss = loss;
    residuals.weights = weights;
    residuals.constants = constants;
    residuals.constants_bytes = sizeof(*constants);
    residuals.make_cost_function = &Make<CostFunction>;
    residuals.constants_are_of_model = true;
    AddResiduals(residuals);
  }
  // The same with constants that consist of doubles, num_blocks x
  // sizeof(Constants) / sizeof(double).
  template <typename CostFunction>
  void AddResiduals(int64_t num_blocks,
                    const double* constants,
                    std::vector<Index> blocks,
                    ceres::LossFunction* loss = nullptr,
                    const double* weights = nullptr) {
    using Constants = typename CostFunction::Model::Constants;
    static_assert(
        sizeof(Constants) % sizeof(double) == 0 &&
            alignof(Constants) == alignof(double),
        "constants that are not doubles are given as Model::Constants");
    AddResiduals<CostFunction>(num_blocks,
                               reinterpret_cast<const Constants*>(constants),
                               std::move(blocks),
                               loss,
                               weights);
  }

  // Adds residual blocks of any cost functions, made from constants or one
  // object each. All have the same sizes. Several threads may call
  // make_cost_function and the cost functions concurrently.
  void AddResiduals(const Residuals& residuals);

  const std::vector<Parameters>& parameters() const { return parameters_; }
  const std::vector<Residuals>& residuals() const { return residuals_; }

  // Returns true if all counts, sizes, addresses and indices fit together and
  // all values are finite. Otherwise returns false, and *error names array,
  // place, value and what was expected. Reads every array once, with
  // num_threads threads. An array on a device is an error: a solve checks
  // those.
  bool IsValid(int num_threads, std::string* error) const;

 private:
  template <typename CostFunction>
  static ceres::CostFunction* Make(const void* constants) {
    using Constants = typename CostFunction::Model::Constants;
    const Constants& of_one = *static_cast<const Constants*>(constants);
    if constexpr (std::is_constructible_v<CostFunction, const Constants&>) {
      return new CostFunction(of_one);
    } else {
      using Functor = typename CostFunction::Model::Functor;
      return new CostFunction(
          Functor(internal::FunctorConstants<Functor>::Make(of_one)));
    }
  }

  std::vector<Parameters> parameters_;
  std::vector<Residuals> residuals_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_ARRAY_PROBLEM_H_
