// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/array_import.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <new>
#include <numeric>
#include <utility>

#include "ceres_ext/batchable_cost_function.h"
#include "cuda_kernels/model/shape.h"

namespace ceres_ext {
namespace {

using Parameters = ArrayProblem::Parameters;
using Residuals = ArrayProblem::Residuals;

constexpr int32_t kNone = -1;
constexpr int kPointSize = 3;
constexpr int64_t kRowsPerTask = 1 << 16;
constexpr int64_t kBlocksPerTask = 1 << 14;

// kOther where this library doesn't evaluate observations of that kind.
BatchModelKind KindOf(const Residuals& residuals) {
  if (residuals.make_cost_function == nullptr || residuals.num_blocks == 0) {
    return BatchModelKind::kOther;
  }
  const std::unique_ptr<ceres::CostFunction> cost_function(
      residuals.make_cost_function(residuals.constants));
  const auto* batchable =
      dynamic_cast<const BatchableCostFunction*>(cost_function.get());
  return batchable == nullptr ? BatchModelKind::kOther
                              : batchable->batch_model().kind;
}

// The finaliser of MurmurHash3, a bijection.
uint64_t Mix(uint64_t x) {
  x = (x ^ x >> 33) * 0xff51afd7ed558ccdull;
  x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ull;
  return x ^ x >> 33;
}

// Of both ids of all rows, each at its place: a sum, so that threads may add in
// any order. Not 0.
uint64_t HashOf(const ObservationRows& rows, kernels::HostContext* context) {
  std::atomic<uint64_t> sum{0};
  const int32_t* const camera = rows.camera_id.data();
  const int32_t* const point = rows.point_id.data();
  context->ParallelFor(
      rows.size(), kRowsPerTask, [&](int64_t begin, int64_t end) {
        uint64_t part = 0;
        for (int64_t k = begin; k < end; ++k) {
          const uint64_t ids = uint64_t{static_cast<uint32_t>(camera[k])}
                                   << 32 |
                               static_cast<uint32_t>(point[k]);
          part += Mix(ids + Mix(static_cast<uint64_t>(k)));
        }
        sum += part;
      });
  return sum == 0 ? 1 : sum.load();
}

}  // namespace

void NameWorst(const ArrayProblem& problem, DegenerateBlocks* degenerate) {
  const std::less<const double*> less;
  for (size_t i = 0; i < problem.parameters().size(); ++i) {
    const Parameters& p = problem.parameters()[i];
    if (degenerate->worst != nullptr && !less(degenerate->worst, p.values) &&
        less(degenerate->worst, p.values + p.num_blocks * p.size)) {
      degenerate->worst_parameters = static_cast<int>(i);
      degenerate->worst_block = (degenerate->worst - p.values) / p.size;
    }
  }
}

int ArrayImport::TangentSize(const Parameters& parameters, int64_t block) {
  const ceres::Manifold* const manifold = parameters.ManifoldOf(block);
  return manifold == nullptr ? parameters.size : manifold->TangentSize();
}

bool ArrayImport::IsConstant(const Parameters& parameters, int64_t block) {
  return (parameters.is_constant != nullptr &&
          parameters.is_constant[block] != 0) ||
         TangentSize(parameters, block) == 0;
}

std::string ArrayImport::WhyProblemIsNeeded(
    const ceres::Solver::Options& options) const {
  if (options.minimizer_type != ceres::TRUST_REGION) {
    return "minimizer_type LINE_SEARCH works on a ceres::Problem";
  }
  if (options.trust_region_strategy_type == ceres::DOGLEG) {
    return "trust_region_strategy_type DOGLEG works on a ceres::Problem";
  }
  if (options.use_inner_iterations) {
    return "inner iterations work on a ceres::Problem";
  }
  if (options.linear_solver_ordering != nullptr) {
    return "linear_solver_ordering names the blocks of a ceres::Problem";
  }
  if (options.check_gradients) {
    return "check_gradients works on a ceres::Problem";
  }
  if (!options.trust_region_minimizer_iterations_to_dump.empty()) {
    return "the dumping of problems works on a ceres::Problem";
  }
  int points = kNone;
  std::vector<int> cameras;
  std::vector<BatchModelKind> kinds;
  for (const Residuals& residuals : problem_->residuals()) {
    if (residuals.num_blocks == 0) {
      continue;
    }
    const BatchModelKind kind = KindOf(residuals);
    if (kind == BatchModelKind::kOther) {
      return "not all residual blocks are observations of a "
             "BalReprojectionError or BalQuaternionReprojectionError";
    }
    const int camera_array = residuals.blocks[0].parameters;
    const int point_array = residuals.blocks[1].parameters;
    if (points == kNone) {
      points = point_array;
    }
    if (points != point_array ||
        std::count(kinds.begin(), kinds.end(), kind) > 0) {
      return "observations of one kind, or points, are in several arrays";
    }
    kinds.push_back(kind);
    cameras.push_back(camera_array);
    const auto has_constants = [this](int array) {
      const Parameters& p = parameters(array);
      return p.is_constant != nullptr || p.manifold != nullptr ||
             p.manifolds != nullptr;
    };
    if (has_constants(camera_array) && has_constants(point_array)) {
      for (int64_t k = 0; k < residuals.num_blocks; ++k) {
        if (IsConstant(parameters(camera_array),
                       residuals.blocks[0].BlockOf(k)) &&
            IsConstant(parameters(point_array),
                       residuals.blocks[1].BlockOf(k))) {
          return "residual blocks depend on constant blocks alone";
        }
      }
    }
  }
  return kinds.empty() ? "there are no residual blocks" : "";
}

int64_t ArrayImport::num_values() const {
  int64_t sum = 0;
  for (const Residuals& residuals : problem_->residuals()) {
    int64_t num_columns = 0;
    for (const ArrayProblem::Index& index : residuals.blocks) {
      num_columns += parameters(index.parameters).size;
    }
    sum += 2 * residuals.num_blocks * num_columns;
  }
  return sum;
}

void ArrayImport::NumberBlocks(int array,
                               kernels::HostContext* context,
                               Blocks* blocks) {
  const Parameters& p = parameters(array);
  const auto n = static_cast<int32_t>(p.num_blocks);
  std::vector<uint8_t> is_used(n, 0);
  for (const Residuals& residuals : problem_->residuals()) {
    for (const ArrayProblem::Index& index : residuals.blocks) {
      if (index.parameters != array) {
        continue;
      }
      context->ParallelFor(
          residuals.num_blocks, kRowsPerTask, [&](int64_t begin, int64_t end) {
            for (int64_t k = begin; k < end; ++k) {
              const int64_t block = index.BlockOf(k);
              // Written once, so that threads share the line.
              if (__atomic_load_n(&is_used[block], __ATOMIC_RELAXED) == 0) {
                __atomic_store_n(&is_used[block], 1, __ATOMIC_RELAXED);
              }
            }
          });
    }
  }
  const bool may_be_constant = p.is_constant != nullptr ||
                               p.manifold != nullptr || p.manifolds != nullptr;
  const bool all_are_used =
      std::find(is_used.begin(), is_used.end(), 0) == is_used.end();
  blocks->num_varying = n;
  blocks->num_columns = n * p.size;
  if (all_are_used && !may_be_constant) {
    return;
  }
  blocks->place.assign(n, kNone);
  blocks->num_columns = 0;
  for (int32_t i = 0; i < n; ++i) {
    if (is_used[i] != 0 && !IsConstant(p, i)) {
      blocks->place[i] = static_cast<int32_t>(blocks->order.size());
      blocks->order.push_back(i);
      blocks->num_columns += TangentSize(p, i);
    }
  }
  blocks->num_varying = static_cast<int32_t>(blocks->order.size());
  // Constant blocks in the order in which residual blocks name them.
  for (const Residuals& residuals : problem_->residuals()) {
    for (const ArrayProblem::Index& index : residuals.blocks) {
      for (int64_t k = 0; may_be_constant && index.parameters == array &&
                          k < residuals.num_blocks;
           ++k) {
        const auto i = static_cast<int32_t>(index.BlockOf(k));
        if (blocks->place[i] == kNone) {
          blocks->place[i] = static_cast<int32_t>(blocks->order.size());
          blocks->order.push_back(i);
        }
      }
    }
  }
}

void ArrayImport::FillTable(int array,
                            const Blocks& blocks,
                            kernels::HostContext* context,
                            BlockTable* table) const {
  const Parameters& p = parameters(array);
  const bool all = blocks.place.empty();
  table->ambient_size = p.size;
  table->padded_size = p.size;
  if (all) {
    table->SetUniform(static_cast<int32_t>(p.num_blocks),
                      blocks.state_begin,
                      blocks.column_begin);
    return;
  }
  table->Resize(static_cast<int32_t>(blocks.order.size()));
  // Columns are counted up where manifolds make them differ.
  std::vector<int32_t> column_begin;
  if (p.manifold != nullptr || p.manifolds != nullptr) {
    int32_t column = blocks.column_begin;
    for (int32_t i = 0; i < blocks.num_varying; ++i) {
      column_begin.push_back(column);
      column += TangentSize(p, blocks.order[i]);
    }
  }
  context->ParallelFor(
      table->size(), kBlocksPerTask, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t block = blocks.order[i];
          BlockTable::Entry entry;
          if (i < blocks.num_varying) {
            const auto at = static_cast<int32_t>(i * p.size);
            entry.state_offset = blocks.state_begin + at;
            entry.tangent_offset = column_begin.empty()
                                       ? blocks.column_begin + at
                                       : column_begin[i];
            entry.tangent_size = TangentSize(p, block);
            entry.manifold = p.ManifoldOf(block);
          } else {
            entry.constant_value = p.values + block * p.size;
          }
          table->Set(i, entry);
        }
      });
}

bool ArrayImport::Import(bool wants_hash,
                         kernels::HostContext* context,
                         ProgramStructure* structure,
                         std::string* reason) {
  *structure = ProgramStructure();
  const int num_arrays = static_cast<int>(problem_->parameters().size());
  blocks_.assign(num_arrays, Blocks());
  caller_state_.Clear();
  num_columns_ = 0;
  int num_parameters = 0;
  for (int i = 0; i < num_arrays; ++i) {
    Blocks& blocks = blocks_[i];
    NumberBlocks(i, context, &blocks);
    if (blocks.num_varying == 0) {
      continue;
    }
    blocks.state_begin = num_parameters;
    blocks.column_begin = static_cast<int>(num_columns_);
    const Parameters& p = parameters(i);
    num_parameters += blocks.num_varying * p.size;
    num_columns_ += blocks.num_columns;
    caller_state_.Add(
        p.values,
        p.size,
        p.num_blocks,
        std::vector<int32_t>(
            blocks.order.begin(),
            blocks.order.begin() +
                std::min<int64_t>(blocks.num_varying,
                                  static_cast<int64_t>(blocks.order.size()))));
  }
  if (num_columns_ == 0) {
    *reason = "no parameter block varies";
    return false;
  }
  structure->num_columns = static_cast<int>(num_columns_);
  structure->num_parameters = num_parameters;
  structure->caller_state = &caller_state_;

  const Residuals* any = nullptr;
  for (int kind = 0; kind < 2; ++kind) {
    for (const Residuals& residuals : problem_->residuals()) {
      if (KindOf(residuals) != static_cast<BatchModelKind>(kind)) {
        continue;
      }
      any = &residuals;
      ObservationRows rows;
      rows.kind = static_cast<BatchModelKind>(kind);
      rows.camera_family = static_cast<int>(structure->f.size());
      const int64_t n = residuals.num_blocks;
      structure->num_residuals += static_cast<int>(2 * n);
      const auto read = [&](const ArrayProblem::Index& index,
                            HostArray<int32_t>* ids) {
        const std::vector<int32_t>& place = blocks_[index.parameters].place;
        if (place.empty() && index.block != nullptr) {
          ids->Refer(n, index.block);
          return;
        }
        if (!ids->Allocate(n).ok()) {
          throw std::bad_alloc();  // Nothing else would fit either.
        }
        context->ParallelFor(n, kRowsPerTask, [&](int64_t begin, int64_t end) {
          for (int64_t k = begin; k < end; ++k) {
            const int64_t block = index.BlockOf(k);
            ids->own_data()[k] =
                place.empty() ? static_cast<int32_t>(block) : place[block];
          }
        });
      };
      read(residuals.blocks[0], &rows.camera_id);
      read(residuals.blocks[1], &rows.point_id);
      rows.observations.Refer(2 * n,
                              static_cast<const double*>(residuals.constants));
      rows.common_loss = residuals.loss;
      if (residuals.weights != nullptr) {
        rows.weights.Refer(n, residuals.weights);
      }
      if (wants_hash) {
        rows.index_hash = HashOf(rows, context);
      }
      BlockTable* const table = &structure->f.emplace_back();
      const int array = residuals.blocks[0].parameters;
      FillTable(array, blocks_[array], context, table);
      // Columns that the kernels are compiled for.
      table->padded_size =
          table->MaxTangentSize() <= 9 ? 9 : kernels::kMaxCameraColumns;
      structure->observations.push_back(std::move(rows));
    }
  }
  const int points = any->blocks[1].parameters;
  FillTable(points, blocks_[points], context, &structure->e.emplace_back());
  structure->e[0].padded_size = kPointSize;
  return true;
}

void ArrayImport::FillSummary(ceres::Solver::Summary* summary) const {
  summary->num_parameter_blocks = 0;
  summary->num_parameters = 0;
  summary->num_effective_parameters = 0;
  summary->num_parameter_blocks_reduced = 0;
  summary->num_parameters_reduced = 0;
  summary->num_effective_parameters_reduced = static_cast<int>(num_columns_);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Parameters& p = parameters(static_cast<int>(i));
    const auto n = static_cast<int>(p.num_blocks);
    summary->num_parameter_blocks += n;
    summary->num_parameters += n * p.size;
    if (p.manifolds == nullptr) {
      summary->num_effective_parameters += n * TangentSize(p, 0);
    } else {
      for (int b = 0; b < n; ++b) {
        summary->num_effective_parameters += TangentSize(p, b);
      }
    }
    summary->num_parameter_blocks_reduced += blocks_[i].num_varying;
    summary->num_parameters_reduced += blocks_[i].num_varying * p.size;
  }
  summary->num_residual_blocks = 0;
  for (const Residuals& residuals : problem_->residuals()) {
    summary->num_residual_blocks += static_cast<int>(residuals.num_blocks);
  }
  summary->num_residuals = 2 * summary->num_residual_blocks;
  summary->num_residual_blocks_reduced = summary->num_residual_blocks;
  summary->num_residuals_reduced = summary->num_residuals;
  summary->linear_solver_ordering_used = {
      summary->num_parameter_blocks_reduced};
}

}  // namespace ceres_ext
