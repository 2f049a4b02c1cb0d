// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "studies/device_study.h"

#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>
#include <cusparse.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/machine/device_buffer.h"
#include "cuda_kernels/ops/block_rows.h"
#include "cuda_kernels/ops/block_table.h"
#include "cuda_kernels/ops/vectors.h"
#include "cuda_kernels/structure/cuda_observation_index.h"
#include "cuda_kernels/structure/cuda_workspace.h"
#include "studies/study_machines.h"

namespace ceres_ext::bal {
namespace {

using kernels::CudaContext;
using kernels::CudaMachine;
using kernels::CudaWorkspace;
using kernels::DeviceBuffer;
using kernels::IsRecomputed;
using kernels::kDeviceLayout;
using kernels::ObservationIndexRef;
using kernels::Status;
using kernels::StatusCode;
using StoredDouble =
    kernels::StoredJacobian<double, kernels::BalShape<9>, kDeviceLayout>;
using StoredFloat =
    kernels::StoredJacobian<float, kernels::BalShape<9>, kDeviceLayout>;
using RecomputedDouble = kernels::RecomputedJacobian<double, 9>;
using RecomputedFloat = kernels::RecomputedJacobian<float, 9>;
using StoredBlockContiguous = BlockContiguousMachine::Source;
using kernels::BlockLayout;
template <typename T>
using Naive = PaperMachine<PaperForm::kNaive, T, BlockLayout::kBlockContiguous>;
template <typename T>
using NaiveContinuous =
    PaperMachine<PaperForm::kNaive, T, BlockLayout::kContinuousElement>;
template <typename T>
using Paper =
    PaperMachine<PaperForm::kOptimized, T, BlockLayout::kContinuousElement>;
template <typename T>
using PaperBlockContiguous =
    PaperMachine<PaperForm::kOptimized, T, BlockLayout::kBlockContiguous>;

// A second pass, with all memory and code in place, is worth its time up to
// here.
constexpr double kRepeatSeconds = 1.0;

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

// True if vectors on a machine are in the continuous-element layout.
template <typename Machine>
constexpr bool HasContinuousVectors() {
  return IsPaperMachine<Machine>::value &&
         Machine::kLayout == BlockLayout::kContinuousElement;
}

// Vectors of blocks of N values on a machine in the order of the caller, one
// block after the other.
template <int N, typename Machine>
Status DownloadBlocks(int64_t num_blocks,
                      const double* from,
                      Machine* machine,
                      double* to) {
  CERES_EXT_RETURN_IF_ERROR(machine->Download(N * num_blocks, from, to));
  if constexpr (HasContinuousVectors<Machine>()) {
    const std::vector<double> continuous(to, to + N * num_blocks);
    for (int64_t i = 0; i < num_blocks; ++i) {
      for (int e = 0; e < N; ++e) {
        to[N * i + e] = continuous[e * num_blocks + i];
      }
    }
  }
  return {};
}

// A problem in device memory, points in the order that makes good tiles.
class DeviceProblem {
 public:
  Status Setup(const BalProblem& bal, CudaContext* context) {
    context_ = context;
    const int32_t num_points = bal.num_points();
    const int64_t n = bal.num_observations();
    DeviceBuffer<int32_t> camera_ids;
    DeviceBuffer<int32_t> point_ids;
    CERES_EXT_RETURN_IF_ERROR(
        camera_ids.Assign(context, bal.camera_index.data(), n));
    CERES_EXT_RETURN_IF_ERROR(point_ids.Allocate(context, n));
    DeviceBuffer<int32_t> point_order;
    CERES_EXT_RETURN_IF_ERROR(point_order.Allocate(context, num_points));
    // Twice: the second time all memory is there.
    for (double* seconds : {&first_index_seconds_, &index_seconds_}) {
      CERES_EXT_RETURN_IF_ERROR(context->CopyToDevice(
          point_ids.data(), bal.point_index.data(), point_ids.bytes()));
      const auto begin = std::chrono::steady_clock::now();
      CERES_EXT_RETURN_IF_ERROR(index_.BuildOrdered({bal.num_cameras(),
                                                     num_points,
                                                     n,
                                                     camera_ids.data(),
                                                     point_ids.data()},
                                                    point_ids.data(),
                                                    point_order.data(),
                                                    &scratch_,
                                                    context));
      CERES_EXT_RETURN_IF_ERROR(context->Synchronize());
      *seconds = SecondsSince(begin);
    }
    const auto begin = std::chrono::steady_clock::now();
    CERES_EXT_RETURN_IF_ERROR(index_.Build(
        {bal.num_cameras(), num_points, n, camera_ids.data(), point_ids.data()},
        &scratch_,
        context));
    CERES_EXT_RETURN_IF_ERROR(context->Synchronize());
    one_build_seconds_ = SecondsSince(begin);

    std::vector<int32_t> order;
    CERES_EXT_RETURN_IF_ERROR(point_order.CopyToHost(&order));
    std::vector<double> points(bal.points.size());
    for (int64_t p = 0; p < num_points; ++p) {
      std::copy_n(&bal.points[3 * int64_t{order[p]}], 3, &points[3 * p]);
    }
    CERES_EXT_RETURN_IF_ERROR(points_.Assign(context, points));
    CERES_EXT_RETURN_IF_ERROR(cameras_.Assign(context, bal.cameras));
    DeviceBuffer<double> observations;
    CERES_EXT_RETURN_IF_ERROR(
        observations.Assign(context, bal.observations.data(), 2 * n));
    CERES_EXT_RETURN_IF_ERROR(observations_.Allocate(context, 2 * n));
    CudaMachine machine;
    CERES_EXT_RETURN_IF_ERROR(machine.Setup(context));
    CERES_EXT_RETURN_IF_ERROR(
        Run(kernels::GatherTuplesParams<2>{n,
                                           index_.ref().input_id(),
                                           observations.data(),
                                           observations_.data()},
            &machine));
    Paper<double> paper;
    CERES_EXT_RETURN_IF_ERROR(paper.Setup(context));
    CERES_EXT_RETURN_IF_ERROR(
        ToContinuous<9>(cameras_, &continuous_cameras_, &paper));
    CERES_EXT_RETURN_IF_ERROR(
        ToContinuous<3>(points_, &continuous_points_, &paper));
    CERES_EXT_RETURN_IF_ERROR(
        ToContinuous<2>(observations_, &continuous_observations_, &paper));
    return context->Synchronize();
  }

  // A machine, the index's workspace for one source, and how long its tiles
  // took.
  template <typename Source>
  Status SetupMachine(CudaMachine* machine,
                      CudaWorkspace* workspace,
                      double* seconds = nullptr) {
    const auto begin = std::chrono::steady_clock::now();
    CERES_EXT_RETURN_IF_ERROR(machine->Setup(context_));
    CERES_EXT_RETURN_IF_ERROR(
        workspace->Setup(index_.ref(),
                         CudaWorkspace::Options::For(
                             IsRecomputed<Source>::value,
                             std::is_same_v<typename Source::Value, float>),
                         &scratch_,
                         context_));
    CERES_EXT_RETURN_IF_ERROR(context_->Synchronize());
    if (seconds != nullptr) {
      *seconds = SecondsSince(begin);
    }
    return {};
  }

  // In the layout of the machine's vectors.
  template <typename Machine>
  ProblemArrays arrays(const CudaWorkspace& workspace) const {
    if (HasContinuousVectors<Machine>()) {
      return {workspace.index(),
              continuous_cameras_.data(),
              continuous_points_.data(),
              continuous_observations_.data()};
    }
    return {workspace.index(),
            cameras_.data(),
            points_.data(),
            observations_.data()};
  }
  Json IndexJson() const {
    return {{"first_seconds", Rounded(first_index_seconds_)},
            {"seconds", Rounded(index_seconds_)},
            {"one_build_seconds", Rounded(one_build_seconds_)}};
  }

 private:
  template <int N>
  Status ToContinuous(const DeviceBuffer<double>& from,
                      DeviceBuffer<double>* to,
                      Paper<double>* machine) {
    CERES_EXT_RETURN_IF_ERROR(to->Allocate(context_, from.size()));
    return Run(
        ToLayoutParams<N, BlockLayout::kContinuousElement>{
            from.data(), {to->data(), from.size() / N}},
        machine);
  }

  CudaContext* context_ = nullptr;
  kernels::CudaIndexScratch scratch_;
  kernels::CudaObservationIndex index_;
  DeviceBuffer<double> cameras_;
  DeviceBuffer<double> points_;
  DeviceBuffer<double> observations_;
  DeviceBuffer<double> continuous_cameras_;
  DeviceBuffer<double> continuous_points_;
  DeviceBuffer<double> continuous_observations_;
  double first_index_seconds_ = 0.0;
  double index_seconds_ = 0.0;
  double one_build_seconds_ = 0.0;
};

// Linearises at the start and solves with a fixed number of PCG iterations and
// no reset of the residual, so that one iteration has one product. The second
// of two is timed. Steps are compared with *step where it is not empty: that of
// the reference.
template <typename Source, typename Machine>
Status TimeIteration(const std::string& variant,
                     const std::string& jacobian,
                     const Configuration& configuration,
                     const ProblemArrays& arrays,
                     Machine* machine,
                     StudyRecord* record,
                     const StudyProblem& problem,
                     bool is_reference,
                     std::vector<double>* step) {
  const int num_iterations = record->settings().num_timed_pcg_iterations;
  StudyOptions options = MakeStudyOptions(configuration, 1, num_iterations);
  options.solver.residual_reset_period = num_iterations + 1;
  LevenbergMarquardt<Machine, Source> lm;
  CERES_EXT_RETURN_IF_ERROR(lm.Setup(options, arrays, machine));
  double cost;
  CERES_EXT_RETURN_IF_ERROR(lm.Start(&cost));
  double linearize_seconds = 0.0;
  solver::StepSummary summary;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 2; ++i) {
    CERES_EXT_RETURN_IF_ERROR(machine->RecordMark(kMark0));
    CERES_EXT_RETURN_IF_ERROR(lm.Linearize());
    CERES_EXT_RETURN_IF_ERROR(machine->RecordMark(kMark1));
    CERES_EXT_RETURN_IF_ERROR(lm.Damp(options.initial_radius));
    summary = lm.Solve();
    if (summary.termination == solver::Termination::kFatalError ||
        summary.termination == solver::Termination::kFailure) {
      return {StatusCode::kNumericalFailure, summary.message};
    }
    CERES_EXT_RETURN_IF_ERROR(machine->Synchronize());
    linearize_seconds = machine->SecondsBetweenMarks(kMark0, kMark1);
    if (SecondsSince(begin) > kRepeatSeconds) {
      break;
    }
  }
  const int64_t num_camera_values = int64_t{9} * arrays.index.num_cameras;
  const int64_t num_point_values = int64_t{3} * arrays.index.num_points;
  std::vector<double> own(num_camera_values + num_point_values);
  CERES_EXT_RETURN_IF_ERROR(DownloadBlocks<9>(
      arrays.index.num_cameras, lm.camera_step(), machine, own.data()));
  CERES_EXT_RETURN_IF_ERROR(DownloadBlocks<3>(arrays.index.num_points,
                                              lm.point_step(),
                                              machine,
                                              own.data() + num_camera_values));
  const double iteration_seconds =
      summary.pcg_seconds / std::max(1, summary.num_iterations);
  Json row = {{"variant", variant},
              {"jacobian", jacobian},
              {"use_schur", configuration.use_schur},
              {"explicit_w", configuration.explicit_w},
              {"linearize_seconds", Rounded(linearize_seconds)},
              {"normal_blocks_seconds", Rounded(summary.normal_blocks_seconds)},
              {"pcg_iteration_seconds", Rounded(iteration_seconds)},
              {"num_pcg_iterations", summary.num_iterations}};
  std::printf(
      "  %-21s %-18s %-22s J %8.3f  blocks %8.3f  PCG iteration %8.3f ms",
      variant.c_str(),
      jacobian.c_str(),
      ConfigurationName(configuration).c_str(),
      1e3 * linearize_seconds,
      1e3 * summary.normal_blocks_seconds,
      1e3 * iteration_seconds);
  // Relative to the step of the same configuration, in double, by this project.
  if (is_reference) {
    *step = std::move(own);
  } else if (!step->empty()) {
    double difference = 0.0;
    double norm = 0.0;
    for (size_t i = 0; i < own.size(); ++i) {
      const double d = own[i] - (*step)[i];
      difference += d * d;
      norm += (*step)[i] * (*step)[i];
    }
    row["step_difference"] = Rounded(std::sqrt(difference / norm));
    std::printf("  |step - ours| / |ours| %.1e", std::sqrt(difference / norm));
  }
  std::printf("\n");
  std::fflush(stdout);
  record->Size(problem)["iterations"].push_back(row);
  return {};
}

// 1 x 1; the second of two, unless the first took long: then all memory has
// been touched.
template <typename Source, typename Machine>
Status TimeOneByOne(const std::string& variant,
                    const std::string& jacobian,
                    const Configuration& configuration,
                    const ProblemArrays& arrays,
                    Machine* machine,
                    StudyRecord* record,
                    const StudyProblem& problem) {
  const StudyOptions options = MakeStudyOptions(configuration, 1, 1);
  LevenbergMarquardt<Machine, Source> lm;
  StudyResult result;
  CERES_EXT_RETURN_IF_ERROR(lm.Setup(options, arrays, machine));
  CERES_EXT_RETURN_IF_ERROR(lm.Optimize(&result));
  if (result.total_seconds < kRepeatSeconds) {
    CERES_EXT_RETURN_IF_ERROR(lm.Optimize(&result));
  }
  record->Size(problem)["runs"].push_back(
      RunRow(variant, jacobian, configuration, options, result));
  return {};
}

// A whole run with the stopping rule. Its final projections are compared with
// those of *reference, which the reference fills; a run that time has ended has
// none.
template <typename Source, typename Machine>
Status TimeWholeRun(const std::string& variant,
                    const std::string& jacobian,
                    const Configuration& configuration,
                    const ProblemArrays& arrays,
                    Machine* machine,
                    StudyRecord* record,
                    const StudyProblem& problem,
                    bool is_reference,
                    DeviceBuffer<double>* reference) {
  const StudyOptions options =
      record->WholeRun(configuration, record->settings().run_seconds);
  LevenbergMarquardt<Machine, Source> lm;
  StudyResult result;
  CERES_EXT_RETURN_IF_ERROR(lm.Setup(options, arrays, machine));
  CERES_EXT_RETURN_IF_ERROR(lm.Optimize(&result));
  Json row = RunRow(variant, jacobian, configuration, options, result);
  const int64_t n = arrays.index.num_observations;
  if (result.end != StudyEnd::kTime && is_reference) {
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(2 * n, reference));
    CERES_EXT_RETURN_IF_ERROR(
        Run(kernels::CopyParams{2 * n, lm.residuals(), reference->data()},
            machine));
    const std::string file =
        ResidualsFile(record->settings(), problem, configuration);
    if (!file.empty()) {
      std::vector<double> residuals(2 * n);
      CERES_EXT_RETURN_IF_ERROR(
          machine->Download(2 * n, lm.residuals(), residuals.data()));
      std::ofstream stream(file, std::ios::binary);
      stream.write(reinterpret_cast<const char*>(residuals.data()),
                   static_cast<std::streamsize>(8 * residuals.size()));
      if (!stream) {
        return {StatusCode::kInvalidArgument, "Can't write " + file + "."};
      }
    }
  } else if (result.end != StudyEnd::kTime && reference->size() > 0) {
    using Comparer = std::conditional_t<HasContinuousVectors<Machine>(),
                                        Paper<double>,
                                        Naive<double>>;
    Comparer comparer;
    DeviceBuffer<double> largest;
    double difference;
    CERES_EXT_RETURN_IF_ERROR(comparer.Setup(machine->context()));
    CERES_EXT_RETURN_IF_ERROR(comparer.Allocate(1, &largest));
    CERES_EXT_RETURN_IF_ERROR(Run(
        LargestDifferenceParams<Comparer::kLayout>{
            {lm.residuals(), n}, reference->data(), largest.data()},
        &comparer));
    CERES_EXT_RETURN_IF_ERROR(
        comparer.Download(1, largest.data(), &difference));
    row["pixel_difference"] = Rounded(difference);
  }
  record->Size(problem)["runs"].push_back(row);
  return {};
}

// Each kernel alone, on stored Jacobians in double.
template <typename Source, typename Machine>
class KernelBench {
 public:
  static constexpr kernels::BlockLayout kLayout = Machine::kLayout;
  static constexpr int C = 9;

  KernelBench(const std::string& jacobian,
              const ProblemArrays& arrays,
              Machine* machine,
              StudyRecord* record,
              const StudyProblem* problem)
      : jacobian_(jacobian),
        arrays_(arrays),
        machine_(machine),
        record_(record),
        problem_(problem),
        cameras_(arrays.index.num_cameras),
        points_(arrays.index.num_points),
        n_(arrays.index.num_observations) {}

  Status TimeAll() {
    const Configuration implicit{true, /*explicit_w=*/false};
    CERES_EXT_RETURN_IF_ERROR(
        lm_.Setup(MakeStudyOptions(implicit, 1, 1), arrays_, machine_));
    double cost;
    CERES_EXT_RETURN_IF_ERROR(lm_.Start(&cost));
    CERES_EXT_RETURN_IF_ERROR(lm_.Linearize());
    CERES_EXT_RETURN_IF_ERROR(lm_.Damp(1e4));
    const int64_t unknowns = C * cameras_ + 3 * points_;
    for (auto& [buffer, size] :
         {std::pair<DeviceBuffer<double>*, int64_t>{&u_, 45 * cameras_},
          {&v_, 6 * points_},
          {&v_inverse_, 6 * points_},
          {&s_, 45 * cameras_},
          {&camera_inverse_, 45 * cameras_},
          {&p_, unknowns},
          {&q_, unknowns},
          {&rhs_, unknowns},
          {&w_, 27 * n_},
          {&y_, 2 * n_}}) {
      CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(size, buffer));
      CERES_EXT_RETURN_IF_ERROR(buffer->SetZero());
    }
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(2, &breakdown_));
    system_ = lm_.System();

    CERES_EXT_RETURN_IF_ERROR(Evaluation());
    CERES_EXT_RETURN_IF_ERROR(Blocks());
    CERES_EXT_RETURN_IF_ERROR(Products());
    return BlockDiagonals();
  }

 private:
  template <typename Params>
  Status Time(const std::string& name, const Params& params) {
    for (int i = 0; i < 2; ++i) {
      CERES_EXT_RETURN_IF_ERROR(Run(params, machine_));
    }
    const int repetitions = record_->settings().num_repetitions;
    CERES_EXT_RETURN_IF_ERROR(machine_->RecordMark(kMark0));
    for (int i = 0; i < repetitions; ++i) {
      CERES_EXT_RETURN_IF_ERROR(Run(params, machine_));
    }
    CERES_EXT_RETURN_IF_ERROR(machine_->RecordMark(kMark1));
    CERES_EXT_RETURN_IF_ERROR(machine_->Synchronize());
    const double seconds =
        machine_->SecondsBetweenMarks(kMark0, kMark1) / repetitions;
    std::printf("  %-32s %-34s %9.4f ms\n",
                jacobian_.c_str(),
                name.c_str(),
                1e3 * seconds);
    record_->Size(*problem_)["kernels"].push_back(
        {{"name", name},
         {"jacobian", jacobian_},
         {"seconds", Rounded(seconds)}});
    return {};
  }

  Status Evaluation() {
    CERES_EXT_RETURN_IF_ERROR(Time("EvaluateJacobian", lm_.JacobianParams()));
    // With residuals, cost and gradient, as Ceres's evaluator asks for it.
    auto with_gradient = lm_.JacobianParams();
    with_gradient.residuals = y_.data();
    with_gradient.camera_gradient = q_.data();
    with_gradient.point_gradient = q_.data() + C * cameras_;
    CERES_EXT_RETURN_IF_ERROR(
        Time("EvaluateJacobian, r and gradient", with_gradient));
    return Time("SquaredColumnNorms", lm_.ColumnNormsParams());
  }

  Status Blocks() {
    kernels::NormalBlocksParams<Source, kLayout> params;
    params.index = arrays_.index;
    params.jacobian = system_.jacobian;
    params.b = system_.b;
    params.point_diagonal = system_.point_diagonal;
    params.u = {u_.data(), cameras_};
    params.v_inverse = {v_inverse_.data(), points_};
    params.schur_rhs = rhs_.data();
    params.breakdown = breakdown_.data();
    CERES_EXT_RETURN_IF_ERROR(Time("NormalBlocks U, Vi, s", params));
    params.schur_diagonal = {s_.data(), cameras_};
    params.u = {};
    CERES_EXT_RETURN_IF_ERROR(Time("NormalBlocks Vi, s, diag(S)", params));
    params.schur_diagonal = {};
    params.u = {u_.data(), cameras_};
    params.v = {v_.data(), points_};
    params.point_gradient = q_.data() + C * cameras_;
    params.camera_gradient = q_.data();
    CERES_EXT_RETURN_IF_ERROR(
        Time("NormalBlocks U, V, W, g, Vi, s",
             ExplicitBlocksParams<Source, kLayout>{params, {w_.data(), n_}}));
    params.v_inverse = {};
    params.schur_rhs = nullptr;
    CERES_EXT_RETURN_IF_ERROR(Time("NormalBlocks U, V, g", params));
    // p: something that is not zero.
    return Run(
        kernels::CopyParams{C * cameras_ + 3 * points_, q_.data(), p_.data()},
        machine_);
  }

  Status Products() {
    const double* point_p = p_.data() + C * cameras_;
    double* point_q = q_.data() + C * cameras_;
    kernels::SchurProductImplicitWParams<Source, kLayout> schur;
    schur.index = arrays_.index;
    schur.jacobian = system_.jacobian;
    schur.v_inverse = {v_inverse_.data(), points_};
    schur.camera_diagonal = system_.camera_diagonal;
    schur.p = p_.data();
    schur.q = q_.data();
    CERES_EXT_RETURN_IF_ERROR(Time("SchurProductImplicitW", schur));

    kernels::NormalProductImplicitWParams<Source> normal;
    normal.index = arrays_.index;
    normal.jacobian = system_.jacobian;
    normal.camera_diagonal = system_.camera_diagonal;
    normal.point_diagonal = system_.point_diagonal;
    normal.camera_p = p_.data();
    normal.point_p = point_p;
    normal.camera_q = q_.data();
    normal.point_q = point_q;
    CERES_EXT_RETURN_IF_ERROR(Time("NormalProductImplicitW", normal));

    kernels::BackSubstituteImplicitWParams<Source, kLayout> back;
    back.index = arrays_.index;
    back.jacobian = system_.jacobian;
    back.b = system_.b;
    back.v_inverse = {v_inverse_.data(), points_};
    back.z = p_.data();
    back.y = point_q;
    CERES_EXT_RETURN_IF_ERROR(Time("BackSubstituteImplicitW", back));

    kernels::RightMultiplyParams<Source> right;
    right.index = arrays_.index;
    right.jacobian = system_.jacobian;
    right.camera_x = p_.data();
    right.point_x = point_p;
    right.y = y_.data();
    CERES_EXT_RETURN_IF_ERROR(Time("RightMultiply", right));

    kernels::LeftMultiplyParams<Source> left;
    left.index = arrays_.index;
    left.jacobian = system_.jacobian;
    left.y = y_.data();
    left.camera_x = q_.data();
    left.point_x = point_q;
    CERES_EXT_RETURN_IF_ERROR(Time("LeftMultiply", left));

    SchurProductExplicitWParams<double, kernels::BalShape<C>, kLayout> schur_w;
    schur_w.index = arrays_.index;
    schur_w.u = {u_.data(), cameras_};
    schur_w.w = {w_.data(), n_};
    schur_w.v_inverse = {v_inverse_.data(), points_};
    schur_w.camera_diagonal = system_.camera_diagonal;
    schur_w.p = p_.data();
    schur_w.q = q_.data();
    CERES_EXT_RETURN_IF_ERROR(Time("SchurProductExplicitW", schur_w));

    NormalProductExplicitWParams<double, kernels::BalShape<C>, kLayout>
        normal_w;
    normal_w.index = arrays_.index;
    normal_w.u = {u_.data(), cameras_};
    normal_w.v = {v_.data(), points_};
    normal_w.w = {w_.data(), n_};
    normal_w.camera_diagonal = system_.camera_diagonal;
    normal_w.point_diagonal = system_.point_diagonal;
    normal_w.camera_p = p_.data();
    normal_w.point_p = point_p;
    normal_w.camera_q = q_.data();
    normal_w.point_q = point_q;
    CERES_EXT_RETURN_IF_ERROR(Time("NormalProductExplicitW", normal_w));

    BackSubstituteExplicitWParams<double, kernels::BalShape<C>, kLayout> back_w;
    back_w.index = arrays_.index;
    back_w.w = {w_.data(), n_};
    back_w.v_inverse = {v_inverse_.data(), points_};
    back_w.point_gradient = point_p;
    back_w.z = p_.data();
    back_w.y = point_q;
    return Time("BackSubstituteExplicitW", back_w);
  }

  Status BlockDiagonals() {
    const kernels::BlockFamily cameras{C, static_cast<int32_t>(cameras_)};
    const kernels::BlockFamily points{3, static_cast<int32_t>(points_)};
    CERES_EXT_RETURN_IF_ERROR(Run(
        kernels::SetConstantParams{
            2, kernels::Breakdown::kNone, &breakdown_.data()->first_block},
        machine_));
    kernels::InvertBlocksParams<C> invert;
    invert.n = cameras_;
    invert.a = kernels::PackedBlocks<const double>(cameras, kLayout, u_.data());
    invert.diagonal = system_.camera_diagonal;
    invert.inverse =
        kernels::PackedBlocks(cameras, kLayout, camera_inverse_.data());
    invert.may_be_diagonal = true;
    invert.first_breakdown = &breakdown_.data()[1].first_block;
    CERES_EXT_RETURN_IF_ERROR(Time("InvertBlockDiagonal 9 x 9", invert));
    kernels::InvertBlocksParams<3> invert_points;
    invert_points.n = points_;
    invert_points.a =
        kernels::PackedBlocks<const double>(points, kLayout, v_.data());
    invert_points.diagonal = system_.point_diagonal;
    invert_points.inverse =
        kernels::PackedBlocks(points, kLayout, v_inverse_.data());
    invert_points.may_be_diagonal = true;
    invert_points.first_breakdown = &breakdown_.data()->first_block;
    CERES_EXT_RETURN_IF_ERROR(Time("InvertBlockDiagonal 3 x 3", invert_points));

    kernels::ApplyBlocksParams<C> apply;
    apply.n = cameras_;
    apply.a = kernels::PackedBlocks<const double>(
        cameras, kLayout, camera_inverse_.data());
    apply.r = p_.data();
    apply.z = q_.data();
    CERES_EXT_RETURN_IF_ERROR(Time("ApplyBlockDiagonal 9 x 9", apply));
    kernels::ApplyBlocksParams<3> apply_points;
    apply_points.n = points_;
    apply_points.a =
        kernels::PackedBlocks<const double>(points, kLayout, v_inverse_.data());
    apply_points.r = p_.data() + C * cameras_;
    apply_points.z = q_.data() + C * cameras_;
    return Time("ApplyBlockDiagonal 3 x 3", apply_points);
  }

  const std::string jacobian_;
  const ProblemArrays arrays_;
  Machine* const machine_;
  StudyRecord* const record_;
  const StudyProblem* const problem_;
  const int64_t cameras_;
  const int64_t points_;
  const int64_t n_;
  LevenbergMarquardt<Machine, Source> lm_;
  solver::ObservationSystem<Source> system_;
  DeviceBuffer<double> u_, v_, v_inverse_, s_, camera_inverse_;
  DeviceBuffer<double> p_, q_, rhs_, w_, y_;
  DeviceBuffer<kernels::Breakdown> breakdown_;
};

template <typename Machine, typename Source = typename Machine::Source>
Status ProfileMachine(DeviceProblem* device, bool jacobians_only) {
  Machine machine;
  CudaWorkspace workspace;
  CERES_EXT_RETURN_IF_ERROR(device->SetupMachine<Source>(&machine, &workspace));
  for (const Configuration& configuration : FourConfigurations()) {
    // The paper's kernels are the same with and without Schur complement.
    if (IsPaperMachine<Machine>::value && !configuration.use_schur) {
      continue;
    }
    LevenbergMarquardt<Machine, Source> lm;
    CERES_EXT_RETURN_IF_ERROR(lm.Setup(MakeStudyOptions(configuration, 1, 1),
                                       device->arrays<Machine>(workspace),
                                       &machine));
    double cost;
    CERES_EXT_RETURN_IF_ERROR(lm.Start(&cost));
    CERES_EXT_RETURN_IF_ERROR(machine.Synchronize());
    cudaProfilerStart();
    CERES_EXT_RETURN_IF_ERROR(lm.Linearize());
    if (jacobians_only) {
      CERES_EXT_RETURN_IF_ERROR(machine.Synchronize());
      cudaProfilerStop();
      return {};
    }
    CERES_EXT_RETURN_IF_ERROR(lm.Damp(1e4));
    const solver::StepSummary summary = lm.Solve();
    CERES_EXT_RETURN_IF_ERROR(machine.Synchronize());
    cudaProfilerStop();
    if (summary.termination == solver::Termination::kFatalError) {
      return {StatusCode::kDeviceError, summary.message};
    }
  }
  return {};
}

}  // namespace

Status StudyDevice(CudaContext* context, StudyRecord* record) {
  Json& machine = record->json()["machine"];
  int driver = 0;
  int runtime = 0;
  int cusparse_major = 0;
  int cusparse_minor = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  cusparseGetProperty(MAJOR_VERSION, &cusparse_major);
  cusparseGetProperty(MINOR_VERSION, &cusparse_minor);
  machine["gpu"] = context->device_name();
  machine["num_multiprocessors"] = context->num_multiprocessors();
  machine["cuda_driver"] = driver;
  machine["cuda_runtime"] = runtime;
  machine["cusparse"] =
      std::to_string(cusparse_major) + "." + std::to_string(cusparse_minor);

  // Copy within the device, bytes read and written.
  constexpr int64_t kBytes = int64_t{1} << 30;
  constexpr int kCopies = 50;
  DeviceBuffer<unsigned char> from;
  DeviceBuffer<unsigned char> to;
  kernels::CudaEvents events;
  CERES_EXT_RETURN_IF_ERROR(from.Allocate(context, kBytes));
  CERES_EXT_RETURN_IF_ERROR(to.Allocate(context, kBytes));
  CERES_EXT_RETURN_IF_ERROR(from.SetZero());
  CERES_EXT_RETURN_IF_ERROR(events.Setup(2));
  for (int i = -2; i < kCopies; ++i) {
    if (i == 0) {
      CERES_EXT_RETURN_IF_ERROR(events.Record(0, context->stream()));
    }
    CERES_EXT_RETURN_IF_ERROR(
        context->CopyOnDevice(to.data(), from.data(), kBytes));
  }
  CERES_EXT_RETURN_IF_ERROR(events.Record(1, context->stream()));
  CERES_EXT_RETURN_IF_ERROR(context->Synchronize());
  const double bandwidth = 2.0 * kBytes * kCopies / events.SecondsBetween(0, 1);
  machine["copy_bytes_per_second"] = bandwidth;
  std::printf("%s, driver %d, runtime %d, copy %.1f GB/s\n",
              context->device_name().c_str(),
              driver,
              runtime,
              1e-9 * bandwidth);
  return {};
}

struct DeviceStudy::Impl {
  const StudyProblem* problem;
  CudaContext* context;
  StudyRecord* record;
  DeviceProblem device;
  bool is_set_up = false;
  // Final residuals of "cuda", stored double, in the four configurations.
  DeviceBuffer<double> references[4];

  void Announce(const char* what) const {
    std::printf("%s, %s (%.0f s)\n",
                problem->name.c_str(),
                what,
                record->elapsed_seconds());
  }

  std::string What(const std::string& variant,
                   const std::string& jacobian) const {
    return variant + ", " + jacobian + ", " + problem->name;
  }
  std::string What(const std::string& variant,
                   const std::string& jacobian,
                   const Configuration& configuration) const {
    return What(variant, jacobian) + ", " + ConfigurationName(configuration);
  }

  // One iteration and 1 x 1 of a variant, in the configurations at `begin` up
  // to `end` of those that apply to its source. prepare(index, &machine) may
  // say why there is none.
  template <typename Source, typename Machine, typename Prepare>
  void Iterations(const std::string& variant,
                  const std::string& jacobian,
                  size_t begin,
                  size_t end,
                  bool is_reference,
                  std::vector<double>* steps,
                  Prepare&& prepare) {
    Machine machine;
    CudaWorkspace workspace;
    bool has_machine = false;
    for (size_t i = begin; i < end; ++i) {
      const Configuration& configuration = FourConfigurations()[i];
      if (!Applies<Source>(configuration)) {
        continue;
      }
      const std::string what = What(variant, jacobian, configuration);
      if (record->out_of_time()) {
        record->Skip(what, "out of time");
        continue;
      }
      if (!has_machine) {
        Status status = device.SetupMachine<Source>(&machine, &workspace);
        if (status.ok()) {
          status = prepare(workspace.index(), &machine);
        }
        if (!status.ok()) {
          // Nor is there one for the configurations that follow.
          record->Check(What(variant, jacobian), status);
          return;
        }
        has_machine = true;
      }
      // A failure here says nothing about the next configuration.
      record->Check(what + ", one iteration",
                    TimeIteration<Source>(variant,
                                          jacobian,
                                          configuration,
                                          device.arrays<Machine>(workspace),
                                          &machine,
                                          record,
                                          *problem,
                                          is_reference,
                                          &steps[i]));
      record->Check(what + ", 1 x 1",
                    TimeOneByOne<Source>(variant,
                                         jacobian,
                                         configuration,
                                         device.arrays<Machine>(workspace),
                                         &machine,
                                         record,
                                         *problem));
    }
  }
  template <typename Source, typename Machine>
  void Iterations(const std::string& variant,
                  const std::string& jacobian,
                  bool is_reference,
                  std::vector<double>* steps) {
    Iterations<Source, Machine>(
        variant,
        jacobian,
        0,
        FourConfigurations().size(),
        is_reference,
        steps,
        [](const ObservationIndexRef&, Machine*) { return Status(); });
  }

  void Cusparse(const std::string& variant,
                CusparseForm form,
                size_t configuration,
                std::vector<double>* steps) {
    Iterations<StoredDouble, CusparseMachine>(
        variant,
        "stored double",
        configuration,
        configuration + 1,
        false,
        steps,
        [form](const ObservationIndexRef& index, CusparseMachine* machine) {
          return machine->SetupProducts(index, form);
        });
  }

  template <typename Source, typename Machine>
  void Kernels(const std::string& jacobian) {
    const std::string what = What("kernels", jacobian);
    if (record->out_of_time()) {
      record->Skip(what, "out of time");
      return;
    }
    Machine machine;
    CudaWorkspace workspace;
    Status status = device.SetupMachine<Source>(&machine, &workspace);
    if (status.ok()) {
      KernelBench<Source, Machine> bench(jacobian,
                                         device.arrays<Machine>(workspace),
                                         &machine,
                                         record,
                                         problem);
      status = bench.TimeAll();
    }
    record->Check(what, status);
  }

  // Whole runs in the configurations that apply.
  template <typename Source, typename Machine>
  void Runs(const std::string& variant,
            const std::string& jacobian,
            bool is_reference = false) {
    Machine machine;
    CudaWorkspace workspace;
    bool has_machine = false;
    for (size_t i = 0; i < FourConfigurations().size(); ++i) {
      const Configuration& configuration = FourConfigurations()[i];
      if (!Applies<Source>(configuration)) {
        continue;
      }
      const std::string what =
          What(variant, jacobian, configuration) + ", whole run";
      if (record->out_of_time()) {
        record->Skip(what, "out of time");
        continue;
      }
      if (!has_machine) {
        const Status status = device.SetupMachine<Source>(&machine, &workspace);
        if (!status.ok()) {
          record->Check(What(variant, jacobian), status);
          return;
        }
        has_machine = true;
      }
      record->Check(what,
                    TimeWholeRun<Source>(variant,
                                         jacobian,
                                         configuration,
                                         device.arrays<Machine>(workspace),
                                         &machine,
                                         record,
                                         *problem,
                                         is_reference,
                                         &references[i]));
    }
  }
  template <typename Machine>
  void PaperRuns(const std::string& variant, const std::string& jacobian) {
    Runs<typename Machine::Source, Machine>(variant, jacobian);
  }
  template <typename Machine>
  void PaperIterations(const std::string& variant,
                       const std::string& jacobian,
                       std::vector<double>* steps) {
    Iterations<typename Machine::Source, Machine>(
        variant, jacobian, false, steps);
  }

  // Points and cameras whose blocks of J'J at the start are rank-deficient.
  Status FindDegenerate() {
    CudaMachine machine;
    CudaWorkspace workspace;
    CERES_EXT_RETURN_IF_ERROR(
        device.SetupMachine<StoredDouble>(&machine, &workspace));
    LevenbergMarquardt<CudaMachine, StoredDouble> lm;
    double cost;
    solver::DegenerateBlocks points;
    solver::DegenerateBlocks cameras;
    CERES_EXT_RETURN_IF_ERROR(
        lm.Setup(MakeStudyOptions(FourConfigurations()[0], 1, 1),
                 device.arrays<CudaMachine>(workspace),
                 &machine));
    CERES_EXT_RETURN_IF_ERROR(lm.Start(&cost));
    CERES_EXT_RETURN_IF_ERROR(lm.Linearize());
    CERES_EXT_RETURN_IF_ERROR(lm.FindDegenerateBlocks(&points, &cameras));
    record->Size(*problem)["rank_deficient"] = {{"cameras", cameras.count},
                                                {"points", points.count}};
    return {};
  }

  // Recomputed Jacobians exist so that nothing is formed per observation.
  template <typename Source>
  static bool Applies(const Configuration& configuration) {
    return !IsRecomputed<Source>::value || !configuration.explicit_w;
  }
};

DeviceStudy::DeviceStudy(const StudyProblem* problem,
                         CudaContext* context,
                         StudyRecord* record)
    : impl_(new Impl{problem, context, record, {}, false, {}}) {}

DeviceStudy::~DeviceStudy() = default;

Status DeviceStudy::Setup() {
  impl_->Announce("index");
  CERES_EXT_RETURN_IF_ERROR(
      impl_->device.Setup(impl_->problem->bal, impl_->context));
  double stored_seconds = 0.0;
  double recomputed_seconds = 0.0;
  CudaMachine machine;
  CudaWorkspace stored;
  CudaWorkspace recomputed;
  // The second time all memory is there.
  for (int i = 0; i < 2; ++i) {
    CERES_EXT_RETURN_IF_ERROR(impl_->device.SetupMachine<StoredDouble>(
        &machine, &stored, &stored_seconds));
    CERES_EXT_RETURN_IF_ERROR(impl_->device.SetupMachine<RecomputedDouble>(
        &machine, &recomputed, &recomputed_seconds));
  }
  Json index = impl_->device.IndexJson();
  index["stored_tile_seconds"] = Rounded(stored_seconds);
  index["recomputed_tile_seconds"] = Rounded(recomputed_seconds);
  std::printf("  index %.4f s (first %.4f s), tiles %.4f s and %.4f s\n",
              index["seconds"].get<double>(),
              index["first_seconds"].get<double>(),
              stored_seconds,
              recomputed_seconds);
  impl_->record->Size(*impl_->problem)["index"] = index;
  impl_->is_set_up = true;
  return {};
}

void DeviceStudy::TimeIterations() {
  if (!impl_->is_set_up) {
    return;
  }
  impl_->Announce("iterations");
  impl_->record->Check("rank-deficient blocks, " + impl_->problem->name,
                       impl_->FindDegenerate());
  // Steps of "cuda", stored double, in the four configurations.
  std::vector<double> steps[4];
  impl_->Iterations<StoredDouble, CudaMachine>(
      "cuda", "stored double", true, steps);
  impl_->Iterations<RecomputedDouble, CudaMachine>(
      "cuda", "recomputed double", false, steps);
  impl_->Iterations<StoredBlockContiguous, BlockContiguousMachine>(
      "cuda block-contiguous", "stored double", false, steps);
  impl_->PaperIterations<Naive<double>>("naive", "stored double", steps);
  impl_->PaperIterations<NaiveContinuous<double>>(
      "naive continuous", "stored double", steps);
  impl_->PaperIterations<Paper<double>>("paper", "stored double", steps);
  impl_->PaperIterations<PaperBlockContiguous<double>>(
      "paper block-contiguous", "stored double", steps);
  impl_->Cusparse("cusparse CSR", CusparseForm::kCsr, 0, steps);
  impl_->Cusparse("cusparse CSR J'", CusparseForm::kCsrTransposed, 0, steps);
  impl_->Cusparse("cusparse BSR", CusparseForm::kBsr, 1, steps);
  impl_->Iterations<StoredFloat, CudaMachine>(
      "cuda", "stored float", false, steps);
  impl_->Iterations<RecomputedFloat, CudaMachine>(
      "cuda", "recomputed float", false, steps);
  impl_->PaperIterations<Naive<float>>("naive", "stored float", steps);
  impl_->PaperIterations<NaiveContinuous<float>>(
      "naive continuous", "stored float", steps);
  impl_->PaperIterations<Paper<float>>("paper", "stored float", steps);
  impl_->PaperIterations<PaperBlockContiguous<float>>(
      "paper block-contiguous", "stored float", steps);
}

void DeviceStudy::TimeKernels() {
  if (!impl_->is_set_up) {
    return;
  }
  impl_->Announce("kernels");
  impl_->Kernels<StoredDouble, CudaMachine>("stored double");
  impl_->Kernels<StoredBlockContiguous, BlockContiguousMachine>(
      "stored double, block-contiguous");
}

void DeviceStudy::TimeReference() {
  if (!impl_->is_set_up) {
    return;
  }
  impl_->Announce("whole runs, the reference");
  impl_->Runs<StoredDouble, CudaMachine>("cuda", "stored double", true);
}

void DeviceStudy::TimeRuns() {
  if (!impl_->is_set_up) {
    return;
  }
  impl_->Announce("whole runs");
  impl_->Runs<RecomputedDouble, CudaMachine>("cuda", "recomputed double");
  impl_->Runs<RecomputedFloat, CudaMachine>("cuda", "recomputed float");
  impl_->PaperRuns<Paper<double>>("paper", "stored double");
  impl_->PaperRuns<Naive<double>>("naive", "stored double");
}

void DeviceStudy::TimeFloatRuns() {
  if (!impl_->is_set_up) {
    return;
  }
  impl_->Announce("whole runs of float blocks");
  impl_->PaperRuns<Paper<float>>("paper", "stored float");
  impl_->PaperRuns<Naive<float>>("naive", "stored float");
  impl_->Runs<StoredFloat, CudaMachine>("cuda", "stored float");
}

Status RunForProfiler(const StudyProblem& problem,
                      bool jacobians_only,
                      CudaContext* context) {
  DeviceProblem device;
  CERES_EXT_RETURN_IF_ERROR(device.Setup(problem.bal, context));
  CERES_EXT_RETURN_IF_ERROR(
      (ProfileMachine<CudaMachine, StoredDouble>(&device, jacobians_only)));
  CERES_EXT_RETURN_IF_ERROR(
      (ProfileMachine<CudaMachine, StoredFloat>(&device, true)));
  CERES_EXT_RETURN_IF_ERROR(
      ProfileMachine<BlockContiguousMachine>(&device, jacobians_only));
  CERES_EXT_RETURN_IF_ERROR(
      ProfileMachine<Naive<double>>(&device, jacobians_only));
  CERES_EXT_RETURN_IF_ERROR(
      ProfileMachine<NaiveContinuous<double>>(&device, jacobians_only));
  CERES_EXT_RETURN_IF_ERROR(
      ProfileMachine<Paper<double>>(&device, jacobians_only));
  CERES_EXT_RETURN_IF_ERROR(
      ProfileMachine<PaperBlockContiguous<double>>(&device, jacobians_only));
  CERES_EXT_RETURN_IF_ERROR(ProfileMachine<Naive<float>>(&device, true));
  CERES_EXT_RETURN_IF_ERROR(
      ProfileMachine<NaiveContinuous<float>>(&device, true));
  CERES_EXT_RETURN_IF_ERROR(ProfileMachine<Paper<float>>(&device, true));
  return ProfileMachine<PaperBlockContiguous<float>>(&device, true);
}

}  // namespace ceres_ext::bal
