// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A window: a small bundle adjustment that one team of threads solves from
// start to end (window_solve.h). Its cameras are BAL's, all of one kind.
//
// Cameras and points that vary are numbered first, then constant ones. Rows are
// sorted by point. A *chunk* is a run of points whose rows fit into the team's
// memory together; the chunks of a window depend on the window alone, so that
// its bits do too.
#ifndef CERES_EXT_SOLVER_WINDOW_WINDOW_H_
#define CERES_EXT_SOLVER_WINDOW_WINDOW_H_

#include <algorithm>
#include <cstdint>

#include "ceres_ext/solver/trust_region.h"
#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/model/robust_loss.h"

namespace ceres_ext {

// Values of a camera and its columns in the window's matrices: 9 values and 9
// or 6 columns, or 10 values and 10, 9 (a quaternion's manifold) or 6. With 6
// columns f, k1 and k2 are constant.
struct WindowKind {
  int32_t camera_size = 9;
  int32_t num_columns = 9;

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
  int32_t chunk_rows = 0;  // a chunk has no more

  CERES_EXT_HOST_DEVICE int32_t all_cameras() const {
    return num_cameras + num_constant_cameras;
  }
  CERES_EXT_HOST_DEVICE int32_t all_points() const {
    return num_points + num_constant_points;
  }
};

// Points of a chunk: the bits of a mask.
inline constexpr int kMaxChunkPoints = 64;
inline constexpr int kMaxChunkRows = 512;
// Cameras that vary; with more other solvers are faster.
inline constexpr int kMaxWindowCameras = 128;
// What a team of a device has, in bytes: 227 KB less what a kernel declares.
inline constexpr int64_t kMaxTeamBytes = 227 * 1024 - 1024;

// Doubles of a row in a chunk: Jc 2 x columns, Jp 2 x 3, r and r' of 2; odd,
// so that equal places of neighbours are in different banks.
CERES_EXT_HOST_DEVICE constexpr int WindowRowSize(int num_columns) {
  return 2 * num_columns + 11;
}
CERES_EXT_HOST_DEVICE constexpr int64_t PackedTriangle(int64_t n) {
  return n * (n + 1) / 2;
}

// Of the memory of a team, in doubles: where each array begins.
struct TeamLayout {
  static constexpr int kState = 15;  // CameraState<double>
  static constexpr int kLocal = 9;

  CERES_EXT_HOST_DEVICE TeamLayout(int num_columns,
                                   int num_cameras,
                                   int chunk_rows,
                                   bool has_schur) {
    const int64_t n = int64_t{num_columns} * num_cameras;
    int64_t end = 0;
    region = Take((sizeof(TrustRegion) + 7) / 8 + 1, &end);
    states = Take(int64_t{kState} * num_cameras, &end);
    rotation_maps = Take(int64_t{12} * num_cameras, &end);
    squared_norms = Take(n, &end);
    gradient = Take(n, &end);
    masks = Take(num_cameras, &end);
    table = Take(int64_t{kMaxChunkPoints / 4} * num_cameras, &end);
    factors = Take(9 * kMaxChunkPoints, &end);
    // What a step takes is there when no chunk is.
    const int64_t of_chunk = int64_t{WindowRowSize(num_columns)} * chunk_rows;
    const int64_t of_step = int64_t{kState + kLocal} * num_cameras;
    rows = Take(of_chunk > of_step ? of_chunk : of_step, &end);
    new_states = rows;
    local_steps = rows + int64_t{kState} * num_cameras;
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
  int64_t table;
  int64_t factors;
  int64_t rows;
  int64_t new_states;
  int64_t local_steps;
  int64_t schur;
  int64_t size;

 private:
  CERES_EXT_HOST_DEVICE static int64_t Take(int64_t n, int64_t* end) {
    const int64_t begin = *end;
    *end += n;
    return begin;
  }
};

// Rows that a chunk has room for, and whether S is in the team's memory with
// it; 0: the window is too large. max_degree: the most rows of a point.
inline int ChunkRows(int num_columns,
                     int num_cameras,
                     int max_degree,
                     bool* has_schur) {
  constexpr int64_t kBytes = sizeof(double);
  const int wanted = std::max(max_degree, num_cameras <= 12 ? 280 : 320);
  if (num_cameras > kMaxWindowCameras || max_degree > kMaxChunkRows) {
    return 0;
  }
  for (const bool schur : {true, false}) {
    const int64_t fixed =
        TeamLayout(num_columns, num_cameras, 0, schur).size * kBytes;
    const int64_t rows =
        (kMaxTeamBytes - fixed) / (WindowRowSize(num_columns) * kBytes);
    if (rows >= std::max(max_degree, 32)) {
      *has_schur = schur;
      return static_cast<int>(std::min<int64_t>(rows, wanted));
    }
  }
  return 0;
}

struct WindowResult {
  TrustRegion region;
};

// What a team works on.
struct Window {
  WindowCounts counts;
  const double* observed = nullptr;       // 2 a row
  const int32_t* camera = nullptr;        // of a row
  const int32_t* point = nullptr;         // of a row
  const int32_t* point_begin = nullptr;   // rows of a point
  const int32_t* chunk_begin = nullptr;   // points of a chunk
  const uint16_t* column_mask = nullptr;  // bit c of a camera: column c varies
  kernels::LossRef loss;                  // of rows
  const double* constant_cameras = nullptr;
  const double* constant_points = nullptr;
  double* cameras = nullptr;  // that vary, refined
  double* points = nullptr;   // that vary, refined
  double* scratch = nullptr;  // WindowScratch
  WindowResult* result = nullptr;
};

// Of the scratch of a window in main memory, in doubles.
struct WindowScratch {
  static constexpr int kRecord = 15;  // candidate 3, scale 3, L 6, L^-1 g 3

  CERES_EXT_HOST_DEVICE WindowScratch(int camera_size,
                                      int num_columns,
                                      const WindowCounts& counts,
                                      bool has_schur) {
    const int64_t n = int64_t{num_columns} * counts.num_cameras;
    new_cameras = 0;
    scales = new_cameras + int64_t{camera_size} * counts.num_cameras;
    constant_states = scales + n;
    records = constant_states +
              int64_t{TeamLayout::kState} * counts.num_constant_cameras;
    schur = records + int64_t{kRecord} * counts.num_points;
    size = schur + (has_schur ? 0 : PackedTriangle(n + 1));
  }

  int64_t new_cameras;
  int64_t scales;
  int64_t constant_states;
  int64_t records;
  int64_t schur;
  int64_t size;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SOLVER_WINDOW_WINDOW_H_
