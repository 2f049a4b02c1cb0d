// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The map of LAYOUT_PLACES (bal_synthetic.h): places on a square grid, numbered
// to and fro along its rows,
//
//   0 - 1 - 2       Each has a monument in the middle, about which images stand
//   :   :   |       and look at it, and a street to the next place. About half
//   5 - 4 - 3       of the places have a street to the place in the next row
//   |   :   :       too. Images of a street look ahead and back in turns.
//   6 - 7 - 8
//
// Images are numbered by segments: those of place 0, of its streets, of place
// 1, and so on.

#ifndef PROBLEM_IO_SYNTHETIC_PLACES_H_
#define PROBLEM_IO_SYNTHETIC_PLACES_H_

#include <cstdint>
#include <vector>

#include "problem_io/synthetic_geometry.h"

namespace ceres_ext::bal::synthetic {

class Places {
 public:
  // The images of a place (from == to), or of a street between two.
  struct Segment {
    int32_t begin;
    int32_t end;
    int32_t from;
    int32_t to;

    bool is_street() const { return from != to; }
  };

  Places() = default;
  // At least one image. A place has 60 on average, from a quarter to four
  // times as many, and a street 30.
  Places(int32_t num_images, uint64_t seed);

  const Segment& SegmentOf(int32_t image) const {
    return segments_[segment_of_image_[image]];
  }
  const Segment& SegmentOfPlace(int32_t place) const {
    return segments_[segment_of_place_[place]];
  }
  // The streets that begin or end there.
  const std::vector<Segment>& StreetsOf(int32_t place) const {
    return streets_of_place_[place];
  }

  // On the ground.
  Vector3 Middle(int32_t place) const;
  // The position of the image, less its height, and the direction of its view.
  void Stand(int32_t image,
             PortableRandom* random,
             Vector3* center,
             double* dx,
             double* dy) const;
  // A point on the side of the monument that is towards an image of a place,
  // and the normal of that side.
  Vector3 OnMonument(int32_t place,
                     const Vector3& image,
                     PortableRandom* random,
                     Vector3* normal) const;

 private:
  void AddSegment(int32_t num_images, int32_t from, int32_t to);

  int32_t side_ = 1;  // places in a row
  std::vector<Segment> segments_;
  std::vector<int32_t> segment_of_image_;
  std::vector<int32_t> segment_of_place_;
  std::vector<std::vector<Segment>> streets_of_place_;
};

}  // namespace ceres_ext::bal::synthetic

#endif  // PROBLEM_IO_SYNTHETIC_PLACES_H_
