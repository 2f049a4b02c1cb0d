// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The rows of a problem of arrays (ceres_ext/array_problem.h), read where the
// arrays are: as those of Ceres's reduced Program of the same blocks, without
// an object for any. Beside the arrays there is an index of 4 B per block of a
// parameter array of which not all blocks vary, or are in one order, and of 4 B
// per row of an array of residual blocks some of which depend on constants
// alone.

#ifndef CERES_EXT_IMPORT_ARRAY_ROWS_H_
#define CERES_EXT_IMPORT_ARRAY_ROWS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ceres_ext/array_problem.h"
#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/import/caller_state.h"
#include "ceres_ext/import/ceres_row.h"
#include "ceres_ext/import/problem_rows.h"
#include "ceres_ext/import/problem_structure.h"
#include "cuda_kernels/machine/communicator.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

// Residual blocks that a thread reads in one go.
inline constexpr int64_t kArrayRowsPerTask = 1 << 16;

// Properties of a parameter array that is on a device, or that an index there
// refers to; is_known is false for others.
struct DeviceArrayFacts {
  bool is_known = false;
  bool are_all_used = false;  // by residual blocks
  // Pairs of residual blocks on one block; -1: not counted.
  double num_couplings = -1.0;
};

int TangentSize(const ArrayProblem::Parameters& parameters, int64_t block);
// The largest of all blocks.
int MaxTangentSize(const ArrayProblem::Parameters& parameters);
bool MayBeConstant(const ArrayProblem::Parameters& parameters);
bool IsConstant(const ArrayProblem::Parameters& parameters, int64_t block);
// The array whose blocks are to be eliminated; -1: none.
int EliminatedArray(const ArrayProblem& problem);
// For each block of a parameter array, true if residual blocks name it; of an
// array that all ranks have, those of any rank. communicator: of all ranks, or
// null. Throws std::runtime_error where that fails.
std::vector<uint8_t> FindUsed(const ArrayProblem& problem,
                              int array,
                              kernels::HostContext* context,
                              kernels::Communicator* communicator);

// A cost function of the first constants; of zeros if these are on a device,
// for its type and sizes. Null: make_cost_function returned null.
std::unique_ptr<ceres::CostFunction> MakeTypicalCostFunction(
    const ArrayProblem::Residuals& residuals);
// Cost function k of an array in host memory. *owner owns it if it was made for
// the call.
const ceres::CostFunction* CostFunctionOf(
    const ArrayProblem::Residuals& residuals,
    int64_t k,
    std::unique_ptr<const ceres::CostFunction>* owner);

class ArrayRows final : public ProblemRows {
 public:
  // *problem is valid and outlives the object.
  explicit ArrayRows(const ArrayProblem* problem,
                     kernels::Communicator* communicator = nullptr);

  // A cost function of an array of residual blocks, null if that is empty.
  const ceres::CostFunction* cost_function(int residuals) const {
    return typical_[residuals];
  }

  // Finds the rows and the blocks that vary, in the order of the arrays.
  void Setup(kernels::HostContext* context);
  // The blocks alone. facts: of arrays on a device, or empty.
  void NumberBlocks(const std::vector<DeviceArrayFacts>& facts,
                    kernels::HostContext* context);
  // The blocks marked come before the others from then on, both in the order of
  // the arrays. is_first: by index so far; empty if none is.
  void Order(const std::vector<uint8_t>& is_first);
  // The blocks of this parameter array come first.
  void OrderFirst(int array);
  // The parameter array that has most of all blocks that vary, of at most
  // max_size columns each, if no residual block names two of it; -1 if there is
  // none. skips_private: arrays of private blocks, as far as numbers of rows
  // say, count for nothing.
  int IndependentArray(int max_size, bool skips_private) const;
  int NumVarying(int array) const;
  // The index of the first block of an array that varies, where these are in
  // one piece, and the place of each block behind it: kConstant if it does not
  // vary, empty if it is the block's number.
  int32_t FirstIndex(int array) const;
  std::vector<int32_t> PlacesOf(int array) const;
  // The places of the blocks of an array, in one piece, in the state and in
  // tangent vectors.
  void FindRanges(int array,
                  ProblemStructure::Range* state,
                  ProblemStructure::Range* columns) const;
  // The cost of the residual blocks that are not rows. False if one can't be
  // evaluated.
  bool FixedCost(bool apply_loss, double* cost) const;
  // The residuals of all residual blocks at the values of the arrays, array by
  // array. False, with array and place of the first in *error, where one can't
  // be evaluated. Needs no Setup.
  bool AllResiduals(bool apply_loss,
                    kernels::HostContext* context,
                    std::vector<double>* values,
                    std::string* error) const;
  // Adds the blocks in their order.
  void AddTo(CallerState* caller_state) const;
  // The bounds of the state.
  StateBounds FindBounds() const;

  // fn(block, tangent offset) of each block of a parameter array that varies.
  template <typename Function>
  void ForEachBlock(int array, Function&& fn) const {
    for (const Segment& segment : segments_) {
      int column = segment.tangent_begin;
      for (int32_t i = 0; segment.array == array && i < segment.num_blocks;
           ++i) {
        fn(segment.Block(i), column);
        column += TangentSize(parameters(array), segment.Block(i));
      }
    }
  }

  int num_columns() const final { return num_columns_; }
  int num_parameters() const final { return num_parameters_; }
  int num_residuals() const final { return num_residuals_; }
  int32_t num_blocks() const final { return num_blocks_; }
  VaryingBlock block(int32_t index) const final;

  int64_t size() const final { return num_rows_; }
  int NumResiduals(int64_t row) const final;
  int NumBlocks(int64_t row) const final;
  BlockOfRow Block(int64_t row, int j) const final;
  LossOfRow Loss(int64_t row) const final;
  bool has_weights() const final { return has_weights_; }
  const ceres::CostFunction& TypicalCostFunction(int64_t row) const final;
  const ceres::CostFunction* CostFunction(
      int64_t row,
      std::unique_ptr<const ceres::CostFunction>* owner) const final;
  void CopyConstants(int64_t row, void* constants) const final;
  int64_t Number(int64_t row) const final;

 private:
  using Parameters = ArrayProblem::Parameters;
  using Residuals = ArrayProblem::Residuals;

  // The rows of one array of residual blocks.
  struct Group {
    int64_t row_begin = 0;
    int64_t number_begin = 0;  // of its residual blocks
    const Residuals* residuals = nullptr;
    const ceres::CostFunction* typical = nullptr;
    int num_residuals = 0;  // of a row
    int64_t num_rows = 0;
    // The residual blocks that are rows, where not all are.
    std::vector<int32_t> kept;

    int64_t ResidualBlock(int64_t row) const {
      const int64_t i = row - row_begin;
      return kept.empty() ? i : kept[i];
    }
  };
  // Blocks of one parameter array, one after the other in the state.
  struct Segment {
    int32_t index_begin;
    int32_t num_blocks;
    int array;
    std::vector<int32_t> blocks;  // ascending; empty: all of the array
    int state_begin;
    int tangent_begin;
    // If manifolds differ, the first column of each block.
    std::vector<int32_t> column_begin;

    int32_t Block(int32_t i) const { return blocks.empty() ? i : blocks[i]; }
  };
  // The index of each block; empty if they all vary, from index_begin on.
  struct Index {
    std::vector<int32_t> of_block;
    int32_t index_begin = 0;

    int32_t Of(int64_t block) const {
      return of_block.empty() ? index_begin + static_cast<int32_t>(block)
                              : of_block[block];
    }
  };

  void CopyBlocks(int64_t begin, int64_t end, int32_t* to) const final;

  const Parameters& parameters(int i) const {
    return problem_->parameters()[i];
  }
  // True if it has one column and as many blocks, constant ones among them, as
  // rows name one.
  bool IsPrivate(int array) const;
  const Group& GroupOf(int64_t row) const;
  static LossOfRow LossOf(const Residuals& residuals, int64_t k);
  BlockOfRow BlockOf(const ArrayProblem::Index& index, int64_t k) const;
  // One residual block at the values of the arrays. values: may be null.
  bool Evaluate(const Residuals& residuals,
                int64_t k,
                bool apply_loss,
                CeresRow* evaluation,
                double* cost,
                double* values) const;
  void FindRows(kernels::HostContext* context);
  // After each change of indices.
  void FindUniformRows();
  // Appends blocks of an array, ascending; all of them; or those of a segment.
  void Append(int array, std::vector<int32_t> blocks);
  void AppendAll(int array);
  void AppendSegment(int array,
                     int32_t num_blocks,
                     std::vector<int32_t> blocks);
  void ForgetOrder();

  const ArrayProblem* problem_;
  kernels::Communicator* communicator_;  // null: there is one rank
  // By array of residual blocks.
  std::vector<const ceres::CostFunction*> typical_;
  std::vector<std::unique_ptr<const ceres::CostFunction>> made_;
  std::vector<Group> groups_;
  std::vector<Segment> segments_;
  std::vector<Index> index_;  // by parameter array
  int64_t num_rows_ = 0;
  int32_t num_blocks_ = 0;
  int num_columns_ = 0;
  int num_parameters_ = 0;
  int num_residuals_ = 0;
  bool has_weights_ = false;
  bool is_in_order_of_arrays_ = false;
};

// True if any array is on a device.
bool HasDeviceArrays(const ArrayProblem& problem);

}  // namespace ceres_ext

#endif  // CERES_EXT_IMPORT_ARRAY_ROWS_H_
