// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include <cmath>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "cuda_kernels/ops/evaluate.h"
#include "cuda_kernels/ops/jacobian_products.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/ops/schur_products.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/bal_problem.h"
#include "tests/kernels/dense_problem.h"
#include "tests/kernels/run_ok.h"

namespace ceres_ext::kernels {
namespace {

// No rotation, t = (0, 0, -1), f = 2, no distortion; X = (1, 2, -3):
// Xc = (1, 2, -4), (x, y) = (1/4, 1/2), residual = (1/2, 1) - (1, 3).
// d residual / d X = f / 4 [1 0 x; 0 1 y].
TEST(Evaluate, ByHand) {
  BalProblem<double, 9> bal({"one", 1, 1, {0}, {0}}, 1);
  bal.cameras = {0, 0, 0, 0, 0, -1, 2, 0, 0};
  bal.points = {1, 2, -3};
  bal.observations = {1, 3};
  auto prepare = bal.PrepareParams();
  prepare.tangent = nullptr;
  prepare.camera_scale = nullptr;
  ASSERT_TRUE(kernels::Run(prepare, &bal.problem.machine).ok());
  auto params = bal.JacobianParams();
  params.point_scale = nullptr;
  RunOk(params, &bal.problem.machine);
  EXPECT_EQ(bal.evaluation.cost, 0.5 * (0.25 + 4));
  EXPECT_EQ(bal.evaluation.num_not_finite, 0);
  EXPECT_EQ(bal.residuals[0], -0.5);
  EXPECT_EQ(bal.residuals[1], -2);
  EXPECT_THAT(bal.problem.jp,
              testing::ElementsAre(0.5, 0, 0.125, 0, 0.5, 0.25));
  // Columns of t are those of the point, of f is (x, y).
  EXPECT_THAT(std::vector<double>(bal.problem.jc.begin() + 3,
                                  bal.problem.jc.begin() + 7),
              testing::ElementsAre(0.5, 0, 0.125, 0.25));
  EXPECT_EQ(bal.point_gradient[0], -0.25);
  EXPECT_EQ(bal.point_gradient[1], -1);
  EXPECT_EQ(bal.camera_gradient[6], -0.5 * 0.25 - 2 * 0.5);
  RunOk(bal.CostParams(), &bal.problem.machine);
  EXPECT_EQ(bal.evaluation.cost, 0.5 * (0.25 + 4));
}

TEST(Evaluate, TangentDefaultsToTheParameters) {
  BalProblem<double, 10> bal({"cameras", 3, 0, {}, {}}, 2);
  // Angle-axis parameters in 10 columns: the last is padding.
  bal.cameras.resize(27);
  auto params = bal.PrepareParams();
  params.parameters = CameraParameters::kAngleAxis;
  params.tangent = nullptr;
  params.camera_scale = nullptr;
  ASSERT_TRUE(kernels::Run(params, &bal.problem.machine).ok());
  for (int c = 0; c < 3; ++c) {
    double rotation_map[9];
    double local[81];
    PrepareBalCamera<3>(bal.cameras.data() + 9 * c, rotation_map);
    ExpandCameraMap<3>(rotation_map, local);
    for (int i = 0; i < 9; ++i) {
      for (int j = 0; j < 10; ++j) {
        EXPECT_EQ(bal.maps[90 * c + 10 * i + j], j < 9 ? local[9 * i + j] : 0);
      }
    }
  }
  // Quaternions have more parameters than 9 columns.
  PrepareCamerasParams<double, 9> too_narrow;
  too_narrow.num_cameras = 2;
  too_narrow.parameters = CameraParameters::kQuaternion;
  too_narrow.cameras = bal.cameras.data();
  too_narrow.states = bal.states.data();
  ASSERT_TRUE(kernels::Run(too_narrow, &bal.problem.machine).ok());
  too_narrow.maps = bal.maps.data();
  EXPECT_EQ(kernels::Run(too_narrow, &bal.problem.machine).code,
            StatusCode::kInvalidArgument);
}

// States and points of another origin give the same projections and Jacobians.
template <int C>
void ExpectAnyOrigin() {
  constexpr double kOrigin[3] = {30.0, -200.0, 7.0};
  constexpr int kCameras = 5;
  HostMachine machine(1);
  std::mt19937 generator(6);
  std::normal_distribution<double> normal;
  std::vector<double> cameras(C * kCameras);
  for (int i = 0; i < C * kCameras; ++i) {
    // The camera looks along -z, 5 away from points about the origin.
    cameras[i] = i % C == C - 4   ? -5.0 + 0.1 * normal(generator)
                 : i % C == C - 3 ? 500.0
                 : i % C >= C - 2 ? 0.01 * normal(generator)
                                  : normal(generator);
  }
  const std::vector<double> point = {0.3, -0.2, 0.1};
  std::vector<CameraState<double>> states(kCameras);
  std::vector<double> maps(9 * C * kCameras);
  PrepareCamerasParams<double, C> params;
  params.num_cameras = kCameras;
  params.parameters = static_cast<CameraParameters>(C);
  params.cameras = cameras.data();
  params.states = states.data();
  params.maps = maps.data();
  RunOk(params, &machine);
  std::vector<CameraState<double>> moved_states(kCameras);
  std::vector<double> moved_maps(9 * C * kCameras);
  params.origin = kOrigin;
  params.states = moved_states.data();
  params.maps = moved_maps.data();
  RunOk(params, &machine);
  double moved_point[3];
  RunOk(MovePointsParams<double>{1, point.data(), kOrigin, moved_point},
        &machine);
  const RecomputedJacobian<double, C> here{
      states.data(), maps.data(), point.data()};
  const RecomputedJacobian<double, C> there{
      moved_states.data(), moved_maps.data(), moved_point};
  for (int c = 0; c < kCameras; ++c) {
    double expected[2 * C + 6];
    double found[2 * C + 6];
    here.Load(0, c, 0, expected, expected + 2 * C);
    there.Load(0, c, 0, found, found + 2 * C);
    // Terms of up to 500 * 200 cancel, some thirty operations each.
    for (int i = 0; i < 2 * C + 6; ++i) {
      EXPECT_NEAR(found[i], expected[i], 32 * kEpsilon * 500.0 * 200.0);
    }
  }
}

TEST(EvaluateHostTest, AnyOriginGivesTheSameJacobian) {
  ExpectAnyOrigin<9>();
  ExpectAnyOrigin<10>();
}

TEST(EvaluateHostTest, LocalOriginIsAmidTheCameras) {
  HostMachine machine(1);
  const auto find = [&machine](const std::vector<double>& centers) {
    std::vector<double> cameras;
    for (size_t c = 0; c < centers.size(); ++c) {
      // R is the identity.
      cameras.insert(cameras.end(),
                     {0.0, 0.0, 0.0, -centers[c], 3.0, -1.0, 500.0, 0.0, 0.0});
    }
    std::vector<double> origin(3, -1.0);
    LocalOriginParams params;
    params.num_cameras = static_cast<int32_t>(centers.size());
    params.cameras = cameras.data();
    params.origin = origin.data();
    RunOk(params, &machine);
    return origin;
  };
  const std::vector<double> zero(3, 0.0);
  EXPECT_EQ(find({}), zero);
  EXPECT_EQ(find({1e6}), (std::vector<double>{1e6, -3.0, 1.0}));
  // Near: as far as they are from each other, or nine times as far.
  EXPECT_EQ(find({10.0, 20.0, 30.0}), zero);
  EXPECT_EQ(find({80.0, 90.0, 100.0}), zero);
  EXPECT_EQ(find({100.0, 109.0, 118.0}),
            (std::vector<double>{109.0, -3.0, 1.0}));
  // A few that are lost don't move it, nor do numbers that are none.
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(find({1e6, 1e6 + 1, 1e6 + 2, 1e6 + 3, 1e12}),
            (std::vector<double>{1e6 + 2, -3.0, 1.0}));
  EXPECT_EQ(find({nan, nan, nan}), zero);
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(find({infinity, infinity}), zero);
}

template <typename T, int C>
void ExpectComposition(const Structure& structure) {
  BalProblem<T, C> bal(structure, 41);
  bal.Prepare();
  const ObservationIndexRef& index = bal.problem.index();
  // map = L T diag(s)
  for (int64_t c = 0; c < index.num_cameras; ++c) {
    constexpr int A = C;
    double rotation_map[12];
    double local[9 * A];
    const double* camera = bal.cameras.data() + A * c;
    if (A == 9) {
      PrepareBalCamera<3>(camera, rotation_map);
    } else {
      PrepareBalCamera<4>(camera, rotation_map);
    }
    ExpandCameraMap<A - 6>(rotation_map, local);
    using RowMajor =
        Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    const MatrixXd l = Eigen::Map<RowMajor>(local, 9, A);
    const MatrixXd t =
        Eigen::Map<RowMajor>(bal.tangent.data() + A * C * c, A, C);
    const MatrixXd s = bal.camera_scale.segment(C * c, C).asDiagonal();
    const MatrixXd map =
        Eigen::Map<RowMajor>(bal.maps.data() + 9 * C * c, 9, C);
    const MatrixXd bound =
        (A + 2) * kEpsilon * (l.cwiseAbs() * t.cwiseAbs() * s);
    EXPECT_TRUE(((map - l * t * s).cwiseAbs().array() <= bound.array()).all());
  }

  RunOk(bal.JacobianParams(), &bal.problem.machine);
  double cost = 0;
  std::vector<T> jc(bal.problem.jc.size());
  std::vector<T> jp(bal.problem.jp.size());
  VectorXd residuals(bal.residuals.size());
  for (int64_t k = 0; k < index.num_observations; ++k) {
    const int64_t c = index.camera_id[k];
    const int64_t p = index.point_id[k];
    double camera_block[2 * C];
    double point_block[6];
    const Projection<double> projection =
        Project(bal.states[c], bal.points.data() + 3 * p);
    double local[18];
    Residual(bal.states[c],
             projection,
             bal.observations.data() + 2 * k,
             residuals.data() + 2 * k);
    CameraJacobian(bal.states[c], projection, local);
    MapCameraJacobian<C>(local, bal.maps.data() + 9 * C * c, camera_block);
    PointJacobian(bal.states[c], projection, point_block);
    for (int i = 0; i < 2 * C; ++i) {
      jc[2 * C * k + i] = static_cast<T>(camera_block[i]);
    }
    for (int i = 0; i < 6; ++i) {
      jp[6 * k + i] =
          static_cast<T>(point_block[i] * bal.point_scale[3 * p + i % 3]);
    }
    cost += 0.5 * residuals.segment(2 * k, 2).squaredNorm();
  }
  EXPECT_EQ(bal.residuals, residuals);
  EXPECT_EQ(bal.problem.jc, jc);
  EXPECT_EQ(bal.problem.jp, jp);
  EXPECT_EQ(bal.evaluation.num_not_finite, 0);
  const double sum_bound = (2 * index.num_observations + 2) * kEpsilon;
  EXPECT_NEAR(bal.evaluation.cost, cost, sum_bound * cost);

  // The gradient is J'r of the blocks, before they are rounded to T.
  const double rounding =
      sum_bound + (std::is_same_v<T, double> ? 0 : kFloatEpsilon);
  const MatrixXd e = bal.problem.E();
  const MatrixXd f = bal.problem.F();
  ExpectWithin(bal.point_gradient,
               e.transpose() * residuals,
               rounding * (e.transpose().cwiseAbs() * residuals.cwiseAbs()));
  ExpectWithin(bal.camera_gradient,
               f.transpose() * residuals,
               rounding * (f.transpose().cwiseAbs() * residuals.cwiseAbs()));

  // Again, without what is optional.
  const Evaluation first = bal.evaluation;
  auto params = bal.JacobianParams();
  params.residuals = nullptr;
  params.camera_gradient = nullptr;
  params.point_gradient = nullptr;
  std::fill(bal.problem.jc.begin(), bal.problem.jc.end(), T(0));
  RunOk(params, &bal.problem.machine);
  EXPECT_EQ(bal.problem.jc, jc);
  EXPECT_EQ(bal.evaluation.cost, first.cost);
  bal.residuals.setZero();
  RunOk(bal.CostParams(), &bal.problem.machine);
  EXPECT_EQ(bal.residuals, residuals);
  // The order of its sum is another one.
  EXPECT_NEAR(bal.evaluation.cost, cost, sum_bound * cost);
  EXPECT_EQ(bal.evaluation.num_not_finite, 0);
  const Evaluation second = bal.evaluation;
  auto cost_params = bal.CostParams();
  cost_params.residuals = nullptr;
  RunOk(cost_params, &bal.problem.machine);
  EXPECT_EQ(bal.evaluation.cost, second.cost);
}

class EvaluateTest : public testing::TestWithParam<Structure> {};

TEST_P(EvaluateTest, Double9) { ExpectComposition<double, 9>(GetParam()); }
TEST_P(EvaluateTest, Double10) { ExpectComposition<double, 10>(GetParam()); }
TEST_P(EvaluateTest, Float9) { ExpectComposition<float, 9>(GetParam()); }
TEST_P(EvaluateTest, Float10) { ExpectComposition<float, 10>(GetParam()); }

TEST(Evaluate, CountsWhatIsNotFinite) {
  const Structure structure = RandomStructure("random", 4, 500, 3, 5);
  BalProblem<float, 9> bal(structure, 1);
  bal.Prepare();
  const ObservationIndexRef& index = bal.problem.index();
  // A point in the plane of the optical centre of a camera that sees it.
  const int64_t k = index.point_begin[300];
  CameraState<double>& camera = bal.states[index.camera_id[k]];
  std::fill_n(camera.R, 9, 0.0);
  std::fill_n(camera.t, 3, 0.0);
  const int64_t seen_by_camera = index.camera_begin[index.camera_id[k] + 1] -
                                 index.camera_begin[index.camera_id[k]];
  RunOk(bal.CostParams(), &bal.problem.machine);
  EXPECT_EQ(bal.evaluation.num_not_finite, seen_by_camera);
  EXPECT_FALSE(std::isfinite(bal.evaluation.cost));
  RunOk(bal.JacobianParams(), &bal.problem.machine);
  EXPECT_EQ(bal.evaluation.num_not_finite, seen_by_camera);

  // Finite in double, but too large for float blocks.
  bal.Prepare();
  bal.point_scale.segment<3>(3 * 7).setConstant(1e200);
  RunOk(bal.JacobianParams(), &bal.problem.machine);
  EXPECT_EQ(bal.evaluation.num_not_finite, 3);
  EXPECT_TRUE(std::isfinite(bal.evaluation.cost));
}

// The products give the same with recomputed blocks as with stored ones.
template <int C>
class RecomputedAgainstStored {
 public:
  explicit RecomputedAgainstStored(const Structure& structure)
      : bal_(structure, 51), problem_(bal_.problem) {
    bal_.Prepare();
    // Focal lengths of 500 make very unequal columns, as real problems have.
    RunOk(bal_.JacobianParams(), &problem_.machine);
    stored_ = problem_.source();
    recomputed_.cameras = bal_.states.data();
    recomputed_.camera_maps = bal_.maps.data();
    recomputed_.points = bal_.points.data();
    recomputed_.point_scale = bal_.point_scale.data();
    j_abs_ = problem_.J().cwiseAbs();
    // Per element of a map or block 2 * 9 roundings on both sides, and sums.
    // The maps are dense here, with terms that cancel: scale by their sums.
    MatrixXd f_abs = MatrixXd::Zero(j_abs_.rows(), problem_.num_f());
    for (int64_t k = 0; k < problem_.num_observations(); ++k) {
      const int64_t c = problem_.index().camera_id[k];
      Projection<double> projection;
      EXPECT_TRUE(ProjectForProducts(
          bal_.states[c],
          bal_.points.data() + 3 * problem_.index().point_id[k],
          &projection));
      double local[18];
      CameraJacobian(bal_.states[c], projection, local);
      using RowMajor = Eigen::
          Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
      f_abs.block(2 * k, C * c, 2, C) =
          Eigen::Map<RowMajor>(local, 2, 9).cwiseAbs() *
          Eigen::Map<RowMajor>(bal_.maps.data() + 9 * C * c, 9, C).cwiseAbs();
    }
    j_abs_.rightCols(problem_.num_f()) = f_abs;
    bound_ = (4 * problem_.num_observations() + 64) * kEpsilon;
  }

  void Run() {
    Products();
    Blocks();
    Schur();
  }

 private:
  void Products() {
    const int64_t num_e = problem_.num_e();
    const VectorXd x = problem_.RandomVector(problem_.num_columns());
    VectorXd y[2];
    VectorXd z[2];
    VectorXd norms[2];
    for (int i = 0; i < 2; ++i) {
      y[i].resize(2 * problem_.num_observations());
      z[i].resize(x.size());
      norms[i].resize(x.size());
    }
    const auto run = [&](const auto& source, int i) {
      using Source = std::decay_t<decltype(source)>;
      RightMultiplyParams<Source> right;
      right.index = problem_.index();
      right.jacobian = source;
      right.point_x = x.data();
      right.camera_x = x.data() + num_e;
      right.y = y[i].data();
      RunOk(right, &problem_.machine);
      NormalProductImplicitWParams<Source> normal;
      normal.index = problem_.index();
      normal.jacobian = source;
      normal.point_p = x.data();
      normal.camera_p = x.data() + num_e;
      normal.point_q = z[i].data();
      normal.camera_q = z[i].data() + num_e;
      RunOk(normal, &problem_.machine);
      LeftMultiplyParams<Source> left;
      left.index = problem_.index();
      left.jacobian = source;
      left.y = y[0].data();
      left.point_x = norms[i].data();
      left.camera_x = norms[i].data() + num_e;
      RunOk(left, &problem_.machine);
      ExpectWithin(norms[i],
                   problem_.J().transpose() * y[0],
                   bound_ * (j_abs_.transpose() * y[0].cwiseAbs()));
      SquaredColumnNormsParams<Source> squared;
      squared.index = problem_.index();
      squared.jacobian = source;
      squared.point_x = norms[i].data();
      squared.camera_x = norms[i].data() + num_e;
      RunOk(squared, &problem_.machine);
    };
    run(stored_, 0);
    run(recomputed_, 1);
    const VectorXd y_scale = j_abs_ * x.cwiseAbs();
    ExpectWithin(y[1], y[0], bound_ * y_scale);
    ExpectWithin(z[1], z[0], bound_ * (j_abs_.transpose() * y_scale));
    const VectorXd norm_scale = j_abs_.colwise().squaredNorm();
    ExpectWithin(norms[1], norms[0], bound_ * norm_scale);
  }

  template <typename Source>
  struct Normal {
    Normal(const Source& source,
           DenseProblem<double, C>* problem,
           const VectorXd& residuals)
        : u(PackedSize(C) * problem->num_cameras()),
          s(u.size()),
          rhs(C * problem->num_cameras()),
          g(rhs.size()),
          vi(6 * problem->num_points()) {
      NormalBlocksParams<Source, kHostLayout> params;
      params.index = problem->index();
      params.jacobian = source;
      params.b = residuals.data();
      params.point_diagonal = problem->point_diagonal.data();
      params.v_inverse = {vi.data(), problem->num_points()};
      params.u = {u.data(), problem->num_cameras()};
      params.camera_gradient = g.data();
      params.schur_diagonal = {s.data(), problem->num_cameras()};
      params.schur_rhs = rhs.data();
      params.breakdown = &breakdown;
      RunOk(params, &problem->machine);
      EXPECT_EQ(breakdown.first_block, Breakdown::kNone);
    }
    std::vector<double> u, s, rhs, g, vi;
    Breakdown breakdown;
  };

  void Blocks() {
    const Normal<decltype(stored_)> stored(stored_, &problem_, bal_.residuals);
    const Normal<decltype(recomputed_)> recomputed(
        recomputed_, &problem_, bal_.residuals);
    const MatrixXd e_abs = j_abs_.leftCols(problem_.num_e());
    const MatrixXd f_abs = j_abs_.rightCols(problem_.num_f());
    const VectorXd b_abs = bal_.residuals.cwiseAbs();
    const MatrixXd u_abs = f_abs.transpose() * f_abs;
    const MatrixXd w_abs = f_abs.transpose() * e_abs;
    ExpectWithin(AsVector(recomputed.u),
                 AsVector(stored.u),
                 bound_ * PackedDiagonalBlocks<C>(u_abs));
    ExpectWithin(AsVector(recomputed.g),
                 AsVector(stored.g),
                 bound_ * (f_abs.transpose() * b_abs));
    MatrixXd vi_bound;
    const MatrixXd e = problem_.E();
    InversePointBlocks(e.transpose() * e + problem_.DampingE(true), &vi_bound);
    const MatrixXd s_scale = u_abs + w_abs * vi_bound * w_abs.transpose();
    ExpectWithin(AsVector(recomputed.s),
                 AsVector(stored.s),
                 bound_ * PackedDiagonalBlocks<C>(s_scale));
    ExpectWithin(AsVector(recomputed.rhs),
                 AsVector(stored.rhs),
                 bound_ * (f_abs.transpose() * b_abs +
                           w_abs * (vi_bound * (e_abs.transpose() * b_abs))));
  }

  void Schur() {
    const Normal<decltype(stored_)> blocks(stored_, &problem_, bal_.residuals);
    const VectorXd p = problem_.RandomVector(problem_.num_f());
    VectorXd q[2] = {p, p};
    VectorXd y[2];
    const auto run = [&](const auto& source, int i) {
      using Source = std::decay_t<decltype(source)>;
      SchurProductImplicitWParams<Source, kHostLayout> product;
      product.index = problem_.index();
      product.jacobian = source;
      product.v_inverse = {blocks.vi.data(), problem_.num_points()};
      product.camera_diagonal = problem_.camera_diagonal.data();
      product.p = p.data();
      product.q = q[i].data();
      RunOk(product, &problem_.machine);
      y[i].resize(problem_.num_e());
      BackSubstituteImplicitWParams<Source, kHostLayout> back;
      back.index = problem_.index();
      back.jacobian = source;
      back.b = bal_.residuals.data();
      back.v_inverse = product.v_inverse;
      back.z = p.data();
      back.y = y[i].data();
      RunOk(back, &problem_.machine);
    };
    run(stored_, 0);
    run(recomputed_, 1);
    const MatrixXd e_abs = j_abs_.leftCols(problem_.num_e());
    const MatrixXd f_abs = j_abs_.rightCols(problem_.num_f());
    const MatrixXd vi_abs = FromPackedBlocks<3>(blocks.vi).cwiseAbs();
    const VectorXd y_abs = f_abs * p.cwiseAbs();
    const VectorXd e_sum = vi_abs * (e_abs.transpose() * y_abs);
    ExpectWithin(q[1],
                 q[0],
                 bound_ * (f_abs.transpose() * (y_abs + e_abs * e_sum) +
                           problem_.DampingF(true) * p.cwiseAbs()));
    ExpectWithin(y[1],
                 y[0],
                 bound_ * (vi_abs * (e_abs.transpose() *
                                     (y_abs + bal_.residuals.cwiseAbs()))));
  }

  BalProblem<double, C> bal_;
  DenseProblem<double, C>& problem_;
  typename DenseProblem<double, C>::Source stored_;
  RecomputedJacobian<double, C> recomputed_;
  MatrixXd j_abs_;
  double bound_;
};

TEST_P(EvaluateTest, Recomputed9) {
  RecomputedAgainstStored<9>(GetParam()).Run();
}
TEST_P(EvaluateTest, Recomputed10) {
  RecomputedAgainstStored<10>(GetParam()).Run();
}

INSTANTIATE_TEST_SUITE_P(Edges,
                         EvaluateTest,
                         testing::ValuesIn(EdgeStructures()),
                         StructureName);

}  // namespace
}  // namespace ceres_ext::kernels
