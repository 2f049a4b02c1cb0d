// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The result of an import (import_rows.h): the rows that are observations,
// those seen from views and the others, and the families of the parameter
// blocks.
//
// Blocks are put into families (cuda_kernels/structure/block_families.h): the
// points of observations and views, the cameras of each kind of observation,
// and all others by their role and tangent size. Constant blocks of
// observations are blocks of their families without columns; other constant
// blocks are left out.

#ifndef CERES_EXT_IMPORT_PROBLEM_STRUCTURE_H_
#define CERES_EXT_IMPORT_PROBLEM_STRUCTURE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ceres/loss_function.h"
#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/import/block_table.h"
#include "ceres_ext/import/problem_rows.h"
#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/base/status.h"

namespace ceres_ext {

class CallerState;

// Columns of the points of observations.
inline constexpr int kPointSize = 3;

// Values in host memory, of its own or of somebody who outlives it; of the
// latter, in the memory of the device if on_device().
template <typename T>
class InputArray {
 public:
  kernels::Status Allocate(int64_t size) {
    CERES_EXT_RETURN_IF_ERROR(own_.Allocate(size));
    Refer(size, own_.data());
    return {};
  }
  void Take(kernels::HostBuffer<T> values) {
    own_ = std::move(values);
    Refer(own_.size(), own_.data());
  }
  void Refer(int64_t size, const T* data, bool on_device = false) {
    size_ = size;
    data_ = data;
    on_device_ = on_device;
  }
  // Its own from then on.
  kernels::Status Own() {
    if (own_.data() == data_) {
      return {};
    }
    const T* const from = data_;
    CERES_EXT_RETURN_IF_ERROR(Allocate(size_));
    std::copy_n(from, size_, own_.data());
    return {};
  }

  int64_t size() const { return size_; }
  const T* data() const { return data_; }
  bool on_device() const { return on_device_; }
  T* own_data() { return own_.data(); }

 private:
  kernels::HostBuffer<T> own_;
  int64_t size_ = 0;
  const T* data_ = nullptr;
  bool on_device_ = false;
};

// Residual blocks of one batchable cost type.
struct ObservationTable {
  BatchModelKind kind = BatchModelKind::kBalAngleAxis;
  int camera_family = 0;  // of f

  // Per observation, in the order of the rows: places of its blocks in their
  // families, measured image position (2 values) and loss. Points are family 0
  // of e. `loss` is empty when no observation has one, and where all have the
  // same, common_loss.
  InputArray<int32_t> camera_id;
  InputArray<int32_t> point_id;
  InputArray<double> observations;
  std::vector<const ceres::LossFunction*> loss;
  const ceres::LossFunction* common_loss = nullptr;
  // The factor of rho for each observation; empty for 1.
  InputArray<double> weights;
  // Hash of camera_id and point_id, if it was requested; 0 if unknown.
  uint64_t index_hash = 0;

  bool has_loss() const {
    return common_loss != nullptr || !loss.empty() || weights.size() > 0;
  }

  int64_t size() const { return camera_id.size(); }
};

// Residual blocks of two residuals, one point and few other columns, by the
// blocks that they have beside the point (a view,
// cuda_kernels/structure/views.h). Or of three residuals, one point, one other
// block of up to three columns and a private block, which is not of the view:
// rows of directions (cuda_kernels/model/nested_jacobian.h). All rows are then
// rows of directions; the last two blocks of some may be constant.
struct ViewStructure {
  bool has_private = false;
  int num_residuals() const { return has_private ? 3 : 2; }

  // Numbers of the rows, and of each its view and its point, as
  // ObservationTable has it. rows: empty if they come one after the other, from
  // first_row on.
  kernels::HostBuffer<int32_t> rows;
  int64_t first_row = 0;
  // If they are these rows, in their order; null: they are not.
  const UniformRows* uniform = nullptr;
  InputArray<int32_t> view_id;
  InputArray<int32_t> point_id;
  // During an import, if point_id is still empty: the points of these rows.
  const UniformRows::Slot* uniform_points = nullptr;
  // For each view the indices of its blocks, in the order of its rows.
  std::vector<std::vector<int32_t>> blocks;
  int columns = 0;  // of a view, one of those of stored blocks (model/shape.h)
  // Hash of view_id and point_id, if it was requested; 0 if unknown.
  uint64_t index_hash = 0;

  int64_t size() const { return view_id.size(); }
  int32_t row(int64_t k) const {
    return rows.size() == 0 ? static_cast<int32_t>(first_row + k)
                            : rows.data()[k];
  }
};

// Values of a state that have bounds, which x (+) delta is projected onto:
// lower[i] <= the value at index[i] <= upper[i]. No index occurs twice.
struct StateBounds {
  std::vector<int32_t> index;
  std::vector<double> lower;
  std::vector<double> upper;

  void Add(int32_t at, double from, double to) {
    index.push_back(at);
    lower.push_back(from);
    upper.push_back(to);
  }
  void Append(const StateBounds& other) {
    index.insert(index.end(), other.index.begin(), other.index.end());
    lower.insert(lower.end(), other.lower.begin(), other.lower.end());
    upper.insert(upper.end(), other.upper.begin(), other.upper.end());
  }
};

struct ProblemStructure {
  // The source of the structure; null if all rows are observations that need
  // nothing from it.
  std::shared_ptr<const ProblemRows> rows;
  // Families of eliminated blocks and of others; padded_size is the number of
  // columns that a family's blocks have in the solver.
  std::vector<BlockTable> e;
  std::vector<BlockTable> f;
  std::vector<ObservationTable> observations;
  ViewStructure views;
  // Other rows, by number.
  std::vector<int32_t> general_rows;
  // The evaluators of views and general rows: models of batchable cost
  // functions, and the model of each row; kNoModel for Ceres. Empty: Ceres
  // evaluates all.
  static constexpr int16_t kNoModel = -1;
  std::vector<const BatchModel*> models;
  kernels::HostBuffer<int16_t> model_of_row;

  // Sizes of Ceres's tangent, state and residual vectors.
  int num_columns = 0;
  int num_parameters = 0;
  int num_residuals = 0;
  // If several ranks solve: the part of the state and of tangent vectors that
  // only this rank has, in one piece; all of the rest all ranks have.
  struct Range {
    int begin = 0;
    int end = 0;
  };
  Range own_state;
  Range own_columns;
  // The place from which the state is read and to which it is written; null for
  // Ceres's.
  const CallerState* caller_state = nullptr;
  StateBounds bounds;
  // Some values that vary have bounds, on any rank.
  bool is_constrained = false;
  // The couplings of S, if they are known; -1: they are not.
  double num_couplings = -1.0;

  // The family of e of private blocks; -1: there are none.
  int private_family = -1;
  // For each parameter block that varies: whether it is eliminated (the marks
  // of problem_rows.h), its family and its place there.
  std::vector<uint8_t> is_eliminated;
  kernels::HostBuffer<int32_t> family;
  kernels::HostBuffer<int32_t> place;

  int64_t num_observations() const {
    int64_t sum = 0;
    for (const ObservationTable& rows : observations) {
      sum += rows.size();
    }
    return sum;
  }
  // Rows of views and general rows.
  int64_t num_other_rows() const {
    return views.size() + static_cast<int64_t>(general_rows.size());
  }
  // True if all rows are observations of one batch.
  bool IsOneBatchOfObservations() const {
    return observations.size() == 1 && num_other_rows() == 0;
  }
  int16_t model(int32_t row) const {
    return models.empty() ? kNoModel : model_of_row.data()[row];
  }
};

inline BlockTable::Entry EntryOf(const VaryingBlock& block) {
  return {block.state_offset,
          block.tangent_offset,
          block.tangent_size,
          nullptr,
          block.manifold};
}

// Sizes of residuals, of eliminated and of other blocks in the rows that have
// an eliminated block, as Ceres detects them; "d" where they differ.
std::string SchurStructure(const ProblemStructure& structure);

}  // namespace ceres_ext

#endif  // CERES_EXT_IMPORT_PROBLEM_STRUCTURE_H_
