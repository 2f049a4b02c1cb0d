// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The device bodies of explicit W against the host's, in double and float, with
// tiles of every kind; twice, with outputs poisoned. The Jacobian, and U and V
// of the products, are random numbers.

#include <cmath>
#include <limits>
#include <vector>

#include "studies/explicit_w.h"
#include "tests/kernels/cuda_test_util.h"
#include "tests/kernels/running_error.h"

namespace ceres_ext::kernels {
namespace {

constexpr int C = 9;
constexpr int kPacked = PackedSize(C);

template <typename T>
class ExplicitWCuda : public CudaProblemTest {
 protected:
  void Compare(const Structure& pairs, const CudaWorkspace::Options& options) {
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

  // An element is a sum of products of up to n + 64 terms, nested twice at
  // most: in any order it is within so many roundings of the sum of the
  // magnitudes of its terms, which the same operation gives for the magnitudes
  // of its inputs.
  std::vector<double> Bounds(const std::vector<double>& magnitudes) const {
    std::vector<double> bounds;
    for (const double x : magnitudes) {
      bounds.push_back(8.0 * static_cast<double>(n_ + 64) *
                       std::numeric_limits<T>::epsilon() * std::fabs(x));
    }
    return bounds;
  }
  template <typename Value>
  static std::vector<Value> Magnitudes(std::vector<Value> values,
                                       Value sign = 1) {
    for (Value& value : values) {
      value = sign * std::fabs(value);
    }
    return values;
  }

  std::vector<double> HostCoupling(const std::vector<T>& jc,
                                   const std::vector<T>& jp) {
    std::vector<T> w(3 * C * n_);
    using Source = StoredJacobian<T, BalShape<C>, kHostLayout>;
    bal::ExplicitBlocksParams<Source, kHostLayout> params;
    params.normal.index = host_workspace_.index();
    params.normal.jacobian = {{const_cast<T*>(jc.data()), n_},
                              {const_cast<T*>(jp.data()), n_}};
    params.w = {w.data(), n_};
    EXPECT_TRUE(bal::Run(params, &host_machine_).ok());
    return {w.begin(), w.end()};
  }

  void CompareCoupling() {
    DeviceBuffer<T> device_w = Poisoned<T>(3 * C * n_);
    using Source = StoredJacobian<T, BalShape<C>, kDeviceLayout>;
    bal::ExplicitBlocksParams<Source, kDeviceLayout> device;
    device.normal.index = workspace_.index();
    device.normal.jacobian = {{jc_.data(), n_}, {jp_.data(), n_}};
    device.w = {device_w.data(), n_};
    ASSERT_OK(bal::Run(device, machine_.get()));
    ASSERT_OK(context_->Synchronize());
    EXPECT_TRUE(Close(
        ToHostLayout(Download(device_w), 3 * C),
        HostCoupling(host_jc_, host_jp_),
        Bounds(HostCoupling(Magnitudes(host_jc_), Magnitudes(host_jp_)))));
  }

  // fn(products of the host or the device, outputs).
  template <typename Function>
  void CompareOutputs(const char* what,
                      const std::vector<Output>& outputs,
                      Function&& fn) {
    const auto run_on_host = [&](const Arrays<HostMachine>& arrays) {
      std::vector<std::vector<double>> results;
      for (const Output& output : outputs) {
        results.emplace_back(output.size);
      }
      std::vector<double*> pointers;
      for (std::vector<double>& values : results) {
        pointers.push_back(values.data());
      }
      EXPECT_TRUE(fn(arrays, pointers).ok());
      return results;
    };
    const auto host = run_on_host(on_host_);
    const auto magnitudes = run_on_host(of_magnitudes_);
    const auto device = Repeat(outputs, [&](const std::vector<double*>& out) {
      return fn(on_device_, out);
    });
    for (size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_TRUE(Close(device[i], host[i], Bounds(magnitudes[i])))
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

    ObservationIndexRef index;
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
    // Subtracted terms have the other sign.
    const std::vector<T> abs_w = Magnitudes(w);
    const std::vector<double> abs_u = Magnitudes(u);
    const std::vector<double> abs_v = Magnitudes(v);
    const std::vector<double> minus_vi = Magnitudes(vi, -1.0);
    const std::vector<double> abs_g = Magnitudes(g);
    const std::vector<double> abs_camera_x = Magnitudes(camera_x);
    const std::vector<double> minus_camera_x = Magnitudes(camera_x, -1.0);
    const std::vector<double> abs_point_x = Magnitudes(point_x);
    of_magnitudes_ = on_host_;
    of_magnitudes_.w = abs_w.data();
    of_magnitudes_.u = abs_u.data();
    of_magnitudes_.v = abs_v.data();
    of_magnitudes_.vi = minus_vi.data();
    of_magnitudes_.point_gradient = abs_g.data();
    of_magnitudes_.camera_x = abs_camera_x.data();
    of_magnitudes_.point_x = abs_point_x.data();
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
    of_magnitudes_.camera_x = minus_camera_x.data();
    CompareOutputs("y", {points}, [](const auto& on, const auto& out) {
      auto params = on.template Make<bal::BackSubstituteExplicitWParams>();
      params.v_inverse = {on.vi, on.index.num_points};
      params.point_gradient = on.point_gradient;
      params.z = on.camera_x;
      params.y = out[0];
      return bal::Run(params, on.machine);
    });
    of_magnitudes_.camera_x = abs_camera_x.data();
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
  Arrays<HostMachine> of_magnitudes_;
  Arrays<CudaMachine> on_device_;
};

using Types = ::testing::Types<double, float>;
TYPED_TEST_SUITE(ExplicitWCuda, Types);

TYPED_TEST(ExplicitWCuda, Edges) { this->Compare(MakeEdgePairs(), {}); }

TYPED_TEST(ExplicitWCuda, SmallTiles) {
  CudaWorkspace::Options options;
  options.stored = {9, 50, 50, false};
  this->Compare(MakeEdgePairs(), options);
}

TYPED_TEST(ExplicitWCuda, ScatteredPoints) {
  this->Compare(MakePairs(8000, 520, {6, 5, 7}, 9, 15), {});
}

TYPED_TEST(ExplicitWCuda, LongTracks) { this->Compare(MakeLongPairs(), {}); }

TYPED_TEST(ExplicitWCuda, NoObservations) {
  this->Compare(Structure{"", 3, 5, {}, {}}, {});
}

}  // namespace
}  // namespace ceres_ext::kernels
