// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Between Ceres's vectors and those of families: every value has one place, and
// nothing else is touched.

#include "ceres_ext/blocks/machine_problem.h"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "ceres/autodiff_cost_function.h"
#include "ceres/manifold.h"
#include "ceres/parameter_block.h"
#include "ceres/problem_impl.h"
#include "ceres/program.h"
#include "ceres_ext/bal_cost_functions.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/on_machine.h"

namespace ceres_ext {
namespace {

struct Difference {
  template <typename T>
  bool operator()(const T* x, const T* y, T* residual) const {
    residual[0] = x[0] - y[3];
    return true;
  }
};

class MachineProblemTest : public OnMachine {
 protected:
  // Cameras of two kinds, constant and partly constant blocks, priors between
  // cameras and blocks of other sizes, of which one family is shared.
  void MakeProblem(unsigned seed) {
    std::mt19937 generator(seed);
    bal_ = MakeBalTestProblem(9, 70, 4, 9, seed);
    quaternions_.assign(10 * 3, 0.5);
    others_.assign(4 * 5, 0.25);
    for (size_t k = 0; k < bal_.camera_id.size(); ++k) {
      const double u = bal_.observations[2 * k];
      const double v = bal_.observations[2 * k + 1];
      double* point = bal_.point(bal_.point_id[k]);
      if (k % 5 == 4) {
        problem_.AddResidualBlock(CreateBalReprojectionErrorQuaternion(u, v),
                                  nullptr,
                                  &quaternions_[10 * (k % 3)],
                                  point);
      } else {
        problem_.AddResidualBlock(CreateBalReprojectionError(u, v),
                                  nullptr,
                                  bal_.camera(bal_.camera_id[k]),
                                  point);
      }
    }
    for (int i = 0; i < 5; ++i) {
      problem_.AddResidualBlock(
          new ceres::AutoDiffCostFunction<Difference, 1, 9, 4>(new Difference),
          nullptr,
          bal_.camera(static_cast<int>(generator() % 9)),
          &others_[4 * i]);
    }
    problem_.SetParameterBlockConstant(bal_.camera(2));
    problem_.SetParameterBlockConstant(
        bal_.point(static_cast<int>(generator() % 70)));
    problem_.SetManifold(bal_.camera(4), new ceres::SubsetManifold(9, {1, 8}));
    problem_.SetManifold(&quaternions_[10], new BalCameraManifold());
    problem_.SetManifold(&others_[4], new ceres::SubsetManifold(4, {0, 3}));
    Import(&problem_);
  }

  std::vector<double> Random(int64_t n) {
    std::uniform_real_distribution<double> uniform(1.0, 2.0);
    std::vector<double> x(n);
    for (double& value : x) {
      value = uniform(generator_);
    }
    return x;
  }

  // Calls fn(family, its table, the vector's part for it) for both roles.
  template <typename Function>
  void ForEachFamily(const std::vector<double>& e,
                     const std::vector<double>& f,
                     Function&& fn) {
    const auto one_role = [&](const auto& families,
                              const auto& tables,
                              const std::vector<double>& values) {
      ASSERT_EQ(static_cast<size_t>(families.size()), tables.size());
      for (int i = 0; i < families.size(); ++i) {
        fn(families[i], tables[i].table(), &values[families[i].value_begin]);
      }
    };
    one_role(blocks_.blocks().e, blocks_.e(), e);
    one_role(blocks_.blocks().f, blocks_.f(), f);
  }

  BalTestProblem bal_;
  std::vector<double> quaternions_;
  std::vector<double> others_;
  ceres::internal::ProblemImpl problem_;
  std::mt19937 generator_{11};
};

TEST_F(MachineProblemTest, EveryValueHasOnePlace) {
  MakeProblem(3);
  const int n = program_->NumEffectiveParameters();
  ASSERT_EQ(blocks_.num_columns(), n);
  EXPECT_EQ(blocks_.num_parameters(), program_->NumParameters());
  EXPECT_EQ(blocks_.num_residuals(), program_->NumResiduals());
  const int64_t num_e = blocks_.blocks().e.num_values();
  const int64_t num_f = blocks_.blocks().f.num_values();
  const std::vector<double> vector = Random(n);
  constexpr double kPadding = -7.0;
  Buffer<double> x = Upload(vector);
  Buffer<double> e = Upload(std::vector<double>(num_e, 0.0));
  Buffer<double> f = Upload(std::vector<double>(num_f, 0.0));
  ASSERT_TRUE(blocks_.Gather(x.data(), kPadding, e.data(), f.data()).ok());
  const std::vector<double> host_e = Download(num_e, e.data());
  const std::vector<double> host_f = Download(num_f, f.data());

  // The contents of the tables, and that they are complete.
  std::vector<int> uses(n, 0);
  ForEachFamily(
      host_e, host_f, [&](const auto& family, const auto& table, auto* values) {
        ASSERT_EQ(family.num_blocks, table.size());
        for (int32_t b = 0; b < table.size(); ++b) {
          for (int j = 0; j < family.size; ++j) {
            const double value = values[family.size * b + j];
            if (j < table.tangent_size(b)) {
              const int at = table.tangent_offset(b) + j;
              ASSERT_EQ(value, vector[at]);
              ++uses[at];
            } else {
              ASSERT_EQ(value, kPadding);
            }
          }
        }
      });
  EXPECT_EQ(uses, std::vector<int>(n, 1));

  // Blocks stand where the Program has them, whatever the order of points.
  for (const auto* block : program_->parameter_blocks()) {
    const int i = block->index();
    const auto& tables =
        structure_.is_eliminated[i] != 0 ? blocks_.e() : blocks_.f();
    const BlockTable& table = tables[structure_.family.data()[i]].table();
    const int32_t place = structure_.place.data()[i];
    ASSERT_EQ(table.tangent_offset(place), block->delta_offset());
    ASSERT_EQ(table.tangent_size(place), block->TangentSize());
    ASSERT_EQ(table.state_offset(place), block->state_offset());
  }

  // And back: bit by bit.
  Buffer<double> y = Upload(std::vector<double>(n, 0.0));
  ASSERT_TRUE(blocks_.Scatter(e.data(), f.data(), y.data()).ok());
  EXPECT_EQ(Download(n, y.data()), vector);
}

TEST_F(MachineProblemTest, NoVectorIsZero) {
  MakeProblem(4);
  const int64_t num_e = blocks_.blocks().e.num_values();
  const int64_t num_f = blocks_.blocks().f.num_values();
  Buffer<double> e = Upload(Random(num_e));
  Buffer<double> f = Upload(Random(num_f));
  ASSERT_TRUE(blocks_.Gather(nullptr, 1.0, e.data(), f.data()).ok());
  ForEachFamily(Download(num_e, e.data()),
                Download(num_f, f.data()),
                [](const auto& family, const auto& table, auto* values) {
                  for (int32_t b = 0; b < table.size(); ++b) {
                    for (int j = 0; j < family.size; ++j) {
                      ASSERT_EQ(values[family.size * b + j],
                                j < table.tangent_size(b) ? 0.0 : 1.0);
                    }
                  }
                });
}

TEST_F(MachineProblemTest, SharedFamiliesAreSetToZero) {
  MakeProblem(5);
  const int64_t num_e = blocks_.blocks().e.num_values();
  const int64_t num_f = blocks_.blocks().f.num_values();
  const std::vector<double> host_e = Random(num_e);
  const std::vector<double> host_f = Random(num_f);
  Buffer<double> e = Upload(host_e);
  Buffer<double> f = Upload(host_f);
  ASSERT_TRUE(blocks_.SetSharedToZero(e.data(), f.data()).ok());
  int num_shared = 0;
  const auto expect = [&](const auto& families,
                          const std::vector<int>& owner,
                          const std::vector<double>& before,
                          const std::vector<double>& after) {
    for (int i = 0; i < families.size(); ++i) {
      const bool shared = owner[i] == solver::ProblemBlocks::kShared;
      num_shared += shared ? 1 : 0;
      for (int64_t j = 0; j < families[i].num_values(); ++j) {
        const int64_t at = families[i].value_begin + j;
        ASSERT_EQ(after[at], shared ? 0.0 : before[at]);
      }
    }
  };
  const solver::ProblemBlocks& blocks = blocks_.blocks();
  expect(blocks.e, blocks.e_owner, host_e, Download(num_e, e.data()));
  expect(blocks.f, blocks.f_owner, host_f, Download(num_f, f.data()));
  // Points have rows of two kinds of camera, and blocks of 4 have no owner.
  EXPECT_GE(num_shared, 2);
}

}  // namespace
}  // namespace ceres_ext
