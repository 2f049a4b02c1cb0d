// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The table "What is not supported" of docs/options.md, row by row: what this
// library or its device does not do, what happens then, where the user sees it,
// and that the end is stock's.

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "ceres/autodiff_cost_function.h"
#include "ceres/covariance.h"
#include "ceres/loss_function.h"
#include "ceres/manifold.h"
#include "ceres/ordered_groups.h"
#include "ceres/sphere_manifold.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/solve.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/functors.h"
#include "tests/common/own_loss.h"
#include "tests/common/own_manifold.h"

namespace ceres_ext {
namespace {

// If the device is not the machine of a row, `device` names the reason. A
// computer without a device runs all rows on the host for another one.
#ifdef CERES_EXT_EMULATED
constexpr bool kHasDevice = true;
#else
constexpr bool kHasDevice = false;
#endif

using Modify = void (*)(BalTestProblem*,
                        ceres::Problem*,
                        ceres::Solver::Options*);

struct Row {
  const char* name;
  Modify modify;
  SolvePath path = PATH_FULL;
  const char* reason = nullptr;  // part of path_reason; null: none expected
  // Part of device; null: the device is used.
  const char* why_no_device = nullptr;
  const char* settings = "device=cuda";
};

std::filesystem::path DumpFolder() {
  return std::filesystem::temp_directory_path() /
         ("ceres_ext_left_out_" + std::to_string(getpid()));
}

// The same problem each time, with a frame and a scale.
std::unique_ptr<ceres::Problem> Build(BalTestProblem* bal) {
  auto problem = BuildProblem(bal, Derivatives::kAnalytic);
  for (int i = 0; i < bal->num_cameras(); ++i) {
    // A prior on a camera holds the scale.
    problem->AddResidualBlock(
        new ceres::AutoDiffCostFunction<Prior<9>, 9, 9>(
            new Prior<9>(Prior<9>::Of(10.0, bal->camera(i)))),
        nullptr,
        bal->camera(i));
  }
  return problem;
}

class LeftOut : public testing::TestWithParam<Row> {
 protected:
  static ceres::Solver::Options TightOptions(BalTestProblem* bal) {
    ceres::Solver::Options options = TestOptions(bal);
    options.max_num_iterations = 100;
    options.eta = 1e-8;
    options.max_linear_solver_iterations = 500;
    options.function_tolerance = 1e-14;
    options.gradient_tolerance = 1e-12;
    options.parameter_tolerance = 1e-12;
    return options;
  }

  static Summary SolveRow(bool enabled, FallbackType fallback) {
    BalTestProblem bal = MakeBalTestProblem(6, 40, 4, 9);
    auto problem = Build(&bal);
    ceres::Solver::Options options = TightOptions(&bal);
    std::vector<double> wide(17, 0.1);
    GetParam().modify(&bal, problem.get(), &options);
    if (options.linear_solver_ordering == nullptr) {
      // Rows about an order of their own add their block here.
      problem->AddResidualBlock(
          new ceres::AutoDiffCostFunction<Near<7>, 7, 9, 17>(new Near<7>{0.1}),
          nullptr,
          bal.camera(0),
          wide.data());
      options.linear_solver_ordering =
          std::make_shared<ceres::ParameterBlockOrdering>();
      options.linear_solver_ordering->AddElementToGroup(wide.data(), 0);
      for (int i = 0; i < bal.num_points(); ++i) {
        options.linear_solver_ordering->AddElementToGroup(bal.point(i), 1);
      }
      for (int i = 0; i < bal.num_cameras(); ++i) {
        options.linear_solver_ordering->AddElementToGroup(bal.camera(i), 1);
      }
    }
    Options ext_options;
    EXPECT_TRUE(ParseOptions(GetParam().settings, &ext_options, nullptr));
    ext_options.enabled = enabled;
    ext_options.fallback = fallback;
    Summary summary;
    Solve(options, ext_options, problem.get(), &summary);
    return summary;
  }
};

TEST_P(LeftOut, IsSaidAndEndsWhereStockEnds) {
  const Row& row = GetParam();
  const Summary stock = SolveRow(/*enabled=*/false, FALLBACK_TO_CERES);
  const Summary summary = SolveRow(/*enabled=*/true, FALLBACK_TO_CERES);
  ASSERT_TRUE(stock.IsSolutionUsable()) << stock.message;
  ASSERT_TRUE(summary.IsSolutionUsable()) << summary.message;
  EXPECT_EQ(summary.path, row.path) << summary.path_reason;
  if (row.reason != nullptr) {
    EXPECT_NE(summary.path_reason.find(row.reason), std::string::npos)
        << summary.path_reason;
  }
  if (row.path == PATH_FULL && kHasDevice) {
    const bool on_host = summary.device.find("host") == 0;
    EXPECT_EQ(on_host, row.why_no_device != nullptr) << summary.device;
    if (row.why_no_device != nullptr) {
      EXPECT_NE(summary.device.find(row.why_no_device), std::string::npos)
          << summary.device;
    }
  }
  if (row.path == PATH_CERES) {
    EXPECT_EQ(summary.device, "");
    EXPECT_NE(summary.FullReport().find(row.reason), std::string::npos);
    // Ceres asks for no linear solver in a line search.
    if (stock.minimizer_type != ceres::LINE_SEARCH) {
      const Summary refused = SolveRow(/*enabled=*/true, FALLBACK_REFUSE);
      EXPECT_EQ(refused.path, PATH_CERES);
      EXPECT_EQ(refused.termination_type, ceres::FAILURE);
      EXPECT_NE(refused.message.find(row.reason), std::string::npos)
          << refused.message;
    }
  }
  // Both end where the gradient is zero to a part of 1e-10 of the start's.
  EXPECT_NEAR(summary.final_cost, stock.final_cost, 1e-6 * stock.final_cost);
  if (std::filesystem::exists(DumpFolder())) {
    // J, b, D and x of iteration 1, of stock and, over them, of this library.
    int num_files = 0;
    for (const auto& file : std::filesystem::directory_iterator(DumpFolder())) {
      num_files += file.file_size() > 0 ? 1 : 0;
    }
    EXPECT_GE(num_files, 4);
    std::filesystem::remove_all(DumpFolder());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Rows,
    LeftOut,
    testing::Values(
        Row{"Nothing", [](auto*, auto*, auto*) {}},
        Row{"Bounds",
            [](BalTestProblem* bal, ceres::Problem* problem, auto*) {
              for (int i = 0; i < bal->num_cameras(); ++i) {
                double* const camera = bal->camera(i);
                problem->SetParameterLowerBound(camera, 6, camera[6] - 0.5);
                problem->SetParameterUpperBound(camera, 6, camera[6] + 0.5);
              }
            }},
        Row{"Dogleg",
            [](auto*, auto*, auto* options) {
              options->trust_region_strategy_type = ceres::DOGLEG;
              // Stock refuses it with an iterative solver.
              options->linear_solver_type = ceres::DENSE_SCHUR;
            }},
        Row{"DoglegByChoiceOfSteps",
            [](auto*, auto*, auto* options) {
              options->trust_region_strategy_type = ceres::DOGLEG;
              options->linear_solver_type = ceres::DENSE_QR;
            },
            PATH_FULL,
            "DENSE_SCHUR was chosen in place of DENSE_QR",
            nullptr,
            "device=cuda,linear_solver=auto"},
        Row{"InnerIterations",
            [](auto*, auto*, auto* options) {
              options->use_inner_iterations = true;
            },
            PATH_FULL,
            nullptr,
            "nner iterations"},
        Row{"NonmonotonicSteps",
            [](auto*, auto*, auto* options) {
              options->use_nonmonotonic_steps = true;
            }},
        Row{"Dumps",
            [](auto*, auto*, auto* options) {
              std::filesystem::create_directories(DumpFolder());
              options->trust_region_minimizer_iterations_to_dump = {1};
              options->trust_region_problem_dump_format_type = ceres::TEXTFILE;
              options->trust_region_problem_dump_directory =
                  DumpFolder().string();
            },
            PATH_FULL,
            nullptr,
            "ump"},
        Row{"GradientChecking",
            [](auto*, auto*, auto* options) {
              options->check_gradients = true;
              options->gradient_check_relative_precision = 1e-2;
            },
            PATH_FULL,
            "all residual blocks are evaluated by Ceres"},
        Row{"LossOfAUser",
            [](BalTestProblem* bal, ceres::Problem* problem, auto*) {
              auto* loss = new OwnLoss;
              for (size_t k = 0; k < bal->camera_id.size(); k += 3) {
                problem->AddResidualBlock(
                    CreateBalReprojectionError(bal->observations[2 * k] + 3.0,
                                               bal->observations[2 * k + 1]),
                    loss,
                    bal->camera(bal->camera_id[k]),
                    bal->point(bal->point_id[k]));
              }
            },
            PATH_FULL,
            "214 residual blocks are evaluated by this library"},
        Row{"StateInEveryIteration",
            [](auto*, auto*, auto* options) {
              options->update_state_every_iteration = true;
            }},
        Row{"LineSearch",
            [](auto*, auto*, auto* options) {
              options->minimizer_type = ceres::LINE_SEARCH;
              options->max_num_iterations = 2000;
              options->max_lbfgs_rank = 50;
            },
            PATH_CERES,
            "LINE_SEARCH"},
        Row{"SparseNormalCholesky",
            [](auto*, auto*, auto* options) {
              options->linear_solver_type = ceres::SPARSE_NORMAL_CHOLESKY;
            }},
        Row{"DenseNormalCholesky",
            [](auto*, auto*, auto* options) {
              options->linear_solver_type = ceres::DENSE_NORMAL_CHOLESKY;
            }},
        Row{"DynamicSparsity",
            [](auto*, auto*, auto* options) {
              options->linear_solver_type = ceres::SPARSE_NORMAL_CHOLESKY;
              options->dynamic_sparsity = true;
            },
            PATH_CERES,
            "dynamic_sparsity"},
        Row{"DenseQr",
            [](auto*, auto*, auto* options) {
              options->linear_solver_type = ceres::DENSE_QR;
            },
            PATH_CERES,
            "DENSE_QR is not supported, because it factorises the Jacobian"},
        Row{"PowerSeries",
            [](auto*, auto*, auto* options) {
              options->preconditioner_type =
                  ceres::SCHUR_POWER_SERIES_EXPANSION;
            }},
        Row{"SpseInitialization",
            [](auto*, auto*, auto* options) {
              options->use_spse_initialization = true;
            }},
        Row{"SparseSchurInPlaceOfWhichOneIsChosen",
            [](auto*, auto*, auto* options) {
              options->linear_solver_type = ceres::SPARSE_SCHUR;
            },
            PATH_FULL,
            "ITERATIVE_SCHUR with SCHUR_JACOBI was chosen in place of SPARSE_",
            nullptr,
            "device=cuda,linear_solver=iterative_schur"},
        Row{"DoglegInPlaceOfWhichOneIsChosen",
            [](auto*, auto*, auto* options) {
              options->trust_region_strategy_type = ceres::DOGLEG;
              options->linear_solver_type = ceres::DENSE_SCHUR;
            },
            PATH_FULL,
            "is not available: DOGLEG",
            nullptr,
            "device=cuda,linear_solver=iterative_schur"},
        Row{"WhatIsTooSmallForADevice",
            [](auto*, auto*, auto*) {},
            PATH_FULL,
            nullptr,
            "device = AUTO estimates about",
            "device=auto"},
        Row{"ClusterJacobi",
            [](auto*, auto*, auto* options) {
              options->preconditioner_type = ceres::CLUSTER_JACOBI;
            },
            PATH_CERES,
            "CLUSTER_JACOBI"},
        Row{"ClusterTridiagonal",
            [](auto*, auto*, auto* options) {
              options->preconditioner_type = ceres::CLUSTER_TRIDIAGONAL;
            },
            PATH_CERES,
            "CLUSTER_TRIDIAGONAL"},
        Row{"EliminatedBlocksOfSeventeenColumns",
            [](auto*, auto*, auto* options) {
              options->linear_solver_ordering = nullptr;
            },
            PATH_FULL,
            "have more than 16 tangent dimensions and are not eliminated"}),
    [](const auto& info) { return std::string(info.param.name); });

// User-defined manifolds stay on the host, and nothing else.
TEST(LeftOutParts, AUsersManifoldIsTheHosts) {
  double costs[2];
  for (const bool stock : {true, false}) {
    BalTestProblem bal = MakeBalTestProblem(6, 40, 4, 9);
    auto problem = Build(&bal);
    problem->SetManifold(bal.camera(1), new OwnManifold(9));
    problem->SetManifold(bal.camera(2), new ceres::SphereManifold<9>());
    problem->SetManifold(bal.point(3), new ceres::SphereManifold<3>());
    problem->SetManifold(bal.point(4), new OwnManifold(3));
    ceres::Solver::Options options = TestOptions(&bal);
    options.max_num_iterations = 100;
    options.eta = 1e-8;
    options.max_linear_solver_iterations = 500;
    Options ext_options;
    ext_options.device = DEVICE_CUDA;
    ext_options.enabled = !stock;
    Summary summary;
    Solve(options, ext_options, problem.get(), &summary);
    ASSERT_TRUE(summary.IsSolutionUsable()) << summary.message;
    costs[stock ? 0 : 1] = summary.final_cost;
    const bool on_device = !stock && summary.device.rfind("host", 0) != 0;
    if (!stock) {
      EXPECT_EQ(summary.path, PATH_FULL) << summary.path_reason;
      EXPECT_TRUE(on_device || !kHasDevice) << summary.device;
    }
    EXPECT_EQ(summary.num_host_manifolds, on_device ? 2 : 0);
    EXPECT_EQ(summary.host_manifold_type,
              on_device ? "ceres_ext::OwnManifold" : "");
    EXPECT_EQ(summary.FullReport().find(
                  "Manifolds on host    2 blocks, the first "
                  "ceres_ext::OwnManifold\n") != std::string::npos,
              on_device);
  }
  EXPECT_NEAR(costs[1], costs[0], 1e-6 * costs[0]);
}

// Covariance is Ceres's own, of the state that a solve has left.
TEST(LeftOutParts, CovarianceAfterwards) {
  double variance[2][9 * 9];
  for (const bool stock : {true, false}) {
    BalTestProblem bal = MakeBalTestProblem(6, 40, 4, 9);
    auto problem = Build(&bal);
    ceres::Solver::Options options = TestOptions(&bal);
    options.max_num_iterations = 100;
    options.eta = 1e-10;
    options.function_tolerance = 1e-16;
    options.gradient_tolerance = 1e-10;
    Options ext_options;
    ext_options.device = DEVICE_CUDA;
    ext_options.enabled = !stock;
    Summary summary;
    Solve(options, ext_options, problem.get(), &summary);
    EXPECT_EQ(summary.path, stock ? PATH_CERES : PATH_FULL);
    ceres::Covariance covariance{ceres::Covariance::Options()};
    const std::vector<std::pair<const double*, const double*>> blocks = {
        {bal.camera(1), bal.camera(1)}};
    ASSERT_TRUE(covariance.Compute(blocks, problem.get()));
    ASSERT_TRUE(covariance.GetCovarianceBlock(
        bal.camera(1), bal.camera(1), variance[stock ? 0 : 1]));
  }
  for (int i = 0; i < 9; ++i) {
    for (int j = 0; j < 9; ++j) {
      // Both states are within 1e-8 of the minimum.
      EXPECT_NEAR(variance[1][9 * i + j],
                  variance[0][9 * i + j],
                  1e-4 * std::sqrt(variance[0][10 * i] * variance[0][10 * j]));
    }
  }
}

// An order that lacks blocks is refused, with stock's own words.
TEST(LeftOutParts, AnOrderThatLacksBlocksIsRefused) {
  std::string messages[2];
  for (const bool stock : {true, false}) {
    BalTestProblem bal = MakeBalTestProblem(6, 40, 4, 9);
    auto problem = BuildProblem(&bal, Derivatives::kAnalytic);
    ceres::Solver::Options options = TestOptions(&bal);
    options.linear_solver_ordering->Remove(bal.camera(2));
    options.linear_solver_ordering->Remove(bal.point(5));
    Options ext_options;
    ext_options.device = DEVICE_CUDA;
    ext_options.enabled = !stock;
    Summary summary;
    Solve(options, ext_options, problem.get(), &summary);
    EXPECT_EQ(summary.termination_type, ceres::FAILURE);
    messages[stock ? 0 : 1] = summary.message;
  }
  EXPECT_EQ(messages[1], messages[0]);
}

// A power series that stock refuses is refused, with its own words.
TEST(LeftOutParts, WhatIsNoPowerSeriesIsRefused) {
  const Modify modify[] = {
      [](auto*, auto*, auto* options) {
        options->linear_solver_type = ceres::CGNR;
        options->preconditioner_type = ceres::SCHUR_POWER_SERIES_EXPANSION;
      },
      [](auto*, auto*, auto* options) {
        options->preconditioner_type = ceres::SCHUR_POWER_SERIES_EXPANSION;
        options->max_num_spse_iterations = 0;
      },
      [](auto*, auto*, auto* options) {
        options->use_spse_initialization = true;
        options->spse_tolerance = -0.5;
      }};
  for (const Modify& refused : modify) {
    std::string messages[2];
    for (const bool stock : {true, false}) {
      BalTestProblem bal = MakeBalTestProblem(6, 40, 4, 9);
      auto problem = BuildProblem(&bal, Derivatives::kAnalytic);
      ceres::Solver::Options options = TestOptions(&bal);
      refused(&bal, problem.get(), &options);
      Options ext_options;
      ext_options.enabled = !stock;
      Summary summary;
      Solve(options, ext_options, problem.get(), &summary);
      EXPECT_EQ(summary.termination_type, ceres::FAILURE);
      messages[stock ? 0 : 1] = summary.message;
    }
    EXPECT_NE(messages[0], "");
    EXPECT_EQ(messages[1], messages[0]);
  }
}

// If no eliminated block varies, Ceres solves by CGNR, with JACOBI for
// SCHUR_JACOBI. It forgets the power series, and aborts.
TEST(LeftOutParts, PowerSeriesWithoutEliminatedBlocksIsJacobi) {
  Summary summaries[3];
  for (int i = 0; i < 3; ++i) {
    BalTestProblem bal = MakeBalTestProblem(6, 40, 4, 9);
    auto problem = BuildProblem(
        &bal, i < 2 ? Derivatives::kAnalytic : Derivatives::kAutodiff);
    for (int j = 0; j < bal.num_points(); ++j) {
      problem->SetParameterBlockConstant(bal.point(j));
    }
    ceres::Solver::Options options = TestOptions(&bal);
    Options ext_options;
    ext_options.enabled = i > 0;
    if (i > 0) {
      options.preconditioner_type = ceres::SCHUR_POWER_SERIES_EXPANSION;
      options.use_spse_initialization = true;
    }
    if (i == 2) {
      // Which these cost functions have none of: stock Ceres takes over.
      ext_options.jacobian = JACOBIAN_RECOMPUTED;
    }
    Solve(options, ext_options, problem.get(), &summaries[i]);
    EXPECT_EQ(summaries[i].path, i == 1 ? PATH_FULL : PATH_CERES)
        << summaries[i].path_reason;
    EXPECT_EQ(summaries[i].linear_solver_type_used, ceres::CGNR);
    EXPECT_EQ(summaries[i].preconditioner_type_used, ceres::JACOBI);
    ASSERT_EQ(summaries[i].iterations.size(), summaries[0].iterations.size());
    for (size_t k = 0; k < summaries[0].iterations.size(); ++k) {
      EXPECT_EQ(summaries[i].iterations[k].linear_solver_iterations,
                summaries[0].iterations[k].linear_solver_iterations);
      EXPECT_NEAR(summaries[i].iterations[k].cost,
                  summaries[0].iterations[k].cost,
                  1e-6 * summaries[0].iterations[k].cost);
    }
  }
}

// The summary's structure and order are those of stock.
TEST(LeftOutParts, StructureInTheSummaryIsStocks) {
  struct Case {
    const char* name;
    Modify modify;
  };
  const Case cases[] = {
      {"as it is", [](auto*, auto*, auto*) {}},
      {"constant points",
       [](BalTestProblem* bal, ceres::Problem* problem, auto*) {
         for (int i = 0; i < bal->num_points(); i += 3) {
           problem->SetParameterBlockConstant(bal->point(i));
         }
       }},
      {"IDENTITY with constant points",
       [](BalTestProblem* bal, ceres::Problem* problem, auto* options) {
         options->preconditioner_type = ceres::IDENTITY;
         for (int i = 0; i < bal->num_points(); i += 3) {
           problem->SetParameterBlockConstant(bal->point(i));
         }
       }},
      {"SCHUR_POWER_SERIES_EXPANSION with all cameras constant",
       [](BalTestProblem* bal, ceres::Problem* problem, auto* options) {
         options->preconditioner_type = ceres::SCHUR_POWER_SERIES_EXPANSION;
         options->use_spse_initialization = true;
         for (int i = 0; i < bal->num_cameras(); ++i) {
           problem->SetParameterBlockConstant(bal->camera(i));
         }
       }},
      {"constant cameras",
       [](BalTestProblem* bal, ceres::Problem* problem, auto*) {
         problem->SetParameterBlockConstant(bal->camera(0));
       }},
      {"subset of a camera",
       [](BalTestProblem* bal, ceres::Problem* problem, auto*) {
         problem->SetManifold(bal->camera(1),
                              new ceres::SubsetManifold(9, {0, 3}));
       }},
      {"CGNR",
       [](auto*, auto*, auto* options) {
         options->linear_solver_type = ceres::CGNR;
         options->preconditioner_type = ceres::JACOBI;
         options->linear_solver_ordering = nullptr;
       }},
      {"all points constant",
       [](BalTestProblem* bal, ceres::Problem* problem, auto*) {
         for (int i = 0; i < bal->num_points(); ++i) {
           problem->SetParameterBlockConstant(bal->point(i));
         }
       }},
      {"all cameras constant",
       [](BalTestProblem* bal, ceres::Problem* problem, auto*) {
         for (int i = 0; i < bal->num_cameras(); ++i) {
           problem->SetParameterBlockConstant(bal->camera(i));
         }
       }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Summary summaries[2];
    for (const bool stock : {true, false}) {
      BalTestProblem bal = MakeBalTestProblem(6, 40, 4, 9);
      auto problem = BuildProblem(&bal, Derivatives::kAnalytic);
      ceres::Solver::Options options = TestOptions(&bal);
      options.max_num_iterations = 3;
      c.modify(&bal, problem.get(), &options);
      Options ext_options;
      ext_options.device = DEVICE_CUDA;
      ext_options.enabled = !stock;
      Solve(options, ext_options, problem.get(), &summaries[stock ? 0 : 1]);
    }
    const Summary& stock = summaries[0];
    const Summary& ours = summaries[1];
    EXPECT_EQ(ours.path, PATH_FULL) << ours.path_reason;
    EXPECT_EQ(ours.schur_structure_given, stock.schur_structure_given);
    // Which of Ceres's specialisations fits has no meaning here.
    EXPECT_EQ(ours.schur_structure_used, ours.schur_structure_given);
    EXPECT_EQ(ours.linear_solver_ordering_given,
              stock.linear_solver_ordering_given);
    EXPECT_EQ(ours.linear_solver_ordering_used,
              stock.linear_solver_ordering_used);
    EXPECT_EQ(ours.linear_solver_type_used, stock.linear_solver_type_used);
    EXPECT_EQ(ours.preconditioner_type_used, stock.preconditioner_type_used);
    EXPECT_EQ(ours.num_parameter_blocks_reduced,
              stock.num_parameter_blocks_reduced);
    EXPECT_EQ(ours.num_residuals_reduced, stock.num_residuals_reduced);
    EXPECT_NEAR(
        ours.initial_cost, stock.initial_cost, 1e-12 * stock.initial_cost);
  }
}

}  // namespace
}  // namespace ceres_ext
