// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The contract between a cost function and the solver that evaluates all its
// residual blocks as one array, a *residual batch*.
//
// A cost function derives from BatchableCostFunction when the solver has a
// batched form of its model. It stays a complete ceres::CostFunction: Evaluate
// works as ever, in stock Ceres too.
//
// Reading a problem in bulk costs one typeid comparison and one virtual call
// per residual block, no dynamic_cast:
//
//   const std::type_info* type = nullptr;
//   for (each residual block, its cost function c) {
//     if (type == nullptr || *type != typeid(*c)) {  // once per run of a type
//       type = &typeid(*c);
//       batchable = dynamic_cast<const BatchableCostFunction*>(c) != nullptr;
//     }
//     if (batchable) {
//       static_cast<const BatchableCostFunction*>(c)->CopyConstants(next);
//     }
//   }
//
// The static_cast is valid for every object of a type once the dynamic_cast
// succeeded for one: that is a property of the type.

#ifndef CERES_EXT_BATCHABLE_COST_FUNCTION_H_
#define CERES_EXT_BATCHABLE_COST_FUNCTION_H_

#include "ceres/cost_function.h"

namespace ceres_ext {

// The models the solver has a batched form of.
enum class BatchModelKind {
  // Camera (rotation vector, t, f, k1, k2), point; constants: the observation.
  kBalAngleAxis,
  // Camera (quaternion w x y z, t, f, k1, k2), point; constants: the same.
  kBalQuaternion,
};

// What all residual blocks of one cost function type have in common. Objects
// of this type have static storage.
struct BatchModel {
  static constexpr int kMaxParameterBlocks = 2;

  // For reports and error messages.
  const char* name;
  BatchModelKind kind;
  int num_residuals;
  int num_parameter_blocks;
  int parameter_block_sizes[kMaxParameterBlocks];
  // Doubles per residual block that CopyConstants writes.
  int num_constants;
};

// Thread safety: all members are const and may be called from any thread.
class BatchableCostFunction : public ceres::CostFunction {
 public:
  // The same object for all cost functions of one dynamic type, valid for the
  // life of the process. It agrees with num_residuals() and
  // parameter_block_sizes().
  virtual const BatchModel& batch_model() const = 0;

  // Writes the num_constants values that set this residual block apart from
  // others of its type, in the order the model's kind defines.
  virtual void CopyConstants(double* constants) const = 0;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_BATCHABLE_COST_FUNCTION_H_
