// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Evaluation on the device against the host. Both run the functions of
// bal_model.h; the device contracts a * b + c into one rounding where the host
// need not, and its sine and cosine may differ by 2 units in the last place.
// The allowed difference of an element comes from the same functions on running
// numbers (running_error.h); in addition, differences are at most 64 roundings
// of the largest element of the array, n more for sums of n terms.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/kernels/cuda_test_util.h"
#include "tests/model/bal_evaluate.h"

namespace ceres_ext::kernels {
namespace {

using Number = Running<double>;
using Numbers = std::vector<Number>;

class CudaEvaluateTest : public CudaProblemTest {
 protected:
  void Prepare(const PairList& pairs) {
    ASSERT_NO_FATAL_FAILURE(CudaProblemTest::Prepare(pairs, {}));
    MakeScene(pairs, 5, &cameras_, &points_, &observations_);
  }

  template <typename T, int C>
  void ComparePrepare(CameraParameters parameters,
                      bool with_tangent,
                      bool with_origin);
  // general_maps: random; else of the form that BAL cameras have.
  template <typename T, int C>
  void CompareJacobian(bool general_maps);

  std::vector<double> cameras_, points_, observations_;
};

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

template <typename T, int C>
void CudaEvaluateTest::ComparePrepare(CameraParameters parameters,
                                      bool with_tangent,
                                      bool with_origin) {
  const int num_parameters = static_cast<int>(parameters);
  const std::vector<double> cameras =
      RandomVector(num_parameters * num_cameras_, 31);
  const std::vector<double> tangent =
      RandomVector(num_parameters * C * num_cameras_, 32);
  const std::vector<double> scale = RandomVector(C * num_cameras_, 33);
  const std::vector<double> origin = {1e3, -2e5, 30.0};
  std::vector<CameraState<T>> states(static_cast<size_t>(num_cameras_));
  std::vector<double> maps(static_cast<size_t>(9 * C * num_cameras_));
  PrepareCamerasParams<T, C> host;
  host.num_cameras = static_cast<int32_t>(num_cameras_);
  host.parameters = parameters;
  host.cameras = cameras.data();
  host.tangent = with_tangent ? tangent.data() : nullptr;
  host.camera_scale = with_tangent ? scale.data() : nullptr;
  host.origin = with_origin ? origin.data() : nullptr;
  host.states = states.data();
  host.maps = maps.data();
  const Status expected = kernels::Run(host, &host_machine_);
  const auto device_cameras = Upload(cameras);
  const auto device_tangent = Upload(tangent);
  const auto device_scale = Upload(scale);
  const auto device_origin = Upload(origin);
  auto device_states = Poisoned<CameraState<T>>(num_cameras_);
  auto device_maps = Poisoned<double>(9 * C * num_cameras_);
  PrepareCamerasParams<T, C> device = host;
  device.cameras = device_cameras.data();
  device.tangent = with_tangent ? device_tangent.data() : nullptr;
  device.camera_scale = with_tangent ? device_scale.data() : nullptr;
  device.origin = with_origin ? device_origin.data() : nullptr;
  device.states = device_states.data();
  device.maps = device_maps.data();
  const Status status = kernels::Run(device, machine_.get());
  ASSERT_EQ(status.code, expected.code);
  if (!status.ok()) {
    return;
  }
  ASSERT_OK(context_->Synchronize());
  std::vector<CameraState<Number>> running_states;
  Numbers running_maps;
  for (int64_t c = 0; c < num_cameras_; ++c) {
    PrepareRunning<C>(parameters,
                      &cameras[num_parameters * c],
                      with_tangent ? &tangent[num_parameters * C * c] : nullptr,
                      with_tangent ? &scale[C * c] : nullptr,
                      host.origin,
                      &running_states,
                      &running_maps);
  }
  EXPECT_TRUE(Close(Values<double>(Download(device_states)),
                    Values<double>(states),
                    RoundedTo<T>(Values<Number>(running_states)),
                    64 * kUnitRoundoff<T>));
  EXPECT_TRUE(Close(
      Download(device_maps), maps, running_maps, 64 * kUnitRoundoff<double>));
}

TEST_F(CudaEvaluateTest, PrepareCameras) {
  Prepare(MakeEdgePairs());
  for (const bool with_tangent : {false, true}) {
    for (const bool with_origin : {false, true}) {
      for (const CameraParameters parameters :
           {CameraParameters::kAngleAxis, CameraParameters::kQuaternion}) {
        ComparePrepare<double, 9>(parameters, with_tangent, with_origin);
        ComparePrepare<double, 10>(parameters, with_tangent, with_origin);
        ComparePrepare<float, 9>(parameters, with_tangent, with_origin);
        ComparePrepare<float, 10>(parameters, with_tangent, with_origin);
      }
    }
  }
}

TEST_F(CudaEvaluateTest, LocalOriginAndMovePoints) {
  Prepare(MakeEdgePairs());
  for (const CameraParameters parameters :
       {CameraParameters::kAngleAxis, CameraParameters::kQuaternion}) {
    const int size = static_cast<int>(parameters);
    for (const double far : {0.0, 1e7}) {
      for (const int num_cameras : {0, 1, 2, 9, 40}) {
        std::vector<double> cameras = RandomVector(size * num_cameras, 34);
        for (int c = 0; c < num_cameras; ++c) {
          cameras[size * c + size - 5] += far;
        }
        LocalOriginParams params;
        params.num_cameras = num_cameras;
        params.parameters = parameters;
        std::vector<double> expected(3, -1.0);
        params.cameras = cameras.data();
        params.origin = expected.data();
        ASSERT_OK(kernels::Run(params, &host_machine_));
        const auto device_cameras = Upload(cameras);
        auto origin = Poisoned<double>(3);
        params.cameras = device_cameras.data();
        params.origin = origin.data();
        ASSERT_OK(kernels::Run(params, machine_.get()));
        ASSERT_OK(context_->Synchronize());
        const std::vector<double> found = Download(origin);
        for (int k = 0; k < 3; ++k) {
          // R is rounded a few times, and so are three products of it.
          EXPECT_NEAR(found[k], expected[k], 1e-14 * (1.0 + far));
        }
        const std::vector<double> points = RandomVector(3 * 1000, 35);
        const auto device_points = Upload(points);
        auto moved = Poisoned<float>(3 * 1000);
        ASSERT_OK(kernels::Run(
            MovePointsParams<float>{
                1000, device_points.data(), origin.data(), moved.data()},
            machine_.get()));
        ASSERT_OK(context_->Synchronize());
        const std::vector<float> actual = Download(moved);
        for (int i = 0; i < 3 * 1000; ++i) {
          ASSERT_EQ(actual[i], static_cast<float>(points[i] - found[i % 3]));
        }
      }
    }
  }
}

template <typename T, int C>
void CudaEvaluateTest::CompareJacobian(bool general_maps) {
  std::vector<CameraState<double>> states(static_cast<size_t>(num_cameras_));
  for (int64_t c = 0; c < num_cameras_; ++c) {
    double rotation_map[9];
    states[static_cast<size_t>(c)] =
        PrepareBalCamera<3>(cameras_.data() + 9 * c, rotation_map);
  }
  std::vector<double> maps = RandomVector(9 * C * num_cameras_, 41);
  for (size_t at = 0; at < maps.size() && !general_maps; ++at) {
    const int i = static_cast<int>(at / C % 9);
    const int j = static_cast<int>(at % C);
    if (i < 3 ? j >= C - 6 : j - (C - 6) != i - 3) {
      maps[at] = 0.0;
    }
  }
  const std::vector<double> scale = RandomVector(3 * num_points_, 42);
  std::vector<double> residuals(2 * n_), camera_gradient(C * num_cameras_),
      point_gradient(3 * num_points_);
  std::vector<T> jc(2 * C * n_), jp(6 * n_);
  Evaluation evaluation;
  EvaluateJacobianParams<T, C, kHostLayout> host;
  host.index = host_workspace_.index();
  host.cameras = states.data();
  host.camera_maps = maps.data();
  host.points = points_.data();
  host.point_scale = scale.data();
  host.observations = observations_.data();
  host.residuals = residuals.data();
  host.camera_blocks = {jc.data(), n_};
  host.point_blocks = {jp.data(), n_};
  host.camera_gradient = camera_gradient.data();
  host.point_gradient = point_gradient.data();
  host.evaluation = &evaluation;
  RunOk(host, &host_machine_);

  // Each element again, in running numbers.
  const ObservationIndexRef& index = host_index_.ref();
  Numbers running_residuals(2 * n_), running_jc(2 * C * n_), running_jp(6 * n_);
  std::vector<RunningSum<double>> camera_sums(C * num_cameras_),
      point_sums(3 * num_points_);
  RunningSum<double> running_cost;
  for (int64_t k = 0; k < n_; ++k) {
    const int64_t c = index.camera_id[k];
    const int64_t p = index.point_id[k];
    const Numbers point(&points_[3 * p], &points_[3 * p] + 3);
    const Numbers map(&maps[9 * C * c], &maps[9 * C * c] + 9 * C);
    const Numbers measured(&observations_[2 * k], &observations_[2 * k] + 2);
    const CameraState<Number> camera = ToRunning<double>(states[c]);
    Evaluate<C>(camera,
                map.data(),
                point.data(),
                measured.data(),
                &running_residuals[2 * k],
                &running_jc[2 * C * k],
                &running_jp[6 * k]);
    for (int r = 0; r < 2; ++r) {
      const Number residual = running_residuals[2 * k + r];
      running_cost.Add(Number(0.5) * residual * residual);
      for (int j = 0; j < C; ++j) {
        camera_sums[C * c + j].Add(running_jc[C * (2 * k + r) + j] * residual);
      }
      for (int j = 0; j < 3; ++j) {
        Number& jp = running_jp[3 * (2 * k + r) + j];
        jp *= Number(scale[3 * p + j]);
        point_sums[3 * p + j].Add(jp * residual);
      }
    }
  }
  constexpr double kUnit = kUnitRoundoff<double>;
  const double sum_tolerance = static_cast<double>(n_ + 64) * kUnit;
  const double cost_bound =
      std::min(2.0 * running_cost.Get().error, sum_tolerance * evaluation.cost);
  const auto get = [](const std::vector<RunningSum<double>>& sums) {
    Numbers numbers;
    for (const RunningSum<double>& sum : sums) {
      numbers.push_back(sum.Get());
    }
    return numbers;
  };
  running_jc = RoundedTo<T>(running_jc);
  running_jp = RoundedTo<T>(running_jp);

  const auto device_states = Upload(states);
  const auto device_maps = Upload(maps);
  const auto device_points = Upload(points_);
  const auto device_scale = Upload(scale);
  const auto device_observations = Upload(observations_);
  std::vector<double> first_residuals;
  double first_cost = 0.0;
  for (int run = 0; run < 2; ++run) {
    auto device_residuals = Poisoned<double>(2 * n_);
    auto device_jc = Poisoned<T>(2 * C * n_);
    auto device_jp = Poisoned<T>(6 * n_);
    auto device_camera_gradient = Poisoned<double>(C * num_cameras_);
    auto device_point_gradient = Poisoned<double>(3 * num_points_);
    auto device_evaluation = Poisoned<Evaluation>(1);
    EvaluateJacobianParams<T, C, kDeviceLayout> device;
    device.index = workspace_.index();
    device.cameras = device_states.data();
    device.camera_maps = device_maps.data();
    device.points = device_points.data();
    device.point_scale = device_scale.data();
    device.observations = device_observations.data();
    device.residuals = device_residuals.data();
    device.camera_blocks = {device_jc.data(), n_};
    device.point_blocks = {device_jp.data(), n_};
    device.camera_gradient = device_camera_gradient.data();
    device.point_gradient = device_point_gradient.data();
    device.evaluation = device_evaluation.data();
    ASSERT_OK(kernels::Run(device, machine_.get()));
    ASSERT_OK(context_->Synchronize());
    const Evaluation result = Download(device_evaluation)[0];
    const std::vector<double> actual_residuals = Download(device_residuals);
    EXPECT_EQ(result.num_not_finite, 0);
    EXPECT_NEAR(result.cost, evaluation.cost, cost_bound);
    EXPECT_TRUE(
        Close(actual_residuals, residuals, running_residuals, 64 * kUnit));
    EXPECT_TRUE(Close(ToHostLayout(Download(device_jc), 2 * C),
                      std::vector<double>(jc.begin(), jc.end()),
                      running_jc,
                      64 * kUnitRoundoff<T>));
    EXPECT_TRUE(Close(ToHostLayout(Download(device_jp), 6),
                      std::vector<double>(jp.begin(), jp.end()),
                      running_jp,
                      64 * kUnitRoundoff<T>));
    EXPECT_TRUE(Close(Download(device_camera_gradient),
                      camera_gradient,
                      get(camera_sums),
                      sum_tolerance));
    EXPECT_TRUE(Close(Download(device_point_gradient),
                      point_gradient,
                      get(point_sums),
                      sum_tolerance));
    if (run == 0) {
      first_residuals = actual_residuals;
      first_cost = result.cost;
    } else {
      EXPECT_TRUE(SameBits(actual_residuals, first_residuals));
      EXPECT_EQ(result.cost, first_cost);
    }

    // The same cost and residuals without the Jacobian.
    auto other_residuals = Poisoned<double>(2 * n_);
    EvaluateCostParams cost;
    cost.index = workspace_.index();
    cost.cameras = device_states.data();
    cost.points = device_points.data();
    cost.observations = device_observations.data();
    cost.residuals = other_residuals.data();
    cost.evaluation = device_evaluation.data();
    ASSERT_OK(kernels::Run(cost, machine_.get()));
    ASSERT_OK(context_->Synchronize());
    EXPECT_NEAR(
        Download(device_evaluation)[0].cost, evaluation.cost, cost_bound);
    EXPECT_TRUE(Close(
        Download(other_residuals), residuals, running_residuals, 64 * kUnit));
  }
}

TEST_F(CudaEvaluateTest, Jacobian) {
  Prepare(MakeEdgePairs());
  for (const bool general_maps : {false, true}) {
    CompareJacobian<double, 9>(general_maps);
    CompareJacobian<double, 10>(general_maps);
    CompareJacobian<float, 9>(general_maps);
    CompareJacobian<float, 10>(general_maps);
  }
}

TEST_F(CudaEvaluateTest, ObservationsAtTheCentreAreCounted) {
  PairList pairs;
  pairs.num_cameras = 1;
  pairs.num_points = 3;
  pairs.camera = {0, 0, 0};
  pairs.point = {0, 1, 2};
  Prepare(pairs);
  // The centre of camera 0 is R'(-t).
  double rotation_map[9];
  CameraState<double> state;
  state = PrepareBalCamera<3>(std::vector<double>(9, 0.0).data(), rotation_map);
  state.t[2] = -9.0;
  state.f = 1.0;
  points_ = {0, 0, 1, 1, 1, 9, 0, 1, 2};
  const auto device_states = Upload(std::vector<CameraState<double>>{state});
  const auto device_points = Upload(points_);
  const auto device_observations = Upload(observations_);
  auto device_evaluation = Poisoned<Evaluation>(1);
  EvaluateCostParams cost;
  cost.index = workspace_.index();
  cost.cameras = device_states.data();
  cost.points = device_points.data();
  cost.observations = device_observations.data();
  cost.evaluation = device_evaluation.data();
  ASSERT_OK(kernels::Run(cost, machine_.get()));
  ASSERT_OK(context_->Synchronize());
  const Evaluation result = Download(device_evaluation)[0];
  EXPECT_EQ(result.num_not_finite, 1);
  EXPECT_FALSE(std::isfinite(result.cost));
}

}  // namespace
}  // namespace ceres_ext::kernels
