// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "problem_io/bal_part.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "problem_io/bal_problem.h"

namespace ceres_ext::bal {

BalPart CutPart(const BalProblem& problem, int part, int num_parts) {
  const auto n = static_cast<int64_t>(problem.point_index.size());
  const int32_t num_points = problem.num_points();
  std::vector<int64_t> before(static_cast<size_t>(num_points) + 1, 0);
  for (const int32_t point : problem.point_index) {
    ++before[point + 1];
  }
  for (int32_t i = 0; i < num_points; ++i) {
    before[i + 1] += before[i];
  }
  // The first point with so many observations before it; points at the end
  // that have none belong to the last part.
  const auto begin = [&](int part) {
    const auto end = before.begin() + num_points;
    return static_cast<int32_t>(
        (part == num_parts
             ? end
             : std::lower_bound(before.begin(), end, n * part / num_parts)) -
        before.begin());
  };
  BalPart result;
  result.first_point = begin(part);
  result.num_points = begin(part + 1) - result.first_point;
  result.num_observations = before[result.first_point + result.num_points] -
                            before[result.first_point];
  return result;
}

void KeepPart(const BalPart& part, BalProblem* problem) {
  const int64_t n = problem->num_observations();
  int64_t to = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int32_t point = problem->point_index[i] - part.first_point;
    if (point < 0 || point >= part.num_points) {
      continue;
    }
    problem->camera_index[to] = problem->camera_index[i];
    problem->point_index[to] = point;
    problem->observations[2 * to] = problem->observations[2 * i];
    problem->observations[2 * to + 1] = problem->observations[2 * i + 1];
    ++to;
  }
  problem->camera_index.resize(to);
  problem->point_index.resize(to);
  problem->observations.resize(2 * to);
  problem->camera_index.shrink_to_fit();
  problem->point_index.shrink_to_fit();
  problem->observations.shrink_to_fit();
}

}  // namespace ceres_ext::bal
