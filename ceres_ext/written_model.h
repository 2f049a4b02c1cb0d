// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Functors with derivatives of their own (ceres_ext/row_evaluation.h) as models
// that write their Jacobian, on the host and on a device:
//
//   using Cost = DeviceCostFunction<internal::WrittenModel<MyFunctor>>;
//
// WhitenedModel<MyFunctor> is that of a WhitenedError<MyFunctor>
// (photogrammetry.h).

#ifndef CERES_EXT_WRITTEN_MODEL_H_
#define CERES_EXT_WRITTEN_MODEL_H_

#include <cstddef>
#include <utility>

#include "ceres/internal/port.h"
#include "ceres_ext/photogrammetry.h"
#include "ceres_ext/row_evaluation.h"

namespace ceres_ext::internal {

template <typename Functor>
struct WrittenModel {
  static constexpr int kNumResiduals = Functor::kNumResiduals;
  using BlockSizes = typename Functor::BlockSizes;
  using Constants = Functor;
  static_assert(HasDerivatives<Functor>(), "the functor has derivatives");

  CERES_HOST_DEVICE static bool Evaluate(const Functor& functor,
                                         const double* const* blocks,
                                         double* residuals,
                                         double* const* jacobians) {
    if (jacobians != nullptr) {
      return functor.Differentiate(BlockSizes(), blocks, residuals, jacobians);
    }
    return Call(functor,
                blocks,
                residuals,
                std::make_index_sequence<BlockSizes::size()>());
  }
  static constexpr bool kDifferentiatesBlocks =
      HasDerivativesByBlock<Functor>();
  CERES_HOST_DEVICE static bool EvaluateBlock(const Functor& functor,
                                              int block,
                                              const double* const* blocks,
                                              double* residuals,
                                              double* const* jacobians) {
    return functor.DifferentiateBlock(block, blocks, residuals, jacobians);
  }

 private:
  template <size_t... kBs>
  CERES_HOST_DEVICE static bool Call(const Functor& functor,
                                     const double* const* blocks,
                                     double* residuals,
                                     std::index_sequence<kBs...> /*blocks*/) {
    return functor(blocks[kBs]..., residuals);
  }
};

template <typename Functor>
struct WhitenedModel {
  static constexpr int kNumResiduals = Functor::kNumResiduals;
  using BlockSizes = typename Functor::BlockSizes;
  using Constants = WhitenedError<Functor>;

  CERES_HOST_DEVICE static bool Evaluate(const Constants& error,
                                         const double* const* blocks,
                                         double* residuals,
                                         double* const* jacobians) {
    if (!WrittenModel<Functor>::Evaluate(error, blocks, residuals, jacobians)) {
      return false;
    }
    Whiten(error, 1, residuals);
    if (jacobians != nullptr) {
      WhitenAll(error, jacobians, BlockSizes());
    }
    return true;
  }

 private:
  // Multiplies a matrix of kNumResiduals x num_columns, row-major.
  CERES_HOST_DEVICE static void Whiten(const Constants& error,
                                       int num_columns,
                                       double* matrix) {
    for (int j = 0; j < num_columns; ++j) {
      double column[kNumResiduals];
      for (int i = 0; i < kNumResiduals; ++i) {
        column[i] = matrix[num_columns * i + j];
      }
      for (int i = 0; i < kNumResiduals; ++i) {
        double sum = 0.0;
        for (int k = 0; k < kNumResiduals; ++k) {
          sum += error.sqrt_information[kNumResiduals * i + k] * column[k];
        }
        matrix[num_columns * i + j] = sum;
      }
    }
  }

  template <int... kSizes>
  CERES_HOST_DEVICE static void WhitenAll(
      const Constants& error,
      double* const* jacobians,
      std::integer_sequence<int, kSizes...> /*sizes*/) {
    int b = 0;
    ((Whiten(error, kSizes, jacobians[b]), ++b), ...);
  }
};

}  // namespace ceres_ext::internal

#endif  // CERES_EXT_WRITTEN_MODEL_H_
