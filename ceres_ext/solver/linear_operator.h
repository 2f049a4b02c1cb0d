// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The matrix that PCG iterates on, as batches apply it.
//
//   S = F'F + D_f^2 - F'E (E'E + D_e^2)^-1 E'F          SchurComplement
//   J'J + D^2, unknowns of F before those of E          NormalMatrix
//
// Update takes the blocks of a linear system, then Multiply serves any number
// of products. Setup takes all memory.
#ifndef CERES_EXT_SOLVER_LINEAR_OPERATOR_H_
#define CERES_EXT_SOLVER_LINEAR_OPERATOR_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/inexact_solver_options.h"
#include "cuda_kernels/base/breakdown.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/status.h"
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
  // Whether the Jacobian is that of the system before.
  bool is_same_linearization = false;
};

template <typename Machine>
class LinearOperator {
 public:
  virtual ~LinearOperator() = default;

  // What blocks and batches view outlives the operator.
  virtual kernels::Status Setup(const InexactSolverOptions& options,
                                const ProblemBlocks& blocks,
                                const std::vector<Batch*>& batches,
                                Machine* machine) {
    blocks_ = blocks;
    batches_ = batches;
    machine_ = machine;
    const auto list = [](const kernels::BlockFamilies& families,
                         const std::vector<int>& owners,
                         Shared* shared) {
      shared->clear();
      for (int i = 0; i < families.size(); ++i) {
        if (owners[i] == ProblemBlocks::kShared && families[i].num_blocks > 0) {
          shared->emplace_back(i, families[i]);
        }
      }
    };
    list(blocks.e, blocks.e_owner, &shared_e_);
    list(blocks.f, blocks.f_owner, &shared_f_);
    std::vector<int> owners = blocks.f_owner;
    owners.resize(blocks.f_matrices().size(), ProblemBlocks::kShared);
    list(blocks.f_matrices(), owners, &shared_f_matrices_);
    for (Batch* batch : batches) {
      CERES_EXT_RETURN_IF_ERROR(batch->SetupSolver(options, blocks));
    }
    return {};
  }

  // v = E'E, u = F'F, packed, those of F over f_matrices(). Needs no Update.
  kernels::Status UndampedBlocks(double* v, double* u) {
    NormalBlocksRequest request;
    request.eliminate = false;
    request.v = v;
    request.u = u;
    CERES_EXT_RETURN_IF_ERROR(SetSharedToZero(request));
    for (const auto blocks : {&Batch::EliminatedBlocks, &Batch::OtherBlocks}) {
      for (Batch* batch : batches_) {
        CERES_EXT_RETURN_IF_ERROR((batch->*blocks)(request));
      }
    }
    return {};
  }
  const ProblemBlocks& blocks() const { return blocks_; }
  // Room for the packed matrices of E, which Update writes; null: none.
  virtual double* e_matrices() { return nullptr; }

  // Unknowns.
  virtual int64_t size() const = 0;
  // Takes the system, and computes the blocks that are wanted (u, v and
  // schur_diagonal of the request) and the right-hand side.
  virtual kernels::Status Update(const LinearSystem& system,
                                 const NormalBlocksRequest& wanted,
                                 double* rhs) = 0;
  // Where the last Update tells, when it is done, of eliminated blocks that
  // can't be inverted: what is computed from them means nothing.
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

  // What several batches add to of all that is asked for starts at zero.
  kernels::Status SetSharedToZero(const NormalBlocksRequest& request) {
    const auto set_zero = [&](double* x, int64_t begin, int64_t n) {
      return x == nullptr ? kernels::Status() : machine_->SetZero(n, x + begin);
    };
    for (const auto& [i, family] : shared_e_) {
      CERES_EXT_RETURN_IF_ERROR(set_zero(
          request.e_gradient, family.value_begin, family.num_values()));
      CERES_EXT_RETURN_IF_ERROR(
          set_zero(request.v, family.packed_begin, family.num_packed()));
    }
    for (const auto& [i, family] : shared_f_) {
      for (double* vector : {request.f_gradient, request.schur_rhs}) {
        CERES_EXT_RETURN_IF_ERROR(
            set_zero(vector, family.value_begin, family.num_values()));
      }
    }
    for (const auto& [i, family] : shared_f_matrices_) {
      for (double* packed : {request.u, request.schur_diagonal}) {
        CERES_EXT_RETURN_IF_ERROR(
            set_zero(packed, family.packed_begin, family.num_packed()));
      }
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
  Shared shared_f_;
  Shared shared_f_matrices_;
  std::vector<Batch*> batches_;
  Machine* machine_ = nullptr;
  LinearSystem system_;
};

template <typename Machine>
class SchurComplement : public LinearOperator<Machine> {
 public:
  using Base = LinearOperator<Machine>;

  kernels::Status Setup(const InexactSolverOptions& options,
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
    breakdowns_.resize(blocks.e.size());
    return machine->Upload(breakdowns_, &breakdown_);
  }

  double* e_matrices() final { return v_inverse_.data(); }

  int64_t size() const final { return blocks_.f.num_values(); }

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
    return this->Ask(&Batch::OtherBlocks, &request);
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
      return {kernels::StatusCode::kNumericalFailure,
              "E'E + D^2 of " +
                  std::string(blocks_.e_owner[i] == ProblemBlocks::kShared
                                  ? "eliminated block "
                                  : "point ") +
                  std::to_string(first) +
                  (system_.e_diagonal == nullptr ? " is not positive definite."
                                                 : " is not finite.")};
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
    return {};
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
    return ApplyInverse(sum_.data(), 1.0, e_step, nullptr);
  }

 protected:
  using Base::machine_;

 private:
  using Base::batches_;
  using Base::blocks_;
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
    request.f_diagonal = eliminated_part ? nullptr : system_.f_diagonal;
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

  // Where E'b is, or is to be; null: it is not wanted.
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
  // Of shared families.
  Buffer<double> e_gradient_;  // E'b
  Buffer<double> sum_;
  Buffer<double> motion_;
  Buffer<kernels::Breakdown> breakdown_;
  std::vector<kernels::Breakdown> breakdowns_;
};

template <typename Machine>
class NormalMatrix final : public LinearOperator<Machine> {
 public:
  int64_t size() const final {
    return blocks_.f.num_values() + blocks_.e.num_values();
  }

  kernels::Status Update(const LinearSystem& system,
                         const NormalBlocksRequest& wanted,
                         double* rhs) final {
    system_ = system;
    NormalBlocksRequest request = wanted;
    request.eliminate = false;
    // rhs = J'b
    request.f_gradient = rhs;
    request.e_gradient = rhs + blocks_.f.num_values();
    CERES_EXT_RETURN_IF_ERROR(this->SetSharedToZero(request));
    CERES_EXT_RETURN_IF_ERROR(this->Ask(&Batch::EliminatedBlocks, &request));
    return this->Ask(&Batch::OtherBlocks, &request);
  }

  kernels::Status Multiply(const double* p,
                           double* q,
                           const kernels::PcgScalars* scalars) final {
    ProductRequest request;
    request.eliminate = false;
    request.e_diagonal = system_.e_diagonal;
    request.f_diagonal = system_.f_diagonal;
    request.f_p = p;
    request.e_p = p + blocks_.f.num_values();
    request.f_q = q;
    request.e_q = q + blocks_.f.num_values();
    request.scalars = scalars;
    CERES_EXT_RETURN_IF_ERROR(this->SetShared(this->shared_f_,
                                              system_.f_diagonal,
                                              request.f_p,
                                              request.f_q,
                                              scalars));
    CERES_EXT_RETURN_IF_ERROR(this->SetShared(this->shared_e_,
                                              system_.e_diagonal,
                                              request.e_p,
                                              request.e_q,
                                              scalars));
    for (Batch* batch : this->batches_) {
      CERES_EXT_RETURN_IF_ERROR(batch->Multiply(request));
    }
    return {};
  }

  kernels::Status Finish(const double* x,
                         double* e_step,
                         double* f_step) final {
    const int64_t num_f = blocks_.f.num_values();
    CERES_EXT_RETURN_IF_ERROR(
        Run(kernels::CopyParams{num_f, x, f_step}, machine_));
    return Run(kernels::CopyParams{blocks_.e.num_values(), x + num_f, e_step},
               machine_);
  }

 private:
  using Base = LinearOperator<Machine>;
  using Base::blocks_;
  using Base::machine_;
  using Base::system_;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_LINEAR_OPERATOR_H_
