// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The diagonal blocks of S of single F blocks, also if F blocks are merged.
#ifndef CERES_EXT_SOLVER_SCHUR_DIAGONAL_H_
#define CERES_EXT_SOLVER_SCHUR_DIAGONAL_H_

#include <cstdint>

#include "ceres_ext/solver/batch.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/manifolds.h"
#include "cuda_kernels/structure/merged_blocks.h"

namespace ceres_ext::solver {

template <typename Machine>
class SchurDiagonal {
 public:
  // Takes all memory.
  kernels::Status Setup(const ProblemBlocks& blocks, Machine* machine) {
    machine_ = machine;
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(blocks.f.num_packed(), &single_));
    if (!blocks.merged.empty()) {
      CERES_EXT_RETURN_IF_ERROR(machine->Upload(
          kernels::PlacesInMerged(blocks.f, blocks.merged, Machine::kLayout),
          &place_in_merged_));
      CERES_EXT_RETURN_IF_ERROR(
          machine->Allocate(blocks.merged.families.num_packed(), &merged_));
    }
    return {};
  }
  // Packed, over ProblemBlocks::f_matrices(), for the owner to fill.
  double* source() {
    return merged_.size() > 0 ? merged_.data() : single_.data();
  }
  // Makes data() of the source, as it is now.
  kernels::Status Update() {
    return Run(kernels::GatherValuesParams{place_in_merged_.size(),
                                           place_in_merged_.data(),
                                           merged_.data(),
                                           single_.data()},
               machine_);
  }
  // Packed, over F's families.
  const double* data() const { return single_.data(); }

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  Machine* machine_ = nullptr;
  Buffer<double> single_;
  // If blocks are merged: theirs, and the places of the values of single_ in
  // it.
  Buffer<double> merged_;
  Buffer<int64_t> place_in_merged_;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_SCHUR_DIAGONAL_H_
