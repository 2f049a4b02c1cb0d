// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Small random problems with random degeneracies, against stock Ceres with the
// same linear solver, preconditioner and eta: the same kind of end, and no
// higher cost. How to run more cases: random_cases.h.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ceres/autodiff_cost_function.h"
#include "ceres/ceres.h"
#include "ceres/manifold.h"
#include "ceres/normal_prior.h"
#include "ceres/product_manifold.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/solve.h"
#include "glog/logging.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/functors.h"
#include "tests/common/has_device.h"
#include "tests/common/random_cases.h"

namespace ceres_ext {
namespace {

#ifdef CERES_EXT_EMULATED
constexpr int kNumCases = 60;
#else
constexpr int kNumCases = 600;
#endif

const bool kIsQuiet = [] {
  FLAGS_minloglevel = google::GLOG_FATAL;
  return true;
}();

ceres::LossFunction* RandomLoss(Random* random) {
  switch (random->Below(12)) {
    case 0:
      return new ceres::HuberLoss(random->OneOf({0.1, 1.0, 10.0}));
    case 1:
      return new ceres::CauchyLoss(random->OneOf({0.5, 2.0}));
    case 2:
      return new ceres::SoftLOneLoss(1.0);
    case 3:
      return new ceres::ArctanLoss(20.0);
    case 4:
      return new ceres::TolerantLoss(2.0, 1.0);
    case 5:
      return new ceres::TukeyLoss(random->OneOf({5.0, 100.0}));
    case 6:
      return new ceres::ScaledLoss(new ceres::HuberLoss(2.0),
                                   random->OneOf({0.0, 1e-6, 3.0}),
                                   ceres::TAKE_OWNERSHIP);
    case 7:
      return new ceres::ScaledLoss(nullptr, 0.5, ceres::TAKE_OWNERSHIP);
    case 8:
      return new ceres::TrivialLoss;
    default:
      return nullptr;
  }
}

// The changes that make a problem degenerate, applied to the numbers.
void Degenerate(Random* random, BalTestProblem* bal) {
  const int camera = random->Below(bal->num_cameras());
  const int point = random->Below(bal->num_points());
  const auto first = [bal](int k) { return bal->camera_size - 6 + k; };
  switch (random->Below(9)) {
    case 0:  // coincident cameras
      std::copy_n(bal->camera(0), bal->camera_size, bal->camera(camera));
      break;
    case 1:  // coincident points
      for (int i = random->Below(bal->num_points()); i >= 0; --i) {
        std::copy_n(bal->point(point), 3, bal->point(i));
      }
      break;
    case 2: {  // an observation many times
      const size_t k = random->Below(static_cast<int>(bal->camera_id.size()));
      for (int i = random->OneOf({1, 2, 30}); i > 0; --i) {
        bal->camera_id.push_back(bal->camera_id[k]);
        bal->point_id.push_back(bal->point_id[k]);
        bal->observations.push_back(bal->observations[2 * k]);
        bal->observations.push_back(bal->observations[2 * k + 1]);
      }
      break;
    }
    case 3:  // columns of zeros: no focal length
      bal->camera(camera)[first(3)] = 0.0;
      break;
    case 4:  // far away
      for (int i = 0; i < 3; ++i) {
        bal->point(point)[i] *= random->OneOf({1e3, 1e6});
      }
      break;
    case 5:  // an outlier
      bal->observations[random->Below(static_cast<int>(
          bal->observations.size()))] += random->OneOf({100.0, -1e4, 1e6});
      break;
    case 6: {  // observations of half the points, or cameras, are left out
      BalTestProblem rest = *bal;
      rest.camera_id.clear();
      rest.point_id.clear();
      rest.observations.clear();
      const bool by_point = random->Chance(0.5);
      for (size_t k = 0; k < bal->camera_id.size(); ++k) {
        if (k == 0 ||
            (by_point ? bal->point_id[k] : bal->camera_id[k]) % 2 == 0) {
          rest.camera_id.push_back(bal->camera_id[k]);
          rest.point_id.push_back(bal->point_id[k]);
          rest.observations.push_back(bal->observations[2 * k]);
          rest.observations.push_back(bal->observations[2 * k + 1]);
        }
      }
      *bal = rest;
      break;
    }
    case 7:  // a point on the axis of a camera: no derivative by distortion
      std::fill_n(bal->camera(camera), bal->camera_size - 6, 0.0);
      if (bal->camera_size == 10) {
        bal->camera(camera)[0] = 1.0;
      }
      for (int i = 0; i < 3; ++i) {
        bal->camera(camera)[first(i)] =
            -bal->point(point)[i] - (i == 2 ? 4.0 : 0.0);
      }
      break;
    default:  // all measurements are fulfilled from the start
      for (size_t k = 0; k < bal->camera_id.size(); ++k) {
        double prediction[2];
        const double* x = bal->camera(bal->camera_id[k]);
        const double* y = bal->point(bal->point_id[k]);
        if (bal->camera_size == 9) {
          AutodiffReprojection<3>{0.0, 0.0}(x, y, prediction);
        } else {
          AutodiffReprojection<4>{0.0, 0.0}(x, y, prediction);
        }
        std::copy_n(prediction, 2, &bal->observations[2 * k]);
      }
      break;
  }
}

enum class Rows { kObservations, kAutodiff, kViews };

// A problem that can be built several times, of parameters of its own.
class RandomProblem {
 public:
  explicit RandomProblem(Random* given) {
    Random& random = *given;
    const int num_cameras = 1 + random.Below(6);
    const int num_points = 1 + random.Below(25);
    bal_ = MakeBalTestProblem(num_cameras,
                              num_points,
                              1 + random.Below(num_cameras),
                              random.Chance(0.7) ? 9 : 10,
                              static_cast<unsigned>(random.Below(1 << 30)));
    for (int i = random.Below(4); i > 0; --i) {
      Degenerate(&random, &bal_);
    }
    seed_of_blocks_ = random.generator()();
    rows_ = random.OneOf({Rows::kObservations, Rows::kAutodiff, Rows::kViews});
    if (bal_.camera_size != 9 && rows_ == Rows::kViews) {
      rows_ = Rows::kAutodiff;
    }
    options_.linear_solver_type = random.OneOf(
        {ceres::ITERATIVE_SCHUR, ceres::ITERATIVE_SCHUR, ceres::CGNR});
    if (kDevice == DEVICE_CUDA && random.Chance(0.4)) {
      // Which the host leaves to stock Ceres.
      options_.linear_solver_type =
          random.OneOf({ceres::DENSE_SCHUR, ceres::SPARSE_SCHUR});
    }
    options_.preconditioner_type =
        options_.linear_solver_type == ceres::CGNR
            ? random.OneOf({ceres::IDENTITY, ceres::JACOBI})
            : random.OneOf({ceres::IDENTITY,
                            ceres::JACOBI,
                            ceres::SCHUR_JACOBI,
                            ceres::SCHUR_POWER_SERIES_EXPANSION});
    // The host leaves this to stock Ceres too.
    options_.use_explicit_schur_complement =
        kDevice == DEVICE_CUDA &&
        options_.linear_solver_type == ceres::ITERATIVE_SCHUR &&
        options_.preconditioner_type == ceres::SCHUR_JACOBI &&
        random.Chance(0.5);
    options_.eta = random.OneOf({1e-1, 1e-2, 1e-6, 1e-12});
    options_.num_threads = 1 + random.Below(3);
    options_.max_num_iterations = random.OneOf({1, 5, 30});
    options_.jacobi_scaling = random.Chance(0.8);
    options_.use_nonmonotonic_steps = random.Chance(0.1);
    options_.initial_trust_region_radius = random.OneOf({1.0, 1e2, 1e4});
    options_.max_linear_solver_iterations = random.OneOf({20, 500, 500});
    options_.logging_type = ceres::SILENT;
    has_ordering_ = random.Chance(0.8);
  }

  bool has_ordering() const { return has_ordering_; }
  const BalTestProblem& bal() const { return bal_; }

  // The same rows, by stock's or by our cost functions.
  std::unique_ptr<ceres::Problem> Build(bool is_stock,
                                        BalTestProblem* bal,
                                        ceres::Solver::Options* options) const {
    Random random(seed_of_blocks_);
    auto problem = std::make_unique<ceres::Problem>();
    const double mixed_rows = random.OneOf({0.0, 0.0, 0.2});
    const double own_loss = random.OneOf({0.0, 0.0, 0.3, 1.0});
    ceres::LossFunction* shared =
        own_loss == 0.0 ? RandomLoss(&random) : nullptr;
    for (size_t k = 0; k < bal->camera_id.size(); ++k) {
      const double u = bal->observations[2 * k];
      const double v = bal->observations[2 * k + 1];
      double* camera = bal->camera(bal->camera_id[k]);
      double* point = bal->point(bal->point_id[k]);
      const bool is_autodiff = random.Chance(mixed_rows);
      ceres::LossFunction* loss =
          random.Chance(own_loss) ? RandomLoss(&random) : shared;
      if (rows_ == Rows::kViews) {
        problem->AddResidualBlock(
            new ceres::AutoDiffCostFunction<SplitReprojection, 2, 6, 3, 3>(
                new SplitReprojection{u, v}),
            loss,
            camera,
            bal->camera(0) + 6,
            point);
        continue;
      }
      ceres::CostFunction* cost = nullptr;
      if (!is_stock && rows_ == Rows::kObservations && !is_autodiff) {
        cost = bal->camera_size == 9
                   ? CreateBalReprojectionError(u, v)
                   : CreateBalReprojectionErrorQuaternion(u, v);
      } else if (bal->camera_size == 9) {
        cost =
            new ceres::AutoDiffCostFunction<AutodiffReprojection<3>, 2, 9, 3>(
                new AutodiffReprojection<3>{u, v});
      } else {
        cost =
            new ceres::AutoDiffCostFunction<AutodiffReprojection<4>, 2, 10, 3>(
                new AutodiffReprojection<4>{u, v});
      }
      problem->AddResidualBlock(cost, loss, camera, point);
    }
    AddOthers(&random, bal, problem.get());
    *options = options_;
    if (has_ordering_) {
      auto ordering = std::make_shared<ceres::ParameterBlockOrdering>();
      std::vector<double*> blocks;
      problem->GetParameterBlocks(&blocks);
      for (double* const block : blocks) {
        const bool is_point = block >= bal->points.data() &&
                              block < bal->points.data() + bal->points.size();
        ordering->AddElementToGroup(block, is_point ? 0 : 1);
      }
      options->linear_solver_ordering = ordering;
    }
    return problem;
  }

  // The end of a solve of stock, or of this library.
  struct Solved {
    BalTestProblem bal;
    Summary summary;
  };
  Solved Solve(bool is_stock,
               const Options& ext_options,
               const BalTestProblem& start) const {
    Solved solved;
    solved.bal = start;
    ceres::Solver::Options options;
    auto problem = Build(is_stock, &solved.bal, &options);
    if (is_stock) {
      ceres::Solver::Summary& of_ceres = solved.summary;
      ceres::Solve(options, problem.get(), &of_ceres);
    } else {
      ceres_ext::Solve(options, ext_options, problem.get(), &solved.summary);
    }
    return solved;
  }

  // The fault of our end compared with stock's; otherwise empty. Ceres's
  // conjugate gradients fail on systems of few columns that they have solved
  // exactly and take another step on; ours stop.
  static std::string WhyWorse(const Summary& ours,
                              const Summary& stock,
                              double rounding) {
    if (!ours.IsSolutionUsable()) {
      return stock.IsSolutionUsable() ? ours.message + " | " + stock.message
                                      : "";
    }
    if (!stock.IsSolutionUsable()) {
      return stock.message.find("consecutive invalid steps") !=
                         std::string::npos &&
                     ours.final_cost <= ours.initial_cost
                 ? ""
                 : ours.message + " | " + stock.message;
    }
    return ours.final_cost <= 1.001 * stock.final_cost + rounding
               ? ""
               : "cost " + std::to_string(ours.final_cost) + ", of stock " +
                     std::to_string(stock.final_cost);
  }

  // True if stock ends so from a start that differs by rounding: where a
  // problem is ill-conditioned, rounding is all that steps are made of.
  bool MayEndSo(const Summary& ours, double rounding, Random* random) const {
    for (int i = 0; i < 3000; ++i) {
      BalTestProblem start = bal_;
      for (std::vector<double>* values : {&start.cameras, &start.points}) {
        for (double& value : *values) {
          value *= 1.0 + random->Uniform(-1e-12, 1e-12);
        }
      }
      if (WhyWorse(ours, Solve(true, {}, start).summary, rounding).empty()) {
        return true;
      }
    }
    return false;
  }

 private:
  // Rows of other shapes, manifolds, constant blocks.
  void AddOthers(Random* random,
                 BalTestProblem* bal,
                 ceres::Problem* problem) const {
    if (rows_ != Rows::kViews) {
      for (int i = 1; i < bal->num_cameras(); ++i) {
        if (random->Chance(0.15)) {
          auto* const near = new Near<4>{0.01};
          ceres::CostFunction* cost = nullptr;
          if (bal->camera_size == 9) {
            cost = new ceres::AutoDiffCostFunction<Near<4>, 4, 9, 9>(near);
          } else {
            cost = new ceres::AutoDiffCostFunction<Near<4>, 4, 10, 10>(near);
          }
          problem->AddResidualBlock(
              cost, RandomLoss(random), bal->camera(0), bal->camera(i));
        }
      }
    }
    for (int i = 0; i < bal->num_points(); ++i) {
      if (random->Chance(0.05)) {
        // A prior, of no weight now and then.
        const ceres::Matrix weight =
            random->OneOf({0.0, 1e-3, 1e3}) * ceres::Matrix::Identity(3, 3);
        problem->AddResidualBlock(
            new ceres::NormalPrior(weight, ceres::Vector::Constant(3, 0.25)),
            nullptr,
            bal->point(i));
      }
    }
    // Stock aborts on this preconditioner where no point varies.
    const bool varies =
        options_.preconditioner_type == ceres::SCHUR_POWER_SERIES_EXPANSION;
    const double constant_cameras = random->OneOf({0.0, 0.0, 0.3, 1.0});
    const double constant_points =
        varies ? 0.0 : random->OneOf({0.0, 0.0, 0.2, 1.0});
    const double subsets = varies ? 0.0 : random->OneOf({0.0, 0.0, 0.5});
    const auto change = [&](double* block, bool is_point) {
      if (!problem->HasParameterBlock(block)) {
        return;
      }
      const int size = problem->ParameterBlockSize(block);
      if (size == 10) {
        problem->SetManifold(
            block,
            new ceres::ProductManifold<ceres::QuaternionManifold,
                                       ceres::EuclideanManifold<6>>());
      } else if (random->Chance(subsets)) {
        std::vector<int> constant;
        for (int i = 0; i < size; ++i) {
          if (random->Chance(random->OneOf({0.3, 1.0}))) {
            constant.push_back(i);
          }
        }
        problem->SetManifold(block, new ceres::SubsetManifold(size, constant));
      }
      if (random->Chance(is_point ? constant_points : constant_cameras)) {
        problem->SetParameterBlockConstant(block);
      }
    };
    for (int i = 0; i < bal->num_cameras(); ++i) {
      change(bal->camera(i), false);
    }
    if (rows_ == Rows::kViews) {
      change(bal->camera(0) + 6, false);
    }
    for (int i = 0; i < bal->num_points(); ++i) {
      change(bal->point(i), true);
    }
  }

  uint64_t seed_of_blocks_;
  Rows rows_;
  bool has_ordering_;
  BalTestProblem bal_;
  ceres::Solver::Options options_;
};

TEST(RandomProblems, EndAsInStockCeres) {
  int num_taken = 0;
  int num_failed = 0;
  int num_by_rounding = 0;
  int num_lower = 0;
  int num_compared = 0;
  ForEachCase(kNumCases, [&](Random* random) {
    const RandomProblem problem(random);
    Options ext_options;
    ext_options.device = kDevice;
    ext_options.preconditioner_blocks = PRECONDITIONER_BLOCKS_SINGLE;
    ext_options.schur_factorization =
        random->OneOf({SCHUR_FACTORIZATION_DENSE, SCHUR_FACTORIZATION_SPARSE});
    const auto stock = problem.Solve(true, {}, problem.bal());
    const auto ours = problem.Solve(false, ext_options, problem.bal());
    const Summary& summary = ours.summary;
    num_taken += summary.path == PATH_FULL ? 1 : 0;
    num_failed += summary.IsSolutionUsable() ? 0 : 1;
    EXPECT_FALSE(summary.message.empty());
    EXPECT_TRUE(IsFinite(ours.bal.cameras) && IsFinite(ours.bal.points));
    if (!summary.IsSolutionUsable()) {
      EXPECT_EQ(ours.bal.cameras, problem.bal().cameras);
      EXPECT_EQ(ours.bal.points, problem.bal().points);
    }
    const double initial_cost = stock.summary.initial_cost;
    // Rounding of a sum of squares, each the difference of two numbers.
    double rounding = 1e-9 * initial_cost + 1e-15;
    for (const double value : problem.bal().observations) {
      rounding += 1e-23 * value * value;
    }
    EXPECT_NEAR(summary.initial_cost, initial_cost, rounding);
    // If Ceres has one group left to choose from, the two may eliminate
    // different blocks.
    const std::vector<int>& ordering = summary.linear_solver_ordering_used;
    if (!problem.has_ordering() || ordering.size() < 2 ||
        ordering != stock.summary.linear_solver_ordering_used) {
      return;
    }
    ++num_compared;
    num_lower +=
        RandomProblem::WhyWorse(stock.summary, summary, rounding).empty() ? 0
                                                                          : 1;
    const std::string why =
        RandomProblem::WhyWorse(summary, stock.summary, rounding);
    if (!why.empty()) {
      ++num_by_rounding;
      EXPECT_TRUE(problem.MayEndSo(summary, rounding, random))
          << why << "\n"
          << summary.FullReport() << stock.summary.FullReport();
    }
  });
  std::printf(
      "%d taken, %d failed; of %d compared %d are worse than stock by "
      "rounding, "
      "%d better\n",
      num_taken,
      num_failed,
      num_compared,
      num_by_rounding,
      num_lower);
}

}  // namespace
}  // namespace ceres_ext
