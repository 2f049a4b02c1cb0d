// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/import/find_views.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <new>
#include <utility>

#include "ceres_ext/import/eliminated_pairs.h"
#include "cuda_kernels/model/shape.h"

namespace ceres_ext {
namespace {

// Residual blocks that a thread reads in one go, of a few and of many. Views
// are numbered once for each, so there are as few as keep the threads busy.
constexpr int64_t kFewRowsPerTask = 1 << 12;
constexpr int64_t kManyRowsPerTask = 1 << 16;
constexpr int64_t kLeastRowsOfAView = 4;
constexpr int32_t kNoView = -1;

// A row: its eliminated block, the last of them, and the blocks beside it,
// which distinguish views.
struct Row {
  static constexpr int kMaxBlocks = 6;
  int32_t blocks[kMaxBlocks] = {};
  int32_t size = -1;  // -1: the row has no view
  int32_t columns = 0;
  int32_t point = 0;
  int32_t num_eliminated = 0;

  // Blocks from `size` on are 0.
  bool operator==(const Row& other) const {
    bool is_equal = size == other.size;
    for (int i = 0; i < kMaxBlocks; ++i) {
      is_equal &= blocks[i] == other.blocks[i];
    }
    return is_equal;
  }
  size_t Hash() const {
    uint64_t hash = 0xcbf29ce484222325ull;
    for (int i = 0; i < size; ++i) {
      hash = (hash ^ static_cast<uint32_t>(blocks[i])) * 0x9e3779b97f4a7c15ull;
    }
    return static_cast<size_t>(hash >> 32);
  }
};

// max_size: of the values of the eliminated block of a row that has a view.
Row ReadRow(const ProblemRows& problem,
            const std::vector<uint8_t>& is_eliminated,
            bool use_schur,
            int max_size,
            int64_t i) {
  Row row;
  bool fits = use_schur && problem.NumResiduals(i) == 2;
  int size = 0;
  for (const int32_t block : problem.BlocksOf(i)) {
    if (block == BlockOfRow::kConstant) {
      continue;
    }
    const VaryingBlock varying = problem.block(block);
    const int columns = varying.tangent_size;
    if (is_eliminated[block] != 0) {
      row.point = block;
      ++row.num_eliminated;
      fits &= columns <= kPointSize && varying.size <= max_size;
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

// Reads uniform rows from their arrays.
class UniformReader {
 public:
  // is_eliminated: alike for all blocks of a slot.
  UniformReader(const ProblemRows& problem,
                const UniformRows* rows,
                const std::vector<uint8_t>& is_eliminated,
                bool use_schur)
      : rows_(rows) {
    Row row;
    bool fits = use_schur && problem.NumResiduals(rows->begin) == 2;
    for (const UniformRows::Slot& slot : rows->slots) {
      if (is_eliminated[slot.first] != 0) {
        point_ = &slot;
        ++row.num_eliminated;
        fits &= slot.columns <= kPointSize;
      } else {
        others_.push_back(&slot);
        row.columns += slot.columns;
      }
    }
    if (fits && row.num_eliminated == 1 &&
        row.columns <= kernels::kMaxStoredColumns &&
        others_.size() <= Row::kMaxBlocks) {
      row.size = static_cast<int32_t>(others_.size());
    }
    row_ = row;
  }

  const UniformRows& rows() const { return *rows_; }
  bool have_views() const { return row_.size >= 0; }
  Row Read(int64_t i) const {
    Row row = row_;
    const int64_t k = i - rows_->begin;
    for (int b = 0; b < row.size; ++b) {
      row.blocks[b] = others_[b]->Block(k);
    }
    row.point = point_ == nullptr ? 0 : point_->Block(k);
    return row;
  }

 private:
  const UniformRows* rows_;
  const UniformRows::Slot* point_ = nullptr;
  std::vector<const UniformRows::Slot*> others_;
  Row row_;  // all but the blocks
};

// Those of the uniform rows that can be read so.
std::vector<UniformReader> MakeReaders(
    const ProblemRows& problem,
    const std::vector<uint8_t>& is_eliminated,
    bool use_schur) {
  std::vector<UniformReader> readers;
  for (const UniformRows& rows : problem.uniform_rows()) {
    const bool are_alike = std::all_of(
        rows.slots.begin(), rows.slots.end(), [&](const auto& slot) {
          const uint8_t* const begin = is_eliminated.data() + slot.first;
          return std::find(begin, begin + slot.num_blocks, *begin ^ 1) ==
                 begin + slot.num_blocks;
        });
    if (are_alike) {
      readers.emplace_back(problem, &rows, is_eliminated, use_schur);
    }
  }
  return readers;
}

// The reader of row i, and up to which row that is the answer.
std::pair<const UniformReader*, int64_t> FindReader(
    const std::vector<UniformReader>& readers, int64_t i, int64_t end) {
  for (const UniformReader& reader : readers) {
    if (i < reader.rows().begin) {
      return {nullptr, std::min(end, reader.rows().begin)};
    }
    if (i < reader.rows().end) {
      return {&reader, std::min(end, reader.rows().end)};
    }
  }
  return {nullptr, end};
}

// Views, by a row of each, numbered as they come.
class FoundViews {
 public:
  int32_t Find(const Row& row) {
    // Rows of a view often come one after the other.
    if (last_ != kNoView && row == rows_[static_cast<size_t>(last_)]) {
      return last_;
    }
    if (2 * rows_.size() >= slots_.size()) {
      Grow();
    }
    int32_t* const slot = SlotOf(row);
    if (*slot == kNoView) {
      *slot = static_cast<int32_t>(rows_.size());
      rows_.push_back(row);
    }
    last_ = *slot;
    return last_;
  }
  const std::vector<Row>& rows() const { return rows_; }

 private:
  // That of the row, or the free one that it would have: open addressing with
  // linear probing.
  int32_t* SlotOf(const Row& row) {
    size_t i = row.Hash();
    for (;; ++i) {
      int32_t* const slot = &slots_[i & (slots_.size() - 1)];
      if (*slot == kNoView || rows_[static_cast<size_t>(*slot)] == row) {
        return slot;
      }
    }
  }
  void Grow() {
    slots_.assign(std::max(size_t{64}, 4 * slots_.size()), kNoView);
    for (size_t i = 0; i < rows_.size(); ++i) {
      *SlotOf(rows_[i]) = static_cast<int32_t>(i);
    }
  }

  int32_t last_ = kNoView;
  std::vector<Row> rows_;
  std::vector<int32_t> slots_;  // a power of two
};

struct Task {
  std::vector<Row> rows;        // one of each view
  std::vector<int32_t> views;   // their numbers among those of all tasks
  int64_t num_rows = 0;         // that have a view
  int32_t two_eliminated = -1;  // the first row that has
};

template <typename T>
void Allocate(int64_t size, kernels::HostBuffer<T>* buffer) {
  if (!buffer->Allocate(size).ok()) {
    throw std::bad_alloc();
  }
}

bool HasPairsOf(const std::vector<int32_t>& others,
                const ViewStructure& views,
                const ProblemRows& problem,
                const std::vector<uint8_t>& is_eliminated) {
  EliminatedPairs pairs(problem, is_eliminated);
  for (const int32_t i : others) {
    pairs.AddPairsOf(i);
  }
  for (int64_t k = 0; !pairs.empty() && k < views.size(); ++k) {
    if (pairs.HasAPairOf(views.row(k))) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool FindViews(const ProblemRows& problem,
               const OtherRows& rows,
               const std::vector<uint8_t>& is_eliminated,
               bool use_schur,
               kernels::HostContext* context,
               std::vector<int32_t>* general_rows,
               ViewStructure* views,
               std::string* reason) {
  const int64_t n = rows.size;
  const int64_t rows_per_task =
      n <= 4 * kManyRowsPerTask ? kFewRowsPerTask : kManyRowsPerTask;
  // For each row its view in the task, and its point.
  kernels::HostBuffer<int32_t> view_of;
  kernels::HostBuffer<int32_t> point_of;
  Allocate(n, &view_of);
  Allocate(n, &point_of);
  // Points of observations, with which these share a family, have three values.
  const int max_size =
      rows.rows == nullptr ? std::numeric_limits<int>::max() : kPointSize;
  std::vector<UniformReader> readers;
  if (rows.rows == nullptr) {
    readers = MakeReaders(problem, is_eliminated, use_schur);
  }
  std::vector<Task> tasks(
      static_cast<size_t>((n + rows_per_task - 1) / rows_per_task));
  context->ParallelFor(n, rows_per_task, [&](int64_t begin, int64_t end) {
    Task* const task = &tasks[static_cast<size_t>(begin / rows_per_task)];
    FoundViews found;
    for (int64_t k = begin; k < end;) {
      const auto [reader, last] = FindReader(readers, k, end);
      for (; k < last; ++k) {
        const Row row =
            reader != nullptr
                ? reader->Read(k)
                : ReadRow(problem, is_eliminated, use_schur, max_size, rows[k]);
        if (row.num_eliminated > 1 && task->two_eliminated < 0) {
          task->two_eliminated = rows[k];
        }
        point_of.data()[k] = row.point;
        view_of.data()[k] = row.size < 0 ? kNoView : found.Find(row);
        task->num_rows += row.size < 0 ? 0 : 1;
      }
    }
    task->rows = found.rows();
  });
  // Views are numbered as their rows come.
  ViewStructure all;
  FoundViews of_all;
  int64_t num_rows = 0;
  int32_t columns = 0;
  for (Task& task : tasks) {
    if (task.two_eliminated >= 0) {
      *reason = "residual block " + std::to_string(task.two_eliminated) +
                " depends on two eliminated blocks";
      return false;
    }
    for (const Row& row : task.rows) {
      task.views.push_back(of_all.Find(row));
    }
    num_rows += task.num_rows;
  }
  for (const Row& row : of_all.rows()) {
    all.blocks.emplace_back(row.blocks, row.blocks + row.size);
    columns = std::max(columns, row.columns);
  }
  const bool has_views =
      num_rows > 0 &&
      num_rows >= kLeastRowsOfAView * static_cast<int64_t>(all.blocks.size());
  if (has_views) {
    all.columns = kernels::WithStoredColumns(
        columns, [](auto stored) { return int{stored}; });
    std::vector<int32_t> others(static_cast<size_t>(n - num_rows));
    // Without others the arrays are used directly.
    const bool has_others = num_rows < n;
    for (const UniformReader& reader : readers) {
      if (reader.have_views() && reader.rows().size() == num_rows) {
        all.uniform = &reader.rows();
        all.first_row = all.uniform->begin;
      }
    }
    const bool lists_rows =
        all.uniform == nullptr && (has_others || rows.rows != nullptr);
    Allocate(has_others ? num_rows : 0, &all.view_id);
    Allocate(has_others ? num_rows : 0, &all.point_id);
    Allocate(lists_rows ? num_rows : 0, &all.rows);
    int32_t* const view_id = (has_others ? all.view_id : view_of).data();
    int32_t* const point_id = (has_others ? all.point_id : point_of).data();
    std::vector<int64_t> first{0};  // of each task, of those that have a view
    for (const Task& task : tasks) {
      first.push_back(first.back() + task.num_rows);
    }
    context->ParallelFor(n, rows_per_task, [&](int64_t begin, int64_t end) {
      const auto t = static_cast<size_t>(begin / rows_per_task);
      int64_t to = first[t];
      for (int64_t k = begin; k < end; ++k) {
        const int32_t view = view_of.data()[k];
        if (view == kNoView) {
          others[static_cast<size_t>(k - to)] = rows[k];
          continue;
        }
        view_id[to] = tasks[t].views[static_cast<size_t>(view)];
        point_id[to] = point_of.data()[k];
        if (lists_rows) {
          all.rows.data()[to] = rows[k];
        }
        ++to;
      }
    });
    if (!has_others) {
      all.view_id = std::move(view_of);
      all.point_id = std::move(point_of);
    }
    if (!HasPairsOf(others, all, problem, is_eliminated)) {
      *views = std::move(all);
      *general_rows = std::move(others);
      return true;
    }
  }
  general_rows->resize(static_cast<size_t>(n));
  context->ParallelFor(n, rows_per_task, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      (*general_rows)[static_cast<size_t>(k)] = rows[k];
    }
  });
  return true;
}

}  // namespace ceres_ext
