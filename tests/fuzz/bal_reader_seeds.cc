// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Writes a seed corpus for bal_reader_fuzzer and bal_npz_fuzzer into a folder
// that exists: small problems, plain, gzip, bzip2 and as arrays.

#include <cstdio>
#include <string>

#include "problem_io/bal_problem.h"
#include "problem_io/bal_writer.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: bal_reader_seeds FOLDER\n");
    return 1;
  }
  for (int num_cameras = 1; num_cameras <= 3; ++num_cameras) {
    ceres_ext::bal::BalProblem problem;
    const int num_points = 2 * num_cameras;
    for (int i = 0; i < num_cameras * num_points; ++i) {
      problem.camera_index.push_back(i % num_cameras);
      problem.point_index.push_back(i % num_points);
      problem.observations.push_back(1.5 * i);
      problem.observations.push_back(-1e-3 * i);
    }
    problem.cameras.assign(9 * num_cameras, 0.125);
    problem.points.assign(3 * num_points, -1e20);
    for (const char* suffix : {"txt", "gz", "bz2", "npz"}) {
      const std::string path = std::string(argv[1]) + "/" +
                               std::to_string(num_cameras) + "." + suffix;
      std::string error;
      if (!ceres_ext::bal::WriteBalFile(path, problem, &error)) {
        std::fprintf(stderr, "bal_reader_seeds: %s\n", error.c_str());
        return 1;
      }
    }
  }
  return 0;
}
