// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Reads the text form of a problem, see bal_reader.h.

#ifndef PROBLEM_IO_BAL_TEXT_H_
#define PROBLEM_IO_BAL_TEXT_H_

#include <string>

#include "problem_io/bal_problem.h"
#include "problem_io/bal_reader.h"
#include "problem_io/byte_stream.h"

namespace ceres_ext::bal {

// Into *problem, which is empty. On failure returns false and sets *error to
// what follows the file's name in it; *problem then holds anything. Throws
// std::bad_alloc.
bool ReadBalText(const BalReadOptions& options,
                 ByteStream* stream,
                 BalProblem* problem,
                 std::string* error);

}  // namespace ceres_ext::bal

#endif  // PROBLEM_IO_BAL_TEXT_H_
