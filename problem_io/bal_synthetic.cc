// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "problem_io/bal_synthetic.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "problem_io/for_each_chunk.h"
#include "problem_io/portable_math.h"
#include "problem_io/synthetic_geometry.h"
#include "problem_io/synthetic_places.h"

namespace ceres_ext::bal {
namespace {

using synthetic::Camera;
using synthetic::Matrix3;
using synthetic::Places;
using synthetic::Purpose;
using synthetic::Vector3;

// Metres.
constexpr double kSpacing = 2.0;
constexpr double kBlock = 100.0;
constexpr double kTurnRadius = 12.0;
constexpr double kCameraHeight = 1.8;
constexpr double kMinDepth = 3.0;
// Aerial strips.
constexpr double kFlightHeight = 100.0;
constexpr double kStripSpacing = 64.0;
constexpr double kExposureSpacing = 24.0;
constexpr double kRelief = 10.0;
// Tangents of half the field of view.
constexpr double kFieldX = 0.8;
constexpr double kFieldY = 0.6;
constexpr double kFarScale = 1e4;
// The share of the other laps' passes that see a point.
constexpr double kSeenInOtherLap = 0.3;
constexpr int32_t kMaxTrackLength = 4096;
// The share of the points of a place that are on its monument; the others are
// around it, as along a street.
constexpr double kOnMonument = 0.7;
// The error of a single image at the start, in that of the drift, and that of
// a place's scale, in radians of the drift.
constexpr double kImageDrift = 0.1;
constexpr double kScaleDrift = 1.0;

// Number i of a pseudo-random permutation of 0 ... n - 1: a Feistel network on
// the next even number of bits, walked until it falls below n.
int64_t Permute(int64_t i, int64_t n, uint64_t key) {
  int half = 1;
  while ((int64_t{1} << (2 * half)) < n) {
    ++half;
  }
  const uint64_t mask = (uint64_t{1} << half) - 1;
  uint64_t x = i;
  do {
    uint64_t left = x >> half;
    uint64_t right = x & mask;
    for (uint64_t round = 0; round < 4; ++round) {
      const uint64_t next = left ^ (Mix(Mix(key + round) + right) & mask);
      left = right;
      right = next;
    }
    x = left << half | right;
  } while (x >= static_cast<uint64_t>(n));
  return static_cast<int64_t>(x);
}

// A closed way along the streets that passes each crossing of a grid once, with
// rounded corners:
//
//   +--+--+--+     first column 0 down, then the rows to and fro
//   |  +--+--+
//   |  +--+--+
//   +--+--+--+
class Circuit {
 public:
  // num_crossings blocks at most, four at least, of the given size.
  Circuit(int64_t num_crossings, double block) : block_(block) {
    int64_t rows = 2;
    while ((rows + 2) * (rows + 2) <= num_crossings) {
      rows += 2;
    }
    const int64_t columns = std::max<int64_t>(2, num_crossings / rows);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 1; c < columns; ++c) {
        crossings_.emplace_back(r % 2 == 0 ? c : columns - c, r);
      }
    }
    for (int64_t r = rows - 1; r >= 0; --r) {
      crossings_.emplace_back(0, r);
    }
  }

  int64_t num_blocks() const { return crossings_.size(); }
  void set_block(double block) { block_ = block; }

  // Place and direction, (cos, sin) of the heading, after s metres.
  void At(double s, double* x, double* y, double* dx, double* dy) const {
    const int64_t n = num_blocks();
    const double blocks = s / block_;
    const double whole = std::floor(blocks);
    const int64_t i = static_cast<int64_t>(whole) % n;
    const double along = (blocks - whole) * block_;
    // The corner ahead or the corner behind, whichever is near, else none.
    const bool ahead = along > 0.5 * block_;
    const int64_t corner = ahead ? (i + 1) % n : i;
    const auto [in_x, in_y] = Direction((corner + n - 1) % n);
    const auto [out_x, out_y] = Direction(corner);
    const double corner_x = crossings_[corner].first * block_;
    const double corner_y = crossings_[corner].second * block_;
    const double from_corner = ahead ? along - block_ : along;
    const bool straight = in_x == out_x && in_y == out_y;
    if (straight || std::abs(from_corner) >= kTurnRadius) {
      *dx = ahead ? in_x : out_x;
      *dy = ahead ? in_y : out_y;
      *x = corner_x + from_corner * *dx;
      *y = corner_y + from_corner * *dy;
      return;
    }
    // A quarter circle about corner + radius (out - in).
    const double turned =
        0.25 * kPi * (from_corner + kTurnRadius) / kTurnRadius;
    double sine;
    double cosine;
    PortableSinCos(turned, &sine, &cosine);
    *dx = cosine * in_x + sine * out_x;
    *dy = cosine * in_y + sine * out_y;
    *x =
        corner_x + kTurnRadius * ((sine - 1.0) * in_x + (1.0 - cosine) * out_x);
    *y =
        corner_y + kTurnRadius * ((sine - 1.0) * in_y + (1.0 - cosine) * out_y);
  }

 private:
  // From crossing i to the next.
  std::pair<double, double> Direction(int64_t i) const {
    const auto& from = crossings_[i];
    const auto& to = crossings_[(i + 1) % num_blocks()];
    return {static_cast<double>(to.first - from.first),
            static_cast<double>(to.second - from.second)};
  }

  double block_;
  std::vector<std::pair<int64_t, int64_t>> crossings_;  // column, row
};

class Generator {
 public:
  explicit Generator(const SyntheticOptions& options)
      : options_(options), num_threads_(NumThreads(options.num_threads)) {}

  bool Run(SyntheticProblem* problem, std::string* error) {
    if (!Check(error)) {
      return false;
    }
    MakeCameras(problem);
    AssignHomes();
    // Wider searches and longer candidate lists until there is enough to see.
    widen_ = 1;
    while (!CountCandidates()) {
      if (widen_ > options_.num_cameras) {
        *error =
            "num_observations: expected no more than the scene lets the "
            "cameras see, found " +
            std::to_string(options_.num_observations);
        return false;
      }
      widen_ *= 2;
    }
    BalanceLengths();
    MakePoints(problem);
    if (options_.order == ORDER_BY_CAMERA) {
      SortByCamera(&problem->start);
    }
    return true;
  }

 private:
  // Cameras that may see a point: from begin to end, those next to `camera`
  // first.
  struct Pass {
    int64_t camera;
    int64_t begin;
    int64_t end;
  };

  // The drift at the start: a rotation and a position.
  struct Walk {
    Vector3 angle = {0, 0, 0};
    Vector3 shift = {0, 0, 0};
  };

  // A point on its way: where it is and which cameras could see it, the home
  // camera first, then those farther and farther from it along the way.
  struct Track {
    Vector3 point;
    // The normal of a surface that is seen from one side; zero: from all.
    Vector3 normal;
    int32_t home;
    int32_t wanted_length;
    std::vector<Pass> passes;
    std::vector<int32_t> candidates;
  };

  bool Check(std::string* error) const;
  bool IsCity() const { return options_.layout == LAYOUT_CITY; }
  bool AreStrips() const { return options_.layout == LAYOUT_STRIPS; }
  bool ArePlaces() const { return options_.layout == LAYOUT_PLACES; }
  void ChooseLaps();
  void MakeCameras(SyntheticProblem* problem);
  void MakeCamera(int32_t i, const Circuit& circuit);
  void DriftCamera(int32_t i, Walk* walk);
  void DriftPlace(int32_t i, Walk* walk);
  void AssignHomes();
  bool CountCandidates();
  void BalanceLengths();
  void MakePoints(SyntheticProblem* problem);
  void SortByCamera(BalProblem* problem) const;

  static Vector3 Facade(bool is_last, bool far, PortableRandom* random);
  static Vector3 Ground(const Camera& camera,
                        bool is_last,
                        bool far,
                        PortableRandom* random);
  void MakeTrack(int64_t place, Track* track) const;
  void ListPasses(int64_t place, Track* track) const;
  void ListPassesOfPlaces(int64_t place, Track* track) const;
  void PutPoint(bool is_last,
                bool far,
                PortableRandom* random,
                Track* track) const;
  void FindCandidates(int64_t place, Track* track) const;
  void SelectCameras(int64_t place, int32_t length, Track* track) const;
  bool Sees(int32_t camera, const Track& track) const;

  // The key of permutations, which also use the next three.
  uint64_t Key(Purpose purpose) const {
    return Mix(options_.seed) + uint64_t{8} * purpose;
  }
  bool IsSeenOnce(int64_t place) const {
    return IsAmong(
        place, options_.num_points_seen_once, synthetic::kForSeenOnce);
  }
  bool IsAmong(int64_t place, int32_t count, Purpose purpose) const {
    return count > 0 &&
           Permute(place, options_.num_points, Key(purpose)) < count;
  }
  int64_t PlaceOfPoint(int64_t id) const {
    return options_.shuffle_points
               ? Permute(id, options_.num_points, Key(synthetic::kForPointIds))
               : id;
  }

  const SyntheticOptions& options_;
  int num_threads_;

  std::vector<Camera> cameras_;
  std::vector<Camera> start_cameras_;
  std::vector<Matrix3> drift_rotations_;
  // If these are the layout: the map, the drift of each place, and the scale of
  // each image.
  Places places_;
  std::vector<Walk> place_drifts_;
  std::vector<double> drift_scales_;
  std::vector<char> is_weak_;
  // A lap is a strip if these are the layout.
  int32_t cameras_per_lap_ = 0;
  int32_t num_laps_ = 0;

  // Points in the order of their home cameras have a place; home_begin_[i] is
  // the first place of camera i.
  std::vector<int64_t> home_begin_;
  double length_scale_ = 0.0;
  int32_t widen_ = 1;

  // By point id.
  std::vector<int32_t> num_candidates_;
  std::vector<int32_t> lengths_;
};

bool Generator::Check(std::string* error) const {
  const auto fail = [error](const char* name,
                            const std::string& expected,
                            const std::string& found) {
    *error = std::string(name) + ": expected " + expected + ", found " + found;
    return false;
  };
  const SyntheticOptions& o = options_;
  if (o.collinear_cameras && !IsCity()) {
    return fail("collinear_cameras",
                AreStrips() ? "false with strips" : "false with places",
                "true");
  }
  if (o.num_cameras < 1) {
    return fail("num_cameras", "at least 1", std::to_string(o.num_cameras));
  }
  if (o.num_points < 1) {
    return fail("num_points", "at least 1", std::to_string(o.num_points));
  }
  const struct {
    const char* name;
    int64_t value;
    int64_t max;
  } kCounts[] = {
      {"num_points_seen_once", o.num_points_seen_once, o.num_points},
      {"num_far_points", o.num_far_points, o.num_points},
      {"num_weak_cameras", o.num_weak_cameras, o.num_cameras / 2},
      {"weak_camera_points",
       o.weak_camera_points,
       o.num_points / std::max(1, o.num_weak_cameras)},
      {"num_threads", o.num_threads, 4096},
  };
  for (const auto& count : kCounts) {
    if (count.value < 0 || count.value > count.max) {
      return fail(count.name,
                  "a number from 0 to " + std::to_string(count.max),
                  std::to_string(count.value));
    }
  }
  const struct {
    const char* name;
    double value;
    double max;
  } kNumbers[] = {
      {"pixel_noise", o.pixel_noise, 1e6},
      {"outlier_fraction", o.outlier_fraction, 1.0},
      {"outlier_size", o.outlier_size, 1e6},
      {"drift_rotation", o.drift_rotation, 1e3},
      {"drift_translation", o.drift_translation, 1e6},
      {"focal_noise", o.focal_noise, 0.1},
      {"point_noise", o.point_noise, 1e3},
  };
  for (const auto& number : kNumbers) {
    if (!(number.value >= 0.0 && number.value <= number.max)) {
      return fail(number.name,
                  "a number from 0 to " + std::to_string(number.max),
                  std::to_string(number.value));
    }
  }
  const int64_t seen_once = o.num_points_seen_once;
  const int64_t min = 2 * (o.num_points - seen_once) + seen_once;
  const int64_t max =
      static_cast<int64_t>(o.num_cameras) * (o.num_points - seen_once) +
      seen_once;
  if (min > max) {
    return fail("num_cameras",
                "at least 2 for points with two observations",
                std::to_string(o.num_cameras));
  }
  if (o.num_observations < min || o.num_observations > max) {
    return fail(
        "num_observations",
        "a number from " + std::to_string(min) + " to " + std::to_string(max),
        std::to_string(o.num_observations));
  }
  return true;
}

void Generator::ChooseLaps() {
  const int32_t n = options_.num_cameras;
  if (ArePlaces()) {
    num_laps_ = 1;
    cameras_per_lap_ = n;
    places_ = Places(n, options_.seed);
    return;
  }
  if (IsCity()) {
    // A lap has 400 cameras at least (800 metres), and there are 8 at most.
    num_laps_ = options_.collinear_cameras ? 1 : std::clamp(n / 400, 1, 8);
    cameras_per_lap_ = (n + num_laps_ - 1) / num_laps_;
    return;
  }
  // The land is about square.
  const double num_strips = std::sqrt(n * kExposureSpacing / kStripSpacing);
  num_laps_ = std::max(1, static_cast<int32_t>(std::lround(num_strips)));
  cameras_per_lap_ = (n + num_laps_ - 1) / num_laps_;
  num_laps_ = (n + cameras_per_lap_ - 1) / cameras_per_lap_;
}

void Generator::MakeCameras(SyntheticProblem* problem) {
  const int32_t n = options_.num_cameras;
  ChooseLaps();
  const double lap = cameras_per_lap_ * kSpacing;
  Circuit circuit(static_cast<int64_t>(lap / kBlock), kBlock);
  if (lap >= kBlock * circuit.num_blocks()) {
    circuit.set_block(lap / circuit.num_blocks());
  }

  cameras_.resize(n);
  start_cameras_.resize(n);
  drift_rotations_.resize(n);
  drift_scales_.assign(n, 1.0);
  place_drifts_.resize(n);
  problem->true_cameras.resize(9 * static_cast<int64_t>(n));
  problem->start.camera_size = 9;
  problem->start.cameras.resize(9 * static_cast<int64_t>(n));
  Walk walk;
  for (int32_t i = 0; i < n; ++i) {
    MakeCamera(i, circuit);
    StoreCamera(cameras_[i], problem->true_cameras.data() + 9 * int64_t{i});
    DriftCamera(i, &walk);
    StoreCamera(start_cameras_[i],
                problem->start.cameras.data() + 9 * int64_t{i});
  }
}

void Generator::MakeCamera(int32_t i, const Circuit& circuit) {
  PortableRandom random(options_.seed, synthetic::kForCamera, i);
  const double jitter_along = random.Uniform(-0.3, 0.3) * kSpacing;
  const double jitter_across = random.Uniform(-0.3, 0.3);
  const double jitter_up = random.Uniform(-0.3, 0.3);
  const int32_t lap_number = i / cameras_per_lap_;
  const double lane = 1.5 * (lap_number % 3 - 1) + jitter_across;
  double x;
  double y;
  double dx = 1.0;
  double dy = 0.0;
  Camera& camera = cameras_[i];
  if (AreStrips()) {
    // To and fro; up in the picture is ahead.
    const int32_t from_start = i % cameras_per_lap_;
    dx = lap_number % 2 == 0 ? 1.0 : -1.0;
    x = kExposureSpacing *
        (dx > 0.0 ? from_start : cameras_per_lap_ - 1 - from_start);
    camera.center = {x + jitter_along,
                     kStripSpacing * lap_number + jitter_across,
                     kFlightHeight + jitter_up};
  } else if (ArePlaces()) {
    places_.Stand(i, &random, &camera.center, &dx, &dy);
    camera.center.z = kCameraHeight + jitter_up;
  } else if (options_.collinear_cameras) {
    camera.center = {kSpacing * i + jitter_along, 0.0, kCameraHeight};
  } else {
    // One metre on, so that jitter never leads before the start.
    const double s = kSpacing * (i % cameras_per_lap_) + 1.0 + jitter_along;
    circuit.At(s, &x, &y, &dx, &dy);
    camera.center = {x - lane * dy, y + lane * dx, kCameraHeight + jitter_up};
  }
  // Rows of the rotation: right, up, backward. It looks down, or ahead.
  const Matrix3 rotation =
      AreStrips() ? Matrix3{{{0, -dx, 0}, {dx, 0, 0}, {0, 0, 1}}}
                  : Matrix3{{{dy, -dx, 0}, {0, 0, 1}, {-dx, -dy, 0}}};
  // Then the camera's own small turn.
  const Vector3 turn = {random.Uniform(-0.09, 0.09),
                        random.Uniform(-0.17, 0.17),
                        random.Uniform(-0.04, 0.04)};
  camera.rotation = RotationFromAngleAxis(turn) * rotation;
  camera.f = random.Uniform(800.0, 1200.0);
  camera.k1 = random.Uniform(-0.05, 0.05);
  camera.k2 = random.Uniform(-0.01, 0.01);
}

// The walk goes on to camera i, whose start it is.
void Generator::DriftCamera(int32_t i, Walk* walk) {
  // Drift per step of the random walk.
  const double step =
      1.0 / std::sqrt(static_cast<double>(options_.num_cameras));
  const Camera& camera = cameras_[i];
  PortableRandom random(options_.seed, synthetic::kForDrift, i);
  const auto normal = [&random] {
    return Vector3{random.Normal(), random.Normal(), random.Normal()};
  };
  if (!ArePlaces() || places_.SegmentOf(i).is_street()) {
    if (ArePlaces() && places_.SegmentOf(i).begin == i) {
      *walk = place_drifts_[places_.SegmentOf(i).from];
    }
    walk->angle = walk->angle + (options_.drift_rotation * step) * normal();
    walk->shift = walk->shift + (options_.drift_translation * step) * normal();
  } else if (places_.SegmentOf(i).begin == i) {
    DriftPlace(i, walk);
  }
  drift_rotations_[i] = synthetic::RotationFromAngleAxis(walk->angle);
  Camera& start = start_cameras_[i];
  start.rotation = camera.rotation * Transpose(drift_rotations_[i]);
  start.center = camera.center + walk->shift;
  start.f = camera.f * (1.0 + options_.focal_noise * random.Normal());
  start.k1 = 0.0;
  start.k2 = 0.0;
  if (!ArePlaces()) {
    return;
  }
  const Places::Segment& segment = places_.SegmentOf(i);
  if (!segment.is_street()) {
    // As one body about the middle of the place.
    drift_scales_[i] = drift_scales_[segment.begin];
    const Vector3 middle = places_.Middle(segment.from);
    start.center =
        middle + walk->shift +
        drift_scales_[i] * (drift_rotations_[i] * (camera.center - middle));
  }
  PortableRandom own(options_.seed, synthetic::kForImageDrift, i);
  const Vector3 turn = (kImageDrift * options_.drift_rotation) *
                       Vector3{own.Normal(), own.Normal(), own.Normal()};
  start.rotation = RotationFromAngleAxis(turn) * start.rotation;
  start.center =
      start.center + (kImageDrift * options_.drift_translation) *
                         Vector3{own.Normal(), own.Normal(), own.Normal()};
}

// The walk goes on to the place whose first image is i, by as much as along so
// many images of a street, and its scale is wrong too.
void Generator::DriftPlace(int32_t i, Walk* walk) {
  const Places::Segment& segment = places_.SegmentOf(i);
  const double step = std::sqrt(
      static_cast<double>(segment.end - segment.begin) / options_.num_cameras);
  PortableRandom random(options_.seed, synthetic::kForPlaceDrift, segment.from);
  const auto normal = [&random] {
    return Vector3{random.Normal(), random.Normal(), random.Normal()};
  };
  walk->angle = walk->angle + (options_.drift_rotation * step) * normal();
  walk->shift = walk->shift + (options_.drift_translation * step) * normal();
  drift_scales_[i] =
      1.0 + kScaleDrift * options_.drift_rotation * random.Normal();
  place_drifts_[segment.from] = *walk;
}

void Generator::AssignHomes() {
  const int32_t n = options_.num_cameras;
  is_weak_.assign(n, 0);
  const int64_t num_weak = options_.num_weak_cameras;
  for (int64_t k = 0; k < num_weak; ++k) {
    is_weak_[(2 * k + 1) * n / (2 * num_weak)] = 1;
  }
  // Points per camera vary: weights from 1/4 to 17/4, most of them small. In
  // units of 2^-20, so that sums are exact.
  const auto weight = [this](int32_t i) {
    const double u =
        PortableRandom(options_.seed, synthetic::kForCameraWeight, i).Uniform();
    return static_cast<int64_t>((0.25 + 4.0 * u * u * u * u) * 0x1p20);
  };
  int64_t total = 0;
  for (int32_t i = 0; i < n; ++i) {
    total += is_weak_[i] ? 0 : weight(i);
  }
  const int64_t num_weak_points = num_weak * options_.weak_camera_points;
  const int64_t num_points = options_.num_points - num_weak_points;
  home_begin_.resize(n + 1);
  home_begin_[0] = 0;
  int64_t sum = 0;
  int64_t weak_sum = 0;
  for (int32_t i = 0; i < n; ++i) {
    if (is_weak_[i]) {
      weak_sum += options_.weak_camera_points;
    } else {
      sum += weight(i);
    }
    const auto share = static_cast<int64_t>(
        static_cast<unsigned __int128>(num_points) * sum / total);
    home_begin_[i + 1] = share + weak_sum;
  }
}

bool Generator::Sees(int32_t camera, const Track& track) const {
  const Camera& c = cameras_[camera];
  const Vector3 from_camera = track.point - c.center;
  if (Dot(from_camera, track.normal) > 0.0) {
    return false;
  }
  const Vector3 p = c.rotation * from_camera;
  const double depth = -p.z;
  return depth >= kMinDepth && std::abs(p.x) <= kFieldX * depth &&
         std::abs(p.y) <= kFieldY * depth;
}

// The same place in the laps that see the point: in a city in some, of strips
// in those whose pictures overlap.
void Generator::ListPasses(int64_t place, Track* track) const {
  const int32_t own = track->home / cameras_per_lap_;
  const int32_t along = track->home % cameras_per_lap_;
  std::vector<Pass>& passes = track->passes;
  passes.clear();
  if (ArePlaces()) {
    ListPassesOfPlaces(place, track);
    return;
  }
  if (IsCity()) {
    PortableRandom random(options_.seed, synthetic::kForLaps, place);
    for (int32_t lap = 0; lap < num_laps_; ++lap) {
      if (random.Uniform() < kSeenInOtherLap || lap == own) {
        passes.push_back(
            {along + int64_t{lap} * cameras_per_lap_, 0, options_.num_cameras});
      }
    }
    return;
  }
  for (int32_t lap = std::max(0, own - 2);
       lap <= std::min(num_laps_ - 1, own + 2);
       ++lap) {
    const int64_t begin = int64_t{lap} * cameras_per_lap_;
    passes.push_back(
        {begin + ((lap - own) % 2 == 0 ? along : cameras_per_lap_ - 1 - along),
         begin,
         std::min<int64_t>(begin + cameras_per_lap_, options_.num_cameras)});
  }
}

// The images of the segment of the home camera, and those of the streets of a
// place, the nearest first, or some of the places of a street.
void Generator::ListPassesOfPlaces(int64_t place, Track* track) const {
  std::vector<Pass>& passes = track->passes;
  const Places::Segment& home = places_.SegmentOf(track->home);
  passes.push_back({track->home, home.begin, home.end});
  if (!home.is_street()) {
    for (const Places::Segment& street : places_.StreetsOf(home.from)) {
      passes.push_back(
          {street.from == home.from ? street.begin : street.end - int64_t{1},
           street.begin,
           street.end});
    }
    return;
  }
  PortableRandom random(options_.seed, synthetic::kForLaps, place);
  for (const int32_t end : {home.from, home.to}) {
    const Places::Segment& images = places_.SegmentOfPlace(end);
    passes.push_back({images.begin + random.Below(images.end - images.begin),
                      images.begin,
                      images.end});
  }
}

void Generator::FindCandidates(int64_t place, Track* track) const {
  const int32_t home = track->home;
  const int32_t n = options_.num_cameras;
  std::vector<int32_t>& candidates = track->candidates;
  candidates.assign(1, home);
  const int64_t enough = (2 * int64_t{track->wanted_length} + 2) * widen_;
  int64_t reach =
      std::max<int64_t>(8, 2 * int64_t{track->wanted_length}) * widen_;
  if (IsCity() && num_laps_ > 1) {
    // So that one camera is not near in two laps.
    reach = std::min<int64_t>(reach, (cameras_per_lap_ - 1) / 2);
  }
  reach = std::min<int64_t>(reach, n);
  ListPasses(place, track);
  for (int64_t distance = 0; distance <= reach; ++distance) {
    for (const Pass& pass : track->passes) {
      for (int side = 0; side < (distance == 0 ? 1 : 2); ++side) {
        const int64_t camera = pass.camera + (side == 0 ? -distance : distance);
        if (camera < pass.begin || camera >= pass.end || camera == home ||
            is_weak_[camera] || !Sees(static_cast<int32_t>(camera), *track)) {
          continue;
        }
        candidates.push_back(static_cast<int32_t>(camera));
        if (static_cast<int64_t>(candidates.size()) == enough) {
          return;
        }
      }
    }
  }
}

// The point at which a ray of the camera meets a facade, near to the side and
// far straight on, in the camera's frame. The last attempt is in the middle of
// the picture.
Vector3 Generator::Facade(bool is_last, bool far, PortableRandom* random) {
  double u = random->Uniform(-0.6, 0.6);
  double depth = random->Uniform(5.0, 20.0) / (std::abs(u) + 0.1);
  const double down = std::min(0.45, kCameraHeight / depth);
  double v = random->Uniform(-down, 0.45);
  if (is_last) {
    u = v = 0.0;
    depth = 20.0;
  }
  depth *= far ? kFarScale : 1.0;
  return {u * depth, v * depth, -depth};
}

// The same for the ground below an aircraft.
Vector3 Generator::Ground(const Camera& camera,
                          bool is_last,
                          bool far,
                          PortableRandom* random) {
  const double u = is_last ? 0.0 : random->Uniform(-0.6, 0.6);
  const double v = is_last ? 0.0 : random->Uniform(-0.45, 0.45);
  const double height = camera.center.z - random->Uniform(0.0, kRelief);
  const Vector3 ray = {u, v, -1.0};
  const double down = -(Transpose(camera.rotation) * ray).z;
  return (far ? kFarScale : 1.0) * height / down * ray;
}

// The point and its normal, in front of the home camera.
void Generator::PutPoint(bool is_last,
                         bool far,
                         PortableRandom* random,
                         Track* track) const {
  const Camera& home = cameras_[track->home];
  track->normal = {0, 0, 0};
  if (ArePlaces() && !places_.SegmentOf(track->home).is_street() &&
      (is_last || random->Uniform() < kOnMonument)) {
    const int32_t place = places_.SegmentOf(track->home).from;
    // The last one is above the monument, where all images see it.
    track->point =
        is_last
            ? places_.Middle(place) + Vector3{0.0, 0.0, kCameraHeight}
            : places_.OnMonument(place, home.center, random, &track->normal);
    if (far) {
      track->normal = {0, 0, 0};
      track->point = home.center + kFarScale * (track->point - home.center);
    }
    return;
  }
  const Vector3 in_camera = AreStrips() ? Ground(home, is_last, far, random)
                                        : Facade(is_last, far, random);
  track->point = home.center + Transpose(home.rotation) * in_camera;
}

// Everything about the point but its observations; depends on place alone.
void Generator::MakeTrack(int64_t place, Track* track) const {
  track->home = static_cast<int32_t>(
      std::upper_bound(home_begin_.begin(), home_begin_.end(), place) -
      home_begin_.begin() - 1);
  if (IsSeenOnce(place)) {
    track->wanted_length = 1;
  } else {
    // P(length - 2 >= x) = 1 / (1 + x / scale)^2
    PortableRandom random(options_.seed, synthetic::kForTrackLength, place);
    const double extra =
        length_scale_ * (1.0 / std::sqrt(random.Uniform()) - 1.0);
    track->wanted_length =
        2 + static_cast<int32_t>(std::min<double>(extra, kMaxTrackLength));
  }
  const bool far = IsAmong(place, options_.num_far_points, synthetic::kForFar);
  PortableRandom random(options_.seed, synthetic::kForPlace, place);
  constexpr int kAttempts = 8;
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    PutPoint(attempt == kAttempts, far, &random, track);
    FindCandidates(place, track);
    if (track->candidates.size() >= 2 || track->wanted_length == 1) {
      break;
    }
  }
}

// Fills num_candidates_ and lengths_. False if they don't allow the wanted
// number of observations.
bool Generator::CountCandidates() {
  const int64_t n = options_.num_points;
  const int64_t regular = n - options_.num_points_seen_once;
  const double mean = static_cast<double>(options_.num_observations -
                                          options_.num_points_seen_once) /
                      static_cast<double>(std::max<int64_t>(1, regular));
  // The mean of 1 / sqrt(u) - 1 is 1; rounding down takes about a half.
  length_scale_ = mean - 1.5;
  num_candidates_.resize(n);
  lengths_.resize(n);
  ForEachChunk(num_threads_, n, [this](int, int64_t begin, int64_t end) {
    Track track;
    for (int64_t id = begin; id < end; ++id) {
      MakeTrack(PlaceOfPoint(id), &track);
      const auto num_candidates = static_cast<int32_t>(track.candidates.size());
      num_candidates_[id] = track.wanted_length == 1 ? 1 : num_candidates;
      lengths_[id] = std::min(track.wanted_length, num_candidates);
    }
  });
  int64_t most = 0;
  for (int64_t id = 0; id < n; ++id) {
    if (num_candidates_[id] < 2 && !IsSeenOnce(PlaceOfPoint(id))) {
      return false;
    }
    most += num_candidates_[id];
  }
  return most >= options_.num_observations;
}

// Makes the sum of lengths_ exact. Missing observations are distributed in
// proportion to the candidates left, excess ones in proportion to the
// observations beyond two: point i gets floor(d s_i / s) - floor(d s_(i-1) / s)
// of d, where s_i is the prefix sum of these proportions and s the whole sum.
void Generator::BalanceLengths() {
  const int64_t n = options_.num_points;
  int64_t missing = options_.num_observations;
  for (const int32_t length : lengths_) {
    missing -= length;
  }
  const int sign = missing < 0 ? -1 : 1;
  const auto room = [this, sign](int64_t id) {
    return sign > 0 ? num_candidates_[id] - lengths_[id]
                    : std::max(0, lengths_[id] - 2);
  };
  int64_t whole = 0;
  for (int64_t id = 0; id < n; ++id) {
    whole += room(id);
  }
  int64_t prefix = 0;
  int64_t shared = 0;
  for (int64_t id = 0; id < n && whole > 0; ++id) {
    prefix += room(id);
    const auto until = static_cast<int64_t>(
        static_cast<unsigned __int128>(sign * missing) * prefix / whole);
    lengths_[id] += sign * static_cast<int32_t>(until - shared);
    shared = until;
  }
}

// Keeps `length` of the candidates, in the order of their numbers: the home
// camera and a random choice among the nearest 3/2 length.
void Generator::SelectCameras(int64_t place,
                              int32_t length,
                              Track* track) const {
  std::vector<int32_t>& cameras = track->candidates;
  const int64_t nearest =
      std::min<int64_t>(cameras.size(), length + length / 2 + 1);
  PortableRandom random(options_.seed, synthetic::kForSelection, place);
  int64_t selected = 1;
  for (int64_t i = 1; i < nearest; ++i) {
    if (random.Below(nearest - i) < length - selected) {
      cameras[selected++] = cameras[i];
    }
  }
  cameras.resize(selected);
  std::sort(cameras.begin(), cameras.end());
}

void Generator::MakePoints(SyntheticProblem* problem) {
  const int64_t n = options_.num_points;
  std::vector<int64_t> begin_of(n + 1, 0);
  for (int64_t id = 0; id < n; ++id) {
    begin_of[id + 1] = begin_of[id] + lengths_[id];
  }
  BalProblem& start = problem->start;
  const int64_t num_observations = begin_of[n];
  start.camera_index.resize(num_observations);
  start.point_index.resize(num_observations);
  start.observations.resize(2 * num_observations);
  start.points.resize(3 * n);
  problem->true_points.resize(3 * n);
  ForEachChunk(num_threads_, n, [&](int, int64_t begin, int64_t end) {
    Track track;
    for (int64_t id = begin; id < end; ++id) {
      const int64_t place = PlaceOfPoint(id);
      MakeTrack(place, &track);
      const Vector3& point = track.point;
      const Vector3 from_home = point - cameras_[track.home].center;

      PortableRandom noise(options_.seed, synthetic::kForPointNoise, place);
      const double sigma =
          options_.point_noise * std::sqrt(Dot(from_home, from_home));
      const Vector3 moved =
          start_cameras_[track.home].center +
          drift_scales_[track.home] *
              (drift_rotations_[track.home] * from_home) +
          sigma * Vector3{noise.Normal(), noise.Normal(), noise.Normal()};
      const double truth[3] = {point.x, point.y, point.z};
      std::copy_n(truth, 3, problem->true_points.data() + 3 * id);
      const double guess[3] = {moved.x, moved.y, moved.z};
      std::copy_n(guess, 3, start.points.data() + 3 * id);

      SelectCameras(place, lengths_[id], &track);
      PortableRandom pixels(options_.seed, synthetic::kForPixels, place);
      for (int64_t k = 0; k < lengths_[id]; ++k) {
        const Camera& camera = cameras_[track.candidates[k]];
        const Vector3 p = camera.rotation * (point - camera.center);
        const double x = -p.x / p.z;
        const double y = -p.y / p.z;
        const double r2 = x * x + y * y;
        const double scale =
            camera.f * (1.0 + r2 * (camera.k1 + camera.k2 * r2));
        double dx = options_.pixel_noise * pixels.Normal();
        double dy = options_.pixel_noise * pixels.Normal();
        if (pixels.Uniform() < options_.outlier_fraction) {
          dx += options_.outlier_size * pixels.Uniform(-1.0, 1.0);
          dy += options_.outlier_size * pixels.Uniform(-1.0, 1.0);
        }
        int64_t i = begin_of[id] + k;
        if (options_.order == ORDER_SHUFFLED) {
          i = Permute(
              i, num_observations, Key(synthetic::kForObservationOrder));
        }
        start.camera_index[i] = track.candidates[k];
        start.point_index[i] = static_cast<int32_t>(id);
        start.observations[2 * i] = scale * x + dx;
        start.observations[2 * i + 1] = scale * y + dy;
      }
    }
  });
}

// A stable counting sort: chunk c puts its observations of camera i behind
// those of all chunks before it.
void Generator::SortByCamera(BalProblem* problem) const {
  const int64_t n = problem->num_observations();
  const int64_t num_cameras = options_.num_cameras;
  std::vector<std::vector<int64_t>> next(num_threads_,
                                         std::vector<int64_t>(num_cameras, 0));
  ForEachChunk(num_threads_, n, [&](int chunk, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      ++next[chunk][problem->camera_index[i]];
    }
  });
  int64_t sum = 0;
  for (int64_t camera = 0; camera < num_cameras; ++camera) {
    for (int chunk = 0; chunk < num_threads_; ++chunk) {
      sum += std::exchange(next[chunk][camera], sum);
    }
  }
  BalArray<int32_t> camera_index(n);
  BalArray<int32_t> point_index(n);
  BalArray<double> observations(2 * n);
  ForEachChunk(num_threads_, n, [&](int chunk, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t to = next[chunk][problem->camera_index[i]]++;
      camera_index[to] = problem->camera_index[i];
      point_index[to] = problem->point_index[i];
      observations[2 * to] = problem->observations[2 * i];
      observations[2 * to + 1] = problem->observations[2 * i + 1];
    }
  });
  problem->camera_index = std::move(camera_index);
  problem->point_index = std::move(point_index);
  problem->observations = std::move(observations);
}

}  // namespace

bool GenerateSynthetic(const SyntheticOptions& options,
                       SyntheticProblem* problem,
                       std::string* error) {
  *problem = SyntheticProblem();
  try {
    if (Generator(options).Run(problem, error)) {
      return true;
    }
  } catch (const std::bad_alloc&) {
    *error =
        "num_observations: expected a problem that fits in memory, found " +
        std::to_string(options.num_observations);
  }
  *problem = SyntheticProblem();
  return false;
}

}  // namespace ceres_ext::bal
