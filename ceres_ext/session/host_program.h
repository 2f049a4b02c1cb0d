// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Work that the owner of a problem does on the host beside this library:
// Ceres's Program (under_ceres/ceres_program.h). A problem of arrays has none.

#ifndef CERES_EXT_SESSION_HOST_PROGRAM_H_
#define CERES_EXT_SESSION_HOST_PROGRAM_H_

namespace ceres_ext {

class HostProgram {
 public:
  virtual ~HostProgram() = default;

  // True if somebody reads each state before its rows are evaluated (a
  // ceres::EvaluationCallback).
  virtual bool ReadsStates() const = 0;
  // Shows it the state. False if it can't be taken.
  virtual bool Publish(const double* state,
                       bool want_jacobian,
                       bool is_new_point) = 0;
  // sum = x (+) delta, with manifolds and bounds. False if a manifold fails;
  // what one throws comes out.
  virtual bool Plus(const double* x, const double* delta, double* sum) = 0;
  // The caller's values of the block at this offset of the state.
  virtual const double* Values(int state_offset) const = 0;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SESSION_HOST_PROGRAM_H_
