// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The rows of one model (ceres_ext/batchable_cost_function.h) among those of a
// batch with a stored Jacobian: evaluated on the machine, by the model's device
// form on a device and row by row on the threads of the host.

#ifndef CERES_EXT_ROWS_MODEL_EVALUATOR_H_
#define CERES_EXT_ROWS_MODEL_EVALUATOR_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/blocks/block_manifolds.h"
#include "ceres_ext/blocks/loss_model.h"
#include "ceres_ext/import/problem_rows.h"
#include "ceres_ext/import/problem_structure.h"
#include "ceres_ext/rows/batch_evaluator.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

// Rows that a thread of the host works on at a time.
inline constexpr int64_t kEvaluatedRowsPerTask = 1 << 12;

// The reason why rows of the model can't be evaluated on the machine (kRows),
// or their Jacobian recomputed where they can (kRecomputed), a part of a
// sentence; empty if they can.
template <typename Machine>
std::string WhyNoForm(const BatchModel& model, FormKind kind, Machine* machine);

// Evaluates rows, or queues that. jacobian: e and f are wanted.
template <typename Machine>
kernels::Status EvaluateRows(const BatchModel& model,
                             const RowBatch& rows,
                             bool jacobian,
                             Machine* machine,
                             RowSums* sums);

// Queues on a stream of a device that rows are evaluated with derivatives if
// rows.is_wanted says so then.
template <typename Machine>
kernels::Status QueueWantedRows(const BatchModel& model,
                                const RowBatch& rows,
                                void* stream,
                                Machine* machine);

// Parameter blocks as rows see them: what they say of their state and manifold,
// each manifold that is asked for numbered in RowBlock::tangent until Finish.
class RowBlocks {
 public:
  // The block of a problem; size: of its value. column: RowBlock::column.
  RowBlock Make(const ProblemRows& problem,
                const BlockOfRow& block,
                int size,
                int32_t column);

  // The varying blocks with a manifold, by number.
  const std::vector<BlockManifold>& manifolds() const { return manifolds_; }
  // The values of constant blocks.
  const std::vector<double>& constant_state() const { return constant_state_; }

 private:
  std::unordered_map<int32_t, int32_t> number_of_;  // by index
  std::vector<BlockManifold> manifolds_;
  std::unordered_map<const double*, int32_t> constant_of_;  // by value
  std::vector<double> constant_state_;
};

template <typename Machine>
class ModelEvaluator {
 public:
  // The rows, by number. Parts of RowBatch, in host memory: blocks, combination
  // and, for rows of any shape, residual_begin and value_begin.
  struct Input {
    const BatchModel* model = nullptr;
    bool is_recomputed = false;  // The Jacobian is, by FormKind::kRecomputed.
    InputArray<int32_t> rows;    // their numbers in the problem
    std::vector<int32_t> place;  // empty: their numbers
    // In place of rows, place and combination, all in the machine's memory:
    // row i is input_id[i] of these, with machine_combination[i].
    const UniformRows* uniform = nullptr;
    const int32_t* input_id = nullptr;
    const int32_t* machine_combination = nullptr;
    std::vector<RowBlock> blocks;
    kernels::HostBuffer<int32_t> combination;
    std::vector<int32_t> residual_begin;
    std::vector<int64_t> value_begin;

    int64_t size() const {
      return uniform == nullptr ? rows.size() : uniform->size();
    }
    int64_t first_row() const {
      return uniform == nullptr ? rows.data()[0] : uniform->begin;
    }
    int32_t PlaceOf(int64_t i) const {
      return place.empty() ? static_cast<int32_t>(i) : place[i];
    }
  };

  // common: what rows of all models in the batch share, of points, constant
  // state and tangents. problem: of the rows.
  kernels::Status Setup(const Input& input,
                        const RowBatch& common,
                        const ProblemRows& problem,
                        kernels::HostContext* host_context,
                        Machine* machine);

  // Evaluates, or queues that. wanted: state, apply_loss, residuals, e, f and
  // stores_float; others are not read. jacobian: e and f are wanted, or of a
  // recomputed one whether it is finite.
  kernels::Status Evaluate(const RowBatch& wanted, bool jacobian);
  // After Evaluate. kNumericalFailure names the type of the cost function where
  // a row can't be evaluated or isn't finite.
  kernels::Status Read(double* cost);

  const LossModel<Machine>& loss() const { return loss_; }
  const BatchModel& model() const { return *model_; }
  // The last evaluation of Evaluate.
  const RowBatch& batch() const { return batch_; }

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  kernels::Status AllocateConstants(int64_t n, int64_t num_words);
  // Constants, losses and weights of uniform rows.
  kernels::Status SetupUniform(const Input& input,
                               kernels::HostContext* host_context);
  // losses_differ: whether the rows have different ones, of which a list takes
  // memory.
  kernels::Status SetupConstants(const InputArray<int32_t>& rows,
                                 const ProblemRows& problem,
                                 kernels::HostContext* host_context,
                                 bool* losses_differ);
  kernels::Status SetupLosses(const InputArray<int32_t>& rows,
                              const ProblemRows& problem,
                              bool losses_differ,
                              kernels::HostContext* host_context);
  kernels::Status Run(const RowBatch& rows, bool jacobian);

  Machine* machine_ = nullptr;
  const BatchModel* model_ = nullptr;
  bool is_recomputed_ = false;
  std::string type_;
  RowBatch batch_;
  LossModel<Machine> loss_;
  Buffer<int32_t> place_;
  Buffer<RowBlock> blocks_;
  Buffer<int32_t> combination_;
  Buffer<int32_t> residual_begin_;
  Buffer<int64_t> value_begin_;
  Buffer<uint64_t> constants_;
  Buffer<double> squared_norms_;
  typename Machine::template Result<RowSums> sums_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_ROWS_MODEL_EVALUATOR_H_
