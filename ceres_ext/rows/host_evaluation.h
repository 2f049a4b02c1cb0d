// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Rows that Ceres evaluates on threads of the host, in an order that their
// owner chooses.
//
// A cost function that returns false, or whose numbers aren't finite, makes the
// evaluation fail, as in Ceres; so does one that throws. Sums do not depend on
// threads or runs.

#ifndef CERES_EXT_ROWS_HOST_EVALUATION_H_
#define CERES_EXT_ROWS_HOST_EVALUATION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ceres_ext/blocks/block_manifolds.h"
#include "ceres_ext/import/ceres_row.h"
#include "ceres_ext/import/problem_rows.h"
#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

class HostEvaluation {
 public:
  // Rows that a thread evaluates at a time: some tens of microseconds of
  // autodiff.
  static constexpr int64_t kRowsPerTask = 64;

  // rows: their numbers in the problem. is_eliminated: of the blocks that vary.
  // *context outlives the object.
  kernels::Status Setup(std::shared_ptr<const ProblemRows> problem,
                        std::vector<int32_t> rows,
                        const std::vector<uint8_t>& is_eliminated,
                        kernels::HostContext* context);

  // Sets the state that Evaluate reads from then on. It must stay in its place.
  // kNumericalFailure where a manifold fails.
  kernels::Status Publish(const double* host_state);

  // Evaluates rows begin .. end - 1, begin being a multiple of kRowsPerTask.
  // residuals_of, values_of: where those of a row are wanted; empty: nowhere.
  // Cells are written one after the other, the eliminated one first, then the
  // others from value e_values on (0: right behind it), that of a private block
  // last. kNumericalFailure names the first row that can't be evaluated.
  using PlaceOf = std::function<double*(int64_t row)>;
  kernels::Status Evaluate(int64_t begin,
                           int64_t end,
                           bool apply_loss,
                           const PlaceOf& residuals_of,
                           const PlaceOf& values_of,
                           int e_values);

  // 1/2 sum rho over all rows, once they have been evaluated.
  double cost() const;

 private:
  // The places of the values of a row, block by block; null for constant
  // blocks.
  void PlaceCells(int64_t row,
                  int e_values,
                  double* values,
                  std::vector<double*>* jacobians) const;
  // Gives the row's blocks at the state to *evaluation.
  void AddBlocks(int64_t row, CeresRow* evaluation) const;
  // True if row k is evaluated by an object of Ceres.
  bool IsObject(int64_t k) const {
    return !is_object_.empty() && is_object_[k] != 0;
  }

  kernels::HostContext* context_ = nullptr;
  std::shared_ptr<const ProblemRows> problem_;
  std::vector<int32_t> rows_;
  std::vector<int> eliminated_;  // which of the row's blocks is; -1: none
  std::vector<int> private_;     // likewise; empty: no row has one
  const double* state_ = nullptr;
  std::vector<uint8_t> is_object_;  // of few rows; empty: none is
  // The blocks of the rows that have a manifold, and its derivatives at the
  // state: of each block that varies where they begin, -1 without one. Empty:
  // none has one.
  std::vector<BlockManifold> manifolds_;
  std::vector<int64_t> plus_jacobian_begin_;
  kernels::HostBuffer<double> plus_jacobians_;
  kernels::HostBuffer<double> costs_;  // per task
};

}  // namespace ceres_ext

#endif  // CERES_EXT_ROWS_HOST_EVALUATION_H_
