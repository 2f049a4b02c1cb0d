// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/import/batch_models.h"

#include <typeinfo>

#include "ceres_ext/base/ceres_version.h"

namespace ceres_ext {

const BatchModel* FindBatchModel(const ceres::CostFunction& cost_function) {
  const auto* batchable =
      dynamic_cast<const BatchableCostFunction*>(&cost_function);
  if (batchable == nullptr) {
    return nullptr;
  }
  const BatchModel* const model = &batchable->batch_model();
  if (model->version != kBatchModelVersion) {
    LOG(WARNING) << "The cost function " << typeid(cost_function).name()
                 << " was compiled for version " << model->version
                 << " of batch models, and this library has version "
                 << kBatchModelVersion << ": Ceres evaluates it.";
    return nullptr;
  }
  return model;
}

// Observations of this library need none.
bool HasDeviceForm(const ceres::CostFunction& cost_function) {
  const auto* batchable =
      dynamic_cast<const BatchableCostFunction*>(&cost_function);
  return batchable != nullptr &&
         (batchable->batch_model().kind != BatchModelKind::kOther ||
          batchable->batch_model().GetForm(FormKind::kRows) != nullptr);
}

}  // namespace ceres_ext
