// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A problem as arrays, without an object per block: where a ceres::Problem has
// a parameter block and a residual block each, this has arrays of them.
//
//   ceres_ext::ArrayProblem problem;
//   const int cameras = problem.AddParameters({camera_values, 16, 9});
//   const int points = problem.AddParameters({point_values, 22106, 3});
//   problem.AddResiduals<ceres_ext::BalReprojectionError>(
//       83718, observations, {{cameras, camera_index}, {points, point_index}});
//   ceres_ext::Solve(options, ext_options, &problem, &summary);
//
// The arrays are the caller's: they are read where a solve begins, and must
// stay as they are until it ends, which writes the values of parameters that
// vary. Nothing else is written.
//
// A solve has the same result, bit for bit, as that of a ceres::Problem to
// which the parameter blocks were added array by array, and then the residual
// blocks.
//
// Thread safety: const member functions may be called from any thread. Solves
// that run at once have problems of their own, whose parameters do not overlap.

#ifndef CERES_EXT_ARRAY_PROBLEM_H_
#define CERES_EXT_ARRAY_PROBLEM_H_

#include <cstdint>
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
    // Of all blocks; null: they have none.
    ceres::Manifold* manifold = nullptr;
    // Of block i, in place of `manifold`, null where it has none; null array:
    // `manifold` is that of all.
    ceres::Manifold* const* manifolds = nullptr;
    // Block i is constant where is_constant[i] is not 0; null: all vary.
    const uint8_t* is_constant = nullptr;

    ceres::Manifold* ManifoldOf(int64_t i) const {
      return manifolds != nullptr ? manifolds[i] : manifold;
    }
  };

  // One parameter block of each residual block: residual block i depends on
  // block[i], 0 <= block[i] < num_blocks, of a parameter array; null: on block
  // i.
  struct Index {
    int parameters = 0;  // what AddParameters returned
    const int32_t* block = nullptr;

    // The block of residual block i.
    int64_t BlockOf(int64_t i) const { return block == nullptr ? i : block[i]; }
  };

  // Residual blocks of one type of cost function.
  struct Residuals {
    int64_t num_blocks = 0;
    // Of each parameter block of the cost function, in its order.
    std::vector<Index> blocks;
    // Of all residual blocks; null: none.
    ceres::LossFunction* loss = nullptr;
    // As ceres::ScaledLoss: rho of residual block i is multiplied by
    // weights[i] >= 0; null: by 1.
    const double* weights = nullptr;

    // Cost function i is made of the constants_bytes bytes at i *
    // constants_bytes; or it is cost_functions[i].
    const void* constants = nullptr;
    int64_t constants_bytes = 0;
    ceres::CostFunction* (*make_cost_function)(const void* constants) = nullptr;
    ceres::CostFunction* const* cost_functions = nullptr;
    // Whether these bytes are what CopyConstants of a BatchableCostFunction
    // writes (ceres_ext/batchable_cost_function.h): then they are read as they
    // are, and cost functions made only where Ceres evaluates. Else each is
    // made, and asked for them.
    bool constants_are_of_model = false;
  };

  // Returns the number of the array, 0 for the first.
  int AddParameters(const Parameters& parameters);

  // Adds num_blocks residual blocks of a DeviceAutoDiffCostFunction, a
  // DeviceCostFunction or one of this library's, evaluated by this library.
  // constants: those of each (Model::Constants), for BAL the observed x and y.
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
  // The same with constants that are doubles alone, side by side.
  template <typename CostFunction>
  void AddResiduals(int64_t num_blocks,
                    const double* constants,
                    std::vector<Index> blocks,
                    ceres::LossFunction* loss = nullptr,
                    const double* weights = nullptr) {
    using Constants = typename CostFunction::Model::Constants;
    static_assert(sizeof(Constants) % sizeof(double) == 0 &&
                      alignof(Constants) == alignof(double),
                  "constants that are no doubles are given as what they are");
    AddResiduals<CostFunction>(num_blocks,
                               reinterpret_cast<const Constants*>(constants),
                               std::move(blocks),
                               loss,
                               weights);
  }

  // Any cost functions, made of constants or one for each residual block; all
  // have the same sizes. Both are called by several threads at once.
  void AddResiduals(const Residuals& residuals);

  const std::vector<Parameters>& parameters() const { return parameters_; }
  const std::vector<Residuals>& residuals() const { return residuals_; }

  // True where all counts, sizes, addresses and indices fit together and all
  // values are finite. Otherwise false, and *error names array, place, value
  // and what was expected. Reads every array once, by num_threads threads.
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
