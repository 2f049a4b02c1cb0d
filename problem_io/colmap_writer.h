// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#ifndef PROBLEM_IO_COLMAP_WRITER_H_
#define PROBLEM_IO_COLMAP_WRITER_H_

#include <string>
#include <vector>

#include "problem_io/colmap_model.h"

namespace ceres_ext::colmap {

// Writes the files of model.format into a folder, which is created if its own
// folder is there. Numbers read back as the same bits. The files take their
// places one right after the other when all of them are on the disk (see
// safe_file.h). On failure returns false and sets *error to one line; files
// that have not taken their place yet then stay what they were.
//
// Other files of a model in the folder (rigs and frames of a model that has
// none, or files of the other format), which COLMAP would read beside or in
// place of these or would leave behind them, are a failure.
bool WriteModel(const std::string& path,
                const Model& model,
                std::string* error);

// An early word on what would else fail after long work: places that can't be
// written, names that the format can't hold. On failure returns false and sets
// *error to one line.
bool CanWriteModel(const std::string& path,
                   const Model& model,
                   std::string* error);

// The paths of the files that are written.
std::vector<std::string> ModelFiles(const std::string& path,
                                    const Model& model);

// The path of a folder without the slashes that may end it.
std::string WithoutSlashes(std::string folder);

}  // namespace ceres_ext::colmap

#endif  // PROBLEM_IO_COLMAP_WRITER_H_
