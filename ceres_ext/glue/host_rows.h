// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Rows that Ceres evaluates (host_evaluation.h); values and residuals go to the
// machine in the order of the rows' index. Two kinds:
//
//   general rows   of any shape; their Jacobian is a general batch
//                  (ceres_ext/solver/general_batch.h);
//   view rows      of two residuals, one point and any other blocks, as
//                  observations of views: their Jacobian has the layout and the
//                  operations of observations (ceres_ext/solver/view_batch.h).

#ifndef CERES_EXT_GLUE_HOST_ROWS_H_
#define CERES_EXT_GLUE_HOST_ROWS_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "ceres/program.h"
#include "ceres_ext/glue/host_evaluation.h"
#include "ceres_ext/glue/program_blocks.h"
#include "ceres_ext/glue/rows.h"
#include "ceres_ext/summary.h"
#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

// What an evaluator of such rows is made of; everything but the structure
// outlives it.
template <typename Machine>
struct HostRowsInput {
  const ceres::internal::Program* program = nullptr;
  const ProgramStructure* structure = nullptr;  // what blocks was set up from
  const ProgramBlocks<Machine>* blocks = nullptr;
  kernels::HostContext* host_context = nullptr;
  Summary* summary = nullptr;
  bool mixed_precision = false;
};

template <typename Machine>
kernels::Status CreateGeneralRows(const HostRowsInput<Machine>& input,
                                  std::unique_ptr<RowsEvaluator>* rows);
template <typename Machine>
kernels::Status CreateViewRows(const HostRowsInput<Machine>& input,
                               std::unique_ptr<RowsEvaluator>* rows);

// What both kinds have in common. Rows are evaluated in chunks, of which one
// goes to a device while the next is evaluated.
template <typename Machine>
class HostRows : public RowsEvaluator {
 public:
  int64_t num_residuals() const final { return num_residuals_; }
  bool needs_host_state() const final { return true; }
  kernels::Status Evaluate(const RowsRequest& request) final;
  kernels::Status Read(kernels::Evaluation* evaluation) final {
    *evaluation = kernels::Evaluation();
    evaluation->cost = evaluation_.cost();
    return {};
  }

 protected:
  static constexpr int64_t kOneChunk = std::numeric_limits<int64_t>::max() / 2;

  // rows: positions in the Program, in the order of the index. chunk: rows in
  // one. e_values: see HostEvaluation::Evaluate.
  kernels::Status SetupRows(const HostRowsInput<Machine>& input,
                            const std::vector<int32_t>& rows,
                            int64_t num_residuals,
                            int64_t chunk,
                            int e_values);

  const ProgramBlocks<Machine>& blocks() const { return *blocks_; }
  Machine* machine() const { return blocks_->machine(); }
  // Chunks on the host.
  kernels::HostBuffer<double> values_;
  // The rows own the points.
  bool owns_points_ = false;

 private:
  virtual int64_t FirstResidual(int64_t row) const = 0;
  // Where Ceres writes the values of the chunk from row `begin` on.
  virtual HostEvaluation::PlaceOf ValuesOf(int64_t begin,
                                           RowsJacobian* jacobian) = 0;
  // Brings the chunk begin .. end - 1 from there into the Jacobian.
  virtual kernels::Status Store(int64_t begin,
                                int64_t end,
                                RowsJacobian* jacobian) = 0;

  kernels::Status EvaluateChunks(const RowsRequest& request,
                                 const HostEvaluation::PlaceOf& residuals_of);

  const ProgramBlocks<Machine>* blocks_ = nullptr;
  Summary* summary_ = nullptr;
  HostEvaluation evaluation_;
  int64_t num_rows_ = 0;
  int64_t num_residuals_ = 0;
  int64_t chunk_ = 0;
  int e_values_ = 0;
  // What crosses to a device; empty on the host.
  kernels::HostBuffer<double> residuals_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_HOST_ROWS_H_
