// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Products with S and the blocks of the normal equations for rows of several
// shapes: observations with priors beside them, views, rows of any shape.
#ifndef CERES_EXT_BENCHMARKS_SHAPE_OPERATIONS_H_
#define CERES_EXT_BENCHMARKS_SHAPE_OPERATIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "benchmarks/benchmark_problems.h"
#include "benchmarks/operation_list.h"
#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/general_batch.h"
#include "ceres_ext/solver/observation_batch.h"
#include "ceres_ext/solver/operator/normal_matrix.h"
#include "ceres_ext/solver/operator/schur_complement.h"
#include "ceres_ext/solver/view_batch.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/structure/block_rows.h"
#include "cuda_kernels/structure/row_index.h"
#include "cuda_kernels/structure/views.h"

namespace ceres_ext {

// Values are random. Bytes: the values of rows, 4 B per block of a row, Vi and
// vectors.
template <typename Machine>
class ShapeBenchmark {
 public:
  ShapeBenchmark(const BenchmarkProblem& problem,
                 Machine* machine,
                 Report<Machine>* report)
      : problem_(problem),
        n_(static_cast<int64_t>(problem.camera.size())),
        machine_(machine),
        report_(report) {}

  void MeasureAll() {
    typename kernels::RowIndex<Machine>::Options options;
    options.max_columns = kernels::kMaxStoredColumns;
    OK_OR_EXIT(index_.Setup({problem_.num_cameras,
                             problem_.num_points,
                             n_,
                             problem_.camera.data(),
                             problem_.point.data()},
                            options,
                            nullptr,
                            machine_));
    for (const int num_priors : {0, 1, problem_.num_cameras}) {
      MeasureObservations(num_priors);
    }
    MeasureViews<double, 10>("6 + 4 shared", {{6, false}, {4, true}});
    MeasureViews<float, 10>("6 + 4 shared", {{6, false}, {4, true}});
    MeasureViews<double, 9>("6 + 3", {{6, false}, {3, false}});
    MeasureViews<double, 6>("6", {{6, false}});
    MeasureViews<double, 12>("6 + 6 shared", {{6, false}, {6, true}});
    MeasureViews<double, 14>("6 + 8 shared", {{6, false}, {8, true}});
    MeasureViews<float, 14>("6 + 8 shared", {{6, false}, {8, true}});
    MeasureViews<double, 16>("6 + 10 shared", {{6, false}, {10, true}});
    MeasureGeneral("6 + 4 shared", {{6, false}, {4, true}});
    MeasureGeneral("6 + 8 shared", {{6, false}, {8, true}});
    MeasureGeneral("3 + 3 + 4 shared", {{3, false}, {3, false}, {4, true}});
    MeasureGeneral("6 + 4", {{6, false}, {4, false}});
    MeasureGeneral("9", {{9, false}});
  }

 private:
  template <typename T, int C>
  using Stored =
      kernels::StoredJacobian<T, kernels::BalShape<C>, Machine::kLayout>;

  // A block of a row: its size, and whether all images share one.
  struct Slot {
    int size;
    bool is_shared;
  };

  template <typename T>
  static std::vector<T> Random(int64_t n) {
    std::vector<T> values(static_cast<size_t>(n));
    // Cheap: 130 million of them are asked for.
    uint64_t state = 88172645463325252ull;
    for (T& value : values) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      value = static_cast<T>(static_cast<double>(state >> 11) * 0x1p-52 - 1.0);
    }
    return values;
  }

  // The points; the F families and their owner are the caller's.
  solver::ProblemBlocks Points(int owner) const {
    solver::ProblemBlocks blocks;
    blocks.e.Add(3, problem_.num_points);
    blocks.e_owner = {owner};
    return blocks;
  }

  // Products with S and what is formed before, of all batches. row_bytes: what
  // the rows take.
  void Measure(const std::string& name,
               const solver::ProblemBlocks& blocks,
               const std::vector<solver::Batch*>& batches,
               double row_bytes) {
    int64_t num_residuals = 0;
    for (const solver::Batch* batch : batches) {
      num_residuals += batch->num_residuals();
    }
    Arrays<Machine> arrays(machine_);
    solver::LinearSystem system;
    system.b = arrays.Upload(Random<double>(num_residuals));
    system.e_diagonal =
        arrays.Upload(std::vector<double>(blocks.e.num_values(), 0.7));
    system.f_diagonal =
        arrays.Upload(std::vector<double>(blocks.f.num_values(), 0.7));
    const int64_t num_f = blocks.f.num_values();
    const double e_bytes =
        8.0 * (blocks.e.num_packed()) + 8.0 * blocks.e[0].num_blocks;
    double* const p = arrays.Upload(Random<double>(num_f));
    double* const q = arrays.template Allocate<double>(num_f);
    solver::NormalBlocksRequest wanted;
    wanted.schur_diagonal =
        arrays.template Allocate<double>(blocks.f.num_packed());
    solver::SchurComplement<Machine> schur;
    OK_OR_EXIT(schur.Setup({}, blocks, batches, machine_));
    OperationList<Machine> list(machine_);
    list.Add(name + ", V, rhs, S_c",
             row_bytes + 2.0 * e_bytes + 8.0 * num_residuals +
                 8.0 * blocks.f.num_packed(),
             [&] { return schur.Update(system, wanted, q); });
    list.Add(name + ", S p", row_bytes + e_bytes + 24.0 * num_f, [&] {
      return schur.Multiply(p, q, nullptr);
    });
    report_->Measure(list);
  }

  // Stored observations of nine columns, with a prior on each of the first
  // images.
  void MeasureObservations(int num_priors) {
    Arrays<Machine> arrays(machine_);
    solver::ProblemBlocks blocks = Points(0);
    blocks.f.Add(9, problem_.num_cameras);
    blocks.f_owner = {0};
    solver::ObservationBatch<Machine, Stored<double, 9>> batch;
    batch.Setup(index_.ref(), 0, 0, machine_);
    OK_OR_EXIT(batch.SetBlocks(blocks));
    batch.SetJacobian({{arrays.Upload(Random<double>(18 * n_)), n_},
                       {arrays.Upload(Random<double>(6 * n_)), n_}});
    kernels::BlockRowsBuilder builder(blocks.e, blocks.f);
    for (int i = 0; i < num_priors; ++i) {
      builder.AddRow(9);
      builder.AddCell({false, 0, i, 9});
    }
    OK_OR_EXIT(builder.Build());
    kernels::BlockRows<Machine> rows;
    OK_OR_EXIT(rows.Setup(builder, machine_));
    solver::GeneralBatch<Machine> priors;
    OK_OR_EXIT(priors.Setup(&rows,
                            blocks,
                            arrays.Upload(Random<double>(builder.num_values())),
                            machine_));
    std::vector<solver::Batch*> batches = {&batch};
    if (num_priors > 0) {
      batches.push_back(&priors);
    }
    Measure("9 observations, " + std::to_string(num_priors) + " priors",
            blocks,
            batches,
            (8.0 * 24 + 8.0) * n_ + 8.0 * builder.num_values());
  }

  // Rows of views in T, C columns with those that are padded.
  template <typename T, int C>
  void MeasureViews(const std::string& name, const std::vector<Slot>& slots) {
    Arrays<Machine> arrays(machine_);
    solver::ProblemBlocks blocks = Points(0);
    std::vector<std::vector<kernels::ViewCell>> cells(problem_.num_cameras);
    int columns = 0;
    for (const Slot& slot : slots) {
      columns += slot.size;
      const int f =
          blocks.f.Add(slot.size, slot.is_shared ? 1 : problem_.num_cameras);
      blocks.f_owner.push_back(solver::ProblemBlocks::kShared);
      for (int v = 0; v < problem_.num_cameras; ++v) {
        cells[v].push_back({f, slot.is_shared ? 0 : v, slot.size});
      }
    }
    kernels::Views<Machine> views;
    OK_OR_EXIT(
        views.Setup(blocks.f, blocks.merged, C, cells, index_.ref(), machine_));
    const Stored<T, C> jacobian{{arrays.Upload(Random<T>(2 * C * n_)), n_},
                                {arrays.Upload(Random<T>(6 * n_)), n_}};
    solver::ViewBatch<Machine, Stored<T, C>> batch;
    OK_OR_EXIT(
        batch.Setup(index_.ref(), &views, 0, blocks, jacobian, machine_));
    Measure("views of 3, " + name + (sizeof(T) == 4 ? ", float" : ""),
            blocks,
            {&batch},
            static_cast<double>(sizeof(T)) * (2 * columns + 6) * n_ + 8.0 * n_);
  }

  void MeasureGeneral(const std::string& name, const std::vector<Slot>& slots) {
    Arrays<Machine> arrays(machine_);
    solver::ProblemBlocks blocks = Points(solver::ProblemBlocks::kShared);
    for (const Slot& slot : slots) {
      blocks.f.Add(slot.size, slot.is_shared ? 1 : problem_.num_cameras);
      blocks.f_owner.push_back(solver::ProblemBlocks::kShared);
    }
    kernels::BlockRowsBuilder builder(blocks.e, blocks.f);
    builder.Reserve(n_, n_ * static_cast<int64_t>(slots.size() + 1));
    for (int64_t k = 0; k < n_; ++k) {
      builder.AddRow(2);
      builder.AddCell({true, 0, problem_.point[k], 3});
      for (size_t s = 0; s < slots.size(); ++s) {
        builder.AddCell({false,
                         static_cast<int32_t>(s),
                         slots[s].is_shared ? 0 : problem_.camera[k],
                         slots[s].size});
      }
    }
    OK_OR_EXIT(builder.Build());
    kernels::BlockRows<Machine> rows;
    OK_OR_EXIT(rows.Setup(builder, machine_));
    solver::GeneralBatch<Machine> batch;
    OK_OR_EXIT(batch.Setup(&rows,
                           blocks,
                           arrays.Upload(Random<double>(builder.num_values())),
                           machine_));
    Measure("general 3, " + name,
            blocks,
            {&batch},
            8.0 * builder.num_values() +
                4.0 * (slots.size() + 1) * static_cast<double>(n_));
  }

  const BenchmarkProblem& problem_;
  const int64_t n_;
  Machine* machine_;
  Report<Machine>* report_;
  kernels::RowIndex<Machine> index_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_BENCHMARKS_SHAPE_OPERATIONS_H_
