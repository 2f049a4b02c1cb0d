// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/session/known_facts.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "ceres_ext/base/machines.h"
#include "ceres_ext/base/scoped_seconds.h"
#include "ceres_ext/import/problem_rows.h"
#include "ceres_ext/plan/device_choice.h"
#include "ceres_ext/plan/factor_work.h"
#include "ceres_ext/plan/kept_rates.h"
#include "ceres_ext/rows/observation_evaluator.h"
#include "ceres_ext/solver/preconditioner/coarse_units.h"
#include "cuda_kernels/machine/cuda_process.h"

namespace ceres_ext {
namespace {

// True if CUDA is started in this process, or there is none.
bool HasContext(int cuda_device) {
  if constexpr (kHasCuda) {
    return kernels::HasRuntimeContext(cuda_device);
  }
  return true;
}

double NumPairs(double n) { return 0.5 * n * (n + 1.0); }

// Rows of an eliminated block above which it matters how many of them have the
// same other block.
constexpr int32_t kLongBlock = 64;

// For each eliminated block of more than kLongBlock rows its pairs of other
// blocks, each with itself included, in place of pairs of rows; summed. If its
// rows have several other blocks, as many as a row has in the mean count as
// one. num_rows, num_cells: for each eliminated block, its rows and the other
// blocks in these. for_each_cell(fn) calls fn(eliminated block, other block)
// for each.
template <typename ForEachCell>
double NumPairsOfLongBlocks(const std::vector<int32_t>& num_rows,
                            const std::vector<int32_t>& num_cells,
                            const ForEachCell& for_each_cell) {
  // The other blocks of long blocks, by block.
  std::vector<int64_t> begin;
  std::vector<double> cells_of_row;
  std::vector<int32_t> long_block(num_rows.size(), -1);
  int64_t end = 0;
  for (size_t e = 0; e < num_rows.size(); ++e) {
    if (num_rows[e] > kLongBlock) {
      long_block[e] = static_cast<int32_t>(begin.size());
      begin.push_back(end);
      cells_of_row.push_back(static_cast<double>(num_cells[e]) / num_rows[e]);
      end += num_cells[e];
    }
  }
  if (begin.empty()) {
    return 0.0;
  }
  std::vector<int32_t> other(static_cast<size_t>(end));
  std::vector<int64_t> next = begin;
  int32_t num_others = 0;
  for_each_cell([&](int32_t eliminated, int32_t other_block) {
    const int32_t e = long_block[eliminated];
    if (e >= 0) {
      num_others = std::max(num_others, other_block + 1);
      other[next[e]++] = other_block;
    }
  });
  std::vector<int32_t> seen_by(static_cast<size_t>(num_others), -1);
  double num_pairs = 0.0;
  begin.push_back(end);
  for (size_t e = 0; e + 1 < begin.size(); ++e) {
    int32_t num_seen = 0;
    for (int64_t i = begin[e]; i < begin[e + 1]; ++i) {
      int32_t& seen = seen_by[other[i]];
      if (seen != static_cast<int32_t>(e)) {
        seen = static_cast<int32_t>(e);
        ++num_seen;
      }
    }
    num_pairs += NumPairs(num_seen / cells_of_row[e]);
  }
  return num_pairs;
}

// Lists the blocks of a row that S has. Returns the eliminated one; -1: none.
int32_t SplitBlocks(const ProblemStructure& structure,
                    int32_t row,
                    std::vector<int32_t>* others) {
  int32_t eliminated = -1;
  others->clear();
  for (const int32_t block : structure.rows->BlocksOf(row)) {
    if (block == BlockOfRow::kConstant) {
      continue;
    }
    if (structure.is_eliminated[block] == elimination::kEliminated) {
      eliminated = block;
    } else if (structure.is_eliminated[block] == elimination::kOther) {
      others->push_back(block);
    }
  }
  return eliminated;
}

// Couplings of general rows; a row without an eliminated block has one. S is
// summed of pairs of blocks (structure/schur_pairs.h), so those of an
// eliminated block of many rows are counted.
double NumGeneralCouplings(const ProblemStructure& structure,
                           kernels::HostContext* context) {
  constexpr int64_t kRowsPerTask = 1 << 10;
  const std::vector<int32_t>& rows = structure.general_rows;
  if (rows.empty()) {
    return 0.0;
  }
  std::vector<int32_t> num_rows(structure.is_eliminated.size(), 0);
  std::vector<int32_t> num_cells(structure.is_eliminated.size(), 0);
  std::atomic<int64_t> num_without{0};
  context->ParallelFor(
      static_cast<int64_t>(rows.size()),
      kRowsPerTask,
      [&](int64_t begin, int64_t end) {
        int64_t num_without_in_task = 0;
        std::vector<int32_t> others;
        for (int64_t i = begin; i < end; ++i) {
          const int32_t e = SplitBlocks(structure, rows[i], &others);
          // Rows without other blocks add nothing to S.
          if (others.empty()) {
            continue;
          }
          if (e < 0) {
            ++num_without_in_task;
            continue;
          }
          __atomic_fetch_add(&num_rows[e], 1, __ATOMIC_RELAXED);
          __atomic_fetch_add(&num_cells[e],
                             static_cast<int32_t>(others.size()),
                             __ATOMIC_RELAXED);
        }
        num_without += num_without_in_task;
      });
  auto num_couplings = static_cast<double>(num_without);
  for (const int32_t n : num_rows) {
    num_couplings += n > kLongBlock ? 0.0 : NumPairs(n);
  }
  return num_couplings +
         NumPairsOfLongBlocks(num_rows, num_cells, [&](const auto& fn) {
           std::vector<int32_t> others;
           for (const int32_t row : rows) {
             const int32_t e = SplitBlocks(structure, row, &others);
             for (const int32_t block : others) {
               if (e >= 0) {
                 fn(e, block);
               }
             }
           }
         });
}

// S of general rows by its other blocks, in their order: those of a row, and
// those of all rows of an eliminated block, are coupled.
BlockPattern PatternOfGeneralRows(const ProblemStructure& structure) {
  BlockPattern pattern;
  std::vector<int32_t> first = {0};  // of each family
  for (const BlockTable& table : structure.f) {
    for (int32_t i = 0; i < table.size(); ++i) {
      pattern.size.push_back(table.tangent_size(i));
    }
    first.push_back(static_cast<int32_t>(pattern.size.size()));
  }
  // The other blocks of each eliminated one.
  std::vector<std::vector<int32_t>> others(structure.is_eliminated.size());
  const size_t n = pattern.size.size();
  std::vector<std::vector<bool>> is_set(n);
  for (size_t i = 0; i < n; ++i) {
    is_set[i].assign(i + 1, false);
  }
  const auto couple = [&](const std::vector<int32_t>& blocks) {
    for (const int32_t a : blocks) {
      for (const int32_t b : blocks) {
        if (b <= a) {
          is_set[a][b] = true;
        }
      }
    }
  };
  std::vector<int32_t> of_row;
  for (const int32_t row : structure.general_rows) {
    const int32_t eliminated = SplitBlocks(structure, row, &of_row);
    for (int32_t& block : of_row) {
      block =
          first[structure.family.data()[block]] + structure.place.data()[block];
    }
    if (eliminated < 0) {
      couple(of_row);
      continue;
    }
    for (const int32_t block : of_row) {
      std::vector<int32_t>& list = others[eliminated];
      if (list.empty() || list.back() != block) {
        list.push_back(block);
      }
    }
  }
  for (std::vector<int32_t>& list : others) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    couple(list);
  }
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      if (is_set[i][j]) {
        pattern.cells.emplace_back(i, j);
      }
    }
  }
  return pattern;
}

// Calls fn(n, eliminated block of each row, other block of each row, offset of
// the other blocks) for the observations of each kind and the rows of views.
template <typename Function>
void ForEachRows(const ProblemStructure& structure, Function&& fn) {
  int32_t offset = 0;
  for (const ObservationTable& table : structure.observations) {
    fn(table.size(), table.point_id.data(), table.camera_id.data(), offset);
    offset += structure.f[static_cast<size_t>(table.camera_family)].size();
  }
  const ViewStructure& views = structure.views;
  fn(views.size(), views.point_id.data(), views.view_id.data(), offset);
}

// S of pairs of blocks takes W of each pair, and a list of the rows of each: it
// has to save more than that.
bool RowsRepeat(double num_couplings, double of_blocks, double num_rows) {
  constexpr double kTimes = 4.0;
  return num_couplings > kTimes * (of_blocks + num_rows);
}

// Observations of one kind, or views that share no block, need none.
bool HasPairs(const ProblemStructure& structure) {
  if (!structure.general_rows.empty() ||
      (structure.views.size() > 0 && !structure.observations.empty()) ||
      structure.observations.size() > 1) {
    return true;
  }
  std::vector<int32_t> blocks;
  for (const std::vector<int32_t>& of_view : structure.views.blocks) {
    blocks.insert(blocks.end(), of_view.begin(), of_view.end());
  }
  std::sort(blocks.begin(), blocks.end());
  return std::adjacent_find(blocks.begin(), blocks.end()) != blocks.end();
}

int64_t NumSharedColumns(const ProblemStructure& structure) {
  std::vector<int32_t> blocks;
  for (const std::vector<int32_t>& of_view : structure.views.blocks) {
    blocks.insert(blocks.end(), of_view.begin(), of_view.end());
  }
  std::sort(blocks.begin(), blocks.end());
  int64_t num_columns = 0;
  for (auto block = blocks.begin(); block != blocks.end();) {
    const auto end = std::upper_bound(block, blocks.end(), *block);
    if (end - block > solver::kMostViewsOfBlock) {
      num_columns += structure.rows->block(*block).tangent_size;
    }
    block = end;
  }
  return num_columns;
}

}  // namespace

RowFacts FactsOf(const ProblemStructure& structure) {
  RowFacts facts;
  facts.num_observations = structure.num_observations();
  facts.num_observation_kinds = static_cast<int>(structure.observations.size());
  facts.num_other_rows = structure.num_other_rows();
  facts.num_general_rows = static_cast<int64_t>(structure.general_rows.size());
  facts.has_private = structure.private_family >= 0;
  facts.has_models = !structure.models.empty();
  facts.num_residuals = structure.num_residuals;
  facts.num_columns = structure.num_columns;
  for (const BlockTable& table : structure.f) {
    facts.num_other_columns += table.NumColumns();
    facts.max_block_columns =
        std::max(facts.max_block_columns, table.MaxTangentSize());
  }
  facts.num_shared_columns = NumSharedColumns(structure);
  return facts;
}

void CountCouplings(const ProblemStructure& structure,
                    kernels::HostContext* context,
                    RowFacts* facts) {
  // Fewer rows are counted by one thread: more would exchange cache lines.
  constexpr int64_t kRowsPerTask = 1 << 16;
  facts->has_pairs = HasPairs(structure);
  const auto n = static_cast<double>(structure.num_observations() +
                                     structure.views.size());
  const double of_general_rows = NumGeneralCouplings(structure, context);
  // More take longer than a few steps of PCG, and the estimate without it will
  // do.
  constexpr int64_t kMostColumns = 1 << 15;
  constexpr int64_t kMostBlocks = 1 << 14;
  constexpr double kMostCouplingsOfRow = 16.0;
  int64_t num_blocks_of_s = 0;
  for (const BlockTable& table : structure.f) {
    num_blocks_of_s += table.size();
  }
  if (n == 0.0 && num_blocks_of_s <= kMostBlocks &&
      facts->num_other_columns <= kMostColumns &&
      of_general_rows <=
          kMostCouplingsOfRow * static_cast<double>(facts->num_general_rows)) {
    facts->factor = CountFactorWork(PatternOfGeneralRows(structure));
  }
  const auto set = [&](double of_rows, double of_blocks) {
    facts->rows_repeat = RowsRepeat(of_rows, of_blocks, n);
    facts->num_couplings =
        of_general_rows + (facts->rows_repeat ? of_blocks : of_rows);
  };
  // The bound on pairs of blocks if rows are on a device.
  double num_others = 0.0;
  for (const BlockTable& table : structure.f) {
    num_others += table.size();
  }
  const double most_of_blocks = 0.5 * n * (num_others + 1.0);
  if (structure.num_couplings >= 0.0) {
    set(structure.num_couplings,
        std::min(structure.num_couplings, most_of_blocks));
    return;
  }
  int64_t num_blocks = 0;
  for (const BlockTable& table : structure.e) {
    num_blocks += table.size();
  }
  std::vector<int32_t> num_rows(num_blocks, 0);
  ForEachRows(structure,
              [&](int64_t size,
                  const int32_t* eliminated,
                  const int32_t* /*other*/,
                  int32_t /*offset*/) {
                context->ParallelFor(
                    size, kRowsPerTask, [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) {
                        __atomic_fetch_add(
                            &num_rows[eliminated[i]], 1, __ATOMIC_RELAXED);
                      }
                    });
              });
  double num_couplings = 0.0;
  double of_short_blocks = 0.0;
  for (const int32_t rows : num_rows) {
    num_couplings += NumPairs(rows);
    of_short_blocks += rows > kLongBlock ? 0.0 : NumPairs(rows);
  }
  double of_blocks = num_couplings;
  if (std::any_of(structure.observations.begin(),
                  structure.observations.end(),
                  [](const auto& t) { return t.camera_id.on_device(); })) {
    of_blocks = std::min(num_couplings, most_of_blocks);
  } else if (RowsRepeat(num_couplings, of_short_blocks, n)) {
    of_blocks = of_short_blocks +
                NumPairsOfLongBlocks(num_rows, num_rows, [&](const auto& fn) {
                  ForEachRows(structure,
                              [&](int64_t size,
                                  const int32_t* eliminated,
                                  const int32_t* other,
                                  int32_t offset) {
                                for (int64_t i = 0; i < size; ++i) {
                                  fn(eliminated[i], offset + other[i]);
                                }
                              });
                });
  }
  set(num_couplings, of_blocks);
}

bool KnownFacts::BuildHasCuda() const { return kHasCuda; }

std::string KnownFacts::WhyNoDevice() const {
  if (device_ != nullptr || !why_no_device_.empty()) {
    return why_no_device_;
  }
  const bool has_context = HasContext(options_.cuda_device);
  double seconds = 0.0;
  {
    const ScopedSeconds timer(&seconds);
    why_no_device_ =
        AsReason(kept_->GetDevice(options_, num_threads_, &device_));
  }
  if (!has_context && why_no_device_.empty()) {
    context_seconds_ += seconds;
  }
  return why_no_device_;
}

std::string KnownFacts::WhyHost(const SolveWork& work) const {
  return ceres_ext::WhyHost(work, options_, &context_seconds_);
}

std::string KnownFacts::WhyNoFactorization(SchurFactorizationType type) const {
  return ceres_ext::WhyNoFactorization(type);
}

kernels::MachineRates KnownFacts::Rates() const { return RatesOf(options_); }

kernels::MachineRates KnownFacts::HostRates(double host_seconds) const {
  return HostRatesOf(options_, host_seconds);
}

std::string KnownFacts::WhyNotRecomputed() const {
  for (const ObservationTable& rows : structure_->observations) {
    std::string why =
        ceres_ext::WhyNotRecomputed(rows,
                                    structure_->e[0],
                                    structure_->num_other_rows() > 0,
                                    kept_->host_context(num_threads_));
    if (!why.empty()) {
      return why;
    }
  }
  return "";
}

}  // namespace ceres_ext
