// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Exact steps with the split of Choudhary, Gupta and Narayanan 2010, where the
// host computes gradients and right-hand side while the device forms S, beside
// the same steps on the device alone. A variant of the study: the library does
// not split the work like this.
//
//   split_benchmark [--cameras=488] [--threads=16] [--steps=9]
//
// Problems of exact_benchmark's kind, the first step of a solve over and over.
// A line of JSON: medians of milliseconds. "alone" and "split": from the
// parameters, which both have, to the camera step on the device; "host": what
// the host's part of a split step takes. Exit status 1 where the two right-hand
// sides differ by more than rounding.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/benchmark.h"
#include "benchmarks/operation_list.h"
#include "cuda_kernels/machine/cuda_cholesky.h"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/ops/evaluate.h"
#include "cuda_kernels/ops/jacobian_products.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/ops/schur_complement.h"
#include "cuda_kernels/structure/cuda_coupling_index.h"
#include "cuda_kernels/structure/host_workspace.h"
#include "cuda_kernels/structure/row_index.h"
#include "cuda_kernels/structure/schur_matrix.h"
#include "gflags/gflags.h"
#include "problem_io/bal_synthetic.h"

DEFINE_int32(cameras, 488, "So many, 700 points each, 6.2 observations each.");
DEFINE_int32(threads, 16, "Threads of the host.");
DEFINE_int32(steps, 9, "Runs of either kind, after one that is not counted.");

namespace ceres_ext {
namespace {

using kernels::CudaMachine;
using kernels::HostMachine;

constexpr int kC = 9;
// Ceres's first radius: D = sqrt(diag(J'J) / 1e4).
constexpr double kDamping = 1e-2;

// The problem on a machine, and what a step makes of it.
template <typename Machine>
class Side {
 public:
  using Source = kernels::RecomputedJacobian<double, kC>;
  static constexpr kernels::BlockLayout kLayout = Machine::kLayout;

  Side(const bal::BalProblem& problem, Machine* machine)
      : machine_(machine),
        arrays_(machine),
        num_cameras_(problem.num_cameras()),
        num_points_(problem.num_points()),
        n_(problem.num_observations()) {
    std::vector<int32_t> order;
    OK_OR_EXIT(index_.Setup({num_cameras_,
                             num_points_,
                             n_,
                             problem.camera_index.data(),
                             problem.point_index.data()},
                            kernels::RowIndex<Machine>::Options::For(
                                /*recomputed=*/true, /*in_float=*/false),
                            &order,
                            machine));
    std::vector<double> points = problem.points;
    for (size_t i = 0; i < order.size(); ++i) {
      std::copy_n(&problem.points[3 * static_cast<size_t>(order[i])],
                  3,
                  &points[3 * i]);
    }
    std::vector<int32_t> input(static_cast<size_t>(n_));
    OK_OR_EXIT(machine->Download(n_, index_.ref().input_id(), input.data()));
    std::vector<double> observations(static_cast<size_t>(2 * n_));
    for (size_t k = 0; k < input.size(); ++k) {
      std::copy_n(&problem.observations[2 * static_cast<size_t>(input[k])],
                  2,
                  &observations[2 * k]);
    }
    cameras_ = arrays_.Upload(problem.cameras);
    points_ = arrays_.Upload(points);
    observations_ = arrays_.Upload(observations);
    states_ =
        arrays_.template Allocate<kernels::CameraState<double>>(num_cameras_);
    maps_ = arrays_.template Allocate<double>(9 * kC * num_cameras_);
    residuals_ = arrays_.template Allocate<double>(2 * n_);
    v_inverse_ = arrays_.template Allocate<double>(6 * num_points_);
    schur_diagonal_ = arrays_.template Allocate<double>(45 * num_cameras_);
    camera_vector_ = arrays_.template Allocate<double>(kC * num_cameras_);
    point_vector_ = arrays_.template Allocate<double>(3 * num_points_);
    rhs_ = arrays_.template Allocate<double>(kC * num_cameras_);
    evaluation_ = arrays_.template Allocate<kernels::Evaluation>(1);
    breakdown_ = arrays_.template Allocate<kernels::Breakdown>(1);
    Evaluate();
    SetDamping();
  }

  // States, maps and residuals.
  void Evaluate() {
    kernels::PrepareCamerasParams<double, kC> prepare;
    prepare.num_cameras = num_cameras_;
    prepare.cameras = cameras_;
    prepare.states = states_;
    prepare.maps = maps_;
    OK_OR_EXIT(Run(prepare, machine_));
    kernels::EvaluateCostParams cost;
    cost.index = index_.ref();
    cost.cameras = states_;
    cost.points = points_;
    cost.observations = observations_;
    cost.residuals = residuals_;
    cost.evaluation = evaluation_;
    OK_OR_EXIT(Run(cost, machine_));
  }

  // Gradients, Vi and right-hand side in one pass.
  void GradientsAndRhs() {
    auto params = BlocksParams();
    params.camera_gradient = camera_vector_;
    params.point_gradient = point_vector_;
    params.v_inverse = {v_inverse_, num_points_};
    params.schur_rhs = rhs_;
    params.breakdown = breakdown_;
    OK_OR_EXIT(Run(params, machine_));
  }
  // Vi and S_c.
  void Eliminate() {
    auto params = BlocksParams();
    params.v_inverse = {v_inverse_, num_points_};
    params.schur_diagonal = {schur_diagonal_, num_cameras_};
    params.breakdown = breakdown_;
    OK_OR_EXIT(Run(params, machine_));
  }

  Source source() const {
    Source source;
    source.cameras = states_;
    source.camera_maps = maps_;
    source.points = points_;
    return source;
  }
  std::vector<double> ReadRhs() const {
    std::vector<double> rhs(static_cast<size_t>(kC) * num_cameras_);
    OK_OR_EXIT(
        machine_->Download(static_cast<int64_t>(rhs.size()), rhs_, rhs.data()));
    return rhs;
  }

  kernels::NormalBlocksParams<Source, kLayout> BlocksParams() const {
    kernels::NormalBlocksParams<Source, kLayout> params;
    params.index = index_.ref();
    params.jacobian = source();
    params.b = residuals_;
    params.point_diagonal = point_diagonal_;
    return params;
  }
  const kernels::ObservationIndexRef& index() const { return index_.ref(); }
  const double* v_inverse() const { return v_inverse_; }
  const double* schur_diagonal() const { return schur_diagonal_; }
  const double* camera_diagonal() const { return camera_diagonal_; }
  double* rhs() const { return rhs_; }

 private:
  void SetDamping() {
    kernels::SquaredColumnNormsParams<Source> norms;
    norms.index = index_.ref();
    norms.jacobian = source();
    norms.camera_x = camera_vector_;
    norms.point_x = point_vector_;
    OK_OR_EXIT(Run(norms, machine_));
    const auto damping = [&](int64_t size, const double* x) {
      std::vector<double> d(static_cast<size_t>(size));
      OK_OR_EXIT(machine_->Download(size, x, d.data()));
      for (double& value : d) {
        value = kDamping * std::sqrt(value);
      }
      return arrays_.Upload(d);
    };
    camera_diagonal_ = damping(int64_t{kC} * num_cameras_, camera_vector_);
    point_diagonal_ = damping(int64_t{3} * num_points_, point_vector_);
  }

  Machine* const machine_;
  Arrays<Machine> arrays_;
  kernels::RowIndex<Machine> index_;
  const int32_t num_cameras_;
  const int32_t num_points_;
  const int64_t n_;
  double* cameras_;
  double* points_;
  double* observations_;
  kernels::CameraState<double>* states_;
  double* maps_;
  double* residuals_;
  double* v_inverse_;
  double* schur_diagonal_;
  double* camera_vector_;
  double* point_vector_;
  double* rhs_;
  double* camera_diagonal_;
  double* point_diagonal_;
  kernels::Evaluation* evaluation_;
  kernels::Breakdown* breakdown_;
};

// S on the device, its factor and the camera step.
class ExactStep {
 public:
  ExactStep(const Side<CudaMachine>& side,
            int32_t num_cameras,
            CudaMachine* machine)
      : machine_(machine), arrays_(machine) {
    using Source = Side<CudaMachine>::Source;
    OK_OR_EXIT(
        couplings_.Build(side.index(),
                         kernels::kCouplings<Source, kernels::kDeviceLayout>,
                         machine));
    kernels::BlockFamilies families;
    families.Add(kC, num_cameras);
    OK_OR_EXIT(unknowns_.Setup(families, nullptr, machine));
    n_ = unknowns_.ref().num_unknowns;
    stride_ = kernels::CudaDenseCholesky::Stride(n_);
    matrix_ = arrays_.Allocate<double>(n_ * stride_);
    step_ = arrays_.Allocate<double>(n_);
    scratch_ = arrays_.Allocate<unsigned char>(kernels::ScratchBytes<Source>(
        side.index().num_observations, couplings_.ref().num_chunks));
    OK_OR_EXIT(cholesky_.Setup(n_, {}, machine));
  }

  void QueueFactor(const Side<CudaMachine>& side, int32_t num_points) {
    kernels::SchurComplementParams<Side<CudaMachine>::Source,
                                   kernels::kDeviceLayout>
        params;
    params.index = side.index();
    params.couplings = couplings_.ref();
    params.unknowns = unknowns_.ref();
    params.jacobian = side.source();
    params.v_inverse = {side.v_inverse(), num_points};
    params.schur_diagonal = {side.schur_diagonal(), n_ / kC};
    params.camera_diagonal = side.camera_diagonal();
    params.target.values = matrix_;
    params.target.stride = stride_;
    params.scratch = scratch_;
    OK_OR_EXIT(Run(params, machine_));
    OK_OR_EXIT(cholesky_.QueueFactorization(matrix_));
  }
  void Solve(const double* rhs) {
    OK_OR_EXIT(cholesky_.Solve(rhs, step_));
    int64_t failed_order = 0;
    OK_OR_EXIT(cholesky_.ReadFailedOrder(&failed_order));
    OK_OR_EXIT(machine_->Synchronize());
    if (failed_order != 0) {
      std::fprintf(stderr, "S is not positive definite.\n");
      std::exit(1);
    }
  }

 private:
  CudaMachine* const machine_;
  Arrays<CudaMachine> arrays_;
  kernels::CudaCouplingIndex couplings_;
  kernels::SchurUnknowns<CudaMachine> unknowns_;
  kernels::CudaDenseCholesky cholesky_;
  int64_t n_ = 0;
  int64_t stride_ = 0;
  double* matrix_ = nullptr;
  double* step_ = nullptr;
  unsigned char* scratch_ = nullptr;
};

int Main() {
  std::string why_none;
  if (kernels::NumCudaDevices(&why_none) == 0) {
    std::printf("skipped: no CUDA device (%s)\n", why_none.c_str());
    return 0;
  }
  if (FLAGS_steps < 1) {
    std::fprintf(stderr, "--steps=%d: at least 1.\n", FLAGS_steps);
    return 1;
  }
  bal::SyntheticOptions options;
  options.num_threads = FLAGS_threads;
  options.num_cameras = FLAGS_cameras;
  options.num_points = 700 * FLAGS_cameras;
  options.num_observations =
      std::llround(6.2 * static_cast<double>(options.num_points));
  bal::SyntheticProblem generated;
  std::string error;
  if (!bal::GenerateSynthetic(options, &generated, &error)) {
    std::fprintf(stderr, "--cameras=%d: %s\n", FLAGS_cameras, error.c_str());
    return 1;
  }
  const bal::BalProblem& problem = generated.start;
  std::unique_ptr<CudaMachine> device;
  OK_OR_EXIT(CudaMachine::Create({}, &device));
  HostMachine host(FLAGS_threads);
  Side<CudaMachine> on_device(problem, device.get());
  Side<HostMachine> on_host(problem, &host);
  OK_OR_EXIT(on_host.index().host_workspace->ReserveCameraSums(
      kernels::PackedSize(kC) + kC));
  ExactStep exact(on_device, problem.num_cameras(), device.get());

  std::vector<double> alone;
  std::vector<double> split;
  std::vector<double> of_host;
  std::vector<double> rhs[2];
  for (int step = 0; step <= FLAGS_steps; ++step) {
    OK_OR_EXIT(device->Synchronize());
    double begin = Seconds();
    on_device.Evaluate();
    on_device.GradientsAndRhs();
    on_device.Eliminate();
    exact.QueueFactor(on_device, problem.num_points());
    exact.Solve(on_device.rhs());
    alone.push_back(1e3 * (Seconds() - begin));
    rhs[0] = on_device.ReadRhs();

    begin = Seconds();
    on_device.Evaluate();
    on_device.Eliminate();
    exact.QueueFactor(on_device, problem.num_points());
    const double host_begin = Seconds();
    on_host.Evaluate();
    on_host.GradientsAndRhs();
    of_host.push_back(1e3 * (Seconds() - host_begin));
    rhs[1] = on_host.ReadRhs();
    OK_OR_EXIT(device->Upload(
        static_cast<int64_t>(rhs[1].size()), rhs[1].data(), on_device.rhs()));
    exact.Solve(on_device.rhs());
    split.push_back(1e3 * (Seconds() - begin));
    if (step == 0) {  // Loads code and touches memory.
      alone.clear();
      split.clear();
      of_host.clear();
    }
  }
  double difference = 0.0;
  double norm = 0.0;
  for (size_t u = 0; u < rhs[0].size(); ++u) {
    difference += (rhs[0][u] - rhs[1][u]) * (rhs[0][u] - rhs[1][u]);
    norm += rhs[0][u] * rhs[0][u];
  }
  const double error_of_rhs = std::sqrt(difference / norm);
  PrintLine({{"split", "Choudhary"},
             {"cameras", FLAGS_cameras},
             {"threads", FLAGS_threads},
             {"steps", FLAGS_steps},
             {"alone", Rounded(Median(alone))},
             {"split_step", Rounded(Median(split))},
             {"host", Rounded(Median(of_host))},
             {"rhs_difference", Rounded(error_of_rhs)}});
  // s is what is left of sums that cancel: 1e5 roundings of the largest term.
  return error_of_rhs < 1e5 * std::numeric_limits<double>::epsilon() ? 0 : 1;
}

}  // namespace
}  // namespace ceres_ext

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  return ceres_ext::Main();
}
