// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The device bodies of explicit W against the host's, in double and float, with
// tiles of every kind; twice, with outputs poisoned. The Jacobian, and U and V
// of the products, are random numbers.

#include <algorithm>
#include <limits>
#include <vector>

#include "benchmarks/study/explicit_w.h"
#include "tests/kernels/cuda_test_util.h"

namespace ceres_ext::kernels {
namespace {

constexpr int C = 9;
constexpr int kPacked = PackedSize(C);

template <typename T>
class ExplicitWCuda : public CudaProblemTest {
 protected:
  void Compare(const PairList& pairs, const CudaWorkspace::Options& options) {
    ASSERT_NO_FATAL_FAILURE(Prepare(pairs, options));
    host_jc_ = Values(2 * C * n_, 1);
    host_jp_ = Values(6 * n_, 2);
    jc_ = Upload(ToDeviceLayout<T>(host_jc_, 2 * C));
    jp_ = Upload(ToDeviceLayout<T>(host_jp_, 6));
    CompareCoupling();
    CompareProducts(true);
    CompareProducts(false);
  }

  static std::vector<T> Values(int64_t n, unsigned seed) {
    const std::vector<double> values = RandomVector(n, seed);
    return {values.begin(), values.end()};
  }

  double Tolerance() const {
    // Of sums of n terms, against the largest element.
    return 8.0 * static_cast<double>(n_ + 64) *
           std::numeric_limits<T>::epsilon();
  }

  void CompareCoupling() {
    std::vector<T> w(3 * C * n_);
    DeviceBuffer<T> device_w = Poisoned<T>(3 * C * n_);
    using HostSource = StoredJacobian<T, BalShape<C>, kHostLayout>;
    bal::ExplicitBlocksParams<HostSource, kHostLayout> host;
    host.normal.index = host_workspace_.index();
    host.normal.jacobian = {{host_jc_.data(), n_}, {host_jp_.data(), n_}};
    host.w = {w.data(), n_};
    ASSERT_OK(bal::Run(host, &host_machine_));
    using Source = StoredJacobian<T, BalShape<C>, kDeviceLayout>;
    bal::ExplicitBlocksParams<Source, kDeviceLayout> device;
    device.normal.index = workspace_.index();
    device.normal.jacobian = {{jc_.data(), n_}, {jp_.data(), n_}};
    device.w = {device_w.data(), n_};
    ASSERT_OK(bal::Run(device, machine_.get()));
    ASSERT_OK(context_->Synchronize());
    EXPECT_TRUE(Close(ToHostLayout(Download(device_w), 3 * C),
                      std::vector<double>(w.begin(), w.end()),
                      Tolerance()));
  }

  // fn(products of the host or the device, outputs).
  template <typename Function>
  void CompareOutputs(const char* what,
                      const std::vector<Output>& outputs,
                      Function&& fn) {
    std::vector<std::vector<double>> host;
    std::vector<double*> pointers;
    for (const Output& output : outputs) {
      host.emplace_back(output.size);
    }
    for (std::vector<double>& values : host) {
      pointers.push_back(values.data());
    }
    ASSERT_OK(fn(on_host_, pointers));
    const auto device = RunTwice(outputs, [&](const std::vector<double*>& out) {
      return fn(on_device_, out);
    });
    for (size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_TRUE(Close(device[i], host[i], Tolerance()))
          << what << ", output " << i;
    }
  }

  // The arrays that the products read, in the memory of a machine.
  template <typename MachineIn>
  struct Arrays {
    using Machine = MachineIn;
    static constexpr BlockLayout kLayout = Machine::kLayout;
    template <template <typename, typename, BlockLayout> class Params>
    Params<T, BalShape<C>, kLayout> Make() const {
      Params<T, BalShape<C>, kLayout> params;
      params.index = index;
      params.w = {w, index.num_observations};
      return params;
    }

    ObservationIndexView index;
    const T* w;
    const double *u, *v, *vi, *point_gradient;
    const double *camera_diagonal, *point_diagonal, *camera_x, *point_x;
    Machine* machine;
  };

  void CompareProducts(bool with_diagonal) {
    const std::vector<T> w = Values(3 * C * n_, 3);
    const std::vector<double> u = RandomVector(kPacked * num_cameras_, 4);
    const std::vector<double> v = RandomVector(6 * num_points_, 5);
    const std::vector<double> vi = RandomVector(6 * num_points_, 6);
    const std::vector<double> g = RandomVector(3 * num_points_, 7);
    const std::vector<double> camera_d = RandomVector(C * num_cameras_, 8);
    const std::vector<double> point_d = RandomVector(3 * num_points_, 9);
    const std::vector<double> camera_x = RandomVector(C * num_cameras_, 10);
    const std::vector<double> point_x = RandomVector(3 * num_points_, 11);
    on_host_ = {host_workspace_.index(),
                w.data(),
                u.data(),
                v.data(),
                vi.data(),
                g.data(),
                with_diagonal ? camera_d.data() : nullptr,
                with_diagonal ? point_d.data() : nullptr,
                camera_x.data(),
                point_x.data(),
                &host_machine_};
    const auto device_w = Upload(ToDeviceLayout<T>(w, 3 * C));
    const auto device_u = Upload(ToDeviceLayout<double>(u, kPacked));
    const auto device_v = Upload(ToDeviceLayout<double>(v, 6));
    const auto device_vi = Upload(ToDeviceLayout<double>(vi, 6));
    const auto device_g = Upload(g);
    const auto device_camera_d = Upload(camera_d);
    const auto device_point_d = Upload(point_d);
    const auto device_camera_x = Upload(camera_x);
    const auto device_point_x = Upload(point_x);
    on_device_ = {workspace_.index(),
                  device_w.data(),
                  device_u.data(),
                  device_v.data(),
                  device_vi.data(),
                  device_g.data(),
                  with_diagonal ? device_camera_d.data() : nullptr,
                  with_diagonal ? device_point_d.data() : nullptr,
                  device_camera_x.data(),
                  device_point_x.data(),
                  machine_.get()};
    const Output cameras{C * num_cameras_};
    const Output points{3 * num_points_};
    CompareOutputs("S p", {cameras}, [](const auto& on, const auto& out) {
      auto params = on.template Make<bal::SchurProductExplicitWParams>();
      params.u = {on.u, on.index.num_cameras};
      params.v_inverse = {on.vi, on.index.num_points};
      params.camera_diagonal = on.camera_diagonal;
      params.p = on.camera_x;
      params.q = out[0];
      return bal::Run(params, on.machine);
    });
    CompareOutputs("y", {points}, [](const auto& on, const auto& out) {
      auto params = on.template Make<bal::BackSubstituteExplicitWParams>();
      params.v_inverse = {on.vi, on.index.num_points};
      params.point_gradient = on.point_gradient;
      params.z = on.camera_x;
      params.y = out[0];
      return bal::Run(params, on.machine);
    });
    CompareOutputs(
        "J'J p", {cameras, points}, [](const auto& on, const auto& out) {
          auto params = on.template Make<bal::NormalProductExplicitWParams>();
          params.u = {on.u, on.index.num_cameras};
          params.v = {on.v, on.index.num_points};
          params.camera_diagonal = on.camera_diagonal;
          params.point_diagonal = on.point_diagonal;
          params.camera_p = on.camera_x;
          params.point_p = on.point_x;
          params.camera_q = out[0];
          params.point_q = out[1];
          return bal::Run(params, on.machine);
        });
  }

  std::vector<T> host_jc_, host_jp_;
  DeviceBuffer<T> jc_, jp_;
  Arrays<HostMachine> on_host_;
  Arrays<CudaMachine> on_device_;
};

using Types = ::testing::Types<double, float>;
TYPED_TEST_SUITE(ExplicitWCuda, Types);

TYPED_TEST(ExplicitWCuda, Edges) { this->Compare(MakeEdgePairs(), {}); }

TYPED_TEST(ExplicitWCuda, SmallTiles) {
  CudaWorkspace::Options options;
  options.stored = {9, 50, 50};
  this->Compare(MakeEdgePairs(), options);
}

TYPED_TEST(ExplicitWCuda, ScatteredPoints) {
  this->Compare(MakePairs(8000, 520, {6, 5, 7}, 9, 15), {});
}

TYPED_TEST(ExplicitWCuda, LongTracks) { this->Compare(MakeLongPairs(), {}); }

TYPED_TEST(ExplicitWCuda, NoObservations) {
  PairList pairs;
  pairs.num_cameras = 3;
  pairs.num_points = 5;
  this->Compare(pairs, {});
}

}  // namespace
}  // namespace ceres_ext::kernels
