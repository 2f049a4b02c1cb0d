// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/bal_geometry.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "ceres/rotation.h"
#include "problem_io/for_each_chunk.h"
#include "problem_io/portable_math.h"

namespace ceres_ext::bal {
namespace {

// Camera parameters after the rotation: translation, f, k1, k2.
constexpr int kBehindRotation = 6;

// For a pass over n values.
int PassThreads(int64_t n) {
  return static_cast<int>(std::min<int64_t>(NumThreads(0), 1 + n / (1 << 16)));
}

void Rotate(const BalProblem& problem,
            const double* camera,
            const double* point,
            double* rotated) {
  if (problem.camera_size == 10) {
    ceres::QuaternionRotatePoint(camera, point, rotated);
  } else {
    ceres::AngleAxisRotatePoint(camera, point, rotated);
  }
}

// center = -R't
void Center(const BalProblem& problem, const double* camera, double* center) {
  const double* t = camera + problem.camera_size - kBehindRotation;
  if (problem.camera_size == 10) {
    const double inverse[4] = {camera[0], -camera[1], -camera[2], -camera[3]};
    ceres::QuaternionRotatePoint(inverse, t, center);
  } else {
    const double inverse[3] = {-camera[0], -camera[1], -camera[2]};
    ceres::AngleAxisRotatePoint(inverse, t, center);
  }
  for (int k = 0; k < 3; ++k) {
    center[k] = -center[k];
  }
}

void Resize(int camera_size,
            void (*convert)(const double* from, double* to),
            BalProblem* problem) {
  if (problem->camera_size == camera_size) {
    return;
  }
  const int old_size = problem->camera_size;
  const int64_t num_cameras = problem->num_cameras();
  std::vector<double> cameras(num_cameras * camera_size);
  for (int64_t i = 0; i < num_cameras; ++i) {
    const double* from = problem->cameras.data() + i * old_size;
    double* to = cameras.data() + i * camera_size;
    convert(from, to);
    std::copy_n(from + old_size - kBehindRotation,
                kBehindRotation,
                to + camera_size - kBehindRotation);
  }
  problem->cameras = std::move(cameras);
  problem->camera_size = camera_size;
}

// Median of n finite values, with all threads; value(i) is computed in each
// pass.
template <typename Function>
double Median(int64_t n, const Function& value) {
  // Integers in the order of the values.
  const auto key_of = [&value](int64_t i) {
    uint64_t bits = 0;
    const double v = value(i) + 0.0;  // -0 is 0
    std::memcpy(&bits, &v, sizeof(bits));
    return bits >> 63 != 0 ? ~bits : bits | uint64_t{1} << 63;
  };
  constexpr int kShift = 48;
  constexpr int64_t kNumBins = int64_t{1} << (64 - kShift);
  const int num_threads = PassThreads(n);
  std::vector<std::vector<int64_t>> counts(num_threads);
  ForEachChunk(num_threads, n, [&](int chunk, int64_t begin, int64_t end) {
    counts[chunk].resize(kNumBins);
    for (int64_t i = begin; i < end; ++i) {
      ++counts[chunk][key_of(i) >> kShift];
    }
  });
  // The bin that has the middle, and its place there.
  int64_t place = n / 2;
  uint64_t bin = 0;
  for (;; ++bin) {
    int64_t count = 0;
    for (const std::vector<int64_t>& of_thread : counts) {
      count += of_thread[bin];
    }
    if (place < count) {
      break;
    }
    place -= count;
  }
  std::vector<std::vector<uint64_t>> parts(num_threads);
  ForEachChunk(num_threads, n, [&](int chunk, int64_t begin, int64_t end) {
    parts[chunk].reserve(counts[chunk][bin]);
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t key = key_of(i);
      if (key >> kShift == bin) {
        parts[chunk].push_back(key);
      }
    }
  });
  std::vector<uint64_t> keys;
  for (const std::vector<uint64_t>& part : parts) {
    keys.insert(keys.end(), part.begin(), part.end());
  }
  std::nth_element(keys.begin(), keys.begin() + place, keys.end());
  const uint64_t key = keys[place];
  const uint64_t bits = key >> 63 != 0 ? key & ~(uint64_t{1} << 63) : ~key;
  double median = 0.0;
  std::memcpy(&median, &bits, sizeof(median));
  return median;
}

// X' = scale (X + shift); with t = -R c, t' = scale (t - R shift).
void Transform(double scale, const double shift[3], BalProblem* problem) {
  double* const points = problem->points.data();
  const int64_t num_points = problem->num_points();
  ForEachChunk(PassThreads(num_points),
               num_points,
               [=](int, int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   for (int k = 0; k < 3; ++k) {
                     double& x = points[3 * i + k];
                     x = scale * (x + shift[k]);
                   }
                 }
               });
  for (int64_t i = 0; i < problem->num_cameras(); ++i) {
    double* camera = problem->cameras.data() + i * problem->camera_size;
    double* t = camera + problem->camera_size - kBehindRotation;
    double rotated[3];
    Rotate(*problem, camera, shift, rotated);
    for (int k = 0; k < 3; ++k) {
      t[k] = scale * (t[k] - rotated[k]);
    }
  }
}

}  // namespace

void ToQuaternions(BalProblem* problem) {
  const auto convert = [](const double* from, double* to) {
    ceres::AngleAxisToQuaternion(from, to);
  };
  Resize(10, convert, problem);
}

void ToAngleAxes(BalProblem* problem) {
  const auto convert = [](const double* from, double* to) {
    ceres::QuaternionToAngleAxis(from, to);
  };
  Resize(9, convert, problem);
}

std::vector<double> CameraCenters(const BalProblem& problem) {
  std::vector<double> centers(3 * static_cast<int64_t>(problem.num_cameras()));
  for (int64_t i = 0; i < problem.num_cameras(); ++i) {
    Center(problem,
           problem.cameras.data() + i * problem.camera_size,
           centers.data() + 3 * i);
  }
  return centers;
}

Similarity Normalize(BalProblem* problem) {
  const int64_t num_points = problem->num_points();
  if (num_points == 0) {
    return Similarity();
  }
  Similarity similarity;
  const double* const points = problem->points.data();
  for (int k = 0; k < 3; ++k) {
    similarity.origin[k] =
        Median(num_points, [=](int64_t i) { return points[3 * i + k]; });
  }
  similarity.scale = 100.0 / Median(num_points, [&](int64_t i) {
                       double distance = 0.0;
                       for (int k = 0; k < 3; ++k) {
                         distance +=
                             std::abs(points[3 * i + k] - similarity.origin[k]);
                       }
                       return distance;
                     });
  if (!std::isnormal(similarity.scale)) {
    return Similarity();
  }
  const double shift[3] = {
      -similarity.origin[0], -similarity.origin[1], -similarity.origin[2]};
  Transform(similarity.scale, shift, problem);
  return similarity;
}

void Undo(const Similarity& similarity, BalProblem* problem) {
  // X = (X' + scale origin) / scale
  double shift[3];
  for (int k = 0; k < 3; ++k) {
    shift[k] = similarity.scale * similarity.origin[k];
  }
  Transform(1.0 / similarity.scale, shift, problem);
}

void Perturb(double rotation_sigma,
             double translation_sigma,
             double point_sigma,
             uint32_t seed,
             BalProblem* problem) {
  enum Purpose { kPoints, kCameras };
  if (point_sigma > 0.0) {
    for (int64_t i = 0; i < problem->num_points(); ++i) {
      PortableRandom random(seed, kPoints, i);
      for (int k = 0; k < 3; ++k) {
        problem->points[3 * i + k] += point_sigma * random.Normal();
      }
    }
  }
  for (int64_t i = 0; i < problem->num_cameras(); ++i) {
    PortableRandom random(seed, kCameras, i);
    double* camera = problem->cameras.data() + i * problem->camera_size;
    double* t = camera + problem->camera_size - kBehindRotation;
    if (rotation_sigma > 0.0) {
      double center[3];
      Center(*problem, camera, center);
      double angle_axis[3];
      if (problem->camera_size == 10) {
        ceres::QuaternionToAngleAxis(camera, angle_axis);
      } else {
        std::copy_n(camera, 3, angle_axis);
      }
      for (double& component : angle_axis) {
        component += rotation_sigma * random.Normal();
      }
      if (problem->camera_size == 10) {
        ceres::AngleAxisToQuaternion(angle_axis, camera);
      } else {
        std::copy_n(angle_axis, 3, camera);
      }
      // t = -R c
      Rotate(*problem, camera, center, t);
      for (int k = 0; k < 3; ++k) {
        t[k] = -t[k];
      }
    }
    if (translation_sigma > 0.0) {
      for (int k = 0; k < 3; ++k) {
        t[k] += translation_sigma * random.Normal();
      }
    }
  }
}

}  // namespace ceres_ext::bal
