// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The rows of a batch with a stored Jacobian, in the order of their index. Two
// kinds:
//
//   general rows   of any shape; their Jacobian is a general batch
//                  (ceres_ext/solver/general_batch.h);
//   view rows      of two residuals, one point and any other blocks, as
//                  observations of views: their Jacobian has the layout and the
//                  operations of observations (ceres_ext/solver/view_batch.h).
//
// Rows whose cost function has a batched form on the machine are evaluated by
// it into the Jacobian (model_evaluator.h), others by Ceres on threads of the
// host (host_evaluation.h), *host rows*, whose values then go to the machine.

#ifndef CERES_EXT_ROWS_ROW_GROUPS_EVALUATOR_H_
#define CERES_EXT_ROWS_ROW_GROUPS_EVALUATOR_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ceres_ext/blocks/block_manifolds.h"
#include "ceres_ext/blocks/machine_problem.h"
#include "ceres_ext/rows/batch_evaluator.h"
#include "ceres_ext/rows/host_evaluation.h"
#include "ceres_ext/rows/model_evaluator.h"
#include "ceres_ext/summary.h"
#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_context.h"
#include "cuda_kernels/ops/block_rows.h"

namespace ceres_ext {

// The inputs of an evaluator of such rows; everything except the structure
// outlives it.
template <typename Machine>
struct RowGroupsInput {
  const ProblemStructure* structure = nullptr;  // what blocks was set up from
  const MachineProblem<Machine>* blocks = nullptr;
  kernels::HostContext* host_context = nullptr;
  Summary* summary = nullptr;
  // For each model of the structure the result of WhyNoForm.
  std::vector<std::string> why_no_form;
  std::set<std::string>* notes = nullptr;  // Session::notes
  bool mixed_precision = false;
  // The Jacobian of the rows of views is recomputed (WhyStored).
  bool recomputed_views = false;
};

// The reason why the Jacobian of the rows of views is not recomputed on the
// machine, a part of a sentence; empty if it can be, by kernels of *columns
// columns a view.
template <typename Machine>
std::string WhyStored(const ProblemStructure& structure,
                      const std::vector<std::string>& why_no_form,
                      kernels::HostContext* host_context,
                      Machine* machine,
                      int* columns);

template <typename Machine>
kernels::Status CreateGeneralEvaluator(const RowGroupsInput<Machine>& input,
                                       std::unique_ptr<BatchEvaluator>* rows);
template <typename Machine>
kernels::Status CreateViewEvaluator(const RowGroupsInput<Machine>& input,
                                    std::unique_ptr<BatchEvaluator>* rows);

// Values of host rows on their way into an array on a machine, where each row
// has a range: one row after the other, here and across.
template <typename Machine>
class HostRanges {
 public:
  // The ranges are the whole array, in the order of the rows.
  kernels::Status Setup(int64_t num_values) {
    return values_.Allocate(num_values);
  }
  // Row i has size[i] values from first[i] on.
  kernels::Status Setup(const std::vector<int64_t>& first,
                        const std::vector<int64_t>& size,
                        Machine* machine) {
    begin_.assign(1, 0);
    for (const int64_t n : size) {
      begin_.push_back(begin_.back() + n);
    }
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(first, &first_));
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(begin_, &machine_begin_));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(begin_.back(), &machine_values_));
    return values_.Allocate(begin_.back());
  }

  // The place of row i, whose range begins at `first`.
  double* At(int64_t i, int64_t first) {
    return values_.data() + (begin_.empty() ? first : begin_[i]);
  }
  kernels::Status Send(double* array, Machine* machine) {
    if (begin_.empty()) {
      return machine->Upload(values_.size(), values_.data(), array);
    }
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(
        values_.size(), values_.data(), machine_values_.data()));
    return kernels::Run(
        kernels::CopyRangesParams{static_cast<int64_t>(begin_.size()) - 1,
                                  machine_begin_.data(),
                                  first_.data(),
                                  machine_values_.data(),
                                  array},
        machine);
  }

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  // The beginning of each row in the values, and then the end; empty if in
  // place.
  std::vector<int64_t> begin_;
  kernels::HostBuffer<double> values_;
  Buffer<double> machine_values_;
  Buffer<int64_t> machine_begin_;
  Buffer<int64_t> first_;
};

// The base class of both kinds. Host rows are evaluated in chunks, of which one
// goes to a device while the next is evaluated.
template <typename Machine>
class RowGroupsEvaluator : public BatchEvaluator {
 public:
  int64_t num_residuals() const final { return num_residuals_; }
  // Host rows are numbered by themselves in the order of the index.
  int64_t num_host_rows() const final { return num_host_rows_; }
  kernels::Status Evaluate(const EvaluationRequest& request) final;
  kernels::Status Read(kernels::Evaluation* evaluation) final;

 protected:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;
  static constexpr int64_t kOneChunk = std::numeric_limits<int64_t>::max() / 2;

  // Properties of the rows of one model, given by the kind.
  using ModelInput = typename ModelEvaluator<Machine>::Input;
  using DescribeModel =
      std::function<kernels::Status(RowBlocks* blocks,
                                    kernels::HostBuffer<RowBlock>* points,
                                    ModelInput* input)>;

  // rows: their numbers in the problem, in the order of the index. chunk: host
  // rows in one. e_values: see HostEvaluation::Evaluate. point_id: RowBatch's.
  // describe fills what a ModelInput says of blocks, rows and place being set,
  // and points, once, unless SetupUniformPoints has been called.
  kernels::Status SetupRows(const RowGroupsInput<Machine>& input,
                            const InputArray<int32_t>& rows,
                            int64_t num_residuals,
                            int64_t chunk,
                            int e_values,
                            const int32_t* point_id,
                            const DescribeModel& describe);
  // The same of uniform rows that a model evaluates; input_id: of each place
  // the row's number among them, in the machine's memory.
  kernels::Status SetupUniformRows(const RowGroupsInput<Machine>& input,
                                   const UniformRows& rows,
                                   const int32_t* input_id,
                                   int64_t num_residuals,
                                   const int32_t* point_id,
                                   const DescribeModel& describe);
  // Makes RowBatch::points of a uniform table on the machine.
  kernels::Status SetupUniformPoints(const kernels::BlockTableRef& table,
                                     Machine* machine);
  bool has_uniform_points() const { return points_.size() > 0; }

  const MachineProblem<Machine>& blocks() const { return *blocks_; }
  Machine* machine() const { return blocks_->machine(); }
  bool has_models() const { return !models_.empty(); }
  const ModelEvaluator<Machine>& model_evaluator(int i) const {
    return *models_[i];
  }
  int64_t num_tangents() const { return manifolds_.num_tangents(); }

  // The places of host rows in the index, on the host and on the machine; empty
  // and null if all rows are host rows.
  const std::vector<int32_t>& host_place() const { return host_place_; }
  const int32_t* machine_host_place() const {
    return machine_host_place_.data();
  }
  int64_t PlaceOf(int64_t host_row) const {
    return host_place_.empty() ? host_row : host_place_[host_row];
  }

  // Ranges of the host rows in an array of all rows' values: of the row at a
  // place, where it begins and how long it is.
  template <typename First, typename Size>
  kernels::Status SetupRanges(int64_t num_values,
                              const First& first_of,
                              const Size& size_of,
                              HostRanges<Machine>* ranges) const {
    if (host_place_.empty()) {
      return ranges->Setup(num_values);
    }
    std::vector<int64_t> first;
    std::vector<int64_t> size;
    for (const int32_t place : host_place_) {
      first.push_back(first_of(place));
      size.push_back(size_of(place));
    }
    return ranges->Setup(first, size, machine());
  }

  // The rows own the points.
  bool owns_points_ = false;
  // RowBatch's, before the set-up of rows.
  const int32_t* own_block_ = nullptr;
  const int32_t* own_state_ = nullptr;

 private:
  // For the row at a place of the index.
  virtual int64_t FirstResidual(int64_t place) const = 0;
  // The place to which Ceres writes the values of the chunk from host row
  // `begin` on.
  virtual HostEvaluation::PlaceOf ValuesOf(int64_t begin,
                                           BatchJacobian* jacobian) = 0;
  // Brings the chunk begin .. end - 1 from there into the Jacobian.
  virtual kernels::Status Store(int64_t begin,
                                int64_t end,
                                BatchJacobian* jacobian) = 0;
  // Fills e, f and stores_float.
  virtual void SetCells(BatchJacobian* jacobian, RowBatch* rows) = 0;
  // After the models have evaluated what the Jacobian belongs to.
  virtual kernels::Status KeepState(BatchJacobian* /*jacobian*/) { return {}; }

  // By model the rows of the places that have one; model_of_place: empty if all
  // have that of the first.
  static kernels::Status SplitByModel(
      const ProblemStructure& structure,
      const InputArray<int32_t>& rows,
      const std::vector<int16_t>& model_of_place,
      std::vector<ModelInput>* of_model);
  kernels::Status SetupModels(const RowGroupsInput<Machine>& input,
                              std::vector<ModelInput> of_model,
                              const int32_t* point_id,
                              const DescribeModel& describe);
  kernels::Status EvaluateHostRows(const EvaluationRequest& request,
                                   double* machine_residuals);
  kernels::Status EvaluateModels(const EvaluationRequest& request,
                                 double* machine_residuals);
  kernels::Status EvaluateChunks(const EvaluationRequest& request,
                                 const HostEvaluation::PlaceOf& residuals_of);

  const MachineProblem<Machine>* blocks_ = nullptr;
  Summary* summary_ = nullptr;
  HostEvaluation evaluation_;
  int64_t num_host_rows_ = 0;
  int64_t num_residuals_ = 0;
  int64_t chunk_ = 0;
  int e_values_ = 0;
  std::vector<int32_t> host_place_;
  Buffer<int32_t> machine_host_place_;
  HostRanges<Machine> residuals_;  // Staging memory for the upload to a device.

  std::vector<std::unique_ptr<ModelEvaluator<Machine>>> models_;
  // State that their rows share.
  BlockManifolds<Machine> manifolds_;
  Buffer<double> constant_state_;
  Buffer<RowBlock> points_;  // empty: there are none
};

}  // namespace ceres_ext

#endif  // CERES_EXT_ROWS_ROW_GROUPS_EVALUATOR_H_
