// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A whole Levenberg-Marquardt solve of a window by one team: a thread block of
// a device, a cluster of them, or one thread of the host. The only copy of the
// arithmetic.
//
// Form, chunk by chunk, with Jacobians that never leave a block's memory:
//
//   per row    r, Jc, Jp, corrected by the loss
//   per point  V = Jp'Jp + D^2 = L L'
//   per row    A = Jp L^-T,  r' = r - A L^-1 Jp'r
//   per tile   S_ij += sum over points of Jc_i' (I - A_i A_j') Jc_j,
//              b_i  -= sum over rows of Jc_i' r',
//              where I is there for rows of the same camera alone
//
// S and L are block-sparse: only the pairs of the pattern (window.h) are read
// and written. The others are zero, so they change no sum.
//
// A thread owns a tile of S, so that each sum has one order: that of the rows.
// Then S + D^2 = L L' with b as its last row, which makes forward substitution
// a part of the factorisation; steps of points, the model's change, the
// candidate's cost, and the decision (solver/trust_region.h).
//
// Several blocks deal out chunks and points. A chunk's part of S goes to main
// memory, then all blocks add the parts in the order of the chunks. Warps write
// the sums of their rows' costs, and those of their points, to main memory, and
// each block adds them in one order. So the bits do not depend on the number of
// blocks. Cameras, the sums over them and the decisions are each block's own,
// the same in all. The first block factorises S.
//
// If there are priors, all blocks evaluate them by turns into main memory. Then
// S gets their J'J in the first block, and each block adds them to its own
// sums; a thread owns an element, and adds in the order of the priors.
//
// Marginal priors are A d + b. All blocks compute d and its derivative D of
// each pose, then [J r] = [A D, A d + b], a warp a row. The first block adds
// J'J to S, a thread a tile, in the order of the rows.
//
// Traffic: of main memory 28 bytes a row and 24 a point in each of three
// passes, and 120 a point for its L and step.
//
// Rows are those of BAL (bal_rows.h) or of another class with these functions.
//
// A Team has rank() < size() and Barrier() of a block, block() < num_blocks(),
// and Join(), a barrier of all blocks. Sum (over a block, in one order),
// BlockMax and Max (over all blocks; NaN if one is) give their result to all
// threads and are barriers too. WarpSum gives it to the first thread of a warp.
// A team also has warp_size(), Or on bits, FirstBit, InverseSqrt and SumSlices
// (over neighbours of a warp, in one order). Own says that a pointer is into
// the block's memory. A tile of S has kTile<columns> columns. It has
// kTall<columns> rows when points are added, kTile rows when columns of a
// camera are subtracted, and kHigh<columns> rows when columns of a panel are.
// See below for kWidth<tile> and kSavedRows.
#ifndef CERES_EXT_SMALL_WINDOW_WINDOW_SOLVE_H_
#define CERES_EXT_SMALL_WINDOW_WINDOW_SOLVE_H_

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "ceres_ext/small/window/window.h"
#include "ceres_ext/small/window/window_function.h"
#include "ceres_ext/solver/trust_region.h"
#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/model/bal_model.h"
#include "cuda_kernels/model/robust_loss.h"

namespace ceres_ext {

template <typename Rows, typename Team>
class WindowSolve {
 public:
  static constexpr int kColumns = Rows::kColumns;
  static constexpr int kCamera = Rows::kCamera;
  static constexpr int kTurn = Rows::kTurn;
  static constexpr int kRow = WindowRowSize(kColumns);
  static constexpr int kTile = Team::template kTile<kColumns>;
  // Columns of a tile, padded with zeros to whole vectors.
  static constexpr int kWidth = Team::template kWidth<kTile>;
  static constexpr int kHigh = Team::template kHigh<kColumns>;
  // Rows of a tile behind a panel if there are few tiles.
  static constexpr int kLow = kColumns == 10 ? 1 : 3;
  static constexpr int kTall = Team::template kTall<kColumns>;

  CERES_EXT_WINDOW WindowSolve(const Window& window,
                               const Rows& model,
                               bool has_schur,
                               double* memory,
                               Team* team)
      : w_(window),
        team_(team),
        n_(kColumns * window.counts.num_cameras),
        has_schur_(has_schur),
        is_shared_(team->num_blocks() > 1),
        chunk_points_(kWordPoints * window.counts.chunk_words),
        model_(model) {
    const TeamLayout at(kColumns,
                        window.counts.num_cameras,
                        window.counts.chunk_rows,
                        window.counts.chunk_words,
                        has_schur);
    const WindowScratch scratch(
        kCamera, kColumns, window.counts, has_schur, is_shared_);
    region_ = reinterpret_cast<TrustRegion*>(memory + at.region);
    verdict_ = reinterpret_cast<int32_t*>(memory + at.states) - 2;
    is_stopped_ = verdict_ + 1;
    states_ = reinterpret_cast<State*>(memory + at.states);
    rotation_maps_ = memory + at.rotation_maps;
    squared_norms_ = memory + at.squared_norms;
    gradient_ = memory + at.gradient;
    masks_ = reinterpret_cast<uint64_t*>(memory + at.masks);
    pattern_ = reinterpret_cast<uint64_t*>(memory + at.pattern);
    pairs_ = reinterpret_cast<uint16_t*>(memory + at.pairs);
    below_ = reinterpret_cast<uint8_t*>(memory + at.below);
    below_begin_ = reinterpret_cast<uint16_t*>(memory + at.below_begin);
    behind_ = reinterpret_cast<uint8_t*>(memory + at.behind);
    table_ = reinterpret_cast<uint16_t*>(memory + at.table);
    factors_ = memory + at.factors;
    rows_ = memory + at.rows;
    new_states_ = reinterpret_cast<State*>(memory + at.new_states);
    local_steps_ = memory + at.local_steps;
    values_ = memory + at.values;
    new_cameras_ = w_.scratch + scratch.new_cameras;
    scales_ = w_.scratch + scratch.scales;
    constant_states_ =
        reinterpret_cast<State*>(w_.scratch + scratch.constant_states);
    records_ = w_.scratch + scratch.records;
    panel_ = memory + at.panel;
    panel_stride_ = static_cast<int>(at.panel_stride);
    panel_cameras_ = at.panel_cameras;
    shared_schur_ = w_.scratch + scratch.schur;
    schur_ = has_schur ? memory + at.schur : shared_schur_;
    right_hand_side_ = schur_ + At(n_, 0);
    step_ = w_.scratch + scratch.step;
    costs_ = w_.scratch + scratch.costs;
    items_ = w_.scratch + scratch.items;
    chunk_masks_ =
        reinterpret_cast<uint64_t*>(w_.scratch + scratch.chunk_masks);
    parts_ = w_.scratch + scratch.parts;
    part_size_ = scratch.part_size;
    priors_ = w_.scratch + scratch.priors;
  }

  CERES_EXT_WINDOW void Run(const TrustRegionOptions& options) {
    if (team_->rank() == 0) {
      stop_ = options.stop;  // Member() 0 reads it.
      // Each block decides, so all have to see the same flag.
      TrustRegionOptions of_block = options;
      of_block.stop = is_stopped_;
      *region_ = TrustRegion(of_block);
    }
    for (int i = Member(); i < w_.counts.num_constant_cameras;
         i += NumMembers()) {
      constant_states_[i] =
          model_.Prepare(w_.constant_cameras + kCamera * i, nullptr);
    }
    CopyPattern();
    ReadStop();
    Prepare();
    bool is_first = true;
    bool is_new = true;  // x, since the last Form
    while (true) {
      const Linearization at_x = Form(is_first);
      const auto begin_or_linearize = [&] {
        const double gradient = at_x.gradient_max_norm;
        return is_first
                   ? region_->Begin(at_x.is_evaluated, at_x.cost, gradient)
                   : region_->Linearize(at_x.is_evaluated, at_x.cost, gradient);
      };
      if (is_new && Decide(begin_or_linearize) == 0) {
        break;
      }
      is_first = false;
      is_new = false;
      const bool is_solved = at_x.is_solvable && SolveCameras();
      Step step;
      if (is_solved) {
        step = TakeStep();
      } else {
        ReadStop();
      }
      if (!is_solved || !(step.model_cost_change > 0.0)) {
        if (Decide([&] { return region_->RejectInvalidStep(); }) == 0) {
          break;
        }
        continue;
      }
      const auto verdict = static_cast<TrustRegion::Verdict>(Decide([&] {
        return static_cast<int32_t>(region_->Judge(
            step.model_cost_change, step.cost, step.x_norm, step.step_norm));
      }));
      if (verdict == TrustRegion::Verdict::kAccepted) {
        Accept();
        is_new = true;
      } else if (verdict != TrustRegion::Verdict::kRejected) {
        break;
      }
    }
    if (Member() == 0) {
      w_.result->region = *region_;
    }
    team_->Barrier();
  }

 private:
  using State = typename Rows::State;
  using Projection = typename Rows::Projection;
  static_assert(sizeof(State) == TeamLayout::kState * sizeof(double),
                "states are doubles alone");

  struct Linearization {
    bool is_evaluated = false;
    bool is_solvable = false;  // Each V is positive definite.
    double cost = 0.0;
    double gradient_max_norm = 0.0;
  };
  struct Step {
    double model_cost_change = 0.0;
    double cost = DBL_MAX;
    double x_norm = 0.0;
    double step_norm = 0.0;
  };
  // Places in a row of a chunk. Jc is one row after the other, or column by
  // column where two values are loaded at once.
  CERES_EXT_WINDOW static constexpr int Place(int i, int c) {
    return Team::kLoadsPairs ? 2 * c + i : kColumns * i + c;
  }
  static constexpr int kPointJacobian = 2 * kColumns;
  static constexpr int kResidual = kPointJacobian + 6;
  static constexpr int kReduced = kResidual + 2;
  static constexpr int kElements = kColumns * kColumns;  // of a pair's block
  // Loads of a thread that are under way together.
  static constexpr int kAtOnce = 8;

  CERES_EXT_WINDOW static int64_t At(int r, int c) {
    return int64_t{r} * (r + 1) / 2 + c;
  }

  // Number of this thread among the threads of all blocks, which take warps by
  // turns, so that each has about as many threads with work.
  CERES_EXT_WINDOW int Member() const {
    const int warp = team_->rank() / team_->warp_size();
    return (warp * team_->num_blocks() + team_->block()) * team_->warp_size() +
           team_->rank() % team_->warp_size();
  }
  CERES_EXT_WINDOW int NumMembers() const {
    return team_->num_blocks() * team_->size();
  }

  // The first thread of each block decides, and all threads get the result and
  // the state of the region.
  template <typename Function>
  CERES_EXT_WINDOW int32_t Decide(const Function& function) {
    if (team_->rank() == 0) {
      *verdict_ = static_cast<int32_t>(function());
    }
    team_->Barrier();
    const int32_t verdict = *verdict_;
    team_->Barrier();
    return verdict;
  }
  // One thread reads the flag; its value goes to all blocks with those of Max.
  CERES_EXT_WINDOW double IsStopped() const {
    if (Member() != 0) {
      return 0.0;
    }
    TrustRegionOptions flag;
    flag.stop = stop_;
    return flag.IsStopped() ? 1.0 : 0.0;
  }
  CERES_EXT_WINDOW void SetStopped(double value) {
    if (team_->rank() == 0) {
      *is_stopped_ = value != 0.0 ? 1 : 0;
    }
  }

  CERES_EXT_WINDOW void ReadStop() {
    double stopped[1] = {IsStopped()};
    team_->Max(stopped);
    SetStopped(stopped[0]);
  }

  CERES_EXT_WINDOW bool Varies(int camera, int column) const {
    return (w_.column_mask[camera] >> column & 1) != 0;
  }
  CERES_EXT_WINDOW const State& StateOf(int camera) const {
    return camera < w_.counts.num_cameras
               ? states_[camera]
               : constant_states_[camera - w_.counts.num_cameras];
  }
  CERES_EXT_WINDOW const double* PointOf(int point) const {
    return point < w_.counts.num_points
               ? w_.points + 3 * int64_t{point}
               : w_.constant_points + 3 * int64_t{point - w_.counts.num_points};
  }

  CERES_EXT_WINDOW void CopyPattern() {
    const int num_cameras = w_.counts.num_cameras;
    const int num_pairs = w_.counts.num_pairs;
    for (int e = team_->rank(); e < PatternWords(num_cameras) * num_cameras;
         e += team_->size()) {
      pattern_[e] = w_.pattern[e];
    }
    for (int e = team_->rank(); e < num_pairs; e += team_->size()) {
      pairs_[e] = w_.pairs[e];
      below_[e] = w_.below[e];
    }
    for (int e = team_->rank(); e <= num_cameras; e += team_->size()) {
      below_begin_[e] = w_.below_begin[e];
    }
  }
  // True if (i, j), i > j, is a pair.
  CERES_EXT_WINDOW bool IsPair(int i, int j) const {
    const int num_words = PatternWords(w_.counts.num_cameras);
    return (pattern_[num_words * j + i / kWordPoints] >> i % kWordPoints & 1) !=
           0;
  }

  // Computes the states of the cameras, and the derivatives of their turns by
  // columns.
  CERES_EXT_WINDOW void Prepare() {
    for (int i = team_->rank(); i < w_.counts.num_cameras; i += team_->size()) {
      states_[i] =
          model_.Prepare(w_.cameras + kCamera * i, rotation_maps_ + 12 * i);
    }
    team_->Barrier();
  }

  // Writes row k's residual and Jacobians to its place in the chunk, and its
  // cost to *cost. False if a value is not finite.
  CERES_EXT_WINDOW bool EvaluateRow(int k, double* row, double* cost) {
    const int camera = w_.camera[k];
    const int point = w_.point[k];
    const State& state = StateOf(camera);
    const Projection p = model_.Project(k, state, PointOf(point));
    double r[2];
    model_.Residual(state, p, w_.observed + 2 * int64_t{k}, r);
    bool is_finite = kernels::AllFinite(r, 2);
    double jacobian[2 * kColumns] = {};
    if (camera < w_.counts.num_cameras) {
      double local[2 * TeamLayout::kLocal];
      model_.CameraJacobian(state, p, local);
      is_finite = is_finite && kernels::AllFinite(local, 18);
      const double* const map = rotation_maps_ + 12 * camera;
      const int mask = w_.column_mask[camera];
      for (int i = 0; i < 2; ++i) {
        const double* const of_row = local + TeamLayout::kLocal * i;
        for (int c = 0; c < kColumns; ++c) {
          const double value = c < kTurn ? of_row[0] * map[c] +
                                               of_row[1] * map[kTurn + c] +
                                               of_row[2] * map[2 * kTurn + c]
                                         : of_row[3 + c - kTurn];
          jacobian[kColumns * i + c] = (mask >> c & 1) != 0 ? value : 0.0;
        }
      }
    }
    double by_point[6] = {};
    if (point < w_.counts.num_points) {
      model_.PointJacobian(state, p, by_point);
      is_finite = is_finite && kernels::AllFinite(by_point, 6);
    }
    const double squared_norm = r[0] * r[0] + r[1] * r[1];
    double rho[3];
    w_.loss.Evaluate(k, squared_norm, rho);
    *cost = 0.5 * rho[0];
    if (!kernels::LossCorrector::IsIdentity(rho)) {
      const kernels::LossCorrector corrector(squared_norm, rho);
      corrector.template CorrectJacobian<2, kColumns>(r, jacobian);
      corrector.template CorrectJacobian<2, 3>(r, by_point);
      corrector.template CorrectResidual<2>(r);
    }
    for (int i = 0; i < 2; ++i) {
      for (int c = 0; c < kColumns; ++c) {
        row[Place(i, c)] = jacobian[kColumns * i + c];
      }
    }
    for (int e = 0; e < 6; ++e) {
      row[kPointJacobian + e] = by_point[e];
    }
    for (int i = 0; i < 2; ++i) {
      row[kResidual + i] = r[i];
      row[kReduced + i] = r[i];
    }
    return is_finite;
  }

  // Computes L and L^-1 g of point p, whose rows are at `row`, and writes them
  // to its record and to `factor`. False if V is not positive definite.
  CERES_EXT_WINDOW bool FactorizePoint(int p,
                                       int num_rows,
                                       bool is_first,
                                       const double* row,
                                       double* factor,
                                       double* gradient_max) {
    double v[6] = {};
    double g[3] = {};
    for (int k = 0; k < num_rows; ++k) {
      for (int i = 0; i < 2; ++i) {
        const double* const j = row + kRow * k + kPointJacobian + 3 * i;
        const double r = row[kRow * k + kResidual + i];
        v[0] += j[0] * j[0];
        v[1] += j[1] * j[0];
        v[2] += j[1] * j[1];
        v[3] += j[2] * j[0];
        v[4] += j[2] * j[1];
        v[5] += j[2] * j[2];
        for (int a = 0; a < 3; ++a) {
          g[a] += j[a] * r;
        }
      }
    }
    double* const record = records_ + WindowScratch::kRecord * int64_t{p};
    const double* const x = w_.points + 3 * int64_t{p};
    constexpr int kDiagonal[3] = {0, 2, 5};
    for (int a = 0; a < 3; ++a) {
      Largest(x[a] - (x[a] - g[a]), gradient_max);
      const double squared_norm = v[kDiagonal[a]];
      double* const scale = record + 3 + a;
      if (is_first) {
        *scale = region_->Scale(squared_norm);
      }
      v[kDiagonal[a]] += region_->SquaredDamping(squared_norm, *scale);
    }
    // L as 1 / l00, l10, 1 / l11, l20, l21, 1 / l22.
    double l[6];
    l[0] = Team::InverseSqrt(v[0]);
    l[1] = v[1] * l[0];
    l[3] = v[3] * l[0];
    const double d1 = v[2] - l[1] * l[1];
    l[2] = Team::InverseSqrt(d1);
    l[4] = (v[4] - l[3] * l[1]) * l[2];
    const double d2 = v[5] - l[3] * l[3] - l[4] * l[4];
    l[5] = Team::InverseSqrt(d2);
    LowerSolve(l, g);
    for (int e = 0; e < 6; ++e) {
      record[6 + e] = l[e];
      factor[e] = l[e];
    }
    for (int a = 0; a < 3; ++a) {
      record[12 + a] = g[a];
      factor[6 + a] = g[a];
    }
    return v[0] > 0.0 && d1 > 0.0 && d2 > 0.0;
  }

  // Replaces Jp by A and computes r', with the result of FactorizePoint.
  CERES_EXT_WINDOW static void EliminateFromRow(const double* factor,
                                                double* row) {
    for (int i = 0; i < 2; ++i) {
      double a[3];
      for (int e = 0; e < 3; ++e) {
        a[e] = row[kPointJacobian + 3 * i + e];
      }
      LowerSolve(factor, a);
      for (int e = 0; e < 3; ++e) {
        row[kPointJacobian + 3 * i + e] = a[e];
      }
      row[kReduced + i] = row[kResidual + i] - a[0] * factor[6] -
                          a[1] * factor[7] - a[2] * factor[8];
    }
  }

  // y = L^-1 y
  CERES_EXT_WINDOW static void LowerSolve(const double* l, double* y) {
    y[0] *= l[0];
    y[1] = (y[1] - l[1] * y[0]) * l[2];
    y[2] = (y[2] - l[3] * y[0] - l[4] * y[1]) * l[5];
  }
  // y = L^-T y
  CERES_EXT_WINDOW static void UpperSolve(const double* l, double* y) {
    y[2] *= l[5];
    y[1] = (y[1] - l[4] * y[2]) * l[2];
    y[0] = (y[0] - l[1] * y[1] - l[3] * y[2]) * l[0];
  }

  // *largest = max(*largest, |value|), NaN where value is.
  CERES_EXT_WINDOW static void Largest(double value, double* largest) {
    using std::fabs;
    if (!(fabs(value) <= *largest) && *largest == *largest) {
      *largest = fabs(value);
    }
  }

  // sum += Jc_i' (I - A_i A_j') Jc_j of a point, rows kTall a ... and columns
  // kTile b ...; without I where the cameras differ. y0 and y1 have zeros
  // behind kTile.
  CERES_EXT_WINDOW static void AddPoint(const double* row_i,
                                        const double* row_j,
                                        double same,
                                        int a,
                                        int b,
                                        double* y0,
                                        double* y1,
                                        double* sum) {
    double ai[6];
    double aj[6];
    for (int e = 0; e < 6; e += 2) {
      Team::LoadPair(row_i + kPointJacobian + e, ai + e, ai + e + 1);
      Team::LoadPair(row_j + kPointJacobian + e, aj + e, aj + e + 1);
    }
    const double m00 = same - ai[0] * aj[0] - ai[1] * aj[1] - ai[2] * aj[2];
    const double m01 = -ai[0] * aj[3] - ai[1] * aj[4] - ai[2] * aj[5];
    const double m10 = -ai[3] * aj[0] - ai[4] * aj[1] - ai[5] * aj[2];
    const double m11 = same - ai[3] * aj[3] - ai[4] * aj[4] - ai[5] * aj[5];
    for (int c = 0; c < kTile; ++c) {
      double j0;
      double j1;
      LoadColumn(row_j, kTile * b + c, &j0, &j1);
      y0[c] = m00 * j0 + m01 * j1;
      y1[c] = m10 * j0 + m11 * j1;
    }
    CERES_EXT_WINDOW_UNROLL
    for (int r = 0; r < kTall; ++r) {
      double x0;
      double x1;
      LoadColumn(row_i, kTall * a + r, &x0, &x1);
      for (int c = 0; c < kWidth; ++c) {
        sum[kWidth * r + c] += x0 * y0[c];
        sum[kWidth * r + c] += x1 * y1[c];
      }
    }
  }
  CERES_EXT_WINDOW static void LoadColumn(const double* row,
                                          int c,
                                          double* x0,
                                          double* x1) {
    if constexpr (Team::kLoadsPairs) {
      Team::LoadPair(row + 2 * c, x0, x1);
    } else {
      *x0 = row[c];
      *x1 = row[kColumns + c];
    }
  }

  // Destination of the sums of a chunk: the sums of the chunks before it or, if
  // several blocks share the window, the part of this chunk.
  struct Target {
    double* schur;
    double* right_hand_side;
    double* gradient;
    double* squared_norms;
  };
  CERES_EXT_WINDOW Target TargetOf(int chunk) const {
    if (!is_shared_) {
      return {schur_, right_hand_side_, gradient_, squared_norms_};
    }
    double* const part = parts_ + part_size_ * chunk;
    double* const vectors = part + PackedTriangle(n_ + 1);
    return {part, part + At(n_, 0), vectors, vectors + n_};
  }

  // A tile of S, of block (i, j), i >= j.
  struct Tile {
    int i;
    int j;
    int a;  // rows kTall a ...
    int b;  // columns kTile b ...
  };
  static constexpr int kSide = kColumns / kTile;
  static constexpr int kTiles = kSide * (kColumns / kTall);  // of a block

  CERES_EXT_WINDOW Tile TileOf(int t) const {
    const int pair = pairs_[t / kTiles];
    return {pair / 256, pair % 256, t % kTiles / kSide, t % kSide};
  }

  // The points of a slice among those of a word: every num_slices-th one.
  CERES_EXT_WINDOW static uint64_t Slice(uint64_t points,
                                         int slice,
                                         int num_slices) {
    uint64_t every = 1;
    for (int bits = num_slices; bits < kWordPoints; bits *= 2) {
      every |= every << bits;
    }
    return points & (every << slice);
  }

  // Adds to a tile its sum over the rows of a chunk. num_slices neighbours of a
  // warp share the tile. All threads of the warp call it.
  CERES_EXT_WINDOW void AddTile(
      int t, int num_tiles, int slice, int num_slices, double* schur) {
    const Tile tile = TileOf(t < num_tiles ? t : 0);
    // On the diagonal some tiles are above it.
    const bool is_tile =
        t < num_tiles &&
        (tile.i != tile.j || kTile * tile.b < kTall * (tile.a + 1));
    double sum[kTall * kWidth] = {};
    double y0[kWidth] = {};
    double y1[kWidth] = {};
    const double same = tile.i == tile.j ? 1.0 : 0.0;
    const double* const rows = Team::Own(rows_);
    const uint64_t* masks = Team::Own(masks_);
    const uint16_t* of_i = Team::Own(table_) + chunk_points_ * tile.i;
    const uint16_t* of_j = Team::Own(table_) + chunk_points_ * tile.j;
    bool is_empty = true;
    for (int word = 0; is_tile && word < w_.counts.chunk_words; ++word) {
      uint64_t points = masks[tile.i] & masks[tile.j];
      is_empty = is_empty && points == 0;
      if (num_slices > 1) {
        points = Slice(points, slice, num_slices);
      }
      while (points != 0) {
        const int p = Team::FirstBit(points);
        points &= points - 1;
        AddPoint(rows + kRow * of_i[p],
                 rows + kRow * of_j[p],
                 same,
                 tile.a,
                 tile.b,
                 y0,
                 y1,
                 sum);
      }
      masks += w_.counts.num_cameras;
      of_i += kWordPoints;
      of_j += kWordPoints;
    }
    // The same for all threads.
    if (num_slices > 1) {
      Team::SumSlices(sum, num_slices);
    }
    if (is_empty || slice != 0) {
      return;
    }
    const int r0 = kColumns * tile.i + kTall * tile.a;
    const int c0 = kColumns * tile.j + kTile * tile.b;
    CERES_EXT_WINDOW_UNROLL
    for (int r = 0; r < kTall; ++r) {
      double* const to = schur + At(r0 + r, c0);
      for (int c = 0; c < kTile; ++c) {
        if (c0 + c <= r0 + r) {
          const double value = sum[kWidth * r + c];
          to[c] = is_shared_ ? value : to[c] + value;
        }
      }
    }
  }

  // The same for kTile elements of a camera's right-hand side, gradient and
  // squared norms of columns.
  CERES_EXT_WINDOW void AddVectors(
      int t, int num_vectors, int slice, int num_slices, const Target& to) {
    const int i = (t < num_vectors ? t : 0) / kSide;
    const int a = t % kSide;
    double sum[3 * kTile] = {};
    for (int word = 0; t < num_vectors && word < w_.counts.chunk_words;
         ++word) {
      const uint16_t* const of_i =
          Team::Own(table_) + chunk_points_ * i + kWordPoints * word;
      uint64_t points = Team::Own(masks_)[w_.counts.num_cameras * word + i];
      if (num_slices > 1) {
        points = Slice(points, slice, num_slices);
      }
      for (; points != 0; points &= points - 1) {
        const double* const row =
            Team::Own(rows_) + kRow * of_i[Team::FirstBit(points)];
        for (int r = 0; r < kTile; ++r) {
          double x0;
          double x1;
          LoadColumn(row, kTile * a + r, &x0, &x1);
          sum[r] += x0 * row[kReduced] + x1 * row[kReduced + 1];
          sum[kTile + r] += x0 * row[kResidual] + x1 * row[kResidual + 1];
          sum[2 * kTile + r] += x0 * x0 + x1 * x1;
        }
      }
    }
    // The same for all threads.
    if (num_slices > 1) {
      Team::SumSlices(sum, num_slices);
    }
    if (t >= num_vectors || slice != 0) {
      return;
    }
    for (int r = 0; r < kTile; ++r) {
      const int c = kColumns * i + kTile * a + r;
      if (is_shared_) {
        to.right_hand_side[c] = sum[r];
        to.gradient[c] = sum[kTile + r];
        to.squared_norms[c] = sum[2 * kTile + r];
      } else {
        to.right_hand_side[c] -= sum[r];
        to.gradient[c] += sum[kTile + r];
        to.squared_norms[c] += sum[2 * kTile + r];
      }
    }
  }

  CERES_EXT_WINDOW_PHASE void AddTiles(int chunk, bool is_last) {
    const Target to = TargetOf(chunk);
    const int num_vectors = w_.counts.num_cameras * kSide;
    const int all_tiles = w_.counts.num_pairs * kTiles;
    const int num_tiles = is_last ? 0 : all_tiles;
    // Several threads share a tile if there are enough threads. The vectors'
    // threads have tiles of few points.
    int num_slices = 1;
    while (2 * num_slices * all_tiles <= team_->size() &&
           2 * num_slices <= team_->warp_size()) {
      num_slices *= 2;
    }
    // Whole warps.
    const auto end = [&](int n) {
      return (num_slices * n + team_->warp_size() - 1) / team_->warp_size() *
             team_->warp_size();
    };
    for (int t = team_->rank(); t < end(num_tiles); t += team_->size()) {
      AddTile(t / num_slices, num_tiles, t % num_slices, num_slices, to.schur);
    }
    // The last threads do this, because they have the fewest tiles.
    const int first = team_->size() - team_->warp_size() -
                      team_->rank() / team_->warp_size() * team_->warp_size() +
                      team_->rank() % team_->warp_size();
    for (int t = first; t < end(num_vectors); t += team_->size()) {
      AddVectors(t / num_slices, num_vectors, t % num_slices, num_slices, to);
    }
  }

  // Adds the parts of all chunks in their order: gradient and squared norms in
  // each block, S and the right-hand side in main memory.
  CERES_EXT_WINDOW_PHASE void AddParts(bool is_last) {
    const int64_t vectors = PackedTriangle(n_ + 1);
    for (int c = team_->rank(); c < 2 * n_; c += team_->size()) {
      *(c < n_ ? gradient_ + c : squared_norms_ + c - n_) =
          SumOfParts(vectors + c);
    }
    if (is_last) {
      return;
    }
    // A warp adds a block of S, or as many values of the right-hand side as it
    // has lanes, by turns of the blocks of the team.
    const int lane = team_->rank() % team_->warp_size();
    const int num_pairs = w_.counts.num_pairs;
    const int num_items =
        num_pairs + (n_ + team_->warp_size() - 1) / team_->warp_size();
    for (int item = team_->rank() / team_->warp_size() * team_->num_blocks() +
                    team_->block();
         item < num_items;
         item += NumMembers() / team_->warp_size()) {
      if (item < num_pairs) {
        AddPartsOfPair(pairs_[item] / 256, pairs_[item] % 256);
        continue;
      }
      const int c = (item - num_pairs) * team_->warp_size() + lane;
      if (c < n_) {
        shared_schur_[At(n_, c)] = 0.0 - SumOfParts(At(n_, c));
      }
    }
    team_->Join();
    if (has_schur_ && team_->block() == 0) {
      CopySchur();
    }
    team_->Barrier();
  }

  // Sum of an element of the parts. Several loads are under way together.
  CERES_EXT_WINDOW double SumOfParts(int64_t element) const {
    const int num_chunks = w_.counts.num_chunks;
    double sum = 0.0;
    for (int first = 0; first < num_chunks; first += kAtOnce) {
      double values[kAtOnce];
      CERES_EXT_WINDOW_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        values[k] = first + k < num_chunks
                        ? parts_[part_size_ * (first + k) + element]
                        : 0.0;
      }
      CERES_EXT_WINDOW_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        sum += values[k];
      }
    }
    return sum;
  }

  // Copies S and the right-hand side to the block's memory.
  CERES_EXT_WINDOW void CopySchur() {
    const int num_elements = kElements * w_.counts.num_pairs + n_;
    for (int first = team_->rank(); first < num_elements;
         first += kAtOnce * team_->size()) {
      int64_t place[kAtOnce];
      double values[kAtOnce];
      CERES_EXT_WINDOW_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        const int e = first + k * team_->size();
        place[k] = e < num_elements ? PlaceOf(e) : -1;
        values[k] = place[k] >= 0 ? shared_schur_[place[k]] : 0.0;
      }
      CERES_EXT_WINDOW_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        if (place[k] >= 0) {
          schur_[place[k]] = values[k];
        }
      }
    }
  }
  // Place in S of element e of the blocks of all pairs, then of the right-hand
  // side. -1 if it is above the diagonal.
  CERES_EXT_WINDOW int64_t PlaceOf(int e) const {
    const int num_elements = kElements * w_.counts.num_pairs;
    if (e >= num_elements) {
      return At(n_, e - num_elements);
    }
    const int pair = pairs_[e / kElements];
    const int r = kColumns * (pair / 256) + e % kElements / kColumns;
    const int c = kColumns * (pair % 256) + e % kColumns;
    return c <= r ? At(r, c) : -1;
  }

  // The largest r with r (r + 1) / 2 <= t.
  CERES_EXT_WINDOW static int TriangularRoot(int t) {
    using std::sqrt;
    int r = static_cast<int>(
        (sqrt(8.0F * static_cast<float>(t) + 1.0F) - 1.0F) / 2.0F);
    while (PackedTriangle(r) > t) {
      --r;
    }
    while (PackedTriangle(r + 1) <= t) {
      ++r;
    }
    return r;
  }

  // One warp does this. A chunk without a common point wrote nothing.
  CERES_EXT_WINDOW void AddPartsOfPair(int i, int j) {
    constexpr int kPerLane = (kElements + Team::kWarp - 1) / Team::kWarp;
    constexpr int kChunksAtOnce = 4;
    const int lane = team_->rank() % Team::kWarp;
    int64_t place[kPerLane];
    double sum[kPerLane] = {};
    CERES_EXT_WINDOW_UNROLL
    for (int k = 0; k < kPerLane; ++k) {
      const int e = lane + Team::kWarp * k;
      const int r = kColumns * i + e / kColumns;
      const int c = kColumns * j + e % kColumns;
      place[k] = e < kElements && c <= r ? At(r, c) : -1;
    }
    const int num_cameras = w_.counts.num_cameras;
    const int num_words = w_.counts.chunk_words;
    for (int first = 0; first < w_.counts.num_chunks; first += Team::kWarp) {
      uint64_t common = 0;
      if (first + lane < w_.counts.num_chunks) {
        const uint64_t* const masks =
            chunk_masks_ + int64_t{num_cameras} * num_words * (first + lane);
        for (int word = 0; word < num_words; ++word) {
          common |=
              masks[num_cameras * word + i] & masks[num_cameras * word + j];
        }
      }
      uint64_t chunks = Team::Ballot(common != 0);
      while (chunks != 0) {
        // The loads of several chunks are under way together.
        double values[kChunksAtOnce][kPerLane];
        CERES_EXT_WINDOW_UNROLL
        for (int q = 0; q < kChunksAtOnce; ++q) {
          const double* const part =
              chunks != 0
                  ? parts_ + part_size_ * (first + Team::FirstBit(chunks))
                  : nullptr;
          CERES_EXT_WINDOW_UNROLL
          for (int k = 0; k < kPerLane; ++k) {
            values[q][k] =
                part != nullptr && place[k] >= 0 ? part[place[k]] : 0.0;
          }
          chunks &= chunks - 1;
        }
        CERES_EXT_WINDOW_UNROLL
        for (int q = 0; q < kChunksAtOnce; ++q) {
          CERES_EXT_WINDOW_UNROLL
          for (int k = 0; k < kPerLane; ++k) {
            sum[k] += values[q][k];
          }
        }
      }
    }
    CERES_EXT_WINDOW_UNROLL
    for (int k = 0; k < kPerLane; ++k) {
      if (place[k] >= 0) {
        shared_schur_[place[k]] = sum[k];
      }
    }
  }

  // Evaluates at x, eliminates the points and forms S with the radius that the
  // region has now.
  CERES_EXT_WINDOW_PHASE Linearization Form(bool is_first) {
    // If the loop ends after this iteration, only the gradient is needed.
    const bool is_last = region_->IsLast();
    if (!is_shared_) {
      for (int t = team_->rank(); t < kColumns * w_.counts.num_pairs;
           t += team_->size()) {
        const int pair = pairs_[t / kColumns];
        const int r = kColumns * (pair / 256) + t % kColumns;
        const int c0 = kColumns * (pair % 256);
        double* const row = schur_ + At(r, c0);
        for (int c = 0; c < kColumns && c0 + c <= r; ++c) {
          row[c] = 0.0;
        }
      }
      for (int c = team_->rank(); c < n_; c += team_->size()) {
        right_hand_side_[c] = 0.0;
        squared_norms_[c] = 0.0;
        gradient_[c] = 0.0;
      }
    }
    Linearization result;
    bool is_evaluated = true;
    bool is_solvable = true;
    double gradient_max = 0.0;
    const int warp = team_->rank() / team_->warp_size();
    const int num_warps = team_->size() / team_->warp_size();
    const int num_masks = w_.counts.chunk_words * w_.counts.num_cameras;
    for (int chunk = team_->block(); chunk < w_.counts.num_chunks;
         chunk += team_->num_blocks()) {
      for (int m = team_->rank(); m < num_masks; m += team_->size()) {
        masks_[m] = 0;
      }
      team_->Barrier();
      const int first_point = w_.chunk_begin[chunk];
      const int end_point = w_.chunk_begin[chunk + 1];
      const int first_row = w_.point_begin[first_point];
      const int end_row = w_.point_begin[end_point];
      double cost = 0.0;
      for (int k = first_row + team_->rank(); k < end_row; k += team_->size()) {
        double of_row;
        is_evaluated &= EvaluateRow(k, rows_ + kRow * (k - first_row), &of_row);
        cost += of_row;
        const int camera = w_.camera[k];
        if (camera < w_.counts.num_cameras) {
          const int p = w_.point[k] - first_point;
          table_[chunk_points_ * camera + p] =
              static_cast<uint16_t>(k - first_row);
          Team::Or(uint64_t{1} << (p % kWordPoints),
                   masks_ + w_.counts.num_cameras * (p / kWordPoints) + camera);
        }
      }
      cost = team_->WarpSum(cost);
      if (team_->rank() % team_->warp_size() == 0) {
        costs_[num_warps * chunk + warp] = cost;
      }
      team_->Barrier();
      for (int m = team_->rank(); is_shared_ && m < num_masks;
           m += team_->size()) {
        chunk_masks_[int64_t{num_masks} * chunk + m] = masks_[m];
      }
      const int end_varying =
          end_point < w_.counts.num_points ? end_point : w_.counts.num_points;
      for (int p = first_point + team_->rank(); p < end_varying;
           p += team_->size()) {
        is_solvable &=
            FactorizePoint(p,
                           w_.point_begin[p + 1] - w_.point_begin[p],
                           is_first,
                           rows_ + kRow * (w_.point_begin[p] - first_row),
                           factors_ + 9 * (p - first_point),
                           &gradient_max);
      }
      team_->Barrier();
      for (int k = first_row + team_->rank(); k < end_row; k += team_->size()) {
        if (w_.point[k] < w_.counts.num_points) {
          EliminateFromRow(factors_ + 9 * (w_.point[k] - first_point),
                           rows_ + kRow * (k - first_row));
        }
      }
      team_->Barrier();
      AddTiles(chunk, is_last);
      team_->Barrier();
    }
    if constexpr (Rows::kHasPriors) {
      for (int k = Member(); k < w_.counts.num_priors; k += NumMembers()) {
        is_evaluated &= EvaluatePrior(k);
      }
      if (w_.counts.num_marginals > 0) {
        is_evaluated &= EvaluateMarginals();
      }
    }
    double worst[3] = {
        is_evaluated ? 0.0 : 1.0, is_solvable ? 0.0 : 1.0, gradient_max};
    team_->Max(worst);
    if (is_shared_) {
      AddParts(is_last);
    }
    if constexpr (Rows::kHasPriors) {
      AddPriors(is_last);
      if (w_.counts.num_marginals > 0) {
        AddMarginals(is_last);
      }
    }
    double cost[1] = {0.0};
    for (int e = team_->rank(); e < num_warps * w_.counts.num_chunks;
         e += team_->size()) {
      cost[0] += costs_[e];
    }
    if constexpr (Rows::kHasPriors) {
      for (int k = team_->rank(); k < w_.counts.num_priors;
           k += team_->size()) {
        cost[0] += PriorRecord(k)[kPriorCost];
      }
      for (int e = team_->rank(); e < w_.counts.num_marginal_rows;
           e += team_->size()) {
        cost[0] += MarginalItem(e)[1];
      }
    }
    team_->Sum(cost);
    result.is_evaluated = worst[0] == 0.0;
    result.is_solvable = worst[1] == 0.0;
    result.cost = cost[0];
    result.gradient_max_norm = Damp(is_first, is_last, worst[2]);
    return result;
  }

  // S += D^2. Returns the largest change by the gradient; gradient_max is that
  // of the points.
  CERES_EXT_WINDOW double Damp(bool is_first,
                               bool is_last,
                               double gradient_max) {
    for (int c = team_->rank(); c < n_ && team_->block() == 0;
         c += team_->size()) {
      if (is_first) {
        scales_[c] = region_->Scale(squared_norms_[c]);
      }
      if (is_last) {
        continue;
      }
      double* const diagonal = schur_ + At(c, c);
      *diagonal = Varies(c / kColumns, c % kColumns)
                      ? *diagonal + region_->SquaredDamping(squared_norms_[c],
                                                            scales_[c])
                      : 1.0;
    }
    for (int i = team_->rank(); i < w_.counts.num_cameras; i += team_->size()) {
      double minus_gradient[kColumns];
      for (int c = 0; c < kColumns; ++c) {
        minus_gradient[c] = -gradient_[kColumns * i + c];
      }
      const double* const x = w_.cameras + kCamera * i;
      double moved[kCamera];
      Plus(i, x, minus_gradient, moved);
      for (int e = 0; e < kCamera; ++e) {
        Largest(x[e] - moved[e], &gradient_max);
      }
    }
    double largest[1] = {gradient_max};
    team_->BlockMax(largest);
    return largest[0];
  }

  // moved = x (+) delta of camera i.
  CERES_EXT_WINDOW void Plus(int i,
                             const double* x,
                             const double* delta,
                             double* moved) const {
    model_.Plus(w_.column_mask[i], x, delta, moved);
  }

  // Places in the record of a prior.
  static constexpr int kPriorJacobian = WindowPrior::kSize;
  static constexpr int kPriorElements = WindowPrior::kSize * kPoseColumns;
  static constexpr int kPriorCost = kPriorJacobian + 2 * kPriorElements;
  static constexpr int kPriorItem = kPriorCost + 1;

  CERES_EXT_WINDOW double* PriorRecord(int k) const {
    return priors_ + WindowScratch::kPrior * int64_t{k};
  }
  // Values of a prior's camera, constant or among `varying`.
  CERES_EXT_WINDOW const double* PoseOf(int camera,
                                        const double* varying) const {
    return camera < 0 ? nullptr
           : camera < w_.counts.num_cameras
               ? varying + kCamera * camera
               : w_.constant_cameras +
                     kCamera * (camera - w_.counts.num_cameras);
  }
  CERES_EXT_WINDOW bool IsVarying(int camera) const {
    return camera >= 0 && camera < w_.counts.num_cameras;
  }

  // Returns |r|^2 of a prior, and rho of it.
  CERES_EXT_WINDOW double EvaluateLoss(const WindowPrior& prior,
                                       const double* r,
                                       double* rho) const {
    double squared_norm = 0.0;
    for (int e = 0; e < WindowPrior::kSize; ++e) {
      squared_norm += r[e] * r[e];
    }
    rho[0] = squared_norm;
    rho[1] = 1.0;
    rho[2] = 0.0;
    if (prior.loss != kernels::kNoLoss) {
      kernels::RobustLoss::EvaluateChain(
          w_.loss.losses, prior.loss, squared_norm, rho);
    }
    for (int e = 0; e < 3; ++e) {
      rho[e] *= prior.weight;
    }
    return squared_norm;
  }

  // Writes the record of prior k at x. False if a value is not finite. If x is
  // that of before, another block may still read; it finds the same values.
  CERES_EXT_WINDOW_PHASE bool EvaluatePrior(int k) {
    constexpr int kSize = WindowPrior::kSize;
    const WindowPrior& prior = model_.prior(k);
    double* const record = PriorRecord(k);
    const double* const x[2] = {PoseOf(prior.camera[0], w_.cameras),
                                PoseOf(prior.camera[1], w_.cameras)};
    double r[kSize];
    bool is_finite = model_.EvaluatePrior(prior, x, r);
    double rho[3];
    const double squared_norm = EvaluateLoss(prior, r, rho);
    const bool is_corrected = !kernels::LossCorrector::IsIdentity(rho);
    const kernels::LossCorrector corrector =
        is_corrected ? kernels::LossCorrector(squared_norm, rho)
                     : kernels::LossCorrector();
    for (int side = 0; side < 2; ++side) {
      double jacobian[kPriorElements] = {};
      const int camera = prior.camera[side];
      if (IsVarying(camera)) {
        is_finite &= model_.DifferentiatePrior(prior, x, side, jacobian);
        for (int e = 0; e < kPriorElements; ++e) {
          if (!Varies(camera, e % kPoseColumns)) {
            jacobian[e] = 0.0;
          }
        }
        if (is_corrected) {
          corrector.template CorrectJacobian<kSize, kPoseColumns>(r, jacobian);
        }
      }
      for (int e = 0; e < kPriorElements; ++e) {
        record[kPriorJacobian + kPriorElements * side + e] = jacobian[e];
      }
    }
    if (is_corrected) {
      corrector.template CorrectResidual<kSize>(r);
    }
    for (int e = 0; e < kSize; ++e) {
      record[e] = r[e];
    }
    record[kPriorCost] = 0.5 * rho[0];
    return is_finite;
  }

  // a'b of columns ca and cb of two Jacobians of a prior.
  CERES_EXT_WINDOW static double ColumnProduct(const double* a,
                                               int ca,
                                               const double* b,
                                               int cb) {
    double sum = 0.0;
    for (int e = 0; e < WindowPrior::kSize; ++e) {
      sum += a[kPoseColumns * e + ca] * b[kPoseColumns * e + cb];
    }
    return sum;
  }

  // Adds the priors to gradient and squared norms in each block, and to S and
  // the right-hand side in the first one.
  CERES_EXT_WINDOW_PHASE void AddPriors(bool is_last) {
    if (w_.counts.num_priors == 0) {
      return;  // The same for all threads.
    }
    const bool has_system = !is_last && team_->block() == 0;
    // Other threads may have written the sums before.
    team_->Barrier();
    for (int c = team_->rank(); c < n_; c += team_->size()) {
      double gradient = 0.0;
      double squared_norm = 0.0;
      const int column = c % kColumns;
      if (column >= kPoseColumns) {
        continue;
      }
      model_.ForEachSide(c / kColumns, [&](int side_of_prior) {
        const double* const record = PriorRecord(side_of_prior / 2);
        const double* const jacobian =
            record + kPriorJacobian + kPriorElements * (side_of_prior % 2);
        for (int e = 0; e < WindowPrior::kSize; ++e) {
          gradient += jacobian[kPoseColumns * e + column] * record[e];
        }
        squared_norm += ColumnProduct(jacobian, column, jacobian, column);
      });
      gradient_[c] += gradient;
      squared_norms_[c] += squared_norm;
      if (has_system) {
        right_hand_side_[c] -= gradient;
      }
    }
    // The diagonal blocks.
    constexpr int kTriangle = static_cast<int>(PackedTriangle(kPoseColumns));
    for (int t = team_->rank();
         has_system && t < kTriangle * w_.counts.num_cameras;
         t += team_->size()) {
      const int camera = t / kTriangle;
      const int r = TriangularRoot(t % kTriangle);
      const int c = t % kTriangle - static_cast<int>(PackedTriangle(r));
      double sum = 0.0;
      model_.ForEachSide(camera, [&](int side_of_prior) {
        const double* const jacobian = PriorRecord(side_of_prior / 2) +
                                       kPriorJacobian +
                                       kPriorElements * (side_of_prior % 2);
        sum += ColumnProduct(jacobian, r, jacobian, c);
      });
      schur_[At(kColumns * camera + r, kColumns * camera + c)] += sum;
    }
    // The blocks of two cameras.
    constexpr int kSquare = kPoseColumns * kPoseColumns;
    for (int t = team_->rank();
         has_system && t < kSquare * w_.counts.num_priors;
         t += team_->size()) {
      const WindowPrior& prior = model_.prior(t / kSquare);
      if (prior.is_first == 0) {
        continue;
      }
      const int r = t % kSquare / kPoseColumns;
      const int c = t % kPoseColumns;
      const int high = prior.camera[0] > prior.camera[1] ? 0 : 1;
      const int i = prior.camera[high];
      const int j = prior.camera[1 - high];
      double sum = 0.0;
      for (int k = t / kSquare; k >= 0; k = model_.prior(k).next) {
        const double* const jacobians = PriorRecord(k) + kPriorJacobian;
        const int high_of_k = model_.prior(k).camera[0] == i ? 0 : 1;
        sum += ColumnProduct(jacobians + kPriorElements * high_of_k,
                             r,
                             jacobians + kPriorElements * (1 - high_of_k),
                             c);
      }
      schur_[At(kColumns * i + r, kColumns * j + c)] += sum;
    }
    team_->Barrier();
  }

  // The first two items of prior k's step. False if its error at the candidate
  // is not finite.
  CERES_EXT_WINDOW_PHASE bool StepOfPrior(int k) {
    const WindowPrior& prior = model_.prior(k);
    double* const record = PriorRecord(k);
    double model = 0.0;
    for (int e = 0; e < WindowPrior::kSize; ++e) {
      double change = 0.0;
      for (int side = 0; side < 2; ++side) {
        const int camera = prior.camera[side];
        const double* const row =
            record + kPriorJacobian + kPriorElements * side + kPoseColumns * e;
        for (int c = 0; IsVarying(camera) && c < kPoseColumns; ++c) {
          change += row[c] * step_[kColumns * camera + c];
        }
      }
      model -= change * (record[e] + 0.5 * change);
    }
    const double* const x[2] = {PoseOf(prior.camera[0], new_cameras_),
                                PoseOf(prior.camera[1], new_cameras_)};
    double r[WindowPrior::kSize];
    const bool is_finite = model_.EvaluatePrior(prior, x, r);
    double rho[3];
    EvaluateLoss(prior, r, rho);
    record[kPriorItem] = model;
    record[kPriorItem + 1] = 0.5 * rho[0];
    return is_finite;
  }

  // Places in the scratch of marginal priors, which is behind the priors: of a
  // pose, of the first two items of a row, counted over all priors, and of row
  // i of [J r].
  CERES_EXT_WINDOW double* DifferenceOf(int pose) const {
    return PriorRecord(w_.counts.num_priors) +
           WindowScratch::kMarginalPose * int64_t{pose};
  }
  CERES_EXT_WINDOW double* MarginalItem(int row) const {
    return DifferenceOf(w_.counts.num_marginal_poses) +
           WindowScratch::kMarginalRow * int64_t{row};
  }
  CERES_EXT_WINDOW double* MarginalRow(const WindowMarginal& prior,
                                       int i) const {
    return MarginalItem(w_.counts.num_marginal_rows) + prior.value_begin +
           int64_t{prior.row_size()} * i;
  }

  // Writes the differences of poses at constant values and at `varying`, every
  // num_threads-th one, and if there are columns the derivatives.
  CERES_EXT_WINDOW void TakeDifferences(const double* varying,
                                        bool has_columns,
                                        int thread,
                                        int num_threads) {
    for (int e = thread; e < w_.counts.num_marginal_poses; e += num_threads) {
      const WindowMarginalPose& pose = model_.marginal_pose(e);
      double* const difference = DifferenceOf(e);
      model_.Difference(PoseOf(pose.camera, varying),
                        pose.reference,
                        difference,
                        has_columns ? difference + kPoseColumns : nullptr);
    }
  }

  // Calls function(prior, i) for the rows of all marginal priors by turns of
  // warps. All threads of a warp call it.
  template <typename Function>
  CERES_EXT_WINDOW void ForEachMarginalRow(int warp,
                                           int num_warps,
                                           const Function& function) const {
    for (int k = 0; k < w_.counts.num_marginals; ++k) {
      const WindowMarginal prior = model_.marginal(k);
      const int first =
          (warp + num_warps - prior.row_begin % num_warps) % num_warps;
      for (int i = first; i < prior.num_rows; i += num_warps) {
        function(prior, i);
      }
    }
  }

  // A d + b of row i, valid in the first thread of a warp. All its threads call
  // it.
  CERES_EXT_WINDOW double MarginalResidual(const WindowMarginal& prior,
                                           int i) const {
    const int num_columns = prior.num_columns();
    const double* const row = model_.marginal_row(prior, i);
    double sum = 0.0;
    for (int c = team_->rank() % team_->warp_size(); c < num_columns;
         c += team_->warp_size()) {
      sum += row[c] * DifferenceOf(prior.pose_begin +
                                   c / kPoseColumns)[c % kPoseColumns];
    }
    return team_->WarpSum(sum) + row[num_columns];
  }

  // Writes [J r] of the marginal priors at x, and the costs of its rows. False
  // if a value is not finite.
  CERES_EXT_WINDOW_PHASE bool EvaluateMarginals() {
    TakeDifferences(w_.cameras, /*has_columns=*/true, Member(), NumMembers());
    team_->Join();
    const int lane = team_->rank() % team_->warp_size();
    bool is_finite = true;
    const auto evaluate_row = [&](const WindowMarginal& prior, int i) {
      const double* const a = model_.marginal_row(prior, i);
      double* const row = MarginalRow(prior, i);
      for (int c = lane; c < kPoseColumns * prior.num_varying;
           c += team_->warp_size()) {
        const int pose = prior.pose_begin + c / kPoseColumns;
        const int column = c % kPoseColumns;
        double value = a[c];
        if (column < 3) {
          const double* const of_turn = a + (c - column);
          const double* const by_turn =
              DifferenceOf(pose) + kPoseColumns + column;
          value = of_turn[0] * by_turn[0] + of_turn[1] * by_turn[3] +
                  of_turn[2] * by_turn[6];
        }
        is_finite &= kernels::AllFinite(&value, 1);
        row[c] =
            Varies(model_.marginal_pose(pose).camera, column) ? value : 0.0;
      }
      const double r = MarginalResidual(prior, i);
      if (lane == 0) {
        row[prior.num_columns()] = r;
        MarginalItem(prior.row_begin + i)[1] = 0.5 * r * r;
        is_finite &= kernels::AllFinite(&r, 1);
      }
    };
    ForEachMarginalRow(Member() / team_->warp_size(),
                       NumMembers() / team_->warp_size(),
                       evaluate_row);
    return is_finite;
  }

  // Adds the marginal priors as AddPriors adds priors.
  CERES_EXT_WINDOW_PHASE void AddMarginals(bool is_last) {
    const bool has_system = !is_last && team_->block() == 0;
    for (int k = 0; k < w_.counts.num_marginals; ++k) {
      const WindowMarginal prior = model_.marginal(k);
      const int num_columns = prior.num_columns();
      const int num_tiles =
          kPoseTiles * static_cast<int>(PackedTriangle(prior.num_varying));
      // Other threads may have written the sums before.
      team_->Barrier();
      for (int c = team_->rank(); c < kPoseColumns * prior.num_varying;
           c += team_->size()) {
        double gradient = 0.0;
        double squared_norm = 0.0;
        for (int i = 0; i < prior.num_rows; ++i) {
          const double* const row = MarginalRow(prior, i);
          gradient += row[c] * row[num_columns];
          squared_norm += row[c] * row[c];
        }
        const int column = ColumnOf(prior, c);
        gradient_[column] += gradient;
        squared_norms_[column] += squared_norm;
        if (has_system) {
          right_hand_side_[column] -= gradient;
        }
      }
      for (int t = team_->rank(); has_system && t < num_tiles;
           t += team_->size()) {
        AddMarginalTile(prior, t);
      }
    }
    team_->Barrier();
  }

  // Tiles of the block of two poses of a marginal prior.
  static constexpr int kPoseTile = Team::template kTile<kPoseColumns>;
  static constexpr int kPoseWidth = Team::template kWidth<kPoseTile>;
  static constexpr int kPoseTall = Team::template kTall<kPoseColumns>;
  static constexpr int kPoseSide = kPoseColumns / kPoseTile;
  static constexpr int kPoseTiles = kPoseSide * (kPoseColumns / kPoseTall);

  // The column in S of column c of a marginal prior.
  CERES_EXT_WINDOW int ColumnOf(const WindowMarginal& prior, int c) const {
    const int pose = prior.pose_begin + c / kPoseColumns;
    return kColumns * model_.marginal_pose(pose).camera + c % kPoseColumns;
  }

  // Adds a tile of J'J to S.
  CERES_EXT_WINDOW void AddMarginalTile(const WindowMarginal& prior, int t) {
    const int p = TriangularRoot(t / kPoseTiles);
    const int q = t / kPoseTiles - static_cast<int>(PackedTriangle(p));
    const int r0 = kPoseColumns * p + kPoseTall * (t % kPoseTiles / kPoseSide);
    const int c0 = kPoseColumns * q + kPoseTile * (t % kPoseSide);
    double sum[kPoseTall * kPoseWidth] = {};
    double y[kPoseWidth] = {};
    for (int i = 0; i < prior.num_rows; ++i) {
      const double* const row = MarginalRow(prior, i);
      for (int c = 0; c < kPoseTile; ++c) {
        y[c] = row[c0 + c];
      }
      CERES_EXT_WINDOW_UNROLL
      for (int r = 0; r < kPoseTall; ++r) {
        for (int c = 0; c < kPoseWidth; ++c) {
          sum[kPoseWidth * r + c] += row[r0 + r] * y[c];
        }
      }
    }
    CERES_EXT_WINDOW_UNROLL
    for (int r = 0; r < kPoseTall; ++r) {
      double* const to =
          schur_ + At(ColumnOf(prior, r0 + r), ColumnOf(prior, c0));
      for (int c = 0; c < kPoseTile; ++c) {
        if (c0 + c <= r0 + r) {
          to[c] += sum[kPoseWidth * r + c];
        }
      }
    }
  }

  // The first two items of the rows of the marginal priors. False if a residual
  // at the candidate is not finite. All threads of the first block call it.
  CERES_EXT_WINDOW_PHASE bool StepOfMarginals() {
    TakeDifferences(
        new_cameras_, /*has_columns=*/false, team_->rank(), team_->size());
    team_->Barrier();
    const int lane = team_->rank() % team_->warp_size();
    bool is_finite = true;
    const auto step_of_row = [&](const WindowMarginal& prior, int i) {
      const double* const row = MarginalRow(prior, i);
      double sum = 0.0;
      for (int c = lane; c < kPoseColumns * prior.num_varying;
           c += team_->warp_size()) {
        sum += row[c] * step_[ColumnOf(prior, c)];
      }
      const double change = team_->WarpSum(sum);
      const double r = MarginalResidual(prior, i);
      if (lane == 0) {
        double* const item = MarginalItem(prior.row_begin + i);
        item[0] = -change * (row[prior.num_columns()] + 0.5 * change);
        item[1] = 0.5 * r * r;
        is_finite &= kernels::AllFinite(&r, 1);
      }
    };
    ForEachMarginalRow(team_->rank() / team_->warp_size(),
                       team_->size() / team_->warp_size(),
                       step_of_row);
    return is_finite;
  }

  // Computes step_, the step of the cameras. False if S is not positive
  // definite or the step is not finite.
  CERES_EXT_WINDOW bool SolveCameras() {
    bool is_solved = true;
    if (panel_cameras_ > 0) {
      is_solved = FactorizePanels();
    } else if (team_->block() == 0) {
      is_solved = FactorizeHere();
    }
    double worst[1] = {0.0};
    if (team_->block() == 0) {
      worst[0] = is_solved && Substitute() ? 0.0 : 1.0;
    }
    team_->Max(worst);
    return worst[0] == 0.0;
  }

  // Elements of S in their packed triangle, or of a panel of its columns.
  struct Packed {
    double* schur;
    CERES_EXT_WINDOW static constexpr int stride() { return 1; }
    CERES_EXT_WINDOW double* To(int r, int c) const { return schur + At(r, c); }
  };
  struct Panel {
    double* columns;
    int first;
    int num_rows;
    CERES_EXT_WINDOW int stride() const { return num_rows; }
    CERES_EXT_WINDOW double* To(int r, int c) const {
      return columns + num_rows * (c - first) + (r - first);
    }
  };

  // Factorises S = L L' in the block's memory; the last row becomes L^-1 b.
  // False if S is not positive definite.
  CERES_EXT_WINDOW_PHASE bool FactorizeHere() {
    return FactorizeColumns(
        Packed{Team::Own(schur_)}, 0, w_.counts.num_cameras);
  }

  // The same in main memory. The first block factorises a panel in its own
  // memory; then its columns are subtracted from the rest of S, by all blocks
  // if there is enough to do.
  CERES_EXT_WINDOW_PHASE bool FactorizePanels() {
    bool is_definite = true;
    const int num_cameras = w_.counts.num_cameras;
    for (int begin = 0; begin < num_cameras; begin += panel_cameras_) {
      const int end = begin + panel_cameras_ < num_cameras
                          ? begin + panel_cameras_
                          : num_cameras;
      const Panel panel{Team::Own(panel_), kColumns * begin, panel_stride_};
      const int num_behind = ListBehind(begin, end);
      const bool is_alone =
          !is_shared_ || NumTilesBehind<kHigh>(num_behind) <= team_->size();
      if (team_->block() == 0) {
        CopyPanel(panel, begin, end, /*is_back=*/false);
        is_definite = FactorizeColumns(panel, begin, end) && is_definite;
        CopyPanel(panel, begin, end, /*is_back=*/true);
      }
      if (is_alone) {
        if (team_->block() == 0) {
          UpdateBehind(panel, begin, end, num_behind, /*num_blocks=*/1);
        }
        team_->Barrier();
        continue;
      }
      team_->Join();
      if (team_->block() != 0) {
        CopyPanel(panel, begin, end, /*is_back=*/false);
      }
      UpdateBehind(panel, begin, end, num_behind, team_->num_blocks());
      team_->Join();
    }
    return is_definite;
  }

  // Lists the cameras behind a panel whose rows it has. Returns their number.
  CERES_EXT_WINDOW int ListBehind(int begin, int end) {
    const int num_words = PatternWords(w_.counts.num_cameras);
    int num_behind = 0;
    for (int w = 0; w < num_words; ++w) {
      uint64_t cameras = 0;
      for (int j = begin; j < end; ++j) {
        cameras |= pattern_[num_words * j + w];
      }
      for (; cameras != 0; cameras &= cameras - 1) {
        const int i = kWordPoints * w + Team::FirstBit(cameras);
        if (i < end) {
          continue;
        }
        if (team_->rank() == 0) {
          behind_[num_behind] = static_cast<uint8_t>(i);
        }
        ++num_behind;
      }
    }
    team_->Barrier();
    return num_behind;
  }

  // Copies rows of a panel, several values at a time, so that their loads are
  // under way together; neighbours in a warp have neighbouring columns.
  CERES_EXT_WINDOW void CopyPanel(const Panel& panel,
                                  int begin,
                                  int end,
                                  bool is_back) {
    const int first_pair = below_begin_[begin];
    const int num_elements = kElements * (below_begin_[end] - first_pair);
    const int num_all = num_elements + kColumns * (end - begin);
    for (int first = team_->rank(); first < num_all;
         first += kAtOnce * team_->size()) {
      double values[kAtOnce];
      double* to[kAtOnce];
      CERES_EXT_WINDOW_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        const int e = first + k * team_->size();
        to[k] = nullptr;
        values[k] = 0.0;
        if (e >= num_all) {
          continue;
        }
        // The right-hand side is the last row.
        int r = n_;
        int c = kColumns * begin + e - num_elements;
        if (e < num_elements) {
          const int pair = first_pair + e / kElements;
          int j = begin;
          while (pair >= below_begin_[j + 1]) {
            ++j;
          }
          r = kColumns * below_[pair] + e % kElements / kColumns;
          c = kColumns * j + e % kColumns;
        }
        if (c <= r) {
          double* const here = panel.To(r, c);
          double* const there = schur_ + At(r, c);
          values[k] = is_back ? *here : *there;
          to[k] = is_back ? there : here;
        }
      }
      CERES_EXT_WINDOW_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        if (to[k] != nullptr) {
          *to[k] = values[k];
        }
      }
    }
    team_->Barrier();
  }

  // The columns of cameras begin ... end - 1.
  template <typename Place>
  CERES_EXT_WINDOW bool FactorizeColumns(const Place& at, int begin, int end) {
    if (team_->rank() == 0) {
      *verdict_ = 1;
    }
    if (begin < end) {
      FactorizeNext(at, begin);
    }
    for (int j = begin; j < end; ++j) {
      team_->Barrier();
      SolveRows(at, j);
      team_->Barrier();
      UpdateTrailing(at, j, end);
    }
    team_->Barrier();
    const bool is_definite = *verdict_ != 0;
    team_->Barrier();
    return is_definite;
  }

  // Factorises the diagonal block of camera j in the registers of each thread
  // of the first warp, so that none waits for another.
  template <typename Place>
  CERES_EXT_WINDOW void FactorizeNext(const Place& at, int j) {
    if (team_->rank() < team_->warp_size() &&
        !FactorizeDiagonal(at, kColumns * j) && team_->rank() == 0) {
      *verdict_ = 0;
    }
  }

  // The diagonal block at k0, with 1 / L(c, c), in place.
  template <typename Place>
  CERES_EXT_WINDOW bool FactorizeDiagonal(const Place& at, int k0) {
    double l[PackedTriangle(kColumns)];
    CERES_EXT_WINDOW_UNROLL
    for (int r = 0; r < kColumns; ++r) {
      CERES_EXT_WINDOW_UNROLL
      for (int c = 0; c <= r; ++c) {
        l[At(r, c)] = *at.To(k0 + r, k0 + c);
      }
    }
    bool is_definite = true;
    CERES_EXT_WINDOW_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      is_definite = is_definite && l[At(c, c)] > 0.0;
      const double inverse = Team::InverseSqrt(l[At(c, c)]);
      l[At(c, c)] = inverse;
      CERES_EXT_WINDOW_UNROLL
      for (int r = c + 1; r < kColumns; ++r) {
        l[At(r, c)] *= inverse;
      }
      CERES_EXT_WINDOW_UNROLL
      for (int r = c + 1; r < kColumns; ++r) {
        CERES_EXT_WINDOW_UNROLL
        for (int t = c + 1; t <= r; ++t) {
          l[At(r, t)] -= l[At(r, c)] * l[At(t, c)];
        }
      }
    }
    // No other thread reads the block any more.
    team_->WarpBarrier();
    if (team_->rank() == 0) {
      CERES_EXT_WINDOW_UNROLL
      for (int r = 0; r < kColumns; ++r) {
        CERES_EXT_WINDOW_UNROLL
        for (int c = 0; c <= r; ++c) {
          *at.To(k0 + r, k0 + c) = l[At(r, c)];
        }
      }
    }
    return is_definite;
  }

  // The rows below the diagonal block of camera j, and the last one.
  template <typename Place>
  CERES_EXT_WINDOW void SolveRows(const Place& at, int j) {
    const uint8_t* const below = below_ + below_begin_[j] + 1;
    const int num_rows = kColumns * (below_begin_[j + 1] - below_begin_[j] - 1);
    for (int t = team_->rank(); t <= num_rows; t += team_->size()) {
      const int r =
          t < num_rows ? kColumns * below[t / kColumns] + t % kColumns : n_;
      SolveRow(at, kColumns * j, r);
    }
  }

  // Row r of the panel at k0, times L^-T of its diagonal block.
  template <typename Place>
  CERES_EXT_WINDOW static void SolveRow(const Place& at, int k0, int r) {
    double* const row = at.To(r, k0);
    double v[kColumns];
    CERES_EXT_WINDOW_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      v[c] = row[c * at.stride()];
    }
    CERES_EXT_WINDOW_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      CERES_EXT_WINDOW_UNROLL
      for (int t = 0; t < c; ++t) {
        v[c] -= v[t] * *at.To(k0 + c, k0 + t);
      }
      v[c] *= *at.To(k0 + c, k0 + c);
    }
    CERES_EXT_WINDOW_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      row[c * at.stride()] = v[c];
    }
  }

  // Subtracts the columns of camera j from those behind them, up to camera
  // `end`. The first warp does this for the next diagonal block and factorises
  // it, while the others do the rest.
  template <typename Place>
  CERES_EXT_WINDOW void UpdateTrailing(const Place& at, int j, int end) {
    const uint8_t* const below = below_ + below_begin_[j] + 1;
    const int num_below = below_begin_[j + 1] - below_begin_[j] - 1;
    int num_columns = num_below;  // cameras below that have columns here
    while (num_columns > 0 && below[num_columns - 1] >= end) {
      --num_columns;
    }
    const bool is_next = num_columns > 0 && below[0] == j + 1;
    const int num_ahead = is_next ? static_cast<int>(PackedTriangle(kSide)) : 0;
    const int k0 = kColumns * j;
    if (team_->rank() < team_->warp_size()) {
      for (int e = team_->rank(); is_next && e < PackedTriangle(kColumns);
           e += team_->warp_size()) {
        UpdateElement(at, k0, e);
      }
      team_->WarpBarrier();
      if (j + 1 < end) {
        FactorizeNext(at, j + 1);
      }
    }
    const int side = kSide * num_columns;
    const int num_tiles = static_cast<int>(PackedTriangle(side)) +
                          side * kSide * (num_below - num_columns);
    const bool has_others = team_->size() > team_->warp_size();
    const int first =
        has_others ? team_->rank() - team_->warp_size() : team_->rank();
    const int stride =
        has_others ? team_->size() - team_->warp_size() : team_->size();
    // The last row has a tile for each column, one row high.
    for (int t = num_ahead + first; first >= 0 && t < num_tiles + side;
         t += stride) {
      if (t < num_tiles) {
        UpdateTileOf(at, k0, below, num_columns, t);
        continue;
      }
      const int b = t - num_tiles;
      const int c0 = kColumns * below[b / kSide] + kTile * (b % kSide);
      for (int c = c0; c < c0 + kTile; ++c) {
        const double* const x = at.To(n_, k0);
        const double* const y = at.To(c, k0);
        double sum = 0.0;
        for (int k = 0; k < kColumns; ++k) {
          sum += x[k * at.stride()] * y[k * at.stride()];
        }
        *at.To(n_, c) -= sum;
      }
    }
  }

  // Element e of the diagonal block that follows the one at k0, with the bits
  // of a tile's.
  template <typename Place>
  CERES_EXT_WINDOW static void UpdateElement(const Place& at, int k0, int e) {
    int r = 0;
    while (e >= PackedTriangle(r + 1)) {
      ++r;
    }
    const int r0 = k0 + kColumns + r;
    const int c0 = k0 + kColumns + e - static_cast<int>(PackedTriangle(r));
    const double* const x = at.To(r0, k0);
    const double* const y = at.To(c0, k0);
    double sum = 0.0;
    CERES_EXT_WINDOW_UNROLL
    for (int k = 0; k < kColumns; ++k) {
      sum += x[k * at.stride()] * y[k * at.stride()];
    }
    *at.To(r0, c0) -= sum;
  }

  // Tile number t of the rows and columns of the cameras `below`: first the
  // triangle of those that have columns, then the rows below it.
  template <typename Place>
  CERES_EXT_WINDOW void UpdateTileOf(
      const Place& at, int k0, const uint8_t* below, int num_columns, int t) {
    const int side = kSide * num_columns;
    const int triangle = static_cast<int>(PackedTriangle(side));
    const int a =
        t < triangle ? TriangularRoot(t) : side + (t - triangle) / side;
    const int b = t < triangle ? t - static_cast<int>(PackedTriangle(a))
                               : (t - triangle) % side;
    UpdateTile(at,
               k0,
               kColumns * below[a / kSide] + kTile * (a % kSide),
               kColumns * below[b / kSide] + kTile * (b % kSide));
  }

  template <typename Place>
  CERES_EXT_WINDOW static void UpdateTile(const Place& at,
                                          int k0,
                                          int r0,
                                          int c0) {
    double sum[kTile][kWidth] = {};
    double y[kColumns][kWidth] = {};
    for (int c = 0; c < kTile; ++c) {
      const double* const row = at.To(c0 + c, k0);
      for (int k = 0; k < kColumns; ++k) {
        y[k][c] = row[k * at.stride()];
      }
    }
    for (int r = 0; r < kTile; ++r) {
      const double* const x = at.To(r0 + r, k0);
      for (int k = 0; k < kColumns; ++k) {
        for (int c = 0; c < kWidth; ++c) {
          sum[r][c] += x[k * at.stride()] * y[k][c];
        }
      }
    }
    for (int r = 0; r < kTile; ++r) {
      const int end = r0 + r - c0 + 1 < kTile ? r0 + r - c0 + 1 : kTile;
      double* const to = at.To(r0 + r, c0);
      for (int c = 0; c < end; ++c) {
        to[c * at.stride()] -= sum[r][c];
      }
    }
  }

  // Tiles of kRows rows behind a panel, and those of the last row.
  template <int kRows>
  CERES_EXT_WINDOW static int NumTilesBehind(int num_behind) {
    return kSide * (kColumns / kRows) *
               static_cast<int>(PackedTriangle(num_behind)) +
           kSide * num_behind;
  }

  // Subtracts a panel from S behind it. If there are few tiles, they are low,
  // so that more threads have one.
  CERES_EXT_WINDOW void UpdateBehind(
      const Panel& panel, int begin, int end, int num_behind, int num_blocks) {
    // A host thread has tiles of one height.
    // NOLINTNEXTLINE(bugprone-branch-clone)
    if (NumTilesBehind<kLow>(num_behind) <= team_->size()) {
      UpdateTilesBehind<kLow>(panel, begin, end, num_behind, num_blocks);
    } else {
      UpdateTilesBehind<kHigh>(panel, begin, end, num_behind, num_blocks);
    }
  }

  // Neighbours in a warp are in neighbouring columns; num_blocks blocks take
  // warps by turns.
  template <int kRows>
  CERES_EXT_WINDOW void UpdateTilesBehind(
      const Panel& panel, int begin, int end, int num_behind, int num_blocks) {
    constexpr int kOfPair = kSide * (kColumns / kRows);
    const int warp_size = team_->warp_size();
    const int num_tiles =
        kOfPair * static_cast<int>(PackedTriangle(num_behind));
    const int block = num_blocks > 1 ? team_->block() : 0;
    for (int t = (team_->rank() / warp_size * num_blocks + block) * warp_size +
                 team_->rank() % warp_size;
         t < num_tiles + kSide * num_behind;
         t += num_blocks * team_->size()) {
      if (t >= num_tiles) {
        const int b = t - num_tiles;
        UpdateTileBehind<1>(panel,
                            begin,
                            end,
                            w_.counts.num_cameras,
                            behind_[b / kSide],
                            0,
                            b % kSide);
        continue;
      }
      // All tiles of a camera's rows, one row of tiles after the other.
      const int i = TriangularRoot(t / kOfPair);
      const int of_i = t - kOfPair * static_cast<int>(PackedTriangle(i));
      const int width = kSide * (i + 1);
      const int b = of_i % width;
      UpdateTileBehind<kRows>(panel,
                              begin,
                              end,
                              behind_[i],
                              behind_[b / kSide],
                              of_i / width,
                              b % kSide);
    }
  }

  // Rows kRows a ... of camera i (the last row after all cameras) and columns
  // kTile b ... of camera j.
  template <int kRows>
  CERES_EXT_WINDOW void UpdateTileBehind(
      const Panel& panel, int begin, int end, int i, int j, int a, int b) {
    if (i != j && i < w_.counts.num_cameras && !IsPair(i, j)) {
      return;
    }
    const int r0 = kColumns * i + kRows * a;
    const int c0 = kColumns * j + kTile * b;
    double sum[kRows][kTile] = {};
    for (int of_panel = begin; of_panel < end; ++of_panel) {
      if ((i < w_.counts.num_cameras && !IsPair(i, of_panel)) ||
          !IsPair(j, of_panel)) {
        continue;
      }
      const double* x = panel.To(r0, kColumns * of_panel);
      const double* y = panel.To(c0, kColumns * of_panel);
      for (int k = 0; k < kColumns; ++k) {
        CERES_EXT_WINDOW_UNROLL
        for (int r = 0; r < kRows; ++r) {
          CERES_EXT_WINDOW_UNROLL
          for (int c = 0; c < kTile; ++c) {
            sum[r][c] += x[r] * y[c];
          }
        }
        x += panel.num_rows;
        y += panel.num_rows;
      }
    }
    CERES_EXT_WINDOW_UNROLL
    for (int r = 0; r < kRows; ++r) {
      double* const to = schur_ + At(r0 + r, c0);
      CERES_EXT_WINDOW_UNROLL
      for (int c = 0; c < kTile; ++c) {
        if (c0 + c <= r0 + r) {
          to[c] -= sum[r][c];
        }
      }
    }
  }

  // Solves L'step = L^-1 b. False if a step is not finite.
  CERES_EXT_WINDOW_PHASE bool Substitute() {
    return has_schur_ ? SubstituteIn(Team::Own(schur_)) : SubstituteIn(schur_);
  }
  CERES_EXT_WINDOW bool SubstituteIn(double* schur) {
    double* const y = Team::Own(values_);
    for (int c = team_->rank(); c < n_; c += team_->size()) {
      y[c] = schur[At(n_, c)];
    }
    team_->Barrier();
    bool is_finite = true;
    for (int j = w_.counts.num_cameras - 1; j >= 0; --j) {
      const int k0 = kColumns * j;
      // These loads are under way while the first warp computes.
      const bool has_row = HasRow(team_->rank(), j);
      double column[kColumns] = {};
      if (has_row) {
        CERES_EXT_WINDOW_UNROLL
        for (int t = 0; t < kColumns; ++t) {
          column[t] = schur[At(k0 + t, team_->rank())];
        }
      }
      // Each thread of the first warp computes this for itself, as above.
      if (team_->rank() < team_->warp_size()) {
        is_finite &= SubstituteDiagonal(schur, k0, y);
      }
      team_->Barrier();
      if (has_row) {
        double sum = 0.0;
        CERES_EXT_WINDOW_UNROLL
        for (int t = 0; t < kColumns; ++t) {
          sum += column[t] * y[k0 + t];
        }
        y[team_->rank()] -= sum;
      }
      for (int r = team_->rank() + team_->size(); r < k0; r += team_->size()) {
        if (HasRow(r, j)) {
          double sum = 0.0;
          CERES_EXT_WINDOW_UNROLL
          for (int t = 0; t < kColumns; ++t) {
            sum += schur[At(k0 + t, r)] * y[k0 + t];
          }
          y[r] -= sum;
        }
      }
      team_->Barrier();
    }
    return is_finite;
  }
  // True if row r of L' has columns of camera j.
  CERES_EXT_WINDOW bool HasRow(int r, int j) const {
    return r < kColumns * j && IsPair(j, r / kColumns);
  }
  CERES_EXT_WINDOW bool SubstituteDiagonal(const double* schur,
                                           int k0,
                                           double* y) {
    double x[kColumns];
    CERES_EXT_WINDOW_UNROLL
    for (int r = 0; r < kColumns; ++r) {
      x[r] = y[k0 + r];
    }
    CERES_EXT_WINDOW_UNROLL
    for (int r = kColumns - 1; r >= 0; --r) {
      const double* const row = schur + At(k0 + r, k0);
      x[r] *= row[r];
      CERES_EXT_WINDOW_UNROLL
      for (int t = 0; t < r; ++t) {
        x[t] -= row[t] * x[r];
      }
    }
    team_->WarpBarrier();
    if (team_->rank() == 0) {
      CERES_EXT_WINDOW_UNROLL
      for (int r = 0; r < kColumns; ++r) {
        y[k0 + r] = x[r];
        step_[k0 + r] = x[r];
      }
    }
    return kernels::AllFinite(x, kColumns);
  }

  // Linearizes row k at x: `columns` gets the corrected [Jp | Jc step], 2 x 4,
  // and `r` the corrected residual.
  CERES_EXT_WINDOW void Linear(int k,
                               const double* x,
                               double* r,
                               double* columns) const {
    const int camera = w_.camera[k];
    const State& state = StateOf(camera);
    const Projection p = model_.Project(k, state, x);
    model_.Residual(state, p, w_.observed + 2 * int64_t{k}, r);
    double jacobian[6];
    model_.PointJacobian(state, p, jacobian);
    double moved[2] = {};
    if (camera < w_.counts.num_cameras) {
      model_.CameraMultiply(
          state, p, local_steps_ + TeamLayout::kLocal * camera, moved);
    }
    for (int i = 0; i < 2; ++i) {
      for (int a = 0; a < 3; ++a) {
        columns[4 * i + a] = jacobian[3 * i + a];
      }
      columns[4 * i + 3] = moved[i];
    }
    const double squared_norm = r[0] * r[0] + r[1] * r[1];
    double rho[3];
    w_.loss.Evaluate(k, squared_norm, rho);
    if (!kernels::LossCorrector::IsIdentity(rho)) {
      const kernels::LossCorrector corrector(squared_norm, rho);
      corrector.template CorrectJacobian<2, 4>(r, columns);
      corrector.template CorrectResidual<2>(r);
    }
  }

  // Keeps the result of Linear for the first rows of a point, if the team has
  // room for it.
  CERES_EXT_WINDOW static void Save([[maybe_unused]] int at,
                                    [[maybe_unused]] const double* r,
                                    [[maybe_unused]] const double* columns,
                                    [[maybe_unused]] double* saved) {
    if constexpr (Team::kSavedRows > 0) {
      if (at < Team::kSavedRows) {
        for (int e = 0; e < 8; ++e) {
          saved[10 * at + e] = columns[e];
        }
        saved[10 * at + 8] = r[0];
        saved[10 * at + 9] = r[1];
      }
    }
  }
  CERES_EXT_WINDOW static bool Load([[maybe_unused]] int at,
                                    [[maybe_unused]] const double* saved,
                                    [[maybe_unused]] double* r,
                                    [[maybe_unused]] double* columns) {
    if constexpr (Team::kSavedRows > 0) {
      if (at < Team::kSavedRows) {
        for (int e = 0; e < 8; ++e) {
          columns[e] = saved[10 * at + e];
        }
        r[0] = saved[10 * at + 8];
        r[1] = saved[10 * at + 9];
        return true;
      }
    }
    return false;
  }

  // Moves the cameras to new_cameras_.
  CERES_EXT_WINDOW void MoveCameras(double* x_norm, double* step_norm) {
    for (int i = team_->rank(); i < w_.counts.num_cameras; i += team_->size()) {
      const double* const x = w_.cameras + kCamera * i;
      const double* const delta = step_ + kColumns * i;
      double moved[kCamera];
      Plus(i, x, delta, moved);
      for (int e = 0; e < kCamera; ++e) {
        if (team_->block() == 0) {
          new_cameras_[kCamera * i + e] = moved[e];
        }
        if (model_.IsPartOfState(w_.column_mask[i], e)) {
          *x_norm += x[e] * x[e];
        }
        *step_norm += (x[e] - moved[e]) * (x[e] - moved[e]);
      }
      new_states_[i] = model_.Prepare(moved, nullptr);
      const double* const map = rotation_maps_ + 12 * i;
      double* const local = local_steps_ + TeamLayout::kLocal * i;
      for (int a = 0; a < 3; ++a) {
        double sum = 0.0;
        for (int c = 0; c < kTurn; ++c) {
          sum += map[kTurn * a + c] * delta[c];
        }
        local[a] = sum;
      }
      for (int c = 3; c < TeamLayout::kLocal; ++c) {
        const int column = c - 3 + kTurn;
        local[c] = column < kColumns ? delta[column] : 0.0;
      }
    }
    team_->Barrier();
  }

  // Moves points and cameras to the candidate, and computes the change by the
  // model and the cost.
  CERES_EXT_WINDOW_PHASE Step TakeStep() {
    double x_norm = 0.0;
    double step_norm = 0.0;
    bool is_finite = true;
    bool is_evaluated = true;
    const double is_stopped = IsStopped();
    MoveCameras(&x_norm, &step_norm);
    // A warp has neighbouring points, whichever block it is of.
    const int lane = team_->rank() % team_->warp_size();
    const int num_points = w_.counts.all_points();
    for (int p = Member(); p - lane < num_points; p += NumMembers()) {
      double of_point[WindowScratch::kItem] = {};
      if (p < num_points) {
        StepOfPoint(p, of_point, &is_finite, &is_evaluated);
      }
      double* const item =
          items_ + WindowScratch::kItem * int64_t{p / team_->warp_size()};
      for (int e = 0; e < WindowScratch::kItem; ++e) {
        const double sum = team_->WarpSum(of_point[e]);
        if (lane == 0) {
          item[e] = sum;
        }
      }
    }
    if constexpr (Rows::kHasPriors) {
      // The first block has written the cameras' candidate.
      for (int k = team_->rank();
           k < w_.counts.num_priors && team_->block() == 0;
           k += team_->size()) {
        is_evaluated &= StepOfPrior(k);
      }
      if (w_.counts.num_marginals > 0 && team_->block() == 0) {
        is_evaluated &= StepOfMarginals();
      }
    }
    double worst[3] = {
        is_finite ? 0.0 : 1.0, is_evaluated ? 0.0 : 1.0, is_stopped};
    team_->Max(worst);
    SetStopped(worst[2]);
    double costs[3] = {0.0, 0.0, x_norm};
    double norm[1] = {step_norm};
    for (int i = team_->rank();
         i < (num_points + team_->warp_size() - 1) / team_->warp_size();
         i += team_->size()) {
      const double* const item = items_ + WindowScratch::kItem * int64_t{i};
      for (int e = 0; e < 3; ++e) {
        costs[e] += item[e];
      }
      norm[0] += item[3];
    }
    if constexpr (Rows::kHasPriors) {
      for (int k = team_->rank(); k < w_.counts.num_priors;
           k += team_->size()) {
        costs[0] += PriorRecord(k)[kPriorItem];
        costs[1] += PriorRecord(k)[kPriorItem + 1];
      }
      for (int e = team_->rank(); e < w_.counts.num_marginal_rows;
           e += team_->size()) {
        costs[0] += MarginalItem(e)[0];
        costs[1] += MarginalItem(e)[1];
      }
    }
    team_->Sum(costs);
    team_->Sum(norm);
    using std::sqrt;
    Step result;
    result.x_norm = sqrt(costs[2]);
    result.step_norm = sqrt(norm[0]);
    result.model_cost_change = worst[0] == 0.0 ? costs[0] : 0.0;
    result.cost = worst[1] == 0.0 ? costs[1] : DBL_MAX;
    return result;
  }

  // Moves point p; adds its items.
  CERES_EXT_WINDOW void StepOfPoint(int p,
                                    double* item,
                                    bool* is_finite,
                                    bool* is_evaluated) {
    const double* const x = PointOf(p);
    double saved[10 * Team::kSavedRows + 1];
    double step[3] = {};
    double moved[3] = {x[0], x[1], x[2]};
    const int begin = w_.point_begin[p];
    const int end = w_.point_begin[p + 1];
    if (p < w_.counts.num_points) {
      double* const record = records_ + WindowScratch::kRecord * int64_t{p};
      // -L^-T (L^-1 g + L^-1 Jp'Jc step)
      for (int k = begin; k < end; ++k) {
        double r[2];
        double columns[8];
        Linear(k, x, r, columns);
        Save(k - begin, r, columns, saved);
        for (int a = 0; a < 3; ++a) {
          step[a] -= columns[a] * columns[3] + columns[4 + a] * columns[7];
        }
      }
      LowerSolve(record + 6, step);
      for (int a = 0; a < 3; ++a) {
        step[a] -= record[12 + a];
      }
      UpperSolve(record + 6, step);
      *is_finite &= kernels::AllFinite(step, 3);
      for (int a = 0; a < 3; ++a) {
        moved[a] += step[a];
        record[a] = moved[a];
        item[2] += x[a] * x[a];
        item[3] += (x[a] - moved[a]) * (x[a] - moved[a]);
      }
    }
    for (int k = begin; k < end; ++k) {
      double r[2];
      double columns[8];
      if (p >= w_.counts.num_points || !Load(k - begin, saved, r, columns)) {
        Linear(k, x, r, columns);
      }
      for (int i = 0; i < 2; ++i) {
        const double* const j = columns + 4 * i;
        const double change =
            j[3] + j[0] * step[0] + j[1] * step[1] + j[2] * step[2];
        item[0] -= change * (r[i] + 0.5 * change);
      }
      const int camera = w_.camera[k];
      const State& state = camera < w_.counts.num_cameras ? new_states_[camera]
                                                          : StateOf(camera);
      model_.Evaluate(k, state, moved, w_.observed + 2 * int64_t{k}, r);
      *is_evaluated &= kernels::AllFinite(r, 2);
      double rho[3];
      w_.loss.Evaluate(k, r[0] * r[0] + r[1] * r[1], rho);
      item[1] += 0.5 * rho[0];
    }
  }

  CERES_EXT_WINDOW_PHASE void Accept() {
    for (int e = team_->rank();
         e < kCamera * w_.counts.num_cameras && team_->block() == 0;
         e += team_->size()) {
      w_.cameras[e] = new_cameras_[e];
    }
    for (int p = Member(); p < w_.counts.num_points; p += NumMembers()) {
      for (int a = 0; a < 3; ++a) {
        w_.points[3 * int64_t{p} + a] =
            records_[WindowScratch::kRecord * int64_t{p} + a];
      }
    }
    team_->Join();
    Prepare();
  }

  const Window w_;
  Team* const team_;
  const int n_;
  const bool has_schur_;
  const bool is_shared_;  // by several blocks
  const int chunk_points_;
  TrustRegion* region_;
  int32_t* verdict_;
  int32_t* is_stopped_;
  const int32_t* stop_;
  State* states_;
  double* rotation_maps_;
  double* squared_norms_;
  double* gradient_;
  uint64_t* masks_;
  uint64_t* pattern_;
  uint16_t* pairs_;
  uint8_t* below_;
  uint16_t* below_begin_;
  uint8_t* behind_;  // cameras behind a panel
  uint16_t* table_;
  double* factors_;
  double* rows_;
  State* new_states_;
  double* local_steps_;
  double* values_;  // of the right-hand side, replaced by the step
  double* new_cameras_;
  double* scales_;
  State* constant_states_;
  double* records_;
  double* panel_;
  int panel_stride_;
  int panel_cameras_;  // 0: S is in the block's memory.
  double* schur_;
  double* right_hand_side_;  // the last row of schur_: b, then L^-1 b
  double* step_;             // of the cameras
  double* costs_;
  double* items_;
  // For a window that blocks share (WindowScratch).
  double* shared_schur_;
  uint64_t* chunk_masks_;
  double* parts_;
  int64_t part_size_;
  double* priors_;
  const Rows model_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_WINDOW_WINDOW_SOLVE_H_
