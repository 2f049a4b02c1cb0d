// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// ceres_ext._ceres_ext, the compiled part of the package.

#include "python/src/module.h"

#include "nanobind/nanobind.h"

NB_MODULE(_ceres_ext, module) {
  // Objects that live until the interpreter ends are not an error of the
  // program.
  nanobind::set_leak_warnings(false);
  module.attr("__version__") = CERES_EXT_VERSION;
  ceres_ext::python::AddProblem(&module);
  ceres_ext::python::AddOptions(&module);
  ceres_ext::python::AddSolve(&module);
  ceres_ext::python::AddBatch(&module);
  ceres_ext::python::AddCovariance(&module);
  ceres_ext::python::AddBalFile(&module);
  ceres_ext::python::AddColmap(&module);
}
