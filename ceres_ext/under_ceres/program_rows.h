// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The rows of Ceres's reduced Program, and what is asked of it at import.

#ifndef CERES_EXT_UNDER_CERES_PROGRAM_ROWS_H_
#define CERES_EXT_UNDER_CERES_PROGRAM_ROWS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ceres/ordered_groups.h"
#include "ceres/parameter_block.h"
#include "ceres/program.h"
#include "ceres/residual_block.h"
#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/import/import_rows.h"
#include "ceres_ext/import/problem_rows.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

class ProgramRows final : public ProblemRows {
 public:
  // *program, whose parameter offsets and indices are set, outlives the object.
  explicit ProgramRows(const ceres::internal::Program& program)
      : program_(program) {}

  int num_columns() const final { return program_.NumEffectiveParameters(); }
  int num_parameters() const final { return program_.NumParameters(); }
  int num_residuals() const final { return program_.NumResiduals(); }

  int32_t num_blocks() const final { return program_.NumParameterBlocks(); }
  VaryingBlock block(int32_t index) const final {
    const auto& block = *program_.parameter_blocks()[index];
    return {block.state_offset(),
            block.delta_offset(),
            block.Size(),
            block.TangentSize(),
            block.manifold()};
  }

  int64_t size() const final { return program_.NumResidualBlocks(); }
  int NumResiduals(int64_t row) const final { return At(row).NumResiduals(); }
  int NumBlocks(int64_t row) const final {
    return At(row).NumParameterBlocks();
  }
  BlockOfRow Block(int64_t row, int j) const final {
    const auto& block = *At(row).parameter_blocks()[j];
    return block.IsConstant() ? BlockOfRow{BlockOfRow::kConstant, block.state()}
                              : BlockOfRow{block.index(), nullptr};
  }
  LossOfRow Loss(int64_t row) const final {
    return {At(row).loss_function(), nullptr};
  }
  bool has_weights() const final { return false; }
  const ceres::CostFunction& TypicalCostFunction(int64_t row) const final {
    return *At(row).cost_function();
  }
  const ceres::CostFunction* CostFunction(
      int64_t row,
      std::unique_ptr<const ceres::CostFunction>* /*owner*/) const final {
    return At(row).cost_function();
  }
  void CopyConstants(int64_t row, void* constants) const final {
    static_cast<const BatchableCostFunction*>(At(row).cost_function())
        ->CopyConstants(constants);
  }
  bool HasObject(int64_t row) const final;
  bool SetStateOfObjects(const double* state) const final {
    // The states of the blocks alone change.
    return const_cast<ceres::internal::Program&>(program_)
        .StateVectorToParameterBlocks(state);
  }
  bool EvaluateObject(int64_t row,
                      bool apply_loss,
                      double* cost,
                      double* residuals,
                      double** jacobians,
                      std::vector<double>* scratch) const final {
    const auto& object = At(row);
    scratch->resize(static_cast<size_t>(object.NumScratchDoublesForEvaluate()));
    return object.Evaluate(
        apply_loss, cost, residuals, jacobians, scratch->data());
  }
  int64_t Number(int64_t row) const final { return At(row).index(); }

 private:
  void CopyBlocks(int64_t begin, int64_t end, int32_t* to) const final {
    for (int64_t i = begin; i < end; ++i) {
      const auto& row = At(i);
      for (int j = 0; j < row.NumParameterBlocks(); ++j) {
        const auto& block = *row.parameter_blocks()[j];
        *to++ = block.IsConstant() ? BlockOfRow::kConstant : block.index();
      }
    }
  }

  const ceres::internal::ResidualBlock& At(int64_t row) const {
    return *program_.residual_blocks()[row];
  }

  const ceres::internal::Program& program_;
};

// As ImportRows, of a Program whose parameter offsets and indices are set.
bool ImportProgram(const ceres::internal::Program& program,
                   const ImportOptions& options,
                   kernels::HostContext* context,
                   ProblemStructure* structure,
                   std::string* reason);

// Sets *is_eliminated, of each parameter block of the program, to what Ceres's
// own ITERATIVE_SCHUR would eliminate: the first group of the ordering where
// there is one with several, else the independent set. `ordering` may be null.
// Returns false with a sentence in *reason if the first group is not an
// independent set. Without blocks of more than max_size tangent dimensions;
// *note says so, a clause, if the first group has some.
// takes_private: if many rows have private blocks, the set is what is
// eliminated beside these: the first or second group of the ordering unless it
// is the last, or an independent set of points (ChooseBesidePrivate).
bool ChooseEliminatedBlocks(const ceres::internal::Program& program,
                            const ceres::ParameterBlockOrdering* ordering,
                            int max_size,
                            bool takes_private,
                            kernels::HostContext* context,
                            std::vector<uint8_t>* is_eliminated,
                            std::string* note,
                            std::string* reason);

}  // namespace ceres_ext

#endif  // CERES_EXT_UNDER_CERES_PROGRAM_ROWS_H_
