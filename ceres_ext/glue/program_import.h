// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Reads out of a problem (problem_rows.h) what this library needs to know once
// per solve: which residual blocks are observations that it evaluates itself
// and which are evaluated by Ceres, which parameter blocks are eliminated, and
// where blocks stand in Ceres's vectors.
//
// Blocks are put into families (cuda_kernels/structure/block_families.h): the
// points of observations and views, the cameras of each kind of observation,
// and all others by their role and tangent size. Constant blocks of
// observations are blocks of their families without columns; other constant
// blocks are left out.

#ifndef CERES_EXT_GLUE_PROGRAM_IMPORT_H_
#define CERES_EXT_GLUE_PROGRAM_IMPORT_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ceres/loss_function.h"
#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/glue/block_table.h"
#include "ceres_ext/glue/problem_rows.h"
#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres::internal {
class Program;
}  // namespace ceres::internal

namespace ceres_ext {

class CallerState;

// Values in host memory, of its own or of somebody who outlives it.
template <typename T>
class HostArray {
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
  void Refer(int64_t size, const T* data) {
    size_ = size;
    data_ = data;
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
  T* own_data() { return own_.data(); }

 private:
  kernels::HostBuffer<T> own_;
  int64_t size_ = 0;
  const T* data_ = nullptr;
};

// Residual blocks of one batchable cost type.
struct ObservationRows {
  BatchModelKind kind = BatchModelKind::kBalAngleAxis;
  int camera_family = 0;  // of f

  // Per observation, in the order of the rows: places of its blocks in their
  // families, measured image position (2 values) and loss. Points are family 0
  // of e. `loss` is empty when no observation has one, and where all have the
  // same, common_loss.
  HostArray<int32_t> camera_id;
  HostArray<int32_t> point_id;
  HostArray<double> observations;
  std::vector<const ceres::LossFunction*> loss;
  const ceres::LossFunction* common_loss = nullptr;
  // Of each observation what its rho is multiplied by; empty: 1.
  HostArray<double> weights;
  // Of camera_id and point_id, where somebody has asked for it; 0: unknown.
  uint64_t index_hash = 0;

  bool has_loss() const {
    return common_loss != nullptr || !loss.empty() || weights.size() > 0;
  }

  int64_t size() const { return camera_id.size(); }
};

// Residual blocks of two residuals, one point and few other columns, by the
// blocks that they have beside the point (a view,
// cuda_kernels/structure/views.h).
struct ViewStructure {
  // Numbers of the rows, and of each its view and its point, as ObservationRows
  // has it.
  std::vector<int32_t> rows;
  std::vector<int32_t> view_id;
  std::vector<int32_t> point_id;
  // Of each view the indices of its blocks, in the order in which its rows have
  // them.
  std::vector<std::vector<int32_t>> blocks;
  int columns = 0;  // of a view, one of those of stored blocks (model/shape.h)

  int64_t size() const { return static_cast<int64_t>(rows.size()); }
};

struct ProgramStructure {
  // What the structure is of; null where all rows are observations that need
  // nothing of it.
  std::shared_ptr<const ProblemRows> rows;
  // Families of eliminated blocks and of others; padded_size is the number of
  // columns that a family's blocks have in the solver.
  std::vector<BlockTable> e;
  std::vector<BlockTable> f;
  std::vector<ObservationRows> observations;
  ViewStructure views;
  // Other rows, by number.
  std::vector<int32_t> general_rows;
  // Who evaluates those of views and general rows: models of batchable cost
  // functions, and of each row which of them does; kNoModel: Ceres. Empty:
  // Ceres evaluates all.
  static constexpr int16_t kNoModel = -1;
  std::vector<const BatchModel*> models;
  kernels::HostBuffer<int16_t> model_of_row;

  // Sizes of Ceres's tangent, state and residual vectors.
  int num_columns = 0;
  int num_parameters = 0;
  int num_residuals = 0;
  // Where the state is read and written instead of Ceres's; null: Ceres's.
  const CallerState* caller_state = nullptr;

  // Of each parameter block that varies: whether it is eliminated, its family
  // and its place there.
  std::vector<uint8_t> is_eliminated;
  std::vector<int32_t> family;
  std::vector<int32_t> place;

  int64_t num_observations() const;
  // Rows of views and general rows.
  int64_t num_other_rows() const {
    return views.size() + static_cast<int64_t>(general_rows.size());
  }
  // Whether all rows are observations of one batch.
  bool IsOneBatchOfObservations() const {
    return observations.size() == 1 && num_other_rows() == 0;
  }
  int16_t model(int32_t row) const {
    return models.empty() ? kNoModel : model_of_row.data()[row];
  }
};

struct ImportOptions {
  // False: Ceres evaluates all residual blocks.
  bool batch_evaluation = true;
  // False: it evaluates those with cost functions of users, which may read what
  // an EvaluationCallback prepares.
  bool batch_users_functions = true;
  // Whether E is eliminated, or only the part of the unknowns that the points
  // of observations are.
  bool use_schur = true;
  // The first so many parameter blocks are eliminated, as Ceres has ordered
  // them. kPoints: just the points of observations are.
  static constexpr int kPoints = -1;
  int num_eliminate_blocks = kPoints;
};

// Fills *structure, the same for any number of threads. Returns false with a
// sentence in *reason where the problem is not one this library can solve or
// the ordering has to be Ceres's. Throws std::bad_alloc where memory runs out.
bool ImportRows(std::shared_ptr<const ProblemRows> rows,
                const ImportOptions& options,
                kernels::HostContext* context,
                ProgramStructure* structure,
                std::string* reason);
// The same of a Program whose parameter offsets and indices are set.
bool ImportProgram(const ceres::internal::Program& program,
                   const ImportOptions& options,
                   kernels::HostContext* context,
                   ProgramStructure* structure,
                   std::string* reason);

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_PROGRAM_IMPORT_H_
