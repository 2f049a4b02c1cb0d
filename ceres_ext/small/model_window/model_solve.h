// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A solve of a model window (model_window.h) by Levenberg-Marquardt or dogleg
// steps by a team, a block of threads of a device or a thread of the host. The
// only copy of the loop. Between its calls the rows of models are evaluated at
// the candidate, with derivatives, and the differences of priors:
//
//   solve.Begin(options, begin);
//   do evaluate; while (solve.Advance());
//
// Advance evaluates the priors and judges the candidate. If it becomes x, H and
// g are added up. Then
//
//   per block of E  V + D^2 = L L', Y = L^-1 W, z = L^-1 g
//   per cell of FF  S = U + D^2 - sum of Y'Y, b = -g + sum of Y'z
//   S = L L' by columns of blocks, with b as its last row
//   the step, the model's change -g's - s'H s / 2, and x (+) s
//
// until a step is valid. Dogleg steps (dogleg_region.h) take the same solution
// with mu E^2 in place of D^2 as the Gauss-Newton point, and keep it until a
// step is accepted. Products with H are sums over its cells.
//
// Each element of a cell is one sum in the order of the rows, so the bits
// depend on nothing else; on a device it is four such sums of each fourth row
// where a cell may have many. A thread of the host has all elements of a cell,
// by vectors.
//
// A Team is one of those of windows (small/window/loop.h), without clusters.
#ifndef CERES_EXT_SMALL_MODEL_WINDOW_MODEL_SOLVE_H_
#define CERES_EXT_SMALL_MODEL_WINDOW_MODEL_SOLVE_H_

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>

#include "ceres_ext/small/fit/fit.h"
#include "ceres_ext/small/model_window/model_clock.h"
#include "ceres_ext/small/model_window/model_covariance.h"
#include "ceres_ext/small/model_window/model_priors.h"
#include "ceres_ext/small/model_window/model_sums.h"
#include "ceres_ext/small/model_window/model_window.h"
#include "ceres_ext/solver/dogleg_region.h"
#include "ceres_ext/solver/step_search.h"
#include "ceres_ext/solver/trust_region.h"

namespace ceres_ext {

template <typename Team, bool kIsDogleg>
class ModelSolve : public ModelWindow {
 public:
  // *its_verdict: a number that all threads of the team see.
  CERES_EXT_HOST_DEVICE ModelSolve(const ModelWindow& window,
                                   int32_t* its_verdict,
                                   Team* team)
      : ModelWindow(window), verdict_(its_verdict), team_(team) {}

  CERES_EXT_HOST_DEVICE Team* team() const { return team_; }

  // The start is the first candidate. begin: ModelResult::begin.
  CERES_EXT_HOST_DEVICE void Begin(const LoopOptions& options, int64_t begin) {
    if (rank() == 0) {
      *result = ModelResult();
      result->region = TrustRegion(options);
      result->max_seconds = options.max_seconds;
      result->begin = begin;
      if constexpr (kIsDogleg) {
        *dogleg = DoglegRegion(options.dogleg);
      }
    }
    for (int e = rank(); e < counts.num_values; e += size()) {
      x[e] = start[e];
      candidate[e] = start[e];
    }
    team_->Barrier();
    for (int b = rank(); b < num_blocks(); b += size()) {
      SetTangents(blocks[b]);
    }
    ForgetRows();
  }

  // The rows are evaluated at the candidate, and the differences of priors.
  // True if there is another one.
  CERES_EXT_HOST_DEVICE bool Advance() {
    EvaluateModelPriors(*this, team_);
    const double cost = Cost();
    const bool is_first = result->has_begun == 0;
    team_->Barrier();
    if (!is_first) {
      const auto verdict = static_cast<TrustRegion::Verdict>(Decide([&] {
        return static_cast<int32_t>(
            result->region.Judge(result->model_cost_change,
                                 cost,
                                 result->x_norm,
                                 result->step_norm,
                                 strategy()));
      }));
      if (verdict == TrustRegion::Verdict::kEnded) {
        return false;
      }
      if (verdict == TrustRegion::Verdict::kAccepted) {
        for (int e = rank(); e < counts.num_values; e += size()) {
          x[e] = candidate[e];
        }
        team_->Barrier();
      }
      if (verdict == TrustRegion::Verdict::kRejected) {
        return FindCandidate();
      }
    }
    return Linearize(is_first, cost) && FindCandidate();
  }

  // After the last Advance: the covariance that is wanted, by the inverse of
  // S without D^2.
  CERES_EXT_HOST_DEVICE void FindCovariance() {
    if (counts.num_wanted == 0 ||
        result->region.end() <= TrustRegionEnd::kEvaluation) {
      return;  // The same for all threads.
    }
    is_damped_ = false;
    double bad[1] = {Eliminate() ? 0.0 : 1.0};
    team_->Sum(bad);
    FormSchur();
    const bool is_definite = bad[0] == 0.0 && Factorize();
    bad[0] = is_definite ? CountDependentColumns(*this, team_) : 1.0;
    team_->Sum(bad);
    if (bad[0] == 0.0) {
      WriteModelCovariance(*this, team_);
    }
    if (rank() == 0) {
      result->covariance =
          bad[0] == 0.0 ? ModelCovariance::kFound : ModelCovariance::kSingular;
    }
  }

 private:
  static constexpr int kWarp = Team::kWarp;
  static constexpr int kE = kMaxEliminatedColumns;

  CERES_EXT_HOST_DEVICE int rank() const { return team_->rank(); }
  CERES_EXT_HOST_DEVICE int size() const { return team_->size(); }
  CERES_EXT_HOST_DEVICE int lane() const { return rank() % kWarp; }
  CERES_EXT_HOST_DEVICE int warp() const { return rank() / kWarp; }
  CERES_EXT_HOST_DEVICE int num_warps() const { return size() / kWarp; }
  using Slices = ModelSlices<Team>;
  static constexpr int kSlices = Slices::kSlices;
  static constexpr int kPlaces = Slices::kPlaces;
  CERES_EXT_HOST_DEVICE int slice() const { return Slices::slice(*team_); }
  CERES_EXT_HOST_DEVICE int place() const { return Slices::place(*team_); }
  CERES_EXT_HOST_DEVICE int group() const { return kSlices * warp() + slice(); }
  CERES_EXT_HOST_DEVICE int num_groups() const { return kSlices * num_warps(); }
  CERES_EXT_HOST_DEVICE int num_blocks() const {
    return counts.num_eliminated + counts.num_others;
  }
  CERES_EXT_HOST_DEVICE const ModelBlock& other(int b) const {
    return blocks[counts.num_eliminated + b];
  }
  CERES_EXT_HOST_DEVICE int first_column(int block) const {
    return blocks[block].column +
           (block < counts.num_eliminated ? 0 : first_other());
  }
  CERES_EXT_HOST_DEVICE FitManifold ManifoldOf(const ModelBlock& block) const {
    const int32_t* const begin = tables.factor_begin + block.manifold;
    return {tables.factors + begin[0], begin[1] - begin[0], block.size};
  }
  CERES_EXT_HOST_DEVICE static bool IsFinite(double value) {
    return value - value == 0.0;  // NOLINT(misc-redundant-expression)
  }

  CERES_EXT_HOST_DEVICE auto* strategy() const {
    if constexpr (kIsDogleg) {
      return dogleg;
    } else {
      return result->region.damping();
    }
  }

  // The first thread decides, and all get the result and see the region.
  template <typename Function>
  CERES_EXT_HOST_DEVICE int32_t Decide(const Function& function) {
    if (rank() == 0) {
      if (result->max_seconds < DBL_MAX) {
        ReadClock();
      }
      *verdict_ = static_cast<int32_t>(function());
    }
    team_->Barrier();
    const int32_t verdict = *verdict_;
    team_->Barrier();
    return verdict;
  }

  CERES_EXT_HOST_DEVICE void ReadClock() const {
    const double seconds =
        1e-9 * static_cast<double>(NanosecondsNow() - result->begin);
    if (!(seconds < result->max_seconds)) {
      result->region.EndInTime(seconds);
    }
  }

  CERES_EXT_HOST_DEVICE void SetTangents(const ModelBlock& block) {
    if (block.tangent < 0) {
      return;
    }
    double* const p = tangents + block.tangent;
    for (int e = 0; e < block.size * block.num_columns; ++e) {
      p[e] = 0.0;
    }
    ManifoldOf(block).PlusJacobian(
        candidate + block.state, block.num_columns, p);
  }

  // A row that is not evaluated has no cost.
  CERES_EXT_HOST_DEVICE void ForgetRows() {
    for (int m = 0; m < num_models; ++m) {
      for (int i = rank(); i < rows[m].end - rows[m].begin; i += size()) {
        rows[m].squared_norms[i] = std::numeric_limits<double>::quiet_NaN();
      }
    }
  }

  // The cost of the candidate; DBL_MAX if it can't be evaluated.
  CERES_EXT_HOST_DEVICE double Cost() {
    double sums[2] = {};
    for (int m = 0; m < num_models; ++m) {
      for (int i = rank(); i < rows[m].end - rows[m].begin; i += size()) {
        const double s = rows[m].squared_norms[i];
        double rho[3];
        rows[m].loss.Evaluate(i, s, rho);
        sums[0] += rho[0];
        sums[1] += IsFinite(s) ? 0.0 : 1.0;
      }
    }
    team_->Sum(sums);
    return sums[1] == 0.0 ? 0.5 * sums[0] : DBL_MAX;
  }

  // H and g at x. True if the loop continues.
  CERES_EXT_HOST_DEVICE bool Linearize(bool is_first, double cost) {
    AddCells();
    double bad[1] = {cost < DBL_MAX ? 0.0 : 1.0};
    for (int c = rank(); c < num_all_columns(); c += size()) {
      const bool is_finite = IsFinite(diagonal[c]) && IsFinite(gradient[c]);
      bad[0] += is_finite ? 0.0 : 1.0;
      if (is_first) {
        scale[c] = result->region.Scale(diagonal[c]);
      }
    }
    team_->Sum(bad);
    double largest[1] = {0.0};
    for (int b = rank(); b < num_blocks() && bad[0] == 0.0; b += size()) {
      LargestChange(b, largest);
    }
    team_->Max(largest);
    return Decide([&] {
             TrustRegion* const region = &result->region;
             result->has_begun = 1;
             const bool is_evaluated = bad[0] == 0.0;
             return is_first
                        ? region->Begin(is_evaluated, cost, largest[0])
                        : region->Linearize(is_evaluated, cost, largest[0]);
           }) != 0;
  }

  // The largest element of |x (+) -g - x| in a block; NaN if one is.
  CERES_EXT_HOST_DEVICE void LargestChange(int b, double* largest) const {
    using std::fabs;
    const ModelBlock& block = blocks[b];
    double step[kMaxModelValues];
    double moved[kMaxModelValues];
    for (int c = 0; c < block.num_columns; ++c) {
      step[c] = -gradient[first_column(b) + c];
    }
    ManifoldOf(block).Plus(x + block.state, step, moved);
    for (int e = 0; e < block.size; ++e) {
      const double change = fabs(x[block.state + e] - moved[e]);
      if (!(change <= *largest) && *largest == *largest) {
        *largest = change;
      }
    }
  }

  // Calls function(a, b, r) for the derivatives of each residual of a cell's
  // rows by its two blocks, and the residual. Of rows that are turn, turn +
  // turns, ...
  template <typename Function>
  CERES_EXT_HOST_DEVICE void ForEachResidual(const ModelCell* cell,
                                             int turn,
                                             int turns,
                                             const Function& function) const {
    const ModelRows* of = rows;
    for (int k = cell[0].begin + turn; k < cell[1].begin; k += turns) {
      const ModelEntry entry = entries[k];
      while (entry.row >= of->end) {
        ++of;
      }
      const int64_t first = int64_t{entry.row - of->begin} * of->num_residuals;
      for (int64_t i = first; i < first + of->num_residuals; ++i) {
        const double* const j = of->columns + i * of->stride;
        function(j + entry.a, j + entry.b, of->residuals + i);
      }
    }
  }
  // Calls function(a, b, z) for the rows of Y of each block of E that two
  // blocks are beside, and the element of z.
  template <typename Function>
  CERES_EXT_HOST_DEVICE void ForEachEliminated(const ModelCell* cell,
                                               int turn,
                                               int turns,
                                               const Function& function) const {
    for (int k = cell[0].schur + turn; k < cell[1].schur; k += turns) {
      const ModelEntry entry = schur_entries[k];
      const ModelEliminated e = eliminated[entry.row];
      const int n = blocks[entry.row].num_columns;
      for (int t = 0; t < n; ++t) {
        const double* const row = y + e.w + e.width * t;
        function(row + entry.a, row + entry.b, z + kE * entry.row + t);
      }
    }
  }

  // SumModelCell of this warp or slice.
  template <bool kIsSliced, typename ForEach, typename Store>
  CERES_EXT_HOST_DEVICE void SumCell(int num_rows,
                                     int num_columns,
                                     const ForEach& for_each,
                                     const Store& store) const {
    SumModelCell<kIsSliced>(num_rows, num_columns, for_each, store, team_);
  }
  // The sum over a cell's rows.
  template <bool kIsSliced, typename Store>
  CERES_EXT_HOST_DEVICE void AddCell(const ModelCell* cell,
                                     int num_rows,
                                     int num_columns,
                                     const Store& store) const {
    SumCell<kIsSliced>(
        num_rows,
        num_columns,
        [&](int turn, int turns, const auto& function) {
          ForEachResidual(cell,
                          turn,
                          turns,
                          [&](const double* a, const double* b, const double*) {
                            function(a, b);
                          });
        },
        store);
  }
  // The elements of g that a diagonal cell's rows add up to.
  template <bool kIsSliced>
  CERES_EXT_HOST_DEVICE void AddGradient(const ModelCell* cell,
                                         int num_columns,
                                         double* to) const {
    SumCell<kIsSliced>(
        num_columns,
        1,
        [&](int turn, int turns, const auto& function) {
          ForEachResidual(cell,
                          turn,
                          turns,
                          [&](const double* a, const double*, const double* r) {
                            function(a, r);
                          });
        },
        [&](int r, int, double sum) { to[r] = sum; });
  }

  CERES_EXT_HOST_DEVICE void AddCells() {
    for (int e = group(); e < counts.num_eliminated; e += num_groups()) {
      const ModelCell* const cell = diagonal_cells + e;
      const int n = blocks[e].num_columns;
      AddCell<false>(cell, n, n, [&](int r, int c, double sum) {
        v[9 * e + 3 * r + c] = sum;
        if (r == c) {
          diagonal[kE * e + r] = sum;
        }
      });
      AddGradient<false>(cell, n, gradient + kE * e);
      for (int r = n + place(); r < kE; r += kPlaces) {
        diagonal[kE * e + r] = 0.0;
        gradient[kE * e + r] = 0.0;
      }
    }
    for (int k = group(); k < counts.num_eliminated_cells; k += num_groups()) {
      const ModelCell* const cell = eliminated_cells + k;
      const ModelEliminated& e = eliminated[cell->a];
      double* const to = w + e.w + cell->values;
      AddCell<false>(
          cell,
          blocks[cell->a].num_columns,
          other(cell->b).num_columns,
          [&](int r, int c, double sum) { to[e.width * r + c] = sum; });
    }
    for (int k = warp(); k < counts.num_cells; k += num_warps()) {
      const ModelCell* const cell = cells + k;
      const ModelBlock& a = other(cell->a);
      const int num_columns = other(cell->b).num_columns;
      const bool is_diagonal = cell->a == cell->b;
      double* const to = u + cell->values;
      AddCell<true>(
          cell, a.num_columns, num_columns, [&](int r, int c, double sum) {
            to[num_columns * r + c] = sum;
            if (is_diagonal && r == c) {
              diagonal[first_other() + a.column + r] = sum;
            }
          });
      if (is_diagonal) {
        AddGradient<true>(
            cell, num_columns, gradient + first_other() + a.column);
      }
    }
    team_->Barrier();
  }

  CERES_EXT_HOST_DEVICE double Damping(int column) const {
    if (!is_damped_) {
      return 0.0;
    }
    if constexpr (kIsDogleg) {
      return dogleg->mu() * SquaredLength(column);
    } else {
      return result->region.SquaredDamping(diagonal[column], scale[column]);
    }
  }
  // E^2 of dogleg_region.h.
  CERES_EXT_HOST_DEVICE double SquaredLength(int column) const {
    return result->region.SquaredDamping(
        diagonal[column], scale[column], /*radius=*/1.0);
  }

  // Damps until there is a valid step. False if the loop ends before.
  CERES_EXT_HOST_DEVICE bool FindCandidate() {
    while (!TakeStep()) {
      const auto reject = [&] {
        return result->region.RejectInvalidStep(strategy());
      };
      if (Decide(reject) == 0) {
        return false;
      }
    }
    ForgetRows();
    team_->Barrier();
    return true;
  }

  // The step and the candidate. False if the step is not valid.
  CERES_EXT_HOST_DEVICE bool TakeStep() {
    if constexpr (kIsDogleg) {
      return ChooseStep() && PlaceCandidate();
    } else {
      return Solve() && PlaceCandidate();
    }
  }

  // (H + D^2) step = -g. False if H + D^2 is not positive definite.
  CERES_EXT_HOST_DEVICE bool Solve() {
    double bad[1] = {Eliminate() ? 0.0 : 1.0};
    team_->Sum(bad);
    FormSchur();
    if (bad[0] != 0.0 || !Factorize()) {
      return false;
    }
    if (warp() == 0) {
      SolveOthers();
    }
    team_->Barrier();
    for (int e = rank(); e < counts.num_eliminated; e += size()) {
      SolveEliminated(e);
    }
    team_->Barrier();
    return true;
  }

  // Eliminates this slice's blocks of E. False if one is not positive definite.
  CERES_EXT_HOST_DEVICE bool Eliminate() {
    using std::sqrt;
    bool is_definite = true;
    for (int e = group(); e < counts.num_eliminated; e += num_groups()) {
      const int n = blocks[e].num_columns;
      double l[3][3] = {};
      double right[3] = {};
      for (int c = 0; c < n; ++c) {
        for (int r = c; r < n; ++r) {
          l[r][c] = v[9 * e + 3 * r + c];
        }
        l[c][c] += Damping(kE * e + c);
        right[c] = gradient[kE * e + c];
      }
      for (int c = 0; c < n; ++c) {
        for (int t = 0; t < c; ++t) {
          for (int r = c; r < n; ++r) {
            l[r][c] -= l[r][t] * l[c][t];
          }
          right[c] -= l[c][t] * right[t];
        }
        is_definite = is_definite && l[c][c] > 0.0;
        l[c][c] = 1.0 / sqrt(l[c][c]);
        for (int r = c + 1; r < n; ++r) {
          l[r][c] *= l[c][c];
        }
        right[c] *= l[c][c];
      }
      for (int k = place(); k < 9; k += kPlaces) {
        factors[9 * e + k] = l[k / 3][k % 3];
      }
      for (int c = place(); c < kE; c += kPlaces) {
        z[kE * e + c] = right[c];
      }
      const int width = eliminated[e].width;
      const double* const from = w + eliminated[e].w;
      double* const to = y + eliminated[e].w;
      for (int k = place(); k < width; k += kPlaces) {
        for (int c = 0; c < n; ++c) {
          double value = from[width * c + k];
          for (int t = 0; t < c; ++t) {
            value -= l[c][t] * to[width * t + k];
          }
          to[width * c + k] = value * l[c][c];
        }
      }
    }
    return is_definite;
  }

  CERES_EXT_HOST_DEVICE void FormSchur() {
    const int64_t num_values = ModelSchurSize(counts.num_columns);
    for (int64_t k = rank(); k < num_values; k += size()) {
      schur[k] = 0.0;
    }
    team_->Barrier();
    for (int k = warp(); k < counts.num_cells; k += num_warps()) {
      const ModelCell* const cell = cells + k;
      const ModelBlock& a = other(cell->a);
      const ModelBlock& b = other(cell->b);
      const bool is_diagonal = cell->a == cell->b;
      SumCell<true>(
          a.num_columns,
          b.num_columns,
          [&](int turn, int turns, const auto& function) {
            ForEachEliminated(
                cell,
                turn,
                turns,
                [&](const double* of_a, const double* of_b, const double*) {
                  function(of_a, of_b);
                });
          },
          [&](int r, int c, double sum) {
            if (is_diagonal && c > r) {
              return;
            }
            double value = u[cell->values + b.num_columns * r + c] - sum;
            if (is_diagonal && r == c) {
              value += Damping(first_other() + a.column + r);
            }
            *Schur(a.column + r, b.column + c) = value;
          });
      if (!is_diagonal) {
        continue;
      }
      SumCell<true>(
          a.num_columns,
          1,
          [&](int turn, int turns, const auto& function) {
            ForEachEliminated(
                cell,
                turn,
                turns,
                [&](const double* of_a, const double*, const double* of_z) {
                  function(of_a, of_z);
                });
          },
          [&](int r, int, double sum) {
            const int column = a.column + r;
            *Schur(counts.num_columns, column) =
                sum - gradient[first_other() + column];
          });
    }
    team_->Barrier();
  }

  // S = L L', with the inverse of L's diagonal; its last row becomes L^-1 b.
  CERES_EXT_HOST_DEVICE bool Factorize() {
    if (rank() == 0) {
      *verdict_ = 1;
    }
    team_->Barrier();
    for (int b = 0; b < counts.num_others; ++b) {
      const ModelBlock& block = other(b);
      if (warp() == 0 && !FactorizeDiagonal(block) && lane() == 0) {
        *verdict_ = 0;
      }
      team_->Barrier();
      for (int k = run_begin[b]; k < run_begin[b + 1]; ++k) {
        SolveRows(block, runs[k]);
      }
      team_->Barrier();
      UpdateBehind(block, run_begin[b], run_begin[b + 1]);
      team_->Barrier();
    }
    const bool is_definite = *verdict_ != 0;
    team_->Barrier();
    return is_definite;
  }

  // A lane has a row.
  CERES_EXT_HOST_DEVICE bool FactorizeDiagonal(const ModelBlock& block) {
    using std::sqrt;
    bool is_definite = true;
    const int end = block.column + block.num_columns;
    for (int c = block.column; c < end; ++c) {
      double* const column = SchurColumn(c);
      const double pivot = column[0];
      is_definite = is_definite && pivot > 0.0;
      const double inverse = 1.0 / sqrt(pivot);
      team_->WarpBarrier();  // All lanes have read the pivot.
      for (int r = lane(); r < end - c; r += kWarp) {
        column[r] = r == 0 ? inverse : column[r] * inverse;
      }
      team_->WarpBarrier();
      for (int t = c + 1; t < end; ++t) {
        double* const to = SchurColumn(t);
        for (int r = t + lane(); r < end; r += kWarp) {
          to[r - t] -= column[r - c] * column[t - c];
        }
      }
      team_->WarpBarrier();
    }
    return is_definite;
  }

  // Rows of the run, times L^-T of the diagonal block. A thread has a row.
  CERES_EXT_HOST_DEVICE void SolveRows(const ModelBlock& block,
                                       const ModelRun& run) {
    const int end = block.column + block.num_columns;
    for (int c = block.column; c < end; ++c) {
      double* const to = SchurColumn(c) - c;
      for (int t = block.column; t < c; ++t) {
        const double* const from = SchurColumn(t) - t;
        const double factor = from[c];
        for (int r = run.begin + rank(); r < run.end; r += size()) {
          to[r] -= factor * from[r];
        }
      }
      const double inverse = to[c];
      for (int r = run.begin + rank(); r < run.end; r += size()) {
        to[r] *= inverse;
      }
    }
  }

  // Subtracts the block's columns from those behind it. A warp has a column.
  CERES_EXT_HOST_DEVICE void UpdateBehind(const ModelBlock& block,
                                          int first_run,
                                          int end_run) {
    int turn = 0;
    for (int k = first_run; k < end_run; ++k) {
      for (int c = runs[k].begin; c < runs[k].end && c < counts.num_columns;
           ++c, ++turn) {
        if (turn % num_warps() != warp()) {
          continue;
        }
        for (int l = k; l < end_run; ++l) {
          UpdateColumn(block, c, l == k ? c : runs[l].begin, runs[l].end);
        }
      }
    }
  }

  // Rows [begin, end) of column c.
  CERES_EXT_HOST_DEVICE void UpdateColumn(const ModelBlock& block,
                                          int c,
                                          int begin,
                                          int end) {
    double* const to = SchurColumn(c) - c;
    const int last = block.column + block.num_columns;
    int t = block.column;
    for (; t + 3 <= last; t += 3) {
      const double* const p = SchurColumn(t) - t;
      const double* const q = SchurColumn(t + 1) - (t + 1);
      const double* const s = SchurColumn(t + 2) - (t + 2);
      const double of_p = p[c];
      const double of_q = q[c];
      const double of_s = s[c];
      for (int r = begin + lane(); r < end; r += kWarp) {
        to[r] -= of_p * p[r] + of_q * q[r] + of_s * s[r];
      }
    }
    for (; t < last; ++t) {
      const double* const p = SchurColumn(t) - t;
      const double of_p = p[c];
      for (int r = begin + lane(); r < end; r += kWarp) {
        to[r] -= of_p * p[r];
      }
    }
  }

  // L' s = L^-1 b, by the first warp.
  CERES_EXT_HOST_DEVICE void SolveOthers() {
    double* const to = step + first_other();
    for (int c = counts.num_columns - 1; c >= 0; --c) {
      const double* const column = SchurColumn(c) - c;
      double sum = 0.0;
      for (int r = c + 1 + lane(); r < counts.num_columns; r += kWarp) {
        sum += column[r] * to[r];
      }
      sum = team_->WarpSum(sum);
      if (lane() == 0) {
        to[c] = (column[counts.num_columns] - sum) * column[c];
      }
      team_->WarpBarrier();
    }
  }

  // -L^-T (z + Y s), by a thread.
  CERES_EXT_HOST_DEVICE void SolveEliminated(int e) {
    double right[kE] = {};
    const ModelEliminated& of = eliminated[e];
    const int n = blocks[e].num_columns;
    for (int k = of.cell; k < eliminated[e + 1].cell; ++k) {
      const ModelBlock& b = other(eliminated_cells[k].b);
      const double* const s = step + first_other() + b.column;
      const double* const of_cell = y + of.w + eliminated_cells[k].values;
      for (int c = 0; c < b.num_columns; ++c) {
        for (int r = 0; r < n; ++r) {
          right[r] += of_cell[of.width * r + c] * s[c];
        }
      }
    }
    const double* const l = factors + 9 * e;
    for (int r = n - 1; r >= 0; --r) {
      double value = -z[kE * e + r] - right[r];
      for (int t = r + 1; t < n; ++t) {
        value -= l[3 * t + r] * step[kE * e + t];
      }
      step[kE * e + r] = value * l[4 * r];
    }
    for (int r = n; r < kE; ++r) {
      step[kE * e + r] = 0.0;
    }
  }

  // The vectors of dogleg_region.h.
  CERES_EXT_HOST_DEVICE double* point_p() const { return points; }
  CERES_EXT_HOST_DEVICE double* point_d() const {
    return points + num_all_columns();
  }
  CERES_EXT_HOST_DEVICE double* basis_u() const {
    return points + 2 * int64_t{num_all_columns()};
  }
  CERES_EXT_HOST_DEVICE double* basis_v() const {
    return points + 3 * int64_t{num_all_columns()};
  }

  // Calls function(c) for this thread's columns, of all.
  template <typename Function>
  CERES_EXT_HOST_DEVICE void ForEachColumn(const Function& function) const {
    for (int c = rank(); c < num_all_columns(); c += size()) {
      function(c);
    }
  }

  // The dogleg step. False if there is none.
  CERES_EXT_HOST_DEVICE bool ChooseStep() {
    using Next = DoglegRegion::Next;
    auto next = static_cast<Next>(Decide([&] { return dogleg->Begin(); }));
    if (next == Next::kFactorize) {
      FindGradient();
      while (next == Next::kFactorize && !FindGaussNewton()) {
        next =
            static_cast<Next>(Decide([&] { return dogleg->RaiseDamping(); }));
      }
      if (next == Next::kFactorize && !SetPoints()) {
        return false;
      }
    }
    if (next == Next::kFailed) {
      return false;
    }
    Decide([&] {
      dogleg->Choose(result->region.radius());
      return 0;
    });
    const DoglegRegion::Combination& of = dogleg->step();
    const double* const x = of.is_of_basis ? basis_u() : point_p();
    const double* const y = of.is_of_basis ? basis_v() : point_d();
    ForEachColumn([&](int c) { step[c] = of.a * x[c] + of.b * y[c]; });
    team_->Barrier();
    return true;
  }

  CERES_EXT_HOST_DEVICE void FindGradient() {
    ForEachColumn(
        [&](int c) { point_p()[c] = gradient[c] / SquaredLength(c); });
    team_->Barrier();
  }

  // False if the system cannot be solved.
  CERES_EXT_HOST_DEVICE bool FindGaussNewton() {
    if (!Solve()) {
      return false;
    }
    double bad[1] = {};
    ForEachColumn([&](int c) {
      point_d()[c] = step[c];
      bad[0] += IsFinite(step[c]) ? 0.0 : 1.0;
    });
    team_->Sum(bad);
    return bad[0] == 0.0;
  }

  // The lengths of both points, and their plane. False if both are zero.
  CERES_EXT_HOST_DEVICE bool SetPoints() {
    double sums[3] = {};
    ForEachColumn([&](int c) {
      const double p = point_p()[c];
      const double d = point_d()[c];
      sums[0] += p * gradient[c];
      sums[1] += SquaredLength(c) * d * d;
      sums[2] += d * gradient[c];
    });
    team_->Sum(sums);
    const double* const vectors[] = {point_p()};
    double p_h_p[1];
    MultiplyHessian(vectors, p_h_p);
    if (rank() == 0) {
      dogleg->SetPoints(sums[0], p_h_p[0], sums[1], sums[2]);
    }
    team_->Barrier();
    return !dogleg->HasPlane() || SetPlane(sums[0], sums[1]);
  }

  // u, v and the model on their plane, from |E p|^2 and |E d|^2. False if p and
  // d are zero. As Ceres has it, they are on a line if what one is beside the
  // other is of the order of rounding.
  CERES_EXT_HOST_DEVICE bool SetPlane(double p_p, double d_d) {
    using std::sqrt;
    const bool p_is_first = p_p >= d_d;
    const double* const first = p_is_first ? point_p() : point_d();
    const double* const other = p_is_first ? point_d() : point_p();
    double* const u = basis_u();
    double* const v = basis_v();
    const double length = sqrt(p_is_first ? p_p : d_d);
    if (!(length > 0.0)) {
      return false;
    }
    ForEachColumn([&](int c) {
      u[c] = first[c] / length;
      v[c] = other[c];
    });
    for (int pass = 0; pass < 2; ++pass) {
      double along[1] = {};
      ForEachColumn([&](int c) { along[0] += SquaredLength(c) * u[c] * v[c]; });
      team_->Sum(along);
      ForEachColumn([&](int c) { v[c] -= along[0] * u[c]; });
    }
    double rest[1] = {};
    ForEachColumn([&](int c) { rest[0] += SquaredLength(c) * v[c] * v[c]; });
    team_->Sum(rest);
    const double rest_length = sqrt(rest[0]);
    if (!(rest_length > 2.0 * DBL_EPSILON * length)) {
      return true;
    }
    double slopes[2] = {};
    ForEachColumn([&](int c) {
      v[c] /= rest_length;
      slopes[0] += u[c] * gradient[c];
      slopes[1] += v[c] * gradient[c];
    });
    team_->Sum(slopes);
    const double* const vectors[] = {u, v};
    double hessian[3];
    MultiplyHessian(vectors, hessian);
    if (rank() == 0) {
      dogleg->SetPlane(slopes, hessian);
    }
    return true;
  }

  // a'H b of all pairs of n vectors: of two, those of (0, 0), (0, 1), (1, 1).
  template <int n>
  CERES_EXT_HOST_DEVICE void MultiplyHessian(
      const double* const (&vectors)[n],
      double (&products)[n * (n + 1) / 2]) const {
    for (double& product : products) {
      product = 0.0;
    }
    const auto add = [&](int row,
                         int num_rows,
                         int column,
                         int num_columns,
                         const double* cell,
                         int stride) {
      for (int r = row; r < row + num_rows; ++r, cell += stride) {
        for (int k = lane(); k < num_columns; k += kWarp) {
          AddHessianProducts<n>(
              vectors, r, column + k, row != column, cell[k], products);
        }
      }
    };
    for (int e = warp(); e < counts.num_eliminated; e += num_warps()) {
      const int size = blocks[e].num_columns;
      add(kE * e, size, kE * e, size, v + 9 * e, 3);
    }
    for (int k = warp(); k < counts.num_eliminated_cells; k += num_warps()) {
      const ModelCell& cell = eliminated_cells[k];
      const ModelEliminated& e = eliminated[cell.a];
      const ModelBlock& b = other(cell.b);
      add(kE * cell.a,
          blocks[cell.a].num_columns,
          first_other() + b.column,
          b.num_columns,
          w + e.w + cell.values,
          e.width);
    }
    for (int k = warp(); k < counts.num_cells; k += num_warps()) {
      const ModelCell& cell = cells[k];
      const ModelBlock& a = other(cell.a);
      const ModelBlock& b = other(cell.b);
      add(first_other() + a.column,
          a.num_columns,
          first_other() + b.column,
          b.num_columns,
          u + cell.values,
          b.num_columns);
    }
    team_->Sum(products);
  }
  // x (+) s, and what is decided by. False if the step is not valid.
  CERES_EXT_HOST_DEVICE bool PlaceCandidate() {
    using std::sqrt;
    double sums[3] = {};
    for (int b = rank(); b < num_blocks(); b += size()) {
      const ModelBlock& block = blocks[b];
      const int first = first_column(b);
      for (int c = first; c < first + block.num_columns; ++c) {
        if constexpr (kIsDogleg) {
          sums[0] -= 2.0 * step[c] * gradient[c];
        } else {
          sums[0] += step[c] * (Damping(c) * step[c] - gradient[c]);
        }
      }
      const double* const from = x + block.state;
      double* const to = candidate + block.state;
      ManifoldOf(block).Plus(from, step + first, to);
      for (int e = 0; e < block.size; ++e) {
        sums[1] += from[e] * from[e];
        sums[2] += (from[e] - to[e]) * (from[e] - to[e]);
      }
      SetTangents(block);
    }
    team_->Sum(sums);
    if constexpr (kIsDogleg) {
      const double* const vectors[] = {step};
      double s_h_s[1];
      MultiplyHessian(vectors, s_h_s);
      sums[0] -= s_h_s[0];
    }
    const double change = 0.5 * sums[0];
    if (rank() == 0) {
      result->model_cost_change = change;
      result->x_norm = sqrt(sums[1]);
      result->step_norm = sqrt(sums[2]);
    }
    // NaN is not greater, and an infinite step is not valid.
    return change > 0.0 && IsFinite(change);
  }

  int32_t* const verdict_;
  Team* const team_;
  bool is_damped_ = true;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_MODEL_WINDOW_MODEL_SOLVE_H_
