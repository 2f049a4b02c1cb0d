// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Whole solves on the device against the host.
#include <cstdint>
#include <vector>

#include "benchmarks/inexact_solver.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/ops/evaluate.h"
#include "tests/kernels/cuda_test_util.h"
#include "tests/kernels/solver_configurations.h"

namespace ceres_ext::kernels {
namespace {

using CudaSolverTest = CudaProblemTest;

// Whole solves: the same iterations, the same ending, the same step. PCG of k
// iterations amplifies roundings by the condition number of the preconditioned
// matrix, and mixes the unknowns, so elements have no bound of their own;
// tolerances are relative to the largest step of the same parameter (of a
// camera, a point), 1e-8 in double (eps times 1e7) and 1e-3 in float (eps times
// 1e4), and the iteration counts must agree in double.
TEST_F(CudaSolverTest, SolvesLikeHost) {
  constexpr int C = 9;
  using DeviceSource = RecomputedJacobian<double, C>;
  using FloatSource = RecomputedJacobian<float, C>;
  Prepare(MakePairs(12, 300, {4, 6, 3, 8}, 77), {});
  std::vector<double> cameras;
  std::vector<double> points;
  std::vector<double> observations;
  MakeScene(pairs_, 5, &cameras, &points, &observations);
  std::vector<CameraState<double>> states;
  std::vector<double> maps(81 * pairs_.num_cameras);
  states.resize(static_cast<size_t>(pairs_.num_cameras));
  PrepareCamerasParams<double, C> prepare;
  prepare.num_cameras = pairs_.num_cameras;
  prepare.cameras = cameras.data();
  prepare.states = states.data();
  prepare.maps = maps.data();
  ASSERT_OK(kernels::Run(prepare, &host_machine_));
  const std::vector<double> b = RandomVector(2 * n_, 6);
  const std::vector<double> camera_diagonal(C * pairs_.num_cameras, 0.7);
  const std::vector<double> point_diagonal(3 * pairs_.num_points, 0.4);
  const auto device_states = Upload(states);
  const auto device_maps = Upload(maps);
  const auto device_points = Upload(points);
  std::vector<CameraState<float>> float_states;
  for (const auto& state : states) {
    float_states.push_back(CameraStateCast<float>(state));
  }
  const auto device_float_states = Upload(float_states);
  const auto device_float_points =
      Upload(std::vector<float>(points.begin(), points.end()));
  const auto device_b = Upload(b);
  const auto device_camera_diagonal = Upload(camera_diagonal);
  const auto device_point_diagonal = Upload(point_diagonal);

  for (const solver::StepOptions& options : solver::SolverConfigurations()) {
    SCOPED_TRACE(solver::ConfigurationName(options));
    solver::StepPerSolveOptions per_solve;
    per_solve.q_tolerance = -1.0;
    per_solve.r_tolerance = 1e-10;
    std::vector<double> host_camera(C * pairs_.num_cameras);
    std::vector<double> host_point(3 * pairs_.num_points);
    solver::InexactSolver<HostMachine, DeviceSource> host_solver;
    ASSERT_OK(
        host_solver.Setup(options, host_workspace_.index(), &host_machine_));
    solver::ObservationSystem<DeviceSource> host_system;
    host_system.jacobian = {states.data(), maps.data(), points.data(), nullptr};
    host_system.b = b.data();
    host_system.camera_diagonal = camera_diagonal.data();
    host_system.point_diagonal = point_diagonal.data();
    const auto expected = host_solver.Solve(
        host_system, per_solve, host_camera.data(), host_point.data());
    ASSERT_EQ(expected.termination, solver::Termination::kSuccess)
        << expected.message;

    solver::InexactSolver<CudaMachine, DeviceSource> solver;
    ASSERT_OK(solver.Setup(options, workspace_.index(), machine_.get()));
    solver::ObservationSystem<DeviceSource> system;
    system.jacobian = {device_states.data(),
                       device_maps.data(),
                       device_points.data(),
                       nullptr};
    system.b = device_b.data();
    system.camera_diagonal = device_camera_diagonal.data();
    system.point_diagonal = device_point_diagonal.data();
    std::vector<double> first;
    for (int run = 0; run < 2; ++run) {
      auto camera = Poisoned<double>(C * pairs_.num_cameras);
      auto point = Poisoned<double>(3 * pairs_.num_points);
      const auto summary =
          solver.Solve(system, per_solve, camera.data(), point.data());
      EXPECT_EQ(summary.termination, expected.termination) << summary.message;
      EXPECT_NEAR(summary.num_iterations,
                  expected.num_iterations,
                  1 + expected.num_iterations / 50);
      EXPECT_TRUE(Close(
          Download(camera), host_camera, BoundsByKind(host_camera, C, 1e-8)));
      EXPECT_TRUE(Close(
          Download(point), host_point, BoundsByKind(host_point, 3, 1e-8)));
      if (run == 0) {
        first = Download(camera);
      } else {
        EXPECT_TRUE(SameBits(Download(camera), first));
      }
    }

    // Mixed: the float system has another solution, near by.
    solver::InexactSolver<CudaMachine, FloatSource> mixed;
    ASSERT_OK(mixed.Setup(options, workspace_.index(), machine_.get()));
    solver::ObservationSystem<FloatSource> mixed_system;
    mixed_system.jacobian = {device_float_states.data(),
                             device_maps.data(),
                             device_float_points.data(),
                             nullptr};
    mixed_system.b = device_b.data();
    mixed_system.camera_diagonal = device_camera_diagonal.data();
    mixed_system.point_diagonal = device_point_diagonal.data();
    per_solve.r_tolerance = 1e-5;
    auto camera = Poisoned<double>(C * pairs_.num_cameras);
    auto point = Poisoned<double>(3 * pairs_.num_points);
    const auto summary =
        mixed.Solve(mixed_system, per_solve, camera.data(), point.data());
    EXPECT_EQ(summary.termination, solver::Termination::kSuccess)
        << summary.message;
    EXPECT_TRUE(Close(
        Download(camera), host_camera, BoundsByKind(host_camera, C, 1e-3)));
    EXPECT_TRUE(
        Close(Download(point), host_point, BoundsByKind(host_point, 3, 1e-3)));
  }
}

}  // namespace
}  // namespace ceres_ext::kernels
