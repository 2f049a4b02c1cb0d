// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Solves on a device whose n-th call fails, or the n-th and all later ones, for
// every n of a small problem of each kind; on one that somebody else breaks,
// resets or fills; and what the caller has made current on its thread.
//
// None may abort, throw, leak, leave parameters that are neither those of the
// start nor of the end, or change a bit of the solves after it. Also built with
// the device emulated, for some n.

#include "tests/kernels/cuda_faults.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ceres_ext/array_problem.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/covariance.h"
#include "ceres_ext/solve.h"
#include "cuda_kernels/machine/cuda_process.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/functors.h"
#include "tests/common/has_cudss.h"
#include "tests/common/has_device.h"
#include "tests/common/row_kinds.h"
#include "tests/front/others_capture.h"

#ifdef CERES_EXT_EMULATED
#include "ceres_ext/device/cost_function.cuh"
#else
#include <dlfcn.h>
#endif

namespace ceres_ext {

#ifdef CERES_EXT_EMULATED
CERES_EXT_COST_FUNCTION(FunctorCost, form::Rows)
#else
// Queue, on the default stream, a kernel that traps and one that writes where
// there is no memory. Neither waits.
void QueueTrap();
void QueueWriteToNowhere();
#endif

namespace {

#define SKIP_WITHOUT_DEVICE()                  \
  if (!HasDevice()) {                          \
    GTEST_SKIP() << "skipped: no CUDA device"; \
  }

#ifdef CERES_EXT_EMULATED
// A solve takes a tenth of a second.
constexpr int64_t kMaxNumFaults = 25;
constexpr int64_t kMaxNumKeptFaults = 6;
#else
constexpr int64_t kMaxNumFaults = 100000;
constexpr int64_t kMaxNumKeptFaults = 40;
#endif

// The context that the driver reports as current for this thread, and a context
// of the caller.
#ifdef CERES_EXT_EMULATED
void* CurrentContext() { return emulation::driver().current_context; }
void MakeCurrent(void* context) {
  emulation::driver().current_context = context;
}
class UsersContext {
 public:
  void* get() { return this; }
};
#else
void* CurrentContext() { return kernels::CurrentDriverContext(); }
// The driver keeps a stack of them, of which null takes off the top.
void MakeCurrent(void* context) {
  kernels::SetCurrentDriverContext(context);
  while (context == nullptr && CurrentContext() != nullptr) {
    kernels::SetCurrentDriverContext(nullptr);
  }
}
class UsersContext {
 public:
  UsersContext() {
    void* const before = CurrentContext();
    const auto create = Driver<int(void**, unsigned, int)>("cuCtxCreate_v2");
    EXPECT_TRUE(create != nullptr && create(&context_, 0, 0) == 0);
    MakeCurrent(before);
  }
  ~UsersContext() {
    if (context_ != nullptr) {
      Driver<int(void*)>("cuCtxDestroy_v2")(context_);
    }
  }
  void* get() { return context_; }

 private:
  template <typename Function>
  static Function* Driver(const char* name) {
    EXPECT_EQ(cudaFree(nullptr), cudaSuccess);  // Starts the driver.
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
    return reinterpret_cast<Function*>(dlsym(driver, name));
  }
  void* context_ = nullptr;
};
#endif

// A problem, how it is given and solved.
struct Subject {
  const char* name;
  Kind kind = Kind::kObservations;
  bool by_arrays = false;
  bool use_functor = false;
  JacobianType jacobian = JACOBIAN_STORED;
  PrecisionType precision = PRECISION_DOUBLE;
  bool graph = false;
  // With S as a matrix: a factorisation, or products of PCG.
  bool exact = false;
  bool explicit_products = false;
  // AUTO would take the other one where memory fails.
  SchurFactorizationType factorization = SCHUR_FACTORIZATION_DENSE;
};

Subject Exact(
    const char* name,
    Kind kind,
    SchurFactorizationType factorization = SCHUR_FACTORIZATION_DENSE) {
  Subject subject{name, kind};
  subject.exact = true;
  subject.factorization = factorization;
  return subject;
}

Subject ExplicitProducts(const char* name, Kind kind) {
  Subject subject{name, kind};
  subject.explicit_products = true;
  return subject;
}

struct Result {
  Summary summary;
  std::vector<double> parameters;
};

BalTestProblem MakeStart() { return MakeBalTestProblem(3, 8, 3, 9); }

// A problem of the kind with these parameters.
double Cost(Kind kind, const std::vector<double>& parameters) {
  Case one(kind, 1, MakeStart());
  const auto points = parameters.begin() + one.bal.cameras.size();
  std::copy(parameters.begin(), points, one.bal.cameras.begin());
  std::copy(points, parameters.end(), one.bal.points.begin());
  return one.Cost();
}

void SetOptions(const Subject& subject,
                ceres::IterationCallback* callback,
                ceres::Solver::Options* options,
                Options* ext_options) {
  // A graph is for more than a few, and for arrays that come again.
  options->max_num_iterations = subject.graph ? 6 : 2;
  options->max_linear_solver_iterations = subject.graph ? 12 : 3;
  if (subject.exact) {
    options->linear_solver_type = ceres::DENSE_SCHUR;
    ext_options->schur_factorization = subject.factorization;
  } else if (subject.explicit_products) {
    options->preconditioner_type = ceres::SCHUR_JACOBI;
    options->use_explicit_schur_complement = true;
  }
  if (callback != nullptr) {
    options->callbacks.push_back(callback);
  }
  ext_options->jacobian = subject.jacobian;
  ext_options->precision = subject.precision;
  ext_options->cuda_graph = subject.graph ? CUDA_GRAPH_ON : CUDA_GRAPH_OFF;
}

// solver: of arrays; null: one for this solve alone.
Result SolveOnly(const Subject& subject,
                 DeviceType device,
                 FallbackType fallback,
                 ceres::IterationCallback* callback = nullptr,
                 ArraySolver* solver = nullptr) {
  Result result;
  Options ext_options;
  ext_options.device = device;
  // Measuring takes calls of its own in the first run.
  ext_options.machine_rates = MACHINE_RATES_BUILT_IN;
  ext_options.fallback = fallback;
  if (!subject.by_arrays && !subject.use_functor) {
    Case one(subject.kind, 1, MakeStart());
    SetOptions(subject, callback, &one.options, &ext_options);
    Solve(one.options, ext_options, one.problem.get(), &result.summary);
    result.parameters = one.bal.Values();
    return result;
  }
  BalTestProblem bal = MakeStart();
  ceres::Solver::Options options = TestOptions(&bal);
  SetOptions(subject, callback, &options, &ext_options);
  if (!subject.by_arrays) {
    ceres::Problem problem;
    for (size_t k = 0; k < bal.camera_id.size(); ++k) {
      problem.AddResidualBlock(
          new FunctorCost(AutodiffReprojection<3>{bal.observations[2 * k],
                                                  bal.observations[2 * k + 1]}),
          nullptr,
          bal.camera(bal.camera_id[k]),
          bal.point(bal.point_id[k]));
    }
    Solve(options, ext_options, &problem, &result.summary);
  } else {
    options.linear_solver_ordering = nullptr;
    ArrayProblem problem;
    ArrayProblem::Parameters cameras;
    cameras.values = bal.cameras.data();
    cameras.num_blocks = bal.num_cameras();
    cameras.size = 9;
    ArrayProblem::Parameters points;
    points.values = bal.points.data();
    points.num_blocks = bal.num_points();
    points.size = 3;
    const std::vector<ArrayProblem::Index> blocks = {
        {problem.AddParameters(cameras), bal.camera_id.data()},
        {problem.AddParameters(points), bal.point_id.data()}};
    const auto n = static_cast<int64_t>(bal.camera_id.size());
    if (subject.use_functor) {
      problem.AddResiduals<FunctorCost>(n, bal.observations.data(), blocks);
    } else {
      problem.AddResiduals<BalReprojectionError>(
          n, bal.observations.data(), blocks);
    }
    if (solver != nullptr) {
      solver->Solve(options, ext_options, &problem, &result.summary);
    } else {
      Solve(options, ext_options, &problem, &result.summary);
    }
  }
  result.parameters = bal.Values();
  return result;
}

// So that each solve takes all that it needs, and leaves nothing.
Result SolveSubject(const Subject& subject,
                    DeviceType device,
                    FallbackType fallback,
                    ceres::IterationCallback* callback = nullptr,
                    ArraySolver* solver = nullptr) {
  Result result = SolveOnly(subject, device, fallback, callback, solver);
  ReleaseIdle();
  return result;
}

bool IsOnHost(const Summary& summary) {
  return summary.device.rfind("host", 0) == 0 || summary.path == PATH_CERES;
}

// One sentence: something, a period at its end and none before, as of
// "failed: out of memory. More".
bool IsOneSentence(const std::string& text) {
  return text.size() > 10 && text.back() == '.' &&
         text.find(". ") == std::string::npos &&
         text.find('\n') == std::string::npos &&
         text.find("..") == std::string::npos;
}

// How a solve ended. From kFaults on it broke a promise.
enum Outcome {
  kSolved,
  kSolvedRowsOnHost,
  kSolvedOnHost,
  kEndedEarly,
  kFailed,
  kFailedAtEnd,
  kFaults,
  kNotSolved = kFaults,
  kNoSentence,
  kOtherBits,
  kChanged,
  kLeak,
  kContext,
  kNumOutcomes,
};
const char* const kOutcomeNames[kNumOutcomes] = {
    "solved on the device",
    "solved on the device, rows evaluated on the host",
    "solved on the host",
    "ended early at the best state",
    "failed with the start kept",
    "failed when the result was there",
    "failed where the host was allowed",
    "without one sentence that says why",
    "solved with other bits",
    "failed with other parameters",
    "leaked",
    "left another context current"};

// Calls of the caller's between iterations: sees what is current.
class Watch : public ceres::IterationCallback {
 public:
  explicit Watch(void* context) : context_(context) {}
  ceres::CallbackReturnType operator()(
      const ceres::IterationSummary&) override {
    is_as_left_ &= CurrentContext() == context_;
    return ceres::SOLVER_CONTINUE;
  }
  bool is_as_left() const { return is_as_left_; }

 private:
  void* context_;
  bool is_as_left_ = true;
};

// The end of a solve without faults.
struct Expected {
  explicit Expected(const Subject& subject)
      : kind(subject.kind),
        start(MakeStart().Values()),
        device(SolveSubject(subject, DEVICE_CUDA, FALLBACK_REFUSE)),
        host(SolveSubject(subject, DEVICE_HOST, FALLBACK_REFUSE)) {}
  Kind kind;
  std::vector<double> start;
  Result device;
  Result host;
};

Outcome OutcomeOf(const Result& result,
                  const Expected& expected,
                  bool may_fail) {
  const Summary& summary = result.summary;
  const bool is_host = IsOnHost(summary);
  if (summary.IsSolutionUsable()) {
    if (is_host) {
      const std::string& why =
          summary.path == PATH_CERES ? summary.path_reason : summary.device;
      const auto has = [&](const char* text) {
        return why.find(text) != std::string::npos;
      };
      if (!(has("device") || has("cuda") || has("CUDA")) || has("..")) {
        return kNoSentence;
      }
      return result.parameters == expected.host.parameters ? kSolvedOnHost
                                                           : kOtherBits;
    }
    if (result.parameters == expected.device.parameters) {
      return kSolved;
    }
    if (summary.message.find(" failed: ") != std::string::npos) {
      return Cost(expected.kind, result.parameters) <=
                     Cost(expected.kind, expected.start)
                 ? kEndedEarly
                 : kChanged;
    }
    return summary.path_reason.find("can't be launched") != std::string::npos ||
                   summary.path_reason.find("no code") != std::string::npos
               ? kSolvedRowsOnHost
               : kOtherBits;
  }
  if (!may_fail) {
    return kNotSolved;
  }
  if (!IsOneSentence(summary.message)) {
    return kNoSentence;
  }
  return result.parameters == expected.start               ? kFailed
         : result.parameters == expected.device.parameters ? kFailedAtEnd
                                                           : kChanged;
}

class CudaFaultsTest : public ::testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_DEVICE();
    context_ = std::make_unique<UsersContext>();
  }
  void TearDown() override {
    cuda_faults().Stop();
    MakeCurrent(nullptr);
  }

  // Solves by `solve`, which the n-th call of fails, for every stride-th n.
  // may_fail: where the device gives up in the middle, the host may not do it
  // again.
  void ExpectOutcomes(
      const char* what,
      bool and_all_later,
      bool may_fail,
      int64_t stride,
      const Expected& expected,
      const std::function<Result(ceres::IterationCallback*)>& solve) {
    // All of it with a context of the caller's current.
    MakeCurrent(context_->get());
    cuda_faults().Start(0, false);
    const Result counted = solve(nullptr);
    cuda_faults().Stop();
    const int64_t num_calls = cuda_faults().num_calls();
    ASSERT_GT(num_calls, 100);
    ASSERT_EQ(counted.parameters, expected.device.parameters);
    std::array<int, kNumOutcomes> counts = {};
    const int64_t step = std::max(stride, num_calls / kMaxNumFaults + 1);
    int64_t num_solves = 0;
    for (int64_t n = 1; n <= num_calls + 2; n += step, ++num_solves) {
      const int64_t held = cuda_faults().num_held();
      const int64_t bytes = kernels::ProcessBytes(0);
      Watch watch(context_->get());
      cuda_faults().Start(n, and_all_later);
      const Result result = solve(may_fail ? &watch : nullptr);
      cuda_faults().Stop();
      const std::string call = cuda_faults().failed_call();
      failed_calls_.insert(call);
      Outcome outcome = OutcomeOf(result, expected, may_fail);
      if (outcome < kFaults) {
        if (CurrentContext() != context_->get() || !watch.is_as_left()) {
          outcome = kContext;
        } else if (cuda_faults().num_held() != held ||
                   kernels::ProcessBytes(0) != bytes) {
          outcome = kLeak;
        } else if (num_solves % 16 == 0 &&
                   solve(nullptr).parameters != expected.device.parameters) {
          outcome = kOtherBits;
        }
      }
      ++counts[outcome];
      EXPECT_LT(outcome, kFaults)
          << what << ", call " << n << " (" << call
          << "): " << kOutcomeNames[outcome] << "; message "
          << result.summary.message << "; device " << result.summary.device
          << "; reason " << result.summary.path_reason << "; held "
          << cuda_faults().num_held() - held;
      MakeCurrent(context_->get());
    }
    std::string text;
    for (int i = 0; i < kNumOutcomes; ++i) {
      if (counts[i] > 0) {
        text += ", " + std::to_string(counts[i]) + " " + kOutcomeNames[i];
      }
    }
    std::printf("%s, %s: %ld solves of %ld calls%s\n",
                GetParam().name,
                what,
                static_cast<long>(num_solves),  // NOLINT(runtime/int)
                static_cast<long>(num_calls),   // NOLINT(runtime/int)
                text.c_str());
  }

  std::unique_ptr<UsersContext> context_;
  std::set<std::string> failed_calls_;
};

TEST_P(CudaFaultsTest, EveryCall) {
  const Subject& subject = GetParam();
  const Expected expected(subject);
  ASSERT_EQ(expected.device.summary.path, PATH_FULL)
      << expected.device.summary.message;
  ASSERT_FALSE(IsOnHost(expected.device.summary));
  ASSERT_NE(expected.device.parameters, expected.start);
  const auto solve = [&](ceres::IterationCallback* callback) {
    return SolveSubject(subject, DEVICE_CUDA, FALLBACK_TO_CERES, callback);
  };
  // On an H200 a solve takes 10 ms.
  ExpectOutcomes("one call fails", false, false, 1, expected, solve);
  EXPECT_EQ(failed_calls_.count("cudaGraphLaunch"), subject.graph ? 1u : 0u);
  ExpectOutcomes("it and all later", true, false, 4, expected, solve);
  // With a callback, which a second solve would call again.
  ExpectOutcomes("one call, with a callback", false, true, 8, expected, solve);
  ExpectOutcomes("it and all later, without the host",
                 true,
                 true,
                 8,
                 expected,
                 [&](ceres::IterationCallback* callback) {
                   return SolveSubject(
                       subject, DEVICE_CUDA, FALLBACK_REFUSE, callback);
                 });
}

// While another thread captures a stream the device solves with the same bits,
// the capture stays whole, and the thread's capture mode is CUDA's afterwards.
void ExpectCapturesStayWhole(const Subject& subject) {
  const Expected expected(subject);
  {
    OthersCapture others;
    // The second solve finds what the first one has made.
    for (int i = 0; i < 2; ++i) {
      const Result result = SolveOnly(subject, DEVICE_CUDA, FALLBACK_REFUSE);
      EXPECT_EQ(result.parameters, expected.device.parameters)
          << result.summary.message;
      EXPECT_EQ(OthersCapture::CaptureMode(), 0);
    }
    EXPECT_EQ(others.End(), "");
  }
  ReleaseIdle();
}

TEST_P(CudaFaultsTest, BesideACaptureOfAnotherThread) {
  ExpectCapturesStayWhole(GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    All,
    CudaFaultsTest,
    ::testing::Values(Subject{"Observations"},
                      Subject{"ObservationsRecomputed",
                              Kind::kObservations,
                              false,
                              false,
                              JACOBIAN_RECOMPUTED},
                      Subject{"Views", Kind::kViews},
                      Subject{"GeneralEvaluator", Kind::kGeneralRows},
                      Subject{"UsersFunctor", Kind::kObservations, false, true},
                      Subject{"Arrays", Kind::kObservations, true},
                      Exact("ExactStep", Kind::kObservations),
                      Exact("ExactStepOfViews", Kind::kViews),
                      ExplicitProducts("ExplicitProducts", Kind::kGeneralRows),
                      Subject{"ArraysMixed",
                              Kind::kObservations,
                              true,
                              false,
                              JACOBIAN_STORED,
                              PRECISION_MIXED}
#ifdef CERES_EXT_EMULATED  // which has cuDSS, and no graphs
                      ,
                      Exact("ExactStepSparse",
                            Kind::kObservations,
                            SCHUR_FACTORIZATION_SPARSE)
#else
                      ,
                      Subject{"ObservationsGraph",
                              Kind::kObservations,
                              false,
                              false,
                              JACOBIAN_STORED,
                              PRECISION_DOUBLE,
                              true}
#endif
                          ),
    [](const auto& info) { return std::string(info.param.name); });

#ifndef CERES_EXT_EMULATED
TEST(CudaFaults, SparseStepsBesideACaptureOfAnotherThread) {
  SKIP_WITHOUT_DEVICE();
  if (!HasCudss()) {
    GTEST_SKIP() << "skipped: no cuDSS";
  }
  ExpectCapturesStayWhole(
      Exact("Sparse", Kind::kObservations, SCHUR_FACTORIZATION_SPARSE));
}
#endif

const Subject kArrays{"Arrays", Kind::kObservations, true};
const Subject kObservations{"Observations"};

Result SolveArraysBy(ArraySolver* solver, FallbackType fallback) {
  return SolveSubject(kArrays, DEVICE_CUDA, fallback, nullptr, solver);
}

TEST(CudaFaults, CovarianceBesideACaptureOfAnotherThread) {
  SKIP_WITHOUT_DEVICE();
  for (const CovarianceMethod method :
       {COVARIANCE_METHOD_FACTORIZATION, COVARIANCE_METHOD_PCG}) {
    Case one(Kind::kObservations, 1, MakeStart());
    one.problem->SetParameterBlockConstant(one.bal.camera(0));
    one.problem->SetParameterBlockConstant(one.bal.camera(1));
    CovarianceOptions options;
    options.method = method;
    options.ext.device = DEVICE_CUDA;
    options.ext.machine_rates = MACHINE_RATES_BUILT_IN;
    options.ext.fallback = FALLBACK_REFUSE;
    std::vector<double> blocks[2];
    for (std::vector<double>& block : blocks) {
      block.resize(81);
      OthersCapture others;
      Covariance covariance(options);
      double* const last = one.bal.camera(2);
      EXPECT_TRUE(
          covariance.Compute({std::make_pair(last, last)}, one.problem.get()))
          << covariance.error();
      EXPECT_TRUE(covariance.GetCovarianceBlock(last, last, block.data()));
      EXPECT_EQ(others.End(), "");
      EXPECT_EQ(OthersCapture::CaptureMode(), 0);
    }
    EXPECT_EQ(blocks[0], blocks[1]);
    ReleaseIdle();
  }
}

// A fault in the second of three solves that share what is kept.
TEST(CudaFaults, KeptMemoryIsNotUsedAfterAFault) {
  SKIP_WITHOUT_DEVICE();
  const Expected expected(kArrays);
  const int64_t held = cuda_faults().num_held();
  int64_t num_calls = 0;
  {
    ArraySolver solver;
    SolveArraysBy(&solver, FALLBACK_REFUSE);
    cuda_faults().Start(0, false);
    SolveArraysBy(&solver, FALLBACK_REFUSE);
    cuda_faults().Stop();
    num_calls = cuda_faults().num_calls();
  }
  EXPECT_EQ(cuda_faults().num_held(), held);
  ASSERT_GT(num_calls, 50);
  const int64_t step = num_calls / kMaxNumKeptFaults + 1;
  for (const FallbackType fallback : {FALLBACK_TO_CERES, FALLBACK_REFUSE}) {
    for (const bool and_all_later : {false, true}) {
      for (int64_t n = 1; n <= num_calls; n += step) {
        SCOPED_TRACE(n);
        ArraySolver solver;
        ASSERT_EQ(SolveArraysBy(&solver, fallback).parameters,
                  expected.device.parameters);
        cuda_faults().Start(n, and_all_later);
        const Result result = SolveArraysBy(&solver, fallback);
        cuda_faults().Stop();
        const Outcome outcome =
            OutcomeOf(result, expected, fallback == FALLBACK_REFUSE);
        EXPECT_LT(outcome, kFaults)
            << cuda_faults().failed_call() << " " << kOutcomeNames[outcome]
            << " " << result.summary.message << " " << result.summary.device;
        const Result after = SolveArraysBy(&solver, fallback);
        EXPECT_EQ(after.parameters, expected.device.parameters)
            << after.summary.message << " " << after.summary.device;
      }
      EXPECT_EQ(cuda_faults().num_held(), held);
      EXPECT_EQ(kernels::ProcessBytes(0), 0);
    }
  }
}

// Resources that a solve leaves idle are used by the next one, except those
// that were lost with a device in between.
TEST(CudaFaults, IdleMachinesServeTheNextSolve) {
  SKIP_WITHOUT_DEVICE();
  for (const Subject& subject : {kObservations, kArrays}) {
    const Expected expected(subject);
    int64_t held = 0;
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(SolveOnly(subject, DEVICE_CUDA, FALLBACK_REFUSE).parameters,
                expected.device.parameters);
      EXPECT_GT(cuda_faults().num_held(), 0);
      EXPECT_TRUE(i == 0 || cuda_faults().num_held() == held);
      held = cuda_faults().num_held();
    }
    // A fault ends in nothing that is kept.
    cuda_faults().Start(20, /*and_all_later=*/false);
    const Result result = SolveOnly(subject, DEVICE_CUDA, FALLBACK_TO_CERES);
    cuda_faults().Stop();
    EXPECT_TRUE(result.summary.IsSolutionUsable()) << result.summary.message;
    EXPECT_EQ(SolveOnly(subject, DEVICE_CUDA, FALLBACK_REFUSE).parameters,
              expected.device.parameters);
    ReleaseIdle();
    EXPECT_EQ(cuda_faults().num_held(), 0);
    EXPECT_EQ(kernels::ProcessBytes(0), 0);
  }
}

// Memory that somebody else takes before a solve leaves the host; taken in the
// middle it changes nothing, since all is there.
class TakeMemory : public ceres::IterationCallback {
 public:
  ceres::CallbackReturnType operator()(
      const ceres::IterationSummary&) override {
    cuda_faults().TakeMemory();
    return ceres::SOLVER_CONTINUE;
  }
};

TEST(CudaFaults, MemoryTakenByOthers) {
  SKIP_WITHOUT_DEVICE();
  for (const Subject& subject :
       {kObservations,
        Subject{"Views", Kind::kViews},
        Subject{"GeneralEvaluator", Kind::kGeneralRows},
        Subject{"UsersFunctor", Kind::kObservations, false, true},
        kArrays}) {
    SCOPED_TRACE(subject.name);
    const Expected expected(subject);
    TakeMemory take;
    const Result middle =
        SolveSubject(subject, DEVICE_CUDA, FALLBACK_REFUSE, &take);
    EXPECT_EQ(middle.parameters, expected.device.parameters)
        << middle.summary.message;
    cuda_faults().TakeMemory();
    const Result before = SolveSubject(subject, DEVICE_CUDA, FALLBACK_TO_CERES);
    EXPECT_EQ(before.parameters, expected.host.parameters);
    EXPECT_NE(before.summary.device.find("memory"), std::string::npos)
        << before.summary.device;
    const Result refused = SolveSubject(subject, DEVICE_CUDA, FALLBACK_REFUSE);
    EXPECT_EQ(refused.summary.termination_type, ceres::FAILURE);
    EXPECT_TRUE(IsOneSentence(refused.summary.message))
        << refused.summary.message;
    EXPECT_EQ(refused.parameters, expected.start);
    cuda_faults().Stop();
    EXPECT_EQ(SolveSubject(subject, DEVICE_CUDA, FALLBACK_REFUSE).parameters,
              expected.device.parameters);
  }
}

void ResetDevice() {
#ifdef CERES_EXT_EMULATED
  emulation::Reset();
#else
  // Without a current context there would be nothing to reset.
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
#endif
}

// Resources that an ArraySolver has kept are gone, their addresses are the
// user's, and they are not freed.
void ResetBetweenSolves() {
  const Expected expected(kArrays);
  for (const bool solve_again : {true, false}) {
    std::vector<void*> users(200);
    {
      ArraySolver solver;
      EXPECT_EQ(SolveArraysBy(&solver, FALLBACK_REFUSE).parameters,
                expected.device.parameters);
      ResetDevice();
      EXPECT_EQ(cudaMalloc(&users[0], 1), cudaSuccess);
      for (size_t i = 1; i < users.size(); ++i) {
        EXPECT_EQ(cudaMalloc(&users[i], 64 * i), cudaSuccess);
      }
      if (solve_again) {
        const Result after = SolveArraysBy(&solver, FALLBACK_REFUSE);
        EXPECT_EQ(after.parameters, expected.device.parameters)
            << after.summary.message;
      }
    }
    for (void* data : users) {
      EXPECT_EQ(cudaFree(data), cudaSuccess);
    }
    EXPECT_EQ(kernels::ProcessBytes(0), 0);
  }
#ifdef CERES_EXT_EMULATED
  EXPECT_EQ(emulation::driver().num_wrong_frees, 0);
#endif
}

class Do : public ceres::IterationCallback {
 public:
  explicit Do(std::function<void()> what) : what_(std::move(what)) {}
  ceres::CallbackReturnType operator()(
      const ceres::IterationSummary& summary) override {
    if (summary.iteration == 1) {
      what_();
    }
    return ceres::SOLVER_CONTINUE;
  }

 private:
  std::function<void()> what_;
};

// A device that is broken in the middle of a solve: it fails with the start
// kept, and the next ones are the host's.
void BreakInTheMiddle(const Subject& subject,
                      const std::function<void()>& what) {
  const Expected expected(subject);
  Do callback(what);
  const Result broken =
      SolveSubject(subject, DEVICE_CUDA, FALLBACK_TO_CERES, &callback);
  EXPECT_EQ(broken.summary.termination_type, ceres::FAILURE);
  EXPECT_TRUE(IsOneSentence(broken.summary.message)) << broken.summary.message;
  EXPECT_EQ(broken.parameters, expected.start);
  std::fprintf(stderr, "%s\n", broken.summary.message.c_str());
  for (int i = 0; i < 2; ++i) {
    const Result next = SolveSubject(subject, DEVICE_CUDA, FALLBACK_TO_CERES);
    EXPECT_TRUE(next.summary.IsSolutionUsable()) << next.summary.message;
    EXPECT_EQ(next.parameters,
              IsOnHost(next.summary) ? expected.host.parameters
                                     : expected.device.parameters);
    std::fprintf(stderr, "then %s\n", next.summary.device.c_str());
  }
}

#ifdef CERES_EXT_EMULATED

TEST(CudaFaults, DeviceResetBetweenSolves) {
  ResetBetweenSolves();
  emulation::driver().num_wrong_frees = 0;
}

TEST(CudaFaults, DeviceResetInTheMiddle) {
  for (const Subject& subject : {kObservations, kArrays}) {
    BreakInTheMiddle(subject, ResetDevice);
    EXPECT_EQ(kernels::ProcessBytes(0), 0);
    EXPECT_EQ(cuda_faults().num_held(), 0);
  }
  EXPECT_EQ(emulation::driver().num_wrong_frees, 0);
  emulation::driver().num_wrong_frees = 0;
}

#else

// Processes of their own, since what happens there ends the use of the device.
class CudaFaultsDeathTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_DEVICE();
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

// Ends the process, well where all that was expected has been found.
[[noreturn]] void Exit() {
  std::fprintf(
      stderr, "%s\n", ::testing::Test::HasFailure() ? "not so" : "as expected");
  std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
}

TEST_F(CudaFaultsDeathTest, DeviceResetBetweenSolves) {
  EXPECT_EXIT((ResetBetweenSolves(), Exit()),
              ::testing::ExitedWithCode(0),
              "as expected");
}

TEST_F(CudaFaultsDeathTest, UsersKernelTrapsInTheMiddle) {
  for (const Subject& subject : {kObservations, kArrays}) {
    EXPECT_EXIT((BreakInTheMiddle(subject, QueueTrap), Exit()),
                ::testing::ExitedWithCode(0),
                "as expected");
  }
}

TEST_F(CudaFaultsDeathTest, UsersKernelWritesToNowhereInTheMiddle) {
  EXPECT_EXIT((BreakInTheMiddle(Subject{"Views", Kind::kViews},
                                [] {
                                  QueueWriteToNowhere();
                                  EXPECT_NE(cudaDeviceSynchronize(),
                                            cudaSuccess);
                                }),
               Exit()),
              ::testing::ExitedWithCode(0),
              "as expected");
}

TEST_F(CudaFaultsDeathTest, DeviceResetInTheMiddle) {
  for (const Subject& subject : {kObservations, kArrays}) {
    EXPECT_EXIT((BreakInTheMiddle(subject, ResetDevice), Exit()),
                ::testing::ExitedWithCode(0),
                "as expected");
  }
}

// The error of a kernel that was there before the first solve.
void SolveOnABrokenDevice() {
  const std::vector<double> start = MakeStart().Values();
  const Result host = SolveSubject(kObservations, DEVICE_HOST, FALLBACK_REFUSE);
  QueueTrap();
  for (int i = 0; i < 2; ++i) {
    const Result result =
        SolveSubject(kObservations, DEVICE_CUDA, FALLBACK_TO_CERES);
    EXPECT_EQ(result.parameters, host.parameters);
    EXPECT_TRUE(IsOnHost(result.summary));
    std::fprintf(stderr, "%s\n", result.summary.device.c_str());
    const Result refused =
        SolveSubject(kObservations, DEVICE_CUDA, FALLBACK_REFUSE);
    EXPECT_EQ(refused.summary.termination_type, ceres::FAILURE);
    EXPECT_TRUE(IsOneSentence(refused.summary.message))
        << refused.summary.message;
    EXPECT_EQ(refused.parameters, start);
    std::fprintf(stderr, "%s\n", refused.summary.message.c_str());
  }
}

TEST_F(CudaFaultsDeathTest, UsersKernelHasTrappedBefore) {
  EXPECT_EXIT((SolveOnABrokenDevice(), Exit()),
              ::testing::ExitedWithCode(0),
              "as expected");
}

void TrapBetweenSolves() {
  const Expected expected(kArrays);
  ArraySolver solver;
  EXPECT_EQ(SolveArraysBy(&solver, FALLBACK_REFUSE).parameters,
            expected.device.parameters);
  QueueTrap();
  for (int i = 0; i < 2; ++i) {
    const Result result = SolveArraysBy(&solver, FALLBACK_TO_CERES);
    EXPECT_EQ(result.parameters, expected.host.parameters);
    std::fprintf(stderr, "%s\n", result.summary.device.c_str());
  }
}

TEST_F(CudaFaultsDeathTest, UsersKernelTrapsBetweenSolves) {
  EXPECT_EXIT((TrapBetweenSolves(), Exit()),
              ::testing::ExitedWithCode(0),
              "as expected");
}

// All that the device has, taken by somebody else.
class AllMemory {
 public:
  void Take() {
    for (size_t size = size_t{1} << 34; size >= 512; size /= 2) {
      void* data = nullptr;
      while (cudaMalloc(&data, size) == cudaSuccess) {
        taken_.push_back(data);
      }
      static_cast<void>(cudaGetLastError());
    }
  }
  ~AllMemory() {
    for (void* data : taken_) {
      cudaFree(data);
    }
  }

 private:
  std::vector<void*> taken_;
};

TEST(CudaFaults, AllMemoryTakenByOthers) {
  SKIP_WITHOUT_DEVICE();
  const Expected expected(kObservations);
  {
    AllMemory all;
    Do callback([&all] { all.Take(); });
    const Result middle =
        SolveSubject(kObservations, DEVICE_CUDA, FALLBACK_REFUSE, &callback);
    EXPECT_EQ(middle.parameters, expected.device.parameters)
        << middle.summary.message;
    const Result after =
        SolveSubject(kObservations, DEVICE_CUDA, FALLBACK_TO_CERES);
    EXPECT_EQ(after.parameters,
              IsOnHost(after.summary) ? expected.host.parameters
                                      : expected.device.parameters);
    std::printf("with a full device: %s\n", after.summary.device.c_str());
  }
  EXPECT_EQ(
      SolveSubject(kObservations, DEVICE_CUDA, FALLBACK_REFUSE).parameters,
      expected.device.parameters);
}

// An error that the user has not asked for yet is not taken for one of the
// solve's.
TEST(CudaFaults, ErrorOfTheUsersThatNobodyHasAskedFor) {
  SKIP_WITHOUT_DEVICE();
  const Expected expected(kObservations);
  const auto fail = [] {
    void* data = nullptr;
    EXPECT_NE(cudaMalloc(&data, size_t{1} << 60), cudaSuccess);
  };
  Do callback(fail);
  fail();
  EXPECT_EQ(SolveSubject(kObservations, DEVICE_CUDA, FALLBACK_REFUSE, &callback)
                .parameters,
            expected.device.parameters);
  EXPECT_NE(cudaGetLastError(), cudaSuccess);
}

#endif  // CERES_EXT_EMULATED

// A caller without any context has none afterwards, and one with the device's
// own keeps it.
TEST(CudaFaults, WhatIsCurrentStaysSo) {
  SKIP_WITHOUT_DEVICE();
  UsersContext users;
  SolveSubject(kObservations, DEVICE_CUDA, FALLBACK_REFUSE);
  for (const Subject& subject : {kObservations, kArrays}) {
    for (const bool is_users : {false, true}) {
      void* const context = is_users ? users.get() : nullptr;
      MakeCurrent(context);
      Watch watch(context);
      const Result result =
          SolveSubject(subject, DEVICE_CUDA, FALLBACK_REFUSE, &watch);
      EXPECT_EQ(result.summary.path, PATH_FULL) << result.summary.message;
      EXPECT_EQ(CurrentContext(), context);
      EXPECT_TRUE(watch.is_as_left());
    }
  }
  MakeCurrent(nullptr);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  void* const of_device = CurrentContext();
  SolveSubject(kObservations, DEVICE_CUDA, FALLBACK_REFUSE);
  EXPECT_EQ(CurrentContext(), of_device);
}

}  // namespace
}  // namespace ceres_ext
