// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Included by observation_batch.h only.
#ifndef CERES_EXT_SOLVER_OBSERVATION_BATCH_IMPL_H_
#define CERES_EXT_SOLVER_OBSERVATION_BATCH_IMPL_H_

#include <cstring>
#include <iterator>
#include <type_traits>

#include "ceres_ext/solver/observation_batch.h"

namespace ceres_ext::solver {

template <typename Machine, typename Source>
kernels::Status ObservationBatch<Machine, Source>::SetBlocks(
    const ProblemBlocks& blocks) {
  owns_points_ = blocks.e_owner[e_family_] != ProblemBlocks::kShared;
  e_begin_ = blocks.e[e_family_].value_begin;
  f_begin_ = blocks.f[f_family_].value_begin;
  e_packed_begin_ = blocks.e[e_family_].packed_begin;
  f_packed_begin_ = blocks.f[f_family_].packed_begin;
  return machine_->Allocate(owns_points_ ? 0 : int64_t{E} * index_.num_points,
                            &point_scratch_);
}

template <typename Machine, typename Source>
kernels::Status ObservationBatch<Machine, Source>::SetupSolver(
    const InexactSolverOptions& options, const ProblemBlocks& blocks) {
  CERES_EXT_RETURN_IF_ERROR(SetBlocks(blocks));
  const int64_t num_points = index_.num_points;
  const int64_t num_cameras = index_.num_cameras;
  const auto allocate = [&](bool wanted, int64_t n, auto* buffer) {
    return machine_->Allocate(wanted ? n : 0, buffer);
  };
  CERES_EXT_RETURN_IF_ERROR(
      allocate(!owns_points_, Shape::kPackedE * num_points, &packed_scratch_));
  const bool in_two_steps = !owns_points_ && options.use_schur;
  CERES_EXT_RETURN_IF_ERROR(
      allocate(in_two_steps, num_residuals(), &residual_scratch_));
  CERES_EXT_RETURN_IF_ERROR(
      allocate(in_two_steps, E * num_points, &zero_points_));
  CERES_EXT_RETURN_IF_ERROR(
      allocate(in_two_steps, F * num_cameras, &zero_cameras_));
  CERES_EXT_RETURN_IF_ERROR(
      machine_->SetZero(zero_points_.size(), zero_points_.data()));
  CERES_EXT_RETURN_IF_ERROR(
      machine_->SetZero(zero_cameras_.size(), zero_cameras_.data()));
  const bool has_matrix =
      options.preconditioner != PreconditionerType::kIdentity;
  return ReserveCameraSums(index_, (has_matrix ? Shape::kPackedF : 0) + F);
}

template <typename Machine, typename Source>
kernels::Status ObservationBatch<Machine, Source>::RightMultiply(
    const double* e, const double* f, bool accumulate, double* y) {
  kernels::RightMultiplyParams<Source> params;
  params.index = index_;
  params.jacobian = jacobian_;
  params.camera_x = Cameras(f);
  params.point_x = Points(e);
  params.y = y;
  params.accumulate = accumulate;
  return Run(params, machine_);
}

template <typename Machine, typename Source>
kernels::Status ObservationBatch<Machine, Source>::LeftMultiplyAndAccumulate(
    const double* y, double* e, double* f) {
  kernels::LeftMultiplyParams<Source> params;
  params.index = index_;
  params.jacobian = jacobian_;
  params.y = y;
  params.camera_x = Cameras(f);
  params.point_x = Points(e);
  params.accumulate = true;
  return Run(params, machine_);
}

template <typename Machine, typename Source>
kernels::Status ObservationBatch<Machine, Source>::SquaredColumnNorms(
    double* e, double* f) {
  kernels::SquaredColumnNormsParams<Source> params;
  params.index = index_;
  params.jacobian = jacobian_;
  params.camera_x = Cameras(f);
  params.point_x = owns_points_ ? Points(e) : point_scratch_.data();
  CERES_EXT_RETURN_IF_ERROR(Run(params, machine_));
  return owns_points_
             ? kernels::Status()
             : AddToPoints(
                   point_scratch_.size(), point_scratch_.data(), Points(e));
}

template <typename Machine, typename Source>
kernels::Status ObservationBatch<Machine, Source>::EliminatedBlocks(
    const NormalBlocksRequest& request) {
  kernels::NormalBlocksParams<Source, kLayout> params;
  params.index = index_;
  params.jacobian = jacobian_;
  params.b = request.b;
  if (!owns_points_) {
    if (request.v == nullptr && request.e_gradient == nullptr) {
      return {};
    }
    if (request.v != nullptr) {
      params.v = {packed_scratch_.data(), index_.num_points};
    }
    params.point_gradient = point_scratch_.data();
    CERES_EXT_RETURN_IF_ERROR(Run(params, machine_));
    if (request.v != nullptr) {
      CERES_EXT_RETURN_IF_ERROR(AddToPoints(packed_scratch_.size(),
                                            packed_scratch_.data(),
                                            request.v + e_packed_begin_));
    }
    return AddToPoints(point_scratch_.size(),
                       point_scratch_.data(),
                       Points(request.e_gradient));
  }
  params.point_diagonal = Points(request.e_diagonal);
  params.u = CameraView(request.u);
  params.breakdown =
      request.breakdown == nullptr ? nullptr : request.breakdown + e_family_;
  if (request.eliminate) {
    params.v_inverse = PointView(request.v_inverse);
    params.schur_rhs = Cameras(request.schur_rhs);
    params.schur_diagonal = CameraView(request.schur_diagonal);
  } else {
    params.v = PointView(request.v);
    params.camera_gradient = Cameras(request.f_gradient);
    params.point_gradient = Points(request.e_gradient);
  }
  return Run(params, machine_);
}

template <typename Machine, typename Source>
kernels::Status ObservationBatch<Machine, Source>::OtherBlocks(
    const NormalBlocksRequest& request) {
  if (owns_points_) {
    return {};  // EliminatedBlocks has done it all.
  }
  kernels::NormalBlocksParams<Source, kLayout> params;
  params.index = index_;
  params.jacobian = jacobian_;
  params.u = CameraView(request.u);
  if (!request.eliminate) {
    params.b = request.b;
    params.camera_gradient = Cameras(request.f_gradient);
  } else if (request.schur_diagonal != nullptr) {
    params.v_inverse_is_given = true;
    params.v_inverse = PointView(request.v_inverse);
    params.schur_diagonal = CameraView(request.schur_diagonal);
  }
  CERES_EXT_RETURN_IF_ERROR(Run(params, machine_));
  if (!request.eliminate) {
    return {};
  }
  // rhs = F'(b + E motion)
  double* const y = residual_scratch_.data();
  kernels::RightMultiplyParams<Source> right;
  right.index = index_;
  right.jacobian = jacobian_;
  right.camera_x = zero_cameras_.data();
  right.point_x = Points(request.e_motion);
  right.y = y;
  CERES_EXT_RETURN_IF_ERROR(Run(right, machine_));
  CERES_EXT_RETURN_IF_ERROR(Run(
      kernels::AddVectorsParams{num_residuals(), y, request.b, y}, machine_));
  kernels::LeftMultiplyParams<Source> left;
  left.index = index_;
  left.jacobian = jacobian_;
  left.y = y;
  left.camera_x = Cameras(request.schur_rhs);
  return Run(left, machine_);
}

template <typename Machine, typename Source>
kernels::Status ObservationBatch<Machine, Source>::MultiplyToEliminated(
    const double* f_p, double* s, const kernels::PcgScalars* /*scalars*/) {
  if (owns_points_) {
    return {};
  }
  kernels::RightMultiplyParams<Source> right;
  right.index = index_;
  right.jacobian = jacobian_;
  right.camera_x = Cameras(f_p);
  right.point_x = zero_points_.data();
  right.y = residual_scratch_.data();
  CERES_EXT_RETURN_IF_ERROR(Run(right, machine_));
  return LeftMultiplyAndAccumulate(residual_scratch_.data(), s, nullptr);
}

template <typename Machine, typename Source>
kernels::Status ObservationBatch<Machine, Source>::MultiplySchur(
    const ProductRequest& request) {
  if (!owns_points_) {
    // q = D_f^2 p + F'(F p + E motion)
    kernels::NormalProductImplicitWParams<Source> params;
    params.index = index_;
    params.jacobian = jacobian_;
    params.camera_diagonal = Cameras(request.f_diagonal);
    params.camera_p = Cameras(request.f_p);
    params.point_p = Points(request.e_motion);
    params.camera_q = Cameras(request.f_q);
    params.scalars = request.scalars;
    return Run(params, machine_);
  }
  // q = D_f^2 p + F' (F p - E (E'E + D_e^2)^-1 E' F p)
  kernels::SchurProductImplicitWParams<Source, kLayout> params;
  params.index = index_;
  params.jacobian = jacobian_;
  params.v_inverse = PointView(request.v_inverse);
  params.camera_diagonal = Cameras(request.f_diagonal);
  params.p = Cameras(request.f_p);
  params.q = Cameras(request.f_q);
  params.scalars = request.scalars;
  return Run(params, machine_);
}

template <typename Machine, typename Source>
kernels::Status ObservationBatch<Machine, Source>::MultiplyNormal(
    const ProductRequest& request) {
  // q = J' (J p) + D^2 p
  kernels::NormalProductImplicitWParams<Source> params;
  params.index = index_;
  params.jacobian = jacobian_;
  params.camera_diagonal = Cameras(request.f_diagonal);
  params.camera_p = Cameras(request.f_p);
  params.point_p = Points(request.e_p);
  params.camera_q = Cameras(request.f_q);
  params.scalars = request.scalars;
  if (owns_points_) {
    params.point_diagonal = Points(request.e_diagonal);
    params.point_q = Points(request.e_q);
  } else {
    params.point_q = point_scratch_.data();
  }
  CERES_EXT_RETURN_IF_ERROR(Run(params, machine_));
  return owns_points_ ? kernels::Status()
                      : AddToPoints(point_scratch_.size(),
                                    point_scratch_.data(),
                                    Points(request.e_q));
}

template <typename Machine, typename Source>
kernels::Status ObservationBatch<Machine, Source>::BackSubstitute(
    const double* b, const double* v_inverse, const double* z, double* y) {
  if (!owns_points_) {
    return {};
  }
  // y = (E'E + D_e^2)^-1 E' (b - F z)
  kernels::BackSubstituteImplicitWParams<Source, kLayout> params;
  params.index = index_;
  params.jacobian = jacobian_;
  params.b = b;
  params.v_inverse = PointView(v_inverse);
  params.z = Cameras(z);
  params.y = Points(y);
  return Run(params, machine_);
}

template <typename Machine, typename Source>
void ObservationBatch<Machine, Source>::AppendOperands(
    std::vector<const void*>* operands) const {
  static_assert(std::has_unique_object_representations_v<Source> &&
                    sizeof(Source) % sizeof(void*) == 0,
                "compared as bytes");
  const void* words[sizeof(Source) / sizeof(void*)];
  std::memcpy(words, &jacobian_, sizeof(Source));
  operands->insert(operands->end(), std::begin(words), std::end(words));
}

template <typename Machine, typename Source>
int64_t ObservationBatch<Machine, Source>::bytes() const {
  return point_scratch_.bytes() + packed_scratch_.bytes() +
         residual_scratch_.bytes() + zero_points_.bytes() +
         zero_cameras_.bytes();
}

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_OBSERVATION_BATCH_IMPL_H_
