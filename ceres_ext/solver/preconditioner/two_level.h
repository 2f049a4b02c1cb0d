// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A second level for a preconditioner M of S: M^-1 + P E^-1 P'.
#ifndef CERES_EXT_SOLVER_PRECONDITIONER_TWO_LEVEL_H_
#define CERES_EXT_SOLVER_PRECONDITIONER_TWO_LEVEL_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/coarse_choice.h"
#include "ceres_ext/solver/operator/schur_complement.h"
#include "ceres_ext/solver/preconditioner/coarse_space.h"
#include "ceres_ext/solver/preconditioner/preconditioner.h"
#include "ceres_ext/solver/rank_sums.h"
#include "ceres_ext/solver/step_options.h"
#include "cuda_kernels/base/breakdown.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_context.h"
#include "cuda_kernels/ops/vectors.h"

namespace ceres_ext::solver {

// M, which has S's diagonal blocks, and P E^-1 P' (coarse_space.h) from when
// CoarseChoice decides that it pays, in the middle of a solve if need be. A
// system whose E is not positive definite has M alone, and so have all if there
// is no E.
template <typename Machine>
class TwoLevelPreconditioner final : public Preconditioner<Machine> {
 public:
  // Batches, *schur, *ranks and *context outlive the object. f_varies: of each
  // value of F whether it is an unknown. ranks: null if there is one.
  TwoLevelPreconditioner(const StepOptions& options,
                         std::unique_ptr<Preconditioner<Machine>> m,
                         std::vector<Batch*> batches,
                         std::vector<unsigned char> f_varies,
                         SchurComplement<Machine>* schur,
                         RankSums<Machine>* ranks,
                         kernels::HostContext* context)
      : m_(std::move(m)),
        batches_(std::move(batches)),
        f_varies_(std::move(f_varies)),
        schur_(schur),
        ranks_(ranks),
        context_(context) {
    choice_.Setup(options.coarse_after, options.coarse_again);
  }

  // E and P take theirs when they are first wanted.
  kernels::Status Setup(const ProblemBlocks& blocks,
                        bool use_schur,
                        Machine* machine) final {
    this->machine_ = machine;
    num_packed_ = blocks.f_matrices().num_packed();
    CERES_EXT_RETURN_IF_ERROR(m_->Setup(blocks, use_schur, machine));
    coarse_ = std::make_unique<CoarseSpace<Machine>>();
    return coarse_->SetupDiagonal(blocks, machine);
  }

  NormalBlocksRequest WantedBlocks() final { return m_->WantedBlocks(); }

  kernels::Status Update(const LinearSystem& system) final {
    system_ = system;
    is_on_ = false;
    may_change_ = coarse_ != nullptr;
    if (coarse_ != nullptr) {
      // Before M inverts them in place.
      CERES_EXT_RETURN_IF_ERROR(
          Run(kernels::CopyParams{num_packed_,
                                  m_->WantedBlocks().schur_diagonal,
                                  coarse_->diagonal()},
              this->machine_));
      if (!system.is_same_linearization) {
        coarse_->Forget();
      }
      if (choice_.IsOn()) {
        CERES_EXT_RETURN_IF_ERROR(UpdateCoarse());
      }
    }
    return m_->Update(system);
  }

  kernels::Status SplitMergedBlocks(bool split) final {
    return m_->SplitMergedBlocks(split);
  }
  void ListBreakdowns(kernels::BreakdownArrays* arrays) const final {
    m_->ListBreakdowns(arrays);
  }
  kernels::Status CheckUpdate() final { return m_->CheckUpdate(); }

  kernels::Status Apply(const double* r,
                        double* z,
                        const kernels::PcgScalars* scalars) final {
    CERES_EXT_RETURN_IF_ERROR(m_->Apply(r, z, scalars));
    return is_on_ ? coarse_->Add(r, z, scalars) : kernels::Status();
  }

  const void* variant() const final { return is_on_ ? coarse_.get() : nullptr; }
  int LeastIterations() const final {
    return is_on_ ? CoarseChoice::kLeastIterations : 0;
  }
  int MostIterations(int most) const final {
    return is_on_ || !may_change_ ? most : choice_.MaxNumIterations(most);
  }

  kernels::Status NoteIterations(int num_iterations,
                                 bool has_ended,
                                 bool* has_changed) final {
    *has_changed = false;
    if (is_on_) {
      level_.num_iterations += num_iterations;
      switch (choice_.NoteStep(num_iterations)) {
        case CoarseChoice::Due::kNothing:
          break;
        case CoarseChoice::Due::kMatrix:
          coarse_->RenewMatrix();
          break;
        case CoarseChoice::Due::kVectors:
          coarse_->RenewVectors();
          break;
      }
      return {};
    }
    if (!may_change_ || !choice_.NoteStepWithout(num_iterations, has_ended)) {
      return {};
    }
    // M continues alone if there is no E.
    *has_changed = true;
    may_change_ = false;
    coarse_->RenewMatrix();
    return UpdateCoarse();
  }

  SecondLevel* second_level() final { return &level_; }
  void SetSecondLevel(int after, int again, const std::string& why_not) final {
    choice_.Setup(after, again);
    if (after < 0) {
      level_.why_not = why_not;
      coarse_.reset();
    }
  }

 private:
  // Errors are those that end a solve.
  kernels::Status UpdateCoarse() {
    const auto start = std::chrono::steady_clock::now();
    kernels::Status status;
    if (!is_set_up_) {
      status = coarse_->Setup(batches_, f_varies_, schur_, ranks_, context_);
      is_set_up_ = status.ok();
    }
    if (status.ok()) {
      status = coarse_->Update(system_, schur_->e_matrices());
    }
    is_on_ = status.ok();
    level_.seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
            .count();
    if (status.code == kernels::StatusCode::kDeviceError) {
      return status;
    }
    // With more damping the next system may be positive definite.
    if (!status.ok() && status.code != kernels::StatusCode::kNumericalFailure) {
      level_.why_not = status.message;
      choice_.Disable();
      coarse_.reset();
      may_change_ = false;
      return {};
    }
    level_.num_clusters = coarse_->num_clusters();
    level_.num_columns = coarse_->num_coarse();
    return {};
  }

  const std::unique_ptr<Preconditioner<Machine>> m_;
  const std::vector<Batch*> batches_;
  const std::vector<unsigned char> f_varies_;
  SchurComplement<Machine>* const schur_;
  RankSums<Machine>* const ranks_;
  kernels::HostContext* const context_;
  int64_t num_packed_ = 0;
  CoarseChoice choice_;
  // Null: there is none for any system.
  std::unique_ptr<CoarseSpace<Machine>> coarse_;
  bool is_set_up_ = false;
  SecondLevel level_;
  // The system of the last Update, and whether the second level is on or may
  // come.
  LinearSystem system_;
  bool is_on_ = false;
  bool may_change_ = false;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_PRECONDITIONER_TWO_LEVEL_H_
