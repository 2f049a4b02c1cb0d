// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/session/known_facts.h"

#include <algorithm>
#include <vector>

#include "ceres_ext/base/machines.h"
#include "ceres_ext/base/scoped_seconds.h"
#include "ceres_ext/import/problem_rows.h"
#include "ceres_ext/plan/device_choice.h"
#include "ceres_ext/rows/observation_evaluator.h"
#include "cuda_kernels/machine/cuda_process.h"

namespace ceres_ext {
namespace {

// True if CUDA is started in this process, or there is none.
bool HasContext(int cuda_device) {
  if constexpr (kHasCuda) {
    return kernels::HasRuntimeContext(cuda_device);
  }
  return true;
}

// Couplings of general rows; a row without an eliminated block has one.
double NumGeneralCouplings(const ProblemStructure& structure,
                           kernels::HostContext* context) {
  constexpr int64_t kRowsPerTask = 1 << 10;
  const ProblemRows& rows = *structure.rows;
  std::vector<int32_t> num_rows(structure.is_eliminated.size() + 1, 0);
  context->ParallelFor(static_cast<int64_t>(structure.general_rows.size()),
                       kRowsPerTask,
                       [&](int64_t begin, int64_t end) {
                         for (int64_t i = begin; i < end; ++i) {
                           const int32_t row = structure.general_rows[i];
                           size_t eliminated = num_rows.size() - 1;  // none
                           for (int j = 0; j < rows.NumBlocks(row); ++j) {
                             const int32_t block = rows.Block(row, j).index;
                             if (block != BlockOfRow::kConstant &&
                                 structure.is_eliminated[block] != 0) {
                               eliminated = static_cast<size_t>(block);
                             }
                           }
                           __atomic_fetch_add(
                               &num_rows[eliminated], 1, __ATOMIC_RELAXED);
                         }
                       });
  double num_couplings = num_rows.back();
  num_rows.pop_back();
  for (const double n : num_rows) {
    num_couplings += 0.5 * n * (n + 1.0);
  }
  return num_couplings;
}

// Counted where that takes no time to speak of. Estimates many rows as if all
// blocks had equally many.
double NumCouplings(const ProblemStructure& structure,
                    kernels::HostContext* context) {
  constexpr int64_t kMany = 1 << 23;
  constexpr int64_t kRowsPerTask = 1 << 12;
  int64_t num_blocks = 0;
  for (const BlockTable& table : structure.e) {
    num_blocks += table.size();
  }
  const int64_t n = structure.num_observations() + structure.views.size();
  if (n > kMany) {
    const auto rows = static_cast<double>(n);
    return 0.5 * rows *
           (rows / static_cast<double>(std::max(num_blocks, int64_t{1})) + 1.0);
  }
  std::vector<int32_t> num_rows(num_blocks, 0);
  const auto add = [&](int64_t size, const int32_t* block) {
    context->ParallelFor(size, kRowsPerTask, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        __atomic_fetch_add(&num_rows[block[i]], 1, __ATOMIC_RELAXED);
      }
    });
  };
  for (const ObservationTable& table : structure.observations) {
    add(table.size(), table.point_id.data());
  }
  add(structure.views.size(), structure.views.point_id.data());
  double num_couplings = 0.0;
  for (const double rows : num_rows) {
    num_couplings += 0.5 * rows * (rows + 1.0);
  }
  return num_couplings;
}

// Observations of one kind, or views that share no block, need none.
bool HasPairs(const ProblemStructure& structure) {
  if (!structure.general_rows.empty() ||
      (structure.views.size() > 0 && !structure.observations.empty()) ||
      structure.observations.size() > 1) {
    return true;
  }
  std::vector<int32_t> blocks;
  for (const std::vector<int32_t>& of_view : structure.views.blocks) {
    blocks.insert(blocks.end(), of_view.begin(), of_view.end());
  }
  std::sort(blocks.begin(), blocks.end());
  return std::adjacent_find(blocks.begin(), blocks.end()) != blocks.end();
}

}  // namespace

RowFacts FactsOf(const ProblemStructure& structure) {
  RowFacts facts;
  facts.num_observations = structure.num_observations();
  facts.num_observation_kinds = static_cast<int>(structure.observations.size());
  facts.num_other_rows = structure.num_other_rows();
  facts.num_general_rows = static_cast<int64_t>(structure.general_rows.size());
  facts.has_models = !structure.models.empty();
  facts.num_residuals = structure.num_residuals;
  for (const BlockTable& table : structure.f) {
    facts.num_other_columns += table.NumColumns();
    facts.max_block_columns =
        std::max(facts.max_block_columns, table.MaxTangentSize());
  }
  return facts;
}

void CountCouplings(const ProblemStructure& structure,
                    kernels::HostContext* context,
                    RowFacts* facts) {
  facts->num_couplings = structure.num_couplings >= 0.0
                             ? structure.num_couplings
                             : NumCouplings(structure, context);
  if (!structure.general_rows.empty()) {
    facts->num_couplings += NumGeneralCouplings(structure, context);
  }
  facts->has_pairs = HasPairs(structure);
}

bool KnownFacts::BuildHasCuda() const { return kHasCuda; }

kernels::Status KnownFacts::WhyNoDevice() const {
  if (device_ != nullptr || !why_no_device_.ok()) {
    return why_no_device_;
  }
  const bool has_context = HasContext(options_.cuda_device);
  double seconds = 0.0;
  {
    const ScopedSeconds timer(&seconds);
    why_no_device_ = kept_->GetDevice(options_, num_threads_, &device_);
  }
  if (!has_context && why_no_device_.ok()) {
    context_seconds_ = seconds;
  }
  return why_no_device_;
}

std::string KnownFacts::WhyHost(const SolveWork& work) const {
  // There is no choice, and WhyNoDevice says why.
  return why_no_device_.ok() ? ceres_ext::WhyHost(work, options_.cuda_device)
                             : "";
}

std::string KnownFacts::WhyNoFactorization(SchurFactorizationType type) const {
  return ceres_ext::WhyNoFactorization(type);
}

int KnownFacts::FloatToDoubleRatio() const {
  if constexpr (kHasCuda) {
    return kernels::FloatToDoubleRatio(options_.cuda_device);
  }
  return 0;
}

std::string KnownFacts::WhyNotRecomputed() const {
  for (const ObservationTable& rows : structure_->observations) {
    std::string why =
        ceres_ext::WhyNotRecomputed(rows,
                                    structure_->e[0],
                                    structure_->num_other_rows() > 0,
                                    kept_->host_context(num_threads_));
    if (!why.empty()) {
      return why;
    }
  }
  return "";
}

}  // namespace ceres_ext
