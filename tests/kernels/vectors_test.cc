// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Vector operations on every machine: literals by hand, Eigen and long double,
// and the host's bits or values at sizes around warps and blocks. If
// ops/vectors.h, ops/block_table.h and ops/manifolds.h promise the host's bits,
// bits are compared. The stream of a CUDA machine is one of its own.
#include "cuda_kernels/ops/vectors.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "Eigen/Dense"
#include "cuda_kernels/machine/cuda_process.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/ops/block_table.h"
#include "cuda_kernels/ops/degenerate_blocks.h"
#include "cuda_kernels/ops/manifolds.h"
#include "cuda_kernels/ops/pcg.h"
#include "cuda_kernels/ops/power_series.h"
#include "cuda_kernels/ops/robust_losses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/machine_test.h"

namespace ceres_ext::kernels {
namespace {

using testing::ElementsAre;
using Doubles = std::vector<double>;
using Ids = std::vector<int32_t>;

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
constexpr double kEps = kEpsilon / 2;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

constexpr int64_t kVectorSizes[] = {0, 1, 31, 32, 33, 1000, 100000};

// Blocks of tangent sizes 0 to padded_size that lie in a tangent vector and a
// state in reverse order, with gaps. Every seventh block is constant.
struct TestTable {
  TestTable(int32_t num_blocks, int32_t padded_size, int32_t ambient_size)
      : num_blocks(num_blocks),
        padded_size(padded_size),
        ambient_size(ambient_size) {
    tangent_offset.resize(static_cast<size_t>(num_blocks), -1);
    tangent_size.resize(static_cast<size_t>(num_blocks), 0);
    state_offset.resize(static_cast<size_t>(num_blocks), -1);
    for (int32_t i = num_blocks - 1; i >= 0; --i) {
      if (i % 7 == 6) {
        continue;
      }
      tangent_size[i] = padded_size - i % (padded_size + 1);
      tangent_offset[i] = tangent_values + 1;
      state_offset[i] = state_values + 2;
      tangent_values += tangent_size[i] + 1;
      state_values += ambient_size + 2;
    }
    for (int32_t i = 0; i < num_blocks * ambient_size; ++i) {
      constant_values.push_back(0.25 * i);
    }
  }

  BlockTableRef ref() const {
    return {num_blocks,
            padded_size,
            ambient_size,
            /*tangent_shift=*/0,
            tangent_offset.data(),
            tangent_size.data(),
            state_offset.data(),
            constant_values.data()};
  }

  int32_t num_blocks;
  int32_t padded_size;
  int32_t ambient_size;
  int32_t tangent_values = 0;
  int32_t state_values = 0;
  std::vector<int32_t> tangent_offset;
  std::vector<int32_t> tangent_size;
  std::vector<int32_t> state_offset;
  std::vector<double> constant_values;
};

// Pairs x_i = k 2^e, y_i = l 2^e, k and l of 20 bits, -20 <= e <= 20: all
// products of sums of the two are exact, so that a fused product changes
// nothing, and sums are not, so that their order shows.
void MakeExactPairs(int64_t n,
                    unsigned seed,
                    std::vector<double>* x,
                    std::vector<double>* y) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> mantissa(-(1 << 20), 1 << 20);
  std::uniform_int_distribution<int> exponent(-20, 20);
  x->clear();
  y->clear();
  for (int64_t i = 0; i < n; ++i) {
    const int e = exponent(random);
    x->push_back(std::ldexp(mantissa(random), e));
    y->push_back(std::ldexp(mantissa(random), e));
  }
}

// Additions between a term and the sum (base/vector_sums.h): over the elements
// of a lane, 32 lanes, 8 warps, the blocks of a lane, 32 lanes and 8 warps.
int64_t SumDepth(int64_t n) {
  const int64_t blocks = NumSumBlocks(n);
  return n / (kSumLanes * blocks) + 1 + blocks / kSumLanes + 1 + 2 * (5 + 8);
}

// Observations with a loss of each kind, thresholds near one, and with none.
// Blocks are block-contiguous.
template <typename T, int C>
struct LossProblem {
  explicit LossProblem(int64_t n)
      : num_observations(n),
        losses{RobustLoss(),
               RobustLoss(RobustLossKind::kHuber, 1.0),
               RobustLoss(RobustLossKind::kSoftLOne, 0.8),
               RobustLoss(RobustLossKind::kCauchy, 1.2),
               RobustLoss(RobustLossKind::kArctan, 1.5),
               RobustLoss(RobustLossKind::kTolerant, 2.0, 0.7),
               RobustLoss(RobustLossKind::kTukey, 2.0)},
        residuals(RandomVector(2 * n, 21)) {
    const std::vector<double> camera = RandomVector(2 * C * n, 22);
    const std::vector<double> point = RandomVector(6 * n, 23);
    camera_blocks.assign(camera.begin(), camera.end());
    point_blocks.assign(point.begin(), point.end());
    for (int64_t k = 0; k < n; ++k) {
      loss_id.push_back(k % 8 == 7 ? kNoLoss : static_cast<uint8_t>(k % 8));
    }
  }

  int64_t num_observations;
  std::vector<RobustLoss> losses;
  std::vector<uint8_t> loss_id;
  std::vector<double> residuals;
  std::vector<T> camera_blocks;
  std::vector<T> point_blocks;
};

// The inputs and outputs of an operation on one of the two machines.
template <typename T>
const T& On(HostMachine*, const T& host, const T&) {
  return host;
}
template <typename T>
const T& On(CudaMachine*, const T&, const T& device) {
  return device;
}

// A block table in the memory of the machine.
struct MachineTable {
  Machine::Buffer<int32_t> tangent_offset;
  Machine::Buffer<int32_t> tangent_size;
  Machine::Buffer<int32_t> state_offset;
  Machine::Buffer<double> constant_values;
  BlockTableRef ref;
};

// Runs the operation whose parameters fn(machine, arguments...) returns; or fn
// runs several and returns their status.
template <typename Machine, typename Function, typename... Arguments>
Status Call(Machine* machine, const Function& fn, Arguments... arguments) {
  auto result = fn(machine, arguments...);
  if constexpr (std::is_same_v<decltype(result), Status>) {
    return result;
  } else {
    return Run(result, machine);
  }
}

class VectorsTest : public MachineTest {
 protected:
  template <typename Table>
  MachineTable OnMachine(const Table& table) {
    MachineTable on_machine;
    on_machine.tangent_offset = Upload(table.tangent_offset);
    on_machine.tangent_size = Upload(table.tangent_size);
    on_machine.state_offset = Upload(table.state_offset);
    on_machine.constant_values = Upload(table.constant_values);
    on_machine.ref = table.ref();
    on_machine.ref.tangent_offset = on_machine.tangent_offset.data();
    on_machine.ref.tangent_size = on_machine.tangent_size.data();
    on_machine.ref.state_offset = on_machine.state_offset.data();
    on_machine.ref.constant_values = on_machine.constant_values.data();
    return on_machine;
  }

  // fn(machine, x, y, z), see Call, on vectors that hold the values given: the
  // machine's bits are to be those of a host of two threads.
  template <typename Function>
  void ExpectBits(Doubles x, Doubles y, Doubles z, const Function& fn) {
    const Doubles inputs[] = {x, y, z};
    ASSERT_OK(Call(&host_, fn, x.data(), y.data(), z.data()));
    for (int run = 0; run < kNumRuns; ++run) {
      auto on_x = Upload(inputs[0]);
      auto on_y = Upload(inputs[1]);
      auto on_z = Upload(inputs[2]);
      ASSERT_OK(RunInWay(run, [&] {
        return Call(machine(), fn, on_x.data(), on_y.data(), on_z.data());
      }));
      EXPECT_TRUE(SameBits(Download(on_x), x));
      EXPECT_TRUE(SameBits(Download(on_y), y));
      EXPECT_TRUE(SameBits(Download(on_z), z));
    }
  }

  // fn(table, table on the machine) for tables of points and cameras at edge
  // sizes.
  void ForEachTable(
      const std::function<void(const TestTable&, const BlockTableRef&)>& fn) {
    for (const int32_t n : {0, 1, 31, 32, 33, 1000, 30000}) {
      for (const auto& [padded_size, ambient_size] :
           {std::pair{3, 3}, {9, 9}, {9, 10}, {10, 10}}) {
        SCOPED_TRACE(testing::Message() << n << " blocks of " << padded_size
                                        << " and " << ambient_size);
        const TestTable table(n, padded_size, ambient_size);
        fn(table, OnMachine(table).ref);
      }
    }
  }

  // A camera of 10 parameters whose last `num_fixed` are constant, moved in
  // place or not.
  Doubles PlusOneCamera(const Doubles& state,
                        const Doubles& delta,
                        int num_fixed = 0,
                        bool in_place = false) {
    const auto factors = Upload(
        std::vector<ManifoldFactor>{{ManifoldKind::kQuaternion, 4},
                                    {ManifoldKind::kEuclidean, 6 - num_fixed},
                                    {ManifoldKind::kConstant, num_fixed}});
    const auto block = Upload(std::vector<ManifoldBlock>{{0, 0, 0, 3, 9, 0}});
    const auto x = Upload(state);
    const auto step = Upload(delta);
    auto result = Upload(in_place ? state : Doubles(10, kNaN));
    RunOk(PlusManifoldsParams{1,
                              block.data(),
                              factors.data(),
                              in_place ? result.data() : x.data(),
                              step.data(),
                              result.data()});
    return Download(result);
  }

  HostMachine host_{2};
};

#ifndef CERES_EXT_TEST_ON_CUDA
// Notes which thread handles an element.
struct NoteThreadParams {
  int64_t n = 0;
  std::thread::id* thread = nullptr;
  void Apply(int64_t i) const { thread[i] = std::this_thread::get_id(); }
};
struct NoteThreadOfTermParams {
  int64_t n = 0;
  std::thread::id* thread = nullptr;
  TwoSums* sums = nullptr;
  TwoSums Term(int64_t i) const {
    thread[i] = std::this_thread::get_id();
    return {1.0, static_cast<double>(i)};
  }
  void Set(const TwoSums& s) const { *sums = s; }
};

// A region would cost more than it gains.
TEST(HostVectorsTest, ShortVectorsStayOnTheCallingThread) {
  HostMachine machine(3);
  for (const int64_t n : {1, 4095, 4096, 4097, 4860, 8191}) {
    for (int i = 0; i < 20; ++i) {
      std::vector<std::thread::id> thread(n);
      RunOk(NoteThreadParams{n, thread.data()}, &machine);
      EXPECT_THAT(thread, testing::Each(std::this_thread::get_id()));
      thread.assign(n, {});
      TwoSums sums;
      RunOk(NoteThreadOfTermParams{n, thread.data(), &sums}, &machine);
      EXPECT_THAT(thread, testing::Each(std::this_thread::get_id()));
      // Sums of whole numbers below 2^53 have no rounding.
      EXPECT_EQ(sums.first, n);
      EXPECT_EQ(sums.second, n * (n - 1) / 2);
    }
  }
}

#else
// An array large enough for the stages, with a piece that is not full, twice.
TEST_F(CudaTest, LargeArraysReachTheDevice) {
  std::vector<int32_t> x((size_t{37} << 20) / sizeof(int32_t) + 3);
  for (int run = 0; run < 2; ++run) {
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<int32_t>(i * 2654435761u) + run;
    }
    const int64_t before = context_->copied_bytes();
    DeviceBuffer<int32_t> device = Upload(x);
    EXPECT_EQ(context_->copied_bytes() - before,
              static_cast<int64_t>(x.size() * sizeof(int32_t)));
    EXPECT_EQ(Download(device), x);
  }
}

// Many small arrays, more than wait in page-locked memory at once, whose host
// memory is overwritten as soon as the copy returns.
TEST_F(CudaTest, SmallArraysMayBeOverwritten) {
  std::mt19937 random(5);
  std::vector<DeviceBuffer<int32_t>> device;
  std::vector<Ids> expected;
  Ids x;
  for (int i = 0; i < 300; ++i) {
    x.resize(i % 7 == 0 ? (size_t{1} << 18) + i % 3 - 1  // about 1 MB
                        : random() % 3000);
    for (int32_t& value : x) {
      value = static_cast<int32_t>(random());
    }
    expected.push_back(x);
    ASSERT_OK(machine_->Upload(x, &device.emplace_back()));
    std::fill(x.begin(), x.end(), -1);
    if (i % 50 == 0) {
      EXPECT_EQ(Download(device.back()), expected.back());
    }
  }
  for (size_t i = 0; i < device.size(); ++i) {
    ASSERT_EQ(Download(device[i]), expected[i]);
  }
}

// Freed memory comes back to the next request of as many bytes, up to
// kAlwaysKept, and counts for nothing in between.
TEST_F(CudaTest, SomeMemoryIsKept) {
  const int64_t used = context_->used_bytes();
  constexpr int64_t kHalf = CudaContext::kAlwaysKept / 2;
  void* first = nullptr;
  ASSERT_OK(context_->Allocate(kHalf, &first));
  context_->Free(first, kHalf);
  EXPECT_EQ(context_->used_bytes(), used);
  void* again = nullptr;
  ASSERT_OK(context_->Allocate(kHalf, &again));
  EXPECT_EQ(again, first);
  context_->Free(again, kHalf);
  // Three do not fit: what is kept is never more than that.
  void* data[3] = {};
  for (void*& one : data) {
    ASSERT_OK(context_->Allocate(kHalf, &one));
  }
  for (void* one : data) {
    context_->Free(one, kHalf);
  }
  EXPECT_EQ(context_->used_bytes(), used);
  EXPECT_LE(ProcessBytes(context_->device()) - used, CudaContext::kAlwaysKept);
  context_->ReleaseKeptMemory();
  EXPECT_EQ(ProcessBytes(context_->device()), used);
}
#endif

// ---------------------------------------------------------------------------

// Blocks: two of three columns, the constant (30, 31), one of one column.
struct HandTable {
  Ids tangent_offset = {1, -1, 0};
  Ids tangent_size = {2, 0, 1};
  Ids state_offset = {2, -1, 0};
  Doubles constant_values = {-1, -1, 30, 31, -1, -1};
  BlockTableRef ref() const {
    BlockTableRef table;
    table.num_blocks = 3;
    table.padded_size = 3;
    table.ambient_size = 2;
    return table;
  }
};

TEST_F(VectorsTest, BlocksByHand) {
  const auto table = OnMachine(HandTable());
  const auto vector = Upload(Doubles{5, 6, 7});
  auto padded = Upload(Doubles(9, -1));
  RunOk(GatherTangentParams{table.ref, vector.data(), 0.5, padded.data()});
  EXPECT_THAT(Download(padded),
              ElementsAre(6, 7, 0.5, 0.5, 0.5, 0.5, 5, 0.5, 0.5));

  padded = Upload(Doubles{10, 11, 12, 13, 14, 15, 16, 17, 18});
  auto scattered = Upload(Doubles(4, -1));
  RunOk(ScatterTangentParams{table.ref, padded.data(), scattered.data()});
  EXPECT_THAT(Download(scattered), ElementsAre(16, 10, 11, -1));

  const auto state = Upload(Doubles{1, 2, 3, 4});
  auto ambient = Upload(Doubles(6, -1));
  RunOk(GatherStateParams{table.ref, state.data(), ambient.data()});
  EXPECT_THAT(Download(ambient), ElementsAre(3, 4, 30, 31, 1, 2));

  RunOk(GatherTangentParams{table.ref, nullptr, 1, padded.data()});
  EXPECT_THAT(Download(padded), ElementsAre(0, 0, 1, 1, 1, 1, 0, 1, 1));
}

TEST_F(VectorsTest, UniformTableByHand) {
  const auto order = Upload(Ids{2, 0, 1});
  for (const bool ordered : {true, false}) {
    auto state = Upload(Ids(3, -1));
    RunOk(UniformBlockTableParams{
        3, ordered ? order.data() : nullptr, 2, 100, state.data()});
    EXPECT_THAT(
        Download(state),
        ordered ? ElementsAre(104, 100, 102) : ElementsAre(100, 102, 104));
    // The tangent vector has one value before the blocks', a padded block one
    // value more.
    BlockTableRef table;
    table.num_blocks = 3;
    table.padded_size = 3;
    table.ambient_size = 2;
    table.tangent_shift = 1 - 100;
    table.state_offset = state.data();
    auto vector = Upload(Doubles{-1, 1, 2, 3, 4, 5, 6});
    auto padded = Upload(Doubles(9, -1));
    RunOk(GatherTangentParams{table, vector.data(), 9, padded.data()});
    EXPECT_THAT(Download(padded),
                ordered ? ElementsAre(5, 6, 9, 1, 2, 9, 3, 4, 9)
                        : ElementsAre(1, 2, 9, 3, 4, 9, 5, 6, 9));
    auto scattered = Upload(Doubles(7, -1));
    RunOk(ScatterTangentParams{table, padded.data(), scattered.data()});
    EXPECT_THAT(Download(scattered), ElementsAre(-1, 1, 2, 3, 4, 5, 6));
    auto moved = Upload(Doubles(106, 10));
    RunOk(PlusParams{table, moved.data(), vector.data(), moved.data()});
    const Doubles of_blocks = Download(moved);
    EXPECT_THAT(Doubles(of_blocks.begin() + 99, of_blocks.end()),
                ElementsAre(10, 11, 12, 13, 14, 15, 16));
  }
}

TEST_F(VectorsTest, StateRecordsByHand) {
  using Record = StateRecordsParams::Record;
  const auto state = Upload(Ids{108, 100, 104});
  auto records = Upload(std::vector<Record>(3, Record{}));
  RunOk(StateRecordsParams{3, {{1, -1, 0, 3}}, state.data(), records.data()});
  std::vector<int32_t> words;
  for (const Record& record : Download(records)) {
    words.insert(words.end(), record.words, record.words + 4);
  }
  EXPECT_THAT(words, ElementsAre(108, -1, 0, 3, 100, -1, 0, 3, 104, -1, 0, 3));
}

TEST_F(VectorsTest, PairsByHand) {
  const auto source = Upload(Ids{2, 0, 0});
  const auto in = Upload(Doubles{1, 2, 3, 4, 5, 6});
  auto out = Upload(Doubles(6, kNaN));
  RunOk(GatherTuplesParams<2>{3, source.data(), in.data(), out.data()});
  EXPECT_THAT(Download(out), ElementsAre(5, 6, 1, 2, 1, 2));
}

TEST_F(VectorsTest, GatherAndScatterAreInverse) {
  for (const int32_t n : {0, 1, 31, 32, 33, 1000, 30000}) {
    const TestTable table(n, 10, 10);
    const auto on_machine = OnMachine(table);
    const Doubles vector = RandomVector(table.tangent_values, 3);
    auto on_padded = Upload(Doubles(static_cast<size_t>(n) * 10, kNaN));
    RunOk(GatherTangentParams{
        on_machine.ref, Upload(vector).data(), 2.0, on_padded.data()});
    const Doubles padded = Download(on_padded);
    int64_t num_values = 0;
    for (int64_t i = 0; i < n; ++i) {
      for (int j = 0; j < 10; ++j) {
        const bool active = j < table.tangent_size[i];
        num_values += active;
        ASSERT_EQ(padded[10 * i + j],
                  active ? vector[table.tangent_offset[i] + j] : 2.0);
      }
    }
    // Gaps keep their value.
    auto on_scattered = Upload(Doubles(vector.size(), -3.0));
    RunOk(ScatterTangentParams{
        on_machine.ref, on_padded.data(), on_scattered.data()});
    const Doubles scattered = Download(on_scattered);
    int64_t num_equal = 0;
    for (size_t i = 0; i < vector.size(); ++i) {
      num_equal += scattered[i] == vector[i];
      ASSERT_TRUE(scattered[i] == vector[i] || scattered[i] == -3.0);
    }
    EXPECT_EQ(num_equal, num_values);
  }
}

TEST_F(VectorsTest, PlusByHand) {
  const auto table = OnMachine(HandTable());
  auto state = Upload(Doubles{1, 2, 3, 4});
  const auto delta = Upload(Doubles{0.5, 10, kInfinity});
  auto result = Upload(Doubles(4, -1));
  // The second time in place.
  for (double* const to : {result.data(), state.data()}) {
    RunOk(PlusParams{table.ref, state.data(), delta.data(), to});
  }
  EXPECT_THAT(Download(result), ElementsAre(1.5, 2, 13, kInfinity));
  EXPECT_THAT(Download(state), ElementsAre(1.5, 2, 13, kInfinity));
}

TEST_F(VectorsTest, PlusQuaternionByHand) {
  const Doubles x = {1, 0, 0, 0, 1, 2, 3, 4, 5, 6};
  EXPECT_EQ(PlusOneCamera(x, {0, 0, 0, 10, 20, 30, 40, 50, 60}),
            (Doubles{1, 0, 0, 0, 11, 22, 33, 44, 55, 66}));
  // A zero change keeps the quaternion even where its norm isn't one.
  const Doubles odd = {3, -4, 0.1, 7, 1, 2, 3, 4, 5, 6};
  EXPECT_EQ(PlusOneCamera(odd, {0, -0.0, 0, 0, 0, 0, 0, 0, 0}), odd);
  // Half a turn about z: the angle is twice |delta|.
  const double kHalfPi = std::acos(0.0);
  const Doubles turned = PlusOneCamera(x, {0, 0, kHalfPi, 0, 0, 0, 0, 0, 0});
  EXPECT_NEAR(turned[0], 0, kEpsilon);
  EXPECT_THAT(Doubles(turned.begin() + 1, turned.begin() + 4),
              ElementsAre(0, 0, 1));
  // Changes whose square underflows, and denormal ones, still move.
  for (const double tiny : {1e-8, 1e-170, 1e-300, 1e-320}) {
    const Doubles moved =
        PlusOneCamera(x, {tiny, -tiny, 2 * tiny, 0, 0, 0, 0, 0, 0});
    // cos and sin to second order; a denormal has an absolute error.
    const double bound = 4 * kEpsilon * tiny + 5e-324;
    EXPECT_NEAR(moved[0], 1, 4 * tiny * tiny + kEpsilon);
    EXPECT_NEAR(moved[1], tiny, bound);
    EXPECT_NEAR(moved[2], -tiny, bound);
    EXPECT_NEAR(moved[3], 2 * tiny, bound);
  }
  // Fixed intrinsics.
  EXPECT_EQ(PlusOneCamera(x, {0, 0, 0, 10, 20, 30}, 3),
            (Doubles{1, 0, 0, 0, 11, 22, 33, 4, 5, 6}));
}

// Plus turns by the rotation of angle 2 |delta| about delta, from the left, and
// ManifoldTangents is its derivative.
TEST_F(VectorsTest, QuaternionsMoveAsRotations) {
  // A constant camera, then one that moves; matrices have a column to spare.
  const auto factors =
      Upload(std::vector<ManifoldFactor>{{ManifoldKind::kConstant, 10},
                                         {ManifoldKind::kQuaternion, 4},
                                         {ManifoldKind::kEuclidean, 6}});
  const auto blocks = Upload(
      std::vector<ManifoldBlock>{{-1, -1, 0, 1, 10, 0}, {0, 0, 1, 2, 10, 100}});
  for (unsigned seed = 0; seed < 20; ++seed) {
    Doubles x = RandomVector(10, 100 + seed);
    Eigen::Map<Eigen::Vector4d>(x.data()).normalize();
    const Doubles delta = RandomVector(9, 200 + seed);
    const Doubles y = PlusOneCamera(x, delta);
    EXPECT_EQ(PlusOneCamera(x, delta, 0, /*in_place=*/true), y);
    const Eigen::Vector3d d(delta[0], delta[1], delta[2]);
    const Eigen::Quaterniond expected =
        Eigen::Quaterniond(Eigen::AngleAxisd(2 * d.norm(), d.normalized())) *
        Eigen::Quaterniond(x[0], x[1], x[2], x[3]);
    // At most 8 roundings of the norm and of sine and cosine, whose argument is
    // at most 2^3, and 7 of each sum of terms of at most one.
    const double tolerance = 8 * (8 + 7) * kEpsilon;
    EXPECT_NEAR(y[0], expected.w(), tolerance);
    EXPECT_NEAR(y[1], expected.x(), tolerance);
    EXPECT_NEAR(y[2], expected.y(), tolerance);
    EXPECT_NEAR(y[3], expected.z(), tolerance);
    for (int i = 4; i < 10; ++i) {
      EXPECT_EQ(y[i], x[i] + delta[i - 1]);
    }

    // Elements that are zero everywhere, or linear, keep their value.
    const auto state = Upload(x);
    auto tangents = Upload(Doubles(200, 7.0));
    RunOk(ManifoldTangentsParams{2,
                                 blocks.data(),
                                 factors.data(),
                                 false,
                                 state.data(),
                                 tangents.data()});
    const Doubles curved = Download(tangents);
    constexpr double kStep = 1e-5;
    for (int j = 0; j < 10; ++j) {
      Doubles up;
      Doubles down;
      if (j < 3) {
        Doubles step(9, 0.0);
        step[j] = kStep;
        up = PlusOneCamera(x, step);
        step[j] = -kStep;
        down = PlusOneCamera(x, step);
      }
      for (int i = 0; i < 20; ++i) {
        const double value = curved[10 * i + j];
        if (i < 10 || i >= 14 || j >= 3) {
          ASSERT_EQ(value, 7.0);
          continue;
        }
        // Third order term, and 8 roundings of each value.
        EXPECT_NEAR(value,
                    (up[i - 10] - down[i - 10]) / (2 * kStep),
                    kStep * kStep + 8 * kEpsilon / kStep);
      }
    }
    RunOk(ManifoldTangentsParams{
        2, blocks.data(), factors.data(), true, nullptr, tangents.data()});
    const Doubles all = Download(tangents);
    for (int i = 0; i < 20; ++i) {
      for (int j = 0; j < 10; ++j) {
        EXPECT_EQ(all[10 * i + j],
                  i >= 14 && j == i - 11 ? 1.0 : curved[10 * i + j]);
      }
    }
  }
}

TEST_F(VectorsTest, ValuesOfBlocksByHand) {
  const auto index = Upload(std::vector<int64_t>{3, 0, 2});
  const auto x = Upload(Doubles{1, 2, 3, 4});
  auto values = Upload(Doubles(3, kNaN));
  RunOk(GatherValuesParams{3, index.data(), x.data(), values.data()});
  EXPECT_THAT(Download(values), ElementsAre(4, 1, 3));
  auto y = Upload(Doubles{-1, -2, -3, -4});
  RunOk(ScatterValuesParams{3, index.data(), values.data(), y.data()});
  EXPECT_THAT(Download(y), ElementsAre(1, -2, 3, 4));
}

TEST_F(VectorsTest, PointTangentsByHand) {
  const auto point_id = Upload(Ids{1, 0});
  // A permutation, and a matrix of two columns.
  const auto tangents =
      Upload(Doubles{0, 1, 0, 0, 0, 1, 1, 0, 0, 1, 2, 0, 3, 4, 0, 5, 6, 0});
  auto blocks = Upload(InLayout(
      std::vector<float>{1, 10, 100, 2, 20, 200, 1, 2, 3, 4, 5, 6}, 6));
  RunOk(ApplyPointTangentsParams<float, Machine::kLayout>{
      2, point_id.data(), tangents.data(), {blocks.data(), 2}});
  EXPECT_THAT(FromLayout(Download(blocks), 6),
              ElementsAre(531, 642, 0, 1062, 1284, 0, 3, 1, 2, 6, 4, 5));
}

TEST_F(VectorsTest, HeldValuesArePadding) {
  // Holds value 1, nothing, values 0 and 2; constant; holds 0 and 1.
  const auto tangent_offset = Upload(Ids{7, 4, 3, -1, 0});
  const auto tangent_size = Upload(Ids{2, 3, 1, 0, 1});
  const auto held = Upload(std::vector<uint8_t>{2, 0, 5, 0, 3});
  BlockTableRef table;
  table.num_blocks = 5;
  table.padded_size = table.ambient_size = 3;
  table.tangent_offset = tangent_offset.data();
  table.tangent_size = tangent_size.data();
  table.held = held.data();
  const auto vector = Upload(Doubles{0, 10, 20, 30, 40, 50, 60, 70, 80});
  auto padded = Upload(Doubles(15, kNaN));
  RunOk(GatherTangentParams{table, vector.data(), -1, padded.data()});
  EXPECT_THAT(
      Download(padded),
      ElementsAre(70, -1, 80, 40, 50, 60, -1, 30, -1, -1, -1, -1, -1, -1, 0));
  auto back = Upload(Doubles(9, 5));
  RunOk(ScatterTangentParams{table, padded.data(), back.data()});
  EXPECT_THAT(Download(back), ElementsAre(0, 5, 5, 30, 40, 50, 60, 70, 80));
  RunOk(GatherTangentParams{table, nullptr, 1, padded.data()});
  EXPECT_THAT(Download(padded),
              ElementsAre(0, 1, 0, 0, 0, 0, 1, 0, 1, 1, 1, 1, 1, 1, 0));
}

TEST_F(VectorsTest, ElementsByHand) {
  auto x = Upload(Doubles{0, 1, 4, 9});
  RunOk(JacobiScalingParams{4, x.data()});
  EXPECT_THAT(Download(x), ElementsAre(1, 0.5, 1.0 / 3.0, 0.25));

  x = Upload(Doubles{-1, 0, 5, 100, kInfinity, -kInfinity, kNaN});
  RunOk(ClampParams{7, 0.5, 10, x.data()});
  EXPECT_THAT(Download(x),
              ElementsAre(0.5, 0.5, 5, 10, 10, 0.5, testing::IsNan()));

  // Values 1 to 7, with other bounds each; -0.0 is not below 0.0.
  const auto bounded = Upload(Ids{7, 1, 2, 3, 4, 5, 6});
  const auto lower = Upload(Doubles{0, 0, 2, -kInfinity, 1, 3, 3});
  const auto upper = Upload(Doubles{9, 1, 3, 4, kInfinity, 7, 7});
  x = Upload(Doubles{-5, -1, 5, -1e308, 1e308, 3, kNaN, -0.0, -7});
  RunOk(ClampToBoundsParams{
      7, bounded.data(), 0, 1, lower.data(), upper.data(), x.data()});
  EXPECT_THAT(Download(x),
              ElementsAre(-5, 0, 3, -1e308, 1e308, 3, testing::IsNan(), 0, -7));
  EXPECT_TRUE(std::signbit(Download(x)[7]));
  // Values 1 to 3, with the same bounds.
  x = Upload(Doubles{-5, -1, 0.5, kNaN, 5});
  RunOk(ClampToBoundsParams{
      3, nullptr, 1, 0, lower.data(), upper.data() + 1, x.data()});
  EXPECT_THAT(Download(x), ElementsAre(-5, 0, 0.5, testing::IsNan(), 5));

  x = Upload(Doubles{2, 8, 0, kInfinity});
  auto y = Upload(Doubles(4, kNaN));
  RunOk(LevenbergMarquardtDiagonalParams{4, 2, x.data(), y.data()});
  EXPECT_THAT(Download(y), ElementsAre(1, 2, 0, kInfinity));

  const Doubles values = {1, -2, 0, kInfinity};
  x = Upload(values);
  RunOk(NegateParams{4, x.data(), y.data()});
  EXPECT_THAT(Download(y), ElementsAre(-1, 2, 0, -kInfinity));
  EXPECT_TRUE(std::signbit(Download(y)[2]));

  auto z = Upload(Doubles(4, kNaN));
  y = Upload(Doubles{3, 4, 5, -1});
  RunOk(MultiplyParams{4, x.data(), y.data(), z.data()});
  EXPECT_THAT(Download(z), ElementsAre(3, -8, 0, -kInfinity));
  RunOk(ScaleParams<double>{4, y.data(), z.data()});
  EXPECT_THAT(Download(z), ElementsAre(9, -32, 0, kInfinity));
  RunOk(MultiplyByParams{4, -0.5, y.data(), z.data()});
  EXPECT_THAT(Download(z), ElementsAre(-1.5, -2, -2.5, 0.5));
  RunOk(DivideParams{4, y.data(), x.data(), z.data()});
  EXPECT_THAT(Download(z), ElementsAre(3, -2, kInfinity, 0));
  RunOk(MultiplyByParams{4, -2, y.data(), z.data()});
  EXPECT_THAT(Download(z), ElementsAre(-6, -8, -10, 2));
  RunOk(LinearCombinationParams{3, 2, x.data(), -1, y.data(), z.data()});
  EXPECT_THAT(Download(z), ElementsAre(-1, -8, -5, 2));
  // The product is rounded, and not the factor.
  auto in_float = Upload(std::vector<float>{3.0f, 1.0f});
  const auto factors = Upload(Doubles{1.0 / 3.0, 1.0 + 0x1p-30});
  RunOk(ScaleParams<float>{2, factors.data(), in_float.data()});
  EXPECT_THAT(Download(in_float), ElementsAre(1.0f, 1.0f));
  RunOk(CopyParams{4, x.data(), z.data()});
  EXPECT_EQ(Download(z), values);
  RunOk(SetConstantParams{3, 0.25, z.data()});
  EXPECT_THAT(Download(z), ElementsAre(0.25, 0.25, 0.25, kInfinity));
  RunOk(SetConstantParams{4, kImpossibleValue, z.data()});
  EXPECT_THAT(Download(z), ElementsAre(1e302, 1e302, 1e302, 1e302));
}

// Against a scan of all elements: of each slice the first of the largest that
// have grown, among which are equals, infinities and NaN.
TEST_F(VectorsTest, FindGrown) {
  std::mt19937 generator(7);
  for (const int64_t size : kVectorSizes) {
    const Doubles x = RandomVector(size, 3);
    Doubles y = x;
    const Doubles large = {2e4, -2e4, 3e4, kInfinity, -kInfinity, std::nan("")};
    for (double& value : y) {
      if (generator() % 4 == 0) {
        value = large[generator() % large.size()];
      }
    }
    for (const int64_t n : {int64_t{1}, int64_t{7}, size + 1}) {
      auto number = Poisoned<int64_t>(n);
      auto x_there = Poisoned<double>(n);
      auto y_there = Poisoned<double>(n);
      const auto on_x = Upload(x);
      const auto on_y = Upload(y);
      RunOk(FindGrownParams{n,
                            size,
                            on_x.data(),
                            on_y.data(),
                            4.0,
                            number.data(),
                            x_there.data(),
                            y_there.data()});
      const auto numbers = Download(number);
      const Doubles xs = Download(x_there);
      const Doubles ys = Download(y_there);
      for (int64_t slice = 0; slice < n; ++slice) {
        std::vector<int64_t> grown;
        for (int64_t k = slice; k < size; k += n) {
          if (!(std::abs(y[k]) <= 1e3 * std::max(2.0, std::abs(x[k])))) {
            grown.push_back(k);
          }
        }
        const auto is_smaller = [&](int64_t a, int64_t b) {
          const bool is_finite = std::isfinite(y[a]);
          return is_finite &&
                 (!std::isfinite(y[b]) || std::abs(y[a]) < std::abs(y[b]));
        };
        const auto worst =
            std::max_element(grown.begin(), grown.end(), is_smaller);
        ASSERT_EQ(numbers[slice], grown.empty() ? -1 : *worst);
        if (!grown.empty()) {
          EXPECT_EQ(xs[slice], x[*worst]);
          EXPECT_EQ(std::memcmp(&ys[slice], &y[*worst], sizeof(double)), 0);
        }
      }
    }
  }
}

// The bounds by hand: with the mean square 4, an element of at most 2 has grown
// above 2000, and one of 3 above 3000.
TEST_F(VectorsTest, CountGrown) {
  auto count = Poisoned<int64_t>(1);
  const auto expect = [&](const Doubles& x, const Doubles& y, int64_t n) {
    const auto on_x = Upload(x);
    const auto on_y = Upload(y);
    RunOk(CountGrownParams{static_cast<int64_t>(x.size()),
                           on_x.data(),
                           on_y.data(),
                           4.0,
                           count.data()});
    EXPECT_EQ(Download(count)[0], n);
  };
  for (const double sign : {1.0, -1.0}) {
    expect({0.0}, {sign * 2000.0}, 0);
    expect({0.0}, {sign * 2001.0}, 1);
    expect({-3.0}, {sign * 3000.0}, 0);
    expect({-3.0}, {sign * 3001.0}, 1);
    expect({1.0}, {sign * kInfinity}, 1);
    expect({1.0}, {sign * 1e200}, 1);    // its square is infinite
    expect({1e200}, {sign * 1e200}, 0);  // so are both
  }
  expect({1.0}, {std::nan("")}, 1);
  for (const int64_t n : kVectorSizes) {
    const Doubles x = RandomVector(n, 3);
    Doubles y = x;
    expect(x, y, 0);
    for (int64_t i = 0; i < n; i += 2) {
      y[i] = 1e5;
    }
    expect(x, y, (n + 1) / 2);
  }
}

TEST_F(VectorsTest, NegateIfValid) {
  auto scalars = Poisoned<LoopScalars>(1);
  auto count = Poisoned<int64_t>(1);
  for (const int64_t n : kVectorSizes) {
    SCOPED_TRACE(n);
    const auto expect = [&](Doubles x, int64_t num_invalid) {
      auto on_x = Upload(x);
      RunOk(CountInvalidParams{n, on_x.data(), scalars.data(), count.data()});
      RunOk(NegateIfValidParams{n, on_x.data(), count.data()});
      EXPECT_EQ(Download(scalars)[0].num_invalid, num_invalid);
      EXPECT_EQ(Download(count)[0], num_invalid);
      // As it was, NaN included, where one is not valid.
      for (double& value : x) {
        value = num_invalid == 0 ? -value : value;
      }
      EXPECT_TRUE(SameBits(Download(on_x), x));
    };
    const Doubles x = RandomVector(n, 3);
    for (int run = 0; run < 2; ++run) {
      expect(x, 0);
    }
    expect(Doubles(x.size(), kImpossibleValue), n);
    // Large values are valid.
    expect(Doubles(x.size(), -1.7e308), 0);
    if (n == 0) {
      continue;
    }
    for (const double valid : {-kImpossibleValue, 1e303, 1.7e308, 5e-324}) {
      Doubles good = x;
      good[n / 2] = valid;
      expect(good, 0);
    }
    for (const double invalid :
         {kNaN, kInfinity, -kInfinity, kImpossibleValue}) {
      for (const int64_t where : {int64_t{0}, n / 2, n - 1}) {
        Doubles bad = x;
        bad[where] = invalid;
        expect(bad, 1);
        expect(bad, 1);
      }
    }
  }
}

TEST_F(VectorsTest, SumsByHand) {
  const auto x = Upload(Doubles{3, 4});
  auto y = Upload(Doubles{3, 16});
  auto on_machine = Upload(std::vector<LoopScalars>(1));
  LoopScalars* const s = on_machine.data();
  const auto scalars = [&] { return Download(on_machine)[0]; };
  RunOk(StepNormsParams{2, x.data(), y.data(), s});
  EXPECT_EQ(scalars().x_norm, 5);
  EXPECT_EQ(scalars().step_norm, 12);
  y = Upload(Doubles{6, 8});
  RunOk(ProjectedGradientNormsParams{2, x.data(), y.data(), s});
  EXPECT_EQ(scalars().max_norm, 4);
  EXPECT_EQ(scalars().norm, 5);
  EXPECT_EQ(scalars().x_norm, 5);  // Another operation's.
  // -(6 (3 + 3) + 8 (4 + 4))
  RunOk(ModelCostChangeParams{2, x.data(), y.data(), s});
  EXPECT_EQ(scalars().model_cost_change, -100);
  y = Upload(Doubles{6, -8});
  RunOk(DirectionalDerivativeParams{2, x.data(), y.data(), s});
  EXPECT_EQ(scalars().dot, -14);
  EXPECT_EQ(scalars().direction_max_norm, 8);

  // Nothing that isn't a number is lost, wherever it stands.
  for (int where = 0; where < 2; ++where) {
    for (const double value : {kNaN, -kInfinity}) {
      Doubles values = {6, 8};
      values[where] = value;
      y = Upload(values);
      RunOk(ProjectedGradientNormsParams{2, x.data(), y.data(), s});
      for (const double norm : {scalars().max_norm, scalars().norm}) {
        EXPECT_EQ(std::isnan(norm), std::isnan(value));
        EXPECT_TRUE(std::isnan(norm) || norm == kInfinity);
      }
      RunOk(DirectionalDerivativeParams{2, x.data(), y.data(), s});
      EXPECT_EQ(std::isnan(scalars().direction_max_norm), std::isnan(value));
      EXPECT_FALSE(std::isfinite(scalars().dot));
    }
  }

  RunOk(StepNormsParams{0, nullptr, nullptr, s});
  RunOk(ProjectedGradientNormsParams{0, nullptr, nullptr, s});
  RunOk(ModelCostChangeParams{0, nullptr, nullptr, s});
  RunOk(DirectionalDerivativeParams{0, nullptr, nullptr, s});
  EXPECT_EQ(scalars().x_norm, 0);
  EXPECT_EQ(scalars().step_norm, 0);
  EXPECT_EQ(scalars().max_norm, 0);
  EXPECT_EQ(scalars().norm, 0);
  EXPECT_EQ(scalars().model_cost_change, 0);
  EXPECT_EQ(scalars().dot, 0);
  EXPECT_EQ(scalars().direction_max_norm, 0);
}

TEST_F(VectorsTest, OrderOfSums) {
  EXPECT_EQ(NumSumBlocks(0), 1);
  EXPECT_EQ(NumSumBlocks(512), 1);
  EXPECT_EQ(NumSumBlocks(513), 2);
  EXPECT_EQ(NumSumBlocks(524289), 1024);
  EXPECT_EQ(NumSumBlocks(int64_t{1} << 40), 1024);
  // 600 elements: two blocks, lanes 0 to 87 of block 0 have a second element.
  // 2^53 absorbs each one that is added to it alone; the lane of a one that
  // comes first, and all later ones of its warp, keep theirs.
  const double kBig = 9007199254740992.0;  // 2^53
  Doubles m(600, 0.0);
  Doubles f(600, 1.0);
  auto scalars = Poisoned<LoopScalars>(1);
  const auto sum = [&] {
    // m (f + m / 2) = 1 for m = 1, f = 1/2.
    const auto on_f = Upload(f);
    const auto on_m = Upload(m);
    RunOk(ModelCostChangeParams{600, on_f.data(), on_m.data(), scalars.data()});
    return -Download(scalars)[0].model_cost_change;
  };
  m[0] = 1.0;
  f[0] = kBig - 0.5;  // 2^53
  ASSERT_EQ(sum(), kBig);
  const auto add_one = [&](int i) {
    m[i] = 1.0;
    f[i] = 0.5;
  };
  // The same lane, next row: 2^53 + 1 = 2^53.
  add_one(512);
  EXPECT_EQ(sum(), kBig);
  // Lanes 16 and 8 of the warp, one after the other: 2^53 + 1 + 1 = 2^53.
  add_one(16);
  add_one(8);
  EXPECT_EQ(sum(), kBig);
  // Lanes 3 and 19 make two before they meet lane 0 by way of lanes 1 and 2.
  add_one(3);
  add_one(19);
  EXPECT_EQ(sum(), kBig + 2);
  // Another warp's two ones come as two; block 1's too.
  add_one(40);
  add_one(41);
  EXPECT_EQ(sum(), kBig + 4);
  add_one(256);
  add_one(511);
  EXPECT_EQ(sum(), kBig + 6);
}

// Lengths around the lanes and blocks of a sum.
TEST_F(VectorsTest, Dot) {
  for (const int64_t n :
       {0,   1,   3,   4,   5,   31,  32,   33,   255,  256, 257,
        511, 512, 513, 514, 767, 768, 4095, 4096, 4097, 9000}) {
    const Doubles x = RandomVector(n, 1);
    const Doubles y = RandomVector(n, 2);
    const auto on_x = Upload(x);
    const auto on_y = Upload(y);
    auto dot = Poisoned<double>(1);
    RunOk(DotParams{n, on_x.data(), on_y.data(), dot.data()});
    const auto a = Eigen::VectorXd::Map(x.data(), n);
    const auto b = Eigen::VectorXd::Map(y.data(), n);
    EXPECT_NEAR(Download(dot)[0],
                a.dot(b),
                n * kEpsilon * a.cwiseAbs().dot(b.cwiseAbs()));
  }
}

// The sums of the loop.
template <typename Machine>
Status RunSums(
    int64_t n, const double* x, const double* y, LoopScalars* s, Machine* on) {
  CERES_EXT_RETURN_IF_ERROR(Run(ProjectedGradientNormsParams{n, x, y, s}, on));
  CERES_EXT_RETURN_IF_ERROR(Run(StepNormsParams{n, x, y, s}, on));
  CERES_EXT_RETURN_IF_ERROR(Run(ModelCostChangeParams{n, x, y, s}, on));
  CERES_EXT_RETURN_IF_ERROR(Run(LoopDotParams{n, x, y, s}, on));
  CERES_EXT_RETURN_IF_ERROR(Run(DirectionalDerivativeParams{n, x, y, s}, on));
  return Run(CountInvalidParams{n, x, s}, on);
}

TEST_F(VectorsTest, SumsAgreeWithLongDouble) {
  for (const int64_t n : kVectorSizes) {
    SCOPED_TRACE(n);
    const Doubles x = RandomVector(n, 1);
    const Doubles y = RandomVector(n, 2);
    const auto on_x = Upload(x);
    const auto on_y = Upload(y);
    auto scalars = Upload(std::vector<LoopScalars>(1));
    ASSERT_OK(RunSums(n, on_x.data(), on_y.data(), scalars.data(), machine()));
    const LoopScalars actual = Download(scalars)[0];
    // Any number of threads gives the same bits.
    if (kOnHost) {
      LoopScalars other;
      HostMachine one_thread(1);
      ASSERT_OK(RunSums(n, x.data(), y.data(), &other, &one_thread));
      EXPECT_TRUE(SameBits<LoopScalars>({actual}, {other}));
    }
    long double xx = 0;
    long double dd = 0;
    long double change = 0;
    long double absolute = 0;
    long double xy = 0;
    long double absolute_xy = 0;
    double largest = 0;
    double largest_y = 0;
    for (int64_t i = 0; i < n; ++i) {
      const long double d = static_cast<long double>(x[i]) - y[i];
      const long double term = y[i] * (x[i] + y[i] / 2.0L);
      const long double product = static_cast<long double>(x[i]) * y[i];
      xy += product;
      absolute_xy += std::fabs(product);
      largest_y = std::max(largest_y, std::fabs(y[i]));
      xx += static_cast<long double>(x[i]) * x[i];
      dd += d * d;
      change -= term;
      absolute += std::fabs(term);
      largest = std::max(largest, std::fabs(x[i] - y[i]));
    }
    // Each term: its own three roundings and those of the additions above it;
    // for a norm the square root and half of that.
    const double tolerance = static_cast<double>(SumDepth(n) + 3) * kEps;
    const double x_norm = static_cast<double>(std::sqrt(xx));
    const double d_norm = static_cast<double>(std::sqrt(dd));
    EXPECT_NEAR(actual.x_norm, x_norm, tolerance * x_norm);
    EXPECT_NEAR(actual.step_norm, d_norm, tolerance * d_norm);
    EXPECT_EQ(actual.norm, actual.step_norm);
    EXPECT_EQ(actual.max_norm, largest);
    EXPECT_NEAR(actual.model_cost_change,
                static_cast<double>(change),
                tolerance * static_cast<double>(absolute));
    EXPECT_NEAR(actual.dot,
                static_cast<double>(xy),
                tolerance * static_cast<double>(absolute_xy));
    EXPECT_EQ(actual.direction_max_norm, largest_y);
  }
}

TEST_F(VectorsTest, RowScalesByHand) {
  // Huber of 1: rho' = 1 / |r|. Tukey of 2: rho' = (1 - |r|^2 / 4)^2, or 0.
  const auto losses =
      Upload(std::vector<RobustLoss>{RobustLoss(RobustLossKind::kHuber, 1.0),
                                     RobustLoss(RobustLossKind::kTukey, 2.0)});
  const auto loss_id = Upload(std::vector<uint8_t>{0, 0, 1, 1, kNoLoss, 0});
  auto residuals = Upload(Doubles{0, 0.5, 4, 0, 1, 1, 3, 4, 3, 4, 0, 0});
  auto row_scale = Upload(std::vector<float>(6, -1.0f));
  auto evaluation = Upload(std::vector<Evaluation>{{-1.0, 17}});
  RunOk(ScaleRowsForLossParams<float>{6,
                                      {losses.data(), loss_id.data()},
                                      residuals.data(),
                                      row_scale.data(),
                                      evaluation.data()});
  EXPECT_THAT(Download(row_scale), ElementsAre(1, 0.5, 0.5, 0, 1, 1));
  EXPECT_THAT(Download(residuals),
              ElementsAre(0, 0.5, 1, 0, 0.25, 0.25, 0, 0, 3, 4, 0, 0));
  // Tukey's rho is 4 / 3 (1 - (1 - x)^3).
  EXPECT_NEAR(Download(evaluation)[0].cost,
              0.5 * (0.25 + 7 + 7.0 / 6 + 4.0 / 3 + 25),
              8 * kEpsilon * 35);
  EXPECT_EQ(Download(evaluation)[0].num_not_finite, 17);

  RunOk(UnscaleResidualsParams<float>{6, row_scale.data(), residuals.data()});
  EXPECT_THAT(Download(residuals),
              ElementsAre(0, 0.5, 2, 0, 0.5, 0.5, 0, 0, 3, 4, 0, 0));
}

// Rounded or not, the scaled rows have the gradient of the cost.
TEST_F(VectorsTest, RowScalesKeepTheGradient) {
  const std::vector<RobustLoss> losses = {
      RobustLoss(RobustLossKind::kCauchy, 0.7),
      RobustLoss(RobustLossKind::kSoftLOne, 0.3)};
  constexpr int64_t kNumRows = 1000;
  std::vector<uint8_t> loss_id;
  for (int64_t k = 0; k < kNumRows; ++k) {
    loss_id.push_back(static_cast<uint8_t>(k % 2));
  }
  const Doubles before = RandomVector(2 * kNumRows, 3);
  const auto on_losses = Upload(losses);
  const auto on_loss_id = Upload(loss_id);
  // Multiplications and additions that a device fuses: two roundings of rho'.
  const double of_device = kOnHost ? 0.0 : 2.0;
  const auto check = [&](auto zero) {
    using T = decltype(zero);
    auto on_residuals = Upload(before);
    auto on_scale = Upload(std::vector<T>(kNumRows));
    auto evaluation = Upload(std::vector<Evaluation>(1));
    RunOk(ScaleRowsForLossParams<T>{kNumRows,
                                    {on_losses.data(), on_loss_id.data()},
                                    on_residuals.data(),
                                    on_scale.data(),
                                    evaluation.data()});
    RunOk(UnscaleResidualsParams<T>{
        kNumRows, on_scale.data(), on_residuals.data()});
    const Doubles residuals = Download(on_residuals);
    const std::vector<T> row_scale = Download(on_scale);
    const double rounding = std::numeric_limits<T>::epsilon();
    for (int64_t k = 0; k < kNumRows; ++k) {
      const double* r = &before[2 * k];
      double rho[3];
      losses[loss_id[k]].Evaluate(r[0] * r[0] + r[1] * r[1], rho);
      const double s = static_cast<double>(row_scale[k]);
      EXPECT_NEAR(s, std::sqrt(rho[1]), 2 * rounding * s);
      for (int i = 0; i < 2; ++i) {
        // A product, a quotient and this product.
        EXPECT_NEAR(s * residuals[2 * k + i],
                    rho[1] * r[i],
                    (2 + of_device) * kEpsilon * std::fabs(rho[1] * r[i]));
      }
    }
  };
  check(0.0);
  check(0.0f);
}

TEST_F(VectorsTest, LossesByHand) {
  // Huber of 1: rho = 2 |r| - 1, r~ = r / sqrt(|r|).
  const auto huber =
      Upload(std::vector<RobustLoss>{RobustLoss(RobustLossKind::kHuber, 1.0)});
  const auto loss_id = Upload(std::vector<uint8_t>{0, 0, 0});
  const Doubles residuals = {0, 0.5, 4, 0, 0, -9};
  const auto on_residuals = Upload(residuals);
  auto corrected = Upload(Doubles(6, kNaN));
  auto evaluation = Upload(std::vector<Evaluation>(1));
  CorrectForLossParams<double, BalShape<9>, Machine::kLayout> params;
  params.n = 3;
  params.loss = {huber.data(), loss_id.data()};
  params.residuals = on_residuals.data();
  params.corrected_residuals = corrected.data();
  params.evaluation = evaluation.data();
  const auto cost = [&] {
    RunOk(params);
    return Download(evaluation)[0].cost;
  };
  EXPECT_EQ(cost(), 0.5 * (0.25 + 7 + 17));
  EXPECT_THAT(Download(corrected),
              ElementsAre(0, 0.5, 2, 0, 0, -9 * std::sqrt(1 / 9.0)));

  params.loss = {};  // no row has one
  EXPECT_EQ(cost(), 0.5 * (0.25 + 16 + 81));
  EXPECT_EQ(Download(corrected), residuals);

  const auto rho = Upload(Doubles{7, 4, 0, 8, 0.25, -1, 9, 1, 0});
  params.loss.rho = rho.data();
  EXPECT_EQ(cost(), 0.5 * (7 + 8 + 9));
  EXPECT_THAT(Download(corrected), ElementsAre(0, 1, 2, 0, 0, -9));

  auto norms = Upload(Doubles(2, kNaN));
  RunOk(SquaredNormsParams{2, 3, on_residuals.data(), norms.data()});
  EXPECT_THAT(Download(norms), ElementsAre(16.25, 81));
}

// NaN in rho' or rho'' of a user-defined loss reaches residual and Jacobian, as
// in ceres::Corrector.
TEST_F(VectorsTest, RhoThatIsNoNumber) {
  for (const auto& [first, second] :
       {std::pair{kNaN, 0.0}, std::pair{1.0, kNaN}, std::pair{0.5, kNaN}}) {
    for (const double r : {2.0, 0.0}) {
      const auto rho = Upload(Doubles{1, first, second});
      const auto residuals = Upload(Doubles{r, 0});
      auto on_corrected = Upload(Doubles{0, 0});
      auto on_points = Upload(InLayout(Doubles{1, 2, 3, 4, 5, 6}, 6));
      auto evaluation = Upload(std::vector<Evaluation>(1));
      CorrectForLossParams<double, BalShape<9>, Machine::kLayout> params;
      params.n = 1;
      params.loss.rho = rho.data();
      params.residuals = residuals.data();
      params.corrected_residuals = on_corrected.data();
      params.correction.point_blocks = {on_points.data(), 1};
      params.evaluation = evaluation.data();
      RunOk(params);
      EXPECT_EQ(Download(evaluation)[0].cost, 0.5);
      // Without a residual rho'' does not matter.
      const bool is_nan = std::isnan(first) || r > 0.0;
      EXPECT_EQ(std::isnan(Download(on_corrected)[0]), is_nan);
      const double point = Download(on_points)[0];
      EXPECT_EQ(std::isnan(point), is_nan);
      if (!is_nan) {
        EXPECT_EQ(point, std::sqrt(first));
      }
    }
  }
}

// ---------------------------------------------------------------------------
// The host's bits or values.

TEST_F(VectorsTest, GatherAndScatter) {
  ForEachTable([&](const TestTable& table, const BlockTableRef& device) {
    const BlockTableRef host = table.ref();
    const int64_t num_padded = int64_t{table.num_blocks} * table.padded_size;
    const Doubles vector = RandomVector(table.tangent_values, 1);
    const Doubles padded = RandomVector(num_padded, 2);
    const Doubles state = RandomVector(table.state_values, 3);
    const Doubles ambient(
        static_cast<size_t>(table.num_blocks) * table.ambient_size, kNaN);
    ExpectBits(
        vector, padded, {}, [&](auto* machine, double* x, double* y, double*) {
          return GatherTangentParams{On(machine, host, device), x, 1.5, y};
        });
    ExpectBits(
        vector, padded, {}, [&](auto* machine, double* x, double* y, double*) {
          return ScatterTangentParams{On(machine, host, device), y, x};
        });
    ExpectBits(
        state, ambient, {}, [&](auto* machine, double* x, double* y, double*) {
          return GatherStateParams{On(machine, host, device), x, y};
        });
    ExpectBits(padded, {}, {}, [&](auto* machine, double* x, double*, double*) {
      return GatherTangentParams{On(machine, host, device), nullptr, 1.0, x};
    });
    if (table.padded_size != 3) {
      return;
    }
    // The columns are at any of the values instead.
    std::vector<uint8_t> held;
    for (int32_t i = 0; i < table.num_blocks; ++i) {
      const int num_held = 3 - table.tangent_size[i];
      held.push_back(num_held == 1   ? 1 << i % 3
                     : num_held == 2 ? 7 ^ (1 << i % 3)
                                     : 0);
    }
    const auto device_held = Upload(held);
    BlockTableRef host_holding = host;
    BlockTableRef device_holding = device;
    host_holding.held = held.data();
    device_holding.held = device_held.data();
    ExpectBits(
        vector, padded, {}, [&](auto* machine, double* x, double* y, double*) {
          return GatherTangentParams{
              On(machine, host_holding, device_holding), x, 1.5, y};
        });
    ExpectBits(
        vector, padded, {}, [&](auto* machine, double* x, double* y, double*) {
          return ScatterTangentParams{
              On(machine, host_holding, device_holding), y, x};
        });
  });
}

TEST_F(VectorsTest, GatherTuples) {
  for (const int64_t n : {0, 1, 255, 256, 257, 30000}) {
    SCOPED_TRACE(n);
    Ids order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(7));
    const auto device_order = Upload(order);
    ExpectBits(RandomVector(2 * n, 1),
               Doubles(static_cast<size_t>(2 * n), kNaN),
               {},
               [&](auto* machine, double* x, double* y, double*) {
                 const int32_t* source = On<const int32_t*>(
                     machine, order.data(), device_order.data());
                 return GatherTuplesParams<2>{n, source, x, y};
               });
  }
}

TEST_F(VectorsTest, Plus) {
  ForEachTable([&](const TestTable& table, const BlockTableRef& device) {
    Doubles state = RandomVector(table.state_values, 3);
    // Values that do not move keep the sign of a zero.
    for (int32_t i = 0; i < table.num_blocks; ++i) {
      if (table.state_offset[i] >= 0) {
        state[table.state_offset[i] + table.ambient_size - 1] = -0.0;
      }
    }
    const Doubles delta = RandomVector(table.tangent_values, 4);
    for (const bool in_place : {false, true}) {
      ExpectBits(
          state,
          delta,
          Doubles(state.size(), kNaN),
          [&](auto* machine, double* x, double* y, double* z) {
            return PlusParams{
                On(machine, table.ref(), device), x, y, in_place ? x : z};
          });
    }
  });
}

// Blocks of every kind of factor, alone and in products, with gaps between
// them; every seventh is constant.
struct ManifoldTable {
  explicit ManifoldTable(int32_t n) {
    struct Product {
      int32_t first;
      int32_t size;
    };
    const Product products[] = {
        {0, 3}, {1, 1}, {2, 3}, {4, 1}, {5, 2}, {0, 1}, {3, 4}};
    for (int32_t i = 0; i < n; ++i) {
      const Product product = products[i % 7];
      int32_t rows = 0;
      int32_t columns = 0;
      for (int32_t f = 0; f < product.size; ++f) {
        rows += factors[product.first + f].size;
        columns += factors[product.first + f].tangent_size();
      }
      ManifoldBlock block = {state_values + 1,
                             tangent_values + 2,
                             product.first,
                             product.size,
                             columns + i % 2,
                             matrix_values};
      state_values += rows + 1;
      tangent_values += columns + 2;
      matrix_values += int64_t{rows} * block.matrix_stride;
      if (i % 7 == 5) {
        block.state_offset = -1;
      }
      blocks.push_back(block);
    }
  }

  const std::vector<ManifoldFactor> factors = {
      {ManifoldKind::kConstant, 2},
      {ManifoldKind::kQuaternion, 4},
      {ManifoldKind::kEuclidean, 6},
      {ManifoldKind::kSphere, 3},
      {ManifoldKind::kLine, 8},
      {ManifoldKind::kEigenQuaternion, 4},
      {ManifoldKind::kSphere, 2}};
  std::vector<ManifoldBlock> blocks;
  int32_t state_values = 1;
  int32_t tangent_values = 2;
  int64_t matrix_values = 0;
};

TEST_F(VectorsTest, Manifolds) {
  for (const int32_t n : {0, 1, 31, 32, 33, 1000}) {
    const ManifoldTable table(n);
    const auto device_blocks = Upload(table.blocks);
    const auto device_factors = Upload(table.factors);
    const Doubles state = RandomVector(table.state_values, 7);
    Doubles delta = RandomVector(table.tangent_values, 8);
    const double sizes[] = {1.0, 0.0, 1e-8, 1e-170, 1e-320, 100.0};
    for (int32_t i = 0; i < n; ++i) {
      const int32_t end =
          i + 1 < n ? table.blocks[i + 1].tangent_offset : table.tangent_values;
      for (int32_t j = table.blocks[i].tangent_offset; j < end; ++j) {
        delta[j] *= sizes[i % 6];
      }
    }
    // Derivatives have neither sines nor cosines.
    const Doubles tangents(static_cast<size_t>(table.matrix_values), 0.5);
    for (const bool linear : {true, false}) {
      ExpectBits(
          state,
          tangents,
          {},
          [&](auto* machine, double* x, double* y, double*) {
            return ManifoldTangentsParams{
                n,
                On<const ManifoldBlock*>(
                    machine, table.blocks.data(), device_blocks.data()),
                On<const ManifoldFactor*>(
                    machine, table.factors.data(), device_factors.data()),
                linear,
                x,
                y};
          });
    }

    const auto device_state = Upload(state);
    const auto device_delta = Upload(delta);
    Doubles expected(state.size(), -1.0);
    RunOk(PlusManifoldsParams{n,
                              table.blocks.data(),
                              table.factors.data(),
                              state.data(),
                              delta.data(),
                              expected.data()},
          &host_);
    Doubles first;
    for (int run = 0; run < kNumRuns; ++run) {
      const bool in_place = run == 1;
      auto result = Upload(in_place ? state : Doubles(state.size(), -1.0));
      ASSERT_OK(RunInWay(run, [&] {
        return kernels::Run(
            PlusManifoldsParams{n,
                                device_blocks.data(),
                                device_factors.data(),
                                in_place ? result.data() : device_state.data(),
                                device_delta.data(),
                                result.data()},
            machine());
      }));
      Doubles actual = Download(result);
      for (size_t i = 0; in_place && i < actual.size(); ++i) {
        if (expected[i] == -1.0) {
          EXPECT_EQ(actual[i], state[i]);
          actual[i] = -1.0;
        }
      }
      if (first.empty()) {
        first = actual;
      }
      EXPECT_TRUE(SameBits(actual, first));
    }
    for (const ManifoldBlock& block : table.blocks) {
      int64_t at = block.state_offset;
      for (int32_t f = 0; at >= 0 && f < block.num_factors; ++f) {
        const ManifoldFactor factor = table.factors[block.first_factor + f];
        // Sine and cosine of the machines differ by at most 2 units in the last
        // place each and all else is equal: 4 or 5 terms of at most 2 |x|.
        double norm = 0.0;
        for (int32_t i = 0; !factor.is_linear() && i < factor.size; ++i) {
          norm += state[at + i] * state[at + i];
        }
        const double tolerance = 2 * 5 * (2 * 4 + 5) * kEps * std::sqrt(norm);
        for (int32_t i = 0; i < factor.size; ++i) {
          EXPECT_NEAR(first[at + i], expected[at + i], tolerance);
          first[at + i] = expected[at + i];
        }
        at += factor.size;
      }
    }
    EXPECT_TRUE(SameBits(first, expected));
  }
}

TEST_F(VectorsTest, ValuesOfBlocks) {
  for (const int64_t n : {0, 1, 31, 32, 33, 1000}) {
    std::vector<int64_t> index(static_cast<size_t>(n));
    std::iota(index.begin(), index.end(), 5);
    std::shuffle(index.begin(), index.end(), std::mt19937(3));
    const auto device_index = Upload(index);
    for (const bool gather : {true, false}) {
      ExpectBits(
          RandomVector(n + 9, 4),
          RandomVector(n + 9, 5),
          {},
          [&](auto* machine, double* x, double* y, double*) {
            const int64_t* at =
                On<const int64_t*>(machine, index.data(), device_index.data());
            return gather
                       ? kernels::Run(GatherValuesParams{n, at, x, y}, machine)
                       : kernels::Run(ScatterValuesParams{n, at, x, y},
                                      machine);
          });
    }
  }
}

TEST_F(VectorsTest, PointTangents) {
  constexpr int32_t kPoints = 50;
  const Doubles tangents = RandomVector(9 * kPoints, 5);
  const auto on_tangents = Upload(tangents);
  const auto check = [&](auto zero) {
    using T = decltype(zero);
    for (const int64_t n : {0, 1, 31, 32, 33, 1000}) {
      Ids point_id;
      for (int64_t k = 0; k < n; ++k) {
        point_id.push_back(static_cast<int32_t>(k * 7 % kPoints));
      }
      const Doubles values = RandomVector(6 * n, 6);
      std::vector<T> blocks(values.begin(), values.end());
      const std::vector<T> before = InLayout(blocks, 6);
      RunOk(
          ApplyPointTangentsParams<T, kHostLayout>{
              n, point_id.data(), tangents.data(), {blocks.data(), n}},
          &host_);
      const auto on_point_id = Upload(point_id);
      for (int run = 0; run < 2; ++run) {
        auto on_blocks = Upload(before);
        RunOk(ApplyPointTangentsParams<T, Machine::kLayout>{
            n, on_point_id.data(), on_tangents.data(), {on_blocks.data(), n}});
        EXPECT_EQ(Download(on_blocks), InLayout(blocks, 6));
      }
    }
  };
  check(0.0);
  check(0.0f);
}

TEST_F(VectorsTest, Elements) {
  for (const int64_t n : kVectorSizes) {
    SCOPED_TRACE(n);
    Doubles x = RandomVector(n, 1);
    const Doubles y = RandomVector(n, 2);
    const Doubles z(static_cast<size_t>(n), kNaN);
    const auto expect_bits = [&](const auto& fn) { ExpectBits(x, y, z, fn); };
    expect_bits([&](auto*, double* x, double* y, double* z) {
      return MultiplyParams{n, x, y, z};
    });
    expect_bits([&](auto*, double* x, double* y, double* /*z*/) {
      return ScaleParams<double>{n, y, x};
    });
    expect_bits([&](auto*, double* x, double*, double* z) {
      return MultiplyByParams{n, 1.0 / 3.0, x, z};
    });
    // An array of float in the memory of one of double.
    expect_bits([&](auto* machine, double* x, double* y, double* z) {
      auto* const in_float = reinterpret_cast<float*>(z);
      CERES_EXT_RETURN_IF_ERROR(kernels::Run(
          SetConstantParams<float>{2 * n, 1.5f, in_float}, machine));
      CERES_EXT_RETURN_IF_ERROR(
          kernels::Run(ScaleParams<float>{n, x, in_float}, machine));
      return kernels::Run(ScaleParams<float>{n, y, in_float}, machine);
    });
    expect_bits([&](auto*, double* x, double* y, double* z) {
      return AddVectorsParams{n, x, y, z};
    });
    expect_bits([&](auto*, double* x, double* y, double* z) {
      return DivideParams{n, x, y, z};
    });
    expect_bits([&](auto*, double* x, double*, double* z) {
      return CopyParams{n, x, z};
    });
    // All but the last element.
    const int64_t m = n > 0 ? n - 1 : 0;
    expect_bits([&](auto* machine, double* x, double* y, double*) {
      CERES_EXT_RETURN_IF_ERROR(
          kernels::Run(SetConstantParams{m, 0.1, x}, machine));
      return kernels::Run(SetConstantParams{m, kImpossibleValue, y}, machine);
    });
    const double special[] = {0.0, -0.0, kInfinity, -kInfinity, 5e-324};
    for (int64_t i = 0; i < n; i += 10) {
      x[i] = special[i / 10 % 5];
    }
    expect_bits([&](auto* machine, double* x, double* y, double* z) {
      CERES_EXT_RETURN_IF_ERROR(kernels::Run(NegateParams{n, x, z}, machine));
      CERES_EXT_RETURN_IF_ERROR(kernels::Run(NegateParams{n, y, y}, machine));
      return kernels::Run(ClampParams{n, -0.5, 0.75, x}, machine);
    });
    for (double& value : x) {
      value = std::fabs(value);
    }
    expect_bits([&](auto* machine, double* x, double*, double* z) {
      CERES_EXT_RETURN_IF_ERROR(kernels::Run(
          LevenbergMarquardtDiagonalParams{n, 1e4 / 3, x, z}, machine));
      return kernels::Run(JacobiScalingParams{n, x}, machine);
    });
  }
}

TEST_F(VectorsTest, SquaredNorms) {
  for (const int64_t n : {0, 1, 31, 32, 33, 1000, 30000}) {
    for (const int num_residuals : {1, 2, 6}) {
      ExpectBits(RandomVector(num_residuals * n, 1),
                 Doubles(n, kNaN),
                 {},
                 [&](auto*, double* x, double* y, double*) {
                   return SquaredNormsParams{n, num_residuals, x, y};
                 });
    }
  }
}

TEST_F(VectorsTest, RowScales) {
  const double tolerance = 8 * kEps;  // As CorrectForLossTest, per loss.
  for (const int64_t n : {0, 1, 31, 32, 33, 1000, 30000}) {
    SCOPED_TRACE(n);
    LossProblem<float, 9> problem(n);
    std::vector<float> host_scale(n, -1.0f);
    Doubles host_residuals = problem.residuals;
    Evaluation host_evaluation{-1.0, 17};
    RunOk(ScaleRowsForLossParams<float>{n,
                                        {problem.losses.data(),
                                         problem.loss_id.data()},
                                        host_residuals.data(),
                                        host_scale.data(),
                                        &host_evaluation},
          &host_);
    const Doubles weighted = host_residuals;
    RunOk(
        UnscaleResidualsParams<float>{
            n, host_scale.data(), host_residuals.data()},
        &host_);
    const auto losses = Upload(problem.losses);
    const auto loss_id = Upload(problem.loss_id);
    auto evaluation = Upload(std::vector<Evaluation>{{-1.0, 17}});
    auto residuals = Upload(problem.residuals);
    auto scale = Upload(std::vector<float>(n, -1.0f));
    RunOk(ScaleRowsForLossParams<float>{n,
                                        {losses.data(), loss_id.data()},
                                        residuals.data(),
                                        scale.data(),
                                        evaluation.data()});
    const std::vector<float> device_scale = Download(scale);
    const Doubles device_residuals = Download(residuals);
    for (int64_t k = 0; k < n; ++k) {
      EXPECT_NEAR(
          device_scale[k],
          host_scale[k],
          double{std::numeric_limits<float>::epsilon()} * host_scale[k]);
      // rho' is a difference of numbers up to one, where it is small too.
      EXPECT_NEAR(device_residuals[2 * k],
                  weighted[2 * k],
                  128 * kEps *
                      std::max(std::fabs(weighted[2 * k]),
                               std::fabs(problem.residuals[2 * k])));
    }
    EXPECT_NEAR(Download(evaluation)[0].cost,
                host_evaluation.cost,
                (n + 64) * tolerance * host_evaluation.cost);
    // From the same values: the same bits.
    residuals = Upload(weighted);
    scale = Upload(host_scale);
    RunOk(UnscaleResidualsParams<float>{n, scale.data(), residuals.data()});
    EXPECT_TRUE(SameBits(Download(residuals), host_residuals));
  }
}

TEST_F(VectorsTest, DegenerateBlocks) {
  const auto judge = [](auto* machine,
                        int64_t n,
                        double* a,
                        const double* padding,
                        DegenerateRecord* record) {
    JudgeBlocksParams judge;
    judge.n = n;
    judge.columns = 3;
    judge.a = {a, 1, n};
    judge.padding = padding;
    judge.record = record;
    CERES_EXT_RETURN_IF_ERROR(kernels::Run(judge, machine));
    return kernels::Run(FindWorstBlockParams{n, {a, 1, n}, record}, machine);
  };
  for (const int64_t n : kVectorSizes) {
    SCOPED_TRACE(n);
    // J'J of J with three rows; every third has two, and every fifth a third
    // column of padding.
    const Doubles x = RandomVector(9 * n, 5);
    Doubles a(6 * n, 0.0);
    Doubles padding(3 * n, 0.0);
    int64_t num_degenerate = 0;
    for (int64_t i = 0; i < n; ++i) {
      const int rows = i % 3 == 0 ? 2 : 3;
      const int columns = i % 5 == 0 ? 2 : 3;
      padding[3 * i + 2] = i % 5 == 0 ? 1.0 : 0.0;
      num_degenerate += rows < columns ? 1 : 0;
      for (int row = 0; row < rows; ++row) {
        const double* j = x.data() + 9 * i + 3 * row;
        for (int c = 0; c < columns; ++c) {
          for (int d = 0; d <= c; ++d) {
            a[n * (c * (c + 1) / 2 + d) + i] += j[c] * j[d];
          }
        }
      }
    }
    // The worst case: two vectors of length zero.
    for (const int64_t i : {n / 2, n - 1}) {
      if (n > 2) {
        num_degenerate += i % 3 == 0 && i % 5 != 0 ? 0 : 1;
        padding[3 * i + 2] = 0.0;
        for (int e = 0; e < 6; ++e) {
          a[n * e + i] = 0.0;
        }
      }
    }
    Doubles of_host = a;
    DegenerateRecord expected;
    ASSERT_OK(judge(&host_, n, of_host.data(), padding.data(), &expected));
    EXPECT_EQ(expected.count, num_degenerate);
    for (int run = 0; run < kNumRuns; ++run) {
      auto device_a = Upload(a);
      const auto device_padding = Upload(padding);
      auto record = Poisoned<DegenerateRecord>(1);
      ASSERT_OK(RunInWay(run, [&] {
        return judge(machine(),
                     n,
                     device_a.data(),
                     device_padding.data(),
                     record.data());
      }));
      const DegenerateRecord found = Download(record)[0];
      EXPECT_EQ(found.count, num_degenerate);
      EXPECT_EQ(found.severity, expected.severity);
      // Rounding, fused or not, may make others as bad.
      EXPECT_LE(found.block, n > 2 ? n / 2 : DegenerateRecord().block);
    }
  }
}

TEST_F(VectorsTest, SumsInTheHostsOrder) {
  for (const int64_t n : {0, 1, 31, 32, 33, 512, 513, 1000, 100000, 600000}) {
    SCOPED_TRACE(n);
    Doubles x;
    Doubles y;
    MakeExactPairs(n, 9, &x, &y);
    const auto device_x = Upload(x);
    const auto device_y = Upload(y);
    LoopScalars expected;
    ASSERT_OK(RunSums(n, x.data(), y.data(), &expected, &host_));
    for (int run = 0; run < kNumRuns; ++run) {
      auto scalars = Poisoned<LoopScalars>(1);
      ASSERT_OK(RunInWay(run, [&] {
        return RunSums(
            n, device_x.data(), device_y.data(), scalars.data(), machine());
      }));
      EXPECT_TRUE(SameBits(Download(scalars), {expected}));
    }
  }
}

struct PcgArrays {
  const double* x;
  const double* y;
  double* u;
  double* v;
  PcgScalars* s;
};

// Each from scalars of its own: alpha = beta = 1/2 keeps the products exact.
TEST_F(VectorsTest, SumsOfPcgInTheHostsOrder) {
  PcgScalars running;
  running.alpha = 0.5;
  running.beta = 0.5;
  running.rho = 3.0;
  running.num_iterations = 3;
  running.min_num_iterations = 9;
  running.max_num_iterations = 9;
  running.tol_r = -1.0;
  for (const int64_t n : {0, 1, 31, 32, 33, 512, 513, 1000, 100000, 600000}) {
    SCOPED_TRACE(n);
    Doubles x;
    Doubles y;
    MakeExactPairs(n, 9, &x, &y);
    const auto device_x = Upload(x);
    const auto device_y = Upload(y);
    // fn(machine, arrays), see Call: u is y at first, v not a number.
    const auto expect_bits = [&](const char* what, const auto& fn) {
      SCOPED_TRACE(what);
      PcgScalars expected = running;
      Doubles u = y;
      const Doubles nan(x.size(), kNaN);
      Doubles v = nan;
      ASSERT_OK(
          Call(&host_,
               fn,
               PcgArrays{x.data(), y.data(), u.data(), v.data(), &expected}));
      for (int run = 0; run < kNumRuns; ++run) {
        auto device_u = Upload(y);
        auto device_v = Upload(nan);
        auto scalars = Upload(std::vector<PcgScalars>{running});
        ASSERT_OK(RunInWay(run, [&] {
          return Call(machine(),
                      fn,
                      PcgArrays{device_x.data(),
                                device_y.data(),
                                device_u.data(),
                                device_v.data(),
                                scalars.data()});
        }));
        PcgScalars actual = Download(scalars)[0];
        if (n == 0 && std::isnan(actual.zeta) && std::isnan(expected.zeta)) {
          actual.zeta = expected.zeta;  // 0 / 0, of either sign.
        }
        EXPECT_TRUE(SameBits<PcgScalars>({actual}, {expected}));
        EXPECT_TRUE(SameBits(Download(device_u), u));
        EXPECT_TRUE(SameBits(Download(device_v), v));
      }
    };
    expect_bits("start", [&](auto*, const PcgArrays& a) {
      return PcgStartParams{n, -1.0, -1.0, 1, 9, a.x, a.v, a.u, a.s};
    });
    expect_bits("start from x", [&](auto* machine, const PcgArrays& a) {
      CERES_EXT_RETURN_IF_ERROR(kernels::Run(
          PcgStartParams{n, -1.0, -1.0, 1, 9, a.x, a.u, a.v, a.s, true},
          machine));
      return kernels::Run(PcgResidualParams{n, true, a.x, a.u, a.x, a.v, a.s},
                          machine);
    });
    expect_bits("power series", [&](auto* machine, const PcgArrays& a) {
      CERES_EXT_RETURN_IF_ERROR(
          kernels::Run(PowerSeriesStartParams{n, 0.5, a.x, a.v, a.s}, machine));
      return kernels::Run(PowerSeriesTermParams{n, a.v, a.u, a.s, a.s},
                          machine);
    });
    expect_bits("rho", [&](auto*, const PcgArrays& a) {
      return PcgRhoParams{n, a.x, a.y, a.s};
    });
    expect_bits("alpha", [&](auto*, const PcgArrays& a) {
      return PcgAlphaParams{n, a.x, a.y, a.s};
    });
    expect_bits("direction", [&](auto*, const PcgArrays& a) {
      return PcgDirectionParams{n, a.x, a.u, a.s};
    });
    expect_bits("advance", [&](auto*, const PcgArrays& a) {
      return PcgAdvanceParams{n, a.x, a.u, a.s};
    });
    for (const bool reset : {false, true}) {
      expect_bits(reset ? "reset residual" : "residual",
                  [&](auto*, const PcgArrays& a) {
                    return PcgResidualParams{n, reset, a.x, a.y, a.x, a.u, a.s};
                  });
    }
    expect_bits("dot", [&](auto*, const PcgArrays& a) {
      return DotParams{n, a.x, a.y, &a.s->rho};
    });
  }
}

// Two iterations of PCG, of whatever q, in one kernel where they are short.
TEST_F(VectorsTest, InOrderHasTheBitsOfOneAfterTheOther) {
  for (const int64_t n : {1, 31, 256, 257, 511, 512, 513, 2000}) {
    SCOPED_TRACE(n);
    const Doubles b = RandomVector(n, 8);
    const Doubles any_q = RandomVector(n, 9);
    std::vector<Doubles> results;
    for (const bool in_order : {false, true}) {
      const auto rhs = Upload(b);
      auto x = Poisoned<double>(n);
      auto r = Poisoned<double>(n);
      auto p = Poisoned<double>(n);
      const auto q = Upload(any_q);
      auto scalars = Poisoned<PcgScalars>(1);
      PcgScalars* const s = scalars.data();
      RunOk(PcgStartParams{
          n, -1.0, -1.0, 1, 9, rhs.data(), x.data(), r.data(), s});
      for (int i = 0; i < 2; ++i) {
        const PcgRhoParams rho{n, r.data(), r.data(), s};
        const PcgDirectionParams direction{n, r.data(), p.data(), s};
        const PcgAlphaParams alpha{n, p.data(), p.data(), s};
        const PcgAdvanceParams advance{n, p.data(), x.data(), s};
        const PcgResidualParams residual{
            n, false, rhs.data(), q.data(), x.data(), r.data(), s};
        if (in_order) {
          ASSERT_OK(RunInOrder(machine(), rho, direction));
          if (i == 0) {
            ASSERT_OK(RunInOrder(machine(), alpha, advance, residual));
          } else {
            ASSERT_OK(RunInOrder(machine(), alpha, advance));
            RunOk(residual);
          }
        } else {
          RunOk(rho);
          RunOk(direction);
          RunOk(alpha);
          RunOk(advance);
          RunOk(residual);
        }
      }
      const PcgScalars last = Download(scalars)[0];
      EXPECT_EQ(last.num_iterations, 2);
      results.push_back({last.rho, last.alpha, last.q1, last.norm_r});
      for (const auto* vector : {&x, &r, &p}) {
        const Doubles values = Download(*vector);
        results.back().insert(
            results.back().end(), values.begin(), values.end());
      }
    }
    for (const double value : results[0]) {
      ASSERT_TRUE(std::isfinite(value));
    }
    EXPECT_EQ(results[0], results[1]);
  }
}

// One to four tables, the first of which may be empty.
TEST_F(VectorsTest, TogetherHasTheBitsOfOneAfterTheOther) {
  using Gather = TogetherParams<GatherTangentParams>;
  using Scatter = TogetherParams<ScatterTangentParams>;
  constexpr int64_t kPlace = 5000;  // of a table in the vector
  std::vector<TestTable> tables;
  tables.emplace_back(0, 3, 3);
  tables.emplace_back(1000, 3, 3);
  tables.emplace_back(31, 9, 10);
  tables.emplace_back(257, 9, 9);
  for (size_t num_tables = 1; num_tables <= tables.size(); ++num_tables) {
    SCOPED_TRACE(num_tables);
    Gather gather;
    Scatter scatter;
    std::vector<MachineTable> on_machine;
    std::vector<Buffer<double>> padded;
    std::vector<Buffer<double>> alone;
    const auto vector = Upload(RandomVector(4 * kPlace, 3));
    auto scattered = Upload(Doubles(4 * kPlace, 0.0));
    auto scattered_alone = Upload(Doubles(4 * kPlace, 0.0));
    for (size_t i = 0; i < num_tables; ++i) {
      on_machine.push_back(OnMachine(tables[i]));
      const BlockTableRef& table = on_machine.back().ref;
      const int64_t n = table.num_padded_values();
      padded.push_back(Poisoned<double>(n));
      alone.push_back(Poisoned<double>(n));
      gather.Add({table, vector.data(), 0.5, padded.back().data()});
      scatter.Add({table, padded.back().data(), scattered.data() + kPlace * i});
      RunOk(
          GatherTangentParams{table, vector.data(), 0.5, alone.back().data()});
    }
    RunOk(gather);
    RunOk(scatter);
    for (size_t i = 0; i < num_tables; ++i) {
      EXPECT_EQ(Download(padded[i]), Download(alone[i]));
      RunOk(ScatterTangentParams{on_machine[i].ref,
                                 alone[i].data(),
                                 scattered_alone.data() + kPlace * i});
    }
    EXPECT_EQ(Download(scattered), Download(scattered_alone));
  }
}

TEST_F(VectorsTest, SumsKeepWhatIsNotFinite) {
  for (const int64_t where : {0, 700, 1499}) {
    for (const double value : {kNaN, kInfinity, -kInfinity}) {
      Doubles x = RandomVector(1500, 6);
      x[where] = value;
      const auto device_x = Upload(x);
      const auto device_y = Upload(RandomVector(1500, 7));
      auto scalars = Poisoned<LoopScalars>(1);
      ASSERT_OK(RunSums(
          1500, device_x.data(), device_y.data(), scalars.data(), machine()));
      const LoopScalars actual = Download(scalars)[0];
      for (const double norm :
           {actual.max_norm, actual.norm, actual.x_norm, actual.step_norm}) {
        EXPECT_EQ(std::isnan(norm), std::isnan(value));
        EXPECT_FALSE(std::isfinite(norm));
      }
    }
  }
}

// ---------------------------------------------------------------------------

template <typename TIn, int CIn>
struct Combination {
  using T = TIn;
  static constexpr int C = CIn;
};

template <typename Combination>
class CorrectForLossTest : public VectorsTest {
 protected:
  using T = typename Combination::T;
  static constexpr int C = Combination::C;
  using Problem = LossProblem<T, C>;
  template <BlockLayout kLayout>
  using Params = CorrectForLossParams<T, BalShape<C>, kLayout>;

  // The requested parts of a correction; rho filled beforehand.
  enum Wanted { kResiduals = 1, kCameras = 2, kPoints = 4, kFilledRho = 8 };
  static constexpr int kAll = kResiduals | kCameras | kPoints;

  // Corrects what is wanted of *problem and returns the record. Residuals go to
  // *corrected where that is not null. run: the way of the machine to run it.
  Evaluation Correct(int wanted,
                     Problem* problem,
                     Doubles* corrected = nullptr,
                     int run = 0) {
    const int64_t n = problem->num_observations;
    auto losses = Upload(problem->losses);
    auto loss_id = Upload(problem->loss_id);
    auto rho = Upload(Rho(*problem));
    auto residuals = Upload(problem->residuals);
    auto others = Upload(Doubles(2 * n, kNaN));
    auto camera_blocks = Upload(InLayout(problem->camera_blocks, 2 * C));
    auto point_blocks = Upload(InLayout(problem->point_blocks, 6));
    auto evaluation = Upload(std::vector<Evaluation>{{-1.0, 17}});
    Params<Machine::kLayout> params;
    params.n = n;
    params.loss = {losses.data(), loss_id.data()};
    if (wanted & kFilledRho) {
      params.loss = {nullptr, nullptr, rho.data()};
    }
    params.residuals = residuals.data();
    if (wanted & kResiduals) {
      params.corrected_residuals =
          corrected != nullptr ? others.data() : residuals.data();
    }
    if (wanted & kCameras) {
      params.correction.camera_blocks = {camera_blocks.data(), n};
    }
    if (wanted & kPoints) {
      params.correction.point_blocks = {point_blocks.data(), n};
    }
    params.evaluation = evaluation.data();
    const Status status =
        RunInWay(run, [&] { return kernels::Run(params, machine()); });
    EXPECT_TRUE(status.ok()) << status.message;
    problem->residuals = Download(residuals);
    if (corrected != nullptr) {
      *corrected = Download(others);
    }
    problem->camera_blocks = FromLayout(Download(camera_blocks), 2 * C);
    problem->point_blocks = FromLayout(Download(point_blocks), 6);
    return Download(evaluation)[0];
  }

  static Doubles Rho(const Problem& problem) {
    Doubles rho(3 * problem.num_observations, kNaN);
    const LossRef view = {problem.losses.data(), problem.loss_id.data()};
    for (int64_t k = 0; k < problem.num_observations; ++k) {
      const double* r = &problem.residuals[2 * k];
      view.Evaluate(k, r[0] * r[0] + r[1] * r[1], &rho[3 * k]);
    }
    return rho;
  }

  using Matrix = Eigen::Matrix<double, 2, C + 3>;
  static Matrix Jacobian(const Problem& problem, int64_t k) {
    Matrix J;
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < C; ++j) {
        J(i, j) =
            static_cast<double>(problem.camera_blocks[2 * C * k + C * i + j]);
      }
      for (int j = 0; j < 3; ++j) {
        J(i, C + j) =
            static_cast<double>(problem.point_blocks[6 * k + 3 * i + j]);
      }
    }
    return J;
  }
  static Eigen::Vector2d Residual(const Problem& problem, int64_t k) {
    return {problem.residuals[2 * k], problem.residuals[2 * k + 1]};
  }
};

using Combinations = testing::Types<Combination<double, 9>,
                                    Combination<double, 10>,
                                    Combination<float, 9>,
                                    Combination<float, 10>>;
TYPED_TEST_SUITE(CorrectForLossTest, Combinations);

TYPED_TEST(CorrectForLossTest, KeepsGradientAndHessian) {
  using T = typename TypeParam::T;
  constexpr int C = TypeParam::C;
  // For rho on a device: AgreesWithHost.
  const double of_device = kOnHost ? 0 : 64;
  for (const int64_t n : {0, 1, 31, 32, 33, 1000}) {
    const LossProblem<T, C> before(n);
    LossProblem<T, C> after = before;
    const Evaluation evaluation = this->Correct(this->kAll, &after);
    long double cost = 0;
    for (int64_t k = 0; k < n; ++k) {
      const Eigen::Vector2d r = this->Residual(before, k);
      const Eigen::Vector2d corrected_r = this->Residual(after, k);
      const auto J = this->Jacobian(before, k);
      const auto corrected_J = this->Jacobian(after, k);
      double rho[3] = {r.squaredNorm(), 1.0, 0.0};
      if (before.loss_id[k] != kNoLoss) {
        before.losses[before.loss_id[k]].Evaluate(r.squaredNorm(), rho);
      }
      cost += rho[0] / 2;
      if (rho[1] == 1.0 && rho[2] <= 0.0) {
        EXPECT_EQ(corrected_r, r);
        EXPECT_EQ(corrected_J, J);
        continue;
      }
      const Eigen::VectorXd g = J.transpose() * r;
      const Eigen::MatrixXd H = rho[1] * J.transpose() * J +
                                2 * std::max(rho[2], 0.0) * g * g.transpose();
      // |J~| <= |J| and |r~| <= |r| as rho' <= 1 and, where rho'' > 0, the
      // square of 1 - alpha is 1 + 2 s rho'' / rho' <= growth. Each element has
      // at most 16 roundings and the one to T; two are multiplied.
      const double growth =
          rho[2] > 0.0 ? 1 + 2 * r.squaredNorm() * rho[2] / rho[1] : 1.0;
      const double tolerance =
          2 * growth *
          ((16 + of_device) * kEpsilon + std::numeric_limits<T>::epsilon());
      EXPECT_LE((corrected_J.transpose() * corrected_r - rho[1] * g).norm(),
                tolerance * J.norm() * r.norm());
      EXPECT_LE((corrected_J.transpose() * corrected_J - H).norm(),
                tolerance * J.squaredNorm());
    }
    const double tolerance =
        static_cast<double>(SumDepth(n) + 3 + of_device) * kEps;
    EXPECT_NEAR(evaluation.cost,
                static_cast<double>(cost),
                tolerance * static_cast<double>(cost));
    EXPECT_EQ(evaluation.num_not_finite, 17);
  }
}

TYPED_TEST(CorrectForLossTest, WhatIsNotWantedStays) {
  const LossProblem<typename TypeParam::T, TypeParam::C> before(100);
  auto after = before;
  const double cost = this->Correct(this->kAll, &after).cost;

  auto problem = before;
  EXPECT_EQ(this->Correct(0, &problem).cost, cost);
  EXPECT_EQ(problem.residuals, before.residuals);

  // Residuals in another array; points without cameras.
  Doubles corrected;
  EXPECT_EQ(
      this->Correct(this->kResiduals | this->kPoints, &problem, &corrected)
          .cost,
      cost);
  EXPECT_EQ(problem.residuals, before.residuals);
  EXPECT_EQ(corrected, after.residuals);
  EXPECT_EQ(problem.point_blocks, after.point_blocks);
  EXPECT_EQ(problem.camera_blocks, before.camera_blocks);
}

// Against the host, which reads no rho filled beforehand. The host itself is to
// have the same bits, and what is filled is read in place of chains.
TYPED_TEST(CorrectForLossTest, AgreesWithHost) {
  using T = typename TypeParam::T;
  constexpr int C = TypeParam::C;
  // At most 64 roundings on the way to an element, and as many for e^x with x
  // below 2^6; T rounds once more.
  const double tolerance =
      128 * kEps +
      (sizeof(T) == 4 ? double{std::numeric_limits<T>::epsilon()} : 0.0);
  for (const int64_t n : {0, 1, 31, 32, 33, 1000, 10000}) {
    // Bits of Wanted.
    for (const int mask : {7, 0, 1, 2 | 4, 8, 8 | 7}) {
      SCOPED_TRACE(testing::Message() << n << " observations, mask " << mask);
      const LossProblem<T, C> before(n);
      LossProblem<T, C> host = before;
      Evaluation host_evaluation{-1.0, 17};
      CorrectForLossParams<T, BalShape<C>, kHostLayout> host_params;
      host_params.n = n;
      host_params.loss = {host.losses.data(), host.loss_id.data()};
      host_params.residuals = host.residuals.data();
      if (mask & 1) {
        host_params.corrected_residuals = host.residuals.data();
      }
      if (mask & 2) {
        host_params.correction.camera_blocks = {host.camera_blocks.data(), n};
      }
      if (mask & 4) {
        host_params.correction.point_blocks = {host.point_blocks.data(), n};
      }
      host_params.evaluation = &host_evaluation;
      kernels::RunOk(host_params, &this->host_);

      const Doubles all_rho = this->Rho(before);
      // r sqrt(rho') / (1 - alpha) and sqrt(rho') (J - alpha r r'J / |r|^2),
      // with sqrt(rho') of about one at most: an element is of terms of the
      // size of its column times 1 + |alpha|.
      const auto bounds = [&](const auto& values, int num_columns) {
        Doubles bound;
        for (int64_t k = 0; k < n; ++k) {
          const double* residual = &before.residuals[2 * k];
          const double s =
              residual[0] * residual[0] + residual[1] * residual[1];
          const double* rho = &all_rho[3 * k];
          const double alpha =
              rho[2] > 0.0 ? 1.0 - std::sqrt(1.0 + 2.0 * s * rho[2] / rho[1])
                           : 0.0;
          const double factor =
              std::max(1.0, std::sqrt(rho[1])) * (1.0 + std::fabs(alpha));
          const auto* block = &values[2 * num_columns * k];
          for (int i = 0; i < 2 * num_columns; ++i) {
            const int j = i % num_columns;
            const double column =
                std::hypot(static_cast<double>(block[j]),
                           static_cast<double>(block[num_columns + j]));
            bound.push_back(tolerance * factor * column);
          }
        }
        return bound;
      };

      LossProblem<T, C> first = before;
      const Evaluation e = this->Correct(mask, &first);
      EXPECT_TRUE(
          Close(first.residuals, host.residuals, bounds(before.residuals, 1)));
      EXPECT_TRUE(
          Close({first.camera_blocks.begin(), first.camera_blocks.end()},
                {host.camera_blocks.begin(), host.camera_blocks.end()},
                bounds(before.camera_blocks, C)));
      EXPECT_TRUE(Close({first.point_blocks.begin(), first.point_blocks.end()},
                        {host.point_blocks.begin(), host.point_blocks.end()},
                        bounds(before.point_blocks, 3)));
      EXPECT_NEAR(e.cost,
                  host_evaluation.cost,
                  static_cast<double>(2 * SumDepth(n) + 128) * kEps *
                      host_evaluation.cost);
      EXPECT_EQ(e.num_not_finite, 17);

      const auto expect_same = [&](const LossProblem<T, C>& other,
                                   const Evaluation& evaluation) {
        EXPECT_EQ(e.cost, evaluation.cost);
        EXPECT_TRUE(SameBits(first.residuals, other.residuals));
        EXPECT_TRUE(SameBits(first.camera_blocks, other.camera_blocks));
        EXPECT_TRUE(SameBits(first.point_blocks, other.point_blocks));
      };
      for (int run = 1; run < this->kNumRuns; ++run) {
        LossProblem<T, C> again = before;
        const Evaluation e_again = this->Correct(mask, &again, nullptr, run);
        expect_same(again, e_again);
      }
      if (kOnHost) {
        expect_same(host, host_evaluation);
      }
    }
  }
}

}  // namespace
}  // namespace ceres_ext::kernels
