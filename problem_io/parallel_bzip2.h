// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#ifndef PROBLEM_IO_PARALLEL_BZIP2_H_
#define PROBLEM_IO_PARALLEL_BZIP2_H_

#include <memory>

#include "problem_io/byte_stream.h"

namespace ceres_ext::bal {

// A stream of the same bytes and errors as `serial`, which decompresses *raw
// (of known size()) from its first byte on, owns it and has not begun yet. The
// blocks of bzip2 (900 kB at most) don't depend on each other: each is put into
// a stream of its own, for libbz2 on one of num_threads threads, which checks
// it as that of the whole. If anything is not as expected, `serial` begins and
// says what. That is also what is returned where there is one block alone or no
// more than one thread.
std::unique_ptr<ByteStream> ParallelBzip2(const ByteStream* raw,
                                          std::unique_ptr<ByteStream> serial,
                                          int num_threads);

}  // namespace ceres_ext::bal

#endif  // PROBLEM_IO_PARALLEL_BZIP2_H_
