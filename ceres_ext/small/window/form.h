// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// S and the sums over rows of cameras, chunk by chunk.
#ifndef CERES_EXT_SMALL_WINDOW_FORM_H_
#define CERES_EXT_SMALL_WINDOW_FORM_H_

#include <cstdint>

#include "ceres_ext/small/window/priors.h"
#include "ceres_ext/small/window/rows.h"
#include "ceres_ext/small/window/team_window.h"

namespace ceres_ext {
namespace window {

template <typename W, typename T>
CERES_EXT_WINDOW void LoadColumn(const T* row, int c, T* x0, T* x1) {
  if constexpr (W::Team::kLoadsPairs) {
    W::Team::LoadPair(row + 2 * c, x0, x1);
  } else {
    *x0 = row[c];
    *x1 = row[W::kColumns + c];
  }
}

// sum += Jc_i' (I - A_i A_j') Jc_j of a point, rows kTall a ... and columns
// kTile b ...; without I where the cameras differ. y0 and y1 have zeros
// behind kTile.
template <typename W, typename T>
CERES_EXT_WINDOW void AddPoint(const T* row_i,
                               const T* row_j,
                               T same,
                               int a,
                               int b,
                               T* y0,
                               T* y1,
                               T* sum) {
  T ai[6];
  T aj[6];
  for (int e = 0; e < 6; e += 2) {
    W::Team::LoadPair(row_i + W::kPointJacobian + e, ai + e, ai + e + 1);
    W::Team::LoadPair(row_j + W::kPointJacobian + e, aj + e, aj + e + 1);
  }
  const T m00 = same - ai[0] * aj[0] - ai[1] * aj[1] - ai[2] * aj[2];
  const T m01 = -ai[0] * aj[3] - ai[1] * aj[4] - ai[2] * aj[5];
  const T m10 = -ai[3] * aj[0] - ai[4] * aj[1] - ai[5] * aj[2];
  const T m11 = same - ai[3] * aj[3] - ai[4] * aj[4] - ai[5] * aj[5];
  for (int c = 0; c < W::kTile; ++c) {
    T j0;
    T j1;
    LoadColumn<W>(row_j, W::kTile * b + c, &j0, &j1);
    y0[c] = m00 * j0 + m01 * j1;
    y1[c] = m10 * j0 + m11 * j1;
  }
  CERES_EXT_WINDOW_UNROLL
  for (int r = 0; r < W::kTall; ++r) {
    T x0;
    T x1;
    LoadColumn<W>(row_i, W::kTall * a + r, &x0, &x1);
    for (int c = 0; c < W::kWidth; ++c) {
      sum[W::kWidth * r + c] += x0 * y0[c];
      sum[W::kWidth * r + c] += x1 * y1[c];
    }
  }
}

// The row of a chunk before row k in which the same camera sees the same point,
// or kNoRow.
template <typename W>
CERES_EXT_WINDOW uint16_t EarlierRow([[maybe_unused]] W& w,
                                     [[maybe_unused]] uint16_t k) {
  if constexpr (W::Team::kRepeats) {
    return w.team->earlier()[k];
  } else {
    return kNoRow;
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

template <typename W>
CERES_EXT_WINDOW Target TargetOf(const W& w, int chunk) {
  if (!w.is_shared) {
    return {w.schur, w.right_hand_side, w.gradient, w.squared_norms};
  }
  double* const part = w.parts + w.part_size * chunk;
  double* const vectors = part + PackedTriangle(w.n + 1);
  return {part, part + At(w.n, 0), vectors, vectors + w.n};
}

// A tile of S, of block (i, j), i >= j.
struct Tile {
  int i;
  int j;
  int a;  // rows kTall a ...
  int b;  // columns kTile b ...
};

template <typename W>
CERES_EXT_WINDOW Tile TileOf(const W& w, int t) {
  const int pair = w.pairs[t / W::kTiles];
  return {pair / 256, pair % 256, t % W::kTiles / W::kSide, t % W::kSide};
}

// The points of a slice among those of a word: every num_slices-th one.
CERES_EXT_WINDOW uint64_t Slice(uint64_t points, int slice, int num_slices) {
  uint64_t every = 1;
  for (int bits = num_slices; bits < kWordPoints; bits *= 2) {
    every |= every << bits;
  }
  return points & (every << slice);
}

// Adds to a tile its sum over the rows of a chunk. num_slices neighbours of a
// warp share the tile. All threads of the warp call it.
template <typename T, typename W>
CERES_EXT_WINDOW void AddTile(
    W& w, int t, int num_tiles, int slice, int num_slices, double* schur) {
  const Tile tile = TileOf(w, t < num_tiles ? t : 0);
  // On the diagonal some tiles are above it.
  const bool is_tile =
      t < num_tiles &&
      (tile.i != tile.j || W::kTile * tile.b < W::kTall * (tile.a + 1));
  T sum[W::kTall * W::kWidth] = {};
  T y0[W::kWidth] = {};
  T y1[W::kWidth] = {};
  const T same = tile.i == tile.j ? T(1) : T(0);
  const T* const rows = W::Team::Own(reinterpret_cast<T*>(w.rows));
  const uint64_t* masks = W::Team::Own(w.masks);
  const uint16_t* of_i = W::Team::Own(w.table) + w.chunk_points * tile.i;
  const uint16_t* of_j = W::Team::Own(w.table) + w.chunk_points * tile.j;
  bool is_empty = true;
  for (int word = 0; is_tile && word < w.counts.chunk_words; ++word) {
    uint64_t points = masks[tile.i] & masks[tile.j];
    is_empty = is_empty && points == 0;
    if (num_slices > 1) {
      points = Slice(points, slice, num_slices);
    }
    while (points != 0) {
      const int p = W::Team::FirstBit(points);
      points &= points - 1;
      if constexpr (!W::Team::kRepeats) {
        AddPoint<W>(rows + W::kRow * of_i[p],
                    rows + W::kRow * of_j[p],
                    same,
                    tile.a,
                    tile.b,
                    y0,
                    y1,
                    sum);
      } else {
        for (uint16_t k = of_i[p]; k != kNoRow; k = EarlierRow(w, k)) {
          for (uint16_t l = of_j[p]; l != kNoRow; l = EarlierRow(w, l)) {
            AddPoint<W>(rows + W::kRow * k,
                        rows + W::kRow * l,
                        k == l ? same : T(0),
                        tile.a,
                        tile.b,
                        y0,
                        y1,
                        sum);
          }
        }
      }
    }
    masks += w.counts.num_cameras;
    of_i += kWordPoints;
    of_j += kWordPoints;
  }
  // The same for all threads.
  if (num_slices > 1) {
    W::Team::SumSlices(sum, num_slices);
  }
  if (is_empty || slice != 0) {
    return;
  }
  const int r0 = W::kColumns * tile.i + W::kTall * tile.a;
  const int c0 = W::kColumns * tile.j + W::kTile * tile.b;
  CERES_EXT_WINDOW_UNROLL
  for (int r = 0; r < W::kTall; ++r) {
    double* const to = schur + At(r0 + r, c0);
    for (int c = 0; c < W::kTile; ++c) {
      if (c0 + c <= r0 + r) {
        const auto value = static_cast<double>(sum[W::kWidth * r + c]);
        to[c] = w.is_shared ? value : to[c] + value;
      }
    }
  }
}

// The same for kTile elements of a camera's right-hand side, gradient and
// squared norms of columns.
template <typename T, typename W>
CERES_EXT_WINDOW void AddVectors(
    W& w, int t, int num_vectors, int slice, int num_slices, const Target& to) {
  const int i = (t < num_vectors ? t : 0) / W::kSide;
  const int a = t % W::kSide;
  T sum[3 * W::kTile] = {};
  for (int word = 0; t < num_vectors && word < w.counts.chunk_words; ++word) {
    const uint16_t* const of_i =
        W::Team::Own(w.table) + w.chunk_points * i + kWordPoints * word;
    uint64_t points = W::Team::Own(w.masks)[w.counts.num_cameras * word + i];
    if (num_slices > 1) {
      points = Slice(points, slice, num_slices);
    }
    for (; points != 0; points &= points - 1) {
      for (uint16_t k = of_i[W::Team::FirstBit(points)]; k != kNoRow;
           k = EarlierRow(w, k)) {
        const T* const row =
            W::Team::Own(reinterpret_cast<T*>(w.rows)) + W::kRow * k;
        for (int r = 0; r < W::kTile; ++r) {
          T x0;
          T x1;
          LoadColumn<W>(row, W::kTile * a + r, &x0, &x1);
          sum[r] += x0 * row[W::kReduced] + x1 * row[W::kReduced + 1];
          sum[W::kTile + r] +=
              x0 * row[W::kResidual] + x1 * row[W::kResidual + 1];
          sum[2 * W::kTile + r] += x0 * x0 + x1 * x1;
        }
      }
    }
  }
  // The same for all threads.
  if (num_slices > 1) {
    W::Team::SumSlices(sum, num_slices);
  }
  if (t >= num_vectors || slice != 0) {
    return;
  }
  for (int r = 0; r < W::kTile; ++r) {
    const int c = W::kColumns * i + W::kTile * a + r;
    if (w.is_shared) {
      to.right_hand_side[c] = static_cast<double>(sum[r]);
      to.gradient[c] = static_cast<double>(sum[W::kTile + r]);
      to.squared_norms[c] = static_cast<double>(sum[2 * W::kTile + r]);
    } else {
      to.right_hand_side[c] -= static_cast<double>(sum[r]);
      to.gradient[c] += static_cast<double>(sum[W::kTile + r]);
      to.squared_norms[c] += static_cast<double>(sum[2 * W::kTile + r]);
    }
  }
}

template <typename T, typename W>
CERES_EXT_WINDOW_PHASE void AddTiles(W& w, int chunk, bool is_last) {
  const Target to = TargetOf(w, chunk);
  const int num_vectors = w.counts.num_cameras * W::kSide;
  const int all_tiles = w.counts.num_pairs * W::kTiles;
  const int num_tiles = is_last ? 0 : all_tiles;
  // Several threads share a tile if there are enough threads. The vectors'
  // threads have tiles of few points.
  int num_slices = 1;
  while (2 * num_slices * all_tiles <= w.size() &&
         2 * num_slices <= w.warp_size()) {
    num_slices *= 2;
  }
  // Whole warps.
  const auto end = [&](int n) {
    return (num_slices * n + w.warp_size() - 1) / w.warp_size() * w.warp_size();
  };
  for (int t = w.rank(); t < end(num_tiles); t += w.size()) {
    AddTile<T>(
        w, t / num_slices, num_tiles, t % num_slices, num_slices, to.schur);
  }
  // The last threads do this, because they have the fewest tiles.
  const int first = w.size() - w.warp_size() -
                    w.rank() / w.warp_size() * w.warp_size() +
                    w.rank() % w.warp_size();
  for (int t = first; t < end(num_vectors); t += w.size()) {
    AddVectors<T>(
        w, t / num_slices, num_vectors, t % num_slices, num_slices, to);
  }
}

// Sum of an element of the parts. Several loads are under way together.
template <typename W>
CERES_EXT_WINDOW double SumOfParts(const W& w, int64_t element) {
  const int num_chunks = w.counts.num_chunks;
  double sum = 0.0;
  for (int first = 0; first < num_chunks; first += kAtOnce) {
    double values[kAtOnce];
    CERES_EXT_WINDOW_UNROLL
    for (int k = 0; k < kAtOnce; ++k) {
      values[k] = first + k < num_chunks
                      ? w.parts[w.part_size * (first + k) + element]
                      : 0.0;
    }
    CERES_EXT_WINDOW_UNROLL
    for (int k = 0; k < kAtOnce; ++k) {
      sum += values[k];
    }
  }
  return sum;
}

// Place in S of element e of the blocks of all pairs, then of the right-hand
// side. -1 if it is above the diagonal.
template <typename W>
CERES_EXT_WINDOW int64_t PlaceOf(const W& w, int e) {
  const int num_elements = W::kElements * w.counts.num_pairs;
  if (e >= num_elements) {
    return At(w.n, e - num_elements);
  }
  const int pair = w.pairs[e / W::kElements];
  const int r = W::kColumns * (pair / 256) + e % W::kElements / W::kColumns;
  const int c = W::kColumns * (pair % 256) + e % W::kColumns;
  return c <= r ? At(r, c) : -1;
}

// Copies S and the right-hand side to the block's memory.
template <typename W>
CERES_EXT_WINDOW void CopySchur(W& w) {
  const int num_elements = W::kElements * w.counts.num_pairs + w.n;
  for (int first = w.rank(); first < num_elements;
       first += kAtOnce * w.size()) {
    int64_t place[kAtOnce];
    double values[kAtOnce];
    CERES_EXT_WINDOW_UNROLL
    for (int k = 0; k < kAtOnce; ++k) {
      const int e = first + k * w.size();
      place[k] = e < num_elements ? PlaceOf(w, e) : -1;
      values[k] = place[k] >= 0 ? w.shared_schur[place[k]] : 0.0;
    }
    CERES_EXT_WINDOW_UNROLL
    for (int k = 0; k < kAtOnce; ++k) {
      if (place[k] >= 0) {
        w.schur[place[k]] = values[k];
      }
    }
  }
}

// One warp does this. A chunk without a common point wrote nothing.
template <typename W>
CERES_EXT_WINDOW void AddPartsOfPair(W& w, int i, int j) {
  constexpr int kPerLane = (W::kElements + W::Team::kWarp - 1) / W::Team::kWarp;
  constexpr int kChunksAtOnce = 4;
  const int lane = w.rank() % W::Team::kWarp;
  int64_t place[kPerLane];
  double sum[kPerLane] = {};
  CERES_EXT_WINDOW_UNROLL
  for (int k = 0; k < kPerLane; ++k) {
    const int e = lane + W::Team::kWarp * k;
    const int r = W::kColumns * i + e / W::kColumns;
    const int c = W::kColumns * j + e % W::kColumns;
    place[k] = e < W::kElements && c <= r ? At(r, c) : -1;
  }
  const int num_cameras = w.counts.num_cameras;
  const int num_words = w.counts.chunk_words;
  for (int first = 0; first < w.counts.num_chunks; first += W::Team::kWarp) {
    uint64_t common = 0;
    if (first + lane < w.counts.num_chunks) {
      const uint64_t* const masks =
          w.chunk_masks + int64_t{num_cameras} * num_words * (first + lane);
      for (int word = 0; word < num_words; ++word) {
        common |= masks[num_cameras * word + i] & masks[num_cameras * word + j];
      }
    }
    uint64_t chunks = W::Team::Ballot(common != 0);
    while (chunks != 0) {
      // The loads of several chunks are under way together.
      double values[kChunksAtOnce][kPerLane];
      CERES_EXT_WINDOW_UNROLL
      for (int q = 0; q < kChunksAtOnce; ++q) {
        const double* const part =
            chunks != 0
                ? w.parts + w.part_size * (first + W::Team::FirstBit(chunks))
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
      w.shared_schur[place[k]] = sum[k];
    }
  }
}

// Adds the parts of all chunks in their order: gradient and squared norms in
// each block, S and the right-hand side in main memory.
template <typename W>
CERES_EXT_WINDOW_PHASE void AddParts(W& w, bool is_last) {
  const int64_t vectors = PackedTriangle(w.n + 1);
  for (int c = w.rank(); c < 2 * w.n; c += w.size()) {
    *(c < w.n ? w.gradient + c : w.squared_norms + c - w.n) =
        SumOfParts(w, vectors + c);
  }
  if (is_last) {
    return;
  }
  // A warp adds a block of S, or as many values of the right-hand side as it
  // has lanes, by turns of the blocks of the team.
  const int lane = w.rank() % w.warp_size();
  const int num_pairs = w.counts.num_pairs;
  const int num_items = num_pairs + (w.n + w.warp_size() - 1) / w.warp_size();
  for (int item = w.rank() / w.warp_size() * w.num_blocks() + w.block();
       item < num_items;
       item += w.NumMembers() / w.warp_size()) {
    if (item < num_pairs) {
      AddPartsOfPair(w, w.pairs[item] / 256, w.pairs[item] % 256);
      continue;
    }
    const int c = (item - num_pairs) * w.warp_size() + lane;
    if (c < w.n) {
      w.shared_schur[At(w.n, c)] = 0.0 - SumOfParts(w, At(w.n, c));
    }
  }
  w.team->Join();
  if (w.has_schur && w.block() == 0) {
    CopySchur(w);
  }
  w.team->Barrier();
}

struct Linearization {
  bool is_evaluated = false;
  bool is_solvable = false;  // Each V is positive definite.
  double cost = 0.0;
  double gradient_max_norm = 0.0;
};

// S += D^2. Returns the largest change by the gradient; gradient_max is that
// of the points.
template <typename W>
CERES_EXT_WINDOW double Damp(W& w,
                             bool is_first,
                             bool is_last,
                             double gradient_max) {
  for (int c = w.rank(); c < w.n && w.block() == 0; c += w.size()) {
    if (is_first) {
      w.scales[c] = w.region->Scale(w.squared_norms[c]);
    }
    if (is_last) {
      continue;
    }
    double* const diagonal = w.schur + At(c, c);
    *diagonal = w.Varies(c / W::kColumns, c % W::kColumns)
                    ? *diagonal + w.region->SquaredDamping(w.squared_norms[c],
                                                           w.scales[c])
                    : 1.0;
  }
  for (int i = w.rank(); i < w.counts.num_cameras; i += w.size()) {
    double minus_gradient[W::kColumns];
    for (int c = 0; c < W::kColumns; ++c) {
      minus_gradient[c] = -w.gradient[W::kColumns * i + c];
    }
    const double* const x = w.cameras + W::kCamera * i;
    double moved[W::kCamera];
    MoveCamera(w, i, minus_gradient, moved);
    for (int e = 0; e < W::kCamera; ++e) {
      Largest(x[e] - moved[e], &gradient_max);
    }
  }
  double largest[1] = {gradient_max};
  w.team->BlockMax(largest);
  return largest[0];
}

// S and the sums over rows of a window that blocks do not share become zero.
template <typename W>
CERES_EXT_WINDOW_PART void ClearSums(W& w) {
  for (int t = w.rank(); t < W::kColumns * w.counts.num_pairs; t += w.size()) {
    const int pair = w.pairs[t / W::kColumns];
    const int r = W::kColumns * (pair / 256) + t % W::kColumns;
    const int c0 = W::kColumns * (pair % 256);
    double* const row = w.schur + At(r, c0);
    for (int c = 0; c < W::kColumns && c0 + c <= r; ++c) {
      row[c] = 0.0;
    }
  }
  for (int c = w.rank(); c < w.n; c += w.size()) {
    w.right_hand_side[c] = 0.0;
    w.squared_norms[c] = 0.0;
    w.gradient[c] = 0.0;
  }
}

// Findings of a thread while it forms S.
struct Findings {
  bool is_evaluated = true;
  bool is_solvable = true;
  double gradient_max = 0.0;
};

// Evaluates the rows of a chunk, eliminates its points and adds its sums. T:
// the type of the rows, of their products and of the sums of a chunk.
template <typename T, typename W>
CERES_EXT_WINDOW_PART void FormChunk(
    W& w, int chunk, bool is_first, bool is_last, Findings* found) {
  const int warp = w.rank() / w.warp_size();
  const int num_warps = w.size() / w.warp_size();
  const int num_masks = w.counts.chunk_words * w.counts.num_cameras;
  for (int m = w.rank(); m < num_masks; m += w.size()) {
    w.masks[m] = 0;
  }
  w.team->Barrier();
  const int first_point = w.chunk_begin[chunk];
  const int end_point = w.chunk_begin[chunk + 1];
  const int first_row = w.point_begin[first_point];
  const int end_row = w.point_begin[end_point];
  if constexpr (W::Team::kKeepsRows) {
    w.rows = w.team->rows() + int64_t{W::kRow} * first_row;
  }
  auto* const rows = reinterpret_cast<T*>(w.rows);
  double cost = 0.0;
  for (int k = first_row + w.rank(); k < end_row; k += w.size()) {
    double of_row;
    found->is_evaluated &=
        EvaluateRow(w, k, rows + W::kRow * (k - first_row), &of_row);
    cost += of_row;
    const int camera = w.camera[k];
    if (camera < w.counts.num_cameras) {
      const int p = w.point[k] - first_point;
      uint16_t* const last = w.table + w.chunk_points * camera + p;
      uint64_t* const mask =
          w.masks + w.counts.num_cameras * (p / kWordPoints) + camera;
      if constexpr (W::Team::kRepeats) {
        const bool is_first = (*mask >> (p % kWordPoints) & 1) == 0;
        w.team->earlier()[k - first_row] = is_first ? kNoRow : *last;
      }
      *last = static_cast<uint16_t>(k - first_row);
      W::Team::Or(uint64_t{1} << (p % kWordPoints), mask);
    }
  }
  cost = w.team->WarpSum(cost);
  if (w.rank() % w.warp_size() == 0) {
    w.costs[num_warps * chunk + warp] = cost;
  }
  w.team->Barrier();
  for (int m = w.rank(); w.is_shared && m < num_masks; m += w.size()) {
    w.chunk_masks[int64_t{num_masks} * chunk + m] = w.masks[m];
  }
  const int end_varying =
      end_point < w.counts.num_points ? end_point : w.counts.num_points;
  for (int p = first_point + w.rank(); p < end_varying; p += w.size()) {
    found->is_solvable &=
        FactorizePoint(w,
                       p,
                       w.point_begin[p + 1] - w.point_begin[p],
                       is_first,
                       rows + W::kRow * (w.point_begin[p] - first_row),
                       w.factors + 9 * (p - first_point),
                       &found->gradient_max);
  }
  w.team->Barrier();
  for (int k = first_row + w.rank(); k < end_row; k += w.size()) {
    if (w.point[k] < w.counts.num_points) {
      EliminateFromRow<W>(w.factors + 9 * (w.point[k] - first_point),
                          rows + W::kRow * (k - first_row));
    }
  }
  w.team->Barrier();
  AddTiles<T>(w, chunk, is_last);
  w.team->Barrier();
}

// The cost of all rows and priors.
template <typename W>
CERES_EXT_WINDOW_PART double SumOfCosts(W& w) {
  const int num_warps = w.size() / w.warp_size();
  double cost[1] = {0.0};
  for (int e = w.rank(); e < num_warps * w.counts.num_chunks; e += w.size()) {
    cost[0] += w.costs[e];
  }
  if constexpr (W::Rows::kHasPriors) {
    for (int k = w.rank(); k < w.counts.num_priors; k += w.size()) {
      cost[0] += w.PriorRecord(k)[kPriorCost];
    }
    for (int e = w.rank(); e < w.counts.num_marginal_rows; e += w.size()) {
      cost[0] += w.MarginalItem(e)[1];
    }
  }
  w.team->Sum(cost);
  return cost[0];
}

// Evaluates at x, eliminates the points and forms S with the radius that the
// region has now. only_gradient: forms no S.
template <typename W>
CERES_EXT_WINDOW_PHASE Linearization Form(W& w,
                                          bool is_first,
                                          bool only_gradient) {
  // If the loop ends after this iteration, only the gradient is needed.
  const bool is_last = only_gradient || w.region->IsLast();
  if (!w.is_shared) {
    ClearSums(w);
  }
  Findings found;
  for (int chunk = w.block(); chunk < w.counts.num_chunks;
       chunk += w.num_blocks()) {
    if constexpr (W::Team::kHasFloat) {
      if (w.is_mixed) {
        FormChunk<float>(w, chunk, is_first, is_last, &found);
        continue;
      }
    }
    FormChunk<double>(w, chunk, is_first, is_last, &found);
  }
  if constexpr (W::Rows::kHasPriors) {
    for (int k = w.Member(); k < w.counts.num_priors; k += w.NumMembers()) {
      found.is_evaluated &= EvaluatePrior(w, k);
    }
    if (w.counts.num_marginals > 0) {
      found.is_evaluated &= EvaluateMarginals(w);
    }
  }
  double worst[3] = {found.is_evaluated ? 0.0 : 1.0,
                     found.is_solvable ? 0.0 : 1.0,
                     found.gradient_max};
  w.team->Max(worst);
  if (w.is_shared) {
    AddParts(w, is_last);
  }
  if constexpr (W::Rows::kHasPriors) {
    AddPriors(w, is_last);
    if (w.counts.num_marginals > 0) {
      AddMarginals(w, is_last);
    }
  }
  Linearization result;
  result.cost = SumOfCosts(w);
  result.is_evaluated = worst[0] == 0.0;
  result.is_solvable = worst[1] == 0.0;
  result.gradient_max_norm = Damp(w, is_first, is_last, worst[2]);
  return result;
}

}  // namespace window
}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_WINDOW_FORM_H_
