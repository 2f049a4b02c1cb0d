// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/fit/fit_host.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ceres_ext/small/fit/fit_solve.h"

namespace ceres_ext {
namespace {

// One thread.
struct HostFitTeam {
  static bool is_first() { return true; }
  static bool Any(bool value) { return value; }
  static int FromFirst(int value) { return value; }
  static double Sum(double value) { return value; }
  static void Barrier() {}
};

// The active rows of a fit as a RowBatch, which the model evaluates.
template <int kColumns>
class HostFit {
 public:
  HostFit(const FitBatch& batch,
          const FitParams& params,
          const FitRecord& record,
          FitWorkspace* workspace,
          FitMemory<kColumns>* memory)
      : batch_(batch),
        params_(params),
        record_(record),
        w_(workspace),
        memory_(memory) {}

  // Sets x to the start. False if a value is not finite or an index is out of
  // its range.
  bool Load() {
    std::fill_n(memory_->x, kColumns, 0.0);
    std::fill_n(memory_->moved, kColumns, 0.0);
    w_->constant_state.clear();
    int value_begin = 0;
    int tangent_begin = 0;
    for (int s = 0; s < batch_.num_slots(); ++s) {
      Slot& slot = slots_[s];
      const FitSlot& from = params_.slots[s];
      const int size = batch_.slot_size(s);
      slot.begin = from.begin[record_.number];
      slot.end = from.begin[record_.number + 1];
      const double* const values =
          from.values + size * (slot.begin - from.first);
      const int64_t num_values = size * (slot.end - slot.begin);
      for (int64_t e = 0; e < num_values; ++e) {
        if (!std::isfinite(values[e])) {
          return false;
        }
      }
      if (!IsVarying(s)) {
        slot.state = -1 - static_cast<int32_t>(w_->constant_state.size());
        w_->constant_state.insert(
            w_->constant_state.end(), values, values + num_values);
        continue;
      }
      const FitManifold manifold = batch_.ManifoldOf(record_, s);
      slot.state = value_begin;
      slot.tangent_size = manifold.tangent_size();
      if (manifold.num_factors > 0) {
        slot.tangent = tangent_begin;
        tangent_begin += size * slot.tangent_size;
      }
      std::copy_n(values, size, memory_->x + value_begin);
      from.Bound(slot.begin, size, memory_->x + value_begin);
      used_columns_ |= ((1U << slot.tangent_size) - 1) << value_begin;
      value_begin += size;
    }
    return LoadRows();
  }

  int64_t num_rows() const { return rows_.num_rows; }
  uint32_t used_columns() const { return used_columns_; }

  bool AddRows(const double* x, FitSums<kColumns>* sums) {
    const int num_residuals = batch_.model().num_residuals;
    std::fill(columns_.begin(), columns_.end(), 0.0);
    RowBatch rows = rows_;
    rows.state = x;
    rows.tangents = memory_->tangents;
    rows.residuals = w_->residuals.data();
    rows.f.data = columns_.data();
    rows.f.residual = kColumns;
    rows.f.element = 1;
    bool is_finite = true;
    for (int64_t i = 0; i < rows.num_rows; ++i) {
      const RowTerm term = batch_.model().evaluate_row(rows, true, i);
      is_finite = is_finite && term.second == 0.0;
      sums->cost += 0.5 * term.first;
      for (int r = 0; r < num_residuals; ++r) {
        sums->Add(rows.residuals[num_residuals * i + r],
                  columns_.data() + int64_t{kColumns} * r);
      }
    }
    return is_finite;
  }

  bool AddCosts(const double* x, double* cost) {
    RowBatch rows = rows_;
    rows.state = x;
    bool is_finite = true;
    for (int64_t i = 0; i < rows.num_rows; ++i) {
      const RowTerm term = batch_.model().evaluate_row(rows, false, i);
      is_finite = is_finite && term.second == 0.0;
      *cost += 0.5 * term.first;
    }
    return is_finite;
  }

  void Plus(const double* x, const double* delta, double* moved) {
    for (int s = 0; s < batch_.num_slots(); ++s) {
      if (IsVarying(s)) {
        const int begin = slots_[s].state;
        batch_.ManifoldOf(record_, s)
            .Plus(x + begin, delta + begin, moved + begin);
        params_.slots[s].Bound(
            slots_[s].begin, batch_.slot_size(s), moved + begin);
      }
    }
  }

  void SetTangents(const double* x) {
    std::fill_n(memory_->tangents, kColumns * kColumns, 0.0);
    for (int s = 0; s < batch_.num_slots(); ++s) {
      if (IsVarying(s) && slots_[s].tangent >= 0) {
        batch_.ManifoldOf(record_, s)
            .PlusJacobian(x + slots_[s].state,
                          slots_[s].tangent_size,
                          memory_->tangents + slots_[s].tangent);
      }
    }
  }

  void Store() const {
    for (int s = 0; s < batch_.num_slots(); ++s) {
      if (IsVarying(s)) {
        const int size = batch_.slot_size(s);
        const FitSlot& to = params_.slots[s];
        std::copy_n(memory_->x + slots_[s].state,
                    size,
                    to.results + size * (slots_[s].begin - to.first));
      }
    }
  }

 private:
  struct Slot {
    int64_t begin = 0;  // blocks of the fit
    int64_t end = 0;
    int32_t state = 0;  // RowBlock::state of the first
    int32_t tangent = RowBlock::kIdentity;
    int32_t tangent_size = 0;
  };

  bool IsVarying(int s) const { return (record_.varying >> s & 1) != 0; }

  bool LoadRows() {
    w_->blocks.clear();
    w_->constants.clear();
    w_->weights.clear();
    w_->loss_id.clear();
    const int num_slots = batch_.num_slots();
    const int num_bytes = batch_.model().constants_bytes;
    const int num_words = (num_bytes + 7) / 8;
    int64_t n = 0;
    for (int a = 0; a < params_.num_arrays; ++a) {
      const FitRows& rows = params_.rows[a];
      const int64_t end = rows.begin[record_.number + 1];
      for (int64_t k = rows.begin[record_.number]; k < end; ++k) {
        const int64_t at = k - rows.first;
        bool is_active = rows.is_active == nullptr || rows.is_active[at] != 0;
        for (int s = 0; s < num_slots; ++s) {
          const int64_t block =
              rows.block[s] == nullptr ? k : rows.block[s][at];
          if (block < slots_[s].begin || block >= slots_[s].end) {
            return false;
          }
          const FitSlot& of_slot = params_.slots[s];
          is_active = is_active && (of_slot.is_active == nullptr ||
                                    of_slot.is_active[block - of_slot.first]);
          w_->blocks.push_back(BlockOf(s, block));
        }
        if (!is_active) {
          w_->blocks.resize(w_->blocks.size() - num_slots);
          continue;
        }
        if (rows.weights != nullptr &&
            !(rows.weights[at] >= 0.0 && std::isfinite(rows.weights[at]))) {
          return false;
        }
        w_->weights.push_back(rows.weights != nullptr ? rows.weights[at] : 1.0);
        w_->loss_id.push_back(
            static_cast<uint8_t>(rows.loss < 0 ? kernels::kNoLoss : rows.loss));
        w_->constants.resize(w_->constants.size() + num_words);
        std::memcpy(w_->constants.data() + n * num_words,
                    static_cast<const char*>(rows.constants) + at * num_bytes,
                    num_bytes);
        ++n;
      }
    }
    w_->residuals.resize(n * batch_.model().num_residuals);
    columns_.resize(int64_t{kColumns} * batch_.model().num_residuals);
    rows_.num_rows = n;
    rows_.blocks = w_->blocks.data();
    rows_.constant_state = w_->constant_state.data();
    rows_.constants = w_->constants.data();
    rows_.constant_row = num_words;
    rows_.constant_word = 1;
    rows_.loss.losses = params_.losses;
    rows_.loss.loss_id = batch_.losses().empty() ? nullptr : w_->loss_id.data();
    rows_.loss.weights = w_->weights.data();
    rows_.apply_loss = true;
    return true;
  }

  RowBlock BlockOf(int s, int64_t block) const {
    const Slot& slot = slots_[s];
    RowBlock of_row;
    if (IsVarying(s)) {
      of_row.state = slot.state;
      of_row.tangent = slot.tangent;
      of_row.column = slot.state;
      of_row.size = slot.tangent_size;
    } else {
      of_row.state = slot.state - static_cast<int32_t>(batch_.slot_size(s) *
                                                       (block - slot.begin));
    }
    return of_row;
  }

  const FitBatch& batch_;
  const FitParams& params_;
  const FitRecord& record_;
  FitWorkspace* const w_;
  FitMemory<kColumns>* const memory_;
  Slot slots_[kMaxFitSlots];
  uint32_t used_columns_ = 0;
  RowBatch rows_;
  std::vector<double> columns_;  // of a row
};

template <int kColumns, bool kIsBounded>
void Solve(const FitBatch& batch,
           const FitParams& params,
           const FitRecord& record,
           FitWorkspace* workspace) {
  FitMemory<kColumns> memory;
  HostFitTeam team;
  HostFit<kColumns> fit(batch, params, record, workspace, &memory);
  FitResult* const result = params.results + record.number;
  *result = FitResult();
  if (!fit.Load()) {
    result->status = FitResult::kNotValid;
    return;
  }
  result->num_rows = static_cast<int32_t>(fit.num_rows());
  result->status = FitResult::kEmpty;
  if (fit.num_rows() > 0) {
    FitSolve<kColumns, HostFit<kColumns>, HostFitTeam, kIsBounded>(
        &fit, &memory, &team)
        .Run(params.options, /*is_valid=*/true, fit.used_columns());
    fit.Store();
    result->status = FitResult::kSolved;
    result->region = memory.region;
  }
}

template <bool kIsBounded>
void SolveByColumns(const FitBatch& batch,
                    const FitParams& params,
                    const FitRecord& record,
                    FitWorkspace* workspace) {
  int num_values = 0;
  for (int s = 0; s < batch.num_slots(); ++s) {
    num_values += (record.varying >> s & 1) != 0 ? batch.slot_size(s) : 0;
  }
  const auto solve = num_values <= 4    ? &Solve<4, kIsBounded>
                     : num_values <= 8  ? &Solve<8, kIsBounded>
                     : num_values <= 12 ? &Solve<12, kIsBounded>
                                        : &Solve<16, kIsBounded>;
  solve(batch, params, record, workspace);
}

}  // namespace

void SolveFitOnHost(const FitBatch& batch,
                    const FitParams& params,
                    const FitRecord& record,
                    FitWorkspace* workspace) {
  (record.is_bounded
       ? &SolveByColumns<true>
       : &SolveByColumns<false>)(batch, params, record, workspace);
}

}  // namespace ceres_ext
