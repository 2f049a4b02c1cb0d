// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// User-defined cost functions that are evaluated for all their residual blocks
// at once, on a device or in batches on host threads. Use them instead of
// ceres::AutoDiffCostFunction:
//
//   struct SnavelyError {
//     template <typename T>
//     CERES_HOST_DEVICE bool operator()(const T* camera,
//                                       const T* point,
//                                       T* residuals) const { ... }
//     double x, y;
//   };
//   using SnavelyCost =
//       ceres_ext::DeviceAutoDiffCostFunction<SnavelyError, 2, 9, 3>;
//   problem.AddResidualBlock(
//       new SnavelyCost(SnavelyError{x, y}), loss, camera, point);
//   ceres_ext::Solve(options, ext_options, &problem, &summary);
//
// For the device, add in one .cu file of the program that sees both types:
//
//   #include "ceres_ext/device/cost_function.cuh"
//   CERES_EXT_COST_FUNCTION(SnavelyCost)
//
// Without that line, or without a device, rows are evaluated on the host, and
// Summary says so. ceres::Solve evaluates these cost functions one by one.
//
// Functors. Everything that operator() calls must be available in device code.
// ceres/jet.h and ceres/rotation.h are, and so is <cmath> by names that
// argument-dependent lookup finds (sqrt(x), after `using std::sqrt`). A functor
// must be trivially copyable, or have a struct Constants that is
// (ceres_ext/row_evaluation.h). It is read when a solve begins; memory that it
// points to must be readable on the machine that evaluates. With an
// EvaluationCallback, which may prepare data for functors, Ceres evaluates. If
// operator() returns false or values are not finite, Ceres rejects the step, or
// the solve fails at the start.
//
// Derivatives agree with those of ceres::AutoDiffCostFunction to rounding. If a
// block has a manifold, they are taken directly by its tangent coordinates.

#ifndef CERES_EXT_DEVICE_COST_FUNCTION_H_
#define CERES_EXT_DEVICE_COST_FUNCTION_H_

#include <atomic>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "ceres/internal/autodiff.h"
#include "ceres/internal/parameter_dims.h"
#include "ceres/internal/variadic_evaluate.h"
#include "ceres/types.h"
#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/row_evaluation.h"

namespace ceres_ext {

namespace internal {

// Model::kKind, or kOther without one.
template <typename Model, typename = void>
inline constexpr BatchModelKind kKindOf = BatchModelKind::kOther;
template <typename Model>
inline constexpr BatchModelKind
    kKindOf<Model, std::void_t<decltype(Model::kKind)>> = Model::kKind;

// Model::kBlocksAreOpposite (BatchModel), or false without one.
template <typename Model, typename = void>
inline constexpr bool kHasOppositeBlocks = false;
template <typename Model>
inline constexpr bool
    kHasOppositeBlocks<Model,
                       std::void_t<decltype(Model::kBlocksAreOpposite)>> =
        Model::kBlocksAreOpposite;

// The batched forms of a model (ceres_ext/row_evaluation.h).
template <typename Model, typename BlockSizes = typename Model::BlockSizes>
struct BatchForms;
template <typename Model, int... Ns>
struct BatchForms<Model, std::integer_sequence<int, Ns...>> {
  // Set by ceres_ext/device/cost_function.cuh.
  static inline std::atomic<const kernels::ModelForm*> forms[kNumFormKinds] =
      {};
  static constexpr int kBlockSizes[] = {Ns...};

  static RowTerm EvaluateRow(const RowBatch& rows, bool jacobian, int64_t i) {
    return jacobian ? RowEvaluator<Model>::template Evaluate<true>(rows, i)
                    : RowEvaluator<Model>::template Evaluate<false>(rows, i);
  }

  static inline const BatchModel model = {
      kBatchModelVersion,
      kKindOf<Model>,
      Model::kNumResiduals,
      static_cast<int>(sizeof...(Ns)),
      kBlockSizes,
      static_cast<int>(sizeof(typename Model::Constants)),
      &EvaluateRow,
      forms,
      kIsUnoptimized,
      kHasOppositeBlocks<Model>};
};

}  // namespace internal

// ceres::AutoDiffCostFunction with batched forms. Functor, kNumResiduals, Ns:
// as there, but kNumResiduals is not ceres::DYNAMIC.
template <typename Functor, int kNumResiduals, int... Ns>
class DeviceAutoDiffCostFunction final : public BatchableCostFunction {
 public:
  using Model = AutoDiffModel<Functor, kNumResiduals, Ns...>;

  explicit DeviceAutoDiffCostFunction(Functor functor)
      : DeviceAutoDiffCostFunction(new Functor(std::move(functor))) {}
  // As that of ceres::AutoDiffCostFunction.
  explicit DeviceAutoDiffCostFunction(
      Functor* functor, ceres::Ownership ownership = ceres::TAKE_OWNERSHIP)
      : functor_(functor), ownership_(ownership) {
    set_num_residuals(kNumResiduals);
    *mutable_parameter_block_sizes() = std::vector<int32_t>{Ns...};
  }
  ~DeviceAutoDiffCostFunction() override {
    if (ownership_ == ceres::DO_NOT_TAKE_OWNERSHIP) {
      static_cast<void>(functor_.release());
    }
  }

  bool Evaluate(double const* const* parameters,
                double* residuals,
                double** jacobians) const override {
    using ParameterDims = ceres::internal::StaticParameterDims<Ns...>;
    if (jacobians == nullptr) {
      return ceres::internal::VariadicEvaluate<ParameterDims>(
          *functor_, parameters, residuals);
    }
    return ceres::internal::AutoDifferentiate<kNumResiduals, ParameterDims>(
        *functor_, parameters, kNumResiduals, residuals, jacobians);
  }

  const BatchModel& batch_model() const override {
    return internal::BatchForms<Model>::model;
  }
  void CopyConstants(void* constants) const override {
    const auto value = internal::FunctorConstants<Functor>::Of(*functor_);
    std::memcpy(constants, &value, sizeof(value));
  }

  const Functor& functor() const { return *functor_; }

 private:
  std::unique_ptr<Functor> functor_;
  const ceres::Ownership ownership_;
};

// A cost function of a model with a written Jacobian
// (ceres_ext/row_evaluation.h says what that is).
template <typename ModelIn>
class DeviceCostFunction : public BatchableCostFunction {
 public:
  using Model = ModelIn;
  using Constants = typename Model::Constants;

  explicit DeviceCostFunction(const Constants& constants)
      : constants_(constants) {
    set_num_residuals(Model::kNumResiduals);
    SetSizes(typename Model::BlockSizes());
  }

  bool Evaluate(double const* const* parameters,
                double* residuals,
                double** jacobians) const override {
    return EvaluateWanted(
        parameters, residuals, jacobians, typename Model::BlockSizes());
  }

  const BatchModel& batch_model() const override {
    return internal::BatchForms<Model>::model;
  }
  void CopyConstants(void* constants) const override {
    std::memcpy(constants, &constants_, sizeof(constants_));
  }

  const Constants& constants() const { return constants_; }

 private:
  template <int... Ns>
  void SetSizes(std::integer_sequence<int, Ns...>) {
    *mutable_parameter_block_sizes() = std::vector<int32_t>{Ns...};
  }

  // Models write all derivatives; Ceres may not want some.
  template <int... Ns>
  bool EvaluateWanted(double const* const* parameters,
                      double* residuals,
                      double** jacobians,
                      std::integer_sequence<int, Ns...>) const {
    constexpr int R = Model::kNumResiduals;
    if (jacobians == nullptr) {
      return Model::Evaluate(constants_, parameters, residuals, nullptr);
    }
    double unwanted[R * (Ns + ... + 0)];
    double* all[sizeof...(Ns)];
    double* next = unwanted;
    int b = 0;
    ((all[b] = jacobians[b] != nullptr ? jacobians[b] : next,
      next += R * Ns,
      ++b),
     ...);
    return Model::Evaluate(constants_, parameters, residuals, all);
  }

  Constants constants_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_DEVICE_COST_FUNCTION_H_
