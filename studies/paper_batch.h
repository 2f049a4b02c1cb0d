// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A batch of observations on a PaperMachine (paper_kernels.h), in place of
// solver::ObservationBatch where nothing but the solver asks: its families are
// the first ones, and it owns them. U and V are formed once per solve, and W
// too if kExplicitW.
#ifndef STUDIES_PAPER_BATCH_H_
#define STUDIES_PAPER_BATCH_H_

#include <cstdint>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "cuda_kernels/ops/vectors.h"
#include "studies/paper_kernels.h"

namespace ceres_ext::bal {

template <typename Machine, bool kExplicitW>
class PaperBatch final : public solver::Batch {
 public:
  using Source = typename Machine::Source;
  using Value = typename Source::Value;
  static constexpr kernels::BlockLayout kLayout = Machine::kLayout;

  void Setup(const kernels::ObservationIndexRef& index,
             int /*e_family*/,
             int /*f_family*/,
             Machine* machine) {
    index_ = index;
    machine_ = machine;
  }
  void SetJacobian(const Source& jacobian) { jacobian_ = jacobian; }

  int64_t num_residuals() const final { return 2 * index_.num_observations; }
  kernels::Status SetupSolver(const solver::StepOptions& options,
                              const solver::ProblemBlocks& /*blocks*/) final {
    if (options.preconditioner != solver::PreconditionerType::kJacobi) {
      return {kernels::StatusCode::kUnsupported,
              "The paper's preconditioner is the block diagonal of J'J + D^2."};
    }
    const int64_t num_cameras = index_.num_cameras;
    const int64_t num_points = index_.num_points;
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(45 * num_cameras, &u_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(6 * num_points, &v_));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Allocate(kExplicitW ? 27 * index_.num_observations : 0, &w_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(
        options.use_schur ? 3 * num_points : 0, &point_gradient_));
    return machine_->Allocate(options.use_schur ? 3 * num_points : 0,
                              &point_vector_);
  }

  kernels::Status EliminatedBlocks(
      const solver::NormalBlocksRequest& request) final {
    PaperNormalBlocksParams<Value, kLayout> params;
    params.index = index_;
    params.jacobian = jacobian_;
    params.b = {request.b, index_.num_observations};
    params.u = U();
    params.v = V();
    if (kExplicitW) {
      params.w = {w_.data(), index_.num_observations};
    }
    params.camera_gradient =
        Cameras(request.eliminate ? request.schur_rhs : request.f_gradient);
    params.point_gradient =
        Points(request.eliminate ? point_gradient_.data() : request.e_gradient);
    CERES_EXT_RETURN_IF_ERROR(Run(params, machine_));
    CERES_EXT_RETURN_IF_ERROR(CopyIfWanted(u_, request.u));
    CERES_EXT_RETURN_IF_ERROR(
        CopyIfWanted(v_, request.eliminate ? nullptr : request.v));
    if (!request.eliminate) {
      return {};
    }
    CERES_EXT_RETURN_IF_ERROR(
        CopyIfWanted(point_gradient_, request.e_gradient));
    const kernels::BlockFamily points{3, index_.num_points};
    kernels::InvertBlocksParams<3> invert;
    invert.n = index_.num_points;
    invert.a = kernels::PackedBlocks<const double>(points, kLayout, v_.data());
    invert.diagonal = request.e_diagonal;
    invert.inverse = kernels::PackedBlocks(points, kLayout, request.v_inverse);
    invert.first_breakdown = &request.breakdown->first_block;
    CERES_EXT_RETURN_IF_ERROR(Run(
        kernels::SetConstantParams{
            1, kernels::Breakdown::kNone, invert.first_breakdown},
        machine_));
    CERES_EXT_RETURN_IF_ERROR(Run(invert, machine_));
    // s = g_c - W Vi g_p
    CERES_EXT_RETURN_IF_ERROR(Solve(request.v_inverse,
                                    nullptr,
                                    point_gradient_.data(),
                                    point_vector_.data(),
                                    nullptr));
    return ToCameras(-1.0, point_vector_.data(), request.schur_rhs, nullptr);
  }
  // EliminatedBlocks has done it all.
  kernels::Status OtherBlocks(
      const solver::NormalBlocksRequest& /*request*/) final {
    return {};
  }
  kernels::Status MultiplyToEliminated(
      const double* /*f_p*/,
      double* /*s*/,
      const kernels::PcgScalars* /*scalars*/) final {
    return {};
  }

  // q = (U + D_f^2) p - W (V + D_e^2)^-1 W' p, or
  // q = [U W; W' V] p + D^2 p
  kernels::Status Multiply(const solver::ProductRequest& request) final {
    PaperDampedProductParams<9, kLayout> u;
    u.a = U();
    u.diagonal = {request.f_diagonal, index_.num_cameras};
    u.p = {request.f_p, index_.num_cameras};
    u.q = Cameras(request.f_q);
    u.scalars = request.scalars;
    CERES_EXT_RETURN_IF_ERROR(Run(u, machine_));
    if (request.eliminate) {
      CERES_EXT_RETURN_IF_ERROR(ToPoints(request.f_p, request.scalars));
      CERES_EXT_RETURN_IF_ERROR(Solve(request.v_inverse,
                                      nullptr,
                                      point_vector_.data(),
                                      point_vector_.data(),
                                      request.scalars));
      return ToCameras(
          -1.0, point_vector_.data(), request.f_q, request.scalars);
    }
    PaperDampedProductParams<3, kLayout> v;
    v.a = V();
    v.diagonal = {request.e_diagonal, index_.num_points};
    v.p = {request.e_p, index_.num_points};
    v.q = Points(request.e_q);
    v.scalars = request.scalars;
    CERES_EXT_RETURN_IF_ERROR(Run(v, machine_));
    PaperCouplingParams<Value, kLayout> both = Coupling(request.scalars);
    both.z = {request.f_p, index_.num_cameras};
    both.s = Points(request.e_q);
    both.e = {request.e_p, index_.num_points};
    both.q = Cameras(request.f_q);
    return Run(both, machine_);
  }
  // y = (V + D_e^2)^-1 (g_p - W' z)
  kernels::Status BackSubstitute(const double* /*b*/,
                                 const double* v_inverse,
                                 const double* z,
                                 double* y) final {
    CERES_EXT_RETURN_IF_ERROR(ToPoints(z, nullptr));
    return Solve(
        v_inverse, point_gradient_.data(), point_vector_.data(), y, nullptr);
  }

  // Not for the solver.
  kernels::Status RightMultiply(const double* /*e*/,
                                const double* /*f*/,
                                bool /*accumulate*/,
                                double* /*y*/) final {
    return {kernels::StatusCode::kUnsupported, "J x is not the solver's."};
  }
  kernels::Status LeftMultiplyAndAccumulate(const double* /*y*/,
                                            double* /*e*/,
                                            double* /*f*/) final {
    return {kernels::StatusCode::kUnsupported, "J'y is not the solver's."};
  }
  kernels::Status SquaredColumnNorms(double* /*e*/, double* /*f*/) final {
    return {kernels::StatusCode::kUnsupported, "Norms are not the solver's."};
  }

  // Products read what stays where it is.
  void AppendOperands(std::vector<const void*>* /*operands*/) const final {}

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  kernels::BlockRef<double, 45, kLayout> U() {
    return {u_.data(), index_.num_cameras};
  }
  kernels::BlockRef<double, 6, kLayout> V() {
    return {v_.data(), index_.num_points};
  }
  PaperCameras<kLayout> Cameras(double* data) const {
    return {data, index_.num_cameras};
  }
  PaperPoints<kLayout> Points(double* data) const {
    return {data, index_.num_points};
  }

  PaperCouplingParams<Value, kLayout> Coupling(
      const kernels::PcgScalars* scalars) {
    PaperCouplingParams<Value, kLayout> params;
    params.index = index_;
    params.jacobian = jacobian_;
    if (kExplicitW) {
      params.w = {w_.data(), index_.num_observations};
    }
    params.scalars = scalars;
    return params;
  }
  // point_vector_ = W' z
  kernels::Status ToPoints(const double* z,
                           const kernels::PcgScalars* scalars) {
    CERES_EXT_RETURN_IF_ERROR(machine_->SetZero(int64_t{3} * index_.num_points,
                                                point_vector_.data()));
    PaperCouplingParams<Value, kLayout> params = Coupling(scalars);
    params.z = {z, index_.num_cameras};
    params.s = Points(point_vector_.data());
    return Run(params, machine_);
  }
  // q += sign W e
  kernels::Status ToCameras(double sign,
                            const double* e,
                            double* q,
                            const kernels::PcgScalars* scalars) {
    PaperCouplingParams<Value, kLayout> params = Coupling(scalars);
    params.e = {e, index_.num_points};
    params.sign = sign;
    params.q = Cameras(q);
    return Run(params, machine_);
  }
  // y = Vi (g - s), g null: Vi s
  kernels::Status Solve(const double* v_inverse,
                        const double* g,
                        const double* s,
                        double* y,
                        const kernels::PcgScalars* scalars) {
    PaperPointSolveParams<kLayout> solve;
    solve.v_inverse = {v_inverse, index_.num_points};
    solve.g = {g, index_.num_points};
    solve.s = {s, index_.num_points};
    solve.y = Points(y);
    solve.scalars = scalars;
    return Run(solve, machine_);
  }
  kernels::Status CopyIfWanted(const Buffer<double>& from, double* to) {
    return to == nullptr
               ? kernels::Status()
               : Run(kernels::CopyParams{from.size(), from.data(), to},
                     machine_);
  }

  kernels::ObservationIndexRef index_;
  Machine* machine_ = nullptr;
  Source jacobian_;
  Buffer<double> u_;
  Buffer<double> v_;
  Buffer<Value> w_;
  // With Schur complement: g_p, and whatever is on its way.
  Buffer<double> point_gradient_;
  Buffer<double> point_vector_;
};

}  // namespace ceres_ext::bal

#endif  // STUDIES_PAPER_BATCH_H_
