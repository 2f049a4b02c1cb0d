// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Reads out of Ceres's reduced Program what this library needs to know once per
// solve: which residual block joins which camera to which point, where those
// blocks stand in Ceres's vectors and, for a residual batch, the model, the
// constants and the losses.

#ifndef CERES_EXT_GLUE_PROGRAM_IMPORT_H_
#define CERES_EXT_GLUE_PROGRAM_IMPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ceres/loss_function.h"
#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/glue/block_table.h"
#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres::internal {
class Program;
}  // namespace ceres::internal

namespace ceres_ext {

struct BundleStructure {
  BlockTable cameras;  // padded_size 9 or 10
  BlockTable points;   // padded_size 3

  // Per residual block, in the Program's order.
  kernels::HostBuffer<int32_t> camera_id;
  kernels::HostBuffer<int32_t> point_id;

  int64_t num_observations() const { return camera_id.size(); }
};

// A Program whose residual blocks all have one batchable cost type.
struct BatchStructure : BundleStructure {
  BatchModelKind kind = BatchModelKind::kBalAngleAxis;

  // Per residual block, in the Program's order: measured image position
  // (2 values) and loss. `loss` is empty when no residual block has one.
  kernels::HostBuffer<double> observations;
  std::vector<const ceres::LossFunction*> loss;
};

// Fills *structure from a Program whose parameter offsets and indices are set,
// the same for any number of threads. Returns false and names the first
// residual block (and what is wrong with it) in *reason when the Program is not
// a batch this library can evaluate, or says there that memory ran out.
bool ImportBatch(const ceres::internal::Program& program,
                 kernels::HostContext* context,
                 BatchStructure* structure,
                 std::string* reason);

// Fills *structure for residual blocks of any cost type that Ceres evaluates.
// A row has two residuals and at most one point and one camera that are not
// constant. Points are the first num_eliminate_blocks parameter blocks or, with
// num_eliminate_blocks = 0, those whose tangent has 3 dimensions. Rows whose
// partner is constant or missing refer to one constant block added at the end.
bool ImportRows(const ceres::internal::Program& program,
                int num_eliminate_blocks,
                kernels::HostContext* context,
                BundleStructure* structure,
                std::string* reason);

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_PROGRAM_IMPORT_H_
