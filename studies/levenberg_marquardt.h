// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The optimisation that the study times: at most so many Levenberg-Marquardt
// iterations, each with at most so many PCG iterations, on any machine and any
// Jacobian source.
//
//   x = cameras and points, r(x) residuals, J = dr / dx
//   D^2 = diag(J'J) / radius
//   step = argmin |J step - r|^2 + |D step|^2      (PCG)
//   accept x - step where it lowers the cost: radius *= 3;
//   else radius /= shrink, shrink *= 2
//
// Without tolerances the work is the number of iterations asked for. With the
// paper's stopping rule PCG ends where |r| <= eta |J'r|, eta = 0.1, and the
// loop where an accepted step lowers the cost by less than function_tolerance
// of it (the paper says nothing of the latter; 1e-6 is Ceres's default).
#ifndef STUDIES_LEVENBERG_MARQUARDT_H_
#define STUDIES_LEVENBERG_MARQUARDT_H_

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "benchmarks/inexact_solver.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/ops/evaluate.h"
#include "cuda_kernels/ops/jacobian_products.h"
#include "cuda_kernels/ops/vectors.h"
#include "cuda_kernels/structure/cuda_workspace.h"
#include "cuda_kernels/structure/observation_index.h"
#include "studies/explicit_w_batch.h"
#include "studies/paper_batch.h"
#include "studies/paper_kernels.h"

namespace ceres_ext::bal {

// The study's marks on a machine; those before are the solver's.
enum StudyMark { kMark0 = 4, kMark1 };

struct StudyOptions {
  solver::StepOptions solver;
  // True if products use the blocks of W = F'E, formed once per solve.
  bool explicit_w = false;
  // eta. Below zero: PCG always takes max_num_iterations.
  double r_tolerance = -1.0;
  // Cost change of an accepted step, relative to the cost. Below zero: never an
  // end.
  double function_tolerance = -1.0;
  int num_lm_iterations = 50;
  // No iteration is begun after so many seconds.
  double max_seconds = std::numeric_limits<double>::infinity();
  double initial_radius = 1e4;
};

enum class StudyEnd { kIterations, kFunctionTolerance, kTime };

struct StudyResult {
  double total_seconds = 0.0;  // wall clock, from the start to the last step
  double initial_cost = 0.0;
  double final_cost = 0.0;
  int num_lm_iterations = 0;
  int num_accepted = 0;
  int64_t num_pcg_iterations = 0;
  StudyEnd end = StudyEnd::kIterations;
  // After each iteration: wall clock since the start, and its PCG iterations.
  std::vector<double> lm_seconds;
  std::vector<int> lm_pcg_iterations;
};

// A problem in the memory of a machine: its index, with a workspace, and the
// arrays in the order of that.
struct ProblemArrays {
  kernels::ObservationIndexRef index;
  const double* cameras = nullptr;       // 9 per camera
  const double* points = nullptr;        // 3 per point
  const double* observations = nullptr;  // 2 each
};

// The batches that form W never and always.
template <typename Machine, typename Source>
struct StudyBatches {
  using ImplicitW = solver::ObservationBatch<Machine, Source>;
  using ExplicitW = ExplicitWBatch<Machine, Source>;
};
template <PaperForm F, typename T, kernels::BlockLayout L, typename Source>
struct StudyBatches<PaperMachine<F, T, L>, Source> {
  using ImplicitW = PaperBatch<PaperMachine<F, T, L>, false>;
  using ExplicitW = PaperBatch<PaperMachine<F, T, L>, true>;
};

// Vectors of a PaperMachine, and the problem's arrays, are in its layout.
template <typename Machine, typename Source>
class LevenbergMarquardt {
 public:
  static constexpr bool kRecomputed = kernels::IsRecomputed<Source>::value;
  static constexpr bool kPaper = IsPaperMachine<Machine>::value;
  using Value = typename Source::Value;

  // Takes all memory; a second call with other options takes no more. The
  // problem must outlive this object; it is not changed.
  kernels::Status Setup(const StudyOptions& options,
                        const ProblemArrays& problem,
                        Machine* machine) {
    options_ = options;
    problem_ = problem;
    machine_ = machine;
    num_cameras_ = problem.index.num_cameras;
    num_points_ = problem.index.num_points;
    num_observations_ = problem.index.num_observations;
    for (State* state : {&state_, &candidate_}) {
      CERES_EXT_RETURN_IF_ERROR(
          machine->Allocate(9 * num_cameras_, &state->cameras));
      CERES_EXT_RETURN_IF_ERROR(
          machine->Allocate(3 * num_points_, &state->points));
      CERES_EXT_RETURN_IF_ERROR(
          machine->Allocate(kPaper ? 0 : num_cameras_, &state->prepared));
      CERES_EXT_RETURN_IF_ERROR(
          machine->Allocate(2 * num_observations_, &state->residuals));
    }
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(kPaper ? 0 : 81 * num_cameras_, &maps_));
    if constexpr (kPaper && std::is_same_v<Value, float>) {
      CERES_EXT_RETURN_IF_ERROR(
          machine->Allocate(9 * num_cameras_, &rounded_parameters_));
      CERES_EXT_RETURN_IF_ERROR(
          machine->Allocate(3 * num_points_, &rounded_points_));
    }
    if constexpr (kRecomputed) {
      if constexpr (std::is_same_v<Value, float>) {
        CERES_EXT_RETURN_IF_ERROR(
            machine->Allocate(num_cameras_, &rounded_cameras_));
        CERES_EXT_RETURN_IF_ERROR(
            machine->Allocate(3 * num_points_, &rounded_points_));
      }
    } else {
      CERES_EXT_RETURN_IF_ERROR(
          machine->Allocate(18 * num_observations_, &camera_blocks_));
      CERES_EXT_RETURN_IF_ERROR(
          machine->Allocate(6 * num_observations_, &point_blocks_));
    }
    for (Buffer<double>* buffer :
         {&camera_norms_, &camera_diagonal_, &camera_step_}) {
      CERES_EXT_RETURN_IF_ERROR(machine->Allocate(9 * num_cameras_, buffer));
    }
    for (Buffer<double>* buffer :
         {&point_norms_, &point_diagonal_, &point_step_}) {
      CERES_EXT_RETURN_IF_ERROR(machine->Allocate(3 * num_points_, buffer));
    }
    CERES_EXT_RETURN_IF_ERROR(machine->AllocateResult(&evaluation_));
    return options.explicit_w
               ? explicit_solver_.Setup(options.solver, problem.index, machine)
               : solver_.Setup(options.solver, problem.index, machine);
  }

  // Runs from the problem's start.
  kernels::Status Optimize(StudyResult* result) {
    *result = StudyResult();
    CERES_EXT_RETURN_IF_ERROR(Start(&result->initial_cost));
    double cost = result->initial_cost;
    double radius = options_.initial_radius;
    double shrink = 2.0;
    bool is_new_state = true;
    CERES_EXT_RETURN_IF_ERROR(machine_->Synchronize());
    const auto begin = std::chrono::steady_clock::now();
    const auto seconds = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                           begin)
          .count();
    };
    for (int i = 0; i < options_.num_lm_iterations; ++i) {
      if (seconds() > options_.max_seconds) {
        result->end = StudyEnd::kTime;
        break;
      }
      if (is_new_state) {
        CERES_EXT_RETURN_IF_ERROR(Linearize());
      }
      CERES_EXT_RETURN_IF_ERROR(Damp(radius));
      const solver::StepSummary summary = Solve();
      if (summary.termination == solver::Termination::kFatalError) {
        return {kernels::StatusCode::kDeviceError, summary.message};
      }
      const bool has_step =
          summary.termination != solver::Termination::kFailure;
      double candidate_cost = cost;
      if (has_step) {
        CERES_EXT_RETURN_IF_ERROR(Move(&candidate_cost));
      }
      CERES_EXT_RETURN_IF_ERROR(machine_->Synchronize());
      result->num_pcg_iterations += summary.num_iterations;
      ++result->num_lm_iterations;
      result->lm_seconds.push_back(seconds());
      result->lm_pcg_iterations.push_back(summary.num_iterations);
      // False for NaN as well.
      is_new_state = has_step && candidate_cost < cost;
      if (is_new_state) {
        const bool is_last =
            cost - candidate_cost < options_.function_tolerance * cost;
        std::swap(state_, candidate_);
        cost = candidate_cost;
        radius = std::min(3.0 * radius, 1e16);
        shrink = 2.0;
        ++result->num_accepted;
        if (is_last) {
          result->end = StudyEnd::kFunctionTolerance;
          break;
        }
      } else {
        radius = std::max(radius / shrink, 1e-32);
        shrink *= 2.0;
      }
    }
    result->total_seconds = seconds();
    result->final_cost = cost;
    return {};
  }

  // Evaluates the problem's start: residuals, and its cost.
  kernels::Status Start(double* cost) {
    CERES_EXT_RETURN_IF_ERROR(Run(
        kernels::CopyParams{
            9 * num_cameras_, problem_.cameras, state_.cameras.data()},
        machine_));
    CERES_EXT_RETURN_IF_ERROR(Run(
        kernels::CopyParams{
            3 * num_points_, problem_.points, state_.points.data()},
        machine_));
    return EvaluateCost(&state_, cost);
  }

  // J at the state, its column norms.
  kernels::Status Linearize() {
    if constexpr (kPaper) {
      return LinearizeAsPaper();
    } else {
      CERES_EXT_RETURN_IF_ERROR(PrepareMaps());
      if constexpr (!kRecomputed) {
        CERES_EXT_RETURN_IF_ERROR(Run(JacobianParams(), machine_));
      }
      return Run(ColumnNormsParams(), machine_);
    }
  }

  kernels::Status Damp(double radius) {
    CERES_EXT_RETURN_IF_ERROR(Damp(9 * num_cameras_,
                                   radius,
                                   camera_norms_.data(),
                                   camera_diagonal_.data()));
    return Damp(
        3 * num_points_, radius, point_norms_.data(), point_diagonal_.data());
  }

  solver::StepSummary Solve() {
    solver::StepPerSolveOptions per_solve;
    per_solve.q_tolerance = -std::numeric_limits<double>::infinity();
    per_solve.r_tolerance = options_.r_tolerance;
    return options_.explicit_w ? explicit_solver_.Solve(System(),
                                                        per_solve,
                                                        camera_step_.data(),
                                                        point_step_.data())
                               : solver_.Solve(System(),
                                               per_solve,
                                               camera_step_.data(),
                                               point_step_.data());
  }

  // The inputs of single operations; the same as within Optimize.
  solver::ObservationSystem<Source> System() {
    solver::ObservationSystem<Source> system;
    system.jacobian = Jacobian();
    system.b = state_.residuals.data();
    system.camera_diagonal = camera_diagonal_.data();
    system.point_diagonal = point_diagonal_.data();
    return system;
  }

  // Cameras and points whose blocks of J'J, undamped and after Linearize, are
  // rank-deficient. Not for a PaperMachine.
  kernels::Status FindDegenerateBlocks(solver::DegenerateBlocks* points,
                                       solver::DegenerateBlocks* cameras) {
    Buffer<double> no_padding;
    const int64_t n = std::max(9 * num_cameras_, 3 * num_points_);
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(n, &no_padding));
    CERES_EXT_RETURN_IF_ERROR(machine_->SetZero(n, no_padding.data()));
    return solver_.FindDegenerateBlocks(
        System(), no_padding.data(), no_padding.data(), points, cameras);
  }

  // The camera maps of the state and, where Jacobians are recomputed in float,
  // the state rounded.
  kernels::Status PrepareMaps() {
    CERES_EXT_RETURN_IF_ERROR(Run(PrepareParams(&state_, &maps_), machine_));
    if constexpr (kRecomputed && std::is_same_v<Value, float>) {
      kernels::PrepareCamerasParams<float, 9> rounded;
      rounded.num_cameras = static_cast<int32_t>(num_cameras_);
      rounded.cameras = state_.cameras.data();
      rounded.states = rounded_cameras_.data();
      CERES_EXT_RETURN_IF_ERROR(Run(rounded, machine_));
      return Run(
          kernels::CastParams<float>{
              3 * num_points_, state_.points.data(), rounded_points_.data()},
          machine_);
    }
    return {};
  }

  // Not for recomputed Jacobians.
  kernels::EvaluateJacobianParams<Value, 9, Machine::kLayout> JacobianParams() {
    kernels::EvaluateJacobianParams<Value, 9, Machine::kLayout> params;
    params.index = problem_.index;
    params.cameras = state_.prepared.data();
    params.camera_maps = maps_.data();
    params.points = state_.points.data();
    params.observations = problem_.observations;
    params.camera_blocks = {camera_blocks_.data(), num_observations_};
    params.point_blocks = {point_blocks_.data(), num_observations_};
    params.evaluation = evaluation_.data();
    return params;
  }

  kernels::SquaredColumnNormsParams<Source> ColumnNormsParams() {
    kernels::SquaredColumnNormsParams<Source> params;
    params.index = problem_.index;
    params.jacobian = Jacobian();
    params.camera_x = camera_norms_.data();
    params.point_x = point_norms_.data();
    return params;
  }

  const double* camera_step() const { return camera_step_.data(); }
  const double* point_step() const { return point_step_.data(); }
  // Norm of the state.
  const double* residuals() const { return state_.residuals.data(); }

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  struct State {
    Buffer<double> cameras;
    Buffer<double> points;
    Buffer<kernels::CameraState<double>> prepared;
    Buffer<double> residuals;
  };

  Source Jacobian() {
    Source source;
    if constexpr (!kRecomputed) {
      source.camera_blocks = {camera_blocks_.data(), num_observations_};
      source.point_blocks = {point_blocks_.data(), num_observations_};
    } else if constexpr (std::is_same_v<Value, float>) {
      source.cameras = rounded_cameras_.data();
      source.camera_maps = maps_.data();
      source.points = rounded_points_.data();
    } else {
      source.cameras = state_.prepared.data();
      source.camera_maps = maps_.data();
      source.points = state_.points.data();
    }
    return source;
  }

  kernels::PrepareCamerasParams<double, 9> PrepareParams(State* state,
                                                         Buffer<double>* maps) {
    kernels::PrepareCamerasParams<double, 9> params;
    params.num_cameras = static_cast<int32_t>(num_cameras_);
    params.cameras = state->cameras.data();
    params.states = state->prepared.data();
    params.maps = maps == nullptr ? nullptr : maps->data();
    return params;
  }

  kernels::EvaluateCostParams CostParams(State* state) {
    kernels::EvaluateCostParams params;
    params.index = problem_.index;
    params.cameras = state->prepared.data();
    params.points = state->points.data();
    params.observations = problem_.observations;
    params.residuals = state->residuals.data();
    params.evaluation = evaluation_.data();
    return params;
  }

  kernels::Status EvaluateCost(State* state, double* cost) {
    if constexpr (kPaper) {
      constexpr kernels::BlockLayout L = Machine::kLayout;
      PaperResidualsParams<L> params;
      params.index = problem_.index;
      params.cameras = {state->cameras.data(), num_cameras_};
      params.points = {state->points.data(), num_points_};
      params.observations = {problem_.observations, num_observations_};
      params.residuals = {state->residuals.data(), num_observations_};
      CERES_EXT_RETURN_IF_ERROR(Run(params, machine_));
      CERES_EXT_RETURN_IF_ERROR(
          Run(kernels::DotParams{2 * num_observations_,
                                 state->residuals.data(),
                                 state->residuals.data(),
                                 &evaluation_.data()->cost},
              machine_));
    } else {
      CERES_EXT_RETURN_IF_ERROR(Run(PrepareParams(state, nullptr), machine_));
      CERES_EXT_RETURN_IF_ERROR(Run(CostParams(state), machine_));
    }
    kernels::Evaluation evaluation;
    CERES_EXT_RETURN_IF_ERROR(machine_->ReadResult(evaluation_, &evaluation));
    *cost = kPaper ? 0.5 * evaluation.cost : evaluation.cost;
    return {};
  }

  // With a PaperMachine: J from the parameters, in float from rounded ones.
  kernels::Status LinearizeAsPaper() {
    constexpr kernels::BlockLayout L = Machine::kLayout;
    PaperJacobianParams<Value, L> jacobian;
    jacobian.index = problem_.index;
    if constexpr (std::is_same_v<Value, float>) {
      CERES_EXT_RETURN_IF_ERROR(
          Run(kernels::CastParams<float>{9 * num_cameras_,
                                         state_.cameras.data(),
                                         rounded_parameters_.data()},
              machine_));
      CERES_EXT_RETURN_IF_ERROR(Run(
          kernels::CastParams<float>{
              3 * num_points_, state_.points.data(), rounded_points_.data()},
          machine_));
      jacobian.cameras = {rounded_parameters_.data(), num_cameras_};
      jacobian.points = {rounded_points_.data(), num_points_};
    } else {
      jacobian.cameras = {state_.cameras.data(), num_cameras_};
      jacobian.points = {state_.points.data(), num_points_};
    }
    jacobian.camera_blocks = {camera_blocks_.data(), num_observations_};
    jacobian.point_blocks = {point_blocks_.data(), num_observations_};
    CERES_EXT_RETURN_IF_ERROR(Run(jacobian, machine_));
    PaperColumnNormsParams<Value, L> norms;
    norms.index = problem_.index;
    norms.jacobian = Jacobian();
    norms.cameras = {camera_norms_.data(), num_cameras_};
    norms.points = {point_norms_.data(), num_points_};
    return Run(norms, machine_);
  }

  // The candidate x - step and its cost.
  kernels::Status Move(double* cost) {
    CERES_EXT_RETURN_IF_ERROR(Subtract(9 * num_cameras_,
                                       state_.cameras.data(),
                                       camera_step_.data(),
                                       candidate_.cameras.data()));
    CERES_EXT_RETURN_IF_ERROR(Subtract(3 * num_points_,
                                       state_.points.data(),
                                       point_step_.data(),
                                       candidate_.points.data()));
    return EvaluateCost(&candidate_, cost);
  }

  // out = x - step: the step minimises |J step - residual|.
  kernels::Status Subtract(int64_t n,
                           const double* x,
                           const double* step,
                           double* out) {
    CERES_EXT_RETURN_IF_ERROR(
        Run(kernels::NegateParams{n, step, out}, machine_));
    return Run(kernels::AddVectorsParams{n, x, out, out}, machine_);
  }

  // diagonal = sqrt(clamp(squared_norms, 1e-6, 1e32) / radius): Marquardt's
  // damping with the bounds of Ceres's Levenberg-Marquardt strategy.
  kernels::Status Damp(int64_t n,
                       double radius,
                       double* squared_norms,
                       double* diagonal) {
    CERES_EXT_RETURN_IF_ERROR(
        Run(kernels::ClampParams{n, 1e-6, 1e32, squared_norms}, machine_));
    return Run(
        kernels::LevenbergMarquardtDiagonalParams{
            n, radius, squared_norms, diagonal},
        machine_);
  }

  StudyOptions options_;
  ProblemArrays problem_;
  Machine* machine_ = nullptr;
  int64_t num_cameras_ = 0;
  int64_t num_points_ = 0;
  int64_t num_observations_ = 0;
  State state_;
  State candidate_;
  Buffer<double> maps_;
  Buffer<kernels::CameraState<float>> rounded_cameras_;
  Buffer<float> rounded_parameters_;  // of cameras
  Buffer<float> rounded_points_;
  Buffer<Value> camera_blocks_;
  Buffer<Value> point_blocks_;
  Buffer<double> camera_norms_;
  Buffer<double> point_norms_;
  Buffer<double> camera_diagonal_;
  Buffer<double> point_diagonal_;
  Buffer<double> camera_step_;
  Buffer<double> point_step_;
  typename Machine::template Result<kernels::Evaluation> evaluation_;
  // The one of them that the options ask for.
  using Batches = StudyBatches<Machine, Source>;
  solver::InexactSolver<Machine, Source, typename Batches::ImplicitW> solver_;
  solver::InexactSolver<Machine, Source, typename Batches::ExplicitW>
      explicit_solver_;
};

}  // namespace ceres_ext::bal

#endif  // STUDIES_LEVENBERG_MARQUARDT_H_
