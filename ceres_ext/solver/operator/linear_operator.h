// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The matrix that PCG iterates on, as batches apply it: S (schur_complement.h),
// S by products with it as a matrix (explicit_schur_complement.h), or J'J + D^2
// (normal_matrix.h).
//
// Update takes the blocks of a linear system, then Multiply computes any number
// of products. Setup takes all memory.
#ifndef CERES_EXT_SOLVER_OPERATOR_LINEAR_OPERATOR_H_
#define CERES_EXT_SOLVER_OPERATOR_LINEAR_OPERATOR_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/rank_sums.h"
#include "ceres_ext/solver/schur_matrix_size.h"
#include "ceres_ext/solver/step_options.h"
#include "cuda_kernels/base/breakdown.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/base/vector_space.h"
#include "cuda_kernels/ops/block_rows.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/ops/vectors.h"
#include "cuda_kernels/structure/block_families.h"

namespace ceres_ext::solver {

// min |J x - b|^2 + |D x|^2, arrays in the memory of the machine.
struct LinearSystem {
  const double* b = nullptr;           // residuals of all batches
  const double* e_diagonal = nullptr;  // D_e; null: zero
  const double* f_diagonal = nullptr;  // D_f; null: zero
  // Room for E'b, which ModelConstant needs; null: not wanted.
  double* e_gradient = nullptr;
  // True if the Jacobian is that of the system before.
  bool is_same_linearization = false;
};

template <typename Machine>
class LinearOperator {
 public:
  virtual ~LinearOperator() = default;

  // The views of blocks and batches must outlive the operator.
  virtual kernels::Status Setup(const StepOptions& options,
                                const ProblemBlocks& blocks,
                                const std::vector<Batch*>& batches,
                                Machine* machine) {
    blocks_ = blocks;
    batches_ = batches;
    machine_ = machine;
    const auto list = [](const kernels::BlockFamilies& families,
                         const std::vector<int>& owners,
                         Shared* shared,
                         int owner = ProblemBlocks::kShared) {
      shared->clear();
      for (int i = 0; i < families.size(); ++i) {
        if (owners[i] == owner && families[i].num_blocks > 0) {
          shared->emplace_back(i, families[i]);
        }
      }
    };
    list(blocks.e, blocks.e_owner, &shared_e_);
    list(blocks.e, blocks.e_owner, &private_e_, ProblemBlocks::kPrivate);
    if (!options.use_schur) {
      shared_e_.insert(shared_e_.end(), private_e_.begin(), private_e_.end());
      private_e_.clear();
    }
    list(blocks.f, blocks.f_owner, &shared_f_);
    std::vector<int> owners = blocks.f_owner;
    owners.resize(blocks.f_matrices().size(), ProblemBlocks::kShared);
    list(blocks.f_matrices(), owners, &shared_f_matrices_);
    for (Batch* batch : batches) {
      CERES_EXT_RETURN_IF_ERROR(batch->SetupSolver(options, blocks));
    }
    return {};
  }

  // Before Setup, for a solve by several ranks: results over F are sums over
  // all of them. *ranks outlives the operator.
  void SetRanks(RankSums<Machine>* ranks) { ranks_ = ranks; }

  // v = E'E, u = F'F, packed, those of F over the families of f_matrices() of
  // at most max_u_columns columns, which are in the first num_u values. Needs
  // no Update.
  kernels::Status UndampedBlocks(int max_u_columns,
                                 int64_t num_u,
                                 double* v,
                                 double* u) {
    NormalBlocksRequest request;
    request.eliminate = false;
    request.max_u_columns = max_u_columns;
    request.v = v;
    request.u = u;
    CERES_EXT_RETURN_IF_ERROR(SetSharedToZero(request));
    for (const auto blocks : {&Batch::EliminatedBlocks, &Batch::OtherBlocks}) {
      for (Batch* batch : batches_) {
        CERES_EXT_RETURN_IF_ERROR((batch->*blocks)(request));
      }
    }
    return SumOverRanks(num_u, u);
  }
  const ProblemBlocks& blocks() const { return blocks_; }
  // Room for the packed matrices of E, which Update writes; null: none.
  virtual double* e_matrices() { return nullptr; }

  // Unknowns; those of F come first.
  virtual kernels::VectorSpace space() const = 0;
  // Takes the system, and computes the blocks that are wanted (u, v and
  // schur_diagonal of the request) and the right-hand side.
  virtual kernels::Status Update(const LinearSystem& system,
                                 const NormalBlocksRequest& wanted,
                                 double* rhs) = 0;
  // The place in which the last Update reports, when it is done, eliminated
  // blocks that can't be inverted; results computed from them are invalid.
  virtual void ListBreakdowns(kernels::BreakdownArrays* /*arrays*/) const {}
  // Waits for the last Update. kNumericalFailure where there is a breakdown.
  virtual kernels::Status CheckUpdate() { return {}; }
  // After Update with e_gradient: the least |J x - b|^2 + |D x|^2 where the
  // unknowns of A are zero, |b|^2 - b'E (E'E + D_e^2)^-1 E'b, or |b|^2 where
  // nothing is eliminated.
  virtual kernels::Status ModelConstant(double* constant) {
    int64_t n = 0;
    for (const Batch* batch : batches_) {
      n += batch->num_residuals();
    }
    return Run(kernels::DotParams{n, system_.b, system_.b, constant}, machine_);
  }
  // The matrix if products use one; null if they use the Jacobian.
  virtual const SchurMatrixSize* matrix_size() const { return nullptr; }
  // After Update, which has filled schur_diagonal: forms that matrix.
  virtual kernels::Status FormMatrix(const LinearSystem& /*system*/,
                                     const double* /*schur_diagonal*/) {
    return {};
  }
  // q = A p. scalars: ended, nothing need be done.
  virtual kernels::Status Multiply(const double* p,
                                   double* q,
                                   const kernels::PcgScalars* scalars) = 0;
  // The step from the solution x.
  virtual kernels::Status Finish(const double* x,
                                 double* e_step,
                                 double* f_step) = 0;

 protected:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;
  // Families that no batch owns, with their numbers.
  using Shared = std::vector<std::pair<int, kernels::BlockFamily>>;

  // x = the sum over all ranks, if there are several.
  kernels::Status SumOverRanks(int64_t n, double* x) {
    return ranks_ == nullptr ? kernels::Status() : ranks_->Sum(n, x);
  }

  // q = D^2 p on the shared families, D null: zero.
  kernels::Status SetShared(const Shared& shared,
                            const double* diagonal,
                            const double* p,
                            double* q,
                            const kernels::PcgScalars* scalars) {
    for (const auto& [i, family] : shared) {
      const int64_t at = family.value_begin;
      const bool zero = diagonal == nullptr;
      CERES_EXT_RETURN_IF_ERROR(
          Run(kernels::DampedProductParams{family.num_values(),
                                           zero ? nullptr : diagonal + at,
                                           zero ? nullptr : p + at,
                                           q + at,
                                           scalars},
              machine_));
    }
    return {};
  }

  // Requested outputs that several batches add to start at zero.
  kernels::Status SetSharedToZero(const NormalBlocksRequest& request) {
    const auto set_zero = [&](double* x, int64_t begin, int64_t n) {
      return x == nullptr ? kernels::Status() : machine_->SetZero(n, x + begin);
    };
    for (const Shared* const families : {&shared_e_, &private_e_}) {
      for (const auto& [i, family] : *families) {
        CERES_EXT_RETURN_IF_ERROR(set_zero(
            request.e_gradient, family.value_begin, family.num_values()));
        CERES_EXT_RETURN_IF_ERROR(
            set_zero(request.v, family.packed_begin, family.num_packed()));
      }
    }
    for (const auto& [i, family] : shared_f_) {
      for (double* vector : {request.f_gradient, request.schur_rhs}) {
        CERES_EXT_RETURN_IF_ERROR(
            set_zero(vector, family.value_begin, family.num_values()));
      }
    }
    for (const auto& [i, family] : shared_f_matrices_) {
      CERES_EXT_RETURN_IF_ERROR(
          set_zero(family.size <= request.max_u_columns ? request.u : nullptr,
                   family.packed_begin,
                   family.num_packed()));
      CERES_EXT_RETURN_IF_ERROR(set_zero(
          request.schur_diagonal, family.packed_begin, family.num_packed()));
    }
    return {};
  }

  // Asks all batches for blocks, each with its residuals.
  kernels::Status Ask(
      kernels::Status (Batch::*blocks)(const NormalBlocksRequest&),
      NormalBlocksRequest* request) {
    request->b = system_.b;
    for (Batch* batch : batches_) {
      CERES_EXT_RETURN_IF_ERROR((batch->*blocks)(*request));
      request->b += batch->num_residuals();
    }
    return {};
  }

  ProblemBlocks blocks_;
  Shared shared_e_;
  Shared private_e_;  // of which E'b and V are sums as well
  Shared shared_f_;
  Shared shared_f_matrices_;
  std::vector<Batch*> batches_;
  Machine* machine_ = nullptr;
  RankSums<Machine>* ranks_ = nullptr;  // null: there is one rank
  LinearSystem system_;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_OPERATOR_LINEAR_OPERATOR_H_
