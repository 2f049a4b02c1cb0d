// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/window/window_bounds.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "ceres_ext/small/window/window.h"
#include "ceres_ext/small/window/window_arena.h"
#include "ceres_ext/small/window/window_cuda.h"
#include "ceres_ext/small/window/window_rows.h"

namespace ceres_ext {
namespace {

constexpr int kCameraSize = kOwnCameraSize;  // the largest
constexpr int kColumns = 10;

int32_t Clamp(int64_t n) {
  return static_cast<int32_t>(
      std::min<int64_t>(n, std::numeric_limits<int32_t>::max() / 2));
}

std::string Exceeds(int64_t i, int64_t n, const char* what, int64_t capacity) {
  return "problem " + std::to_string(i) + " has " + std::to_string(n) + " " +
         what + ", but the capacity is " + std::to_string(capacity);
}

}  // namespace

WindowBounds::WindowBounds(const WindowCapacity& capacity)
    : num_problems(capacity.num_problems),
      scratch_per_multiprocessor(0),
      shared_scratch(0) {
  WindowCounts counts;
  counts.num_cameras = Clamp(capacity.num_cameras);
  counts.num_points = Clamp(capacity.num_points);
  counts.num_rows = Clamp(capacity.num_rows);
  counts.num_chunks = counts.num_points;
  counts.num_intrinsics = counts.num_cameras;
  counts.num_scales = counts.num_rows;
  counts.num_priors = Clamp(capacity.num_priors);
  // The most values if one prior has all poses and rows, which is also the most
  // of several.
  WindowMarginal marginal;
  marginal.num_poses = Clamp(capacity.num_marginal_poses);
  marginal.num_rows = Clamp(capacity.num_marginal_rows);
  counts.num_marginals = std::min(marginal.num_poses, marginal.num_rows);
  counts.num_marginal_poses = marginal.num_poses;
  counts.num_marginal_rows = marginal.num_rows;
  counts.num_marginal_values =
      static_cast<int32_t>(std::min(marginal.num_values(), kLargestWindow));
  counts.has_bounds = 1;
  // Includes paddings of constant blocks, as in WindowPacker.
  bytes.inputs = num_problems *
                 (64 + WindowInput(kCameraSize, counts, true, true).num_bytes);
  bytes.outputs = num_problems * WindowOutput(kCameraSize, counts).num_bytes;
  // S moves to main memory first if one point has as many rows as possible.
  const int degree = std::min(counts.num_rows, kMaxChunkRows);
  host_size = 0;
  // The largest window for each number of threads of a block (WindowClass).
  for (const WindowClass& of_class : kWindowClasses) {
    WindowCounts varying = counts;
    varying.num_cameras = std::min(of_class.max_cameras, counts.num_cameras);
    varying.num_constant_cameras = counts.num_cameras;
    const ChunkSize chunk = ChooseChunks(kColumns, varying.num_cameras, degree);
    varying.chunk_rows = chunk.rows;
    varying.chunk_words = static_cast<int16_t>(chunk.words);
    const auto size = [&](bool is_shared) {
      return WindowScratch(
                 kCameraSize, kColumns, varying, chunk.has_schur, is_shared)
          .size;
    };
    const int64_t scratch = size(false);
    // The rows of a chunk depend on the degree: `least` is the chunk of degree
    // 1. Two chunks next to each other have more rows, or more points, than one
    // has room for.
    const ChunkSize least = ChooseChunks(kColumns, varying.num_cameras, 1);
    varying.num_chunks =
        std::min(varying.num_points,
                 1 + 2 * (varying.num_rows /
                              std::max(1, std::min(chunk.rows, least.rows)) +
                          varying.num_points / kWordPoints));
    shared_scratch = std::max(shared_scratch, size(true));
    host_size =
        std::max(host_size,
                 scratch + kMaxTeamBytes / 8 +
                     int64_t{WindowRowSize(kColumns)} * varying.num_rows);
    scratch_per_multiprocessor = std::max(
        scratch_per_multiprocessor,
        scratch * (512 / WindowClassOf(varying.num_cameras).num_threads));
  }
}

std::string WhyTooLarge(const ProblemBatch& batch,
                        const WindowCapacity& capacity) {
  if (batch.num_problems > capacity.num_problems) {
    return "the batch has " + std::to_string(batch.num_problems) +
           " problems, but the capacity is " +
           std::to_string(capacity.num_problems);
  }
  const auto& residuals = batch.problem.residuals();
  std::vector<const WindowRows*> rows_of_array;
  std::vector<int> num_residuals;  // of a residual block
  for (const ArrayProblem::Residuals& of_array : residuals) {
    const bool is_empty = of_array.num_blocks == 0;
    rows_of_array.push_back(is_empty ? nullptr : FindWindowRows(of_array));
    std::unique_ptr<const ceres::CostFunction> owner;
    num_residuals.push_back(
        rows_of_array.back() == nullptr
            ? 0
            : FirstCostFunction(of_array, &owner)->num_residuals());
  }
  for (int64_t i = 0; i < batch.num_problems; ++i) {
    const auto count = [i](const int64_t* begin) {
      return begin[i + 1] - begin[i];
    };
    int64_t num_rows = 0;
    int64_t num_priors = 0;
    int64_t num_marginal_poses = 0;
    int64_t num_marginal_rows = 0;
    for (size_t r = 0; r < residuals.size(); ++r) {
      const WindowRows* const rows = rows_of_array[r];
      const bool is_prior = rows != nullptr && !rows->has_point();
      const int64_t num_blocks = count(batch.residual_begin[r]);
      const auto& blocks = residuals[r].blocks;
      if (is_prior && rows->kind == WindowRowKind::kMarginal) {
        num_marginal_poses += num_blocks * static_cast<int64_t>(blocks.size());
        num_marginal_rows += num_blocks * num_residuals[r];
      } else {
        (is_prior ? num_priors : num_rows) += num_blocks;
      }
      // Other residual blocks of two blocks may be those of a fit.
      if (rows == nullptr && blocks.size() != 2) {
        continue;
      }
      const int64_t num_cameras = count(
          batch.parameter_begin
              [blocks[rows != nullptr ? rows->camera_block() : 0].parameters]);
      const int64_t num_points =
          is_prior
              ? 0
              : count(batch.parameter_begin
                          [blocks[rows != nullptr ? rows->point_block() : 1]
                               .parameters]);
      if (num_cameras > capacity.num_cameras) {
        return Exceeds(i, num_cameras, "cameras", capacity.num_cameras);
      }
      if (num_points > capacity.num_points) {
        return Exceeds(i, num_points, "points", capacity.num_points);
      }
    }
    if (num_priors > capacity.num_priors) {
      return Exceeds(i, num_priors, "priors", capacity.num_priors);
    }
    if (num_marginal_poses > capacity.num_marginal_poses) {
      return Exceeds(i,
                     num_marginal_poses,
                     "poses of marginal priors",
                     capacity.num_marginal_poses);
    }
    if (num_marginal_rows > capacity.num_marginal_rows) {
      return Exceeds(i,
                     num_marginal_rows,
                     "residuals of marginal priors",
                     capacity.num_marginal_rows);
    }
    if (num_rows > capacity.num_rows) {
      return Exceeds(i, num_rows, "residual blocks", capacity.num_rows);
    }
  }
  return "";
}

bool IsValidCapacity(const WindowCapacity& capacity, std::string* error) {
  // The same limit holds for the problems.
  constexpr int64_t kMost = kLargestWindow;
  const auto is_valid =
      [error](const char* name, int64_t n, int64_t most, int64_t least = 1) {
        if (n < least || n > most) {
          *error = std::string("WindowCapacity::") + name + " is " +
                   std::to_string(n) + ", expected " + std::to_string(least) +
                   " to " + std::to_string(most);
        }
        return n >= least && n <= most;
      };
  return is_valid("num_cameras", capacity.num_cameras, kMost) &&
         is_valid("num_points", capacity.num_points, kMost) &&
         is_valid("num_rows", capacity.num_rows, kMost) &&
         is_valid("num_priors", capacity.num_priors, kMost, 0) &&
         is_valid(
             "num_marginal_poses", capacity.num_marginal_poses, kMost, 0) &&
         is_valid("num_marginal_rows", capacity.num_marginal_rows, kMost, 0) &&
         is_valid("num_problems", capacity.num_problems, kMost) &&
         is_valid("num_submissions", capacity.num_submissions, 1024);
}

}  // namespace ceres_ext
