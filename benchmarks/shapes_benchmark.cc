// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Times products with S and the blocks of the normal equations for rows of
// several shapes on a device.
//
//   shapes_benchmark [images [observations]]      default 1000 5000000
//
// Points are seen by images that are near each other, values are random. Each
// line: median of kRuns runs between events; GB that must be read or written
// once (values, 4 B per block of a row, Vi and vectors); and how many times as
// long that is as a copy of so many bytes in the same run.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/general_batch.h"
#include "ceres_ext/solver/linear_operator.h"
#include "ceres_ext/solver/observation_batch.h"
#include "ceres_ext/solver/view_batch.h"
#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/ops/vectors.h"
#include "cuda_kernels/structure/block_rows.h"
#include "cuda_kernels/structure/row_index.h"
#include "cuda_kernels/structure/views.h"

namespace ceres_ext {
namespace {

using kernels::CudaMachine;
using kernels::Status;

constexpr int kRuns = 9;

#define OK_OR_EXIT(expression)                                                 \
  do {                                                                         \
    const Status status_ = (expression);                                       \
    if (!status_.ok()) {                                                       \
      std::fprintf(                                                            \
          stderr, "%s:%d: %s\n", __FILE__, __LINE__, status_.message.c_str()); \
      std::exit(1);                                                            \
    }                                                                          \
  } while (false)

template <typename T>
using Buffer = CudaMachine::Buffer<T>;

struct Pairs {
  int32_t num_images = 0;
  int32_t num_points = 0;
  std::vector<int32_t> image;
  std::vector<int32_t> point;
};

// Tracks of 2 to 12 images among the 24 that follow the first.
Pairs MakePairs(int32_t num_images, int64_t num_observations) {
  Pairs pairs;
  pairs.num_images = num_images;
  std::mt19937 random(3);
  while (static_cast<int64_t>(pairs.image.size()) < num_observations) {
    const int32_t point = pairs.num_points++;
    const int32_t first = static_cast<int32_t>(random() % num_images);
    const int length = 2 + static_cast<int>(random() % 11);
    int32_t image = first;
    for (int i = 0; i < length; ++i) {
      pairs.image.push_back(image % num_images);
      pairs.point.push_back(point);
      image += 1 + static_cast<int32_t>(random() % 2);
    }
  }
  return pairs;
}

// A block of a row: its size, and whether all images share one.
struct Slot {
  int size;
  bool is_shared;
};

class Benchmark {
 public:
  Benchmark(int32_t num_images, int64_t num_observations)
      : pairs_(MakePairs(num_images, num_observations)) {
    OK_OR_EXIT(CudaMachine::Create({}, &machine_));
    std::printf("%s, %d images, %d points, %zu observations\n",
                machine_->context()->device_name().c_str(),
                pairs_.num_images,
                pairs_.num_points,
                pairs_.image.size());
    MeasureCopy();
  }

  void MeasureAll() {
    MeasureObservations();
    MeasureViews<double, 10>("6 + 4 shared", {{6, false}, {4, true}});
    MeasureViews<float, 10>("6 + 4 shared", {{6, false}, {4, true}});
    MeasureViews<double, 9>("6 + 3", {{6, false}, {3, false}});
    MeasureGeneral("6 + 4 shared", {{6, false}, {4, true}});
    MeasureGeneral("6 + 8 shared", {{6, false}, {8, true}});
    MeasureGeneral("3 + 3 + 4 shared", {{3, false}, {3, false}, {4, true}});
    MeasureGeneral("6 + 4", {{6, false}, {4, false}});
    MeasureGeneral("9", {{9, false}});
  }

 private:
  std::vector<double> Random(int64_t n) {
    std::vector<double> values(n);
    // Cheap: 130 million of them are asked for.
    uint64_t state = 88172645463325252ull;
    for (double& value : values) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      value = static_cast<double>(state >> 11) * 0x1p-52 - 1.0;
    }
    return values;
  }
  double* Upload(const std::vector<double>& values) {
    buffers_.emplace_back();
    OK_OR_EXIT(machine_->Upload(
        static_cast<int64_t>(values.size()), values.data(), &buffers_.back()));
    return buffers_.back().data();
  }

  template <typename Function>
  double Median(Function&& run) {
    std::vector<double> seconds;
    for (int i = 0; i < kRuns + 2; ++i) {
      OK_OR_EXIT(machine_->RecordMark(4));
      OK_OR_EXIT(run());
      OK_OR_EXIT(machine_->RecordMark(5));
      OK_OR_EXIT(machine_->Synchronize());
      if (i >= 2) {
        seconds.push_back(machine_->SecondsBetweenMarks(4, 5));
      }
    }
    std::sort(seconds.begin(), seconds.end());
    return 1e3 * seconds[kRuns / 2];
  }

  void MeasureCopy() {
    const int64_t n = int64_t{1} << 28;
    Buffer<double> from;
    Buffer<double> to;
    OK_OR_EXIT(machine_->Allocate(n, &from));
    OK_OR_EXIT(machine_->Allocate(n, &to));
    const double ms = Median([&] {
      return Run(kernels::CopyParams{n, from.data(), to.data()},
                 machine_.get());
    });
    rate_ = 16.0 * static_cast<double>(n) / (1e-3 * ms);
    std::printf("copy: %.3f TB/s\n", 1e-12 * rate_);
  }

  void Print(const std::string& name, double ms, double bytes) {
    std::printf("%-44s %8.3f ms %7.3f GB %6.2f x\n",
                name.c_str(),
                ms,
                1e-9 * bytes,
                1e-3 * ms * rate_ / bytes);
    std::fflush(stdout);
  }

  // Products with S and what is formed before, of all batches. row_bytes: what
  // the rows take.
  void Measure(const std::string& name,
               const solver::ProblemBlocks& blocks,
               const std::vector<solver::Batch*>& batches,
               double row_bytes) {
    int64_t num_residuals = 0;
    for (const solver::Batch* batch : batches) {
      num_residuals += batch->num_residuals();
    }
    solver::LinearSystem system;
    system.b = Upload(Random(num_residuals));
    system.e_diagonal = Upload(std::vector<double>(blocks.e.num_values(), 0.7));
    system.f_diagonal = Upload(std::vector<double>(blocks.f.num_values(), 0.7));
    const int64_t num_f = blocks.f.num_values();
    const double e_bytes =
        8.0 * (blocks.e.num_packed()) + 8.0 * blocks.e[0].num_blocks;
    double* const p = Upload(Random(num_f));
    double* const q = Upload(Random(num_f));
    double* const diagonal = Upload(Random(blocks.f.num_packed()));
    solver::InexactSolverOptions options;
    solver::SchurComplement<CudaMachine> schur;
    OK_OR_EXIT(schur.Setup(options, blocks, batches, machine_.get()));
    solver::DiagonalBlocks wanted;
    wanted.schur_diagonal = diagonal;
    const double blocks_ms =
        Median([&] { return schur.Update(system, wanted, q); });
    Print(name + ", V, rhs, S_c",
          blocks_ms,
          row_bytes + 2.0 * e_bytes + 8.0 * num_residuals +
              8.0 * blocks.f.num_packed());
    const double ms = Median([&] { return schur.Multiply(p, q, nullptr); });
    Print(name + ", S p", ms, row_bytes + e_bytes + 24.0 * num_f);
  }

  // Stored observations of nine columns, with a prior on each image, on one,
  // and without.
  void MeasureObservations() {
    using Source = kernels::
        StoredJacobian<double, kernels::BalShape<9>, CudaMachine::kLayout>;
    const int64_t n = static_cast<int64_t>(pairs_.image.size());
    kernels::RowIndex<CudaMachine> index;
    OK_OR_EXIT(index.Setup(pairs_.num_images,
                           pairs_.num_points,
                           n,
                           pairs_.image.data(),
                           pairs_.point.data(),
                           {},
                           nullptr,
                           machine_.get()));
    const double* camera_blocks = Upload(Random(18 * n));
    const double* point_blocks = Upload(Random(6 * n));
    for (const int num_priors : {0, 1, pairs_.num_images}) {
      solver::ProblemBlocks blocks;
      blocks.e.Add(3, pairs_.num_points);
      blocks.f.Add(9, pairs_.num_images);
      blocks.e_owner = {0};
      blocks.f_owner = {0};
      solver::ObservationBatch<CudaMachine, Source> batch;
      batch.Setup(index.view(), 0, 0, machine_.get());
      OK_OR_EXIT(batch.SetBlocks(blocks));
      batch.SetJacobian({{camera_blocks, n}, {point_blocks, n}});
      kernels::BlockRowsBuilder builder(blocks.e, blocks.f);
      for (int i = 0; i < num_priors; ++i) {
        builder.AddRow(9);
        builder.AddCell({false, 0, i, 9});
      }
      OK_OR_EXIT(builder.Build());
      kernels::BlockRows<CudaMachine> rows;
      OK_OR_EXIT(rows.Setup(builder, machine_.get()));
      solver::GeneralBatch<CudaMachine> priors;
      OK_OR_EXIT(priors.Setup(
          &rows, blocks, Upload(Random(builder.num_values())), machine_.get()));
      std::vector<solver::Batch*> batches = {&batch};
      if (num_priors > 0) {
        batches.push_back(&priors);
      }
      Measure("9 observations, " + std::to_string(num_priors) + " priors",
              blocks,
              batches,
              (8.0 * 24 + 8.0) * n + 8.0 * builder.num_values());
    }
    buffers_.clear();
  }

  // Rows of views, in T.
  template <typename T, int C>
  void MeasureViews(const std::string& name, const std::vector<Slot>& slots) {
    using Source =
        kernels::StoredJacobian<T, kernels::BalShape<C>, CudaMachine::kLayout>;
    const int64_t n = static_cast<int64_t>(pairs_.image.size());
    kernels::RowIndex<CudaMachine> index;
    OK_OR_EXIT(index.Setup(pairs_.num_images,
                           pairs_.num_points,
                           n,
                           pairs_.image.data(),
                           pairs_.point.data(),
                           {},
                           nullptr,
                           machine_.get()));
    solver::ProblemBlocks blocks;
    blocks.e.Add(3, pairs_.num_points);
    blocks.e_owner = {0};
    std::vector<std::vector<kernels::ViewCell>> cells(pairs_.num_images);
    for (const Slot& slot : slots) {
      const int f =
          blocks.f.Add(slot.size, slot.is_shared ? 1 : pairs_.num_images);
      blocks.f_owner.push_back(solver::ProblemBlocks::kShared);
      for (int v = 0; v < pairs_.num_images; ++v) {
        cells[v].push_back({f, slot.is_shared ? 0 : v, slot.size});
      }
    }
    std::vector<int32_t> view(n);
    std::vector<int32_t> point(n);
    OK_OR_EXIT(machine_->Download(n, index.view().camera_id, view.data()));
    OK_OR_EXIT(machine_->Download(n, index.view().point_id, point.data()));
    kernels::Views<CudaMachine> views;
    OK_OR_EXIT(views.Setup(blocks.f,
                           C,
                           cells,
                           view,
                           std::vector<int64_t>(point.begin(), point.end()),
                           machine_.get()));
    Buffer<T> f;
    Buffer<T> e;
    const std::vector<double> values = Random(2 * C * n);
    const std::vector<T> in_t(values.begin(), values.end());
    OK_OR_EXIT(machine_->Upload(2 * C * n, in_t.data(), &f));
    OK_OR_EXIT(machine_->Upload(6 * n, in_t.data(), &e));
    solver::ViewBatch<CudaMachine, Source> batch;
    OK_OR_EXIT(batch.Setup(index.view(),
                           &views,
                           0,
                           blocks,
                           Source{{f.data(), n}, {e.data(), n}},
                           machine_.get()));
    Measure("views of 3, " + name + (sizeof(T) == 4 ? ", float" : ""),
            blocks,
            {&batch},
            static_cast<double>(sizeof(T)) * (2 * C + 6) * n + 8.0 * n);
    buffers_.clear();
  }

  void MeasureGeneral(const std::string& name, const std::vector<Slot>& slots) {
    const int64_t n = static_cast<int64_t>(pairs_.image.size());
    solver::ProblemBlocks blocks;
    blocks.e.Add(3, pairs_.num_points);
    blocks.e_owner = {solver::ProblemBlocks::kShared};
    for (const Slot& slot : slots) {
      blocks.f.Add(slot.size, slot.is_shared ? 1 : pairs_.num_images);
      blocks.f_owner.push_back(solver::ProblemBlocks::kShared);
    }
    kernels::BlockRowsBuilder builder(blocks.e, blocks.f);
    builder.Reserve(n, n * static_cast<int64_t>(slots.size() + 1));
    for (int64_t k = 0; k < n; ++k) {
      builder.AddRow(2);
      builder.AddCell({true, 0, pairs_.point[k], 3});
      for (size_t s = 0; s < slots.size(); ++s) {
        builder.AddCell({false,
                         static_cast<int32_t>(s),
                         slots[s].is_shared ? 0 : pairs_.image[k],
                         slots[s].size});
      }
    }
    OK_OR_EXIT(builder.Build());
    kernels::BlockRows<CudaMachine> rows;
    OK_OR_EXIT(rows.Setup(builder, machine_.get()));
    solver::GeneralBatch<CudaMachine> batch;
    OK_OR_EXIT(batch.Setup(
        &rows, blocks, Upload(Random(builder.num_values())), machine_.get()));
    Measure("general 3, " + name,
            blocks,
            {&batch},
            8.0 * builder.num_values() +
                4.0 * (slots.size() + 1) * static_cast<double>(n));
    buffers_.clear();
  }

  Pairs pairs_;
  std::unique_ptr<CudaMachine> machine_;
  std::vector<Buffer<double>> buffers_;
  double rate_ = 0.0;
};

}  // namespace
}  // namespace ceres_ext

int main(int argc, char** argv) {
  std::string why_none;
  if (ceres_ext::kernels::NumCudaDevices(&why_none) == 0) {
    std::printf("skipped: no CUDA device (%s)\n", why_none.c_str());
    return 0;
  }
  const int images = argc > 1 ? std::atoi(argv[1]) : 1000;
  const long long observations = argc > 2 ? std::atoll(argv[2]) : 5000000;
  if (images < 30 || observations < 1 || observations > 100000000) {
    std::fprintf(stderr,
                 "At least 30 images and 1 to 100000000 observations were "
                 "expected, not %s and %s.\n",
                 argv[1],
                 argc > 2 ? argv[2] : "5000000");
    return 2;
  }
  ceres_ext::Benchmark(images, observations).MeasureAll();
  return 0;
}
