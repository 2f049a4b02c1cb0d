// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Reads out of a problem of arrays (ceres_ext/array_problem.h) what
// import_rows.h reads out of a Program of Ceres, with the same result. If all
// rows are observations, one array of each kind, then index arrays,
// observations and weights are referenced and not copied, unless a block is
// constant or in no residual block. Other problems go the way of a Program's
// rows (array_rows.h).
//
// Ceres's loop runs over an empty shell of a problem: evaluator, linear solver
// and vectors are all this library's, and the state goes to and from the arrays
// (caller_state.h).

#ifndef CERES_EXT_IMPORT_ARRAY_IMPORT_H_
#define CERES_EXT_IMPORT_ARRAY_IMPORT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ceres/solver.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/base/machines.h"
#include "ceres_ext/import/array_rows.h"
#include "ceres_ext/import/caller_state.h"
#include "ceres_ext/import/import_rows.h"
#include "ceres_ext/summary.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

// ArrayProblem::IsValid by existing threads. device: reads what is on it, and
// fills *facts, one per parameter array; null: an array on a device is an
// error.
bool IsValidProblem(const ArrayProblem& problem,
                    kernels::HostContext* context,
                    std::string* error,
                    DeviceMachine* device = nullptr,
                    std::vector<DeviceArrayFacts>* facts = nullptr);

// Names the worst of degenerate blocks by array and block.
void NameWorst(const ArrayProblem& problem, DegenerateBlocks* degenerate);

class ArrayImport {
 public:
  // *problem is valid; it and *summary, that of the solve, outlive this object.
  // communicator: of the ranks that solve, which call the same methods, or
  // null. Methods throw std::runtime_error where it fails.
  ArrayImport(const ArrayProblem* problem,
              const ceres::Solver::Summary* summary,
              kernels::Communicator* communicator = nullptr)
      : problem_(problem),
        communicator_(communicator),
        rows_(std::make_shared<ArrayRows>(problem, communicator)),
        caller_state_(summary) {}

  // Once, before Import, if arrays are on a device, which solves.
  void SetDeviceFacts(std::vector<DeviceArrayFacts> facts) {
    facts_ = std::move(facts);
  }
  bool is_on_device() const { return !facts_.empty(); }
  // The reason why arrays on a device have to be copied to the host, a part of
  // a sentence; empty if they have not.
  std::string WhyCopied(const ceres::Solver::Options& options) const;

  // The reason why the problem, or a solve with these options, needs a
  // ceres::Problem, a part of a sentence; empty if it doesn't.
  std::string WhyProblemIsNeeded(const ceres::Solver::Options& options) const;

  // As ImportProgram, and throws std::bad_alloc. May be called again where
  // *structure is used up; it refers to the arrays and to this object.
  // wants_hash: what ObservationTable::index_hash and ViewStructure::index_hash
  // say.
  bool Import(const ImportOptions& options,
              bool wants_hash,
              kernels::HostContext* context,
              ProblemStructure* structure,
              std::string* reason);
  // Puts the blocks first that Schur solvers eliminate: those of the array with
  // is_eliminated, otherwise those that Ceres would eliminate, or, of many
  // rows, an array of points that most blocks are in
  // (ArrayRows::IndependentArray).
  // *num_eliminate_blocks: how many, for the next Import. max_size: of these,
  // blocks with more tangent dimensions stay, and *note says so, a clause, if
  // the array with is_eliminated has some. takes_private: without an array that
  // is given, the blocks beside private ones if many rows have these. False,
  // with a sentence in *reason, as Import.
  bool ChooseEliminated(kernels::HostContext* context,
                        int max_size,
                        bool takes_private,
                        int* num_eliminate_blocks,
                        std::string* note,
                        std::string* reason);

  // After Import: puts a tangent vector of Ceres's loop where the blocks of the
  // arrays are, one array and block after the other, with as many values as the
  // tangent of each has, and zeros for those that do not vary.
  void SpreadTangents(const double* tangents,
                      std::vector<double>* of_blocks) const;
  // After Import: the place in a tangent vector of each block of an array; -1:
  // it does not vary.
  void ListTangentOffsets(int array, std::vector<int32_t>* of_blocks) const;

  // Cost of residual blocks that depend on constants alone, after Import.
  double fixed_cost() const { return fixed_cost_; }
  // The same with or without losses and weights; false if one can't be
  // evaluated.
  bool FixedCost(bool apply_loss, double* cost) const;

  const ArrayProblem& problem() const { return *problem_; }

  // After Import, for Ceres's summary: of the problem, and of what varies.
  void FillSummary(ceres::Solver::Summary* summary) const;

  // Residuals times columns, if all blocks vary; of rows that the host
  // evaluates where there is a device, too.
  void CountValues(bool batch_evaluation,
                   int64_t* num_values,
                   int64_t* num_host_values) const;
  // The rows of the last Import; null if it referred to observations.
  const ProblemRows* rows() const { return has_rows_ ? rows_.get() : nullptr; }
  // True if values that vary have bounds, on any rank, after Import.
  bool is_constrained() const { return is_constrained_; }
  // Columns of blocks that vary, after Import.
  int64_t num_columns() const { return rows_->num_columns(); }

 private:
  // The family of a parameter array: the blocks that vary, then the constant
  // ones.
  struct Family {
    // The place of each block in it; empty if it is the block's number.
    std::vector<int32_t> place;
    std::vector<int32_t> constants;
  };

  const ArrayProblem::Parameters& parameters(int i) const {
    return problem_->parameters()[i];
  }

  // kOther where this library doesn't evaluate observations of that kind from
  // the array itself.
  BatchModelKind KindOf(int residuals) const;
  // True if one of the rows may be an observation.
  bool MayHaveObservations() const;
  // True if all rows are observations that can be referred to.
  bool AreObservations() const;
  bool ImportObservations(bool wants_hash,
                          kernels::HostContext* context,
                          ProblemStructure* structure,
                          std::string* reason);
  bool SetupRows(kernels::HostContext* context, std::string* reason);
  Family FindFamily(int array) const;
  void FillTable(int array,
                 const Family& family,
                 kernels::HostContext* context,
                 BlockTable* table) const;
  // The places that rows name.
  void ReadPlaces(const ArrayProblem::Index& index,
                  const Family& family,
                  int64_t num_rows,
                  kernels::HostContext* context,
                  InputArray<int32_t>* ids) const;
  // Sets the members of *structure that do not depend on the kind of rows.
  void Complete(ProblemStructure* structure);

  // False with a sentence in *reason if nothing varies, on any rank.
  bool HasColumns(std::string* reason) const;
  // The array of which each rank has its own.
  int OwnArray() const;
  // True if all ranks can refer to their rows as observations.
  bool AreObservationsOnAllRanks() const;

  const ArrayProblem* problem_;
  kernels::Communicator* communicator_;  // null: there is one rank
  // Empty if no array is on a device.
  std::vector<DeviceArrayFacts> facts_;
  const std::shared_ptr<ArrayRows> rows_;
  // True if rows_ has been set up.
  bool has_rows_ = false;
  CallerState caller_state_;
  // For Ceres's summary.
  int64_t num_rows_ = 0;
  int num_residuals_ = 0;
  double fixed_cost_ = 0.0;
  bool is_constrained_ = false;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_IMPORT_ARRAY_IMPORT_H_
