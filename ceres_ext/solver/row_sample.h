// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// All rows of some points, so that each camera has a few: enough for what needs
// the geometry of a scene and not its weights.
#ifndef CERES_EXT_SOLVER_ROW_SAMPLE_H_
#define CERES_EXT_SOLVER_ROW_SAMPLE_H_

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "ceres_ext/solver/preconditioner/clusters.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_context.h"
#include "cuda_kernels/ops/coarse_rows.h"
#include "cuda_kernels/structure/observation_index.h"

namespace ceres_ext::solver {

// Rows that each camera has in a sample at least: fewer where there are many
// cameras.
inline int32_t NumSampledRows(int32_t num_cameras) {
  constexpr int32_t kInAll = 1 << 18;
  constexpr int32_t kLeast = 16;
  constexpr int32_t kMost = 128;
  return std::clamp(kInAll / std::max(num_cameras, 1), kLeast, kMost);
}

// In host memory.
struct RowSample {
  std::vector<int32_t> point;      // ascending
  std::vector<int64_t> row_begin;  // of each point in row, and the end
  std::vector<int32_t> row;        // the place in the index
  std::vector<int32_t> camera;     // of each row
  // The places in `point` of per_camera points of each camera; -1 if it has
  // fewer rows.
  int32_t per_camera = 0;
  std::vector<int32_t> of_camera;
};

// *points: those of *chosen, which is -1 or a point, ascending. *chosen becomes
// their places there.
inline void ListChosenPoints(int32_t num_points,
                             std::vector<int32_t>* chosen,
                             std::vector<int32_t>* points) {
  constexpr int32_t kBits = 64;
  using Word = std::bitset<kBits>;
  // A few bits a point stay in caches.
  std::vector<Word> words(static_cast<size_t>(num_points / kBits) + 1);
  for (const int32_t point : *chosen) {
    if (point >= 0) {
      words[point / kBits].set(static_cast<size_t>(point % kBits));
    }
  }
  points->clear();
  std::vector<int32_t> before(words.size());
  for (size_t w = 0; w < words.size(); ++w) {
    before[w] = static_cast<int32_t>(points->size());
    for (int32_t bit = 0; words[w].any() && bit < kBits; ++bit) {
      if (words[w][static_cast<size_t>(bit)]) {
        points->push_back(kBits * static_cast<int32_t>(w) + bit);
      }
    }
  }
  for (int32_t& point : *chosen) {
    if (point >= 0) {
      const auto bit = static_cast<size_t>(point % kBits);
      const Word lower = words[point / kBits] << (kBits - bit);
      point = before[point / kBits] + static_cast<int32_t>(lower.count());
    }
  }
}

// *sample: at least per_camera rows of each camera, or all that it has.
template <typename Machine>
kernels::Status SampleRows(const kernels::ObservationIndexRef& index,
                           int32_t per_camera,
                           Machine* machine,
                           RowSample* sample) {
  const int64_t num_chosen = int64_t{per_camera} * index.num_cameras;
  sample->per_camera = per_camera;
  sample->of_camera.resize(static_cast<size_t>(num_chosen));
  {
    typename Machine::template Buffer<int32_t> point;
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_chosen, &point));
    CERES_EXT_RETURN_IF_ERROR(Run(
        kernels::SamplePointsParams{
            index.num_cameras, per_camera, index, point.data()},
        machine));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Download(num_chosen, point.data(), sample->of_camera.data()));
  }
  ListChosenPoints(index.num_points, &sample->of_camera, &sample->point);
  const std::vector<int32_t>& points = sample->point;
  const auto num_points = static_cast<int64_t>(points.size());
  std::vector<int64_t> begin(points.size());
  std::vector<int32_t> num_rows(points.size());
  {
    typename Machine::template Buffer<int32_t> point;
    typename Machine::template Buffer<int64_t> begins;
    typename Machine::template Buffer<int32_t> counts;
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(points, &point));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_points, &begins));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_points, &counts));
    CERES_EXT_RETURN_IF_ERROR(Run(
        kernels::PointRangesParams{
            num_points, index, point.data(), begins.data(), counts.data()},
        machine));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Download(num_points, begins.data(), begin.data()));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Download(num_points, counts.data(), num_rows.data()));
  }
  sample->row_begin.assign(1, 0);
  for (const int32_t n : num_rows) {
    sample->row_begin.push_back(sample->row_begin.back() + n);
  }
  sample->row.resize(static_cast<size_t>(sample->row_begin.back()));
  for (size_t i = 0; i < points.size(); ++i) {
    for (int32_t k = 0; k < num_rows[i]; ++k) {
      sample->row[sample->row_begin[i] + k] =
          static_cast<int32_t>(begin[i]) + k;
    }
  }
  const auto n = static_cast<int64_t>(sample->row.size());
  sample->camera.resize(sample->row.size());
  typename Machine::template Buffer<int32_t> row;
  typename Machine::template Buffer<int32_t> camera;
  CERES_EXT_RETURN_IF_ERROR(machine->Upload(sample->row, &row));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(n, &camera));
  CERES_EXT_RETURN_IF_ERROR(Run(
      kernels::GatherIdsParams{n, row.data(), index.camera_id, camera.data()},
      machine));
  return machine->Download(n, camera.data(), sample->camera.data());
}

// *couplings: of the cameras of an index, the strongest of each, by
//   sum over common points of 1 / (observations of the point - 1)
// of a sample; of a point of more than kMostRows only some observations, evenly
// spaced, are looked at.
template <typename Machine>
kernels::Status ListSampledCouplings(const kernels::ObservationIndexRef& index,
                                     const RowSample& sample,
                                     kernels::HostContext* context,
                                     Machine* machine,
                                     std::vector<Coupling>* couplings) {
  constexpr size_t kStrongest = 8;
  constexpr int64_t kMostRows = 1 << 11;
  std::vector<int64_t> num_rows(static_cast<size_t>(index.num_cameras) + 1);
  CERES_EXT_RETURN_IF_ERROR(machine->Download(
      int64_t{index.num_cameras} + 1, index.camera_begin, num_rows.data()));
  std::vector<std::vector<Coupling>> of_camera(
      static_cast<size_t>(index.num_cameras));
  context->ParallelFor(
      index.num_cameras, /*grain=*/64, [&](int64_t begin, int64_t end) {
        std::vector<double> weight(of_camera.size(), 0.0);
        std::vector<int32_t> seen;
        for (int64_t c = begin; c < end; ++c) {
          int32_t taken = 0;
          seen.clear();
          for (int32_t i = 0; i < sample.per_camera; ++i) {
            const int32_t at = sample.of_camera[sample.per_camera * c + i];
            if (at < 0) {
              break;
            }
            ++taken;
            const int64_t first = sample.row_begin[at];
            const int64_t last = sample.row_begin[at + 1];
            const int64_t every = (last - first + kMostRows - 1) / kMostRows;
            for (int64_t k = first; k < last; k += every) {
              const int32_t other = sample.camera[k];
              if (weight[other] == 0.0) {
                seen.push_back(other);
              }
              weight[other] += 1.0 / static_cast<double>(std::max(
                                         last - first - 1, int64_t{1}));
            }
          }
          const double scale =
              static_cast<double>(num_rows[c + 1] - num_rows[c]) /
              std::max(taken, 1);
          std::vector<Coupling>& list = of_camera[c];
          for (const int32_t other : seen) {
            if (other != c) {
              list.push_back({std::min(static_cast<int32_t>(c), other),
                              std::max(static_cast<int32_t>(c), other),
                              scale * weight[other]});
            }
            weight[other] = 0.0;
          }
          const size_t num_kept = std::min(list.size(), kStrongest);
          std::partial_sort(
              list.begin(),
              list.begin() + static_cast<std::ptrdiff_t>(num_kept),
              list.end(),
              [](const Coupling& a, const Coupling& b) {
                // If all see the same points, cameras of near numbers, so
                // that not all have the same neighbours.
                return std::make_tuple(-a.weight, a.j - a.i, a.i) <
                       std::make_tuple(-b.weight, b.j - b.i, b.i);
              });
          list.resize(num_kept);
        }
      });
  couplings->clear();
  for (const std::vector<Coupling>& list : of_camera) {
    couplings->insert(couplings->end(), list.begin(), list.end());
  }
  return {};
}

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_ROW_SAMPLE_H_
