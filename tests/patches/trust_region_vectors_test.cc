// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The trust region loop on vectors that it can't touch: their addresses lie in
// pages without any access, so that one read or write in the loop ends the test
// program. The arithmetic behind them is that of the host default, hence the
// results must be stock's, bit for bit.

#include "ceres/trust_region_vectors.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ceres/preprocessor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/patches/patch_test_problem.h"
#include "tests/patches/wrapping_plugin.h"

namespace ceres_ext {
namespace {

using ceres::internal::HostTrustRegionVectors;
using ceres::internal::PreprocessedProblem;
using ceres::internal::ScopedSolverPlugin;
using ceres::internal::TrustRegionVectors;
using ::testing::HasSubstr;

// The requests of the loop. num_bytes_* cross between host and vectors.
struct VectorRecord {
  int num_allocated = 0;
  int num_freed = 0;
  int num_from_host = 0;
  int num_to_host = 0;
  int64_t num_bytes_from_host = 0;
  int64_t num_bytes_to_host = 0;
};

// The operation whose nth call fails.
enum Failure {
  NO_FAILURE,
  ALLOCATE,
  COPY_FROM_HOST,
  COPY_TO_HOST,
  NEGATE_IF_VALID,
  PROJECTED_GRADIENT_NORMS,
  STEP_NORMS,
  MODEL_COST_CHANGE,
  STEP_DOT,
  RESIDUAL_DOT,
  STEP_BASIS,
  RESIDUAL_GRAM,
  DIRECTIONAL_DERIVATIVE,  // with bounds
};

// Each vector is a range of pages without access and, elsewhere, its elements.
class OpaqueVectors final : public TrustRegionVectors,
                            public AddressTranslation {
 public:
  OpaqueVectors(VectorRecord* record, Failure failure, int nth)
      : host_(nullptr, 1), record_(record), failure_(failure), nth_(nth) {}
  ~OpaqueVectors() override {
    EXPECT_TRUE(host_address_.empty());
    EXPECT_EQ(record_->num_allocated, record_->num_freed);
  }

  double* Host(const double* address) const override {
    if (address == nullptr) {
      return nullptr;
    }
    const auto it = host_address_.find(address);
    EXPECT_TRUE(it != host_address_.end());
    return it->second;
  }

  double* Allocate(int n) override {
    if (Fails(ALLOCATE)) {
      return nullptr;
    }
    void* pages =
        mmap(nullptr, Size(n), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(pages, MAP_FAILED);
    auto* address = static_cast<double*>(pages);
    host_address_[address] = host_.Allocate(n);
    num_elements_[address] = n;
    ++record_->num_allocated;
    return address;
  }
  void Free(double* x) override {
    host_.Free(Host(x));
    EXPECT_EQ(munmap(x, Size(num_elements_[x])), 0);
    host_address_.erase(x);
    num_elements_.erase(x);
    ++record_->num_freed;
  }
  bool CopyFromHost(int n, const double* host_x, double* y) override {
    ++record_->num_from_host;
    record_->num_bytes_from_host += n * sizeof(double);
    return !Fails(COPY_FROM_HOST) && host_.CopyFromHost(n, host_x, Host(y));
  }
  bool CopyToHost(int n, const double* x, double* host_y) override {
    ++record_->num_to_host;
    record_->num_bytes_to_host += n * sizeof(double);
    return !Fails(COPY_TO_HOST) && host_.CopyToHost(n, Host(x), host_y);
  }
  void Copy(int n, const double* x, double* y) override {
    host_.Copy(n, Host(x), Host(y));
  }
  void SetZero(int n, double* x) override { host_.SetZero(n, Host(x)); }
  void SetOne(int n, double* x) override { host_.SetOne(n, Host(x)); }
  void Negate(int n, const double* x, double* y) override {
    host_.Negate(n, Host(x), Host(y));
  }
  void Scale(int n, double factor, const double* x, double* y) override {
    host_.Scale(n, factor, Host(x), Host(y));
  }
  void Multiply(int n, const double* x, const double* y, double* z) override {
    host_.Multiply(n, Host(x), Host(y), Host(z));
  }
  void JacobiScaling(int n, double* x) override {
    host_.JacobiScaling(n, Host(x));
  }
  void Clamp(int n, double min_value, double max_value, double* x) override {
    host_.Clamp(n, min_value, max_value, Host(x));
  }
  void LevenbergMarquardtDiagonal(int n,
                                  const double* x,
                                  double radius,
                                  double* y) override {
    host_.LevenbergMarquardtDiagonal(n, Host(x), radius, Host(y));
  }
  void Invalidate(int n, double* x) override { host_.Invalidate(n, Host(x)); }
  bool NegateIfValid(int n, double* x) override {
    return !Fails(NEGATE_IF_VALID) && host_.NegateIfValid(n, Host(x));
  }
  bool ProjectedGradientNorms(int n,
                              const double* x,
                              const double* projected_x,
                              double* max_norm,
                              double* norm) override {
    return !Fails(PROJECTED_GRADIENT_NORMS) &&
           host_.ProjectedGradientNorms(
               n, Host(x), Host(projected_x), max_norm, norm);
  }
  bool StepNorms(int n,
                 const double* x,
                 const double* candidate_x,
                 double* x_norm,
                 double* step_norm) override {
    return !Fails(STEP_NORMS) &&
           host_.StepNorms(n, Host(x), Host(candidate_x), x_norm, step_norm);
  }
  bool ModelCostChange(int n,
                       const double* residuals,
                       const double* model_residuals,
                       double* model_cost_change) override {
    return !Fails(MODEL_COST_CHANGE) &&
           host_.ModelCostChange(
               n, Host(residuals), Host(model_residuals), model_cost_change);
  }
  bool DirectionalDerivative(int n,
                             const double* gradient,
                             const double* direction,
                             double* derivative,
                             double* max_norm) override {
    return !Fails(DIRECTIONAL_DERIVATIVE) &&
           host_.DirectionalDerivative(
               n, Host(gradient), Host(direction), derivative, max_norm);
  }
  void Divide(int n, const double* x, const double* y, double* z) override {
    host_.Divide(n, Host(x), Host(y), Host(z));
  }
  void LinearCombination(int n,
                         double a,
                         const double* x,
                         double b,
                         const double* y,
                         double* z) override {
    host_.LinearCombination(n, a, Host(x), b, Host(y), Host(z));
  }
  bool StepDot(int n, const double* x, const double* y, double* dot) override {
    return !Fails(STEP_DOT) && host_.StepDot(n, Host(x), Host(y), dot);
  }
  bool ResidualDot(int n,
                   const double* x,
                   const double* y,
                   double* dot) override {
    return !Fails(RESIDUAL_DOT) && host_.ResidualDot(n, Host(x), Host(y), dot);
  }
  bool StepBasis(int n,
                 const double* x,
                 const double* y,
                 double* u,
                 double* v,
                 int* rank,
                 double x_in_basis[2]) override {
    return !Fails(STEP_BASIS) &&
           host_.StepBasis(
               n, Host(x), Host(y), Host(u), Host(v), rank, x_in_basis);
  }
  bool ResidualGram(int n,
                    const double* x,
                    const double* y,
                    double gram[4]) override {
    return !Fails(RESIDUAL_GRAM) &&
           host_.ResidualGram(n, Host(x), Host(y), gram);
  }

 private:
  static size_t Size(int n) { return (n + 1) * sizeof(double); }
  bool Fails(Failure failure) { return failure == failure_ && --nth_ == 0; }

  HostTrustRegionVectors host_;
  VectorRecord* record_;
  const Failure failure_;
  int nth_;
  std::map<const double*, double*> host_address_;
  std::map<const double*, int> num_elements_;
};

class OpaquePlugin final : public WrappingPlugin {
 public:
  OpaquePlugin(PluginRecord* record,
               VectorRecord* vector_record,
               Failure failure = NO_FAILURE,
               int nth = 1)
      : WrappingPlugin(record),
        vectors_(std::make_shared<OpaqueVectors>(vector_record, failure, nth)) {
    wrap_jacobian = true;
    address_translation = vectors_.get();
  }

  bool OwnsOrdering(PreprocessedProblem* pp) override {
    host_vectors_are_required =
        ceres::internal::AreHostVectorsRequired(*pp, &host_reason);
    return WrappingPlugin::OwnsOrdering(pp);
  }
  std::shared_ptr<TrustRegionVectors> CreateTrustRegionVectors(
      PreprocessedProblem* pp) override {
    EXPECT_NE(pp->linear_solver, nullptr);
    EXPECT_NE(pp->evaluator, nullptr);
    EXPECT_NE(pp->minimizer_options.jacobian, nullptr);
    return vectors_;
  }

  bool host_vectors_are_required = false;
  std::string host_reason;

 private:
  std::shared_ptr<OpaqueVectors> vectors_;
};

enum LoopFlags : unsigned {
  kNoScaling = 1 << 0,
  kNonmonotonic = 1 << 1,
  kUpdate = 1 << 2,
  kBounds = 1 << 3,
  kSearch = 1 << 4,  // with bounds: line searches contract steps
  kDogleg = 1 << 5,
  kSubspace = 1 << 6,
};

struct LoopOptions {
  const char* name;
  ceres::LinearSolverType type = ceres::ITERATIVE_SCHUR;
  unsigned flags = 0;
  ceres::LineSearchInterpolationType interpolation = ceres::CUBIC;

  bool Has(unsigned flag) const { return (flags & flag) != 0; }
};

void SetLoopOptions(const LoopOptions& loop,
                    PatchTestProblem* problem,
                    ceres::Solver::Options* options) {
  *options = problem->Options(loop.type);
  options->jacobi_scaling = !loop.Has(kNoScaling);
  options->use_nonmonotonic_steps = loop.Has(kNonmonotonic);
  options->update_state_every_iteration = loop.Has(kUpdate);
  if (loop.Has(kDogleg)) {
    options->trust_region_strategy_type = ceres::DOGLEG;
  }
  if (loop.Has(kSubspace)) {
    options->dogleg_type = ceres::SUBSPACE_DOGLEG;
  }
  if (loop.Has(kBounds)) {
    // A start outside of the bound, so that iteration zero projects.
    problem->problem()->SetParameterUpperBound(
        problem->point(0), 0, problem->point(0)[0] - 0.01);
    problem->point(0)[0] -= 0.01;
    options->max_num_line_search_step_size_iterations =
        loop.Has(kSearch) ? 20 : 0;
    options->line_search_interpolation_type = loop.interpolation;
  }
}

class OpaqueLoopTest : public ::testing::TestWithParam<LoopOptions> {};

TEST_P(OpaqueLoopTest, GivesBitsOfStock) {
  ceres::Solver::Options options;
  PatchTestProblem stock_problem;
  SetLoopOptions(GetParam(), &stock_problem, &options);
  const SolveResult stock = Solve(stock_problem, options);
  EXPECT_GT(stock.summary.num_successful_steps, 3);
  // A search makes many steps short enough.
  EXPECT_GT(stock.summary.num_unsuccessful_steps,
            GetParam().Has(kSearch) ? -1 : 0);
  EXPECT_EQ(GetParam().Has(kNonmonotonic),
            std::any_of(stock.summary.iterations.begin(),
                        stock.summary.iterations.end(),
                        [](const ceres::IterationSummary& iteration) {
                          return iteration.step_is_nonmonotonic;
                        }));

  PluginRecord record;
  VectorRecord vectors;
  SolveResult opaque;
  {
    OpaquePlugin plugin(&record, &vectors);
    PatchTestProblem problem;
    SetLoopOptions(GetParam(), &problem, &options);
    ScopedSolverPlugin scoped_plugin(&plugin);
    opaque = Solve(problem, options);
    EXPECT_FALSE(plugin.host_vectors_are_required) << plugin.host_reason;
  }
  ExpectSameBits(stock, opaque);
  EXPECT_EQ(record.num_solves, stock.summary.num_linear_solves);
  EXPECT_EQ(opaque.summary.num_line_search_steps,
            stock.summary.num_line_search_steps);
  EXPECT_EQ(opaque.summary.num_line_search_steps > 0, GetParam().Has(kSearch));

  // The state crosses once at the start, and back at the end or whenever it is
  // published.
  int num_improved = 0;
  for (const auto& iteration : stock.summary.iterations) {
    num_improved +=
        iteration.step_is_successful && !iteration.step_is_nonmonotonic;
  }
  const int64_t num_bytes =
      stock.summary.num_parameters_reduced * sizeof(double);
  const int num_published = GetParam().Has(kUpdate) ? num_improved : 1;
  EXPECT_EQ(vectors.num_from_host, 1);
  EXPECT_EQ(vectors.num_bytes_from_host, num_bytes);
  EXPECT_EQ(vectors.num_to_host, num_published);
  EXPECT_EQ(vectors.num_bytes_to_host, num_published * num_bytes);
  EXPECT_GT(vectors.num_allocated, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Options,
    OpaqueLoopTest,
    ::testing::Values(
        LoopOptions{"IterativeSchur"},
        LoopOptions{"Cgnr", ceres::CGNR},
        LoopOptions{"DenseSchur", ceres::DENSE_SCHUR},
        LoopOptions{"NoJacobiScaling", ceres::ITERATIVE_SCHUR, kNoScaling},
        LoopOptions{"Nonmonotonic", ceres::DENSE_SCHUR, kNonmonotonic},
        LoopOptions{"UpdateState", ceres::ITERATIVE_SCHUR, kUpdate},
        LoopOptions{"UpdateStateNonmonotonic",
                    ceres::DENSE_SCHUR,
                    kNonmonotonic | kUpdate},
        LoopOptions{"Bounds", ceres::DENSE_SCHUR, kBounds},
        LoopOptions{"Search", ceres::DENSE_SCHUR, kBounds | kSearch},
        LoopOptions{"SearchUpdateState",
                    ceres::ITERATIVE_SCHUR,
                    kUpdate | kBounds | kSearch},
        LoopOptions{"SearchQuadratic",
                    ceres::DENSE_SCHUR,
                    kBounds | kSearch,
                    ceres::QUADRATIC},
        LoopOptions{"SearchBisection",
                    ceres::DENSE_SCHUR,
                    kNoScaling | kBounds | kSearch,
                    ceres::BISECTION},
        LoopOptions{"Dogleg", ceres::DENSE_SCHUR, kDogleg},
        LoopOptions{
            "DoglegSearch", ceres::DENSE_SCHUR, kBounds | kSearch | kDogleg},
        LoopOptions{"SubspaceDogleg",
                    ceres::SPARSE_SCHUR,
                    kNoScaling | kDogleg | kSubspace}),
    [](const auto& info) { return std::string(info.param.name); });

// Records the user's parameters in every iteration.
class StateCallback final : public ceres::IterationCallback {
 public:
  explicit StateCallback(const PatchTestProblem* problem) : problem_(problem) {}
  ceres::CallbackReturnType operator()(
      const ceres::IterationSummary& /*summary*/) override {
    states.push_back(Bits(problem_->State()));
    return ceres::SOLVER_CONTINUE;
  }
  std::vector<std::vector<uint64_t>> states;

 private:
  const PatchTestProblem* problem_;
};

TEST(OpaqueVectors, CallbacksSeeTheStatesOfStock) {
  for (bool update : {false, true}) {
    std::vector<std::vector<uint64_t>> states[2];
    for (bool opaque : {false, true}) {
      PatchTestProblem problem;
      StateCallback callback(&problem);
      ceres::Solver::Options options = problem.Options(ceres::ITERATIVE_SCHUR);
      options.update_state_every_iteration = update;
      options.callbacks.push_back(&callback);
      PluginRecord record;
      VectorRecord vectors;
      OpaquePlugin plugin(&record, &vectors);
      ScopedSolverPlugin scoped_plugin(opaque ? &plugin : nullptr);
      Solve(problem, options);
      states[opaque] = callback.states;
    }
    EXPECT_EQ(states[0], states[1]);
    EXPECT_EQ(states[0].front() == states[0].back(), !update);
  }
}

TEST(OpaqueVectors, AFailureTakesPublishedStatesBack) {
  const std::vector<uint64_t> start = Bits(PatchTestProblem().State());
  PluginRecord record;
  VectorRecord vectors;
  OpaquePlugin plugin(&record, &vectors, PROJECTED_GRADIENT_NORMS, 4);
  PatchTestProblem problem;
  StateCallback callback(&problem);
  ceres::Solver::Options options = problem.Options(ceres::ITERATIVE_SCHUR);
  options.update_state_every_iteration = true;
  options.callbacks.push_back(&callback);
  ScopedSolverPlugin scoped_plugin(&plugin);
  const SolveResult result = Solve(problem, options);
  EXPECT_EQ(result.summary.termination_type, ceres::FAILURE);
  EXPECT_NE(callback.states.back(), start);
  EXPECT_EQ(result.state, start);
}

TEST(OpaqueVectors, StateIsPublishedWhenACallbackEndsTheSolve) {
  class Stop final : public ceres::IterationCallback {
   public:
    ceres::CallbackReturnType operator()(
        const ceres::IterationSummary& summary) override {
      return summary.iteration == 3 ? ceres::SOLVER_TERMINATE_SUCCESSFULLY
                                    : ceres::SOLVER_CONTINUE;
    }
  };
  Stop stop;
  PatchTestProblem stock_problem;
  ceres::Solver::Options options =
      stock_problem.Options(ceres::ITERATIVE_SCHUR);
  options.callbacks.push_back(&stop);
  const SolveResult stock = Solve(stock_problem, options);

  PluginRecord record;
  VectorRecord vectors;
  OpaquePlugin plugin(&record, &vectors);
  PatchTestProblem problem;
  options = problem.Options(ceres::ITERATIVE_SCHUR);
  options.callbacks.push_back(&stop);
  ScopedSolverPlugin scoped_plugin(&plugin);
  ExpectSameBits(stock, Solve(problem, options));
}

struct FailureCase {
  const char* name;
  Failure failure;
  int nth;
  const char* message;
  bool is_dogleg = false;
};

class FailingVectorsTest : public ::testing::TestWithParam<FailureCase> {};

TEST_P(FailingVectorsTest, EndTheSolveAndLeaveTheParameters) {
  PluginRecord record;
  VectorRecord vectors;
  SolveResult result;
  {
    OpaquePlugin plugin(&record, &vectors, GetParam().failure, GetParam().nth);
    PatchTestProblem problem;
    ceres::Solver::Options options = problem.Options(
        GetParam().is_dogleg ? ceres::DENSE_SCHUR : ceres::ITERATIVE_SCHUR);
    if (GetParam().is_dogleg) {
      options.trust_region_strategy_type = ceres::DOGLEG;
      options.dogleg_type = ceres::SUBSPACE_DOGLEG;
    }
    if (GetParam().failure == DIRECTIONAL_DERIVATIVE) {
      problem.problem()->SetParameterUpperBound(problem.point(0), 0, 10.0);
    }
    ScopedSolverPlugin scoped_plugin(&plugin);
    result = Solve(problem, options);
  }
  EXPECT_EQ(result.summary.termination_type, ceres::FAILURE);
  EXPECT_THAT(result.summary.message, HasSubstr(GetParam().message));
  EXPECT_EQ(result.state, Bits(PatchTestProblem().State()));
  EXPECT_EQ(record.num_finishes, 1);
}

constexpr char kOperation[] =
    "An operation on the vectors of the trust region loop failed.";
constexpr char kLinearSolver[] = "Linear solver failed";
constexpr char kAllocation[] =
    "Unable to allocate the vectors of the trust region loop.";

// The loop allocates 11 vectors, then Levenberg-Marquardt two or dogleg eight.
INSTANTIATE_TEST_SUITE_P(
    Failures,
    FailingVectorsTest,
    ::testing::Values(
        FailureCase{"FirstAllocation", ALLOCATE, 1, kAllocation},
        FailureCase{"FifthAllocation", ALLOCATE, 5, kAllocation},
        FailureCase{"LastAllocationOfTheLoop", ALLOCATE, 11, kAllocation},
        FailureCase{"Diagonal", ALLOCATE, 12, "Linear solver failed"},
        FailureCase{"ScaledDiagonal", ALLOCATE, 13, "Linear solver failed"},
        FailureCase{"CopyFromHost", COPY_FROM_HOST, 1, kOperation},
        FailureCase{"CopyToHost", COPY_TO_HOST, 1, kOperation},
        FailureCase{"FirstGradient", PROJECTED_GRADIENT_NORMS, 1, "failed"},
        FailureCase{"ThirdGradient", PROJECTED_GRADIENT_NORMS, 3, kOperation},
        FailureCase{"StepNorms", STEP_NORMS, 2, kOperation},
        FailureCase{"ModelCostChange", MODEL_COST_CHANGE, 2, kOperation},
        FailureCase{"DoglegDiagonal", ALLOCATE, 12, kLinearSolver, true},
        FailureCase{"DoglegLastVector", ALLOCATE, 19, kLinearSolver, true},
        FailureCase{"GradientDot", STEP_DOT, 1, kLinearSolver, true},
        FailureCase{"GaussNewtonDot", STEP_DOT, 2, kLinearSolver, true},
        FailureCase{"ResidualDot", RESIDUAL_DOT, 2, kLinearSolver, true},
        FailureCase{"StepBasis", STEP_BASIS, 1, kLinearSolver, true},
        FailureCase{"ResidualGram", RESIDUAL_GRAM, 2, kLinearSolver, true},
        FailureCase{"StartOfASearch", DIRECTIONAL_DERIVATIVE, 1, kOperation},
        FailureCase{"WithinASearch", DIRECTIONAL_DERIVATIVE, 2, kOperation}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(OpaqueVectors, AnInvalidStepIsRetriedAsStockDoes) {
  PluginRecord record;
  VectorRecord vectors;
  OpaquePlugin plugin(&record, &vectors, NEGATE_IF_VALID, 2);
  PatchTestProblem problem;
  ScopedSolverPlugin scoped_plugin(&plugin);
  const SolveResult result =
      Solve(problem, problem.Options(ceres::DENSE_SCHUR));
  EXPECT_NE(result.summary.termination_type, ceres::FAILURE);
  EXPECT_FALSE(result.summary.iterations[2].step_is_valid);
  EXPECT_LT(result.summary.final_cost, 0.1 * result.summary.initial_cost);
}

// Code that reads vectors on the host is refused, and the plugin can know it.
class HostRequiredTest
    : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(HostRequiredTest, IsRefusedWithItsReason) {
  const std::string what = GetParam().first;
  PluginRecord record;
  VectorRecord vectors;
  OpaquePlugin plugin(&record, &vectors);
  PatchTestProblem problem;
  ceres::Solver::Options options = problem.Options(ceres::DENSE_SCHUR);
  if (what == "InnerIterations") {
    options.use_inner_iterations = true;
  } else {
    options.trust_region_minimizer_iterations_to_dump = {1};
    options.trust_region_problem_dump_format_type = ceres::CONSOLE;
  }
  ScopedSolverPlugin scoped_plugin(&plugin);
  const SolveResult result = Solve(problem, options);
  EXPECT_TRUE(plugin.host_vectors_are_required);
  EXPECT_THAT(plugin.host_reason, HasSubstr(GetParam().second));
  EXPECT_EQ(result.summary.termination_type, ceres::FAILURE);
  EXPECT_THAT(result.summary.message, HasSubstr("not on the host"));
  EXPECT_THAT(result.summary.message, HasSubstr(GetParam().second));
  EXPECT_EQ(result.state, Bits(PatchTestProblem().State()));
  EXPECT_EQ(record.num_finishes, 1);
}

INSTANTIATE_TEST_SUITE_P(
    What,
    HostRequiredTest,
    ::testing::Values(std::make_pair("InnerIterations", "Inner iterations"),
                      std::make_pair("Dump", "Dumping")),
    [](const auto& info) { return std::string(info.param.first); });

TEST(OpaqueVectors, PartsMadeByCeresAreRefused) {
  for (bool make_linear_solver : {false, true}) {
    PluginRecord record;
    VectorRecord vectors;
    OpaquePlugin plugin(&record, &vectors);
    plugin.make_linear_solver = make_linear_solver;
    plugin.make_evaluator = !make_linear_solver;
    PatchTestProblem problem;
    ScopedSolverPlugin scoped_plugin(&plugin);
    const SolveResult result =
        Solve(problem, problem.Options(ceres::DENSE_SCHUR));
    EXPECT_EQ(result.summary.termination_type, ceres::FAILURE);
    EXPECT_THAT(result.summary.message, HasSubstr("made no"));
    EXPECT_EQ(vectors.num_allocated, 0);
  }
}

// Host vectors that only count may be used with everything.
class CountingHostVectors final : public HostTrustRegionVectors {
 public:
  explicit CountingHostVectors(int* count)
      : HostTrustRegionVectors(nullptr, 1), count_(count) {}
  bool StepNorms(int n,
                 const double* x,
                 const double* candidate_x,
                 double* x_norm,
                 double* step_norm) override {
    ++*count_;
    return HostTrustRegionVectors::StepNorms(
        n, x, candidate_x, x_norm, step_norm);
  }

 private:
  int* count_;
};

class HostVectorsPlugin final : public ceres::internal::SolverPlugin {
 public:
  std::shared_ptr<TrustRegionVectors> CreateTrustRegionVectors(
      PreprocessedProblem* /*pp*/) override {
    return std::make_shared<CountingHostVectors>(&count);
  }
  int count = 0;
};

TEST(HostVectors, OfAPluginWorkWithDoglegBoundsAndInnerIterations) {
  for (const std::string what : {"plain", "dogleg", "bounds", "inner"}) {
    SolveResult results[2];
    HostVectorsPlugin plugin;
    for (bool with_plugin : {false, true}) {
      PatchTestProblem problem;
      ceres::Solver::Options options = problem.Options(ceres::DENSE_SCHUR);
      if (what == "dogleg") {
        options.trust_region_strategy_type = ceres::DOGLEG;
      } else if (what == "bounds") {
        problem.problem()->SetParameterUpperBound(
            problem.point(0), 0, problem.point(0)[0] + 0.01);
      } else if (what == "inner") {
        options.use_inner_iterations = true;
      }
      ScopedSolverPlugin scoped_plugin(with_plugin ? &plugin : nullptr);
      results[with_plugin] = Solve(problem, options);
    }
    ExpectSameBits(results[0], results[1]);
    EXPECT_GT(plugin.count, 0) << what;
  }
}

// The basis that plugins get from the base class, against QR by Eigen.
class PlainVectors final : public HostTrustRegionVectors {
 public:
  PlainVectors() : HostTrustRegionVectors(nullptr, 1) {}
  bool StepBasis(int n,
                 const double* x,
                 const double* y,
                 double* u,
                 double* v,
                 int* rank,
                 double x_in_basis[2]) override {
    return TrustRegionVectors::StepBasis(n, x, y, u, v, rank, x_in_basis);
  }
  bool ResidualGram(int n,
                    const double* x,
                    const double* y,
                    double gram[4]) override {
    return TrustRegionVectors::ResidualGram(n, x, y, gram);
  }
};

TEST(PlainVectors, HaveTheBasisOfQr) {
  constexpr double kEps = std::numeric_limits<double>::epsilon();
  PlainVectors plain;
  HostTrustRegionVectors host(nullptr, 1);
  for (const int n : {1, 2, 3, 50}) {
    // y = multiple x + distance z
    for (const double multiple : {0.0, 1.0, -3.0, 1e5}) {
      for (const double distance : {0.0, 1e-12, 1e-6, 1.0, 1e6}) {
        SCOPED_TRACE(::testing::Message()
                     << n << " " << multiple << " " << distance);
        const ceres::Vector x = ceres::Vector::Random(n);
        const ceres::Vector y =
            multiple * x + distance * ceres::Vector::Random(n);
        ceres::Vector u(n);
        ceres::Vector v(n);
        double g[2];
        int rank = -1;
        ASSERT_TRUE(plain.StepBasis(
            n, x.data(), y.data(), u.data(), v.data(), &rank, g));
        ceres::Vector host_u(n);
        ceres::Vector host_v(n);
        double host_g[2];
        int host_rank = -1;
        ASSERT_TRUE(host.StepBasis(n,
                                   x.data(),
                                   y.data(),
                                   host_u.data(),
                                   host_v.data(),
                                   &host_rank,
                                   host_g));
        if (n == 1 || distance > 0.0 || multiple == 0.0) {
          EXPECT_EQ(rank, host_rank);
        }
        if (rank < 2) {
          continue;
        }
        // Two passes leave a few roundings.
        EXPECT_NEAR(u.norm(), 1.0, (n + 8) * kEps);
        EXPECT_NEAR(v.norm(), 1.0, (n + 8) * kEps);
        EXPECT_NEAR(u.dot(v), 0.0, (n + 8) * kEps);
        EXPECT_NEAR((g[0] * u + g[1] * v - x).norm(),
                    0.0,
                    8 * (n + 8) * kEps * x.norm());
        EXPECT_NEAR((u.dot(y) * u + v.dot(y) * v - y).norm(),
                    0.0,
                    8 * (n + 8) * kEps * y.norm());
        EXPECT_NEAR(std::hypot(g[0], g[1]),
                    std::hypot(host_g[0], host_g[1]),
                    8 * (n + 8) * kEps * x.norm());
      }
    }
    const ceres::Vector zero = ceres::Vector::Zero(n);
    ceres::Vector u(n);
    ceres::Vector v(n);
    double g[2];
    int rank = -1;
    ASSERT_TRUE(plain.StepBasis(
        n, zero.data(), zero.data(), u.data(), v.data(), &rank, g));
    EXPECT_EQ(rank, 0);
    const ceres::Vector x = ceres::Vector::Random(n);
    const ceres::Vector y = ceres::Vector::Random(n);
    double gram[4];
    double host_gram[4];
    ASSERT_TRUE(plain.ResidualGram(n, x.data(), y.data(), gram));
    ASSERT_TRUE(host.ResidualGram(n, x.data(), y.data(), host_gram));
    for (int i = 0; i < 4; ++i) {
      EXPECT_NEAR(gram[i], host_gram[i], n * kEps * x.norm() * y.norm() * 4);
    }
  }
}

}  // namespace
}  // namespace ceres_ext
