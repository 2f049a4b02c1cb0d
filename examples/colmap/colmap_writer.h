// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#ifndef EXAMPLES_COLMAP_COLMAP_WRITER_H_
#define EXAMPLES_COLMAP_COLMAP_WRITER_H_

#include <string>

#include "examples/colmap/colmap_model.h"

namespace ceres_ext::colmap {

// Writes cameras.txt, images.txt and points3D.txt into a folder, which is
// created if its own folder is there. Numbers read back as the same bits; a
// track lists its 2D points in the order of images. The three files take their
// places one right after the other when all of them are on the disk (see
// safe_file.h). On failure returns false and sets *error to one line; files
// that have not taken their place yet then stay what they were.
//
// Other files of a model in the folder (rigs and frames, or the same in
// binary), which COLMAP would read beside or in place of these, are a failure.
bool WriteModel(const std::string& path,
                const Model& model,
                std::string* error);

// An early word on what would else fail after long work. On failure returns
// false and sets *error to one line.
bool CanWriteModel(const std::string& path, std::string* error);

// The path of a folder without the slashes that may end it.
std::string WithoutSlashes(std::string folder);

}  // namespace ceres_ext::colmap

#endif  // EXAMPLES_COLMAP_COLMAP_WRITER_H_
