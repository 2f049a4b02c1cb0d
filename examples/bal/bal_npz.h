// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A problem as arrays of a .npz file, which numpy.load reads:
//
//   camera_index   int32 (int64 is read too)   (num_observations)
//   point_index    int32 (int64 is read too)   (num_observations)
//   observations   float64                     (num_observations, 2)
//   cameras        float64                     (num_cameras, 9)
//   points         float64                     (num_points, 3)

#ifndef EXAMPLES_BAL_BAL_NPZ_H_
#define EXAMPLES_BAL_BAL_NPZ_H_

#include <string>

#include "examples/bal/bal_problem.h"
#include "examples/bal/bal_reader.h"
#include "examples/bal/byte_stream.h"

namespace ceres_ext::bal {

// From a file whose size() is known into *problem, which is empty. On failure
// returns false and sets *error to what follows the file's name in it; *problem
// then holds anything. Throws std::bad_alloc.
bool ReadBalNpz(const BalReadOptions& options,
                const ByteStream& file,
                BalProblem* problem,
                std::string* error);

// As a SafeFile. On failure returns false and sets *error to one line.
bool WriteBalNpz(const std::string& path,
                 const BalProblem& problem,
                 std::string* error);

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_BAL_NPZ_H_
