// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Vector operations on the device against the host's, at sizes around warps and
// blocks, each twice on one machine. The context's stream is one of its own.
// Where ops/vectors.h, ops/block_table.h and ops/manifolds.h promise the host's
// bits, bits are compared.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "cuda_kernels/ops/block_table.h"
#include "cuda_kernels/ops/degenerate_blocks.h"
#include "cuda_kernels/ops/manifolds.h"
#include "cuda_kernels/ops/pcg.h"
#include "cuda_kernels/ops/power_series.h"
#include "cuda_kernels/ops/robust_losses.h"
#include "cuda_kernels/ops/vectors.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda_test_util.h"
#include "tests/kernels/vectors_test_util.h"

namespace ceres_ext::kernels {
namespace {

constexpr double kEps = std::numeric_limits<double>::epsilon() / 2;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// What an operation reads or writes on one of the two machines.
template <typename T>
const T& On(HostMachine*, const T& host, const T&) {
  return host;
}
template <typename T>
const T& On(CudaMachine*, const T&, const T& device) {
  return device;
}

class VectorsCudaTest : public CudaTest {
 protected:
  // fn(machine, x, y, z) runs an operation on vectors that hold the values
  // given: the device's bits are to be the host's.
  template <typename Function>
  void ExpectBits(std::vector<double> x,
                  std::vector<double> y,
                  std::vector<double> z,
                  Function&& fn) {
    const std::vector<double> inputs[] = {x, y, z};
    ASSERT_OK(fn(&host_, x.data(), y.data(), z.data()));
    for (int run = 0; run < 2; ++run) {
      auto device_x = Upload(inputs[0]);
      auto device_y = Upload(inputs[1]);
      auto device_z = Upload(inputs[2]);
      ASSERT_OK(fn(
          machine_.get(), device_x.data(), device_y.data(), device_z.data()));
      ASSERT_OK(context_->Synchronize());
      EXPECT_TRUE(SameBits(Download(device_x), x));
      EXPECT_TRUE(SameBits(Download(device_y), y));
      EXPECT_TRUE(SameBits(Download(device_z), z));
    }
  }

  HostMachine host_{2};
};

// ---------------------------------------------------------------------------

class BlocksCudaTest : public VectorsCudaTest {
 protected:
  BlockTableView ToDevice(const TestTable& table) {
    tangent_offset_ = Upload(table.tangent_offset);
    tangent_size_ = Upload(table.tangent_size);
    state_offset_ = Upload(table.state_offset);
    constant_values_ = Upload(table.constant_values);
    BlockTableView view = table.view();
    view.tangent_offset = tangent_offset_.data();
    view.tangent_size = tangent_size_.data();
    view.state_offset = state_offset_.data();
    view.constant_values = constant_values_.data();
    return view;
  }

  // fn(table, device table) for tables of points and cameras at edge sizes.
  void ForEachTable(
      const std::function<void(const TestTable&, const BlockTableView&)>& fn) {
    for (const int32_t n : {0, 1, 31, 32, 33, 1000, 30000}) {
      for (const auto& [padded_size, ambient_size] :
           {std::pair{3, 3}, {9, 9}, {9, 10}, {10, 10}}) {
        SCOPED_TRACE(testing::Message() << n << " blocks of " << padded_size
                                        << " and " << ambient_size);
        const TestTable table(n, padded_size, ambient_size);
        fn(table, ToDevice(table));
      }
    }
  }

 private:
  DeviceBuffer<int32_t> tangent_offset_;
  DeviceBuffer<int32_t> tangent_size_;
  DeviceBuffer<int32_t> state_offset_;
  DeviceBuffer<double> constant_values_;
};

TEST_F(BlocksCudaTest, GatherAndScatter) {
  ForEachTable([&](const TestTable& table, const BlockTableView& device) {
    const BlockTableView host = table.view();
    const int64_t num_padded = int64_t{table.num_blocks} * table.padded_size;
    const std::vector<double> vector = NormalVector(table.tangent_values, 1);
    const std::vector<double> padded = NormalVector(num_padded, 2);
    const std::vector<double> state = NormalVector(table.state_values, 3);
    const std::vector<double> ambient(
        static_cast<size_t>(table.num_blocks) * table.ambient_size, kNaN);
    ExpectBits(
        vector, padded, {}, [&](auto* machine, double* x, double* y, double*) {
          return kernels::Run(
              GatherTangentParams{On(machine, host, device), x, 1.5, y},
              machine);
        });
    ExpectBits(
        vector, padded, {}, [&](auto* machine, double* x, double* y, double*) {
          return kernels::Run(
              ScatterTangentParams{On(machine, host, device), y, x}, machine);
        });
    ExpectBits(
        state, ambient, {}, [&](auto* machine, double* x, double* y, double*) {
          return kernels::Run(
              GatherStateParams{On(machine, host, device), x, y}, machine);
        });
    ExpectBits(padded, {}, {}, [&](auto* machine, double* x, double*, double*) {
      return kernels::Run(
          GatherTangentParams{On(machine, host, device), nullptr, 1.0, x},
          machine);
    });
    if (table.padded_size != 3) {
      return;
    }
    // The columns stand at any of the values instead.
    std::vector<uint8_t> held;
    for (int32_t i = 0; i < table.num_blocks; ++i) {
      const int num_held = 3 - table.tangent_size[i];
      held.push_back(num_held == 1   ? 1 << i % 3
                     : num_held == 2 ? 7 ^ (1 << i % 3)
                                     : 0);
    }
    const auto device_held = Upload(held);
    BlockTableView host_holding = host;
    BlockTableView device_holding = device;
    host_holding.held = held.data();
    device_holding.held = device_held.data();
    ExpectBits(
        vector, padded, {}, [&](auto* machine, double* x, double* y, double*) {
          return kernels::Run(
              GatherTangentParams{
                  On(machine, host_holding, device_holding), x, 1.5, y},
              machine);
        });
    ExpectBits(
        vector, padded, {}, [&](auto* machine, double* x, double* y, double*) {
          return kernels::Run(
              ScatterTangentParams{
                  On(machine, host_holding, device_holding), y, x},
              machine);
        });
  });
}

TEST_F(VectorsCudaTest, GatherTuples) {
  for (const int64_t n : {0, 1, 255, 256, 257, 30000}) {
    SCOPED_TRACE(n);
    std::vector<int32_t> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(7));
    const auto device_order = Upload(order);
    ExpectBits(
        NormalVector(2 * n, 1),
        std::vector<double>(static_cast<size_t>(2 * n), kNaN),
        {},
        [&](auto* machine, double* x, double* y, double*) {
          const int32_t* source =
              On<const int32_t*>(machine, order.data(), device_order.data());
          return kernels::Run(GatherTuplesParams<2>{n, source, x, y}, machine);
        });
  }
}

TEST_F(BlocksCudaTest, Plus) {
  ForEachTable([&](const TestTable& table, const BlockTableView& device) {
    std::vector<double> state = NormalVector(table.state_values, 3);
    // What does not move keeps the sign of a zero.
    for (int32_t i = 0; i < table.num_blocks; ++i) {
      if (table.state_offset[i] >= 0) {
        state[table.state_offset[i] + table.ambient_size - 1] = -0.0;
      }
    }
    const std::vector<double> delta = NormalVector(table.tangent_values, 4);
    for (const bool in_place : {false, true}) {
      ExpectBits(
          state,
          delta,
          std::vector<double>(state.size(), kNaN),
          [&](auto* machine, double* x, double* y, double* z) {
            return kernels::Run(
                PlusParams{
                    On(machine, table.view(), device), x, y, in_place ? x : z},
                machine);
          });
    }
  });
}

// Blocks of every kind of factor, alone and in products, with gaps between
// them; every seventh is constant.
struct ManifoldTable {
  explicit ManifoldTable(int32_t n) {
    struct Product {
      int32_t first;
      int32_t size;
    };
    const Product products[] = {
        {0, 3}, {1, 1}, {2, 3}, {4, 1}, {5, 2}, {0, 1}, {3, 4}};
    for (int32_t i = 0; i < n; ++i) {
      const Product product = products[i % 7];
      int32_t rows = 0;
      int32_t columns = 0;
      for (int32_t f = 0; f < product.size; ++f) {
        rows += factors[product.first + f].size;
        columns += factors[product.first + f].tangent_size();
      }
      ManifoldBlock block = {state_values + 1,
                             tangent_values + 2,
                             product.first,
                             product.size,
                             columns + i % 2,
                             matrix_values};
      state_values += rows + 1;
      tangent_values += columns + 2;
      matrix_values += int64_t{rows} * block.matrix_stride;
      if (i % 7 == 5) {
        block.state_offset = -1;
      }
      blocks.push_back(block);
    }
  }

  const std::vector<ManifoldFactor> factors = {
      {ManifoldKind::kConstant, 2},
      {ManifoldKind::kQuaternion, 4},
      {ManifoldKind::kEuclidean, 6},
      {ManifoldKind::kSphere, 3},
      {ManifoldKind::kLine, 8},
      {ManifoldKind::kEigenQuaternion, 4},
      {ManifoldKind::kSphere, 2}};
  std::vector<ManifoldBlock> blocks;
  int32_t state_values = 1;
  int32_t tangent_values = 2;
  int64_t matrix_values = 0;
};

TEST_F(BlocksCudaTest, Manifolds) {
  for (const int32_t n : {0, 1, 31, 32, 33, 1000}) {
    const ManifoldTable table(n);
    const auto device_blocks = Upload(table.blocks);
    const auto device_factors = Upload(table.factors);
    const std::vector<double> state = NormalVector(table.state_values, 7);
    std::vector<double> delta = NormalVector(table.tangent_values, 8);
    const double sizes[] = {1.0, 0.0, 1e-8, 1e-170, 1e-320, 100.0};
    for (int32_t i = 0; i < n; ++i) {
      const int32_t end =
          i + 1 < n ? table.blocks[i + 1].tangent_offset : table.tangent_values;
      for (int32_t j = table.blocks[i].tangent_offset; j < end; ++j) {
        delta[j] *= sizes[i % 6];
      }
    }
    // Derivatives have neither sines nor cosines.
    const std::vector<double> tangents(static_cast<size_t>(table.matrix_values),
                                       0.5);
    for (const bool linear : {true, false}) {
      ExpectBits(
          state,
          tangents,
          {},
          [&](auto* machine, double* x, double* y, double*) {
            return kernels::Run(
                ManifoldTangentsParams{
                    n,
                    On<const ManifoldBlock*>(
                        machine, table.blocks.data(), device_blocks.data()),
                    On<const ManifoldFactor*>(
                        machine, table.factors.data(), device_factors.data()),
                    linear,
                    x,
                    y},
                machine);
          });
    }

    const auto device_state = Upload(state);
    const auto device_delta = Upload(delta);
    std::vector<double> expected(state.size(), -1.0);
    RunOk(PlusManifoldsParams{n,
                              table.blocks.data(),
                              table.factors.data(),
                              state.data(),
                              delta.data(),
                              expected.data()},
          &host_);
    std::vector<double> first;
    for (const bool in_place : {false, true, false}) {
      auto result =
          Upload(in_place ? state : std::vector<double>(state.size(), -1.0));
      ASSERT_OK(kernels::Run(
          PlusManifoldsParams{n,
                              device_blocks.data(),
                              device_factors.data(),
                              in_place ? result.data() : device_state.data(),
                              device_delta.data(),
                              result.data()},
          machine_.get()));
      std::vector<double> actual = Download(result);
      for (size_t i = 0; in_place && i < actual.size(); ++i) {
        if (expected[i] == -1.0) {
          EXPECT_EQ(actual[i], state[i]);
          actual[i] = -1.0;
        }
      }
      if (first.empty()) {
        first = actual;
      }
      EXPECT_TRUE(SameBits(actual, first));
    }
    for (const ManifoldBlock& block : table.blocks) {
      int64_t at = block.state_offset;
      for (int32_t f = 0; at >= 0 && f < block.num_factors; ++f) {
        const ManifoldFactor factor = table.factors[block.first_factor + f];
        // Sine and cosine of the machines differ by at most 2 units in the last
        // place each and all else is equal: 4 or 5 terms of at most 2 |x|.
        double norm = 0.0;
        for (int32_t i = 0; !factor.is_linear() && i < factor.size; ++i) {
          norm += state[at + i] * state[at + i];
        }
        const double tolerance = 2 * 5 * (2 * 4 + 5) * kEps * std::sqrt(norm);
        for (int32_t i = 0; i < factor.size; ++i) {
          EXPECT_NEAR(first[at + i], expected[at + i], tolerance);
          first[at + i] = expected[at + i];
        }
        at += factor.size;
      }
    }
    EXPECT_TRUE(SameBits(first, expected));
  }
}

TEST_F(BlocksCudaTest, ValuesOfBlocks) {
  for (const int64_t n : {0, 1, 31, 32, 33, 1000}) {
    std::vector<int64_t> index(static_cast<size_t>(n));
    std::iota(index.begin(), index.end(), 5);
    std::shuffle(index.begin(), index.end(), std::mt19937(3));
    const auto device_index = Upload(index);
    for (const bool gather : {true, false}) {
      ExpectBits(
          NormalVector(n + 9, 4),
          NormalVector(n + 9, 5),
          {},
          [&](auto* machine, double* x, double* y, double*) {
            const int64_t* at =
                On<const int64_t*>(machine, index.data(), device_index.data());
            return gather
                       ? kernels::Run(GatherValuesParams{n, at, x, y}, machine)
                       : kernels::Run(ScatterValuesParams{n, at, x, y},
                                      machine);
          });
    }
  }
}

template <typename T>
class PointTangentsCudaTest : public VectorsCudaTest {};
using BlockTypes = testing::Types<double, float>;
TYPED_TEST_SUITE(PointTangentsCudaTest, BlockTypes);

TYPED_TEST(PointTangentsCudaTest, AreThoseOfTheHost) {
  using T = TypeParam;
  constexpr int32_t kPoints = 50;
  const std::vector<double> tangents = NormalVector(9 * kPoints, 5);
  const auto device_tangents = this->Upload(tangents);
  for (const int64_t n : {0, 1, 31, 32, 33, 1000}) {
    std::vector<int32_t> point_id;
    for (int64_t k = 0; k < n; ++k) {
      point_id.push_back(static_cast<int32_t>(k * 7 % kPoints));
    }
    const std::vector<double> values = NormalVector(6 * n, 6);
    std::vector<T> blocks(values.begin(), values.end());
    const auto before = ToDeviceLayout<T>(blocks, 6);
    RunOk(
        ApplyPointTangentsParams<T, kHostLayout>{
            n, point_id.data(), tangents.data(), {blocks.data(), n}},
        &this->host_);
    const auto device_point_id = this->Upload(point_id);
    for (int run = 0; run < 2; ++run) {
      auto device_blocks = this->Upload(before);
      ASSERT_OK(kernels::Run(
          ApplyPointTangentsParams<T, kDeviceLayout>{n,
                                                     device_point_id.data(),
                                                     device_tangents.data(),
                                                     {device_blocks.data(), n}},
          this->machine_.get()));
      EXPECT_EQ(this->Download(device_blocks), ToDeviceLayout<T>(blocks, 6));
    }
  }
}

// ---------------------------------------------------------------------------

// An array large enough for the stages, with a piece that is not full, twice.
TEST_F(VectorsCudaTest, LargeArraysReachTheDevice) {
  std::vector<int32_t> x((size_t{37} << 20) / sizeof(int32_t) + 3);
  for (int run = 0; run < 2; ++run) {
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<int32_t>(i * 2654435761u) + run;
    }
    const int64_t before = context_->copied_bytes();
    DeviceBuffer<int32_t> device = Upload(x);
    EXPECT_EQ(context_->copied_bytes() - before,
              static_cast<int64_t>(x.size() * sizeof(int32_t)));
    EXPECT_EQ(Download(device), x);
  }
}

TEST_F(VectorsCudaTest, Elements) {
  for (const int64_t n : kVectorSizes) {
    SCOPED_TRACE(n);
    std::vector<double> x = NormalVector(n, 1);
    const std::vector<double> y = NormalVector(n, 2);
    const std::vector<double> z(static_cast<size_t>(n), kNaN);
    const auto expect_bits = [&](const auto& fn) { ExpectBits(x, y, z, fn); };
    expect_bits([&](auto* machine, double* x, double* y, double* z) {
      return kernels::Run(MultiplyParams{n, x, y, z}, machine);
    });
    expect_bits([&](auto* machine, double* x, double* y, double* /*z*/) {
      return kernels::Run(ScaleParams<double>{n, y, x}, machine);
    });
    // An array of float in the memory of one of double.
    expect_bits([&](auto* machine, double* x, double* y, double* z) {
      auto* const in_float = reinterpret_cast<float*>(z);
      CERES_EXT_RETURN_IF_ERROR(kernels::Run(
          SetConstantParams<float>{2 * n, 1.5f, in_float}, machine));
      CERES_EXT_RETURN_IF_ERROR(
          kernels::Run(ScaleParams<float>{n, x, in_float}, machine));
      return kernels::Run(ScaleParams<float>{n, y, in_float}, machine);
    });
    expect_bits([&](auto* machine, double* x, double* y, double* z) {
      return kernels::Run(AddVectorsParams{n, x, y, z}, machine);
    });
    expect_bits([&](auto* machine, double* x, double*, double* z) {
      return kernels::Run(CopyParams{n, x, z}, machine);
    });
    // All but the last element.
    const int64_t m = n > 0 ? n - 1 : 0;
    expect_bits([&](auto* machine, double* x, double* y, double*) {
      CERES_EXT_RETURN_IF_ERROR(
          kernels::Run(SetConstantParams{m, 0.1, x}, machine));
      return kernels::Run(SetConstantParams{m, kImpossibleValue, y}, machine);
    });
    const double special[] = {0.0, -0.0, kInfinity, -kInfinity, 5e-324};
    for (int64_t i = 0; i < n; i += 10) {
      x[i] = special[i / 10 % 5];
    }
    expect_bits([&](auto* machine, double* x, double* y, double* z) {
      CERES_EXT_RETURN_IF_ERROR(kernels::Run(NegateParams{n, x, z}, machine));
      CERES_EXT_RETURN_IF_ERROR(kernels::Run(NegateParams{n, y, y}, machine));
      return kernels::Run(ClampParams{n, -0.5, 0.75, x}, machine);
    });
    for (double& value : x) {
      value = std::fabs(value);
    }
    expect_bits([&](auto* machine, double* x, double*, double* z) {
      CERES_EXT_RETURN_IF_ERROR(kernels::Run(
          LevenbergMarquardtDiagonalParams{n, 1e4 / 3, x, z}, machine));
      return kernels::Run(JacobiScalingParams{n, x}, machine);
    });
  }
}

TEST_F(VectorsCudaTest, SquaredNorms) {
  for (const int64_t n : {0, 1, 31, 32, 33, 1000, 30000}) {
    for (const int num_residuals : {1, 2, 6}) {
      ExpectBits(NormalVector(num_residuals * n, 1),
                 std::vector<double>(n, kNaN),
                 {},
                 [&](auto* machine, double* x, double* y, double*) {
                   return kernels::Run(
                       SquaredNormsParams{n, num_residuals, x, y}, machine);
                 });
    }
  }
}

TEST_F(VectorsCudaTest, RowScales) {
  const double tolerance = 8 * kEps;  // As CorrectForLossCudaTest, per loss.
  for (const int64_t n : {0, 1, 31, 32, 33, 1000, 30000}) {
    SCOPED_TRACE(n);
    LossProblem<float, 9> problem(n);
    std::vector<float> host_scale(n, -1.0f);
    std::vector<double> host_residuals = problem.residuals;
    Evaluation host_evaluation{-1.0, 17};
    RunOk(ScaleRowsForLossParams<float>{n,
                                        {problem.losses.data(),
                                         problem.loss_id.data()},
                                        host_residuals.data(),
                                        host_scale.data(),
                                        &host_evaluation},
          &host_);
    const std::vector<double> weighted = host_residuals;
    RunOk(
        UnscaleResidualsParams<float>{
            n, host_scale.data(), host_residuals.data()},
        &host_);
    const auto losses = Upload(problem.losses);
    const auto loss_id = Upload(problem.loss_id);
    auto evaluation = Upload(std::vector<Evaluation>{{-1.0, 17}});
    auto residuals = Upload(problem.residuals);
    auto scale = Upload(std::vector<float>(n, -1.0f));
    ASSERT_OK(kernels::Run(
        ScaleRowsForLossParams<float>{n,
                                      {losses.data(), loss_id.data()},
                                      residuals.data(),
                                      scale.data(),
                                      evaluation.data()},
        machine_.get()));
    ASSERT_OK(context_->Synchronize());
    const std::vector<float> device_scale = Download(scale);
    const std::vector<double> device_residuals = Download(residuals);
    for (int64_t k = 0; k < n; ++k) {
      EXPECT_NEAR(
          device_scale[k],
          host_scale[k],
          double{std::numeric_limits<float>::epsilon()} * host_scale[k]);
      // rho' is a difference of numbers up to one, where it is small too.
      EXPECT_NEAR(device_residuals[2 * k],
                  weighted[2 * k],
                  128 * kEps *
                      std::max(std::fabs(weighted[2 * k]),
                               std::fabs(problem.residuals[2 * k])));
    }
    EXPECT_NEAR(Download(evaluation)[0].cost,
                host_evaluation.cost,
                (n + 64) * tolerance * host_evaluation.cost);
    // From the same values: the same bits.
    residuals = Upload(weighted);
    scale = Upload(host_scale);
    ASSERT_OK(kernels::Run(
        UnscaleResidualsParams<float>{n, scale.data(), residuals.data()},
        machine_.get()));
    ASSERT_OK(context_->Synchronize());
    EXPECT_TRUE(SameBits(Download(residuals), host_residuals));
  }
}

TEST_F(VectorsCudaTest, DegenerateBlocks) {
  const auto judge = [](auto* machine,
                        int64_t n,
                        double* a,
                        const double* padding,
                        DegenerateRecord* record) {
    JudgeBlocksParams judge;
    judge.n = n;
    judge.columns = 3;
    judge.a = {a, 1, n};
    judge.padding = padding;
    judge.record = record;
    CERES_EXT_RETURN_IF_ERROR(kernels::Run(judge, machine));
    return kernels::Run(FindWorstBlockParams{n, {a, 1, n}, record}, machine);
  };
  for (const int64_t n : kVectorSizes) {
    SCOPED_TRACE(n);
    // J'J of J with three rows; every third has two, and every fifth a third
    // column of padding.
    const std::vector<double> x = NormalVector(9 * n, 5);
    std::vector<double> a(6 * n, 0.0);
    std::vector<double> padding(3 * n, 0.0);
    int64_t num_degenerate = 0;
    for (int64_t i = 0; i < n; ++i) {
      const int rows = i % 3 == 0 ? 2 : 3;
      const int columns = i % 5 == 0 ? 2 : 3;
      padding[3 * i + 2] = i % 5 == 0 ? 1.0 : 0.0;
      num_degenerate += rows < columns ? 1 : 0;
      for (int row = 0; row < rows; ++row) {
        const double* j = x.data() + 9 * i + 3 * row;
        for (int c = 0; c < columns; ++c) {
          for (int d = 0; d <= c; ++d) {
            a[n * (c * (c + 1) / 2 + d) + i] += j[c] * j[d];
          }
        }
      }
    }
    // The worst but for rounding: two of no length.
    for (const int64_t i : {n / 2, n - 1}) {
      if (n > 2) {
        num_degenerate += i % 3 == 0 && i % 5 != 0 ? 0 : 1;
        padding[3 * i + 2] = 0.0;
        for (int e = 0; e < 6; ++e) {
          a[n * e + i] = 0.0;
        }
      }
    }
    std::vector<double> of_host = a;
    DegenerateRecord expected;
    ASSERT_OK(judge(&host_, n, of_host.data(), padding.data(), &expected));
    EXPECT_EQ(expected.count, num_degenerate);
    for (int run = 0; run < 2; ++run) {
      auto device_a = Upload(a);
      const auto device_padding = Upload(padding);
      auto record = Poisoned<DegenerateRecord>(1);
      ASSERT_OK(judge(machine_.get(),
                      n,
                      device_a.data(),
                      device_padding.data(),
                      record.data()));
      const DegenerateRecord found = Download(record)[0];
      EXPECT_EQ(found.count, num_degenerate);
      EXPECT_EQ(found.severity, expected.severity);
      // Rounding, fused or not, may make others as bad.
      EXPECT_LE(found.block, n > 2 ? n / 2 : DegenerateRecord().block);
    }
  }
}

TEST_F(VectorsCudaTest, NegateIfValid) {
  auto scalars = Poisoned<LoopScalars>(1);
  for (const int64_t n : kVectorSizes) {
    SCOPED_TRACE(n);
    const auto expect = [&](const std::vector<double>& x, int64_t num_invalid) {
      LoopScalars host;
      ExpectBits(x, {}, {}, [&](auto* machine, double* x, double*, double*) {
        LoopScalars* s = On(machine, &host, scalars.data());
        CERES_EXT_RETURN_IF_ERROR(kernels::Run(
            CountInvalidParams{n, x, s, &s->num_invalid}, machine));
        return kernels::Run(NegateIfValidParams{n, x, &s->num_invalid},
                            machine);
      });
      EXPECT_EQ(Download(scalars)[0].num_invalid, num_invalid);
      EXPECT_EQ(host.num_invalid, num_invalid);
    };
    const std::vector<double> x = NormalVector(n, 3);
    expect(x, 0);
    for (const int64_t where : {int64_t{0}, n / 2, n - 1}) {
      for (const double invalid :
           {kNaN, kInfinity, -kInfinity, kImpossibleValue}) {
        std::vector<double> bad = x;
        if (n > 0) {
          bad[where] = invalid;
          expect(bad, 1);
        }
      }
    }
    expect(std::vector<double>(x.size(), kImpossibleValue), n);
    expect(std::vector<double>(x.size(), -1.7e308), 0);
  }
}

// The sums of the loop.
template <typename Machine>
Status RunSums(
    int64_t n, const double* x, const double* y, LoopScalars* s, Machine* on) {
  CERES_EXT_RETURN_IF_ERROR(Run(ProjectedGradientNormsParams{n, x, y, s}, on));
  CERES_EXT_RETURN_IF_ERROR(Run(StepNormsParams{n, x, y, s}, on));
  CERES_EXT_RETURN_IF_ERROR(Run(ModelCostChangeParams{n, x, y, s}, on));
  return Run(CountInvalidParams{n, x, s}, on);
}

TEST_F(VectorsCudaTest, SumsInTheHostsOrder) {
  for (const int64_t n : {0, 1, 31, 32, 33, 512, 513, 1000, 100000, 600000}) {
    SCOPED_TRACE(n);
    std::vector<double> x;
    std::vector<double> y;
    MakeExactPairs(n, 9, &x, &y);
    const auto device_x = Upload(x);
    const auto device_y = Upload(y);
    LoopScalars expected;
    ASSERT_OK(RunSums(n, x.data(), y.data(), &expected, &host_));
    for (int run = 0; run < 2; ++run) {
      auto scalars = Poisoned<LoopScalars>(1);
      ASSERT_OK(RunSums(
          n, device_x.data(), device_y.data(), scalars.data(), machine_.get()));
      EXPECT_TRUE(SameBits(Download(scalars), {expected}));
    }
  }
}

// Each from scalars of its own: alpha = 1/2 keeps the new residual exact.
TEST_F(VectorsCudaTest, SumsOfPcgInTheHostsOrder) {
  PcgScalars running;
  running.alpha = 0.5;
  running.rho = 3.0;
  running.num_iterations = 3;
  running.min_num_iterations = 9;
  running.max_num_iterations = 9;
  running.tol_r = -1.0;
  for (const int64_t n : {0, 1, 31, 32, 33, 512, 513, 1000, 100000, 600000}) {
    SCOPED_TRACE(n);
    std::vector<double> x;
    std::vector<double> y;
    MakeExactPairs(n, 9, &x, &y);
    const auto device_x = Upload(x);
    const auto device_y = Upload(y);
    // fn(machine, x, y, u, v, scalars): u is y at first, v not a number.
    const auto expect_bits = [&](const char* what, const auto& fn) {
      SCOPED_TRACE(what);
      PcgScalars expected = running;
      std::vector<double> u = y;
      const std::vector<double> nan(x.size(), kNaN);
      std::vector<double> v = nan;
      ASSERT_OK(fn(&host_, x.data(), y.data(), u.data(), v.data(), &expected));
      for (int run = 0; run < 2; ++run) {
        auto device_u = Upload(y);
        auto device_v = Upload(nan);
        auto scalars = Upload(std::vector<PcgScalars>{running});
        ASSERT_OK(fn(machine_.get(),
                     device_x.data(),
                     device_y.data(),
                     device_u.data(),
                     device_v.data(),
                     scalars.data()));
        ASSERT_OK(context_->Synchronize());
        PcgScalars actual = Download(scalars)[0];
        if (n == 0 && std::isnan(actual.zeta) && std::isnan(expected.zeta)) {
          actual.zeta = expected.zeta;  // 0 / 0, of either sign.
        }
        EXPECT_TRUE(SameBits<PcgScalars>({actual}, {expected}));
        EXPECT_TRUE(SameBits(Download(device_u), u));
        EXPECT_TRUE(SameBits(Download(device_v), v));
      }
    };
    expect_bits("start",
                [&](auto* machine,
                    const double* x,
                    const double*,
                    double* u,
                    double* v,
                    PcgScalars* s) {
                  return kernels::Run(
                      PcgStartParams{n, -1.0, -1.0, 1, 9, x, v, u, s}, machine);
                });
    expect_bits(
        "start from x",
        [&](auto* machine,
            const double* x,
            const double*,
            double* u,
            double* v,
            PcgScalars* s) {
          CERES_EXT_RETURN_IF_ERROR(kernels::Run(
              PcgStartParams{n, -1.0, -1.0, 1, 9, x, u, v, s, true}, machine));
          return kernels::Run(PcgResidualParams{n, true, x, u, x, v, s},
                              machine);
        });
    expect_bits(
        "power series",
        [&](auto* machine,
            const double* x,
            const double*,
            double* u,
            double* v,
            PcgScalars* s) {
          CERES_EXT_RETURN_IF_ERROR(
              kernels::Run(PowerSeriesStartParams{n, 0.5, x, v, s}, machine));
          return kernels::Run(PowerSeriesTermParams{n, v, u, s, s}, machine);
        });
    expect_bits("rho",
                [&](auto* machine,
                    const double* x,
                    const double* y,
                    double*,
                    double*,
                    PcgScalars* s) {
                  return kernels::Run(PcgRhoParams{n, x, y, s}, machine);
                });
    expect_bits("alpha",
                [&](auto* machine,
                    const double* x,
                    const double* y,
                    double*,
                    double*,
                    PcgScalars* s) {
                  return kernels::Run(PcgAlphaParams{n, x, y, s}, machine);
                });
    for (const bool reset : {false, true}) {
      expect_bits(reset ? "reset residual" : "residual",
                  [&](auto* machine,
                      const double* x,
                      const double* y,
                      double* u,
                      double*,
                      PcgScalars* s) {
                    return kernels::Run(
                        PcgResidualParams{n, reset, x, y, x, u, s}, machine);
                  });
    }
    expect_bits("dot",
                [&](auto* machine,
                    const double* x,
                    const double* y,
                    double*,
                    double*,
                    PcgScalars* s) {
                  return kernels::Run(DotParams{n, x, y, &s->rho}, machine);
                });
  }
}

// Two iterations of PCG, of whatever q, in one kernel where they are short.
TEST_F(VectorsCudaTest, InOrderHasTheBitsOfOneAfterTheOther) {
  for (const int64_t n : {1, 31, 256, 257, 511, 512, 513, 2000}) {
    SCOPED_TRACE(n);
    const std::vector<double> b = NormalVector(n, 8);
    const std::vector<double> any_q = NormalVector(n, 9);
    std::vector<std::vector<double>> results;
    for (const bool in_order : {false, true}) {
      const auto rhs = Upload(b);
      auto x = Poisoned<double>(n);
      auto r = Poisoned<double>(n);
      auto p = Poisoned<double>(n);
      const auto q = Upload(any_q);
      auto scalars = Poisoned<PcgScalars>(1);
      PcgScalars* const s = scalars.data();
      ASSERT_OK(kernels::Run(
          PcgStartParams{
              n, -1.0, -1.0, 1, 9, rhs.data(), x.data(), r.data(), s},
          machine_.get()));
      for (int i = 0; i < 2; ++i) {
        const PcgRhoParams rho{n, r.data(), r.data(), s};
        const PcgDirectionParams direction{n, r.data(), p.data(), s};
        const PcgAlphaParams alpha{n, p.data(), p.data(), s};
        const PcgAdvanceParams advance{n, p.data(), x.data(), s};
        const PcgResidualParams residual{
            n, false, rhs.data(), q.data(), x.data(), r.data(), s};
        if (in_order) {
          ASSERT_OK(RunInOrder(machine_.get(), rho, direction));
          if (i == 0) {
            ASSERT_OK(RunInOrder(machine_.get(), alpha, advance, residual));
          } else {
            ASSERT_OK(RunInOrder(machine_.get(), alpha, advance));
            ASSERT_OK(kernels::Run(residual, machine_.get()));
          }
        } else {
          ASSERT_OK(kernels::Run(rho, machine_.get()));
          ASSERT_OK(kernels::Run(direction, machine_.get()));
          ASSERT_OK(kernels::Run(alpha, machine_.get()));
          ASSERT_OK(kernels::Run(advance, machine_.get()));
          ASSERT_OK(kernels::Run(residual, machine_.get()));
        }
      }
      const PcgScalars last = Download(scalars)[0];
      EXPECT_EQ(last.num_iterations, 2);
      results.push_back({last.rho, last.alpha, last.q1, last.norm_r});
      for (const auto* vector : {&x, &r, &p}) {
        const std::vector<double> values = Download(*vector);
        results.back().insert(
            results.back().end(), values.begin(), values.end());
      }
    }
    for (const double value : results[0]) {
      ASSERT_TRUE(std::isfinite(value));
    }
    EXPECT_EQ(results[0], results[1]);
  }
}

TEST_F(VectorsCudaTest, SumsOfAnyVectors) {
  for (const int64_t n : kVectorSizes) {
    SCOPED_TRACE(n);
    const std::vector<double> x = NormalVector(n, 4);
    const std::vector<double> y = NormalVector(n, 5);
    const auto device_x = Upload(x);
    const auto device_y = Upload(y);
    LoopScalars expected;
    ASSERT_OK(RunSums(n, x.data(), y.data(), &expected, &host_));
    double absolute = 0.0;
    for (int64_t i = 0; i < n; ++i) {
      absolute += std::fabs(y[i] * (x[i] + 0.5 * y[i]));
    }
    auto scalars = Poisoned<LoopScalars>(1);
    ASSERT_OK(RunSums(
        n, device_x.data(), device_y.data(), scalars.data(), machine_.get()));
    const LoopScalars actual = Download(scalars)[0];
    // The same sums of terms that one of the machines rounds once more each,
    // then other roundings in each addition above.
    const double tolerance = 2 * static_cast<double>(SumDepth(n) + 3) * kEps;
    EXPECT_EQ(actual.max_norm, expected.max_norm);
    EXPECT_NEAR(actual.norm, expected.norm, tolerance * expected.norm);
    EXPECT_NEAR(actual.x_norm, expected.x_norm, tolerance * expected.x_norm);
    EXPECT_EQ(actual.step_norm, actual.norm);
    EXPECT_NEAR(actual.model_cost_change,
                expected.model_cost_change,
                tolerance * absolute);
  }
}

TEST_F(VectorsCudaTest, SumsKeepWhatIsNotFinite) {
  for (const int64_t where : {0, 700, 1499}) {
    for (const double value : {kNaN, kInfinity, -kInfinity}) {
      std::vector<double> x = NormalVector(1500, 6);
      x[where] = value;
      const auto device_x = Upload(x);
      const auto device_y = Upload(NormalVector(1500, 7));
      auto scalars = Poisoned<LoopScalars>(1);
      ASSERT_OK(RunSums(1500,
                        device_x.data(),
                        device_y.data(),
                        scalars.data(),
                        machine_.get()));
      const LoopScalars actual = Download(scalars)[0];
      for (const double norm :
           {actual.max_norm, actual.norm, actual.x_norm, actual.step_norm}) {
        EXPECT_EQ(std::isnan(norm), std::isnan(value));
        EXPECT_FALSE(std::isfinite(norm));
      }
    }
  }
}

// ---------------------------------------------------------------------------

template <typename TIn, int CIn>
struct Combination {
  using T = TIn;
  static constexpr int C = CIn;
};

template <typename Combination>
class CorrectForLossCudaTest : public VectorsCudaTest {};

using Combinations = ::testing::Types<Combination<double, 9>,
                                      Combination<double, 10>,
                                      Combination<float, 9>,
                                      Combination<float, 10>>;
TYPED_TEST_SUITE(CorrectForLossCudaTest, Combinations);

TYPED_TEST(CorrectForLossCudaTest, AgreesWithHost) {
  using T = typename TypeParam::T;
  constexpr int C = TypeParam::C;
  // At most 64 roundings on the way to an element, and as many for e^x with x
  // below 2^6; T rounds once more.
  const double tolerance =
      128 * kEps +
      (sizeof(T) == 4 ? double{std::numeric_limits<T>::epsilon()} : 0.0);
  for (const int64_t n : {0, 1, 31, 32, 33, 1000, 10000}) {
    // Which of residuals, camera and point blocks are wanted; rho of the device
    // filled beforehand.
    for (const int mask : {7, 0, 1, 2 | 4, 8, 8 | 7}) {
      SCOPED_TRACE(testing::Message() << n << " observations, mask " << mask);
      const LossProblem<T, C> before(n);
      LossProblem<T, C> host = before;
      Evaluation host_evaluation{-1.0, 17};
      CorrectForLossParams<T, BalShape<C>, kHostLayout> host_params;
      host_params.n = n;
      host_params.loss = {host.losses.data(), host.loss_id.data()};
      host_params.residuals = host.residuals.data();
      if (mask & 1) {
        host_params.corrected_residuals = host.residuals.data();
      }
      if (mask & 2) {
        host_params.correction.camera_blocks = {host.camera_blocks.data(), n};
      }
      if (mask & 4) {
        host_params.correction.point_blocks = {host.point_blocks.data(), n};
      }
      host_params.evaluation = &host_evaluation;
      RunOk(host_params, &this->host_);

      std::vector<double> all_rho;
      for (int64_t k = 0; k < n; ++k) {
        const double* residual = &before.residuals[2 * k];
        const double s = residual[0] * residual[0] + residual[1] * residual[1];
        all_rho.insert(all_rho.end(), 3, kNaN);
        host_params.loss.Evaluate(k, s, &all_rho[3 * k]);
      }
      // r sqrt(rho') / (1 - alpha) and sqrt(rho') (J - alpha r r'J / |r|^2),
      // with sqrt(rho') of about one at most: an element is of terms of the
      // size of its column times 1 + |alpha|.
      const auto bounds = [&](const auto& values, int num_columns) {
        std::vector<double> bound;
        for (int64_t k = 0; k < n; ++k) {
          const double* residual = &before.residuals[2 * k];
          const double s =
              residual[0] * residual[0] + residual[1] * residual[1];
          const double* rho = &all_rho[3 * k];
          const double alpha =
              rho[2] > 0.0 ? 1.0 - std::sqrt(1.0 + 2.0 * s * rho[2] / rho[1])
                           : 0.0;
          const double factor =
              std::max(1.0, std::sqrt(rho[1])) * (1.0 + std::fabs(alpha));
          const auto* block = &values[2 * num_columns * k];
          for (int i = 0; i < 2 * num_columns; ++i) {
            const int j = i % num_columns;
            const double column =
                std::hypot(static_cast<double>(block[j]),
                           static_cast<double>(block[num_columns + j]));
            bound.push_back(tolerance * factor * column);
          }
        }
        return bound;
      };

      const auto losses = this->Upload(before.losses);
      const auto loss_id = this->Upload(before.loss_id);
      const auto filled = this->Upload(all_rho);
      std::vector<double> first;
      for (int run = 0; run < 2; ++run) {
        auto residuals = this->Upload(before.residuals);
        auto camera_blocks =
            this->Upload(ToDeviceLayout<T>(before.camera_blocks, 2 * C));
        auto point_blocks =
            this->Upload(ToDeviceLayout<T>(before.point_blocks, 6));
        auto evaluation = this->Upload(std::vector<Evaluation>{{-1.0, 17}});
        CorrectForLossParams<T, BalShape<C>, kDeviceLayout> params;
        params.n = n;
        params.loss = {losses.data(), loss_id.data()};
        if (mask & 8) {
          params.loss = {nullptr, nullptr, filled.data()};
        }
        params.residuals = residuals.data();
        if (mask & 1) {
          params.corrected_residuals = residuals.data();
        }
        if (mask & 2) {
          params.correction.camera_blocks = {camera_blocks.data(), n};
        }
        if (mask & 4) {
          params.correction.point_blocks = {point_blocks.data(), n};
        }
        params.evaluation = evaluation.data();
        ASSERT_OK(kernels::Run(params, this->machine_.get()));
        ASSERT_OK(this->context_->Synchronize());

        const std::vector<double> r = this->Download(residuals);
        const std::vector<double> jc =
            ToHostLayout(this->Download(camera_blocks), 2 * C);
        const std::vector<double> jp =
            ToHostLayout(this->Download(point_blocks), 6);
        const Evaluation e = this->Download(evaluation)[0];
        EXPECT_TRUE(Close(r, host.residuals, bounds(before.residuals, 1)));
        EXPECT_TRUE(
            Close(jc,
                  {host.camera_blocks.begin(), host.camera_blocks.end()},
                  bounds(before.camera_blocks, C)));
        EXPECT_TRUE(Close(jp,
                          {host.point_blocks.begin(), host.point_blocks.end()},
                          bounds(before.point_blocks, 3)));
        EXPECT_NEAR(e.cost,
                    host_evaluation.cost,
                    static_cast<double>(2 * SumDepth(n) + 128) * kEps *
                        host_evaluation.cost);
        EXPECT_EQ(e.num_not_finite, 17);

        std::vector<double> all = r;
        all.insert(all.end(), jc.begin(), jc.end());
        all.insert(all.end(), jp.begin(), jp.end());
        all.push_back(e.cost);
        if (run == 0) {
          first = all;
        }
        EXPECT_TRUE(SameBits(all, first));
      }
    }
  }
}

}  // namespace
}  // namespace ceres_ext::kernels
