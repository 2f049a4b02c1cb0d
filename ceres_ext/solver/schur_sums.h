// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A batch's part of W and F_i'F_j of pairs and crossings
// (cuda_kernels/structure/schur_pairs.h), by formulas of
// cuda_kernels/ops/schur_terms.h.
#ifndef CERES_EXT_SOLVER_SCHUR_SUMS_H_
#define CERES_EXT_SOLVER_SCHUR_SUMS_H_

#include <cstdint>
#include <vector>

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/block_rows.h"
#include "cuda_kernels/ops/schur_terms.h"
#include "cuda_kernels/structure/block_families.h"
#include "cuda_kernels/structure/block_rows.h"
#include "cuda_kernels/structure/observation_index.h"
#include "cuda_kernels/structure/schur_pairs.h"

namespace ceres_ext::solver {

template <typename Machine>
class SchurSums {
 public:
  // Takes the lists of batch number `batch`, and all memory.
  kernels::Status Setup(int batch,
                        const kernels::SchurPairsBuilder& builder,
                        Machine* machine) {
    w_families_ = builder.w_families();
    u_families_ = builder.crossing_families();
    CERES_EXT_RETURN_IF_ERROR(
        kernels::SetupBlockLists(builder.pair_lists(batch), machine, &pairs_));
    CERES_EXT_RETURN_IF_ERROR(kernels::SetupBlockLists(
        builder.crossing_lists(batch), machine, &crossings_));
    return sums_.Reserve({&pairs_, &crossings_}, /*packed=*/false, machine);
  }

  // w += formula; null: not wanted.
  template <typename Formula>
  kernels::Status AddPairs(const Formula& formula,
                           double* w,
                           Machine* machine) {
    return sums_.Add(pairs_, w_families_, formula, w, nullptr, machine);
  }
  template <typename Formula>
  kernels::Status AddCrossings(const Formula& formula,
                               double* u,
                               Machine* machine) {
    return sums_.Add(crossings_, u_families_, formula, u, nullptr, machine);
  }

 private:
  using Lists = typename kernels::BlockSums<Machine>::Lists;

  kernels::BlockFamilies w_families_;
  kernels::BlockFamilies u_families_;
  Lists pairs_;
  Lists crossings_;
  kernels::BlockSums<Machine> sums_;
};

// Calls fn(row, eliminated block, camera or view) for the observations of an
// index, in host memory.
template <typename Machine, typename Function>
kernels::Status ForEachObservation(const kernels::ObservationIndexRef& index,
                                   Machine* machine,
                                   Function&& fn) {
  const int64_t n = index.num_observations;
  std::vector<int32_t> camera(static_cast<size_t>(n));
  std::vector<int32_t> point(static_cast<size_t>(n));
  CERES_EXT_RETURN_IF_ERROR(
      machine->Download(n, index.camera_id, camera.data()));
  CERES_EXT_RETURN_IF_ERROR(machine->Download(n, index.point_id, point.data()));
  for (int64_t k = 0; k < n; ++k) {
    fn(static_cast<int32_t>(k), point[k], camera[k]);
  }
  return {};
}

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_SCHUR_SUMS_H_
