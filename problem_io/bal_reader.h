// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Reads a problem, as text or as arrays (see bal_npz.h); the first bytes tell.
// The text format is that of "Bundle Adjustment in the Large", plain, gzip or
// bzip2:
//
//   num_cameras num_points num_observations
//   camera_index point_index x y     (num_observations times)
//   camera parameter                 (9 num_cameras times)
//   point coordinate                 (3 num_points times)
//
// Any white space separates numbers; line ends carry no meaning.

#ifndef PROBLEM_IO_BAL_READER_H_
#define PROBLEM_IO_BAL_READER_H_

#include <cstddef>
#include <ostream>
#include <string>

#include "problem_io/bal_part.h"
#include "problem_io/bal_problem.h"

namespace ceres_ext::bal {

// Neither changes the result or which error is reported.
struct BalReadOptions {
  // 0: one per processor.
  int num_threads = 0;
  // Bytes that a thread takes at a time.
  size_t block_size = 1 << 18;
  // The ProgressLine that reports the reading of text; null for none.
  std::ostream* progress = nullptr;
};

// On failure returns false, leaves *problem empty and sets *error to one line
//   path:line: expected <what>, found <what>
// whose line counts in the decompressed text (no line where the file could not
// be opened), or
//   path: array.npy: expected <what>, found <what>
// The message for a COLMAP model names the program that refines it.
// Memory grows with the data that arrive, never with the counts
// that the header promises. Every number is finite, every index in range.
bool ReadBalFile(const std::string& path,
                 BalProblem* problem,
                 std::string* error,
                 const BalReadOptions& options = BalReadOptions());

// The observations of one of num_parts parts of the points, and all cameras and
// points (bal_part.h). The other parts' observations of a .npz file that is not
// compressed are not read.
bool ReadBalPart(const std::string& path,
                 int part,
                 int num_parts,
                 BalProblem* problem,
                 BalPart* of_part,
                 std::string* error,
                 const BalReadOptions& options = BalReadOptions());

// The same as ReadBalFile for a file that is in memory; name stands for its
// path in errors.
bool ReadBalMemory(const std::string& name,
                   const char* data,
                   size_t size,
                   BalProblem* problem,
                   std::string* error,
                   const BalReadOptions& options = BalReadOptions());

// True if a file begins as a problem in BAL format does.
bool IsBalFile(const std::string& path);

}  // namespace ceres_ext::bal

#endif  // PROBLEM_IO_BAL_READER_H_
