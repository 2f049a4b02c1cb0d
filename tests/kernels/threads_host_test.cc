// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Every operation on the host gives the same bits for any number of threads.
#include <vector>

#include "cuda_kernels/ops/evaluate.h"
#include "cuda_kernels/ops/jacobian_products.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/ops/pcg.h"
#include "cuda_kernels/ops/schur_products.h"
#include "gtest/gtest.h"
#include "tests/kernels/dense_problem.h"
#include "tests/kernels/run_ok.h"

namespace ceres_ext::kernels {
namespace {

using Problem = DenseProblem<double, 9>;
using Source = Problem::Source;

// All results of all operations, one after the other.
std::vector<double> Results(int num_threads) {
  static const Structure structure = RandomStructure("large", 40, 3000, 4, 8);
  Problem problem(structure, 61, num_threads);
  EXPECT_GT(problem.workspace.num_chunks(), 20);
  HostMachine* machine = &problem.machine;
  std::vector<double> results;
  const auto keep = [&](const VectorXd& values) {
    results.insert(results.end(), values.data(), values.data() + values.size());
  };
  const ObservationIndexRef& index = problem.index();
  const int64_t num_e = problem.num_e();
  const int64_t num_f = problem.num_f();
  const VectorXd x = problem.RandomVector(num_e + num_f);

  VectorXd packed_u(PackedSize(9) * index.num_cameras);
  VectorXd packed_s(packed_u.size());
  VectorXd packed_v(6 * index.num_points);
  VectorXd packed_vi(packed_v.size());
  VectorXd g_e(num_e);
  VectorXd g_f(num_f);
  VectorXd rhs(num_f);
  Breakdown breakdown;
  NormalBlocksParams<Source, kHostLayout> normal;
  normal.index = index;
  normal.jacobian = problem.source();
  normal.b = problem.b.data();
  normal.point_diagonal = problem.point_diagonal.data();
  normal.v = {packed_v.data(), index.num_points};
  normal.v_inverse = {packed_vi.data(), index.num_points};
  normal.point_gradient = g_e.data();
  normal.u = {packed_u.data(), index.num_cameras};
  normal.camera_gradient = g_f.data();
  normal.schur_diagonal = {packed_s.data(), index.num_cameras};
  normal.schur_rhs = rhs.data();
  normal.breakdown = &breakdown;
  RunOk(normal, machine);
  for (const VectorXd& v :
       {packed_u, packed_s, packed_v, packed_vi, g_e, g_f, rhs}) {
    keep(v);
  }

  VectorXd q(num_e + num_f);
  SchurProductImplicitWParams<Source, kHostLayout> schur_product;
  schur_product.index = index;
  schur_product.jacobian = problem.source();
  schur_product.v_inverse = normal.v_inverse;
  schur_product.p = x.data();
  schur_product.q = q.data();
  RunOk(schur_product, machine);
  keep(q.head(num_f));
  BackSubstituteImplicitWParams<Source, kHostLayout> back;
  back.index = index;
  back.jacobian = problem.source();
  back.b = problem.b.data();
  back.v_inverse = normal.v_inverse;
  back.z = x.data();
  back.y = q.data();
  RunOk(back, machine);
  keep(q.head(num_e));
  NormalProductImplicitWParams<Source> normal_product;
  normal_product.index = index;
  normal_product.jacobian = problem.source();
  normal_product.camera_p = x.data();
  normal_product.point_p = x.data() + num_f;
  normal_product.camera_q = q.data();
  normal_product.point_q = q.data() + num_f;
  RunOk(normal_product, machine);
  keep(q);
  LeftMultiplyParams<Source> left;
  left.index = index;
  left.jacobian = problem.source();
  left.y = problem.b.data();
  left.camera_x = q.data();
  left.point_x = q.data() + num_f;
  RunOk(left, machine);
  keep(q);
  SquaredColumnNormsParams<Source> norms;
  norms.index = index;
  norms.jacobian = problem.source();
  norms.camera_x = q.data();
  norms.point_x = q.data() + num_f;
  RunOk(norms, machine);
  keep(q);

  PcgScalars scalars;
  VectorXd r(x.size());
  PcgStartParams start;
  start.n = x.size();
  start.max_num_iterations = 1;
  start.rhs = x.data();
  start.x = q.data();
  start.r = r.data();
  start.scalars = &scalars;
  RunOk(start, machine);
  results.push_back(scalars.norm_rhs);
  VectorXd p(x.size());
  const int64_t n = x.size();
  RunOk(PcgRhoParams{n, r.data(), x.data(), &scalars}, machine);
  RunOk(PcgDirectionParams{n, x.data(), p.data(), &scalars}, machine);
  RunOk(PcgAlphaParams{n, p.data(), x.data(), &scalars}, machine);
  RunOk(PcgAdvanceParams{n, p.data(), q.data(), &scalars}, machine);
  PcgResidualParams residual;
  residual.n = x.size();
  residual.rhs = x.data();
  residual.q = p.data();
  residual.x = q.data();
  residual.r = r.data();
  residual.scalars = &scalars;
  RunOk(residual, machine);
  keep(q);
  keep(r);
  results.push_back(scalars.q1);
  results.push_back(scalars.norm_r);

  // Evaluation at a state that has nothing to do with the Jacobian above.
  std::vector<CameraState<double>> states(index.num_cameras);
  std::vector<double> maps(81 * index.num_cameras);
  const VectorXd cameras = VectorXd::Ones(9 * index.num_cameras) +
                           0.1 * problem.RandomVector(9 * index.num_cameras);
  const VectorXd observations =
      problem.RandomVector(2 * index.num_observations);
  PrepareCamerasParams<double, 9> prepare;
  prepare.num_cameras = index.num_cameras;
  prepare.cameras = cameras.data();
  prepare.states = states.data();
  prepare.maps = maps.data();
  EXPECT_TRUE(kernels::Run(prepare, machine).ok());
  Evaluation evaluation;
  EvaluateJacobianParams<double, 9, kHostLayout> evaluate;
  evaluate.index = index;
  evaluate.cameras = states.data();
  evaluate.camera_maps = maps.data();
  evaluate.points = x.data();
  evaluate.observations = observations.data();
  evaluate.camera_blocks = {problem.jc.data(), index.num_observations};
  evaluate.point_blocks = {problem.jp.data(), index.num_observations};
  evaluate.camera_gradient = q.data();
  evaluate.point_gradient = q.data() + num_f;
  evaluate.evaluation = &evaluation;
  RunOk(evaluate, machine);
  keep(q);
  keep(VectorXd::Map(problem.jc.data(), problem.jc.size()));
  results.push_back(evaluation.cost);
  EvaluateCostParams evaluate_cost;
  evaluate_cost.index = index;
  evaluate_cost.cameras = states.data();
  evaluate_cost.points = x.data();
  evaluate_cost.observations = observations.data();
  evaluate_cost.evaluation = &evaluation;
  RunOk(evaluate_cost, machine);
  results.push_back(evaluation.cost);
  return results;
}

TEST(Threads, SameBitsForAnyNumber) {
  const std::vector<double> expected = Results(1);
  for (const double value : expected) {
    ASSERT_TRUE(std::isfinite(value));
  }
  for (const int num_threads : {1, 2, 3, 7, 16}) {
    EXPECT_TRUE(Results(num_threads) == expected) << num_threads << " threads";
  }
}

}  // namespace
}  // namespace ceres_ext::kernels
