// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#ifndef PYTHON_SRC_COLMAP_H_
#define PYTHON_SRC_COLMAP_H_

#include "problem_io/colmap_model.h"

namespace ceres_ext::python {

struct ColmapModel {
  colmap::Model model;
  bool is_solving = false;  // while the lock of the interpreter is released
};

}  // namespace ceres_ext::python

#endif  // PYTHON_SRC_COLMAP_H_
