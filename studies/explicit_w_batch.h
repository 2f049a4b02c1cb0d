// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A batch of observations whose products use U, V and W (explicit_w.h), formed
// once per solve. It replaces solver::ObservationBatch if only the solver uses
// it: its families are the first ones, and it owns them.
//
//   solver::InexactSolver<Machine, Source, ExplicitWBatch<Machine, Source>>
#ifndef STUDIES_EXPLICIT_W_BATCH_H_
#define STUDIES_EXPLICIT_W_BATCH_H_

#include <cstdint>
#include <type_traits>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "cuda_kernels/ops/vectors.h"
#include "cuda_kernels/structure/host_workspace.h"
#include "studies/explicit_w.h"

namespace ceres_ext::bal {

template <typename Machine, typename Source>
class ExplicitWBatch final : public solver::Batch {
 public:
  void Setup(const kernels::ObservationIndexRef& index,
             int /*e_family*/,
             int /*f_family*/,
             Machine* machine) {
    index_ = index;
    machine_ = machine;
  }
  void SetJacobian(const Source& jacobian) { jacobian_ = jacobian; }

  int64_t num_residuals() const final {
    return Shape::kNumResiduals * index_.num_observations;
  }
  kernels::Status SetupSolver(const solver::StepOptions& options,
                              const solver::ProblemBlocks& /*blocks*/) final {
    if (options.has_power_series()) {
      return {kernels::StatusCode::kUnsupported,
              "An explicit W has no product for power series."};
    }
    const int64_t num_points = index_.num_points;
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Allocate(Shape::kPackedF * index_.num_cameras, &u_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(
        options.use_schur ? 0 : Shape::kPackedE * num_points, &v_));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Allocate(Shape::kWSize * index_.num_observations, &w_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(
        options.use_schur ? Shape::kE * num_points : 0, &point_gradient_));
    const bool has_schur_diagonal =
        options.preconditioner == solver::PreconditionerType::kSchurJacobi;
    if constexpr (std::is_same_v<Machine, kernels::HostMachine>) {
      return index_.host_workspace->ReserveCameraSums(
          (has_schur_diagonal ? 2 : 1) * Shape::kPackedF + Shape::kF);
    }
    return {};
  }

  kernels::Status EliminatedBlocks(
      const solver::NormalBlocksRequest& request) final {
    ExplicitBlocksParams<Source, kLayout> params;
    kernels::NormalBlocksParams<Source, kLayout>& normal = params.normal;
    normal.index = index_;
    normal.jacobian = jacobian_;
    normal.b = request.b;
    normal.point_diagonal = request.e_diagonal;
    normal.u = {u_.data(), index_.num_cameras};
    normal.breakdown = request.breakdown;
    if (request.eliminate) {
      normal.v_inverse = {request.v_inverse, index_.num_points};
      normal.point_gradient = point_gradient_.data();
      normal.schur_rhs = request.schur_rhs;
      normal.schur_diagonal = {request.schur_diagonal, index_.num_cameras};
    } else {
      normal.v = {v_.data(), index_.num_points};
      normal.camera_gradient = request.f_gradient;
      normal.point_gradient = request.e_gradient;
    }
    params.w = {w_.data(), index_.num_observations};
    CERES_EXT_RETURN_IF_ERROR(Run(params, machine_));
    CERES_EXT_RETURN_IF_ERROR(CopyIfWanted(u_, request.u));
    CERES_EXT_RETURN_IF_ERROR(CopyIfWanted(
        point_gradient_, request.eliminate ? request.e_gradient : nullptr));
    return CopyIfWanted(v_, request.eliminate ? nullptr : request.v);
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

  // q = (U + D_f^2) p - W (V + D_e^2)^-1 W' p
  kernels::Status Multiply(const solver::ProductRequest& request) final {
    if (!request.eliminate) {
      return MultiplyNormal(request);
    }
    SchurProductExplicitWParams<Value, Shape, kLayout> params;
    params.index = index_;
    params.u = {u_.data(), index_.num_cameras};
    params.w = {w_.data(), index_.num_observations};
    params.v_inverse = {request.v_inverse, index_.num_points};
    params.camera_diagonal = request.f_diagonal;
    params.p = request.f_p;
    params.q = request.f_q;
    params.scalars = request.scalars;
    return Run(params, machine_);
  }
  // y = (E'E + D_e^2)^-1 (E'b - W' z)
  kernels::Status BackSubstitute(const double* /*b*/,
                                 const double* v_inverse,
                                 const double* z,
                                 double* y) final {
    BackSubstituteExplicitWParams<Value, Shape, kLayout> params;
    params.index = index_;
    params.w = {w_.data(), index_.num_observations};
    params.v_inverse = {v_inverse, index_.num_points};
    params.point_gradient = point_gradient_.data();
    params.z = z;
    params.y = y;
    return Run(params, machine_);
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
  // q = [U W; W' V] p + D^2 p
  kernels::Status MultiplyNormal(const solver::ProductRequest& request) {
    NormalProductExplicitWParams<Value, Shape, kLayout> params;
    params.index = index_;
    params.u = {u_.data(), index_.num_cameras};
    params.v = {v_.data(), index_.num_points};
    params.w = {w_.data(), index_.num_observations};
    params.camera_diagonal = request.f_diagonal;
    params.point_diagonal = request.e_diagonal;
    params.camera_p = request.f_p;
    params.point_p = request.e_p;
    params.camera_q = request.f_q;
    params.point_q = request.e_q;
    params.scalars = request.scalars;
    return Run(params, machine_);
  }

  using Shape = typename Source::Shape;
  using Value = typename Source::Value;
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;
  static constexpr kernels::BlockLayout kLayout = Machine::kLayout;

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
  Buffer<double> point_gradient_;
};

}  // namespace ceres_ext::bal

#endif  // STUDIES_EXPLICIT_W_BATCH_H_
