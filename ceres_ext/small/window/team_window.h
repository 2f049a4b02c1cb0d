// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A window that a team solves: what it reads, and where everything is. All
// threads of a block share one object, which saves registers.
//
// The bill of a block's memory (TeamLayout), in doubles, for c cameras of k
// columns, n = c k, chunks of r rows and 64 w points:
//
//   states, maps        27 c             cameras at x, derivatives of turns
//   gradient, norms     2 n              sums over rows
//   masks, table        c w + 16 c w     which row of a chunk sees which point
//   pattern, pairs      about c (c + 1) / 4 + c
//   factors             576 w            L and L^-1 g of the chunk's points
//   rows                2 (k + 5) r      Jc, Jp, r, r'; a panel or a step later
//   S                   (n + 1) (n + 2) / 2, if it fits beside 256 rows
//
// In main memory (WindowScratch): steps, candidates, 15 a point, the costs of
// warps, if several blocks share the window a part of S for each chunk, and if
// values have bounds 9 a point and the values of the cameras.
#ifndef CERES_EXT_SMALL_WINDOW_TEAM_WINDOW_H_
#define CERES_EXT_SMALL_WINDOW_TEAM_WINDOW_H_

#include <cmath>
#include <cstdint>

#include "ceres_ext/small/window/window.h"
#include "ceres_ext/small/window/window_function.h"
#include "ceres_ext/solver/trust_region.h"
#include "cuda_kernels/base/clamp.h"

namespace ceres_ext {
namespace window {

// The place of (r, c) in a packed triangle.
CERES_EXT_WINDOW int64_t At(int r, int c) {
  return int64_t{r} * (r + 1) / 2 + c;
}

// The largest r with r (r + 1) / 2 <= t.
CERES_EXT_WINDOW int TriangularRoot(int t) {
  using std::sqrt;
  int r = static_cast<int>((sqrt(8.0F * static_cast<float>(t) + 1.0F) - 1.0F) /
                           2.0F);
  while (PackedTriangle(r) > t) {
    --r;
  }
  while (PackedTriangle(r + 1) <= t) {
    ++r;
  }
  return r;
}

// Loads of a thread that are under way together.
inline constexpr int kAtOnce = 8;

// Places in the record of a prior.
inline constexpr int kPriorJacobian = WindowPrior::kSize;
inline constexpr int kPriorElements = WindowPrior::kSize * kPoseColumns;
inline constexpr int kPriorCost = kPriorJacobian + 2 * kPriorElements;
inline constexpr int kPriorItem = kPriorCost + 1;

template <typename RowsIn, typename TeamIn>
struct TeamWindow : Window {
  using Rows = RowsIn;
  using Team = TeamIn;
  using State = typename Rows::State;
  using Projection = typename Rows::Projection;
  static_assert(sizeof(State) == TeamLayout::kState * sizeof(double),
                "states are doubles alone");

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
  static constexpr int kSide = kColumns / kTile;
  static constexpr int kTiles = kSide * (kColumns / kTall);  // of a block
  static constexpr int kElements = kColumns * kColumns;  // of a pair's block
  // Tiles of the block of two poses of a marginal prior.
  static constexpr int kPoseTile = Team::template kTile<kPoseColumns>;
  static constexpr int kPoseWidth = Team::template kWidth<kPoseTile>;
  static constexpr int kPoseTall = Team::template kTall<kPoseColumns>;
  static constexpr int kPoseSide = kPoseColumns / kPoseTile;
  static constexpr int kPoseTiles = kPoseSide * (kPoseColumns / kPoseTall);

  // Places in a row of a chunk. Jc is one row after the other, or column by
  // column where two values are loaded at once.
  CERES_EXT_WINDOW static constexpr int Place(int i, int c) {
    return Team::kLoadsPairs ? 2 * c + i : kColumns * i + c;
  }
  static constexpr int kPointJacobian = 2 * kColumns;
  static constexpr int kResidual = kPointJacobian + 6;
  static constexpr int kReduced = kResidual + 2;

  // is_mixed has no meaning for a team without kHasFloat.
  CERES_EXT_WINDOW TeamWindow(const Window& window,
                              const RowsIn& rows_of_model,
                              bool has_schur,
                              bool is_mixed,
                              double* memory,
                              TeamIn* team)
      : Window(window),
        team(team),
        n(kColumns * window.counts.num_cameras),
        has_schur(has_schur),
        is_shared(team->num_blocks() > 1),
        is_mixed(is_mixed && TeamIn::kHasFloat),
        chunk_points(kWordPoints * window.counts.chunk_words),
        model(rows_of_model) {
    const TeamLayout at(kColumns,
                        window.counts.num_cameras,
                        window.counts.chunk_rows,
                        window.counts.chunk_words,
                        has_schur);
    const WindowScratch main(
        kCamera, kColumns, window.counts, has_schur, is_shared);
    region = reinterpret_cast<TrustRegion*>(memory + at.region);
    verdict = reinterpret_cast<int32_t*>(memory + at.states) - 2;
    is_stopped = verdict + 1;
    states = reinterpret_cast<State*>(memory + at.states);
    rotation_maps = memory + at.rotation_maps;
    squared_norms = memory + at.squared_norms;
    gradient = memory + at.gradient;
    masks = reinterpret_cast<uint64_t*>(memory + at.masks);
    pattern = reinterpret_cast<uint64_t*>(memory + at.pattern);
    pairs = reinterpret_cast<uint16_t*>(memory + at.pairs);
    below = reinterpret_cast<uint8_t*>(memory + at.below);
    below_begin = reinterpret_cast<uint16_t*>(memory + at.below_begin);
    behind = reinterpret_cast<uint8_t*>(memory + at.behind);
    table = reinterpret_cast<uint16_t*>(memory + at.table);
    factors = memory + at.factors;
    rows = memory + at.rows;
    new_states = reinterpret_cast<State*>(memory + at.new_states);
    local_steps = memory + at.local_steps;
    values = memory + at.values;
    new_cameras = scratch + main.new_cameras;
    scales = scratch + main.scales;
    constant_states = reinterpret_cast<State*>(scratch + main.constant_states);
    records = scratch + main.records;
    panel = memory + at.panel;
    panel_stride = static_cast<int>(at.panel_stride);
    panel_cameras = at.panel_cameras;
    shared_schur = scratch + main.schur;
    schur = has_schur ? memory + at.schur : shared_schur;
    right_hand_side = schur + At(n, 0);
    step = scratch + main.step;
    costs = scratch + main.costs;
    items = scratch + main.items;
    chunk_masks = reinterpret_cast<uint64_t*>(scratch + main.chunk_masks);
    parts = scratch + main.parts;
    part_size = main.part_size;
    priors = scratch + main.priors;
  }

  CERES_EXT_WINDOW int rank() const { return team->rank(); }
  CERES_EXT_WINDOW int size() const { return team->size(); }
  CERES_EXT_WINDOW int warp_size() const { return team->warp_size(); }
  CERES_EXT_WINDOW int block() const { return team->block(); }
  CERES_EXT_WINDOW int num_blocks() const { return team->num_blocks(); }
  // Number of this thread among the threads of all blocks, which take warps by
  // turns, so that each has about as many threads with work.
  CERES_EXT_WINDOW int Member() const {
    const int warp = rank() / warp_size();
    return (warp * num_blocks() + block()) * warp_size() + rank() % warp_size();
  }

  CERES_EXT_WINDOW int NumMembers() const { return num_blocks() * size(); }

  CERES_EXT_WINDOW bool Varies(int camera, int column) const {
    return (column_mask[camera] >> column & 1) != 0;
  }

  CERES_EXT_WINDOW const State& StateOf(int camera) const {
    return camera < counts.num_cameras
               ? states[camera]
               : constant_states[camera - counts.num_cameras];
  }

  CERES_EXT_WINDOW const double* PointOf(int point) const {
    return point < counts.num_points
               ? points + 3 * int64_t{point}
               : constant_points + 3 * int64_t{point - counts.num_points};
  }

  // True if (i, j), i > j, is a pair.
  CERES_EXT_WINDOW bool IsPair(int i, int j) const {
    const int num_words = PatternWords(counts.num_cameras);
    return (pattern[num_words * j + i / kWordPoints] >> i % kWordPoints & 1) !=
           0;
  }

  // Values of a prior's camera, constant or among `varying`.
  CERES_EXT_WINDOW const double* PoseOf(int camera,
                                        const double* varying) const {
    return camera < 0 ? nullptr
           : camera < counts.num_cameras
               ? varying + kCamera * camera
               : constant_cameras + kCamera * (camera - counts.num_cameras);
  }

  // True if some values have bounds. Addresses that few windows use are not
  // kept, since a block has little room for this object.
  CERES_EXT_WINDOW bool HasBounds() const { return counts.has_bounds != 0; }

  // Value e of camera i, or of point p, within its bounds.
  CERES_EXT_WINDOW double BoundCamera(int i, int e, double value) const {
    return Bound(int64_t{kCamera} * i + e, value);
  }
  CERES_EXT_WINDOW double BoundPoint(int p, int e, double value) const {
    return Bound(int64_t{kCamera} * counts.num_cameras + 3 * int64_t{p} + e,
                 value);
  }
  CERES_EXT_WINDOW double Bound(int64_t e, double value) const {
    const double* const of_value =
        constant_points + 3 * int64_t{counts.num_constant_points} + 2 * e;
    return kernels::Clamp(value, of_value[0], of_value[1]);
  }

  // Scratch of a window with bounds, before that of priors: the gradient and
  // the step of a point, and the values of cameras and points.
  CERES_EXT_WINDOW double* PointGradient(int p) const {
    return priors - 6 * int64_t{counts.num_points} - counts.NumBounds(kCamera) +
           3 * int64_t{p};
  }
  CERES_EXT_WINDOW double* PointStep(int p) const {
    return PointGradient(counts.num_points + p);
  }
  CERES_EXT_WINDOW double* Saved() const {
    return PointGradient(2 * counts.num_points);
  }

  CERES_EXT_WINDOW bool IsVarying(int camera) const {
    return camera >= 0 && camera < counts.num_cameras;
  }

  CERES_EXT_WINDOW double* PriorRecord(int k) const {
    return priors + WindowScratch::kPrior * int64_t{k};
  }

  // Places in the scratch of marginal priors, which is behind the priors: of a
  // pose, of the first two items of a row, counted over all priors, and of row
  // i of [J r].
  CERES_EXT_WINDOW double* DifferenceOf(int pose) const {
    return PriorRecord(counts.num_priors) +
           WindowScratch::kMarginalPose * int64_t{pose};
  }

  CERES_EXT_WINDOW double* MarginalItem(int row) const {
    return DifferenceOf(counts.num_marginal_poses) +
           WindowScratch::kMarginalRow * int64_t{row};
  }

  CERES_EXT_WINDOW double* MarginalRow(const WindowMarginal& prior,
                                       int i) const {
    return MarginalItem(counts.num_marginal_rows) + prior.value_begin +
           int64_t{prior.row_size()} * i;
  }

  // The column in S of column c of a marginal prior.
  CERES_EXT_WINDOW int ColumnOf(const WindowMarginal& prior, int c) const {
    const int pose = prior.pose_begin + c / kPoseColumns;
    return kColumns * model.marginal_pose(pose).camera + c % kPoseColumns;
  }

  TeamIn* const team;
  const int n;
  const bool has_schur;
  const bool is_shared;  // by several blocks
  bool is_mixed;         // rows of a chunk are in float
  const int chunk_points;
  TrustRegion* region;
  int32_t* verdict;
  int32_t* is_stopped;
  const int32_t* stop;
  State* states;
  double* rotation_maps;
  double* squared_norms;
  double* gradient;
  uint64_t* masks;
  // Copies of the Window's in the block's memory, which hide those.
  uint64_t* pattern;
  uint16_t* pairs;
  uint8_t* below;
  uint16_t* below_begin;
  uint8_t* behind;  // cameras behind a panel
  uint16_t* table;
  double* factors;
  double* rows;
  State* new_states;
  double* local_steps;
  double* values;  // of the right-hand side, replaced by the step
  double* new_cameras;
  double* scales;
  State* constant_states;
  double* records;
  double* panel;
  int panel_stride;
  int panel_cameras;  // 0: S is in the block's memory.
  double* schur;
  double* right_hand_side;  // the last row of schur: b, then L^-1 b
  double* step;             // of the cameras
  double* costs;
  double* items;
  // For a window that blocks share (WindowScratch).
  double* shared_schur;
  uint64_t* chunk_masks;
  double* parts;
  int64_t part_size;
  double* priors;
  const RowsIn model;
};

}  // namespace window
}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_WINDOW_TEAM_WINDOW_H_
