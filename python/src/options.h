// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// ceres_ext.SolverOptions: the fields of ceres::Solver::Options and of
// ceres_ext::Options side by side, which have no name in common.

#ifndef PYTHON_SRC_OPTIONS_H_
#define PYTHON_SRC_OPTIONS_H_

#include "ceres/solver.h"
#include "ceres_ext/options.h"
#include "nanobind/nanobind.h"

namespace ceres_ext::python {

struct SolverOptions : public ceres::Solver::Options,
                       public ceres_ext::Options {
  // Ceres's defaults, except for a linear solver of this library and one thread
  // per processor.
  SolverOptions();

  // Throws ValueError with the sentence that says what does not fit.
  void Check() const;
};

// Sets the named options. Throws TypeError for an unknown name and for a value
// of another type, ValueError for an unknown string.
void SetOptions(const nanobind::dict& values, SolverOptions* options);

// The options of a call: `given` or null for the defaults, and those by name.
// Throws as SetOptions and Check.
SolverOptions OptionsOf(const SolverOptions* given,
                        const nanobind::kwargs& values);

}  // namespace ceres_ext::python

#endif  // PYTHON_SRC_OPTIONS_H_
