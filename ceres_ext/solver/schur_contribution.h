// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The contribution of a batch to S as a matrix (explicit_schur.h): it writes
// blocks of S, or lists its rows.
#ifndef CERES_EXT_SOLVER_SCHUR_CONTRIBUTION_H_
#define CERES_EXT_SOLVER_SCHUR_CONTRIBUTION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/cluster_vectors.h"
#include "cuda_kernels/structure/observation_index.h"
#include "cuda_kernels/structure/schur_matrix.h"
#include "cuda_kernels/structure/schur_pairs.h"

namespace ceres_ext::solver {

// S as a matrix, of what a batch that owns its E family writes of it
// (ops/schur_complement.h). Arrays over families.
struct SchurBlocksRequest {
  const double* v_inverse = nullptr;
  const double* schur_diagonal = nullptr;
  const double* f_diagonal = nullptr;  // D_f; null: zero
  kernels::SchurUnknownsRef unknowns;  // of the batch's F family
  kernels::SchurTarget target;         // with the list of the batch's blocks
};

// For clusters of F blocks, in host memory; the rest is in the machine's.
struct SplitRequest {
  // For each value of F its cluster; -1 if it is not an unknown.
  const std::vector<int32_t>* cluster = nullptr;
  const double* e_diagonal = nullptr;  // D_e; null: zero
  // Not null, of the only family of F: S is written to these, in the machine's
  // memory, one of each two elements beside the diagonal. In host memory:
  // where the rows of N begin, and their places, for each value of F.
  const kernels::ClusterMatricesRef* matrices = nullptr;
  const std::vector<int64_t>* row_begin = nullptr;
  const std::vector<int32_t>* place = nullptr;
};
// S of a split problem (split_schur.h), of the rows of a batch, in host memory:
// the lower triangle in compressed sparse rows of blocks, as SchurCsr has it.
struct SplitSchur {
  std::vector<int32_t> begin;   // of each block's unknowns
  std::vector<int64_t> column;  // of each unknown its place in F
  std::vector<int64_t> block_begin;
  std::vector<int32_t> block_column;
  std::vector<int64_t> row_begin;
  kernels::HostBuffer<double> values;
  double scale = 1.0;  // by which the values are those of all rows

  // fn(column in F, column in F, value) of each element of block rows i.
  template <typename Function>
  void ForEachElement(size_t i, Function&& fn) const {
    for (int32_t u = begin[i]; u < begin[i + 1]; ++u) {
      const double* value = values.data() + row_begin[u];
      for (int64_t b = block_begin[i]; b < block_begin[i + 1]; ++b) {
        const int32_t j = block_column[b];
        for (int32_t v = begin[j]; v < begin[j + 1] && v <= u; ++v, ++value) {
          // Two views may have the same column.
          fn(column[u],
             column[v],
             v < u && column[u] == column[v] ? 2.0 * *value : *value);
        }
      }
    }
  }
};

// T of parts (ops/coarse_rows.h), in the machine's memory.
struct PartVectorsRequest {
  int64_t num_parts = 0;
  const int32_t* row = nullptr;         // by parts
  const int32_t* part_begin = nullptr;  // num_parts + 1
  const int32_t* part_point = nullptr;
  // The vectors, and of each column of each camera its place among them; -1:
  // none.
  const double* p = nullptr;
  const int32_t* place = nullptr;
  const double* v_inverse = nullptr;  // over families
  double* t = nullptr;
};

struct Coupling;

// Rows that are pairs of one eliminated block and one F block each.
struct RowPairs {
  const kernels::ObservationIndexRef* index = nullptr;  // null: they are none
  int e_family = 0;
  int f_family = 0;
};

// A batch that eliminates its E family in an operation of its own writes the
// blocks of S between the F blocks of its family.
class SchurWriter {
 public:
  virtual ~SchurWriter() = default;

  // The number of that; kOwnBlocks for blocks that are not F's, but hold all
  // values of F once.
  static constexpr int kOwnBlocks = -1;
  virtual int schur_family() const = 0;
  // The families of its own blocks, and for each of their values the place in
  // vectors of F, or -1. SchurBlocksRequest::unknowns is then of the first.
  // Empty: they are F's, or it writes only a part.
  virtual kernels::Status ListOwnBlocks(kernels::BlockFamilies* families,
                                        std::vector<int32_t>* columns) = 0;
  // *bytes: memory that SetupSchur will take, to within a few per cent.
  // *build_bytes: what it takes on top until it is done. Allocates nothing.
  virtual kernels::Status ForecastSchur(int64_t* bytes,
                                        int64_t* build_bytes) = 0;
  // Takes all memory. *num_values: those of the blocks that it writes, whole
  // diagonal ones included.
  virtual kernels::Status SetupSchur(int64_t* num_values) = 0;
  // After SetupSchur: which blocks they are.
  virtual kernels::Status ListSchurBlocks(kernels::SchurBlockList* list) = 0;
  // Writes every element between F blocks of its family, and of a dense target
  // zeros everywhere else.
  virtual kernels::Status WriteSchur(const SchurBlocksRequest& request) = 0;
};

// Rows of which the vectors of parts can be made, so that a second level needs
// no S.
class PartRows {
 public:
  virtual ~PartRows() = default;

  virtual const kernels::ObservationIndexRef& part_index() = 0;
  // Columns of each camera of the index, and for each of them its place in F,
  // or -1.
  virtual int32_t part_columns() const = 0;
  virtual kernels::Status ListPartColumns(std::vector<int32_t>* column) = 0;
  // F'F of each camera, packed.
  virtual kernels::Status PartBlocks(double* u) = 0;
  // Couplings of the index's cameras, by a sample (row_sample.h).
  virtual kernels::Status ListCouplings(std::vector<Coupling>* couplings) = 0;
  virtual kernels::Status PartVectors(const PartVectorsRequest& request) = 0;
};

// Rows that have their eliminated blocks to themselves, for a second level.
class CoarseRows {
 public:
  virtual ~CoarseRows() = default;

  // *split: S of the split problem of these rows; where their Jacobian is
  // recomputed by a user's kernels, it has no blocks.
  virtual kernels::Status FormSplit(const SplitRequest& request,
                                    SplitSchur* split) = 0;
  // Null: S has to be formed.
  virtual PartRows* part_rows() { return nullptr; }
};

// A batch's part of S as a matrix: it writes blocks, or lists its rows, and
// sums W and F_i'F_j of pairs and crossings (structure/schur_pairs.h).
class SchurContribution {
 public:
  virtual ~SchurContribution() = default;

  // Null: it lists its rows.
  virtual SchurWriter* schur_writer() { return nullptr; }
  // Null: other rows have its eliminated blocks too.
  virtual CoarseRows* coarse_rows() { return nullptr; }
  // The rows, if their Jacobian is stored and their eliminated blocks are in no
  // other rows.
  virtual RowPairs row_pairs() { return {}; }
  // W = F'E of each of them.
  virtual kernels::Status WriteRowPairs(double* /*w*/) { return {}; }
  // Adds the rows as those of batch number `batch`. kUnsupported for a Jacobian
  // that is not stored.
  virtual kernels::Status ListRows(int batch,
                                   kernels::SchurPairsBuilder* builder) = 0;
  // Takes the lists of that batch.
  virtual kernels::Status SetupPairs(
      int batch, const kernels::SchurPairsBuilder& builder) = 0;
  // w += F'E, u += F_i'F_j, vectors over the builder's families; null: not
  // wanted.
  virtual kernels::Status AddPairs(double* w, double* u) = 0;

 protected:
  static kernels::Status NeedsStored() {
    return {kernels::StatusCode::kUnsupported,
            "The Schur complement as a matrix needs a stored Jacobian."};
  }
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_SCHUR_CONTRIBUTION_H_
