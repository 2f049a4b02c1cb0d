// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The output of the small examples. Costs are those that the noise alone
// leaves: a chi-squared number, of which five deviations are allowed.
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "examples/scene.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/bal/program_test_util.h"

namespace ceres_ext::bal {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::string OutputOf(const std::string& name) {
  const Outcome outcome = Execute(std::string(EXAMPLES) + "/" + name, "");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  return outcome.out;
}

// The numbers behind `text`.
std::vector<double> NumbersBehind(const std::string& out,
                                  const std::string& text) {
  std::vector<double> numbers;
  for (size_t at = out.find(text); at != std::string::npos;
       at = out.find(text, at + 1)) {
    numbers.push_back(std::strtod(out.c_str() + at + text.size(), nullptr));
  }
  return numbers;
}
double NumberBehind(const std::string& out, const std::string& text) {
  const std::vector<double> numbers = NumbersBehind(out, text);
  EXPECT_EQ(numbers.size(), 1u) << "'" << text << "' in " << out;
  return numbers.empty() ? std::nan("") : numbers[0];
}

const examples::Scene& Scene() {
  static const auto* const kScene = new examples::Scene(examples::MakeScene());
  return *kScene;
}

// All cameras and points, less the 7 parameters of place, orientation and
// scale.
int NumFreeParameters() {
  return 9 * Scene().num_cameras() + 3 * Scene().num_points() - 7;
}

void ExpectCostOfNoise(double cost, int num_parameters) {
  EXPECT_NEAR(cost,
              Scene().ExpectedCost(num_parameters),
              5.0 * Scene().CostDeviation(num_parameters));
}

TEST(Examples, Hello) {
  const std::string out = OutputOf("hello");
  EXPECT_THAT(out, HasSubstr("Ceres Ext"));
  ExpectCostOfNoise(NumberBehind(out, "final cost "), NumFreeParameters());
}

TEST(Examples, Arrays) {
  const std::string out = OutputOf("arrays");
  // At least a tenth of 500^2 / 2 is left of the mistake.
  EXPECT_GT(NumberBehind(out, "with a mistake: final cost "), 12500.0);
  ExpectCostOfNoise(NumberBehind(out, "corrected: final cost "),
                    NumFreeParameters());
}

TEST(Examples, ExactStep) {
  const std::string out = OutputOf("exact_step");
  EXPECT_THAT(out, ContainsRegex("ITERATIVE_SCHUR: [0-9]+ steps, FULL \\("));
  EXPECT_THAT(out,
              ContainsRegex("DENSE_SCHUR: [0-9]+ steps, (FULL|CERES) \\("));
  const std::vector<double> costs = NumbersBehind(out, "final cost ");
  ASSERT_EQ(costs.size(), 2u);
  for (const double cost : costs) {
    ExpectCostOfNoise(cost, NumFreeParameters());
  }
}

TEST(Examples, Evaluate) {
  const std::string out = OutputOf("evaluate");
  // Outliers, one observation in a hundred.
  const int num_mistakes = (Scene().num_observations() - 1) / 100 + 1;
  for (const char* text : {"mistakes made: ", "found: ", "right: "}) {
    EXPECT_EQ(NumberBehind(out, text), num_mistakes) << text;
  }
}

TEST(Examples, SharedIntrinsics) {
  const std::string out = OutputOf("shared_intrinsics");
  // It begins 5 % away.
  EXPECT_NEAR(NumberBehind(out, "focal length "), 1000.0, 10.0);
  ExpectCostOfNoise(
      NumberBehind(out, "final cost "),
      6 * Scene().num_cameras() + 3 * Scene().num_points() + 3 - 7);
}

TEST(Examples, PriorsAndGps) {
  const std::string out = OutputOf("priors_and_gps");
  EXPECT_LT(NumberBehind(out, "cameras are off by "), 0.049);
  // Residuals in standard deviations, three more of each camera and three of
  // the control point, which leave nothing free.
  const double freedom = 2 * Scene().num_observations() +
                         3 * Scene().num_cameras() + 3 -
                         6 * Scene().num_cameras() - 3 * Scene().num_points();
  EXPECT_NEAR(NumberBehind(out, "Final cost: "),
              0.5 * freedom,
              5.0 * 0.5 * std::sqrt(2.0 * freedom));
}

TEST(Examples, UnchangedProgram) {
  const std::string program = std::string(EXAMPLES) + "/unchanged_program";
  for (const bool with_plugin : {false, true}) {
    const Outcome outcome =
        with_plugin ? Execute("env",
                              "CERES_SOLVER_PLUGIN=ceres_ext "
                              "LD_LIBRARY_PATH='" LIBRARY_FOLDER "' '" +
                                  program + "'")
                    : Execute(program, "");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    if (with_plugin) {
      EXPECT_THAT(outcome.out, HasSubstr("[Ceres Ext: path FULL"));
    } else {
      EXPECT_THAT(outcome.out, Not(HasSubstr("Ceres Ext")));
    }
    ExpectCostOfNoise(NumberBehind(outcome.out, "final cost "),
                      NumFreeParameters());
  }
}

TEST(Examples, CustomFunctor) {
  const std::string problem = TempPath("problem.txt");
  constexpr double kNoise = 0.5;
  ASSERT_EQ(Execute(BAL_GENERATE,
                    "--num_cameras=20 --num_points=2000 "
                    "--num_observations=12000 --pixel_noise=0.5 "
                    "--outlier_fraction=0 --output='" +
                        problem + "'")
                .code,
            0);
  const double freedom = 2 * 12000 - 9 * 20 - 3 * 2000 + 7;
  std::istringstream names(CUSTOM_FUNCTORS);
  for (std::string name; std::getline(names, name, ',');) {
    SCOPED_TRACE(name);
    const Outcome outcome = Execute(
        std::string(CUSTOM_FUNCTOR_FOLDER) + "/" + name, "'" + problem + "'");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NEAR(NumberBehind(outcome.out, "\nFinal "),
                0.5 * kNoise * kNoise * freedom,
                5 * 0.5 * kNoise * kNoise * std::sqrt(2 * freedom));
  }
  std::filesystem::remove(problem);
}

}  // namespace
}  // namespace ceres_ext::bal
