// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "Eigen/Dense"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/ops/block_table.h"
#include "cuda_kernels/ops/manifolds.h"
#include "cuda_kernels/ops/robust_losses.h"
#include "cuda_kernels/ops/vectors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/run_ok.h"
#include "tests/kernels/vectors_test_util.h"

namespace ceres_ext::kernels {
namespace {

using testing::ElementsAre;

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class VectorsTest : public testing::Test {
 protected:
  HostMachine machine_{3};
};

// Notes which thread handles an element.
struct NoteThreadParams {
  int64_t n = 0;
  std::thread::id* thread = nullptr;
  void Apply(int64_t i) const { thread[i] = std::this_thread::get_id(); }
};
struct NoteThreadOfTermParams {
  int64_t n = 0;
  std::thread::id* thread = nullptr;
  TwoSums* sums = nullptr;
  TwoSums Term(int64_t i) const {
    thread[i] = std::this_thread::get_id();
    return {1.0, static_cast<double>(i)};
  }
  void Set(const TwoSums& s) const { *sums = s; }
};

// A region would cost more than it gains.
TEST_F(VectorsTest, ShortVectorsStayOnTheCallingThread) {
  for (const int64_t n : {1, 4095, 4096, 4097, 4860, 8191}) {
    for (int i = 0; i < 20; ++i) {
      std::vector<std::thread::id> thread(n);
      RunOk(NoteThreadParams{n, thread.data()}, &machine_);
      EXPECT_THAT(thread, testing::Each(std::this_thread::get_id()));
      thread.assign(n, {});
      TwoSums sums;
      RunOk(NoteThreadOfTermParams{n, thread.data(), &sums}, &machine_);
      EXPECT_THAT(thread, testing::Each(std::this_thread::get_id()));
      // Sums of whole numbers below 2^53 have no rounding.
      EXPECT_EQ(sums.first, n);
      EXPECT_EQ(sums.second, n * (n - 1) / 2);
    }
  }
}

// ---------------------------------------------------------------------------

// Blocks: two of three columns, the constant (30, 31), one of one column.
struct HandTable {
  std::vector<int32_t> tangent_offset = {1, -1, 0};
  std::vector<int32_t> tangent_size = {2, 0, 1};
  std::vector<int32_t> state_offset = {2, -1, 0};
  std::vector<double> constant_values = {-1, -1, 30, 31, -1, -1};
  BlockTableView view() const {
    return {3,
            3,
            2,
            tangent_offset.data(),
            tangent_size.data(),
            state_offset.data(),
            constant_values.data()};
  }
};

TEST_F(VectorsTest, BlocksByHand) {
  const HandTable table;
  const std::vector<double> vector = {5, 6, 7};
  std::vector<double> padded(9, -1);
  RunOk(GatherTangentParams{table.view(), vector.data(), 0.5, padded.data()},
        &machine_);
  EXPECT_THAT(padded, ElementsAre(6, 7, 0.5, 0.5, 0.5, 0.5, 5, 0.5, 0.5));

  padded = {10, 11, 12, 13, 14, 15, 16, 17, 18};
  std::vector<double> scattered = {-1, -1, -1, -1};
  RunOk(ScatterTangentParams{table.view(), padded.data(), scattered.data()},
        &machine_);
  EXPECT_THAT(scattered, ElementsAre(16, 10, 11, -1));

  const std::vector<double> state = {1, 2, 3, 4};
  std::vector<double> ambient(6, -1);
  RunOk(GatherStateParams{table.view(), state.data(), ambient.data()},
        &machine_);
  EXPECT_THAT(ambient, ElementsAre(3, 4, 30, 31, 1, 2));

  RunOk(GatherTangentParams{table.view(), nullptr, 1, padded.data()},
        &machine_);
  EXPECT_THAT(padded, ElementsAre(0, 0, 1, 1, 1, 1, 0, 1, 1));
}

TEST_F(VectorsTest, UniformTableByHand) {
  const std::vector<int32_t> order = {2, 0, 1};
  for (const bool ordered : {true, false}) {
    std::vector<int32_t> state(3, -1);
    std::vector<int32_t> tangent(3, -1);
    std::vector<int32_t> size(3, -1);
    RunOk(UniformBlockTableParams{3,
                                  ordered ? order.data() : nullptr,
                                  4,
                                  100,
                                  50,
                                  state.data(),
                                  tangent.data(),
                                  size.data()},
          &machine_);
    EXPECT_THAT(
        state,
        ordered ? ElementsAre(108, 100, 104) : ElementsAre(100, 104, 108));
    EXPECT_THAT(tangent,
                ordered ? ElementsAre(58, 50, 54) : ElementsAre(50, 54, 58));
    EXPECT_THAT(size, ElementsAre(4, 4, 4));
  }
}

TEST_F(VectorsTest, PairsByHand) {
  const std::vector<int32_t> source = {2, 0, 0};
  const std::vector<double> in = {1, 2, 3, 4, 5, 6};
  std::vector<double> out(6, kNaN);
  RunOk(GatherTuplesParams<2>{3, source.data(), in.data(), out.data()},
        &machine_);
  EXPECT_THAT(out, ElementsAre(5, 6, 1, 2, 1, 2));
}

TEST_F(VectorsTest, GatherAndScatterAreInverse) {
  for (const int32_t n : {0, 1, 31, 32, 33, 1000, 30000}) {
    const TestTable table(n, 10, 10);
    const std::vector<double> vector = NormalVector(table.tangent_values, 3);
    std::vector<double> padded(static_cast<size_t>(n) * 10, kNaN);
    RunOk(GatherTangentParams{table.view(), vector.data(), 2.0, padded.data()},
          &machine_);
    int64_t num_values = 0;
    for (int64_t i = 0; i < n; ++i) {
      for (int j = 0; j < 10; ++j) {
        const bool active = j < table.tangent_size[i];
        num_values += active;
        ASSERT_EQ(padded[10 * i + j],
                  active ? vector[table.tangent_offset[i] + j] : 2.0);
      }
    }
    // Gaps keep their value.
    std::vector<double> scattered(vector.size(), -3.0);
    RunOk(ScatterTangentParams{table.view(), padded.data(), scattered.data()},
          &machine_);
    int64_t num_equal = 0;
    for (size_t i = 0; i < vector.size(); ++i) {
      num_equal += scattered[i] == vector[i];
      ASSERT_TRUE(scattered[i] == vector[i] || scattered[i] == -3.0);
    }
    EXPECT_EQ(num_equal, num_values);
  }
}

// ---------------------------------------------------------------------------

TEST_F(VectorsTest, PlusByHand) {
  const HandTable table;
  const std::vector<double> state = {1, 2, 3, 4};
  const std::vector<double> delta = {0.5, 10, kInfinity};
  std::vector<double> result(4, -1);
  RunOk(PlusParams{table.view(), state.data(), delta.data(), result.data()},
        &machine_);
  EXPECT_THAT(result, ElementsAre(1.5, 2, 13, kInfinity));

  // In place.
  std::vector<double> in_place = state;
  RunOk(
      PlusParams{table.view(), in_place.data(), delta.data(), in_place.data()},
      &machine_);
  EXPECT_EQ(in_place, result);
}

// ---------------------------------------------------------------------------

// A camera of 10 parameters whose last `num_fixed` are constant, moved in place
// or not.
std::vector<double> PlusOneCamera(const std::vector<double>& state,
                                  const std::vector<double>& delta,
                                  int num_fixed = 0,
                                  bool in_place = false) {
  const ManifoldFactor factors[] = {{ManifoldKind::kQuaternion, 4},
                                    {ManifoldKind::kEuclidean, 6 - num_fixed},
                                    {ManifoldKind::kConstant, num_fixed}};
  const ManifoldBlock block = {0, 0, 0, 3, 9, 0};
  std::vector<double> result = in_place ? state : std::vector<double>(10, kNaN);
  HostMachine machine(1);
  RunOk(PlusManifoldsParams{1,
                            &block,
                            factors,
                            in_place ? result.data() : state.data(),
                            delta.data(),
                            result.data()},
        &machine);
  return result;
}

TEST_F(VectorsTest, PlusQuaternionByHand) {
  const std::vector<double> x = {1, 0, 0, 0, 1, 2, 3, 4, 5, 6};
  EXPECT_EQ(PlusOneCamera(x, {0, 0, 0, 10, 20, 30, 40, 50, 60}),
            (std::vector<double>{1, 0, 0, 0, 11, 22, 33, 44, 55, 66}));
  // A zero change keeps the quaternion even where its norm isn't one.
  const std::vector<double> odd = {3, -4, 0.1, 7, 1, 2, 3, 4, 5, 6};
  EXPECT_EQ(PlusOneCamera(odd, {0, -0.0, 0, 0, 0, 0, 0, 0, 0}), odd);
  // Half a turn about z: the angle is twice |delta|.
  const double kHalfPi = std::acos(0.0);
  const std::vector<double> turned =
      PlusOneCamera(x, {0, 0, kHalfPi, 0, 0, 0, 0, 0, 0});
  EXPECT_NEAR(turned[0], 0, kEpsilon);
  EXPECT_THAT(std::vector<double>(turned.begin() + 1, turned.begin() + 4),
              ElementsAre(0, 0, 1));
  // Changes whose square underflows, and denormal ones, still move.
  for (const double tiny : {1e-8, 1e-170, 1e-300, 1e-320}) {
    const std::vector<double> moved =
        PlusOneCamera(x, {tiny, -tiny, 2 * tiny, 0, 0, 0, 0, 0, 0});
    // cos and sin to second order; a denormal has an absolute error.
    const double bound = 4 * kEpsilon * tiny + 5e-324;
    EXPECT_NEAR(moved[0], 1, 4 * tiny * tiny + kEpsilon);
    EXPECT_NEAR(moved[1], tiny, bound);
    EXPECT_NEAR(moved[2], -tiny, bound);
    EXPECT_NEAR(moved[3], 2 * tiny, bound);
  }
  // Fixed intrinsics.
  EXPECT_EQ(PlusOneCamera(x, {0, 0, 0, 10, 20, 30}, 3),
            (std::vector<double>{1, 0, 0, 0, 11, 22, 33, 4, 5, 6}));
}

// Plus turns by the rotation of angle 2 |delta| about delta, from the left, and
// ManifoldTangents is its derivative.
TEST_F(VectorsTest, QuaternionsMoveAsRotations) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::vector<double> x = NormalVector(10, 100 + seed);
    Eigen::Map<Eigen::Vector4d>(x.data()).normalize();
    const std::vector<double> delta = NormalVector(9, 200 + seed);
    const std::vector<double> y = PlusOneCamera(x, delta);
    EXPECT_EQ(PlusOneCamera(x, delta, 0, /*in_place=*/true), y);
    const Eigen::Vector3d d(delta[0], delta[1], delta[2]);
    const Eigen::Quaterniond expected =
        Eigen::Quaterniond(Eigen::AngleAxisd(2 * d.norm(), d.normalized())) *
        Eigen::Quaterniond(x[0], x[1], x[2], x[3]);
    // At most 8 roundings of the norm and of sine and cosine, whose argument is
    // at most 2^3, and 7 of each sum of terms of at most one.
    const double tolerance = 8 * (8 + 7) * kEpsilon;
    EXPECT_NEAR(y[0], expected.w(), tolerance);
    EXPECT_NEAR(y[1], expected.x(), tolerance);
    EXPECT_NEAR(y[2], expected.y(), tolerance);
    EXPECT_NEAR(y[3], expected.z(), tolerance);
    for (int i = 4; i < 10; ++i) {
      EXPECT_EQ(y[i], x[i] + delta[i - 1]);
    }

    // A constant camera, then this one; matrices have a column to spare. What
    // is zero everywhere, or linear, keeps its value.
    const ManifoldFactor factors[] = {{ManifoldKind::kConstant, 10},
                                      {ManifoldKind::kQuaternion, 4},
                                      {ManifoldKind::kEuclidean, 6}};
    const ManifoldBlock blocks[] = {{-1, -1, 0, 1, 10, 0},
                                    {0, 0, 1, 2, 10, 100}};
    std::vector<double> tangents(200, 7.0);
    RunOk(
        ManifoldTangentsParams{
            2, blocks, factors, false, x.data(), tangents.data()},
        &machine_);
    constexpr double kStep = 1e-5;
    for (int i = 0; i < 20; ++i) {
      for (int j = 0; j < 10; ++j) {
        const double value = tangents[10 * i + j];
        if (i < 10 || i >= 14 || j >= 3) {
          ASSERT_EQ(value, 7.0);
          continue;
        }
        std::vector<double> step(9, 0.0);
        step[j] = kStep;
        const double up = PlusOneCamera(x, step)[i - 10];
        step[j] = -kStep;
        const double down = PlusOneCamera(x, step)[i - 10];
        // Third order term, and 8 roundings of each value.
        EXPECT_NEAR(value,
                    (up - down) / (2 * kStep),
                    kStep * kStep + 8 * kEpsilon / kStep);
      }
    }
    const std::vector<double> curved = tangents;
    RunOk(
        ManifoldTangentsParams{
            2, blocks, factors, true, nullptr, tangents.data()},
        &machine_);
    for (int i = 0; i < 20; ++i) {
      for (int j = 0; j < 10; ++j) {
        EXPECT_EQ(tangents[10 * i + j],
                  i >= 14 && j == i - 11 ? 1.0 : curved[10 * i + j]);
      }
    }
  }
}

TEST_F(VectorsTest, ValuesOfBlocksByHand) {
  const std::vector<int64_t> index = {3, 0, 2};
  const std::vector<double> x = {1, 2, 3, 4};
  std::vector<double> values(3, kNaN);
  RunOk(GatherValuesParams{3, index.data(), x.data(), values.data()},
        &machine_);
  EXPECT_THAT(values, ElementsAre(4, 1, 3));
  std::vector<double> y = {-1, -2, -3, -4};
  RunOk(ScatterValuesParams{3, index.data(), values.data(), y.data()},
        &machine_);
  EXPECT_THAT(y, ElementsAre(1, -2, 3, 4));
}

TEST_F(VectorsTest, PointTangentsByHand) {
  const std::vector<int32_t> point_id = {1, 0};
  // A permutation, and a matrix of two columns.
  const std::vector<double> tangents = {
      0, 1, 0, 0, 0, 1, 1, 0, 0, 1, 2, 0, 3, 4, 0, 5, 6, 0};
  std::vector<float> blocks = {1, 10, 100, 2, 20, 200, 1, 2, 3, 4, 5, 6};
  RunOk(
      ApplyPointTangentsParams<float, kHostLayout>{
          2, point_id.data(), tangents.data(), {blocks.data(), 2}},
      &machine_);
  EXPECT_THAT(blocks,
              ElementsAre(531, 642, 0, 1062, 1284, 0, 3, 1, 2, 6, 4, 5));
}

TEST_F(VectorsTest, HeldValuesArePadding) {
  // Holds value 1, nothing, values 0 and 2; constant; holds 0 and 1.
  const std::vector<int32_t> tangent_offset = {7, 4, 3, -1, 0};
  const std::vector<int32_t> tangent_size = {2, 3, 1, 0, 1};
  const std::vector<uint8_t> held = {2, 0, 5, 0, 3};
  BlockTableView table;
  table.num_blocks = 5;
  table.padded_size = table.ambient_size = 3;
  table.tangent_offset = tangent_offset.data();
  table.tangent_size = tangent_size.data();
  table.held = held.data();
  const std::vector<double> vector = {0, 10, 20, 30, 40, 50, 60, 70, 80};
  std::vector<double> padded(15, kNaN);
  RunOk(GatherTangentParams{table, vector.data(), -1, padded.data()},
        &machine_);
  EXPECT_THAT(
      padded,
      ElementsAre(70, -1, 80, 40, 50, 60, -1, 30, -1, -1, -1, -1, -1, -1, 0));
  std::vector<double> back(9, 5);
  RunOk(ScatterTangentParams{table, padded.data(), back.data()}, &machine_);
  EXPECT_THAT(back, ElementsAre(0, 5, 5, 30, 40, 50, 60, 70, 80));
  RunOk(GatherTangentParams{table, nullptr, 1, padded.data()}, &machine_);
  EXPECT_THAT(padded, ElementsAre(0, 1, 0, 0, 0, 0, 1, 0, 1, 1, 1, 1, 1, 1, 0));
}

// ---------------------------------------------------------------------------

TEST_F(VectorsTest, ElementsByHand) {
  std::vector<double> x = {0, 1, 4, 9};
  RunOk(JacobiScalingParams{4, x.data()}, &machine_);
  EXPECT_THAT(x, ElementsAre(1, 0.5, 1.0 / 3.0, 0.25));

  x = {-1, 0, 5, 100, kInfinity, -kInfinity, kNaN};
  RunOk(ClampParams{7, 0.5, 10, x.data()}, &machine_);
  EXPECT_THAT(x, ElementsAre(0.5, 0.5, 5, 10, 10, 0.5, testing::IsNan()));

  x = {2, 8, 0, kInfinity};
  std::vector<double> y(4, kNaN);
  RunOk(LevenbergMarquardtDiagonalParams{4, 2, x.data(), y.data()}, &machine_);
  EXPECT_THAT(y, ElementsAre(1, 2, 0, kInfinity));

  x = {1, -2, 0, kInfinity};
  RunOk(NegateParams{4, x.data(), y.data()}, &machine_);
  EXPECT_THAT(y, ElementsAre(-1, 2, 0, -kInfinity));
  EXPECT_TRUE(std::signbit(y[2]));

  std::vector<double> z(4, kNaN);
  y = {3, 4, 5, -1};
  RunOk(MultiplyParams{4, x.data(), y.data(), z.data()}, &machine_);
  EXPECT_THAT(z, ElementsAre(3, -8, 0, -kInfinity));
  RunOk(ScaleParams<double>{4, y.data(), z.data()}, &machine_);
  EXPECT_THAT(z, ElementsAre(9, -32, 0, kInfinity));
  // The product is rounded, and not the factor.
  std::vector<float> in_float = {3.0f, 1.0f};
  const std::vector<double> factors = {1.0 / 3.0, 1.0 + 0x1p-30};
  RunOk(ScaleParams<float>{2, factors.data(), in_float.data()}, &machine_);
  EXPECT_THAT(in_float, ElementsAre(1.0f, 1.0f));
  RunOk(CopyParams{4, x.data(), z.data()}, &machine_);
  EXPECT_EQ(z, x);
  RunOk(SetConstantParams{3, 0.25, z.data()}, &machine_);
  EXPECT_THAT(z, ElementsAre(0.25, 0.25, 0.25, kInfinity));
  RunOk(SetConstantParams{4, kImpossibleValue, z.data()}, &machine_);
  EXPECT_THAT(z, ElementsAre(1e302, 1e302, 1e302, 1e302));
}

TEST_F(VectorsTest, NegateIfValid) {
  for (const int64_t n : kVectorSizes) {
    const std::vector<double> x = NormalVector(n, 5);
    std::vector<double> negative(x);
    for (double& value : negative) {
      value = -value;
    }
    LoopScalars scalars;
    scalars.num_invalid = -1;
    std::vector<double> result = x;
    const auto negate_if_valid = [&] {
      RunOk(CountInvalidParams{n, result.data(), &scalars}, &machine_);
      RunOk(NegateIfValidParams{n, result.data(), &scalars.num_invalid},
            &machine_);
    };
    negate_if_valid();
    EXPECT_EQ(scalars.num_invalid, 0);
    EXPECT_EQ(result, negative);
    if (n == 0) {
      continue;
    }
    // Large values are valid.
    for (const double valid : {-kImpossibleValue, 1e303, 1.7e308, 5e-324}) {
      result = x;
      result[n / 2] = valid;
      negate_if_valid();
      EXPECT_EQ(scalars.num_invalid, 0);
      EXPECT_EQ(result[n / 2], -valid);
    }
    for (const double invalid :
         {kNaN, kInfinity, -kInfinity, kImpossibleValue}) {
      for (const int64_t where : {int64_t{0}, n / 2, n - 1}) {
        std::vector<double> bad = x;
        bad[where] = invalid;
        result = bad;
        negate_if_valid();
        EXPECT_EQ(scalars.num_invalid, 1);
        // As it was, NaN included.
        EXPECT_EQ(std::memcmp(result.data(), bad.data(), 8 * n), 0);
      }
    }
    RunOk(SetConstantParams{n, kImpossibleValue, result.data()}, &machine_);
    RunOk(CountInvalidParams{n, result.data(), &scalars}, &machine_);
    EXPECT_EQ(scalars.num_invalid, n);
  }
}

TEST_F(VectorsTest, SumsByHand) {
  const std::vector<double> x = {3, 4};
  std::vector<double> y = {3, 16};
  LoopScalars scalars;
  RunOk(StepNormsParams{2, x.data(), y.data(), &scalars}, &machine_);
  EXPECT_EQ(scalars.x_norm, 5);
  EXPECT_EQ(scalars.step_norm, 12);
  y = {6, 8};
  RunOk(ProjectedGradientNormsParams{2, x.data(), y.data(), &scalars},
        &machine_);
  EXPECT_EQ(scalars.max_norm, 4);
  EXPECT_EQ(scalars.norm, 5);
  EXPECT_EQ(scalars.x_norm, 5);  // Another operation's.
  // -(6 (3 + 3) + 8 (4 + 4))
  RunOk(ModelCostChangeParams{2, x.data(), y.data(), &scalars}, &machine_);
  EXPECT_EQ(scalars.model_cost_change, -100);

  // Nothing that isn't a number is lost, wherever it stands.
  for (int where = 0; where < 2; ++where) {
    y = {6, 8};
    y[where] = kNaN;
    RunOk(ProjectedGradientNormsParams{2, x.data(), y.data(), &scalars},
          &machine_);
    EXPECT_TRUE(std::isnan(scalars.max_norm));
    EXPECT_TRUE(std::isnan(scalars.norm));
    y[where] = -kInfinity;
    RunOk(ProjectedGradientNormsParams{2, x.data(), y.data(), &scalars},
          &machine_);
    EXPECT_EQ(scalars.max_norm, kInfinity);
    EXPECT_EQ(scalars.norm, kInfinity);
  }

  RunOk(StepNormsParams{0, nullptr, nullptr, &scalars}, &machine_);
  RunOk(ProjectedGradientNormsParams{0, nullptr, nullptr, &scalars}, &machine_);
  RunOk(ModelCostChangeParams{0, nullptr, nullptr, &scalars}, &machine_);
  EXPECT_EQ(scalars.x_norm, 0);
  EXPECT_EQ(scalars.step_norm, 0);
  EXPECT_EQ(scalars.max_norm, 0);
  EXPECT_EQ(scalars.norm, 0);
  EXPECT_EQ(scalars.model_cost_change, 0);
}

TEST_F(VectorsTest, OrderOfSums) {
  EXPECT_EQ(NumSumBlocks(0), 1);
  EXPECT_EQ(NumSumBlocks(512), 1);
  EXPECT_EQ(NumSumBlocks(513), 2);
  EXPECT_EQ(NumSumBlocks(524289), 1024);
  EXPECT_EQ(NumSumBlocks(int64_t{1} << 40), 1024);
  // 600 elements: two blocks, lanes 0 to 87 of block 0 have a second element.
  // 2^53 absorbs each one that is added to it alone; the lane of a one that
  // comes first, and all later ones of its warp, keep theirs.
  const double kBig = 9007199254740992.0;  // 2^53
  std::vector<double> m(600, 0.0);
  std::vector<double> f(600, 1.0);
  LoopScalars scalars;
  const auto sum = [&] {
    // m (f + m / 2) = 1 for m = 1, f = 1/2.
    RunOk(ModelCostChangeParams{600, f.data(), m.data(), &scalars}, &machine_);
    return -scalars.model_cost_change;
  };
  m[0] = 1.0;
  f[0] = kBig - 0.5;  // 2^53
  ASSERT_EQ(sum(), kBig);
  const auto add_one = [&](int i) {
    m[i] = 1.0;
    f[i] = 0.5;
  };
  // The same lane, next row: 2^53 + 1 = 2^53.
  add_one(512);
  EXPECT_EQ(sum(), kBig);
  // Lanes 16 and 8 of the warp, one after the other: 2^53 + 1 + 1 = 2^53.
  add_one(16);
  add_one(8);
  EXPECT_EQ(sum(), kBig);
  // Lanes 3 and 19 make two before they meet lane 0 by way of lanes 1 and 2.
  add_one(3);
  add_one(19);
  EXPECT_EQ(sum(), kBig + 2);
  // Another warp's two ones come as two; block 1's too.
  add_one(40);
  add_one(41);
  EXPECT_EQ(sum(), kBig + 4);
  add_one(256);
  add_one(511);
  EXPECT_EQ(sum(), kBig + 6);
}

// Lengths around the lanes and blocks of a sum.
TEST_F(VectorsTest, Dot) {
  for (const int64_t n :
       {0,   1,   3,   4,   5,   31,  32,   33,   255,  256, 257,
        511, 512, 513, 514, 767, 768, 4095, 4096, 4097, 9000}) {
    const std::vector<double> x = NormalVector(n, 1);
    const std::vector<double> y = NormalVector(n, 2);
    double dot = -1;
    RunOk(DotParams{n, x.data(), y.data(), &dot}, &machine_);
    const auto a = Eigen::VectorXd::Map(x.data(), n);
    const auto b = Eigen::VectorXd::Map(y.data(), n);
    EXPECT_NEAR(dot, a.dot(b), n * kEpsilon * a.cwiseAbs().dot(b.cwiseAbs()));
  }
}

TEST_F(VectorsTest, SumsAgreeWithLongDoubleForAnyThreads) {
  HostMachine one_thread(1);
  for (const int64_t n : kVectorSizes) {
    const std::vector<double> x = NormalVector(n, 1);
    const std::vector<double> y = NormalVector(n, 2);
    LoopScalars scalars;
    LoopScalars again;
    for (auto [s, machine] :
         {std::pair{&scalars, &machine_}, std::pair{&again, &one_thread}}) {
      RunOk(StepNormsParams{n, x.data(), y.data(), s}, machine);
      RunOk(ProjectedGradientNormsParams{n, x.data(), y.data(), s}, machine);
      RunOk(ModelCostChangeParams{n, x.data(), y.data(), s}, machine);
    }
    EXPECT_EQ(std::memcmp(&scalars, &again, sizeof(scalars)), 0);

    long double xx = 0;
    long double dd = 0;
    long double change = 0;
    long double absolute = 0;
    double largest = 0;
    for (int64_t i = 0; i < n; ++i) {
      const long double d = static_cast<long double>(x[i]) - y[i];
      const long double term = y[i] * (x[i] + y[i] / 2.0L);
      xx += static_cast<long double>(x[i]) * x[i];
      dd += d * d;
      change -= term;
      absolute += std::fabs(term);
      largest = std::max(largest, std::fabs(x[i] - y[i]));
    }
    // Each term: its own three roundings and those of the additions above it;
    // for a norm the square root and half of that.
    const double tolerance =
        static_cast<double>(SumDepth(n) + 3) * kEpsilon / 2;
    const double x_norm = static_cast<double>(std::sqrt(xx));
    const double d_norm = static_cast<double>(std::sqrt(dd));
    EXPECT_NEAR(scalars.x_norm, x_norm, tolerance * x_norm);
    EXPECT_NEAR(scalars.step_norm, d_norm, tolerance * d_norm);
    EXPECT_EQ(scalars.norm, scalars.step_norm);
    EXPECT_EQ(scalars.max_norm, largest);
    EXPECT_NEAR(scalars.model_cost_change,
                static_cast<double>(change),
                tolerance * static_cast<double>(absolute));
  }
}

// ---------------------------------------------------------------------------

template <typename TIn, int CIn>
struct Combination {
  using T = TIn;
  static constexpr int C = CIn;
};

template <typename Combination>
class CorrectForLossTest : public VectorsTest {
 protected:
  using T = typename Combination::T;
  static constexpr int C = Combination::C;
  using Problem = LossProblem<T, C>;

  // The cost of the problem alone.
  CorrectForLossParams<T, BalShape<C>, kHostLayout> CostOf(
      const Problem& problem) {
    CorrectForLossParams<T, BalShape<C>, kHostLayout> params;
    params.n = problem.num_observations;
    params.loss = {problem.losses.data(), problem.loss_id.data()};
    params.residuals = problem.residuals.data();
    params.evaluation = &evaluation_;
    evaluation_ = {-1.0, 17};
    return params;
  }
  // Everything, in place.
  void CorrectAll(Problem* problem) {
    CorrectForLossParams<T, BalShape<C>, kHostLayout> params = CostOf(*problem);
    params.corrected_residuals = problem->residuals.data();
    params.correction.camera_blocks = {problem->camera_blocks.data(),
                                       problem->num_observations};
    params.correction.point_blocks = {problem->point_blocks.data(),
                                      problem->num_observations};
    RunOk(params, &machine_);
  }

  using Matrix = Eigen::Matrix<double, 2, C + 3>;
  static Matrix Jacobian(const Problem& problem, int64_t k) {
    Matrix J;
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < C; ++j) {
        J(i, j) =
            static_cast<double>(problem.camera_blocks[2 * C * k + C * i + j]);
      }
      for (int j = 0; j < 3; ++j) {
        J(i, C + j) =
            static_cast<double>(problem.point_blocks[6 * k + 3 * i + j]);
      }
    }
    return J;
  }
  static Eigen::Vector2d Residual(const Problem& problem, int64_t k) {
    return {problem.residuals[2 * k], problem.residuals[2 * k + 1]};
  }

  Evaluation evaluation_;
};

using Combinations = testing::Types<Combination<double, 9>,
                                    Combination<double, 10>,
                                    Combination<float, 9>,
                                    Combination<float, 10>>;
TYPED_TEST_SUITE(CorrectForLossTest, Combinations);

TYPED_TEST(CorrectForLossTest, KeepsGradientAndHessian) {
  using T = typename TypeParam::T;
  constexpr int C = TypeParam::C;
  for (const int64_t n : {0, 1, 31, 32, 33, 1000}) {
    const LossProblem<T, C> before(n);
    LossProblem<T, C> after = before;
    this->CorrectAll(&after);
    long double cost = 0;
    for (int64_t k = 0; k < n; ++k) {
      const Eigen::Vector2d r = this->Residual(before, k);
      const Eigen::Vector2d corrected_r = this->Residual(after, k);
      const auto J = this->Jacobian(before, k);
      const auto corrected_J = this->Jacobian(after, k);
      double rho[3] = {r.squaredNorm(), 1.0, 0.0};
      if (before.loss_id[k] != kNoLoss) {
        before.losses[before.loss_id[k]].Evaluate(r.squaredNorm(), rho);
      }
      cost += rho[0] / 2;
      if (rho[1] == 1.0 && rho[2] <= 0.0) {
        EXPECT_EQ(corrected_r, r);
        EXPECT_EQ(corrected_J, J);
        continue;
      }
      const Eigen::VectorXd g = J.transpose() * r;
      const Eigen::MatrixXd H = rho[1] * J.transpose() * J +
                                2 * std::max(rho[2], 0.0) * g * g.transpose();
      // |J~| <= |J| and |r~| <= |r| as rho' <= 1 and, where rho'' > 0, the
      // square of 1 - alpha is 1 + 2 s rho'' / rho' <= growth. Each element has
      // at most 16 roundings and the one to T; two are multiplied.
      const double growth =
          rho[2] > 0.0 ? 1 + 2 * r.squaredNorm() * rho[2] / rho[1] : 1.0;
      const double tolerance =
          2 * growth * (16 * kEpsilon + std::numeric_limits<T>::epsilon());
      EXPECT_LE((corrected_J.transpose() * corrected_r - rho[1] * g).norm(),
                tolerance * J.norm() * r.norm());
      EXPECT_LE((corrected_J.transpose() * corrected_J - H).norm(),
                tolerance * J.squaredNorm());
    }
    const double tolerance =
        static_cast<double>(SumDepth(n) + 3) * kEpsilon / 2;
    EXPECT_NEAR(this->evaluation_.cost,
                static_cast<double>(cost),
                tolerance * static_cast<double>(cost));
    EXPECT_EQ(this->evaluation_.num_not_finite, 17);
  }
}

TYPED_TEST(CorrectForLossTest, WhatIsNotWantedStays) {
  const LossProblem<typename TypeParam::T, TypeParam::C> before(100);
  auto after = before;
  this->CorrectAll(&after);
  const double cost = this->evaluation_.cost;

  auto problem = before;
  auto params = this->CostOf(problem);
  RunOk(params, &this->machine_);
  EXPECT_EQ(this->evaluation_.cost, cost);
  EXPECT_EQ(problem.residuals, before.residuals);

  // Residuals in another array; points without cameras.
  std::vector<double> corrected(200, kNaN);
  params.corrected_residuals = corrected.data();
  params.correction.point_blocks = {problem.point_blocks.data(), 100};
  RunOk(params, &this->machine_);
  EXPECT_EQ(this->evaluation_.cost, cost);
  EXPECT_EQ(problem.residuals, before.residuals);
  EXPECT_EQ(corrected, after.residuals);
  EXPECT_EQ(problem.point_blocks, after.point_blocks);
  EXPECT_EQ(problem.camera_blocks, before.camera_blocks);
}

// What the host filled is read in place of chains, and its last values where
// they are not those of a loss here.
TYPED_TEST(CorrectForLossTest, RhoFilledBeforehand) {
  using T = typename TypeParam::T;
  constexpr int C = TypeParam::C;
  const LossProblem<T, C> before(100);
  auto chains = before;
  this->CorrectAll(&chains);
  const Evaluation evaluation = this->evaluation_;

  std::vector<double> squared_norms(100, kNaN);
  RunOk(
      SquaredNormsParams{100, 2, before.residuals.data(), squared_norms.data()},
      &this->machine_);
  std::vector<double> rho(300);
  const LossView view = {before.losses.data(), before.loss_id.data()};
  for (int64_t k = 0; k < 100; ++k) {
    EXPECT_EQ(squared_norms[k],
              before.residuals[2 * k] * before.residuals[2 * k] +
                  before.residuals[2 * k + 1] * before.residuals[2 * k + 1]);
    view.Evaluate(k, squared_norms[k], &rho[3 * k]);
  }
  auto filled = before;
  auto params = this->CostOf(filled);
  params.loss = {nullptr, nullptr, rho.data()};
  params.corrected_residuals = filled.residuals.data();
  params.correction.camera_blocks = {filled.camera_blocks.data(), 100};
  params.correction.point_blocks = {filled.point_blocks.data(), 100};
  RunOk(params, &this->machine_);
  EXPECT_EQ(this->evaluation_.cost, evaluation.cost);
  EXPECT_EQ(filled.residuals, chains.residuals);
  EXPECT_EQ(filled.camera_blocks, chains.camera_blocks);
  EXPECT_EQ(filled.point_blocks, chains.point_blocks);
}

TEST_F(VectorsTest, RowScalesByHand) {
  // Huber of 1: rho' = 1 / |r|. Tukey of 2: rho' = (1 - |r|^2 / 4)^2, or 0.
  const RobustLoss losses[] = {RobustLoss(RobustLossKind::kHuber, 1.0),
                               RobustLoss(RobustLossKind::kTukey, 2.0)};
  const std::vector<uint8_t> loss_id = {0, 0, 1, 1, kNoLoss, 0};
  std::vector<double> residuals = {0, 0.5, 4, 0, 1, 1, 3, 4, 3, 4, 0, 0};
  std::vector<float> row_scale(6, -1.0f);
  Evaluation evaluation{-1.0, 17};
  RunOk(ScaleRowsForLossParams<float>{6,
                                      {losses, loss_id.data()},
                                      residuals.data(),
                                      row_scale.data(),
                                      &evaluation},
        &machine_);
  EXPECT_THAT(row_scale, ElementsAre(1, 0.5, 0.5, 0, 1, 1));
  EXPECT_THAT(residuals,
              ElementsAre(0, 0.5, 1, 0, 0.25, 0.25, 0, 0, 3, 4, 0, 0));
  // Tukey's rho is 4 / 3 (1 - (1 - x)^3).
  EXPECT_NEAR(evaluation.cost,
              0.5 * (0.25 + 7 + 7.0 / 6 + 4.0 / 3 + 25),
              8 * std::numeric_limits<double>::epsilon() * 35);
  EXPECT_EQ(evaluation.num_not_finite, 17);

  RunOk(UnscaleResidualsParams<float>{6, row_scale.data(), residuals.data()},
        &machine_);
  EXPECT_THAT(residuals, ElementsAre(0, 0.5, 2, 0, 0.5, 0.5, 0, 0, 3, 4, 0, 0));
}

// Rounded or not, the scaled rows have the gradient of the cost.
TEST_F(VectorsTest, RowScalesKeepTheGradient) {
  const std::vector<RobustLoss> losses = {
      RobustLoss(RobustLossKind::kCauchy, 0.7),
      RobustLoss(RobustLossKind::kSoftLOne, 0.3)};
  constexpr int64_t kNumRows = 1000;
  std::vector<uint8_t> loss_id;
  for (int64_t k = 0; k < kNumRows; ++k) {
    loss_id.push_back(static_cast<uint8_t>(k % 2));
  }
  const std::vector<double> before = NormalVector(2 * kNumRows, 3);
  const auto check = [&](auto zero) {
    using T = decltype(zero);
    std::vector<double> residuals = before;
    std::vector<T> row_scale(kNumRows);
    Evaluation evaluation;
    RunOk(ScaleRowsForLossParams<T>{kNumRows,
                                    {losses.data(), loss_id.data()},
                                    residuals.data(),
                                    row_scale.data(),
                                    &evaluation},
          &machine_);
    RunOk(
        UnscaleResidualsParams<T>{kNumRows, row_scale.data(), residuals.data()},
        &machine_);
    double rounding = std::numeric_limits<T>::epsilon();
    for (int64_t k = 0; k < kNumRows; ++k) {
      const double* r = &before[2 * k];
      double rho[3];
      losses[loss_id[k]].Evaluate(r[0] * r[0] + r[1] * r[1], rho);
      const double s = static_cast<double>(row_scale[k]);
      EXPECT_NEAR(s, std::sqrt(rho[1]), 2 * rounding * s);
      for (int i = 0; i < 2; ++i) {
        // A product, a quotient and this product.
        EXPECT_NEAR(s * residuals[2 * k + i],
                    rho[1] * r[i],
                    2 * std::numeric_limits<double>::epsilon() *
                        std::fabs(rho[1] * r[i]));
      }
    }
  };
  check(0.0);
  check(0.0f);
}

TEST_F(VectorsTest, LossesByHand) {
  // Huber of 1: rho = 2 |r| - 1, r~ = r / sqrt(|r|).
  const RobustLoss huber = RobustLoss(RobustLossKind::kHuber, 1.0);
  const std::vector<uint8_t> loss_id = {0, 0, 0};
  const std::vector<double> residuals = {0, 0.5, 4, 0, 0, -9};
  std::vector<double> corrected(6, kNaN);
  Evaluation evaluation;
  CorrectForLossParams<double, BalShape<9>, kHostLayout> params;
  params.n = 3;
  params.loss = {&huber, loss_id.data()};
  params.residuals = residuals.data();
  params.corrected_residuals = corrected.data();
  params.evaluation = &evaluation;
  RunOk(params, &machine_);
  EXPECT_EQ(evaluation.cost, 0.5 * (0.25 + 7 + 17));
  EXPECT_THAT(corrected, ElementsAre(0, 0.5, 2, 0, 0, -9 * std::sqrt(1 / 9.0)));

  params.loss = {};  // no row has one
  RunOk(params, &machine_);
  EXPECT_EQ(evaluation.cost, 0.5 * (0.25 + 16 + 81));
  EXPECT_EQ(corrected, residuals);

  const std::vector<double> rho = {7, 4, 0, 8, 0.25, -1, 9, 1, 0};
  params.loss.rho = rho.data();
  RunOk(params, &machine_);
  EXPECT_EQ(evaluation.cost, 0.5 * (7 + 8 + 9));
  EXPECT_THAT(corrected, ElementsAre(0, 1, 2, 0, 0, -9));

  std::vector<double> norms(2, kNaN);
  RunOk(SquaredNormsParams{2, 3, residuals.data(), norms.data()}, &machine_);
  EXPECT_THAT(norms, ElementsAre(16.25, 81));
}

// NaN in rho' or rho'' of a user's own loss reaches residual and Jacobian, as
// ceres::Corrector has it.
TEST_F(VectorsTest, RhoThatIsNoNumber) {
  for (const auto& [first, second] :
       {std::pair{kNaN, 0.0}, std::pair{1.0, kNaN}, std::pair{0.5, kNaN}}) {
    for (const double r : {2.0, 0.0}) {
      const std::vector<double> rho = {1, first, second};
      const std::vector<double> residuals = {r, 0};
      std::vector<double> corrected(2, 0);
      std::vector<double> points = {1, 2, 3, 4, 5, 6};
      Evaluation evaluation;
      CorrectForLossParams<double, BalShape<9>, kHostLayout> params;
      params.n = 1;
      params.loss.rho = rho.data();
      params.residuals = residuals.data();
      params.corrected_residuals = corrected.data();
      params.correction.point_blocks = {points.data(), 1};
      params.evaluation = &evaluation;
      RunOk(params, &machine_);
      EXPECT_EQ(evaluation.cost, 0.5);
      // Without a residual rho'' does not matter.
      const bool is_nan = std::isnan(first) || r > 0.0;
      EXPECT_EQ(std::isnan(corrected[0]), is_nan);
      EXPECT_EQ(std::isnan(points[0]), is_nan);
      if (!is_nan) {
        EXPECT_EQ(points[0], std::sqrt(first));
      }
    }
  }
}

}  // namespace
}  // namespace ceres_ext::kernels
