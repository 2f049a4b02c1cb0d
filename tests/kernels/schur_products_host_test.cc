// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include <tuple>
#include <vector>

#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/ops/schur_products.h"
#include "gtest/gtest.h"
#include "tests/kernels/dense_problem.h"
#include "tests/kernels/run_ok.h"

namespace ceres_ext::kernels {
namespace {

template <typename T, int C>
class AgainstDense {
 public:
  using Source = typename DenseProblem<T, C>::Source;

  AgainstDense(const Structure& structure, bool damped, bool padded)
      : problem_(structure, 31), damped_(damped) {
    if (padded) {
      problem_.Pad(C - 2);
    }
    // Points seen once need damping to be full rank.
    point_damped_ = damped || problem_.HasPointSeenOnce();
    camera_diagonal_ = damped ? problem_.camera_diagonal.data() : nullptr;
    point_diagonal_ = point_damped_ ? problem_.point_diagonal.data() : nullptr;

    const MatrixXd e = problem_.E();
    const MatrixXd f = problem_.F();
    u_ = f.transpose() * f + problem_.DampingF(damped_);
    v_ = e.transpose() * e + problem_.DampingE(point_damped_);
    w_ = f.transpose() * e;
    vi_ = InversePointBlocks(v_, &vi_bound_);
    e_ = e;
    f_ = f;
    u_abs_ =
        f.transpose().cwiseAbs() * f.cwiseAbs() + problem_.DampingF(damped_);
    v_abs_ = e.transpose().cwiseAbs() * e.cwiseAbs() +
             problem_.DampingE(point_damped_);
    w_abs_ = f.transpose().cwiseAbs() * e.cwiseAbs();

    // A product has at most that many roundings on the way to an element: a
    // sum over rows, one over blocks of a row, and a few products.
    bound_ = (4 * problem_.num_observations() + 2 * C + 16) * kEpsilon;
    ComputeBlocks();
  }

  void Run() {
    for (int i = 0; i < 2; ++i) {  // Twice on one object.
      Schur();
      EliminatedPart();
      BackSubstitute();
      Normal();
    }
    Ended();
  }

 private:
  void ComputeBlocks() {
    packed_vi_.resize(6 * problem_.num_points());
    NormalBlocksParams<Source, kHostLayout> params;
    params.index = problem_.index();
    params.jacobian = problem_.source();
    params.b = problem_.b.data();
    params.point_diagonal = point_diagonal_;
    params.v_inverse = Vi();
    params.breakdown = &breakdown_;
    RunOk(params, &problem_.machine);
    ASSERT_EQ(breakdown_.first_block, Breakdown::kNone);
  }

  BlockRef<double, 6, kHostLayout> Vi() {
    return {packed_vi_.data(), problem_.num_points()};
  }

  SchurProductImplicitWParams<Source, kHostLayout> SchurParams() {
    SchurProductImplicitWParams<Source, kHostLayout> params;
    params.index = problem_.index();
    params.jacobian = problem_.source();
    params.v_inverse = Vi();
    params.camera_diagonal = camera_diagonal_;
    return params;
  }
  void Schur() {
    const VectorXd p = problem_.RandomVector(problem_.num_f());
    VectorXd q = problem_.RandomVector(problem_.num_f());
    const VectorXd expected = u_ * p - w_ * (vi_ * (w_.transpose() * p));
    const VectorXd scale =
        u_abs_ * p.cwiseAbs() +
        w_abs_ * (vi_bound_ * (w_abs_.transpose() * p.cwiseAbs()));
    auto params = SchurParams();
    params.p = p.data();
    params.q = q.data();
    RunOk(params, &problem_.machine);
    ExpectWithin(q, expected, bound_ * scale);
  }
  void EliminatedPart() {
    const VectorXd p = problem_.RandomVector(problem_.num_f());
    VectorXd q = problem_.RandomVector(problem_.num_f());
    auto params = SchurParams();
    params.camera_diagonal = nullptr;
    params.p = p.data();
    params.q = q.data();
    params.eliminated_part = true;
    RunOk(params, &problem_.machine);
    ExpectWithin(
        q,
        -(w_ * (vi_ * (w_.transpose() * p))),
        bound_ * w_abs_ * (vi_bound_ * (w_abs_.transpose() * p.cwiseAbs())));
  }

  void BackSubstitute() {
    const VectorXd z = problem_.RandomVector(problem_.num_f());
    VectorXd y = problem_.RandomVector(problem_.num_e());
    const VectorXd expected =
        vi_ * (e_.transpose() * problem_.b - w_.transpose() * z);
    const VectorXd scale =
        vi_bound_ * (e_.transpose().cwiseAbs() * problem_.b.cwiseAbs() +
                     w_abs_.transpose() * z.cwiseAbs());
    BackSubstituteImplicitWParams<Source, kHostLayout> params;
    params.index = problem_.index();
    params.jacobian = problem_.source();
    params.b = problem_.b.data();
    params.v_inverse = Vi();
    params.z = z.data();
    params.y = y.data();
    RunOk(params, &problem_.machine);
    ExpectWithin(y, expected, bound_ * scale);
  }

  void Normal() {
    const int64_t n = problem_.num_columns();
    const VectorXd p = problem_.RandomVector(n);
    VectorXd q = problem_.RandomVector(n);
    MatrixXd a(n, n);
    a << v_, w_.transpose(), w_, u_;
    MatrixXd a_abs(n, n);
    a_abs << v_abs_, w_abs_.transpose(), w_abs_, u_abs_;
    const VectorXd scale = a_abs * p.cwiseAbs();
    NormalProductImplicitWParams<Source> params;
    params.index = problem_.index();
    params.jacobian = problem_.source();
    params.camera_diagonal = camera_diagonal_;
    params.point_diagonal = point_diagonal_;
    params.point_p = p.data();
    params.camera_p = p.data() + problem_.num_e();
    params.point_q = q.data();
    params.camera_q = q.data() + problem_.num_e();
    RunOk(params, &problem_.machine);
    ExpectWithin(q, a * p, bound_ * scale);
  }

  // Scalars that have ended stop a product.
  void Ended() {
    PcgScalars scalars;
    scalars.end = PcgEnd::kResidual;
    const VectorXd p = problem_.RandomVector(problem_.num_f());
    VectorXd q = problem_.RandomVector(problem_.num_f());
    const VectorXd before = q;
    auto params = SchurParams();
    params.p = p.data();
    params.q = q.data();
    params.scalars = &scalars;
    RunOk(params, &problem_.machine);
    EXPECT_EQ(q, before);
  }

  DenseProblem<T, C> problem_;
  bool damped_;
  bool point_damped_;
  const double* camera_diagonal_;
  const double* point_diagonal_;
  MatrixXd e_, f_, u_, v_, w_, vi_, vi_bound_;
  MatrixXd u_abs_, v_abs_, w_abs_;
  double bound_;
  std::vector<double> packed_vi_;
  Breakdown breakdown_;
};

class SchurProductsTest
    : public testing::TestWithParam<std::tuple<Structure, bool, bool>> {
 protected:
  template <typename T, int C>
  void Run() {
    const auto& [structure, damped, padded] = GetParam();
    AgainstDense<T, C>(structure, damped, padded).Run();
  }
};

TEST_P(SchurProductsTest, Double9) { Run<double, 9>(); }
TEST_P(SchurProductsTest, Double10) { Run<double, 10>(); }
TEST_P(SchurProductsTest, Double6) { Run<double, 6>(); }
TEST_P(SchurProductsTest, Double12) { Run<double, 12>(); }
TEST_P(SchurProductsTest, Double14) { Run<double, 14>(); }
TEST_P(SchurProductsTest, Double16) { Run<double, 16>(); }
TEST_P(SchurProductsTest, Float9) { Run<float, 9>(); }
TEST_P(SchurProductsTest, Float10) { Run<float, 10>(); }

INSTANTIATE_TEST_SUITE_P(Edges,
                         SchurProductsTest,
                         testing::Combine(testing::ValuesIn(EdgeStructures()),
                                          testing::Bool(),
                                          testing::Bool()),
                         [](const auto& info) {
                           return std::get<0>(info.param).name +
                                  (std::get<1>(info.param) ? "_damped"
                                                           : "_undamped") +
                                  (std::get<2>(info.param) ? "_padded" : "");
                         });

// One camera, one point, Jc = (2; 0) in column 0, Jp = (1 0 0; 0 1 0), b =
// (3, 5), D_c = 1 in column 0, D_p = (1, 1, 1):
//   Vi = diag(1/2, 1/2, 1), S_00 = 4 + 1 - 2 * 2 / 2 = 3
//   y  = Vi (3 - 2 z, 5, 0)
TEST(SchurProducts, ByHand) {
  DenseProblem<double, 9> problem({"one", 1, 1, {0}, {0}}, 1);
  problem.jc.assign(18, 0.0);
  problem.jc[0] = 2;
  problem.jp = {1, 0, 0, 0, 1, 0};
  problem.b << 3, 5;
  const double d[9] = {1, 0, 0, 0, 0, 0, 0, 0, 7};
  const double vi[6] = {0.5, 0, 0.5, 0, 0, 1};
  const double p[9] = {10, 0, 0, 0, 0, 0, 0, 0, 1};
  double q[9];
  SchurProductImplicitWParams<DenseProblem<double, 9>::Source, kHostLayout>
      product;
  product.index = problem.index();
  product.jacobian = problem.source();
  product.v_inverse = {vi, 1};
  product.camera_diagonal = d;
  product.p = p;
  product.q = q;
  RunOk(product, &problem.machine);
  EXPECT_EQ(q[0], 30);
  EXPECT_EQ(q[1], 0);
  EXPECT_EQ(q[8], 49);
  product.camera_diagonal = nullptr;
  product.eliminated_part = true;
  RunOk(product, &problem.machine);
  EXPECT_EQ(q[0], -20);
  EXPECT_EQ(q[8], 0);

  double y[3];
  BackSubstituteImplicitWParams<DenseProblem<double, 9>::Source, kHostLayout>
      back;
  back.index = problem.index();
  back.jacobian = problem.source();
  back.b = problem.b.data();
  back.v_inverse = {vi, 1};
  back.z = p;
  back.y = y;
  RunOk(back, &problem.machine);
  EXPECT_EQ(y[0], (3 - 20) / 2.0);
  EXPECT_EQ(y[1], 2.5);
  EXPECT_EQ(y[2], 0);
}

}  // namespace
}  // namespace ceres_ext::kernels
