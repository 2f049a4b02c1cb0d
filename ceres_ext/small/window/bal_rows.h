// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Rows of BAL cameras, by which the solve of a window evaluates.
#ifndef CERES_EXT_SMALL_WINDOW_BAL_ROWS_H_
#define CERES_EXT_SMALL_WINDOW_BAL_ROWS_H_

#include <cstdint>

#include "ceres_ext/small/window/window.h"
#include "ceres_ext/small/window/window_arena.h"
#include "ceres_ext/small/window/window_function.h"
#include "cuda_kernels/model/bal_model.h"
#include "cuda_kernels/model/manifold.h"

namespace ceres_ext {

// kRotation: values of a camera's rotation, 3 or 4. kColumnsIn: 6, 9 or 10.
template <int kRotation, int kColumnsIn>
class BalRows {
 public:
  static constexpr int kCamera = kRotation + 6;
  static constexpr int kColumns = kColumnsIn;
  // Columns of the rotation.
  static constexpr int kTurn = kColumns == 10 ? 4 : 3;
  static constexpr bool kHasPriors = false;
  using State = kernels::CameraState<double>;
  using Projection = kernels::Projection<double>;

  CERES_EXT_WINDOW BalRows(const WindowRecord& /*record*/,
                           const unsigned char* /*inputs*/) {}

  // map: the derivative of the turn by its columns, 3 x kTurn, or null.
  CERES_EXT_WINDOW static State Prepare(const double* camera, double* map) {
    if constexpr (kRotation == kTurn) {
      return kernels::PrepareBalCamera<kRotation>(camera, map);
    } else {
      if (map == nullptr) {
        return kernels::PrepareBalCamera<kRotation, double>(camera, nullptr);
      }
      double by_quaternion[12];
      const State state =
          kernels::PrepareBalCamera<kRotation>(camera, by_quaternion);
      double by_turn[12];
      kernels::PlusJacobianQuaternion<0, 1, 2, 3>(camera, 3, by_turn);
      for (int a = 0; a < 3; ++a) {
        for (int b = 0; b < 3; ++b) {
          double sum = 0.0;
          for (int q = 0; q < 4; ++q) {
            sum += by_quaternion[4 * a + q] * by_turn[3 * q + b];
          }
          map[3 * a + b] = sum;
        }
      }
      return state;
    }
  }

  // moved = x (+) delta. Bit c of the mask: column c varies.
  CERES_EXT_WINDOW static void Plus(int mask,
                                    const double* x,
                                    const double* delta,
                                    double* moved) {
    if constexpr (kRotation != kTurn) {
      kernels::PlusQuaternion<0, 1, 2, 3>(x, delta, moved);
    }
    constexpr int kFirst = kRotation == kTurn ? 0 : 3;
    constexpr int kShift = kRotation - kTurn;
    for (int e = kFirst + kShift; e < kCamera; ++e) {
      const int c = e - kShift;
      moved[e] = c < kColumns && (mask >> c & 1) != 0 ? x[e] + delta[c] : x[e];
    }
  }

  // True if Ceres's state has value e of a camera with this mask.
  CERES_EXT_WINDOW static constexpr bool IsPartOfState(int /*mask*/,
                                                       int /*e*/) {
    return true;
  }

  CERES_EXT_WINDOW static Projection Project(int /*row*/,
                                             const State& state,
                                             const double* point) {
    return kernels::Project(state, point);
  }
  CERES_EXT_WINDOW static void Evaluate(int /*row*/,
                                        const State& state,
                                        const double* point,
                                        const double* observed,
                                        double* r) {
    kernels::Residual(state, kernels::Project(state, point), observed, r);
  }
  CERES_EXT_WINDOW static void Residual(const State& state,
                                        const Projection& p,
                                        const double* observed,
                                        double* r) {
    kernels::Residual(state, p, observed, r);
  }
  CERES_EXT_WINDOW static void CameraJacobian(const State& state,
                                              const Projection& p,
                                              double* local) {
    kernels::CameraJacobian(state, p, local);
  }
  CERES_EXT_WINDOW static void PointJacobian(const State& state,
                                             const Projection& p,
                                             double* by_point) {
    kernels::PointJacobian(state, p, by_point);
  }
  CERES_EXT_WINDOW static void CameraMultiply(const State& state,
                                              const Projection& p,
                                              const double* local_step,
                                              double* moved) {
    kernels::CameraMultiply(state, p, local_step, moved);
  }
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_WINDOW_BAL_ROWS_H_
