// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// What benchmarks of whole solves have in common: generated problems, each in a
// process of its own and solved many times from the same start.
#ifndef CERES_EXT_BENCHMARKS_SEEDS_H_
#define CERES_EXT_BENCHMARKS_SEEDS_H_

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>

#include "examples/bal/bal_geometry.h"
#include "examples/bal/bal_problem.h"
#include "examples/bal/bal_synthetic.h"

namespace ceres_ext::bal {

// Calls run(seed), which says whether it has worked, for seeds 1 to num_seeds,
// each in a child process. Returns what main does: 0 where all have.
template <typename Run>
int RunSeeds(int num_seeds, const Run& run) {
  int code = 0;
  for (int seed = 1; seed <= num_seeds; ++seed) {
    const pid_t child = fork();
    if (child == 0) {
      // Not _exit: what traces the child writes when it ends.
      std::exit(run(static_cast<uint64_t>(seed)) ? 0 : 1);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
      code = 1;
    }
  }
  return code;
}

// A normalised problem of these sizes. distance: from the truth, times
// bal_generate's drift and noise of focal lengths and points.
inline bool GenerateStart(SyntheticOptions options,
                          double distance,
                          BalProblem* start,
                          std::string* error) {
  options.drift_rotation *= distance;
  options.drift_translation *= distance;
  options.focal_noise *= distance;
  options.point_noise *= distance;
  SyntheticProblem generated;
  if (!GenerateSynthetic(options, &generated, error)) {
    return false;
  }
  *start = std::move(generated.start);
  Normalize(start);
  return true;
}

// Sets *problem, a copy of `start` that was solved, back to it: in place, in
// memory that was touched before.
inline void Restore(const BalProblem& start, BalProblem* problem) {
  std::copy(
      start.cameras.begin(), start.cameras.end(), problem->cameras.begin());
  std::copy(start.points.begin(), start.points.end(), problem->points.begin());
}

}  // namespace ceres_ext::bal

#endif  // CERES_EXT_BENCHMARKS_SEEDS_H_
