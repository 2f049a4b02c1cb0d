// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A problem of arrays as one for each rank (ArrayProblem::Parameters::is_own):
// the blocks of one array are dealt out in their order, with their residual
// blocks, so that each rank has about as many of these.

#ifndef CERES_EXT_FRONT_ARRAY_PARTS_H_
#define CERES_EXT_FRONT_ARRAY_PARTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "ceres_ext/array_problem.h"
#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

// The array to deal out: the largest of at most 3 values per block of which no
// residual block names two. -1: there is none.
int FindOwnArray(const ArrayProblem& problem);

// Refers to the arrays of the problem. Blocks that are dealt out stay in their
// place, and so do all others of the first part; the other parts have copies of
// these. Residual blocks in one piece, as in the order of the blocks that are
// dealt out, are not copied, except the numbers of those blocks.
class ArrayParts {
 public:
  // *problem is valid, in host memory, has residual blocks and outlives the
  // object. own: see FindOwnArray. At most num_parts parts, each with residual
  // blocks. Throws std::bad_alloc.
  ArrayParts(const ArrayProblem* problem,
             int own,
             int num_parts,
             kernels::HostContext* context);
  ArrayParts(const ArrayParts&) = delete;
  ArrayParts& operator=(const ArrayParts&) = delete;

  int size() const { return static_cast<int>(parts_.size()); }
  ArrayProblem* part(int i) { return &parts_[i]->problem; }

 private:
  using Residuals = ArrayProblem::Residuals;

  // The rows of one array of residual blocks that a part has.
  struct Rows {
    int64_t begin = 0;  // in one piece, if they are not listed
    int64_t size = 0;
    bool is_listed = false;
    kernels::HostBuffer<int64_t> rows;

    int64_t Row(int64_t k) const {
      return is_listed ? rows.data()[k] : begin + k;
    }
  };
  // Arrays that a part has of its own.
  struct Arrays {
    std::vector<kernels::HostBuffer<int32_t>> blocks;
    kernels::HostBuffer<double> weights;
    kernels::HostBuffer<char> constants;
    kernels::HostBuffer<ceres::CostFunction*> cost_functions;
  };
  struct Part {
    ArrayProblem problem;
    std::vector<std::vector<double>> values;
    std::vector<std::unique_ptr<Arrays>> arrays;
  };

  // True if its rows are in the order of the blocks that are dealt out.
  bool IsInOrder(const Residuals& residuals) const;
  // Rows before each block that is dealt out: of all arrays, where one is not
  // in order.
  std::vector<int64_t> CountRows() const;
  // The first block of each part, and then the number of blocks.
  std::vector<int64_t> Cut(int num_parts) const;
  void AddParameters(int i, const std::vector<int64_t>& begin);
  // Rows by part.
  std::vector<Rows> Deal(const Residuals& residuals,
                         bool is_in_order,
                         const std::vector<int64_t>& begin) const;
  void AddResiduals(const Residuals& residuals,
                    const Rows& rows,
                    int64_t own_begin,
                    Part* part);

  const ArrayProblem* problem_;
  const int own_;
  kernels::HostContext* context_;
  std::vector<bool> is_in_order_;  // by array of residual blocks
  std::vector<std::unique_ptr<Part>> parts_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_FRONT_ARRAY_PARTS_H_
