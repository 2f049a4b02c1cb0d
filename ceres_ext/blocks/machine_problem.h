// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// State that evaluator, Jacobian, linear solver and loop vectors of one solve
// share: the families of parameter blocks and their places in Ceres's vectors,
// the index of each batch, and the machine (machines.h) whose memory holds
// both.
//
// In this folder an address of a vector of Ceres's loop (state, step, gradient,
// residuals, ...) is one of the machine's memory.

#ifndef CERES_EXT_BLOCKS_MACHINE_PROBLEM_H_
#define CERES_EXT_BLOCKS_MACHINE_PROBLEM_H_

#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "ceres_ext/import/block_table.h"
#include "ceres_ext/import/import_rows.h"
#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/rank_sums.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_context.h"
#include "cuda_kernels/ops/block_table.h"
#include "cuda_kernels/ops/views.h"
#include "cuda_kernels/structure/block_rows.h"
#include "cuda_kernels/structure/observation_index.h"
#include "cuda_kernels/structure/row_index.h"
#include "cuda_kernels/structure/views.h"

namespace ceres_ext {

// A family of blocks: where they stand, on the host and on a machine.
template <typename Machine>
class FamilyTable {
 public:
  kernels::Status Setup(BlockTable table, Machine* machine);
  const BlockTable& table() const { return table_; }
  const kernels::BlockTableRef& ref() const { return view_; }

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  BlockTable table_;
  kernels::BlockTableRef view_;
  Buffer<int32_t> tangent_offset_;
  Buffer<int32_t> tangent_size_;
  Buffer<int32_t> state_offset_;
  Buffer<double> constant_values_;
  Buffer<uint8_t> held_;
};

// The index of a batch of observations or of the rows of views, for solves one
// after the other whose rows name the same blocks.
template <typename Machine>
struct KeptIndex {
  // Its inputs: index_hash of ObservationTable or ViewStructure, sizes, and the
  // properties that decide its tiles. 0: of nothing.
  uint64_t hash = 0;
  kernels::ObservationPairs sizes;
  bool recomputed = false;
  bool mixed = false;
  int max_columns = 0;
  std::shared_ptr<kernels::RowIndex<Machine>> row_index;
  std::vector<int32_t> point_order;

  // True if it is of these inputs.
  bool IsOf(const KeptIndex& inputs) const {
    return hash == inputs.hash && recomputed == inputs.recomputed &&
           mixed == inputs.mixed && max_columns == inputs.max_columns &&
           sizes.num_cameras == inputs.sizes.num_cameras &&
           sizes.num_points == inputs.sizes.num_points &&
           sizes.num_observations == inputs.sizes.num_observations;
  }
};

// The index of one batch of observations, or of the rows of views, with its
// families. In the index, views replace cameras.
template <typename Machine>
struct ObservationBlocks {
  Machine* machine = nullptr;
  std::shared_ptr<kernels::RowIndex<Machine>> row_index;
  const FamilyTable<Machine>* point_family_table = nullptr;
  // For observations.
  int camera_family = 0;
  const FamilyTable<Machine>* camera_family_table = nullptr;
  // For rows of views: the order of their columns, and for each view its
  // columns in Ceres's tangent vector.
  kernels::Views<Machine> views;
  typename Machine::template Buffer<kernels::ViewColumn> columns;
  std::vector<std::vector<int>> view_columns;
  // The family of the rows' private blocks, and each row's place in it, -1 for
  // none.
  int private_family = -1;
  const FamilyTable<Machine>* private_family_table = nullptr;
  typename Machine::template Buffer<int32_t> private_place;
  // For observations: room for 3 values per point during an evaluation.
  double* working_points = nullptr;

  const kernels::ObservationIndexRef& index() const { return row_index->ref(); }
  const BlockTable& cameras() const { return camera_family_table->table(); }
  const BlockTable& points() const { return point_family_table->table(); }
  const kernels::BlockTableRef& camera_table() const {
    return camera_family_table->ref();
  }
  const kernels::BlockTableRef& point_table() const {
    return point_family_table->ref();
  }
  // The columns of Ceres's tangent vector of a camera or view.
  std::vector<int> Columns(int32_t camera) const {
    if (camera_family_table == nullptr) {
      return view_columns[camera];
    }
    std::vector<int> of_camera(cameras().tangent_size(camera));
    std::iota(
        of_camera.begin(), of_camera.end(), cameras().tangent_offset(camera));
    return of_camera;
  }
};

template <typename Machine>
class MachineProblem {
 public:
  using Index = kernels::RowIndex<Machine>;

  // Takes the tables of *structure and brings the points of observations into
  // the order that the machine wants; observations keep theirs. merge_blocks: F
  // blocks that occur only together are merged. recomputed, mixed: of
  // observations, what RowIndex's Options::For asks; with `recomputed`, what
  // subset manifolds of points keep constant is held (block_table.h).
  // kept_index: where a batch of observations finds and leaves its index if it
  // is the only batch, or rows of views if there are no observations; or null.
  // host_context: threads for what is put in order
  // on the host.
  kernels::Status Setup(bool merge_blocks,
                        ProblemStructure* structure,
                        bool recomputed,
                        bool mixed,
                        KeptIndex<Machine>* kept_index,
                        kernels::HostContext* host_context,
                        Machine* machine);

  // Once, if several ranks solve; *ranks outlives the problem.
  void SetRanks(solver::RankSums<Machine>* ranks) { ranks_ = ranks; }
  solver::RankSums<Machine>* ranks() const { return ranks_; }

  Machine* machine() const { return machine_; }
  const solver::ProblemBlocks& blocks() const { return blocks_; }
  const std::vector<FamilyTable<Machine>>& e() const { return e_; }
  const std::vector<FamilyTable<Machine>>& f() const { return f_; }
  const ObservationBlocks<Machine>& observations(int batch) const {
    return *observations_[batch];
  }
  int num_observation_batches() const {
    return static_cast<int>(observations_.size());
  }
  // Null: no row has a view.
  const ObservationBlocks<Machine>* views() const { return views_.get(); }

  // Rows of any shape, in the order of their index; null: none.
  const kernels::BlockRowsBuilder* general_rows() const {
    return builder_.get();
  }
  const kernels::BlockRows<Machine>* rows() const { return &rows_; }

  // Sizes of Ceres's tangent, state and residual vectors.
  int num_columns() const { return num_columns_; }
  int num_parameters() const { return num_parameters_; }
  int num_residuals() const { return num_residuals_; }

  // Vectors over families that evaluator, Jacobian and linear solver share:
  // each call of one of them begins with values of its own.
  struct Working {
    double* e = nullptr;
    double* f = nullptr;
  };
  // Gradient of an evaluation, vectors of a product with J, step of a solve.
  Working working() const { return working_[0]; }
  // Damping of a solve; the points of an evaluation (working_points).
  Working working_diagonal() const { return working_[1]; }

  // Family vectors = Ceres's vector (null: zero), `padding` where it has no
  // value; and back.
  kernels::Status Gather(const double* vector,
                         double padding,
                         double* e,
                         double* f) const;
  kernels::Status Scatter(const double* e,
                          const double* f,
                          double* vector) const;

  // f = the sum of f over all ranks, a vector over the F families.
  kernels::Status SumOverRanks(double* f) const {
    return ranks_ == nullptr ? kernels::Status()
                             : ranks_->Sum(blocks_.f.num_values(), f);
  }
  // Family vectors = 0 in the families that no batch owns, where all add.
  kernels::Status SetSharedToZero(double* e, double* f) const;

 private:
  using Buffer = typename Machine::template Buffer<double>;

  // Makes the index of the rows of a batch, or takes the one that was kept, and
  // brings the points into its order. The first batch decides that. inputs: as
  // KeptIndex has them; kept_index may be null.
  kernels::Status SetupIndex(const KeptIndex<Machine>& inputs,
                             typename Index::Options index_options,
                             KeptIndex<Machine>* kept_index,
                             kernels::HostContext* host_context,
                             ProblemStructure* structure,
                             ObservationBlocks<Machine>* batch);
  // Fills blocks_.merged.
  void MergeBlocks(const ProblemStructure& structure);
  kernels::Status SetupViews(ProblemStructure* structure,
                             KeptIndex<Machine>* kept_index,
                             kernels::HostContext* host_context);
  // Fills private_family and private_place of the views.
  kernels::Status SetupPrivate(const ProblemStructure& structure,
                               kernels::HostContext* host_context);
  kernels::Status SetupGeneralRows(const ProblemStructure& structure);

  // Calls fn(table, address of the family's part of a vector) for all families.
  template <typename E, typename F, typename Function>
  kernels::Status ForEachFamily(E* e, F* f, Function&& fn) const;

  Machine* machine_ = nullptr;
  solver::RankSums<Machine>* ranks_ = nullptr;  // null: there is one rank
  solver::ProblemBlocks blocks_;
  std::vector<FamilyTable<Machine>> e_;
  std::vector<FamilyTable<Machine>> f_;
  std::vector<std::unique_ptr<ObservationBlocks<Machine>>> observations_;
  std::unique_ptr<ObservationBlocks<Machine>> views_;
  std::unique_ptr<kernels::BlockRowsBuilder> builder_;
  kernels::BlockRows<Machine> rows_;
  Buffer working_values_[4];
  Working working_[2];
  int num_columns_ = 0;
  int num_parameters_ = 0;
  int num_residuals_ = 0;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_BLOCKS_MACHINE_PROBLEM_H_
