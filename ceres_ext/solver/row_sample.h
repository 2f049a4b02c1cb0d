// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A sample of rows (ops/row_sample.h), for a second level: its clusters are
// made of the neighbours of cameras, and its split problem is of points by
// clusters.
#ifndef CERES_EXT_SOLVER_ROW_SAMPLE_H_
#define CERES_EXT_SOLVER_ROW_SAMPLE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ceres_ext/solver/part_list.h"
#include "ceres_ext/solver/preconditioner/clusters.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/row_sample.h"
#include "cuda_kernels/structure/index_builder.h"
#include "cuda_kernels/structure/observation_index.h"

namespace ceres_ext::solver {

// Rows that each camera has in a sample: fewer where there are many cameras.
inline int32_t NumSampledRows(int32_t num_cameras) {
  constexpr int32_t kInAll = 1 << 18;
  constexpr int32_t kLeast = 16;
  constexpr int32_t kMost = 128;
  return std::clamp(kInAll / std::max(num_cameras, 1), kLeast, kMost);
}

// per_camera points of each camera, in the machine's memory.
template <typename Machine>
struct PointSample {
  int32_t per_camera = 0;
  int64_t size = 0;
  typename Machine::template Buffer<int32_t> camera;
  typename Machine::template Buffer<int32_t> point;

  kernels::Status Setup(const kernels::ObservationIndexRef& index,
                        int32_t of_camera,
                        Machine* machine) {
    per_camera = of_camera;
    size = int64_t{per_camera} * index.num_cameras;
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(size, &camera));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(size, &point));
    return Run(
        kernels::SamplePointsParams{
            index.num_cameras, per_camera, index, camera.data(), point.data()},
        machine);
  }
};

// StrongestNeighborsParams of an index, in the machine's memory.
template <typename Machine>
kernels::Status FindStrongestNeighbors(
    const kernels::ObservationIndexRef& index,
    int32_t per_camera,
    Machine* machine,
    int32_t* strongest,
    double* strength) {
  using Integers = typename Machine::template Buffer<int32_t>;
  PointSample<Machine> sample;
  CERES_EXT_RETURN_IF_ERROR(sample.Setup(index, per_camera, machine));
  kernels::IndexBuilder<Machine> builder(machine);
  Integers end;
  int32_t num_neighbors = 0;
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(sample.size, &end));
  CERES_EXT_RETURN_IF_ERROR(Run(
      kernels::CountNeighborsParams{
          sample.size, index, sample.point.data(), end.data()},
      machine));
  CERES_EXT_RETURN_IF_ERROR(
      builder.InclusiveSum(sample.size, end.data(), &num_neighbors));
  Integers camera;
  Integers neighbor;
  typename Machine::template Buffer<double> weight;
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_neighbors, &camera));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_neighbors, &neighbor));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_neighbors, &weight));
  CERES_EXT_RETURN_IF_ERROR(
      Run(kernels::ListNeighborsParams{sample.size,
                                       index,
                                       sample.camera.data(),
                                       sample.point.data(),
                                       end.data(),
                                       camera.data(),
                                       neighbor.data(),
                                       weight.data()},
          machine));
  typename kernels::IndexBuilder<Machine>::Index neighbors;
  CERES_EXT_RETURN_IF_ERROR(builder.Build({index.num_cameras,
                                           index.num_cameras,
                                           num_neighbors,
                                           neighbor.data(),
                                           camera.data()},
                                          &neighbors));
  CERES_EXT_RETURN_IF_ERROR(
      Run(kernels::StrongestNeighborsParams{index.num_cameras,
                                            per_camera,
                                            index.camera_begin,
                                            neighbors.ref(),
                                            neighbors.ref().input_id(),
                                            weight.data(),
                                            strongest,
                                            strength},
          machine));
  return machine->Synchronize();
}

// *couplings: of the cameras of an index, the strongest of each, by
//   sum over common points of 1 / (observations of the point - 1)
// of a sample.
template <typename Machine>
kernels::Status ListSampledCouplings(const kernels::ObservationIndexRef& index,
                                     int32_t per_camera,
                                     Machine* machine,
                                     std::vector<Coupling>* couplings) {
  using Strongest = kernels::StrongestNeighborsParams;
  typename Machine::template Buffer<int32_t> strongest;
  typename Machine::template Buffer<double> strength;
  const int64_t num_kept = int64_t{Strongest::kStrongest} * index.num_cameras;
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_kept, &strongest));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_kept, &strength));
  CERES_EXT_RETURN_IF_ERROR(FindStrongestNeighbors(
      index, per_camera, machine, strongest.data(), strength.data()));
  std::vector<int32_t> other(static_cast<size_t>(num_kept));
  std::vector<double> weight(other.size());
  CERES_EXT_RETURN_IF_ERROR(
      machine->Download(num_kept, strongest.data(), other.data()));
  CERES_EXT_RETURN_IF_ERROR(
      machine->Download(num_kept, strength.data(), weight.data()));
  couplings->clear();
  for (size_t i = 0; i < other.size(); ++i) {
    if (other[i] >= 0) {
      const auto camera = static_cast<int32_t>(i / Strongest::kStrongest);
      couplings->push_back(
          {std::min(camera, other[i]), std::max(camera, other[i]), weight[i]});
    }
  }
  return {};
}

// The rows of a split problem: points by the clusters of the cameras that they
// were sampled for, each of which is one point here. In the machine's memory.
template <typename Machine>
struct SplitRows {
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  int64_t num_rows = 0;
  int32_t num_points = 0;         // of the split problem
  Buffer<int32_t> row;            // num_rows: the place in the index
  Buffer<int32_t> camera;         // num_rows
  Buffer<int32_t> point;          // num_rows: of the split problem
  Buffer<int32_t> point_of_part;  // num_points: of the index

  // cluster: of each camera of the index, -1: none.
  kernels::Status Setup(const kernels::ObservationIndexRef& index,
                        int32_t per_camera,
                        const std::vector<int32_t>& cluster,
                        Machine* machine) {
    int32_t num_clusters = 0;
    for (const int32_t of_camera : cluster) {
      num_clusters = std::max(num_clusters, of_camera + 1);
    }
    Buffer<int32_t> of_camera;
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(cluster, &of_camera));
    kernels::IndexBuilder<Machine> builder(machine);
    PartList<Machine> list;
    {
      PointSample<Machine> sample;
      CERES_EXT_RETURN_IF_ERROR(sample.Setup(index, per_camera, machine));
      Buffer<int32_t> number;
      CERES_EXT_RETURN_IF_ERROR(machine->Allocate(sample.size, &number));
      CERES_EXT_RETURN_IF_ERROR(
          Run(kernels::ClusterOfSampleParams{sample.size,
                                             num_clusters,
                                             sample.camera.data(),
                                             of_camera.data(),
                                             number.data()},
              machine));
      // Behind the points what is none.
      CERES_EXT_RETURN_IF_ERROR(list.Setup(num_clusters + 1,
                                           index.num_points + 1,
                                           sample.size,
                                           number.data(),
                                           sample.point.data(),
                                           &builder,
                                           machine));
    }
    const kernels::SampledParts parts = {
        index, of_camera.data(), list.cluster.data(), list.point.data()};
    Buffer<int64_t> end;
    Buffer<int32_t> number;
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(list.num_parts, &end));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(list.num_parts, &number));
    CERES_EXT_RETURN_IF_ERROR(Run(
        kernels::CountPartRowsParams{
            list.num_parts, parts, end.data(), number.data()},
        machine));
    CERES_EXT_RETURN_IF_ERROR(
        builder.InclusiveSum(list.num_parts, end.data(), &num_rows));
    CERES_EXT_RETURN_IF_ERROR(
        builder.InclusiveSum(list.num_parts, number.data(), &num_points));
    for (Buffer<int32_t>* of_row : {&row, &camera, &point}) {
      CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_rows, of_row));
    }
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_points, &point_of_part));
    CERES_EXT_RETURN_IF_ERROR(
        Run(kernels::ListPartRowsParams{list.num_parts,
                                        parts,
                                        end.data(),
                                        number.data(),
                                        row.data(),
                                        camera.data(),
                                        point.data(),
                                        point_of_part.data()},
            machine));
    return machine->Synchronize();
  }
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_ROW_SAMPLE_H_
