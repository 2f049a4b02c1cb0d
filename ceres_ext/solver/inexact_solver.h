// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The inexact-step solver: an approximate minimiser, by preconditioned
// conjugate gradients, of
//
//   1/2 |J x - b|^2 + 1/2 |D x|^2,   J = [E F], x = (y, z)
//
// with points y and cameras z, whose blocks have the columns of the source's
// Shape.
//
// With Schur complement, y is eliminated:
//   S z = F'b - F'E (E'E + D_e^2)^-1 E'b
//   S   = F'F + D_f^2 - F'E (E'E + D_e^2)^-1 E'F
//   y   = (E'E + D_e^2)^-1 (E'b - E'F z)
// Without, PCG works on (J'J + D^2) x = J'b. Both start at zero.
//
//   InexactSolver<HostMachine, RecomputedJacobian<double, 9>> solver;
//   Status status = solver.Setup(options, index.view(), &machine);
//   system.jacobian = ...; system.b = ...;
//   InexactSolverSummary summary =
//       solver.Solve(system, per_solve, camera_step, point_step);
//
// The sign is Ceres's: b is the residual, and the trust-region loop negates the
// step itself. An undamped zero column has step zero.
//
// Setup takes all memory, Solve takes none; only a graph (cuda_graph.h) is made
// by Solve, and serves those that follow on the same arrays. A solver serves
// one Solve at a time. The same input gives the same bits, for any number of
// threads.
#ifndef CERES_EXT_SOLVER_INEXACT_SOLVER_H_
#define CERES_EXT_SOLVER_INEXACT_SOLVER_H_

#include <cstdint>
#include <string>
#include <type_traits>

#include "ceres_ext/solver/inexact_solver_options.h"
#include "ceres_ext/solver/pcg.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/ops/preconditioner.h"
#include "cuda_kernels/ops/schur_products.h"

namespace ceres_ext::solver {

// Arrays in the memory of the machine, in the order of the observation index.
template <typename Source>
struct LinearSystem {
  Source jacobian;
  const double* b = nullptr;                // R per observation
  const double* camera_diagonal = nullptr;  // D_f, F per camera; null: zero
  const double* point_diagonal = nullptr;   // D_e, E per point; null: zero
};

template <typename Machine, typename Source>
class InexactSolver {
 public:
  using Shape = typename Source::Shape;

  // What the index views and the machine must outlive the solver.
  // kInvalidArgument: options.Validate fails. kOutOfMemory.
  kernels::Status Setup(const InexactSolverOptions& options,
                        const kernels::ObservationIndexView& index,
                        Machine* machine);

  // camera_step: F per camera; point_step: E per point. Both hold the step
  // where the termination is kSuccess or kNoConvergence and are unspecified
  // otherwise.
  InexactSolverSummary Solve(const LinearSystem<Source>& system,
                             const InexactSolverPerSolveOptions& per_solve,
                             double* camera_step,
                             double* point_step);

  // What Setup took, scratch of the index apart.
  int64_t bytes() const;

 private:
  using Value = typename Source::Value;
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;
  static constexpr kernels::BlockLayout kLayout = Machine::kLayout;
  static constexpr int E = Shape::kE;
  static constexpr int F = Shape::kF;

  enum Mark { kBegin, kBlocksDone, kPcgDone, kEnd };

  // What PCG reads and writes beside the buffers below.
  struct PcgOperands {
    Source jacobian;
    const double* camera_diagonal = nullptr;
    const double* point_diagonal = nullptr;
    double* x = nullptr;
  };
  static_assert(std::has_unique_object_representations_v<PcgOperands>,
                "compared as bytes");
  struct PcgIterations {
    PcgOperands operands;
    typename Machine::PcgLoop loop;
  };

  bool is_explicit() const { return options_.w_product == WProduct::kExplicit; }
  bool has_preconditioner() const {
    return options_.preconditioner != PreconditionerType::kIdentity;
  }
  kernels::BlockView<double, Shape::kPackedF, kLayout> CameraView(
      Buffer<double>* buffer) const {
    return {buffer->data(), num_cameras_};
  }
  kernels::BlockView<double, Shape::kPackedE, kLayout> PointView(
      Buffer<double>* buffer) const {
    return {buffer->data(), num_points_};
  }
  kernels::BlockView<Value, Shape::kWSize, kLayout> WView() {
    return {w_.data(), num_observations_};
  }

  kernels::Status SolveOrFail(const LinearSystem<Source>& system,
                              const InexactSolverPerSolveOptions& per_solve,
                              double* camera_step,
                              double* point_step,
                              InexactSolverSummary* summary);
  // The loop for these operands, in place of the one used least recently.
  typename Machine::PcgLoop* FindLoop(const PcgOperands& operands);
  kernels::Status UpdateBlocks(const LinearSystem<Source>& system);
  kernels::Status UpdatePreconditioner(const LinearSystem<Source>& system);
  kernels::Status Precondition(const double* r, double* z);
  kernels::Status MultiplySchur(const LinearSystem<Source>& system,
                                const double* p,
                                double* q);
  kernels::Status MultiplyNormal(const LinearSystem<Source>& system,
                                 const double* p,
                                 double* q);
  kernels::Status BackSubstitute(const LinearSystem<Source>& system,
                                 const double* z,
                                 double* y);

  InexactSolverOptions options_;
  kernels::ObservationIndexView index_;
  Machine* machine_ = nullptr;
  int64_t num_cameras_ = 0;
  int64_t num_points_ = 0;
  int64_t num_observations_ = 0;
  // Unknowns of the iteration: cameras, then points where they take part.
  int64_t num_unknowns_ = 0;

  // Buffers that a configuration has no use for are empty.
  Buffer<double> u_;               // F'F
  Buffer<double> v_;               // E'E
  Buffer<Value> w_;                // F'E
  Buffer<double> v_inverse_;       // (E'E + D_e^2)^-1
  Buffer<double> point_gradient_;  // E'b
  Buffer<double> rhs_;
  Buffer<double> camera_preconditioner_;  // inverse blocks
  Buffer<double> point_preconditioner_;   // inverse blocks
  Buffer<double> x_;                      // without Schur complement
  Buffer<double> p_;
  Buffer<double> r_;
  Buffer<double> z_;
  Buffer<kernels::PcgScalars> scalars_;
  Buffer<kernels::Breakdown> breakdown_;

  // Two, for callers that swap a state and a candidate.
  PcgIterations iterations_[2];
  int last_iterations_ = 0;
};

}  // namespace ceres_ext::solver

#include "ceres_ext/solver/inexact_solver_impl.h"

#endif  // CERES_EXT_SOLVER_INEXACT_SOLVER_H_
