// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/front/array_parts.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <numeric>
#include <utility>

#include "ceres_ext/import/array_rows.h"

namespace ceres_ext {
namespace {

using Index = ArrayProblem::Index;
using Parameters = ArrayProblem::Parameters;

constexpr int kMostValues = 3;
constexpr int64_t kRowsPerTask = 1 << 14;
constexpr int kNone = -1;

int CountOf(const ArrayProblem::Residuals& residuals, int array) {
  return static_cast<int>(std::count_if(
      residuals.blocks.begin(), residuals.blocks.end(), [&](const Index& i) {
        return i.parameters == array;
      }));
}

// Which of its blocks is of the array; kNone: none.
int SlotOf(const ArrayProblem::Residuals& residuals, int array) {
  const auto found = std::find_if(
      residuals.blocks.begin(), residuals.blocks.end(), [&](const Index& i) {
        return i.parameters == array;
      });
  return found == residuals.blocks.end()
             ? kNone
             : static_cast<int>(found - residuals.blocks.begin());
}

// The first i, begin <= i < end, of which is_one(i) is true, as it is of all
// later ones; end: there is none.
template <typename IsOne>
int64_t FirstOf(int64_t begin, int64_t end, const IsOne& is_one) {
  while (begin < end) {
    const int64_t middle = begin + (end - begin) / 2;
    if (is_one(middle)) {
      end = middle;
    } else {
      begin = middle + 1;
    }
  }
  return begin;
}

// The first row whose block in the slot is not before this one. Rows are in the
// order of these blocks; kNone has no rows.
int64_t FirstRowFrom(int64_t block,
                     const ArrayProblem::Residuals& residuals,
                     int slot) {
  return slot == kNone ? 0 : FirstOf(0, residuals.num_blocks, [&](int64_t row) {
    return residuals.blocks[slot].BlockOf(row) >= block;
  });
}

// Memory that threads touch first.
template <typename T>
void Allocate(int64_t n, kernels::HostBuffer<T>* buffer) {
  if (!buffer->Allocate(n).ok()) {
    throw std::bad_alloc();
  }
}

}  // namespace

int FindOwnArray(const ArrayProblem& problem) {
  const int eliminated = EliminatedArray(problem);
  int own = kNone;
  for (int a = 0; a < static_cast<int>(problem.parameters().size()); ++a) {
    const Parameters& p = problem.parameters()[a];
    if (eliminated >= 0 && a != eliminated) {
      continue;
    }
    int most = 0;
    for (const ArrayProblem::Residuals& residuals : problem.residuals()) {
      most =
          std::max(most, residuals.num_blocks > 0 ? CountOf(residuals, a) : 0);
    }
    if (p.size <= kMostValues && most == 1 &&
        (own == kNone || p.num_blocks > problem.parameters()[own].num_blocks)) {
      own = a;
    }
  }
  return own;
}

ArrayParts::ArrayParts(const ArrayProblem* problem,
                       int own,
                       int num_parts,
                       kernels::HostContext* context)
    : problem_(problem), own_(own), context_(context) {
  for (const Residuals& residuals : problem->residuals()) {
    is_in_order_.push_back(IsInOrder(residuals));
  }
  const std::vector<int64_t> begin = Cut(num_parts);
  for (size_t i = 0; i + 1 < begin.size(); ++i) {
    parts_.push_back(std::make_unique<Part>());
    AddParameters(static_cast<int>(i), begin);
  }
  for (size_t r = 0; r < problem->residuals().size(); ++r) {
    const Residuals& residuals = problem->residuals()[r];
    const std::vector<Rows> rows = Deal(residuals, is_in_order_[r], begin);
    for (size_t i = 0; i < parts_.size(); ++i) {
      AddResiduals(residuals, rows[i], begin[i], parts_[i].get());
    }
  }
}

bool ArrayParts::IsInOrder(const Residuals& residuals) const {
  const int slot = SlotOf(residuals, own_);
  if (slot == kNone) {
    return true;
  }
  const Index& index = residuals.blocks[slot];
  std::atomic<bool> is_in_order{true};
  context_->ParallelFor(
      residuals.num_blocks, kRowsPerTask, [&](int64_t first, int64_t end) {
        bool mine = is_in_order.load(std::memory_order_relaxed);
        for (int64_t k = std::max<int64_t>(first, 1); mine && k < end; ++k) {
          mine = index.BlockOf(k - 1) <= index.BlockOf(k);
        }
        if (!mine) {
          is_in_order.store(false, std::memory_order_relaxed);
        }
      });
  return is_in_order;
}

std::vector<int64_t> ArrayParts::CountRows() const {
  const int64_t n = problem_->parameters()[own_].num_blocks;
  std::vector<int64_t> before(static_cast<size_t>(n) + 1, 0);
  for (const Residuals& residuals : problem_->residuals()) {
    const int slot = SlotOf(residuals, own_);
    if (slot == kNone) {
      continue;
    }
    context_->ParallelFor(
        residuals.num_blocks, kRowsPerTask, [&](int64_t first, int64_t end) {
          for (int64_t k = first; k < end; ++k) {
            __atomic_fetch_add(&before[residuals.blocks[slot].BlockOf(k) + 1],
                               1,
                               __ATOMIC_RELAXED);
          }
        });
  }
  std::partial_sum(before.begin(), before.end(), before.begin());
  return before;
}

std::vector<int64_t> ArrayParts::Cut(int num_parts) const {
  const int64_t n = problem_->parameters()[own_].num_blocks;
  const bool are_in_order =
      std::find(is_in_order_.begin(), is_in_order_.end(), false) ==
      is_in_order_.end();
  const std::vector<int64_t> counted =
      are_in_order ? std::vector<int64_t>() : CountRows();
  // Rows of blocks before this one.
  const auto rows_before = [&](int64_t block) {
    if (!are_in_order) {
      return counted[block];
    }
    int64_t rows = 0;
    for (const Residuals& residuals : problem_->residuals()) {
      rows += FirstRowFrom(block, residuals, SlotOf(residuals, own_));
    }
    return rows;
  };
  const int64_t sum = rows_before(n);
  std::vector<int64_t> begin = {0};
  int64_t before_part = 0;
  for (int i = 1; i < num_parts; ++i) {
    // The first block that leaves its share, and at least a row, to what is
    // before.
    const int64_t block = FirstOf(begin.back(), n, [&](int64_t b) {
      const int64_t rows = rows_before(b);
      return rows > before_part && rows * num_parts >= i * sum;
    });
    const int64_t rows = rows_before(block);
    if (rows == sum) {
      break;  // It leaves none to what follows.
    }
    begin.push_back(block);
    before_part = rows;
  }
  begin.push_back(n);
  return begin;
}

void ArrayParts::AddParameters(int i, const std::vector<int64_t>& begin) {
  Part* const part = parts_[i].get();
  part->values.resize(problem_->parameters().size());
  for (size_t a = 0; a < problem_->parameters().size(); ++a) {
    Parameters p = problem_->parameters()[a];
    if (static_cast<int>(a) == own_) {
      p.is_own = true;
      p.num_blocks = begin[i + 1] - begin[i];
      p.values += begin[i] * p.size;
      p.manifolds += p.manifolds != nullptr ? begin[i] : 0;
      p.is_constant += p.is_constant != nullptr ? begin[i] : 0;
      p.lower_bounds += p.lower_bounds != nullptr ? begin[i] * p.size : 0;
      p.upper_bounds += p.upper_bounds != nullptr ? begin[i] * p.size : 0;
    } else if (i > 0) {
      part->values[a].assign(p.values, p.values + p.num_blocks * p.size);
      p.values = part->values[a].data();
    }
    part->problem.AddParameters(p);
  }
}

std::vector<ArrayParts::Rows> ArrayParts::Deal(
    const Residuals& residuals,
    bool is_in_order,
    const std::vector<int64_t>& begin) const {
  std::vector<Rows> rows(parts_.size());
  const int slot = SlotOf(residuals, own_);
  if (slot == kNone || parts_.size() == 1) {
    rows[0].size = residuals.num_blocks;
    return rows;
  }
  if (is_in_order) {
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].begin = FirstRowFrom(begin[i], residuals, slot);
      rows[i].size =
          FirstRowFrom(begin[i + 1], residuals, slot) - rows[i].begin;
    }
    return rows;
  }
  const Index& index = residuals.blocks[slot];
  const auto part_of = [&](int64_t k) {
    const auto next =
        std::upper_bound(begin.begin(), begin.end() - 1, index.BlockOf(k));
    return static_cast<size_t>(next - begin.begin()) - 1;
  };
  const int64_t n = residuals.num_blocks;
  const auto num_tasks =
      static_cast<size_t>((n + kRowsPerTask - 1) / kRowsPerTask);
  // By part and task: how many rows, and where they then begin.
  std::vector<int64_t> first(parts_.size() * num_tasks, 0);
  // By part and task, the first row and the last.
  std::vector<std::pair<int64_t, int64_t>> ends(first.size(), {n, -1});
  const auto for_each_task = [&](const auto& fn) {
    context_->ParallelFor(n, kRowsPerTask, [&](int64_t from, int64_t to) {
      fn(static_cast<size_t>(from / kRowsPerTask), from, to);
    });
  };
  for_each_task([&](size_t task, int64_t from, int64_t to) {
    std::vector<int64_t> count(parts_.size(), 0);
    std::vector<std::pair<int64_t, int64_t>> ends_of_task(parts_.size(),
                                                          {n, -1});
    for (int64_t k = from; k < to; ++k) {
      const size_t i = part_of(k);
      ++count[i];
      ends_of_task[i] = {std::min(ends_of_task[i].first, k), k};
    }
    for (size_t i = 0; i < parts_.size(); ++i) {
      first[i * num_tasks + task] = count[i];
      ends[i * num_tasks + task] = ends_of_task[i];
    }
  });
  bool are_pieces = true;
  for (size_t i = 0; i < parts_.size(); ++i) {
    int64_t last = -1;
    rows[i].begin = n;
    for (size_t task = 0; task < num_tasks; ++task) {
      const size_t at = i * num_tasks + task;
      rows[i].size += std::exchange(first[at], rows[i].size);
      rows[i].begin = std::min(rows[i].begin, ends[at].first);
      last = std::max(last, ends[at].second);
    }
    rows[i].is_listed =
        rows[i].size > 0 && last - rows[i].begin != rows[i].size - 1;
    if (rows[i].is_listed) {
      are_pieces = false;
      Allocate(rows[i].size, &rows[i].rows);
    }
  }
  if (are_pieces) {
    return rows;
  }
  for_each_task([&](size_t task, int64_t from, int64_t to) {
    std::vector<int64_t> next;
    for (size_t i = 0; i < parts_.size(); ++i) {
      next.push_back(first[i * num_tasks + task]);
    }
    for (int64_t k = from; k < to; ++k) {
      const size_t i = part_of(k);
      if (rows[i].is_listed) {
        rows[i].rows.data()[next[i]++] = k;
      }
    }
  });
  return rows;
}

void ArrayParts::AddResiduals(const Residuals& residuals,
                              const Rows& rows,
                              int64_t own_begin,
                              Part* part) {
  if (rows.size == 0) {
    return;
  }
  const bool in_one_piece = !rows.is_listed;
  Arrays* const arrays =
      part->arrays.emplace_back(std::make_unique<Arrays>()).get();
  Residuals of_part = residuals;
  of_part.num_blocks = rows.size;
  // to = from[row] of each row; a row has `values` of them.
  const auto gather = [&](auto* from, int64_t values, auto* own) {
    if (from == nullptr || in_one_piece) {
      return from == nullptr ? from : from + values * rows.begin;
    }
    Allocate(values * rows.size, own);
    context_->ParallelFor(
        rows.size, kRowsPerTask, [&](int64_t begin, int64_t end) {
          for (int64_t k = begin; k < end; ++k) {
            std::copy_n(
                from + values * rows.Row(k), values, own->data() + values * k);
          }
        });
    return static_cast<decltype(from)>(own->data());
  };
  arrays->blocks.resize(residuals.blocks.size());
  for (size_t b = 0; b < residuals.blocks.size(); ++b) {
    Index& index = of_part.blocks[b];
    const int64_t first = index.parameters == own_ ? own_begin : 0;
    if (first == 0 && index.block != nullptr && in_one_piece) {
      index.block += rows.begin;
      continue;
    }
    kernels::HostBuffer<int32_t>* const own = &arrays->blocks[b];
    Allocate(rows.size, own);
    context_->ParallelFor(
        rows.size, kRowsPerTask, [&](int64_t begin, int64_t end) {
          for (int64_t k = begin; k < end; ++k) {
            own->data()[k] = static_cast<int32_t>(
                residuals.blocks[b].BlockOf(rows.Row(k)) - first);
          }
        });
    index.block = own->data();
  }
  of_part.weights = gather(residuals.weights, 1, &arrays->weights);
  of_part.constants = gather(static_cast<const char*>(residuals.constants),
                             residuals.constants_bytes,
                             &arrays->constants);
  of_part.cost_functions =
      gather(residuals.cost_functions, 1, &arrays->cost_functions);
  part->problem.AddResiduals(of_part);
}

}  // namespace ceres_ext
