// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Preconditioners z = M^-1 r of the operators in operator/.
//
// A new one is a file here and a line in create_preconditioner.h.
#ifndef CERES_EXT_SOLVER_PRECONDITIONER_PRECONDITIONER_H_
#define CERES_EXT_SOLVER_PRECONDITIONER_PRECONDITIONER_H_

#include <cstdint>
#include <string>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/operator/linear_operator.h"
#include "cuda_kernels/base/breakdown.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/vectors.h"

namespace ceres_ext::solver {

// A second level, for summaries.
struct SecondLevel {
  int32_t num_clusters = 0;  // 0: no step has had it
  int64_t num_columns = 0;
  // The reason why steps go without it that should have it, a sentence; empty:
  // none do.
  std::string why_not;
  // Since the owner has set them to zero: seconds to make and update it, and
  // iterations with it.
  double seconds = 0.0;
  int num_iterations = 0;
};

// M = I, and what others override. M may be another one from some iteration of
// a solve on: PCG then starts again from where it is.
template <typename Machine>
class Preconditioner {
 public:
  virtual ~Preconditioner() = default;

  // Takes all memory. use_schur: of S, else of J'J + D^2.
  virtual kernels::Status Setup(const ProblemBlocks& blocks,
                                bool use_schur,
                                Machine* machine) {
    machine_ = machine;
    n_ = blocks.f.num_values() + (use_schur ? 0 : blocks.e.num_values());
    return {};
  }
  // The blocks that it is made of (u, v, schur_diagonal), computed before each
  // Update.
  virtual NormalBlocksRequest WantedBlocks() { return {}; }
  virtual kernels::Status Update(const LinearSystem& /*system*/) { return {}; }
  // From the next Update on, the blocks of F are not merged; or they are again.
  virtual kernels::Status SplitMergedBlocks(bool /*split*/) { return {}; }
  // Where the last Update tells, when it is done, of blocks without inverse.
  virtual void ListBreakdowns(kernels::BreakdownArrays* /*arrays*/) const {}
  // Waits for the last Update. kNumericalFailure where there is no inverse.
  virtual kernels::Status CheckUpdate() { return {}; }
  virtual kernels::Status Apply(const double* r,
                                double* z,
                                const kernels::PcgScalars* /*scalars*/) {
    return Run(kernels::CopyParams{n_, r, z}, machine_);
  }
  // Another value if Apply queues other work.
  virtual const void* variant() const { return nullptr; }
  // Iterations of a solve at least, and at most of `most` that are left, before
  // NoteIterations.
  virtual int LeastIterations() const { return 0; }
  virtual int MostIterations(int most) const { return most; }
  // PCG has taken so many iterations with the preconditioner as it is.
  // *has_changed: it is another one, and PCG, which has not ended, continues.
  virtual kernels::Status NoteIterations(int /*num_iterations*/,
                                         bool /*has_ended*/,
                                         bool* has_changed) {
    *has_changed = false;
    return {};
  }
  // Null: it has none.
  virtual SecondLevel* second_level() { return nullptr; }
  // StepOptions::coarse_after and coarse_again, on which ranks have agreed;
  // below 0: there is no second level. why_not: the reason, a sentence.
  virtual void SetSecondLevel(int /*after*/,
                              int /*again*/,
                              const std::string& /*why_not*/) {}
  // x = what PCG starts from, where options.use_spse_initialization.
  virtual kernels::Status Initialize(const double* /*rhs*/, double* /*x*/) {
    return {};
  }

 protected:
  Machine* machine_ = nullptr;

 private:
  int64_t n_ = 0;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_PRECONDITIONER_PRECONDITIONER_H_
