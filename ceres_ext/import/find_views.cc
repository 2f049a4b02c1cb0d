// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/import/find_views.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
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
constexpr int kAnySize = std::numeric_limits<int>::max();

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

// The rows that have views: those of two residuals, or, where all rows are such
// and some have a private block, those of directions.
struct ViewKind {
  bool is_any = false;  // false: no row has a view
  bool has_private = false;

  bool Fits(int num_residuals) const {
    return is_any && num_residuals == (has_private ? 3 : 2);
  }
  // num_blocks: those beside the eliminated ones.
  bool Fits(const Row& row, int num_blocks, int num_private) const {
    return row.num_eliminated == 1 && num_private <= (has_private ? 1 : 0) &&
           (has_private ? num_blocks <= 1 && row.columns <= kPointSize
                        : row.columns <= kernels::kMaxStoredColumns);
  }
};

// max_size: of the values of the eliminated block of a row that has a view.
Row ReadRow(const ProblemRows& problem,
            const std::vector<uint8_t>& is_eliminated,
            const ViewKind& kind,
            int max_size,
            int64_t i) {
  Row row;
  bool fits = kind.Fits(problem.NumResiduals(i));
  int size = 0;
  int num_private = 0;
  for (const int32_t block : problem.BlocksOf(i)) {
    if (block == BlockOfRow::kConstant) {
      continue;
    }
    const VaryingBlock varying = problem.block(block);
    const int columns = varying.tangent_size;
    if (is_eliminated[block] == elimination::kPrivate) {
      ++num_private;
      fits &= varying.manifold == nullptr;
    } else if (is_eliminated[block] != elimination::kOther) {
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
  if (fits && kind.Fits(row, size, num_private)) {
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
                const ViewKind& kind)
      : rows_(rows) {
    Row row;
    bool fits = kind.Fits(problem.NumResiduals(rows->begin));
    int num_private = 0;
    for (const UniformRows::Slot& slot : rows->slots) {
      if (is_eliminated[slot.first] == elimination::kPrivate) {
        ++num_private;
      } else if (is_eliminated[slot.first] != elimination::kOther) {
        point_ = &slot;
        ++row.num_eliminated;
        fits &= slot.columns <= kPointSize;
      } else {
        others_.push_back(&slot);
        row.columns += slot.columns;
      }
    }
    if (fits && others_.size() <= Row::kMaxBlocks &&
        kind.Fits(row, static_cast<int>(others_.size()), num_private)) {
      row.size = static_cast<int32_t>(others_.size());
    }
    row_ = row;
  }

  const UniformRows& rows() const { return *rows_; }
  bool have_views() const { return row_.size >= 0; }
  int32_t columns() const { return row_.columns; }
  // The slots of the point and of the other blocks.
  const UniformRows::Slot* point() const { return point_; }
  const std::vector<const UniformRows::Slot*>& others() const {
    return others_;
  }
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

// The readers of the uniform rows that a reader supports.
std::vector<UniformReader> MakeReaders(
    const ProblemRows& problem,
    const std::vector<uint8_t>& is_eliminated,
    const ViewKind& kind) {
  std::vector<UniformReader> readers;
  for (const UniformRows& rows : problem.uniform_rows()) {
    const bool are_alike = std::all_of(
        rows.slots.begin(), rows.slots.end(), [&](const auto& slot) {
          const uint8_t* const begin = is_eliminated.data() + slot.first;
          return std::memcmp(begin,
                             begin + 1,
                             static_cast<size_t>(slot.num_blocks - 1)) == 0;
        });
    if (are_alike) {
      readers.emplace_back(problem, &rows, is_eliminated, kind);
    }
  }
  return readers;
}

// The reader of the most rows that have views; null: there is none.
const UniformReader* MostViews(const std::vector<UniformReader>& readers) {
  const UniformReader* most = nullptr;
  for (const UniformReader& reader : readers) {
    if (reader.have_views() &&
        (most == nullptr || reader.rows().size() > most->rows().size())) {
      most = &reader;
    }
  }
  return most;
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
  // The row's slot, or the free one that it would have: open addressing with
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

template <typename Buffer>
void Allocate(int64_t size, Buffer* buffer) {
  if (!buffer->Allocate(size).ok()) {
    throw std::bad_alloc();
  }
}

// Finds views whose block in one slot determines them, as that of an image
// does. False if there is no such slot.
bool FindViewsBySlot(const UniformReader& reader,
                     kernels::HostContext* context,
                     ViewStructure* views) {
  const auto& slots = reader.others();
  const auto longest = std::max_element(
      slots.begin(),
      slots.end(),
      [](const UniformRows::Slot* a, const UniformRows::Slot* b) {
        return a->num_blocks < b->num_blocks;
      });
  const int64_t n = reader.rows().size();
  if (longest == slots.end() || (*longest)->number == nullptr ||
      kLeastRowsOfAView * (*longest)->num_blocks > n) {
    return false;
  }
  const int32_t* const number = (*longest)->number;
  // The first row of each block.
  std::vector<std::atomic<int32_t>> first(
      static_cast<size_t>((*longest)->num_blocks));
  for (std::atomic<int32_t>& row : first) {
    row = std::numeric_limits<int32_t>::max();
  }
  context->ParallelFor(n, kManyRowsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      std::atomic<int32_t>& row = first[static_cast<size_t>(number[k])];
      int32_t known = row.load(std::memory_order_relaxed);
      while (k < known &&
             !row.compare_exchange_weak(known, static_cast<int32_t>(k))) {
      }
    }
  });
  // Other rows of the block have the same blocks.
  std::atomic<bool> differ{false};
  const int64_t num_compared = slots.size() > 1 ? n : 0;
  context->ParallelFor(
      num_compared, kManyRowsPerTask, [&](int64_t begin, int64_t end) {
        bool one_differs = false;
        for (const UniformRows::Slot* slot : slots) {
          for (int64_t k = begin; slot != *longest && k < end; ++k) {
            const int32_t row = first[static_cast<size_t>(number[k])].load(
                std::memory_order_relaxed);
            one_differs |= slot->Block(k) != slot->Block(row);
          }
        }
        if (one_differs) {
          differ = true;
        }
      });
  if (differ) {
    return false;
  }
  // Views are numbered as their rows come.
  std::vector<std::pair<int32_t, int32_t>> by_row;
  for (size_t b = 0; b < first.size(); ++b) {
    if (first[b] < n) {
      by_row.emplace_back(first[b], static_cast<int32_t>(b));
    }
  }
  std::sort(by_row.begin(), by_row.end());
  std::vector<int32_t> view_of(first.size(), kNoView);
  bool are_numbers = true;
  for (size_t v = 0; v < by_row.size(); ++v) {
    const auto [k, block] = by_row[v];
    const Row row = reader.Read(reader.rows().begin + k);
    views->blocks.emplace_back(row.blocks, row.blocks + row.size);
    view_of[static_cast<size_t>(block)] = static_cast<int32_t>(v);
    are_numbers &= block == static_cast<int32_t>(v);
  }
  if (are_numbers) {
    views->view_id.Refer(n, number);
  } else {
    Allocate(n, &views->view_id);
    context->ParallelFor(n, kManyRowsPerTask, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        views->view_id.own_data()[k] = view_of[static_cast<size_t>(number[k])];
      }
    });
  }
  views->columns = reader.columns();
  views->uniform = &reader.rows();
  views->first_row = views->uniform->begin;
  views->uniform_points = reader.point();
  return true;
}

// The findings of FindViews before it looks at pairs.
struct Found {
  bool has_views = false;
  ViewStructure views;
  std::vector<int32_t> others;
};

// If all views are of the uniform rows that have most, and found by a slot.
// False otherwise, and if a row has two eliminated blocks.
bool FindUniformRowsViews(const ProblemRows& problem,
                          const std::vector<UniformReader>& readers,
                          const std::vector<uint8_t>& is_eliminated,
                          const ViewKind& kind,
                          kernels::HostContext* context,
                          Found* found) {
  const UniformReader* const most = MostViews(readers);
  if (most == nullptr) {
    return false;
  }
  const UniformRows& rows = most->rows();
  const int64_t num_others = problem.size() - rows.size();
  const auto row_of = [&rows](int64_t k) {
    return k < rows.begin ? k : k + rows.size();
  };
  std::atomic<bool> are_others{true};
  context->ParallelFor(
      num_others, kFewRowsPerTask, [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end && are_others; ++k) {
          const int64_t i = row_of(k);
          const UniformReader* const reader =
              FindReader(readers, i, problem.size()).first;
          const Row row =
              reader != nullptr
                  ? reader->Read(i)
                  : ReadRow(problem, is_eliminated, kind, kAnySize, i);
          if (row.size >= 0 || row.num_eliminated > 1) {
            are_others = false;
          }
        }
      });
  found->has_views =
      are_others && FindViewsBySlot(*most, context, &found->views);
  for (int64_t k = 0; found->has_views && k < num_others; ++k) {
    found->others.push_back(static_cast<int32_t>(row_of(k)));
  }
  return found->has_views;
}

// Any rows, by their blocks.
bool FindAnyViews(const ProblemRows& problem,
                  const OtherRows& rows,
                  const std::vector<UniformReader>& readers,
                  const std::vector<uint8_t>& is_eliminated,
                  const ViewKind& kind,
                  kernels::HostContext* context,
                  Found* result,
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
  const int max_size = rows.are_all ? kAnySize : kPointSize;
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
                : ReadRow(problem, is_eliminated, kind, max_size, rows[k]);
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
  result->has_views =
      num_rows > 0 &&
      num_rows >= kLeastRowsOfAView * static_cast<int64_t>(all.blocks.size());
  if (result->has_views) {
    all.columns = columns;
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
        all.uniform == nullptr && (has_others || !rows.are_all);
    Allocate(has_others ? num_rows : 0, &all.view_id);
    Allocate(has_others ? num_rows : 0, &all.point_id);
    Allocate(lists_rows ? num_rows : 0, &all.rows);
    int32_t* const view_id =
        has_others ? all.view_id.own_data() : view_of.data();
    int32_t* const point_id =
        has_others ? all.point_id.own_data() : point_of.data();
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
      all.view_id.Take(std::move(view_of));
      all.point_id.Take(std::move(point_of));
    }
    result->views = std::move(all);
    result->others = std::move(others);
  }
  return true;
}

// True if a row of a view has a pair of blocks that one of the others has.
bool SharePairs(const Found& found,
                const ProblemRows& problem,
                const std::vector<uint8_t>& is_eliminated,
                kernels::HostContext* context) {
  EliminatedPairs pairs(problem, is_eliminated);
  for (const int32_t i : found.others) {
    pairs.AddPairsOf(i);
  }
  const ViewStructure& views = found.views;
  std::atomic<bool> has_one{false};
  context->ParallelFor(
      pairs.empty() ? 0 : views.size(),
      kFewRowsPerTask,
      [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end && !has_one; ++k) {
          const int32_t point = views.uniform_points != nullptr
                                    ? views.uniform_points->Block(k)
                                    : views.point_id.data()[k];
          const auto& blocks =
              views.blocks[static_cast<size_t>(views.view_id.data()[k])];
          if (std::any_of(blocks.begin(), blocks.end(), [&](int32_t block) {
                return pairs.Has(block, point);
              })) {
            has_one = true;
          }
        }
      });
  return has_one;
}

bool HasPrivate(const std::vector<uint8_t>& is_eliminated) {
  return std::find(is_eliminated.begin(),
                   is_eliminated.end(),
                   elimination::kPrivate) != is_eliminated.end();
}

// True if all rows are rows of directions.
bool AreDirections(const ProblemRows& problem,
                   const std::vector<uint8_t>& is_eliminated,
                   kernels::HostContext* context) {
  const ViewKind kind = {/*is_any=*/true, /*has_private=*/true};
  const std::vector<UniformReader> readers =
      MakeReaders(problem, is_eliminated, kind);
  std::atomic<bool> are_all{HasPrivate(is_eliminated)};
  context->ParallelFor(
      are_all ? problem.size() : 0,
      kFewRowsPerTask,
      [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end && are_all;) {
          const auto [reader, last] = FindReader(readers, i, end);
          if (reader != nullptr) {
            are_all = are_all && reader->have_views();
            i = last;
          } else if (ReadRow(problem, is_eliminated, kind, kAnySize, i++).size <
                     0) {
            are_all = false;
          }
        }
      });
  return are_all;
}

}  // namespace

const UniformRows* FindUniformViews(const ProblemRows& problem,
                                    const std::vector<uint8_t>& is_eliminated,
                                    bool use_schur) {
  const bool has_private = use_schur && HasPrivate(is_eliminated);
  for (const bool of_directions : {false, true}) {
    const std::vector<UniformReader> readers =
        MakeReaders(problem,
                    is_eliminated,
                    {of_directions ? has_private : use_schur, of_directions});
    const UniformReader* const most = MostViews(readers);
    if (most != nullptr &&
        (!of_directions || most->rows().size() == problem.size())) {
      return &most->rows();
    }
  }
  return nullptr;
}

bool FindViews(const ProblemRows& problem,
               const OtherRows& rows,
               const std::vector<uint8_t>& is_eliminated,
               bool use_schur,
               kernels::HostContext* context,
               std::vector<int32_t>* general_rows,
               ViewStructure* views,
               std::string* reason) {
  ViewKind kind;
  kind.is_any = use_schur;
  std::vector<UniformReader> readers;
  if (rows.are_all) {
    kind.has_private =
        use_schur && AreDirections(problem, is_eliminated, context);
    readers = MakeReaders(problem, is_eliminated, kind);
  }
  Found found;
  if (!FindUniformRowsViews(
          problem, readers, is_eliminated, kind, context, &found) &&
      !FindAnyViews(problem,
                    rows,
                    readers,
                    is_eliminated,
                    kind,
                    context,
                    &found,
                    reason)) {
    return false;
  }
  if (found.has_views && !SharePairs(found, problem, is_eliminated, context)) {
    found.views.has_private = kind.has_private;
    found.views.columns =
        kind.has_private
            ? kPointSize
            : kernels::WithStoredColumns(
                  found.views.columns, [](auto stored) { return int{stored}; });
    *views = std::move(found.views);
    *general_rows = std::move(found.others);
    return true;
  }
  const int64_t n = rows.size;
  general_rows->resize(static_cast<size_t>(n));
  context->ParallelFor(n, kManyRowsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      (*general_rows)[static_cast<size_t>(k)] = rows[k];
    }
  });
  return true;
}

}  // namespace ceres_ext
