// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The vector steps of PCG, block inverses, and whole solves on the device
// against the host.
#include <cstdint>
#include <limits>
#include <vector>

#include "benchmarks/inexact_solver.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/ops/block_rows.h"
#include "cuda_kernels/ops/pcg.h"
#include "cuda_kernels/ops/vectors.h"
#include "tests/kernels/cuda_test_util.h"
#include "tests/kernels/solver_configurations.h"

namespace ceres_ext::kernels {
namespace {

constexpr double kEps = std::numeric_limits<double>::epsilon() / 2;

class CudaSolverTest : public CudaProblemTest {
 protected:
  template <int N>
  void CompareBlocks();
};

// One step after the other on given vectors. Sums of n terms round at most n +
// 64 times the sum of their absolute terms.
TEST_F(CudaSolverTest, VectorSteps) {
  for (const int64_t n : {0, 31, 513, 4097, 300001}) {
    SCOPED_TRACE(n);
    const double tolerance = static_cast<double>(n + 64) * kEps;
    std::vector<double> rhs = RandomVector(n, 1), z = RandomVector(n, 2), x(n),
                        r(n), p(n), q = z;
    // p'q > 0, and q has another direction than p, so that no product that is
    // tested is a difference of equal sums.
    for (int64_t i = 0; i < n; ++i) {
      q[static_cast<size_t>(i)] *= static_cast<double>(1 + i % 3);
    }
    double absolute_rho = 0.0;
    double absolute_pq = 0.0;
    for (int64_t i = 0; i < n; ++i) {
      absolute_rho += std::fabs(rhs[i] * z[i]);
      absolute_pq += std::fabs(z[i] * q[i]);
    }
    PcgScalars host;
    const auto device_rhs = Upload(rhs);
    const auto device_z = Upload(z);
    const auto device_q = Upload(q);
    auto device_x = Poisoned<double>(n);
    auto device_r = Poisoned<double>(n);
    auto device_p = Poisoned<double>(n);
    auto device_scalars = Poisoned<PcgScalars>(1);
    const auto compare = [&](const char* what) {
      SCOPED_TRACE(what);
      ASSERT_OK(context_->Synchronize());
      const PcgScalars device = Download(device_scalars)[0];
      EXPECT_EQ(device.end, host.end);
      EXPECT_EQ(device.num_iterations, host.num_iterations);
      // alpha = rho / p'q, x = alpha p and r = rhs - alpha q, with p = z,
      // before and after the only iteration.
      const double alpha_error =
          host.num_iterations == 0
              ? 0.0
              : tolerance * (absolute_rho / std::fabs(host.pq) +
                             std::fabs(host.alpha) * absolute_pq /
                                 std::fabs(host.pq)) +
                    2 * kEps * std::fabs(host.alpha);
      std::vector<double> x_bound, r_bound;
      double r_error = 0.0;
      for (int64_t i = 0; i < n; ++i) {
        x_bound.push_back(alpha_error * std::fabs(z[i]) +
                          2 * kEps * std::fabs(x[i]));
        r_bound.push_back(
            alpha_error * std::fabs(q[i]) +
            4 * kEps * (std::fabs(rhs[i]) + std::fabs(host.alpha * q[i])));
        r_error += r_bound.back() * r_bound.back();
      }
      EXPECT_TRUE(Close({device.norm_rhs, device.norm_r, device.rho, device.pq},
                        {host.norm_rhs, host.norm_r, host.rho, host.pq},
                        {tolerance * host.norm_rhs,
                         tolerance * host.norm_r + std::sqrt(r_error),
                         tolerance * absolute_rho,
                         tolerance * absolute_pq}));
      if (host.num_iterations > 0) {
        EXPECT_NEAR(device.alpha, host.alpha, alpha_error);
      }
      EXPECT_TRUE(Close(Download(device_x), x, x_bound));
      EXPECT_TRUE(Close(Download(device_r), r, r_bound));
    };
    PcgStartParams start;
    start.n = n;
    start.q_tolerance = -1.0;
    start.r_tolerance = -1.0;
    start.max_num_iterations = 1;
    start.rhs = rhs.data();
    start.x = x.data();
    start.r = r.data();
    start.scalars = &host;
    RunOk(start, &host_machine_);
    start.rhs = device_rhs.data();
    start.x = device_x.data();
    start.r = device_r.data();
    start.scalars = device_scalars.data();
    ASSERT_OK(kernels::Run(start, machine_.get()));
    compare("start");
    // The first iteration is the last; a second one has to do nothing.
    for (int i = 0; i < 2; ++i) {
      PcgScalars* const device = device_scalars.data();
      PcgRhoParams rho{n, r.data(), z.data(), &host};
      RunOk(rho, &host_machine_);
      rho = {n, device_r.data(), device_z.data(), device};
      ASSERT_OK(kernels::Run(rho, machine_.get()));
      PcgDirectionParams direction{n, z.data(), p.data(), &host};
      RunOk(direction, &host_machine_);
      direction = {n, device_z.data(), device_p.data(), device};
      ASSERT_OK(kernels::Run(direction, machine_.get()));
      PcgAlphaParams alpha{n, p.data(), q.data(), &host};
      RunOk(alpha, &host_machine_);
      alpha = {n, device_p.data(), device_q.data(), device};
      ASSERT_OK(kernels::Run(alpha, machine_.get()));
      PcgAdvanceParams advance{n, p.data(), x.data(), &host};
      RunOk(advance, &host_machine_);
      advance = {n, device_p.data(), device_x.data(), device};
      ASSERT_OK(kernels::Run(advance, machine_.get()));
      PcgResidualParams residual{
          n, i == 1, rhs.data(), q.data(), x.data(), r.data(), &host};
      RunOk(residual, &host_machine_);
      residual = {n,
                  i == 1,
                  device_rhs.data(),
                  device_q.data(),
                  device_x.data(),
                  device_r.data(),
                  device};
      ASSERT_OK(kernels::Run(residual, machine_.get()));
      compare(i == 0 ? "first iteration" : "after the end");
    }

    auto dot = Poisoned<double>(1);
    double expected = 0.0;
    DotParams params{n, rhs.data(), z.data(), &expected};
    RunOk(params, &host_machine_);
    params = {n, device_rhs.data(), device_z.data(), dot.data()};
    ASSERT_OK(kernels::Run(params, machine_.get()));
    ASSERT_OK(context_->Synchronize());
    EXPECT_NEAR(Download(dot)[0], expected, tolerance * absolute_rho);
  }
}

template <int N>
void CudaSolverTest::CompareBlocks() {
  // Blocks B'B + I of random B; block 3 is zero, block 50 has a positive
  // diagonal and is indefinite, block 60 has a negative diagonal.
  const int64_t num_blocks = 67;
  std::vector<double> a(PackedSize(N) * num_blocks);
  const std::vector<double> random = RandomVector(N * N * num_blocks, 51);
  for (int64_t b = 0; b < num_blocks; ++b) {
    for (int i = 0; i < N; ++i) {
      for (int j = 0; j <= i; ++j) {
        double sum = i == j ? 1.0 : 0.0;
        for (int k = 0; k < N; ++k) {
          sum += random[N * N * b + N * k + i] * random[N * N * b + N * k + j];
        }
        a[PackedSize(N) * b + PackedIndex(i, j)] =
            b == 3 ? 0.0 : (b == 59 || b == 60 ? -sum : sum);
      }
    }
  }
  a[PackedSize(N) * 50 + PackedIndex(1, 0)] = 1e3;
  // Block 59 is left with D^2 alone.
  std::vector<double> diagonal(N * num_blocks, 0.0);
  std::fill_n(diagonal.begin() + 59 * N, N, 0.5);
  const std::vector<double> r = RandomVector(N * num_blocks, 52);
  std::vector<double> inverse(a.size()), z(N * num_blocks);
  int32_t first = Breakdown::kNone;
  const BlockFamily family{N, num_blocks};
  InvertBlocksParams<N> invert;
  invert.n = num_blocks;
  invert.a = PackedBlocks<const double>(family, kHostLayout, a.data());
  invert.diagonal = diagonal.data();
  invert.inverse = PackedBlocks(family, kHostLayout, inverse.data());
  invert.may_be_diagonal = true;
  invert.first_breakdown = &first;
  RunOk(invert, &host_machine_);
  EXPECT_EQ(first, 60);

  auto device_a = Upload(ToDeviceLayout<double>(a, PackedSize(N)));
  const auto device_diagonal = Upload(diagonal);
  const auto device_r = Upload(r);
  auto device_first = Upload(std::vector<int32_t>{Breakdown::kNone});
  InvertBlocksParams<N> device = invert;
  device.a = PackedBlocks<const double>(family, kDeviceLayout, device_a.data());
  device.diagonal = device_diagonal.data();
  // In place.
  device.inverse = PackedBlocks(family, kDeviceLayout, device_a.data());
  device.first_breakdown = device_first.data();
  ASSERT_OK(kernels::Run(device, machine_.get()));
  EXPECT_EQ(Download(device_first)[0], 60);
  std::vector<double> actual = ToHostLayout(Download(device_a), PackedSize(N));
  // The indefinite block has no inverse.
  for (std::vector<double>* values : {&actual, &inverse}) {
    std::fill_n(values->begin() + 60 * PackedSize(N), PackedSize(N), 0.0);
  }
  // A is exact except for the addition of D^2.
  std::vector<Running<double>> running_inverse(inverse.size());
  for (int64_t b = 0; b < num_blocks; ++b) {
    double squares[N];
    for (int i = 0; i < N; ++i) {
      const double d = diagonal[N * b + i];
      squares[i] = std::fabs(a[PackedSize(N) * b + PackedIndex(i, i)]) + d * d;
      if (squares[i] == 0.0) {
        squares[i] = 1.0;  // A column that counts as a unit column.
      }
    }
    RunningInverse<N>(&inverse[PackedSize(N) * b],
                      squares,
                      2 * kEps,
                      &running_inverse[PackedSize(N) * b]);
  }
  EXPECT_TRUE(Close(actual, inverse, running_inverse));

  ApplyBlocksParams<N> apply;
  apply.n = num_blocks;
  apply.a = PackedBlocks<const double>(family, kHostLayout, inverse.data());
  apply.r = r.data();
  apply.z = z.data();
  RunOk(apply, &host_machine_);
  const auto device_inverse =
      Upload(ToDeviceLayout<double>(inverse, PackedSize(N)));
  ApplyBlocksParams<N> device_apply;
  device_apply.n = num_blocks;
  device_apply.a =
      PackedBlocks<const double>(family, kDeviceLayout, device_inverse.data());
  device_apply.r = device_r.data();
  const auto product =
      RunTwice({{N * num_blocks}}, [&](const std::vector<double*>& out) {
        device_apply.z = out[0];
        return kernels::Run(device_apply, machine_.get());
      });
  std::vector<Running<double>> running_z(z.size());
  for (size_t at = 0; at < z.size(); ++at) {
    const size_t b = at / N;
    const int i = static_cast<int>(at % N);
    for (int j = 0; j < N; ++j) {
      const int element = j <= i ? PackedIndex(i, j) : PackedIndex(j, i);
      running_z[at] += Running<double>(inverse[PackedSize(N) * b + element]) *
                       Running<double>(r[N * b + j]);
    }
  }
  EXPECT_TRUE(Close(product[0], z, running_z));
}

TEST_F(CudaSolverTest, BlockDiagonal) {
  CompareBlocks<3>();
  CompareBlocks<9>();
  CompareBlocks<10>();
}

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
