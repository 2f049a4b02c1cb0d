// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/front/window_packer.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/base/sentence.h"
#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/blocks/block_manifolds.h"
#include "ceres_ext/blocks/loss_model.h"
#include "cuda_kernels/model/bal_model.h"
#include "cuda_kernels/model/manifold.h"

namespace ceres_ext {
namespace {

using Parameters = ArrayProblem::Parameters;
using Residuals = ArrayProblem::Residuals;

// The number of a block that is not in the window.
constexpr int32_t kUnused = -1;
constexpr int kPoint = kernels::kBalPointDim;
// Problems with more rows, cameras or points are not windows.
constexpr int64_t kLargestWindow = int64_t{1} << 24;

bool IsActiveBlock(const std::vector<const uint8_t*>& flags,
                   size_t array,
                   int64_t block) {
  return flags.empty() || flags[array] == nullptr || flags[array][block] != 0;
}

}  // namespace

WindowPacker::WindowPacker(const ProblemBatch* batch) : batch_(batch) {
  const auto& all = batch->problem.residuals();
  std::vector<const ceres::LossFunction*> losses;
  for (size_t r = 0; r < all.size() && reason_.empty(); ++r) {
    const Residuals& residuals = all[r];
    if (residuals.num_blocks == 0) {
      continue;
    }
    std::unique_ptr<ceres::CostFunction> made;
    if (residuals.constants_are_of_model && residuals.constants != nullptr &&
        residuals.make_cost_function != nullptr) {
      made.reset(residuals.make_cost_function(residuals.constants));
    }
    const auto* batchable =
        dynamic_cast<const BatchableCostFunction*>(made.get());
    const BatchModelKind kind = batchable == nullptr
                                    ? BatchModelKind::kOther
                                    : batchable->batch_model().kind;
    if (kind == BatchModelKind::kOther || residuals.blocks.size() != 2 ||
        residuals.constants_bytes != 2 * sizeof(double)) {
      reason_ = "windows have BAL reprojection errors alone";
      break;
    }
    const int camera_size = kind == BatchModelKind::kBalAngleAxis ? 9 : 10;
    const int cameras = residuals.blocks[0].parameters;
    const int points = residuals.blocks[1].parameters;
    if (cameras_ >= 0 && (cameras_ != cameras || points_ != points)) {
      reason_ = "windows have one array of cameras and one of points";
      break;
    }
    cameras_ = cameras;
    points_ = points;
    camera_size_ = camera_size;
    if (parameters(cameras).size != camera_size ||
        parameters(points).size != kPoint) {
      reason_ = "the sizes of cameras and points do not fit";
    } else if (parameters(cameras).values == nullptr ||
               parameters(points).values == nullptr) {
      reason_ = "an array of parameters is null";
    }
    has_weights_ |= residuals.weights != nullptr;
    residuals_.push_back(static_cast<int>(r));
    losses.push_back(residuals.loss);
  }
  if (residuals_.empty() && reason_.empty()) {
    reason_ = "there are no residual blocks";
  }
  std::vector<double> weights;
  if (reason_.empty() &&
      (FindChains(losses, &losses_, &loss_id_, &weights) != nullptr ||
       !weights.empty())) {
    reason_ = "a loss function is user-defined";
  }
  if (!reason_.empty()) {
    return;
  }
  ReadForms();
  camera_place_.assign(parameters(cameras_).num_blocks, kUnused);
  point_place_.assign(parameters(points_).num_blocks, kUnused);
  input_begin_.push_back(0);
  output_begin_.push_back(0);
  for (int64_t i = 0; i < batch->num_problems; ++i) {
    int64_t rows = 0;
    for (const int r : residuals_) {
      rows += batch->residual_begin[r][i + 1] - batch->residual_begin[r][i];
    }
    const Blocks cameras = BlocksOf(cameras_, i);
    const Blocks points = BlocksOf(points_, i);
    WindowCounts counts;
    const bool is_too_large =
        std::max(
            {rows, cameras.end - cameras.begin, points.end - points.begin}) >
        kLargestWindow;
    if (!is_too_large) {
      counts.num_cameras = static_cast<int32_t>(cameras.end - cameras.begin);
      counts.num_points = static_cast<int32_t>(points.end - points.begin);
      counts.num_rows = static_cast<int32_t>(rows);
      counts.num_chunks = counts.num_points;
    }
    is_too_large_.push_back(is_too_large ? 1 : 0);
    // Constant blocks take as much room as others, except for three paddings of
    // up to 8 bytes, which 64 bytes cover.
    input_begin_.push_back(
        input_begin_[i] + 64 +
        WindowInput(camera_size_, counts, has_weights_, !losses_.empty())
            .num_bytes);
    output_begin_.push_back(output_begin_[i] +
                            WindowOutput(camera_size_, counts).num_bytes);
  }
}

void WindowPacker::ReadForms() {
  const Parameters& cameras = parameters(cameras_);
  ReadForm(nullptr);
  if (cameras.manifolds == nullptr) {
    ReadForm(cameras.manifold);
    return;
  }
  for (int64_t c = 0; c < cameras.num_blocks; ++c) {
    ReadForm(cameras.manifolds[c]);
  }
}

void WindowPacker::ReadForm(const ceres::Manifold* manifold) {
  if (forms_.count(manifold) > 0) {
    return;
  }
  CameraForm form;
  std::vector<kernels::ManifoldFactor> factors;
  if (manifold == nullptr) {
    factors.push_back({kernels::ManifoldKind::kEuclidean, camera_size_});
  } else if (manifold->AmbientSize() != camera_size_ ||
             !ReadManifold(*manifold, &factors)) {
    forms_[manifold] = form;
    return;
  }
  int at = 0;
  form.is_known = true;
  for (const kernels::ManifoldFactor& factor : factors) {
    if (factor.kind == kernels::ManifoldKind::kQuaternion && at == 0 &&
        camera_size_ == 10) {
      form.turns = true;
    } else if (factor.kind != kernels::ManifoldKind::kConstant &&
               factor.kind != kernels::ManifoldKind::kEuclidean) {
      form.is_known = false;
    }
    for (int e = at; e < at + factor.size; ++e) {
      if (factor.kind != kernels::ManifoldKind::kConstant) {
        form.varies |= static_cast<uint16_t>(1 << e);
      }
    }
    at += factor.size;
  }
  form.is_known = form.is_known && at == camera_size_;
  forms_[manifold] = form;
}

const WindowPacker::CameraForm& WindowPacker::FormOf(int64_t camera) const {
  return forms_.find(parameters(cameras_).ManifoldOf(camera))->second;
}

bool WindowPacker::IsActive(int residuals,
                            int64_t k,
                            int64_t camera,
                            int64_t point) const {
  return IsActiveBlock(batch_->residual_is_active, residuals, k) &&
         IsActiveBlock(batch_->parameter_is_active, cameras_, camera) &&
         IsActiveBlock(batch_->parameter_is_active, points_, point);
}

// Calls function(index in residuals_, row, camera, point) for each active row.
// False if a block is not of this window or the function returns false.
template <typename Function>
bool WindowPacker::ForEachRow(int64_t i, const Function& function) const {
  const Blocks cameras = BlocksOf(cameras_, i);
  const Blocks points = BlocksOf(points_, i);
  for (size_t e = 0; e < residuals_.size(); ++e) {
    const int r = residuals_[e];
    const Residuals& residuals = batch_->problem.residuals()[r];
    const int64_t end = batch_->residual_begin[r][i + 1];
    for (int64_t k = batch_->residual_begin[r][i]; k < end; ++k) {
      const int64_t camera = residuals.blocks[0].BlockOf(k);
      const int64_t point = residuals.blocks[1].BlockOf(k);
      if (camera < cameras.begin || camera >= cameras.end ||
          point < points.begin || point >= points.end) {
        return false;
      }
      if (IsActive(r, k, camera, point) &&
          !function(static_cast<int>(e), k, camera, point)) {
        return false;
      }
    }
  }
  return true;
}

bool WindowPacker::AddFixedCost(int e, int64_t k, double* cost) const {
  const Residuals& residuals = batch_->problem.residuals()[residuals_[e]];
  const double* const camera =
      ValuesOf(cameras_, residuals.blocks[0].BlockOf(k));
  const double* const point = ValuesOf(points_, residuals.blocks[1].BlockOf(k));
  const auto state =
      camera_size_ == 9 ? kernels::PrepareBalCamera<3, double>(camera, nullptr)
                        : kernels::PrepareBalCamera<4, double>(camera, nullptr);
  double r[2];
  kernels::Residual(state,
                    kernels::Project(state, point),
                    static_cast<const double*>(residuals.constants) + 2 * k,
                    r);
  const double s = r[0] * r[0] + r[1] * r[1];
  double rho[3] = {s, 1.0, 0.0};
  if (!losses_.empty() && loss_id_[e] != kernels::kNoLoss) {
    kernels::RobustLoss::EvaluateChain(losses_.data(), loss_id_[e], s, rho);
  }
  *cost += 0.5 * rho[0] *
           (residuals.weights != nullptr ? residuals.weights[k] : 1.0);
  return kernels::AllFinite(r, 2);
}

// Numbers the blocks, and counts the rows of each point in scratch->row_begin.
std::string WindowPacker::Count(int64_t i,
                                Scratch* scratch,
                                PackedWindow* window) {
  const Blocks cameras = BlocksOf(cameras_, i);
  const Blocks points = BlocksOf(points_, i);
  const Parameters& of_cameras = parameters(cameras_);
  const Parameters& of_points = parameters(points_);
  WindowCounts& counts = window->record.counts;
  counts = WindowCounts();
  std::fill(camera_place_.begin() + cameras.begin,
            camera_place_.begin() + cameras.end,
            kUnused);
  std::fill(point_place_.begin() + points.begin,
            point_place_.begin() + points.end,
            kUnused);
  // Unknown where a point's manifold is anything but constant.
  const auto is_constant_point = [&](int64_t p) {
    return (of_points.is_constant != nullptr &&
            of_points.is_constant[p] != 0) ||
           (of_points.ManifoldOf(p) != nullptr &&
            of_points.ManifoldOf(p)->TangentSize() == 0);
  };
  // Found once, because each row asks.
  std::vector<uint8_t>& camera_is_constant = scratch->camera_is_constant;
  camera_is_constant.clear();
  for (int64_t c = cameras.begin; c < cameras.end; ++c) {
    const CameraForm& form = FormOf(c);
    const bool is_constant =
        (of_cameras.is_constant != nullptr && of_cameras.is_constant[c] != 0) ||
        (form.is_known && form.varies == 0);
    camera_is_constant.push_back(is_constant ? 1 : 0);
  }
  const auto is_constant_camera = [&](int64_t c) {
    return camera_is_constant[c - cameras.begin] != 0;
  };
  window->fixed_cost = 0.0;
  bool is_finite = true;
  std::vector<int32_t>& degree = scratch->row_begin;
  degree.assign(points.end - points.begin + 1, 0);
  const bool fits =
      ForEachRow(i, [&](int e, int64_t k, int64_t camera, int64_t point) {
        const Residuals& residuals = batch_->problem.residuals()[residuals_[e]];
        const double* const observed =
            static_cast<const double*>(residuals.constants) + 2 * k;
        is_finite &= kernels::AllFinite(observed, 2);
        if (residuals.weights != nullptr) {
          is_finite &= residuals.weights[k] >= 0.0 &&
                       kernels::AllFinite(residuals.weights + k, 1);
        }
        const bool has_constants =
            is_constant_camera(camera) && is_constant_point(point);
        if (has_constants) {
          return AddFixedCost(e, k, &window->fixed_cost);
        }
        camera_place_[camera] = 0;
        point_place_[point] = 0;
        ++degree[point - points.begin];
        ++counts.num_rows;
        return true;
      });
  is_finite &=
      kernels::AllFinite(
          ValuesOf(cameras_, cameras.begin),
          static_cast<int>(cameras.end - cameras.begin) * camera_size_) &&
      kernels::AllFinite(ValuesOf(points_, points.begin),
                         static_cast<int>(points.end - points.begin) * kPoint);
  if (!fits || !is_finite) {
    return "a value or an index is not valid";
  }
  // Numbers blocks that vary first, in the order of the arrays.
  const auto number = [](const Blocks& blocks,
                         const auto& is_constant,
                         std::vector<int32_t>* place,
                         int32_t* num_varying,
                         int32_t* num_constant) {
    int32_t next = 0;
    for (const bool constant : {false, true}) {
      for (int64_t b = blocks.begin; b < blocks.end; ++b) {
        if ((*place)[b] != kUnused && is_constant(b) == constant) {
          (*place)[b] = next++;
        }
      }
      *(constant ? num_constant : num_varying) =
          next - (constant ? *num_varying : 0);
    }
  };
  number(cameras,
         is_constant_camera,
         &camera_place_,
         &counts.num_cameras,
         &counts.num_constant_cameras);
  number(points,
         is_constant_point,
         &point_place_,
         &counts.num_points,
         &counts.num_constant_points);
  for (int64_t p = points.begin; p < points.end; ++p) {
    if (point_place_[p] != kUnused && !is_constant_point(p) &&
        of_points.ManifoldOf(p) != nullptr) {
      return "a point has a manifold";
    }
  }
  if (counts.num_rows == 0) {
    return "no residual block depends on a parameter block that varies";
  }
  // The degrees of points in the order of their numbers, then the prefix sums.
  std::vector<int32_t>& by_place = scratch->seen;
  by_place.assign(counts.all_points() + 1, 0);
  for (int64_t p = points.begin; p < points.end; ++p) {
    if (point_place_[p] != kUnused) {
      by_place[point_place_[p] + 1] = degree[p - points.begin];
    }
  }
  for (size_t p = 1; p < by_place.size(); ++p) {
    by_place[p] += by_place[p - 1];
  }
  std::swap(scratch->row_begin, scratch->seen);
  return "";
}

std::string WindowPacker::ChooseKind(int64_t i, PackedWindow* window) const {
  const Blocks cameras = BlocksOf(cameras_, i);
  uint16_t varies = 0;
  bool any_turns = false;
  bool all_turn = true;
  for (int64_t c = cameras.begin; c < cameras.end; ++c) {
    if (camera_place_[c] == kUnused ||
        camera_place_[c] >= window->record.counts.num_cameras) {
      continue;
    }
    const CameraForm& form = FormOf(c);
    if (!form.is_known) {
      return "a camera's manifold is user-defined or no quaternion's";
    }
    varies |= form.varies;
    any_turns |= form.turns;
    all_turn &= form.turns;
  }
  if (any_turns != all_turn && window->record.counts.num_cameras > 0) {
    return "some quaternions have a manifold and some have none";
  }
  // The last three values are f, k1 and k2.
  const bool has_intrinsics = (varies >> (camera_size_ - 3)) != 0;
  window->kind.camera_size = camera_size_;
  window->kind.num_columns =
      camera_size_ == 10 && !any_turns && window->record.counts.num_cameras > 0
          ? 10
      : has_intrinsics ? 9
                       : 6;
  return "";
}

// Cuts the window into chunks, each with as many points as have room for their
// rows.
std::string WindowPacker::Cut(Scratch* scratch,
                              std::vector<int32_t>* chunks,
                              PackedWindow* window) const {
  const std::vector<int32_t>& begin = scratch->row_begin;
  WindowCounts& counts = window->record.counts;
  int max_degree = 0;
  for (size_t p = 1; p < begin.size(); ++p) {
    max_degree = std::max(max_degree, begin[p] - begin[p - 1]);
  }
  const ChunkSize size =
      ChooseChunks(window->kind.num_columns, counts.num_cameras, max_degree);
  counts.chunk_rows = size.rows;
  counts.chunk_words = size.words;
  window->has_schur = size.has_schur;
  if (counts.chunk_rows == 0) {
    return Sentence("a window has at most ",
                    kMaxWindowCameras,
                    " cameras that vary and ",
                    kMaxChunkRows,
                    " residual blocks of a point");
  }
  chunks->assign(1, 0);
  for (int32_t p = 0; p < counts.all_points(); ++p) {
    if (begin[p + 1] - begin[chunks->back()] > counts.chunk_rows ||
        p + 1 - chunks->back() > kWordPoints * counts.chunk_words) {
      chunks->push_back(p);
    }
  }
  chunks->push_back(counts.all_points());
  counts.num_chunks = static_cast<int32_t>(chunks->size()) - 1;
  return "";
}

std::string WindowPacker::Write(int64_t i,
                                Scratch* scratch,
                                const std::vector<int32_t>& chunks,
                                unsigned char* input,
                                PackedWindow* window) {
  const WindowCounts& counts = window->record.counts;
  window->record.has_weights = has_weights_;
  window->record.has_losses = !losses_.empty();
  const WindowInput at(camera_size_,
                       counts,
                       window->record.has_weights,
                       window->record.has_losses);
  const auto doubles = [input](int64_t begin) {
    return reinterpret_cast<double*>(input + begin);
  };
  const auto integers = [input](int64_t begin) {
    return reinterpret_cast<int32_t*>(input + begin);
  };
  const auto copy_values = [&](int array,
                               const std::vector<int32_t>& place,
                               int32_t num_varying,
                               double* varying,
                               double* constant) {
    const Blocks blocks = BlocksOf(array, i);
    const int size = parameters(array).size;
    for (int64_t b = blocks.begin; b < blocks.end; ++b) {
      if (place[b] != kUnused) {
        double* const to =
            place[b] < num_varying
                ? varying + int64_t{size} * place[b]
                : constant + int64_t{size} * (place[b] - num_varying);
        std::copy_n(ValuesOf(array, b), size, to);
      }
    }
  };
  copy_values(cameras_,
              camera_place_,
              counts.num_cameras,
              doubles(at.cameras),
              doubles(at.constant_cameras));
  copy_values(points_,
              point_place_,
              counts.num_points,
              doubles(at.points),
              doubles(at.constant_points));
  const Blocks cameras = BlocksOf(cameras_, i);
  auto* const mask = reinterpret_cast<uint16_t*>(input + at.column_mask);
  for (int64_t c = cameras.begin; c < cameras.end; ++c) {
    const int32_t place = camera_place_[c];
    if (place == kUnused || place >= counts.num_cameras) {
      continue;
    }
    const CameraForm& form = FormOf(c);
    // A turn has one column less than its quaternion has values.
    mask[place] = form.turns
                      ? static_cast<uint16_t>((form.varies >> 4) << 3 | 7)
                      : form.varies;
  }
  std::copy(scratch->row_begin.begin(),
            scratch->row_begin.end(),
            integers(at.point_begin));
  std::copy(chunks.begin(), chunks.end(), integers(at.chunk_begin));
  int32_t* const camera_of = integers(at.camera);
  int32_t* const point_of = integers(at.point);
  std::vector<int32_t>& next = scratch->row_begin;
  ForEachRow(i, [&](int e, int64_t k, int64_t camera, int64_t point) {
    const int32_t c = camera_place_[camera];
    const int32_t p = point_place_[point];
    // Skips rows between two constants. Constants that have only such rows are
    // not in the window.
    if (c == kUnused || p == kUnused ||
        (c >= counts.num_cameras && p >= counts.num_points)) {
      return true;
    }
    const Residuals& residuals = batch_->problem.residuals()[residuals_[e]];
    const int32_t row = next[p]++;
    std::copy_n(static_cast<const double*>(residuals.constants) + 2 * k,
                2,
                doubles(at.observed) + 2 * int64_t{row});
    camera_of[row] = c;
    point_of[row] = p;
    if (has_weights_) {
      doubles(at.weights)[row] =
          residuals.weights != nullptr ? residuals.weights[k] : 1.0;
    }
    if (window->record.has_losses) {
      input[at.loss_id + row] = loss_id_[e];
    }
    return true;
  });
  // Checks that no camera is twice in the rows of a point.
  std::vector<int32_t>& seen = scratch->seen;
  seen.assign(counts.all_cameras(), kUnused);
  for (int32_t k = 0; k < counts.num_rows; ++k) {
    if (seen[camera_of[k]] == point_of[k]) {
      return "a camera sees a point twice";
    }
    seen[camera_of[k]] = point_of[k];
  }
  FindPattern(input, &window->record);
  return "";
}

// Writes the pattern of L and the lists of its pairs.
void WindowPacker::FindPattern(unsigned char* input,
                               WindowRecord* record) const {
  WindowCounts& counts = record->counts;
  const WindowInput at(
      camera_size_, counts, record->has_weights, record->has_losses);
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

std::string WindowPacker::Pack(int64_t i,
                               Scratch* scratch,
                               unsigned char* input,
                               PackedWindow* window) {
  if (is_too_large_[i] != 0) {
    return "the problem is too large for a window";
  }
  std::string reason = Count(i, scratch, window);
  if (reason.empty()) {
    reason = ChooseKind(i, window);
  }
  std::vector<int32_t> chunks;
  if (reason.empty()) {
    reason = Cut(scratch, &chunks, window);
  }
  return reason.empty() ? Write(i, scratch, chunks, input, window) : reason;
}

void WindowPacker::Unpack(int64_t i,
                          const PackedWindow& window,
                          const unsigned char* output) const {
  const WindowOutput at = window.output();
  const auto copy = [&](int array,
                        const std::vector<int32_t>& place,
                        int32_t num_varying,
                        int64_t begin) {
    const Blocks blocks = BlocksOf(array, i);
    const int size = parameters(array).size;
    const auto* const from = reinterpret_cast<const double*>(output + begin);
    for (int64_t b = blocks.begin; b < blocks.end; ++b) {
      if (place[b] != kUnused && place[b] < num_varying) {
        std::copy_n(from + int64_t{size} * place[b],
                    size,
                    parameters(array).values + size * b);
      }
    }
  };
  copy(cameras_, camera_place_, window.record.counts.num_cameras, at.cameras);
  copy(points_, point_place_, window.record.counts.num_points, at.points);
}

}  // namespace ceres_ext
