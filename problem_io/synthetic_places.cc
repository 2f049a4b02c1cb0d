// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "problem_io/synthetic_places.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace ceres_ext::bal::synthetic {
namespace {

constexpr int32_t kImagesOfPlace = 60;
constexpr int32_t kImagesOfStreet = 30;
constexpr double kCrossStreets = 0.5;
// Metres: between places, and from the middle of one to its images and to the
// first image of a street.
constexpr double kBetweenPlaces = 100.0;
constexpr double kNearest = 18.0;
constexpr double kFarthest = 40.0;
constexpr double kStreetBegin = 22.0;
constexpr double kMonumentRadius = 7.0;
constexpr double kMonumentHeight = 15.0;
// Within half a picture of an image that stands nearest, for any of its turns.
constexpr double kSide = 1.0;
constexpr double kUp = 0.45;

}  // namespace

Places::Places(int32_t num_images, uint64_t seed) {
  // A place has 1.5 streets.
  constexpr int32_t kUnit = kImagesOfPlace + 3 * kImagesOfStreet / 2;
  const int32_t n = std::max(1, (num_images + kUnit / 2) / kUnit);
  while (side_ * side_ < n) {
    ++side_;
  }
  // The place in the next row; n: there is none, or no street to it.
  const auto across = [&](int32_t place) {
    const int32_t row_end = (place / side_ + 1) * side_;
    const int32_t other = row_end + (row_end - 1 - place);
    PortableRandom random(seed, kForCrossStreet, place);
    return other < n && other != place + 1 && random.Uniform() < kCrossStreets
               ? other
               : n;
  };
  // Weights from 1/4 to 17/4, most of them small, in units of 2^-20, so that
  // sums are exact.
  std::vector<int64_t> weight_end(n + 1, 0);
  int32_t num_streets = n - 1;
  for (int32_t place = 0; place < n; ++place) {
    const double u = PortableRandom(seed, kForPlaceSize, place).Uniform();
    weight_end[place + 1] =
        weight_end[place] +
        static_cast<int64_t>((0.25 + 4.0 * u * u * u * u) * 0x1p20);
    num_streets += across(place) < n ? 1 : 0;
  }
  const int64_t of_places = num_images - int64_t{kImagesOfStreet} * num_streets;
  const auto share = [&](int32_t place) {
    return of_places * weight_end[place] / weight_end[n];
  };
  streets_of_place_.resize(n);
  for (int32_t place = 0; place < n; ++place) {
    segment_of_place_.push_back(static_cast<int32_t>(segments_.size()));
    AddSegment(
        static_cast<int32_t>(share(place + 1) - share(place)), place, place);
    if (across(place) < n) {
      AddSegment(kImagesOfStreet, place, across(place));
    }
    if (place + 1 < n) {
      AddSegment(kImagesOfStreet, place, place + 1);
    }
  }
}

void Places::AddSegment(int32_t num_images, int32_t from, int32_t to) {
  const auto begin = static_cast<int32_t>(segment_of_image_.size());
  segment_of_image_.insert(segment_of_image_.end(),
                           num_images,
                           static_cast<int32_t>(segments_.size()));
  segments_.push_back({begin, begin + num_images, from, to});
  if (from != to) {
    streets_of_place_[from].push_back(segments_.back());
    streets_of_place_[to].push_back(segments_.back());
  }
}

Vector3 Places::Middle(int32_t place) const {
  const int32_t row = place / side_;
  const int32_t from_start = place % side_;
  return {kBetweenPlaces * (row % 2 == 0 ? from_start : side_ - 1 - from_start),
          kBetweenPlaces * row,
          0.0};
}

void Places::Stand(int32_t image,
                   PortableRandom* random,
                   Vector3* center,
                   double* dx,
                   double* dy) const {
  const Segment& segment = SegmentOf(image);
  const Vector3 from = Middle(segment.from);
  if (!segment.is_street()) {
    PortableSinCos(random->Uniform(-kPi, kPi), dy, dx);
    *center =
        from - random->Uniform(kNearest, kFarthest) * Vector3{*dx, *dy, 0.0};
    return;
  }
  const Vector3 ahead = (1.0 / kBetweenPlaces) * (Middle(segment.to) - from);
  const double part = (image - segment.begin + random->Uniform()) /
                      (segment.end - segment.begin);
  const double s = kStreetBegin + part * (kBetweenPlaces - 2.0 * kStreetBegin);
  const double lane = random->Uniform(-1.5, 1.5);
  *center = from + s * ahead + lane * Vector3{-ahead.y, ahead.x, 0.0};
  const double sign = image % 2 == 0 ? 1.0 : -1.0;
  *dx = sign * ahead.x;
  *dy = sign * ahead.y;
}

Vector3 Places::OnMonument(int32_t place,
                           const Vector3& image,
                           PortableRandom* random,
                           Vector3* normal) const {
  const Vector3 middle = Middle(place);
  const double x = image.x - middle.x;
  const double y = image.y - middle.y;
  const double distance = std::sqrt(x * x + y * y);
  double s;
  double c;
  PortableSinCos(random->Uniform(-kSide, kSide), &s, &c);
  *normal = (1.0 / distance) * Vector3{c * x - s * y, s * x + c * y, 0.0};
  const double height =
      std::min(kMonumentHeight, image.z + kUp * (distance - kMonumentRadius));
  return middle + kMonumentRadius * *normal +
         Vector3{0.0, 0.0, height * random->Uniform()};
}

}  // namespace ceres_ext::bal::synthetic
