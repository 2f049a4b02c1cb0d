// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// S = L L' and the step of the cameras.
#ifndef CERES_EXT_SMALL_WINDOW_FACTOR_H_
#define CERES_EXT_SMALL_WINDOW_FACTOR_H_

#include <cstdint>

#include "ceres_ext/small/window/team_window.h"
#include "cuda_kernels/model/bal_model.h"

namespace ceres_ext {
namespace window {

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

// The diagonal block at k0, with 1 / L(c, c), in place.
template <typename W, typename Place>
CERES_EXT_WINDOW bool FactorizeDiagonal(W& w, const Place& at, int k0) {
  double l[PackedTriangle(W::kColumns)];
  CERES_EXT_WINDOW_UNROLL
  for (int r = 0; r < W::kColumns; ++r) {
    CERES_EXT_WINDOW_UNROLL
    for (int c = 0; c <= r; ++c) {
      l[At(r, c)] = *at.To(k0 + r, k0 + c);
    }
  }
  bool is_definite = true;
  CERES_EXT_WINDOW_UNROLL
  for (int c = 0; c < W::kColumns; ++c) {
    is_definite = is_definite && l[At(c, c)] > 0.0;
    const double inverse = W::Team::InverseSqrt(l[At(c, c)]);
    l[At(c, c)] = inverse;
    CERES_EXT_WINDOW_UNROLL
    for (int r = c + 1; r < W::kColumns; ++r) {
      l[At(r, c)] *= inverse;
    }
    CERES_EXT_WINDOW_UNROLL
    for (int r = c + 1; r < W::kColumns; ++r) {
      CERES_EXT_WINDOW_UNROLL
      for (int t = c + 1; t <= r; ++t) {
        l[At(r, t)] -= l[At(r, c)] * l[At(t, c)];
      }
    }
  }
  // No other thread reads the block any more.
  w.team->WarpBarrier();
  if (w.rank() == 0) {
    CERES_EXT_WINDOW_UNROLL
    for (int r = 0; r < W::kColumns; ++r) {
      CERES_EXT_WINDOW_UNROLL
      for (int c = 0; c <= r; ++c) {
        *at.To(k0 + r, k0 + c) = l[At(r, c)];
      }
    }
  }
  return is_definite;
}

// Factorises the diagonal block of camera j in the registers of each thread
// of the first warp, so that none waits for another.
template <typename W, typename Place>
CERES_EXT_WINDOW void FactorizeNext(W& w, const Place& at, int j) {
  if (w.rank() < w.warp_size() && !FactorizeDiagonal(w, at, W::kColumns * j) &&
      w.rank() == 0) {
    *w.verdict = 0;
  }
}

// Row r of the panel at k0, times L^-T of its diagonal block.
template <typename W, typename Place>
CERES_EXT_WINDOW void SolveRow(const Place& at, int k0, int r) {
  double* const row = at.To(r, k0);
  double v[W::kColumns];
  CERES_EXT_WINDOW_UNROLL
  for (int c = 0; c < W::kColumns; ++c) {
    v[c] = row[c * at.stride()];
  }
  CERES_EXT_WINDOW_UNROLL
  for (int c = 0; c < W::kColumns; ++c) {
    CERES_EXT_WINDOW_UNROLL
    for (int t = 0; t < c; ++t) {
      v[c] -= v[t] * *at.To(k0 + c, k0 + t);
    }
    v[c] *= *at.To(k0 + c, k0 + c);
  }
  CERES_EXT_WINDOW_UNROLL
  for (int c = 0; c < W::kColumns; ++c) {
    row[c * at.stride()] = v[c];
  }
}

// The rows below the diagonal block of camera j, and the last one.
template <typename W, typename Place>
CERES_EXT_WINDOW void SolveRows(W& w, const Place& at, int j) {
  const uint8_t* const below = w.below + w.below_begin[j] + 1;
  const int num_rows =
      W::kColumns * (w.below_begin[j + 1] - w.below_begin[j] - 1);
  for (int t = w.rank(); t <= num_rows; t += w.size()) {
    const int r = t < num_rows
                      ? W::kColumns * below[t / W::kColumns] + t % W::kColumns
                      : w.n;
    SolveRow<W>(at, W::kColumns * j, r);
  }
}

// Element e of the diagonal block that follows the one at k0, with the bits
// of a tile's.
template <typename W, typename Place>
CERES_EXT_WINDOW void UpdateElement(const Place& at, int k0, int e) {
  int r = 0;
  while (e >= PackedTriangle(r + 1)) {
    ++r;
  }
  const int r0 = k0 + W::kColumns + r;
  const int c0 = k0 + W::kColumns + e - static_cast<int>(PackedTriangle(r));
  const double* const x = at.To(r0, k0);
  const double* const y = at.To(c0, k0);
  double sum = 0.0;
  CERES_EXT_WINDOW_UNROLL
  for (int k = 0; k < W::kColumns; ++k) {
    sum += x[k * at.stride()] * y[k * at.stride()];
  }
  *at.To(r0, c0) -= sum;
}

template <typename W, typename Place>
CERES_EXT_WINDOW void UpdateTile(const Place& at, int k0, int r0, int c0) {
  double sum[W::kTile][W::kWidth] = {};
  double y[W::kColumns][W::kWidth] = {};
  for (int c = 0; c < W::kTile; ++c) {
    const double* const row = at.To(c0 + c, k0);
    for (int k = 0; k < W::kColumns; ++k) {
      y[k][c] = row[k * at.stride()];
    }
  }
  for (int r = 0; r < W::kTile; ++r) {
    const double* const x = at.To(r0 + r, k0);
    for (int k = 0; k < W::kColumns; ++k) {
      for (int c = 0; c < W::kWidth; ++c) {
        sum[r][c] += x[k * at.stride()] * y[k][c];
      }
    }
  }
  for (int r = 0; r < W::kTile; ++r) {
    const int end = r0 + r - c0 + 1 < W::kTile ? r0 + r - c0 + 1 : W::kTile;
    double* const to = at.To(r0 + r, c0);
    for (int c = 0; c < end; ++c) {
      to[c * at.stride()] -= sum[r][c];
    }
  }
}

// Tile number t of the rows and columns of the cameras `below`: first the
// triangle of those that have columns, then the rows below it.
template <typename W, typename Place>
CERES_EXT_WINDOW void UpdateTileOf(
    const Place& at, int k0, const uint8_t* below, int num_columns, int t) {
  const int side = W::kSide * num_columns;
  const int triangle = static_cast<int>(PackedTriangle(side));
  const int a = t < triangle ? TriangularRoot(t) : side + (t - triangle) / side;
  const int b = t < triangle ? t - static_cast<int>(PackedTriangle(a))
                             : (t - triangle) % side;
  UpdateTile<W>(at,
                k0,
                W::kColumns * below[a / W::kSide] + W::kTile * (a % W::kSide),
                W::kColumns * below[b / W::kSide] + W::kTile * (b % W::kSide));
}

// Subtracts the columns of camera j from those behind them, up to camera
// `end`. The first warp does this for the next diagonal block and factorises
// it, while the others do the rest.
template <typename W, typename Place>
CERES_EXT_WINDOW void UpdateTrailing(W& w, const Place& at, int j, int end) {
  const uint8_t* const below = w.below + w.below_begin[j] + 1;
  const int num_below = w.below_begin[j + 1] - w.below_begin[j] - 1;
  int num_columns = num_below;  // cameras below that have columns here
  while (num_columns > 0 && below[num_columns - 1] >= end) {
    --num_columns;
  }
  const bool is_next = num_columns > 0 && below[0] == j + 1;
  const int num_ahead =
      is_next ? static_cast<int>(PackedTriangle(W::kSide)) : 0;
  const int k0 = W::kColumns * j;
  if (w.rank() < w.warp_size()) {
    for (int e = w.rank(); is_next && e < PackedTriangle(W::kColumns);
         e += w.warp_size()) {
      UpdateElement<W>(at, k0, e);
    }
    w.team->WarpBarrier();
    if (j + 1 < end) {
      FactorizeNext(w, at, j + 1);
    }
  }
  const int side = W::kSide * num_columns;
  const int num_tiles = static_cast<int>(PackedTriangle(side)) +
                        side * W::kSide * (num_below - num_columns);
  const bool has_others = w.size() > w.warp_size();
  const int first = has_others ? w.rank() - w.warp_size() : w.rank();
  const int stride = has_others ? w.size() - w.warp_size() : w.size();
  // The last row has a tile for each column, one row high.
  for (int t = num_ahead + first; first >= 0 && t < num_tiles + side;
       t += stride) {
    if (t < num_tiles) {
      UpdateTileOf<W>(at, k0, below, num_columns, t);
      continue;
    }
    const int b = t - num_tiles;
    const int c0 =
        W::kColumns * below[b / W::kSide] + W::kTile * (b % W::kSide);
    for (int c = c0; c < c0 + W::kTile; ++c) {
      const double* const x = at.To(w.n, k0);
      const double* const y = at.To(c, k0);
      double sum = 0.0;
      for (int k = 0; k < W::kColumns; ++k) {
        sum += x[k * at.stride()] * y[k * at.stride()];
      }
      *at.To(w.n, c) -= sum;
    }
  }
}

// The columns of cameras begin ... end - 1.
template <typename W, typename Place>
CERES_EXT_WINDOW bool FactorizeColumns(W& w,
                                       const Place& at,
                                       int begin,
                                       int end) {
  if (w.rank() == 0) {
    *w.verdict = 1;
  }
  if (begin < end) {
    FactorizeNext(w, at, begin);
  }
  for (int j = begin; j < end; ++j) {
    w.team->Barrier();
    SolveRows(w, at, j);
    w.team->Barrier();
    UpdateTrailing(w, at, j, end);
  }
  w.team->Barrier();
  const bool is_definite = *w.verdict != 0;
  w.team->Barrier();
  return is_definite;
}

// Factorises S = L L' in the block's memory; the last row becomes L^-1 b.
// False if S is not positive definite.
template <typename W>
CERES_EXT_WINDOW_PHASE bool FactorizeHere(W& w) {
  return FactorizeColumns(
      w, Packed{W::Team::Own(w.schur)}, 0, w.counts.num_cameras);
}

// Lists the cameras behind a panel whose rows it has. Returns their number.
template <typename W>
CERES_EXT_WINDOW int ListBehind(W& w, int begin, int end) {
  const int num_words = PatternWords(w.counts.num_cameras);
  int num_behind = 0;
  for (int word = 0; word < num_words; ++word) {
    uint64_t cameras = 0;
    for (int j = begin; j < end; ++j) {
      cameras |= w.pattern[num_words * j + word];
    }
    for (; cameras != 0; cameras &= cameras - 1) {
      const int i = kWordPoints * word + W::Team::FirstBit(cameras);
      if (i < end) {
        continue;
      }
      if (w.rank() == 0) {
        w.behind[num_behind] = static_cast<uint8_t>(i);
      }
      ++num_behind;
    }
  }
  w.team->Barrier();
  return num_behind;
}

// Copies rows of a panel, several values at a time, so that their loads are
// under way together; neighbours in a warp have neighbouring columns.
template <typename W>
CERES_EXT_WINDOW void CopyPanel(
    W& w, const Panel& panel, int begin, int end, bool is_back) {
  const int first_pair = w.below_begin[begin];
  const int num_elements = W::kElements * (w.below_begin[end] - first_pair);
  const int num_all = num_elements + W::kColumns * (end - begin);
  for (int first = w.rank(); first < num_all; first += kAtOnce * w.size()) {
    double values[kAtOnce];
    double* to[kAtOnce];
    CERES_EXT_WINDOW_UNROLL
    for (int k = 0; k < kAtOnce; ++k) {
      const int e = first + k * w.size();
      to[k] = nullptr;
      values[k] = 0.0;
      if (e >= num_all) {
        continue;
      }
      // The right-hand side is the last row.
      int r = w.n;
      int c = W::kColumns * begin + e - num_elements;
      if (e < num_elements) {
        const int pair = first_pair + e / W::kElements;
        int j = begin;
        while (pair >= w.below_begin[j + 1]) {
          ++j;
        }
        r = W::kColumns * w.below[pair] + e % W::kElements / W::kColumns;
        c = W::kColumns * j + e % W::kColumns;
      }
      if (c <= r) {
        double* const here = panel.To(r, c);
        double* const there = w.schur + At(r, c);
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
  w.team->Barrier();
}

// Tiles of kRows rows behind a panel, and those of the last row.
template <typename W, int kRows>
CERES_EXT_WINDOW int NumTilesBehind(int num_behind) {
  return W::kSide * (W::kColumns / kRows) *
             static_cast<int>(PackedTriangle(num_behind)) +
         W::kSide * num_behind;
}

// Rows kRows a ... of camera i (the last row after all cameras) and columns
// kTile b ... of camera j.
template <int kRows, typename W>
CERES_EXT_WINDOW void UpdateTileBehind(
    W& w, const Panel& panel, int begin, int end, int i, int j, int a, int b) {
  if (i != j && i < w.counts.num_cameras && !w.IsPair(i, j)) {
    return;
  }
  const int r0 = W::kColumns * i + kRows * a;
  const int c0 = W::kColumns * j + W::kTile * b;
  double sum[kRows][W::kTile] = {};
  for (int of_panel = begin; of_panel < end; ++of_panel) {
    if ((i < w.counts.num_cameras && !w.IsPair(i, of_panel)) ||
        !w.IsPair(j, of_panel)) {
      continue;
    }
    const double* x = panel.To(r0, W::kColumns * of_panel);
    const double* y = panel.To(c0, W::kColumns * of_panel);
    for (int k = 0; k < W::kColumns; ++k) {
      CERES_EXT_WINDOW_UNROLL
      for (int r = 0; r < kRows; ++r) {
        CERES_EXT_WINDOW_UNROLL
        for (int c = 0; c < W::kTile; ++c) {
          sum[r][c] += x[r] * y[c];
        }
      }
      x += panel.num_rows;
      y += panel.num_rows;
    }
  }
  CERES_EXT_WINDOW_UNROLL
  for (int r = 0; r < kRows; ++r) {
    double* const to = w.schur + At(r0 + r, c0);
    CERES_EXT_WINDOW_UNROLL
    for (int c = 0; c < W::kTile; ++c) {
      if (c0 + c <= r0 + r) {
        to[c] -= sum[r][c];
      }
    }
  }
}

// Neighbours in a warp are in neighbouring columns; num_blocks blocks take
// warps by turns.
template <int kRows, typename W>
CERES_EXT_WINDOW void UpdateTilesBehind(W& w,
                                        const Panel& panel,
                                        int begin,
                                        int end,
                                        int num_behind,
                                        int num_blocks) {
  constexpr int kOfPair = W::kSide * (W::kColumns / kRows);
  const int warp_size = w.warp_size();
  const int num_tiles = kOfPair * static_cast<int>(PackedTriangle(num_behind));
  const int block = num_blocks > 1 ? w.block() : 0;
  for (int t = (w.rank() / warp_size * num_blocks + block) * warp_size +
               w.rank() % warp_size;
       t < num_tiles + W::kSide * num_behind;
       t += num_blocks * w.size()) {
    if (t >= num_tiles) {
      const int b = t - num_tiles;
      UpdateTileBehind<1>(w,
                          panel,
                          begin,
                          end,
                          w.counts.num_cameras,
                          w.behind[b / W::kSide],
                          0,
                          b % W::kSide);
      continue;
    }
    // All tiles of a camera's rows, one row of tiles after the other.
    const int i = TriangularRoot(t / kOfPair);
    const int of_i = t - kOfPair * static_cast<int>(PackedTriangle(i));
    const int width = W::kSide * (i + 1);
    const int b = of_i % width;
    UpdateTileBehind<kRows>(w,
                            panel,
                            begin,
                            end,
                            w.behind[i],
                            w.behind[b / W::kSide],
                            of_i / width,
                            b % W::kSide);
  }
}

// Subtracts a panel from S behind it. If there are few tiles, they are low,
// so that more threads have one.
template <typename W>
CERES_EXT_WINDOW void UpdateBehind(W& w,
                                   const Panel& panel,
                                   int begin,
                                   int end,
                                   int num_behind,
                                   int num_blocks) {
  // A host thread has tiles of one height.
  // NOLINTNEXTLINE(bugprone-branch-clone)
  if (NumTilesBehind<W, W::kLow>(num_behind) <= w.size()) {
    UpdateTilesBehind<W::kLow>(w, panel, begin, end, num_behind, num_blocks);
  } else {
    UpdateTilesBehind<W::kHigh>(w, panel, begin, end, num_behind, num_blocks);
  }
}

// The same in main memory. The first block factorises a panel in its own
// memory; then its columns are subtracted from the rest of S, by all blocks
// if there is enough to do.
template <typename W>
CERES_EXT_WINDOW_PHASE bool FactorizePanels(W& w) {
  bool is_definite = true;
  const int num_cameras = w.counts.num_cameras;
  for (int begin = 0; begin < num_cameras; begin += w.panel_cameras) {
    const int end = begin + w.panel_cameras < num_cameras
                        ? begin + w.panel_cameras
                        : num_cameras;
    const Panel panel{
        W::Team::Own(w.panel), W::kColumns * begin, w.panel_stride};
    const int num_behind = ListBehind(w, begin, end);
    const bool is_alone =
        !w.is_shared || NumTilesBehind<W, W::kHigh>(num_behind) <= w.size();
    if (w.block() == 0) {
      CopyPanel(w, panel, begin, end, /*is_back=*/false);
      is_definite = FactorizeColumns(w, panel, begin, end) && is_definite;
      CopyPanel(w, panel, begin, end, /*is_back=*/true);
    }
    if (is_alone) {
      if (w.block() == 0) {
        UpdateBehind(w, panel, begin, end, num_behind, /*num_blocks=*/1);
      }
      w.team->Barrier();
      continue;
    }
    w.team->Join();
    if (w.block() != 0) {
      CopyPanel(w, panel, begin, end, /*is_back=*/false);
    }
    UpdateBehind(w, panel, begin, end, num_behind, w.num_blocks());
    w.team->Join();
  }
  return is_definite;
}

// True if row r of L' has columns of camera j.
template <typename W>
CERES_EXT_WINDOW bool HasRow(const W& w, int r, int j) {
  return r < W::kColumns * j && w.IsPair(j, r / W::kColumns);
}

template <typename W>
CERES_EXT_WINDOW bool SubstituteDiagonal(W& w,
                                         const double* schur,
                                         int k0,
                                         double* y) {
  double x[W::kColumns];
  CERES_EXT_WINDOW_UNROLL
  for (int r = 0; r < W::kColumns; ++r) {
    x[r] = y[k0 + r];
  }
  CERES_EXT_WINDOW_UNROLL
  for (int r = W::kColumns - 1; r >= 0; --r) {
    const double* const row = schur + At(k0 + r, k0);
    x[r] *= row[r];
    CERES_EXT_WINDOW_UNROLL
    for (int t = 0; t < r; ++t) {
      x[t] -= row[t] * x[r];
    }
  }
  w.team->WarpBarrier();
  if (w.rank() == 0) {
    CERES_EXT_WINDOW_UNROLL
    for (int r = 0; r < W::kColumns; ++r) {
      y[k0 + r] = x[r];
      w.step[k0 + r] = x[r];
    }
  }
  return kernels::AllFinite(x, W::kColumns);
}

template <typename W>
CERES_EXT_WINDOW bool SubstituteIn(W& w, double* schur) {
  double* const y = W::Team::Own(w.values);
  for (int c = w.rank(); c < w.n; c += w.size()) {
    y[c] = schur[At(w.n, c)];
  }
  w.team->Barrier();
  bool is_finite = true;
  for (int j = w.counts.num_cameras - 1; j >= 0; --j) {
    const int k0 = W::kColumns * j;
    // These loads are under way while the first warp computes.
    const bool has_row = HasRow(w, w.rank(), j);
    double column[W::kColumns] = {};
    if (has_row) {
      CERES_EXT_WINDOW_UNROLL
      for (int t = 0; t < W::kColumns; ++t) {
        column[t] = schur[At(k0 + t, w.rank())];
      }
    }
    // Each thread of the first warp computes this for itself, as above.
    if (w.rank() < w.warp_size()) {
      is_finite &= SubstituteDiagonal(w, schur, k0, y);
    }
    w.team->Barrier();
    if (has_row) {
      double sum = 0.0;
      CERES_EXT_WINDOW_UNROLL
      for (int t = 0; t < W::kColumns; ++t) {
        sum += column[t] * y[k0 + t];
      }
      y[w.rank()] -= sum;
    }
    for (int r = w.rank() + w.size(); r < k0; r += w.size()) {
      if (HasRow(w, r, j)) {
        double sum = 0.0;
        CERES_EXT_WINDOW_UNROLL
        for (int t = 0; t < W::kColumns; ++t) {
          sum += schur[At(k0 + t, r)] * y[k0 + t];
        }
        y[r] -= sum;
      }
    }
    w.team->Barrier();
  }
  return is_finite;
}

// Solves L'step = L^-1 b. False if a step is not finite.
template <typename W>
CERES_EXT_WINDOW_PHASE bool Substitute(W& w) {
  return w.has_schur ? SubstituteIn(w, W::Team::Own(w.schur))
                     : SubstituteIn(w, w.schur);
}

// Computes step_, the step of the cameras. False if S is not positive
// definite or the step is not finite.
template <typename W>
CERES_EXT_WINDOW bool SolveCameras(W& w) {
  bool is_solved = true;
  if (w.panel_cameras > 0) {
    is_solved = FactorizePanels(w);
  } else if (w.block() == 0) {
    is_solved = FactorizeHere(w);
  }
  double worst[1] = {0.0};
  if (w.block() == 0) {
    worst[0] = is_solved && Substitute(w) ? 0.0 : 1.0;
  }
  w.team->Max(worst);
  return worst[0] == 0.0;
}

}  // namespace window
}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_WINDOW_FACTOR_H_
