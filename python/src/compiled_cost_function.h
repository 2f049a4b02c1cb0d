// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The interface between this package and a shared library that
// ceres_ext.compile_cost_function compiles from the source of a user-defined
// functor. After the functor, its source has
//
//   CERES_EXT_COMPILED_COST_FUNCTION(Functor, kNumResiduals, Ns...)
//
// and for nvcc ceres_ext/device/cost_function.cuh before that.
//
// Only plain structs and function pointers cross it, so that the library needs
// no symbol of the package, whose symbols are hidden.

#ifndef PYTHON_SRC_COMPILED_COST_FUNCTION_H_
#define PYTHON_SRC_COMPILED_COST_FUNCTION_H_

#include <cstdint>
#include <type_traits>
#include <utility>

#include "ceres/internal/autodiff.h"
#include "ceres/internal/parameter_dims.h"
#include "ceres/internal/variadic_evaluate.h"
#include "ceres_ext/device_cost_function.h"

namespace ceres_ext::python {

struct CompiledModel {
  const BatchModel* model;
  int num_data;  // doubles of a row of data, which the functor holds
  // As ceres::CostFunction::Evaluate, of the cost function with these
  // constants.
  bool (*evaluate)(const void* constants,
                   const double* const* parameters,
                   double* residuals,
                   double** jacobians);
  // Makes a cost function by `factory`, which the package sets.
  ceres::CostFunction* (*make_cost_function)(const void* constants);
  ceres::CostFunction* (*factory)(const CompiledModel* model,
                                  const void* constants);
};

namespace {

// A functor without data has one value, so that rows have constants.
template <typename Functor>
struct WithoutData : Functor {
  double unused;
};

template <typename Given, int kNumResiduals, int... Ns>
struct Compiled {
  static constexpr bool kHasData = !std::is_empty_v<Given>;
  static_assert(!kHasData || (sizeof(Given) % sizeof(double) == 0 &&
                              alignof(Given) == alignof(double)),
                "the data members of the functor must be of type double");
  static_assert(std::is_trivially_copyable_v<Given>,
                "the functor must be trivially copyable");
  using Functor = std::conditional_t<kHasData, Given, WithoutData<Given>>;
  using Model = AutoDiffModel<Functor, kNumResiduals, Ns...>;
  using Dims = ceres::internal::StaticParameterDims<Ns...>;

  static bool Evaluate(const void* constants,
                       const double* const* parameters,
                       double* residuals,
                       double** jacobians) {
    const Functor& functor = *static_cast<const Functor*>(constants);
    if (jacobians == nullptr) {
      return ceres::internal::VariadicEvaluate<Dims>(
          functor, parameters, residuals);
    }
    return ceres::internal::AutoDifferentiate<kNumResiduals, Dims>(
        functor, parameters, kNumResiduals, residuals, jacobians);
  }
  static ceres::CostFunction* Make(const void* constants) {
    return compiled.factory(&compiled, constants);
  }

  static inline CompiledModel compiled = {
      &ceres_ext::internal::BatchForms<Model>::model,
      kHasData ? static_cast<int>(sizeof(Given) / sizeof(double)) : 0,
      &Evaluate,
      &Make,
      nullptr};
};

}  // namespace
}  // namespace ceres_ext::python

// The only symbol of the library.
#define CERES_EXT_EXPORT_COMPILED_COST_FUNCTION(...)            \
  extern "C" __attribute__((visibility("default")))             \
  ceres_ext::python::CompiledModel*                             \
  ceres_ext_compiled_cost_function() {                          \
    return &ceres_ext::python::Compiled<__VA_ARGS__>::compiled; \
  }
#ifdef __CUDACC__
#define CERES_EXT_COMPILED_COST_FUNCTION(...)                       \
  CERES_EXT_EXPORT_COMPILED_COST_FUNCTION(__VA_ARGS__)              \
  CERES_EXT_COST_FUNCTION(ceres_ext::python::Compiled<__VA_ARGS__>, \
                          ceres_ext::form::Rows)
#else
#define CERES_EXT_COMPILED_COST_FUNCTION(...) \
  CERES_EXT_EXPORT_COMPILED_COST_FUNCTION(__VA_ARGS__)
#endif

#endif  // PYTHON_SRC_COMPILED_COST_FUNCTION_H_
