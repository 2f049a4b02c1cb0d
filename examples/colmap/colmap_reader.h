// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#ifndef EXAMPLES_COLMAP_COLMAP_READER_H_
#define EXAMPLES_COLMAP_COLMAP_READER_H_

#include <string>

#include "examples/colmap/colmap_model.h"

namespace ceres_ext::colmap {

// Reads cameras.txt, images.txt and points3D.txt of a folder, in the text
// format of colmap.github.io/format.html. On failure returns false, leaves
// *model empty and sets *error to one line
//   path:line: expected <what>, found <what>
// (no line where a file could not be opened). Every number is finite, every id
// is there once, and tracks and 2D points name each other.
//
// Rigs (rigs.txt) may have one sensor each, which says nothing that the other
// files don't; more are a failure.
bool ReadModel(const std::string& folder, Model* model, std::string* error);

}  // namespace ceres_ext::colmap

#endif  // EXAMPLES_COLMAP_COLMAP_READER_H_
