// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/import/find_views.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "ceres_ext/import/eliminated_pairs.h"
#include "cuda_kernels/model/shape.h"

namespace ceres_ext {
namespace {

constexpr int kPointSize = 3;
// Residual blocks that a thread reads in one go.
constexpr int64_t kRowsPerTask = 1 << 14;
// Rows that all threads read before one puts them together.
constexpr int64_t kRowsAtATime = 1 << 18;
constexpr int64_t kLeastRowsOfAView = 4;

// A row: its eliminated block, the last of them, and the blocks beside it, by
// which views are told apart.
struct Row {
  static constexpr int kMaxBlocks = 6;
  int32_t blocks[kMaxBlocks] = {};
  int32_t size = -1;  // -1: the row has no view
  int32_t columns = 0;
  int32_t point = 0;
  int32_t num_eliminated = 0;

  bool HasBlocks(const std::vector<int32_t>& others) const {
    return std::equal(blocks, blocks + size, others.begin(), others.end());
  }
  bool operator==(const Row& other) const {
    return size == other.size &&
           std::equal(blocks, blocks + size, other.blocks);
  }
  struct Hash {
    size_t operator()(const Row& row) const {
      uint64_t hash = 0xcbf29ce484222325ull;
      for (int i = 0; i < row.size; ++i) {
        hash = (hash ^ static_cast<uint32_t>(row.blocks[i])) * 0x100000001b3ull;
      }
      return hash ^ hash >> 32;
    }
  };
};

Row ReadRow(const ProblemRows& problem,
            const std::vector<uint8_t>& is_eliminated,
            bool use_schur,
            int64_t i) {
  Row row;
  bool fits = use_schur && problem.NumResiduals(i) == 2;
  int size = 0;
  for (int j = 0; j < problem.NumBlocks(i); ++j) {
    const int32_t block = problem.Block(i, j).index;
    if (block == BlockOfRow::kConstant) {
      continue;
    }
    const int columns = problem.block(block).tangent_size;
    if (is_eliminated[block] != 0) {
      row.point = block;
      ++row.num_eliminated;
      fits &= columns <= kPointSize;
    } else if (size < Row::kMaxBlocks) {
      row.blocks[size++] = block;
      row.columns += columns;
    } else {
      fits = false;
    }
  }
  if (fits && row.num_eliminated == 1 &&
      row.columns <= kernels::kMaxStoredColumns) {
    row.size = size;
  }
  return row;
}

// Views as their rows come.
class ViewsByBlocks {
 public:
  void Reserve(int64_t n) {
    views_.rows.reserve(n);
    views_.view_id.reserve(n);
    views_.point_id.reserve(n);
  }

  void Add(const Row& row, int32_t number) {
    int32_t id = 0;
    // Rows of a view often come one after the other.
    if (views_.size() > 0 && row.HasBlocks(views_.blocks.back())) {
      id = static_cast<int32_t>(views_.blocks.size()) - 1;
    } else {
      const auto [entry, is_new] =
          id_of_.try_emplace(row, static_cast<int32_t>(id_of_.size()));
      if (is_new) {
        views_.blocks.emplace_back(row.blocks, row.blocks + row.size);
      }
      id = entry->second;
    }
    views_.rows.push_back(number);
    views_.view_id.push_back(id);
    views_.point_id.push_back(row.point);
    views_.columns = std::max(views_.columns, row.columns);
  }

  int64_t size() const { return views_.size(); }
  ViewStructure Take() {
    views_.columns = kernels::WithStoredColumns(
        views_.columns, [](auto columns) { return int{columns}; });
    return std::move(views_);
  }

 private:
  ViewStructure views_;
  std::unordered_map<Row, int32_t, Row::Hash> id_of_;
};

bool HasPairsOf(const std::vector<int32_t>& others,
                const ViewStructure& views,
                const ProblemRows& problem,
                const std::vector<uint8_t>& is_eliminated) {
  EliminatedPairs pairs(problem, is_eliminated);
  for (const int32_t i : others) {
    pairs.AddPairsOf(i);
  }
  return !pairs.empty() &&
         std::any_of(views.rows.begin(), views.rows.end(), [&](int32_t i) {
           return pairs.HasAPairOf(i);
         });
}

}  // namespace

bool FindViews(const ProblemRows& problem,
               const std::vector<uint8_t>& is_eliminated,
               bool use_schur,
               kernels::HostContext* context,
               std::vector<int32_t>* general_rows,
               ViewStructure* views,
               std::string* reason) {
  const std::vector<int32_t>& rows = *general_rows;
  const auto n = static_cast<int64_t>(rows.size());
  ViewsByBlocks found;
  std::vector<int32_t> others;
  // All threads read, and one puts together what they have read.
  std::vector<Row> read(std::min(n, kRowsAtATime));
  for (int64_t first = 0; first < n; first += kRowsAtATime) {
    const int64_t last = std::min(first + kRowsAtATime, n);
    context->ParallelFor(
        last - first, kRowsPerTask, [&](int64_t begin, int64_t end) {
          for (int64_t k = begin; k < end; ++k) {
            read[k] =
                ReadRow(problem, is_eliminated, use_schur, rows[first + k]);
          }
        });
    for (int64_t k = first; k < last; ++k) {
      const Row& row = read[k - first];
      if (row.num_eliminated > 1) {
        *reason = "residual block " + std::to_string(rows[k]) +
                  " depends on two eliminated blocks";
        return false;
      }
      if (row.size < 0) {
        others.push_back(rows[k]);
      } else {
        if (found.size() == 0) {
          found.Reserve(n - k);
        }
        found.Add(row, rows[k]);
      }
    }
  }
  ViewStructure all = found.Take();
  if (all.size() >=
          kLeastRowsOfAView * static_cast<int64_t>(all.blocks.size()) &&
      !HasPairsOf(others, all, problem, is_eliminated)) {
    *views = std::move(all);
    *general_rows = std::move(others);
  }
  return true;
}

}  // namespace ceres_ext
