// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#ifndef PROBLEM_IO_FOR_EACH_CHUNK_H_
#define PROBLEM_IO_FOR_EACH_CHUNK_H_

#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

#include "cuda_kernels/machine/host_processors.h"

namespace ceres_ext::bal {

// num_threads, or one per processor that the process may use where that is 0.
inline int NumThreads(int num_threads) {
  return num_threads > 0 ? num_threads : kernels::NumUsableProcessors();
}

// Calls f(chunk, begin, end) for num_threads consecutive parts of 0 ... n - 1,
// each on a thread of its own. Throws what one of them threw.
template <typename Function>
void ForEachChunk(int num_threads, int64_t n, const Function& f) {
  std::vector<std::exception_ptr> failures(num_threads);
  const auto run = [&](int chunk) {
    try {
      f(chunk, n * chunk / num_threads, n * (chunk + 1) / num_threads);
    } catch (...) {
      failures[chunk] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(num_threads);
  for (int chunk = 1; chunk < num_threads; ++chunk) {
    try {
      threads.emplace_back(run, chunk);
    } catch (const std::exception&) {
      run(chunk);  // no more threads, or memory for them, are available
    }
  }
  run(0);
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) {
      std::rethrow_exception(failure);
    }
  }
}

}  // namespace ceres_ext::bal

#endif  // PROBLEM_IO_FOR_EACH_CHUNK_H_
