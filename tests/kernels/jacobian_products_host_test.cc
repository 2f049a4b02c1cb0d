// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include <type_traits>
#include <vector>

#include "cuda_kernels/ops/jacobian_products.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/dense_problem.h"
#include "tests/kernels/run_ok.h"

namespace ceres_ext::kernels {
namespace {

using testing::ElementsAre;

// One camera whose block is (1 2 0 .. 0; 0 .. 0 3), one point with
// (1 0 2; 0 3 0).
TEST(JacobianProducts, ByHand) {
  DenseProblem<double, 9> problem({"one", 1, 1, {0}, {0}}, 1);
  problem.jc.assign(18, 0.0);
  problem.jc[0] = 1;
  problem.jc[1] = 2;
  problem.jc[17] = 3;
  problem.jp = {1, 0, 2, 0, 3, 0};

  std::vector<double> camera_x = {1, 10, 0, 0, 0, 0, 0, 0, 100};
  std::vector<double> point_x = {1, 2, 3};
  std::vector<double> y = {1000, 1000};
  RightMultiplyParams<DenseProblem<double, 9>::Source> right;
  right.index = problem.index();
  right.jacobian = problem.source();
  right.camera_x = camera_x.data();
  right.point_x = point_x.data();
  right.y = y.data();
  RunOk(right, &problem.machine);
  EXPECT_THAT(y, ElementsAre(21 + 7, 300 + 6));
  right.accumulate = true;
  RunOk(right, &problem.machine);
  EXPECT_THAT(y, ElementsAre(2 * 28, 2 * 306));

  y = {1, 10};
  LeftMultiplyParams<DenseProblem<double, 9>::Source> left;
  left.index = problem.index();
  left.jacobian = problem.source();
  left.y = y.data();
  left.camera_x = camera_x.data();
  left.point_x = point_x.data();
  RunOk(left, &problem.machine);
  EXPECT_THAT(camera_x, ElementsAre(1, 2, 0, 0, 0, 0, 0, 0, 30));
  EXPECT_THAT(point_x, ElementsAre(1, 30, 2));

  SquaredColumnNormsParams<DenseProblem<double, 9>::Source> norms;
  norms.index = problem.index();
  norms.jacobian = problem.source();
  norms.camera_x = camera_x.data();
  norms.point_x = point_x.data();
  RunOk(norms, &problem.machine);
  EXPECT_THAT(camera_x, ElementsAre(1, 4, 0, 0, 0, 0, 0, 0, 9));
  EXPECT_THAT(point_x, ElementsAre(1, 9, 4));
}

template <typename T, int C>
class AgainstDense {
 public:
  using Source = typename DenseProblem<T, C>::Source;

  explicit AgainstDense(const Structure& structure)
      : problem_(structure, 11), j_(problem_.J()) {
    // Terms of a sum over the rows of J, and roundings of a product.
    row_bound_ = (2 * problem_.num_observations() + 2) * kEpsilon;
    column_bound_ = (C + 3 + 2) * kEpsilon;
  }

  void Run() {
    for (int i = 0; i < 2; ++i) {  // Twice on one object.
      Right();
      Left();
      Norms();
    }
    Scale();
  }

 private:
  void Right() {
    VectorXd x = problem_.RandomVector(problem_.num_columns());
    VectorXd y = problem_.RandomVector(j_.rows());
    const VectorXd y_before = y;
    RightMultiplyParams<Source> params;
    params.index = problem_.index();
    params.jacobian = problem_.source();
    params.point_x = x.data();
    params.camera_x = x.data() + problem_.num_e();
    params.y = y.data();
    RunOk(params, &problem_.machine);
    const VectorXd bound = column_bound_ * (j_.cwiseAbs() * x.cwiseAbs());
    ExpectWithin(y, j_ * x, bound);
    const VectorXd product = y;
    y = y_before;
    params.accumulate = true;
    RunOk(params, &problem_.machine);
    EXPECT_EQ(y, y_before + product);
  }

  void Left() {
    VectorXd y = problem_.RandomVector(j_.rows());
    VectorXd x = problem_.RandomVector(problem_.num_columns());
    const VectorXd x_before = x;
    LeftMultiplyParams<Source> params;
    params.index = problem_.index();
    params.jacobian = problem_.source();
    params.y = y.data();
    params.point_x = x.data();
    params.camera_x = x.data() + problem_.num_e();
    RunOk(params, &problem_.machine);
    const VectorXd bound =
        row_bound_ * (j_.transpose().cwiseAbs() * y.cwiseAbs());
    ExpectWithin(x, j_.transpose() * y, bound);
    const VectorXd product = x;
    x = x_before;
    params.accumulate = true;
    RunOk(params, &problem_.machine);
    EXPECT_EQ(x, x_before + product);

    // Each output alone.
    params.accumulate = false;
    x = x_before;
    params.point_x = nullptr;
    RunOk(params, &problem_.machine);
    EXPECT_EQ(x.tail(problem_.num_f()), product.tail(problem_.num_f()));
    EXPECT_EQ(x.head(problem_.num_e()), x_before.head(problem_.num_e()));
    x = x_before;
    params.point_x = x.data();
    params.camera_x = nullptr;
    RunOk(params, &problem_.machine);
    EXPECT_EQ(x.tail(problem_.num_f()), x_before.tail(problem_.num_f()));
    EXPECT_EQ(x.head(problem_.num_e()), product.head(problem_.num_e()));
  }

  void Norms() {
    VectorXd x(problem_.num_columns());
    SquaredColumnNormsParams<Source> params;
    params.index = problem_.index();
    params.jacobian = problem_.source();
    params.point_x = x.data();
    params.camera_x = x.data() + problem_.num_e();
    RunOk(params, &problem_.machine);
    const VectorXd expected = j_.colwise().squaredNorm();
    ExpectWithin(x, expected, row_bound_ * expected);
    const VectorXd both = x;
    x.setZero();
    params.point_x = nullptr;
    RunOk(params, &problem_.machine);
    EXPECT_EQ(x.tail(problem_.num_f()), both.tail(problem_.num_f()));
    params.point_x = x.data();
    params.camera_x = nullptr;
    RunOk(params, &problem_.machine);
    EXPECT_EQ(x, both);
  }

  void Scale() {
    const VectorXd scale = problem_.RandomVector(problem_.num_columns());
    ScaleColumnsParams<T, BalShape<C>, kHostLayout> params;
    params.index = problem_.index();
    params.camera_blocks = {problem_.jc.data(), problem_.num_observations()};
    params.point_blocks = {problem_.jp.data(), problem_.num_observations()};
    params.point_scale = scale.data();
    params.camera_scale = scale.data() + problem_.num_e();
    RunOk(params, &problem_.machine);
    const MatrixXd expected = j_ * scale.asDiagonal();
    // One product, rounded in T.
    const double bound = std::is_same_v<T, double> ? kEpsilon : kFloatEpsilon;
    EXPECT_TRUE(((problem_.J() - expected).cwiseAbs().array() <=
                 bound * expected.cwiseAbs().array())
                    .all());
  }

  DenseProblem<T, C> problem_;
  MatrixXd j_;
  double row_bound_;
  double column_bound_;
};

class JacobianProductsTest : public testing::TestWithParam<Structure> {};

TEST_P(JacobianProductsTest, Double9) {
  AgainstDense<double, 9>(GetParam()).Run();
}
TEST_P(JacobianProductsTest, Double10) {
  AgainstDense<double, 10>(GetParam()).Run();
}
TEST_P(JacobianProductsTest, Double6) {
  AgainstDense<double, 6>(GetParam()).Run();
}
TEST_P(JacobianProductsTest, Double12) {
  AgainstDense<double, 12>(GetParam()).Run();
}
TEST_P(JacobianProductsTest, Double14) {
  AgainstDense<double, 14>(GetParam()).Run();
}
TEST_P(JacobianProductsTest, Double16) {
  AgainstDense<double, 16>(GetParam()).Run();
}
TEST_P(JacobianProductsTest, Float9) {
  AgainstDense<float, 9>(GetParam()).Run();
}
TEST_P(JacobianProductsTest, Float10) {
  AgainstDense<float, 10>(GetParam()).Run();
}

INSTANTIATE_TEST_SUITE_P(Edges,
                         JacobianProductsTest,
                         testing::ValuesIn(EdgeStructures()),
                         StructureName);

}  // namespace
}  // namespace ceres_ext::kernels
