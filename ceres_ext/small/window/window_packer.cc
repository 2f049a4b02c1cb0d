// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/window/window_packer.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "ceres_ext/base/sentence.h"
#include "ceres_ext/blocks/block_manifolds.h"
#include "ceres_ext/blocks/loss_model.h"
#include "ceres_ext/small/window/window_packer_inl.h"
#include "cuda_kernels/model/bal_model.h"
#include "cuda_kernels/model/manifold.h"

namespace ceres_ext {

using Parameters = ArrayProblem::Parameters;
using Residuals = ArrayProblem::Residuals;

WindowPacker::WindowPacker(const ProblemBatch* batch) : batch_(batch) {
  reason_ = ReadArrays();
  if (!reason_.empty()) {
    return;
  }
  ReadForms();
  camera_place_.assign(parameters(cameras_).num_blocks, kUnused);
  for (const RowArray& array : arrays_) {
    if (array.rows->kind != WindowRowKind::kReprojection) {
      continue;
    }
    const int params = ParamsOf(array);
    for (int64_t b = 0;
         b < parameters(params).num_blocks && intrinsics_.empty();
         ++b) {
      if (!IsConstant(params, b)) {
        intrinsics_.resize(parameters(cameras_).num_blocks);
      }
    }
  }
  const int camera_size = intrinsics_.empty() ? camera_size_ : kOwnCameraSize;
  const auto& all_parameters = batch->problem.parameters();
  const bool may_have_bounds = std::any_of(
      all_parameters.begin(), all_parameters.end(), [](const Parameters& p) {
        return p.MayHaveBounds();
      });
  point_place_.assign(parameters(points_).num_blocks, kUnused);
  input_begin_.push_back(0);
  output_begin_.push_back(0);
  for (int64_t i = 0; i < batch->num_problems; ++i) {
    int64_t rows = 0;
    int64_t params = 0;
    int64_t priors = 0;
    int64_t marginals = 0;
    int64_t marginal_poses = 0;
    int64_t marginal_rows = 0;
    int64_t marginal_values = 0;
    for (const RowArray& array : arrays_) {
      const int64_t* const begin = batch->residual_begin[array.residuals];
      const int64_t num_blocks = begin[i + 1] - begin[i];
      if (array.rows->kind == WindowRowKind::kMarginal) {
        WindowMarginal one;
        one.num_poses = static_cast<int32_t>(residuals(array).blocks.size());
        one.num_rows = array.num_residuals;
        marginals += num_blocks;
        marginal_poses += num_blocks * one.num_poses;
        marginal_rows += num_blocks * one.num_rows;
        marginal_values += num_blocks * one.num_values();
      } else if (array.rows->has_point()) {
        rows += num_blocks;
      } else {
        priors += num_blocks;
      }
      if (array.rows->kind == WindowRowKind::kReprojection) {
        const Blocks blocks = BlocksOf(ParamsOf(array), i);
        params += blocks.end - blocks.begin;
      }
    }
    const Blocks cameras = BlocksOf(cameras_, i);
    const Blocks points = BlocksOf(points_, i);
    WindowCounts counts;
    const bool is_too_large =
        std::max({rows,
                  params,
                  priors,
                  marginal_values,
                  cameras.end - cameras.begin,
                  points.end - points.begin}) > kLargestWindow;
    if (!is_too_large) {
      counts.num_cameras = static_cast<int32_t>(cameras.end - cameras.begin);
      counts.num_points = static_cast<int32_t>(points.end - points.begin);
      counts.num_rows = static_cast<int32_t>(rows);
      counts.num_chunks = counts.num_points;
      counts.num_intrinsics = static_cast<int32_t>(params);
      counts.num_scales = has_scales_ ? counts.num_rows : 0;
      counts.num_priors = static_cast<int32_t>(priors);
      counts.num_marginals = static_cast<int32_t>(marginals);
      counts.num_marginal_poses = static_cast<int32_t>(marginal_poses);
      counts.num_marginal_rows = static_cast<int32_t>(marginal_rows);
      counts.num_marginal_values = static_cast<int32_t>(marginal_values);
      counts.has_bounds = may_have_bounds ? 1 : 0;
    }
    is_too_large_.push_back(is_too_large ? 1 : 0);
    // Constant blocks take as much room as others, except for three paddings of
    // up to 8 bytes, which 64 bytes cover.
    input_begin_.push_back(
        input_begin_[i] + 64 +
        WindowInput(camera_size, counts, has_weights_, !losses_.empty())
            .num_bytes);
    output_begin_.push_back(output_begin_[i] +
                            WindowOutput(camera_size, counts).num_bytes);
  }
}

std::string WindowPacker::ReadArrays() {
  const auto& all = batch_->problem.residuals();
  std::vector<const ceres::LossFunction*> losses;
  std::string first_reason;
  bool is_empty = true;
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].num_blocks == 0) {
      continue;
    }
    is_empty = false;
    const std::string reason = ReadArray(static_cast<int>(r));
    if (first_reason.empty()) {
      first_reason = reason;
    }
    losses.push_back(all[r].loss);
  }
  if (is_empty) {
    return "there are no residual blocks";
  }
  if (!first_reason.empty()) {
    return first_reason;
  }
  if (points_ < 0) {
    return "windows have reprojection errors beside priors";
  }
  std::vector<double> weights;
  if (FindChains(losses, &losses_, &loss_id_, &weights) != nullptr ||
      !weights.empty()) {
    return "a loss function is user-defined";
  }
  return "";
}

std::string WindowPacker::ReadArray(int r) {
  const Residuals& of_array = batch_->problem.residuals()[r];
  RowArray array;
  array.residuals = r;
  array.rows = FindWindowRows(of_array);
  if (array.rows == nullptr) {
    return "windows have reprojection errors of BAL cameras with an array of "
           "constants, or of poses in one block, with priors on poses";
  }
  const WindowRows& rows = *array.rows;
  const auto is_null = [&](int b) {
    return parameters(of_array.blocks[b].parameters).values == nullptr;
  };
  const auto size_of = [&](int b) {
    return parameters(of_array.blocks[b].parameters).size;
  };
  const bool is_prior = !rows.has_point();
  const int cameras = of_array.blocks[rows.camera_block()].parameters;
  const int points =
      is_prior ? points_ : of_array.blocks[rows.point_block()].parameters;
  const bool has_cameras_alone = std::all_of(
      of_array.blocks.begin(), of_array.blocks.end(), [&](const auto& block) {
        return block.parameters == cameras;
      });
  if ((cameras_ >= 0 && cameras_ != cameras) ||
      (points_ >= 0 && points_ != points) || (is_prior && !has_cameras_alone)) {
    return "windows have one array of cameras and one of points";
  }
  if (cameras_ >= 0 &&
      (num_camera_values_ != rows.camera_size || rotation_ != rows.rotation)) {
    return "windows have cameras or poses of one kind";
  }
  cameras_ = cameras;
  points_ = points;
  camera_size_ = rows.has_poses() ? kPoseSize : rows.camera_size;
  num_camera_values_ = rows.camera_size;
  rotation_ = rows.rotation;
  if (size_of(rows.camera_block()) != rows.camera_size ||
      (!is_prior && size_of(rows.point_block()) != kPoint)) {
    return "the sizes of cameras and points do not fit";
  }
  for (size_t b = 0; b < of_array.blocks.size(); ++b) {
    if (is_null(static_cast<int>(b))) {
      return "an array of parameters is null";
    }
  }
  if (rows.kind == WindowRowKind::kMarginal) {
    if (of_array.loss != nullptr) {
      return "marginal priors have no loss in windows";
    }
    std::unique_ptr<const ceres::CostFunction> owner;
    array.num_residuals = FirstCostFunction(of_array, &owner)->num_residuals();
  }
  if (rows.kind == WindowRowKind::kReprojection) {
    constexpr int kParams = WindowRows::kParamsBlock;
    if (size_of(kParams) != rows.num_params) {
      return "the sizes of the intrinsics do not fit";
    }
    array.params_place.assign(
        parameters(of_array.blocks[kParams].parameters).num_blocks, kUnused);
    has_scales_ |= rows.num_scales > 0;
  }
  has_weights_ |= !is_prior && of_array.weights != nullptr;
  arrays_.push_back(std::move(array));
  return "";
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
  const bool has_quaternions =
      num_camera_values_ == 10 ||
      (camera_size_ == kPoseSize && rotation_ != PoseRotation::kAngleAxis);
  const auto turning = rotation_ == PoseRotation::kEigenQuaternion
                           ? kernels::ManifoldKind::kEigenQuaternion
                           : kernels::ManifoldKind::kQuaternion;
  if (manifold == nullptr) {
    factors.push_back({kernels::ManifoldKind::kEuclidean, num_camera_values_});
  } else if (manifold->AmbientSize() != num_camera_values_ ||
             !ReadManifold(*manifold, &factors)) {
    forms_[manifold] = form;
    return;
  }
  int at = 0;
  form.is_known = true;
  for (const kernels::ManifoldFactor& factor : factors) {
    if (factor.kind == turning && at == 0 && has_quaternions) {
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
  form.is_known = form.is_known && at == num_camera_values_;
  forms_[manifold] = form;
}

const WindowPacker::CameraForm& WindowPacker::FormOf(int64_t camera) const {
  return forms_.find(parameters(cameras_).ManifoldOf(camera))->second;
}

// The camera is constant if it has no intrinsics of its own.
bool WindowPacker::IsConstantPose(int64_t camera) const {
  const CameraForm& form = FormOf(camera);
  return IsConstant(cameras_, camera) || (form.is_known && form.varies == 0);
}

bool WindowPacker::HasOwnIntrinsics(int64_t camera) const {
  return !intrinsics_.empty() && intrinsics_[camera].varies != 0;
}

// The columns of a camera that vary. A turn has one column less than its
// quaternion has values.
uint16_t WindowPacker::MaskOf(int64_t camera) const {
  const CameraForm& form = FormOf(camera);
  int mask = 0;
  if (!IsConstantPose(camera)) {
    const bool has_three_columns = camera_size_ == kPoseSize
                                       ? num_camera_values_ == kPoseSize
                                       : form.turns;
    mask = has_three_columns ? (form.varies >> 4) << 3 | (form.turns ? 7 : 0)
                             : form.varies;
  }
  if (HasOwnIntrinsics(camera)) {
    const int num_own = __builtin_popcount(intrinsics_[camera].varies);
    mask |= ((1 << num_own) - 1) << kPoseColumns;
  }
  return static_cast<uint16_t>(mask);
}

// The array of intrinsics of rows of poses.
int WindowPacker::ParamsOf(const RowArray& array) const {
  return residuals(array).blocks[WindowRows::kParamsBlock].parameters;
}

// Finds which poses have intrinsics of their own. Returns the reason if others
// vary.
std::string WindowPacker::FindOwnIntrinsics(int64_t i) {
  const Blocks cameras = BlocksOf(cameras_, i);
  std::fill(intrinsics_.begin() + cameras.begin,
            intrinsics_.begin() + cameras.end,
            Intrinsics());
  bool is_known = true;
  // Rows with an index that is not valid end this; Count finds them too.
  ForEachRow(i, [&](int e, int64_t k, int64_t camera, int64_t /*point*/) {
    const int params = ParamsOf(arrays_[e]);
    const int64_t block =
        residuals(arrays_[e]).blocks[WindowRows::kParamsBlock].BlockOf(k);
    Intrinsics& of_camera = intrinsics_[camera];
    if (of_camera.array < 0) {
      of_camera.array = e;
      of_camera.block = block;
    } else if (of_camera.block == block &&
               ParamsOf(arrays_[of_camera.array]) == params) {
      return true;
    } else {
      of_camera.is_one = false;
    }
    if (IsConstant(params, block)) {
      return true;
    }
    const int size = parameters(params).size;
    const ceres::Manifold* const manifold =
        parameters(params).ManifoldOf(block);
    std::vector<kernels::ManifoldFactor> factors;
    if (manifold == nullptr) {
      factors.push_back({kernels::ManifoldKind::kEuclidean, size});
    } else if (manifold->AmbientSize() != size ||
               !ReadManifold(*manifold, &factors)) {
      is_known = false;
    }
    int at = 0;
    for (const kernels::ManifoldFactor& factor : factors) {
      const bool varies = factor.kind != kernels::ManifoldKind::kConstant;
      is_known &= !varies || factor.kind == kernels::ManifoldKind::kEuclidean;
      for (int p = at; varies && p < at + factor.size; ++p) {
        of_camera.varies |= static_cast<uint16_t>(1 << p);
      }
      at += factor.size;
    }
    return true;
  });
  if (!is_known) {
    return "the manifold of intrinsics that vary is not a subset's";
  }
  std::vector<std::pair<int, int64_t>> own;
  for (int64_t c = cameras.begin; c < cameras.end; ++c) {
    const Intrinsics& of_camera = intrinsics_[c];
    if (of_camera.varies == 0) {
      continue;
    }
    if (!of_camera.is_one) {
      return "a pose has several blocks of intrinsics, and some vary";
    }
    if (__builtin_popcount(of_camera.varies) > kMaxOwnIntrinsics) {
      return Sentence(
          "more than ", kMaxOwnIntrinsics, " intrinsics of a camera vary");
    }
    own.emplace_back(ParamsOf(arrays_[of_camera.array]), of_camera.block);
  }
  std::sort(own.begin(), own.end());
  if (std::adjacent_find(own.begin(), own.end()) != own.end()) {
    return "poses share intrinsics that vary";
  }
  return "";
}

bool WindowPacker::IsConstant(int array, int64_t block) const {
  const Parameters& p = parameters(array);
  return (p.is_constant != nullptr && p.is_constant[block] != 0) ||
         (p.ManifoldOf(block) != nullptr &&
          p.ManifoldOf(block)->TangentSize() == 0);
}

std::string WindowPacker::Pack(int64_t i,
                               bool may_repeat,
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
  if (reason.empty()) {
    reason = CountBounds(i, window);
  }
  std::vector<int32_t> chunks;
  if (reason.empty()) {
    reason = Cut(scratch, &chunks, window);
  }
  return reason.empty() ? Write(i, may_repeat, scratch, chunks, input, window)
                        : reason;
}

void WindowPacker::Unpack(int64_t i,
                          const PackedWindow& window,
                          const unsigned char* output) const {
  const WindowOutput at = window.output();
  const auto unpack = [&](int array,
                          int size,
                          const std::vector<int32_t>& place,
                          int32_t num_varying,
                          int64_t begin,
                          const auto& write) {
    const Blocks blocks = BlocksOf(array, i);
    const auto* const from = reinterpret_cast<const double*>(output + begin);
    for (int64_t b = blocks.begin; b < blocks.end; ++b) {
      if (place[b] != kUnused && place[b] < num_varying) {
        write(from + int64_t{size} * place[b], b);
      }
    }
  };
  unpack(cameras_,
         window.kind.camera_size,
         camera_place_,
         window.record.counts.num_cameras,
         at.cameras,
         [this](const double* from, int64_t c) {
           if (!IsConstantPose(c)) {
             WriteCamera(from, c);
           }
           if (HasOwnIntrinsics(c)) {
             WriteOwnIntrinsics(from + kPoseSize, c);
           }
         });
  unpack(points_,
         kPoint,
         point_place_,
         window.record.counts.num_points,
         at.points,
         [this](const double* from, int64_t p) {
           std::copy_n(from, kPoint, parameters(points_).values + kPoint * p);
         });
}

}  // namespace ceres_ext
