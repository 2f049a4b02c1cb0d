// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#ifndef EXAMPLES_BAL_SECONDS_SINCE_H_
#define EXAMPLES_BAL_SECONDS_SINCE_H_

#include <chrono>

namespace ceres_ext::bal {

inline double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_SECONDS_SINCE_H_
