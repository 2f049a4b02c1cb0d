// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Evaluation on the device against the host. Both run the functions of
// bal_model.h; the device contracts a * b + c into one rounding where the host
// need not, and its sine and cosine may differ by 2 units in the last place.
// With at most 64 operations on the way to an element, elements differ by at
// most 64 eps times the largest of their array, sums of n terms by n eps more.
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/kernels/cuda_test_util.h"

namespace ceres_ext::kernels {
namespace {

constexpr double kEps = std::numeric_limits<double>::epsilon() / 2;

class CudaEvaluateTest : public CudaProblemTest {
 protected:
  void Prepare(const PairList& pairs) {
    ASSERT_NO_FATAL_FAILURE(CudaProblemTest::Prepare(pairs, {}));
    MakeScene(pairs, 5, &cameras_, &points_, &observations_);
  }

  template <typename T, int C>
  void ComparePrepare(CameraParameters parameters, bool with_tangent);
  // general_maps: random; else of the form that BAL cameras have.
  template <typename T, int C>
  void CompareJacobian(bool general_maps);

  std::vector<double> cameras_, points_, observations_;
};

template <typename T>
std::vector<double> Values(const std::vector<CameraState<T>>& states) {
  std::vector<double> values;
  for (const CameraState<T>& state : states) {
    const T* first = state.R;
    values.insert(values.end(), first, first + 9);
    values.insert(values.end(), state.t, state.t + 3);
    values.insert(values.end(),
                  {static_cast<double>(state.f),
                   static_cast<double>(state.k1),
                   static_cast<double>(state.k2)});
  }
  return values;
}

template <typename T, int C>
void CudaEvaluateTest::ComparePrepare(CameraParameters parameters,
                                      bool with_tangent) {
  const int num_parameters = static_cast<int>(parameters);
  const std::vector<double> cameras =
      RandomVector(num_parameters * num_cameras_, 31);
  const std::vector<double> tangent =
      RandomVector(num_parameters * C * num_cameras_, 32);
  const std::vector<double> scale = RandomVector(C * num_cameras_, 33);
  std::vector<CameraState<T>> states(static_cast<size_t>(num_cameras_));
  std::vector<T> maps(static_cast<size_t>(9 * C * num_cameras_));
  PrepareCamerasParams<T, C> host;
  host.num_cameras = static_cast<int32_t>(num_cameras_);
  host.parameters = parameters;
  host.cameras = cameras.data();
  host.tangent = with_tangent ? tangent.data() : nullptr;
  host.camera_scale = with_tangent ? scale.data() : nullptr;
  host.states = states.data();
  host.maps = maps.data();
  const Status expected = kernels::Run(host, &host_machine_);
  const auto device_cameras = Upload(cameras);
  const auto device_tangent = Upload(tangent);
  const auto device_scale = Upload(scale);
  auto device_states = Poisoned<CameraState<T>>(num_cameras_);
  auto device_maps = Poisoned<T>(9 * C * num_cameras_);
  PrepareCamerasParams<T, C> device = host;
  device.cameras = device_cameras.data();
  device.tangent = with_tangent ? device_tangent.data() : nullptr;
  device.camera_scale = with_tangent ? device_scale.data() : nullptr;
  device.states = device_states.data();
  device.maps = device_maps.data();
  const Status status = kernels::Run(device, machine_.get());
  ASSERT_EQ(status.code, expected.code);
  if (!status.ok()) {
    return;
  }
  ASSERT_OK(context_->Synchronize());
  const double eps = std::numeric_limits<T>::epsilon() / 2;
  EXPECT_TRUE(Close(Values(Download(device_states)), Values(states), 64 * eps));
  const std::vector<T> actual = Download(device_maps);
  EXPECT_TRUE(Close(std::vector<double>(actual.begin(), actual.end()),
                    std::vector<double>(maps.begin(), maps.end()),
                    64 * eps));
}

TEST_F(CudaEvaluateTest, PrepareCameras) {
  Prepare(MakeEdgePairs());
  for (const bool with_tangent : {false, true}) {
    for (const CameraParameters parameters :
         {CameraParameters::kAngleAxis, CameraParameters::kQuaternion}) {
      ComparePrepare<double, 9>(parameters, with_tangent);
      ComparePrepare<double, 10>(parameters, with_tangent);
      ComparePrepare<float, 9>(parameters, with_tangent);
      ComparePrepare<float, 10>(parameters, with_tangent);
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
    const double eps = std::numeric_limits<T>::epsilon() / 2;
    EXPECT_EQ(result.num_not_finite, 0);
    EXPECT_NEAR(result.cost,
                evaluation.cost,
                static_cast<double>(n_ + 64) * kEps * evaluation.cost);
    EXPECT_TRUE(Close(actual_residuals, residuals, 64 * kEps));
    EXPECT_TRUE(Close(ToHostLayout(Download(device_jc), 2 * C),
                      std::vector<double>(jc.begin(), jc.end()),
                      64 * eps));
    EXPECT_TRUE(Close(ToHostLayout(Download(device_jp), 6),
                      std::vector<double>(jp.begin(), jp.end()),
                      64 * eps));
    const double sum_tolerance = static_cast<double>(n_ + 64) * kEps;
    EXPECT_TRUE(Close(
        Download(device_camera_gradient), camera_gradient, sum_tolerance));
    EXPECT_TRUE(
        Close(Download(device_point_gradient), point_gradient, sum_tolerance));
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
    EXPECT_NEAR(Download(device_evaluation)[0].cost,
                evaluation.cost,
                static_cast<double>(n_ + 64) * kEps * evaluation.cost);
    EXPECT_TRUE(Close(Download(other_residuals), residuals, 64 * kEps));
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
