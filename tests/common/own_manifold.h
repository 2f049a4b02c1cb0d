// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A user-defined manifold for tests: x + 2 delta, and all its possible faults.

#ifndef CERES_EXT_TESTS_COMMON_OWN_MANIFOLD_H_
#define CERES_EXT_TESTS_COMMON_OWN_MANIFOLD_H_

#include <limits>
#include <stdexcept>

#include "ceres/manifold.h"

namespace ceres_ext {

enum class Fault { kNone, kFails, kThrows, kIsNotFinite, kWritesNothing };

class OwnManifold : public ceres::Manifold {
 public:
  explicit OwnManifold(int size, const Fault* fault = nullptr)
      : size_(size), fault_(fault) {}

  int AmbientSize() const override { return size_; }
  int TangentSize() const override { return size_; }
  bool Plus(const double* x, const double* delta, double* y) const override {
    if (fault() == Fault::kThrows) {
      throw std::runtime_error("no way on");
    }
    for (int i = 0; i < size_; ++i) {
      y[i] = x[i] + 2.0 * delta[i];
    }
    return fault() != Fault::kFails;
  }
  bool PlusJacobian(const double* /*x*/, double* jacobian) const override {
    if (fault() == Fault::kThrows) {
      throw std::runtime_error("no way on");
    }
    for (int i = 0; i < size_ * size_; ++i) {
      if (fault() != Fault::kWritesNothing) {
        jacobian[i] = i % (size_ + 1) == 0 ? 2.0 : 0.0;
      }
    }
    if (fault() == Fault::kIsNotFinite) {
      jacobian[0] = std::numeric_limits<double>::infinity();
    }
    return fault() != Fault::kFails;
  }
  bool Minus(const double* y, const double* x, double* delta) const override {
    for (int i = 0; i < size_; ++i) {
      delta[i] = (y[i] - x[i]) / 2.0;
    }
    return true;
  }
  bool MinusJacobian(const double* /*x*/, double* jacobian) const override {
    for (int i = 0; i < size_ * size_; ++i) {
      jacobian[i] = i % (size_ + 1) == 0 ? 0.5 : 0.0;
    }
    return true;
  }

 private:
  Fault fault() const { return fault_ == nullptr ? Fault::kNone : *fault_; }

  int size_;
  const Fault* fault_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_COMMON_OWN_MANIFOLD_H_
