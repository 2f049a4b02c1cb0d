// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The index of couplings against its definition, and the Schur complement as a
// matrix against dense Eigen, on the host.
#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "cuda_kernels/ops/manifolds.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/ops/schur_complement.h"
#include "cuda_kernels/ops/schur_products.h"
#include "cuda_kernels/ops/schur_terms.h"
#include "cuda_kernels/structure/coupling_index.h"
#include "cuda_kernels/structure/schur_matrix.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/bal_problem.h"
#include "tests/kernels/dense_problem.h"
#include "tests/kernels/run_ok.h"

namespace ceres_ext::kernels {
namespace {

// A structure whose blocks are cut into chunks: three cameras see all points,
// of which every third one sees camera 1 twice.
Structure LongBlocks() {
  Structure structure{"long_blocks", 3, 1100, {}, {}};
  for (int32_t p = 0; p < structure.num_points; ++p) {
    for (int32_t c = 0; c < 3; ++c) {
      structure.Add(c, p);
      if (c == 1 && p % 3 == 0) {
        structure.Add(c, p);
      }
    }
  }
  structure.Shuffle(9);
  return structure;
}

class CouplingIndexTest : public testing::TestWithParam<Structure> {};

TEST_P(CouplingIndexTest, LikeItsDefinition) {
  const Structure& structure = GetParam();
  HostMachine machine(1);
  ObservationIndex observations;
  ASSERT_TRUE(observations
                  .Build({structure.num_cameras,
                          structure.num_points,
                          static_cast<int64_t>(structure.camera.size()),
                          structure.camera.data(),
                          structure.point.data()})
                  .ok());
  const ObservationIndexRef& index = observations.ref();
  // Blocks by (i, j), their couplings by (k, l).
  std::map<std::pair<int32_t, int32_t>,
           std::vector<std::pair<int64_t, int64_t>>>
      expected;
  int64_t num_couplings = 0;
  std::vector<int64_t> row_couplings(
      static_cast<size_t>(structure.num_cameras) + 1);
  for (int32_t c = 0; c < structure.num_cameras; ++c) {
    expected[{c, c}];
  }
  for (int64_t k = 0; k < index.num_observations; ++k) {
    for (int64_t l = 0; l < index.num_observations; ++l) {
      const int32_t i = index.camera_id[k];
      const int32_t j = index.camera_id[l];
      if (i > j && index.point_id[k] == index.point_id[l]) {
        expected[{i, j}].emplace_back(k, l);
        ++num_couplings;
        ++row_couplings[static_cast<size_t>(i)];
      }
    }
  }
  CouplingForecast forecast;
  ASSERT_TRUE(
      ForecastCouplings(index, CouplingList::kObservations, &machine, &forecast)
          .ok());
  EXPECT_EQ(forecast.num_couplings, num_couplings);
  EXPECT_EQ(forecast.row_couplings,
            *std::max_element(row_couplings.begin(), row_couplings.end()));
  EXPECT_GE(forecast.max_num_blocks, static_cast<int64_t>(expected.size()));
  EXPECT_EQ(machine.bytes(), 0);

  CouplingIndex couplings;
  // Twice on one object.
  ASSERT_TRUE(
      couplings.Build(index, CouplingList::kObservations, &machine).ok());
  ASSERT_TRUE(
      couplings.Build(index, CouplingList::kObservations, &machine).ok());
  EXPECT_LE(machine.bytes(), forecast.bytes);
  const CouplingIndexRef& view = couplings.ref();
  ASSERT_EQ(view.num_cameras, structure.num_cameras);
  ASSERT_EQ(view.num_blocks, static_cast<int64_t>(expected.size()));
  ASSERT_EQ(view.num_couplings, num_couplings);
  int64_t b = 0;
  int64_t begin = 0;
  int64_t chunk = 0;
  for (const auto& [cameras, list] : expected) {
    ASSERT_EQ(view.row[b], cameras.first);
    ASSERT_EQ(view.column[b], cameras.second);
    ASSERT_EQ(view.coupling_begin[b], begin);
    if (cameras.first == cameras.second) {
      EXPECT_EQ(view.row_begin[cameras.first + 1], b + 1);
    }
    for (size_t at = 0; at < list.size(); ++at) {
      const int64_t coupling = view.coupling[begin + static_cast<int64_t>(at)];
      ASSERT_EQ(FirstOfCoupling(coupling), list[at].first);
      ASSERT_EQ(SecondOfCoupling(coupling), list[at].second);
      if (static_cast<int64_t>(list.size()) > view.chunk_size() &&
          static_cast<int64_t>(at) % view.chunk_size() == 0) {
        ASSERT_LT(chunk, view.num_chunks);
        EXPECT_EQ(view.chunk[chunk].block, b);
        EXPECT_EQ(view.chunk[chunk].begin, begin + static_cast<int64_t>(at));
        ++chunk;
      }
    }
    begin += static_cast<int64_t>(list.size());
    ++b;
  }
  // Their points.
  CouplingIndex points;
  ASSERT_TRUE(points.Build(index, CouplingList::kPoints, &machine).ok());
  ASSERT_EQ(points.ref().num_couplings, num_couplings);
  EXPECT_EQ(points.ref().coupling, nullptr);
  for (int64_t at = 0; at < num_couplings; ++at) {
    ASSERT_EQ(points.ref().point[at],
              index.point_id[FirstOfCoupling(view.coupling[at])]);
  }
  EXPECT_EQ(view.row_begin[0], 0);
  EXPECT_EQ(view.coupling_begin[b], begin);
  EXPECT_EQ(view.num_chunks, chunk);
  EXPECT_EQ(chunk > 0, structure.name == "long_blocks");
}

// Going through the rows of a camera and a point for each of them would take
// days.
TEST(CouplingIndexTest, OfACameraThatSeesAPointAMillionTimes) {
  constexpr int64_t kRows = 1 << 20;
  std::vector<int32_t> camera(kRows, 1);
  camera[kRows / 2] = 0;
  const std::vector<int32_t> point(kRows, 0);
  HostMachine machine(1);
  ObservationIndex observations;
  ASSERT_TRUE(
      observations.Build({2, 1, kRows, camera.data(), point.data()}).ok());
  CouplingForecast forecast;
  ASSERT_TRUE(
      ForecastCouplings(
          observations.ref(), CouplingList::kBlocks, &machine, &forecast)
          .ok());
  EXPECT_EQ(forecast.num_couplings, kRows - 1);
  CouplingIndex couplings;
  ASSERT_TRUE(
      couplings.Build(observations.ref(), CouplingList::kBlocks, &machine)
          .ok());
  EXPECT_EQ(couplings.ref().num_couplings, kRows - 1);
  EXPECT_EQ(couplings.ref().num_blocks, 3);
}

std::vector<Structure> AllStructures() {
  std::vector<Structure> all = EdgeStructures();
  all.push_back(LongBlocks());
  return all;
}
INSTANTIATE_TEST_SUITE_P(Edges,
                         CouplingIndexTest,
                         testing::ValuesIn(AllStructures()),
                         StructureName);

TEST(Couplings, OfLargePlaces) {
  const int64_t coupling = MakeCoupling(2147483646, 2147483645);
  EXPECT_EQ(FirstOfCoupling(coupling), 2147483646);
  EXPECT_EQ(SecondOfCoupling(coupling), 2147483645);
}

// S is symmetric: the lower triangle and its mirror image.
MatrixXd Symmetric(const MatrixXd& lower) {
  MatrixXd s = lower + lower.transpose();
  s.diagonal() = lower.diagonal();
  return s;
}

// S of a problem with stored blocks, in every form.
template <typename T, int C>
class MatrixOfProblem {
 public:
  using Source = typename DenseProblem<T, C>::Source;
  using Params = SchurComplementParams<Source, kHostLayout>;

  MatrixOfProblem(DenseProblem<T, C>* problem,
                  const std::vector<unsigned char>& varies,
                  const double* camera_diagonal,
                  const double* point_diagonal)
      : v_inverse(6 * problem->num_points()),
        schur_diagonal(PackedSize(C) * problem->num_cameras()),
        rhs(C * problem->num_cameras()),
        problem_(problem) {
    NormalBlocksParams<Source, kHostLayout> blocks;
    blocks.index = problem->index();
    blocks.jacobian = problem->source();
    blocks.b = problem->b.data();
    blocks.point_diagonal = point_diagonal;
    blocks.v_inverse = {v_inverse.data(), problem->num_points()};
    blocks.schur_diagonal = {schur_diagonal.data(), problem->num_cameras()};
    blocks.schur_rhs = rhs.data();
    Breakdown breakdown;
    blocks.breakdown = &breakdown;
    RunOk(blocks, &problem->machine);
    EXPECT_EQ(breakdown.first_block, Breakdown::kNone);
    EXPECT_TRUE(couplings
                    .Build(problem->index(),
                           CouplingList::kObservations,
                           &problem->machine)
                    .ok());
    BlockFamilies families;
    families.Add(C, problem->index().num_cameras);
    EXPECT_TRUE(
        unknowns.Setup(families, varies.data(), &problem->machine).ok());
    EXPECT_TRUE(csr.Setup(couplings.ref(), unknowns, &problem->machine).ok());
    EXPECT_TRUE(csr.SetupColumns(&problem->machine).ok());
    EXPECT_TRUE(rows.Setup(csr, unknowns, &problem->machine).ok());
    params.index = problem->index();
    params.couplings = couplings.ref();
    EXPECT_TRUE(schur_rows
                    .Setup(problem->index(),
                           couplings.ref(),
                           nullptr,
                           C,
                           &problem->machine)
                    .ok());
    params.rows = schur_rows.ref();
    params.unknowns = unknowns.ref();
    params.jacobian = problem->source();
    params.v_inverse = {v_inverse.data(), problem->num_points()};
    params.schur_diagonal = {schur_diagonal.data(), problem->num_cameras()};
    params.camera_diagonal = camera_diagonal;
  }

  int64_t n() const { return unknowns.ref().num_unknowns; }
  // Column by column, `padding` values between two of them.
  MatrixXd Dense(int64_t padding = 0) {
    const int64_t stride = n() + padding;
    MatrixXd s = MatrixXd::Constant(stride, n(), -7.0);
    params.target = {};
    params.target.values = s.data();
    params.target.stride = stride;
    RunOk(params, &problem_->machine);
    for (int64_t v = 0; v < n(); ++v) {
      EXPECT_TRUE((s.col(v).head(v).array() == -7.0).all());
      s.col(v).head(v).setZero();
    }
    return s.topRows(n());
  }
  std::vector<double> Values() {
    std::vector<double> values(static_cast<size_t>(csr.num_values()), -7.0);
    params.target = csr.target(values.data());
    RunOk(params, &problem_->machine);
    return values;
  }
  MatrixXd Sparse() {
    const std::vector<double> values = Values();
    MatrixXd s = MatrixXd::Zero(n(), n());
    for (int64_t u = 0; u < n(); ++u) {
      int32_t previous = -1;
      for (int64_t at = csr.row_begin()[u]; at < csr.row_begin()[u + 1]; ++at) {
        const int32_t v = csr.column()[at];
        EXPECT_GT(v, previous);
        EXPECT_LE(v, u);
        previous = v;
        s(u, v) = values[static_cast<size_t>(at)];
      }
      EXPECT_EQ(previous, u) << "The last element of a row is the diagonal.";
    }
    return s;
  }
  // By blocks, of a vector of F.
  VectorXd Product(const VectorXd& p) {
    const std::vector<double> values = Values();
    std::vector<double> partial(
        static_cast<size_t>(rows.ref().num_chunks * rows.ref().width), -7.0);
    VectorXd q = VectorXd::Constant(p.size(), -7.0);
    RunOk(
        SchurRowChunksParams{
            rows.ref(), values.data(), p.data(), partial.data()},
        &problem_->machine);
    RunOk(SchurRowSumsParams{rows.ref(), partial.data(), q.data()},
          &problem_->machine);
    return q;
  }
  VectorXd Rhs() {
    VectorXd y = VectorXd::Constant(n(), -7.0);
    RunOk(GatherValuesParams{n(), unknowns.ref().column, rhs.data(), y.data()},
          &problem_->machine);
    return y;
  }

  std::vector<double> v_inverse, schur_diagonal, rhs;
  CouplingIndex couplings;
  SchurUnknowns<HostMachine> unknowns;
  SchurCsr<HostMachine> csr;
  SchurRows<HostMachine> rows;
  HostSchurRows schur_rows;
  Params params;

 private:
  DenseProblem<T, C>* problem_;
};

// held: columns from C - 2 on, all of camera 0, which Pad made zero, and, which
// is not zero and held all the same, column 1 of every third camera.
template <typename T, int C>
void ExpectDense(const Structure& structure, bool damped, bool held) {
  DenseProblem<T, C> problem(structure, 21);
  std::vector<unsigned char> varies(
      static_cast<size_t>(C * problem.num_cameras()), 1);
  if (held) {
    problem.Pad(C - 2);
    for (size_t at = 0; at < varies.size(); ++at) {
      const size_t c = at / C;
      const size_t e = at % C;
      varies[at] = c != 0 && e < C - 2 && (c % 3 != 0 || e != 1);
    }
  }
  std::vector<int64_t> unknown;
  for (size_t at = 0; at < varies.size(); ++at) {
    if (varies[at]) {
      unknown.push_back(static_cast<int64_t>(at));
    }
  }
  // Points seen once need damping to be full rank.
  const bool point_damped = damped || problem.HasPointSeenOnce();
  const MatrixXd e = problem.E();
  const MatrixXd f = problem.F();
  const MatrixXd w = f.transpose() * e;
  MatrixXd vi_bound;
  const MatrixXd vi = InversePointBlocks(
      e.transpose() * e + problem.DampingE(point_damped), &vi_bound);
  const MatrixXd s_all =
      f.transpose() * f + problem.DampingF(damped) - w * vi * w.transpose();
  const VectorXd rhs_all =
      f.transpose() * problem.b - w * vi * (e.transpose() * problem.b);
  // Sums over rows, times what a product in front of the sum adds
  // (normal_blocks_host_test.cc), and D^2 and its addition.
  const double bound = 2 * (2 * problem.num_observations() + 10) * kEpsilon;
  const MatrixXd w_abs = f.transpose().cwiseAbs() * e.cwiseAbs();
  const MatrixXd scale_all = f.transpose().cwiseAbs() * f.cwiseAbs() +
                             problem.DampingF(damped) +
                             w_abs * vi_bound * w_abs.transpose();
  const VectorXd rhs_scale_all =
      f.transpose().cwiseAbs() * problem.b.cwiseAbs() +
      w_abs * vi_bound * (e.transpose().cwiseAbs() * problem.b.cwiseAbs());

  MatrixOfProblem<T, C> matrix(
      &problem,
      varies,
      damped ? problem.camera_diagonal.data() : nullptr,
      point_damped ? problem.point_diagonal.data() : nullptr);
  const int64_t n = matrix.n();
  ASSERT_EQ(n, static_cast<int64_t>(unknown.size()));
  MatrixXd s(n, n);
  MatrixXd scale(n, n);
  VectorXd rhs(n);
  VectorXd rhs_scale(n);
  for (int64_t u = 0; u < n; ++u) {
    for (int64_t v = 0; v < n; ++v) {
      s(u, v) = s_all(unknown[u], unknown[v]);
      scale(u, v) = scale_all(unknown[u], unknown[v]);
    }
    rhs[u] = rhs_all[unknown[u]];
    rhs_scale[u] = rhs_scale_all[unknown[u]];
  }

  const MatrixXd dense = matrix.Dense();
  for (int64_t v = 0; v < n; ++v) {
    ExpectWithin(dense.col(v).tail(n - v),
                 s.col(v).tail(n - v),
                 bound * scale.col(v).tail(n - v));
  }
  ExpectWithin(matrix.Rhs(), rhs, bound * rhs_scale);
  // The same bits again, in other forms.
  EXPECT_EQ(matrix.Dense(3), dense);
  EXPECT_EQ(matrix.Sparse(), dense);
  EXPECT_EQ(matrix.Dense(), dense);

  // S p, and the product that never forms S, of p in the unknowns alone. Both
  // are off by the bound of S; a row of the product adds n terms.
  const VectorXd x = problem.RandomVector(n);
  VectorXd p = VectorXd::Zero(problem.num_f());
  RunOk(
      ScatterValuesParams{n, matrix.unknowns.ref().column, x.data(), p.data()},
      &problem.machine);
  VectorXd q(problem.num_f());
  SchurProductImplicitWParams<typename DenseProblem<T, C>::Source, kHostLayout>
      product;
  product.index = problem.index();
  product.jacobian = problem.source();
  product.v_inverse = {matrix.v_inverse.data(), problem.num_points()};
  product.camera_diagonal = matrix.params.camera_diagonal;
  product.p = p.data();
  product.q = q.data();
  RunOk(product, &problem.machine);
  VectorXd q_unknowns(n);
  for (int64_t u = 0; u < n; ++u) {
    q_unknowns[u] = q[unknown[u]];
    EXPECT_EQ(p[unknown[u]], x[u]);
  }
  EXPECT_EQ((p.array() == 0.0).count(), problem.num_f() - n);
  ExpectWithin(q_unknowns,
               Symmetric(dense) * x,
               (2 * bound + n * kEpsilon) * (scale * x.cwiseAbs()));
  // By blocks it is off by the order of the sums alone, and zero elsewhere.
  const VectorXd by_blocks = matrix.Product(p);
  for (int64_t u = 0; u < n; ++u) {
    q_unknowns[u] = by_blocks[unknown[u]];
  }
  EXPECT_GE((by_blocks.array() == 0.0).count(), problem.num_f() - n);
  ExpectWithin(q_unknowns,
               Symmetric(dense) * x,
               2 * n * kEpsilon * (Symmetric(dense).cwiseAbs() * x.cwiseAbs()));
}

class SchurComplementTest
    : public testing::TestWithParam<std::tuple<Structure, bool, bool>> {
 protected:
  template <typename T, int C>
  void Run() {
    const auto& [structure, damped, held] = GetParam();
    ExpectDense<T, C>(structure, damped, held);
  }
};

TEST_P(SchurComplementTest, Double9) { Run<double, 9>(); }
TEST_P(SchurComplementTest, Double10) { Run<double, 10>(); }
TEST_P(SchurComplementTest, Double6) { Run<double, 6>(); }
TEST_P(SchurComplementTest, Double12) { Run<double, 12>(); }
TEST_P(SchurComplementTest, Double18) { Run<double, 18>(); }
TEST_P(SchurComplementTest, Float9) { Run<float, 9>(); }
TEST_P(SchurComplementTest, Float10) { Run<float, 10>(); }

INSTANTIATE_TEST_SUITE_P(Edges,
                         SchurComplementTest,
                         testing::Combine(testing::ValuesIn(EdgeStructures()),
                                          testing::Bool(),
                                          testing::Bool()),
                         [](const auto& info) {
                           return std::get<0>(info.param).name +
                                  (std::get<1>(info.param) ? "_damped"
                                                           : "_undamped") +
                                  (std::get<2>(info.param) ? "_held" : "");
                         });

// Two cameras see one point, Jp = diag(1, 2) padded, D_p = (1, 1, 1), so that
// Vi = diag(1/3, 1/9, 1); Jc has one element, 3 in (0, 0) of camera 0 and 5 in
// (1, 1) of camera 1, and then 5 in (0, 1), so that the two couple:
//   S_10(1, 0) = -(5 * 1) (1/3) (1 * 3)
TEST(SchurComplement, ByHand) {
  DenseProblem<double, 9> problem({"two", 2, 1, {0, 1}, {0, 0}}, 1);
  problem.jc.assign(36, 0.0);
  problem.jc[0] = 3;
  problem.jp = {1, 0, 0, 0, 2, 0, 1, 0, 0, 0, 2, 0};
  problem.point_diagonal.setOnes();
  problem.camera_diagonal.setConstant(2.0);
  for (const int at : {18 + 10, 18 + 1}) {
    std::fill(problem.jc.begin() + 18, problem.jc.end(), 0.0);
    problem.jc[static_cast<size_t>(at)] = 5;
    MatrixOfProblem<double, 9> matrix(&problem,
                                      std::vector<unsigned char>(18, 1),
                                      problem.camera_diagonal.data(),
                                      problem.point_diagonal.data());
    const MatrixXd s = matrix.Dense();
    EXPECT_DOUBLE_EQ(s(0, 0), 6 + 4);
    EXPECT_EQ(s(8, 8), 4);
    EXPECT_DOUBLE_EQ(s(10, 10),
                     (at == 28 ? 25 - 100.0 / 9 : 25 - 25.0 / 3) + 4);
    EXPECT_DOUBLE_EQ(s(10, 0), at == 28 ? 0.0 : -5.0);
    EXPECT_EQ((s.array() != 0.0).count(), at == 28 ? 18 : 19);
  }
}

TEST(SchurComplement, NoUnknowns) {
  DenseProblem<double, 9> problem(RandomStructure("random", 4, 10, 3, 1), 1);
  MatrixOfProblem<double, 9> matrix(&problem,
                                    std::vector<unsigned char>(36, 0),
                                    nullptr,
                                    problem.point_diagonal.data());
  EXPECT_EQ(matrix.n(), 0);
  EXPECT_EQ(matrix.csr.num_values(), 0);
  EXPECT_EQ(matrix.Dense().size(), 0);
  EXPECT_EQ(matrix.Sparse().size(), 0);
}

TEST(SchurComplement, RefusesShortColumns) {
  DenseProblem<double, 9> problem(RandomStructure("random", 4, 10, 3, 1), 1);
  MatrixOfProblem<double, 9> matrix(&problem,
                                    std::vector<unsigned char>(36, 1),
                                    nullptr,
                                    problem.point_diagonal.data());
  std::vector<double> values(36 * 36);
  matrix.params.target = {};
  matrix.params.target.values = values.data();
  matrix.params.target.stride = 35;
  const Status status = kernels::Run(matrix.params, &problem.machine);
  EXPECT_EQ(status.code, StatusCode::kInvalidArgument);
  EXPECT_NE(status.message.find("36 unknowns"), std::string::npos)
      << status.message;
}

TEST(SchurUnknowns, RefusesMoreThanAnIdCounts) {
  HostMachine machine(1);
  SchurUnknowns<HostMachine> unknowns;
  BlockFamilies families;
  families.Add(2, 2147483647);
  EXPECT_EQ(unknowns.Setup(families, nullptr, &machine).code,
            StatusCode::kUnsupported);
}

// Recomputed blocks against stored ones of the same Vi and S_c. Each product
// with a camera map adds 9 terms, in front of the sum or behind it: with the
// roundings of the sum itself and of the coupling less than 2 n + 50 of either
// side, times the products of absolute values.
template <int C>
void ExpectRecomputedLikeStored(const Structure& structure) {
  BalProblem<double, C> bal(structure, 31);
  bal.Prepare();
  DenseProblem<double, C>& problem = bal.problem;
  RunOk(bal.JacobianParams(), &problem.machine);
  MatrixOfProblem<double, C> stored(
      &problem,
      std::vector<unsigned char>(static_cast<size_t>(problem.num_f()), 1),
      problem.camera_diagonal.data(),
      problem.point_diagonal.data());
  const MatrixXd expected = stored.Dense();

  using Source = RecomputedJacobian<double, C>;
  SchurComplementParams<Source, kHostLayout> params;
  params.index = problem.index();
  params.couplings = stored.params.couplings;
  HostSchurRows rows;
  ASSERT_TRUE(rows.Setup(params.index,
                         params.couplings,
                         nullptr,
                         kBalLocalCameraDim,
                         &problem.machine)
                  .ok());
  params.rows = rows.ref();
  params.unknowns = stored.params.unknowns;
  params.jacobian = Source{bal.states.data(),
                           bal.maps.data(),
                           bal.points.data(),
                           bal.point_scale.data()};
  params.v_inverse = stored.params.v_inverse;
  params.schur_diagonal = stored.params.schur_diagonal;
  params.camera_diagonal = stored.params.camera_diagonal;
  const int64_t n = problem.num_f();
  MatrixXd s = MatrixXd::Constant(n, n, -7.0);
  params.target.values = s.data();
  params.target.stride = n;
  RunOk(params, &problem.machine);
  MatrixXd again = MatrixXd::Constant(n, n, -7.0);
  params.target.values = again.data();
  RunOk(params, &problem.machine);
  EXPECT_EQ(s, again);

  // |F| from absolute values of local blocks and maps.
  MatrixXd f = MatrixXd::Zero(2 * problem.num_observations(), n);
  const ObservationIndexRef& index = problem.index();
  for (int64_t k = 0; k < problem.num_observations(); ++k) {
    const int32_t c = index.camera_id[k];
    Projection<double> projection;
    ProjectForProducts(
        bal.states[c], &bal.points[3 * index.point_id[k]], &projection);
    double local[2 * kBalLocalCameraDim];
    CameraJacobian(bal.states[c], projection, local);
    for (int i = 0; i < 2; ++i) {
      for (int a = 0; a < C; ++a) {
        for (int e = 0; e < kBalLocalCameraDim; ++e) {
          f(2 * k + i, C * c + a) +=
              std::abs(local[kBalLocalCameraDim * i + e] *
                       bal.maps[(kBalLocalCameraDim * c + e) * C + a]);
        }
      }
    }
  }
  const MatrixXd w = f.transpose() * problem.E().cwiseAbs();
  const MatrixXd scale =
      w * FromPackedBlocks<3>(stored.v_inverse).cwiseAbs() * w.transpose();
  const double bound = 2 * (2 * problem.num_observations() + 50) * kEpsilon;
  for (int64_t v = 0; v < n; ++v) {
    ExpectWithin(s.col(v).tail(n - v),
                 expected.col(v).tail(n - v),
                 bound * scale.col(v).tail(n - v));
  }
}

class RecomputedSchurComplementTest : public testing::TestWithParam<Structure> {
};
TEST_P(RecomputedSchurComplementTest, Columns9) {
  ExpectRecomputedLikeStored<9>(GetParam());
}
TEST_P(RecomputedSchurComplementTest, Columns10) {
  ExpectRecomputedLikeStored<10>(GetParam());
}
INSTANTIATE_TEST_SUITE_P(Edges,
                         RecomputedSchurComplementTest,
                         testing::ValuesIn(EdgeStructures()),
                         StructureName);

}  // namespace
}  // namespace ceres_ext::kernels
