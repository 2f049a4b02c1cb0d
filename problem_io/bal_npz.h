// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A problem as arrays of a .npz file, which numpy.load reads:
//
//   camera_index   int32 (int64 is read too)   (num_observations)
//   point_index    int32 (int64 is read too)   (num_observations)
//   observations   float64                     (num_observations, 2)
//   cameras        float64                     (num_cameras, 9)
//   points         float64                     (num_points, 3)

#ifndef PROBLEM_IO_BAL_NPZ_H_
#define PROBLEM_IO_BAL_NPZ_H_

#include <string>
#include <thread>

#include "problem_io/bal_part.h"
#include "problem_io/bal_problem.h"
#include "problem_io/bal_reader.h"
#include "problem_io/byte_stream.h"
#include "problem_io/npz_file.h"

namespace ceres_ext::bal {

// From a file whose size() is known into *problem, which is empty. On failure
// returns false and sets *error to what follows the file's name in it; *problem
// then holds anything. Throws std::bad_alloc.
bool ReadBalNpz(const BalReadOptions& options,
                const ByteStream& file,
                BalProblem* problem,
                std::string* error);

// The same of a part of the points (bal_part.h), as KeepPart leaves it. The
// other parts' camera_index and observations are not read, so that damage
// there, and the checksums of these two arrays, are not looked at.
bool ReadBalNpzPart(const BalReadOptions& options,
                    const ByteStream& file,
                    int part,
                    int num_parts,
                    BalProblem* problem,
                    BalPart* of_part,
                    std::string* error);

// Writes what a solve does not change while it runs, as a SafeFile. Without
// Finish, path stays what it was.
class BalNpzWriter {
 public:
  // Indices and observations, which must stay as they are, are written in the
  // background where that can be. Creates and destroys a SafeFile: one thread
  // at a time.
  BalNpzWriter(const std::string& path, const BalProblem& problem);
  ~BalNpzWriter();

  BalNpzWriter(const BalNpzWriter&) = delete;
  BalNpzWriter& operator=(const BalNpzWriter&) = delete;

  // The cameras, of 9 parameters, and points of the same problem. On failure
  // returns false and sets *error to one line.
  bool Finish(const BalProblem& problem, std::string* error);

 private:
  void Wait();

  NpzWriter writer_;
  std::thread thread_;
};

// As a SafeFile. On failure returns false and sets *error to one line.
bool WriteBalNpz(const std::string& path,
                 const BalProblem& problem,
                 std::string* error);

}  // namespace ceres_ext::bal

#endif  // PROBLEM_IO_BAL_NPZ_H_
