// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// S = F'F + D_f^2 - F'E (E'E + D_e^2)^-1 E'F as batches apply it.
#ifndef CERES_EXT_SOLVER_OPERATOR_SCHUR_COMPLEMENT_H_
#define CERES_EXT_SOLVER_OPERATOR_SCHUR_COMPLEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ceres_ext/solver/operator/linear_operator.h"
#include "cuda_kernels/base/breakdown.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/base/vector_space.h"
#include "cuda_kernels/ops/block_rows.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/ops/vectors.h"
#include "cuda_kernels/structure/block_families.h"

namespace ceres_ext::solver {

template <typename Machine>
class SchurComplement : public LinearOperator<Machine> {
 public:
  using Base = LinearOperator<Machine>;

  kernels::Status Setup(const StepOptions& options,
                        const ProblemBlocks& blocks,
                        const std::vector<Batch*>& batches,
                        Machine* machine) override {
    CERES_EXT_RETURN_IF_ERROR(Base::Setup(options, blocks, batches, machine));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(blocks.e.num_packed(), &v_inverse_));
    const int64_t num_shared = shared_e_.empty() ? 0 : blocks.e.num_values();
    for (auto* vector : {&e_gradient_, &sum_, &motion_}) {
      CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_shared, vector));
    }
    // The part of private blocks stays zero: so are their cells.
    CERES_EXT_RETURN_IF_ERROR(machine->SetZero(motion_.size(), motion_.data()));
    breakdowns_.resize(blocks.e.size());
    return machine->Upload(breakdowns_, &breakdown_);
  }

  double* e_matrices() final { return v_inverse_.data(); }

  kernels::VectorSpace space() const final {
    return {blocks_.f.num_values(), 0};
  }

  kernels::Status Update(const LinearSystem& system,
                         const NormalBlocksRequest& wanted,
                         double* rhs) override {
    system_ = system;
    NormalBlocksRequest request = wanted;
    request.e_diagonal = system.e_diagonal;
    request.e_gradient = EGradient();
    request.v = shared_e_.empty() ? nullptr : v_inverse_.data();
    request.v_inverse = v_inverse_.data();
    request.schur_rhs = rhs;
    request.e_motion = motion_.data();
    request.breakdown = breakdown_.data();
    CERES_EXT_RETURN_IF_ERROR(this->SetSharedToZero(request));
    // V, E'b, and all of what is owned.
    CERES_EXT_RETURN_IF_ERROR(this->Ask(&Batch::EliminatedBlocks, &request));
    // (V + D_e^2)^-1 and -(V + D_e^2)^-1 E'b
    for (const auto& [i, family] : shared_e_) {
      kernels::InvertBlocksParams<kernels::kDynamic> invert;
      invert.n = family.num_blocks;
      invert.columns = family.size;
      invert.a = Inverse(family);
      invert.inverse =
          kernels::PackedBlocks(family, Machine::kLayout, v_inverse_.data());
      invert.diagonal = system.e_diagonal == nullptr
                            ? nullptr
                            : system.e_diagonal + family.value_begin;
      invert.first_breakdown = &breakdown_.data()[i].first_block;
      CERES_EXT_RETURN_IF_ERROR(Run(
          kernels::SetConstantParams{
              1, kernels::Breakdown::kNone, invert.first_breakdown},
          machine_));
      CERES_EXT_RETURN_IF_ERROR(Run(invert, machine_));
    }
    CERES_EXT_RETURN_IF_ERROR(
        ApplyInverse(e_gradient_.data(), -1.0, motion_.data(), nullptr));
    // F'b + F'E motion, and blocks of F.
    CERES_EXT_RETURN_IF_ERROR(this->Ask(&Batch::OtherBlocks, &request));
    if (ranks_ == nullptr) {
      return {};
    }
    // A breakdown on one rank ends the step on all.
    CERES_EXT_RETURN_IF_ERROR(ranks_->Agree(CheckUpdate()));
    CERES_EXT_RETURN_IF_ERROR(ranks_->Sum(blocks_.f.num_values(), rhs));
    for (double* const packed : {request.u, request.schur_diagonal}) {
      CERES_EXT_RETURN_IF_ERROR(
          ranks_->Sum(blocks_.f_matrices().num_packed(), packed));
    }
    return {};
  }

  void ListBreakdowns(kernels::BreakdownArrays* arrays) const final {
    arrays->Add(breakdown_.data(), breakdown_.size());
  }

  kernels::Status CheckUpdate() final {
    CERES_EXT_RETURN_IF_ERROR(machine_->Download(
        breakdown_.size(), breakdown_.data(), breakdowns_.data()));
    for (int i = 0; i < blocks_.e.size(); ++i) {
      const int32_t first = breakdowns_[i].first_block;
      if (blocks_.e[i].num_blocks == 0 || first == kernels::Breakdown::kNone) {
        continue;
      }
      return NoInverse(blocks_.e_owner[i] == ProblemBlocks::kShared,
                       first,
                       system_.e_diagonal != nullptr);
    }
    return {};
  }

  kernels::Status ModelConstant(double* constant) final {
    CERES_EXT_RETURN_IF_ERROR(Base::ModelConstant(constant));
    for (int i = 0; i < blocks_.e.size(); ++i) {
      const kernels::BlockFamily& family = blocks_.e[i];
      if (family.num_blocks > 0) {
        CERES_EXT_RETURN_IF_ERROR(Run(
            kernels::SubtractBlockNormsParams{family.num_blocks,
                                              family.size,
                                              Inverse(family),
                                              EGradient() + family.value_begin,
                                              constant},
            machine_));
      }
    }
    return this->SumOverRanks(1, constant);
  }

  kernels::Status Multiply(const double* p,
                           double* q,
                           const kernels::PcgScalars* scalars) override {
    return Multiply(p, false, q, scalars);
  }
  // q = -F'E (E'E + D_e^2)^-1 E'F p, what the elimination adds to S p.
  kernels::Status MultiplyEliminatedPart(const double* p,
                                         double* q,
                                         const kernels::PcgScalars* scalars) {
    return Multiply(p, true, q, scalars);
  }

  // f_step is x. e_step = (E'E + D_e^2)^-1 E'(b - F x)
  kernels::Status Finish(const double* x,
                         double* e_step,
                         double* /*f_step*/) final {
    const double* b = system_.b;
    for (Batch* batch : batches_) {
      CERES_EXT_RETURN_IF_ERROR(
          batch->BackSubstitute(b, v_inverse_.data(), x, e_step));
      b += batch->num_residuals();
    }
    CERES_EXT_RETURN_IF_ERROR(EliminateFrom(x, nullptr));
    for (const auto& [i, family] : shared_e_) {
      double* const sum = sum_.data() + family.value_begin;
      CERES_EXT_RETURN_IF_ERROR(Run(
          kernels::SubtractVectorsParams{
              family.num_values(),
              e_gradient_.data() + family.value_begin,
              sum,
              sum},
          machine_));
    }
    CERES_EXT_RETURN_IF_ERROR(ApplyInverse(sum_.data(), 1.0, e_step, nullptr));
    return FinishPrivate(x, e_step);
  }

 protected:
  using Base::machine_;
  using Base::ranks_;

 private:
  using Base::batches_;
  using Base::blocks_;
  using Base::private_e_;
  using Base::shared_e_;
  using Base::shared_f_;
  using Base::system_;
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  kernels::Status Multiply(const double* p,
                           bool eliminated_part,
                           double* q,
                           const kernels::PcgScalars* scalars) {
    CERES_EXT_RETURN_IF_ERROR(EliminateFrom(p, scalars));
    // motion = -(E'E + D_e^2)^-1 E'F p
    CERES_EXT_RETURN_IF_ERROR(
        ApplyInverse(sum_.data(), -1.0, motion_.data(), scalars));
    // q = D_f^2 p + F'(F p + E motion), or F'E motion
    ProductRequest request;
    request.eliminated_part = eliminated_part;
    // One rank adds D_f^2 p.
    const bool has_diagonal =
        !eliminated_part && (ranks_ == nullptr || ranks_->is_first());
    request.f_diagonal = has_diagonal ? system_.f_diagonal : nullptr;
    CERES_EXT_RETURN_IF_ERROR(
        this->SetShared(shared_f_, request.f_diagonal, p, q, scalars));
    request.v_inverse = v_inverse_.data();
    request.f_p = p;
    request.f_q = q;
    request.e_p = motion_.data();
    request.scalars = scalars;
    for (Batch* batch : batches_) {
      CERES_EXT_RETURN_IF_ERROR(batch->Multiply(request));
    }
    return this->SumOverRanks(blocks_.f.num_values(), q);
  }

  // The part of private blocks, from all other parts.
  kernels::Status FinishPrivate(const double* x, double* e_step) {
    if (private_e_.empty()) {
      return {};
    }
    for (const auto& [i, family] : private_e_) {
      CERES_EXT_RETURN_IF_ERROR(
          machine_->SetZero(family.num_values(), e_step + family.value_begin));
    }
    const double* b = system_.b;
    for (Batch* batch : batches_) {
      CERES_EXT_RETURN_IF_ERROR(
          batch->BackSubstitutePrivate(b, v_inverse_.data(), x, e_step));
      b += batch->num_residuals();
    }
    return {};
  }

  // sum = E'F p, of shared families.
  kernels::Status EliminateFrom(const double* p,
                                const kernels::PcgScalars* scalars) {
    if (shared_e_.empty()) {
      return {};
    }
    CERES_EXT_RETURN_IF_ERROR(
        this->SetShared(shared_e_, nullptr, nullptr, sum_.data(), scalars));
    for (Batch* batch : batches_) {
      CERES_EXT_RETURN_IF_ERROR(
          batch->MultiplyToEliminated(p, sum_.data(), scalars));
    }
    return {};
  }

  // The place of E'b, which may not be set yet; null if it is not requested.
  double* EGradient() {
    return shared_e_.empty() ? system_.e_gradient : e_gradient_.data();
  }

  kernels::BlockArray<const double> Inverse(
      const kernels::BlockFamily& family) {
    return kernels::PackedBlocks<const double>(
        family, Machine::kLayout, v_inverse_.data());
  }

  // z = scale (E'E + D_e^2)^-1 r, of shared families.
  kernels::Status ApplyInverse(const double* r,
                               double scale,
                               double* z,
                               const kernels::PcgScalars* scalars) {
    for (const auto& [i, family] : shared_e_) {
      CERES_EXT_RETURN_IF_ERROR(Run(
          kernels::ApplyBlocksParams<kernels::kDynamic>{family.num_blocks,
                                                        family.size,
                                                        Inverse(family),
                                                        r + family.value_begin,
                                                        scale,
                                                        z + family.value_begin,
                                                        scalars},
          machine_));
    }
    return {};
  }

  Buffer<double> v_inverse_;  // (E'E + D_e^2)^-1
  // For shared families.
  Buffer<double> e_gradient_;  // E'b
  Buffer<double> sum_;
  Buffer<double> motion_;
  Buffer<kernels::Breakdown> breakdown_;
  std::vector<kernels::Breakdown> breakdowns_;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_OPERATOR_SCHUR_COMPLEMENT_H_
