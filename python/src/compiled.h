// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// ceres_ext.CompiledCostFunction: a cost function out of a shared library
// (compiled_cost_function.h).

#ifndef PYTHON_SRC_COMPILED_H_
#define PYTHON_SRC_COMPILED_H_

#include <string>

#include "python/src/compiled_cost_function.h"

namespace ceres_ext::python {

struct CompiledCostFunction {
  std::string functor;
  std::string host_only_reason;
  const CompiledModel* model = nullptr;  // lives as long as the process
};

}  // namespace ceres_ext::python

#endif  // PYTHON_SRC_COMPILED_H_
