// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The kernels of a user-defined cost function, a DeviceAutoDiffCostFunction or
// a DeviceCostFunction (ceres_ext/device_cost_function.h). Write once per type,
// at namespace scope of a .cu file,
//
//   CERES_EXT_COST_FUNCTION(MyCostFunction)
//
// This compiles all *forms* below that the type can have. To compile only some
// of them, which takes less time, name them:
//
//   CERES_EXT_COST_FUNCTION(MyCostFunction, ceres_ext::form::Rows)
//   // A reprojection error of point, pose and intrinsics: poses alone vary.
//   CERES_EXT_COST_FUNCTION(
//       PoseCost, ceres_ext::form::Rows, ceres_ext::form::Fits<1>)
//
// A form that is named and that the type cannot have is an error of the
// compiler. docs/use.md has the times.
//
// nvcc needs --expt-relaxed-constexpr; CMake's target ceres_ext::ceres_ext
// brings it. The file must be linked into a program or shared library as an
// object: a linker drops objects of a static library that nothing refers to.

#ifndef CERES_EXT_DEVICE_COST_FUNCTION_CUH_
#define CERES_EXT_DEVICE_COST_FUNCTION_CUH_

#include "ceres_ext/device/fit_form.cuh"
#include "ceres_ext/device/module.cuh"
#include "ceres_ext/device/recomputed_form.cuh"
#include "ceres_ext/device/rows_form.cuh"
#include "ceres_ext/device_cost_function.h"

namespace ceres_ext::form {

// Evaluates residuals and Jacobians on the device in every solve. Without it
// the host evaluates, and Summary says so.
struct Rows {};

// Recomputes the Jacobian in each product, for
// Options::jacobian = JACOBIAN_RECOMPUTED; without it the Jacobian is stored,
// and Summary::path_reason says so. Includes Rows. The type has two residuals,
// a point (a block of which at most three columns vary) and a block of up to 18
// values; any other blocks of a residual block must be constant.
// docs/options.md says which problems are supported. An analytic Jacobian is
// faster than a functor.
struct Recomputed {};

// Solves small dense problems whole in batches (ceres_ext/batch.h): curve fits,
// calibrations, refinements of a pose. Without it the host solves them.
// kBlocks: the numbers of the parameter blocks that may vary, which have at
// most 16 values in all; all blocks if there are none. Fewer blocks are faster.
template <int... kBlocks>
struct Fits {};

}  // namespace ceres_ext::form

namespace ceres_ext::internal {

// Kernels of two modules must be distinct.
namespace {

// The kernels of a form.
template <typename Model, typename Form>
struct FormFor {
  static_assert(sizeof(Form) == 0,
                "forms are form::Rows, form::Recomputed and form::Fits<...>");
};
template <typename Model>
struct FormFor<Model, form::Rows> {
  using Type = RowsForm<Model>;
};
template <typename Model>
struct FormFor<Model, form::Recomputed> {
  using Type = RecomputedForm<Model>;
};
template <typename Model, int... kBlocks>
struct FormFor<Model, form::Fits<kBlocks...>> {
  using Type = FitForm<Model, kBlocks...>;
};

template <typename Form>
void RegisterIfPossible() {
  if constexpr (Form::kIsPossible) {
    Module<Form>::Register();
  }
}

template <typename Model, typename... Forms>
void RegisterNamed() {
  (Forms::CheckPossible(), ...);
  static_assert(((1 << static_cast<int>(Forms::kKind)) + ...) ==
                    ((1 << static_cast<int>(Forms::kKind)) | ...),
                "each form is named once");
  if constexpr (((Forms::kKind == FormKind::kRecomputed) || ...)) {
    RegisterIfPossible<RowsForm<Model>>();
  }
  (RegisterIfPossible<Forms>(), ...);
}

template <typename CostFunction, typename... Forms>
bool RegisterForms() {
  using Model = typename CostFunction::Model;
  if constexpr (sizeof...(Forms) == 0) {
    RegisterIfPossible<RowsForm<Model>>();
    RegisterIfPossible<RecomputedForm<Model>>();
    RegisterIfPossible<FitForm<Model>>();
  } else {
    RegisterNamed<Model, typename FormFor<Model, Forms>::Type...>();
  }
  return true;
}

}  // namespace
}  // namespace ceres_ext::internal

#define CERES_EXT_COST_FUNCTION_NAME2(number) ceres_ext_cost_function_##number
#define CERES_EXT_COST_FUNCTION_NAME(number) \
  CERES_EXT_COST_FUNCTION_NAME2(number)
// The type may have commas.
#define CERES_EXT_COST_FUNCTION(...)                               \
  [[maybe_unused]] static const bool CERES_EXT_COST_FUNCTION_NAME( \
      __COUNTER__) = ::ceres_ext::internal::RegisterForms<__VA_ARGS__>();

#endif  // CERES_EXT_DEVICE_COST_FUNCTION_CUH_
