// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Rows that Ceres evaluates on threads of the host, in an order that their
// owner chooses.
//
// A cost function that returns false, or whose numbers aren't finite, makes the
// evaluation fail, as in Ceres; so does one that throws. Sums do not depend on
// threads or runs.

#ifndef CERES_EXT_GLUE_HOST_EVALUATION_H_
#define CERES_EXT_GLUE_HOST_EVALUATION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ceres/cost_function.h"
#include "ceres/parameter_block.h"
#include "ceres_ext/glue/block_manifolds.h"
#include "ceres_ext/glue/problem_rows.h"
#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

// One row after the other by ceres::internal::ResidualBlock::Evaluate, which is
// given objects made for the call: the rows of a problem need have none. Not
// thread safe.
class RowEvaluation {
 public:
  RowEvaluation() = default;
  RowEvaluation(const RowEvaluation&) = delete;
  RowEvaluation& operator=(const RowEvaluation&) = delete;

  // Evaluates what Add has been given since Clear, in this order.
  void Clear();
  // A parameter block at this value. plus_jacobian: the derivative of its
  // manifold, ambient by tangent size, row-major; null: it has no manifold.
  void Add(const double* value,
           int size,
           int tangent_size,
           const double* plus_jacobian);
  // As ResidualBlock::Evaluate; scratch is the object's own.
  bool Evaluate(const ceres::CostFunction& cost_function,
                const LossOfRow& loss,
                bool apply_loss,
                double* cost,
                double* residuals,
                double** jacobians);

 private:
  // A cost function differentiated by tangents: a block of it is as large as
  // its tangent.
  class TangentCostFunction final : public ceres::CostFunction {
   public:
    explicit TangentCostFunction(const RowEvaluation* row) : row_(row) {}
    void Set(const ceres::CostFunction* inner);
    bool Evaluate(double const* const* parameters,
                  double* residuals,
                  double** jacobians) const final;

   private:
    const RowEvaluation* row_;
    const ceres::CostFunction* inner_ = nullptr;
    mutable std::vector<double> values_;
    mutable std::vector<double*> jacobians_;
  };
  struct Block {
    const double* value;
    int size;
    int tangent_size;
    const double* plus_jacobian;
  };

  std::vector<Block> blocks_;
  bool has_manifold_ = false;
  int num_values_ = 0;  // of the blocks
  TangentCostFunction by_tangents_{this};
  std::vector<ceres::internal::ParameterBlock> parameter_blocks_;
  std::vector<ceres::internal::ParameterBlock*> pointers_;
  std::vector<double> scratch_;
};

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

  // What Evaluate reads from then on: the state, which must stay where it is.
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
  // Gives the row's blocks at the state to *evaluation.
  void AddBlocks(int64_t row, RowEvaluation* evaluation) const;

  kernels::HostContext* context_ = nullptr;
  std::shared_ptr<const ProblemRows> problem_;
  std::vector<int32_t> rows_;
  std::vector<int> eliminated_;  // which of the row's blocks is; -1: none
  const double* state_ = nullptr;
  // The blocks of the rows that have a manifold, and its derivatives at the
  // state: of each block that varies where they begin, -1 without one. Empty:
  // none has one.
  std::vector<BlockManifold> manifolds_;
  std::vector<int64_t> plus_jacobian_begin_;
  kernels::HostBuffer<double> plus_jacobians_;
  kernels::HostBuffer<double> costs_;  // per task
};

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_HOST_EVALUATION_H_
