// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Residual blocks that Ceres evaluates on threads of the host, in an order that
// their owner chooses.
//
// A cost function that returns false, or whose numbers aren't finite, makes the
// evaluation fail, as in Ceres; so does one that throws. Sums do not depend on
// threads or runs.

#ifndef CERES_EXT_GLUE_HOST_EVALUATION_H_
#define CERES_EXT_GLUE_HOST_EVALUATION_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "ceres/program.h"
#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

class HostEvaluation {
 public:
  // Rows that a thread evaluates at a time: some tens of microseconds of
  // autodiff.
  static constexpr int64_t kRowsPerTask = 64;

  // rows: positions in the Program. is_eliminated: of its parameter blocks.
  // *program and *context outlive the object.
  kernels::Status Setup(const ceres::internal::Program& program,
                        const std::vector<int32_t>& rows,
                        const std::vector<uint8_t>& is_eliminated,
                        kernels::HostContext* context);

  // Gives the parameter blocks of the rows their part of Ceres's state vector.
  // kNumericalFailure where a manifold fails.
  kernels::Status Publish(const double* host_state);

  // Evaluates rows begin .. end - 1, begin being a multiple of kRowsPerTask.
  // residuals_of, values_of: where those of a row are wanted; empty: nowhere.
  // Cells are written one after the other, the eliminated one first, then the
  // others from value e_values on (0: right behind it). kNumericalFailure names
  // the first row that can't be evaluated.
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
  // Where the values of a row go, block by block; null for constant blocks.
  void PlaceCells(int64_t row,
                  int e_values,
                  double* values,
                  std::vector<double*>* jacobians) const;

  kernels::HostContext* context_ = nullptr;
  std::vector<const ceres::internal::ResidualBlock*> rows_;
  std::vector<int> eliminated_;  // which of the row's blocks is; -1: none
  // Varying parameter blocks of the rows and their state, one after the other:
  // where each begins in it. Ceres's blocks keep its address.
  struct Blocks {
    ceres::internal::Program blocks;
    std::vector<int64_t> begin;
    kernels::HostBuffer<double> state;
  };
  Blocks plain_;   // without a manifold
  Blocks curved_;  // with one
  int64_t scratch_size_ = 0;
  kernels::HostBuffer<double> costs_;    // per task
  kernels::HostBuffer<double> scratch_;  // per thread
};

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_HOST_EVALUATION_H_
