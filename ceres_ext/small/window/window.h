// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A window: a small bundle adjustment that one team of threads solves from
// start to end (loop.h). Its cameras are BAL's, all of one kind, or
// they are *poses*: rows then name intrinsics too, and beside the rows are
// *priors* on poses and on pairs of them, and *marginal priors* on any number
// of them (marginal_prior.h). Intrinsics that vary are *own* ones: one pose has
// them, and they are part of its camera.
//
// Cameras and points that vary are numbered first, then constant ones. Rows are
// sorted by point. A *chunk* is a run of points whose rows fit into a block's
// memory together; the chunks of a window depend on the window alone, so that
// its bits do too. The points of a chunk that a camera sees are a mask of
// chunk_words words.
//
// The *pattern* says which blocks of S = L L' may differ from zero in L. A
// *pair* is such a block: two cameras i >= j. Cameras of a pair see a point
// together, or the factorisation fills the block in. No other block is read or
// written.
#ifndef CERES_EXT_SMALL_WINDOW_WINDOW_H_
#define CERES_EXT_SMALL_WINDOW_WINDOW_H_

#include <algorithm>
#include <cstdint>

#include "ceres_ext/small/window/tuning.h"
#include "ceres_ext/solver/trust_region.h"
#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/model/robust_loss.h"

namespace ceres_ext {

// Values of a pose and its columns: a rotation vector and a zero, or a
// quaternion w, x, y, z, which turns; then a translation.
inline constexpr int kPoseSize = 7;
inline constexpr int kPoseColumns = 6;
// A pose, then its own intrinsics that vary, with zeros if there are fewer,
// then the norm of those that are held.
inline constexpr int kMaxOwnIntrinsics = 3;
inline constexpr int kOwnCameraSize = kPoseSize + kMaxOwnIntrinsics + 1;
inline constexpr int kOwnCameraColumns = kPoseColumns + kMaxOwnIntrinsics;

// Values of a camera and its columns in the window's matrices: 9 values and 9
// or 6 columns, or 10 values and 10, 9 (a quaternion's manifold) or 6. With 6
// columns f, k1 and k2 are constant. Poses: kPoseSize and kPoseColumns, or
// kOwnCameraSize and kOwnCameraColumns.
struct WindowKind {
  int32_t camera_size = 9;
  int32_t num_columns = 9;

  bool has_poses() const {
    return camera_size == kPoseSize || has_own_intrinsics();
  }
  bool has_own_intrinsics() const { return camera_size == kOwnCameraSize; }
  bool operator==(const WindowKind& other) const {
    return camera_size == other.camera_size && num_columns == other.num_columns;
  }
};

struct WindowCounts {
  int32_t num_cameras = 0;  // that vary
  int32_t num_constant_cameras = 0;
  int32_t num_points = 0;  // that vary
  int32_t num_constant_points = 0;
  int32_t num_rows = 0;
  int32_t num_chunks = 0;
  int32_t chunk_rows = 0;   // a chunk has no more
  int16_t chunk_words = 1;  // nor more points than 64 times this
  int16_t has_bounds = 0;   // 1: some values that vary have bounds
  int32_t num_pairs = 0;
  // Only windows of poses have these.
  int32_t num_intrinsics = 0;
  int32_t num_scales = 0;  // num_rows, or 0 if rows have no factor
  int32_t num_priors = 0;
  int32_t num_marginals = 0;
  // Sums over all marginal priors.
  int32_t num_marginal_poses = 0;
  int32_t num_marginal_rows = 0;
  int32_t num_marginal_values = 0;

  CERES_EXT_HOST_DEVICE int32_t all_cameras() const {
    return num_cameras + num_constant_cameras;
  }
  CERES_EXT_HOST_DEVICE int32_t all_points() const {
    return num_points + num_constant_points;
  }
  // Values of the cameras and points that vary; 0 if none of them has bounds.
  CERES_EXT_HOST_DEVICE int64_t NumBounds(int camera_size) const {
    return has_bounds != 0
               ? int64_t{camera_size} * num_cameras + 3 * int64_t{num_points}
               : 0;
  }
};

inline constexpr int kWordPoints = 64;      // the bits of a mask's word
inline constexpr uint16_t kNoRow = 0xffff;  // of a chunk

// Doubles of a row in a chunk: Jc 2 x columns, Jp 2 x 3, r and r' of 2. Two
// values are loaded at once, and the number of pairs is odd, so that equal
// places of neighbours are in different banks.
CERES_EXT_HOST_DEVICE constexpr int WindowRowSize(int num_columns) {
  return 2 * (num_columns + 5 + num_columns % 2);
}
CERES_EXT_HOST_DEVICE constexpr int64_t PackedTriangle(int64_t n) {
  return n * (n + 1) / 2;
}
// Words of the pattern for the columns of a camera.
CERES_EXT_HOST_DEVICE constexpr int PatternWords(int num_cameras) {
  return (num_cameras + kWordPoints - 1) / kWordPoints;
}

// Offsets of the arrays in a block's memory, in doubles.
struct TeamLayout {
  static constexpr int kState = 15;  // CameraState<double>
  static constexpr int kLocal = 9;
  // A TrustRegion and its last decision.
  static constexpr int kRegion = (sizeof(TrustRegion) + 7) / 8 + 1;

  CERES_EXT_HOST_DEVICE TeamLayout(int num_columns,
                                   int num_cameras,
                                   int chunk_rows,
                                   int chunk_words,
                                   bool has_schur) {
    const int64_t n = int64_t{num_columns} * num_cameras;
    const int64_t points = int64_t{kWordPoints} * chunk_words;
    int64_t end = 0;
    region = Take(kRegion, &end);
    states = Take(int64_t{kState} * num_cameras, &end);
    rotation_maps = Take(int64_t{12} * num_cameras, &end);
    squared_norms = Take(n, &end);
    gradient = Take(n, &end);
    masks = Take(int64_t{chunk_words} * num_cameras, &end);
    pattern = Take(int64_t{PatternWords(num_cameras)} * num_cameras, &end);
    pairs = Take((PackedTriangle(num_cameras) + 3) / 4, &end);
    below = Take((PackedTriangle(num_cameras) + 7) / 8, &end);
    below_begin = Take((num_cameras + 4) / 4, &end);
    behind = Take(has_schur ? 0 : (num_cameras + 7) / 8, &end);
    table = Take(points / 4 * num_cameras, &end);
    factors = Take(9 * points, &end);
    end += end % 2;  // for pairs
    // A chunk, a panel of S, and the memory of a step are never needed at once.
    const int64_t of_chunk = int64_t{WindowRowSize(num_columns)} * chunk_rows;
    const int64_t of_step = int64_t{kState + kLocal} * num_cameras;
    int64_t of_all = of_chunk > of_step ? of_chunk : of_step;
    // Columns of a panel follow each other; odd, as rows of a chunk are.
    panel_stride = (n + 1) | 1;
    panel_cameras = 0;
    if (!has_schur) {
      const int64_t room = kMaxTeamBytes / 8 - end;
      for (int cameras = 1; cameras * num_columns <= kMaxPanelColumns;
           ++cameras) {
        const int64_t of_panel = panel_stride * num_columns * cameras;
        if (cameras == 1 || of_panel <= room) {
          panel_cameras = cameras;
          of_all = of_panel > of_all ? of_panel : of_all;
        }
      }
    }
    rows = Take(of_all, &end);
    new_states = rows;
    values = rows;
    local_steps = rows + int64_t{kState} * num_cameras;
    panel = rows;
    // With the right-hand side as its last row.
    schur = has_schur ? Take(PackedTriangle(n + 1), &end) : -1;
    size = end;
  }

  int64_t region;
  int64_t states;
  int64_t rotation_maps;
  int64_t squared_norms;
  int64_t gradient;
  int64_t masks;
  int64_t pattern;
  int64_t pairs;
  int64_t below;
  int64_t below_begin;
  int64_t behind;
  int64_t table;
  int64_t factors;
  int64_t rows;
  int64_t new_states;
  int64_t local_steps;
  int64_t values;
  int64_t panel;
  int64_t panel_stride;
  int64_t schur;
  int64_t size;
  int32_t panel_cameras;  // 0: S is in the block's memory.

 private:
  CERES_EXT_HOST_DEVICE static int64_t Take(int64_t n, int64_t* end) {
    const int64_t begin = *end;
    *end += n;
    return begin;
  }
};

struct ChunkSize {
  int rows = 0;  // 0: the window is too large.
  int words = 1;
  bool has_schur = false;  // S is in a block's memory beside a chunk.
};

// Returns the room of a chunk. max_degree: the most rows of a point.
inline ChunkSize ChooseChunks(int num_columns,
                              int num_cameras,
                              int max_degree) {
  constexpr int64_t kBytes = sizeof(double);
  ChunkSize size;
  if (num_cameras > kMaxWindowCameras || max_degree > kMaxChunkRows) {
    return size;
  }
  for (const bool schur : {true, false}) {
    // If S is in main memory, larger chunks access it less often.
    size.words = schur ? 1 : 2;
    const int wanted =
        schur ? WindowClassOf(num_cameras).chunk_rows : kMaxChunkRows;
    const int64_t begin =
        TeamLayout(num_columns, num_cameras, 0, size.words, schur).rows;
    const int64_t of_schur =
        schur ? PackedTriangle(int64_t{num_columns} * num_cameras + 1) : 0;
    const int64_t rows = (kMaxTeamBytes / kBytes - begin - of_schur) /
                         WindowRowSize(num_columns);
    if (rows < std::max(max_degree, schur ? kMinRowsBesideSchur : 32)) {
      continue;
    }
    size.rows =
        static_cast<int>(std::min<int64_t>(rows, std::max(max_degree, wanted)));
    size.has_schur = schur;
    if (TeamLayout(num_columns, num_cameras, size.rows, size.words, schur)
                .size *
            kBytes <=
        kMaxTeamBytes) {
      return size;
    }
  }
  return ChunkSize();
}

// Intrinsics: the number of a camera model, and its parameters.
struct WindowIntrinsics {
  int32_t model = 0;
  // The parameters that the camera's values replace; -1: no more.
  int8_t own[4] = {-1, -1, -1, -1};
  double params[16] = {};
};

enum class PriorKind : int32_t { kPosition, kPose, kRelativePose };

// A residual block of one or two poses, A e: the error e of 3 or 6 elements has
// zeros behind them, and so has A.
struct WindowPrior {
  static constexpr int kSize = 6;

  PriorKind kind = PriorKind::kPosition;
  int32_t camera[2] = {-1, -1};  // -1: there is no second one
  int32_t loss = kernels::kNoLoss;
  // The next prior of the same two cameras that vary, or -1; is_first: the
  // first of them.
  int32_t next = -1;
  int32_t is_first = 0;
  double weight = 1.0;      // of the loss
  double measured[7] = {};  // the bytes of the functor (photogrammetry.h)
  double scale[kSize * kSize] = {};  // A, row-major
};

// A marginal prior A d + b, m x 6 n. Poses are in the order of their numbers,
// so those that vary come first. A row is a row of [A b], or of [J r] in
// scratch.
struct WindowMarginal {
  int32_t num_poses = 0;
  int32_t num_varying = 0;
  int32_t num_rows = 0;
  // Places among those of all marginal priors.
  int32_t pose_begin = 0;
  int32_t row_begin = 0;
  int32_t value_begin = 0;

  CERES_EXT_HOST_DEVICE int32_t num_columns() const {
    return kPoseColumns * num_poses;
  }
  CERES_EXT_HOST_DEVICE int32_t row_size() const { return num_columns() + 1; }
  CERES_EXT_HOST_DEVICE int64_t num_values() const {
    return int64_t{num_rows} * row_size();
  }
};

// A pose of a marginal prior.
struct WindowMarginalPose {
  int32_t camera = 0;
  double reference[kPoseSize] = {};
};

struct WindowResult {
  TrustRegion region;
};

// Data of the window that a team solves.
struct Window {
  WindowCounts counts;
  const double* observed = nullptr;       // 2 a row
  const int32_t* camera = nullptr;        // of a row
  const int32_t* point = nullptr;         // of a row
  const int32_t* point_begin = nullptr;   // rows of a point
  const int32_t* chunk_begin = nullptr;   // points of a chunk
  const uint16_t* column_mask = nullptr;  // bit c of a camera: column c varies
  // Bit i of column j: the pair (i, j), i > j; PatternWords words a column.
  const uint64_t* pattern = nullptr;
  // 256 i + j of each pair, by i - j. Neighbours have about as many points.
  const uint16_t* pairs = nullptr;
  // i of each pair, by j and then i, and where the pairs of each j begin.
  const uint8_t* below = nullptr;
  const uint16_t* below_begin = nullptr;
  kernels::LossRef loss;  // of rows
  const double* constant_cameras = nullptr;
  const double* constant_points = nullptr;
  double* cameras = nullptr;  // that vary, refined
  double* points = nullptr;   // that vary, refined
  double* scratch = nullptr;  // WindowScratch
  WindowResult* result = nullptr;
};

// Offsets in a window's scratch in main memory, in doubles.
struct WindowScratch {
  static constexpr int kRecord = 15;  // candidate 3, scale 3, L 6, L^-1 g 3
  static constexpr int kItem = 4;     // model, cost, |x|^2 and |step|^2
  // A prior has its residual, Jacobians of two cameras, cost, and the first two
  // items of a step.
  static constexpr int kPrior = 6 + 2 * 36 + 1 + 2;
  // Each pose of a marginal prior has its difference, and the derivative of the
  // difference's turn by that of the pose; each row has the first two items.
  static constexpr int kMarginalPose = 6 + 9;
  static constexpr int kMarginalRow = 2;
  // Data that the blocks of a team exchange: a number, then two sets of kValues
  // per block, used in turns.
  static constexpr int kValues = 3;
  static constexpr int kMaxBlocks = 16;
  static constexpr int kMaxWarps = 16;  // of a block

  // is_shared: several blocks solve the window. Then each chunk has its own
  // part of S, of the gradient and of the squared norms of columns. Warps keep
  // the costs of each chunk and the items of their points: 32, or one on a
  // host.
  CERES_EXT_HOST_DEVICE WindowScratch(int camera_size,
                                      int num_columns,
                                      const WindowCounts& counts,
                                      bool has_schur,
                                      bool is_shared) {
    const int64_t n = int64_t{num_columns} * counts.num_cameras;
    exchange = 0;
    step = exchange + 1 + 2 * kValues * kMaxBlocks;
    new_cameras = step + n;
    scales = new_cameras + int64_t{camera_size} * counts.num_cameras;
    constant_states = scales + n;
    records = constant_states +
              int64_t{TeamLayout::kState} * counts.num_constant_cameras;
    schur = records + int64_t{kRecord} * counts.num_points;
    costs = schur + (has_schur && !is_shared ? 0 : PackedTriangle(n + 1));
    items = costs + int64_t{kMaxWarps} * counts.num_chunks;
    chunk_masks = items + int64_t{kItem} * counts.all_points();
    masks_size = int64_t{counts.chunk_words} * counts.num_cameras;
    parts = chunk_masks + (is_shared ? masks_size * counts.num_chunks : 0);
    part_size = PackedTriangle(n + 1) + 2 * n;
    priors = parts + (is_shared ? part_size * counts.num_chunks : 0);
    // With bounds: gradients and steps of the points, then x while a trial
    // replaces it.
    if (counts.has_bounds != 0) {
      priors += 6 * int64_t{counts.num_points} + counts.NumBounds(camera_size);
    }
    // Marginal priors have those of poses, then of rows, then [J r].
    size = priors + int64_t{kPrior} * counts.num_priors +
           int64_t{kMarginalPose} * counts.num_marginal_poses +
           int64_t{kMarginalRow} * counts.num_marginal_rows +
           counts.num_marginal_values;
  }

  int64_t exchange;
  int64_t step;
  int64_t new_cameras;
  int64_t scales;
  int64_t constant_states;
  int64_t records;
  int64_t schur;
  int64_t costs;
  int64_t items;
  int64_t chunk_masks;
  int64_t masks_size;
  int64_t parts;
  int64_t part_size;
  int64_t priors;
  int64_t size;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_WINDOW_WINDOW_H_
