// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/program_import.h"

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
using kernels::Status;

constexpr int kResidualSize = 2;
constexpr int kPointSize = 3;
constexpr int kMaxCameraSize = 10;
// The id of a block that is constant or missing.
constexpr int32_t kNone = -1;
// Residual blocks that a thread reads in one go.
constexpr int64_t kRowsPerTask = 1 << 14;
constexpr int64_t kBlocksPerTask = 1 << 12;

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

// The ids of parameter blocks in a table: by Program index for blocks that
// vary, by address for constant ones (the Program has dropped those).
class BlockIds {
 public:
  explicit BlockIds(const Program& program)
      : program_(program), id_of_index_(program.NumParameterBlocks(), kNone) {}

  // Of the varying block with this index. Does not look at the block.
  int32_t OfIndex(int32_t index) {
    int32_t& id = id_of_index_[index];
    if (id == kNone) {
      id = Append(program_.parameter_blocks()[index]);
    }
    return id;
  }

  int32_t OfConstant(const ParameterBlock* block) {
    const auto [entry, is_new] = id_of_constant_.try_emplace(
        block, static_cast<int32_t>(blocks_.size()));
    if (is_new) {
      Append(block);
    }
    return entry->second;
  }

  void Fill(kernels::HostContext* context, BlockTable* table) const {
    table->Resize(static_cast<int32_t>(blocks_.size()));
    context->ParallelFor(
        table->size(), kBlocksPerTask, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const ParameterBlock& block = *blocks_[i];
            if (block.IsConstant()) {
              table->SetConstant(i, block.state());
            } else {
              table->Set(i,
                         block.state_offset(),
                         block.delta_offset(),
                         block.TangentSize(),
                         block.manifold());
            }
          }
        });
  }

 private:
  int32_t Append(const ParameterBlock* block) {
    blocks_.push_back(block);
    return static_cast<int32_t>(blocks_.size()) - 1;
  }

  const Program& program_;
  std::vector<int32_t> id_of_index_;
  std::unordered_map<const ParameterBlock*, int32_t> id_of_constant_;
  std::vector<const ParameterBlock*> blocks_;  // by id
};

// Room for num_rows ids and observations.
bool AllocateRows(int64_t num_rows,
                  BundleStructure* structure,
                  kernels::HostBuffer<double>* observations,
                  std::string* reason) {
  Status status = structure->camera_id.Allocate(num_rows);
  if (status.ok()) {
    status = structure->point_id.Allocate(num_rows);
  }
  if (status.ok() && observations != nullptr) {
    status = observations->Allocate(kResidualSize * num_rows);
  }
  *reason = status.message;
  return status.ok();
}

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
  if (!AllocateRows(num_rows, structure, &structure->observations, reason)) {
    return false;
  }
  int32_t* const camera_id = structure->camera_id.data();
  int32_t* const point_id = structure->point_id.data();

  // Most of the time goes into reaching the blocks in memory, so that is what
  // all threads do; ids are the Program's indices at first.
  std::atomic<int> first_refused{num_rows};
  std::atomic<bool> has_loss{false};
  context->ParallelFor(num_rows, kRowsPerTask, [&](int64_t begin, int64_t end) {
    // One dynamic_cast per run of residual blocks of one type.
    const std::type_info* type = nullptr;
    bool one_has_loss = false;
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
          .CopyConstants(structure->observations.data() + kResidualSize * i);
      camera_id[i] = IndexIfVarying(*row.parameter_blocks()[0]);
      point_id[i] = IndexIfVarying(*row.parameter_blocks()[1]);
      one_has_loss |= row.loss_function() != nullptr;
    }
    if (one_has_loss) {
      has_loss = true;
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
  BlockIds camera_ids(program);
  BlockIds point_ids(program);
  for (int i = 0; i < num_rows; ++i) {
    const auto id_of = [&](int slot, int32_t index, BlockIds* ids) {
      return index != kNone ? ids->OfIndex(index)
                            : ids->OfConstant(
                                  residual_blocks[i]->parameter_blocks()[slot]);
    };
    camera_id[i] = id_of(0, camera_id[i], &camera_ids);
    point_id[i] = id_of(1, point_id[i], &point_ids);
  }
  camera_ids.Fill(context, &structure->cameras);
  point_ids.Fill(context, &structure->points);
  structure->cameras.padded_size = PaddedCameraSize(structure->cameras);
  structure->points.padded_size = kPointSize;
  return true;
}

bool ImportRows(const Program& program,
                int num_eliminate_blocks,
                kernels::HostContext* context,
                BundleStructure* structure,
                std::string* reason) {
  if (!FitsObservationIds(program, reason)) {
    return false;
  }
  const auto is_point = [num_eliminate_blocks](const ParameterBlock& block) {
    return num_eliminate_blocks > 0 ? block.index() < num_eliminate_blocks
                                    : block.TangentSize() == kPointSize;
  };

  BlockIds camera_ids(program);
  BlockIds point_ids(program);
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
    (point ? point_ids : camera_ids).OfIndex(block->index());
  }

  const int num_rows = program.NumResidualBlocks();
  if (!AllocateRows(num_rows, structure, nullptr, reason)) {
    return false;
  }
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
      id = (is_point(block) ? point_ids : camera_ids).OfIndex(block.index());
    }
    structure->camera_id.data()[i] = camera;
    structure->point_id.data()[i] = point;
  }
  camera_ids.Fill(context, &structure->cameras);
  point_ids.Fill(context, &structure->points);

  // The constant block that stands for a missing partner.
  const auto fill = [num_rows](BlockTable* table, int32_t* ids) {
    int32_t* const end = ids + num_rows;
    int32_t* const first = std::find(ids, end, kNone);
    if (first != end) {
      const int32_t missing = table->size();
      table->Resize(missing + 1);
      table->SetConstant(missing, nullptr);
      std::replace(first, end, kNone, missing);
    }
  };
  fill(&structure->cameras, structure->camera_id.data());
  fill(&structure->points, structure->point_id.data());
  structure->cameras.padded_size = PaddedCameraSize(structure->cameras);
  structure->points.padded_size = kPointSize;
  return true;
}

}  // namespace ceres_ext
