// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Included by inexact_solver.h only.
#ifndef CERES_EXT_SOLVER_INEXACT_SOLVER_IMPL_H_
#define CERES_EXT_SOLVER_INEXACT_SOLVER_IMPL_H_

#include <cstring>

#include "ceres_ext/solver/inexact_solver.h"
#include "cuda_kernels/ops/vectors.h"
#include "cuda_kernels/structure/host_workspace.h"

namespace ceres_ext::solver {

template <typename Machine, typename Source>
kernels::Status InexactSolver<Machine, Source>::Setup(
    const InexactSolverOptions& options,
    const kernels::ObservationIndexView& index,
    Machine* machine) {
  std::string error;
  if (!options.Validate(&error)) {
    return {kernels::StatusCode::kInvalidArgument, error};
  }
  options_ = options;
  index_ = index;
  machine_ = machine;
  for (PcgIterations& iterations : iterations_) {
    iterations.loop.Reset();
  }
  num_cameras_ = index.num_cameras;
  num_points_ = index.num_points;
  num_observations_ = index.num_observations;
  num_unknowns_ = F * num_cameras_ + (options.use_schur ? 0 : E * num_points_);

  const bool schur = options.use_schur;
  const bool jacobi = options.preconditioner == PreconditionerType::kJacobi;
  const bool has_u = is_explicit() || jacobi;
  const bool has_v = !schur && has_u;
  const bool has_camera_preconditioner = has_preconditioner();
  const bool has_point_preconditioner = !schur && jacobi;
  const auto allocate = [&](bool wanted, int64_t n, auto* buffer) {
    return machine->Allocate(wanted ? n : 0, buffer);
  };
  CERES_EXT_RETURN_IF_ERROR(
      allocate(has_u, Shape::kPackedF * num_cameras_, &u_));
  CERES_EXT_RETURN_IF_ERROR(
      allocate(has_v, Shape::kPackedE * num_points_, &v_));
  CERES_EXT_RETURN_IF_ERROR(
      allocate(is_explicit(), Shape::kWSize * num_observations_, &w_));
  CERES_EXT_RETURN_IF_ERROR(
      allocate(schur, Shape::kPackedE * num_points_, &v_inverse_));
  CERES_EXT_RETURN_IF_ERROR(
      allocate(schur && is_explicit(), E * num_points_, &point_gradient_));
  CERES_EXT_RETURN_IF_ERROR(allocate(has_camera_preconditioner,
                                     Shape::kPackedF * num_cameras_,
                                     &camera_preconditioner_));
  CERES_EXT_RETURN_IF_ERROR(allocate(has_point_preconditioner,
                                     Shape::kPackedE * num_points_,
                                     &point_preconditioner_));
  CERES_EXT_RETURN_IF_ERROR(allocate(!schur, num_unknowns_, &x_));
  for (Buffer<double>* vector : {&rhs_, &p_, &r_, &z_}) {
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_unknowns_, vector));
  }
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(1, &scalars_));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(1, &breakdown_));

  const bool has_schur_diagonal =
      options.preconditioner == PreconditionerType::kSchurJacobi;
  return ReserveCameraSums(index,
                           (has_u ? Shape::kPackedF : 0) +
                               (has_schur_diagonal ? Shape::kPackedF : 0) + F);
}

template <typename Machine, typename Source>
InexactSolverSummary InexactSolver<Machine, Source>::Solve(
    const LinearSystem<Source>& system,
    const InexactSolverPerSolveOptions& per_solve,
    double* camera_step,
    double* point_step) {
  InexactSolverSummary summary;
  const kernels::Status status =
      SolveOrFail(system, per_solve, camera_step, point_step, &summary);
  if (!status.ok()) {
    summary.termination = status.code == kernels::StatusCode::kNumericalFailure
                              ? Termination::kFailure
                              : Termination::kFatalError;
    summary.message = status.message;
  }
  return summary;
}

template <typename Machine, typename Source>
kernels::Status InexactSolver<Machine, Source>::SolveOrFail(
    const LinearSystem<Source>& system,
    const InexactSolverPerSolveOptions& per_solve,
    double* camera_step,
    double* point_step,
    InexactSolverSummary* summary) {
  CERES_EXT_RETURN_IF_ERROR(machine_->RecordMark(kBegin));
  CERES_EXT_RETURN_IF_ERROR(UpdateBlocks(system));
  CERES_EXT_RETURN_IF_ERROR(UpdatePreconditioner(system));
  CERES_EXT_RETURN_IF_ERROR(machine_->RecordMark(kBlocksDone));

  PcgVectors vectors;
  vectors.n = num_unknowns_;
  vectors.rhs = rhs_.data();
  vectors.x = options_.use_schur ? camera_step : x_.data();
  vectors.p = p_.data();
  vectors.r = r_.data();
  vectors.z = z_.data();
  vectors.scalars = scalars_.data();
  kernels::PcgScalars scalars;
  CERES_EXT_RETURN_IF_ERROR(ConjugateGradients(
      options_,
      per_solve,
      vectors,
      [&](const double* p, double* q) {
        return options_.use_schur ? MultiplySchur(system, p, q)
                                  : MultiplyNormal(system, p, q);
      },
      [&](const double* r, double* z) { return Precondition(r, z); },
      FindLoop({system.jacobian,
                system.camera_diagonal,
                system.point_diagonal,
                vectors.x}),
      machine_,
      &scalars));
  CERES_EXT_RETURN_IF_ERROR(machine_->RecordMark(kPcgDone));

  summary->residual_norm = scalars.norm_r;
  summary->num_iterations = scalars.num_iterations;
  summary->termination = PcgTermination(scalars.end);
  summary->message = PcgMessage(scalars);
  if (summary->termination == Termination::kSuccess ||
      summary->termination == Termination::kNoConvergence) {
    if (options_.use_schur) {
      CERES_EXT_RETURN_IF_ERROR(
          BackSubstitute(system, camera_step, point_step));
    } else {
      CERES_EXT_RETURN_IF_ERROR(
          Run(kernels::CopyParams{F * num_cameras_, x_.data(), camera_step},
              machine_));
      CERES_EXT_RETURN_IF_ERROR(Run(
          kernels::CopyParams{
              E * num_points_, x_.data() + F * num_cameras_, point_step},
          machine_));
    }
  }
  CERES_EXT_RETURN_IF_ERROR(machine_->RecordMark(kEnd));

  // A second look at the scalars waits for the work queued after them.
  CERES_EXT_RETURN_IF_ERROR(machine_->Read(scalars_.data(), &scalars));
  summary->normal_blocks_seconds =
      machine_->SecondsBetweenMarks(kBegin, kBlocksDone);
  summary->pcg_seconds = machine_->SecondsBetweenMarks(kBlocksDone, kPcgDone);
  summary->back_substitution_seconds =
      machine_->SecondsBetweenMarks(kPcgDone, kEnd);
  return {};
}

template <typename Machine, typename Source>
typename Machine::PcgLoop* InexactSolver<Machine, Source>::FindLoop(
    const PcgOperands& operands) {
  const auto is_found = [&] {
    return std::memcmp(&iterations_[last_iterations_].operands,
                       &operands,
                       sizeof(operands)) == 0;
  };
  if (!is_found()) {
    last_iterations_ = 1 - last_iterations_;
  }
  PcgIterations& iterations = iterations_[last_iterations_];
  if (!is_found()) {
    iterations.operands = operands;
    iterations.loop.Reset();
  }
  return &iterations.loop;
}

// What the configuration needs of U, V, W, their gradients and V's inverse.
template <typename Machine, typename Source>
kernels::Status InexactSolver<Machine, Source>::UpdateBlocks(
    const LinearSystem<Source>& system) {
  kernels::NormalBlocksParams<Source, kLayout> params;
  params.index = index_;
  params.jacobian = system.jacobian;
  params.b = system.b;
  params.point_diagonal = system.point_diagonal;
  params.u = CameraView(&u_);
  params.w = WView();
  params.breakdown = breakdown_.data();
  if (options_.use_schur) {
    params.v_inverse = PointView(&v_inverse_);
    params.point_gradient = point_gradient_.data();
    // rhs = F'b - F'E (E'E + D_e^2)^-1 E'b
    params.schur_rhs = rhs_.data();
    if (options_.preconditioner == PreconditionerType::kSchurJacobi) {
      params.schur_diagonal = CameraView(&camera_preconditioner_);
    }
  } else {
    params.v = PointView(&v_);
    // rhs = J'b
    params.camera_gradient = rhs_.data();
    params.point_gradient = rhs_.data() + F * num_cameras_;
  }
  CERES_EXT_RETURN_IF_ERROR(Run(params, machine_));
  if (!options_.use_schur) {
    return {};
  }
  kernels::Breakdown breakdown;
  CERES_EXT_RETURN_IF_ERROR(machine_->Read(breakdown_.data(), &breakdown));
  if (breakdown.first_point == kernels::Breakdown::kNone) {
    return {};
  }
  return {kernels::StatusCode::kNumericalFailure,
          "E'E + D^2 of point " + std::to_string(breakdown.first_point) +
              " is not positive definite."};
}

// M = diag(A + D^2), where A is S without D_f^2 (SCHUR_JACOBI) or U and V
// (JACOBI).
template <typename Machine, typename Source>
kernels::Status InexactSolver<Machine, Source>::UpdatePreconditioner(
    const LinearSystem<Source>& system) {
  if (!has_preconditioner()) {
    return {};
  }
  kernels::InvertBlockDiagonalParams<F, kLayout> cameras;
  cameras.num_blocks = num_cameras_;
  cameras.a = options_.preconditioner == PreconditionerType::kSchurJacobi
                  ? CameraView(&camera_preconditioner_)
                  : CameraView(&u_);
  cameras.diagonal = system.camera_diagonal;
  cameras.inverse = CameraView(&camera_preconditioner_);
  cameras.first_breakdown = &breakdown_.data()->first_camera;
  CERES_EXT_RETURN_IF_ERROR(Run(cameras, machine_));
  const bool has_points = point_preconditioner_.size() > 0;
  if (has_points) {
    kernels::InvertBlockDiagonalParams<E, kLayout> points;
    points.num_blocks = num_points_;
    points.a = PointView(&v_);
    points.diagonal = system.point_diagonal;
    points.inverse = PointView(&point_preconditioner_);
    points.first_breakdown = &breakdown_.data()->first_point;
    CERES_EXT_RETURN_IF_ERROR(Run(points, machine_));
  }
  kernels::Breakdown breakdown;
  CERES_EXT_RETURN_IF_ERROR(machine_->Read(breakdown_.data(), &breakdown));
  if (breakdown.first_camera != kernels::Breakdown::kNone) {
    return {kernels::StatusCode::kNumericalFailure,
            "Preconditioner update failed at camera " +
                std::to_string(breakdown.first_camera) + "."};
  }
  if (has_points && breakdown.first_point != kernels::Breakdown::kNone) {
    return {kernels::StatusCode::kNumericalFailure,
            "Preconditioner update failed at point " +
                std::to_string(breakdown.first_point) + "."};
  }
  return {};
}

// z = M^-1 r
template <typename Machine, typename Source>
kernels::Status InexactSolver<Machine, Source>::Precondition(const double* r,
                                                             double* z) {
  if (!has_preconditioner()) {
    return Run(kernels::CopyParams{num_unknowns_, r, z}, machine_);
  }
  kernels::ApplyBlockDiagonalParams<F, kLayout> cameras;
  cameras.num_blocks = num_cameras_;
  cameras.inverse = CameraView(&camera_preconditioner_);
  cameras.r = r;
  cameras.z = z;
  cameras.scalars = scalars_.data();
  CERES_EXT_RETURN_IF_ERROR(Run(cameras, machine_));
  if (options_.use_schur) {
    return {};
  }
  kernels::ApplyBlockDiagonalParams<E, kLayout> points;
  points.num_blocks = num_points_;
  points.inverse = PointView(&point_preconditioner_);
  points.r = r + F * num_cameras_;
  points.z = z + F * num_cameras_;
  points.scalars = scalars_.data();
  return Run(points, machine_);
}

// q = S p
template <typename Machine, typename Source>
kernels::Status InexactSolver<Machine, Source>::MultiplySchur(
    const LinearSystem<Source>& system, const double* p, double* q) {
  if (is_explicit()) {
    // q = (U + D_f^2) p - W (V + D_e^2)^-1 W' p
    kernels::SchurProductExplicitWParams<Value, Shape, kLayout> params;
    params.index = index_;
    params.u = CameraView(&u_);
    params.w = WView();
    params.v_inverse = PointView(&v_inverse_);
    params.camera_diagonal = system.camera_diagonal;
    params.p = p;
    params.q = q;
    params.scalars = scalars_.data();
    return Run(params, machine_);
  }
  // q = D_f^2 p + F' (F p - E (E'E + D_e^2)^-1 E' F p)
  kernels::SchurProductImplicitWParams<Source, kLayout> params;
  params.index = index_;
  params.jacobian = system.jacobian;
  params.v_inverse = PointView(&v_inverse_);
  params.camera_diagonal = system.camera_diagonal;
  params.p = p;
  params.q = q;
  params.scalars = scalars_.data();
  return Run(params, machine_);
}

// q = (J'J + D^2) p
template <typename Machine, typename Source>
kernels::Status InexactSolver<Machine, Source>::MultiplyNormal(
    const LinearSystem<Source>& system, const double* p, double* q) {
  const auto fill = [&](auto* params) {
    params->index = index_;
    params->camera_diagonal = system.camera_diagonal;
    params->point_diagonal = system.point_diagonal;
    params->camera_p = p;
    params->point_p = p + F * num_cameras_;
    params->camera_q = q;
    params->point_q = q + F * num_cameras_;
    params->scalars = scalars_.data();
  };
  if (is_explicit()) {
    // q = [U W; W' V] p + D^2 p
    kernels::NormalProductExplicitWParams<Value, Shape, kLayout> params;
    fill(&params);
    params.u = CameraView(&u_);
    params.v = PointView(&v_);
    params.w = WView();
    return Run(params, machine_);
  }
  // q = J' (J p) + D^2 p
  kernels::NormalProductImplicitWParams<Source> params;
  fill(&params);
  params.jacobian = system.jacobian;
  return Run(params, machine_);
}

template <typename Machine, typename Source>
kernels::Status InexactSolver<Machine, Source>::BackSubstitute(
    const LinearSystem<Source>& system, const double* z, double* y) {
  if (is_explicit()) {
    // y = (E'E + D_e^2)^-1 (E'b - W' z)
    kernels::BackSubstituteExplicitWParams<Value, Shape, kLayout> params;
    params.index = index_;
    params.w = WView();
    params.v_inverse = PointView(&v_inverse_);
    params.point_gradient = point_gradient_.data();
    params.z = z;
    params.y = y;
    return Run(params, machine_);
  }
  // y = (E'E + D_e^2)^-1 E' (b - F z)
  kernels::BackSubstituteImplicitWParams<Source, kLayout> params;
  params.index = index_;
  params.jacobian = system.jacobian;
  params.b = system.b;
  params.v_inverse = PointView(&v_inverse_);
  params.z = z;
  params.y = y;
  return Run(params, machine_);
}

template <typename Machine, typename Source>
int64_t InexactSolver<Machine, Source>::bytes() const {
  return u_.bytes() + v_.bytes() + w_.bytes() + v_inverse_.bytes() +
         point_gradient_.bytes() + rhs_.bytes() +
         camera_preconditioner_.bytes() + point_preconditioner_.bytes() +
         x_.bytes() + p_.bytes() + r_.bytes() + z_.bytes() + scalars_.bytes() +
         breakdown_.bytes();
}

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_INEXACT_SOLVER_IMPL_H_
