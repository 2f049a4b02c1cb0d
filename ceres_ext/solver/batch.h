// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A batch: rows of J = [E F] of one kind, with all algebra on them that a step
// asks for. A problem is a list of batches over the same families of eliminated
// blocks (E) and of others (F); its residuals are those of the first batch,
// then those of the second, and so on.
//
// A batch may *own* families: an F family, whose part of a result it writes
// where others add, and an E family that no other batch has rows of, which it
// then eliminates by itself, in one pass over its rows. Everything else it adds
// to results that the caller has set (to zero, or to D^2 p). Batches are asked
// in their order, so owners come before those who add.
//
// A *private* block has one column, and one row alone has it. It is eliminated
// within its row before E's other blocks, one of which the row may have too.
// Private blocks are an E family of their own.
//
// No eliminated block and F block stand together in rows of two batches: the
// product of W's parts would be missing from the diagonal blocks of S, and with
// it from SCHUR_JACOBI. Steps don't need it.
//
// Kinds: ObservationBatch (observation_batch.h), ViewBatch (view_batch.h),
// GeneralBatch (general_batch.h).
#ifndef CERES_EXT_SOLVER_BATCH_H_
#define CERES_EXT_SOLVER_BATCH_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ceres_ext/solver/schur_contribution.h"
#include "ceres_ext/solver/step_options.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/block_rows.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/structure/block_families.h"
#include "cuda_kernels/structure/block_rows.h"
#include "cuda_kernels/structure/merged_blocks.h"

namespace ceres_ext::solver {

// The families of a problem and who owns them: the number of a batch, kShared,
// or, of a family of E, kPrivate. Vectors of unknowns are two arrays, one of
// the values of E, one of those of F.
struct ProblemBlocks {
  static constexpr int kShared = -1;
  static constexpr int kPrivate = -2;
  kernels::BlockFamilies e;
  kernels::BlockFamilies f;
  std::vector<int> e_owner;
  std::vector<int> f_owner;
  // F blocks that are merged in matrices of blocks, none of a family that a
  // batch owns.
  kernels::MergedBlocks merged;

  bool has_private() const {
    return std::find(e_owner.begin(), e_owner.end(), kPrivate) != e_owner.end();
  }

  // The families of u and schur_diagonal.
  const kernels::BlockFamilies& f_matrices() const {
    return merged.empty() ? f : merged.families;
  }
};

// The blocks of the normal equations that a step requests
// (cuda_kernels/ops/normal_blocks.h). Arrays over families, those of u and
// schur_diagonal over f_matrices(); null: not wanted.
struct NormalBlocksRequest {
  // True: the E blocks are eliminated, else they are unknowns like others.
  bool eliminate = true;
  // Families of more columns are left out of u.
  int max_u_columns = kernels::kAnyColumns;
  const double* b = nullptr;           // the residuals of the batch
  const double* e_diagonal = nullptr;  // D_e; null: zero
  double* e_gradient = nullptr;        // E'b
  double* f_gradient = nullptr;        // F'b
  double* v = nullptr;                 // E'E, packed
  double* v_inverse = nullptr;         // (E'E + D_e^2)^-1, packed
  double* u = nullptr;                 // F'F, packed
  double* schur_diagonal = nullptr;    // S_c, packed
  double* schur_rhs = nullptr;         // F'b - F'E (E'E + D_e^2)^-1 E'b
  // -(E'E + D_e^2)^-1 E'b, for F blocks of E families that are shared.
  const double* e_motion = nullptr;
  // One per E family.
  kernels::Breakdown* breakdown = nullptr;
};

// q = S p, q = (J'J + D^2) p or q = -F'E (E'E + D_e^2)^-1 E'F p.
struct ProductRequest {
  // True: S. e_p is then -(E'E + D_e^2)^-1 E'F p, of E families that are
  // shared, and e_q null.
  bool eliminate = true;
  // With eliminate, true: that part of S p alone which the elimination
  // subtracts; f_diagonal is then null.
  bool eliminated_part = false;
  const double* e_diagonal = nullptr;  // D_e; null: zero
  const double* f_diagonal = nullptr;
  const double* v_inverse = nullptr;
  const double* e_p = nullptr;
  const double* f_p = nullptr;
  double* e_q = nullptr;
  double* f_q = nullptr;
  const kernels::PcgScalars* scalars = nullptr;
};

// Its part of S as a matrix is a SchurContribution.
class Batch : public SchurContribution {
 public:
  virtual int64_t num_residuals() const = 0;
  // Rows of any shape and their values, in the memory of the machine; null: the
  // batch has others.
  virtual const kernels::BlockRowsRef* general_rows(
      const double** /*values*/) const {
    return nullptr;
  }

  // Takes the memory that a solver with these options will ask for. blocks: who
  // owns what. kUnsupported for what the kind of batch can't do.
  virtual kernels::Status SetupSolver(const StepOptions& options,
                                      const ProblemBlocks& blocks) = 0;

  // y = E e + F f, or += .
  virtual kernels::Status RightMultiply(const double* e,
                                        const double* f,
                                        bool accumulate,
                                        double* y) = 0;
  // e += E'y, f += F'y; null: not wanted.
  virtual kernels::Status LeftMultiplyAndAccumulate(const double* y,
                                                    double* e,
                                                    double* f) = 0;
  // Squared norms of the columns: owned families are set, others added to.
  virtual kernels::Status SquaredColumnNorms(double* e, double* f) = 0;

  // The blocks of E families, v and e_gradient; of families that the batch
  // owns all that is asked for.
  virtual kernels::Status EliminatedBlocks(
      const NormalBlocksRequest& request) = 0;
  // The blocks of F families, given v_inverse and e_motion where the E family
  // is shared.
  virtual kernels::Status OtherBlocks(const NormalBlocksRequest& request) = 0;

  // s += E'F f_p, of E families that are shared.
  virtual kernels::Status MultiplyToEliminated(
      const double* f_p, double* s, const kernels::PcgScalars* scalars) = 0;
  // f_q, and e_q where not eliminated: set where owned, else added to.
  virtual kernels::Status Multiply(const ProductRequest& request) = 0;
  // y = (E'E + D_e^2)^-1 E'(b - F z), of an E family that the batch owns.
  virtual kernels::Status BackSubstitute(const double* /*b*/,
                                         const double* /*v_inverse*/,
                                         const double* /*z*/,
                                         double* /*y*/) {
    return {};
  }
  // Writes those of the batch's private blocks, which are zero in `e`, given
  // the rest of a step. v_inverse: after EliminatedBlocks.
  virtual kernels::Status BackSubstitutePrivate(const double* /*b*/,
                                                const double* /*v_inverse*/,
                                                const double* /*f*/,
                                                double* /*e*/) {
    return {};
  }

  // Memory of num_residuals() values in which nothing is kept from one solve to
  // the next, after SetupSolver; null: there is none.
  virtual double* scratch_residuals() { return nullptr; }

  // The inputs of products are appended, so that a caller can tell whether they
  // have changed.
  virtual void AppendOperands(std::vector<const void*>* operands) const = 0;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_BATCH_H_
