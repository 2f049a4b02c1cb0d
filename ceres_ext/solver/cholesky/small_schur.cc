// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "ceres_ext/solver/cholesky/small_schur.h"

#include <algorithm>
#include <numeric>
#include <type_traits>

#include "cuda_kernels/base/simd.h"
#include "cuda_kernels/base/small_matrix.h"

namespace ceres_ext::solver {
namespace {

using kernels::kSimdLanes;
using kernels::RowCell;
using kernels::SimdDoubles;
using kernels::Status;

CERES_EXT_SIMD_INLINE SimdDoubles& VectorAt(double* x) {
  return *reinterpret_cast<SimdDoubles*>(x);
}
CERES_EXT_SIMD_INLINE const SimdDoubles& VectorAt(const double* x) {
  return *reinterpret_cast<const SimdDoubles*>(x);
}

int32_t WholeVectors(int32_t columns) {
  return (columns + kSimdLanes - 1) / kSimdLanes * kSimdLanes;
}

// sums = P'Q, elements on and right of the diagonal and some others: P and Q
// have num_rows x width values, sums width x width, all row-major.
CERES_EXT_SIMD_CLONES void SumProducts(
    const double* p, const double* q, int num_rows, int width, double* sums) {
  constexpr int kRows = 4;  // at once, of sums
  for (int a = 0; a < width; a += kRows) {
    for (int b = a - a % kSimdLanes; b < width; b += kSimdLanes) {
      SimdDoubles sum[kRows] = {};
      const double* left = p + a;
      const double* right = q + b;
      for (int k = 0; k < num_rows; ++k, left += width, right += width) {
        const SimdDoubles of_right = VectorAt(right);
        for (int i = 0; i < kRows; ++i) {
          sum[i] += left[i] * of_right;
        }
      }
      for (int i = 0; i < kRows; ++i) {
        VectorAt(sums + int64_t{width} * (a + i) + b) = sum[i];
      }
    }
  }
}

// S += factor sums, on and right of the diagonal.
CERES_EXT_SIMD_CLONES void AddPanel(const SmallSchur::Panel& panel,
                                    double factor,
                                    const double* sums,
                                    int64_t stride,
                                    double* matrix) {
  for (int i = 0; i < panel.num_runs; ++i) {
    const SmallSchur::Run& left = panel.runs[i];
    for (int a = 0; a < left.size; ++a) {
      double* const to = matrix + stride * (left.unknown + a);
      const double* const row = sums + int64_t{panel.width} * (left.column + a);
      for (int j = i; j < panel.num_runs; ++j) {
        const SmallSchur::Run& right = panel.runs[j];
        for (int b = j == i ? a : 0; b < right.size; ++b) {
          to[right.unknown + b] += factor * row[right.column + b];
        }
      }
    }
  }
}

// fn(size), by a constant if it is the size of many blocks: loops of so few
// have no overhead then.
template <typename Function>
CERES_EXT_SIMD_INLINE void WithSize(int size, Function&& fn) {
  switch (size) {
    case 3:
      return fn(std::integral_constant<int, 3>());
    case 6:
      return fn(std::integral_constant<int, 6>());
    case 9:
      return fn(std::integral_constant<int, 9>());
    default:
      return fn(size);
  }
}

// x += factor y, n values.
CERES_EXT_SIMD_INLINE void AddScaled(int n,
                                     double factor,
                                     const double* y,
                                     double* x) {
  WithSize(n, [&](auto size) {
    for (int i = 0; i < size; ++i) {
      x[i] += factor * y[i];
    }
  });
}

// Y = Vi W', size x width each, Vi packed.
CERES_EXT_SIMD_CLONES void MultiplyByInverse(
    const double* inverse, const double* w, int size, int width, double* y) {
  for (int m = 0; m < size; ++m) {
    for (int b = 0; b < width; b += kSimdLanes) {
      SimdDoubles sum = {};
      for (int n = 0; n < size; ++n) {
        sum += inverse[n <= m ? kernels::PackedIndex(m, n)
                              : kernels::PackedIndex(n, m)] *
               VectorAt(w + int64_t{width} * n + b);
      }
      VectorAt(y + int64_t{width} * m + b) = sum;
    }
  }
}

// The parts of a row in V, E'b and W'. cells: of the row, w_column: of each.
CERES_EXT_SIMD_CLONES void AddRow(const kernels::BlockRowsRef& rows,
                                  int32_t row,
                                  const double* values,
                                  const double* b,
                                  const int32_t* w_column,
                                  int width,
                                  double* v,
                                  double* gradient,
                                  double* w) {
  const int32_t first = rows.cell_begin[row];
  const RowCell e_cell = rows.cells[first];  // It stands first.
  const int32_t num_residuals = rows.row_begin[row + 1] - rows.row_begin[row];
  for (int32_t i = 0; i < num_residuals; ++i) {
    const double* const e = values + e_cell.value + int64_t{e_cell.size} * i;
    for (int m = 0; m < e_cell.size; ++m) {
      gradient[m] += e[m] * b[i];
      AddScaled(m + 1, e[m], e, v + kernels::PackedIndex(m, 0));
    }
    for (int32_t c = first + 1; c < rows.cell_begin[row + 1]; ++c) {
      const RowCell cell = rows.cells[c];
      const double* const f = values + cell.value + int64_t{cell.size} * i;
      for (int m = 0; m < e_cell.size; ++m) {
        AddScaled(cell.size, e[m], f, w + int64_t{width} * m + w_column[c]);
      }
    }
  }
}

// True for the same runs. Panels without runs may have the place of others.
bool AreSame(const SmallSchur::Panel& a, const SmallSchur::Panel& b) {
  return a.runs == b.runs && a.num_runs == b.num_runs;
}

}  // namespace

Status SmallSchur::Setup(const kernels::BlockRowsRef& rows,
                         const double* values,
                         const kernels::BlockFamilies& e,
                         const kernels::BlockFamilies& f,
                         const std::vector<unsigned char>& f_varies,
                         kernels::HostMachine* machine) {
  rows_ = rows;
  values_ = values;
  machine_ = machine;
  num_e_values_ = e.num_values();
  f_ = f;
  unknown_.assign(static_cast<size_t>(f.num_values()), -1);
  int32_t n = 0;
  for (size_t i = 0; i < unknown_.size(); ++i) {
    if (f_varies[i] != 0) {
      unknown_[i] = n++;
    }
  }
  stride_ = kernels::HostDenseCholesky::Stride(n);
  size_ = {};
  size_.is_factorized = true;
  size_.num_unknowns = n;
  size_.num_values = stride_ * n;
  runs_.clear();
  ListGroups();
  eliminated_.clear();
  w_column_.assign(static_cast<size_t>(rows.cell_begin[rows.num_rows]), 0);
  for (int i = 0; i < e.size(); ++i) {
    for (int32_t b = 0; b < e[i].num_blocks; ++b) {
      Eliminated block;
      block.size = e[i].size;
      block.number = b;
      block.column = static_cast<int32_t>(e[i].value_begin) + b * e[i].size;
      eliminated_.push_back(block);
    }
  }
  ListEliminated();
  SharePanels();
  int64_t most_panel = 0;
  int64_t most_sums = 0;
  for (Group& group : groups_) {
    group.panel.runs = runs_.data() + group.run_begin;
    most_panel =
        std::max(most_panel, int64_t{group.panel.width} * group.num_residuals);
    most_sums =
        std::max(most_sums, int64_t{group.panel.width} * group.panel.width);
  }
  int64_t num_y = 0;
  int64_t most_w = 0;
  int64_t num_w = 0;  // of the blocks that share a panel
  for (size_t i = 0; i < eliminated_.size(); ++i) {
    Eliminated& block = eliminated_[i];
    const int64_t width = block.panel.width;
    num_w = i > 0 && AreSame(block.panel, eliminated_[i - 1].panel) ? num_w : 0;
    num_w += block.size * width;
    block.y_begin = num_y;
    num_y += block.row_begin < block.row_end ? block.size * width : 0;
    most_w = std::max(most_w, num_w);
    most_sums = std::max(most_sums, width * width);
  }
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(most_panel, &panel_));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(most_sums, &sums_));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(most_w, &w_));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_y, &y_));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_e_values_, &motion_));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(size_.num_values, &matrix_));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(n, &rhs_));
  return cholesky_.Setup(n, machine);
}

int32_t SmallSchur::AddRuns(std::vector<std::pair<int32_t, int32_t>>* unknowns,
                            int32_t* run_begin,
                            int32_t* num_runs) {
  std::sort(unknowns->begin(), unknowns->end());
  *run_begin = static_cast<int32_t>(runs_.size());
  int32_t width = 0;
  int32_t end = -1;  // of the run
  for (const auto& [unknown, size] : *unknowns) {
    if (unknown < end) {
      continue;  // The block is there.
    }
    if (unknown == end) {
      runs_.back().size += size;
    } else {
      runs_.push_back({width, unknown, size});
    }
    width += size;
    end = unknown + size;
  }
  *num_runs = static_cast<int32_t>(runs_.size()) - *run_begin;
  return WholeVectors(width);
}

int32_t SmallSchur::ColumnOf(const RowCell& cell,
                             int32_t run_begin,
                             int32_t num_runs) const {
  const int32_t unknown = unknown_[static_cast<size_t>(cell.column)];
  const Run* run = runs_.data() + run_begin + num_runs - 1;
  while (run->unknown > unknown) {
    --run;
  }
  return run->column + unknown - run->unknown;
}

void SmallSchur::ListGroups() {
  // Rows by the columns of their F cells, those of the same ones ascending.
  const auto compare = [this](int32_t left, int32_t right) {
    const RowCell* a = rows_.cells + rows_.cell_begin[left];
    const RowCell* b = rows_.cells + rows_.cell_begin[right];
    const RowCell* const a_end = rows_.cells + rows_.cell_begin[left + 1];
    const RowCell* const b_end = rows_.cells + rows_.cell_begin[right + 1];
    while (true) {
      while (a < a_end && !IsOther(*a)) {
        ++a;
      }
      while (b < b_end && !IsOther(*b)) {
        ++b;
      }
      if (a == a_end || b == b_end) {
        return (b < b_end ? 1 : 0) - (a < a_end ? 1 : 0);
      }
      if (a->column != b->column) {
        return a->column < b->column ? 1 : -1;
      }
      ++a;
      ++b;
    }
  };
  group_rows_.resize(static_cast<size_t>(rows_.num_rows));
  std::iota(group_rows_.begin(), group_rows_.end(), 0);
  std::stable_sort(group_rows_.begin(),
                   group_rows_.end(),
                   [&](int32_t a, int32_t b) { return compare(a, b) > 0; });
  groups_.clear();
  group_columns_.clear();
  std::vector<std::pair<int32_t, int32_t>> unknowns;
  for (int32_t i = 0; i < rows_.num_rows; ++i) {
    const int32_t row = group_rows_[i];
    if (i == 0 || compare(group_rows_[i - 1], row) != 0) {
      Group group;
      group.row_begin = i;
      group.cell_begin = static_cast<int32_t>(group_columns_.size());
      unknowns.clear();
      const auto for_each_cell = [&](auto&& fn) {
        for (int32_t c = rows_.cell_begin[row]; c < rows_.cell_begin[row + 1];
             ++c) {
          if (IsOther(rows_.cells[c])) {
            fn(rows_.cells[c]);
          }
        }
      };
      for_each_cell([&](const RowCell& cell) {
        unknowns.emplace_back(unknown_[static_cast<size_t>(cell.column)],
                              cell.size);
      });
      group.panel.width =
          AddRuns(&unknowns, &group.run_begin, &group.panel.num_runs);
      for_each_cell([&](const RowCell& cell) {
        group_columns_.push_back(
            ColumnOf(cell, group.run_begin, group.panel.num_runs));
      });
      groups_.push_back(group);
    }
    groups_.back().row_end = i + 1;
    groups_.back().num_residuals +=
        rows_.row_begin[row + 1] - rows_.row_begin[row];
  }
}

// Rows are in the order of their eliminated blocks, those without one last.
void SmallSchur::ListEliminated() {
  std::vector<std::pair<int32_t, int32_t>> unknowns;
  int32_t row = 0;
  for (Eliminated& block : eliminated_) {
    block.row_begin = row;
    unknowns.clear();
    for (; row < rows_.num_rows; ++row) {
      const int32_t first = rows_.cell_begin[row];
      const int32_t end = rows_.cell_begin[row + 1];
      if (first == end || rows_.cells[first].eliminated == 0 ||
          rows_.cells[first].column != block.column) {
        break;
      }
      for (int32_t c = first; c < end; ++c) {
        if (IsOther(rows_.cells[c])) {
          unknowns.emplace_back(
              unknown_[static_cast<size_t>(rows_.cells[c].column)],
              rows_.cells[c].size);
        }
      }
    }
    block.row_end = row;
    block.panel.width =
        AddRuns(&unknowns, &block.run_begin, &block.panel.num_runs);
    for (int32_t c = rows_.cell_begin[block.row_begin];
         c < rows_.cell_begin[row];
         ++c) {
      if (IsOther(rows_.cells[c])) {
        w_column_[c] =
            ColumnOf(rows_.cells[c], block.run_begin, block.panel.num_runs);
      }
    }
  }
}

void SmallSchur::SharePanels() {
  const auto compare = [](const Panel& a, const Panel& b) {
    if (a.num_runs != b.num_runs) {
      return a.num_runs - b.num_runs;
    }
    for (int i = 0; i < a.num_runs; ++i) {
      if (a.runs[i].unknown != b.runs[i].unknown) {
        return a.runs[i].unknown - b.runs[i].unknown;
      }
      if (a.runs[i].size != b.runs[i].size) {
        return a.runs[i].size - b.runs[i].size;
      }
    }
    return 0;
  };
  for (Eliminated& block : eliminated_) {
    block.panel.runs = runs_.data() + block.run_begin;
  }
  std::stable_sort(eliminated_.begin(),
                   eliminated_.end(),
                   [&](const Eliminated& a, const Eliminated& b) {
                     return compare(a.panel, b.panel) < 0;
                   });
  for (size_t i = 1; i < eliminated_.size(); ++i) {
    const Panel& last = eliminated_[i - 1].panel;
    if (compare(last, eliminated_[i].panel) == 0) {
      eliminated_[i].panel.runs = last.runs;
    }
  }
}

Status SmallSchur::Form(const LinearSystem& system) {
  const int64_t n = size_.num_unknowns;
  std::fill_n(matrix_.data(), size_.num_values, 0.0);
  std::fill_n(rhs_.data(), n, 0.0);
  std::fill_n(motion_.data(), num_e_values_, 0.0);
  for (const Group& group : groups_) {
    if (group.panel.width > 0) {
      AddGroup(group, system.b);
    }
  }
  for (size_t begin = 0; begin < eliminated_.size();) {
    // Blocks of the same panel leave S together.
    const Panel& panel = eliminated_[begin].panel;
    int num_columns = 0;
    size_t end = begin;
    for (; end < eliminated_.size() && AreSame(eliminated_[end].panel, panel);
         ++end) {
      const Eliminated& block = eliminated_[end];
      if (block.row_begin < block.row_end) {
        CERES_EXT_RETURN_IF_ERROR(Eliminate(
            block, system, w_.data() + int64_t{panel.width} * num_columns));
        num_columns += block.size;
      }
    }
    if (num_columns > 0 && panel.width > 0) {
      SumProducts(w_.data(),
                  y_.data() + eliminated_[begin].y_begin,
                  num_columns,
                  panel.width,
                  sums_.data());
      AddPanel(panel, -1.0, sums_.data(), stride_, matrix_.data());
    }
    begin = end;
  }
  for (size_t i = 0; system.f_diagonal != nullptr && i < unknown_.size(); ++i) {
    if (unknown_[i] >= 0) {
      matrix_.data()[(stride_ + 1) * unknown_[i]] +=
          system.f_diagonal[i] * system.f_diagonal[i];
    }
  }
  return {};
}

void SmallSchur::AddGroup(const Group& group, const double* b) {
  const Panel& panel = group.panel;
  double* to = panel_.data();
  for (int32_t k = group.row_begin; k < group.row_end; ++k) {
    const int32_t row = group_rows_[k];
    for (int32_t r = rows_.row_begin[row]; r < rows_.row_begin[row + 1]; ++r) {
      const int64_t i = r - rows_.row_begin[row];
      const int32_t* column = group_columns_.data() + group.cell_begin;
      const Run& last = panel.runs[panel.num_runs - 1];
      std::fill(to + last.column + last.size, to + panel.width, 0.0);
      for (int32_t c = rows_.cell_begin[row]; c < rows_.cell_begin[row + 1];
           ++c) {
        const RowCell& cell = rows_.cells[c];
        if (!IsOther(cell)) {
          continue;
        }
        const double* const from = values_ + cell.value + cell.size * i;
        double* const s = rhs_.data() + unknown_[cell.column];
        double* const in_panel = to + *column++;
        WithSize(cell.size, [&](auto size) {
          for (int a = 0; a < size; ++a) {
            in_panel[a] = from[a];
            s[a] += from[a] * b[r];
          }
        });
      }
      to += panel.width;
    }
  }
  SumProducts(panel_.data(),
              panel_.data(),
              group.num_residuals,
              panel.width,
              sums_.data());
  AddPanel(panel, 1.0, sums_.data(), stride_, matrix_.data());
}

Status SmallSchur::Eliminate(const Eliminated& block,
                             const LinearSystem& system,
                             double* w) {
  const int size = block.size;
  const int64_t num_w = int64_t{size} * block.panel.width;
  double v[kernels::PackedSize(kernels::kMaxEliminatedSize)];
  double gradient[kernels::kMaxEliminatedSize] = {};
  std::fill_n(v, kernels::PackedSize(size), 0.0);
  std::fill_n(w, num_w, 0.0);
  for (int32_t row = block.row_begin; row < block.row_end; ++row) {
    AddRow(rows_,
           row,
           values_,
           system.b + rows_.row_begin[row],
           w_column_.data(),
           block.panel.width,
           v,
           gradient,
           w);
  }
  if (system.e_diagonal != nullptr) {
    const double* const d = system.e_diagonal + block.column;
    for (int m = 0; m < size; ++m) {
      v[kernels::PackedIndex(m, m)] += d[m] * d[m];
    }
  }
  if (!kernels::InvertSymmetric<kernels::kDynamic>(
          v, size, /*is_definite=*/system.e_diagonal != nullptr)) {
    return NoInverse(/*is_shared=*/true,
                     block.number,
                     /*damped=*/system.e_diagonal != nullptr);
  }
  double* const motion = motion_.data() + block.column;
  for (int m = 0; m < size; ++m) {
    motion[m] =
        kernels::SymmetricProduct<kernels::kDynamic>(v, m, gradient, size);
  }
  double* const y = y_.data() + block.y_begin;
  MultiplyByInverse(v, w, size, block.panel.width, y);
  for (int i = 0; i < block.panel.num_runs; ++i) {
    const Run& run = block.panel.runs[i];
    for (int m = 0; m < size; ++m) {
      AddScaled(run.size,
                -motion[m],
                w + int64_t{block.panel.width} * m + run.column,
                rhs_.data() + run.unknown);
    }
  }
  return {};
}

Status SmallSchur::Solve(double* f_step) {
  CERES_EXT_RETURN_IF_ERROR(cholesky_.QueueFactorization(matrix_.data()));
  int64_t failed_order = 0;
  CERES_EXT_RETURN_IF_ERROR(cholesky_.ReadFailedOrder(&failed_order));
  if (failed_order != 0) {
    const auto found = std::find(unknown_.begin(),
                                 unknown_.end(),
                                 static_cast<int32_t>(failed_order) - 1);
    return NoFactor(f_, found - unknown_.begin());
  }
  CERES_EXT_RETURN_IF_ERROR(cholesky_.Solve(rhs_.data(), rhs_.data()));
  for (size_t i = 0; i < unknown_.size(); ++i) {
    f_step[i] = unknown_[i] < 0 ? 0.0 : rhs_.data()[unknown_[i]];
  }
  return {};
}

void SmallSchur::BackSubstitute(double* e_step) const {
  std::copy_n(motion_.data(), num_e_values_, e_step);
  for (const Eliminated& block : eliminated_) {
    const double* y = y_.data() + block.y_begin;
    for (int m = 0; m < block.size && block.row_begin < block.row_end;
         ++m, y += block.panel.width) {
      double sum = 0.0;
      for (int i = 0; i < block.panel.num_runs; ++i) {
        const Run& run = block.panel.runs[i];
        for (int b = 0; b < run.size; ++b) {
          sum += y[run.column + b] * rhs_.data()[run.unknown + b];
        }
      }
      e_step[block.column + m] -= sum;
    }
  }
}

}  // namespace ceres_ext::solver
