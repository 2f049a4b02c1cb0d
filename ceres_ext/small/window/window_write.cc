// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// WindowPacker: the bytes of a window.

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "ceres_ext/base/sentence.h"
#include "ceres_ext/small/window/pose_rows.h"
#include "ceres_ext/small/window/window_packer.h"
#include "ceres_ext/small/window/window_packer_inl.h"
#include "cuda_kernels/model/bal_model.h"

namespace ceres_ext {

using Parameters = ArrayProblem::Parameters;
using Residuals = ArrayProblem::Residuals;

namespace {

// Writes the pattern of L and the lists of its pairs.
void FindPattern(unsigned char* input, PackedWindow* window) {
  WindowCounts& counts = window->record.counts;
  const WindowInput at(window->kind.camera_size,
                       counts,
                       window->record.has_weights,
                       window->record.has_losses);
  const auto* const camera = reinterpret_cast<int32_t*>(input + at.camera);
  const auto* const begin = reinterpret_cast<int32_t*>(input + at.point_begin);
  auto* const pattern = reinterpret_cast<uint64_t*>(input + at.pattern);
  const int num_cameras = counts.num_cameras;
  const int num_words = PatternWords(num_cameras);
  std::fill_n(pattern, num_words * num_cameras, 0);
  // The cameras of a point are in the column of the first of them, from where
  // they fill in those of the others. A constant point joins no cameras.
  for (int32_t p = 0; p < counts.num_points; ++p) {
    uint64_t of_point[PatternWords(kMaxWindowCameras)] = {};
    int32_t first = num_cameras;
    for (int32_t k = begin[p]; k < begin[p + 1]; ++k) {
      if (camera[k] < num_cameras) {
        first = std::min(first, camera[k]);
        of_point[camera[k] / kWordPoints] |= uint64_t{1}
                                             << camera[k] % kWordPoints;
      }
    }
    for (int w = 0; w < num_words && first < num_cameras; ++w) {
      pattern[num_words * first + w] |= of_point[w];
    }
  }
  // Two cameras of a prior are in the column of the first.
  const auto* const priors =
      reinterpret_cast<const WindowPrior*>(input + at.priors);
  for (int32_t k = 0; k < counts.num_priors; ++k) {
    if (priors[k].is_first != 0) {
      const auto [j, i] = std::minmax(priors[k].camera[0], priors[k].camera[1]);
      pattern[num_words * j + i / kWordPoints] |= uint64_t{1}
                                                  << i % kWordPoints;
    }
  }
  // Cameras of a marginal prior as those of a point.
  const auto* const marginals =
      reinterpret_cast<const WindowMarginal*>(input + at.marginals);
  const auto* const poses =
      reinterpret_cast<const WindowMarginalPose*>(input + at.marginal_poses);
  for (int32_t k = 0; k < counts.num_marginals; ++k) {
    const WindowMarginalPose* const of_prior = poses + marginals[k].pose_begin;
    for (int32_t p = 0; p < marginals[k].num_varying; ++p) {
      const int32_t c = of_prior[p].camera;
      pattern[num_words * of_prior[0].camera + c / kWordPoints] |=
          uint64_t{1} << c % kWordPoints;
    }
  }
  const auto has = [&](int i, int j) {
    return (pattern[num_words * j + i / kWordPoints] >> i % kWordPoints & 1) !=
           0;
  };
  auto* const pairs = reinterpret_cast<uint16_t*>(input + at.pairs);
  uint8_t* const below = input + at.below;
  auto* const below_begin = reinterpret_cast<uint16_t*>(input + at.below_begin);
  // Each column of L fills in its pairs in the first column below it.
  int num_pairs = 0;
  for (int j = 0; j < num_cameras; ++j) {
    uint64_t* const column = pattern + num_words * j;
    column[j / kWordPoints] &= ~uint64_t{0} << j % kWordPoints << 1;
    std::fill_n(column, j / kWordPoints, 0);
    below_begin[j] = static_cast<uint16_t>(num_pairs);
    below[num_pairs++] = static_cast<uint8_t>(j);
    int first = num_cameras;
    for (int i = j + 1; i < num_cameras; ++i) {
      if (has(i, j)) {
        first = std::min(first, i);
        below[num_pairs++] = static_cast<uint8_t>(i);
      }
    }
    for (int w = 0; w < num_words && first < num_cameras; ++w) {
      pattern[num_words * first + w] |= column[w];
    }
  }
  below_begin[num_cameras] = static_cast<uint16_t>(num_pairs);
  counts.num_pairs = num_pairs;
  int next = 0;
  for (int distance = 0; distance < num_cameras; ++distance) {
    for (int j = 0; j + distance < num_cameras; ++j) {
      if (distance == 0 || has(j + distance, j)) {
        pairs[next++] = static_cast<uint16_t>(256 * (j + distance) + j);
      }
    }
  }
}

}  // namespace

// Reads all but the cameras.
bool WindowPacker::ReadPrior(int e, int64_t k, WindowPrior* prior) const {
  const RowArray& array = arrays_[e];
  const WindowRows& rows = *array.rows;
  double buffer[WindowRows::kMaxConstants];
  const double* const constants =
      ReadConstants(rows, residuals(array), k, buffer);
  if (constants == nullptr) {
    return false;
  }
  *prior = WindowPrior();
  prior->kind = rows.prior;
  prior->loss = losses_.empty() ? kernels::kNoLoss : loss_id_[e];
  const double* const weights = residuals(array).weights;
  prior->weight = weights != nullptr ? weights[k] : 1.0;
  std::copy_n(constants, rows.num_measured, prior->measured);
  const double* const scales = constants + rows.num_measured;
  const int n = rows.num_residuals;
  for (int a = 0; a < n; ++a) {
    for (int b = 0; b < n; ++b) {
      prior->scale[WindowPrior::kSize * a + b] =
          rows.num_scales > 1 ? scales[n * a + b]
          : a != b            ? 0.0
                              : (rows.num_scales == 1 ? scales[0] : 1.0);
    }
  }
  return kernels::AllFinite(constants, rows.num_constants()) &&
         prior->weight >= 0.0 && kernels::AllFinite(&prior->weight, 1);
}

void WindowPacker::ReadIntrinsics(const RowArray& array,
                                  int64_t block,
                                  WindowIntrinsics* intrinsics) const {
  *intrinsics = WindowIntrinsics();
  intrinsics->model = array.rows->camera_model;
  std::copy_n(ValuesOf(ParamsOf(array), block),
              array.rows->num_params,
              intrinsics->params);
}

// The values of own intrinsics that vary, and the norm of those that are held.
void WindowPacker::ReadOwnIntrinsics(int64_t camera, double* values) const {
  std::fill_n(values, kMaxOwnIntrinsics + 1, 0.0);
  const Intrinsics& of_camera = intrinsics_[camera];
  if (of_camera.varies == 0) {
    return;
  }
  const RowArray& array = arrays_[of_camera.array];
  const double* const from = ValuesOf(ParamsOf(array), of_camera.block);
  double squared_norm = 0.0;
  double* next = values;
  for (int p = 0; p < array.rows->num_params; ++p) {
    if ((of_camera.varies >> p & 1) != 0) {
      *next++ = from[p];
    } else {
      squared_norm += from[p] * from[p];
    }
  }
  values[kMaxOwnIntrinsics] = std::sqrt(squared_norm);
}

void WindowPacker::WriteOwnIntrinsics(const double* values,
                                      int64_t camera) const {
  const Intrinsics& of_camera = intrinsics_[camera];
  const RowArray& array = arrays_[of_camera.array];
  const Parameters& params = parameters(ParamsOf(array));
  double* const to = params.values + int64_t{params.size} * of_camera.block;
  for (int p = 0; p < array.rows->num_params; ++p) {
    if ((of_camera.varies >> p & 1) != 0) {
      to[p] = *values++;
    }
  }
}

// Reads a camera of the caller as a window has it.
void WindowPacker::ReadCamera(const double* from, double* values) const {
  if (camera_size_ != kPoseSize) {
    std::copy_n(from, camera_size_, values);
    return;
  }
  switch (rotation_) {
    case PoseRotation::kAngleAxis:
      std::copy_n(from, 3, values);
      values[3] = 0.0;
      break;
    case PoseRotation::kQuaternion:
      std::copy_n(from, 4, values);
      break;
    case PoseRotation::kEigenQuaternion:
      values[0] = from[3];
      std::copy_n(from, 3, values + 1);
      break;
  }
  std::copy_n(from + num_camera_values_ - 3, 3, values + 4);
}

// Writes a camera of a window to the caller.
void WindowPacker::WriteCamera(const double* values, int64_t camera) const {
  double* const to =
      parameters(cameras_).values + int64_t{num_camera_values_} * camera;
  if (camera_size_ != kPoseSize) {
    std::copy_n(values, camera_size_, to);
    return;
  }
  switch (rotation_) {
    case PoseRotation::kAngleAxis:
      std::copy_n(values, 3, to);
      break;
    case PoseRotation::kQuaternion:
      std::copy_n(values, 4, to);
      break;
    case PoseRotation::kEigenQuaternion:
      std::copy_n(values + 1, 3, to);
      to[3] = values[0];
      break;
  }
  std::copy_n(values + 4, 3, to + num_camera_values_ - 3);
}

void WindowPacker::WritePriors(int64_t i,
                               const WindowInput& at,
                               const WindowCounts& counts,
                               unsigned char* input) const {
  if (counts.num_priors == 0) {
    return;
  }
  auto* const priors = reinterpret_cast<WindowPrior*>(input + at.priors);
  int32_t num_priors = 0;
  // The last prior of two cameras that vary.
  std::unordered_map<int64_t, int32_t> last_of_pair;
  ForEachPrior(i, [&](int e, int64_t k, int64_t first, int64_t last) {
    const int32_t a = camera_place_[first];
    const int32_t b = camera_place_[last];
    // Skips priors of constants, as Write does rows.
    if (IsConstantPose(first) && IsConstantPose(last)) {
      return true;
    }
    WindowPrior* const prior = priors + num_priors;
    ReadPrior(e, k, prior);
    prior->camera[0] = a;
    if (residuals(arrays_[e]).blocks.size() == 2) {
      prior->camera[1] = b;
      if (a < counts.num_cameras && b < counts.num_cameras) {
        const auto [pair, is_first] = last_of_pair.try_emplace(
            int64_t{kMaxWindowCameras} * std::max(a, b) + std::min(a, b),
            num_priors);
        prior->is_first = is_first ? 1 : 0;
        if (!is_first) {
          priors[pair->second].next = num_priors;
          pair->second = num_priors;
        }
      }
    }
    ++num_priors;
    return true;
  });
  auto* const begin = reinterpret_cast<int32_t*>(input + at.prior_begin);
  auto* const sides = reinterpret_cast<int32_t*>(input + at.prior_sides);
  // The sides of each camera, by counting.
  const auto camera_of = [&](int32_t side) {
    return priors[side / 2].camera[side % 2];
  };
  std::fill_n(begin, counts.num_cameras + 1, 0);
  for (int32_t side = 0; side < 2 * num_priors; ++side) {
    if (camera_of(side) >= 0 && camera_of(side) < counts.num_cameras) {
      ++begin[camera_of(side)];
    }
  }
  for (int32_t c = 0; c < counts.num_cameras; ++c) {
    begin[c + 1] += begin[c];
  }
  // From the last one, which moves each beginning to its place.
  for (int32_t side = 2 * num_priors - 1; side >= 0; --side) {
    if (camera_of(side) >= 0 && camera_of(side) < counts.num_cameras) {
      sides[--begin[camera_of(side)]] = side;
    }
  }
}

void WindowPacker::WriteMarginals(int64_t i,
                                  const WindowInput& at,
                                  const WindowCounts& counts,
                                  unsigned char* input) const {
  auto* marginals = reinterpret_cast<WindowMarginal*>(input + at.marginals);
  auto* pose = reinterpret_cast<WindowMarginalPose*>(input + at.marginal_poses);
  auto* value = reinterpret_cast<double*>(input + at.marginal_values);
  WindowMarginal next;
  const auto write = [&](int e,
                         int64_t k,
                         const BlockMarginalPrior& prior,
                         const int64_t* blocks) {
    // Number in the window and place in the prior.
    std::vector<std::pair<int32_t, int>> cameras;
    bool is_constant = true;
    next.num_varying = 0;
    for (int p = 0; p < prior.num_blocks(); ++p) {
      const int32_t camera = camera_place_[blocks[p]];
      cameras.emplace_back(camera, p);
      next.num_varying += camera >= 0 && camera < counts.num_cameras ? 1 : 0;
      is_constant &= IsConstantPose(blocks[p]);
    }
    // Skips priors of constants, as Write does rows.
    if (is_constant) {
      return true;
    }
    std::sort(cameras.begin(), cameras.end());
    next.num_poses = prior.num_blocks();
    next.num_rows = prior.num_residuals();
    *marginals++ = next;
    next.pose_begin += next.num_poses;
    next.row_begin += next.num_rows;
    next.value_begin += static_cast<int32_t>(next.num_values());
    for (const auto& [camera, p] : cameras) {
      pose->camera = camera;
      ReadCamera(&prior.references()[num_camera_values_ * p], pose->reference);
      ++pose;
    }
    // As ceres::ScaledLoss.
    const double* const weights = residuals(arrays_[e]).weights;
    const double scale = weights != nullptr ? std::sqrt(weights[k]) : 1.0;
    for (int32_t row = 0; row < next.num_rows; ++row) {
      for (const auto& [camera, p] : cameras) {
        const double* const from =
            &prior.matrix()[int64_t{next.num_columns()} * row +
                            kPoseColumns * p];
        for (int c = 0; c < kPoseColumns; ++c) {
          *value++ = scale * from[c];
        }
      }
      *value++ = scale * prior.offset()[row];
    }
    return true;
  };
  ForEachMarginal(i, write);
}

void WindowPacker::WriteBlocks(int64_t i,
                               const WindowInput& at,
                               unsigned char* input,
                               PackedWindow* window) const {
  const WindowCounts& counts = window->record.counts;
  const auto doubles = [input](int64_t begin) {
    return reinterpret_cast<double*>(input + begin);
  };
  // Writes blocks that vary first, by write(block, place of its values).
  const auto write_values = [&](int array,
                                int size,
                                const std::vector<int32_t>& place,
                                int32_t num_varying,
                                double* varying,
                                double* constant,
                                const auto& write) {
    const Blocks blocks = BlocksOf(array, i);
    for (int64_t b = blocks.begin; b < blocks.end; ++b) {
      if (place[b] != kUnused) {
        write(b,
              place[b] < num_varying
                  ? varying + int64_t{size} * place[b]
                  : constant + int64_t{size} * (place[b] - num_varying));
      }
    }
  };
  const bool has_own = window->kind.has_own_intrinsics();
  write_values(cameras_,
               window->kind.camera_size,
               camera_place_,
               counts.num_cameras,
               doubles(at.cameras),
               doubles(at.constant_cameras),
               [this, has_own](int64_t c, double* to) {
                 ReadCamera(ValuesOf(cameras_, c), to);
                 if (has_own) {
                   ReadOwnIntrinsics(c, to + kPoseSize);
                 }
               });
  write_values(points_,
               kPoint,
               point_place_,
               counts.num_points,
               doubles(at.points),
               doubles(at.constant_points),
               [this](int64_t p, double* to) {
                 std::copy_n(ValuesOf(points_, p), kPoint, to);
               });
  const Blocks cameras = BlocksOf(cameras_, i);
  auto* const mask = reinterpret_cast<uint16_t*>(input + at.column_mask);
  window->num_camera_blocks = 0;
  window->num_camera_values = 0;
  for (int64_t c = cameras.begin; c < cameras.end; ++c) {
    const int32_t place = camera_place_[c];
    if (place == kUnused || place >= counts.num_cameras) {
      continue;
    }
    mask[place] = MaskOf(c);
    if (!IsConstantPose(c)) {
      ++window->num_camera_blocks;
      window->num_camera_values += num_camera_values_;
    }
    if (HasOwnIntrinsics(c)) {
      ++window->num_camera_blocks;
      window->num_camera_values +=
          arrays_[intrinsics_[c].array].rows->num_params;
    }
  }
}

// Writes the bounds of the blocks that vary, and moves the start onto them.
void WindowPacker::WriteBounds(int64_t i,
                               const WindowInput& at,
                               const PackedWindow& window,
                               unsigned char* input) const {
  const WindowCounts& counts = window.record.counts;
  const int size = window.kind.camera_size;
  const int64_t first_of_points = int64_t{size} * counts.num_cameras;
  auto* const bounds = reinterpret_cast<double*>(input + at.bounds);
  std::vector<double> of_block;
  for (const bool is_upper : {false, true}) {
    const auto read = [&](int array, int64_t b) {
      const Parameters& p = parameters(array);
      of_block.resize(p.size);
      for (int j = 0; j < p.size; ++j) {
        of_block[j] = is_upper ? p.UpperBoundOf(b, j) : p.LowerBoundOf(b, j);
      }
      return of_block.data();
    };
    const auto write = [&](const double* from, int n, int64_t first) {
      for (int e = 0; e < n; ++e) {
        bounds[2 * (first + e) + (is_upper ? 1 : 0)] = from[e];
      }
    };
    const Blocks cameras = BlocksOf(cameras_, i);
    for (int64_t c = cameras.begin; c < cameras.end; ++c) {
      if (camera_place_[c] == kUnused ||
          camera_place_[c] >= counts.num_cameras) {
        continue;
      }
      constexpr double kNone = std::numeric_limits<double>::max();
      double of_camera[kOwnCameraSize];
      std::fill_n(of_camera, kOwnCameraSize, is_upper ? kNone : -kNone);
      if (!IsConstantPose(c)) {
        ReadCamera(read(cameras_, c), of_camera);
      }
      if (HasOwnIntrinsics(c)) {
        const Intrinsics& own = intrinsics_[c];
        const RowArray& array = arrays_[own.array];
        const double* const from = read(ParamsOf(array), own.block);
        double* next = of_camera + kPoseSize;
        for (int p = 0; p < array.rows->num_params; ++p) {
          if ((own.varies >> p & 1) != 0) {
            *next++ = from[p];
          }
        }
      }
      write(of_camera, size, int64_t{size} * camera_place_[c]);
    }
    const Blocks points = BlocksOf(points_, i);
    for (int64_t p = points.begin; p < points.end; ++p) {
      if (point_place_[p] != kUnused && point_place_[p] < counts.num_points) {
        write(read(points_, p),
              kPoint,
              first_of_points + int64_t{kPoint} * point_place_[p]);
      }
    }
  }
  const auto project = [bounds](int64_t first, int64_t n, double* x) {
    for (int64_t e = 0; e < n; ++e) {
      const double* const of_value = bounds + 2 * (first + e);
      x[e] = std::min(std::max(x[e], of_value[0]), of_value[1]);
    }
  };
  project(0, first_of_points, reinterpret_cast<double*>(input + at.cameras));
  project(first_of_points,
          int64_t{kPoint} * counts.num_points,
          reinterpret_cast<double*>(input + at.points));
}

// next: the next row of each point.
void WindowPacker::WriteRows(int64_t i,
                             const WindowInput& at,
                             const PackedWindow& window,
                             std::vector<int32_t>* next,
                             unsigned char* input) const {
  const WindowCounts& counts = window.record.counts;
  const auto doubles = [input](int64_t begin) {
    return reinterpret_cast<double*>(input + begin);
  };
  const auto integers = [input](int64_t begin) {
    return reinterpret_cast<int32_t*>(input + begin);
  };
  int32_t* const camera_of = integers(at.camera);
  int32_t* const point_of = integers(at.point);
  ForEachRow(i, [&](int e, int64_t k, int64_t camera, int64_t point) {
    const int32_t c = camera_place_[camera];
    const int32_t p = point_place_[point];
    // Skips rows between two constants. Constants that have only such rows are
    // not in the window.
    if (c == kUnused || p == kUnused ||
        (c >= counts.num_cameras && p >= counts.num_points)) {
      return true;
    }
    const RowArray& array = arrays_[e];
    const Residuals& of_array = residuals(array);
    double buffer[WindowRows::kMaxConstants];
    const double* const constants =
        ReadConstants(*array.rows, of_array, k, buffer);
    const int32_t row = (*next)[p]++;
    std::copy_n(constants, 2, doubles(at.observed) + 2 * int64_t{row});
    if (array.rows->has_poses()) {
      integers(at.intrinsics_of_row)[row] =
          array.params_place[of_array.blocks[WindowRows::kParamsBlock].BlockOf(
              k)];
    }
    if (has_scales_) {
      doubles(at.scales)[row] = array.rows->num_scales > 0 ? constants[2] : 1.0;
    }
    camera_of[row] = c;
    point_of[row] = p;
    if (has_weights_) {
      doubles(at.weights)[row] =
          of_array.weights != nullptr ? of_array.weights[k] : 1.0;
    }
    if (window.record.has_losses) {
      input[at.loss_id + row] = loss_id_[e];
    }
    return true;
  });
}

void WindowPacker::WriteIntrinsics(int64_t i,
                                   const WindowInput& at,
                                   unsigned char* input) const {
  const Blocks cameras = BlocksOf(cameras_, i);
  auto* const all_intrinsics =
      reinterpret_cast<WindowIntrinsics*>(input + at.intrinsics);
  for (const RowArray& array : arrays_) {
    const Blocks params = array.params_place.empty()
                              ? Blocks{0, 0}
                              : BlocksOf(ParamsOf(array), i);
    for (int64_t b = params.begin; b < params.end; ++b) {
      if (array.params_place[b] != kUnused) {
        ReadIntrinsics(array, b, all_intrinsics + array.params_place[b]);
      }
    }
    for (int64_t c = cameras.begin;
         c < cameras.end && !array.params_place.empty();
         ++c) {
      if (!HasOwnIntrinsics(c) ||
          ParamsOf(arrays_[intrinsics_[c].array]) != ParamsOf(array) ||
          array.params_place[intrinsics_[c].block] == kUnused) {
        continue;
      }
      int8_t* own =
          all_intrinsics[array.params_place[intrinsics_[c].block]].own;
      for (int e = 0; e < array.rows->num_params; ++e) {
        if ((intrinsics_[c].varies >> e & 1) != 0) {
          *own++ = static_cast<int8_t>(e);
        }
      }
    }
  }
}

std::string WindowPacker::Write(int64_t i,
                                bool may_repeat,
                                Scratch* scratch,
                                const std::vector<int32_t>& chunks,
                                unsigned char* input,
                                PackedWindow* window) {
  const WindowCounts& counts = window->record.counts;
  window->record.has_weights = has_weights_;
  window->record.has_losses = !losses_.empty();
  window->record.has_quaternions = num_camera_values_ == kPoseSize;
  const WindowInput at(window->kind.camera_size,
                       counts,
                       window->record.has_weights,
                       window->record.has_losses);
  const auto integers = [input](int64_t begin) {
    return reinterpret_cast<int32_t*>(input + begin);
  };
  WriteBlocks(i, at, input, window);
  if (counts.has_bounds != 0) {
    WriteBounds(i, at, *window, input);
  }
  std::copy(scratch->row_begin.begin(),
            scratch->row_begin.end(),
            integers(at.point_begin));
  std::copy(chunks.begin(), chunks.end(), integers(at.chunk_begin));
  WriteRows(i, at, *window, &scratch->row_begin, input);
  // Checks that no camera is twice in the rows of a point.
  const int32_t* const camera_of = integers(at.camera);
  const int32_t* const point_of = integers(at.point);
  std::vector<int32_t>& seen = scratch->seen;
  seen.assign(counts.all_cameras(), kUnused);
  for (int32_t k = 0; !may_repeat && k < counts.num_rows; ++k) {
    if (seen[camera_of[k]] == point_of[k]) {
      return "a camera sees a point twice";
    }
    seen[camera_of[k]] = point_of[k];
  }
  WriteIntrinsics(i, at, input);
  WritePriors(i, at, counts, input);
  WriteMarginals(i, at, counts, input);
  FindPattern(input, window);
  return "";
}

}  // namespace ceres_ext
