// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ceres_ext/base/machines.h"
#include "ceres_ext/base/type_name.h"
#include "ceres_ext/blocks/loss_model.h"
#include "ceres_ext/rows/nested_rows_jacobian.h"
#include "ceres_ext/rows/observation_jacobian.h"
#include "ceres_ext/rows/row_groups_evaluator.h"
#include "cuda_kernels/ops/views.h"

namespace ceres_ext {

using kernels::Status;

namespace {

template <typename Machine, typename T, int C>
using StoredViewJacobian = StoredBatchJacobian<
    Machine,
    solver::ViewBatch<
        Machine,
        kernels::StoredJacobian<T, kernels::BalShape<C>, Machine::kLayout>>>;

// Jacobian: the place of the rows' derivatives, which a subclass may replace.
template <typename Machine, typename Jacobian>
class ViewEvaluator : public RowGroupsEvaluator<Machine> {
  using Base = RowGroupsEvaluator<Machine>;
  using typename Base::ModelInput;

 public:
  Status Setup(const RowGroupsInput<Machine>& input) {
    rows_ = input.blocks->views();
    const solver::ProblemBlocks& blocks = input.blocks->blocks();
    this->owns_points_ = blocks.e_owner[0] != solver::ProblemBlocks::kShared;
    const int64_t n = rows_->index().num_observations;
    const ViewStructure& views = input.structure->views;
    if constexpr (kIsNested) {
      are_opposite_ = AreOpposite(input);
    }
    if (rows_->private_family_table != nullptr) {
      this->own_block_ = rows_->private_place.data();
      this->own_state_ = rows_->private_family_table->ref().state_offset;
    }
    if (rows_->points().is_uniform()) {
      CERES_EXT_RETURN_IF_ERROR(
          this->SetupUniformPoints(rows_->point_table(), rows_->machine));
    }
    const int16_t model = input.structure->model(views.row(0));
    if (views.uniform != nullptr && model != ProblemStructure::kNoModel &&
        input.why_no_form[model].empty()) {
      return this->SetupUniformRows(
          input,
          *views.uniform,
          rows_->index().input_id(),
          Shape::kNumResiduals * n,
          rows_->index().point_id,
          [&](RowBlocks* row_blocks,
              kernels::HostBuffer<RowBlock>* points,
              ModelInput* model_input) -> Status {
            model_input->is_recomputed = input.recomputed_views;
            model_input->machine_combination = rows_->index().camera_id;
            DescribeUniformModel(*input.structure, row_blocks, model_input);
            return this->has_uniform_points()
                       ? Status()
                       : DescribePoints(input, row_blocks, points);
          });
    }
    kernels::HostBuffer<int32_t> order;
    CERES_EXT_RETURN_IF_ERROR(order.Allocate(n));
    CERES_EXT_RETURN_IF_ERROR(
        rows_->machine->Download(n, rows_->index().input_id(), order.data()));
    InputArray<int32_t> rows;
    rows.Refer(n, order.data());
    if (views.rows.size() > 0) {
      CERES_EXT_RETURN_IF_ERROR(rows.Allocate(n));
      input.host_context->ParallelFor(
          n, kEvaluatedRowsPerTask, [&](int64_t begin, int64_t end) {
            for (int64_t k = begin; k < end; ++k) {
              rows.own_data()[k] = views.row(order.data()[k]);
            }
          });
    }
    const auto describe = [&](RowBlocks* row_blocks,
                              kernels::HostBuffer<RowBlock>* points,
                              ModelInput* model_input) -> Status {
      model_input->is_recomputed = input.recomputed_views;
      if (points->size() == 0 && !this->has_uniform_points()) {
        CERES_EXT_RETURN_IF_ERROR(DescribePoints(input, row_blocks, points));
      }
      return DescribeModel(input, order.data(), row_blocks, model_input);
    };
    CERES_EXT_RETURN_IF_ERROR(this->SetupRows(input,
                                              rows,
                                              Shape::kNumResiduals * n,
                                              kChunk,
                                              Shape::kESize,
                                              rows_->index().point_id,
                                              describe));
    const int64_t num_host_rows = this->num_host_rows();
    CERES_EXT_RETURN_IF_ERROR(values_.Allocate(
        Pack::kStride *
        (num_host_rows > kChunk ? kNumBuffers * kChunk : num_host_rows)));
    return kIsHost<Machine>
               ? Status()
               : rows_->machine->Allocate(
                     Pack::kStride * std::min(kChunk, num_host_rows),
                     &machine_values_);
  }

  Status CreateJacobian(
      std::unique_ptr<BatchJacobian>* jacobian) const override {
    if constexpr (kIsNested) {
      CERES_EXT_RETURN_IF_ERROR(
          MakeAndSetUp<Jacobian>(jacobian,
                                 rows_,
                                 this->blocks().blocks(),
                                 are_opposite_ && this->num_host_rows() == 0));
    } else {
      CERES_EXT_RETURN_IF_ERROR(
          MakeAndSetUp<Jacobian>(jacobian, rows_, this->blocks().blocks()));
    }
    // Models write no padding.
    return this->has_models() ? (*jacobian)->SetZero() : Status();
  }

 protected:
  const ObservationBlocks<Machine>* rows_ = nullptr;

 private:
  using Shape = typename Jacobian::StoredShape;
  static constexpr bool kIsNested =
      std::is_same_v<Shape, kernels::NestedStorage>;
  using Pack = kernels::
      PackRowsParams<typename Jacobian::StoredValue, Shape, Machine::kLayout>;
  // Rows of a chunk: 13 to 14 MB, which a device takes in half a millisecond.
  static constexpr int64_t kChunk = 1 << 16;
  static constexpr int kNumBuffers = 2;

  // True if rows that models evaluate are opposite
  // (cuda_kernels/model/nested_jacobian.h): each has its point as the second
  // block, and the view's, or a constant one, as the first.
  bool AreOpposite(const RowGroupsInput<Machine>& input) const {
    const ProblemStructure& structure = *input.structure;
    const ViewStructure& views = structure.views;
    const auto is_opposite = [&](int32_t row) {
      const int16_t model = structure.model(row);
      return model != ProblemStructure::kNoModel &&
             structure.models[model]->blocks_are_opposite;
    };
    const auto is_eliminated = [&](int32_t block) {
      return block != BlockOfRow::kConstant &&
             structure.is_eliminated[block] == elimination::kEliminated;
    };
    if (!is_opposite(views.row(0)) || rows_->points().HasManifold() ||
        std::any_of(views.blocks.begin(),
                    views.blocks.end(),
                    [&](const std::vector<int32_t>& view) {
                      return view.size() > 1 ||
                             (view.size() == 1 &&
                              structure.rows->block(view[0]).manifold !=
                                  nullptr);
                    })) {
      return false;
    }
    if (views.uniform != nullptr) {
      return is_eliminated(views.uniform->slots[1].first);
    }
    std::atomic<bool> result{true};
    input.host_context->ParallelFor(
        views.size(), kEvaluatedRowsPerTask, [&](int64_t begin, int64_t end) {
          for (int64_t k = begin; k < end && result; ++k) {
            const int32_t row = views.row(k);
            const std::vector<int32_t>& view =
                views.blocks[views.view_id.data()[k]];
            const ProblemRows::Blocks of_row = structure.rows->BlocksOf(row);
            const int32_t first =
                view.empty() ? BlockOfRow::kConstant : view[0];
            if (!is_opposite(row) || of_row[0] != first ||
                !is_eliminated(of_row[1])) {
              result = false;
            }
          }
        });
    return result;
  }

  static Status DescribePoints(const RowGroupsInput<Machine>& input,
                               RowBlocks* row_blocks,
                               kernels::HostBuffer<RowBlock>* points) {
    const ProblemStructure& structure = *input.structure;
    const int64_t num_points = input.blocks->views()->points().size();
    CERES_EXT_RETURN_IF_ERROR(points->Allocate(num_points));
    RowBlock* const all = points->data();
    // Those that only observations have are unused here.
    input.host_context->ParallelFor(
        num_points, kEvaluatedRowsPerTask, [&](int64_t begin, int64_t end) {
          std::fill(all + begin, all + end, RowBlock());
        });
    std::atomic<bool> has_manifold{false};
    const auto make = [&](int32_t index, auto&& fn) {
      if (structure.is_eliminated[index] != 0 &&
          structure.family.data()[index] == 0) {
        fn(structure.rows->block(index), &all[structure.place.data()[index]]);
      }
    };
    const auto n = structure.place.size();
    input.host_context->ParallelFor(
        n, kEvaluatedRowsPerTask, [&](int64_t begin, int64_t end) {
          for (auto b = static_cast<int32_t>(begin); b < end; ++b) {
            make(b, [&](const VaryingBlock& block, RowBlock* point) {
              if (block.manifold != nullptr) {
                has_manifold = true;
              }
              point->state = block.state_offset;
              point->size = block.tangent_size;
            });
          }
        });
    // Manifolds are numbered in their order.
    for (int32_t b = 0; has_manifold && b < n; ++b) {
      make(b, [&](const VaryingBlock& block, RowBlock* point) {
        *point = row_blocks->Make(
            *structure.rows, {b, nullptr}, block.size, /*column=*/0);
      });
    }
    return {};
  }

  // Placeholders for an eliminated and for a private block.
  static constexpr BlockOfRow kEliminated = {BlockOfRow::kConstant, nullptr};
  static constexpr BlockOfRow kPrivate = {BlockOfRow::kConstant - 1, nullptr};

  // The blocks of a row, its eliminated one excepted.
  static bool HasBlocks(int32_t row,
                        const ProblemStructure& structure,
                        const BlockOfRow* blocks) {
    const ProblemRows::Blocks of_row = structure.rows->BlocksOf(row);
    for (int b = 0; b < of_row.size(); ++b) {
      const BlockOfRow block =
          of_row[b] == BlockOfRow::kConstant
              ? structure.rows->Block(row, b)
              : BlockOrPoint({of_row[b], nullptr}, structure);
      if (!(block == blocks[b])) {
        return false;
      }
    }
    return true;
  }
  static BlockOfRow BlockOrPoint(const BlockOfRow& block,
                                 const ProblemStructure& structure) {
    const uint8_t mark = block.is_constant()
                             ? elimination::kOther
                             : structure.is_eliminated[block.index];
    return mark == elimination::kPrivate ? kPrivate
           : mark != elimination::kOther ? kEliminated
                                         : block;
  }

  // A block of a row of a view, or a placeholder; size: of its value.
  static RowBlock Describe(const ProblemRows& problem,
                           const std::vector<int32_t>& view,
                           const BlockOfRow& block,
                           int size,
                           RowBlocks* row_blocks) {
    if (block == kEliminated) {
      RowBlock point;
      point.column = RowBlock::kPoint;
      return point;
    }
    if (block == kPrivate) {
      RowBlock own;
      own.state = RowBlock::kOwn;
      own.column = kernels::kPrivateColumn;
      own.size = 1;
      return own;
    }
    int32_t column = 0;
    for (const int32_t index : view) {
      if (index == block.index) {
        break;
      }
      column += problem.block(index).tangent_size;
    }
    return row_blocks->Make(
        problem, block, size, block.is_constant() ? 0 : column);
  }

  // The combination of uniform rows is their view.
  static void DescribeUniformModel(const ProblemStructure& structure,
                                   RowBlocks* row_blocks,
                                   ModelInput* model) {
    for (const std::vector<int32_t>& view : structure.views.blocks) {
      auto next = view.begin();
      for (const UniformRows::Slot& slot : model->uniform->slots) {
        BlockOfRow block = BlockOrPoint({slot.first, nullptr}, structure);
        if (block.index == slot.first) {
          block.index = *next++;
        }
        model->blocks.push_back(
            Describe(*structure.rows, view, block, slot.columns, row_blocks));
      }
    }
  }

  // The first of n rows of each view that has some, and the view, by row.
  template <typename ViewOf>
  static std::vector<std::pair<int32_t, int32_t>> FirstRows(
      int64_t n,
      size_t num_views,
      const ViewOf& view_of,
      kernels::HostContext* host_context) {
    std::vector<std::atomic<int32_t>> first_of(num_views);
    for (std::atomic<int32_t>& first : first_of) {
      first = std::numeric_limits<int32_t>::max();
    }
    host_context->ParallelFor(
        n, kEvaluatedRowsPerTask, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            std::atomic<int32_t>& first = first_of[view_of(i)];
            int32_t known = first.load(std::memory_order_relaxed);
            while (i < known && !first.compare_exchange_weak(
                                    known, static_cast<int32_t>(i))) {
            }
          }
        });
    std::vector<std::pair<int32_t, int32_t>> first_rows;
    for (size_t v = 0; v < num_views; ++v) {
      if (first_of[v] < n) {
        first_rows.push_back({first_of[v], static_cast<int32_t>(v)});
      }
    }
    std::sort(first_rows.begin(), first_rows.end());
    return first_rows;
  }

  // Rows of a view usually have the same blocks in the same slots, a
  // combination; constant blocks, which are in no view, and the point's slot
  // may tell them apart.
  static Status DescribeModel(const RowGroupsInput<Machine>& input,
                              const int32_t* order,
                              RowBlocks* row_blocks,
                              ModelInput* model) {
    const ProblemStructure& structure = *input.structure;
    const ViewStructure& views = structure.views;
    const ProblemRows& problem = *structure.rows;
    const int num_blocks = model->model->num_parameter_blocks;
    std::vector<BlockOfRow> blocks;  // by combination
    std::vector<int32_t> its_view;   // of each combination
    const auto blocks_of = [&](int32_t combination) {
      return blocks.data() + int64_t{num_blocks} * combination;
    };
    const auto hash = [&](int32_t combination) {
      auto sum = static_cast<uint64_t>(its_view[combination]);
      for (int b = 0; b < num_blocks; ++b) {
        const BlockOfRow& block = blocks_of(combination)[b];
        const auto value = reinterpret_cast<uintptr_t>(block.constant_value);
        sum = (sum ^ static_cast<uint32_t>(block.index) ^ value) *
              0x9e3779b97f4a7c15ull;
        sum ^= sum >> 32;
      }
      return static_cast<size_t>(sum);
    };
    const auto are_equal = [&](int32_t a, int32_t b) {
      return its_view[a] == its_view[b] &&
             std::equal(blocks_of(a), blocks_of(a) + num_blocks, blocks_of(b));
    };
    // Constant blocks may make a combination of each row. A hash table with
    // linear probing; -1: the slot is free.
    std::vector<int32_t> slots(64, -1);
    const auto slot_of = [&](int32_t combination) {
      for (size_t at = hash(combination);; ++at) {
        int32_t* const slot = &slots[at & (slots.size() - 1)];
        if (*slot < 0 || are_equal(*slot, combination)) {
          return slot;
        }
      }
    };
    // The combination of row i, of a view: a known one or the next.
    const auto find = [&](int64_t i, int32_t view) {
      const int32_t row = model->rows.data()[i];
      const auto next = static_cast<int32_t>(its_view.size());
      if (2 * its_view.size() >= slots.size()) {
        slots.assign(4 * slots.size(), -1);
        for (int32_t combination = 0; combination < next; ++combination) {
          *slot_of(combination) = combination;
        }
      }
      its_view.push_back(view);
      for (int b = 0; b < num_blocks; ++b) {
        blocks.push_back(BlockOrPoint(problem.Block(row, b), structure));
      }
      int32_t* const slot = slot_of(next);
      if (*slot >= 0) {
        its_view.pop_back();
        blocks.resize(blocks.size() - static_cast<size_t>(num_blocks));
        return *slot;
      }
      *slot = next;
      for (int b = 0; b < num_blocks; ++b) {
        model->blocks.push_back(Describe(problem,
                                         views.blocks[view],
                                         blocks_of(next)[b],
                                         problem.BlockSize(row, b),
                                         row_blocks));
      }
      return next;
    };
    // Most rows have the combination of the first row of their view.
    const int64_t n = model->rows.size();
    const auto view_of = [&](int64_t i) {
      return views.view_id.data()[order[model->PlaceOf(i)]];
    };
    std::vector<int32_t> of_view(views.blocks.size());
    for (const auto& [i, view] :
         FirstRows(n, views.blocks.size(), view_of, input.host_context)) {
      of_view[view] = find(i, view);
    }
    CERES_EXT_RETURN_IF_ERROR(model->combination.Allocate(n));
    int32_t* const combination = model->combination.data();
    // Rows with other blocks than the first one of their view, by task.
    std::vector<std::vector<int64_t>> others(
        static_cast<size_t>(n / kEvaluatedRowsPerTask) + 1);
    input.host_context->ParallelFor(
        n, kEvaluatedRowsPerTask, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            combination[i] = of_view[view_of(i)];
            if (!HasBlocks(model->rows.data()[i],
                           structure,
                           blocks_of(combination[i]))) {
              others[static_cast<size_t>(begin / kEvaluatedRowsPerTask)]
                  .push_back(i);
            }
          }
        });
    for (const std::vector<int64_t>& of_task : others) {
      for (const int64_t i : of_task) {
        combination[i] = find(i, view_of(i));
      }
    }
    return {};
  }

  double* ChunkValues(int64_t begin) {
    return values_.data() +
           begin / kChunk % kNumBuffers * Pack::kStride * kChunk;
  }

  int64_t FirstResidual(int64_t row) const final {
    return Shape::kNumResiduals * row;
  }
  HostEvaluation::PlaceOf ValuesOf(int64_t begin,
                                   BatchJacobian* /*jacobian*/) final {
    return [begin, values = ChunkValues(begin)](int64_t k) {
      double* const of_row = values + Pack::kStride * (k - begin);
      if constexpr (kIsNested) {
        // The private column of a row without such a block.
        std::fill_n(of_row, Pack::kStride, 0.0);
      }
      return of_row;
    };
  }
  Status Store(int64_t begin, int64_t end, BatchJacobian* jacobian) final {
    Machine* machine = rows_->machine;
    Pack pack;
    pack.n = end - begin;
    pack.begin = begin;
    pack.place = kIsHost<Machine> && !this->host_place().empty()
                     ? this->host_place().data()
                     : this->machine_host_place();
    pack.index = rows_->index();
    pack.e_size = rows_->point_table().tangent_size;
    pack.columns = rows_->columns.data();
    pack.rows = ChunkValues(begin);
    if constexpr (!kIsHost<Machine>) {
      CERES_EXT_RETURN_IF_ERROR(machine->context()->Activate());
      CERES_EXT_RETURN_IF_ERROR(machine->Upload(
          Pack::kStride * pack.n, pack.rows, machine_values_.data()));
      pack.rows = machine_values_.data();
    }
    pack.camera_blocks = static_cast<Jacobian*>(jacobian)->camera_blocks();
    pack.point_blocks = static_cast<Jacobian*>(jacobian)->point_blocks();
    return kernels::Run(pack, machine);
  }
  void SetCells(BatchJacobian* jacobian, RowBatch* rows) override {
    static_cast<Jacobian*>(jacobian)->SetCells(rows);
  }
  Status KeepState(BatchJacobian* jacobian) override {
    if constexpr (kIsNested) {
      return static_cast<Jacobian*>(jacobian)->ResetFactors();
    }
    return {};
  }

  bool are_opposite_ = false;
  kernels::HostBuffer<double> values_;  // Chunks on the host.
  // A chunk, where the machine isn't the host.
  typename Machine::template Buffer<double> machine_values_;
};

// Rows of one model, whose Jacobian is recomputed.
template <typename Machine, int C>
class RecomputedViewJacobian final
    : public ViewEvaluator<Machine, StoredViewJacobian<Machine, double, C>> {
 public:
  Status CreateJacobian(std::unique_ptr<BatchJacobian>* jacobian) const final {
    return MakeAndSetUp<Jacobian>(jacobian,
                                  this->rows_,
                                  this->blocks().blocks(),
                                  this->model_evaluator(0).model(),
                                  this->blocks().num_parameters(),
                                  this->num_tangents());
  }

 private:
  using Jacobian = RecomputedModelJacobian<Machine, C>;

  void SetCells(BatchJacobian* /*jacobian*/, RowBatch* /*rows*/) final {}
  Status KeepState(BatchJacobian* jacobian) final {
    return static_cast<Jacobian*>(jacobian)->SetState(
        this->model_evaluator(0).batch());
  }
};

}  // namespace

template <typename Machine>
std::string WhyStored(const ProblemStructure& structure,
                      const std::vector<std::string>& why_no_form,
                      kernels::HostContext* host_context,
                      Machine* machine,
                      int* columns) {
  if (kIsHost<Machine>) {
    return "the host stores it";
  }
  const ViewStructure& views = structure.views;
  if (views.size() == 0) {
    return "no residual blocks have two residuals, an eliminated point and one "
           "other block";
  }
  if (views.has_private) {
    return "some have a block of their own, which is eliminated within them";
  }
  const int16_t model = structure.model(views.row(0));
  const ceres::LossFunction* const loss =
      structure.rows->Loss(views.row(0)).loss;
  std::atomic<bool> is_one_model{model != ProblemStructure::kNoModel &&
                                 why_no_form[model].empty()};
  std::atomic<bool> is_one_loss{true};
  host_context->ParallelFor(
      views.uniform == nullptr ? views.size() : 0,
      kEvaluatedRowsPerTask,
      [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end && is_one_model; ++k) {
          if (structure.model(views.row(k)) != model) {
            is_one_model = false;
          }
          if (structure.rows->Loss(views.row(k)).loss != loss) {
            is_one_loss = false;
          }
        }
      });
  if (!is_one_model) {
    return "not all are of one type that the device evaluates";
  }
  std::vector<const ceres::LossFunction*> losses = {loss};
  for (int64_t k = 1; !is_one_loss && k < views.size(); ++k) {
    losses.push_back(structure.rows->Loss(views.row(k)).loss);
  }
  if (std::any_of(views.blocks.begin(), views.blocks.end(), [](const auto& b) {
        return b.size() > 1;
      })) {
    return "some have several blocks beside the point that vary";
  }
  std::vector<kernels::RobustLoss> known;
  std::vector<uint8_t> ids;
  std::vector<double> weights;
  if (FindChains(losses, &known, &ids, &weights, host_context) != nullptr) {
    return "some have a user-defined loss";
  }
  const BatchModel& its_model = *structure.models[model];
  const std::string why = WhyNoForm(its_model, FormKind::kRecomputed, machine);
  if (!why.empty()) {
    return TypeName(structure.rows->TypicalCostFunction(views.row(0))) + " " +
           why;
  }
  *columns = its_model.GetForm(FormKind::kRecomputed)->columns;
  return "";
}

template <typename Machine>
Status CreateViewEvaluator(const RowGroupsInput<Machine>& input,
                           std::unique_ptr<BatchEvaluator>* rows) {
  if constexpr (!kIsHost<Machine>) {
    if (input.recomputed_views) {
      return kernels::WithStoredColumns(
          input.structure->views.columns, [&](auto columns) {
            return MakeAndSetUp<RecomputedViewJacobian<Machine, columns>>(
                rows, input);
          });
    }
  }
  if (input.structure->views.has_private) {
    return MakeAndSetUp<ViewEvaluator<Machine, NestedRowsJacobian<Machine>>>(
        rows, input);
  }
  return WithBlockType<Machine>(input.mixed_precision, [&](auto value) {
    return kernels::WithStoredColumns(
        input.structure->views.columns, [&](auto columns) {
          return MakeAndSetUp<ViewEvaluator<
              Machine,
              StoredViewJacobian<Machine, decltype(value), columns>>>(rows,
                                                                      input);
        });
  });
}

#define CERES_EXT_INSTANTIATE(Machine)                      \
  template decltype(WhyStored<Machine>) WhyStored<Machine>; \
  template decltype(CreateViewEvaluator<Machine>) CreateViewEvaluator<Machine>;
CERES_EXT_FOR_EACH_MACHINE(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext
