// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The import of a Program, and of arrays, with enough blocks for several tasks,
// against the problem that it was made from, for one thread and for several.

#include "ceres_ext/import/import_rows.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "ceres/autodiff_cost_function.h"
#include "ceres/dynamic_numeric_diff_cost_function.h"
#include "ceres/loss_function.h"
#include "ceres/manifold.h"
#include "ceres/parameter_block.h"
#include "ceres/problem_impl.h"
#include "ceres/program.h"
#include "ceres/residual_block.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/blocks/machine_problem.h"
#include "ceres_ext/device_cost_function.h"
#include "ceres_ext/direction_cost_functions.h"
#include "ceres_ext/import/array_import.h"
#include "ceres_ext/import/array_rows.h"
#include "ceres_ext/import/elimination.h"
#include "ceres_ext/rows/row_groups_evaluator.h"
#include "ceres_ext/session/known_facts.h"
#include "ceres_ext/under_ceres/program_rows.h"
#include "cuda_kernels/machine/host_context.h"
#include "cuda_kernels/machine/host_machine.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/functors.h"

namespace ceres_ext {
namespace {

using ceres::internal::ParameterBlock;
using ceres::internal::ProblemImpl;
using ceres::internal::Program;

constexpr int kRows = 60000;
constexpr int kViews = 4;

std::vector<int32_t> Values(const kernels::HostBuffer<int32_t>& buffer) {
  return {buffer.data(), buffer.data() + buffer.size()};
}

class BundleStructureTest : public testing::TestWithParam<int> {
 protected:
  BundleStructureTest()
      : bal_(MakeBalTestProblem(30, kRows / kViews, kViews, 9)),
        other_camera_(10, 0.5),
        context_(GetParam()) {}

  // Row `row` of the problem, by a cost function of another kind or model where
  // it is among those.
  void AddRows(int autodiff_row,
               int quaternion_row,
               ceres::LossFunction* loss) {
    for (int i = 0; i < kRows; ++i) {
      const double* z = &bal_.observations[2 * i];
      double* point = bal_.point(bal_.point_id[i]);
      double* camera = bal_.camera(bal_.camera_id[i]);
      ceres::LossFunction* row_loss = i % 3 == 1 ? loss : nullptr;
      if (i == autodiff_row) {
        impl_.AddResidualBlock(
            new ceres::AutoDiffCostFunction<AutodiffReprojection<3>, 2, 9, 3>(
                new AutodiffReprojection<3>{z[0], z[1]}),
            row_loss,
            camera,
            point);
      } else if (i == quaternion_row) {
        impl_.AddResidualBlock(CreateBalReprojectionErrorQuaternion(z[0], z[1]),
                               row_loss,
                               other_camera_.data(),
                               point);
      } else {
        impl_.AddResidualBlock(
            CreateBalReprojectionError(z[0], z[1]), row_loss, camera, point);
      }
    }
  }

  // As the preprocessor does it.
  std::unique_ptr<Program> Reduce() {
    double fixed_cost = 0.0;
    std::string error;
    auto program =
        impl_.program().CreateReducedProgram(&removed_, &fixed_cost, &error);
    EXPECT_NE(program, nullptr) << error;
    program->SetParameterOffsetsAndIndex();
    return program;
  }

  // Ids in the order of the Program, then constants by first appearance;
  // offsets and constants, from the Program alone.
  static void ExpectTable(const Program& program,
                          int slot,
                          const BlockTable& table,
                          const InputArray<int32_t>& ids) {
    const auto& rows = program.residual_blocks();
    const auto num_rows = static_cast<int64_t>(rows.size());
    std::unordered_set<const ParameterBlock*> named;
    for (const auto* row : rows) {
      named.insert(row->parameter_blocks()[slot]);
    }
    std::vector<const ParameterBlock*> expected;
    for (const ParameterBlock* block : program.parameter_blocks()) {
      if (named.count(block) > 0) {
        expected.push_back(block);
      }
    }
    const size_t num_varying = expected.size();
    for (const auto* row : rows) {
      const ParameterBlock* block = row->parameter_blocks()[slot];
      if (block->IsConstant() &&
          std::find(expected.begin() + num_varying, expected.end(), block) ==
              expected.end()) {
        expected.push_back(block);
      }
    }
    ASSERT_EQ(table.size(), static_cast<int32_t>(expected.size()));
    ASSERT_EQ(ids.size(), num_rows);
    for (int64_t i = 0; i < num_rows; ++i) {
      ASSERT_EQ(expected[ids.data()[i]], rows[i]->parameter_blocks()[slot])
          << "row " << i;
    }
    for (int32_t id = 0; id < table.size(); ++id) {
      const ParameterBlock& block = *expected[id];
      const bool varies = !block.IsConstant();
      EXPECT_EQ(table.constant_value(id), varies ? nullptr : block.state());
      EXPECT_EQ(table.state_offset(id), varies ? block.state_offset() : -1);
      EXPECT_EQ(table.tangent_size(id), varies ? block.TangentSize() : 0);
      if (varies) {
        EXPECT_EQ(table.tangent_offset(id), block.delta_offset());
      }
    }
  }

  BalTestProblem bal_;
  std::vector<double> other_camera_;
  kernels::HostContext context_;
  ProblemImpl impl_;
  std::vector<double*> removed_;
};

TEST_P(BundleStructureTest, RowsAsInTheProgram) {
  AddRows(-1, -1, new ceres::HuberLoss(1.0));
  impl_.SetParameterBlockConstant(bal_.camera(3));
  impl_.SetParameterBlockConstant(bal_.point(0));
  impl_.SetParameterBlockConstant(bal_.point(9000));
  const std::unique_ptr<Program> program = Reduce();
  ProblemStructure structure;
  std::string reason;
  ASSERT_TRUE(ImportProgram(*program, {}, &context_, &structure, &reason))
      << reason;

  EXPECT_TRUE(structure.general_rows.empty());
  ASSERT_EQ(structure.observations.size(), 1u);
  ASSERT_EQ(structure.e.size(), 1u);
  ASSERT_EQ(structure.f.size(), 1u);
  const ObservationTable& batch = structure.observations[0];
  EXPECT_EQ(batch.kind, BatchModelKind::kBalAngleAxis);
  EXPECT_EQ(structure.f[0].ambient_size, 9);
  EXPECT_EQ(structure.e[0].ambient_size, 3);
  EXPECT_EQ(structure.f[0].padded_size, 9);
  EXPECT_EQ(structure.e[0].padded_size, 3);
  ExpectTable(*program, 0, structure.f[0], batch.camera_id);
  ExpectTable(*program, 1, structure.e[0], batch.point_id);
  const auto& rows = program->residual_blocks();
  ASSERT_EQ(batch.loss.size(), rows.size());
  ASSERT_EQ(batch.observations.size(), 2 * static_cast<int64_t>(rows.size()));
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(batch.loss[i], rows[i]->loss_function());
    double z[2];
    static_cast<const BatchableCostFunction*>(rows[i]->cost_function())
        ->CopyConstants(z);
    EXPECT_EQ(batch.observations.data()[2 * i], z[0]);
    EXPECT_EQ(batch.observations.data()[2 * i + 1], z[1]);
  }
}

TEST_P(BundleStructureTest, NoLossNoArray) {
  AddRows(-1, -1, nullptr);
  ProblemStructure structure;
  std::string reason;
  ASSERT_TRUE(ImportProgram(*Reduce(), {}, &context_, &structure, &reason))
      << reason;
  EXPECT_TRUE(structure.observations[0].loss.empty());
}

// A row of another cost type is evaluated by Ceres, and so are observations of
// the same camera and point; a row of another model is a batch of its own.
TEST_P(BundleStructureTest, RowsOfSeveralKinds) {
  AddRows(51111, 33333, nullptr);
  // The pair of row 51111 once more.
  double* blocks[2] = {bal_.camera(bal_.camera_id[51111]),
                       bal_.point(bal_.point_id[51111])};
  impl_.AddResidualBlock(
      CreateBalReprojectionError(1.0, 2.0), nullptr, blocks, 2);
  const std::unique_ptr<Program> program = Reduce();
  ProblemStructure structure;
  std::string reason;
  ASSERT_TRUE(ImportProgram(*program, {}, &context_, &structure, &reason))
      << reason;
  EXPECT_EQ(structure.general_rows, (std::vector<int32_t>{51111, kRows}));
  ASSERT_EQ(structure.observations.size(), 2u);
  EXPECT_EQ(structure.observations[0].kind, BatchModelKind::kBalAngleAxis);
  EXPECT_EQ(structure.observations[0].size(), kRows - 2);
  EXPECT_EQ(structure.observations[1].kind, BatchModelKind::kBalQuaternion);
  EXPECT_EQ(structure.observations[1].size(), 1);
  EXPECT_EQ(structure.e.size(), 1u);
  ASSERT_EQ(structure.f.size(), 2u);
  EXPECT_EQ(structure.f[1].size(), 1);
  EXPECT_EQ(structure.f[1].ambient_size, 10);
  // Every block is in the place that it says.
  for (const ParameterBlock* block : program->parameter_blocks()) {
    const auto& families = structure.is_eliminated[block->index()] != 0
                               ? structure.e
                               : structure.f;
    const BlockTable& table = families[structure.family.data()[block->index()]];
    const int32_t place = structure.place.data()[block->index()];
    ASSERT_EQ(table.tangent_offset(place), block->delta_offset());
    ASSERT_EQ(structure.is_eliminated[block->index()] != 0, block->Size() == 3);
  }
}

TEST_P(BundleStructureTest, BatchEvaluationSwitchedOff) {
  AddRows(-1, -1, nullptr);
  ImportOptions options;
  options.batch_evaluation = false;
  ProblemStructure structure;
  std::string reason;
  ASSERT_TRUE(ImportProgram(*Reduce(), options, &context_, &structure, &reason))
      << reason;
  EXPECT_EQ(structure.general_rows.size(), static_cast<size_t>(kRows));
  EXPECT_TRUE(structure.observations.empty());
  EXPECT_TRUE(structure.e.empty());
  EXPECT_EQ(structure.f.size(), 2u);
}

TEST_P(BundleStructureTest, NoRows) {
  ImportOptions options;
  options.use_schur = false;
  ProblemStructure structure;
  std::string reason;
  EXPECT_TRUE(ImportProgram(*Reduce(), options, &context_, &structure, &reason))
      << reason;
  EXPECT_EQ(structure.num_observations(), 0);
  EXPECT_TRUE(structure.f.empty());
  // There are no points to eliminate.
  EXPECT_FALSE(ImportProgram(*Reduce(), {}, &context_, &structure, &reason));
  EXPECT_EQ(reason, "no residual block is an observation");
}

struct Prior {
  template <typename T>
  bool operator()(const T* x, T* residual) const {
    residual[0] = x[0];
    return true;
  }
};

// Rows that Ceres evaluates, where it has put the points first: those of a
// point and a camera are of views, all others of any shape.
TEST_P(BundleStructureTest, ViewsAndRowsOfAnyShape) {
  for (int i = 0; i < kRows; ++i) {
    impl_.AddResidualBlock(
        new ceres::AutoDiffCostFunction<AutodiffReprojection<3>, 2, 9, 3>(
            new AutodiffReprojection<3>{1.0, 2.0}),
        nullptr,
        std::array<double*, 2>{bal_.camera(bal_.camera_id[i]),
                               bal_.point(bal_.point_id[i])}
            .data(),
        2);
  }
  for (double* block : {bal_.camera(4), bal_.camera(7)}) {
    impl_.AddResidualBlock(
        new ceres::AutoDiffCostFunction<Prior, 1, 9>(new Prior),
        nullptr,
        &block,
        1);
  }
  impl_.SetParameterBlockConstant(bal_.camera(3));
  const std::unique_ptr<Program> program = Reduce();
  auto* blocks = program->mutable_parameter_blocks();
  std::stable_partition(blocks->begin(), blocks->end(), [](const auto* block) {
    return block->Size() == 3;
  });
  program->SetParameterOffsetsAndIndex();
  ImportOptions options;
  options.num_eliminate_blocks = bal_.num_points();
  ProblemStructure structure;
  std::string reason;
  ASSERT_TRUE(ImportProgram(*program, options, &context_, &structure, &reason))
      << reason;
  EXPECT_EQ(structure.views.size(), kRows);
  EXPECT_EQ(structure.views.columns, 9);
  // One view per camera, and one for those of the constant camera.
  EXPECT_EQ(structure.views.blocks.size(),
            static_cast<size_t>(bal_.num_cameras()));
  EXPECT_EQ(structure.general_rows, (std::vector<int32_t>{kRows, kRows + 1}));
  ASSERT_EQ(structure.e.size(), 1u);
  EXPECT_EQ(structure.e[0].size(), bal_.num_points());
  ASSERT_EQ(structure.f.size(), 1u);
  EXPECT_EQ(structure.f[0].size(), bal_.num_cameras() - 1);
  for (int64_t k = 0; k < structure.views.size(); ++k) {
    const auto* row = program->residual_blocks()[structure.views.row(k)];
    const auto& view =
        structure.views.blocks[structure.views.view_id.data()[k]];
    const ParameterBlock* camera = row->parameter_blocks()[0];
    ASSERT_EQ(view.size(), camera->IsConstant() ? 0u : 1u);
    if (!view.empty()) {
      ASSERT_EQ(view[0], camera->index());
    }
    ASSERT_EQ(structure.e[0].tangent_offset(structure.views.point_id.data()[k]),
              row->parameter_blocks()[1]->delta_offset());
  }
}

struct PosePrior {
  template <typename T>
  bool operator()(const T* pose, T* residuals) const {
    residuals[0] = pose[0] - first;
    return true;
  }
  double first;
};
struct PointPrior {
  template <typename T>
  bool operator()(const T* point, T* residuals) const {
    residuals[0] = point[2] - depth;
    return true;
  }
  double depth;
};
struct PosePointPrior {
  template <typename T>
  bool operator()(const T* pose, const T* point, T* residuals) const {
    residuals[0] = pose[5] - point[2] - depth;
    return true;
  }
  double depth;
};

// Arrays of poses, intrinsics of every third of them, and points; residuals
// number 0 are reprojections and 1 priors.
class ArrayRowsTest : public testing::TestWithParam<int> {
 protected:
  ArrayRowsTest()
      : bal_(MakeBalTestProblem(30, kRows / kViews, kViews, 9)),
        context_(GetParam()) {
    for (int c = 0; c < bal_.num_cameras(); ++c) {
      poses_.insert(poses_.end(), bal_.camera(c), bal_.camera(c) + 6);
      if (c % 3 == 0) {
        intrinsics_.insert(
            intrinsics_.end(), bal_.camera(c) + 6, bal_.camera(c) + 9);
      }
    }
    for (const int32_t c : bal_.camera_id) {
      intrinsics_id_.push_back(c / 3);
    }
  }

  // The other blocks are those of constants.
  void Add(ArrayProblem::Parameters poses,
           bool one_by_one,
           ArrayProblem* problem) {
    poses.values = poses_.data();
    poses.num_blocks = bal_.num_cameras();
    poses.size = 6;
    const int pose = problem->AddParameters(poses);
    const int intrinsics = problem->AddParameters(
        {intrinsics_.data(), static_cast<int64_t>(intrinsics_.size()) / 3, 3});
    const int point =
        problem->AddParameters({bal_.points.data(), bal_.num_points(), 3});
    problem->AddResiduals<
        DeviceAutoDiffCostFunction<SplitReprojection, 2, 6, 3, 3>>(
        kRows,
        bal_.observations.data(),
        {{pose, bal_.camera_id.data()},
         {intrinsics, intrinsics_id_.data()},
         {point, bal_.point_id.data()}},
        &loss_,
        weights_.data());
    problem->AddResiduals<DeviceAutoDiffCostFunction<PosePrior, 1, 6>>(
        bal_.num_cameras(), firsts_.data(), {{pose, nullptr}});
    problem->mutable_residuals(0)->constants_are_of_model = !one_by_one;
    problem->mutable_residuals(1)->constants_are_of_model = !one_by_one;
  }

  void Import(const ArrayProblem& problem,
              std::shared_ptr<ArrayRows>* rows,
              ProblemStructure* structure) {
    *rows = std::make_shared<ArrayRows>(&problem);
    (*rows)->Setup(&context_);
    (*rows)->OrderFirst(2);
    ImportOptions options;
    options.num_eliminate_blocks = (*rows)->NumVarying(2);
    std::string reason;
    ASSERT_TRUE(ImportRows(*rows, options, &context_, structure, &reason))
        << reason;
  }

  static void ExpectSameTable(const BlockTable& a, const BlockTable& b) {
    ASSERT_EQ(a.size(), b.size());
    EXPECT_EQ(a.is_uniform(), b.is_uniform());
    EXPECT_EQ(a.ambient_size, b.ambient_size);
    EXPECT_EQ(a.padded_size, b.padded_size);
    for (int32_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(a.state_offset(i), b.state_offset(i));
      ASSERT_EQ(a.tangent_offset(i), b.tangent_offset(i));
      ASSERT_EQ(a.tangent_size(i), b.tangent_size(i));
    }
  }

  static void ExpectSame(const ProblemStructure& structure,
                         const ProblemStructure& expected) {
    const ViewStructure& views = structure.views;
    ASSERT_EQ(views.size(), expected.views.size());
    EXPECT_EQ(views.columns, expected.views.columns);
    EXPECT_EQ(views.blocks, expected.views.blocks);
    ASSERT_EQ(views.point_id.size(), views.size());
    for (int64_t k = 0; k < views.size(); ++k) {
      ASSERT_EQ(views.row(k), expected.views.row(k));
      ASSERT_EQ(views.view_id.data()[k], expected.views.view_id.data()[k]);
      ASSERT_EQ(views.point_id.data()[k], expected.views.point_id.data()[k]);
    }
    EXPECT_EQ(structure.general_rows, expected.general_rows);
    EXPECT_EQ(structure.is_eliminated, expected.is_eliminated);
    EXPECT_EQ(Values(structure.family), Values(expected.family));
    EXPECT_EQ(Values(structure.place), Values(expected.place));
    ASSERT_EQ(structure.e.size(), expected.e.size());
    ASSERT_EQ(structure.f.size(), expected.f.size());
    for (size_t i = 0; i < structure.e.size(); ++i) {
      ExpectSameTable(structure.e[i], expected.e[i]);
    }
    for (size_t i = 0; i < structure.f.size(); ++i) {
      ExpectSameTable(structure.f[i], expected.f[i]);
    }
    // General rows are read, whatever was skipped.
    for (const int32_t i : structure.general_rows) {
      const ProblemRows::Blocks blocks = structure.rows->BlocksOf(i);
      ASSERT_EQ(blocks.size(), structure.rows->NumBlocks(i));
      for (int j = 0; j < blocks.size(); ++j) {
        ASSERT_EQ(blocks[j], structure.rows->Block(i, j).index);
      }
    }
  }

  BalTestProblem bal_;
  kernels::HostContext context_;
  std::vector<double> poses_;
  std::vector<double> intrinsics_;
  std::vector<int32_t> intrinsics_id_;
  std::vector<double> weights_ = std::vector<double>(kRows, 0.5);
  std::vector<double> firsts_ = std::vector<double>(30, 0.1);
  ceres::HuberLoss loss_{1.0};
};

// Uniform rows are read from their arrays, others one by one.
TEST_P(ArrayRowsTest, UniformRowsAsOneByOne) {
  ArrayProblem of_arrays;
  ArrayProblem one_by_one;
  Add({}, false, &of_arrays);
  Add({}, true, &one_by_one);
  std::shared_ptr<ArrayRows> rows;
  std::shared_ptr<ArrayRows> other_rows;
  ProblemStructure structure;
  ProblemStructure expected;
  Import(of_arrays, &rows, &structure);
  Import(one_by_one, &other_rows, &expected);

  ASSERT_EQ(rows->uniform_rows().size(), 2u);
  EXPECT_TRUE(other_rows->uniform_rows().empty());
  const UniformRows& uniform = rows->uniform_rows()[0];
  EXPECT_EQ(structure.views.uniform, &uniform);
  EXPECT_EQ(expected.views.uniform, nullptr);
  EXPECT_EQ(uniform.loss, &loss_);
  EXPECT_EQ(uniform.weights, weights_.data());
  EXPECT_EQ(uniform.constants, bal_.observations.data());
  EXPECT_EQ(rows->FindUniform(0), &uniform);
  EXPECT_EQ(rows->FindUniform(kRows - 1), &uniform);
  EXPECT_EQ(rows->FindUniform(kRows), &rows->uniform_rows()[1]);
  EXPECT_EQ(rows->FindUniform(kRows + 30), nullptr);
  for (int64_t i = 0; i < rows->size(); ++i) {
    const UniformRows& of_row = *rows->FindUniform(i);
    for (int j = 0; j < rows->NumBlocks(i); ++j) {
      ASSERT_EQ(of_row.slots[j].Block(i - of_row.begin),
                rows->Block(i, j).index);
    }
  }

  ASSERT_EQ(structure.views.size(), kRows);
  EXPECT_EQ(structure.views.blocks.size(), 30u);
  EXPECT_EQ(structure.general_rows.size(), 30u);
  ExpectSame(structure, expected);
  // The caller's numbers of points are not copied.
  EXPECT_EQ(structure.views.point_id.data(), bal_.point_id.data());
  ASSERT_EQ(structure.e.size(), 1u);
  ASSERT_EQ(structure.f.size(), 2u);
  EXPECT_TRUE(structure.e[0].is_uniform());
  ASSERT_EQ(structure.models.size(), 2u);
  for (int32_t i = 0; i < rows->size(); ++i) {
    ASSERT_EQ(structure.model(i), i < kRows ? 0 : 1);
  }
}

// The views of uniform rows, found by a slot or by all blocks of each row, are
// those that are found row by row.
TEST_P(ArrayRowsTest, ViewsOfUniformRows) {
  enum {
    kInOrder,
    kOtherIntrinsics,
    kUnusedPose,
    kOtherPoint,
    kTwoArrays,
    kSamePair
  };
  for (const int change : {kInOrder,
                           kOtherIntrinsics,
                           kUnusedPose,
                           kOtherPoint,
                           kTwoArrays,
                           kSamePair}) {
    SCOPED_TRACE(change);
    const BalTestProblem start = bal_;
    const std::vector<int32_t> intrinsics_of_start = intrinsics_id_;
    if (change == kInOrder) {
      // Images are numbered as their rows come.
      std::vector<int32_t> number(30, -1);
      int32_t next = 0;
      for (int32_t& c : bal_.camera_id) {
        if (number[c] < 0) {
          number[c] = next++;
        }
        c = number[c];
      }
      for (size_t k = 0; k < intrinsics_id_.size(); ++k) {
        intrinsics_id_[k] = bal_.camera_id[k] / 3;
      }
    } else if (change == kOtherIntrinsics) {
      // Five rows of an image, which are another view.
      int num_changed = 0;
      for (size_t k = 0; k < intrinsics_id_.size() && num_changed < 5; ++k) {
        if (bal_.camera_id[k] == 4) {
          intrinsics_id_[k] = 7;
          ++num_changed;
        }
      }
    } else if (change == kUnusedPose) {
      // Its prior names the pose.
      for (size_t k = 0; k < intrinsics_id_.size(); ++k) {
        bal_.camera_id[k] = bal_.camera_id[k] == 4 ? 5 : bal_.camera_id[k];
      }
    } else if (change == kOtherPoint) {
      for (int32_t& p : bal_.point_id) {
        p = p == 5 ? 6 : p;
      }
    }
    ArrayProblem of_arrays;
    ArrayProblem one_by_one;
    const std::vector<double> depths(2, 1.0);
    const int32_t points[] = {5, 9};
    const std::vector<double> observation(2, 0.0);
    for (ArrayProblem* problem : {&of_arrays, &one_by_one}) {
      Add({}, problem == &one_by_one, problem);
      problem->AddResiduals<DeviceAutoDiffCostFunction<PointPrior, 1, 3>>(
          change == kOtherPoint ? 2 : 0, depths.data(), {{2, points}});
      // The blocks of the first row, once more.
      problem->AddResiduals<
          DeviceAutoDiffCostFunction<SplitReprojection, 2, 6, 3, 3>>(
          change == kTwoArrays ? 1 : 0,
          observation.data(),
          {{0, bal_.camera_id.data()},
           {1, intrinsics_id_.data()},
           {2, bal_.point_id.data()}});
      problem
          ->AddResiduals<DeviceAutoDiffCostFunction<PosePointPrior, 1, 6, 3>>(
              change == kSamePair ? 1 : 0,
              depths.data(),
              {{0, bal_.camera_id.data()}, {2, bal_.point_id.data()}});
      for (const int r : {2, 3, 4}) {
        problem->mutable_residuals(r)->constants_are_of_model =
            problem == &of_arrays;
      }
    }
    std::shared_ptr<ArrayRows> rows;
    std::shared_ptr<ArrayRows> other_rows;
    ProblemStructure structure;
    ProblemStructure expected;
    Import(of_arrays, &rows, &structure);
    Import(one_by_one, &other_rows, &expected);
    ExpectSame(structure, expected);
    EXPECT_EQ(structure.views.uniform != nullptr, change < kTwoArrays);
    EXPECT_EQ(structure.views.size(),
              change == kTwoArrays  ? kRows + 1
              : change == kSamePair ? 0
                                    : kRows);
    EXPECT_EQ(structure.views.blocks.size(),
              change == kOtherIntrinsics ? 31u
              : change == kUnusedPose    ? 29u
              : change == kSamePair      ? 0u
                                         : 30u);
    EXPECT_EQ(structure.views.view_id.data() == bal_.camera_id.data(),
              change == kInOrder);
    EXPECT_EQ(structure.e.size(), change == kOtherPoint ? 2u : 1u);
    bal_ = start;
    intrinsics_id_ = intrinsics_of_start;
  }
}

// The hash of the rows of views is of their views and points alone.
TEST_P(ArrayRowsTest, HashOfViews) {
  std::vector<uint64_t> hashes;
  for (const int change : {0, 1, 2, 3}) {
    const BalTestProblem start = bal_;
    const std::vector<int32_t> intrinsics_of_start = intrinsics_id_;
    if (change == 1) {
      bal_.observations[0] += 1.0;
      poses_[0] += 0.01;
    } else if (change == 2) {
      std::swap(bal_.point_id[17], bal_.point_id[117]);
    } else if (change == 3) {
      bal_.camera_id[1040] = (bal_.camera_id[1040] + 1) % 30;
      intrinsics_id_[1040] = bal_.camera_id[1040] / 3;
    }
    ArrayProblem problem;
    Add({}, false, &problem);
    const ceres::Solver::Summary summary;
    ArrayImport import(&problem, &summary);
    ImportOptions options;
    std::string reason;
    std::string note;
    ASSERT_TRUE(import.ChooseEliminated(
        &context_, 3, false, &options.num_eliminate_blocks, &note, &reason));
    EXPECT_EQ(note, "");
    for (const bool wants_hash : {true, false}) {
      ProblemStructure structure;
      ASSERT_TRUE(
          import.Import(options, wants_hash, &context_, &structure, &reason))
          << reason;
      ASSERT_EQ(structure.views.size(), kRows);
      if (wants_hash) {
        hashes.push_back(structure.views.index_hash);
      } else {
        EXPECT_EQ(structure.views.index_hash, 0u);
      }
    }
    bal_ = start;
    intrinsics_id_ = intrinsics_of_start;
  }
  EXPECT_NE(hashes[0], 0u);
  EXPECT_EQ(hashes[0], hashes[1]);
  EXPECT_NE(hashes[0], hashes[2]);
  EXPECT_NE(hashes[0], hashes[3]);
}

// Directions, so many that the numbers of blocks and rows decide: points are
// eliminated beside scales of a row each, some of which are constant, and
// scales if two rows share one.
TEST_P(ArrayRowsTest, ManyDirectionsEliminateTheirPoints) {
  constexpr int kPoints = 27000;
  constexpr int kDirections = 5 * kPoints;  // more than 2^17
  std::vector<double> centers(3 * 10, 0.5);
  std::vector<double> points(3 * kPoints, 1.5);
  std::vector<double> scales(kDirections, 1.0);
  std::vector<double> directions(3 * kDirections, 0.25);
  std::vector<int32_t> center_id;
  std::vector<int32_t> point_id;
  std::vector<int32_t> scale_id;
  for (int i = 0; i < kDirections; ++i) {
    center_id.push_back((i / 5 + 2 * i) % 10);
    point_id.push_back(i / 5);
    scale_id.push_back(i);
  }
  std::vector<uint8_t> is_constant(kDirections, 0);
  const auto num_eliminated = [&](int num_scales) {
    ArrayProblem problem;
    const int center = problem.AddParameters({centers.data(), 10, 3});
    const int point = problem.AddParameters({points.data(), kPoints, 3});
    ArrayProblem::Parameters of_scales = {scales.data(), num_scales, 1};
    of_scales.is_constant = is_constant.data();
    const int scale = problem.AddParameters(of_scales);
    problem.AddResiduals<DirectionCost>(
        kDirections,
        reinterpret_cast<const DirectionError*>(directions.data()),
        {{center, center_id.data()},
         {point, point_id.data()},
         {scale, scale_id.data()}});
    const ceres::Solver::Summary summary;
    ArrayImport import(&problem, &summary);
    int number = 0;
    std::string note;
    std::string reason;
    EXPECT_TRUE(import.ChooseEliminated(&context_,
                                        3,
                                        /*takes_private=*/true,
                                        &number,
                                        &note,
                                        &reason))
        << reason;
    return number;
  };
  EXPECT_EQ(num_eliminated(kDirections), kPoints);
  is_constant[0] = 1;
  EXPECT_EQ(num_eliminated(kDirections), kPoints);
  std::fill_n(is_constant.begin(), kDirections / 3, 1);
  EXPECT_EQ(num_eliminated(kDirections), kPoints);
  std::fill(is_constant.begin(), is_constant.end(), 0);
  scale_id.back() = 0;
  EXPECT_EQ(num_eliminated(kDirections - 1), kDirections - 1);
}

struct Turned {
  template <typename T>
  bool operator()(const T* rotation, const T* camera, T* residuals) const {
    residuals[0] = rotation[0] - camera[0];
    residuals[1] = rotation[1] - camera[1] - shift;
    return true;
  }
  double shift;
};

// A rotation has three columns but four values: it can not be among the points
// of observations, whose states are read as three values.
TEST_P(ArrayRowsTest, RotationsAreNoPointsOfObservations) {
  constexpr int kRotations = 50;
  ceres::QuaternionManifold quaternion;
  std::vector<double> rotations(4 * kRotations, 0.5);
  std::vector<int32_t> rotation_id;
  std::vector<int32_t> camera_id;
  for (int i = 0; i < 20 * kRotations; ++i) {
    rotation_id.push_back(i % kRotations);
    camera_id.push_back(i % bal_.num_cameras());
  }
  const std::vector<double> shifts(rotation_id.size(), 0.1);
  ArrayProblem problem;
  ArrayProblem::Parameters of_rotations = {rotations.data(), kRotations, 4};
  of_rotations.manifold = &quaternion;
  const int rotation = problem.AddParameters(of_rotations);
  const int point =
      problem.AddParameters({bal_.points.data(), bal_.num_points(), 3});
  const int camera =
      problem.AddParameters({bal_.cameras.data(), bal_.num_cameras(), 9});
  problem.AddResiduals<BalReprojectionError>(
      kRows,
      bal_.observations.data(),
      {{camera, bal_.camera_id.data()}, {point, bal_.point_id.data()}});
  problem.AddResiduals<DeviceAutoDiffCostFunction<Turned, 2, 4, 9>>(
      static_cast<int64_t>(rotation_id.size()),
      shifts.data(),
      {{rotation, rotation_id.data()}, {camera, camera_id.data()}});
  auto rows = std::make_shared<ArrayRows>(&problem);
  rows->Setup(&context_);
  ImportOptions options;
  options.num_eliminate_blocks = kRotations + bal_.num_points();
  ProblemStructure structure;
  std::string reason;
  ASSERT_TRUE(ImportRows(rows, options, &context_, &structure, &reason))
      << reason;
  ASSERT_EQ(structure.observations.size(), 1u);
  EXPECT_EQ(structure.views.size(), 0);
  EXPECT_EQ(structure.general_rows.size(), rotation_id.size());
  ASSERT_EQ(structure.e.size(), 2u);
  EXPECT_EQ(structure.e[0].size(), bal_.num_points());
  EXPECT_EQ(structure.e[1].size(), kRotations);
}

// If all rows are observations, none has a view too.
TEST_P(ArrayRowsTest, ObservationsAreTakenOnce) {
  ArrayProblem problem;
  const int point =
      problem.AddParameters({bal_.points.data(), bal_.num_points(), 3});
  const int camera =
      problem.AddParameters({bal_.cameras.data(), bal_.num_cameras(), 9});
  problem.AddResiduals<BalReprojectionError>(
      kRows,
      bal_.observations.data(),
      {{camera, bal_.camera_id.data()}, {point, bal_.point_id.data()}});
  auto rows = std::make_shared<ArrayRows>(&problem);
  rows->Setup(&context_);
  ImportOptions options;
  options.num_eliminate_blocks = bal_.num_points();
  ProblemStructure structure;
  std::string reason;
  ASSERT_TRUE(ImportRows(rows, options, &context_, &structure, &reason))
      << reason;
  ASSERT_EQ(structure.observations.size(), 1u);
  EXPECT_EQ(structure.observations[0].size(), kRows);
  EXPECT_EQ(structure.views.size(), 0);
  EXPECT_TRUE(structure.general_rows.empty());
}

// A block that is constant or has a manifold of its own.
TEST_P(ArrayRowsTest, OtherRowsAreNotUniform) {
  std::vector<uint8_t> is_constant(30, 0);
  is_constant[4] = 1;
  ceres::SubsetManifold subset(6, {1});
  std::vector<ceres::Manifold*> manifolds(30, nullptr);
  manifolds[5] = &subset;
  ArrayProblem::Parameters with_constant;
  with_constant.is_constant = is_constant.data();
  ArrayProblem::Parameters with_manifold;
  with_manifold.manifold = &subset;
  ArrayProblem::Parameters with_manifolds;
  with_manifolds.manifolds = manifolds.data();
  for (const auto& poses : {with_constant, with_manifold, with_manifolds}) {
    ArrayProblem problem;
    Add(poses, false, &problem);
    std::shared_ptr<ArrayRows> rows;
    ProblemStructure structure;
    Import(problem, &rows, &structure);
    EXPECT_TRUE(rows->uniform_rows().empty());
    EXPECT_EQ(structure.views.uniform, nullptr);
    EXPECT_EQ(structure.views.size(), kRows);
  }
}

// A view of a point, with intrinsics of few columns.
struct SmallViewError {
  template <typename T>
  bool operator()(const T* pose,
                  const T* intrinsics,
                  const T* point,
                  T* residuals) const {
    for (int i = 0; i < 2; ++i) {
      residuals[i] = intrinsics[i] * (point[i] + pose[i] + pose[3 + i] * z) - z;
    }
    return true;
  }
  double z;
};
using SmallViewCost = DeviceAutoDiffCostFunction<SmallViewError, 2, 6, 2, 3>;

// Rows of another problem. Counts the blocks that are read one by one.
class CountedRows final : public ProblemRows {
 public:
  explicit CountedRows(const ProblemRows* rows) : rows_(rows) {}

  int64_t num_read() const { return num_read_; }

  int num_columns() const final { return rows_->num_columns(); }
  int num_parameters() const final { return rows_->num_parameters(); }
  int num_residuals() const final { return rows_->num_residuals(); }
  int32_t num_blocks() const final { return rows_->num_blocks(); }
  VaryingBlock block(int32_t i) const final { return rows_->block(i); }
  int64_t size() const final { return rows_->size(); }
  int NumResiduals(int64_t i) const final { return rows_->NumResiduals(i); }
  int NumBlocks(int64_t i) const final { return rows_->NumBlocks(i); }
  BlockOfRow Block(int64_t i, int j) const final {
    ++num_read_;
    return rows_->Block(i, j);
  }
  LossOfRow Loss(int64_t i) const final { return rows_->Loss(i); }
  bool has_weights() const final { return rows_->has_weights(); }
  const ceres::CostFunction& TypicalCostFunction(int64_t i) const final {
    return rows_->TypicalCostFunction(i);
  }
  const ceres::CostFunction* CostFunction(
      int64_t i,
      std::unique_ptr<const ceres::CostFunction>* owner) const final {
    return rows_->CostFunction(i, owner);
  }
  void CopyConstants(int64_t i, void* constants) const final {
    rows_->CopyConstants(i, constants);
  }
  int64_t Number(int64_t i) const final { return rows_->Number(i); }

 private:
  void CopyBlocks(int64_t begin, int64_t end, int32_t* to) const final {
    for (int64_t i = begin; i < end; ++i) {
      for (int j = 0; j < rows_->NumBlocks(i); ++j) {
        *to++ = rows_->Block(i, j).index;
      }
    }
  }

  const ProblemRows* rows_;
  mutable std::atomic<int64_t> num_read_{0};
};

// Images that each see all of many points.
class LongBlocksTest : public testing::TestWithParam<int> {
 protected:
  static constexpr int kImages = 6;

  LongBlocksTest() : context_(GetParam()) {}

  // Poses and intrinsics of each image, and points, in this order.
  void Add(int num_points, bool points_vary, ArrayProblem* problem) {
    poses_.assign(6 * kImages, 0.1);
    intrinsics_.assign(2 * kImages, 0.2);
    points_.assign(static_cast<size_t>(3 * num_points), 0.3);
    are_constant_.assign(static_cast<size_t>(num_points), points_vary ? 0 : 1);
    image_.clear();
    point_.clear();
    for (int32_t p = 0; p < num_points; ++p) {
      for (int32_t i = 0; i < kImages; ++i) {
        image_.push_back(i);
        point_.push_back(p);
      }
    }
    AddRows(problem);
  }
  void AddRows(ArrayProblem* problem) {
    z_.assign(image_.size(), 0.5);
    const int poses = problem->AddParameters({poses_.data(), kImages, 6});
    const int intrinsics =
        problem->AddParameters({intrinsics_.data(), kImages, 2});
    ArrayProblem::Parameters points;
    points.values = points_.data();
    points.num_blocks = static_cast<int64_t>(points_.size()) / 3;
    points.size = 3;
    points.is_constant = are_constant_.data();
    const int of_points = problem->AddParameters(points);
    problem->AddResiduals<SmallViewCost>(static_cast<int64_t>(z_.size()),
                                         z_.data(),
                                         {{poses, image_.data()},
                                          {intrinsics, image_.data()},
                                          {of_points, point_.data()}});
  }

  kernels::HostContext context_;
  std::vector<double> poses_;
  std::vector<double> intrinsics_;
  std::vector<double> points_;
  std::vector<double> z_;
  std::vector<uint8_t> are_constant_;
  std::vector<int32_t> image_;
  std::vector<int32_t> point_;
};

// If a pose and intrinsics have only each other, the smaller one is eliminated,
// whose rows are observations of views.
TEST_P(LongBlocksTest, SmallBlocksAreEliminated) {
  ArrayProblem problem;
  Add(10, /*points_vary=*/false, &problem);
  ArrayRows rows(&problem);
  rows.Setup(&context_);
  rows.Order({});
  rows.ReadBlocks(&context_);
  std::vector<uint8_t> expected(2 * kImages, 0);
  std::fill(expected.begin() + kImages, expected.end(), 1);
  EXPECT_EQ(IndependentSet(rows, /*max_size=*/6), expected);
}

// Constant points make a combination of blocks of each row, of which a view has
// thousands.
TEST_P(LongBlocksTest, SetUpOfViewsIsLinear) {
  constexpr int kPoints = 5000;
  ArrayProblem problem;
  Add(kPoints, /*points_vary=*/false, &problem);
  ArrayRows of_arrays(&problem);
  of_arrays.Setup(&context_);
  of_arrays.OrderFirst(1);
  const auto rows = std::make_shared<CountedRows>(&of_arrays);
  ImportOptions options;
  options.num_eliminate_blocks = kImages;
  ProblemStructure structure;
  std::string reason;
  ASSERT_TRUE(ImportRows(rows, options, &context_, &structure, &reason))
      << reason;
  ASSERT_EQ(structure.views.size(), kImages * kPoints);
  kernels::HostMachine machine(GetParam());
  MachineProblem<kernels::HostMachine> blocks;
  ASSERT_TRUE(blocks
                  .Setup(/*merge_blocks=*/true,
                         &structure,
                         /*recomputed=*/false,
                         /*mixed=*/false,
                         /*kept_index=*/nullptr,
                         &context_,
                         &machine)
                  .ok());
  Summary summary;
  std::set<std::string> notes;
  RowGroupsInput<kernels::HostMachine> input;
  input.structure = &structure;
  input.blocks = &blocks;
  input.host_context = &context_;
  input.summary = &summary;
  input.why_no_form = {""};
  input.notes = &notes;
  std::unique_ptr<BatchEvaluator> evaluator;
  ASSERT_TRUE(CreateViewEvaluator(input, &evaluator).ok());
  // Each of the three blocks of a row a few times.
  EXPECT_LE(rows->num_read(), 3 * 4 * kImages * kPoints);
}

// S of rows that repeat is summed of pairs of blocks, not of rows.
TEST_P(LongBlocksTest, PairsOfBlocksAreCounted) {
  constexpr int kPoints = 100;
  constexpr int kRepeats = 10000;
  // The pairs of six images of a point, each with itself.
  constexpr double kPairs = 21.0 * kPoints;
  for (const bool repeat : {false, true}) {
    ArrayProblem problem;
    Add(kPoints, /*points_vary=*/true, &problem);
    if (repeat) {
      for (int32_t k = 0; k < kImages * kRepeats; ++k) {
        image_.push_back(k % kImages);
        point_.push_back(7);
      }
      problem = {};
      AddRows(&problem);
    }
    const auto rows = std::make_shared<ArrayRows>(&problem);
    rows->Setup(&context_);
    rows->OrderFirst(2);
    ImportOptions options;
    options.num_eliminate_blocks = kPoints;
    ProblemStructure structure;
    std::string reason;
    ASSERT_TRUE(ImportRows(rows, options, &context_, &structure, &reason))
        << reason;
    RowFacts facts = FactsOf(structure);
    CountCouplings(structure, &context_, &facts);
    EXPECT_EQ(facts.rows_repeat, repeat);
    EXPECT_EQ(facts.num_couplings, kPairs);
    EXPECT_FALSE(facts.has_pairs);
  }
}

// So it is of general rows: an eliminated block of very many rows, each with
// two of six others, has the couplings of three such rows.
struct BesideTwo {
  double z;
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* shared,
                                    const T* a,
                                    const T* b,
                                    T* residual) const {
    residual[0] = shared[0] * a[0] + shared[1] * b[0] - z;
    return true;
  }
};
TEST_P(LongBlocksTest, PairsOfBlocksOfGeneralRowsAreCounted) {
  using Cost = DeviceAutoDiffCostFunction<BesideTwo, 1, 2, 6, 6>;
  for (const int num_rows : {kImages, 200000}) {
    std::vector<double> shared(4, 0.5);
    poses_.assign(6 * kImages, 0.1);
    z_.assign(static_cast<size_t>(num_rows), 0.5);
    // The second block has one row.
    std::vector<int32_t> shared_id(z_.size(), 0);
    shared_id[1] = 1;
    std::vector<int32_t> a;
    std::vector<int32_t> b;
    for (int32_t k = 0; k < num_rows; ++k) {
      a.push_back(k % kImages);
      b.push_back((k + 1) % kImages);
    }
    ArrayProblem problem;
    const int of_shared = problem.AddParameters({shared.data(), 2, 2});
    const int poses = problem.AddParameters({poses_.data(), kImages, 6});
    problem.AddResiduals<Cost>(
        num_rows,
        z_.data(),
        {{of_shared, shared_id.data()}, {poses, a.data()}, {poses, b.data()}});
    const auto rows = std::make_shared<ArrayRows>(&problem);
    rows->Setup(&context_);
    ImportOptions options;
    options.num_eliminate_blocks = 2;
    ProblemStructure structure;
    std::string reason;
    ASSERT_TRUE(ImportRows(rows, options, &context_, &structure, &reason))
        << reason;
    ASSERT_EQ(structure.general_rows.size(), z_.size());
    RowFacts facts = FactsOf(structure);
    CountCouplings(structure, &context_, &facts);
    // 1 + 2 + .. of the rows of the first block, and one of the second.
    EXPECT_EQ(facts.num_couplings,
              num_rows == kImages ? 15.0 + 1.0 : 6.0 + 1.0);
    // All six blocks are coupled.
    EXPECT_GT(facts.factor.num_tiles, 0.0);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, LongBlocksTest, testing::Values(1, 4));
INSTANTIATE_TEST_SUITE_P(Threads, BundleStructureTest, testing::Values(1, 4));
INSTANTIATE_TEST_SUITE_P(Threads, ArrayRowsTest, testing::Values(1, 4));

// A chain of poses with a block of two columns each. By numbers of neighbours
// the small blocks are eliminated, and S has all poses; by flops every other
// pose and the small blocks of the rest. If each small block has many rows, S
// matters little.
TEST(ChooseIndependentSet, TakesFewerFlops) {
  constexpr int kPoses = 20;
  struct Sum {
    bool operator()(const double* const* blocks, double* residuals) const {
      residuals[0] = blocks[0][0] - blocks[1][0];
      residuals[1] = blocks[0][1] - blocks[1][1];
      return true;
    }
  };
  for (const int num_rows : {1, 1000}) {
    std::vector<double> poses(6 * kPoses, 0.5);
    std::vector<double> others(2 * kPoses, 1.5);
    ProblemImpl impl;
    const auto add = [&](double* a, int size_a, double* b, int size_b) {
      auto* const cost =
          new ceres::DynamicNumericDiffCostFunction<Sum>(new Sum);
      cost->AddParameterBlock(size_a);
      cost->AddParameterBlock(size_b);
      cost->SetNumResiduals(2);
      impl.AddResidualBlock(cost, nullptr, a, b);
    };
    for (int i = 0; i < kPoses; ++i) {
      for (int k = 0; k < num_rows; ++k) {
        add(&poses[6 * i], 6, &others[2 * i], 2);
      }
      if (i > 0) {
        add(&poses[6 * i - 6], 6, &poses[6 * i], 6);
      }
    }
    Program* const program = impl.mutable_program();
    program->SetParameterOffsetsAndIndex();
    kernels::HostContext context(1);
    ProgramRows rows(*program);
    rows.ReadBlocks(&context);
    const std::vector<uint8_t> small = IndependentSet(rows, /*max_size=*/16);
    const std::vector<uint8_t> chosen = ChooseIndependentSet(rows, 16);
    EXPECT_TRUE(IsIndependentSet(rows, chosen, &context));
    const auto num_columns = [&](const std::vector<uint8_t>& set) {
      int sum = 0;
      for (int32_t b = 0; b < rows.num_blocks(); ++b) {
        sum += set[b] != 0 ? rows.block(b).tangent_size : 0;
      }
      return sum;
    };
    EXPECT_EQ(num_columns(small), 2 * kPoses);
    EXPECT_EQ(num_columns(chosen), num_rows == 1 ? 8 * kPoses / 2 : 2 * kPoses);
    // A small block is beside its pose, a pose beside others too.
    std::vector<int64_t> columns(2 * kPoses, 2 + 6);
    for (int32_t b = 0; b < rows.num_blocks(); ++b) {
      const ParameterBlock* const block = program->parameter_blocks()[b];
      if (block->Size() == 6) {
        const auto pose = (block->user_state() - poses.data()) / 6;
        columns[b] += pose == 0 || pose == kPoses - 1 ? 6 : 12;
      }
    }
    const auto flops = [&](const std::vector<uint8_t>& set) {
      return FlopsOfRows(rows) + FlopsOfSet(rows, columns, set);
    };
    // By hand: rows of two residuals, small blocks beside a pose, S of poses.
    const double n = 6.0 * kPoses;
    EXPECT_NEAR(flops(small),
                64.0 * kPoses * num_rows + 144.0 * (kPoses - 1) +
                    2.0 * kPoses * (4.0 / 3.0 + 12.0 + 36.0) + n * n * n / 3.0,
                1e-9 * n * n * n);
    EXPECT_LE(flops(chosen), flops(small));
  }
}

// 30 points that 6 centers see in 3 rows each, by directions with a scale each;
// those of rows 0 and 1 are one block, that of row 2 is constant, and row 3 has
// a second block of its own.
TEST(PrivateBlocks, AreThoseOfOneRow) {
  struct Direction {
    bool operator()(const double* const* blocks, double* residuals) const {
      for (int i = 0; i < 3; ++i) {
        residuals[i] = blocks[2][0] * (blocks[1][i] - blocks[0][i]);
      }
      return true;
    }
  };
  constexpr int kNumPoints = 30;
  constexpr int kDirections = 3 * kNumPoints;
  std::vector<double> centers(18, 0.5);
  std::vector<double> points(3 * kNumPoints, 1.5);
  std::vector<double> scales(kDirections + 1, 1.0);
  ProblemImpl impl;
  for (int i = 0; i < kDirections; ++i) {
    auto* const cost =
        new ceres::DynamicNumericDiffCostFunction<Direction>(new Direction);
    std::vector<double*> blocks = {
        &centers[3 * (i % 6)], &points[3 * (i / 3)], &scales[i == 1 ? 0 : i]};
    if (i == 3) {
      blocks.push_back(&scales[kDirections]);
    }
    for (const double* const block : blocks) {
      cost->AddParameterBlock(
          block >= scales.data() && block < scales.data() + scales.size() ? 1
                                                                          : 3);
    }
    cost->SetNumResiduals(3);
    impl.AddResidualBlock(
        cost, nullptr, blocks.data(), static_cast<int>(blocks.size()));
  }
  impl.SetParameterBlockConstant(&scales[2]);
  std::vector<double*> removed;
  double fixed_cost = 0.0;
  std::string reason;
  const auto program =
      impl.program().CreateReducedProgram(&removed, &fixed_cost, &reason);
  ASSERT_NE(program, nullptr) << reason;
  program->SetParameterOffsetsAndIndex();
  kernels::HostContext context(3);
  // The scales come first, and the points after them.
  ceres::ParameterBlockOrdering ordering;
  for (const auto* const block : program->parameter_blocks()) {
    auto* const state = const_cast<double*>(block->user_state());
    ordering.AddElementToGroup(
        state,
        block->Size() == 1                                                ? 0
        : state >= points.data() && state < points.data() + points.size() ? 1
                                                                          : 2);
  }
  auto* const blocks = program->mutable_parameter_blocks();
  const auto is_point = [&](const ParameterBlock* block) {
    const double* const state = block->user_state();
    return state >= points.data() && state < points.data() + points.size();
  };
  const auto choose = [&](const ceres::ParameterBlockOrdering* given) {
    std::vector<uint8_t> is_eliminated;
    std::string note;
    EXPECT_TRUE(ChooseEliminatedBlocks(*program,
                                       given,
                                       kernels::kMaxEliminatedSize,
                                       /*takes_private=*/true,
                                       &context,
                                       &is_eliminated,
                                       &note,
                                       &reason))
        << reason;
    EXPECT_EQ(note, "");
    return is_eliminated;
  };
  // Without an ordering, the scales of two rows and of a row that has another
  // one may come before their points.
  std::vector<uint8_t> is_eliminated = choose(nullptr);
  int num_points = 0;
  for (size_t b = 0; b < blocks->size(); ++b) {
    num_points += is_eliminated[b] != 0 && is_point((*blocks)[b]) ? 1 : 0;
  }
  EXPECT_GE(num_points, kNumPoints - 2);
  is_eliminated = choose(&ordering);
  for (size_t b = 0; b < blocks->size(); ++b) {
    EXPECT_EQ(is_eliminated[b] != 0, is_point((*blocks)[b])) << b;
  }
  std::stable_partition(
      blocks->begin(), blocks->end(), [&](const ParameterBlock* block) {
        return is_eliminated[block->index()] != 0;
      });
  program->SetParameterOffsetsAndIndex();
  ImportOptions options;
  options.num_eliminate_blocks = kNumPoints;
  for (const bool takes_private : {true, false}) {
    options.takes_private = takes_private;
    ProblemStructure structure;
    ASSERT_TRUE(ImportProgram(*program, options, &context, &structure, &reason))
        << reason;
    EXPECT_EQ(structure.general_rows.size(), size_t{kDirections});
    if (!takes_private) {
      EXPECT_EQ(structure.private_family, -1);
      continue;
    }
    ASSERT_EQ(structure.private_family, 1);
    EXPECT_EQ(structure.e[1].size(), kDirections - 3);
    // The first one of row 3 is.
    for (const ParameterBlock* const block : *blocks) {
      const double* const state = block->user_state();
      const bool is_scale = block->Size() == 1 && state != &scales[0] &&
                            state != &scales[kDirections];
      EXPECT_EQ(
          structure.is_eliminated[block->index()] == elimination::kPrivate,
          is_scale);
    }
    EXPECT_EQ(SchurStructure(structure), "3,3,d");
  }
}

}  // namespace
}  // namespace ceres_ext
