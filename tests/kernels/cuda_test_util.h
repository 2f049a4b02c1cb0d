// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Problems and comparisons for the tests of the device bodies.
#ifndef CERES_EXT_TESTS_KERNELS_CUDA_TEST_UTIL_H_
#define CERES_EXT_TESTS_KERNELS_CUDA_TEST_UTIL_H_

#if defined(CERES_EXT_TEST_ON_CUDA) && !defined(CERES_EXT_EMULATED)
#include <cuda_runtime.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/base/vector_sums.h"
#include "cuda_kernels/machine/cuda_context.h"
#include "cuda_kernels/machine/cuda_launch_buffer.h"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/machine/device_buffer.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/ops/evaluate.h"
#include "cuda_kernels/ops/jacobian_products.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/ops/schur_products.h"
#include "cuda_kernels/structure/cuda_observation_index.h"
#include "cuda_kernels/structure/cuda_workspace.h"
#include "cuda_kernels/structure/host_workspace.h"
#include "cuda_kernels/structure/observation_index.h"
#include "gtest/gtest.h"
#include "tests/kernels/random_vector.h"
#include "tests/kernels/run_ok.h"
#include "tests/kernels/running_error.h"
#include "tests/kernels/structures.h"

namespace ceres_ext::kernels {

#define ASSERT_OK(expression)                                \
  do {                                                       \
    const ::ceres_ext::kernels::Status status_ = expression; \
    ASSERT_TRUE(status_.ok()) << status_.message;            \
  } while (false)

// Pairs in random order. Point i has lengths[i % size] observations at first;
// then come the edges: repeated pairs, a camera (number 1) that sees every
// point with observations, a camera (the last) and points without any. The
// other cameras of a point are drawn from as many in a row as it has
// observations, but from least_spread at least.
inline Structure MakePairs(int32_t num_cameras,
                           int32_t num_points,
                           const std::vector<int>& lengths,
                           unsigned seed,
                           int32_t least_spread = 6) {
  Structure list{"", num_cameras, num_points, {}, {}};
  std::mt19937 random(seed);
  std::vector<std::pair<int32_t, int32_t>> pairs;
  for (int32_t p = 0; p < num_points; ++p) {
    const int length = lengths[static_cast<size_t>(p) % lengths.size()];
    if (length == 0) {
      continue;
    }
    pairs.emplace_back(1, p);
    // Cameras near the point's place, so that tiles have cameras in common.
    for (int i = 1; i < length; ++i) {
      const int32_t spread = std::max<int32_t>(length, least_spread);
      const int32_t base =
          static_cast<int32_t>(int64_t{p} * (num_cameras - 1) / num_points);
      pairs.emplace_back(
          static_cast<int32_t>(
              (base +
               static_cast<int32_t>(random() % static_cast<unsigned>(spread))) %
              (num_cameras - 1)),
          p);
    }
  }
  std::shuffle(pairs.begin(), pairs.end(), random);
  for (const auto& [camera, point] : pairs) {
    list.Add(camera, point);
  }
  return list;
}

// Tracks of the lengths at which warps, tiles and kLongTrack change.
inline Structure MakeEdgePairs() {
  return MakePairs(
      40, 260, {2, 3, 0, 1, 5, 31, 32, 33, 2, 4, 64, 65, 70, 3, 0, 2}, 3);
}
// Points with more observations than a tile of either form holds.
inline Structure MakeLongPairs() {
  return MakePairs(120, 12, {3, 1700, 2, 300, 0, 5}, 5);
}

// Cameras on a ring looking at points near the origin: all depths negative.
inline void MakeScene(const Structure& pairs,
                      unsigned seed,
                      std::vector<double>* cameras,
                      std::vector<double>* points,
                      std::vector<double>* observations) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  cameras->resize(static_cast<size_t>(pairs.num_cameras) * 9);
  for (int c = 0; c < pairs.num_cameras; ++c) {
    double* x = cameras->data() + 9 * c;
    for (int i = 0; i < 3; ++i) {
      x[i] = 0.3 * normal(random);
      x[3 + i] = 0.2 * normal(random);
    }
    x[5] -= 9.0;
    x[6] = 1.0 + 0.1 * normal(random);
    x[7] = -0.1 + 0.02 * normal(random);
    x[8] = 0.02 * normal(random);
  }
  points->resize(static_cast<size_t>(pairs.num_points) * 3);
  for (double& x : *points) {
    x = normal(random);
  }
  observations->resize(2 * pairs.camera.size());
  for (double& x : *observations) {
    x = 0.1 * normal(random);
  }
}

// Block arrays between the layouts.
template <typename To, typename From>
std::vector<To> ToDeviceLayout(const std::vector<From>& host, int block_size) {
  const size_t n = host.size() / static_cast<size_t>(block_size);
  std::vector<To> device(host.size());
  for (size_t b = 0; b < n; ++b) {
    for (size_t e = 0; e < static_cast<size_t>(block_size); ++e) {
      device[e * n + b] =
          static_cast<To>(host[b * static_cast<size_t>(block_size) + e]);
    }
  }
  return device;
}
template <typename T>
std::vector<double> ToHostLayout(const std::vector<T>& device, int block_size) {
  const size_t n = device.size() / static_cast<size_t>(block_size);
  std::vector<double> host(device.size());
  for (size_t b = 0; b < n; ++b) {
    for (size_t e = 0; e < static_cast<size_t>(block_size); ++e) {
      host[b * static_cast<size_t>(block_size) + e] =
          static_cast<double>(device[e * n + b]);
    }
  }
  return host;
}

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() ||
          std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// The arrays of a test that runs work in every way in which a machine does.
template <typename Memory>
class RepeatingTest : public Memory {
 protected:
  // An output of block_size values per block; what it is before the operation,
  // or poisoned.
  struct Output {
    int64_t size;
    int block_size = 1;
    const std::vector<double>* before = nullptr;
  };

  // Runs fn, which queues work that writes `outputs`, in each of the machine's
  // ways; the bits must agree. Returns the outputs in host layout.
  template <typename Function>
  std::vector<std::vector<double>> Repeat(const std::vector<Output>& outputs,
                                          Function&& fn) {
    std::vector<std::vector<double>> result;
    std::vector<std::vector<double>> first;
    for (int run = 0; run < Memory::kNumRuns; ++run) {
      std::vector<typename Memory::template Buffer<double>> buffers;
      std::vector<double*> pointers;
      for (const Output& output : outputs) {
        buffers.push_back(output.before == nullptr
                              ? this->template Poisoned<double>(output.size)
                              : this->Upload(*output.before));
        pointers.push_back(buffers.back().data());
      }
      const Status status = this->RunInWay(run, [&] { return fn(pointers); });
      EXPECT_TRUE(status.ok()) << status.message;
      for (size_t i = 0; i < outputs.size(); ++i) {
        const std::vector<double> values = this->Download(buffers[i]);
        if (run == 0) {
          first.push_back(values);
          result.push_back(Memory::kLayout == kHostLayout
                               ? values
                               : ToHostLayout(values, outputs[i].block_size));
        } else {
          EXPECT_TRUE(SameBits(values, first[i]))
              << "output " << i << ", run " << run;
        }
      }
    }
    return result;
  }
};

// The device, or a skip.
class CudaMemoryTest : public ::testing::Test {
 protected:
  static constexpr BlockLayout kLayout = kDeviceLayout;
  template <typename T>
  using Buffer = DeviceBuffer<T>;

  void SetUp() override {
    std::string why_none;
    if (NumCudaDevices(&why_none) == 0) {
      GTEST_SKIP() << "skipped: no CUDA device (" << why_none << ")";
    }
    SetUpMachine({});
  }
  void TearDown() override {
    if (machine_ != nullptr) {
      // Zero between kernels.
      int32_t ticket = -1;
      EXPECT_TRUE(machine_->Download(1, machine_->sum_ticket(), &ticket).ok());
      EXPECT_EQ(ticket, 0);
    }
  }

  // A machine on a context, with poisoned scratch; in place of those before.
  void SetUpMachine(const CudaContextOptions& options) {
    machine_.reset();
    ASSERT_OK(CudaContext::Create(options, &context_));
    machine_ = std::make_unique<CudaMachine>();
    ASSERT_OK(machine_->Setup(context_.get()));
    ASSERT_OK(context_->SetBytes(
        machine_->sum_partial(), 0xff, 2 * kMaxSumBlocks * sizeof(double)));
    ASSERT_OK(context_->SetBytes(machine_->flag(), 0xff, sizeof(int32_t)));
  }

  template <typename T>
  DeviceBuffer<T> Upload(const std::vector<T>& host) {
    DeviceBuffer<T> buffer;
    const Status status = buffer.Assign(context_.get(), host);
    EXPECT_TRUE(status.ok()) << status.message;
    return buffer;
  }
  // Poisoned: every byte 0xff, NaN for floating point.
  template <typename T>
  DeviceBuffer<T> Poisoned(int64_t n) {
    DeviceBuffer<T> buffer;
    EXPECT_TRUE(buffer.Allocate(context_.get(), n).ok());
    if (n > 0) {
      EXPECT_TRUE(context_->SetBytes(buffer.data(), 0xff, buffer.bytes()).ok());
    }
    return buffer;
  }
  template <typename T>
  std::vector<T> Download(const DeviceBuffer<T>& buffer) {
    std::vector<T> host;
    const Status status = buffer.CopyToHost(&host);
    EXPECT_TRUE(status.ok()) << status.message;
    return host;
  }

  // MakeScene on the device, with states and maps of its cameras.
  struct DeviceScene {
    DeviceBuffer<double> cameras, points, observations;
    DeviceBuffer<CameraState<double>> states;
    DeviceBuffer<double> maps;
  };
  DeviceScene MakeDeviceScene(const Structure& pairs, unsigned seed) {
    std::vector<double> cameras, points, observations;
    MakeScene(pairs, seed, &cameras, &points, &observations);
    DeviceScene scene;
    scene.cameras = Upload(cameras);
    scene.points = Upload(points);
    scene.observations = Upload(observations);
    scene.states = Poisoned<CameraState<double>>(pairs.num_cameras);
    scene.maps = Poisoned<double>(int64_t{81} * pairs.num_cameras);
    PrepareCamerasParams<double, 9> prepare;
    prepare.num_cameras = pairs.num_cameras;
    prepare.cameras = scene.cameras.data();
    prepare.states = scene.states.data();
    prepare.maps = scene.maps.data();
    RunOk(prepare, machine_.get());
    return scene;
  }

  // Runs fn, which queues work, and waits: twice at once; on a GPU also as a
  // graph that is captured, then from a launch buffer, which makes a graph of
  // what comes again.
#if defined(CERES_EXT_TEST_ON_CUDA) && !defined(CERES_EXT_EMULATED)
  static constexpr int kNumRuns = 8;
  template <typename Function>
  Status RunInWay(int run, Function&& fn) {
    if (run == 2) {
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t executable = nullptr;
      const cudaStream_t stream = context_->stream();
      EXPECT_EQ(
          cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
          cudaSuccess);
      const Status status = fn();
      EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
      CERES_EXT_RETURN_IF_ERROR(status);
      EXPECT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
      EXPECT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
      const Status finished = context_->Synchronize();
      EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
      EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
      return finished;
    }
    if (run == 3) {
      context_->EnableLaunchBuffer();
    }
    context_->SetBuffersLaunches(run > 2);
    const BufferLaunches scope(*context_);
    CERES_EXT_RETURN_IF_ERROR(fn());
    const Status finished = context_->Synchronize();
    context_->SetBuffersLaunches(false);
    return finished;
  }
#else
  static constexpr int kNumRuns = 2;
  template <typename Function>
  Status RunInWay(int /*run*/, Function&& fn) {
    CERES_EXT_RETURN_IF_ERROR(fn());
    return context_->Synchronize();
  }
#endif

  CudaMachine* machine() { return machine_.get(); }

  std::unique_ptr<CudaContext> context_;
  std::unique_ptr<CudaMachine> machine_;
};

class CudaTest : public RepeatingTest<CudaMemoryTest> {};

// Pairs indexed on the host and on the device, and a workspace on each.
class CudaProblemTest : public CudaTest {
 protected:
  void BuildIndex(const Structure& pairs) {
    pairs_ = pairs;
    num_cameras_ = pairs.num_cameras;
    num_points_ = pairs.num_points;
    n_ = static_cast<int64_t>(pairs.camera.size());
    ASSERT_OK(host_index_.Build(pairs.pairs()));
    const DeviceBuffer<int32_t> camera = Upload(pairs.camera);
    const DeviceBuffer<int32_t> point = Upload(pairs.point);
    ASSERT_OK(index_.Build(
        {pairs.num_cameras, pairs.num_points, n_, camera.data(), point.data()},
        &scratch_,
        context_.get()));
  }
  void Prepare(const Structure& pairs, const CudaWorkspace::Options& options) {
    ASSERT_NO_FATAL_FAILURE(BuildIndex(pairs));
    ASSERT_OK(
        workspace_.Setup(index_.ref(), options, &scratch_, context_.get()));
    ASSERT_OK(host_workspace_.Setup(
        host_index_.ref(), &host_machine_, options.max_columns));
  }

  Structure pairs_;
  int64_t num_cameras_ = 0;
  int64_t num_points_ = 0;
  int64_t n_ = 0;
  ObservationIndex host_index_;
  HostMachine host_machine_{1};
  HostWorkspace host_workspace_;
  CudaIndexScratch scratch_;
  CudaObservationIndex index_;
  CudaWorkspace workspace_;
};

// The operations on arrays in the memory of one machine. Inputs are set before;
// outputs are arguments.
template <typename Source, typename MachineIn>
struct Operations {
  using Machine = MachineIn;
  static constexpr int C = Source::Shape::kF;
  static constexpr BlockLayout kLayout = Machine::kLayout;
  using Value = typename Source::Value;

  ObservationIndexRef index;
  Source jacobian;
  const double* b = nullptr;
  const double* camera_diagonal = nullptr;
  const double* point_diagonal = nullptr;
  // The vector to multiply, and the scale of columns.
  const double* camera_x = nullptr;
  const double* point_x = nullptr;
  const double* v_inverse = nullptr;
  const PcgScalars* scalars = nullptr;
  Machine* machine = nullptr;

  // params: the outputs.
  Status NormalBlocks(NormalBlocksParams<Source, kLayout> params) const {
    params.index = index;
    params.jacobian = jacobian;
    params.b = b;
    params.point_diagonal = point_diagonal;
    return Run(params, machine);
  }
  // q = S p, or its eliminated part.
  Status SchurProductImplicitW(double* q, bool eliminated_part = false) const {
    SchurProductImplicitWParams<Source, kLayout> params;
    params.index = index;
    params.jacobian = jacobian;
    params.v_inverse = {v_inverse, index.num_points};
    params.camera_diagonal = eliminated_part ? nullptr : camera_diagonal;
    params.p = camera_x;
    params.q = q;
    params.scalars = scalars;
    params.eliminated_part = eliminated_part;
    return Run(params, machine);
  }
  Status BackSubstituteImplicitW(double* y) const {
    BackSubstituteImplicitWParams<Source, kLayout> params;
    params.index = index;
    params.jacobian = jacobian;
    params.b = b;
    params.v_inverse = {v_inverse, index.num_points};
    params.z = camera_x;
    params.y = y;
    return Run(params, machine);
  }
  // q = (J'J + D^2) p
  Status NormalProductImplicitW(double* camera_q, double* point_q) const {
    NormalProductImplicitWParams<Source> params;
    params.index = index;
    params.jacobian = jacobian;
    params.camera_diagonal = camera_diagonal;
    params.point_diagonal = point_diagonal;
    params.camera_p = camera_x;
    params.point_p = point_x;
    params.camera_q = camera_q;
    params.point_q = point_q;
    params.scalars = scalars;
    return Run(params, machine);
  }
  Status RightMultiply(double* y, bool accumulate) const {
    RightMultiplyParams<Source> params;
    params.index = index;
    params.jacobian = jacobian;
    params.camera_x = camera_x;
    params.point_x = point_x;
    params.y = y;
    params.accumulate = accumulate;
    return Run(params, machine);
  }
  // J'b
  Status LeftMultiply(double* camera_y,
                      double* point_y,
                      bool accumulate) const {
    LeftMultiplyParams<Source> params;
    params.index = index;
    params.jacobian = jacobian;
    params.y = b;
    params.camera_x = camera_y;
    params.point_x = point_y;
    params.accumulate = accumulate;
    return Run(params, machine);
  }
  Status SquaredColumnNorms(double* camera_norms, double* point_norms) const {
    SquaredColumnNormsParams<Source> params;
    params.index = index;
    params.jacobian = jacobian;
    params.camera_x = camera_norms;
    params.point_x = point_norms;
    return Run(params, machine);
  }
  Status ScaleColumns(Value* jc, Value* jp) const {
    ScaleColumnsParams<Value, BalShape<C>, kLayout> params;
    params.index = index;
    params.camera_blocks = {jc, index.num_observations};
    params.point_blocks = {jp, index.num_observations};
    params.camera_scale = camera_x;
    params.point_scale = point_x;
    return Run(params, machine);
  }
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_TESTS_KERNELS_CUDA_TEST_UTIL_H_
