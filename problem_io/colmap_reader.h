// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#ifndef PROBLEM_IO_COLMAP_READER_H_
#define PROBLEM_IO_COLMAP_READER_H_

#include <string>

#include "problem_io/colmap_model.h"

namespace ceres_ext::colmap {

// Reads the model in a folder, in the text or the binary format of
// colmap.github.io/format.html: cameras, images and points3D, and rigs and
// frames where they are there. If both forms exist, the binary files are read
// and the others are not, as COLMAP does. On failure returns false, leaves
// *model empty and sets *error to one line
//   path:line: expected <what>, found <what>
//   path: byte N: expected <what>, found <what>
// (neither where a file could not be opened). Every number is finite, every id
// is there once, and tracks and 2D points name each other. 64-bit integers are
// read as signed ones. Memory grows with the data that arrive, never with the
// counts that a file promises.
//
// Rigs may have one sensor each, a camera; more are a failure. The pose of a
// frame, which for COLMAP is the one that counts, becomes that of its image.
bool ReadModel(const std::string& folder, Model* model, std::string* error);

}  // namespace ceres_ext::colmap

#endif  // PROBLEM_IO_COLMAP_READER_H_
