// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#ifndef PROBLEM_IO_BAL_WRITER_H_
#define PROBLEM_IO_BAL_WRITER_H_

#include <string>
#include <vector>

#include "problem_io/bal_problem.h"

namespace ceres_ext::bal {

// Writes a problem with 9-parameter cameras in a format that ReadBalFile reads:
// as arrays if the name ends in .npz, else as text, compressed if it ends in
// .gz or .bz2. A number in text is the shortest one (at most 17 significant
// digits) that reads back as the same bits. On failure returns false and sets
// *error to one line; path then stays what it was (see safe_file.h, also for
// the two below).
bool WriteBalFile(const std::string& path,
                  const BalProblem& problem,
                  std::string* error);

struct Ellipsoid {
  double center[3] = {};
  double semi_axes[9] = {};  // three vectors, one after the other
};

// Writes camera centers (3 each) as green and points (3 each) as white vertices
// of an ASCII PLY file, for MeshLab or CloudCompare, and ellipsoids as red
// meshes of 18 vertices and 32 faces.
bool WritePlyFile(const std::string& path,
                  const std::vector<double>& camera_centers,
                  const std::vector<double>& points,
                  const std::vector<Ellipsoid>& ellipsoids,
                  std::string* error);

// Writes text as it is.
bool WriteTextFile(const std::string& path,
                   const std::string& text,
                   std::string* error);

}  // namespace ceres_ext::bal

#endif  // PROBLEM_IO_BAL_WRITER_H_
