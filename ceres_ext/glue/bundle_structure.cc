// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/bundle_structure.h"

#include <cxxabi.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <memory>
#include <typeinfo>
#include <unordered_map>
#include <utility>

#include "ceres/cost_function.h"
#include "ceres/parameter_block.h"
#include "ceres/program.h"
#include "ceres/residual_block.h"

namespace ceres_ext {
namespace {

using ceres::internal::ParameterBlock;
using ceres::internal::Program;
using ceres::internal::ResidualBlock;

constexpr int kResidualSize = 2;
constexpr int kPointSize = 3;
constexpr int kMaxCameraSize = 10;
// The id of a block that is constant or missing.
constexpr int32_t kNone = -1;
// Residual blocks that a thread reads in one go.
constexpr int64_t kRowsPerTask = 1 << 14;

// Columns that the kernels are compiled for.
int PaddedCameraSize(const BlockTable& cameras) {
  return cameras.MaxTangentSize() <= 9 ? 9 : kMaxCameraSize;
}

bool FitsObservationIds(const Program& program, std::string* reason) {
  if (program.NumResidualBlocks() <=
      std::numeric_limits<int32_t>::max() / kResidualSize) {
    return true;
  }
  *reason = "the problem has " + std::to_string(program.NumResidualBlocks()) +
            " residual blocks, more than 32-bit residual offsets can count";
  return false;
}

// The id of a parameter block in its table: by Program index for blocks that
// vary, by address for constant ones (the Program has dropped those).
class BlockIds {
 public:
  BlockIds(const Program& program, BlockTable* table)
      : id_of_index_(program.NumParameterBlocks(), kNone), table_(table) {}

  // The id of the block with this index, kNone where it has none yet or where
  // index is kNone.
  int32_t Find(int32_t index) const {
    return index == kNone ? kNone : id_of_index_[index];
  }

  int32_t Add(const ParameterBlock& block) {
    if (!block.IsConstant()) {
      int32_t& id = id_of_index_[block.index()];
      if (id == kNone) {
        id = table_->size();
        table_->Add(block.state_offset(),
                    block.delta_offset(),
                    block.TangentSize(),
                    block.manifold());
      }
      return id;
    }
    const auto [entry, is_new] =
        id_of_constant_.try_emplace(&block, table_->size());
    if (is_new) {
      table_->AddConstant(block.state());
    }
    return entry->second;
  }

 private:
  std::vector<int32_t> id_of_index_;
  std::unordered_map<const ParameterBlock*, int32_t> id_of_constant_;
  BlockTable* table_;
};

// The type as a C++ programmer writes it.
std::string TypeName(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? name.get() : type.name();
}

std::string Row(int i) { return "residual block " + std::to_string(i); }

// Null where the cost function is no BatchableCostFunction.
const BatchModel* ModelOf(const ResidualBlock& row) {
  const auto* batchable =
      dynamic_cast<const BatchableCostFunction*>(row.cost_function());
  return batchable == nullptr ? nullptr : &batchable->batch_model();
}

// Why row i is not of the batch that begins with a row of model `first`.
std::string WhyRefused(const ResidualBlock& row,
                       int i,
                       const BatchModel* first) {
  const BatchModel* const model = ModelOf(row);
  if (model == nullptr) {
    const ceres::CostFunction& cost_function = *row.cost_function();
    return Row(i) + " has a cost function of another kind (" +
           TypeName(typeid(cost_function)) + "), which Ceres evaluates";
  }
  return Row(i) + " is of model " + model->name +
         ", those before it of model " + first->name +
         "; a batch has one model";
}

// The Program's index of the block, kNone where it is constant.
int32_t IndexIfVarying(const ParameterBlock& block) {
  return block.IsConstant() ? kNone : block.index();
}

}  // namespace

bool ImportBatch(const Program& program,
                 kernels::HostContext* context,
                 BatchStructure* structure,
                 std::string* reason) {
  if (!FitsObservationIds(program, reason)) {
    return false;
  }
  const auto& residual_blocks = program.residual_blocks();
  const int num_rows = program.NumResidualBlocks();
  const BatchModel* const model =
      num_rows > 0 ? ModelOf(*residual_blocks[0]) : nullptr;
  if (model != nullptr) {
    structure->kind = model->kind;
    structure->cameras.ambient_size = model->parameter_block_sizes[0];
    structure->points.ambient_size = model->parameter_block_sizes[1];
  }
  structure->camera_id.resize(num_rows);
  structure->point_id.resize(num_rows);
  structure->observations.resize(int64_t{kResidualSize} * num_rows);

  // Most of the time goes into reaching the blocks in memory, so that is what
  // all threads do; ids are the Program's indices at first.
  std::atomic<int> first_refused{num_rows};
  std::atomic<bool> has_loss{false};
  context->ParallelFor(num_rows, kRowsPerTask, [&](int64_t begin, int64_t end) {
    // One dynamic_cast per run of residual blocks of one type.
    const std::type_info* type = nullptr;
    for (int64_t i = begin; i < end; ++i) {
      const ResidualBlock& row = *residual_blocks[i];
      const ceres::CostFunction& cost_function = *row.cost_function();
      if (type == nullptr || *type != typeid(cost_function)) {
        type = &typeid(cost_function);
        const BatchModel* const other = ModelOf(row);
        if (other == nullptr || other->kind != structure->kind) {
          int first = first_refused;
          while (i < first && !first_refused.compare_exchange_weak(
                                  first, static_cast<int>(i))) {
          }
          return;
        }
      }
      static_cast<const BatchableCostFunction&>(cost_function)
          .CopyConstants(&structure->observations[kResidualSize * i]);
      structure->camera_id[i] = IndexIfVarying(*row.parameter_blocks()[0]);
      structure->point_id[i] = IndexIfVarying(*row.parameter_blocks()[1]);
      if (row.loss_function() != nullptr) {
        has_loss = true;
      }
    }
  });
  if (first_refused < num_rows) {
    *reason = WhyRefused(*residual_blocks[first_refused], first_refused, model);
    return false;
  }
  if (has_loss) {
    structure->loss.resize(num_rows);
    context->ParallelFor(
        num_rows, kRowsPerTask, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            structure->loss[i] = residual_blocks[i]->loss_function();
          }
        });
  }

  // Ids in the order in which rows name the blocks.
  BlockIds camera_ids(program, &structure->cameras);
  BlockIds point_ids(program, &structure->points);
  for (int i = 0; i < num_rows; ++i) {
    const auto id_of = [&](int slot, int32_t index, BlockIds* ids) {
      const int32_t known = ids->Find(index);
      return known != kNone
                 ? known
                 : ids->Add(*residual_blocks[i]->parameter_blocks()[slot]);
    };
    structure->camera_id[i] = id_of(0, structure->camera_id[i], &camera_ids);
    structure->point_id[i] = id_of(1, structure->point_id[i], &point_ids);
  }
  structure->cameras.padded_size = PaddedCameraSize(structure->cameras);
  structure->points.padded_size = kPointSize;
  return true;
}

bool ImportRows(const Program& program,
                int num_eliminate_blocks,
                BundleStructure* structure,
                std::string* reason) {
  if (!FitsObservationIds(program, reason)) {
    return false;
  }
  const auto is_point = [num_eliminate_blocks](const ParameterBlock& block) {
    return num_eliminate_blocks > 0 ? block.index() < num_eliminate_blocks
                                    : block.TangentSize() == kPointSize;
  };

  BlockIds camera_ids(program, &structure->cameras);
  BlockIds point_ids(program, &structure->points);
  // Blocks are numbered in the Program's order, which Ceres has chosen for
  // locality, not in the order in which rows name them.
  for (const ParameterBlock* block : program.parameter_blocks()) {
    const bool point = is_point(*block);
    const int largest = point ? kPointSize : kMaxCameraSize;
    if (block->TangentSize() > largest) {
      *reason = "parameter block " + std::to_string(block->index()) + " has " +
                std::to_string(block->TangentSize()) +
                " tangent dimensions; this library takes at most " +
                std::to_string(largest) +
                (point ? " for an eliminated block" : " for a camera");
      return false;
    }
    (point ? point_ids : camera_ids).Add(*block);
  }

  const int num_rows = program.NumResidualBlocks();
  structure->camera_id.reserve(num_rows);
  structure->point_id.reserve(num_rows);
  for (int i = 0; i < num_rows; ++i) {
    const ResidualBlock& row = *program.residual_blocks()[i];
    if (row.NumResiduals() != kResidualSize) {
      *reason = Row(i) + " has " + std::to_string(row.NumResiduals()) +
                " residuals; this library's linear solver takes 2";
      return false;
    }
    int32_t camera = kNone;
    int32_t point = kNone;
    for (int j = 0; j < row.NumParameterBlocks(); ++j) {
      const ParameterBlock& block = *row.parameter_blocks()[j];
      if (block.IsConstant()) {
        continue;
      }
      int32_t& id = is_point(block) ? point : camera;
      if (id != kNone) {
        *reason = Row(i) + " depends on two " +
                  (is_point(block) ? "eliminated blocks" : "cameras") +
                  "; this library's linear solver takes one";
        return false;
      }
      id = (is_point(block) ? point_ids : camera_ids).Add(block);
    }
    structure->camera_id.push_back(camera);
    structure->point_id.push_back(point);
  }

  // The constant block that stands for a missing partner.
  const auto fill = [](BlockTable* table, std::vector<int32_t>* ids) {
    if (std::find(ids->begin(), ids->end(), kNone) != ids->end()) {
      table->AddConstant(nullptr);
      std::replace(ids->begin(), ids->end(), kNone, table->size() - 1);
    }
  };
  fill(&structure->cameras, &structure->camera_id);
  fill(&structure->points, &structure->point_id);
  structure->cameras.padded_size = PaddedCameraSize(structure->cameras);
  structure->points.padded_size = kPointSize;
  return true;
}

}  // namespace ceres_ext
