// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// *Parts* of pairs of a cluster and a point: those of the same two are one.
#ifndef CERES_EXT_SOLVER_PART_LIST_H_
#define CERES_EXT_SOLVER_PART_LIST_H_

#include <cstdint>

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/coarse_rows.h"
#include "cuda_kernels/structure/index_builder.h"
#include "cuda_kernels/structure/observation_index.h"

namespace ceres_ext::solver {

// In the machine's memory, in the order of (point, cluster).
template <typename Machine>
struct PartList {
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  int32_t num_parts = 0;
  Buffer<int32_t> row;    // of each pair its place in the input, by parts
  Buffer<int32_t> begin;  // of each part in row, and the end
  Buffer<int32_t> cluster;
  Buffer<int32_t> point;

  // number: of each of n pairs its cluster; is overwritten. of_point: its
  // point.
  kernels::Status Setup(int32_t num_clusters,
                        int32_t num_points,
                        int64_t n,
                        int32_t* number,
                        const int32_t* of_point,
                        kernels::IndexBuilder<Machine>* builder,
                        Machine* machine) {
    typename kernels::IndexBuilder<Machine>::Index rows;
    CERES_EXT_RETURN_IF_ERROR(
        builder->Build({num_clusters, num_points, n, number, of_point}, &rows));
    CERES_EXT_RETURN_IF_ERROR(
        Run(kernels::FirstOfPartParams{n, rows.ref(), number}, machine));
    CERES_EXT_RETURN_IF_ERROR(builder->InclusiveSum(n, number, &num_parts));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(n, &row));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(int64_t{num_parts} + 1, &begin));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_parts, &cluster));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_parts, &point));
    CERES_EXT_RETURN_IF_ERROR(
        Run(kernels::ListPartsParams{n,
                                     rows.ref(),
                                     rows.ref().input_id(),
                                     number,
                                     row.data(),
                                     begin.data(),
                                     cluster.data(),
                                     point.data()},
            machine));
    return machine->Synchronize();
  }
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_PART_LIST_H_
