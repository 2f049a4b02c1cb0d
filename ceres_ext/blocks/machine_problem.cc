// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/blocks/machine_problem.h"

#include <algorithm>
#include <utility>

#include "ceres_ext/base/machines.h"

namespace ceres_ext {

using kernels::Status;
using solver::ProblemBlocks;

template <typename Machine>
Status FamilyTable<Machine>::Setup(BlockTable table, Machine* machine) {
  table_ = std::move(table);
  const int64_t n = table_.size();
  if (table_.is_uniform()) {
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(n, &state_offset_));
    Buffer<int32_t> order;
    if (!table_.order().empty()) {
      CERES_EXT_RETURN_IF_ERROR(machine->Upload(table_.order(), &order));
    }
    CERES_EXT_RETURN_IF_ERROR(
        kernels::Run(kernels::UniformBlockTableParams{n,
                                                      order.data(),
                                                      table_.ambient_size,
                                                      table_.state_begin(),
                                                      state_offset_.data()},
                     machine));
    view_.tangent_shift = table_.tangent_begin() - table_.state_begin();
  } else {
    CERES_EXT_RETURN_IF_ERROR(
        machine->Upload(table_.tangent_offsets(), &tangent_offset_));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Upload(table_.tangent_sizes(), &tangent_size_));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Upload(table_.state_offsets(), &state_offset_));
  }
  std::vector<double> constants;  // empty: there are none
  for (int64_t i = 0; !table_.is_uniform() && i < n; ++i) {
    if (table_.constant_value(i) != nullptr) {
      constants.resize(n * table_.ambient_size);
      std::copy_n(table_.constant_value(i),
                  table_.ambient_size,
                  constants.data() + i * table_.ambient_size);
    }
  }
  CERES_EXT_RETURN_IF_ERROR(machine->Upload(constants, &constant_values_));
  CERES_EXT_RETURN_IF_ERROR(machine->Upload(table_.held(), &held_));
  view_.num_blocks = table_.size();
  view_.padded_size = table_.padded_size;
  view_.ambient_size = table_.ambient_size;
  view_.tangent_offset = tangent_offset_.data();
  view_.tangent_size = tangent_size_.data();
  view_.state_offset = state_offset_.data();
  view_.constant_values = constant_values_.data();
  view_.held = held_.data();
  return {};
}

template <typename Machine>
Status MachineProblem<Machine>::Setup(bool merge_blocks,
                                      ProblemStructure* structure,
                                      bool recomputed,
                                      bool mixed,
                                      KeptIndex<Machine>* kept_index,
                                      kernels::HostContext* host_context,
                                      Machine* machine) {
  machine_ = machine;
  num_columns_ = structure->num_columns;
  num_parameters_ = structure->num_parameters;
  num_residuals_ = structure->num_residuals;
  for (const BlockTable& table : structure->e) {
    blocks_.e.Add(table.padded_size, table.size());
  }
  for (const BlockTable& table : structure->f) {
    blocks_.f.Add(table.padded_size, table.size());
  }
  blocks_.e_owner.assign(structure->e.size(), ProblemBlocks::kShared);
  blocks_.f_owner.assign(structure->f.size(), ProblemBlocks::kShared);

  if (structure->private_family >= 0) {
    blocks_.e_owner[structure->private_family] = ProblemBlocks::kPrivate;
  }
  // Rows of the points of one batch alone; SetupGeneralRows knows the others.
  if (structure->observations.size() + (structure->views.size() > 0 ? 1 : 0) ==
      1) {
    blocks_.e_owner[0] = 0;
  }
  for (const ObservationTable& rows : structure->observations) {
    blocks_.f_owner[rows.camera_family] =
        static_cast<int>(observations_.size());
    auto batch = std::make_unique<ObservationBlocks<Machine>>();
    batch->camera_family = rows.camera_family;
    const kernels::ObservationPairs pairs = {
        structure->f[rows.camera_family].size(),
        structure->e[0].size(),
        rows.size(),
        rows.camera_id.data(),
        rows.point_id.data()};
    auto index_options = Index::Options::For(recomputed, mixed);
    index_options.cameras_on_device = rows.camera_id.on_device();
    index_options.points_on_device = rows.point_id.on_device();
    KeptIndex<Machine> inputs;
    inputs.hash = rows.index_hash;
    inputs.sizes = pairs;
    inputs.recomputed = recomputed;
    inputs.mixed = mixed;
    CERES_EXT_RETURN_IF_ERROR(
        SetupIndex(inputs,
                   index_options,
                   structure->IsOneBatchOfObservations() ? kept_index : nullptr,
                   host_context,
                   structure,
                   batch.get()));
    observations_.push_back(std::move(batch));
  }
  if (merge_blocks) {
    MergeBlocks(*structure);
  }
  CERES_EXT_RETURN_IF_ERROR(SetupViews(structure, kept_index, host_context));
  if (recomputed && !observations_.empty()) {
    structure->e[0].HoldSubsets();
  }
  e_.resize(structure->e.size());
  f_.resize(structure->f.size());
  for (size_t i = 0; i < e_.size(); ++i) {
    CERES_EXT_RETURN_IF_ERROR(e_[i].Setup(std::move(structure->e[i]), machine));
  }
  for (size_t i = 0; i < f_.size(); ++i) {
    CERES_EXT_RETURN_IF_ERROR(f_[i].Setup(std::move(structure->f[i]), machine));
  }
  for (int i = 0; i < 2; ++i) {
    Buffer* const values = working_values_ + 2 * i;
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(blocks_.e.num_values(), &values[0]));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(blocks_.f.num_values(), &values[1]));
    working_[i] = {values[0].data(), values[1].data()};
  }
  for (const auto& batch : observations_) {
    // Points are the first family (import/problem_structure.h).
    batch->working_points = working_diagonal().e;
    batch->camera_family_table = &f_[batch->camera_family];
    batch->point_family_table = &e_[0];
  }
  if (views_ != nullptr) {
    views_->point_family_table = &e_[0];
    if (views_->private_family >= 0) {
      views_->private_family_table = &e_[views_->private_family];
    }
  }
  return structure->general_rows.empty() ? Status()
                                         : SetupGeneralRows(*structure);
}

template <typename Machine>
Status MachineProblem<Machine>::SetupIndex(
    const KeptIndex<Machine>& inputs,
    typename Index::Options index_options,
    KeptIndex<Machine>* kept_index,
    kernels::HostContext* host_context,
    ProblemStructure* structure,
    ObservationBlocks<Machine>* batch) {
  batch->machine = machine_;
  std::vector<int32_t> point_order;
  if (inputs.hash == 0) {
    kept_index = nullptr;
  }
  if (kept_index != nullptr && !kept_index->IsOf(inputs)) {
    *kept_index = inputs;
  }
  if (kept_index != nullptr && kept_index->row_index != nullptr) {
    batch->row_index = kept_index->row_index;
    point_order = kept_index->point_order;
  } else {
    index_options.keep_point_order = !observations_.empty();
    batch->row_index = std::make_shared<Index>();
    CERES_EXT_RETURN_IF_ERROR(batch->row_index->Setup(
        inputs.sizes, index_options, &point_order, machine_));
    if (kept_index != nullptr) {
      kept_index->row_index = batch->row_index;
      kept_index->point_order = point_order;
    }
  }
  if (point_order.empty()) {
    return {};
  }
  if (structure->IsOneBatchOfObservations()) {
    // No other batch asks for a point by its number.
    structure->e[0].Permute(std::move(point_order), host_context);
    return {};
  }
  constexpr int64_t kBlocksPerTask = 1 << 14;
  const auto num_points = static_cast<int64_t>(point_order.size());
  kernels::HostBuffer<int32_t> place_of_point;
  CERES_EXT_RETURN_IF_ERROR(place_of_point.Allocate(num_points));
  int32_t* const place_of = place_of_point.data();
  host_context->ParallelFor(
      num_points, kBlocksPerTask, [&](int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p) {
          place_of[point_order[p]] = static_cast<int32_t>(p);
        }
      });
  structure->e[0].Permute(std::move(point_order), host_context);
  // The first batch has been indexed.
  for (size_t j = 1; j < structure->observations.size(); ++j) {
    ObservationTable& others = structure->observations[j];
    CERES_EXT_RETURN_IF_ERROR(others.point_id.Own());
    int32_t* const point_id = others.point_id.own_data();
    for (int64_t k = 0; k < others.size(); ++k) {
      point_id[k] = place_of[point_id[k]];
    }
  }
  if (batch != views_.get()) {
    CERES_EXT_RETURN_IF_ERROR(structure->views.point_id.Own());
    int32_t* const point_id = structure->views.point_id.own_data();
    for (int64_t k = 0; k < structure->views.size(); ++k) {
      point_id[k] = place_of[point_id[k]];
    }
  }
  host_context->ParallelFor(
      structure->place.size(), kBlocksPerTask, [&](int64_t begin, int64_t end) {
        for (auto b = static_cast<size_t>(begin); b < static_cast<size_t>(end);
             ++b) {
          if (structure->is_eliminated[b] == elimination::kEliminated &&
              structure->family.data()[b] == 0) {
            structure->place.data()[b] = place_of[structure->place.data()[b]];
          }
        }
      });
  return {};
}

template <typename Machine>
void MachineProblem<Machine>::MergeBlocks(const ProblemStructure& structure) {
  kernels::MergedBlocksBuilder builder(blocks_.f);
  std::vector<kernels::MergedBlocksBuilder::Block> blocks;
  const auto add = [&](int32_t b) {
    blocks.push_back({structure.family.data()[b], structure.place.data()[b]});
  };
  // All rows of a view hold the same.
  for (const std::vector<int32_t>& view : structure.views.blocks) {
    blocks.clear();
    std::for_each(view.begin(), view.end(), add);
    builder.AddRow(blocks);
  }
  for (const int32_t i : structure.general_rows) {
    bool has_eliminated = false;
    blocks.clear();
    for (const int32_t block : structure.rows->BlocksOf(i)) {
      if (block == BlockOfRow::kConstant) {
        continue;
      }
      if (structure.is_eliminated[block] != 0) {
        has_eliminated = true;
      } else {
        add(block);
      }
    }
    if (has_eliminated) {
      builder.AddRow(blocks);
    }
  }
  // The cameras of observations are blocks of their own already.
  std::vector<bool> may_merge;
  for (const int owner : blocks_.f_owner) {
    may_merge.push_back(owner == ProblemBlocks::kShared);
  }
  blocks_.merged = builder.Build(may_merge);
}

template <typename Machine>
Status MachineProblem<Machine>::SetupViews(ProblemStructure* structure,
                                           KeptIndex<Machine>* kept_index,
                                           kernels::HostContext* host_context) {
  const ViewStructure& rows = structure->views;
  if (rows.size() == 0) {
    return {};
  }
  views_ = std::make_unique<ObservationBlocks<Machine>>();
  const auto num_views = static_cast<int32_t>(rows.blocks.size());
  // The blocks are stored, whatever those of observations are.
  auto index_options =
      Index::Options::For(/*recomputed=*/false, /*in_float=*/false);
  index_options.max_columns = rows.columns;
  KeptIndex<Machine> inputs;
  inputs.hash = rows.index_hash;
  inputs.sizes = {num_views,
                  structure->e[0].size(),
                  rows.size(),
                  rows.view_id.data(),
                  rows.point_id.data()};
  inputs.max_columns = rows.columns;
  CERES_EXT_RETURN_IF_ERROR(
      SetupIndex(inputs,
                 index_options,
                 observations_.empty() ? kept_index : nullptr,
                 host_context,
                 structure,
                 views_.get()));
  structure->views.point_id = {};  // The index has them.

  std::vector<std::vector<kernels::ViewCell>> cells(num_views);
  // A private block is a last column of the row, but none of the view.
  const int num_columns = rows.columns + (rows.has_private ? 1 : 0);
  std::vector<kernels::ViewColumn> columns(int64_t{num_columns} * num_views,
                                           {-1, 0});
  views_->view_columns.resize(num_views);
  for (int32_t v = 0; v < num_views; ++v) {
    int16_t at = 0;  // of the block's first value in a row
    kernels::ViewColumn* column = columns.data() + int64_t{num_columns} * v;
    for (const int32_t b : rows.blocks[v]) {
      const VaryingBlock block = structure->rows->block(b);
      const auto size = static_cast<int16_t>(block.tangent_size);
      cells[v].push_back(
          {structure->family.data()[b], structure->place.data()[b], size});
      for (int16_t j = 0; j < size; ++j) {
        *column++ = {static_cast<int16_t>(at + j), size};
        views_->view_columns[v].push_back(block.tangent_offset + j);
      }
      at = static_cast<int16_t>(at + rows.num_residuals() * size);
    }
    if (rows.has_private) {
      columns[int64_t{num_columns} * (v + 1) - 1] = {at, 1};
    }
  }
  if (rows.has_private) {
    CERES_EXT_RETURN_IF_ERROR(SetupPrivate(*structure, host_context));
  }
  CERES_EXT_RETURN_IF_ERROR(machine_->Upload(columns, &views_->columns));
  return views_->views.Setup(blocks_.f,
                             blocks_.merged,
                             rows.columns,
                             cells,
                             views_->index(),
                             machine_);
}

template <typename Machine>
Status MachineProblem<Machine>::SetupPrivate(
    const ProblemStructure& structure, kernels::HostContext* host_context) {
  constexpr int64_t kRowsPerTask = 1 << 14;
  const ViewStructure& rows = structure.views;
  const auto is_private = [&](int32_t block) {
    return block != BlockOfRow::kConstant &&
           structure.is_eliminated[block] == elimination::kPrivate;
  };
  const UniformRows::Slot* slot = nullptr;
  for (size_t s = 0; rows.uniform != nullptr && s < rows.uniform->slots.size();
       ++s) {
    if (is_private(rows.uniform->slots[s].first)) {
      slot = &rows.uniform->slots[s];
    }
  }
  views_->private_family = structure.private_family;
  const int64_t n = rows.size();
  kernels::HostBuffer<int32_t> place;
  CERES_EXT_RETURN_IF_ERROR(place.Allocate(n));
  CERES_EXT_RETURN_IF_ERROR(
      machine_->Download(n, views_->index().input_id(), place.data()));
  host_context->ParallelFor(n, kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int32_t row = place.data()[k];
      int32_t block = BlockOfRow::kConstant;
      if (slot != nullptr) {
        block = slot->Block(row);
      } else {
        for (const int32_t b : structure.rows->BlocksOf(rows.row(row))) {
          block = is_private(b) ? b : block;
        }
      }
      place.data()[k] =
          block == BlockOfRow::kConstant ? -1 : structure.place.data()[block];
    }
  });
  return machine_->Upload(n, place.data(), &views_->private_place);
}

template <typename Machine>
Status MachineProblem<Machine>::SetupGeneralRows(
    const ProblemStructure& structure) {
  builder_ = std::make_unique<kernels::BlockRowsBuilder>(
      blocks_.e, blocks_.f, &blocks_.merged);
  builder_->Reserve(static_cast<int64_t>(structure.general_rows.size()),
                    2 * static_cast<int64_t>(structure.general_rows.size()));
  for (const int32_t i : structure.general_rows) {
    builder_->AddRow(structure.rows->NumResiduals(i));
    for (const int32_t block : structure.rows->BlocksOf(i)) {
      if (block == BlockOfRow::kConstant) {
        continue;
      }
      const uint8_t mark = structure.is_eliminated[block];
      const bool is_private = mark == elimination::kPrivate;
      const int32_t family = structure.family.data()[block];
      if (mark == elimination::kEliminated && family == 0) {
        blocks_.e_owner[0] = ProblemBlocks::kShared;
      }
      builder_->AddCell({mark != elimination::kOther,
                         family,
                         structure.place.data()[block],
                         structure.rows->block(block).tangent_size,
                         is_private});
    }
  }
  CERES_EXT_RETURN_IF_ERROR(builder_->Build());
  return rows_.Setup(*builder_, machine_);
}

namespace {

// Runs operations of one kind, on a device several small ones in one launch.
template <typename P, typename Machine>
class Together {
 public:
  explicit Together(Machine* machine) : machine_(machine) {}
  Status Add(const P& params) {
    constexpr int64_t kSmall = 1 << 18;
    if (kIsHost<Machine> || params.size() > kSmall) {
      return kernels::Run(params, machine_);
    }
    if (together_.num_parts == together_.kMost) {
      CERES_EXT_RETURN_IF_ERROR(Finish());
    }
    together_.Add(params);
    return {};
  }
  Status Finish() {
    if (together_.num_parts == 0) {
      return {};
    }
    const auto together = together_;
    together_ = {};
    return kernels::Run(together, machine_);
  }

 private:
  Machine* const machine_;
  kernels::TogetherParams<P> together_;
};

}  // namespace

template <typename Machine>
template <typename E, typename F, typename Function>
Status MachineProblem<Machine>::ForEachFamily(E* e, F* f, Function&& fn) const {
  for (size_t i = 0; i < f_.size(); ++i) {
    CERES_EXT_RETURN_IF_ERROR(
        fn(f_[i].ref(), f + blocks_.f[static_cast<int>(i)].value_begin));
  }
  for (size_t i = 0; i < e_.size(); ++i) {
    CERES_EXT_RETURN_IF_ERROR(
        fn(e_[i].ref(), e + blocks_.e[static_cast<int>(i)].value_begin));
  }
  return {};
}

template <typename Machine>
Status MachineProblem<Machine>::Gather(const double* vector,
                                       double padding,
                                       double* e,
                                       double* f) const {
  Together<kernels::GatherTangentParams, Machine> gather(machine_);
  CERES_EXT_RETURN_IF_ERROR(ForEachFamily(
      e, f, [&](const kernels::BlockTableRef& table, double* padded) {
        return gather.Add({table, vector, padding, padded});
      }));
  return gather.Finish();
}

template <typename Machine>
Status MachineProblem<Machine>::Scatter(const double* e,
                                        const double* f,
                                        double* vector) const {
  Together<kernels::ScatterTangentParams, Machine> scatter(machine_);
  CERES_EXT_RETURN_IF_ERROR(ForEachFamily(
      e, f, [&](const kernels::BlockTableRef& table, const double* padded) {
        return scatter.Add({table, padded, vector});
      }));
  return scatter.Finish();
}

template <typename Machine>
Status MachineProblem<Machine>::SetSharedToZero(double* e, double* f) const {
  const auto set_zero = [&](const kernels::BlockFamilies& families,
                            const std::vector<int>& owners,
                            double* vector) -> Status {
    for (int i = 0; i < families.size(); ++i) {
      // All blocks of no batch, private ones among them.
      if (owners[i] < 0) {
        CERES_EXT_RETURN_IF_ERROR(machine_->SetZero(
            families[i].num_values(), vector + families[i].value_begin));
      }
    }
    return {};
  };
  CERES_EXT_RETURN_IF_ERROR(set_zero(blocks_.e, blocks_.e_owner, e));
  return set_zero(blocks_.f, blocks_.f_owner, f);
}

#define CERES_EXT_INSTANTIATE(Machine) \
  template class FamilyTable<Machine>; \
  template class MachineProblem<Machine>;
CERES_EXT_FOR_EACH_MACHINE(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext
