// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/window/window_packer.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "ceres_ext/base/sentence.h"
#include "ceres_ext/blocks/block_manifolds.h"
#include "ceres_ext/blocks/loss_model.h"
#include "ceres_ext/small/window/pose_rows.h"
#include "cuda_kernels/model/bal_model.h"
#include "cuda_kernels/model/manifold.h"

namespace ceres_ext {
namespace {

using Parameters = ArrayProblem::Parameters;
using Residuals = ArrayProblem::Residuals;

// The number of a block that is not in the window.
constexpr int32_t kUnused = -1;
constexpr int kPoint = kernels::kBalPointDim;

// Null: all blocks are active.
const uint8_t* FlagsOf(const std::vector<const uint8_t*>& flags, int array) {
  return flags.empty() ? nullptr : flags[array];
}

}  // namespace

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

// Calls function(e, k, blocks) for each active residual block k of array e of
// the arrays for which is_wanted(rows) is true. False if a block is not of this
// window or the function returns false.
template <typename Wanted, typename Function>
bool WindowPacker::ForEachResidual(int64_t i,
                                   const Wanted& is_wanted,
                                   const Function& function) const {
  for (size_t e = 0; e < arrays_.size(); ++e) {
    const RowArray& array = arrays_[e];
    if (!is_wanted(*array.rows)) {
      continue;
    }
    struct Slot {
      const int32_t* block;
      const uint8_t* is_active;
      int64_t begin;
      int64_t end;
    };
    const int num_slots = static_cast<int>(residuals(array).blocks.size());
    // Only marginal priors may have more.
    Slot few_slots[WindowRows::kMaxBlocks];
    int64_t few_blocks[WindowRows::kMaxBlocks];
    std::vector<Slot> many_slots;
    std::vector<int64_t> many_blocks;
    Slot* slots = few_slots;
    int64_t* blocks = few_blocks;
    if (num_slots > WindowRows::kMaxBlocks) {
      many_slots.resize(num_slots);
      many_blocks.resize(num_slots);
      slots = many_slots.data();
      blocks = many_blocks.data();
    }
    for (int s = 0; s < num_slots; ++s) {
      const ArrayProblem::Index& index = residuals(array).blocks[s];
      const Blocks of_window = BlocksOf(index.parameters, i);
      slots[s] = {index.block,
                  FlagsOf(batch_->parameter_is_active, index.parameters),
                  of_window.begin,
                  of_window.end};
    }
    const uint8_t* const is_active =
        FlagsOf(batch_->residual_is_active, array.residuals);
    const int64_t end = batch_->residual_begin[array.residuals][i + 1];
    for (int64_t k = batch_->residual_begin[array.residuals][i]; k < end; ++k) {
      bool is_wanted_row = is_active == nullptr || is_active[k] != 0;
      for (int s = 0; s < num_slots; ++s) {
        const Slot& slot = slots[s];
        blocks[s] = slot.block == nullptr ? k : slot.block[k];
        if (blocks[s] < slot.begin || blocks[s] >= slot.end) {
          return false;
        }
        is_wanted_row &=
            slot.is_active == nullptr || slot.is_active[blocks[s]] != 0;
      }
      if (is_wanted_row && !function(static_cast<int>(e), k, blocks)) {
        return false;
      }
    }
  }
  return true;
}

// Calls function(e, k, camera, point) for each active row.
template <typename Function>
bool WindowPacker::ForEachRow(int64_t i, const Function& function) const {
  return ForEachResidual(
      i,
      [](const WindowRows& rows) { return rows.has_point(); },
      [&](int e, int64_t k, const int64_t* blocks) {
        const WindowRows& rows = *arrays_[e].rows;
        return function(
            e, k, blocks[rows.camera_block()], blocks[rows.point_block()]);
      });
}

// Calls function(e, k, first camera, last camera) for each active prior.
template <typename Function>
bool WindowPacker::ForEachPrior(int64_t i, const Function& function) const {
  return ForEachResidual(
      i,
      [](const WindowRows& rows) { return rows.kind == WindowRowKind::kPrior; },
      [&](int e, int64_t k, const int64_t* blocks) {
        return function(
            e, k, blocks[0], blocks[residuals(arrays_[e]).blocks.size() - 1]);
      });
}

// Calls function(e, k, prior, cameras) for each active marginal prior.
template <typename Function>
bool WindowPacker::ForEachMarginal(int64_t i, const Function& function) const {
  return ForEachResidual(
      i,
      [](const WindowRows& rows) {
        return rows.kind == WindowRowKind::kMarginal;
      },
      [&](int e, int64_t k, const int64_t* blocks) {
        const RowArray& array = arrays_[e];
        std::unique_ptr<const ceres::CostFunction> owner;
        const internal::MarginalPriorBase* const prior = FindMarginalPrior(
            *array.rows, residuals(array), k, array.num_residuals, &owner);
        return prior != nullptr && function(e, k, *prior, blocks);
      });
}

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

bool WindowPacker::AddFixedCostOfMarginal(
    int e,
    int64_t k,
    const internal::MarginalPriorBase& prior,
    const int64_t* cameras,
    double* cost) const {
  std::vector<const double*> poses(prior.num_poses());
  for (int p = 0; p < prior.num_poses(); ++p) {
    poses[p] = ValuesOf(cameras_, cameras[p]);
  }
  std::vector<double> r(prior.num_residuals());
  const bool is_evaluated = prior.Evaluate(poses.data(), r.data(), nullptr);
  *cost += CostOf(e, k, prior.num_residuals(), r.data());
  return is_evaluated && kernels::AllFinite(r.data(), prior.num_residuals());
}

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
  // Unknown where a point's manifold is anything but constant.
  const auto is_constant_point = [&](int64_t p) {
    return IsConstant(points_, p);
  };
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
  const auto is_constant_camera = [&](int64_t c) {
    return camera_is_constant[c - cameras.begin] != 0;
  };
  window->fixed_cost = 0.0;
  bool is_finite = true;
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
  const bool fits_rows =
      ForEachRow(i, [&](int e, int64_t k, int64_t camera, int64_t point) {
        RowArray& array = arrays_[e];
        const Residuals& of_array = residuals(array);
        double buffer[WindowRows::kMaxConstants];
        const double* const constants =
            ReadConstants(*array.rows, of_array, k, buffer);
        if (constants == nullptr) {
          return false;
        }
        is_finite &= kernels::AllFinite(constants, array.rows->num_constants());
        if (of_array.weights != nullptr) {
          is_finite &= of_array.weights[k] >= 0.0 &&
                       kernels::AllFinite(of_array.weights + k, 1);
        }
        if (array.rows->has_poses()) {
          const ArrayProblem::Index& index =
              of_array.blocks[WindowRows::kParamsBlock];
          const int64_t params = index.BlockOf(k);
          is_finite &= kernels::AllFinite(ValuesOf(index.parameters, params),
                                          array.rows->num_params);
        }
        const bool has_constants =
            is_constant_camera(camera) && is_constant_point(point);
        if (has_constants) {
          return AddFixedCost(e, k, &window->fixed_cost);
        }
        if (array.rows->has_poses()) {
          array.params_place[of_array.blocks[WindowRows::kParamsBlock].BlockOf(
              k)] = 0;
        }
        camera_place_[camera] = 0;
        point_place_[point] = 0;
        ++degree[point - points.begin];
        ++counts.num_rows;
        return true;
      });
  bool has_different_cameras = true;
  const bool fits_priors =
      ForEachPrior(i, [&](int e, int64_t k, int64_t first, int64_t last) {
        has_different_cameras &=
            residuals(arrays_[e]).blocks.size() == 1 || first != last;
        if (IsConstantPose(first) && IsConstantPose(last)) {
          return AddFixedCostOfPrior(e, k, &window->fixed_cost);
        }
        WindowPrior prior;
        is_finite &= ReadPrior(e, k, &prior);
        camera_place_[first] = 0;
        camera_place_[last] = 0;
        ++counts.num_priors;
        return true;
      });
  const auto count_marginal = [&](int e,
                                  int64_t k,
                                  const internal::MarginalPriorBase& prior,
                                  const int64_t* blocks) {
    std::vector<int64_t> sorted(blocks, blocks + prior.num_poses());
    std::sort(sorted.begin(), sorted.end());
    has_different_cameras &=
        std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
    const double* const weights = residuals(arrays_[e]).weights;
    is_finite &= weights == nullptr ||
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
    one.num_poses = prior.num_poses();
    one.num_rows = prior.num_residuals();
    ++counts.num_marginals;
    counts.num_marginal_poses += one.num_poses;
    counts.num_marginal_rows += one.num_rows;
    counts.num_marginal_values += static_cast<int32_t>(one.num_values());
    return true;
  };
  const bool fits_marginals = ForEachMarginal(i, count_marginal);
  is_finite &=
      kernels::AllFinite(
          ValuesOf(cameras_, cameras.begin),
          static_cast<int>(cameras.end - cameras.begin) * num_camera_values_) &&
      kernels::AllFinite(ValuesOf(points_, points.begin),
                         static_cast<int>(points.end - points.begin) * kPoint);
  if (!fits_rows || !fits_priors || !fits_marginals || !is_finite ||
      !has_different_cameras) {
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
  for (RowArray& array : arrays_) {
    if (array.rows->kind != WindowRowKind::kReprojection) {
      continue;
    }
    const Blocks params = BlocksOf(ParamsOf(array), i);
    for (int64_t b = params.begin; b < params.end; ++b) {
      if (array.params_place[b] != kUnused) {
        array.params_place[b] = counts.num_intrinsics++;
      }
    }
  }
  counts.num_scales = has_scales_ ? counts.num_rows : 0;
  for (int64_t p = points.begin; p < points.end; ++p) {
    if (point_place_[p] != kUnused && !is_constant_point(p) &&
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

std::string WindowPacker::Write(int64_t i,
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
  const auto doubles = [input](int64_t begin) {
    return reinterpret_cast<double*>(input + begin);
  };
  const auto integers = [input](int64_t begin) {
    return reinterpret_cast<int32_t*>(input + begin);
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
    const RowArray& array = arrays_[e];
    const Residuals& of_array = residuals(array);
    double buffer[WindowRows::kMaxConstants];
    const double* const constants =
        ReadConstants(*array.rows, of_array, k, buffer);
    const int32_t row = next[p]++;
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
  WritePriors(i, at, counts, input);
  WriteMarginals(i, at, counts, input);
  FindPattern(input, window);
  return "";
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
                         const internal::MarginalPriorBase& prior,
                         const int64_t* blocks) {
    // Number in the window and place in the prior.
    std::vector<std::pair<int32_t, int>> cameras;
    bool is_constant = true;
    next.num_varying = 0;
    for (int p = 0; p < prior.num_poses(); ++p) {
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
    next.num_poses = prior.num_poses();
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

// Writes the pattern of L and the lists of its pairs.
void WindowPacker::FindPattern(unsigned char* input,
                               PackedWindow* window) const {
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
