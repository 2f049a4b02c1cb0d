// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Each device body against the host's, for every source, at tracks of 0, 1, 2,
// 31, 32, 33 observations and longer than a tile, with repeated pairs, a camera
// seen by all and cameras and points without observations; with and without D,
// twice on one workspace, with outputs poisoned before each run.
//
// Tolerances. Host and device sum the same terms in another order, and products
// of blocks are rounded to T on the device where the host has double. With n
// terms in the longest sum and at most 64 operations from an input to a term,
// an element differs by at most (n + 64) eps_T times the sum of its absolute
// terms. That sum is bounded here by kCancellation times the largest element of
// the array: cameras and points are of one kind, so no array mixes scales by
// more, which float's own largest difference confirms (a fifth of the bound).
#include "cuda_kernels/cuda_operations.h"

#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "tests/kernels/cuda_test_util.h"

namespace ceres_ext::kernels {
namespace {

constexpr double kCancellation = 8.0;

template <typename TIn, int CIn, bool kRecomputedIn>
struct Combination {
  using T = TIn;
  static constexpr int C = CIn;
  static constexpr bool kRecomputed = kRecomputedIn;
};

template <typename Combination>
class CudaOperationsTest : public CudaTest {
 protected:
  using T = typename Combination::T;
  static constexpr int C = Combination::C;
  static constexpr bool kRecomputed = Combination::kRecomputed;
  static constexpr int kPacked = PackedSize(C);
  using Source = std::conditional_t<kRecomputed,
                                    RecomputedJacobian<T, C>,
                                    StoredJacobian<T, C, kDeviceLayout>>;
  // The host has no recomputed float; it gets the same values as doubles.
  using HostSource = std::conditional_t<kRecomputed,
                                        RecomputedJacobian<double, C>,
                                        StoredJacobian<T, C, kHostLayout>>;

  void Setup(const PairList& pairs, const CudaWorkspace::Options& options) {
    pairs_ = pairs;
    num_cameras_ = pairs.num_cameras;
    num_points_ = pairs.num_points;
    n_ = static_cast<int64_t>(pairs.camera.size());
    ASSERT_OK(host_index_.Build(pairs.num_cameras,
                                pairs.num_points,
                                n_,
                                pairs.camera.data(),
                                pairs.point.data()));
    const DeviceBuffer<int32_t> camera = Upload(pairs.camera);
    const DeviceBuffer<int32_t> point = Upload(pairs.point);
    ASSERT_OK(index_.Build(pairs.num_cameras,
                           pairs.num_points,
                           n_,
                           camera.data(),
                           point.data(),
                           &scratch_,
                           context_.get()));
    ASSERT_OK(
        workspace_.Setup(index_.view(), options, &scratch_, context_.get()));
    ASSERT_OK(host_workspace_.Setup(host_index_.view(), &host_context_));
    ASSERT_OK(host_workspace_.ReserveCameraSums(2 * PackedSize(C) + 2 * C));
    MakeJacobian();
    longest_ = 0;
    for (int32_t c = 0; c < pairs.num_cameras; ++c) {
      longest_ = std::max(longest_,
                          host_index_.view().camera_begin[c + 1] -
                              host_index_.view().camera_begin[c]);
    }
    for (int32_t p = 0; p < pairs.num_points; ++p) {
      longest_ = std::max(longest_,
                          host_index_.view().point_begin[p + 1] -
                              host_index_.view().point_begin[p]);
    }
    b_ = RandomVector(2 * n_, 11);
    camera_diagonal_ = RandomVector(C * num_cameras_, 12);
    point_diagonal_ = RandomVector(3 * num_points_, 13);
    camera_x_ = RandomVector(C * num_cameras_, 14);
    point_x_ = RandomVector(3 * num_points_, 15);
    device_b_ = Upload(b_);
    device_camera_diagonal_ = Upload(camera_diagonal_);
    device_point_diagonal_ = Upload(point_diagonal_);
    device_camera_x_ = Upload(camera_x_);
    device_point_x_ = Upload(point_x_);
  }

  void MakeJacobian() {
    std::vector<double> cameras;
    std::vector<double> points;
    std::vector<double> observations;
    MakeScene(pairs_, 7, &cameras, &points, &observations);
    std::vector<T> float_points(points.begin(), points.end());
    std::vector<CameraState<T>> states;
    std::vector<T> maps;
    const std::vector<double> random_maps =
        RandomVector(int64_t{9} * C * num_cameras_, 17);
    for (int64_t c = 0; c < num_cameras_; ++c) {
      double rotation_map[9];
      states.push_back(CameraStateCast<T>(
          PrepareAngleAxisCamera(cameras.data() + 9 * c, rotation_map)));
    }
    for (const double x : random_maps) {
      maps.push_back(static_cast<T>(x));
    }
    std::vector<T> scale;
    for (const double x : RandomVector(3 * num_points_, 18)) {
      scale.push_back(static_cast<T>(0.5 + x * x));
    }
    host_points_.assign(float_points.begin(), float_points.end());
    host_scale_.assign(scale.begin(), scale.end());
    host_maps_.assign(maps.begin(), maps.end());
    host_states_.clear();
    for (const CameraState<T>& state : states) {
      host_states_.push_back(CameraStateCast<double>(state));
    }
    if constexpr (kRecomputed) {
      points_ = Upload(float_points);
      scale_ = Upload(scale);
      maps_ = Upload(maps);
      states_ = Upload(states);
      source_ =
          Source{states_.data(), maps_.data(), points_.data(), scale_.data()};
      host_source_ = HostSource{host_states_.data(),
                                host_maps_.data(),
                                host_points_.data(),
                                host_scale_.data()};
    } else {
      const RecomputedJacobian<double, C> model{host_states_.data(),
                                                host_maps_.data(),
                                                host_points_.data(),
                                                host_scale_.data()};
      const ObservationIndexView& index = host_index_.view();
      host_jc_.resize(static_cast<size_t>(2 * C * n_));
      host_jp_.resize(static_cast<size_t>(6 * n_));
      for (int64_t k = 0; k < n_; ++k) {
        double jc[2 * C];
        double jp[6];
        model.Load(k, index.camera_id[k], index.point_id[k], jc, jp);
        std::copy_n(jc, 2 * C, host_jc_.begin() + 2 * C * k);
        std::copy_n(jp, 6, host_jp_.begin() + 6 * k);
      }
      jc_ = Upload(ToDeviceLayout<T>(host_jc_, 2 * C));
      jp_ = Upload(ToDeviceLayout<T>(host_jp_, 6));
      source_ = Source{{jc_.data(), n_}, {jp_.data(), n_}};
      host_source_ = HostSource{{host_jc_.data(), n_}, {host_jp_.data(), n_}};
    }
  }

  double Tolerance() const {
    // Rounding unit of T.
    const double eps = std::numeric_limits<T>::epsilon() / 2;
    return kCancellation * static_cast<double>(longest_ + 64) * eps;
  }

  // Runs fn, which queues work that writes `outputs`, twice on poisoned
  // outputs; the bits must agree. Returns the outputs in host layout.
  struct Output {
    int64_t size;
    int block_size;
  };
  template <typename Value, typename Function>
  std::vector<std::vector<double>> RunTwice(const std::vector<Output>& outputs,
                                            Function&& fn) {
    std::vector<std::vector<double>> result;
    std::vector<std::vector<Value>> first;
    for (int run = 0; run < 2; ++run) {
      std::vector<DeviceBuffer<Value>> buffers;
      std::vector<Value*> pointers;
      for (const Output& output : outputs) {
        buffers.push_back(Poisoned<Value>(output.size));
        pointers.push_back(buffers.back().data());
      }
      const Status status = fn(pointers);
      EXPECT_TRUE(status.ok()) << status.message;
      const Status finished = context_->Synchronize();
      EXPECT_TRUE(finished.ok()) << finished.message;
      for (size_t i = 0; i < outputs.size(); ++i) {
        const std::vector<Value> values = Download(buffers[i]);
        if (run == 0) {
          first.push_back(values);
          result.push_back(ToHostLayout(values, outputs[i].block_size));
        } else {
          EXPECT_TRUE(SameBits(values, first[i])) << "output " << i;
        }
      }
    }
    return result;
  }

  void CompareNormalBlocks(bool with_diagonal);
  void CompareProducts(bool with_diagonal);
  void CompareJacobianProducts();

  PairList pairs_;
  int64_t num_cameras_ = 0;
  int64_t num_points_ = 0;
  int64_t n_ = 0;
  int64_t longest_ = 0;
  ObservationIndex host_index_;
  HostContext host_context_{1};
  HostWorkspace host_workspace_;
  CudaIndexScratch scratch_;
  CudaObservationIndex index_;
  CudaWorkspace workspace_;

  std::vector<CameraState<double>> host_states_;
  std::vector<double> host_maps_, host_points_, host_scale_;
  std::vector<std::conditional_t<kRecomputed, double, T>> host_jc_, host_jp_;
  DeviceBuffer<CameraState<T>> states_;
  DeviceBuffer<T> maps_, points_, scale_, jc_, jp_;
  Source source_;
  HostSource host_source_;

  std::vector<double> b_, camera_diagonal_, point_diagonal_, camera_x_,
      point_x_;
  DeviceBuffer<double> device_b_, device_camera_diagonal_,
      device_point_diagonal_, device_camera_x_, device_point_x_;
};

using Combinations = ::testing::Types<Combination<double, 9, true>,
                                      Combination<double, 10, true>,
                                      Combination<float, 9, true>,
                                      Combination<float, 10, true>,
                                      Combination<double, 9, false>,
                                      Combination<double, 10, false>,
                                      Combination<float, 9, false>,
                                      Combination<float, 10, false>>;
TYPED_TEST_SUITE(CudaOperationsTest, Combinations);

template <typename Combination>
void CudaOperationsTest<Combination>::CompareNormalBlocks(bool with_diagonal) {
  // Host.
  NormalBlocksParams<HostSource, kHostLayout> host;
  using HostValue = typename HostSource::Value;
  std::vector<double> v(6 * num_points_), v_inverse(6 * num_points_),
      point_gradient(3 * num_points_), u(kPacked * num_cameras_),
      camera_gradient(C * num_cameras_), schur(kPacked * num_cameras_),
      rhs(C * num_cameras_);
  std::vector<HostValue> w(3 * C * n_);
  Breakdown breakdown;
  host.index = host_index_.view();
  host.jacobian = host_source_;
  host.b = b_.data();
  host.point_diagonal = with_diagonal ? point_diagonal_.data() : nullptr;
  host.v = {v.data(), num_points_};
  host.v_inverse = {v_inverse.data(), num_points_};
  host.point_gradient = point_gradient.data();
  host.w = {w.data(), n_};
  host.u = {u.data(), num_cameras_};
  host.camera_gradient = camera_gradient.data();
  host.schur_diagonal = {schur.data(), num_cameras_};
  host.schur_rhs = rhs.data();
  host.breakdown = &breakdown;
  reference::NormalBlocks(host, &host_workspace_);

  NormalBlocksParams<Source, kDeviceLayout> device;
  device.index = index_.view();
  device.jacobian = source_;
  device.b = device_b_.data();
  device.point_diagonal =
      with_diagonal ? device_point_diagonal_.data() : nullptr;
  DeviceBuffer<Breakdown> device_breakdown = Poisoned<Breakdown>(1);
  device.breakdown = device_breakdown.data();
  DeviceBuffer<T> device_w = Poisoned<T>(3 * C * n_);
  device.w = {device_w.data(), n_};
  const auto outputs =
      RunTwice<double>({{6 * num_points_, 6},
                        {6 * num_points_, 6},
                        {3 * num_points_, 1},
                        {kPacked * num_cameras_, kPacked},
                        {C * num_cameras_, 1},
                        {kPacked * num_cameras_, kPacked},
                        {C * num_cameras_, 1}},
                       [&](const std::vector<double*>& out) {
                         device.v = {out[0], num_points_};
                         device.v_inverse = {out[1], num_points_};
                         device.point_gradient = out[2];
                         device.u = {out[3], num_cameras_};
                         device.camera_gradient = out[4];
                         device.schur_diagonal = {out[5], num_cameras_};
                         device.schur_rhs = out[6];
                         return cuda::NormalBlocks(
                             device, workspace_.view(), context_->stream());
                       });
  EXPECT_TRUE(Close(outputs[0], v, Tolerance())) << "V";
  EXPECT_TRUE(Close(outputs[2], point_gradient, Tolerance())) << "g_p";
  EXPECT_TRUE(Close(outputs[3], u, Tolerance())) << "U";
  EXPECT_TRUE(Close(outputs[4], camera_gradient, Tolerance())) << "g_c";
  EXPECT_TRUE(Close(ToHostLayout(Download(device_w), 3 * C),
                    std::vector<double>(w.begin(), w.end()),
                    Tolerance()))
      << "W";
  if (!with_diagonal) {
    // Points of one observation have singular V: what comes of them is not
    // defined. The factor is compared with D.
    return;
  }
  EXPECT_EQ(Download(device_breakdown)[0].first_point, breakdown.first_point);
  // An error of V passes through Vi by its condition number, here at most
  // |V + D^2| |Vi|.
  double largest_v = 0.0;
  double largest_inverse = 0.0;
  for (const double x : v) {
    largest_v = std::max(largest_v, std::fabs(x));
  }
  for (const double x : v_inverse) {
    largest_inverse = std::max(largest_inverse, std::fabs(x));
  }
  const double condition = 9.0 * largest_v * largest_inverse;
  EXPECT_TRUE(Close(outputs[1], v_inverse, condition * Tolerance())) << "Vi";
  EXPECT_TRUE(Close(outputs[5], schur, condition * Tolerance())) << "S_c";
  EXPECT_TRUE(Close(outputs[6], rhs, condition * Tolerance())) << "s";

  // Vectors without matrices take another way.
  NormalBlocksParams<Source, kDeviceLayout> alone = device;
  alone.v = {};
  alone.point_gradient = nullptr;
  alone.w = {};
  alone.u = {};
  alone.schur_diagonal = {};
  const auto vectors = RunTwice<double>(
      {{6 * num_points_, 6}, {C * num_cameras_, 1}, {C * num_cameras_, 1}},
      [&](const std::vector<double*>& out) {
        alone.v_inverse = {out[0], num_points_};
        alone.camera_gradient = out[1];
        alone.schur_rhs = out[2];
        return cuda::NormalBlocks(alone, workspace_.view(), context_->stream());
      });
  EXPECT_TRUE(Close(vectors[1], camera_gradient, Tolerance())) << "g_c alone";
  EXPECT_TRUE(Close(vectors[2], rhs, condition * Tolerance())) << "s alone";
}

template <typename Combination>
void CudaOperationsTest<Combination>::CompareProducts(bool with_diagonal) {
  using HostValue = typename HostSource::Value;
  std::vector<double> v(6 * num_points_), v_inverse(6 * num_points_),
      point_gradient(3 * num_points_), u(kPacked * num_cameras_);
  std::vector<HostValue> w(3 * C * n_);
  Breakdown breakdown;
  NormalBlocksParams<HostSource, kHostLayout> blocks;
  blocks.index = host_index_.view();
  blocks.jacobian = host_source_;
  blocks.b = b_.data();
  // Always damped: see CompareNormalBlocks.
  blocks.point_diagonal = point_diagonal_.data();
  blocks.v = {v.data(), num_points_};
  blocks.v_inverse = {v_inverse.data(), num_points_};
  blocks.point_gradient = point_gradient.data();
  blocks.u = {u.data(), num_cameras_};
  blocks.w = {w.data(), n_};
  blocks.breakdown = &breakdown;
  reference::NormalBlocks(blocks, &host_workspace_);
  ASSERT_EQ(breakdown.first_point, Breakdown::kNone);
  const auto device_v = Upload(ToDeviceLayout<double>(v, 6));
  const auto device_v_inverse = Upload(ToDeviceLayout<double>(v_inverse, 6));
  const auto device_u = Upload(ToDeviceLayout<double>(u, kPacked));
  const auto device_w = Upload(ToDeviceLayout<T>(w, 3 * C));
  const auto device_point_gradient = Upload(point_gradient);
  std::vector<T> rounded_w;
  for (const HostValue x : w) {
    rounded_w.push_back(static_cast<T>(x));
  }
  const double* host_d = with_diagonal ? camera_diagonal_.data() : nullptr;
  const double* host_dp = with_diagonal ? point_diagonal_.data() : nullptr;
  const double* device_d =
      with_diagonal ? device_camera_diagonal_.data() : nullptr;
  const double* device_dp =
      with_diagonal ? device_point_diagonal_.data() : nullptr;
  const CudaWorkspaceView& workspace = workspace_.view();
  const cudaStream_t stream = context_->stream();

  // Vi times sums of Jp'y: the sums' error passes through Vi. Rounded against
  // the largest element of the result, by their ratio.
  std::vector<double> q(C * num_cameras_);
  std::vector<double> y(3 * num_points_);
  {
    SchurProductImplicitWParams<HostSource, kHostLayout> host;
    host.index = host_index_.view();
    host.jacobian = host_source_;
    host.v_inverse = {v_inverse.data(), num_points_};
    host.camera_diagonal = host_d;
    host.p = camera_x_.data();
    host.q = q.data();
    reference::SchurProductImplicitW(host, &host_workspace_);
    SchurProductImplicitWParams<Source, kDeviceLayout> device;
    device.index = index_.view();
    device.jacobian = source_;
    device.v_inverse = {device_v_inverse.data(), num_points_};
    device.camera_diagonal = device_d;
    device.p = device_camera_x_.data();
    const auto out = RunTwice<double>(
        {{C * num_cameras_, 1}}, [&](const std::vector<double*>& out) {
          device.q = out[0];
          return cuda::SchurProductImplicitW(device, workspace, stream);
        });
    EXPECT_TRUE(Close(out[0], q, 4 * Tolerance())) << "implicit S p";

    // Ended: q stays as it is.
    PcgScalars scalars;
    scalars.end = PcgEnd::kResidual;
    const auto device_scalars = Upload(std::vector<PcgScalars>{scalars});
    device.scalars = device_scalars.data();
    auto untouched = Upload(camera_x_);
    device.q = untouched.data();
    ASSERT_OK(cuda::SchurProductImplicitW(device, workspace, stream));
    ASSERT_OK(context_->Synchronize());
    EXPECT_EQ(Download(untouched), camera_x_);
  }
  {
    SchurProductExplicitWParams<T, C, kDeviceLayout> device;
    device.index = index_.view();
    device.u = {device_u.data(), num_cameras_};
    device.w = {device_w.data(), n_};
    device.v_inverse = {device_v_inverse.data(), num_points_};
    device.camera_diagonal = device_d;
    device.p = device_camera_x_.data();
    const auto out = RunTwice<double>(
        {{C * num_cameras_, 1}}, [&](const std::vector<double*>& out) {
          device.q = out[0];
          return cuda::SchurProductExplicitW(device, workspace, stream);
        });
    SchurProductExplicitWParams<T, C, kHostLayout> host;
    host.index = host_index_.view();
    host.u = {u.data(), num_cameras_};
    host.w = {rounded_w.data(), n_};
    host.v_inverse = {v_inverse.data(), num_points_};
    host.camera_diagonal = host_d;
    host.p = camera_x_.data();
    host.q = q.data();
    reference::SchurProductExplicitW(host, &host_workspace_);
    EXPECT_TRUE(Close(out[0], q, 4 * Tolerance())) << "explicit S p";
  }
  {
    BackSubstituteImplicitWParams<HostSource, kHostLayout> host;
    host.index = host_index_.view();
    host.jacobian = host_source_;
    host.b = b_.data();
    host.v_inverse = {v_inverse.data(), num_points_};
    host.z = camera_x_.data();
    host.y = y.data();
    reference::BackSubstituteImplicitW(host, &host_workspace_);
    BackSubstituteImplicitWParams<Source, kDeviceLayout> device;
    device.index = index_.view();
    device.jacobian = source_;
    device.b = device_b_.data();
    device.v_inverse = {device_v_inverse.data(), num_points_};
    device.z = device_camera_x_.data();
    const auto out = RunTwice<double>(
        {{3 * num_points_, 1}}, [&](const std::vector<double*>& out) {
          device.y = out[0];
          return cuda::BackSubstituteImplicitW(device, workspace, stream);
        });
    EXPECT_TRUE(Close(out[0], y, 4 * Tolerance())) << "implicit y";
  }
  {
    BackSubstituteExplicitWParams<T, C, kHostLayout> host;
    host.index = host_index_.view();
    host.w = {rounded_w.data(), n_};
    host.v_inverse = {v_inverse.data(), num_points_};
    host.point_gradient = point_gradient.data();
    host.z = camera_x_.data();
    host.y = y.data();
    reference::BackSubstituteExplicitW(host, &host_workspace_);
    BackSubstituteExplicitWParams<T, C, kDeviceLayout> device;
    device.index = index_.view();
    device.w = {device_w.data(), n_};
    device.v_inverse = {device_v_inverse.data(), num_points_};
    device.point_gradient = device_point_gradient.data();
    device.z = device_camera_x_.data();
    const auto out = RunTwice<double>(
        {{3 * num_points_, 1}}, [&](const std::vector<double*>& out) {
          device.y = out[0];
          return cuda::BackSubstituteExplicitW(device, workspace, stream);
        });
    EXPECT_TRUE(Close(out[0], y, 4 * Tolerance())) << "explicit y";
  }
  {
    NormalProductImplicitWParams<HostSource> host;
    host.index = host_index_.view();
    host.jacobian = host_source_;
    host.camera_diagonal = host_d;
    host.point_diagonal = host_dp;
    host.camera_p = camera_x_.data();
    host.point_p = point_x_.data();
    host.camera_q = q.data();
    host.point_q = y.data();
    reference::NormalProductImplicitW(host, &host_workspace_);
    NormalProductImplicitWParams<Source> device;
    device.index = index_.view();
    device.jacobian = source_;
    device.camera_diagonal = device_d;
    device.point_diagonal = device_dp;
    device.camera_p = device_camera_x_.data();
    device.point_p = device_point_x_.data();
    const auto out = RunTwice<double>(
        {{C * num_cameras_, 1}, {3 * num_points_, 1}},
        [&](const std::vector<double*>& out) {
          device.camera_q = out[0];
          device.point_q = out[1];
          return cuda::NormalProductImplicitW(device, workspace, stream);
        });
    EXPECT_TRUE(Close(out[0], q, Tolerance())) << "implicit J'J p, cameras";
    EXPECT_TRUE(Close(out[1], y, Tolerance())) << "implicit J'J p, points";
  }
  {
    NormalProductExplicitWParams<T, C, kHostLayout> host;
    host.index = host_index_.view();
    host.u = {u.data(), num_cameras_};
    host.v = {v.data(), num_points_};
    host.w = {rounded_w.data(), n_};
    host.camera_diagonal = host_d;
    host.point_diagonal = host_dp;
    host.camera_p = camera_x_.data();
    host.point_p = point_x_.data();
    host.camera_q = q.data();
    host.point_q = y.data();
    reference::NormalProductExplicitW(host, &host_workspace_);
    NormalProductExplicitWParams<T, C, kDeviceLayout> device;
    device.index = index_.view();
    device.u = {device_u.data(), num_cameras_};
    device.v = {device_v.data(), num_points_};
    device.w = {device_w.data(), n_};
    device.camera_diagonal = device_d;
    device.point_diagonal = device_dp;
    device.camera_p = device_camera_x_.data();
    device.point_p = device_point_x_.data();
    const auto out = RunTwice<double>(
        {{C * num_cameras_, 1}, {3 * num_points_, 1}},
        [&](const std::vector<double*>& out) {
          device.camera_q = out[0];
          device.point_q = out[1];
          return cuda::NormalProductExplicitW(device, workspace, stream);
        });
    EXPECT_TRUE(Close(out[0], q, Tolerance())) << "explicit J'J p, cameras";
    EXPECT_TRUE(Close(out[1], y, Tolerance())) << "explicit J'J p, points";
  }
}

template <typename Combination>
void CudaOperationsTest<Combination>::CompareJacobianProducts() {
  const CudaWorkspaceView& workspace = workspace_.view();
  const cudaStream_t stream = context_->stream();
  for (const bool accumulate : {false, true}) {
    RightMultiplyParams<HostSource> host;
    std::vector<double> y = b_;
    host.index = host_index_.view();
    host.jacobian = host_source_;
    host.camera_x = camera_x_.data();
    host.point_x = point_x_.data();
    host.y = y.data();
    host.accumulate = accumulate;
    reference::RightMultiply(host, &host_workspace_);
    RightMultiplyParams<Source> device;
    device.index = index_.view();
    device.jacobian = source_;
    device.camera_x = device_camera_x_.data();
    device.point_x = device_point_x_.data();
    device.accumulate = accumulate;
    auto out = accumulate ? Upload(b_) : Poisoned<double>(2 * n_);
    device.y = out.data();
    ASSERT_OK(cuda::RightMultiply(device, workspace, stream));
    ASSERT_OK(context_->Synchronize());
    EXPECT_TRUE(Close(Download(out), y, Tolerance())) << "J x";

    LeftMultiplyParams<HostSource> host_left;
    std::vector<double> camera_x = camera_x_;
    std::vector<double> point_x = point_x_;
    host_left.index = host_index_.view();
    host_left.jacobian = host_source_;
    host_left.y = b_.data();
    host_left.camera_x = camera_x.data();
    host_left.point_x = point_x.data();
    host_left.accumulate = accumulate;
    reference::LeftMultiply(host_left, &host_workspace_);
    LeftMultiplyParams<Source> left;
    left.index = index_.view();
    left.jacobian = source_;
    left.y = device_b_.data();
    left.accumulate = accumulate;
    auto camera_out =
        accumulate ? Upload(camera_x_) : Poisoned<double>(C * num_cameras_);
    auto point_out =
        accumulate ? Upload(point_x_) : Poisoned<double>(3 * num_points_);
    left.camera_x = camera_out.data();
    left.point_x = point_out.data();
    ASSERT_OK(cuda::LeftMultiply(left, workspace, stream));
    ASSERT_OK(context_->Synchronize());
    EXPECT_TRUE(Close(Download(camera_out), camera_x, Tolerance())) << "J'y";
    EXPECT_TRUE(Close(Download(point_out), point_x, Tolerance())) << "J'y";

    // One output at a time.
    auto camera_alone =
        accumulate ? Upload(camera_x_) : Poisoned<double>(C * num_cameras_);
    left.camera_x = camera_alone.data();
    left.point_x = nullptr;
    ASSERT_OK(cuda::LeftMultiply(left, workspace, stream));
    auto point_alone =
        accumulate ? Upload(point_x_) : Poisoned<double>(3 * num_points_);
    left.camera_x = nullptr;
    left.point_x = point_alone.data();
    ASSERT_OK(cuda::LeftMultiply(left, workspace, stream));
    ASSERT_OK(context_->Synchronize());
    EXPECT_TRUE(SameBits(Download(camera_alone), Download(camera_out)));
    EXPECT_TRUE(SameBits(Download(point_alone), Download(point_out)));
  }
  SquaredColumnNormsParams<HostSource> host;
  std::vector<double> camera_norms(C * num_cameras_);
  std::vector<double> point_norms(3 * num_points_);
  host.index = host_index_.view();
  host.jacobian = host_source_;
  host.camera_x = camera_norms.data();
  host.point_x = point_norms.data();
  reference::SquaredColumnNorms(host, &host_workspace_);
  SquaredColumnNormsParams<Source> device;
  device.index = index_.view();
  device.jacobian = source_;
  const auto out = RunTwice<double>(
      {{C * num_cameras_, 1}, {3 * num_points_, 1}},
      [&](const std::vector<double*>& out) {
        device.camera_x = out[0];
        device.point_x = out[1];
        return cuda::SquaredColumnNorms(device, workspace, stream);
      });
  EXPECT_TRUE(Close(out[0], camera_norms, Tolerance())) << "norms";
  EXPECT_TRUE(Close(out[1], point_norms, Tolerance())) << "norms";

  if constexpr (!kRecomputed) {
    ScaleColumnsParams<T, C, kHostLayout> host_scale;
    std::vector<T> jc = host_jc_;
    std::vector<T> jp = host_jp_;
    host_scale.index = host_index_.view();
    host_scale.camera_blocks = {jc.data(), n_};
    host_scale.point_blocks = {jp.data(), n_};
    host_scale.camera_scale = camera_x_.data();
    host_scale.point_scale = point_x_.data();
    reference::ScaleColumns(host_scale, &host_workspace_);
    auto device_jc = Upload(ToDeviceLayout<T>(host_jc_, 2 * C));
    auto device_jp = Upload(ToDeviceLayout<T>(host_jp_, 6));
    ScaleColumnsParams<T, C, kDeviceLayout> scale;
    scale.index = index_.view();
    scale.camera_blocks = {device_jc.data(), n_};
    scale.point_blocks = {device_jp.data(), n_};
    scale.camera_scale = device_camera_x_.data();
    scale.point_scale = device_point_x_.data();
    ASSERT_OK(cuda::ScaleColumns(scale, stream));
    ASSERT_OK(context_->Synchronize());
    EXPECT_TRUE(SameBits(Download(device_jc), ToDeviceLayout<T>(jc, 2 * C)));
    EXPECT_TRUE(SameBits(Download(device_jp), ToDeviceLayout<T>(jp, 6)));
  }
}

CudaWorkspace::Options SmallTiles() {
  CudaWorkspace::Options options;
  options.recomputed = {7, 40, 3};
  options.stored = {9, 50, 50};
  return options;
}

TYPED_TEST(CudaOperationsTest, NormalBlocks) {
  this->Setup(MakeEdgePairs(), {});
  this->CompareNormalBlocks(true);
  this->CompareNormalBlocks(false);
}

TYPED_TEST(CudaOperationsTest, NormalBlocksOfLongTracks) {
  this->Setup(MakeLongPairs(), {});
  this->CompareNormalBlocks(true);
}

TYPED_TEST(CudaOperationsTest, NormalBlocksOfManyChunks) {
  // Camera 1 has more entries than a chunk.
  this->Setup(MakePairs(5, 9000, {2, 1, 3, 0}, 21), {});
  this->CompareNormalBlocks(true);
}

TYPED_TEST(CudaOperationsTest, Products) {
  this->Setup(MakeEdgePairs(), {});
  this->CompareProducts(true);
  this->CompareProducts(false);
}

TYPED_TEST(CudaOperationsTest, ProductsWithSmallTiles) {
  this->Setup(MakeEdgePairs(), SmallTiles());
  this->CompareProducts(true);
}

// Tiles of so many cameras that their segments are summed in several rounds.
TYPED_TEST(CudaOperationsTest, ProductsOfScatteredPoints) {
  this->Setup(MakePairs(3000, 520, {4, 3, 5}, 9), {});
  EXPECT_GT(this->workspace_.view().recomputed_tiles.max_tile_segments,
            2 * kRecomputedTiles.max_observations / 3);
  this->CompareProducts(true);
  this->CompareProducts(false);
}

TYPED_TEST(CudaOperationsTest, ProductsOfLongTracks) {
  this->Setup(MakeLongPairs(), {});
  this->CompareProducts(true);
}

TYPED_TEST(CudaOperationsTest, JacobianProducts) {
  this->Setup(MakeEdgePairs(), {});
  this->CompareJacobianProducts();
}

TYPED_TEST(CudaOperationsTest, JacobianProductsOfLongTracks) {
  this->Setup(MakeLongPairs(), {});
  this->CompareJacobianProducts();
}

TYPED_TEST(CudaOperationsTest, NoObservations) {
  PairList pairs;
  pairs.num_cameras = 3;
  pairs.num_points = 5;
  this->Setup(pairs, {});
  this->CompareNormalBlocks(true);
  this->CompareProducts(true);
  this->CompareJacobianProducts();
}

}  // namespace
}  // namespace ceres_ext::kernels
