// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/base/machines.h"
#include "ceres_ext/rows/row_groups_evaluator.h"
#include "ceres_ext/solver/general_batch.h"
#include "cuda_kernels/structure/block_rows.h"

namespace ceres_ext {

using kernels::Status;

namespace {

template <typename Machine>
class GeneralJacobian final : public BatchJacobian {
 public:
  // *blocks outlives the Jacobian.
  Status Setup(const MachineProblem<Machine>* blocks) {
    blocks_ = blocks;
    Machine* machine = blocks->machine();
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(blocks->rows()->num_values(), &values_));
    return batch_.Setup(
        blocks->rows(), blocks->blocks(), values_.data(), machine);
  }

  solver::Batch* batch() final { return &batch_; }
  Status ScaleColumns(const double* e, const double* f) final {
    return batch_.ScaleColumns(e, f);
  }
  Status SetZero() final {
    return blocks_->machine()->SetZero(values_.size(), values_.data());
  }
  Status ForEachValue(const Visit& visit) const final {
    std::vector<double> values(values_.size());
    CERES_EXT_RETURN_IF_ERROR(blocks_->machine()->Download(
        values_.size(), values_.data(), values.data()));
    const kernels::BlockRowsBuilder& rows = *blocks_->general_rows();
    const std::vector<int> e = Columns(blocks_->blocks().e, blocks_->e());
    const std::vector<int> f = Columns(blocks_->blocks().f, blocks_->f());
    for (int64_t k = 0; k < rows.num_rows(); ++k) {
      for (int32_t row = rows.row_begin()[k]; row < rows.row_begin()[k + 1];
           ++row) {
        const int64_t i = row - rows.row_begin()[k];
        for (int32_t c = rows.cell_begin()[k]; c < rows.cell_begin()[k + 1];
             ++c) {
          const kernels::RowCell& cell = rows.cells()[c];
          for (int j = 0; j < cell.size; ++j) {
            visit(row,
                  (cell.eliminated != 0 ? e : f)[cell.column + j],
                  values[cell.value + i * cell.size + j]);
          }
        }
      }
    }
    return {};
  }

  double* values() { return values_.data(); }

 private:
  // The place of a column of the family vectors in Ceres's vectors.
  static std::vector<int> Columns(
      const kernels::BlockFamilies& families,
      const std::vector<FamilyTable<Machine>>& tables) {
    std::vector<int> column(families.num_values());
    for (int i = 0; i < families.size(); ++i) {
      for (int64_t b = 0; b < families[i].num_blocks; ++b) {
        for (int j = 0; j < families[i].size; ++j) {
          column[families[i].value_begin + families[i].size * b + j] =
              tables[i].table().tangent_offset(b) + j;
        }
      }
    }
    return column;
  }

  const MachineProblem<Machine>* blocks_ = nullptr;
  typename Machine::template Buffer<double> values_;
  solver::GeneralBatch<Machine> batch_;
};

// Host rows come in one chunk, which on the host is the Jacobian.
template <typename Machine>
class GeneralEvaluator final : public RowGroupsEvaluator<Machine> {
  using Base = RowGroupsEvaluator<Machine>;
  using typename Base::ModelInput;

 public:
  using Jacobian = GeneralJacobian<Machine>;

  Status Setup(const RowGroupsInput<Machine>& input) {
    index_ = input.blocks->general_rows();
    InputArray<int32_t> rows;
    CERES_EXT_RETURN_IF_ERROR(rows.Allocate(index_->num_rows()));
    for (int64_t k = 0; k < rows.size(); ++k) {
      rows.own_data()[k] =
          input.structure->general_rows[index_->row_order()[k]];
    }
    const auto describe = [&](RowBlocks* blocks,
                              kernels::HostBuffer<RowBlock>* /*points*/,
                              ModelInput* model) {
      DescribeModel(input, blocks, model);
      return Status();
    };
    CERES_EXT_RETURN_IF_ERROR(this->SetupRows(input,
                                              rows,
                                              index_->num_residuals(),
                                              this->kOneChunk,
                                              /*e_values=*/0,
                                              /*point_id=*/nullptr,
                                              describe));
    return kIsHost<Machine> || this->num_host_rows() == 0
               ? Status()
               : this->SetupRanges(
                     index_->num_values(),
                     [this](int64_t place) { return FirstValue(place); },
                     [this](int64_t place) { return NumValues(place); },
                     &values_);
  }

  Status CreateJacobian(std::unique_ptr<BatchJacobian>* jacobian) const final {
    return MakeAndSetUp<Jacobian>(jacobian, &this->blocks());
  }

 private:
  // The first of the row's values; a row without cells has no place of its own.
  int64_t FirstValue(int64_t place) const {
    const int32_t cell = index_->cell_begin()[place];
    return cell == index_->cell_begin()[place + 1]
               ? 0
               : index_->cells()[cell].value;
  }
  int64_t NumValues(int64_t place) const {
    int64_t columns = 0;
    for (int32_t c = index_->cell_begin()[place];
         c < index_->cell_begin()[place + 1];
         ++c) {
      columns += index_->cells()[c].size;
    }
    return columns *
           (index_->row_begin()[place + 1] - index_->row_begin()[place]);
  }

  void DescribeModel(const RowGroupsInput<Machine>& input,
                     RowBlocks* blocks,
                     ModelInput* model) const {
    const kernels::BlockRowsBuilder& index = *index_;
    const ProblemRows& problem = *input.structure->rows;
    for (int64_t i = 0; i < model->rows.size(); ++i) {
      const int32_t place = model->PlaceOf(i);
      const int32_t row = model->rows.data()[i];
      const int32_t first = index.cell_begin()[place];
      const int32_t end = index.cell_begin()[place + 1];
      const int64_t value_begin = FirstValue(place);
      model->residual_begin.push_back(index.row_begin()[place]);
      model->value_begin.push_back(value_begin);
      // The cell of E stands first, that of a private block last, the others as
      // in the row.
      int32_t next = first;
      if (first < end &&
          index.cells()[first].eliminated == elimination::kEliminated) {
        ++next;
      }
      for (int b = 0; b < problem.NumBlocks(row); ++b) {
        const BlockOfRow block = problem.Block(row, b);
        int64_t value = value_begin;
        if (!block.is_constant()) {
          const uint8_t mark = input.structure->is_eliminated[block.index];
          const int32_t cell = mark == elimination::kEliminated ? first
                               : mark == elimination::kPrivate  ? end - 1
                                                                : next++;
          value = index.cells()[cell].value;
        }
        model->blocks.push_back(
            blocks->Make(problem,
                         block,
                         problem.BlockSize(row, b),
                         static_cast<int32_t>(value - value_begin)));
      }
    }
  }

  int64_t FirstResidual(int64_t place) const final {
    return index_->row_begin()[place];
  }
  HostEvaluation::PlaceOf ValuesOf(int64_t /*begin*/,
                                   BatchJacobian* jacobian) final {
    double* const values = static_cast<Jacobian*>(jacobian)->values();
    return [this, values](int64_t k) {
      const int64_t first = FirstValue(this->PlaceOf(k));
      return kIsHost<Machine> ? values + first : values_.At(k, first);
    };
  }
  Status Store(int64_t /*begin*/,
               int64_t /*end*/,
               BatchJacobian* jacobian) final {
    return kIsHost<Machine>
               ? Status()
               : values_.Send(static_cast<Jacobian*>(jacobian)->values(),
                              this->machine());
  }
  void SetCells(BatchJacobian* jacobian, RowBatch* rows) final {
    // value_begin has the beginning of a row.
    rows->f = {static_cast<Jacobian*>(jacobian)->values(), 0, 0, 1};
  }

  const kernels::BlockRowsBuilder* index_ = nullptr;
  HostRanges<Machine> values_;  // Staging memory for the upload to a device.
};

}  // namespace

template <typename Machine>
Status CreateGeneralEvaluator(const RowGroupsInput<Machine>& input,
                              std::unique_ptr<BatchEvaluator>* rows) {
  return MakeAndSetUp<GeneralEvaluator<Machine>>(rows, input);
}

#define CERES_EXT_INSTANTIATE(Machine)               \
  template decltype(CreateGeneralEvaluator<Machine>) \
      CreateGeneralEvaluator<Machine>;
CERES_EXT_FOR_EACH_MACHINE(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext
