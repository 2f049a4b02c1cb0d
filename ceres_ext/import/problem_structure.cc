// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/import/problem_structure.h"

#include <set>

namespace ceres_ext {

std::string SchurStructure(const ProblemStructure& structure) {
  std::set<int> residuals;
  std::set<int> e;
  std::set<int> f;
  if (structure.num_observations() + structure.views.size() > 0) {
    residuals.insert(structure.views.num_residuals());
    structure.e[0].InsertTangentSizes(&e);
  }
  for (const ObservationTable& rows : structure.observations) {
    structure.f[rows.camera_family].InsertTangentSizes(&f);
  }
  for (const std::vector<int32_t>& view : structure.views.blocks) {
    for (const int32_t b : view) {
      f.insert(structure.rows->block(b).tangent_size);
    }
  }
  for (const int32_t i : structure.general_rows) {
    std::set<int> eliminated;
    std::set<int> others;
    for (const int32_t block : structure.rows->BlocksOf(i)) {
      // Private blocks are gone before E and F.
      if (block != BlockOfRow::kConstant &&
          structure.is_eliminated[block] != elimination::kPrivate) {
        (structure.is_eliminated[block] != 0 ? eliminated : others)
            .insert(structure.rows->block(block).tangent_size);
      }
    }
    if (!eliminated.empty()) {
      residuals.insert(structure.rows->NumResiduals(i));
      e.merge(eliminated);
      f.merge(others);
    }
  }
  std::string text;
  for (std::set<int>* sizes : {&residuals, &e, &f}) {
    sizes->erase(0);  // Constant blocks.
    text += (text.empty() ? "" : ",") +
            (sizes->size() > 1
                 ? std::string("d")
                 : std::to_string(sizes->empty() ? 0 : *sizes->begin()));
  }
  return text;
}

}  // namespace ceres_ext
