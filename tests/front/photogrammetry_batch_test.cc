// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The batched forms of all functors of photogrammetry.h, the device's emulated,
// against ceres::AutoDiffCostFunction. On a GPU device_functions_benchmark does
// the same.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/photogrammetry_errors.h"
#include "ceres/autodiff_cost_function.h"
#include "ceres_ext/device/cost_function.cuh"
#include "gtest/gtest.h"

namespace ceres_ext {
namespace {

template <typename Error, typename Sizes>
struct TypesFor;
template <typename Error, int... Ns>
struct TypesFor<Error, std::integer_sequence<int, Ns...>> {
  using Batched =
      DeviceAutoDiffCostFunction<Error, Error::kNumResiduals, Ns...>;
  using Plain = ceres::AutoDiffCostFunction<Error, Error::kNumResiduals, Ns...>;
};

// Rows of one functor, in the layout of a general batch.
template <typename Case>
void ExpectBatchesAgree(const Case& c) {
  SCOPED_TRACE(c.name);
  constexpr int kNumRows = 33;
  using Types = TypesFor<typename Case::Error, typename Case::BlockSizes>;
  using Batched = typename Types::Batched;
  internal::RegisterForms<Batched, form::Rows>();
  const BatchModel& model =
      internal::BatchForms<typename Batched::Model>::model;
  const typename Types::Plain plain(new typename Case::Error(c.error));
  const int num_residuals = model.num_residuals;
  const int num_values = static_cast<int>(c.parameters.size());

  std::vector<double> state;
  std::vector<RowBlock> blocks;
  std::vector<int64_t> value_begin;
  for (int i = 0; i < kNumRows; ++i) {
    int begin = 0;
    for (int b = 0; b < model.num_parameter_blocks; ++b) {
      RowBlock block;
      block.state = static_cast<int32_t>(state.size());
      block.size = model.parameter_block_sizes[b];
      block.column = num_residuals * begin;
      blocks.push_back(block);
      for (int j = 0; j < block.size; ++j) {
        state.push_back(c.parameters[begin + j] * (1.0 + 1e-3 * i));
      }
      begin += block.size;
    }
    value_begin.push_back(int64_t{num_residuals} * num_values * i);
  }
  const int num_words = (model.constants_bytes + 7) / 8;
  std::vector<uint64_t> constants(num_words);
  std::memcpy(constants.data(), &c.error, sizeof(c.error));

  RowBatch rows;
  rows.num_rows = kNumRows;
  rows.blocks = blocks.data();
  rows.state = state.data();
  rows.constants = constants.data();  // of all rows
  rows.constant_word = 1;
  rows.value_begin = value_begin.data();
  std::vector<double> residuals[2];
  std::vector<double> values[2];
  double cost[2] = {};
  for (int k = 0; k < 2; ++k) {
    residuals[k].resize(num_residuals * kNumRows);
    values[k].resize(num_residuals * num_values * kNumRows);
    rows.residuals = residuals[k].data();
    rows.f = {values[k].data(), 0, 0, 1};
    if (k == 0) {
      for (int i = 0; i < kNumRows; ++i) {
        const RowTerm term = model.evaluate_row(rows, /*jacobian=*/true, i);
        cost[0] += 0.5 * term.first;
        EXPECT_EQ(term.second, 0.0);
      }
      continue;
    }
    std::vector<double> partial(2 * kernels::kMaxSumBlocks);
    int32_t ticket = 0;
    RowSums sums;
    for (const bool jacobian : {false, true}) {
      ASSERT_EQ(kernels::LaunchForm(*model.GetForm(FormKind::kRows),
                                    jacobian ? 1 : 0,
                                    0,
                                    nullptr,
                                    kernels::NumSumBlocks(kNumRows),
                                    kernels::kSumLanes,
                                    rows,
                                    partial.data(),
                                    &ticket,
                                    &sums),
                0);
      EXPECT_EQ(sums.num_not_finite, 0);
      EXPECT_EQ(ticket, 0);
    }
    cost[1] = sums.cost;
  }
  EXPECT_EQ(residuals[1], residuals[0]);
  EXPECT_EQ(values[1], values[0]);
  EXPECT_NEAR(cost[1], cost[0], 1e-14 * cost[0]);

  // Passes differentiate what one Jet of all columns does: the same sums of the
  // same products, but in what a compiler fuses.
  for (int i = 0; i < kNumRows; ++i) {
    std::vector<const double*> parameters;
    std::vector<double> jacobian(num_residuals * num_values);
    std::vector<double*> jacobians;
    for (int b = 0; b < model.num_parameter_blocks; ++b) {
      const RowBlock& block = blocks[i * model.num_parameter_blocks + b];
      parameters.push_back(state.data() + block.state);
      jacobians.push_back(jacobian.data() + block.column);
    }
    std::vector<double> residual(num_residuals);
    ASSERT_TRUE(
        plain.Evaluate(parameters.data(), residual.data(), jacobians.data()));
    const auto expect_near = [](const double* found,
                                const std::vector<double>& expected) {
      double largest = 0.0;
      for (const double x : expected) {
        largest = std::max(largest, std::abs(x));
      }
      for (size_t j = 0; j < expected.size(); ++j) {
        EXPECT_NEAR(found[j], expected[j], 1e-13 * largest) << j;
      }
    };
    expect_near(residuals[0].data() + num_residuals * i, residual);
    expect_near(values[0].data() + value_begin[i], jacobian);
  }
}

TEST(PhotogrammetryBatches, AgreeWithCeres) {
  int num_cases = 0;
  ForEachPhotogrammetryCase([&](const auto& c) {
    ExpectBatchesAgree(c);
    ++num_cases;
  });
  EXPECT_GE(num_cases, 40);
}

}  // namespace
}  // namespace ceres_ext
