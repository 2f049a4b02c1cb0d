// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Problems of random structure against dense Eigen: rows of 1 to 16 residuals,
// eliminated blocks of 1 to 6 columns or none, up to 5 other blocks of 1 to 16
// columns, repeated pairs, constant blocks, blocks with fewer columns than
// their family, blocks that nobody sees, beside batches of observations that
// have the eliminated blocks to themselves or share them.
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
#include "ceres_ext/solver/general_batch.h"
#include "ceres_ext/solver/linear_operator.h"
#include "ceres_ext/solver/observation_batch.h"
#include "ceres_ext/solver/preconditioner.h"
#include "ceres_ext/solver/step_solver.h"
#include "ceres_ext/solver/view_batch.h"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/structure/block_rows.h"
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
// Fewer where the environment says so, as under a sanitizer.
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
struct ViewRows {
  std::vector<std::vector<kernels::ViewCell>> cells;
  std::vector<int32_t> view;
  std::vector<int32_t> point;
};

class Problem {
 public:
  explicit Problem(unsigned seed) : random_(seed) {
    const int num_observation_batches = Uniform(0, 3) == 0 ? 2 : Uniform(0, 1);
    const bool has_views = Uniform(0, 2) == 0;
    const bool has_points = num_observation_batches > 0 || has_views;
    const bool has_general = !has_points || Uniform(0, 3) > 0;
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
      AddViewRows();
    }
    if (has_general) {
      AddGeneralRows(has_points);
    }
    SetOwners();
    FillValues();
  }

  ProblemBlocks blocks;
  std::vector<Pairs> observations;
  ViewRows views;
  std::vector<Row> rows;
  std::unique_ptr<kernels::BlockRowsBuilder> builder;
  std::vector<double> general_values;
  // Blocks of J of observation k: 2 x F, then 2 x 3, row-major; those of rows
  // of views, 2 x kViewColumns, are the last ones.
  std::vector<std::vector<double>> camera_blocks;
  std::vector<std::vector<double>> point_blocks;
  // Columns [E F]; rows of observations in the callers' order, then general
  // rows in the builder's.
  MatrixXd J;
  VectorXd b;
  VectorXd D;

  int64_t num_e() const { return blocks.e.num_values(); }
  int64_t num_f() const { return blocks.f.num_values(); }
  static constexpr int kViewColumns = 9;
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

  void AddViewRows() {
    const int first = blocks.f.size();
    const int num_families = Uniform(1, 3);
    for (int i = 0; i < num_families; ++i) {
      AddFamily(false, Uniform(1, 5), Uniform(1, 4), true);
    }
    const int num_views = Uniform(1, 6);
    for (int v = 0; v < num_views; ++v) {
      views.cells.emplace_back();
      int columns = 0;
      for (int f = first; f < blocks.f.size(); ++f) {
        const int block = Below(blocks.f[f].num_blocks);
        const int size = f_columns_[f][block];
        if (size > 0 && columns + size <= kViewColumns && Uniform(0, 5) > 0) {
          views.cells.back().push_back({f, block, size});
          columns += size;
        }
      }
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
      AddFamily(true, Uniform(1, 6), Uniform(0, 8), true);
    }
    const int num_f_families = Uniform(blocks.f.size() == 0 ? 1 : 0, 4);
    for (int i = 0; i < num_f_families; ++i) {
      AddFamily(false, Uniform(1, 16), Uniform(1, 5), true);
    }
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

  void AddCell(bool eliminated, int family, Row* row) {
    const auto& families = eliminated ? blocks.e : blocks.f;
    if (families[family].num_blocks == 0) {
      return;
    }
    const int block = Below(families[family].num_blocks);
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
        others |= cell.eliminated && cell.family == 0;
      }
    }
    if (!others) {
      blocks.e_owner[0] = 0;
    }
  }

  void FillValues() {
    builder = std::make_unique<kernels::BlockRowsBuilder>(blocks.e, blocks.f);
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
      camera_blocks.emplace_back(2 * kViewColumns * views.view.size(), 0.0);
      point_blocks.emplace_back();
      for (size_t k = 0; k < views.view.size(); ++k) {
        for (int i = 0; i < 2; ++i, ++at) {
          double* f = &camera_blocks.back()[kViewColumns * (2 * k + i)];
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
        for (int i = 0; i < num_residuals; ++i) {
          for (int j = 0; j < cell.size; ++j) {
            const double value = Normal();
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
      CERES_EXT_RETURN_IF_ERROR(AddViews(problem, at, &b));
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

  kernels::Status AddViews(const Problem& problem,
                           int64_t first_row,
                           VectorXd* b) {
    constexpr int C = Problem::kViewColumns;
    using Source =
        kernels::StoredJacobian<double, kernels::BalShape<C>, Machine::kLayout>;
    const ViewRows& rows = problem.views;
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
    const kernels::ObservationIndexView& index = indices_.back()->view();
    const int64_t n = index.num_observations;
    std::vector<int32_t> view(n);
    std::vector<int32_t> point(n);
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Download(n, index.camera_id, view.data()));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Download(n, index.point_id, point.data()));
    CERES_EXT_RETURN_IF_ERROR(
        views_.Setup(problem.blocks.f,
                     C,
                     rows.cells,
                     view,
                     std::vector<int64_t>(point.begin(), point.end()),
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
    batch->Setup(indices_.back()->view(), 0, pairs.f_family, machine_);
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
    CERES_EXT_RETURN_IF_ERROR(
        indices_.back()->Setup({num_cameras,
                                problem.blocks.e[0].num_blocks,
                                n,
                                camera.data(),
                                point.data()},
                               options,
                               nullptr,
                               machine_));
    const kernels::ObservationIndexView& index = indices_.back()->view();
    std::vector<int32_t> input(n);
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Download(n, index.input_id(), input.data()));
    std::vector<double> jc(2 * C * n);
    std::vector<double> jp(6 * n);
    const kernels::BlockView<double, 2 * C, Machine::kLayout> camera_view{
        jc.data(), n};
    const kernels::BlockView<double, 6, Machine::kLayout> point_view{jp.data(),
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

class RandomStructures : public testing::Test {
 protected:
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

// S, its right-hand side, its diagonal blocks, U and products with it.
TEST_F(RandomStructures, SchurComplementIsTheDenseOne) {
  for (int seed = 0; seed < kNumProblems; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Problem problem(seed);
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
    const MatrixXd U = F.transpose() * F;
    const MatrixXd S = U - W * Vi_W;
    const VectorXd rhs = F.transpose() * problem.b -
                         W * V.llt().solve(E.transpose() * problem.b);
    // Sums over all residuals of values that are bounded by the largest of U,
    // through V^-1 whose condition is at most that of U's bound.
    const double scale =
        1.0 + (problem.J.transpose() * problem.J).cwiseAbs().maxCoeff();
    const double tolerance =
        4.0 * (problem.J.rows() + 50) * kEpsilon * scale * scale;

    const int64_t num_packed = problem.blocks.f.num_packed();
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
    struct Wanted {
      bool u;
      bool schur_diagonal;
    };
    for (const Wanted& asked : {Wanted{true, false},
                                Wanted{false, true},
                                Wanted{true, true},
                                Wanted{true, false}}) {
      InexactSolverOptions options;
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
      EXPECT_TRUE(Near(data.Download(num_f, machine_rhs), rhs, tolerance));
      ASSERT_TRUE(schur.Multiply(machine_p, q, nullptr).ok());
      MatrixXd damped = S;
      damped.diagonal() += D_f.cwiseAbs2();
      EXPECT_TRUE(Near(data.Download(num_f, q), damped * p, 4 * tolerance));
      const auto expect_diagonal = [&](const double* packed,
                                       const MatrixXd& expected) {
        int64_t at = 0;
        for (const MatrixXd& block :
             Blocks(problem.blocks.f, data.Download(num_packed, packed))) {
          const int64_t n = block.rows();
          EXPECT_TRUE(Near(block, expected.block(at, at, n, n), tolerance));
          at += n;
        }
      };
      if (asked.u) {
        expect_diagonal(u, U);
      }
      if (asked.schur_diagonal) {
        expect_diagonal(schur_diagonal, S);
      }
    }
  }
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
    const MatrixXd E = problem.J.leftCols(num_e);
    const MatrixXd F = problem.J.rightCols(num_f);
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

    InexactSolverOptions options;
    options.preconditioner = PreconditionerType::kSchurPowerSeriesExpansion;
    options.use_spse_initialization = true;
    options.max_num_spse_iterations = problem.Uniform(1, 6);
    options.spse_tolerance = 0.1 * problem.Uniform(0, 9);
    SchurComplement<Machine> schur;
    ASSERT_TRUE(
        schur.Setup(options, problem.blocks, data.batches, machine_.get())
            .ok());
    const auto series = CreatePreconditioner<Machine>(options, &schur);
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
  for (int seed = 0; seed < kNumProblems; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Problem problem(seed);
    OnMachine data(problem, machine_.get());
    const int64_t num_e = problem.num_e();
    const int64_t num_f = problem.num_f();
    MatrixXd A = problem.J.transpose() * problem.J;
    A.diagonal() += problem.D.cwiseAbs2();
    const VectorXd gradient = problem.J.transpose() * problem.b;
    const VectorXd step = A.llt().solve(gradient);
    const double norm = A.cwiseAbs().rowwise().sum().maxCoeff();
    const auto all = SolverConfigurations();
    const InexactSolverOptions options = [&] {
      InexactSolverOptions chosen = all[seed % all.size()];
      chosen.max_num_iterations = 2000;
      return chosen;
    }();
    SCOPED_TRACE(ConfigurationName(options));
    StepSolver<Machine> solver;
    const kernels::Status setup =
        solver.Setup(options, problem.blocks, data.batches, machine_.get());
    ASSERT_TRUE(setup.ok()) << setup.message;
    InexactSolverPerSolveOptions per_solve;
    per_solve.q_tolerance = -std::numeric_limits<double>::infinity();
    per_solve.r_tolerance = 1e-13;
    VectorXd first;
    for (int run = 0; run < 2; ++run) {
      const VectorXd poison =
          VectorXd::Constant(num_e + num_f + 1, std::nan(""));
      double* const e_step = data.Upload(poison);
      double* const f_step = data.Upload(poison);
      const InexactSolverSummary summary =
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
}

// J x, J'y and column norms, which the trust-region loop asks of batches.
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
  e.Add(7, 1);
  EXPECT_EQ(build({}),
            "An eliminated block has 7 columns, at most 6 are supported.");
}

}  // namespace
}  // namespace ceres_ext::solver
