// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A solve of a model window (model_window.h) by Levenberg-Marquardt or dogleg
// steps by teams, threads of a device or a thread of the host. The only copy of
// the loop. It goes from phase to phase; * are of one team with barriers, and
// of the others any threads take a part each:
//
//   solve.Begin(options, begin);                *
//   until the phase is kEnded:
//     kCandidate: evaluate the rows of models at the candidate, with
//       derivatives, and the differences of priors;
//       solve.EvaluatePriors();
//       solve.Judge();                                                  *
//     kLinearize: solve.AddCells();             H and g at x
//     kLinearize, kSolve, kCovariance:
//       solve.Eliminate();  per block of E  V + D^2 = L L', Y = L^-1 W,
//                                           z = L^-1 g
//       solve.FormSchur();  per cell of FF  S = U + D^2 - sum of Y'Y,
//                                           b = -g + sum of Y'z
//     kLinearize, kSolve, kChoose, kCovariance:
//       solve.Step();       S = L L' with b as its last row, the step,  *
//                           the model's change -g's - s'H s / 2, x (+) s
//
// A step that is not valid leads to kSolve with more damping. Dogleg steps
// (dogleg_region.h) take the same solution with mu E^2 in place of D^2 as the
// Gauss-Newton point, and keep it until a step is accepted: kChoose. Products
// with H are sums over its cells.
//
// Each element of a cell is one sum in the order of the rows, so the bits
// depend on nothing else; on a device it is sums of each fourth row, or of each
// 32nd where a cell has many. A thread of the host has all elements of a
// cell, by vectors.
//
// A Team is one of those of windows (small/window/loop.h), without clusters, or
// PartTeam of model_cuda.cu.cc for phases without barriers.
#ifndef CERES_EXT_SMALL_MODEL_WINDOW_MODEL_SOLVE_H_
#define CERES_EXT_SMALL_MODEL_WINDOW_MODEL_SOLVE_H_

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>

#include "ceres_ext/small/fit/fit.h"
#include "ceres_ext/small/model_window/model_clock.h"
#include "ceres_ext/small/model_window/model_covariance.h"
#include "ceres_ext/small/model_window/model_factor.h"
#include "ceres_ext/small/model_window/model_priors.h"
#include "ceres_ext/small/model_window/model_sums.h"
#include "ceres_ext/small/model_window/model_team_factor.h"
#include "ceres_ext/small/model_window/model_window.h"
#include "ceres_ext/solver/dogleg_region.h"
#include "ceres_ext/solver/step_search.h"
#include "ceres_ext/solver/trust_region.h"

namespace ceres_ext {

template <typename Team, bool kIsDogleg>
class ModelSolve : public ModelWindow {
 public:
  CERES_EXT_HOST_DEVICE ModelSolve(const ModelWindow& window,
                                   ModelShared* shared,
                                   Team* team)
      : ModelWindow(window), shared_(shared), team_(team) {}
  // The window is copied into it later.
  CERES_EXT_HOST_DEVICE ModelSolve(ModelShared* shared, Team* team)
      : shared_(shared), team_(team) {}

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

  CERES_EXT_HOST_DEVICE ModelPhase phase() const { return result->phase; }

  // Priors at the candidate, whose differences are set.
  CERES_EXT_HOST_DEVICE void EvaluatePriors() {
    EvaluateModelPriors(*this, team_);
  }

  // Judges the candidate and, if it is accepted, moves x.
  CERES_EXT_HOST_DEVICE void Judge() {
    if (counts.num_priors > 0) {
      SetModelPriorNorms(*this, team_);
      team_->Barrier();
    }
    const double cost = Cost();
    if (Decide([&] { return JudgeCost(cost) ? 1 : 0; }) != 0) {
      for (int e = rank(); e < counts.num_values; e += size()) {
        x[e] = candidate[e];
      }
    }
  }

  // H and g at x, and with the first the scales of columns.
  CERES_EXT_HOST_DEVICE void AddCells() {
    // Threads begin at different places of the lists, so that few have cells of
    // each where there are more threads than cells.
    const int num_cells = counts.num_eliminated + counts.num_eliminated_cells;
    for (int i = Turned(group(), num_groups(), 2); i < num_cells;
         i += num_groups()) {
      if (i < counts.num_eliminated) {
        AddEliminatedBlock(i);
        continue;
      }
      const ModelCell* const cell =
          eliminated_cells + (i - counts.num_eliminated);
      const ModelEliminated& e = eliminated[cell->a];
      double* const to = w + e.w + cell->values;
      AddCell<Slicing::kNone>(
          cell,
          blocks[cell->a].num_columns,
          other(cell->b).num_columns,
          false,
          [&](int r, int c, double sum) { to[e.width * r + c] = sum; });
    }
    for (int k = Turned(warp(), num_warps(), 1); k < counts.num_cells;
         k += num_warps()) {
      if (!Slices::IsLong(cells[k + 1].begin - cells[k].begin)) {
        AddCellOfOthers<Slicing::kWarp>(cells + k);
      }
    }
    for (int k = unit(); k < counts.num_cells; k += num_units()) {
      if (Slices::IsLong(cells[k + 1].begin - cells[k].begin)) {
        AddCellOfOthers<Slicing::kUnit>(cells + k);
      }
    }
  }

  // Eliminates blocks of E. If one is not positive definite its factor is not
  // finite. Also finds the change of each block by -g, and clears S.
  CERES_EXT_HOST_DEVICE void Eliminate() {
    for (int e = group(); e < counts.num_eliminated; e += num_groups()) {
      EliminateBlock(e);
    }
    const int64_t num_values = ModelSchurSize(counts.num_columns);
    for (int64_t k = rank(); k < num_values; k += size()) {
      schur[k] = 0.0;
    }
    for (int b = Turned(rank(), size(), 2);
         b < num_blocks() && phase() == ModelPhase::kLinearize;
         b += size()) {
      changes[b] = LargestChange(b);
    }
  }

  // Behind Eliminate.
  CERES_EXT_HOST_DEVICE void FormSchur() {
    for (int k = Turned(warp(), num_warps(), 2); k < counts.num_cells;
         k += num_warps()) {
      if (!Slices::IsLong(cells[k + 1].schur - cells[k].schur)) {
        FormCell<Slicing::kWarp>(cells + k);
      }
    }
    for (int k = unit(); k < counts.num_cells; k += num_units()) {
      if (Slices::IsLong(cells[k + 1].schur - cells[k].schur)) {
        FormCell<Slicing::kUnit>(cells + k);
      }
    }
  }

  // The next candidate, or the end.
  CERES_EXT_HOST_DEVICE void Step() {
    const ModelPhase before = phase();
    if (before == ModelPhase::kCovariance) {
      FindCovariance();
      return;
    }
    if (before == ModelPhase::kLinearize && !Linearize()) {
      return;
    }
    const Outcome outcome = TakeStep(before);
    Decide([&] {
      result->phase = outcome == Outcome::kValid   ? ModelPhase::kCandidate
                      : outcome == Outcome::kAgain ? ModelPhase::kSolve
                      : result->region.RejectInvalidStep(strategy()) != 0
                          ? NextPhase(ModelPhase::kSolve)
                          : LastPhase();
      return 0;
    });
    if (outcome == Outcome::kValid) {
      ForgetRows();
      return;
    }
    // On a device rows are evaluated there meanwhile.
    for (int e = rank(); e < counts.num_values; e += size()) {
      candidate[e] = x[e];
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
  using Slicing = ModelSlicing;
  static constexpr int kSlices = Slices::kSlices;
  static constexpr int kPlaces = Slices::kPlaces;
  CERES_EXT_HOST_DEVICE int slice() const { return Slices::slice(*team_); }
  CERES_EXT_HOST_DEVICE int place() const { return Slices::place(*team_); }
  CERES_EXT_HOST_DEVICE int unit() const { return warp() / Slices::kWarps; }
  CERES_EXT_HOST_DEVICE int num_units() const {
    return num_warps() / Slices::kWarps;
  }
  CERES_EXT_HOST_DEVICE int group() const { return kSlices * warp() + slice(); }
  CERES_EXT_HOST_DEVICE int num_groups() const { return kSlices * num_warps(); }
  CERES_EXT_HOST_DEVICE int num_blocks() const {
    return counts.num_eliminated + counts.num_others;
  }
  // The number i of n, begun so many quarters later.
  CERES_EXT_HOST_DEVICE static int Turned(int i, int n, int quarters) {
    return (i + n - n * quarters / 4) % n;
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
      ReadClock();
      shared_->verdict = static_cast<int32_t>(function());
    }
    team_->Barrier();
    const int32_t verdict = shared_->verdict;
    team_->Barrier();
    return verdict;
  }

  // If there is a limit of time and the loop has not ended.
  CERES_EXT_HOST_DEVICE void ReadClock() const {
    if (result->max_seconds >= DBL_MAX ||
        result->region.end() != TrustRegionEnd::kNone) {
      return;
    }
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

  // Sets the phase after a candidate of this cost. True if it is accepted. By
  // the first thread.
  CERES_EXT_HOST_DEVICE bool JudgeCost(double cost) {
    using Verdict = TrustRegion::Verdict;
    result->cost = cost;
    const Verdict verdict =
        result->has_begun == 0 ? Verdict::kAccepted
                               : result->region.Judge(result->model_cost_change,
                                                      cost,
                                                      result->x_norm,
                                                      result->step_norm,
                                                      strategy());
    result->phase = verdict == Verdict::kEnded ? LastPhase()
                    : verdict == Verdict::kAccepted
                        ? NextPhase(ModelPhase::kLinearize)
                        : NextPhase(ModelPhase::kSolve);
    return verdict == Verdict::kAccepted;
  }

  // A step is wanted. given: the phase if a system is to be solved.
  CERES_EXT_HOST_DEVICE ModelPhase NextPhase(ModelPhase given) {
    if constexpr (kIsDogleg) {
      using Next = DoglegRegion::Next;
      Next next = dogleg->Begin();
      while (next == Next::kFailed) {
        ReadClock();
        if (result->region.RejectInvalidStep(strategy()) == 0) {
          return LastPhase();
        }
        next = dogleg->Begin();
      }
      return next == Next::kChoose ? ModelPhase::kChoose : given;
    } else {
      return given;
    }
  }
  CERES_EXT_HOST_DEVICE ModelPhase LastPhase() const {
    return counts.num_wanted > 0 &&
                   result->region.end() > TrustRegionEnd::kEvaluation
               ? ModelPhase::kCovariance
               : ModelPhase::kEnded;
  }

  CERES_EXT_HOST_DEVICE void SetDiagonal(int c, double sum) const {
    diagonal[c] = sum;
    if (result->has_begun == 0) {
      scale[c] = result->region.Scale(sum);
    }
  }

  // Tells the region of H and g at x. True if the loop continues.
  CERES_EXT_HOST_DEVICE bool Linearize() {
    const double cost = result->cost;
    double bad[1] = {cost < DBL_MAX ? 0.0 : 1.0};
    for (int c = rank(); c < num_all_columns(); c += size()) {
      const bool is_finite = IsFinite(diagonal[c]) && IsFinite(gradient[c]);
      bad[0] += is_finite ? 0.0 : 1.0;
    }
    team_->Sum(bad);
    double largest[1] = {0.0};
    for (int b = rank(); b < num_blocks() && bad[0] == 0.0; b += size()) {
      const double change = changes[b];
      if (!(change <= largest[0]) && largest[0] == largest[0]) {
        largest[0] = change;
      }
    }
    team_->Max(largest);
    return Decide([&] {
             TrustRegion* const region = &result->region;
             const bool is_first = result->has_begun == 0;
             const bool is_evaluated = bad[0] == 0.0;
             result->has_begun = 1;
             const bool continues =
                 is_first ? region->Begin(is_evaluated, cost, largest[0])
                          : region->Linearize(is_evaluated, cost, largest[0]);
             if (!continues) {
               result->phase = LastPhase();
             }
             return continues ? 1 : 0;
           }) != 0;
  }

  // The largest element of |x (+) -g - x| in a block; NaN if one is.
  CERES_EXT_HOST_DEVICE double LargestChange(int b) const {
    using std::fabs;
    const ModelBlock& block = blocks[b];
    double step[kMaxModelValues];
    double moved[kMaxModelValues];
    for (int c = 0; c < block.num_columns; ++c) {
      step[c] = -gradient[first_column(b) + c];
    }
    ManifoldOf(block).Plus(x + block.state, step, moved);
    double largest = 0.0;
    for (int e = 0; e < block.size; ++e) {
      const double change = fabs(x[block.state + e] - moved[e]);
      if (!(change <= largest) && largest == largest) {
        largest = change;
      }
    }
    return largest;
  }

  // Calls function(a, b, r) for the derivatives of each residual of a cell's
  // rows by its two blocks, and the residual. Rows turn, turn + turns, ... take
  // part.
  template <typename Function>
  CERES_EXT_HOST_DEVICE void ForEachResidual(const ModelCell* cell,
                                             int turn,
                                             int turns,
                                             const Function& function) const {
    const ModelRows* of = rows;
    const int end = cell[1].begin;
    int k = cell[0].begin + turn;
    ModelEntry next = k < end ? entries[k] : ModelEntry();
    for (; k < end; k += turns) {
      const ModelEntry entry = next;
      if (k + turns < end) {
        next = entries[k + turns];  // The loads of this one hide it.
      }
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

  // The sum over a cell's rows, and of a diagonal one the gradient's elements.
  template <Slicing kSlicing, typename Store>
  CERES_EXT_HOST_DEVICE void AddCell(const ModelCell* cell,
                                     int num_rows,
                                     int num_columns,
                                     bool is_diagonal,
                                     const Store& store) const {
    SumModelCell<kSlicing>(
        num_rows,
        num_columns,
        is_diagonal,
        [&](int turn, int turns, const auto& function) {
          ForEachResidual(cell, turn, turns, function);
        },
        store,
        team_);
  }

  // V, and the gradient of a block of E.
  CERES_EXT_HOST_DEVICE void AddEliminatedBlock(int e) const {
    const ModelCell* const cell = diagonal_cells + e;
    const int n = blocks[e].num_columns;
    AddCell<Slicing::kNone>(cell, n, n, true, [&](int r, int c, double sum) {
      if (c == n) {
        gradient[kE * e + r] = sum;
        return;
      }
      v[9 * e + 3 * r + c] = sum;
      if (r == c) {
        SetDiagonal(kE * e + r, sum);
      }
    });
    for (int r = n + place(); r < kE; r += kPlaces) {
      SetDiagonal(kE * e + r, 0.0);
      gradient[kE * e + r] = 0.0;
    }
  }

  // A cell of U, with the gradient's elements if it is on the diagonal.
  template <Slicing kSlicing>
  CERES_EXT_HOST_DEVICE void AddCellOfOthers(const ModelCell* cell) const {
    const ModelBlock& a = other(cell->a);
    const int num_columns = other(cell->b).num_columns;
    const bool is_diagonal = cell->a == cell->b;
    double* const to = u + cell->values;
    AddCell<kSlicing>(cell,
                      a.num_columns,
                      num_columns,
                      is_diagonal,
                      [&](int r, int c, double sum) {
                        const int column = first_other() + a.column + r;
                        if (c == num_columns) {
                          gradient[column] = sum;
                          return;
                        }
                        to[num_columns * r + c] = sum;
                        if (is_diagonal && r == c) {
                          SetDiagonal(column, sum);
                        }
                      });
  }

  // A cell of S, and the elements of b if it is on the diagonal.
  template <Slicing kSlicing>
  CERES_EXT_HOST_DEVICE void FormCell(const ModelCell* cell) {
    const ModelBlock& a = other(cell->a);
    const ModelBlock& b = other(cell->b);
    const bool is_diagonal = cell->a == cell->b;
    SumModelCell<kSlicing>(
        a.num_columns,
        b.num_columns,
        is_diagonal,
        [&](int turn, int turns, const auto& function) {
          ForEachEliminated(cell, turn, turns, function);
        },
        [&](int r, int c, double sum) {
          const int row = a.column + r;
          if (c == b.num_columns) {
            *Schur(counts.num_columns, row) =
                sum - gradient[first_other() + row];
            return;
          }
          if (is_diagonal && c > r) {
            return;
          }
          double value = u[cell->values + b.num_columns * r + c] - sum;
          if (is_diagonal && r == c) {
            value += Damping(first_other() + row);
          }
          *Schur(row, b.column + c) = value;
        },
        team_);
  }

  CERES_EXT_HOST_DEVICE double Damping(int column) const {
    if (phase() == ModelPhase::kCovariance) {
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

  // kAgain: the same step with more damping.
  enum class Outcome { kValid, kInvalid, kAgain };

  // The step and the candidate.
  CERES_EXT_HOST_DEVICE Outcome TakeStep([[maybe_unused]] ModelPhase before) {
    if constexpr (kIsDogleg) {
      const Outcome outcome = ChooseStep(before);
      if (outcome != Outcome::kValid) {
        return outcome;
      }
    } else {
      if (!Solve()) {
        return Outcome::kInvalid;
      }
    }
    return PlaceCandidate() ? Outcome::kValid : Outcome::kInvalid;
  }

  // The covariance that is wanted, by the inverse of S without D^2.
  CERES_EXT_HOST_DEVICE void FindCovariance() {
    double bad[1] = {Factorize() ? CountDependentColumns(*this, team_) : 1.0};
    team_->Sum(bad);
    if (bad[0] == 0.0) {
      WriteModelCovariance(*this, team_);
    }
    Decide([&] {
      result->covariance =
          bad[0] == 0.0 ? ModelCovariance::kFound : ModelCovariance::kSingular;
      result->phase = ModelPhase::kEnded;
      return 0;
    });
  }

  // False if H + D^2 is not positive definite.
  CERES_EXT_HOST_DEVICE bool Factorize() {
    double bad[1] = {0.0};
    for (int e = rank(); e < counts.num_eliminated; e += size()) {
      for (int c = 0; c < kE; ++c) {
        bad[0] += IsFinite(factors[9 * e + 4 * c]) ? 0.0 : 1.0;
      }
    }
    team_->Sum(bad);
    return bad[0] == 0.0 &&
           ByFactor([](const auto& factor) { return factor.Factorize(); });
  }

  // function(the factorisation of S).
  template <typename Function>
  CERES_EXT_HOST_DEVICE auto ByFactor(const Function& function) const {
    if constexpr (kWarp == 1) {
      return function(ModelFactor(*this));
    } else if (schur == Team::OwnSchur()) {
      return function(ModelTeamFactor<Team, true>(*this, shared_, team_));
    } else {
      return function(ModelTeamFactor<Team, false>(*this, shared_, team_));
    }
  }

  // (H + D^2) step = -g. False if H + D^2 is not positive definite.
  CERES_EXT_HOST_DEVICE bool Solve() {
    if (!Factorize()) {
      return false;
    }
    ByFactor(
        [this](const auto& factor) { factor.Solve(step + first_other()); });
    team_->Barrier();
    SolveEliminated();
    team_->Barrier();
    return true;
  }

  CERES_EXT_HOST_DEVICE void EliminateBlock(int e) {
    using std::sqrt;
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
      // The root of a negative number is NaN.
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

  // -L^-T (z + Y s).
  CERES_EXT_HOST_DEVICE void SolveEliminated() const {
    for (int k = rank(); k < counts.num_eliminated_cells; k += size()) {
      const ModelCell cell = eliminated_cells[k];
      const ModelBlock& b = other(cell.b);
      const int n = blocks[cell.a].num_columns;
      const ModelEliminated of = eliminated[cell.a];
      const double* const s = step + first_other() + b.column;
      for (int r = 0; r < n; ++r) {
        const double* const of_row = y + of.w + cell.values + of.width * r;
        double sum = 0.0;
        for (int c = 0; c < b.num_columns; ++c) {
          sum += of_row[c] * s[c];
        }
        products[kE * k + r] = sum;
      }
    }
    team_->Barrier();
    for (int e = rank(); e < counts.num_eliminated; e += size()) {
      double right[kE] = {};
      for (int k = eliminated[e].cell; k < eliminated[e + 1].cell; ++k) {
        for (int r = 0; r < blocks[e].num_columns; ++r) {
          right[r] += products[kE * k + r];
        }
      }
      FinishEliminated(e, right);
    }
  }
  CERES_EXT_HOST_DEVICE void FinishEliminated(int e,
                                              const double* right) const {
    const int n = blocks[e].num_columns;
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

  // The dogleg step.
  CERES_EXT_HOST_DEVICE Outcome ChooseStep(ModelPhase before) {
    using Next = DoglegRegion::Next;
    if (before != ModelPhase::kChoose) {
      FindGradient();
      if (!FindGaussNewton()) {
        const auto next =
            static_cast<Next>(Decide([&] { return dogleg->RaiseDamping(); }));
        return next == Next::kFactorize ? Outcome::kAgain : Outcome::kInvalid;
      }
      if (!SetPoints()) {
        return Outcome::kInvalid;
      }
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
    return Outcome::kValid;
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
    ForEachColumn([&](int c) {
      if constexpr (kIsDogleg) {
        sums[0] -= 2.0 * step[c] * gradient[c];
      } else {
        sums[0] += step[c] * (Damping(c) * step[c] - gradient[c]);
      }
    });
    for (int b = rank(); b < num_blocks(); b += size()) {
      const ModelBlock& block = blocks[b];
      ManifoldOf(block).Plus(
          x + block.state, step + first_column(b), candidate + block.state);
      SetTangents(block);
    }
    team_->Barrier();
    for (int e = rank(); e < counts.num_values; e += size()) {
      const double change = x[e] - candidate[e];
      sums[1] += x[e] * x[e];
      sums[2] += change * change;
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

  ModelShared* const shared_;
  Team* const team_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_MODEL_WINDOW_MODEL_SOLVE_H_
