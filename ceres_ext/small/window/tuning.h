// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The sizes by which windows were tuned. Bits depend on all of them.
#ifndef CERES_EXT_SMALL_WINDOW_TUNING_H_
#define CERES_EXT_SMALL_WINDOW_TUNING_H_

#include <cstdint>

namespace ceres_ext {

// Windows with up to so many cameras that vary.
struct WindowClass {
  int max_cameras;
  int num_threads;  // of a device's block
  // Rows of a chunk if S is in a block's memory beside it.
  int chunk_rows;
};
inline constexpr WindowClass kWindowClasses[] = {
    {2, 64, 256}, {12, 256, 256}, {128, 512, 320}};
inline const WindowClass& WindowClassOf(int num_cameras) {
  const WindowClass* of_window = kWindowClasses;
  while (num_cameras > of_window->max_cameras) {
    ++of_window;
  }
  return *of_window;
}
// Largest number of cameras that vary; with more, other solvers are faster.
inline constexpr int kMaxWindowCameras = 128;
// Problems with more rows, cameras or points, or values of marginal priors, are
// not windows.
inline constexpr int64_t kLargestWindow = int64_t{1} << 24;

inline constexpr int kMaxChunkRows = 512;
// S is in a block's memory only beside chunks of as many rows: smaller chunks
// cost more than S in main memory. With 101 rows beside 24 cameras of 9 columns
// 3,204 windows were solved per second instead of 5,272, with 231 beside 22
// 4,751 instead of 5,343 (docs/measurements/study_latency.md).
inline constexpr int kMinRowsBesideSchur = 256;
// Largest number of columns of a panel, if S is in main memory.
inline constexpr int kMaxPanelColumns = 48;
// Bytes of a device block's shared memory for Head (window_kernel.cuh), and for
// the rest: together those of compute capability 9.0.
inline constexpr int64_t kHeadBytes = 1024;
inline constexpr int64_t kMaxTeamBytes = 227 * 1024 - kHeadBytes;

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_WINDOW_TUNING_H_
