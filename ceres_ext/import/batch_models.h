// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The model that the cost function of a row names
// (ceres_ext/batchable_cost_function.h).

#ifndef CERES_EXT_IMPORT_BATCH_MODELS_H_
#define CERES_EXT_IMPORT_BATCH_MODELS_H_

#include "ceres/cost_function.h"
#include "ceres_ext/batchable_cost_function.h"

namespace ceres_ext {

// Null if the cost function is not a BatchableCostFunction, or one of another
// version of this library, which is logged as a warning.
const BatchModel* FindBatchModel(const ceres::CostFunction& cost_function);

// True if rows of this type need not be evaluated by the host where there is a
// device.
bool HasDeviceForm(const ceres::CostFunction& cost_function);

}  // namespace ceres_ext

#endif  // CERES_EXT_IMPORT_BATCH_MODELS_H_
