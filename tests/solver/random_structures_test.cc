// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Problems of random structure against dense Eigen: rows of 1 to 16 residuals,
// eliminated blocks of 1 to 16 columns or none, up to 5 other blocks of 1 to 16
// columns, repeated pairs, constant blocks, blocks with fewer columns than
// their family, blocks without rows, private blocks of rows with and without
// others, beside batches of observations that have the eliminated blocks to
// themselves or share them.
//
// Compiled for the host and, with CERES_EXT_TEST_ON_CUDA, for a device, real or
// emulated.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "Eigen/Dense"
#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/explicit_schur.h"
#include "ceres_ext/solver/general_batch.h"
#include "ceres_ext/solver/observation_batch.h"
#include "ceres_ext/solver/operator/explicit_schur_complement.h"
#include "ceres_ext/solver/operator/linear_operator.h"
#include "ceres_ext/solver/preconditioner/create_preconditioner.h"
#include "ceres_ext/solver/step_solver.h"
#include "ceres_ext/solver/view_batch.h"
#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/machine/cuda_library_handles.h"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/model/shape.h"
#include "cuda_kernels/ops/private_blocks.h"
#include "cuda_kernels/structure/block_rows.h"
#include "cuda_kernels/structure/merged_blocks.h"
#include "cuda_kernels/structure/row_index.h"
#include "cuda_kernels/structure/views.h"
#include "gtest/gtest.h"
#include "tests/kernels/solver_configurations.h"

namespace ceres_ext::solver {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;
using kernels::PackedIndex;
using kernels::PackedSize;

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

#ifdef CERES_EXT_TEST_ON_CUDA
using Machine = kernels::CudaMachine;
#ifdef CERES_EXT_EMULATED
constexpr int kMostProblems = 60;
#else
constexpr int kMostProblems = 400;
#endif
// A sanitizer would call handles that wait for their next user leaks.
class ReleaseHandles : public testing::Environment {
  void TearDown() override { kernels::ReleaseLibraryHandles(); }
};
testing::Environment* const release_handles =
    testing::AddGlobalTestEnvironment(new ReleaseHandles);
std::unique_ptr<Machine> CreateMachine(kernels::Status* status) {
  std::unique_ptr<Machine> machine;
  *status = Machine::Create({}, &machine);
  return machine;
}
#else
using Machine = kernels::HostMachine;
constexpr int kMostProblems = 1500;
std::unique_ptr<Machine> CreateMachine(kernels::Status* status) {
  *status = {};
  return std::make_unique<Machine>(3);
}
#endif
// Fewer where the environment says so, as under a sanitizer. Rare cases are
// certain only among all.
const int kNumProblems = [] {
  const char* given = std::getenv("CERES_EXT_NUM_PROBLEMS");
  return given == nullptr ? kMostProblems : std::atoi(given);
}();
template <typename T>
using Buffer = Machine::Buffer<T>;

// A row of a random problem: cells in no order.
struct Row {
  int num_residuals = 0;
  std::vector<kernels::BlockRowsBuilder::Cell> cells;
};

// Pairs of an observation batch.
struct Pairs {
  int f_family = 0;
  std::vector<int32_t> camera;
  std::vector<int32_t> point;
};

// Rows of a point and the blocks of a view.
struct ViewEvaluator {
  std::vector<std::vector<kernels::ViewCell>> cells;
  std::vector<int32_t> view;
  std::vector<int32_t> point;
};

class Problem {
 public:
  // merge: F blocks that occur only together. own_views: there are views alone,
  // each of blocks of its own.
  explicit Problem(unsigned seed, bool merge = false, bool own_views = false)
      : random_(seed), private_random_(seed) {
    const int num_observation_batches = own_views            ? 0
                                        : Uniform(0, 3) == 0 ? 2
                                                             : Uniform(0, 1);
    const bool has_views = own_views || Uniform(0, 2) == 0;
    const bool has_points = num_observation_batches > 0 || has_views;
    const bool has_general = !own_views && (!has_points || Uniform(0, 3) > 0);
    if (has_points) {
      AddFamily(true, 3, Uniform(1, 12), false);
    }
    for (int i = 0; i < num_observation_batches; ++i) {
      Pairs pairs;
      pairs.f_family = AddFamily(false, i == 0 ? 9 : 10, Uniform(1, 4), false);
      const int n = Uniform(0, 50);
      for (int k = 0; k < n; ++k) {
        pairs.camera.push_back(Below(blocks.f[pairs.f_family].num_blocks));
        pairs.point.push_back(Below(blocks.e[0].num_blocks));
      }
      observations.push_back(pairs);
    }
    if (has_views) {
      AddViewRows(own_views);
    }
    if (has_general) {
      AddGeneralRows(has_points);
      AddPrivateBlocks();
    }
    SetOwners();
    if (merge) {
      Merge();
    }
    FillValues();
  }

  ProblemBlocks blocks;
  std::vector<Pairs> observations;
  ViewEvaluator views;
  std::vector<Row> rows;
  std::unique_ptr<kernels::BlockRowsBuilder> builder;
  std::vector<double> general_values;
  // Blocks of J of observation k: 2 x F, then 2 x 3, row-major; those of rows
  // of views, 2 x view_columns, are the last ones.
  std::vector<std::vector<double>> camera_blocks;
  std::vector<std::vector<double>> point_blocks;
  // Columns [E F]; rows of observations in the callers' order, then general
  // rows in the builder's.
  MatrixXd J;
  VectorXd b;
  VectorXd D;

  // The F blocks of the rows that have an eliminated block, except
  // observations.
  using FBlock = kernels::MergedBlocksBuilder::Block;
  std::vector<std::vector<FBlock>> RowsOfEliminatedBlocks() const {
    std::vector<std::vector<FBlock>> all;
    for (const int32_t view : views.view) {
      all.emplace_back();
      for (const kernels::ViewCell& cell : views.cells[view]) {
        all.back().push_back({cell.family, cell.block});
      }
    }
    for (const Row& row : rows) {
      std::vector<FBlock> f;
      for (const auto& cell : row.cells) {
        if (!cell.eliminated) {
          f.push_back({cell.family, cell.block});
        }
      }
      if (f.size() < row.cells.size()) {
        all.push_back(f);
      }
    }
    return all;
  }

  // J of the same rows after the elimination of their private blocks, whose
  // columns are zero in it: I - a a' / h is L L with this symmetric L.
  MatrixXd NestedJ() const {
    MatrixXd nested = J;
    for (int i = 0; i < blocks.e.size(); ++i) {
      if (blocks.e_owner[i] != ProblemBlocks::kPrivate) {
        continue;
      }
      const int64_t begin = blocks.e[i].value_begin;
      for (int64_t k = begin; k < begin + blocks.e[i].num_values(); ++k) {
        const VectorXd a = J.col(k);
        const double squares = a.squaredNorm();
        if (squares > 0.0) {
          const double h = squares + D[k] * D[k];
          const double c = (1.0 - std::sqrt(1.0 - squares / h)) / squares;
          nested -= c * a * (a.transpose() * nested);
        }
        nested.col(k).setZero();
      }
    }
    return nested;
  }

  bool has_private() const { return private_family_ >= 0; }
  int64_t num_e() const { return blocks.e.num_values(); }
  int64_t num_f() const { return blocks.f.num_values(); }
  // Columns of a view, one of the numbers that the library is compiled for.
  int view_columns = 9;
  int Uniform(int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random_);
  }
  double Normal() { return std::normal_distribution<double>()(random_); }

 private:
  int Below(int n) { return Uniform(0, n - 1); }

  int AddFamily(bool eliminated, int size, int num_blocks, bool may_be_less) {
    auto* columns = eliminated ? &e_columns_ : &f_columns_;
    columns->emplace_back();
    for (int i = 0; i < num_blocks; ++i) {
      // Some have fewer columns than their family, some are constant.
      const int kind = may_be_less ? Uniform(0, 9) : 9;
      columns->back().push_back(kind == 0   ? 0
                                : kind == 1 ? Uniform(1, size)
                                            : size);
    }
    return (eliminated ? blocks.e : blocks.f).Add(size, num_blocks);
  }

  void AddViewRows(bool own_blocks) {
    constexpr int kColumns[] = {6, 9, 10, 12, 14, 16, 18};
    view_columns = kColumns[Uniform(0, 5)];
    const int first = blocks.f.size();
    const int num_families = Uniform(1, 3);
    const int num_views = Uniform(1, 6);
    // A view's block of a family is any, the view's own, or that of the same
    // number as in other families, so that some occur only together.
    enum { kAny, kOwn, kNumbered };
    std::vector<int> choice;
    for (int i = 0; i < num_families; ++i) {
      choice.push_back(own_blocks ? kOwn : Uniform(kAny, kNumbered));
      AddFamily(false,
                Uniform(1,
                        own_blocks ? view_columns / num_families
                                   : view_columns / 2 + 1),
                choice[i] == kAny   ? Uniform(1, 4)
                : choice[i] == kOwn ? num_views
                                    : 3,
                !own_blocks);
    }
    for (int v = 0; v < num_views; ++v) {
      views.cells.emplace_back();
      int columns = 0;
      const int number = Below(3);
      for (int f = first; f < blocks.f.size(); ++f) {
        const int kind = choice[f - first];
        const int block = kind == kAny   ? Below(blocks.f[f].num_blocks)
                          : kind == kOwn ? v
                                         : number;
        const int size = f_columns_[f][block];
        if (size > 0 && columns + size <= view_columns &&
            (own_blocks || Uniform(0, 5) > 0)) {
          views.cells.back().push_back({f, block, size});
          columns += size;
        }
      }
      std::shuffle(
          views.cells.back().begin(), views.cells.back().end(), random_);
    }
    const int n = Uniform(0, 60);
    for (int k = 0; k < n; ++k) {
      views.view.push_back(Below(num_views));
      views.point.push_back(Below(blocks.e[0].num_blocks));
    }
  }

  void AddGeneralRows(bool has_points) {
    const int num_others = blocks.f.size();
    const bool touches_points = has_points && Uniform(0, 1) == 0;
    const int first_e = touches_points ? 0 : blocks.e.size();
    const int num_e_families = Uniform(0, 3);
    for (int i = 0; i < num_e_families; ++i) {
      AddFamily(true, EliminatedSize(), Uniform(0, 8), true);
    }
    const int num_f_families = Uniform(blocks.f.size() == 0 ? 1 : 0, 4);
    for (int i = 0; i < num_f_families; ++i) {
      AddFamily(false, Uniform(1, 16), Uniform(1, 5), true);
    }
    // Two families whose blocks of one number occur only together in rows of
    // eliminated blocks.
    const int num_new = blocks.f.size() - num_others;
    const bool has_pairs = num_new > 1 && Uniform(0, 1) == 0;
    const int first_of_pair =
        has_pairs ? num_others + Below(num_new - 1) : blocks.f.size();
    const int n = Uniform(0, 80);
    for (int k = 0; k < n; ++k) {
      Row row;
      row.num_residuals = Uniform(0, 3) == 0 ? Uniform(1, 16) : Uniform(1, 3);
      if (first_e < blocks.e.size() && Uniform(0, 4) > 0) {
        AddCell(true, Uniform(first_e, blocks.e.size() - 1), &row);
      }
      const int num_cells = Uniform(0, 5);
      // Batches have no pair of blocks in common (batch.h).
      const bool has_point =
          has_points && !row.cells.empty() && row.cells[0].family == 0;
      const int first_f = has_point ? num_others : 0;
      for (int c = 0; c < num_cells && first_f < blocks.f.size(); ++c) {
        AddCell(false, Uniform(first_f, blocks.f.size() - 1), &row);
      }
      if (has_pairs && !row.cells.empty() && row.cells[0].eliminated) {
        const auto cells = row.cells;
        for (const auto& cell : cells) {
          const int other = 2 * first_of_pair + 1 - cell.family;
          if (!cell.eliminated &&
              (other == first_of_pair || other == first_of_pair + 1)) {
            AddCell(false, other, cell.block, &row);
          }
        }
      }
      // In any order.
      std::shuffle(row.cells.begin(), row.cells.end(), random_);
      rows.push_back(row);
    }
    // One block in many rows, so that its sum has several levels.
    if (Uniform(0, 19) == 0) {
      const int family = Below(blocks.f.size());
      const int64_t many = kernels::kSegmentCells * (Uniform(1, 3) + 0) + 7;
      for (int64_t k = 0; k < many; ++k) {
        Row row;
        row.num_residuals = 1;
        row.cells.push_back({false, family, 0, f_columns_[family][0]});
        rows.push_back(row);
      }
    }
  }

  // Points and inverse depths, speed and biases, and sizes beside those that
  // formulas are compiled for.
  int EliminatedSize() {
    constexpr int kSizes[] = {1, 6, 7, 9, 15, 16};
    return Uniform(0, 1) == 0 ? kSizes[Uniform(0, 5)]
                              : Uniform(1, kernels::kMaxEliminatedSize);
  }

  // Most rows have one in half of the problems, some with a derivative of zero.
  void AddPrivateBlocks() {
    const auto below = [this](int n) {
      return std::uniform_int_distribution<int>(0, n - 1)(private_random_);
    };
    if (below(2) == 0) {
      return;
    }
    std::vector<Row*> with;
    for (Row& row : rows) {
      if (below(4) > 0) {
        with.push_back(&row);
      }
    }
    std::shuffle(with.begin(), with.end(), private_random_);
    private_family_ = AddFamily(
        true, 1, static_cast<int>(with.size()), /*may_be_less=*/false);
    for (size_t i = 0; i < with.size(); ++i) {
      auto& cells = with[i]->cells;
      cells.insert(cells.begin() + below(static_cast<int>(cells.size()) + 1),
                   {/*eliminated=*/true,
                    private_family_,
                    static_cast<int32_t>(i),
                    1,
                    /*is_private=*/true});
    }
  }

  void AddCell(bool eliminated, int family, Row* row) {
    const auto& families = eliminated ? blocks.e : blocks.f;
    if (families[family].num_blocks == 0) {
      return;
    }
    AddCell(eliminated, family, Below(families[family].num_blocks), row);
  }
  void AddCell(bool eliminated, int family, int block, Row* row) {
    if (block >= (eliminated ? blocks.e : blocks.f)[family].num_blocks) {
      return;
    }
    const int size = (eliminated ? e_columns_ : f_columns_)[family][block];
    for (const auto& cell : row->cells) {
      if (cell.eliminated == eliminated && cell.family == family &&
          cell.block == block) {
        return;  // A residual has a block once.
      }
    }
    if (size > 0) {
      row->cells.push_back({eliminated, family, block, size});
    }
  }

  void SetOwners() {
    blocks.e_owner.assign(blocks.e.size(), ProblemBlocks::kShared);
    blocks.f_owner.assign(blocks.f.size(), ProblemBlocks::kShared);
    for (size_t i = 0; i < observations.size(); ++i) {
      blocks.f_owner[observations[i].f_family] = static_cast<int>(i);
    }
    bool others = observations.size() + (views.cells.empty() ? 0 : 1) != 1;
    for (const Row& row : rows) {
      for (const auto& cell : row.cells) {
        others |= cell.eliminated && !cell.is_private && cell.family == 0;
      }
    }
    if (!others) {
      blocks.e_owner[0] = 0;
    }
    if (private_family_ >= 0) {
      blocks.e_owner[private_family_] = ProblemBlocks::kPrivate;
    }
  }

  void Merge() {
    kernels::MergedBlocksBuilder merger(blocks.f);
    for (const auto& row : RowsOfEliminatedBlocks()) {
      merger.AddRow(row);
    }
    std::vector<bool> may_merge;
    for (const int owner : blocks.f_owner) {
      may_merge.push_back(owner == ProblemBlocks::kShared);
    }
    blocks.merged = merger.Build(may_merge);
  }

  void FillValues() {
    builder = std::make_unique<kernels::BlockRowsBuilder>(
        blocks.e, blocks.f, &blocks.merged);
    for (const Row& row : rows) {
      builder->AddRow(row.num_residuals);
      for (const auto& cell : row.cells) {
        builder->AddCell(cell);
      }
    }
    const kernels::Status status = builder->Build();
    ASSERT_TRUE(status.ok()) << status.message;
    int64_t num_rows = builder->num_residuals();
    for (const Pairs& pairs : observations) {
      num_rows += 2 * static_cast<int64_t>(pairs.camera.size());
    }
    num_rows += 2 * static_cast<int64_t>(views.view.size());
    J = MatrixXd::Zero(num_rows, num_e() + num_f());
    int64_t at = 0;
    for (const Pairs& pairs : observations) {
      const int F = blocks.f[pairs.f_family].size;
      camera_blocks.emplace_back();
      point_blocks.emplace_back();
      for (size_t k = 0; k < pairs.camera.size(); ++k) {
        for (int i = 0; i < 2; ++i, ++at) {
          for (int j = 0; j < F; ++j) {
            camera_blocks.back().push_back(Normal());
            J(at,
              num_e() + blocks.f[pairs.f_family].value_begin +
                  F * pairs.camera[k] + j) = camera_blocks.back().back();
          }
          for (int j = 0; j < 3; ++j) {
            point_blocks.back().push_back(Normal());
            J(at, 3 * pairs.point[k] + j) = point_blocks.back().back();
          }
        }
      }
    }
    if (!views.cells.empty()) {
      camera_blocks.emplace_back(2 * view_columns * views.view.size(), 0.0);
      point_blocks.emplace_back();
      for (size_t k = 0; k < views.view.size(); ++k) {
        for (int i = 0; i < 2; ++i, ++at) {
          double* f = &camera_blocks.back()[view_columns * (2 * k + i)];
          for (const kernels::ViewCell& cell : views.cells[views.view[k]]) {
            const auto& family = blocks.f[cell.family];
            for (int j = 0; j < cell.size; ++j) {
              *f = Normal();
              J(at,
                num_e() + family.value_begin + family.size * cell.block + j) =
                  *f++;
            }
          }
          for (int j = 0; j < 3; ++j) {
            point_blocks.back().push_back(Normal());
            J(at, 3 * views.point[k] + j) = point_blocks.back().back();
          }
        }
      }
    }
    general_values.resize(builder->num_values());
    for (int64_t k = 0; k < builder->num_rows(); ++k) {
      const int32_t num_residuals =
          builder->row_begin()[k + 1] - builder->row_begin()[k];
      for (int32_t c = builder->cell_begin()[k];
           c < builder->cell_begin()[k + 1];
           ++c) {
        const kernels::RowCell& cell = builder->cells()[c];
        const bool is_zero =
            cell.eliminated == kernels::kPrivateCell && k % 7 == 0;
        for (int i = 0; i < num_residuals; ++i) {
          for (int j = 0; j < cell.size; ++j) {
            const double value = is_zero ? 0.0 : Normal();
            general_values[cell.value + i * cell.size + j] = value;
            J(at + i, (cell.eliminated != 0 ? 0 : num_e()) + cell.column + j) =
                value;
          }
        }
      }
      at += num_residuals;
    }
    b = VectorXd::NullaryExpr(num_rows, [&] { return Normal(); });
    D = VectorXd::NullaryExpr(num_e() + num_f(), [&] {
      return std::uniform_real_distribution<double>(0.5, 1.5)(random_);
    });
  }

  std::mt19937 random_;
  std::mt19937 private_random_;
  int private_family_ = -1;
  std::vector<std::vector<int>> e_columns_;
  std::vector<std::vector<int>> f_columns_;
};

// A problem in the memory of a machine.
class OnMachine {
 public:
  OnMachine(const Problem& problem, Machine* machine) : machine_(machine) {
    const kernels::Status status = Setup(problem);
    EXPECT_TRUE(status.ok()) << status.message;
  }

  std::vector<Batch*> batches;
  LinearSystem system;

  template <typename T>
  T* Upload(const std::vector<T>& values) {
    buffers_.emplace_back();
    const kernels::Status status =
        machine_->Upload(static_cast<int64_t>(values.size() * sizeof(T)),
                         reinterpret_cast<const char*>(values.data()),
                         &buffers_.back());
    EXPECT_TRUE(status.ok()) << status.message;
    return reinterpret_cast<T*>(buffers_.back().data());
  }
  double* Upload(const VectorXd& values) {
    return Upload(std::vector<double>(values.begin(), values.end()));
  }
  VectorXd Download(int64_t n, const double* from) {
    VectorXd to(n);
    EXPECT_TRUE(machine_->Download(n, from, to.data()).ok());
    return to;
  }

 private:
  using Index = kernels::RowIndex<Machine>;

  kernels::Status Setup(const Problem& problem) {
    VectorXd b = problem.b;
    int64_t at = 0;
    for (size_t i = 0; i < problem.observations.size(); ++i) {
      if (problem.observations[i].f_family == 0) {
        CERES_EXT_RETURN_IF_ERROR(AddObservations<9>(problem, i, at, &b));
      } else {
        CERES_EXT_RETURN_IF_ERROR(AddObservations<10>(problem, i, at, &b));
      }
      at += batches.back()->num_residuals();
    }
    if (!problem.views.cells.empty()) {
      CERES_EXT_RETURN_IF_ERROR(kernels::WithStoredColumns(
          problem.view_columns,
          [&](auto columns) { return AddViews<columns>(problem, at, &b); }));
    }
    if (!problem.rows.empty()) {
      CERES_EXT_RETURN_IF_ERROR(rows_.Setup(*problem.builder, machine_));
      auto batch = std::make_unique<GeneralBatch<Machine>>();
      CERES_EXT_RETURN_IF_ERROR(batch->Setup(
          &rows_, problem.blocks, Upload(problem.general_values), machine_));
      batches.push_back(batch.get());
      batches_.push_back(std::move(batch));
    }
    system.b = Upload(b);
    system.e_diagonal = Upload(VectorXd(problem.D.head(problem.num_e())));
    system.f_diagonal = Upload(VectorXd(problem.D.tail(problem.num_f())));
    return {};
  }

  template <int C>
  kernels::Status AddViews(const Problem& problem,
                           int64_t first_row,
                           VectorXd* b) {
    using Source =
        kernels::StoredJacobian<double, kernels::BalShape<C>, Machine::kLayout>;
    const ViewEvaluator& rows = problem.views;
    Source source;
    CERES_EXT_RETURN_IF_ERROR(
        IndexRows<C>(problem,
                     problem.observations.size(),
                     static_cast<int32_t>(rows.cells.size()),
                     rows.view,
                     rows.point,
                     first_row,
                     b,
                     &source));
    const kernels::ObservationIndexRef& index = indices_.back()->ref();
    CERES_EXT_RETURN_IF_ERROR(views_.Setup(problem.blocks.f,
                                           problem.blocks.merged,
                                           C,
                                           rows.cells,
                                           index,
                                           machine_));
    auto batch = std::make_unique<ViewBatch<Machine, Source>>();
    CERES_EXT_RETURN_IF_ERROR(
        batch->Setup(index, &views_, 0, problem.blocks, source, machine_));
    batches.push_back(batch.get());
    batches_.push_back(std::move(batch));
    return {};
  }

  template <int C>
  kernels::Status AddObservations(const Problem& problem,
                                  size_t i,
                                  int64_t first_row,
                                  VectorXd* b) {
    using Source =
        kernels::StoredJacobian<double, kernels::BalShape<C>, Machine::kLayout>;
    const Pairs& pairs = problem.observations[i];
    Source source;
    CERES_EXT_RETURN_IF_ERROR(
        IndexRows<C>(problem,
                     i,
                     problem.blocks.f[pairs.f_family].num_blocks,
                     pairs.camera,
                     pairs.point,
                     first_row,
                     b,
                     &source));
    auto batch = std::make_unique<ObservationBatch<Machine, Source>>();
    batch->Setup(indices_.back()->ref(), 0, pairs.f_family, machine_);
    CERES_EXT_RETURN_IF_ERROR(batch->SetBlocks(problem.blocks));
    batch->SetJacobian(source);
    batches.push_back(batch.get());
    batches_.push_back(std::move(batch));
    return {};
  }

  // The index of rows, their blocks i and b in its order.
  template <int C>
  kernels::Status IndexRows(
      const Problem& problem,
      size_t i,
      int32_t num_cameras,
      const std::vector<int32_t>& camera,
      const std::vector<int32_t>& point,
      int64_t first_row,
      VectorXd* b,
      kernels::StoredJacobian<double, kernels::BalShape<C>, Machine::kLayout>*
          source) {
    const int64_t n = static_cast<int64_t>(camera.size());
    indices_.push_back(std::make_unique<Index>());
    typename Index::Options options;
    options.keep_point_order = true;
    options.max_columns = C;
    CERES_EXT_RETURN_IF_ERROR(
        indices_.back()->Setup({num_cameras,
                                problem.blocks.e[0].num_blocks,
                                n,
                                camera.data(),
                                point.data()},
                               options,
                               nullptr,
                               machine_));
    const kernels::ObservationIndexRef& index = indices_.back()->ref();
    std::vector<int32_t> input(n);
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Download(n, index.input_id(), input.data()));
    std::vector<double> jc(2 * C * n);
    std::vector<double> jp(6 * n);
    const kernels::BlockRef<double, 2 * C, Machine::kLayout> camera_view{
        jc.data(), n};
    const kernels::BlockRef<double, 6, Machine::kLayout> point_view{jp.data(),
                                                                    n};
    for (int64_t k = 0; k < n; ++k) {
      for (int j = 0; j < 2 * C; ++j) {
        camera_view(k, j) = problem.camera_blocks[i][2 * C * input[k] + j];
      }
      for (int j = 0; j < 6; ++j) {
        point_view(k, j) = problem.point_blocks[i][6 * input[k] + j];
      }
      for (int j = 0; j < 2; ++j) {
        (*b)[first_row + 2 * k + j] = problem.b[first_row + 2 * input[k] + j];
      }
    }
    *source = {{Upload(jc), n}, {Upload(jp), n}};
    return {};
  }

  Machine* machine_;
  std::vector<Buffer<char>> buffers_;
  std::vector<std::unique_ptr<Index>> indices_;
  kernels::BlockRows<Machine> rows_;
  kernels::Views<Machine> views_;
  std::vector<std::unique_ptr<Batch>> batches_;
};

// The matrices of blocks, of an array over families in the machine's layout.
std::vector<MatrixXd> Blocks(const kernels::BlockFamilies& families,
                             const VectorXd& packed) {
  std::vector<MatrixXd> all;
  for (const kernels::BlockFamily& family : families) {
    const auto array =
        kernels::PackedBlocks(family, Machine::kLayout, packed.data());
    for (int block = 0; block < family.num_blocks; ++block) {
      MatrixXd matrix(family.size, family.size);
      for (int i = 0; i < family.size; ++i) {
        for (int j = 0; j <= i; ++j) {
          matrix(i, j) = matrix(j, i) = array(block, PackedIndex(i, j));
        }
      }
      all.push_back(matrix);
    }
  }
  return all;
}

// The columns of F of each block of f_matrices().
std::vector<std::vector<int64_t>> MatrixColumns(const ProblemBlocks& blocks) {
  std::vector<std::vector<int64_t>> all;
  for (int i = 0; i < blocks.f_matrices().size(); ++i) {
    const kernels::BlockFamily& family = blocks.f_matrices()[i];
    for (int64_t b = 0; b < family.num_blocks; ++b) {
      all.emplace_back();
      for (int64_t j = family.size * b; j < family.size * (b + 1); ++j) {
        all.back().push_back(
            i < blocks.f.size()
                ? blocks.f[i].value_begin + j
                : blocks.merged.column[blocks.merged.ColumnBegin(i) + j]);
      }
    }
  }
  return all;
}

// The rows and columns of these numbers.
MatrixXd Part(const MatrixXd& matrix, const std::vector<int64_t>& columns) {
  const auto n = static_cast<int64_t>(columns.size());
  return MatrixXd::NullaryExpr(n, n, [&](int64_t i, int64_t j) {
    return matrix(columns[i], columns[j]);
  });
}

// The columns of each block of E.
std::vector<std::vector<int64_t>> EliminatedColumns(
    const ProblemBlocks& blocks) {
  std::vector<std::vector<int64_t>> all;
  for (const kernels::BlockFamily& family : blocks.e) {
    for (int64_t j = 0; j < family.num_values(); ++j) {
      if (j % family.size == 0) {
        all.emplace_back();
      }
      all.back().push_back(family.value_begin + j);
    }
  }
  return all;
}

class RandomStructures : public testing::Test {
 protected:
  // Compares with those blocks of these columns that have, of columns of unit
  // length, a singular value of no more than rounding, or a column of zeros. A
  // block between these and those of full rank may be found or not.
  static void ExpectDegenerate(const std::vector<std::vector<int64_t>>& blocks,
                               const MatrixXd& J,
                               const kernels::BlockFamilies& families,
                               const DegenerateBlocks& found) {
    std::vector<int64_t> first_columns;
    int64_t num_between = 0;
    for (const std::vector<int64_t>& columns : blocks) {
      MatrixXd part(J.rows(), columns.size());
      double least = J.rows() < part.cols() ? 0.0 : 1.0;
      for (size_t j = 0; j < columns.size(); ++j) {
        const double norm = J.col(columns[j]).norm();
        least = norm == 0.0 ? 0.0 : least;
        part.col(j) = J.col(columns[j]) / (norm == 0.0 ? 1.0 : norm);
      }
      if (least > 0.0) {
        least = part.jacobiSvd().singularValues().minCoeff();
      }
      if (least < 1e-5) {
        first_columns.push_back(columns[0]);
        num_between += least > 1e-10 ? 1 : 0;
      }
    }
    const auto most = static_cast<int64_t>(first_columns.size());
    EXPECT_LE(found.count, most);
    EXPECT_GE(found.count, most - num_between);
    if (found.count > 0) {
      EXPECT_LE(found.relative_pivot, kernels::kDegeneratePivot);
      const kernels::BlockFamily& family = families[found.family];
      EXPECT_EQ(
          std::count(first_columns.begin(),
                     first_columns.end(),
                     family.value_begin + int64_t{family.size} * found.block),
          1);
    }
  }

  void SetUp() override {
    kernels::Status status;
    machine_ = CreateMachine(&status);
    if (!status.ok()) {
      GTEST_SKIP() << "No device: " << status.message;
    }
  }
  std::unique_ptr<Machine> machine_;
};

// All entries within `tolerance`.
testing::AssertionResult Near(const MatrixXd& a,
                              const MatrixXd& b,
                              double tolerance) {
  if (a.size() == 0 && b.size() == 0) {
    return testing::AssertionSuccess();
  }
  const double error = (a - b).cwiseAbs().maxCoeff();
  return error <= tolerance ? testing::AssertionSuccess()
                            : testing::AssertionFailure()
                                  << "error " << error << " > " << tolerance;
}

// S, its right-hand side, its diagonal blocks, single or merged, and those of U
// by themselves and in a preconditioner, and products with it.
TEST_F(RandomStructures, SchurComplementIsTheDenseOne) {
  for (int seed = 0; seed < kNumProblems; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Problem problem(seed, /*merge=*/seed % 2 == 1, /*own_views=*/seed % 8 == 7);
    OnMachine data(problem, machine_.get());
    const int64_t num_e = problem.num_e();
    const int64_t num_f = problem.num_f();
    const MatrixXd E = problem.J.leftCols(num_e);
    const MatrixXd F = problem.J.rightCols(num_f);
    const VectorXd D_e = problem.D.head(num_e);
    const VectorXd D_f = problem.D.tail(num_f);
    MatrixXd V = E.transpose() * E;
    V.diagonal() += D_e.cwiseAbs2();
    const MatrixXd W = F.transpose() * E;
    const MatrixXd Vi_W = V.llt().solve(W.transpose());
    const MatrixXd S = F.transpose() * F - W * Vi_W;
    const MatrixXd nested_F = problem.NestedJ().rightCols(num_f);
    const MatrixXd U = nested_F.transpose() * nested_F;
    const VectorXd rhs = F.transpose() * problem.b -
                         W * V.llt().solve(E.transpose() * problem.b);
    // Sums over all residuals of values that are bounded by the largest of U,
    // through V^-1 whose condition is at most that of U's bound.
    const double scale =
        1.0 + (problem.J.transpose() * problem.J).cwiseAbs().maxCoeff();
    const double tolerance =
        4.0 * (problem.J.rows() + 50) * kEpsilon * scale * scale;

    // The same with b in place of F.
    const double squared = problem.b.squaredNorm();
    const VectorXd E_b = E.transpose() * problem.b;
    const double constant = squared - E_b.dot(V.llt().solve(E_b));
    const double constant_tolerance = 4.0 * (problem.J.rows() + 50) * kEpsilon *
                                      (scale + squared) * (scale + squared);

    const int64_t num_packed = problem.blocks.f_matrices().num_packed();
    // Nothing may be left from before.
    const VectorXd poison =
        VectorXd::Constant(num_packed + num_f + 1, std::nan(""));
    double* const u = data.Upload(poison);
    double* const schur_diagonal = data.Upload(poison);
    double* const machine_rhs = data.Upload(poison);
    double* const q = data.Upload(poison);
    const VectorXd p =
        VectorXd::NullaryExpr(num_f, [&] { return problem.Normal(); });
    const double* const machine_p = data.Upload(p);
    const auto columns = MatrixColumns(problem.blocks);
    struct Wanted {
      bool u;
      bool schur_diagonal;
    };
    for (const Wanted& asked : {Wanted{true, false},
                                Wanted{false, true},
                                Wanted{true, true},
                                Wanted{true, false}}) {
      StepOptions options;
      options.preconditioner = asked.schur_diagonal
                                   ? PreconditionerType::kSchurJacobi
                                   : PreconditionerType::kJacobi;
      options.use_spse_initialization = asked.u && asked.schur_diagonal;
      SchurComplement<Machine> schur;
      const kernels::Status setup =
          schur.Setup(options, problem.blocks, data.batches, machine_.get());
      ASSERT_TRUE(setup.ok()) << setup.message;
      NormalBlocksRequest wanted;
      wanted.u = asked.u ? u : nullptr;
      wanted.schur_diagonal = asked.schur_diagonal ? schur_diagonal : nullptr;
      const kernels::Status update =
          schur.Update(data.system, wanted, machine_rhs);
      ASSERT_TRUE(update.ok()) << update.message;
      ASSERT_TRUE(schur.CheckUpdate().ok());
      EXPECT_TRUE(Near(data.Download(num_f, machine_rhs), rhs, tolerance));
      // Asking for the model's constant changes nothing else.
      const VectorXd before = data.Download(num_f, machine_rhs);
      LinearSystem with_gradient = data.system;
      with_gradient.e_gradient =
          data.Upload(VectorXd(VectorXd::Constant(num_e + 1, std::nan(""))));
      ASSERT_TRUE(schur.Update(with_gradient, wanted, machine_rhs).ok());
      double* const machine_constant =
          data.Upload(VectorXd(VectorXd::Constant(1, std::nan(""))));
      ASSERT_TRUE(schur.ModelConstant(machine_constant).ok());
      EXPECT_NEAR(
          data.Download(1, machine_constant)[0], constant, constant_tolerance);
      EXPECT_TRUE(data.Download(num_f, machine_rhs) == before);
      ASSERT_TRUE(schur.Multiply(machine_p, q, nullptr).ok());
      MatrixXd damped = S;
      damped.diagonal() += D_f.cwiseAbs2();
      EXPECT_TRUE(Near(data.Download(num_f, q), damped * p, 4 * tolerance));
      const auto expect_diagonal = [&](const double* packed,
                                       const MatrixXd& expected) {
        const auto blocks = Blocks(problem.blocks.f_matrices(),
                                   data.Download(num_packed, packed));
        ASSERT_EQ(blocks.size(), columns.size());
        for (size_t i = 0; i < blocks.size(); ++i) {
          EXPECT_TRUE(Near(blocks[i], Part(expected, columns[i]), tolerance));
        }
      };
      if (asked.u) {
        expect_diagonal(u, U);
      }
      if (asked.schur_diagonal) {
        expect_diagonal(schur_diagonal, S);
      }
      if (asked.u && asked.schur_diagonal) {
        continue;  // The series has a test of its own.
      }
      const MatrixXd& expected = asked.u ? U : S;
      // z = M^-1 p. M >= 0.25 I, as A is, so the error of M's blocks of at most
      // 32 columns counts 16 fold, and each of the N^2 roundings of an inverse
      // by the condition, at most 4 `scale`, of a z of at most 4 |p|.
      auto preconditioner = CreatePreconditioner<Machine>(
          options, {}, {}, &schur, /*ranks=*/nullptr, /*context=*/nullptr);
      ASSERT_TRUE(
          preconditioner->Setup(problem.blocks, true, machine_.get()).ok());
      ASSERT_TRUE(
          schur.Update(data.system, preconditioner->WantedBlocks(), machine_rhs)
              .ok());
      const kernels::Status inverted = preconditioner->Update(data.system);
      ASSERT_TRUE(inverted.ok()) << inverted.message;
      ASSERT_TRUE(preconditioner->CheckUpdate().ok());
      double* const z = data.Upload(poison);
      ASSERT_TRUE(preconditioner->Apply(machine_p, z, nullptr).ok());
      const VectorXd machine_z = data.Download(num_f, z);
      const double z_tolerance =
          p.norm() *
          (16.0 * 32 * tolerance + 32.0 * 32 * kEpsilon * 4 * scale * 4);
      for (const std::vector<int64_t>& block : columns) {
        MatrixXd m = Part(expected, block);
        VectorXd r(m.rows());
        VectorXd ours(m.rows());
        for (int64_t i = 0; i < m.rows(); ++i) {
          m(i, i) += D_f[block[i]] * D_f[block[i]];
          r[i] = p[block[i]];
          ours[i] = machine_z[block[i]];
        }
        EXPECT_TRUE(Near(ours, m.llt().solve(r), z_tolerance));
      }
    }
  }
}

// S as a matrix, dense and sparse, of the columns that vary, then of the same
// Jacobian with more damping.
TEST_F(RandomStructures, ExplicitSchurIsTheDenseOne) {
  int64_t num_below_diagonal = 0;
  int num_sparse = 0;
  int num_in_other_order = 0;
  for (int seed = 0; seed < kNumProblems; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Problem problem(seed, /*merge=*/false, /*own_views=*/seed % 8 == 7);
    OnMachine data(problem, machine_.get());
    const int64_t num_e = problem.num_e();
    const int64_t num_f = problem.num_f();
    const MatrixXd E = problem.J.leftCols(num_e);
    const MatrixXd F = problem.J.rightCols(num_f);
    const MatrixXd W = F.transpose() * E;
    std::vector<unsigned char> varies(static_cast<size_t>(num_f));
    std::vector<int64_t> unknown;
    for (int64_t j = 0; j < num_f; ++j) {
      varies[j] = problem.Uniform(0, 3) > 0 ? 1 : 0;
      if (varies[j] != 0) {
        unknown.push_back(j);
      }
    }
    const auto n = static_cast<int64_t>(unknown.size());
    const int64_t stride = n + seed % 3;
    const double scale =
        1.0 + (problem.J.transpose() * problem.J).cwiseAbs().maxCoeff();
    const double tolerance =
        4.0 * (problem.J.rows() + 50) * kEpsilon * scale * scale;
    StepOptions options;
    options.sums_pairs = seed % 3 == 1;
    SchurComplement<Machine> schur;
    ASSERT_TRUE(
        schur.Setup(options, problem.blocks, data.batches, machine_.get())
            .ok());
    const int64_t num_packed = problem.blocks.f.num_packed();
    const VectorXd poison =
        VectorXd::Constant(num_packed + num_f + n * stride + 1, std::nan(""));
    double* const schur_diagonal = data.Upload(poison);
    double* const rhs = data.Upload(poison);
    NormalBlocksRequest wanted;
    wanted.schur_diagonal = schur_diagonal;
    ExplicitSchur<Machine> matrices[2];
    for (const bool sparse : {false, true}) {
      kernels::Status setup = matrices[sparse].Prepare(
          problem.blocks, data.batches, machine_.get());
      ASSERT_TRUE(setup.ok()) << setup.message;
      setup = matrices[sparse].Setup(varies.data());
      ASSERT_TRUE(setup.ok()) << setup.message;
      // One may replace the other.
      for (const bool is_sparse : {!sparse, sparse}) {
        if (is_sparse) {
          setup = matrices[sparse].SetupSparse();
          ASSERT_TRUE(setup.ok()) << setup.message;
        } else {
          matrices[sparse].SetupDense(stride);
        }
      }
      ASSERT_EQ(matrices[sparse].num_unknowns(), n);
      ASSERT_EQ(matrices[sparse].size().is_sparse, sparse);
    }
    ASSERT_TRUE(matrices[1].SetupColumns().ok());
    const std::vector<unsigned char> all(static_cast<size_t>(num_f), 1);
    ExplicitSchurComplement<Machine> products(seed % 2 == 0 ? all : varies);
    StepOptions of_products = options;
    of_products.use_explicit_schur_complement = true;
    kernels::Status setup = products.Setup(
        of_products, problem.blocks, data.batches, machine_.get());
    ASSERT_TRUE(setup.ok()) << setup.message;
    for (const bool is_same_linearization : {false, true}) {
      SCOPED_TRACE(is_same_linearization ? "same Jacobian" : "first");
      const VectorXd D =
          problem.D.array() + (is_same_linearization ? 1.0 : 0.0);
      const VectorXd D_f = D.tail(num_f);
      LinearSystem system = data.system;
      system.e_diagonal = data.Upload(VectorXd(D.head(num_e)));
      system.f_diagonal = data.Upload(D_f);
      system.is_same_linearization = is_same_linearization;
      MatrixXd V = E.transpose() * E;
      V.diagonal() += D.head(num_e).cwiseAbs2();
      MatrixXd S = F.transpose() * F - W * V.llt().solve(W.transpose());
      S.diagonal() += D_f.cwiseAbs2();
      MatrixXd expected = MatrixXd::Zero(n, n);
      const std::vector<int64_t>& order = matrices[0].unknowns().host_column();
      ASSERT_TRUE(order == matrices[1].unknowns().host_column());
      ASSERT_TRUE(std::is_permutation(
          order.begin(), order.end(), unknown.begin(), unknown.end()));
      num_in_other_order += order == unknown ? 0 : 1;
      for (int64_t v = 0; v < n; ++v) {
        for (int64_t u = v; u < n; ++u) {
          expected(u, v) = S(order[u], order[v]);
          num_below_diagonal += u > v && expected(u, v) != 0.0 ? 1 : 0;
        }
      }
      ASSERT_TRUE(schur.Update(system, wanted, rhs).ok());
      ExplicitSchurRequest request;
      request.v_inverse = schur.e_matrices();
      request.schur_diagonal = schur_diagonal;
      request.f_diagonal = system.f_diagonal;
      request.is_same_linearization = is_same_linearization;
      // Two runs have the same bits.
      MatrixXd dense(n, n);
      for (int run = 0; run < 2; ++run) {
        double* const values = data.Upload(poison);
        ASSERT_TRUE(matrices[0].Write(request, values).ok());
        const VectorXd got = data.Download(n * stride, values);
        const MatrixXd with_ends =
            Eigen::Map<const MatrixXd>(got.data(), stride, n);
        EXPECT_TRUE((with_ends.bottomRows(stride - n).array() == 0.0).all());
        // Elements above the diagonal stay.
        const MatrixXd matrix =
            with_ends.topRows(n).triangularView<Eigen::Lower>();
        if (run == 0) {
          dense = matrix;
          EXPECT_TRUE(Near(dense, expected, tolerance));
        } else {
          EXPECT_TRUE(dense == matrix);
        }
        request.is_same_linearization = true;
      }
      request.is_same_linearization = is_same_linearization;
      const auto& csr = matrices[1].csr();
      double* const values = data.Upload(poison);
      ASSERT_TRUE(matrices[1].Write(request, values).ok());
      const VectorXd got = data.Download(csr.num_values(), values);
      std::vector<int32_t> column(static_cast<size_t>(csr.num_values()));
      ASSERT_TRUE(
          machine_->Download(csr.num_values(), csr.column(), column.data())
              .ok());
      MatrixXd matrix = MatrixXd::Zero(n, n);
      for (int64_t u = 0; u < n; ++u) {
        for (int64_t at = csr.host_row_begin()[u];
             at < csr.host_row_begin()[u + 1];
             ++at) {
          ASSERT_LE(column[at], u);
          matrix(u, column[at]) = got[at];
        }
      }
      EXPECT_TRUE(matrix == dense) << "sparse is not dense";

      // A product adds the rounding of n terms.
      ASSERT_TRUE(products.Update(system, wanted, rhs).ok());
      ASSERT_TRUE(products.FormMatrix(system, schur_diagonal).ok());
      VectorXd p =
          VectorXd::NullaryExpr(num_f, [&] { return problem.Normal(); });
      VectorXd expected_q = S * p;
      if (seed % 2 != 0) {
        // Columns that do not vary have no rows.
        const VectorXd held = VectorXd::NullaryExpr(
            num_f, [&](auto j) { return varies[j] != 0 ? 1.0 : 0.0; });
        expected_q = held.cwiseProduct(S * held.cwiseProduct(p));
      }
      VectorXd q;
      for (int run = 0; run < 2; ++run) {
        double* const product = data.Upload(poison);
        ASSERT_TRUE(products.Multiply(data.Upload(p), product, nullptr).ok());
        const VectorXd got_q = data.Download(num_f, product);
        EXPECT_TRUE(run == 0 || q == got_q);
        q = got_q;
      }
      const double norm = S.cwiseAbs().rowwise().sum().maxCoeff();
      EXPECT_TRUE(Near(
          q,
          expected_q,
          p.cwiseAbs().sum() * (tolerance + 2.0 * num_f * kEpsilon * norm)));
      num_sparse += csr.num_values() < n * (n + 1) / 2 ? 1 : 0;
    }
  }
  EXPECT_GT(num_below_diagonal, kNumProblems);
  EXPECT_GT(num_sparse, kNumProblems / 10);
  EXPECT_TRUE(kNumProblems < kMostProblems ||
              num_in_other_order > kNumProblems / 20);
}

// The eliminated part of S, and the power series of its inverse as a
// preconditioner and as what PCG starts from, against the dense formula. The
// two are of 1 + n terms, the second one fewer where a term is small enough.
TEST_F(RandomStructures, PowerSeriesIsTheDenseOne) {
  int num_ended_by_tolerance = 0;
  for (int seed = 0; seed < kNumProblems; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Problem problem(seed);
    OnMachine data(problem, machine_.get());
    const int64_t num_e = problem.num_e();
    const int64_t num_f = problem.num_f();
    const MatrixXd nested = problem.NestedJ();
    const MatrixXd E = nested.leftCols(num_e);
    const MatrixXd F = nested.rightCols(num_f);
    MatrixXd V = E.transpose() * E;
    V.diagonal() += problem.D.head(num_e).cwiseAbs2();
    const MatrixXd W = F.transpose() * E;
    const MatrixXd A = W * V.llt().solve(W.transpose());
    MatrixXd U = F.transpose() * F;
    U.diagonal() += problem.D.tail(num_f).cwiseAbs2();
    MatrixXd B = MatrixXd::Zero(num_f, num_f);
    int64_t at = 0;
    for (const kernels::BlockFamily& family : problem.blocks.f) {
      for (int block = 0; block < family.num_blocks; ++block) {
        B.block(at, at, family.size, family.size) =
            U.block(at, at, family.size, family.size);
        at += family.size;
      }
    }
    const Eigen::LLT<MatrixXd> factor(B);
    const VectorXd r =
        VectorXd::NullaryExpr(num_f, [&] { return problem.Normal(); });

    StepOptions options;
    options.preconditioner = PreconditionerType::kSchurPowerSeriesExpansion;
    options.use_spse_initialization = true;
    options.max_num_spse_iterations = problem.Uniform(1, 6);
    options.spse_tolerance = 0.1 * problem.Uniform(0, 9);
    SchurComplement<Machine> schur;
    ASSERT_TRUE(
        schur.Setup(options, problem.blocks, data.batches, machine_.get())
            .ok());
    const auto series = CreatePreconditioner<Machine>(
        options, {}, {}, &schur, /*ranks=*/nullptr, /*context=*/nullptr);
    ASSERT_TRUE(series->Setup(problem.blocks, true, machine_.get()).ok());
    const VectorXd poison = VectorXd::Constant(num_f + 1, std::nan(""));
    const double* const machine_r = data.Upload(r);
    double* const z = data.Upload(poison);
    ASSERT_TRUE(schur.Update(data.system, series->WantedBlocks(), z).ok());
    ASSERT_TRUE(series->Update(data.system).ok());

    // Every term rounds sums over all residuals, through V^-1 and B^-1, both at
    // most 4, and passes on what the terms before it have lost; |B^-1 A| may be
    // as large as the number of F blocks in a row, at most 5.
    const double scale =
        1.0 + (problem.J.transpose() * problem.J).cwiseAbs().maxCoeff();
    const double once =
        4.0 * (problem.J.rows() + 50) * kEpsilon * scale * scale;
    ASSERT_TRUE(schur.MultiplyEliminatedPart(machine_r, z, nullptr).ok());
    EXPECT_TRUE(Near(data.Download(num_f, z), -A * r, 4 * once));

    const VectorXd first = factor.solve(r);
    VectorXd term = first;
    VectorXd sum = first;
    VectorXd start;
    bool near_tolerance = false;
    double term_error = once * (1.0 + first.norm());
    double tolerance = term_error;
    for (int i = 1; i <= options.max_num_spse_iterations; ++i) {
      term = factor.solve(A * term);
      sum += term;
      term_error = 5.0 * term_error + once * (1.0 + term.norm());
      tolerance += term_error;
      const double ratio = term.norm() / first.norm();
      if (start.size() == 0) {
        near_tolerance |= std::abs(ratio - options.spse_tolerance) < 1e-9;
        if (ratio < options.spse_tolerance) {
          start = sum;
          num_ended_by_tolerance += i < options.max_num_spse_iterations;
        }
      }
    }
    if (start.size() == 0) {
      start = sum;
    }
    for (int run = 0; run < 2; ++run) {
      ASSERT_TRUE(series->Apply(machine_r, z, nullptr).ok());
      EXPECT_TRUE(Near(data.Download(num_f, z), sum, tolerance));
      ASSERT_TRUE(series->Initialize(machine_r, z).ok());
      EXPECT_TRUE(near_tolerance ||
                  Near(data.Download(num_f, z), start, tolerance));
    }
    // Nothing is done once the scalars have ended.
    std::vector<kernels::PcgScalars> ended(1);
    ended[0].end = kernels::PcgEnd::kResidual;
    ASSERT_TRUE(
        schur.MultiplyEliminatedPart(machine_r, z, data.Upload(ended)).ok());
    EXPECT_TRUE(near_tolerance ||
                Near(data.Download(num_f, z), start, tolerance));
  }
  EXPECT_GT(num_ended_by_tolerance, kNumProblems / 20);
}

// Steps of all configurations against the dense solution. With A = J'J + D^2 >=
// 0.25 I, S has the same bound, so a residual r of S z = s means an error of
// 4 |r|, in y as well times |Vi W'| <= 2 |F|.
TEST_F(RandomStructures, StepIsTheDenseOne) {
  int64_t num_degenerate = 0;
  for (int seed = 0; seed < kNumProblems; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto all = SolverConfigurations();
    StepOptions options = all[seed % all.size()];
    options.max_num_iterations = 2000;
    SCOPED_TRACE(ConfigurationName(options));
    Problem problem(
        seed,
        /*merge=*/seed % 2 == 1 && !options.use_explicit_schur_complement);
    OnMachine data(problem, machine_.get());
    const int64_t num_e = problem.num_e();
    const int64_t num_f = problem.num_f();
    MatrixXd A = problem.J.transpose() * problem.J;
    A.diagonal() += problem.D.cwiseAbs2();
    const VectorXd gradient = problem.J.transpose() * problem.b;
    const VectorXd step = A.llt().solve(gradient);
    const double norm = A.cwiseAbs().rowwise().sum().maxCoeff();
    StepSolver<Machine> solver;
    const kernels::Status setup =
        solver.Setup(options, problem.blocks, data.batches, machine_.get());
    ASSERT_TRUE(setup.ok()) << setup.message;
    StepPerSolveOptions per_solve;
    per_solve.q_tolerance = -std::numeric_limits<double>::infinity();
    per_solve.r_tolerance = 1e-13;
    VectorXd first;
    for (int run = 0; run < 2; ++run) {
      if (run == 1) {
        // Which must not change the next step. Columns of zeros are padding in
        // every third problem, except for merged blocks, which have none.
        VectorXd padding = VectorXd::Zero(num_e + num_f);
        for (int64_t j = 0; seed % 3 == 0 && problem.blocks.merged.empty() &&
                            j < padding.size();
             ++j) {
          padding[j] = problem.J.col(j).isZero(0.0) ? 1.0 : 0.0;
        }
        DegenerateBlocks e;
        DegenerateBlocks f;
        const kernels::Status status = solver.FindDegenerateBlocks(
            data.Upload(VectorXd(padding.head(num_e))),
            data.Upload(VectorXd(padding.tail(num_f))),
            &e,
            &f);
        ASSERT_TRUE(status.ok()) << status.message;
        MatrixXd padded(problem.J.rows() + padding.size(), padding.size());
        padded << problem.J, MatrixXd(padding.asDiagonal());
        ExpectDegenerate(EliminatedColumns(problem.blocks),
                         padded.leftCols(num_e),
                         problem.blocks.e,
                         e);
        ExpectDegenerate(MatrixColumns(problem.blocks),
                         padded.rightCols(num_f),
                         problem.blocks.f,
                         f);
        num_degenerate += e.count + f.count;
      }
      const VectorXd poison =
          VectorXd::Constant(num_e + num_f + 1, std::nan(""));
      double* const e_step = data.Upload(poison);
      double* const f_step = data.Upload(poison);
      const StepSummary summary =
          solver.Solve(data.system, per_solve, e_step, f_step);
      ASSERT_TRUE(summary.termination == Termination::kSuccess ||
                  summary.termination == Termination::kNoConvergence)
          << summary.message;
      VectorXd x(num_e + num_f);
      x << data.Download(num_e, e_step), data.Download(num_f, f_step);
      const double tolerance =
          1e-12 * (1.0 + gradient.norm()) * std::pow(1.0 + norm, 1.5);
      EXPECT_TRUE(Near(x, step, tolerance))
          << summary.message << " |A| " << norm;
      if (run == 0) {
        first = x;
      } else {
        EXPECT_TRUE(x == first) << "other bits in the second solve";
      }
    }
  }
  EXPECT_GT(num_degenerate, kNumProblems);
}

#ifndef CERES_EXT_TEST_ON_CUDA
// The same of general rows alone by S of eliminated blocks
// (cholesky/small_schur.h), with and without D, and where columns of zeros are
// padding. A problem that is nearly singular without D is left out there.
TEST_F(RandomStructures, SmallSchurStepIsTheDenseOne) {
  int num_problems = 0;
  int num_wide = 0;
  for (int seed = 0; seed < kNumProblems; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Problem problem(seed);
    if (problem.rows.empty() || !problem.observations.empty() ||
        !problem.views.cells.empty() || problem.has_private()) {
      continue;
    }
    ++num_problems;
    for (const auto& family : problem.blocks.e) {
      num_wide += family.size > kernels::kFewEliminatedColumns ? 1 : 0;
    }
    OnMachine data(problem, machine_.get());
    const int64_t num_e = problem.num_e();
    const int64_t num_f = problem.num_f();
    const VectorXd gradient = problem.J.transpose() * problem.b;
    StepOptions options;
    options.factorization = Factorization::kDense;
    options.may_be_small = true;
    std::vector<unsigned char> f_varies(static_cast<size_t>(num_f), 1);
    for (int64_t j = 0; seed % 2 == 1 && j < num_f; ++j) {
      f_varies[j] = problem.J.col(num_e + j).isZero(0.0) ? 0 : 1;
    }
    StepSolver<Machine> solver;
    const kernels::Status setup = solver.Setup(
        options, problem.blocks, data.batches, machine_.get(), f_varies);
    ASSERT_TRUE(setup.ok()) << setup.message;
    EXPECT_EQ(solver.cholesky(), nullptr);
    for (const double factor : {1.0, 3.0, 0.0}) {
      SCOPED_TRACE(factor);
      MatrixXd A = problem.J.transpose() * problem.J;
      VectorXd D = factor * problem.D;
      A.diagonal() += D.cwiseAbs2();
      LinearSystem system = data.system;
      if (factor == 0.0) {
        system.e_diagonal = nullptr;
        system.f_diagonal = nullptr;
      } else {
        system.e_diagonal = data.Upload(VectorXd(D.head(num_e)));
        system.f_diagonal = data.Upload(VectorXd(D.tail(num_f)));
      }
      const Eigen::SelfAdjointEigenSolver<MatrixXd> eigen(A);
      const double least = eigen.eigenvalues()[0];
      VectorXd first;
      for (int run = 0; run < 2; ++run) {
        const VectorXd poison =
            VectorXd::Constant(num_e + num_f + 1, std::nan(""));
        double* const e_step = data.Upload(poison);
        double* const f_step = data.Upload(poison);
        const StepSummary summary = solver.Solve(system, {}, e_step, f_step);
        constexpr double kSingular = 1e-3;
        if (least < kSingular) {
          EXPECT_EQ(factor, 0.0);
          break;
        }
        ASSERT_EQ(summary.termination, Termination::kSuccess)
            << summary.message;
        VectorXd x(num_e + num_f);
        x << data.Download(num_e, e_step), data.Download(num_f, f_step);
        // n roundings of A's elements, and |A^-1| of each.
        const double norm = A.cwiseAbs().rowwise().sum().maxCoeff();
        const VectorXd step = A.llt().solve(gradient);
        const double tolerance = 64.0 * (problem.J.rows() + A.rows() + 50) *
                                 kEpsilon * std::pow(1.0 + norm / least, 2) *
                                 (1.0 + step.norm());
        EXPECT_TRUE(Near(x, step, tolerance)) << " |A| " << norm;
        if (run == 0) {
          first = x;
        } else {
          EXPECT_TRUE(x == first) << "other bits in the second solve";
        }
      }
    }
  }
  EXPECT_GT(num_problems, kNumProblems / 20);
  EXPECT_GT(num_wide, kNumProblems / 40);
}
#endif

#ifdef CERES_EXT_TEST_ON_CUDA
// The same with a factor of float as the preconditioner of conjugate gradients.
// Their error by S is kTolerance, times that by which the shift is more than
// S's least eigenvalue (tests/kernels/cuda_cholesky_test.cc). A diagonal that
// float can't hold has a factor of double, and so have steps after that.
TEST_F(RandomStructures, StepOfAFloatFactorIsTheDenseOne) {
  using kernels::CudaDenseCholesky;
  int num_tried = 0;
  for (int seed = 0; seed < kNumProblems; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Problem problem(seed);
    if (problem.has_private()) {
      continue;
    }
    OnMachine data(problem, machine_.get());
    const int64_t num_e = problem.num_e();
    const int64_t num_f = problem.num_f();
    StepOptions options;
    options.factorization = Factorization::kDense;
    options.prefers_float_factor = true;
    StepSolver<Machine> solver;
    if (const kernels::Status status =
            solver.Setup(options, problem.blocks, data.batches, machine_.get());
        !status.ok()) {
      GTEST_SKIP() << "No factorisation: " << status.message;
    }
    ++num_tried;
    EXPECT_TRUE(solver.cholesky()->is_float());
    EXPECT_TRUE(solver.factorized_size()->is_float);
    double* const e_step = data.Upload(VectorXd(VectorXd::Zero(num_e + 1)));
    double* const f_step = data.Upload(VectorXd(VectorXd::Zero(num_f + 1)));
    const VectorXd gradient = problem.J.transpose() * problem.b;
    for (const double large : {0.0, 1e20, 0.0}) {
      SCOPED_TRACE(large);
      VectorXd D = problem.D;
      D.tail(num_f).array() += large;
      LinearSystem system = data.system;
      system.f_diagonal = data.Upload(VectorXd(D.tail(num_f)));
      MatrixXd A = problem.J.transpose() * problem.J;
      A.diagonal() += D.cwiseAbs2();
      const StepSummary summary = solver.Solve(system, {}, e_step, f_step);
      ASSERT_EQ(summary.termination, Termination::kSuccess) << summary.message;
      if (large > 0.0 && num_f > 0) {
        EXPECT_FALSE(solver.cholesky()->is_float());
        EXPECT_FALSE(solver.factorized_size()->is_float);
        EXPECT_EQ(solver.why_replaced().rfind("the factor is in double", 0), 0u)
            << solver.why_replaced();
      }
      VectorXd error(num_e + num_f);
      error << data.Download(num_e, e_step), data.Download(num_f, f_step);
      const VectorXd step = A.llt().solve(gradient);
      error -= step;
      MatrixXd S = A.bottomRightCorner(num_f, num_f);
      if (num_e > 0) {
        S -= A.bottomLeftCorner(num_f, num_e) *
             A.topLeftCorner(num_e, num_e)
                 .llt()
                 .solve(A.topRightCorner(num_e, num_f));
      }
      const double least =
          num_f > 0
              ? Eigen::SelfAdjointEigenSolver<MatrixXd>(S).eigenvalues()[0]
              : 1.0;
      const double shift = CudaDenseCholesky::kShift * 6e-8 *
                           std::sqrt(static_cast<double>(num_f));
      const double most = num_f > 0 ? S.diagonal().maxCoeff() : 0.0;
      // Rounding in double leaves this much of it, as above.
      const double norm = A.cwiseAbs().rowwise().sum().maxCoeff();
      const double of_double =
          64.0 * (problem.J.rows() + A.rows() + 50) * kEpsilon *
          std::pow(1.0 + norm / Eigen::SelfAdjointEigenSolver<MatrixXd>(A)
                                    .eigenvalues()[0],
                   2);
      EXPECT_LE(error.dot(A * error),
                (3.0 * std::pow(CudaDenseCholesky::kTolerance, 2) *
                     (1.0 + 2.0 * shift * most / least) +
                 of_double * of_double * (1.0 + norm)) *
                    (step.dot(A * step) + 1e-300));
    }
  }
  EXPECT_GT(num_tried, kNumProblems / 2);
}
#endif

// J x, J'y and column norms, which the trust-region loop asks of batches.
// The same where PCG may take one iteration, and exact steps are the rest.
// If nothing is merged an exact step has the bits of a solver that has no
// others.
TEST_F(RandomStructures, StepsOfAMixtureAreTheDenseOnes) {
  int num_exact = 0;
  int num_by_pcg = 0;
  int num_merged = 0;
  for (int seed = 0; seed < kNumProblems; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    StepOptions options;
    options.preconditioner = seed % 3 == 0 ? PreconditionerType::kJacobi
                                           : PreconditionerType::kSchurJacobi;
    options.factorization = Factorization::kDense;
    options.sums_pairs = seed % 5 == 4;
    Problem problem(seed, /*merge=*/seed % 2 == 1, /*own_views=*/seed % 8 == 7);
    OnMachine data(problem, machine_.get());
    const int64_t num_e = problem.num_e();
    const int64_t num_f = problem.num_f();
    const bool is_merged = !problem.blocks.merged.empty();
    num_merged += is_merged ? 1 : 0;
    MatrixXd A = problem.J.transpose() * problem.J;
    A.diagonal() += problem.D.cwiseAbs2();
    const VectorXd gradient = problem.J.transpose() * problem.b;
    const VectorXd step = A.llt().solve(gradient);
    const double norm = A.cwiseAbs().rowwise().sum().maxCoeff();
    StepSolver<Machine> exact;
    if (const kernels::Status status =
            exact.Setup(options, problem.blocks, data.batches, machine_.get());
        !status.ok()) {
      GTEST_SKIP() << "No factorisation: " << status.message;
    }
    double* const e_step = data.Upload(VectorXd(VectorXd::Zero(num_e + 1)));
    double* const f_step = data.Upload(VectorXd(VectorXd::Zero(num_f + 1)));
    StepPerSolveOptions per_solve;
    per_solve.q_tolerance = -std::numeric_limits<double>::infinity();
    per_solve.r_tolerance = 1e-13;
    const auto solve = [&](StepSolver<Machine>* solver, StepSummary* summary) {
      *summary = solver->Solve(data.system, per_solve, e_step, f_step);
      VectorXd x(num_e + num_f);
      x << data.Download(num_e, e_step), data.Download(num_f, f_step);
      return x;
    };
    StepSummary summary;
    const VectorXd of_exact = solve(&exact, &summary);
    ASSERT_EQ(summary.termination, Termination::kSuccess) << summary.message;
    StepSolver<Machine> solver;
    options.exact_step_cost = 1;
    ASSERT_TRUE(
        solver.Setup(options, problem.blocks, data.batches, machine_.get())
            .ok());
    for (int i = 0; i < 6; ++i) {
      SCOPED_TRACE(i);
      // Two of three solves are of the same Jacobian.
      per_solve.is_same_linearization = i % 3 == 1;
      const VectorXd x = solve(&solver, &summary);
      ASSERT_EQ(summary.termination, Termination::kSuccess) << summary.message;
      EXPECT_EQ(summary.num_iterations,
                summary.num_pcg_iterations + (summary.is_exact ? 1 : 0));
      EXPECT_FALSE(summary.is_at_limit);
      const double tolerance =
          1e-12 * (1.0 + gradient.norm()) * std::pow(1.0 + norm, 1.5);
      EXPECT_TRUE(Near(x, step, tolerance)) << summary.message;
      if (summary.is_exact) {
        ++num_exact;
        // Tried before the first and the fifth exact step.
        EXPECT_EQ(summary.num_pcg_iterations, i % 4 == 0 ? 1 : 0);
        EXPECT_TRUE(is_merged || x == of_exact) << "other bits";
      } else {
        ++num_by_pcg;
        EXPECT_LE(summary.num_pcg_iterations, 1);
      }
    }
    EXPECT_EQ(solver.why_not_exact(), "");
  }
  EXPECT_GT(num_exact, 4 * kNumProblems);
  // One in some hundred problems.
  EXPECT_TRUE(kNumProblems < 400 || num_by_pcg > 0);
  EXPECT_GT(num_merged, kNumProblems / 10);
}

TEST_F(RandomStructures, ProductsAreTheDenseOnes) {
  for (int seed = 0; seed < kNumProblems; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Problem problem(seed);
    OnMachine data(problem, machine_.get());
    const int64_t num_e = problem.num_e();
    const int64_t num_f = problem.num_f();
    const VectorXd x =
        VectorXd::NullaryExpr(num_e + num_f, [&] { return problem.Normal(); });
    const double* e = data.Upload(VectorXd(x.head(num_e)));
    const double* f = data.Upload(VectorXd(x.tail(num_f)));
    const double bound = 8.0 * (problem.J.rows() + problem.J.cols() + 8) *
                         kEpsilon * (1.0 + problem.J.cwiseAbs2().sum());
    VectorXd norms = VectorXd::Zero(num_e + num_f);
    double* const e_sum = data.Upload(VectorXd(VectorXd::Zero(num_e + 1)));
    double* const f_sum = data.Upload(VectorXd(VectorXd::Zero(num_f + 1)));
    double* const e_norm = data.Upload(VectorXd(VectorXd::Zero(num_e + 1)));
    double* const f_norm = data.Upload(VectorXd(VectorXd::Zero(num_f + 1)));
    int64_t at = 0;
    VectorXd y_norm_squares(problem.J.rows());
    double total = 0.0;
    for (Batch* batch : data.batches) {
      const int64_t n = batch->num_residuals();
      double* const y = data.Upload(VectorXd(VectorXd::Ones(n + 1)));
      ASSERT_TRUE(batch->RightMultiply(e, f, false, y).ok());
      const VectorXd once = data.Download(n, y);
      ASSERT_TRUE(batch->RightMultiply(e, f, true, y).ok());
      EXPECT_TRUE(Near(data.Download(n, y), 2.0 * once, bound));
      total += once.squaredNorm();
      ASSERT_TRUE(
          batch->LeftMultiplyAndAccumulate(data.system.b + at, e_sum, f_sum)
              .ok());
      ASSERT_TRUE(batch->SquaredColumnNorms(e_norm, f_norm).ok());
      at += n;
    }
    // The rows of a batch have an order of their own.
    EXPECT_NEAR(total, (problem.J * x).squaredNorm(), bound * bound / kEpsilon);
    VectorXd sum(num_e + num_f);
    sum << data.Download(num_e, e_sum), data.Download(num_f, f_sum);
    EXPECT_TRUE(Near(sum, problem.J.transpose() * problem.b, bound));
    norms << data.Download(num_e, e_norm), data.Download(num_f, f_norm);
    EXPECT_TRUE(
        Near(norms, problem.J.colwise().squaredNorm().transpose(), bound));
  }
}

// A block that 20,000 rows share: three levels of sums.
TEST_F(RandomStructures, OneBlockForAllRows) {
  kernels::BlockFamilies e;
  kernels::BlockFamilies f;
  f.Add(4, 2);
  kernels::BlockRowsBuilder builder(e, f);
  constexpr int kNumRows = 20000;
  for (int i = 0; i < kNumRows; ++i) {
    builder.AddRow(1);
    builder.AddCell({false, 0, 1, 4});
  }
  ASSERT_TRUE(builder.Build().ok());
  ASSERT_EQ(builder.f_lists().size(), 1u);
  EXPECT_EQ(builder.f_lists()[0].levels.size(), 2u);
  kernels::BlockRows<Machine> rows;
  ASSERT_TRUE(rows.Setup(builder, machine_.get()).ok());
  ProblemBlocks blocks;
  blocks.f = f;
  blocks.f_owner = {ProblemBlocks::kShared};
  Buffer<double> values;
  Buffer<double> y;
  Buffer<double> x;
  // Whole numbers: sums are exact.
  std::vector<double> ones(4 * kNumRows, 1.0);
  std::vector<double> zeros(8, 0.0);
  ASSERT_TRUE(machine_->Upload(4 * kNumRows, ones.data(), &values).ok());
  ASSERT_TRUE(machine_->Upload(kNumRows, ones.data(), &y).ok());
  ASSERT_TRUE(machine_->Upload(8, zeros.data(), &x).ok());
  GeneralBatch<Machine> batch;
  ASSERT_TRUE(batch.Setup(&rows, blocks, values.data(), machine_.get()).ok());
  ASSERT_TRUE(
      batch.LeftMultiplyAndAccumulate(y.data(), nullptr, x.data()).ok());
  std::vector<double> sum(8);
  ASSERT_TRUE(machine_->Download(8, x.data(), sum.data()).ok());
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(sum[i], i < 4 ? 0.0 : kNumRows);
  }
}

// Blocks from 2 to 200 columns, in rows of whole numbers. 33 columns are more
// than are judged and than the host sums in one piece, 200 are more than it
// inverts by one thread.
class WideBlocks : public RandomStructures {
 protected:
  static constexpr int kColumns[] = {2, 32, 33, 128, 129, 200};

  void SetUp() override {
    RandomStructures::SetUp();
    if (machine_ == nullptr) {
      return;
    }
    for (const int columns : kColumns) {
      blocks_.f.Add(columns, 2);
      blocks_.f_owner.push_back(ProblemBlocks::kShared);
    }
    constexpr int kNumRows = 120;
    const kernels::BlockFamilies& f = blocks_.f;
    std::mt19937 random(7);
    kernels::BlockRowsBuilder builder(blocks_.e, f);
    std::vector<double> values;
    std::vector<std::vector<kernels::BlockRowsBuilder::Cell>> rows;
    int num_residuals = 0;
    for (int i = 0; i < kNumRows; ++i) {
      builder.AddRow(1 + i % 5);
      num_residuals += 1 + i % 5;
      rows.emplace_back();
      // A block of each third family.
      for (int family = i % 3; family < f.size(); family += 3) {
        const auto block = static_cast<int32_t>(random() % 2);
        rows.back().push_back({false, family, block, f[family].size});
        builder.AddCell(rows.back().back());
      }
    }
    J_ = MatrixXd::Zero(num_residuals, f.num_values());
    int first_residual = 0;
    for (int i = 0; i < kNumRows; ++i) {
      for (const auto& cell : rows[i]) {
        const int64_t first = f[cell.family].value_begin +
                              int64_t{f[cell.family].size} * cell.block;
        for (int r = 0; r < 1 + i % 5; ++r) {
          for (int j = 0; j < cell.size; ++j) {
            // The last column of the first block is zero.
            const bool is_zero = first + j == 1;
            values.push_back(is_zero ? 0.0
                                     : static_cast<double>(random() % 7) - 3.0);
            J_(first_residual + r, first + j) = values.back();
          }
        }
      }
      first_residual += 1 + i % 5;
    }
    ASSERT_TRUE(builder.Build().ok());
    ASSERT_TRUE(rows_.Setup(builder, machine_.get()).ok());
    ASSERT_TRUE(machine_->Upload(values, &values_).ok());
    ASSERT_TRUE(
        batch_.Setup(&rows_, blocks_, values_.data(), machine_.get()).ok());
    y_ = VectorXd::NullaryExpr(
        J_.rows(), [&] { return static_cast<double>(random() % 9) - 4.0; });
    ASSERT_TRUE(machine_->Upload(y_.size(), y_.data(), &b_).ok());
  }

  VectorXd Download(int64_t n, const Buffer<double>& from) {
    VectorXd to(n);
    EXPECT_TRUE(machine_->Download(n, from.data(), to.data()).ok());
    return to;
  }
  Buffer<double> Constant(int64_t n, double value) {
    Buffer<double> buffer;
    const std::vector<double> values(static_cast<size_t>(n), value);
    EXPECT_TRUE(machine_->Upload(values, &buffer).ok());
    return buffer;
  }

  ProblemBlocks blocks_;
  kernels::BlockRows<Machine> rows_;
  Buffer<double> values_;
  GeneralBatch<Machine> batch_;
  MatrixXd J_;
  VectorXd y_;
  Buffer<double> b_;
};

// Sums of whole numbers are exact.
TEST_F(WideBlocks, SumsAreExact) {
  const int64_t n = blocks_.f.num_values();
  StepOptions options;
  options.use_schur = false;
  options.preconditioner = PreconditionerType::kJacobi;
  ASSERT_TRUE(batch_.SetupSolver(options, blocks_).ok());
  Buffer<double> x = Constant(n, 0.0);
  ASSERT_TRUE(
      batch_.LeftMultiplyAndAccumulate(b_.data(), nullptr, x.data()).ok());
  EXPECT_EQ(Download(n, x), VectorXd(J_.transpose() * y_));
  Buffer<double> norms = Constant(n, 0.0);
  ASSERT_TRUE(batch_.SquaredColumnNorms(nullptr, norms.data()).ok());
  EXPECT_EQ(Download(n, norms),
            VectorXd(J_.colwise().squaredNorm().transpose()));
  const MatrixXd A = J_.transpose() * J_;
  for (const int most : {kernels::kAnyColumns, 128}) {
    constexpr double kUntouched = 0.5;
    Buffer<double> u = Constant(blocks_.f.num_packed(), kUntouched);
    NormalBlocksRequest request;
    request.eliminate = false;
    request.max_u_columns = most;
    request.u = u.data();
    ASSERT_TRUE(batch_.OtherBlocks(request).ok());
    const std::vector<MatrixXd> found =
        Blocks(blocks_.f, Download(blocks_.f.num_packed(), u));
    for (size_t i = 0; i < found.size(); ++i) {
      const kernels::BlockFamily& family = blocks_.f[static_cast<int>(i) / 2];
      const int64_t first =
          family.value_begin + static_cast<int64_t>(i % 2) * family.size;
      MatrixXd expected =
          MatrixXd::Constant(family.size, family.size, kUntouched);
      if (family.size <= most) {
        expected += A.block(first, first, family.size, family.size);
      }
      EXPECT_EQ(found[i], expected) << family.size << " columns";
    }
  }
}

TEST_F(WideBlocks, StepIsTheDenseOne) {
  const int64_t n = blocks_.f.num_values();
  const Buffer<double> diagonal = Constant(n, 0.5);
  MatrixXd A = J_.transpose() * J_;
  A.diagonal().array() += 0.25;
  const VectorXd gradient = J_.transpose() * y_;
  const VectorXd step = A.llt().solve(gradient);
  const double norm = A.cwiseAbs().rowwise().sum().maxCoeff();
  for (const auto preconditioner :
       {PreconditionerType::kIdentity, PreconditionerType::kJacobi}) {
    StepOptions options;
    options.use_schur = false;
    options.preconditioner = preconditioner;
    options.max_num_iterations = 5000;
    StepSolver<Machine> solver;
    const int64_t bytes = machine_->bytes();
    ASSERT_TRUE(solver.Setup(options, blocks_, {&batch_}, machine_.get()).ok());
    if (preconditioner == PreconditionerType::kIdentity) {
      // No matrix of the widest blocks.
      EXPECT_LT(machine_->bytes() - bytes, 8 * kernels::PackedSize(200));
    }
    // Those with the column of zeros, or too few rows for their columns, of at
    // most 32: the block of two columns.
    const Buffer<double> padding = Constant(n, 0.0);
    DegenerateBlocks e;
    DegenerateBlocks f;
    ASSERT_TRUE(
        solver.FindDegenerateBlocks(nullptr, padding.data(), &e, &f).ok());
    EXPECT_EQ(e.count, 0);
    EXPECT_EQ(f.count, 1);
    EXPECT_EQ(f.family, 0);
    EXPECT_EQ(f.block, 0);
    EXPECT_EQ(f.relative_pivot, 0.0);
    VectorXd first;
    for (int run = 0; run < 2; ++run) {
      Buffer<double> x = Constant(n, std::nan(""));
      StepPerSolveOptions per_solve;
      per_solve.q_tolerance = -std::numeric_limits<double>::infinity();
      per_solve.r_tolerance = 1e-13;
      const StepSummary summary = solver.Solve(
          {b_.data(), nullptr, diagonal.data()}, per_solve, nullptr, x.data());
      EXPECT_EQ(summary.termination, Termination::kSuccess) << summary.message;
      const VectorXd found = Download(n, x);
      // As in RandomStructures.
      EXPECT_TRUE(
          Near(found,
               step,
               1e-12 * (1.0 + gradient.norm()) * std::pow(1.0 + norm, 1.5)));
      if (run == 0) {
        first = found;
      } else {
        EXPECT_EQ(found, first);
      }
    }
  }
}

// Two blocks of 2 and two of 3, merged by number, in rows of their own
// eliminated blocks. One of the squares overflows.
TEST_F(RandomStructures, TheFirstMergedBlockWithoutInverseIsNamed) {
  ProblemBlocks blocks;
  blocks.e.Add(1, 2);
  blocks.f.Add(2, 2);
  blocks.f.Add(3, 2);
  blocks.e_owner = {ProblemBlocks::kShared};
  blocks.f_owner = {ProblemBlocks::kShared, ProblemBlocks::kShared};
  kernels::MergedBlocksBuilder merger(blocks.f);
  merger.AddRow({{0, 0}, {1, 0}});
  merger.AddRow({{1, 1}, {0, 1}});
  blocks.merged = merger.Build({true, true});
  kernels::BlockRowsBuilder builder(blocks.e, blocks.f, &blocks.merged);
  for (int i = 0; i < 2; ++i) {
    builder.AddRow(1);
    builder.AddCell({true, 0, i, 1});
    builder.AddCell({false, 0, i, 2});
    builder.AddCell({false, 1, i, 3});
  }
  ASSERT_TRUE(builder.Build().ok());
  kernels::BlockRows<Machine> rows;
  ASSERT_TRUE(rows.Setup(builder, machine_.get()).ok());
  for (const int overflows : {-1, 1, 4, 7, 10}) {
    std::vector<double> values(12, 1.0);
    if (overflows >= 0) {
      values[overflows] = 1e200;
    }
    Buffer<double> machine_values;
    Buffer<double> ones;
    Buffer<double> rhs;
    ASSERT_TRUE(machine_->Upload(values, &machine_values).ok());
    ASSERT_TRUE(machine_->Upload(std::vector<double>(10, 1.0), &ones).ok());
    ASSERT_TRUE(machine_->Allocate(10, &rhs).ok());
    GeneralBatch<Machine> batch;
    ASSERT_TRUE(
        batch.Setup(&rows, blocks, machine_values.data(), machine_.get()).ok());
    SchurComplement<Machine> schur;
    StepOptions options;
    options.preconditioner = PreconditionerType::kJacobi;
    ASSERT_TRUE(schur.Setup(options, blocks, {&batch}, machine_.get()).ok());
    const auto preconditioner = CreatePreconditioner<Machine>(
        options, {}, {}, &schur, /*ranks=*/nullptr, /*context=*/nullptr);
    ASSERT_TRUE(preconditioner->Setup(blocks, true, machine_.get()).ok());
    const LinearSystem system = {ones.data(), ones.data(), ones.data()};
    ASSERT_TRUE(
        schur.Update(system, preconditioner->WantedBlocks(), rhs.data()).ok());
    EXPECT_TRUE(preconditioner->Update(system).ok());
    const std::string message =
        overflows < 0 ? ""
                      : "Preconditioner update failed at camera " +
                            std::to_string(overflows / 6) +
                            " of size 2, merged with others.";
    EXPECT_EQ(preconditioner->CheckUpdate().message, message);

    // And by a whole solve, which does no iteration then.
    for (const bool spse : {false, true}) {
      options.use_spse_initialization = spse;
      StepSolver<Machine> solver;
      ASSERT_TRUE(solver.Setup(options, blocks, {&batch}, machine_.get()).ok());
      Buffer<double> e_step;
      Buffer<double> f_step;
      ASSERT_TRUE(machine_->Allocate(2, &e_step).ok());
      ASSERT_TRUE(machine_->Allocate(10, &f_step).ok());
      const StepSummary summary =
          solver.Solve(system, {-1.0, -1.0}, e_step.data(), f_step.data());
      if (overflows < 0) {
        EXPECT_NE(summary.termination, Termination::kFailure);
        EXPECT_GT(summary.num_iterations, 0);
      } else {
        EXPECT_EQ(summary.termination, Termination::kFailure);
        EXPECT_EQ(summary.message, message);
        EXPECT_EQ(summary.num_iterations, 0);
      }
    }
  }
}

// Tests without a machine.
#ifndef CERES_EXT_TEST_ON_CUDA

// Against the definition, pair by pair. All of F is in one block or another.
TEST(MergedBlocks, OccurOnlyTogether) {
  int num_merged = 0;
  for (int seed = 0; seed < kNumProblems; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Problem problem(seed, /*merge=*/true);
    const ProblemBlocks& blocks = problem.blocks;
    num_merged += blocks.merged.num_merged;
    // The rows of each block, and the block's number by its columns.
    std::vector<std::vector<std::vector<int>>> rows;
    for (const kernels::BlockFamily& family : blocks.f) {
      rows.emplace_back(family.num_blocks);
    }
    const auto all = problem.RowsOfEliminatedBlocks();
    for (size_t k = 0; k < all.size(); ++k) {
      for (const Problem::FBlock& block : all[k]) {
        rows[block.family][block.block].push_back(static_cast<int>(k));
      }
    }
    std::vector<int> block_of(problem.num_f(), -1);
    const auto columns = MatrixColumns(blocks);
    for (size_t i = 0; i < columns.size(); ++i) {
      for (const int64_t column : columns[i]) {
        ASSERT_EQ(block_of[column], -1);
        block_of[column] = static_cast<int>(i);
      }
    }
    const auto for_each = [&](auto&& fn) {
      for (int f = 0; f < blocks.f.size(); ++f) {
        for (int b = 0; b < blocks.f[f].num_blocks; ++b) {
          fn(f, b, blocks.f[f].value_begin + blocks.f[f].size * b);
        }
      }
    };
    for_each([&](int f, int b, int64_t column) {
      ASSERT_GE(block_of[column], 0);
      int together = 0;  // columns
      const auto is_together = [&](int g, int c) {
        return (f == g && b == c) ||
               (blocks.f_owner[f] == ProblemBlocks::kShared &&
                blocks.f_owner[g] == ProblemBlocks::kShared &&
                !rows[f][b].empty() && rows[f][b] == rows[g][c]);
      };
      for_each([&](int g, int c, int64_t) {
        together += is_together(g, c) ? blocks.f[g].size : 0;
      });
      const bool fits = together <= kernels::kMaxMergedColumns;
      for_each([&](int g, int c, int64_t other) {
        EXPECT_EQ(block_of[column] == block_of[other],
                  (f == g && b == c) || (fits && is_together(g, c)));
      });
    });
  }
  EXPECT_GT(num_merged, 0);
}

// 32 columns are merged, 33 are not.
TEST(MergedBlocks, HaveAMostWidth) {
  kernels::BlockFamilies f;
  f.Add(16, 4);
  f.Add(1, 1);
  kernels::MergedBlocksBuilder builder(f);
  builder.AddRow({{0, 0}, {0, 1}});
  builder.AddRow({{0, 2}, {0, 3}, {1, 0}});
  const kernels::MergedBlocks merged = builder.Build({true, true});
  EXPECT_EQ(merged.num_merged, 1);
  ASSERT_EQ(merged.families.size(), 4);
  EXPECT_EQ(merged.families[1].num_blocks, 1);  // as it is
  EXPECT_EQ(merged.families[2].size, 16);
  EXPECT_EQ(merged.families[2].num_blocks, 2);
  EXPECT_EQ(merged.families[3].size, kernels::kMaxMergedColumns);
  EXPECT_EQ(merged.families[3].num_blocks, 1);
}

// The same partition for any order of the rows, and no more classes than
// blocks.
TEST(MergedBlocks, OfImages) {
  kernels::BlockFamilies f;
  f.Add(6, 4);  // poses
  f.Add(3, 5);  // intrinsics, the last one of two images
  f.Add(2, 1);  // in no row
  const std::vector<std::vector<kernels::MergedBlocksBuilder::Block>> rows = {
      {{0, 0}, {1, 0}}, {{0, 1}, {1, 1}}, {{0, 2}, {1, 4}}, {{1, 4}, {0, 3}}};
  for (const bool reversed : {false, true}) {
    kernels::MergedBlocksBuilder builder(f);
    for (int i = 0; i < 1000; ++i) {
      builder.AddRow(rows[reversed ? 3 - i % 4 : i % 4]);
    }
    const kernels::MergedBlocks merged = builder.Build({true, true, true});
    EXPECT_EQ(merged.num_merged, 2);
    ASSERT_EQ(merged.families.size(), 6);
    EXPECT_EQ(merged.families[0].num_blocks, 0);
    EXPECT_EQ(merged.families[1].num_blocks, 0);
    EXPECT_EQ(merged.families[2].num_blocks, 1);
    EXPECT_EQ(merged.families[3].size, 3);  // intrinsics that no pose has
    EXPECT_EQ(merged.families[3].num_blocks, 3);
    EXPECT_EQ(merged.families[4].size, 6);  // poses of one camera
    EXPECT_EQ(merged.families[4].num_blocks, 2);
    EXPECT_EQ(merged.families[5].size, 9);
    EXPECT_EQ(merged.families[5].num_blocks, 2);
    EXPECT_EQ(merged.ColumnBegin({5, 1}), 3 * 3 + 2 * 6 + 9);
    EXPECT_EQ(merged.column[merged.ColumnBegin({5, 1})], 6);
    EXPECT_EQ(merged.column[merged.ColumnBegin({5, 1}) + 6], 4 * 6 + 3);
    // Poses stay out, and no other block has a partner.
    EXPECT_TRUE(builder.Build({false, true, true}).empty());
  }
}

TEST(BlockRowsBuilder, RefusesWhatIsNoRow) {
  kernels::BlockFamilies e;
  kernels::BlockFamilies f;
  e.Add(3, 2);
  f.Add(6, 1);
  const auto build = [&](std::vector<kernels::BlockRowsBuilder::Cell> cells) {
    kernels::BlockRowsBuilder builder(e, f);
    builder.AddRow(1);
    builder.AddRow(2);
    for (const auto& cell : cells) {
      builder.AddCell(cell);
    }
    return builder.Build().message;
  };
  EXPECT_EQ(build({{true, 0, 0, 3}, {false, 0, 0, 6}}), "");
  EXPECT_EQ(build({{true, 0, 0, 3}, {true, 0, 1, 3}}),
            "Row 1 has two eliminated blocks.");
  EXPECT_EQ(build({{false, 0, 1, 6}}),
            "Row 1 has a cell of block 1 with 6 columns, which family 0 "
            "doesn't have.");
  EXPECT_EQ(build({{false, 0, 0, 7}}),
            "Row 1 has a cell of block 0 with 7 columns, which family 0 "
            "doesn't have.");
  e.Add(1, 3);
  EXPECT_EQ(build({{true, 1, 0, 1, true}, {true, 0, 0, 3}}), "");
  EXPECT_EQ(build({{true, 1, 0, 1, true}, {true, 1, 1, 1, true}}),
            "Row 1 has two private blocks.");
  EXPECT_EQ(build({{true, 0, 0, 3, true}}),
            "Row 1 has a cell of block 0 with 3 columns, which family 0 "
            "doesn't have.");
  e.Add(16, 1);
  EXPECT_EQ(build({{true, 2, 0, 16}}), "");
  e.Add(17, 1);
  EXPECT_EQ(build({}),
            "An eliminated block has 17 columns, at most 16 are supported.");
}

// The private cell comes last, the eliminated one first.
TEST(BlockRowsBuilder, PutsPrivateCellsLast) {
  kernels::BlockFamilies e;
  kernels::BlockFamilies f;
  e.Add(3, 2);
  e.Add(1, 4);
  f.Add(6, 1);
  kernels::BlockRowsBuilder builder(e, f);
  builder.AddRow(2);
  builder.AddCell({false, 0, 0, 6});
  builder.AddRow(3);
  builder.AddCell({true, 1, 2, 1, true});
  builder.AddCell({false, 0, 0, 6});
  builder.AddCell({true, 0, 1, 3});
  ASSERT_TRUE(builder.Build().ok());
  EXPECT_EQ(builder.row_order(), (std::vector<int32_t>{1, 0}));
  ASSERT_EQ(builder.cells().size(), 4u);
  EXPECT_EQ(builder.cells()[0].eliminated, 1);
  EXPECT_EQ(builder.cells()[1].eliminated, 0);
  EXPECT_EQ(builder.cells()[2].eliminated, kernels::kPrivateCell);
  EXPECT_EQ(builder.cells()[2].value, 3 * (3 + 6));
  EXPECT_EQ(builder.num_values(), 3 * (3 + 6 + 1) + 2 * 6);
  EXPECT_EQ(builder.private_family(), 1);
  ASSERT_EQ(builder.private_cells().size(), 2u);
  EXPECT_EQ(builder.private_cells()[0].value, 3 * (3 + 6));
  EXPECT_EQ(builder.private_cells()[0].column, 6 + 2);
  EXPECT_EQ(builder.private_cells()[0].block, 2);
  EXPECT_EQ(builder.private_cells()[1].column, -1);
  ASSERT_EQ(builder.e_lists().size(), 1u);
  EXPECT_EQ(builder.e_lists()[0].family, 0);
}

// c and 1 / h to four roundings of the root that loses no digits, however small
// d is beside a.
TEST(EliminatePrivate, FactorsAreExact) {
  for (const double squares : {0.0, 1e-300, 1e-20, 1.0, 3.0, 1e20}) {
    for (const double d : {0.0, 1e-150, 1e-9, 1.0, 7.0, 1e9}) {
      const kernels::PrivateFactors found =
          kernels::EliminatePrivate(squares, d);
      const long double h =
          static_cast<long double>(squares) + static_cast<long double>(d) * d;
      if (h == 0.0L) {
        EXPECT_EQ(found.c, 0.0);
        EXPECT_EQ(found.h_inverse, 1.0);
        continue;
      }
      const long double q = d / std::sqrt(h);
      const long double c = 1.0L / (h * (1.0L + q));
      EXPECT_NEAR(found.h_inverse * h, 1.0L, 4 * kEpsilon);
      EXPECT_NEAR(found.c / c, 1.0L, 8 * kEpsilon);
      // L L = P on a: (1 - c a'a)^2 = d^2 / h.
      const long double on_a = 1.0L - c * squares;
      EXPECT_NEAR(on_a, q, 1e-18L * 100);
    }
  }
}

TEST(BlockRowsBuilder, KeepsTheColumnsOfWideBlocks) {
  for (const int columns : {32767, 32768, 65536, 70000}) {
    const kernels::BlockFamilies e;
    kernels::BlockFamilies f;
    f.Add(columns, 3);
    EXPECT_EQ(f.num_packed(), int64_t{3} * columns * (columns + 1) / 2);
    kernels::BlockRowsBuilder builder(e, f);
    builder.AddRow(2);
    builder.AddCell({false, 0, 2, columns});
    const kernels::Status status = builder.Build();
    if (columns == 32767) {
      ASSERT_TRUE(status.ok()) << status.message;
      ASSERT_EQ(builder.cells().size(), 1u);
      EXPECT_EQ(builder.cells()[0].size, columns);
      EXPECT_EQ(builder.cells()[0].column, 2 * columns);
    } else {
      EXPECT_EQ(status.code, kernels::StatusCode::kUnsupported);
      EXPECT_EQ(status.message,
                "A block has " + std::to_string(columns) +
                    " columns, at most 32767 are supported.");
    }
  }
}

// Pairs of an eliminated block, and crossings of two wide ones, whose elements
// are more than a packed matrix of int has.
TEST(SchurPairsBuilder, CountsTheElementsOfWideBlocks) {
  constexpr int kColumns = 1 << 14;
  kernels::BlockFamilies e;
  kernels::BlockFamilies f;
  e.Add(6, 1);
  f.Add(kColumns, 2);
  kernels::SchurPairsBuilder builder(e, f, 1);
  builder.AddRow(0, 0, {0, 0}, {{0, 0, 1, kColumns}, {0, 1, 2, kColumns}});
  ASSERT_TRUE(builder.Build().ok());
  EXPECT_EQ(builder.w_families().num_values(), int64_t{2} * 6 * kColumns);
  EXPECT_EQ(builder.crossing_families().num_values(),
            int64_t{kColumns} * kColumns);
}

#endif  // CERES_EXT_TEST_ON_CUDA

}  // namespace
}  // namespace ceres_ext::solver
