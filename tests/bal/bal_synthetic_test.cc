// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "problem_io/bal_synthetic.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "problem_io/portable_math.h"
#include "problem_io/synthetic_places.h"
#include "tests/bal/bal_test_util.h"
#include "tests/bal/synthetic_scene.h"

namespace ceres_ext::bal {
namespace {

using ::testing::HasSubstr;

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

TEST(PortableMath, AgreesWithTheMathematicalLibrary) {
  PortableRandom random(1, 2, 3);
  for (int i = 0; i < 100000; ++i) {
    const double x = random.Uniform(-1000.0, 1000.0);
    double s;
    double c;
    PortableSinCos(x, &s, &c);
    // pi/2 has 33 + 53 bits here, and k is below 2^10.
    EXPECT_NEAR(s, std::sin(x), 2 * kEpsilon);
    EXPECT_NEAR(c, std::cos(x), 2 * kEpsilon);

    const double positive = std::exp(random.Uniform(-700.0, 700.0));
    EXPECT_NEAR(PortableLog(positive),
                std::log(positive),
                4 * kEpsilon * std::max(1.0, std::abs(std::log(positive))));
    const double y = random.Uniform();
    const double angle = PortableAtan2(y, std::abs(x) / 1000.0);
    EXPECT_NEAR(angle, std::atan2(y, std::abs(x) / 1000.0), 8 * kEpsilon);
  }
  EXPECT_EQ(PortableLog(1.0), 0.0);
  EXPECT_EQ(PortableAtan2(0.0, 1.0), 0.0);
  EXPECT_EQ(PortableAtan2(1.0, 0.0), 0.5 * kPi);
}

TEST(PortableRandom, MomentsAndRange) {
  PortableRandom random(5, 6, 7);
  constexpr int kSamples = 1000000;
  double sum = 0.0;
  double sum2 = 0.0;
  double normal_sum = 0.0;
  double normal_sum2 = 0.0;
  double normal_sum4 = 0.0;
  std::vector<int> counts(7, 0);
  for (int i = 0; i < kSamples; ++i) {
    const double u = random.Uniform();
    ASSERT_TRUE(u > 0.0 && u < 1.0);
    sum += u;
    sum2 += u * u;
    const double n = random.Normal();
    normal_sum += n;
    normal_sum2 += n * n;
    normal_sum4 += n * n * n * n;
    ++counts[random.Below(7)];
  }
  // Five deviations of each mean of 1e6 samples.
  EXPECT_NEAR(sum / kSamples, 0.5, 5 * 0.289e-3);
  EXPECT_NEAR(sum2 / kSamples, 1.0 / 3.0, 5 * 0.298e-3);
  EXPECT_NEAR(normal_sum / kSamples, 0.0, 5 * 1e-3);
  EXPECT_NEAR(normal_sum2 / kSamples, 1.0, 5 * 1.41e-3);
  EXPECT_NEAR(normal_sum4 / kSamples, 3.0, 5 * 9.8e-3);
  for (const int count : counts) {
    EXPECT_NEAR(count, kSamples / 7.0, 5 * 350.0);
  }
}

BalProblem Truth(const SyntheticProblem& synthetic) {
  BalProblem truth = synthetic.start;
  truth.cameras = synthetic.true_cameras;
  truth.points = synthetic.true_points;
  return truth;
}

// FNV-1a of the bytes; the machines that this runs on are little-endian.
template <typename Array>
void AddToHash(const Array& values, uint64_t* hash) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
  for (size_t i = 0; i < values.size() * sizeof(values[0]); ++i) {
    *hash = (*hash ^ bytes[i]) * 0x100000001b3u;
  }
}

uint64_t Hash(const SyntheticProblem& problem) {
  uint64_t hash = 0xcbf29ce484222325u;
  AddToHash(problem.start.camera_index, &hash);
  AddToHash(problem.start.point_index, &hash);
  AddToHash(problem.start.observations, &hash);
  AddToHash(problem.start.cameras, &hash);
  AddToHash(problem.start.points, &hash);
  AddToHash(problem.true_cameras, &hash);
  AddToHash(problem.true_points, &hash);
  return hash;
}

// Each of the cases below has its hash here, made once with g++ -O3 and the
// same with clang++, without optimization and with -march=native.
TEST(BalSynthetic, SameBitsEverywhere) {
  SyntheticOptions options;
  FindBalSize("ladybug-49", &options);
  EXPECT_EQ(Hash(MakeScene(options)), 0xeda70e705ce7fc59u);
  options.seed = 2;
  EXPECT_EQ(Hash(MakeScene(options)), 0xa4cb6a2ce56a9da9u);

  SyntheticOptions all;
  all.num_cameras = 1000;  // two laps
  all.num_points = 20000;
  all.num_observations = 100000;
  all.shuffle_points = true;
  all.order = ORDER_SHUFFLED;
  all.num_points_seen_once = 100;
  all.num_far_points = 200;
  all.num_weak_cameras = 10;
  EXPECT_EQ(Hash(MakeScene(all)), 0xb6d8675ce6f949ffu);

  SyntheticOptions strips = OptionsOfSize(100, 20000, 90000);
  strips.layout = LAYOUT_STRIPS;
  strips.outlier_fraction = 0.0;
  strips.pixel_noise = 0.0;
  EXPECT_EQ(Hash(MakeScene(strips)), 0xade16d0dee7245c9u);

  SyntheticOptions places = OptionsOfSize(700, 20000, 90000);
  places.layout = LAYOUT_PLACES;
  EXPECT_EQ(Hash(MakeScene(places)), 0xe0afa28214b65de5u);
}

TEST(BalSynthetic, SameBitsForAnyNumberOfThreads) {
  for (const auto order : {ORDER_BY_POINT, ORDER_BY_CAMERA, ORDER_SHUFFLED}) {
    SyntheticOptions options = OptionsOfSize(500, 7001, 40009);
    options.order = order;
    options.shuffle_points = order == ORDER_BY_CAMERA;
    options.layout = order == ORDER_SHUFFLED ? LAYOUT_PLACES : LAYOUT_CITY;
    options.num_threads = 1;
    const uint64_t hash = Hash(MakeScene(options));
    for (const int num_threads : {2, 3, 16, 0}) {
      options.num_threads = num_threads;
      EXPECT_EQ(Hash(MakeScene(options)), hash) << num_threads;
    }
  }
}

// Properties of every problem. Returns the number of observations per point and
// per camera.
std::pair<std::vector<int>, std::vector<int>> CheckStructure(
    const SyntheticOptions& options, const SyntheticProblem& synthetic) {
  const BalProblem& start = synthetic.start;
  EXPECT_EQ(start.camera_size, 9);
  EXPECT_EQ(start.num_cameras(), options.num_cameras);
  EXPECT_EQ(start.num_points(), options.num_points);
  EXPECT_EQ(start.num_observations(), options.num_observations);
  EXPECT_EQ(synthetic.true_cameras.size(), start.cameras.size());
  EXPECT_EQ(synthetic.true_points.size(), start.points.size());
  std::vector<int> of_point(options.num_points, 0);
  std::vector<int> of_camera(options.num_cameras, 0);
  std::vector<int64_t> pairs;
  for (int64_t i = 0; i < start.num_observations(); ++i) {
    ++of_point.at(start.point_index[i]);
    ++of_camera.at(start.camera_index[i]);
    pairs.push_back((int64_t{start.point_index[i]} << 32) +
                    start.camera_index[i]);
  }
  std::sort(pairs.begin(), pairs.end());
  EXPECT_TRUE(std::adjacent_find(pairs.begin(), pairs.end()) == pairs.end());
  EXPECT_GE(*std::min_element(of_point.begin(), of_point.end()),
            options.num_points_seen_once > 0 ? 1 : 2);
  EXPECT_EQ(std::count(of_point.begin(), of_point.end(), 1),
            options.num_points_seen_once);
  return {of_point, of_camera};
}

TEST(BalSynthetic, ExactSizesOfTheBalProblems) {
  for (const BalSize& size : BalSizes()) {
    SyntheticOptions options;
    ASSERT_TRUE(FindBalSize(size.name, &options));
    EXPECT_EQ(options.num_observations, size.num_observations);
    if (size.num_observations > 300000) {
      continue;  // for the sake of time
    }
    SCOPED_TRACE(size.name);
    const SyntheticProblem synthetic = MakeScene(options);
    const auto [of_point, of_camera] = CheckStructure(options, synthetic);
    // No camera is starved: at least a tenth of the mean.
    EXPECT_GT(*std::min_element(of_camera.begin(), of_camera.end()),
              size.num_observations / size.num_cameras / 10);
    // Most tracks are short, and the longest is much longer than the mean.
    std::vector<int> sorted = of_point;
    std::sort(sorted.begin(), sorted.end());
    const double mean =
        static_cast<double>(size.num_observations) / size.num_points;
    EXPECT_LE(sorted[sorted.size() / 2], mean);
    EXPECT_GE(sorted.back(), std::min<double>(size.num_cameras - 1, 8 * mean));
  }
  SyntheticOptions options;
  EXPECT_FALSE(FindBalSize("final-1", &options));
  ASSERT_TRUE(FindBalSize("final-13682", &options));
  EXPECT_EQ(options.num_cameras, 13682);
  EXPECT_EQ(options.num_points, 4456117);
  EXPECT_EQ(options.num_observations, 28987644);
  ASSERT_TRUE(FindBalSize("venice-1778", &options));
  EXPECT_EQ(options.num_points, 993923);
  EXPECT_EQ(options.num_observations, 5001946);
}

TEST(BalSynthetic, TruthHasTheCostOfTheNoise) {
  SyntheticOptions options = OptionsOfSize(900, 20000, 100000);
  options.pixel_noise = 0.0;
  options.outlier_fraction = 0.0;
  // Observations exact up to rounding: P to 10 eps of 1e3 m at 3 m, times f.
  const double error = 10 * kEpsilon * 1e3 / 3.0 * 1e3;
  EXPECT_LT(PlainCost(Truth(MakeScene(options))),
            options.num_observations * error * error);

  // 2e5 squared normal numbers: deviation of the mean sqrt(2 / 2e5), five of
  // it.
  options.pixel_noise = 0.7;
  EXPECT_NEAR(PlainCost(Truth(MakeScene(options))),
              0.49 * options.num_observations,
              5 * std::sqrt(1e-5) * 0.49 * options.num_observations);

  // Uniform in +-s: s^2 / 3 per coordinate; 2e5 u^2 with a deviation of
  // s^2 sqrt(4 / 45) each.
  options.pixel_noise = 0.0;
  options.outlier_fraction = 1.0;
  options.outlier_size = 30.0;
  EXPECT_NEAR(PlainCost(Truth(MakeScene(options))),
              300.0 * options.num_observations,
              5 * 0.5 * 900.0 * std::sqrt(4.0 / 45.0 * 2e5));

  options.outlier_fraction = 0.1;
  const SyntheticProblem some = MakeScene(options);
  options.outlier_fraction = 0.0;
  const SyntheticProblem none = MakeScene(options);
  int64_t num_outliers = 0;
  for (int64_t i = 0; i < options.num_observations; ++i) {
    num_outliers +=
        some.start.observations[2 * i] != none.start.observations[2 * i];
  }
  // A binomial number: deviation sqrt(1e5 0.1 0.9) = 95.
  EXPECT_NEAR(num_outliers, 1e4, 5 * 95);
}

// c = -R't, R' the rotation by -angle.
std::array<double, 3> Center(const double* camera) {
  const double angle = std::sqrt(camera[0] * camera[0] + camera[1] * camera[1] +
                                 camera[2] * camera[2]);
  double k[3];
  for (int j = 0; j < 3; ++j) {
    k[j] = -camera[j] / angle;
  }
  const double* t = camera + 3;
  const double dot = k[0] * t[0] + k[1] * t[1] + k[2] * t[2];
  const double cross[3] = {k[1] * t[2] - k[2] * t[1],
                           k[2] * t[0] - k[0] * t[2],
                           k[0] * t[1] - k[1] * t[0]};
  std::array<double, 3> center;
  for (int j = 0; j < 3; ++j) {
    center[j] = -(t[j] * std::cos(angle) + cross[j] * std::sin(angle) +
                  k[j] * dot * (1.0 - std::cos(angle)));
  }
  return center;
}

double DistanceOfCenters(const std::vector<double>& cameras,
                         int64_t i,
                         int64_t j) {
  const std::array<double, 3> a = Center(cameras.data() + 9 * i);
  const std::array<double, 3> b = Center(cameras.data() + 9 * j);
  return std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
}

class BalSyntheticOf : public ::testing::TestWithParam<SceneLayout> {};

TEST_P(BalSyntheticOf, StartIsTheTruthWithoutNoise) {
  SyntheticOptions options = OptionsOfSize(200, 10000, 50000);
  options.layout = GetParam();
  options.drift_rotation = 0.0;
  options.drift_translation = 0.0;
  options.focal_noise = 0.0;
  options.point_noise = 0.0;
  SyntheticProblem synthetic = MakeScene(options);
  for (size_t i = 0; i < synthetic.start.cameras.size(); ++i) {
    // Distortion starts at 0.
    const double expected = i % 9 < 7 ? synthetic.true_cameras[i] : 0.0;
    // A rotation by 0 changes nothing but the order of a few additions.
    EXPECT_NEAR(synthetic.start.cameras[i], expected, 1e-11) << i;
  }
  for (size_t i = 0; i < synthetic.start.points.size(); ++i) {
    EXPECT_NEAR(synthetic.start.points[i], synthetic.true_points[i], 1e-11);
  }
}

INSTANTIATE_TEST_SUITE_P(All,
                         BalSyntheticOf,
                         ::testing::Values(LAYOUT_CITY,
                                           LAYOUT_STRIPS,
                                           LAYOUT_PLACES));

TEST(BalSynthetic, DriftGrowsLikeARandomWalk) {
  SyntheticOptions options;
  options.num_cameras = 400;
  options.drift_rotation = 0.0;
  options.drift_translation = 2.0;
  options.focal_noise = 0.0;
  // Translations t = -R c change by -R d; their mean square over many seeds is
  // 3 sigma^2 (i + 1) / n at camera i.
  double middle = 0.0;
  double last = 0.0;
  constexpr int kSeeds = 100;
  for (int seed = 0; seed < kSeeds; ++seed) {
    options.seed = seed;
    const SyntheticProblem synthetic = MakeScene(options);
    for (int k = 3; k < 6; ++k) {
      const auto difference = [&](int camera) {
        return synthetic.start.cameras[9 * camera + k] -
               synthetic.true_cameras[9 * camera + k];
      };
      middle += difference(199) * difference(199) / (3 * kSeeds);
      last += difference(399) * difference(399) / (3 * kSeeds);
    }
  }
  // 300 squares of normal numbers: sqrt(2 / 300) = 8 %, five of it.
  EXPECT_NEAR(middle, 2.0, 0.41 * 2.0);
  EXPECT_NEAR(last, 4.0, 0.41 * 4.0);
}

// Expects that all cameras are joined by points.
void CheckIsOneComponent(const BalProblem& problem) {
  std::vector<int32_t> root(problem.num_cameras());
  std::iota(root.begin(), root.end(), 0);
  const auto find = [&root](int32_t i) {
    while (root[i] != i) {
      i = root[i] = root[root[i]];
    }
    return i;
  };
  for (int64_t i = 1; i < problem.num_observations(); ++i) {
    if (problem.point_index[i] == problem.point_index[i - 1]) {
      root[find(problem.camera_index[i - 1])] = find(problem.camera_index[i]);
    }
  }
  for (int32_t i = 0; i < problem.num_cameras(); ++i) {
    EXPECT_EQ(find(i), find(0)) << i;
  }
}

TEST(BalSynthetic, TracksAreLocalAndOneComponent) {
  SyntheticOptions options;
  options.num_cameras = 1600;  // four laps of 400
  options.num_points = 60000;
  options.num_observations = 300000;
  const SyntheticProblem synthetic = MakeScene(options);
  const BalProblem& start = synthetic.start;
  CheckStructure(options, synthetic);
  int64_t num_near = 0;
  int64_t num_other_lap = 0;
  for (int64_t i = 1; i < start.num_observations(); ++i) {
    if (start.point_index[i] != start.point_index[i - 1]) {
      continue;
    }
    const int32_t a = start.camera_index[i - 1];
    const int32_t b = start.camera_index[i];
    ASSERT_LT(a, b);  // by point, then by camera
    const int32_t along = (b - a) % 400;
    num_near += std::min(along, 400 - along) <= 20;
    num_other_lap += b - a > 200;
  }
  CheckIsOneComponent(start);
  const double num_pairs = options.num_observations - options.num_points;
  EXPECT_GT(num_near, 0.9 * num_pairs);
  EXPECT_GT(num_other_lap, 0.1 * num_pairs);
}

// 100 cameras are 6 strips of 17, 64 and 24 metres apart, to and fro.
TEST(BalSynthetic, StripsOverlapAndLookDown) {
  SyntheticOptions options = OptionsOfSize(100, 20000, 90000);
  options.layout = LAYOUT_STRIPS;
  options.outlier_fraction = 0.0;
  options.pixel_noise = 0.0;
  const SyntheticProblem synthetic = MakeScene(options);
  const BalProblem& start = synthetic.start;
  CheckStructure(options, synthetic);
  // As in TruthHasTheCostOfTheNoise.
  const double error = 10 * kEpsilon * 1e3 / 3.0 * 1e3;
  EXPECT_LT(PlainCost(Truth(synthetic)),
            options.num_observations * error * error);
  const auto place = [](int32_t camera) {
    const int32_t strip = camera / 17;
    const int32_t from_start = camera % 17;
    return std::pair<double, double>(
        24.0 * (strip % 2 == 0 ? from_start : 16 - from_start), 64.0 * strip);
  };
  int64_t num_in_other_strip = 0;
  for (int64_t i = 0; i < start.num_observations(); ++i) {
    const int32_t camera = start.camera_index[i];
    const double* point =
        synthetic.true_points.data() + 3 * int64_t{start.point_index[i]};
    // On 10 metres of relief, up to rounding.
    EXPECT_NEAR(point[2], 5.0, 5.0 + 1e-12);
    // Half a picture is 60 by 80 metres. Turns of 0.17, 0.09 and 0.04 move its
    // edges by less than 40 metres: 100 tan(atan(0.8) + 0.17) = 113.
    const auto [x, y] = place(camera);
    EXPECT_LT(std::abs(point[0] - x), 60.0 + 40.0);
    EXPECT_LT(std::abs(point[1] - y), 80.0 + 40.0);
    num_in_other_strip += i > 0 &&
                          start.point_index[i] == start.point_index[i - 1] &&
                          camera / 17 != start.camera_index[i - 1] / 17;
  }
  // Pictures overlap by 60 % across.
  EXPECT_GT(num_in_other_strip, options.num_points / 2);
}

// Places have most of the cameras and the longest tracks, and streets join
// them.
TEST(BalSynthetic, PlacesAreClustersJoinedByStreets) {
  SyntheticOptions options = OptionsOfSize(2000, 60000, 300000);
  options.layout = LAYOUT_PLACES;
  options.outlier_fraction = 0.0;
  options.pixel_noise = 0.0;
  for (const uint64_t seed : {1, 2, 3}) {
    options.seed = seed;
    const SyntheticProblem synthetic = MakeScene(options);
    const BalProblem& start = synthetic.start;
    const auto [of_point, of_camera] = CheckStructure(options, synthetic);
    CheckIsOneComponent(start);
    // As in TruthHasTheCostOfTheNoise.
    const double error = 10 * kEpsilon * 1e3 / 3.0 * 1e3;
    EXPECT_LT(PlainCost(Truth(synthetic)),
              options.num_observations * error * error);
    // Most tracks have up to four observations, and some have fifteen times as
    // many, though 30 of a street could see a point at most.
    EXPECT_GT(std::count_if(of_point.begin(),
                            of_point.end(),
                            [](int length) { return length <= 4; }),
              options.num_points / 2);
    EXPECT_GT(*std::max_element(of_point.begin(), of_point.end()), 60);

    const synthetic::Places places(options.num_cameras, seed);
    int32_t num_of_places = 0;
    int32_t largest = 0;
    for (int32_t i = 0; i < options.num_cameras;) {
      const synthetic::Places::Segment& segment = places.SegmentOf(i);
      ASSERT_EQ(segment.begin, i);
      i = segment.end;
      if (!segment.is_street()) {
        num_of_places += segment.end - segment.begin;
        largest = std::max(largest, segment.end - segment.begin);
        EXPECT_EQ(places.SegmentOfPlace(segment.from).begin, segment.begin);
        continue;
      }
      const synthetic::Vector3 along =
          places.Middle(segment.to) - places.Middle(segment.from);
      EXPECT_EQ(Dot(along, along), 1e4);
    }
    EXPECT_GT(num_of_places, options.num_cameras / 2);
    EXPECT_GT(largest, 120);
    // Points that join a street to its two places.
    std::vector<int> joins(options.num_cameras, 0);
    for (int64_t i = 1; i < start.num_observations(); ++i) {
      const auto& a = places.SegmentOf(start.camera_index[i - 1]);
      const auto& b = places.SegmentOf(start.camera_index[i]);
      if (start.point_index[i] == start.point_index[i - 1] &&
          a.is_street() != b.is_street()) {
        const auto& street = a.is_street() ? a : b;
        const int32_t place = a.is_street() ? b.from : a.from;
        ASSERT_TRUE(place == street.from || place == street.to);
        // An end of it.
        ++joins[place == street.from ? street.begin : street.end - 1];
      }
    }
    for (int32_t i = 0; i < options.num_cameras; ++i) {
      const auto& segment = places.SegmentOf(i);
      if (segment.is_street() && (i == segment.begin || i == segment.end - 1)) {
        EXPECT_GT(joins[i], 20) << i;
      }
    }
  }
}

// A place is one body at the start, which differs from the others in scale.
TEST(BalSynthetic, PlacesDriftAsBodies) {
  SyntheticOptions options = OptionsOfSize(700, 20000, 90000);
  options.layout = LAYOUT_PLACES;
  const SyntheticProblem synthetic = MakeScene(options);
  const synthetic::Places places(options.num_cameras, options.seed);
  // Lengths between cameras of a place, over those of the truth.
  std::vector<double> scales;
  for (int32_t i = 0; i < options.num_cameras; i = places.SegmentOf(i).end) {
    const synthetic::Places::Segment& segment = places.SegmentOf(i);
    if (segment.is_street()) {
      continue;
    }
    const auto length = [&](const auto& cameras) {
      double sum = 0.0;
      for (int32_t k = segment.begin + 1; k < segment.end; ++k) {
        sum += DistanceOfCenters(cameras, k - 1, k);
      }
      return sum;
    };
    scales.push_back(length(synthetic.start.cameras) /
                     length(synthetic.true_cameras));
  }
  ASSERT_GE(scales.size(), 5);
  const auto [least, most] = std::minmax_element(scales.begin(), scales.end());
  // Deviations of 1 %.
  EXPECT_GT(*most - *least, 0.01);
  EXPECT_LT(*most - *least, 0.06);
}

// All orders hold the same observations.
TEST(BalSynthetic, Orders) {
  SyntheticOptions options;
  options.num_threads = 3;
  const auto observations = [](const BalProblem& problem) {
    std::vector<std::vector<double>> rows;
    for (int64_t i = 0; i < problem.num_observations(); ++i) {
      rows.push_back({static_cast<double>(problem.camera_index[i]),
                      static_cast<double>(problem.point_index[i]),
                      problem.observations[2 * i],
                      problem.observations[2 * i + 1]});
    }
    return rows;
  };
  const auto by_point = observations(MakeScene(options).start);
  options.order = ORDER_BY_CAMERA;
  auto by_camera = observations(MakeScene(options).start);
  options.order = ORDER_SHUFFLED;
  auto shuffled = observations(MakeScene(options).start);
  EXPECT_TRUE(std::is_sorted(by_camera.begin(), by_camera.end()));
  EXPECT_NE(shuffled, by_point);
  EXPECT_NE(shuffled, by_camera);
  std::sort(shuffled.begin(), shuffled.end());
  EXPECT_EQ(shuffled, by_camera);
  auto sorted = by_point;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, by_camera);

  // Other point ids, same points.
  options.order = ORDER_BY_POINT;
  const auto points = [](const SyntheticProblem& synthetic) {
    std::vector<std::vector<double>> rows;
    for (size_t i = 0; i < synthetic.true_points.size(); i += 3) {
      rows.emplace_back(synthetic.true_points.begin() + i,
                        synthetic.true_points.begin() + i + 3);
    }
    return rows;
  };
  auto in_order = points(MakeScene(options));
  options.shuffle_points = true;
  auto in_disorder = points(MakeScene(options));
  EXPECT_NE(in_order, in_disorder);
  std::sort(in_order.begin(), in_order.end());
  std::sort(in_disorder.begin(), in_disorder.end());
  EXPECT_EQ(in_order, in_disorder);
}

TEST(BalSynthetic, DegenerateCases) {
  SyntheticOptions options;
  options.num_points_seen_once = 1000;
  options.num_far_points = 500;
  options.num_weak_cameras = 7;
  options.weak_camera_points = 3;
  options.collinear_cameras = true;
  SyntheticProblem synthetic = MakeScene(options);
  auto [of_point, of_camera] = CheckStructure(options, synthetic);
  EXPECT_EQ(std::count(of_camera.begin(), of_camera.end(), 3), 7);
  int64_t num_far = 0;
  for (size_t i = 0; i < synthetic.true_points.size(); i += 3) {
    num_far += std::abs(synthetic.true_points[i]) > 1e4;
  }
  EXPECT_EQ(num_far, 500);
  // Every camera is on the line y = 0, z = 1.8 m.
  for (int64_t i = 0; i < options.num_cameras; ++i) {
    const std::array<double, 3> center =
        Center(synthetic.true_cameras.data() + 9 * i);
    EXPECT_NEAR(center[0], 2.0 * static_cast<double>(i), 0.6 + 1e-9);
    EXPECT_NEAR(center[1], 0.0, 1e-11);
    EXPECT_NEAR(center[2], 1.8, 1e-11);
  }

  options.weak_camera_points = 0;
  synthetic = MakeScene(options);
  std::tie(of_point, of_camera) = CheckStructure(options, synthetic);
  EXPECT_EQ(std::count(of_camera.begin(), of_camera.end(), 0), 7);
}

TEST(BalSynthetic, DenseVisibility) {
  // Every camera sees nearly every point: the search has to widen.
  SyntheticOptions options = OptionsOfSize(8, 200, 1000);
  CheckStructure(options, MakeScene(options));
  for (const int32_t num_cameras : {2, 3, 5, 8, 11}) {
    options = OptionsOfSize(num_cameras, 200, 400);
    options.layout = LAYOUT_STRIPS;
    CheckStructure(options, MakeScene(options));
    options.layout = LAYOUT_PLACES;
    CheckStructure(options, MakeScene(options));
  }
}

TEST(BalSynthetic, Refusals) {
  const auto error_of = [](const SyntheticOptions& options) {
    SyntheticProblem problem;
    std::string error;
    EXPECT_FALSE(GenerateSynthetic(options, &problem, &error));
    EXPECT_EQ(problem.start.num_observations(), 0);
    return error;
  };
  SyntheticOptions options;
  options.num_cameras = 0;
  EXPECT_EQ(error_of(options), "num_cameras: expected at least 1, found 0");
  options = SyntheticOptions();
  options.num_observations = 19999;
  EXPECT_EQ(error_of(options),
            "num_observations: expected a number from 20000 to 1000000, found "
            "19999");
  options.num_cameras = 1;
  EXPECT_EQ(error_of(options),
            "num_cameras: expected at least 2 for points with two "
            "observations, found 1");
  options = SyntheticOptions();
  options.num_cameras = 8;
  options.num_points = 200;
  options.num_observations = 1600;  // but cars don't look back
  EXPECT_THAT(error_of(options), HasSubstr("than the scene lets"));
  options = SyntheticOptions();
  options.num_weak_cameras = 51;
  EXPECT_EQ(error_of(options),
            "num_weak_cameras: expected a number from 0 to 50, found 51");
  options = SyntheticOptions();
  options.collinear_cameras = true;
  options.layout = LAYOUT_STRIPS;
  EXPECT_EQ(error_of(options),
            "collinear_cameras: expected false with strips, found true");
  options.layout = LAYOUT_PLACES;
  EXPECT_EQ(error_of(options),
            "collinear_cameras: expected false with places, found true");
  options = SyntheticOptions();
  options.pixel_noise = -1.0;
  EXPECT_THAT(error_of(options), HasSubstr("pixel_noise: expected"));
  options.pixel_noise = std::nan("");
  EXPECT_THAT(error_of(options), HasSubstr("pixel_noise: expected"));
}

}  // namespace
}  // namespace ceres_ext::bal
