// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Sums of double, or of float without double arithmetic: cards for displays add
// 32 or 64 floats in the time of one double, and convert no faster.
#ifndef CERES_EXT_CUDA_KERNELS_BASE_TERM_SUM_H_
#define CERES_EXT_CUDA_KERNELS_BASE_TERM_SUM_H_

#include "cuda_kernels/base/host_device.h"

namespace ceres_ext::kernels {

// A sum of terms of type T in their order.
template <typename T>
class TermSum;

template <>
class TermSum<double> {
 public:
  CERES_EXT_HOST_DEVICE void Add(double term) { sum_ += term; }
  CERES_EXT_HOST_DEVICE double value() const { return sum_; }
  // In T.
  CERES_EXT_HOST_DEVICE double rounded() const { return sum_; }

 private:
  double sum_ = 0.0;
};

// Beside the sum its roundings are summed, as in Sum2 of Ogita, Rump and Oishi,
// Accurate sum and dot product, SIAM J. Sci. Comput. 26(6), 2005, but each by
// Dekker's FastTwoSum. It is exact unless the term is the larger one, and then
// within u = 2^-24 of the term. So the value is within u + (n - 1)^2 u^2 of the
// sum of absolute values of n terms, which is what terms that are rounded to
// float are off by.
template <>
class TermSum<float> {
 public:
  CERES_EXT_HOST_DEVICE void Add(float term) {
    const float sum = sum_ + term;
    roundings_ += term - (sum - sum_);
    sum_ = sum;
  }
  CERES_EXT_HOST_DEVICE double value() const {
    return static_cast<double>(sum_) + static_cast<double>(roundings_);
  }
  CERES_EXT_HOST_DEVICE float rounded() const { return sum_ + roundings_; }

 private:
  float sum_ = 0.0f;
  float roundings_ = 0.0f;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_BASE_TERM_SUM_H_
