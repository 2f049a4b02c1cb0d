// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include <tuple>
#include <vector>

#include "cuda_kernels/ops/normal_blocks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/dense_problem.h"
#include "tests/kernels/run_ok.h"

namespace ceres_ext::kernels {
namespace {

template <typename T, int C>
struct Outputs {
  explicit Outputs(const DenseProblem<T, C>& problem)
      : v(6 * problem.num_points(), -1),
        v_inverse(v),
        point_gradient(3 * problem.num_points(), -1),
        u(PackedSize(C) * problem.num_cameras(), -1),
        camera_gradient(C * problem.num_cameras(), -1),
        schur_diagonal(u),
        schur_rhs(camera_gradient) {}

  // Asks for outputs by the bits of `wanted`, in the order of the fields.
  void Compute(DenseProblem<T, C>* problem, bool damped, int wanted) {
    NormalBlocksParams<typename DenseProblem<T, C>::Source, kHostLayout> params;
    params.index = problem->index();
    params.jacobian = problem->source();
    params.b = problem->b.data();
    params.point_diagonal = damped ? problem->point_diagonal.data() : nullptr;
    if (wanted & 1) params.v = {v.data(), problem->num_points()};
    if (wanted & 2) {
      params.v_inverse = {v_inverse.data(), problem->num_points()};
    }
    if (wanted & 4) params.point_gradient = point_gradient.data();
    if (wanted & 8) params.u = {u.data(), problem->num_cameras()};
    if (wanted & 16) params.camera_gradient = camera_gradient.data();
    if (wanted & 32) {
      params.schur_diagonal = {schur_diagonal.data(), problem->num_cameras()};
    }
    if (wanted & 64) params.schur_rhs = schur_rhs.data();
    params.breakdown = &breakdown;
    RunOk(params, &problem->machine);
  }

  std::vector<double> v, v_inverse, point_gradient;
  std::vector<double> u, camera_gradient, schur_diagonal, schur_rhs;
  Breakdown breakdown;
};

constexpr int kAllOutputs = 127;

// Two cameras see one point. Jc has one element, Jp = diag(1, 2) padded, and
// D_p = (1, 1, 1):
//   V = diag(1 + 1, 4 + 4, 0), Vi = diag(1/3, 1/9, 1)
TEST(NormalBlocks, ByHand) {
  DenseProblem<double, 9> problem({"two", 2, 1, {0, 1}, {0, 0}}, 1);
  problem.jc.assign(36, 0.0);
  problem.jc[0] = 3;        // camera 0, row 0, column 0
  problem.jc[18 + 10] = 5;  // camera 1, row 1, column 1
  problem.jp = {1, 0, 0, 0, 2, 0, 1, 0, 0, 0, 2, 0};
  problem.b << 1, 10, 2, 20;
  problem.point_diagonal.setOnes();
  Outputs<double, 9> out(problem);
  out.Compute(&problem, true, kAllOutputs);
  EXPECT_EQ(out.breakdown.first_block, Breakdown::kNone);
  EXPECT_THAT(out.v, testing::ElementsAre(2, 0, 8, 0, 0, 0));
  EXPECT_DOUBLE_EQ(out.v_inverse[0], 1.0 / 3);
  EXPECT_DOUBLE_EQ(out.v_inverse[2], 1.0 / 9);
  EXPECT_DOUBLE_EQ(out.v_inverse[5], 1.0);
  EXPECT_THAT(out.point_gradient, testing::ElementsAre(3, 60, 0));
  EXPECT_EQ(out.u[0], 9);
  EXPECT_EQ(out.u[45 + PackedIndex(1, 1)], 25);
  EXPECT_EQ(out.camera_gradient[0], 3);
  EXPECT_EQ(out.camera_gradient[9 + 1], 100);
  // 9 - 3 * 3 / 3 and 25 - 10 * 10 / 9
  EXPECT_DOUBLE_EQ(out.schur_diagonal[0], 6);
  EXPECT_DOUBLE_EQ(out.schur_diagonal[45 + PackedIndex(1, 1)], 25 - 100.0 / 9);
  // 3 - 3 * 3 / 3 and 100 - 10 * 60 / 9
  // The inverse of 3 and the product round four times, at a scale of 3.
  EXPECT_NEAR(out.schur_rhs[0], 0, 4 * kEpsilon * 3);
  EXPECT_DOUBLE_EQ(out.schur_rhs[9 + 1], 100 - 600.0 / 9);
}

// Without damping, the point's third column is zero: Vi has a one there.
TEST(NormalBlocks, ZeroColumn) {
  DenseProblem<double, 9> problem({"two", 2, 1, {0, 1}, {0, 0}}, 1);
  problem.jp = {1, 0, 0, 0, 2, 0, 1, 0, 0, 0, 2, 0};
  Outputs<double, 9> out(problem);
  out.Compute(&problem, false, kAllOutputs);
  EXPECT_EQ(out.breakdown.first_block, Breakdown::kNone);
  EXPECT_EQ(out.v_inverse[5], 1.0);
  EXPECT_DOUBLE_EQ(out.v_inverse[2], 1.0 / 8);
}

TEST(NormalBlocks, NamesTheFirstBrokenPoint) {
  const Structure structure = RandomStructure("random", 3, 2000, 2, 1);
  DenseProblem<double, 9> problem(structure, 1, 3);
  // Equal rows of Jp: V has rank one, in exact arithmetic on small integers.
  for (const int32_t p : {1999, 777, 1500}) {
    for (int64_t k = problem.index().point_begin[p];
         k < problem.index().point_begin[p + 1];
         ++k) {
      std::fill_n(problem.jp.begin() + 6 * k, 6, 1.0);
    }
  }
  Outputs<double, 9> out(problem);
  out.Compute(&problem, false, kAllOutputs);
  EXPECT_EQ(out.breakdown.first_block, 777);
  out.Compute(&problem, true, kAllOutputs);
  EXPECT_EQ(out.breakdown.first_block, Breakdown::kNone);
}

template <typename T, int C>
void ExpectDense(const Structure& structure, bool damped, bool padded) {
  DenseProblem<T, C> problem(structure, 21);
  if (padded) {
    problem.Pad(C - 2);
  }
  // Points seen once need damping to be full rank.
  const bool point_damped = damped || problem.HasPointSeenOnce();
  const MatrixXd e = problem.E();
  const MatrixXd f = problem.F();
  const MatrixXd v = e.transpose() * e;
  const MatrixXd u = f.transpose() * f;
  const MatrixXd w = f.transpose() * e;
  const VectorXd g_e = e.transpose() * problem.b;
  const VectorXd g_f = f.transpose() * problem.b;
  MatrixXd vi_bound;
  const MatrixXd vi =
      InversePointBlocks(v + problem.DampingE(point_damped), &vi_bound);

  Outputs<T, C> out(problem);
  out.Compute(&problem, point_damped, kAllOutputs);
  EXPECT_EQ(out.breakdown.first_block, Breakdown::kNone);

  // Sums over rows, times what a product in front of the sum adds.
  const double sum_bound = (2 * problem.num_observations() + 8) * kEpsilon;
  const MatrixXd v_abs = e.transpose().cwiseAbs() * e.cwiseAbs();
  const MatrixXd u_abs = f.transpose().cwiseAbs() * f.cwiseAbs();
  const MatrixXd w_abs = f.transpose().cwiseAbs() * e.cwiseAbs();
  const VectorXd g_e_abs = e.transpose().cwiseAbs() * problem.b.cwiseAbs();
  const VectorXd g_f_abs = f.transpose().cwiseAbs() * problem.b.cwiseAbs();
  ExpectWithin(AsVector(out.v),
               PackedDiagonalBlocks<3>(v),
               sum_bound * PackedDiagonalBlocks<3>(v_abs));
  ExpectWithin(AsVector(out.point_gradient), g_e, sum_bound * g_e_abs);
  ExpectWithin(AsVector(out.u),
               PackedDiagonalBlocks<C>(u),
               sum_bound * PackedDiagonalBlocks<C>(u_abs));
  ExpectWithin(AsVector(out.camera_gradient), g_f, sum_bound * g_f_abs);
  ExpectWithin(AsVector(out.v_inverse),
               PackedDiagonalBlocks<3>(vi),
               sum_bound * PackedDiagonalBlocks<3>(vi_bound));

  const MatrixXd s = u - w * vi * w.transpose();
  const MatrixXd s_scale = u_abs + w_abs * vi_bound * w_abs.transpose();
  ExpectWithin(AsVector(out.schur_diagonal),
               PackedDiagonalBlocks<C>(s),
               2 * sum_bound * PackedDiagonalBlocks<C>(s_scale));
  ExpectWithin(AsVector(out.schur_rhs),
               g_f - w * vi * g_e,
               2 * sum_bound * (g_f_abs + w_abs * vi_bound * g_e_abs));

  // The same bits again, all at once and one output at a time.
  const Outputs<T, C> first = out;
  for (const int wanted :
       {kAllOutputs, 1, 2, 4, 8, 16, 32 + 2, 64 + 2, 8 + 16}) {
    Outputs<T, C> again(problem);
    again.Compute(&problem, point_damped, wanted);
    EXPECT_TRUE(!(wanted & 1) || again.v == first.v);
    EXPECT_TRUE(!(wanted & 2) || again.v_inverse == first.v_inverse);
    EXPECT_TRUE(!(wanted & 4) || again.point_gradient == first.point_gradient);
    EXPECT_TRUE(!(wanted & 8) || again.u == first.u);
    EXPECT_TRUE(!(wanted & 16) ||
                again.camera_gradient == first.camera_gradient);
    EXPECT_TRUE(!(wanted & 32) || again.schur_diagonal == first.schur_diagonal);
    EXPECT_TRUE(!(wanted & 64) || again.schur_rhs == first.schur_rhs);
  }
}

class NormalBlocksTest
    : public testing::TestWithParam<std::tuple<Structure, bool, bool>> {
 protected:
  template <typename T, int C>
  void Run() {
    const auto& [structure, damped, padded] = GetParam();
    ExpectDense<T, C>(structure, damped, padded);
  }
};

TEST_P(NormalBlocksTest, Double9) { Run<double, 9>(); }
TEST_P(NormalBlocksTest, Double10) { Run<double, 10>(); }
TEST_P(NormalBlocksTest, Double6) { Run<double, 6>(); }
TEST_P(NormalBlocksTest, Double12) { Run<double, 12>(); }
TEST_P(NormalBlocksTest, Double14) { Run<double, 14>(); }
TEST_P(NormalBlocksTest, Double16) { Run<double, 16>(); }
TEST_P(NormalBlocksTest, Float9) { Run<float, 9>(); }
TEST_P(NormalBlocksTest, Float10) { Run<float, 10>(); }

INSTANTIATE_TEST_SUITE_P(Edges,
                         NormalBlocksTest,
                         testing::Combine(testing::ValuesIn(EdgeStructures()),
                                          testing::Bool(),
                                          testing::Bool()),
                         [](const auto& info) {
                           return std::get<0>(info.param).name +
                                  (std::get<1>(info.param) ? "_damped"
                                                           : "_undamped") +
                                  (std::get<2>(info.param) ? "_padded" : "");
                         });

}  // namespace
}  // namespace ceres_ext::kernels
