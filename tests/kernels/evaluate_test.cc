// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Evaluation on every machine: literals by hand, and the functions of
// bal_model.h on running numbers (running_error.h), which have the values, on
// the host the bits, and the difference that each element is allowed. A device
// contracts a * b + c into one rounding where the host need not, and its sine
// and cosine may differ by 2 units in the last place. Beside that, differences
// are at most 64 roundings of the largest element of the array, n more for sums
// of n terms.
#include "cuda_kernels/ops/evaluate.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "cuda_kernels/structure/row_index.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/machine_test.h"
#include "tests/kernels/structures.h"
#include "tests/model/bal_evaluate.h"

namespace ceres_ext::kernels {
namespace {

using testing::ElementsAre;
using Doubles = std::vector<double>;
using Number = Running<double>;
using Numbers = std::vector<Number>;

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
constexpr double kUnit = kUnitRoundoff<double>;

template <typename To, typename T>
std::vector<To> Values(const std::vector<CameraState<T>>& states) {
  std::vector<To> values;
  for (const CameraState<T>& state : states) {
    values.insert(values.end(), state.R, state.R + 9);
    values.insert(values.end(), state.t, state.t + 3);
    values.insert(values.end(), {To(state.f), To(state.k1), To(state.k2)});
  }
  return values;
}

// As computed in double, then rounded to T.
template <typename T>
Numbers RoundedTo(Numbers numbers) {
  for (Number& x : numbers) {
    x = x.RoundTo(kUnitRoundoff<T>);
  }
  return numbers;
}

// State and map of a camera (PrepareCamera).
template <int C>
void PrepareRunning(CameraParameters parameters,
                    const double* camera,
                    const double* tangent,
                    const double* scale,
                    const double* origin,
                    std::vector<CameraState<Number>>* states,
                    Numbers* maps) {
  const int A = static_cast<int>(parameters);
  const Numbers x(camera, camera + A);
  Number rotation_map[3 * 4];
  Number local[kBalLocalCameraDim * kBalQuaternionCameraDim];
  if (parameters == CameraParameters::kAngleAxis) {
    states->push_back(PrepareBalCamera<3>(x.data(), rotation_map));
    ExpandCameraMap<3>(rotation_map, local);
  } else {
    states->push_back(PrepareBalCamera<4>(x.data(), rotation_map));
    ExpandCameraMap<4>(rotation_map, local);
  }
  if (origin != nullptr) {
    Number moved[3];
    for (int i = 0; i < 3; ++i) {
      for (int k = 0; k < 3; ++k) {
        moved[i] += states->back().R[3 * i + k] * Number(origin[k]);
      }
      states->back().t[i] += moved[i];
    }
    for (int j = 0; j < A - 6; ++j) {
      for (int i = 0; i < 3; ++i) {
        const int k = (i + 1) % 3;
        const int l = (i + 2) % 3;
        local[(3 + i) * A + j] +=
            local[k * A + j] * moved[l] - local[l * A + j] * moved[k];
      }
    }
  }
  for (int i = 0; i < kBalLocalCameraDim; ++i) {
    for (int j = 0; j < C; ++j) {
      Number sum;
      for (int a = 0; a < A; ++a) {
        sum += local[i * A + a] *
               Number(tangent != nullptr ? tangent[a * C + j] : a == j);
      }
      maps->push_back(scale != nullptr ? sum * Number(scale[j]) : sum);
    }
  }
}

Doubles ValuesOf(const Numbers& numbers) {
  Doubles values;
  for (const Number& x : numbers) {
    values.push_back(x.value);
  }
  return values;
}

class EvaluateTest : public MachineTest {
 protected:
  void Prepare(const Structure& pairs) {
    num_cameras_ = pairs.num_cameras;
    num_points_ = pairs.num_points;
    n_ = static_cast<int64_t>(pairs.camera.size());
    const ObservationPairs input = pairs.pairs();
    ASSERT_OK(host_index_.Build(input));
    RowIndex<Machine>::Options options;
    options.keep_point_order = true;
    ASSERT_OK(index_.Setup(input, options, nullptr, machine()));
    MakeScene(pairs, 5, &cameras_, &points_, &observations_);
    states_.clear();
    for (int64_t c = 0; c < num_cameras_; ++c) {
      double rotation_map[9];
      states_.push_back(
          PrepareBalCamera<3>(cameras_.data() + 9 * c, rotation_map));
    }
    scale_ = RandomVector(3 * num_points_, 42);
    SetInputs();
  }
  // The arrays as they are now, to the machine.
  void SetInputs() {
    machine_states_ = Upload(states_);
    machine_points_ = Upload(points_);
    machine_scale_ = Upload(scale_);
    machine_observations_ = Upload(observations_);
  }

  template <typename T>
  struct Results {
    Evaluation evaluation;
    Doubles residuals, camera_gradient, point_gradient;
    std::vector<T> jc, jp;  // in host layout
  };
  // run: the way of the machine to run it.
  template <typename T, int C>
  Results<T> Jacobian(int run, bool with_vectors = true) {
    auto residuals = Poisoned<double>(2 * n_);
    auto jc = Poisoned<T>(2 * C * n_);
    auto jp = Poisoned<T>(6 * n_);
    auto camera_gradient = Poisoned<double>(C * num_cameras_);
    auto point_gradient = Poisoned<double>(3 * num_points_);
    auto evaluation = Poisoned<Evaluation>(1);
    EvaluateJacobianParams<T, C, Machine::kLayout> params;
    params.index = index_.ref();
    params.cameras = machine_states_.data();
    params.camera_maps = machine_maps_.data();
    params.points = machine_points_.data();
    params.point_scale = machine_scale_.data();
    params.observations = machine_observations_.data();
    params.camera_blocks = {jc.data(), n_};
    params.point_blocks = {jp.data(), n_};
    if (with_vectors) {
      params.residuals = residuals.data();
      params.camera_gradient = camera_gradient.data();
      params.point_gradient = point_gradient.data();
    }
    params.evaluation = evaluation.data();
    const Status status =
        RunInWay(run, [&] { return kernels::Run(params, machine()); });
    EXPECT_TRUE(status.ok()) << status.message;
    return {Download(evaluation)[0],
            Download(residuals),
            Download(camera_gradient),
            Download(point_gradient),
            FromLayout(Download(jc), 2 * C),
            FromLayout(Download(jp), 6)};
  }
  // residuals may be null.
  Evaluation Cost(int run, Doubles* residuals) {
    auto machine_residuals = Poisoned<double>(2 * n_);
    auto evaluation = Poisoned<Evaluation>(1);
    EvaluateCostParams params;
    params.index = index_.ref();
    params.cameras = machine_states_.data();
    params.points = machine_points_.data();
    params.observations = machine_observations_.data();
    params.residuals =
        residuals == nullptr ? nullptr : machine_residuals.data();
    params.evaluation = evaluation.data();
    const Status status =
        RunInWay(run, [&] { return kernels::Run(params, machine()); });
    EXPECT_TRUE(status.ok()) << status.message;
    if (residuals != nullptr) {
      *residuals = Download(machine_residuals);
    }
    return Download(evaluation)[0];
  }

  template <typename T, int C>
  void ExpectPrepare(CameraParameters parameters,
                     bool with_tangent,
                     bool with_origin);
  // general_maps: random; else of the form that BAL cameras have.
  template <typename T, int C>
  void ExpectJacobian(bool general_maps);

  int64_t num_cameras_ = 0;
  int64_t num_points_ = 0;
  int64_t n_ = 0;
  ObservationIndex host_index_;
  RowIndex<Machine> index_;
  Doubles cameras_, points_, observations_, scale_;
  std::vector<CameraState<double>> states_;
  Buffer<CameraState<double>> machine_states_;
  Buffer<double> machine_maps_, machine_points_, machine_scale_,
      machine_observations_;
};

template <typename T, int C>
void EvaluateTest::ExpectPrepare(CameraParameters parameters,
                                 bool with_tangent,
                                 bool with_origin) {
  constexpr int kCameras = 40;
  const int num_parameters = static_cast<int>(parameters);
  const Doubles cameras = RandomVector(num_parameters * kCameras, 31);
  const Doubles tangent = RandomVector(num_parameters * C * kCameras, 32);
  const Doubles scale = RandomVector(C * kCameras, 33);
  const Doubles origin = {1e3, -2e5, 30.0};
  const auto machine_cameras = Upload(cameras);
  const auto machine_tangent = Upload(tangent);
  const auto machine_scale = Upload(scale);
  const auto machine_origin = Upload(origin);
  auto states = Poisoned<CameraState<T>>(kCameras);
  auto maps = Poisoned<double>(9 * C * kCameras);
  PrepareCamerasParams<T, C> params;
  params.num_cameras = kCameras;
  params.parameters = parameters;
  params.cameras = machine_cameras.data();
  params.tangent = with_tangent ? machine_tangent.data() : nullptr;
  params.camera_scale = with_tangent ? machine_scale.data() : nullptr;
  params.origin = with_origin ? machine_origin.data() : nullptr;
  params.states = states.data();
  if (!with_tangent && C < num_parameters) {
    // States alone have no columns.
    EXPECT_TRUE(kernels::Run(params, machine()).ok());
    params.maps = maps.data();
    EXPECT_EQ(kernels::Run(params, machine()).code,
              StatusCode::kInvalidArgument);
    return;
  }
  params.maps = maps.data();
  RunOk(params);
  std::vector<CameraState<Number>> running_states;
  Numbers running_maps;
  for (int64_t c = 0; c < kCameras; ++c) {
    PrepareRunning<C>(parameters,
                      &cameras[num_parameters * c],
                      with_tangent ? &tangent[num_parameters * C * c] : nullptr,
                      with_tangent ? &scale[C * c] : nullptr,
                      with_origin ? origin.data() : nullptr,
                      &running_states,
                      &running_maps);
  }
  const Numbers running = Values<Number>(running_states);
  EXPECT_TRUE(Close(Values<double>(Download(states)),
                    ValuesOf(running),
                    RoundedTo<T>(running),
                    64 * kUnitRoundoff<T>));
  EXPECT_TRUE(
      Close(Download(maps), ValuesOf(running_maps), running_maps, 64 * kUnit));
}

TEST_F(EvaluateTest, PrepareCameras) {
  for (const bool with_tangent : {false, true}) {
    for (const bool with_origin : {false, true}) {
      for (const CameraParameters parameters :
           {CameraParameters::kAngleAxis, CameraParameters::kQuaternion}) {
        ExpectPrepare<double, 9>(parameters, with_tangent, with_origin);
        ExpectPrepare<double, 10>(parameters, with_tangent, with_origin);
        ExpectPrepare<float, 9>(parameters, with_tangent, with_origin);
        ExpectPrepare<float, 10>(parameters, with_tangent, with_origin);
      }
    }
  }
}

// No rotation, t = (0, 0, -1), f = 2, no distortion; X = (1, 2, -3):
// Xc = (1, 2, -4), (x, y) = (1/4, 1/2), residual = (1/2, 1) - (1, 3).
// d residual / d X = f / 4 [1 0 x; 0 1 y].
TEST_F(EvaluateTest, ByHand) {
  Prepare({"", 1, 1, {0}, {0}});
  const auto cameras = Upload(Doubles{0, 0, 0, 0, 0, -1, 2, 0, 0});
  points_ = {1, 2, -3};
  scale_ = {1, 1, 1};
  observations_ = {1, 3};
  SetInputs();
  machine_maps_ = Poisoned<double>(81);
  PrepareCamerasParams<double, 9> prepare;
  prepare.num_cameras = 1;
  prepare.cameras = cameras.data();
  prepare.states = machine_states_.data();
  prepare.maps = machine_maps_.data();
  RunOk(prepare);
  const auto results = Jacobian<double, 9>(0);
  EXPECT_EQ(results.evaluation.cost, 0.5 * (0.25 + 4));
  EXPECT_EQ(results.evaluation.num_not_finite, 0);
  EXPECT_THAT(results.residuals, ElementsAre(-0.5, -2));
  EXPECT_THAT(results.jp, ElementsAre(0.5, 0, 0.125, 0, 0.5, 0.25));
  // Columns of t are those of the point, of f is (x, y).
  EXPECT_THAT(Doubles(results.jc.begin() + 3, results.jc.begin() + 7),
              ElementsAre(0.5, 0, 0.125, 0.25));
  EXPECT_EQ(results.point_gradient[0], -0.25);
  EXPECT_EQ(results.point_gradient[1], -1);
  EXPECT_EQ(results.camera_gradient[6], -0.5 * 0.25 - 2 * 0.5);
  EXPECT_EQ(Cost(0, nullptr).cost, 0.5 * (0.25 + 4));
}

#ifndef CERES_EXT_TEST_ON_CUDA
// States and points of another origin give the same projections and Jacobians.
template <int C>
void ExpectAnyOrigin() {
  constexpr double kOrigin[3] = {30.0, -200.0, 7.0};
  constexpr int kCameras = 5;
  HostMachine machine(1);
  std::mt19937 generator(6);
  std::normal_distribution<double> normal;
  std::vector<double> cameras(C * kCameras);
  for (int i = 0; i < C * kCameras; ++i) {
    // The camera looks along -z, 5 away from points about the origin.
    cameras[i] = i % C == C - 4   ? -5.0 + 0.1 * normal(generator)
                 : i % C == C - 3 ? 500.0
                 : i % C >= C - 2 ? 0.01 * normal(generator)
                                  : normal(generator);
  }
  const std::vector<double> point = {0.3, -0.2, 0.1};
  std::vector<CameraState<double>> states(kCameras);
  std::vector<double> maps(9 * C * kCameras);
  PrepareCamerasParams<double, C> params;
  params.num_cameras = kCameras;
  params.parameters = static_cast<CameraParameters>(C);
  params.cameras = cameras.data();
  params.states = states.data();
  params.maps = maps.data();
  RunOk(params, &machine);
  std::vector<CameraState<double>> moved_states(kCameras);
  std::vector<double> moved_maps(9 * C * kCameras);
  params.origin = kOrigin;
  params.states = moved_states.data();
  params.maps = moved_maps.data();
  RunOk(params, &machine);
  double moved_point[3];
  RunOk(MovePointsParams<double>{1, point.data(), kOrigin, moved_point},
        &machine);
  const RecomputedJacobian<double, C> here{
      states.data(), maps.data(), point.data()};
  const RecomputedJacobian<double, C> there{
      moved_states.data(), moved_maps.data(), moved_point};
  for (int c = 0; c < kCameras; ++c) {
    double expected[2 * C + 6];
    double found[2 * C + 6];
    here.Load(0, c, 0, expected, expected + 2 * C);
    there.Load(0, c, 0, found, found + 2 * C);
    // Terms of up to 500 * 200 cancel, some thirty operations each.
    for (int i = 0; i < 2 * C + 6; ++i) {
      EXPECT_NEAR(found[i], expected[i], 32 * kEpsilon * 500.0 * 200.0);
    }
  }
}

TEST(EvaluateHostTest, AnyOriginGivesTheSameJacobian) {
  ExpectAnyOrigin<9>();
  ExpectAnyOrigin<10>();
}
#endif

TEST_F(EvaluateTest, LocalOriginIsAmidTheCameras) {
  const auto find = [this](const Doubles& centers) {
    Doubles cameras;
    for (const double center : centers) {
      // R is the identity.
      cameras.insert(cameras.end(),
                     {0.0, 0.0, 0.0, -center, 3.0, -1.0, 500.0, 0.0, 0.0});
    }
    const auto machine_cameras = Upload(cameras);
    auto origin = Poisoned<double>(3);
    LocalOriginParams params;
    params.num_cameras = static_cast<int32_t>(centers.size());
    params.cameras = machine_cameras.data();
    params.origin = origin.data();
    RunOk(params);
    return Download(origin);
  };
  const Doubles zero(3, 0.0);
  EXPECT_EQ(find({}), zero);
  EXPECT_EQ(find({1e6}), (Doubles{1e6, -3.0, 1.0}));
  // Near: as far as they are from each other, or nine times as far.
  EXPECT_EQ(find({10.0, 20.0, 30.0}), zero);
  EXPECT_EQ(find({80.0, 90.0, 100.0}), zero);
  EXPECT_EQ(find({100.0, 109.0, 118.0}), (Doubles{109.0, -3.0, 1.0}));
  // A few that are lost don't move it, nor do numbers that are none.
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(find({1e6, 1e6 + 1, 1e6 + 2, 1e6 + 3, 1e12}),
            (Doubles{1e6 + 2, -3.0, 1.0}));
  EXPECT_EQ(find({nan, nan, nan}), zero);
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(find({infinity, infinity}), zero);
}

TEST_F(EvaluateTest, LocalOriginAndMovePoints) {
  HostMachine host(1);
  for (const CameraParameters parameters :
       {CameraParameters::kAngleAxis, CameraParameters::kQuaternion}) {
    const int size = static_cast<int>(parameters);
    for (const double far : {0.0, 1e7}) {
      for (const int num_cameras : {0, 1, 2, 9, 40}) {
        Doubles cameras = RandomVector(size * num_cameras, 34);
        for (int c = 0; c < num_cameras; ++c) {
          cameras[size * c + size - 5] += far;
        }
        LocalOriginParams params;
        params.num_cameras = num_cameras;
        params.parameters = parameters;
        Doubles expected(3, -1.0);
        params.cameras = cameras.data();
        params.origin = expected.data();
        ASSERT_OK(kernels::Run(params, &host));
        const auto on_cameras = Upload(cameras);
        auto origin = Poisoned<double>(3);
        params.cameras = on_cameras.data();
        params.origin = origin.data();
        ASSERT_OK(kernels::Run(params, machine()));
        ASSERT_OK(machine()->Synchronize());
        const Doubles found = Download(origin);
        for (int k = 0; k < 3; ++k) {
          // R is rounded a few times, and so are three products of it.
          EXPECT_NEAR(found[k], expected[k], 1e-14 * (1.0 + far));
        }
        const Doubles points = RandomVector(3 * 1000, 35);
        const auto on_points = Upload(points);
        auto moved = Poisoned<float>(3 * 1000);
        ASSERT_OK(kernels::Run(
            MovePointsParams<float>{
                1000, on_points.data(), origin.data(), moved.data()},
            machine()));
        ASSERT_OK(machine()->Synchronize());
        const std::vector<float> actual = Download(moved);
        for (int i = 0; i < 3 * 1000; ++i) {
          ASSERT_EQ(actual[i], static_cast<float>(points[i] - found[i % 3]));
        }
      }
    }
  }
}

template <typename T, int C>
void EvaluateTest::ExpectJacobian(bool general_maps) {
  Doubles maps = RandomVector(9 * C * num_cameras_, 41);
  for (size_t at = 0; at < maps.size() && !general_maps; ++at) {
    const int i = static_cast<int>(at / C % 9);
    const int j = static_cast<int>(at % C);
    if (i < 3 ? j >= C - 6 : j - (C - 6) != i - 3) {
      maps[at] = 0.0;
    }
  }
  machine_maps_ = Upload(maps);

  // Each element in running numbers.
  const ObservationIndexRef& index = host_index_.ref();
  Numbers residuals(2 * n_), jc(2 * C * n_), jp(6 * n_);
  std::vector<RunningSum<double>> camera_sums(C * num_cameras_),
      point_sums(3 * num_points_);
  RunningSum<double> cost_sum;
  for (int64_t k = 0; k < n_; ++k) {
    const int64_t c = index.camera_id[k];
    const int64_t p = index.point_id[k];
    const Numbers point(&points_[3 * p], &points_[3 * p] + 3);
    const Numbers map(&maps[9 * C * c], &maps[9 * C * c] + 9 * C);
    const Numbers measured(&observations_[2 * k], &observations_[2 * k] + 2);
    const CameraState<Number> camera = ToRunning<double>(states_[c]);
    Evaluate<C>(camera,
                map.data(),
                point.data(),
                measured.data(),
                &residuals[2 * k],
                &jc[2 * C * k],
                &jp[6 * k]);
    for (int r = 0; r < 2; ++r) {
      const Number residual = residuals[2 * k + r];
      cost_sum.Add(Number(0.5) * residual * residual);
      for (int j = 0; j < C; ++j) {
        camera_sums[C * c + j].Add(jc[C * (2 * k + r) + j] * residual);
      }
      for (int j = 0; j < 3; ++j) {
        Number& element = jp[3 * (2 * k + r) + j];
        element *= Number(scale_[3 * p + j]);
        point_sums[3 * p + j].Add(element * residual);
      }
    }
  }
  const auto get = [](const std::vector<RunningSum<double>>& sums) {
    Numbers numbers;
    for (const RunningSum<double>& sum : sums) {
      numbers.push_back(sum.Get());
    }
    return numbers;
  };
  const Number cost = cost_sum.Get();
  const Numbers camera_gradient = get(camera_sums);
  const Numbers point_gradient = get(point_sums);
  const double sum_tolerance = static_cast<double>(n_ + 64) * kUnit;
  const double cost_bound =
      std::min(2.0 * cost.error, sum_tolerance * cost.value);

  const auto first = Jacobian<T, C>(0);
  const auto expect_blocks = [](const std::vector<T>& found,
                                const Numbers& running) {
    EXPECT_TRUE(Close(Doubles(found.begin(), found.end()),
                      ValuesOf(running),
                      RoundedTo<T>(running),
                      64 * kUnitRoundoff<T>));
    for (size_t i = 0; kOnHost && i < found.size(); ++i) {
      EXPECT_EQ(found[i], static_cast<T>(running[i].value));
    }
  };
  const auto expect_residuals = [&](const Doubles& found) {
    EXPECT_TRUE(Close(found, ValuesOf(residuals), residuals, 64 * kUnit));
    EXPECT_TRUE(!kOnHost || found == ValuesOf(residuals));
  };
  EXPECT_EQ(first.evaluation.num_not_finite, 0);
  EXPECT_NEAR(first.evaluation.cost, cost.value, cost_bound);
  expect_residuals(first.residuals);
  expect_blocks(first.jc, jc);
  expect_blocks(first.jp, jp);
  EXPECT_TRUE(Close(first.camera_gradient,
                    ValuesOf(camera_gradient),
                    camera_gradient,
                    sum_tolerance));
  EXPECT_TRUE(Close(first.point_gradient,
                    ValuesOf(point_gradient),
                    point_gradient,
                    sum_tolerance));
  Doubles first_cost_residuals;
  const Evaluation first_cost = Cost(0, &first_cost_residuals);
  EXPECT_EQ(first_cost.num_not_finite, 0);
  // The order of its sum is another one.
  EXPECT_NEAR(first_cost.cost, cost.value, cost_bound);
  expect_residuals(first_cost_residuals);
  for (int run = 1; run < kNumRuns; ++run) {
    SCOPED_TRACE(run);
    const auto again = Jacobian<T, C>(run);
    EXPECT_EQ(again.evaluation.cost, first.evaluation.cost);
    EXPECT_TRUE(SameBits(again.residuals, first.residuals));
    EXPECT_TRUE(SameBits(again.jc, first.jc));
    EXPECT_TRUE(SameBits(again.jp, first.jp));
    EXPECT_TRUE(SameBits(again.camera_gradient, first.camera_gradient));
    EXPECT_TRUE(SameBits(again.point_gradient, first.point_gradient));
    // Without what is optional.
    const auto blocks = Jacobian<T, C>(run, /*with_vectors=*/false);
    EXPECT_EQ(blocks.evaluation.cost, first.evaluation.cost);
    EXPECT_TRUE(SameBits(blocks.jc, first.jc));
    EXPECT_TRUE(SameBits(blocks.jp, first.jp));
    Doubles cost_residuals;
    EXPECT_EQ(Cost(run, &cost_residuals).cost, first_cost.cost);
    EXPECT_TRUE(SameBits(cost_residuals, first_cost_residuals));
    EXPECT_EQ(Cost(run, nullptr).cost, first_cost.cost);
  }
}

TEST_F(EvaluateTest, Jacobian) {
  std::vector<Structure> all = {MakeEdgePairs()};
  for (const Structure& s : EdgeStructures()) {
    // A device's gradient needs room for residuals.
    if (kOnHost || !s.camera.empty()) {
      all.push_back(s);
    }
  }
  for (const Structure& pairs : all) {
    SCOPED_TRACE(testing::Message() << pairs.num_cameras << " cameras, "
                                    << pairs.num_points << " points");
    Prepare(pairs);
    for (const bool general_maps : {false, true}) {
      ExpectJacobian<double, 9>(general_maps);
      ExpectJacobian<double, 10>(general_maps);
      ExpectJacobian<float, 9>(general_maps);
      ExpectJacobian<float, 10>(general_maps);
    }
  }
}

TEST_F(EvaluateTest, CountsWhatIsNotFinite) {
  Prepare(MakePairs(4, 500, {3}, 5));
  machine_maps_ = Upload(RandomVector(81 * num_cameras_, 41));
  const ObservationIndexRef& index = host_index_.ref();
  // A point in the plane of the optical centre of a camera that sees it.
  const CameraState<double> before = states_[1];
  std::fill_n(states_[1].R, 9, 0.0);
  std::fill_n(states_[1].t, 3, 0.0);
  SetInputs();
  const int64_t seen_by_camera = index.camera_begin[2] - index.camera_begin[1];
  const Evaluation of_cost = Cost(0, nullptr);
  EXPECT_EQ(of_cost.num_not_finite, seen_by_camera);
  EXPECT_FALSE(std::isfinite(of_cost.cost));
  EXPECT_EQ((Jacobian<float, 9>(0).evaluation.num_not_finite), seen_by_camera);

  // The centre is one of the points.
  states_[1] = before;
  const int64_t k = index.camera_entry[index.camera_begin[1]];
  for (int i = 0; i < 3; ++i) {
    states_[1].R[3 * i] = states_[1].R[3 * i + 1] = states_[1].R[3 * i + 2] = 0;
    states_[1].R[4 * i] = 1.0;
    states_[1].t[i] = -points_[3 * index.point_id[k] + i];
  }
  SetInputs();
  int64_t num_at_centre = 0;
  for (int64_t j = 0; j < n_; ++j) {
    num_at_centre +=
        index.camera_id[j] == 1 && index.point_id[j] == index.point_id[k];
  }
  EXPECT_EQ(Cost(0, nullptr).num_not_finite, num_at_centre);

  // Finite in double, but too large for float blocks.
  states_[1] = before;
  std::fill_n(scale_.begin() + 3 * 7, 3, 1e200);
  SetInputs();
  const Evaluation evaluation = Jacobian<float, 9>(0).evaluation;
  EXPECT_EQ(evaluation.num_not_finite,
            index.point_begin[8] - index.point_begin[7]);
  EXPECT_TRUE(std::isfinite(evaluation.cost));
}

}  // namespace
}  // namespace ceres_ext::kernels
