// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The terms of the Schur complement of any rows, beside its diagonal blocks. A
// *pair* is an eliminated block and an F block that stand together in rows,
// with W = F'E summed over these. Then
//
//   S_ij = U_ij - sum over eliminated blocks p of W_ip Vi_p W_jp'     i > j
//
// where U_ij = F_i'F_j is summed over rows of both: a *crossing*.
//
//   SchurPairsBuilder builder(e_families, f_families, num_batches);
//   builder.AddRow(batch, row, e, cells);   // for each row
//   Status status = builder.Build();
//   PairIndex<Machine> index;               // of each family of E
//   if (status.ok()) status = index.Setup(builder.pairs(family), &machine);
//
// The pairs of a family of E are an index of observations with F blocks instead
// of cameras, so that couplings (coupling_index.h) work on them unchanged.
// Blocks of F are counted through, family by family.
#ifndef CERES_EXT_CUDA_KERNELS_STRUCTURE_SCHUR_PAIRS_H_
#define CERES_EXT_CUDA_KERNELS_STRUCTURE_SCHUR_PAIRS_H_

#include <cstdint>
#include <type_traits>
#include <vector>

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/machine/host_context.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/structure/block_families.h"
#include "cuda_kernels/structure/block_rows.h"
#include "cuda_kernels/structure/coupling_index.h"
#include "cuda_kernels/structure/cuda_coupling_index.h"
#include "cuda_kernels/structure/observation_index.h"
#include "cuda_kernels/structure/schur_matrix.h"

namespace ceres_ext::kernels {

template <typename Machine>
using CouplingIndexOf =
    std::conditional_t<std::is_base_of_v<HostMachine, Machine>,
                       CouplingIndex,
                       CudaCouplingIndex>;

class SchurPairsBuilder {
 public:
  // The eliminated block of a row; family below 0: it has none.
  struct Eliminated {
    int32_t family = -1;
    int32_t block = 0;
  };
  // An F block of a row, with columns. value: where they are, in words of the
  // batch (ops/schur_terms.h), below 2^31.
  struct Cell {
    int32_t family = 0;
    int32_t block = 0;
    int32_t value = 0;
    int32_t size = 0;
  };
  // The pairs of a family of E, in the order of its blocks and of F's.
  struct Pairs {
    int32_t e_size = 0;
    std::vector<int64_t> point_begin;   // num E blocks + 1
    std::vector<int32_t> f_block;       // of each pair
    std::vector<int32_t> e_block;       // of each pair
    std::vector<int64_t> camera_begin;  // num F blocks + 1
    std::vector<int32_t> camera_entry;  // of each pair
    std::vector<int64_t> w_begin;       // of each pair, in values of W
  };
  // The crossings of two families of F, in the order of their blocks.
  struct Crossings {
    int32_t columns = 0;          // of j
    std::vector<int32_t> row;     // i
    std::vector<int32_t> column;  // j
    std::vector<int64_t> place;   // in blocks()
  };

  SchurPairsBuilder(const BlockFamilies& e,
                    const BlockFamilies& f,
                    int num_batches)
      : e_(e), f_(f), batches_(static_cast<size_t>(num_batches)) {
    for (int32_t first = 0, i = 0; i < f.size(); ++i) {
      first_block_.push_back(first);
      first += f[i].num_blocks;
      family_of_.resize(static_cast<size_t>(first), i);
    }
    pair_parts_.resize(static_cast<size_t>(e.size()));
  }

  // Room for so many more rows of at most num_cells cells, with blocks of a
  // family of E.
  void Reserve(int e_family, int64_t num_rows, int64_t num_cells);
  // Rows of a batch in ascending order; the cells of one are of several blocks.
  void AddRow(int batch,
              int32_t row,
              const Eliminated& e,
              const std::vector<Cell>& cells);
  // With the threads of *context if that is not null. kUnsupported: 2^31 pairs.
  Status Build(HostContext* context = nullptr);

  // After Build: the memory of PairIndex, the lists and vectors of W, W Vi and
  // crossings on a device, within a few per cent. *build_bytes: beside that,
  // while PairIndex is set up.
  int64_t ForecastBytes(int64_t* build_bytes) const;
  // The same without couplings and W Vi, and nothing beside it.
  int64_t ForecastBytesOfW() const;

  // After Build, of one E family; empty if it has no pairs.
  const Pairs& pairs(int e_family) const { return pairs_[e_family]; }
  // W of all, row-major, and the blocks of crossings: vectors over these.
  const BlockFamilies& w_families() const { return w_families_; }
  const BlockFamilies& crossing_families() const { return crossing_families_; }
  // For each family of crossings.
  const std::vector<Crossings>& crossings() const { return crossings_; }
  // All crossings as blocks of S.
  const SchurBlockList& blocks() const { return blocks_; }
  // The part of a batch in each, for BlockSums: a cell of a pair has its row,
  // the value and the size of the F cell; that of a crossing has both values as
  // CrossingValue packs them, and as its size the columns of j's family.
  const std::vector<BlockList>& pair_lists(int batch) const {
    return batches_[batch].pair_lists;
  }
  const std::vector<BlockList>& crossing_lists(int batch) const {
    return batches_[batch].crossing_lists;
  }

 private:
  // One row's part of a pair or crossing.
  struct Part {
    uint64_t key;
    int64_t value;
    int32_t batch;
    int32_t row;
    int32_t size;
  };
  struct BatchLists {
    std::vector<FamilyCell> pair_cells;
    std::vector<FamilyCell> crossing_cells;
    std::vector<BlockList> pair_lists;
    std::vector<BlockList> crossing_lists;
  };

  int32_t NumFBlocks() const { return static_cast<int32_t>(family_of_.size()); }
  int FamilyOf(int32_t f_block) const { return family_of_[f_block]; }
  Status BuildAllPairs();
  Status BuildPairs(int e_family);
  Status BuildCrossings();
  int64_t ListBytes() const;  // of all batches

  const BlockFamilies e_;
  const BlockFamilies f_;
  std::vector<int32_t> first_block_;
  std::vector<int> family_of_;  // of each F block
  std::vector<BatchLists> batches_;
  std::vector<std::vector<Part>> pair_parts_;  // of each E family
  std::vector<Part> crossing_parts_;
  std::vector<Pairs> pairs_;
  std::vector<Crossings> crossings_;
  SchurBlockList blocks_;
  BlockFamilies w_families_;
  BlockFamilies crossing_families_;
};

// The value of a cell of a crossing: those of i and j.
CERES_EXT_HOST_DEVICE inline int64_t CrossingValue(int32_t i, int32_t j) {
  return int64_t{i} << 32 | j;
}

// Pairs in the memory of a machine, with their couplings.
template <typename Machine>
class PairIndex {
 public:
  // Valid until the next Setup or the end of the object.
  struct View {
    int32_t e_size = 0;
    const int64_t* w_begin = nullptr;
    ObservationIndexRef index;  // of pairs; without a workspace
    CouplingIndexRef couplings;
  };

  // with_couplings: else the view has none.
  Status Setup(const SchurPairsBuilder::Pairs& pairs,
               Machine* machine,
               bool with_couplings = true) {
    CERES_EXT_RETURN_IF_ERROR(
        machine->Upload(pairs.point_begin, &point_begin_));
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(pairs.f_block, &f_block_));
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(pairs.e_block, &e_block_));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Upload(pairs.camera_begin, &camera_begin_));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Upload(pairs.camera_entry, &camera_entry_));
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(pairs.w_begin, &w_begin_));
    view_.e_size = pairs.e_size;
    view_.w_begin = w_begin_.data();
    view_.index.num_cameras =
        static_cast<int32_t>(pairs.camera_begin.size()) - 1;
    view_.index.num_points = static_cast<int32_t>(pairs.point_begin.size()) - 1;
    view_.index.num_observations = static_cast<int64_t>(pairs.f_block.size());
    view_.index.point_begin = point_begin_.data();
    view_.index.camera_id = f_block_.data();
    view_.index.point_id = e_block_.data();
    view_.index.camera_begin = camera_begin_.data();
    view_.index.camera_entry = camera_entry_.data();
    if (!with_couplings) {
      return {};
    }
    CERES_EXT_RETURN_IF_ERROR(couplings_.Build(
        view_.index,
        std::is_base_of_v<HostMachine, Machine> ? CouplingList::kBlocks
                                                : CouplingList::kObservations,
        machine));
    view_.couplings = couplings_.ref();
    return {};
  }
  const View& ref() const { return view_; }

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  View view_;
  Buffer<int64_t> point_begin_;
  Buffer<int32_t> f_block_;
  Buffer<int32_t> e_block_;
  Buffer<int64_t> camera_begin_;
  Buffer<int32_t> camera_entry_;
  Buffer<int64_t> w_begin_;
  CouplingIndexOf<Machine> couplings_;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_STRUCTURE_SCHUR_PAIRS_H_
