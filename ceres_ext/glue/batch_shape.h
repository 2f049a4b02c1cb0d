// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// What evaluator, Jacobian, linear solver and loop vectors of one batch share:
// the observation index, where blocks stand in Ceres's vectors, and the machine
// (machines.h) whose memory holds both.
//
// In this folder an address of a vector of Ceres's loop (state, step, gradient,
// residuals, ...) is one of the machine's memory.

#ifndef CERES_EXT_GLUE_BATCH_SHAPE_H_
#define CERES_EXT_GLUE_BATCH_SHAPE_H_

#include <cstdint>

#include "ceres_ext/glue/block_table.h"
#include "ceres_ext/glue/program_import.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_context.h"
#include "cuda_kernels/ops/block_table.h"
#include "cuda_kernels/structure/observation_index.h"
#include "cuda_kernels/structure/row_index.h"

namespace ceres_ext {

// A BlockTable in the memory of a machine.
template <typename Machine>
class MachineTable {
 public:
  kernels::Status Upload(const BlockTable& table, Machine* machine);
  const kernels::BlockTableView& view() const { return view_; }
  int64_t bytes() const;

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  kernels::BlockTableView view_;
  Buffer<int32_t> tangent_offset_;
  Buffer<int32_t> tangent_size_;
  Buffer<int32_t> state_offset_;
  Buffer<double> constant_values_;
};

template <typename Machine>
class BatchShape {
 public:
  using Index = kernels::RowIndex<Machine>;

  // Copies the tables of structure and brings its points into the order that
  // the machine wants; observations keep theirs. num_columns, num_parameters:
  // sizes of Ceres's tangent and state vectors. host_context: threads for what
  // is put in order on the host.
  kernels::Status Setup(int num_columns,
                        int num_parameters,
                        const BundleStructure& structure,
                        const typename Index::Options& index_options,
                        kernels::HostContext* host_context,
                        Machine* machine);

  Machine* machine() const { return machine_; }
  const kernels::ObservationIndexView& index() const { return index_.view(); }
  const BlockTable& cameras() const { return cameras_; }
  const BlockTable& points() const { return points_; }
  const kernels::BlockTableView& camera_table() const {
    return camera_table_.view();
  }
  const kernels::BlockTableView& point_table() const {
    return point_table_.view();
  }
  int num_columns() const { return num_columns_; }
  int num_parameters() const { return num_parameters_; }
  int num_residuals() const {
    return static_cast<int>(2 * index().num_observations);
  }
  int64_t bytes() const;

  // padded = Ceres's vector, `padding` where it has no value; and back.
  kernels::Status Gather(const double* vector,
                         double padding,
                         double* camera_padded,
                         double* point_padded) const;
  kernels::Status Scatter(const double* camera_padded,
                          const double* point_padded,
                          double* vector) const;

 private:
  Machine* machine_ = nullptr;
  Index index_;
  BlockTable cameras_;
  BlockTable points_;
  MachineTable<Machine> camera_table_;
  MachineTable<Machine> point_table_;
  int num_columns_ = 0;
  int num_parameters_ = 0;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_BATCH_SHAPE_H_
