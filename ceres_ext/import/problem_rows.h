// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The problem that a solve is of, as import and set-up read it: its residual
// blocks (*rows*), each with a parameter block that varies, and the parameter
// blocks. Ceres's reduced Program has an object for each (program_rows.h), a
// problem of arrays has none (array_rows.h).

#ifndef CERES_EXT_IMPORT_PROBLEM_ROWS_H_
#define CERES_EXT_IMPORT_PROBLEM_ROWS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "ceres/cost_function.h"
#include "ceres/loss_function.h"
#include "ceres/manifold.h"
#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

// A parameter block of a row.
struct BlockOfRow {
  static constexpr int32_t kConstant = -1;

  // Among the blocks that vary, in the order of the state; or kConstant.
  int32_t index = kConstant;
  // The value of a constant block, by which it is known; else null.
  const double* constant_value = nullptr;

  bool is_constant() const { return index == kConstant; }
  bool operator==(const BlockOfRow& other) const {
    return index == other.index && constant_value == other.constant_value;
  }
};

// Marks of blocks that vary: others are kOther. A private block has one column
// and is in one row, which may have another eliminated block.
namespace elimination {
inline constexpr uint8_t kOther = 0;
inline constexpr uint8_t kEliminated = 1;
inline constexpr uint8_t kPrivate = 2;
}  // namespace elimination

// A parameter block that varies.
struct VaryingBlock {
  int state_offset = 0;
  int tangent_offset = 0;
  int size = 0;
  int tangent_size = 0;
  const ceres::Manifold* manifold = nullptr;  // null: it has none
};

struct LossOfRow {
  const ceres::LossFunction* loss = nullptr;  // null: none
  // Factor of rho, as of ceres::ScaledLoss; null: 1.
  const double* weight = nullptr;

  double Weight() const { return weight == nullptr ? 1.0 : *weight; }
};

// Rows begin .. end - 1, which have one type of cost function, one model
// (CopyConstants) and one loss, and all of whose blocks vary, without manifolds
// of their own: what is known of each from arrays, in host memory.
struct UniformRows {
  // One per block of a row.
  struct Slot {
    // Row begin + k has block first + number[k], or first + k where number is
    // null, one of num_blocks from `first` on.
    const int32_t* number = nullptr;
    int32_t first = 0;
    int32_t num_blocks = 0;
    int columns = 0;  // of the tangent of each block

    int32_t Block(int64_t k) const {
      return first + (number == nullptr ? static_cast<int32_t>(k) : number[k]);
    }
  };

  int64_t begin = 0;
  int64_t end = 0;
  std::vector<Slot> slots;
  const ceres::LossFunction* loss = nullptr;  // null: none
  const double* weights = nullptr;            // one per row; null: 1
  // The output of CopyConstants of each row, a multiple of 8 bytes.
  const void* constants = nullptr;
  int64_t constants_bytes = 0;

  int64_t size() const { return end - begin; }
};

// Thread safety: const members may be called from any thread.
class ProblemRows {
 public:
  virtual ~ProblemRows() = default;

  // Reads the blocks of all rows on all threads, for BlocksOf: most of the time
  // goes into reaching them in memory. Again where their indices have changed.
  // skipped: uniform rows that are not read, or null. Throws std::bad_alloc.
  void ReadBlocks(kernels::HostContext* context,
                  const UniformRows* skipped = nullptr);
  // The indices of the row's blocks, kConstant of constant ones. After
  // ReadBlocks, of a row that was not skipped.
  class Blocks {
   public:
    Blocks(const int32_t* begin, const int32_t* end)
        : begin_(begin), end_(end) {}
    const int32_t* begin() const { return begin_; }
    const int32_t* end() const { return end_; }
    int size() const { return static_cast<int>(end_ - begin_); }
    int32_t operator[](int j) const { return begin_[j]; }

   private:
    const int32_t* begin_;
    const int32_t* end_;
  };
  Blocks BlocksOf(int64_t row) const {
    const int64_t place = row < skipped_begin_ ? row : row - num_skipped_;
    return {blocks_.data() + FirstBlock(place),
            blocks_.data() + FirstBlock(place + 1)};
  }

  // Sizes of the tangent, state and residual vectors.
  virtual int num_columns() const = 0;
  virtual int num_parameters() const = 0;
  virtual int num_residuals() const = 0;

  // The blocks that vary.
  virtual int32_t num_blocks() const = 0;
  virtual VaryingBlock block(int32_t index) const = 0;

  virtual int64_t size() const = 0;
  virtual int NumResiduals(int64_t row) const = 0;
  virtual int NumBlocks(int64_t row) const = 0;
  virtual BlockOfRow Block(int64_t row, int j) const = 0;
  // Values of the block.
  int BlockSize(int64_t row, int j) const {
    return TypicalCostFunction(row).parameter_block_sizes()[j];
  }
  virtual LossOfRow Loss(int64_t row) const = 0;
  // True if some rows have a weight.
  virtual bool has_weights() const = 0;
  // The row's cost function, or another one of its type.
  virtual const ceres::CostFunction& TypicalCostFunction(int64_t row) const = 0;
  // The row's cost function; *owner keeps one that is made for the caller.
  virtual const ceres::CostFunction* CostFunction(
      int64_t row, std::unique_ptr<const ceres::CostFunction>* owner) const = 0;
  // If that is a BatchableCostFunction, the output of its CopyConstants.
  virtual void CopyConstants(int64_t row, void* constants) const = 0;
  // Ceres's own object of a row, if it has one, evaluates faster than
  // import/ceres_row.h, to the same bits. False also if its loss may have a
  // fault, which only CeresRow finds.
  virtual bool HasObject(int64_t /*row*/) const { return false; }
  // The state of all objects. False if a manifold fails.
  virtual bool SetStateOfObjects(const double* /*state*/) const {
    return false;
  }
  // As CeresRow::Evaluate. scratch: the row's residuals and values.
  virtual bool EvaluateObject(int64_t /*row*/,
                              bool /*apply_loss*/,
                              double* /*cost*/,
                              double* /*residuals*/,
                              double** /*jacobians*/,
                              std::vector<double>* /*scratch*/) const {
    return false;
  }
  // Its place among all residual blocks of the problem, for messages.
  virtual int64_t Number(int64_t row) const = 0;

  // Rows that are known to be uniform, in their order.
  const std::vector<UniformRows>& uniform_rows() const { return uniform_rows_; }
  // Those among which the row is; null: none.
  const UniformRows* FindUniform(int64_t row) const {
    for (const UniformRows& rows : uniform_rows_) {
      if (row >= rows.begin && row < rows.end) {
        return &rows;
      }
    }
    return nullptr;
  }

 protected:
  std::vector<UniformRows>* mutable_uniform_rows() { return &uniform_rows_; }

 private:
  // Writes the indices of the blocks of rows begin .. end - 1 one after the
  // other.
  virtual void CopyBlocks(int64_t begin, int64_t end, int32_t* to) const = 0;

  // place: among the rows that were not skipped.
  int64_t FirstBlock(int64_t place) const {
    return blocks_of_each_ > 0 ? blocks_of_each_ * place
                               : first_block_.data()[place];
  }

  // The rows that were skipped.
  int64_t skipped_begin_ = 0;
  int64_t num_skipped_ = 0;
  // Result of BlocksOf. 0: the rows have different numbers of blocks.
  int64_t blocks_of_each_ = 0;
  kernels::HostBuffer<int64_t> first_block_;
  kernels::HostBuffer<int32_t> blocks_;
  std::vector<UniformRows> uniform_rows_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_IMPORT_PROBLEM_ROWS_H_
