// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/bundle_structure.h"

#include <cxxabi.h>

#include <algorithm>
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
      : id_of_index_(program.NumParameterBlocks(), -1), table_(table) {}

  int32_t Add(const ParameterBlock& block) {
    if (!block.IsConstant()) {
      int32_t& id = id_of_index_[block.index()];
      if (id < 0) {
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

}  // namespace

bool ImportBatch(const Program& program,
                 BatchStructure* structure,
                 std::string* reason) {
  if (!FitsObservationIds(program, reason)) {
    return false;
  }
  const auto& residual_blocks = program.residual_blocks();
  const int num_rows = program.NumResidualBlocks();
  structure->camera_id.reserve(num_rows);
  structure->point_id.reserve(num_rows);
  structure->observations.resize(int64_t{kResidualSize} * num_rows);

  BlockIds camera_ids(program, &structure->cameras);
  BlockIds point_ids(program, &structure->points);
  // One dynamic_cast per run of residual blocks of one type.
  const std::type_info* type = nullptr;
  const BatchModel* model = nullptr;
  for (int i = 0; i < num_rows; ++i) {
    const ResidualBlock& row = *residual_blocks[i];
    const ceres::CostFunction& cost_function = *row.cost_function();
    if (type == nullptr || *type != typeid(cost_function)) {
      type = &typeid(cost_function);
      const auto* batchable =
          dynamic_cast<const BatchableCostFunction*>(&cost_function);
      if (batchable == nullptr) {
        *reason = Row(i) + " has a cost function of another kind (" +
                  TypeName(*type) + "), which Ceres evaluates";
        return false;
      }
      if (model != nullptr && model->kind != batchable->batch_model().kind) {
        *reason = Row(i) + " is of model " + batchable->batch_model().name +
                  ", those before it of model " + model->name +
                  "; a batch has one model";
        return false;
      }
      model = &batchable->batch_model();
      structure->kind = model->kind;
      structure->cameras.ambient_size = model->parameter_block_sizes[0];
      structure->points.ambient_size = model->parameter_block_sizes[1];
    }
    static_cast<const BatchableCostFunction&>(cost_function)
        .CopyConstants(&structure->observations[int64_t{kResidualSize} * i]);
    structure->camera_id.push_back(camera_ids.Add(*row.parameter_blocks()[0]));
    structure->point_id.push_back(point_ids.Add(*row.parameter_blocks()[1]));
    if (row.loss_function() != nullptr) {
      structure->loss.resize(num_rows, nullptr);
      structure->loss[i] = row.loss_function();
    }
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
