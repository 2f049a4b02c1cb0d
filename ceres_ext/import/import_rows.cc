// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/import/import_rows.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <new>
#include <numeric>
#include <set>
#include <typeinfo>
#include <unordered_map>
#include <utility>

#include "ceres_ext/import/batch_models.h"
#include "ceres_ext/import/eliminated_pairs.h"
#include "ceres_ext/import/elimination.h"
#include "ceres_ext/import/find_views.h"
#include "cuda_kernels/model/shape.h"
#include "cuda_kernels/structure/block_rows.h"

namespace ceres_ext {
namespace {

constexpr int kNumKinds = 2;  // of BatchModelKind
// The id of a block that is constant, and the kind of a residual block that is
// not an observation.
constexpr int32_t kNoBlock = -1;
constexpr int8_t kOtherRow = -1;
// Residual blocks that a thread reads in one go; uniform ones.
constexpr int64_t kRowsPerPass = 1 << 12;
constexpr int64_t kUniformRowsPerPass = 1 << 16;
constexpr int64_t kBlocksPerPass = 1 << 12;

// Blocks of a family: those that vary in the order of the state, then the
// constant ones in the order in which they are asked for.
class BlockIds {
 public:
  // place_of_index: of each block that varies its id, kNoBlock where it is in
  // no family yet.
  explicit BlockIds(kernels::HostBuffer<int32_t>* place_of_index)
      : place_of_index_(place_of_index) {}

  // Asks for the varying block with this index. Any number of threads at once.
  void Ask(int32_t index) {
    __atomic_store_n(&place_of_index_->data()[index], kAsked, __ATOMIC_RELAXED);
  }
  // Asks for a constant block, known by its value; what it has in place of an
  // index.
  int32_t AskConstant(const double* value) {
    const auto [entry, is_new] = constant_.try_emplace(
        value, kNoBlock - 1 - static_cast<int32_t>(constants_.size()));
    if (is_new) {
      constants_.push_back({BlockOfRow::kConstant, value});
    }
    return entry->second;
  }

  // Numbers all that were asked for. Throws std::bad_alloc.
  void Number(kernels::HostContext* context) {
    const int64_t n = place_of_index_->size();
    int32_t* const place = place_of_index_->data();
    // Before each task, of those that were asked for.
    std::vector<int32_t> begin_of(
        static_cast<size_t>((n + kBlocksPerPass - 1) / kBlocksPerPass + 1), 0);
    context->ParallelFor(n, kBlocksPerPass, [&](int64_t begin, int64_t end) {
      begin_of[static_cast<size_t>(begin / kBlocksPerPass) + 1] =
          static_cast<int32_t>(std::count(place + begin, place + end, kAsked));
    });
    std::partial_sum(begin_of.begin(), begin_of.end(), begin_of.begin());
    num_varying_ = begin_of.back();
    size_ = num_varying_ + static_cast<int32_t>(constants_.size());
    if (!blocks_.Allocate(size_).ok()) {
      throw std::bad_alloc();
    }
    context->ParallelFor(n, kBlocksPerPass, [&](int64_t begin, int64_t end) {
      int32_t next = begin_of[static_cast<size_t>(begin / kBlocksPerPass)];
      for (int64_t i = begin; i < end; ++i) {
        if (place[i] == kAsked) {
          place[i] = next;
          blocks_.data()[next++] = {static_cast<int32_t>(i), nullptr};
        }
      }
    });
    std::copy(
        constants_.begin(), constants_.end(), blocks_.data() + num_varying_);
  }

  // After Number, of what was asked for.
  int32_t Id(int32_t index) const {
    return index >= 0 ? place_of_index_->data()[index]
                      : num_varying_ + (kNoBlock - 1 - index);
  }
  // By id.
  int32_t size() const { return size_; }
  const BlockOfRow& block(int64_t id) const { return blocks_.data()[id]; }

 private:
  static constexpr int32_t kAsked = kNoBlock - 1;

  kernels::HostBuffer<int32_t>* place_of_index_;
  std::unordered_map<const double*, int32_t> constant_;
  std::vector<BlockOfRow> constants_;
  int32_t num_varying_ = 0;
  int32_t size_ = 0;
  kernels::HostBuffer<BlockOfRow> blocks_;
};

// The models of rows, numbered as they are met; any number of threads at once.
class ModelNumbers {
 public:
  // Constants of the row's model.
  int16_t Add(const BatchModel* model, int64_t row) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto known =
        std::find_if(models_.begin(), models_.end(), [&](const Model& m) {
          return m.model == model;
        });
    if (known != models_.end()) {
      known->first_row = std::min(known->first_row, row);
      return static_cast<int16_t>(known - models_.begin());
    }
    models_.push_back({model, row});
    return static_cast<int16_t>(models_.size() - 1);
  }
  // The models in the order of their first rows, and of each number its place
  // among them.
  std::vector<const BatchModel*> Sort(std::vector<int16_t>* place) const {
    std::vector<int16_t> order(models_.size());
    std::iota(order.begin(), order.end(), int16_t{0});
    std::sort(order.begin(), order.end(), [&](int16_t a, int16_t b) {
      return models_[a].first_row < models_[b].first_row;
    });
    std::vector<const BatchModel*> sorted;
    place->resize(models_.size());
    for (const int16_t i : order) {
      (*place)[i] = static_cast<int16_t>(sorted.size());
      sorted.push_back(models_[i].model);
    }
    return sorted;
  }

 private:
  struct Model {
    const BatchModel* model;
    int64_t first_row;
  };
  std::mutex mutex_;
  std::vector<Model> models_;
};

static_assert(BlockOfRow::kConstant == kNoBlock);

class Importer {
 public:
  Importer(const ImportOptions& options,
           kernels::HostContext* context,
           ProblemStructure* structure,
           std::string* reason)
      : rows_(*structure->rows),
        options_(options),
        context_(context),
        structure_(structure),
        reason_(reason) {}

  bool Import(ProblemRows* rows) {
    if (rows_.size() > std::numeric_limits<int32_t>::max() / 2) {
      *reason_ =
          "the problem has " + std::to_string(rows_.size()) +
          " residual blocks, more than 32-bit residual offsets can count";
      return false;
    }
    if (!ReadRows()) {
      return false;
    }
    structure_->num_columns = rows_.num_columns();
    structure_->num_parameters = rows_.num_parameters();
    structure_->num_residuals = rows_.num_residuals();
    structure_->is_eliminated.assign(rows_.num_blocks(), 0);
    // AddFamily writes the family of each block.
    if (!Ok(structure_->family.Allocate(rows_.num_blocks())) ||
        !Ok(structure_->place.Allocate(rows_.num_blocks()))) {
      return false;
    }
    context_->ParallelFor(
        rows_.num_blocks(), kBlocksPerPass, [&](int64_t begin, int64_t end) {
          std::fill(structure_->place.data() + begin,
                    structure_->place.data() + end,
                    kNoBlock);
        });
    if (!is_one_kind_) {
      ChooseEliminated();
      if (options_.takes_private && options_.use_schur && HasOneColumn()) {
        rows->ReadBlocks(context_);
        MarkPrivateBlocks();
      }
      const bool may_have_views =
          options_.use_schur &&
          (has_observations_ ||
           rows_.num_residuals() > options_.most_small_residuals);
      // FindViews reads them from their arrays.
      const UniformRows* const of_views =
          has_observations_
              ? nullptr
              : FindUniformViews(
                    rows_, structure_->is_eliminated, may_have_views);
      rows->ReadBlocks(context_, of_views);
      OtherRows others;
      std::vector<int32_t> listed;
      others.size = rows_.size();
      if (has_observations_) {
        listed = ListOtherRows();
        others = {/*are_all=*/false,
                  static_cast<int64_t>(listed.size()),
                  listed.data()};
      }
      if (!CheckSizes() || !FindViews(rows_,
                                      others,
                                      structure_->is_eliminated,
                                      may_have_views,
                                      context_,
                                      &structure_->general_rows,
                                      &structure_->views,
                                      reason_)) {
        return false;
      }
      if (of_views != structure_->views.uniform) {
        rows->ReadBlocks(context_);
      }
    }
    if (!FillObservations()) {
      return false;
    }
    FillOthers();
    return true;
  }

 private:
  // A lack of memory must not start another attempt.
  bool Ok(const kernels::Status& status) {
    if (status.code == kernels::StatusCode::kOutOfMemory) {
      throw std::bad_alloc();
    }
    *reason_ = status.message;
    return status.ok();
  }

  // The kind of each row and the blocks of observations. Most of the time goes
  // into reaching the blocks in memory, so that is what all threads do.
  bool ReadRows() {
    const int64_t n = rows_.size();
    if (!options_.batch_evaluation) {
      return Ok(kind_.Allocate(n, kOtherRow));
    }
    if (!Ok(kind_.Allocate(n)) || !Ok(camera_.Allocate(n)) ||
        !Ok(point_.Allocate(n)) || !Ok(constants_.Allocate(2 * n)) ||
        !Ok(structure_->model_of_row.Allocate(n))) {
      return false;
    }
    int16_t* const model_of_row = structure_->model_of_row.data();
    ModelNumbers numbers;
    const Type first = n > 0 ? TypeOf(0, &numbers) : Type();
    const int8_t first_kind = first.kind;
    std::atomic<bool> has_other_kind{false};
    std::atomic<bool> has_loss{false};
    const int64_t rows_per_pass =
        rows_.uniform_rows().empty() ? kRowsPerPass : kUniformRowsPerPass;
    context_->ParallelFor(n, rows_per_pass, [&](int64_t begin, int64_t end) {
      // One dynamic_cast per type.
      std::vector<Type> types;
      const Type* type = nullptr;
      bool one_has_loss = false;
      for (int64_t i = begin; i < end; ++i) {
        const UniformRows* const uniform = rows_.FindUniform(i);
        const ceres::CostFunction& cost_function = rows_.TypicalCostFunction(i);
        if (type == nullptr || !type->Has(cost_function)) {
          const auto known =
              std::find_if(types.begin(), types.end(), [&](const Type& t) {
                return t.Has(cost_function);
              });
          type = known != types.end()
                     ? &*known
                     : &types.emplace_back(TypeOf(i, &numbers));
          if (type->kind != first_kind) {
            has_other_kind = true;
          }
        }
        const int8_t kind = type->kind;
        if (uniform != nullptr && kind == kOtherRow) {
          const int64_t last = std::min(end, uniform->end);
          std::fill(kind_.data() + i, kind_.data() + last, kind);
          std::fill(model_of_row + i, model_of_row + last, type->model);
          i = last - 1;
          continue;
        }
        kind_.data()[i] = kind;
        model_of_row[i] = type->model;
        if (kind != kOtherRow) {
          rows_.CopyConstants(i, constants_.data() + 2 * i);
          camera_.data()[i] = rows_.Block(i, 0).index;
          point_.data()[i] = rows_.Block(i, 1).index;
          one_has_loss |= rows_.Loss(i).loss != nullptr;
        }
      }
      if (one_has_loss) {
        has_loss = true;
      }
    });
    has_loss_ = has_loss;
    has_observations_ = first_kind != kOtherRow || has_other_kind;
    std::vector<int16_t> place;
    structure_->models = numbers.Sort(&place);
    if (structure_->models.size() > 1) {
      context_->ParallelFor(n, kRowsPerPass, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          int16_t& model = model_of_row[i];
          model = model == ProblemStructure::kNoModel ? model : place[model];
        }
      });
    }
    if (options_.use_schur && !has_observations_ &&
        options_.num_eliminate_blocks == ImportOptions::kPoints) {
      *reason_ = "no residual block is an observation";
      return false;
    }
    is_one_kind_ = first_kind != kOtherRow && !has_other_kind &&
                   options_.num_eliminate_blocks == ImportOptions::kPoints;
    return true;
  }

  // Properties that the type of a cost function determines, or its type and its
  // model.
  struct Type {
    const std::type_info* type = nullptr;
    const BatchModel* batch_model = nullptr;
    int8_t kind = kOtherRow;
    int16_t model = ProblemStructure::kNoModel;

    bool Has(const ceres::CostFunction& cost_function) const {
      return *type == typeid(cost_function) &&
             (batch_model == nullptr ||
              batch_model ==
                  &static_cast<const BatchableCostFunction&>(cost_function)
                       .batch_model());
    }
  };
  Type TypeOf(int64_t row, ModelNumbers* numbers) const {
    const ceres::CostFunction& cost_function = rows_.TypicalCostFunction(row);
    Type result;
    result.type = &typeid(cost_function);
    const BatchModel* const model = FindBatchModel(cost_function);
    result.batch_model = model;
    if (model != nullptr && (model->kind != BatchModelKind::kOther ||
                             options_.batch_users_functions)) {
      result.kind = options_.takes_observations
                        ? static_cast<int8_t>(model->kind)
                        : kOtherRow;
      result.model = numbers->Add(model, row);
    }
    return result;
  }

  void ChooseEliminated() {
    if (options_.num_eliminate_blocks != ImportOptions::kPoints) {
      std::fill_n(
          structure_->is_eliminated.begin(), options_.num_eliminate_blocks, 1);
      return;
    }
    for (int64_t i = 0; has_observations_ && i < rows_.size(); ++i) {
      if (kind_.data()[i] != kOtherRow && point_.data()[i] != kNoBlock) {
        structure_->is_eliminated[point_.data()[i]] = 1;
      }
    }
  }

  // True if a block that is not eliminated may be private.
  bool HasOneColumn() const {
    std::atomic<bool> has_one{false};
    context_->ParallelFor(
        rows_.num_blocks(), kBlocksPerPass, [&](int64_t begin, int64_t end) {
          for (auto i = static_cast<int32_t>(begin); i < end && !has_one; ++i) {
            if (structure_->is_eliminated[i] == elimination::kOther &&
                rows_.block(i).tangent_size == 1) {
              has_one = true;
            }
          }
        });
    return has_one;
  }
  void MarkPrivateBlocks() {
    const std::vector<uint8_t> is_private =
        FindPrivateBlocks(rows_, structure_->is_eliminated, context_);
    for (size_t b = 0; b < is_private.size(); ++b) {
      if (is_private[b] != 0) {
        structure_->is_eliminated[b] = elimination::kPrivate;
      }
    }
  }

  // Observations that no batch of observations supports are general rows: those
  // whose point is not eliminated or whose camera is, and those whose camera
  // and point occur in another row (ceres_ext/solver/batch.h).
  std::vector<int32_t> ListOtherRows() {
    const std::vector<uint8_t>& is_eliminated = structure_->is_eliminated;
    EliminatedPairs pairs(rows_, is_eliminated);
    for (int64_t i = 0; i < rows_.size(); ++i) {
      if (kind_.data()[i] == kOtherRow && MayShareAPair(i)) {
        pairs.AddPairsOf(i);
      }
    }
    for (int64_t i = 0; i < rows_.size(); ++i) {
      if (kind_.data()[i] == kOtherRow) {
        continue;
      }
      const int32_t camera = camera_.data()[i];
      const int32_t point = point_.data()[i];
      if ((point != kNoBlock && is_eliminated[point] == 0) ||
          (camera != kNoBlock && is_eliminated[camera] != 0) ||
          (!pairs.empty() && pairs.Has(camera, point))) {
        kind_.data()[i] = kOtherRow;
      }
    }
    std::vector<int32_t> others;
    others.reserve(
        std::count(kind_.data(), kind_.data() + rows_.size(), kOtherRow));
    for (int64_t i = 0; i < rows_.size(); ++i) {
      if (kind_.data()[i] == kOtherRow) {
        others.push_back(static_cast<int32_t>(i));
      }
    }
    return others;
  }

  // True if the row may have both blocks of an observation.
  bool MayShareAPair(int64_t row) const {
    if (!options_.use_schur || !has_observations_) {
      return false;
    }
    for (int j = 0; j < rows_.NumBlocks(row); ++j) {
      const int size = rows_.BlockSize(row, j);
      if (size == 9 || size == kernels::kMaxCameraColumns) {
        return true;
      }
    }
    return false;
  }

  bool CheckSizes() {
    const auto is_eliminated = [this](int32_t i) {
      return structure_->is_eliminated[i] != 0;
    };
    const auto most = [&](int32_t i) {
      return is_eliminated(i) ? kernels::kMaxEliminatedSize
                              : kernels::kMaxBlockColumns;
    };
    const int32_t n = rows_.num_blocks();
    std::atomic<int32_t> first_large{n};
    context_->ParallelFor(n, kBlocksPerPass, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<int32_t>(begin); i < end; ++i) {
        int32_t known = first_large;
        while (i < known && rows_.block(i).tangent_size > most(i) &&
               !first_large.compare_exchange_weak(known, i)) {
        }
      }
    });
    if (first_large < n) {
      *reason_ = "parameter block " + std::to_string(first_large) + " has " +
                 std::to_string(rows_.block(first_large).tangent_size) +
                 " tangent dimensions; this library takes at most " +
                 std::to_string(most(first_large)) +
                 (is_eliminated(first_large) ? " for an eliminated block" : "");
      return false;
    }
    return true;
  }

  // Adds the family of the blocks, which have `size` values each and get a
  // mark.
  BlockTable* AddFamily(const BlockIds& ids, uint8_t mark, int size) {
    auto* tables =
        mark == elimination::kOther ? &structure_->f : &structure_->e;
    const auto family = static_cast<int32_t>(tables->size());
    BlockTable* table = &tables->emplace_back();
    table->ambient_size = size;
    table->padded_size = size;
    const VaryingBlock first = ids.size() > 0 && !ids.block(0).is_constant()
                                   ? rows_.block(ids.block(0).index)
                                   : VaryingBlock();
    std::atomic<bool> is_uniform{ids.size() > 0 && first.tangent_size == size};
    context_->ParallelFor(
        ids.size(), kBlocksPerPass, [&](int64_t begin, int64_t end) {
          bool one_differs = false;
          for (int64_t i = begin; i < end; ++i) {
            const BlockOfRow& block = ids.block(i);
            if (block.is_constant()) {
              one_differs = true;
              continue;
            }
            const VaryingBlock varying = rows_.block(block.index);
            one_differs |=
                varying.tangent_size != size || varying.manifold != nullptr ||
                varying.state_offset != first.state_offset + i * size ||
                varying.tangent_offset != first.tangent_offset + i * size;
            structure_->family.data()[block.index] = family;
            structure_->is_eliminated[block.index] = mark;
          }
          if (one_differs) {
            is_uniform = false;
          }
        });
    if (is_uniform) {
      table->SetUniform(ids.size(), first.state_offset, first.tangent_offset);
      return table;
    }
    table->Resize(ids.size());
    context_->ParallelFor(
        table->size(), kBlocksPerPass, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const BlockOfRow& block = ids.block(i);
            if (block.is_constant()) {
              table->Set(i, {-1, -1, 0, block.constant_value, nullptr});
              continue;
            }
            table->Set(i, EntryOf(rows_.block(block.index)));
          }
        });
    return table;
  }

  bool FillObservations() {
    BlockIds points(&structure_->place);
    if (is_one_kind_) {
      if (!FillKind(kind_.data()[0], {}, &points)) {
        return false;
      }
    } else if (has_observations_) {
      for (int kind = 0; kind < kNumKinds; ++kind) {
        std::vector<int32_t> rows;
        for (int64_t i = 0; i < rows_.size(); ++i) {
          if (kind_.data()[i] == kind) {
            rows.push_back(static_cast<int32_t>(i));
          }
        }
        if (!rows.empty() && !FillKind(kind, rows, &points)) {
          return false;
        }
      }
    }
    for (const ObservationTable& batch : structure_->observations) {
      Ask(batch.size(), batch.point_id.data(), &points);
    }
    // The points of views are numbered with those of observations.
    ViewStructure* const views = &structure_->views;
    if (views->uniform_points == nullptr) {
      Ask(views->size(), views->point_id.data(), &points);
    } else {
      Ask(views->size(), IndexOfSlot{*views->uniform_points}, &points);
    }
    points.Number(context_);
    for (ObservationTable& batch : structure_->observations) {
      Name(points, batch.size(), batch.point_id.own_data());
    }
    if (views->uniform_points == nullptr) {
      Name(points, views->size(), views->point_id.own_data());
    } else if (!NameUniform(points,
                            *views->uniform_points,
                            views->size(),
                            &views->point_id)) {
      return false;
    }
    if (!structure_->observations.empty() || structure_->views.size() > 0) {
      AddFamily(points, elimination::kEliminated, kPointSize);
    }
    return true;
  }

  // Asks for the blocks index[k] that vary.
  template <typename Index>
  void Ask(int64_t n, const Index& index, BlockIds* ids) {
    context_->ParallelFor(n, kRowsPerPass, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        if (index[k] >= 0) {
          ids->Ask(index[k]);
        }
      }
    });
  }
  struct IndexOfSlot {
    const UniformRows::Slot& slot;
    int32_t operator[](int64_t k) const { return slot.Block(k); }
  };

  // Puts ids in place of what was asked for.
  void Name(const BlockIds& ids, int64_t n, int32_t* index) {
    context_->ParallelFor(n, kRowsPerPass, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        index[k] = ids.Id(index[k]);
      }
    });
  }

  // Ids in ascending order are the slot's numbers if the first and the last
  // are, and then they are not copied.
  bool NameUniform(const BlockIds& ids,
                   const UniformRows::Slot& slot,
                   int64_t n,
                   InputArray<int32_t>* to) {
    const int32_t last = slot.num_blocks - 1;
    if (slot.number != nullptr && ids.Id(slot.first) == 0 &&
        ids.Id(slot.first + last) == last) {
      to->Refer(n, slot.number);
      return true;
    }
    if (!Ok(to->Allocate(n))) {
      return false;
    }
    context_->ParallelFor(
        n, kUniformRowsPerPass, [&](int64_t begin, int64_t end) {
          for (int64_t k = begin; k < end; ++k) {
            to->own_data()[k] = ids.Id(slot.Block(k));
          }
        });
    return true;
  }

  // rows: the residual blocks of the kind; empty: all.
  bool FillKind(int kind, const std::vector<int32_t>& rows, BlockIds* points) {
    const bool all = rows.empty();
    const int64_t n = static_cast<int64_t>(all ? rows_.size() : rows.size());
    const auto row_of = [&](int64_t k) { return all ? k : rows[k]; };
    ObservationTable batch;
    batch.kind = static_cast<BatchModelKind>(kind);
    batch.camera_family = static_cast<int>(structure_->f.size());
    if (all) {
      batch.camera_id.Take(std::move(camera_));
      batch.point_id.Take(std::move(point_));
      batch.observations.Take(std::move(constants_));
    } else {
      if (!Ok(batch.camera_id.Allocate(n)) || !Ok(batch.point_id.Allocate(n)) ||
          !Ok(batch.observations.Allocate(2 * n))) {
        return false;
      }
      for (int64_t k = 0; k < n; ++k) {
        batch.camera_id.own_data()[k] = camera_.data()[rows[k]];
        batch.point_id.own_data()[k] = point_.data()[rows[k]];
        std::copy_n(constants_.data() + 2 * int64_t{rows[k]},
                    2,
                    batch.observations.own_data() + 2 * k);
      }
    }
    BlockIds cameras(&structure_->place);
    int32_t* const camera_id = batch.camera_id.own_data();
    int32_t* const point_id = batch.point_id.own_data();
    for (int64_t k = 0; k < n; ++k) {
      if (camera_id[k] == kNoBlock) {
        camera_id[k] =
            cameras.AskConstant(rows_.Block(row_of(k), 0).constant_value);
      }
      if (point_id[k] == kNoBlock) {
        point_id[k] =
            points->AskConstant(rows_.Block(row_of(k), 1).constant_value);
      }
    }
    Ask(n, camera_id, &cameras);
    cameras.Number(context_);
    Name(cameras, n, camera_id);
    if (has_loss_) {
      batch.loss.resize(n);
      std::atomic<bool> has_loss{false};
      context_->ParallelFor(n, kRowsPerPass, [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; ++k) {
          batch.loss[k] = rows_.Loss(row_of(k)).loss;
          if (batch.loss[k] != nullptr) {
            has_loss = true;
          }
        }
      });
      if (!has_loss) {
        batch.loss.clear();
      }
    }
    bool has_weight = false;
    for (int64_t k = 0; rows_.has_weights() && k < n && !has_weight; ++k) {
      has_weight = rows_.Loss(row_of(k)).weight != nullptr;
    }
    if (has_weight) {
      if (!Ok(batch.weights.Allocate(n))) {
        return false;
      }
      for (int64_t k = 0; k < n; ++k) {
        batch.weights.own_data()[k] = rows_.Loss(row_of(k)).Weight();
      }
    }
    BlockTable* table =
        AddFamily(cameras, elimination::kOther, rows_.BlockSize(row_of(0), 0));
    // Columns that the kernels are compiled for.
    table->padded_size =
        table->MaxTangentSize() <= 9 ? 9 : kernels::kMaxCameraColumns;
    structure_->observations.push_back(std::move(batch));
    return true;
  }

  // Blocks that are in no family yet, by role and size.
  void FillOthers() {
    const auto family_of = [this](int32_t i) {
      return std::pair<uint8_t, int>(structure_->is_eliminated[i],
                                     rows_.block(i).tangent_size);
    };
    std::set<std::pair<uint8_t, int>> families;
    for (int32_t i = 0; i < rows_.num_blocks(); ++i) {
      if (structure_->place.data()[i] == kNoBlock) {
        families.insert(family_of(i));
      }
    }
    for (const auto& family : families) {
      BlockIds ids(&structure_->place);
      context_->ParallelFor(
          rows_.num_blocks(), kBlocksPerPass, [&](int64_t begin, int64_t end) {
            for (auto i = static_cast<int32_t>(begin); i < end; ++i) {
              if (structure_->place.data()[i] == kNoBlock &&
                  family_of(i) == family) {
                ids.Ask(i);
              }
            }
          });
      ids.Number(context_);
      AddFamily(ids, family.first, family.second);
      if (family.first == elimination::kPrivate) {
        structure_->private_family = static_cast<int>(structure_->e.size()) - 1;
      }
    }
  }

  const ProblemRows& rows_;
  const ImportOptions options_;
  kernels::HostContext* context_;
  ProblemStructure* structure_;
  std::string* reason_;
  // Per row; camera and point are indices of blocks, kNoBlock where constant,
  // of observations alone.
  kernels::HostBuffer<int8_t> kind_;
  kernels::HostBuffer<int32_t> camera_;
  kernels::HostBuffer<int32_t> point_;
  kernels::HostBuffer<double> constants_;
  bool has_loss_ = false;  // of observations
  bool has_observations_ = false;
  // All rows are observations of one kind, and points are what is eliminated.
  bool is_one_kind_ = false;
};

}  // namespace

bool ImportRows(const std::shared_ptr<ProblemRows>& rows,
                const ImportOptions& options,
                kernels::HostContext* context,
                ProblemStructure* structure,
                std::string* reason) {
  *structure = ProblemStructure();
  structure->rows = rows;
  return Importer(options, context, structure, reason).Import(rows.get());
}

}  // namespace ceres_ext
