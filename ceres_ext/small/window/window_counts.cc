// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// WindowPacker: whether a problem is a window, its counts, kind and chunks.

#include <algorithm>
#include <cmath>
#include <utility>

#include "ceres_ext/base/sentence.h"
#include "ceres_ext/small/kind.h"
#include "ceres_ext/small/window/pose_rows.h"
#include "ceres_ext/small/window/window_packer.h"
#include "ceres_ext/small/window/window_packer_inl.h"
#include "cuda_kernels/model/bal_model.h"

namespace ceres_ext {

using Parameters = ArrayProblem::Parameters;
using Residuals = ArrayProblem::Residuals;

double WindowPacker::CostOf(int e,
                            int64_t k,
                            int num_residuals,
                            const double* r) const {
  double s = 0.0;
  for (int c = 0; c < num_residuals; ++c) {
    s += r[c] * r[c];
  }
  double rho[3] = {s, 1.0, 0.0};
  if (!losses_.empty() && loss_id_[e] != kernels::kNoLoss) {
    kernels::RobustLoss::EvaluateChain(losses_.data(), loss_id_[e], s, rho);
  }
  const double* const weights = residuals(arrays_[e]).weights;
  return 0.5 * rho[0] * (weights != nullptr ? weights[k] : 1.0);
}

bool WindowPacker::AddFixedCost(int e, int64_t k, double* cost) const {
  const RowArray& array = arrays_[e];
  const WindowRows& rows = *array.rows;
  const auto& blocks = residuals(array).blocks;
  double buffer[WindowRows::kMaxConstants];
  const double* const constants =
      ReadConstants(rows, residuals(array), k, buffer);
  double camera[10];
  ReadCamera(ValuesOf(cameras_, blocks[rows.camera_block()].BlockOf(k)),
             camera);
  const double* const point =
      ValuesOf(points_, blocks[rows.point_block()].BlockOf(k));
  double r[2];
  if (rows.has_poses()) {
    const PoseRows model(num_camera_values_ == kPoseSize);
    WindowIntrinsics intrinsics;
    ReadIntrinsics(
        array, blocks[WindowRows::kParamsBlock].BlockOf(k), &intrinsics);
    PoseRows::Evaluate(intrinsics,
                       rows.num_scales > 0 ? constants[2] : 1.0,
                       model.Prepare(camera, nullptr),
                       point,
                       constants,
                       r);
  } else {
    const auto state =
        camera_size_ == 9
            ? kernels::PrepareBalCamera<3, double>(camera, nullptr)
            : kernels::PrepareBalCamera<4, double>(camera, nullptr);
    kernels::Residual(state, kernels::Project(state, point), constants, r);
  }
  *cost += CostOf(e, k, 2, r);
  return kernels::AllFinite(r, 2);
}

bool WindowPacker::AddFixedCostOfPrior(int e, int64_t k, double* cost) const {
  WindowPrior prior;
  if (!ReadPrior(e, k, &prior)) {
    return false;
  }
  const auto& blocks = residuals(arrays_[e]).blocks;
  double poses[2][kPoseSize];
  ReadCamera(ValuesOf(cameras_, blocks.front().BlockOf(k)), poses[0]);
  ReadCamera(ValuesOf(cameras_, blocks.back().BlockOf(k)), poses[1]);
  const double* const x[2] = {poses[0], poses[1]};
  double r[WindowPrior::kSize];
  const bool is_finite =
      PoseRows(num_camera_values_ == kPoseSize).EvaluatePrior(prior, x, r);
  *cost += CostOf(e, k, WindowPrior::kSize, r);
  return is_finite;
}

bool WindowPacker::AddFixedCostOfMarginal(int e,
                                          int64_t k,
                                          const BlockMarginalPrior& prior,
                                          const int64_t* cameras,
                                          double* cost) const {
  std::vector<const double*> poses(prior.num_blocks());
  for (int p = 0; p < prior.num_blocks(); ++p) {
    poses[p] = ValuesOf(cameras_, cameras[p]);
  }
  std::vector<double> r(prior.num_residuals());
  const bool is_evaluated = prior.Evaluate(poses.data(), r.data(), nullptr);
  *cost += CostOf(e, k, prior.num_residuals(), r.data());
  return is_evaluated && kernels::AllFinite(r.data(), prior.num_residuals());
}

// Counts the rows, and those of each point in scratch->row_begin. False if an
// index is not valid.
bool WindowPacker::CountRows(int64_t i,
                             Scratch* scratch,
                             PackedWindow* window,
                             Found* found) {
  const Blocks cameras = BlocksOf(cameras_, i);
  const Blocks points = BlocksOf(points_, i);
  WindowCounts& counts = window->record.counts;
  std::vector<int32_t>& degree = scratch->row_begin;
  degree.assign(points.end - points.begin + 1, 0);
  for (RowArray& array : arrays_) {
    if (array.rows->kind == WindowRowKind::kReprojection) {
      const Blocks params = BlocksOf(ParamsOf(array), i);
      std::fill(array.params_place.begin() + params.begin,
                array.params_place.begin() + params.end,
                kUnused);
    }
  }
  return ForEachRow(i, [&](int e, int64_t k, int64_t camera, int64_t point) {
    RowArray& array = arrays_[e];
    const Residuals& of_array = residuals(array);
    double buffer[WindowRows::kMaxConstants];
    const double* const constants =
        ReadConstants(*array.rows, of_array, k, buffer);
    if (constants == nullptr) {
      return false;
    }
    found->is_finite &=
        kernels::AllFinite(constants, array.rows->num_constants());
    if (of_array.weights != nullptr) {
      found->is_finite &= of_array.weights[k] >= 0.0 &&
                          kernels::AllFinite(of_array.weights + k, 1);
    }
    if (array.rows->has_poses()) {
      const ArrayProblem::Index& index =
          of_array.blocks[WindowRows::kParamsBlock];
      const int64_t params = index.BlockOf(k);
      found->is_finite &= kernels::AllFinite(ValuesOf(index.parameters, params),
                                             array.rows->num_params);
    }
    const bool has_constants =
        scratch->camera_is_constant[camera - cameras.begin] != 0 &&
        IsConstant(points_, point);
    if (has_constants) {
      return AddFixedCost(e, k, &window->fixed_cost);
    }
    if (array.rows->has_poses()) {
      array.params_place[of_array.blocks[WindowRows::kParamsBlock].BlockOf(k)] =
          0;
    }
    camera_place_[camera] = 0;
    point_place_[point] = 0;
    ++degree[point - points.begin];
    ++counts.num_rows;
    return true;
  });
}

// The same of priors.
bool WindowPacker::CountPriors(int64_t i, PackedWindow* window, Found* found) {
  return ForEachPrior(i, [&](int e, int64_t k, int64_t first, int64_t last) {
    found->has_different_cameras &=
        residuals(arrays_[e]).blocks.size() == 1 || first != last;
    if (IsConstantPose(first) && IsConstantPose(last)) {
      return AddFixedCostOfPrior(e, k, &window->fixed_cost);
    }
    WindowPrior prior;
    found->is_finite &= ReadPrior(e, k, &prior);
    camera_place_[first] = 0;
    camera_place_[last] = 0;
    ++window->record.counts.num_priors;
    return true;
  });
}

bool WindowPacker::CountMarginals(int64_t i,
                                  PackedWindow* window,
                                  Found* found) {
  WindowCounts& counts = window->record.counts;
  const auto count_marginal = [&](int e,
                                  int64_t k,
                                  const BlockMarginalPrior& prior,
                                  const int64_t* blocks) {
    std::vector<int64_t> sorted(blocks, blocks + prior.num_blocks());
    std::sort(sorted.begin(), sorted.end());
    found->has_different_cameras &=
        std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
    const double* const weights = residuals(arrays_[e]).weights;
    found->is_finite &=
        weights == nullptr ||
        (weights[k] >= 0.0 && kernels::AllFinite(weights + k, 1));
    if (std::all_of(sorted.begin(), sorted.end(), [this](int64_t camera) {
          return IsConstantPose(camera);
        })) {
      return AddFixedCostOfMarginal(e, k, prior, blocks, &window->fixed_cost);
    }
    for (const int64_t camera : sorted) {
      camera_place_[camera] = 0;
    }
    WindowMarginal one;
    one.num_poses = prior.num_blocks();
    one.num_rows = prior.num_residuals();
    ++counts.num_marginals;
    counts.num_marginal_poses += one.num_poses;
    counts.num_marginal_rows += one.num_rows;
    counts.num_marginal_values += static_cast<int32_t>(one.num_values());
    return true;
  };
  return ForEachMarginal(i, count_marginal);
}

void WindowPacker::NumberBlocks(int64_t i,
                                const Scratch& scratch,
                                WindowCounts* counts) {
  const Blocks cameras = BlocksOf(cameras_, i);
  const Blocks points = BlocksOf(points_, i);
  const auto is_constant_camera = [&](int64_t c) {
    return scratch.camera_is_constant[c - cameras.begin] != 0;
  };
  const auto is_constant_point = [&](int64_t p) {
    return IsConstant(points_, p);
  };
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
         &counts->num_cameras,
         &counts->num_constant_cameras);
  number(points,
         is_constant_point,
         &point_place_,
         &counts->num_points,
         &counts->num_constant_points);
  for (RowArray& array : arrays_) {
    if (array.rows->kind != WindowRowKind::kReprojection) {
      continue;
    }
    const Blocks params = BlocksOf(ParamsOf(array), i);
    for (int64_t b = params.begin; b < params.end; ++b) {
      if (array.params_place[b] != kUnused) {
        array.params_place[b] = counts->num_intrinsics++;
      }
    }
  }
}

// Numbers the blocks, and counts the rows of each point in scratch->row_begin.
std::string WindowPacker::Count(int64_t i,
                                Scratch* scratch,
                                PackedWindow* window) {
  const Blocks cameras = BlocksOf(cameras_, i);
  const Blocks points = BlocksOf(points_, i);
  const Parameters& of_points = parameters(points_);
  WindowCounts& counts = window->record.counts;
  counts = WindowCounts();
  std::fill(camera_place_.begin() + cameras.begin,
            camera_place_.begin() + cameras.end,
            kUnused);
  std::fill(point_place_.begin() + points.begin,
            point_place_.begin() + points.end,
            kUnused);
  std::string bad_bounds = WhyBadBounds(*batch_, i);
  if (!bad_bounds.empty()) {
    return bad_bounds;
  }
  if (!intrinsics_.empty()) {
    std::string reason = FindOwnIntrinsics(i);
    if (!reason.empty()) {
      return reason;
    }
  }
  // Found once, because each row asks.
  std::vector<uint8_t>& camera_is_constant = scratch->camera_is_constant;
  camera_is_constant.clear();
  for (int64_t c = cameras.begin; c < cameras.end; ++c) {
    camera_is_constant.push_back(IsConstantPose(c) && !HasOwnIntrinsics(c) ? 1
                                                                           : 0);
  }
  window->fixed_cost = 0.0;
  Found found;
  const bool are_valid = CountRows(i, scratch, window, &found) &&
                         CountPriors(i, window, &found) &&
                         CountMarginals(i, window, &found);
  const bool has_finite_blocks =
      kernels::AllFinite(
          ValuesOf(cameras_, cameras.begin),
          static_cast<int>(cameras.end - cameras.begin) * num_camera_values_) &&
      kernels::AllFinite(ValuesOf(points_, points.begin),
                         static_cast<int>(points.end - points.begin) * kPoint);
  if (!are_valid || !has_finite_blocks || !found.is_finite ||
      !found.has_different_cameras) {
    return "a value or an index is not valid";
  }
  NumberBlocks(i, *scratch, &counts);
  counts.num_scales = has_scales_ ? counts.num_rows : 0;
  for (int64_t p = points.begin; p < points.end; ++p) {
    if (point_place_[p] != kUnused && !IsConstant(points_, p) &&
        of_points.ManifoldOf(p) != nullptr) {
      return "a point has a manifold";
    }
  }
  if (counts.num_rows == 0 && counts.num_priors + counts.num_marginals > 0) {
    return "windows have reprojection errors beside priors";
  }
  if (counts.num_rows == 0) {
    return "no residual block depends on a parameter block that varies";
  }
  // The degrees of points in the order of their numbers, then the prefix sums.
  std::vector<int32_t>& by_place = scratch->seen;
  by_place.assign(counts.all_points() + 1, 0);
  for (int64_t p = points.begin; p < points.end; ++p) {
    if (point_place_[p] != kUnused) {
      by_place[point_place_[p] + 1] = scratch->row_begin[p - points.begin];
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
  bool has_own = false;
  bool has_unit_quaternions = true;
  for (int64_t c = cameras.begin; c < cameras.end; ++c) {
    if (camera_place_[c] == kUnused ||
        camera_place_[c] >= window->record.counts.num_cameras) {
      continue;
    }
    has_own |= HasOwnIntrinsics(c);
    if (IsConstantPose(c)) {
      continue;
    }
    const CameraForm& form = FormOf(c);
    if (!form.is_known) {
      return "a camera's manifold is user-defined or no quaternion's";
    }
    if (camera_size_ == kPoseSize && num_camera_values_ == kPoseSize &&
        !form.turns && (form.varies & 15) != 0) {
      return "a pose's quaternion has no manifold";
    }
    if (camera_size_ == kPoseSize && num_camera_values_ == kPoseSize) {
      const double* const q = ValuesOf(cameras_, c);
      constexpr double kRounding = 1e-12;
      has_unit_quaternions &=
          std::fabs(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3] -
                    1.0) < kRounding;
    }
    varies |= form.varies;
    any_turns |= form.turns;
    all_turn &= form.turns;
  }
  window->kind.camera_size = camera_size_;
  if (has_own) {
    if (!has_unit_quaternions) {
      return "the quaternion of a pose does not have the norm 1, beside "
             "intrinsics that vary";
    }
    window->kind = {kOwnCameraSize, kOwnCameraColumns};
    return "";
  }
  if (camera_size_ == kPoseSize) {
    window->kind.num_columns = kPoseColumns;
    return "";
  }
  if (any_turns != all_turn && window->record.counts.num_cameras > 0) {
    return "some quaternions have a manifold and some have none";
  }
  // The last three values are f, k1 and k2.
  const bool has_intrinsics = (varies >> (camera_size_ - 3)) != 0;
  window->kind.num_columns =
      camera_size_ == 10 && !any_turns && window->record.counts.num_cameras > 0
          ? 10
      : has_intrinsics ? 9
                       : 6;
  return "";
}

// Windows have bounds of all values that vary, or of none.
std::string WindowPacker::CountBounds(int64_t i, PackedWindow* window) const {
  WindowCounts& counts = window->record.counts;
  const auto has_bounds = [this](int array, int64_t block, int num_values) {
    const Parameters& p = parameters(array);
    for (int j = 0; p.MayHaveBounds() && j < num_values; ++j) {
      if (p.IsBounded(block, j)) {
        return true;
      }
    }
    return false;
  };
  const Blocks cameras = BlocksOf(cameras_, i);
  const Blocks points = BlocksOf(points_, i);
  bool has_any = false;
  for (int64_t c = cameras.begin; c < cameras.end; ++c) {
    if (camera_place_[c] == kUnused || camera_place_[c] >= counts.num_cameras) {
      continue;
    }
    if (!IsConstantPose(c)) {
      has_any |= has_bounds(cameras_, c, num_camera_values_);
      if (window->kind.has_own_intrinsics() && FormOf(c).turns &&
          has_bounds(cameras_, c, 4)) {
        return "the quaternion of a pose has bounds, beside intrinsics that "
               "vary";
      }
    }
    if (HasOwnIntrinsics(c)) {
      const RowArray& array = arrays_[intrinsics_[c].array];
      has_any |= has_bounds(
          ParamsOf(array), intrinsics_[c].block, array.rows->num_params);
    }
  }
  for (int64_t p = points.begin; p < points.end && !has_any; ++p) {
    has_any = point_place_[p] != kUnused &&
              point_place_[p] < counts.num_points &&
              has_bounds(points_, p, kPoint);
  }
  counts.has_bounds = has_any ? 1 : 0;
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
  counts.chunk_words = static_cast<int16_t>(size.words);
  window->has_schur = size.has_schur;
  if (counts.chunk_rows == 0) {
    return Sentence("a window has at most ",
                    kMaxWindowCameras,
                    " cameras that vary and ",
                    kMaxChunkRows,
                    " residual blocks of a point, or as many as fit beside "
                    "the cameras");
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

}  // namespace ceres_ext
