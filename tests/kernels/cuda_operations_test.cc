// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Each device body against the host's, for every source, at tracks of 0, 1, 2,
// 31, 32, 33 observations and longer than a tile, with repeated pairs, a camera
// seen by all and cameras and points without observations; with and without D,
// twice on one workspace, with outputs poisoned before each run.
//
// Host and device sum the same terms in another order, and products of blocks
// are rounded to T on the device where the host has double. The allowed
// difference of each element is computed with it (running_error.h), from the
// formula of its operation and the Jacobian, which for recomputed blocks has
// additional errors. Beside that, no difference is larger than n + 64 roundings
// of kCancellation times the largest element, n being the terms of the longest
// sum: cameras and points are of one kind, so no array mixes scales by more.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "cuda_kernels/ops/manifolds.h"
#include "cuda_kernels/ops/schur_complement.h"
#include "cuda_kernels/ops/schur_terms.h"
#include "cuda_kernels/structure/cuda_coupling_index.h"
#include "cuda_kernels/structure/schur_matrix.h"
#include "tests/kernels/cuda_test_util.h"

namespace ceres_ext::kernels {
namespace {

constexpr double kCancellation = 8.0;

template <typename TIn, int CIn, bool kRecomputedIn, bool kScaledRowsIn = false>
struct Combination {
  using T = TIn;
  static constexpr int C = CIn;
  static constexpr bool kRecomputed = kRecomputedIn;
  static constexpr bool kScaledRows = kScaledRowsIn;
};

template <typename Combination>
class CudaOperationsTest : public CudaProblemTest {
 protected:
  using T = typename Combination::T;
  static constexpr int C = Combination::C;
  static constexpr bool kRecomputed = Combination::kRecomputed;
  static constexpr bool kScaledRows = Combination::kScaledRows;
  static constexpr int kPacked = PackedSize(C);
  using Source =
      std::conditional_t<kRecomputed,
                         RecomputedJacobian<T, C, kScaledRows>,
                         StoredJacobian<T, BalShape<C>, kDeviceLayout>>;
  // The host has no recomputed float; it gets the same values as doubles.
  using HostSource =
      std::conditional_t<kRecomputed,
                         RecomputedJacobian<double, C, kScaledRows>,
                         StoredJacobian<T, BalShape<C>, kHostLayout>>;

  void Prepare(const PairList& pairs, CudaWorkspace::Options options) {
    options.max_columns = C;
    ASSERT_NO_FATAL_FAILURE(CudaProblemTest::Prepare(pairs, options));
    // All that NormalBlocks gives per camera.
    ASSERT_OK(host_workspace_.ReserveCameraSums(2 * (kPacked + C)));
    MakeJacobian();
    longest_ = 0;
    const ObservationIndexRef& index = host_index_.ref();
    for (int32_t c = 0; c < pairs.num_cameras; ++c) {
      longest_ =
          std::max(longest_, index.camera_begin[c + 1] - index.camera_begin[c]);
    }
    for (int32_t p = 0; p < pairs.num_points; ++p) {
      longest_ =
          std::max(longest_, index.point_begin[p + 1] - index.point_begin[p]);
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
    on_host_.index = host_workspace_.index();
    on_host_.b = b_.data();
    on_host_.camera_x = camera_x_.data();
    on_host_.point_x = point_x_.data();
    on_host_.machine = &host_machine_;
    on_device_.index = workspace_.index();
    on_device_.b = device_b_.data();
    on_device_.camera_x = device_camera_x_.data();
    on_device_.point_x = device_point_x_.data();
    on_device_.machine = machine_.get();
  }

  // With D or without.
  void SetDiagonal(bool is_set) {
    on_host_.camera_diagonal = is_set ? camera_diagonal_.data() : nullptr;
    on_host_.point_diagonal = is_set ? point_diagonal_.data() : nullptr;
    on_device_.camera_diagonal =
        is_set ? device_camera_diagonal_.data() : nullptr;
    on_device_.point_diagonal =
        is_set ? device_point_diagonal_.data() : nullptr;
  }

  void MakeJacobian() {
    std::vector<double> cameras;
    std::vector<double> points;
    std::vector<double> observations;
    MakeScene(pairs_, 7, &cameras, &points, &observations);
    std::vector<T> float_points(points.begin(), points.end());
    std::vector<CameraState<T>> states;
    host_maps_ = RandomVector(int64_t{9} * C * num_cameras_, 17);
    for (int64_t c = 0; c < num_cameras_; ++c) {
      double rotation_map[9];
      states.push_back(CameraStateCast<T>(
          PrepareBalCamera<3>(cameras.data() + 9 * c, rotation_map)));
    }
    std::vector<T> scale;
    for (const double x : RandomVector(3 * num_points_, 18)) {
      scale.push_back(static_cast<T>(0.5 + x * x));
    }
    // Tukey's loss makes some of them zero.
    std::vector<T> row_scale;
    for (const double x : RandomVector(n_, 19)) {
      row_scale.push_back(x < -0.8 ? T(0) : static_cast<T>(1.0 + x));
    }
    host_row_scale_.assign(row_scale.begin(), row_scale.end());
    host_points_.assign(float_points.begin(), float_points.end());
    host_scale_.assign(scale.begin(), scale.end());
    host_states_.clear();
    for (const CameraState<T>& state : states) {
      host_states_.push_back(CameraStateCast<double>(state));
    }
    if constexpr (kRecomputed) {
      points_ = Upload(float_points);
      scale_ = Upload(scale);
      maps_ = Upload(host_maps_);
      states_ = Upload(states);
      on_device_.jacobian =
          Source{states_.data(), maps_.data(), points_.data(), scale_.data()};
      on_host_.jacobian = HostSource{host_states_.data(),
                                     host_maps_.data(),
                                     host_points_.data(),
                                     host_scale_.data()};
      if (kScaledRows) {
        row_scale_ = Upload(row_scale);
        on_device_.jacobian.row_scale = row_scale_.data();
        on_host_.jacobian.row_scale = host_row_scale_.data();
      }
    } else {
      const RecomputedJacobian<double, C> model{host_states_.data(),
                                                host_maps_.data(),
                                                host_points_.data(),
                                                host_scale_.data()};
      const ObservationIndexRef& index = host_index_.ref();
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
      on_device_.jacobian = Source{{jc_.data(), n_}, {jp_.data(), n_}};
      on_host_.jacobian =
          HostSource{{host_jc_.data(), n_}, {host_jp_.data(), n_}};
    }
    MakeRunningJacobian();
  }

  void MakeRunningJacobian() {
    running_jc_.assign(host_jc_.begin(), host_jc_.end());
    running_jp_.assign(host_jp_.begin(), host_jp_.end());
    if constexpr (kRecomputed) {
      const ObservationIndexRef& index = host_index_.ref();
      running_jc_.resize(static_cast<size_t>(2 * C * n_));
      running_jp_.resize(static_cast<size_t>(6 * n_));
      for (int64_t k = 0; k < n_; ++k) {
        const int64_t c = index.camera_id[k];
        const int64_t p = index.point_id[k];
        const CameraState<Number> state = ToRunning<T>(host_states_[c]);
        const Numbers point(host_points_.begin() + 3 * p,
                            host_points_.begin() + 3 * p + 3);
        const Numbers map(host_maps_.begin() + 9 * C * c,
                          host_maps_.begin() + 9 * C * (c + 1));
        const Projection<Number> projection = Project(state, point.data());
        Number local[2 * kBalLocalCameraDim];
        CameraJacobian(state, projection, local);
        MapCameraJacobian<C>(local, map.data(), &running_jc_[2 * C * k]);
        Number* jp = &running_jp_[6 * k];
        PointJacobian(state, projection, jp);
        for (int i = 0; i < 6; ++i) {
          jp[i] *= Number(host_scale_[3 * p + i % 3]);
        }
        if (kScaledRows) {
          const Number s(host_row_scale_[k]);
          for (int i = 0; i < 2 * C; ++i) {
            running_jc_[2 * C * k + i] *= s;
          }
          for (int i = 0; i < 6; ++i) {
            jp[i] *= s;
          }
        }
      }
    }
  }

  double Tolerance() const {
    return kCancellation * static_cast<double>(longest_ + 64) *
           kUnitRoundoff<T>;
  }

  // ---------------------------------------------------------------------
  // The operations in running numbers. Signs change no bound.
  using Number = Running<T>;
  using Numbers = std::vector<Number>;
  using Sums = std::vector<RunningSum<T>>;

  static Numbers Inputs(const std::vector<double>& values) {
    Numbers numbers;
    for (const double x : values) {
      numbers.push_back(Number::Input(x));
    }
    return numbers;
  }
  static Numbers Get(const Sums& sums) {
    Numbers numbers;
    for (const RunningSum<T>& sum : sums) {
      numbers.push_back(sum.Get());
    }
    return numbers;
  }
  static Numbers Plus(const Numbers& x, const Numbers& y) {
    Numbers sum;
    for (size_t i = 0; i < x.size(); ++i) {
      sum.push_back(x[i] + y[i]);
    }
    return sum;
  }
  // D^2 p + q
  static Numbers Damped(const double* diagonal,
                        const Numbers& p,
                        const Numbers& q) {
    Numbers sum;
    for (size_t i = 0; i < q.size(); ++i) {
      const Number d(diagonal == nullptr ? 0.0 : diagonal[i]);
      sum.push_back(d * d * p[i] + q[i]);
    }
    return sum;
  }

  // F c + E p; empty: zero.
  Numbers Times(const Numbers& cameras, const Numbers& points) const {
    const ObservationIndexRef& index = host_index_.ref();
    Numbers y(static_cast<size_t>(2 * n_));
    for (int64_t i = 0; i < 2 * n_; ++i) {
      const int64_t k = i / 2;
      for (int j = 0; j < C && !cameras.empty(); ++j) {
        y[i] += running_jc_[C * i + j] *
                cameras[int64_t{C} * index.camera_id[k] + j];
      }
      for (int j = 0; j < 3 && !points.empty(); ++j) {
        y[i] +=
            running_jp_[3 * i + j] * points[int64_t{3} * index.point_id[k] + j];
      }
    }
    return y;
  }
  // F'y and E'y.
  std::pair<Numbers, Numbers> TransposeTimes(const Numbers& y) const {
    const ObservationIndexRef& index = host_index_.ref();
    Sums cameras(static_cast<size_t>(C * num_cameras_));
    Sums points(static_cast<size_t>(3 * num_points_));
    for (int64_t i = 0; i < 2 * n_; ++i) {
      const int64_t k = i / 2;
      for (int j = 0; j < C; ++j) {
        cameras[int64_t{C} * index.camera_id[k] + j].Add(
            running_jc_[C * i + j] * y[i]);
      }
      for (int j = 0; j < 3; ++j) {
        points[int64_t{3} * index.point_id[k] + j].Add(running_jp_[3 * i + j] *
                                                       y[i]);
      }
    }
    return {Get(cameras), Get(points)};
  }
  // Vi x
  static Numbers ApplyInverse(const Numbers& v_inverse, const Numbers& x) {
    Numbers y(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t p = i / 3;
      const int row = static_cast<int>(i % 3);
      for (int j = 0; j < 3; ++j) {
        const int at = j <= row ? PackedIndex(row, j) : PackedIndex(j, row);
        y[i] += v_inverse[6 * p + at] * x[3 * p + j];
      }
    }
    return y;
  }
  // F'(y - E Vi E'y)
  Numbers Eliminated(const Numbers& v_inverse, const Numbers& y) const {
    const Numbers motion = ApplyInverse(v_inverse, TransposeTimes(y).second);
    return TransposeTimes(Plus(y, Times({}, motion))).first;
  }

  // Squares of the columns, packed, of blocks of N columns.
  template <int N>
  Numbers Squares(const Numbers& jacobian,
                  const int32_t* block,
                  int64_t num_blocks) const {
    Sums sums(static_cast<size_t>(PackedSize(N) * num_blocks));
    for (int64_t i = 0; i < 2 * n_; ++i) {
      const Number* row = &jacobian[N * i];
      for (int a = 0; a < N; ++a) {
        for (int b = 0; b <= a; ++b) {
          sums[int64_t{PackedSize(N)} * block[i / 2] + PackedIndex(a, b)].Add(
              row[a] * row[b]);
        }
      }
    }
    return Get(sums);
  }
  template <int N>
  static Numbers Diagonals(const Numbers& packed) {
    Numbers diagonals;
    for (size_t b = 0; b < packed.size() / PackedSize(N); ++b) {
      for (int i = 0; i < N; ++i) {
        diagonals.push_back(packed[PackedSize(N) * b + PackedIndex(i, i)]);
      }
    }
    return diagonals;
  }
  // w += W of observation k.
  void AddCoupling(int64_t k, Number* w) const {
    for (int i = 0; i < C; ++i) {
      for (int j = 0; j < 3; ++j) {
        for (int r = 0; r < 2; ++r) {
          w[3 * i + j] += running_jc_[C * (2 * k + r) + i] *
                          running_jp_[3 * (2 * k + r) + j];
        }
      }
    }
  }
  // Vi, from the host's and V.
  Numbers Inverses(const std::vector<double>& inverse, const Numbers& v) const {
    Numbers result(inverse.size());
    for (int64_t p = 0; p < num_points_; ++p) {
      double diagonal[3];
      for (int i = 0; i < 3; ++i) {
        const double d = point_diagonal_[3 * p + i];
        diagonal[i] = v[6 * p + PackedIndex(i, i)].size + d * d;
      }
      double relative_error = 0.0;
      for (int i = 0; i < 3; ++i) {
        for (int j = 0; j <= i; ++j) {
          relative_error = std::max(relative_error,
                                    v[6 * p + PackedIndex(i, j)].error /
                                        std::sqrt(diagonal[i] * diagonal[j]));
        }
      }
      // D^2 and its addition round twice.
      RunningInverse<3>(&inverse[6 * p],
                        diagonal,
                        relative_error + 2.0 * kUnitRoundoff<double>,
                        &result[6 * p]);
    }
    for (Number& x : result) {
      x = x.RoundTo(Number::kUnit);
    }
    return result;
  }
  // U - sum_p W_cp Vi_p W_cp'
  Numbers SchurDiagonals(const Numbers& v_inverse, const Numbers& u) const {
    const ObservationIndexRef& index = host_index_.ref();
    Sums sums(u.size());
    for (size_t i = 0; i < u.size(); ++i) {
      sums[i].Add(u[i]);
    }
    for (int64_t k = 0; k < n_;) {
      const int64_t c = index.camera_id[k];
      const int64_t p = index.point_id[k];
      Numbers w(3 * C);
      for (; k < n_ && index.camera_id[k] == c && index.point_id[k] == p; ++k) {
        AddCoupling(k, w.data());
      }
      const Numbers inverse(v_inverse.begin() + 6 * p,
                            v_inverse.begin() + 6 * p + 6);
      for (int i = 0; i < C; ++i) {
        const Numbers row = ApplyInverse(
            inverse, Numbers(w.begin() + 3 * i, w.begin() + 3 * i + 3));
        for (int j = 0; j <= i; ++j) {
          sums[kPacked * c + PackedIndex(i, j)].Add(row[0] * w[3 * j] +
                                                    row[1] * w[3 * j + 1] +
                                                    row[2] * w[3 * j + 2]);
        }
      }
    }
    return Get(sums);
  }

  using Outputs = std::vector<std::vector<double>>;
  // Runs fn(operations, outputs) on the host and, twice, on the device.
  template <typename Function>
  void RunOnBoth(const std::vector<Output>& outputs,
                 Function&& fn,
                 Outputs* host,
                 Outputs* device) {
    std::vector<double*> pointers;
    host->clear();
    for (const Output& output : outputs) {
      host->push_back(output.before == nullptr
                          ? std::vector<double>(output.size)
                          : *output.before);
    }
    for (std::vector<double>& values : *host) {
      pointers.push_back(values.data());
    }
    ASSERT_OK(fn(on_host_, pointers));
    *device = RunTwice(outputs, [&](const std::vector<double*>& out) {
      return fn(on_device_, out);
    });
  }
  // The same, and compares. Returns the outputs of the device.
  template <typename Function>
  Outputs Compare(const char* what,
                  const std::vector<Numbers>& running,
                  double tolerance,
                  const std::vector<Output>& outputs,
                  Function&& fn) {
    Outputs host;
    Outputs device;
    RunOnBoth(outputs, fn, &host, &device);
    EXPECT_EQ(device.size(), outputs.size()) << what;
    for (size_t i = 0; i < device.size(); ++i) {
      EXPECT_TRUE(Close(device[i], host[i], running[i], tolerance))
          << what << ", output " << i;
    }
    return device;
  }

  void CompareNormalBlocks(bool with_diagonal);
  void CompareProducts(bool with_diagonal);
  void CompareJacobianProducts();
  void CompareSchurComplement(bool with_diagonal, bool expect_chunks);

  int64_t longest_ = 0;
  Operations<HostSource, HostMachine> on_host_;
  Operations<Source, CudaMachine> on_device_;

  std::vector<CameraState<double>> host_states_;
  std::vector<double> host_maps_, host_points_, host_scale_, host_row_scale_;
  Numbers running_jc_, running_jp_;
  std::vector<std::conditional_t<kRecomputed, double, T>> host_jc_, host_jp_;
  DeviceBuffer<CameraState<T>> states_;
  DeviceBuffer<double> maps_;
  DeviceBuffer<T> points_, scale_, row_scale_, jc_, jp_;

  std::vector<double> b_, camera_diagonal_, point_diagonal_, camera_x_,
      point_x_;
  DeviceBuffer<double> device_b_, device_camera_diagonal_,
      device_point_diagonal_, device_camera_x_, device_point_x_;
};

using Combinations = ::testing::Types<Combination<double, 9, true>,
                                      Combination<double, 10, true>,
                                      Combination<float, 9, true>,
                                      Combination<float, 10, true>,
                                      Combination<double, 9, true, true>,
                                      Combination<double, 10, true, true>,
                                      Combination<float, 9, true, true>,
                                      Combination<float, 10, true, true>,
                                      Combination<double, 9, false>,
                                      Combination<double, 10, false>,
                                      Combination<double, 6, false>,
                                      Combination<double, 12, false>,
                                      Combination<double, 14, false>,
                                      Combination<double, 16, false>,
                                      Combination<float, 6, false>,
                                      Combination<float, 12, false>,
                                      Combination<float, 14, false>,
                                      Combination<float, 16, false>,
                                      Combination<float, 9, false>,
                                      Combination<float, 10, false>>;
TYPED_TEST_SUITE(CudaOperationsTest, Combinations);

template <typename Combination>
void CudaOperationsTest<Combination>::CompareNormalBlocks(bool with_diagonal) {
  SetDiagonal(with_diagonal);
  Breakdown breakdown;
  DeviceBuffer<Breakdown> device_breakdown = Poisoned<Breakdown>(1);
  NormalBlocksParams<HostSource, kHostLayout> host_blocks;
  NormalBlocksParams<Source, kDeviceLayout> device_blocks;
  host_blocks.breakdown = &breakdown;
  device_blocks.breakdown = device_breakdown.data();
  const auto of = [&](const auto& on) {
    if constexpr (std::is_same_v<typename std::decay_t<decltype(on)>::Machine,
                                 HostMachine>) {
      return host_blocks;
    } else {
      return device_blocks;
    }
  };
  Outputs host;
  Outputs device;
  RunOnBoth(
      {{6 * num_points_, 6},
       {6 * num_points_, 6},
       {3 * num_points_},
       {kPacked * num_cameras_, kPacked},
       {C * num_cameras_},
       {kPacked * num_cameras_, kPacked},
       {C * num_cameras_}},
      [&](const auto& on, const std::vector<double*>& out) {
        auto blocks = of(on);
        blocks.v = {out[0], num_points_};
        blocks.v_inverse = {out[1], num_points_};
        blocks.point_gradient = out[2];
        blocks.u = {out[3], num_cameras_};
        blocks.camera_gradient = out[4];
        blocks.schur_diagonal = {out[5], num_cameras_};
        blocks.schur_rhs = out[6];
        return on.NormalBlocks(blocks);
      },
      &host,
      &device);
  ASSERT_EQ(device.size(), 7u);
  const ObservationIndexRef& index = host_index_.ref();
  const Numbers v = Squares<3>(running_jp_, index.point_id, num_points_);
  const Numbers u = Squares<C>(running_jc_, index.camera_id, num_cameras_);
  const auto [g_c, g_p] = TransposeTimes(Inputs(b_));
  EXPECT_TRUE(Close(device[0], host[0], v, Tolerance())) << "V";
  EXPECT_TRUE(Close(device[2], host[2], g_p, Tolerance())) << "g_p";
  EXPECT_TRUE(Close(device[3], host[3], u, Tolerance())) << "U";
  EXPECT_TRUE(Close(device[4], host[4], g_c, Tolerance())) << "g_c";
  if (!with_diagonal) {
    // Points of one observation have singular V: what comes of them is not
    // defined. The factor is compared with D.
    return;
  }
  EXPECT_EQ(Download(device_breakdown)[0].first_block, breakdown.first_block);
  const Numbers v_inverse = Inverses(host[1], v);
  const Numbers rhs = Eliminated(v_inverse, Inputs(b_));
  EXPECT_TRUE(Close(device[1], host[1], v_inverse)) << "Vi";
  EXPECT_TRUE(Close(device[5], host[5], SchurDiagonals(v_inverse, u))) << "S_c";
  EXPECT_TRUE(Close(device[6], host[6], rhs)) << "s";

  // Vectors without matrices take another way.
  const auto vectors =
      RunTwice({{6 * num_points_, 6}, {C * num_cameras_}, {C * num_cameras_}},
               [&](const std::vector<double*>& out) {
                 auto blocks = device_blocks;
                 blocks.v_inverse = {out[0], num_points_};
                 blocks.camera_gradient = out[1];
                 blocks.schur_rhs = out[2];
                 return on_device_.NormalBlocks(blocks);
               });
  EXPECT_TRUE(Close(vectors[1], host[4], g_c, Tolerance())) << "g_c alone";
  EXPECT_TRUE(Close(vectors[2], host[6], rhs)) << "s alone";
}

template <typename Combination>
void CudaOperationsTest<Combination>::CompareProducts(bool with_diagonal) {
  std::vector<double> v_inverse(6 * num_points_);
  Breakdown breakdown;
  NormalBlocksParams<HostSource, kHostLayout> blocks;
  blocks.v_inverse = {v_inverse.data(), num_points_};
  blocks.breakdown = &breakdown;
  // Always damped: see CompareNormalBlocks.
  SetDiagonal(true);
  ASSERT_OK(on_host_.NormalBlocks(blocks));
  ASSERT_EQ(breakdown.first_block, Breakdown::kNone);
  const auto device_v_inverse = Upload(ToDeviceLayout<double>(v_inverse, 6));
  SetDiagonal(with_diagonal);
  on_host_.v_inverse = v_inverse.data();
  on_device_.v_inverse = device_v_inverse.data();

  const Output cameras{C * num_cameras_};
  const Output points{3 * num_points_};
  const Numbers running_v_inverse = Inputs(v_inverse);
  const Numbers camera_p = Inputs(camera_x_);
  const Numbers point_p = Inputs(point_x_);
  const Numbers s_p =
      Damped(on_host_.camera_diagonal,
             camera_p,
             Eliminated(running_v_inverse, Times(camera_p, {})));
  const Numbers y = ApplyInverse(
      running_v_inverse,
      TransposeTimes(Plus(Inputs(b_), Times(camera_p, {}))).second);
  auto [camera_q, point_q] = TransposeTimes(Times(camera_p, point_p));
  camera_q = Damped(on_host_.camera_diagonal, camera_p, camera_q);
  point_q = Damped(on_host_.point_diagonal, point_p, point_q);
  Compare("S p", {s_p}, 4 * Tolerance(), {cameras}, [](auto& on, auto& out) {
    return on.SchurProductImplicitW(out[0]);
  });
  const Numbers motion = ApplyInverse(
      running_v_inverse, TransposeTimes(Times(camera_p, {})).second);
  Compare("eliminated part of S p",
          {TransposeTimes(Times({}, motion)).first},
          4 * Tolerance(),
          {cameras},
          [](auto& on, auto& out) {
            return on.SchurProductImplicitW(out[0], true);
          });
  {
    // Ended: q stays as it is.
    PcgScalars scalars;
    scalars.end = PcgEnd::kResidual;
    const auto device_scalars = Upload(std::vector<PcgScalars>{scalars});
    auto ended = on_device_;
    ended.scalars = device_scalars.data();
    auto untouched = Upload(camera_x_);
    ASSERT_OK(ended.SchurProductImplicitW(untouched.data()));
    ASSERT_OK(context_->Synchronize());
    EXPECT_EQ(Download(untouched), camera_x_);
  }
  Compare("y", {y}, 4 * Tolerance(), {points}, [](auto& on, auto& out) {
    return on.BackSubstituteImplicitW(out[0]);
  });
  Compare("J'J p",
          {camera_q, point_q},
          Tolerance(),
          {cameras, points},
          [](auto& on, auto& out) {
            return on.NormalProductImplicitW(out[0], out[1]);
          });
}

template <typename Combination>
void CudaOperationsTest<Combination>::CompareJacobianProducts() {
  for (const bool accumulate : {false, true}) {
    const auto before = [&](const std::vector<double>& values) {
      return accumulate ? &values : nullptr;
    };
    const Output cameras{C * num_cameras_, 1, before(camera_x_)};
    const Output points{3 * num_points_, 1, before(point_x_)};
    const auto plus_before = [&](const Numbers& sums,
                                 const std::vector<double>& values) {
      return accumulate ? Plus(sums, Inputs(values)) : sums;
    };
    const auto [camera_y, point_y] = TransposeTimes(Inputs(b_));
    Compare("J x",
            {plus_before(Times(Inputs(camera_x_), Inputs(point_x_)), b_)},
            Tolerance(),
            {{2 * n_, 1, before(b_)}},
            [&](auto& on, auto& out) {
              return on.RightMultiply(out[0], accumulate);
            });
    const Outputs both = Compare(
        "J'y",
        {plus_before(camera_y, camera_x_), plus_before(point_y, point_x_)},
        Tolerance(),
        {cameras, points},
        [&](auto& on, auto& out) {
          return on.LeftMultiply(out[0], out[1], accumulate);
        });
    // One output at a time.
    const Outputs alone =
        RunTwice({cameras, points}, [&](const std::vector<double*>& out) {
          const Status status =
              on_device_.LeftMultiply(out[0], nullptr, accumulate);
          return status.ok()
                     ? on_device_.LeftMultiply(nullptr, out[1], accumulate)
                     : status;
        });
    EXPECT_TRUE(SameBits(alone[0], both[0]));
    EXPECT_TRUE(SameBits(alone[1], both[1]));
  }
  const ObservationIndexRef& index = host_index_.ref();
  Compare("norms",
          {Diagonals<C>(Squares<C>(running_jc_, index.camera_id, num_cameras_)),
           Diagonals<3>(Squares<3>(running_jp_, index.point_id, num_points_))},
          Tolerance(),
          {{C * num_cameras_}, {3 * num_points_}},
          [](auto& on, auto& out) {
            return on.SquaredColumnNorms(out[0], out[1]);
          });

  if constexpr (!kRecomputed) {
    std::vector<T> jc = host_jc_;
    std::vector<T> jp = host_jp_;
    ASSERT_OK(on_host_.ScaleColumns(jc.data(), jp.data()));
    auto device_jc = Upload(ToDeviceLayout<T>(host_jc_, 2 * C));
    auto device_jp = Upload(ToDeviceLayout<T>(host_jp_, 6));
    ASSERT_OK(on_device_.ScaleColumns(device_jc.data(), device_jp.data()));
    ASSERT_OK(context_->Synchronize());
    EXPECT_TRUE(SameBits(Download(device_jc), ToDeviceLayout<T>(jc, 2 * C)));
    EXPECT_TRUE(SameBits(Download(device_jp), ToDeviceLayout<T>(jp, 6)));
  }
}

// S as a matrix, whose columns 2 and 9 of every third camera and all of camera
// 2 are held, dense and sparse, and its product.
template <typename Combination>
void CudaOperationsTest<Combination>::CompareSchurComplement(
    bool with_diagonal, bool expect_chunks) {
  std::vector<double> v_inverse(6 * num_points_);
  std::vector<double> schur_diagonal(kPacked * num_cameras_);
  Breakdown breakdown;
  NormalBlocksParams<HostSource, kHostLayout> blocks;
  blocks.v_inverse = {v_inverse.data(), num_points_};
  blocks.schur_diagonal = {schur_diagonal.data(), num_cameras_};
  blocks.breakdown = &breakdown;
  // Always damped: see CompareNormalBlocks.
  SetDiagonal(true);
  ASSERT_OK(on_host_.NormalBlocks(blocks));
  ASSERT_EQ(breakdown.first_block, Breakdown::kNone);
  const auto device_v_inverse = Upload(ToDeviceLayout<double>(v_inverse, 6));
  const auto device_schur_diagonal =
      Upload(ToDeviceLayout<double>(schur_diagonal, kPacked));
  SetDiagonal(with_diagonal);
  on_host_.v_inverse = v_inverse.data();
  on_device_.v_inverse = device_v_inverse.data();

  CouplingIndex host_couplings;
  CudaCouplingIndex couplings;
  ASSERT_OK(host_couplings.Build(
      host_index_.ref(), CouplingList::kObservations, &host_machine_));
  ASSERT_OK(couplings.Build(
      index_.ref(), kCouplings<Source, kDeviceLayout>, machine_.get()));
  EXPECT_EQ(couplings.ref().num_chunks > 0, expect_chunks);
  std::vector<unsigned char> varies(static_cast<size_t>(C * num_cameras_));
  std::vector<int64_t> unknown;
  for (size_t at = 0; at < varies.size(); ++at) {
    const size_t c = at / C;
    const size_t e = at % C;
    varies[at] = c != 2 && (c % 3 != 0 || (e != 2 && e != 9));
    if (varies[at]) {
      unknown.push_back(static_cast<int64_t>(at));
    }
  }
  BlockFamilies families;
  families.Add(C, static_cast<int32_t>(num_cameras_));
  SchurUnknowns<HostMachine> host_unknowns;
  SchurUnknowns<CudaMachine> unknowns;
  ASSERT_OK(host_unknowns.Setup(families, varies.data(), &host_machine_));
  ASSERT_OK(unknowns.Setup(families, varies.data(), machine_.get()));
  const int64_t n = unknowns.ref().num_unknowns;
  ASSERT_EQ(n, static_cast<int64_t>(unknown.size()));
  SchurCsr<HostMachine> host_csr;
  SchurCsr<CudaMachine> csr;
  ASSERT_OK(
      host_csr.Setup(host_couplings.ref(), host_unknowns, &host_machine_));
  ASSERT_OK(csr.Setup(couplings.ref(), unknowns, machine_.get()));
  ASSERT_OK(host_csr.SetupColumns(&host_machine_));
  ASSERT_OK(csr.SetupColumns(machine_.get()));
  EXPECT_EQ(csr.host_row_begin(), host_csr.host_row_begin());
  const int64_t num_values = csr.num_values();
  std::vector<int32_t> column(static_cast<size_t>(num_values));
  ASSERT_OK(machine_->Download(num_values, csr.column(), column.data()));
  EXPECT_TRUE(std::equal(column.begin(), column.end(), host_csr.column()));

  auto scratch = Poisoned<unsigned char>(
      ScratchBytes<Source>(n_, couplings.ref().num_chunks));
  const auto set = [&](const auto& on,
                       const SchurTarget& target,
                       const double* s_c,
                       auto* params) {
    params->index = on.index;
    params->jacobian = on.jacobian;
    params->v_inverse = {on.v_inverse, num_points_};
    params->schur_diagonal = {s_c, num_cameras_};
    params->camera_diagonal = on.camera_diagonal;
    params->target = target;
  };
  const auto on_host = [&](const SchurTarget& target) {
    SchurComplementParams<HostSource, kHostLayout> params;
    set(on_host_, target, schur_diagonal.data(), &params);
    params.couplings = host_couplings.ref();
    params.unknowns = host_unknowns.ref();
    HostSchurRows rows;
    CERES_EXT_RETURN_IF_ERROR(
        rows.Setup(params.index,
                   params.couplings,
                   nullptr,
                   internal::CouplingScratch<HostSource>::kLocalF,
                   &host_machine_));
    params.rows = rows.ref();
    return kernels::Run(params, &host_machine_);
  };
  const auto on_device = [&](const SchurTarget& target) {
    SchurComplementParams<Source, kDeviceLayout> params;
    set(on_device_, target, device_schur_diagonal.data(), &params);
    params.couplings = couplings.ref();
    params.unknowns = unknowns.ref();
    params.scratch = scratch.data();
    return kernels::Run(params, machine_.get());
  };
  const auto dense_target = [&](double* values) {
    SchurTarget target;
    target.values = values;
    target.stride = n;
    return target;
  };

  if (couplings.ref().num_couplings > 0) {
    constexpr bool kPoints =
        kCouplings<Source, kDeviceLayout> == CouplingList::kPoints;
    CudaCouplingIndex other;
    ASSERT_OK(other.Build(
        index_.ref(),
        kPoints ? CouplingList::kObservations : CouplingList::kPoints,
        machine_.get()));
    SchurComplementParams<Source, kDeviceLayout> params;
    set(on_device_, {}, device_schur_diagonal.data(), &params);
    params.couplings = other.ref();
    params.unknowns = unknowns.ref();
    params.scratch = scratch.data();
    EXPECT_EQ(kernels::Run(params, machine_.get()).message,
              std::string("The Schur complement of this Jacobian needs an "
                          "index of couplings that lists ") +
                  (kPoints ? "points, and this one lists observations."
                           : "observations, and this one lists points."));
  }

  // Dense: n x n, then the product with p.
  std::vector<double> host_s(static_cast<size_t>(n * n), -7.0);
  ASSERT_OK(on_host(dense_target(host_s.data())));
  auto s = RunTwice({{n * n}}, [&](const std::vector<double*>& out) {
    return on_device(dense_target(out[0]));
  })[0];
  for (int64_t v = 0; v < n; ++v) {
    for (int64_t u = 0; u < v; ++u) {
      const int64_t above = n * v + u;
      EXPECT_EQ(host_s[above], -7.0);
      EXPECT_TRUE(std::isnan(s[above]));
      host_s[above] = s[above] = 0.0;
    }
  }
  const Numbers running_v_inverse = Inputs(v_inverse);
  const ObservationIndexRef& index = host_index_.ref();
  // Places in the dense matrix; what is in none stays exact.
  std::vector<int64_t> id(varies.size(), -1);
  for (size_t u = 0; u < unknown.size(); ++u) {
    id[static_cast<size_t>(unknown[u])] = static_cast<int64_t>(u);
  }
  Sums sums(static_cast<size_t>(n * n));
  const CouplingIndexRef& view = host_couplings.ref();
  for (int64_t at = 0; at < view.num_couplings; ++at) {
    const int64_t k = FirstOfCoupling(view.coupling[at]);
    const int64_t l = SecondOfCoupling(view.coupling[at]);
    const int64_t p = index.point_id[k];
    const int64_t i = index.camera_id[k];
    const int64_t j = index.camera_id[l];
    Number right[2 * C];
    for (int r = 0; r < 2; ++r) {
      for (int q = 0; q < 2; ++q) {
        Number m;
        for (int e = 0; e < 3; ++e) {
          for (int f = 0; f < 3; ++f) {
            const int place = f <= e ? PackedIndex(e, f) : PackedIndex(f, e);
            m += running_jp_[3 * (2 * k + r) + e] *
                 running_v_inverse[6 * p + place] *
                 running_jp_[3 * (2 * l + q) + f];
          }
        }
        for (int b = 0; b < C; ++b) {
          right[C * r + b] += m * running_jc_[C * (2 * l + q) + b];
        }
      }
    }
    for (int a = 0; a < C; ++a) {
      const int64_t u = id[C * i + a];
      for (int b = 0; b < C; ++b) {
        const int64_t v = id[C * j + b];
        for (int r = 0; r < 2 && u >= 0 && v >= 0; ++r) {
          sums[n * v + u].Add(
              -(running_jc_[C * (2 * k + r) + a] * right[C * r + b]));
        }
      }
    }
  }
  Numbers running = Get(sums);
  for (int64_t c = 0; c < num_cameras_; ++c) {
    for (int a = 0; a < C; ++a) {
      for (int b = 0; b <= a; ++b) {
        const int64_t u = id[C * c + a];
        const int64_t v = id[C * c + b];
        if (u < 0 || v < 0) {
          continue;
        }
        // The device may fuse D^2 and its addition. Both are in double.
        Number sum(schur_diagonal[kPacked * c + PackedIndex(a, b)]);
        if (a == b && with_diagonal) {
          const double d = camera_diagonal_[C * c + a];
          sum += Number(d) * Number(d);
        }
        running[n * v + u] = sum;
      }
    }
  }
  EXPECT_TRUE(Close(s, host_s, running)) << "S";

  // Sparse: the same bits.
  std::vector<double> host_values(static_cast<size_t>(num_values), -7.0);
  ASSERT_OK(on_host(host_csr.target(host_values.data())));
  const auto values =
      RunTwice({{num_values}}, [&](const std::vector<double*>& out) {
        return on_device(csr.target(out[0]));
      })[0];
  std::vector<double> host_dense(host_s.size());
  std::vector<double> dense(host_s.size());
  for (int64_t u = 0; u < n; ++u) {
    const auto& begin = csr.host_row_begin();
    for (int64_t at = begin[u]; at < begin[u + 1]; ++at) {
      const int64_t to = n * column[at] + u;
      host_dense[to] = host_values[at];
      dense[to] = values[at];
    }
  }
  EXPECT_EQ(host_dense, host_s);
  EXPECT_EQ(dense, s);

  // S p is the product that does not form S, for p of the unknowns: the blocks
  // on the diagonal have the error of S_c, of the host's too.
  std::vector<double> x;
  for (const int64_t column : unknown) {
    x.push_back(camera_x_[column]);
  }
  const auto device_x = Upload(x);
  auto device_p = Upload(std::vector<double>(varies.size(), 0.0));
  ASSERT_OK(kernels::Run(
      ScatterValuesParams{
          n, unknowns.ref().column, device_x.data(), device_p.data()},
      machine_.get()));
  const std::vector<double> p = Download(device_p);
  for (size_t at = 0; at < id.size(); ++at) {
    EXPECT_EQ(p[at], id[at] < 0 ? 0.0 : camera_x_[at]);
  }
  const auto q =
      RunTwice({{C * num_cameras_}}, [&](const std::vector<double*>& out) {
        auto on = on_device_;
        on.camera_x = device_p.data();
        return on.SchurProductImplicitW(out[0]);
      })[0];
  const auto device_q = Upload(q);
  const auto product = RunTwice({{n}}, [&](const std::vector<double*>& out) {
    return kernels::Run(
        GatherValuesParams{n, unknowns.ref().column, device_q.data(), out[0]},
        machine_.get());
  })[0];
  const Numbers s_c =
      SchurDiagonals(running_v_inverse,
                     Squares<C>(running_jc_, index.camera_id, num_cameras_));
  const Numbers s_p =
      Damped(on_host_.camera_diagonal,
             Inputs(p),
             Eliminated(running_v_inverse, Times(Inputs(p), {})));
  std::vector<double> by_matrix(static_cast<size_t>(n));
  Numbers bounds(static_cast<size_t>(n));
  for (int64_t u = 0; u < n; ++u) {
    Sums terms(1);
    for (int64_t v = 0; v < n; ++v) {
      const int64_t at = u >= v ? n * v + u : n * u + v;
      Number element = running[at];
      const int64_t c = unknown[u] / C;
      if (c == unknown[v] / C) {
        const int64_t a = std::max(unknown[u], unknown[v]) % C;
        const int64_t b = std::min(unknown[u], unknown[v]) % C;
        const Number& block =
            s_c[kPacked * c +
                PackedIndex(static_cast<int>(a), static_cast<int>(b))];
        element.size += block.size;
        element.error += block.error;
      }
      by_matrix[u] += s[at] * x[v];
      terms[0].Add(element * Number(x[v]));
    }
    bounds[u] = terms[0].Get() + s_p[unknown[u]];
  }
  EXPECT_TRUE(Close(by_matrix, product, bounds)) << "S p";

  // By blocks of the sparse matrix.
  SchurRows<CudaMachine> rows;
  ASSERT_OK(rows.Setup(csr, unknowns, machine_.get()));
  const auto device_values = Upload(values);
  auto partial = Poisoned<double>(rows.ref().num_chunks * rows.ref().width);
  const auto of_blocks = RunTwice(
      {{C * num_cameras_}}, [&](const std::vector<double*>& out) -> Status {
        CERES_EXT_RETURN_IF_ERROR(
            kernels::Run(SchurRowChunksParams{rows.ref(),
                                              device_values.data(),
                                              device_p.data(),
                                              partial.data()},
                         machine_.get()));
        return kernels::Run(
            SchurRowSumsParams{rows.ref(), partial.data(), out[0]},
            machine_.get());
      })[0];
  std::vector<double> by_blocks;
  for (size_t at = 0; at < id.size(); ++at) {
    if (id[at] >= 0) {
      by_blocks.push_back(of_blocks[at]);
    } else {
      EXPECT_EQ(of_blocks[at], 0.0);
    }
  }
  EXPECT_TRUE(Close(by_blocks, by_matrix, bounds)) << "S p by blocks";
}

CudaWorkspace::Options SmallTiles() {
  CudaWorkspace::Options options;
  options.recomputed = {7, 40, 3};
  options.stored = {9, 50, 50, false};
  return options;
}

TYPED_TEST(CudaOperationsTest, NormalBlocks) {
  this->Prepare(MakeEdgePairs(), {});
  this->CompareNormalBlocks(true);
  this->CompareNormalBlocks(false);
}

TYPED_TEST(CudaOperationsTest, NormalBlocksOfLongTracks) {
  this->Prepare(MakeLongPairs(), {});
  this->CompareNormalBlocks(true);
}

// Cameras that see a point more than kLongRepeat times, and some that see it as
// often as that or less.
TYPED_TEST(CudaOperationsTest, NormalBlocksOfLongRepeats) {
  PairList pairs = MakePairs(5, 9, {3, 1700, 2, 0, 5}, 7);
  for (const int32_t point : {0, 4}) {
    const int32_t first = point == 0 ? 0 : 2;
    for (int32_t k = 0; k < kLongRepeat; ++k) {
      pairs.camera.insert(pairs.camera.end(), {first, first + 1});
      pairs.point.insert(pairs.point.end(), {point, point});
    }
  }
  this->Prepare(pairs, {});
  EXPECT_GT(this->workspace_.ref().long_repeats.num_repeats, 2);
  this->CompareNormalBlocks(true);
  this->CompareNormalBlocks(false);
}

TYPED_TEST(CudaOperationsTest, NormalBlocksOfManyChunks) {
  // Camera 1 has more entries than a chunk.
  this->Prepare(MakePairs(5, 9000, {2, 1, 3, 0}, 21), {});
  this->CompareNormalBlocks(true);
}

TYPED_TEST(CudaOperationsTest, Products) {
  this->Prepare(MakeEdgePairs(), {});
  this->CompareProducts(true);
  this->CompareProducts(false);
}

TYPED_TEST(CudaOperationsTest, ProductsWithSmallTiles) {
  this->Prepare(MakeEdgePairs(), SmallTiles());
  this->CompareProducts(true);
}

// Tiles of so many cameras that their segments are summed in several rounds.
TYPED_TEST(CudaOperationsTest, ProductsOfScatteredPoints) {
  // One tile is full; the other has the last points.
  this->Prepare(MakePairs(4000, 260, {6, 5, 7}, 9, 15), {});
  const TileIndexRef& tiles = this->workspace_.ref().recomputed_tiles;
  EXPECT_GT(tiles.max_tile_segments, 2 * tiles.round_segments);
  this->CompareProducts(true);
  this->CompareProducts(false);
}

TYPED_TEST(CudaOperationsTest, ProductsOfLongTracks) {
  this->Prepare(MakeLongPairs(), {});
  this->CompareProducts(true);
}

TYPED_TEST(CudaOperationsTest, JacobianProducts) {
  this->Prepare(MakeEdgePairs(), {});
  this->CompareJacobianProducts();
}

TYPED_TEST(CudaOperationsTest, JacobianProductsOfLongTracks) {
  this->Prepare(MakeLongPairs(), {});
  this->CompareJacobianProducts();
}

TYPED_TEST(CudaOperationsTest, SchurComplement) {
  // The lengths of MakeEdgePairs in fewer cameras and points: the bounds of a
  // matrix take long.
  this->Prepare(
      MakePairs(
          24, 48, {2, 3, 0, 1, 5, 31, 32, 33, 2, 4, 64, 65, 70, 3, 0, 2}, 3),
      {});
  this->CompareSchurComplement(true, /*expect_chunks=*/true);
  this->CompareSchurComplement(false, /*expect_chunks=*/true);
}

// No block has so many couplings that it is cut.
TYPED_TEST(CudaOperationsTest, SchurComplementWithoutChunks) {
  this->Prepare(MakePairs(24, 48, {2, 3, 0, 1, 5, 7, 33, 2, 4, 3, 0, 2}, 3),
                {});
  this->CompareSchurComplement(true, /*expect_chunks=*/false);
}

// Blocks that are summed by chunks.
TYPED_TEST(CudaOperationsTest, SchurComplementOfFewCameras) {
  this->Prepare(MakePairs(4, 2000, {3}, 23), {});
  this->CompareSchurComplement(true, true);
}

TYPED_TEST(CudaOperationsTest, NoObservations) {
  PairList pairs;
  pairs.num_cameras = 3;
  pairs.num_points = 5;
  this->Prepare(pairs, {});
  this->CompareNormalBlocks(true);
  this->CompareProducts(true);
  this->CompareJacobianProducts();
  this->CompareSchurComplement(true, false);
}

}  // namespace
}  // namespace ceres_ext::kernels
