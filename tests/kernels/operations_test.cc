// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The operations on observations against their formulas, on every machine, for
// every source: at tracks of 0, 1, 2, 31, 32, 33 observations and longer than a
// tile, with repeated pairs, a camera seen by all and cameras and points
// without observations; with and without D, with columns of padding, several
// times on one object, with outputs poisoned before each run.
//
// The formulas are evaluated in running numbers (running_error.h), which have
// the values and the difference that each element is allowed: machines sum the
// same terms in any order, and a device rounds products of blocks to T where
// the host has double. A recomputed Jacobian has additional errors. On a device
// no difference is larger than n + 64 roundings of kCancellation times the
// largest element either, n being the terms of the longest sum: cameras and
// points are of one kind, so no array mixes scales by more.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "Eigen/Dense"
#include "cuda_kernels/ops/manifolds.h"
#include "cuda_kernels/ops/schur_complement.h"
#include "cuda_kernels/ops/schur_terms.h"
#include "cuda_kernels/structure/row_index.h"
#include "cuda_kernels/structure/schur_matrix.h"
#include "cuda_kernels/structure/schur_pairs.h"
#include "gmock/gmock.h"
#include "tests/kernels/machine_test.h"
#include "tests/kernels/structures.h"

namespace ceres_ext::kernels {
namespace {

using testing::ElementsAre;
using Doubles = std::vector<double>;

constexpr double kCancellation = 8.0;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

template <typename TIn, int CIn, bool kRecomputedIn, bool kScaledRowsIn = false>
struct Combination {
  using T = TIn;
  static constexpr int C = CIn;
  static constexpr bool kRecomputed = kRecomputedIn;
  static constexpr bool kScaledRows = kScaledRowsIn;
};

template <typename Combination>
class OperationsTest : public MachineTest {
 protected:
  using T = typename Combination::T;
  static constexpr int C = Combination::C;
  static constexpr bool kRecomputed = Combination::kRecomputed;
  static constexpr bool kScaledRows = Combination::kScaledRows;
  static constexpr int kPacked = PackedSize(C);
  static constexpr BlockLayout kLayout = Machine::kLayout;
  using Source = std::conditional_t<kRecomputed,
                                    RecomputedJacobian<T, C, kScaledRows>,
                                    StoredJacobian<T, BalShape<C>, kLayout>>;
  // The precision that the machine computes in.
  using Unit = std::conditional_t<kOnHost, double, T>;
  using Number = Running<Unit>;
  using Numbers = std::vector<Number>;
  using Sums = std::vector<RunningSum<Unit>>;
  using Outputs = std::vector<Doubles>;

  // padded: columns of zeros with a unit diagonal, as set-up pads them: camera
  // columns from C - 2 on, all of camera 0, and column 1 of each third point.
  void Prepare(const Structure& pairs,
               typename RowIndex<Machine>::Options options = {},
               bool padded = false) {
    pairs_ = pairs;
    num_cameras_ = pairs.num_cameras;
    num_points_ = pairs.num_points;
    n_ = static_cast<int64_t>(pairs.camera.size());
    const ObservationPairs input = pairs.pairs();
    ASSERT_OK(host_index_.Build(input));
    options.keep_point_order = true;
    options.max_columns = C;
    ASSERT_OK(index_.Setup(input, options, nullptr, machine()));
    if (kOnHost) {
      // All that NormalBlocks gives per camera.
      ASSERT_OK(
          index_.ref().host_workspace->ReserveCameraSums(2 * (kPacked + C)));
    }
    is_camera_padding_.assign(static_cast<size_t>(C * num_cameras_), false);
    is_point_padding_.assign(static_cast<size_t>(3 * num_points_), false);
    for (size_t at = 0; padded && at < is_camera_padding_.size(); ++at) {
      is_camera_padding_[at] = at < C || at % C >= C - 2;
    }
    for (size_t at = 1; padded && at < is_point_padding_.size(); at += 9) {
      is_point_padding_[at] = true;
    }
    MakeJacobian();
    b_ = RandomVector(2 * n_, 11);
    camera_diagonal_ = Diagonal(is_camera_padding_, 12);
    point_diagonal_ = Diagonal(is_point_padding_, 13);
    camera_x_ = RandomVector(C * num_cameras_, 14);
    point_x_ = RandomVector(3 * num_points_, 15);
    SetInputs();
  }

  // The arrays as they are now, to the machine.
  void SetInputs() {
    longest_ = 0;
    // Rows of no weight may leave a point without enough of them.
    points_need_damping_ = kScaledRows;
    const ObservationIndexRef& index = host_index_.ref();
    for (int64_t c = 0; c < num_cameras_; ++c) {
      longest_ =
          std::max(longest_, index.camera_begin[c + 1] - index.camera_begin[c]);
    }
    for (int64_t p = 0; p < num_points_; ++p) {
      const int64_t begin = index.point_begin[p];
      const int64_t end = index.point_begin[p + 1];
      longest_ = std::max(longest_, end - begin);
      // Observations of a point are sorted by camera.
      points_need_damping_ |=
          end > begin && index.camera_id[begin] == index.camera_id[end - 1];
    }
    machine_b_ = Upload(b_);
    machine_camera_diagonal_ = Upload(camera_diagonal_);
    machine_point_diagonal_ = Upload(point_diagonal_);
    machine_camera_x_ = Upload(camera_x_);
    machine_point_x_ = Upload(point_x_);
    breakdown_ = Poisoned<Breakdown>(1);
    on_.index = index_.ref();
    on_.b = machine_b_.data();
    on_.camera_x = machine_camera_x_.data();
    on_.point_x = machine_point_x_.data();
    on_.machine = machine();
  }

  // With D or without. Points that too few rows are about need theirs.
  void SetDiagonal(bool is_damped) {
    is_damped_ = is_damped;
    are_points_damped_ = is_damped || points_need_damping_;
    on_.camera_diagonal = is_damped ? machine_camera_diagonal_.data() : nullptr;
    on_.point_diagonal =
        are_points_damped_ ? machine_point_diagonal_.data() : nullptr;
  }

  static Doubles Diagonal(const std::vector<bool>& is_padding, unsigned seed) {
    Doubles diagonal =
        RandomVector(static_cast<int64_t>(is_padding.size()), seed);
    for (size_t i = 0; i < diagonal.size(); ++i) {
      diagonal[i] = is_padding[i] ? 1.0 : 0.5 + std::fabs(diagonal[i]);
    }
    return diagonal;
  }

  void MakeJacobian() {
    if constexpr (kRecomputed) {
      MakeScene(pairs_, 7, &cameras_, &points_, &observations_);
      maps_ = RandomVector(int64_t{9} * C * num_cameras_, 17);
      for (size_t at = 0; at < maps_.size(); ++at) {
        if (is_camera_padding_[at / (9 * C) * C + at % C]) {
          maps_[at] = 0.0;
        }
      }
      states_.clear();
      for (int64_t c = 0; c < num_cameras_; ++c) {
        double rotation_map[9];
        // Very unequal columns, as real problems have, if sums are in double.
        cameras_[9 * c + 6] *= kOnHost ? 500.0 : 1.0;
        states_.push_back(CameraStateCast<T>(
            PrepareBalCamera<3>(cameras_.data() + 9 * c, rotation_map)));
      }
      scene_points_.assign(points_.begin(), points_.end());
      scale_.clear();
      for (const double x : RandomVector(3 * num_points_, 18)) {
        scale_.push_back(is_point_padding_[scale_.size()]
                             ? T(0)
                             : static_cast<T>(0.5 + x * x));
      }
      // Tukey's loss makes some of them zero.
      row_scale_.clear();
      for (const double x : RandomVector(n_, 19)) {
        row_scale_.push_back(x < -0.8 ? T(0) : static_cast<T>(1.0 + x));
      }
      machine_states_ = Upload(states_);
      machine_maps_ = Upload(maps_);
      machine_points_ = Upload(scene_points_);
      machine_scale_ = Upload(scale_);
      machine_row_scale_ = Upload(row_scale_);
      on_.jacobian = Source{machine_states_.data(),
                            machine_maps_.data(),
                            machine_points_.data(),
                            machine_scale_.data()};
      if (kScaledRows) {
        on_.jacobian.row_scale = machine_row_scale_.data();
      }
      MakeRunningJacobian();
    } else {
      Doubles jc = RandomVector(2 * C * n_, 17);
      Doubles jp = RandomVector(6 * n_, 18);
      const ObservationIndexRef& index = host_index_.ref();
      for (int64_t i = 0; i < 2 * n_; ++i) {
        for (int j = 0; j < C; ++j) {
          jc[C * i + j] *=
              !is_camera_padding_[int64_t{C} * index.camera_id[i / 2] + j];
        }
        for (int j = 0; j < 3; ++j) {
          jp[3 * i + j] *=
              !is_point_padding_[int64_t{3} * index.point_id[i / 2] + j];
        }
      }
      SetBlocks(jc, jp);
    }
  }
  // In host layout.
  void SetBlocks(const Doubles& jc, const Doubles& jp) {
    jc_.assign(jc.begin(), jc.end());
    jp_.assign(jp.begin(), jp.end());
    running_jc_.assign(jc_.begin(), jc_.end());
    running_jp_.assign(jp_.begin(), jp_.end());
    if constexpr (!kRecomputed) {
      machine_jc_ = Upload(InLayout(jc_, 2 * C));
      machine_jp_ = Upload(InLayout(jp_, 6));
      on_.jacobian = Source{{machine_jc_.data(), n_}, {machine_jp_.data(), n_}};
    }
  }

  void MakeRunningJacobian() {
    const ObservationIndexRef& index = host_index_.ref();
    running_jc_.assign(static_cast<size_t>(2 * C * n_), {});
    running_jp_.assign(static_cast<size_t>(6 * n_), {});
    for (int64_t k = 0; k < n_; ++k) {
      const int64_t c = index.camera_id[k];
      const int64_t p = index.point_id[k];
      const CameraState<Number> state =
          ToRunning<Unit>(CameraStateCast<double>(states_[c]));
      const Numbers point(scene_points_.begin() + 3 * p,
                          scene_points_.begin() + 3 * p + 3);
      const Numbers map(maps_.begin() + 9 * C * c,
                        maps_.begin() + 9 * C * (c + 1));
      const Projection<Number> projection = Project(state, point.data());
      Number local[2 * kBalLocalCameraDim];
      CameraJacobian(state, projection, local);
      MapCameraJacobian<C>(local, map.data(), &running_jc_[2 * C * k]);
      Number* jp = &running_jp_[6 * k];
      PointJacobian(state, projection, jp);
      for (int i = 0; i < 6; ++i) {
        jp[i] *= Number(scale_[3 * p + i % 3]);
      }
      for (int i = 0; kScaledRows && i < 6; ++i) {
        jp[i] *= Number(row_scale_[k]);
      }
      for (int i = 0; kScaledRows && i < 2 * C; ++i) {
        running_jc_[2 * C * k + i] *= Number(row_scale_[k]);
      }
    }
  }

  double Tolerance() const {
    return kOnHost ? kInfinity
                   : kCancellation * static_cast<double>(longest_ + 64) *
                         kUnitRoundoff<T>;
  }

  // ---------------------------------------------------------------------
  // The operations in running numbers.

  static Numbers Inputs(const Doubles& values) {
    Numbers numbers;
    for (const double x : values) {
      numbers.push_back(Number::Input(x));
    }
    return numbers;
  }
  static Doubles Values(const Numbers& numbers) {
    Doubles values;
    for (const Number& x : numbers) {
      values.push_back(x.value);
    }
    return values;
  }
  static Numbers Get(const Sums& sums) {
    Numbers numbers;
    for (const RunningSum<Unit>& sum : sums) {
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
  static Numbers Minus(Numbers x) {
    for (Number& value : x) {
      value = -value;
    }
    return x;
  }
  // D^2 p + q
  static Numbers Damped(bool is_damped,
                        const Doubles& diagonal,
                        const Numbers& p,
                        const Numbers& q) {
    Numbers sum;
    for (size_t i = 0; i < q.size(); ++i) {
      const Number d(is_damped ? diagonal[i] : 0.0);
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
  // E Vi E'y
  Numbers Motion(const Numbers& v_inverse, const Numbers& y) const {
    return Times({}, ApplyInverse(v_inverse, TransposeTimes(y).second));
  }
  // F'(y - E Vi E'y)
  Numbers Eliminated(const Numbers& v_inverse, const Numbers& y) const {
    return TransposeTimes(Plus(y, Minus(Motion(v_inverse, y)))).first;
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
  Numbers V() const {
    return Squares<3>(running_jp_, host_index_.ref().point_id, num_points_);
  }
  Numbers U() const {
    return Squares<C>(running_jc_, host_index_.ref().camera_id, num_cameras_);
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
  // (V + D^2)^-1, where columns of zeros count as unit columns.
  Numbers Inverses(const Numbers& v) const {
    Numbers result(v.size());
    for (int64_t p = 0; p < num_points_; ++p) {
      Eigen::Matrix3d block;
      double diagonal[3];
      for (int i = 0; i < 3; ++i) {
        for (int j = 0; j <= i; ++j) {
          block(i, j) = block(j, i) = v[6 * p + PackedIndex(i, j)].value;
        }
        const double d = are_points_damped_ ? point_diagonal_[3 * p + i] : 0.0;
        block(i, i) += d * d;
        diagonal[i] = v[6 * p + PackedIndex(i, i)].size + d * d;
        if (diagonal[i] == 0.0) {
          block(i, i) = diagonal[i] = 1.0;
        }
      }
      double relative_error = 0.0;
      for (int i = 0; i < 3; ++i) {
        for (int j = 0; j <= i; ++j) {
          relative_error = std::max(relative_error,
                                    v[6 * p + PackedIndex(i, j)].error /
                                        std::sqrt(diagonal[i] * diagonal[j]));
        }
      }
      const Eigen::Matrix3d inverse =
          block.llt().solve(Eigen::Matrix3d::Identity());
      double packed[6];
      for (int i = 0; i < 3; ++i) {
        for (int j = 0; j <= i; ++j) {
          packed[PackedIndex(i, j)] = inverse(i, j);
        }
      }
      // D^2 and its addition round twice.
      RunningInverse<3>(packed,
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
          sums[kPacked * c + PackedIndex(i, j)].Add(-(row[0] * w[3 * j] +
                                                      row[1] * w[3 * j + 1] +
                                                      row[2] * w[3 * j + 2]));
        }
      }
    }
    return Get(sums);
  }

  // Runs fn(outputs), and compares. Returns the outputs.
  template <typename Function>
  Outputs Expect(const char* what,
                 const std::vector<Numbers>& expected,
                 double tolerance,
                 const std::vector<Output>& outputs,
                 Function&& fn) {
    const Outputs found = Repeat(outputs, fn);
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_TRUE(Close(found[i], Values(expected[i]), expected[i], tolerance))
          << what << ", output " << i;
    }
    return found;
  }

  // Asks for outputs by the bits of `wanted`, in the order of the fields.
  Outputs NormalBlocks(int wanted) {
    return Repeat({{6 * num_points_, 6},
                   {6 * num_points_, 6},
                   {3 * num_points_},
                   {kPacked * num_cameras_, kPacked},
                   {C * num_cameras_},
                   {kPacked * num_cameras_, kPacked},
                   {C * num_cameras_}},
                  [&](const std::vector<double*>& out) {
                    NormalBlocksParams<Source, kLayout> blocks;
                    if (wanted & 1) blocks.v = {out[0], num_points_};
                    if (wanted & 2) blocks.v_inverse = {out[1], num_points_};
                    if (wanted & 4) blocks.point_gradient = out[2];
                    if (wanted & 8) blocks.u = {out[3], num_cameras_};
                    if (wanted & 16) blocks.camera_gradient = out[4];
                    if (wanted & 32) {
                      blocks.schur_diagonal = {out[5], num_cameras_};
                    }
                    if (wanted & 64) blocks.schur_rhs = out[6];
                    blocks.breakdown = breakdown_.data();
                    return on_.NormalBlocks(blocks);
                  });
  }
  static constexpr int kAllOutputs = 127;
  int32_t FirstBreakdown() { return Download(breakdown_)[0].first_block; }

  // Vi and S_c for the operations that need them.
  void SetEliminated(bool is_damped, bool with_schur_diagonal = false) {
    SetDiagonal(is_damped);
    const Numbers inverses = Inverses(V());
    v_inverse_ = Values(inverses);
    machine_v_inverse_ = Upload(InLayout(v_inverse_, 6));
    on_.v_inverse = machine_v_inverse_.data();
    if (with_schur_diagonal) {
      schur_diagonal_ = Values(SchurDiagonals(inverses, U()));
      machine_schur_diagonal_ = Upload(InLayout(schur_diagonal_, kPacked));
    }
  }

  // The matrix S of the unknowns, and what it is made with.
  struct Matrix {
    CouplingIndexOf<Machine> couplings;
    SchurUnknowns<Machine> unknowns;
    SchurCsr<Machine> csr;
    SchurRows<Machine> rows;
    HostSchurRows host_rows;
    Buffer<unsigned char> scratch;
    SchurComplementParams<Source, kLayout> params;
  };
  void SetUpMatrix(const std::vector<unsigned char>& varies, Matrix* matrix) {
    SchurComplementParams<Source, kLayout>& params = matrix->params;
    ASSERT_OK(matrix->couplings.Build(
        index_.ref(), kCouplings<Source, kLayout>, machine()));
    BlockFamilies families;
    families.Add(C, static_cast<int32_t>(num_cameras_));
    ASSERT_OK(matrix->unknowns.Setup(families, varies.data(), machine()));
    const CouplingIndexRef& couplings = matrix->couplings.ref();
    ASSERT_OK(matrix->csr.Setup(couplings, matrix->unknowns, machine()));
    ASSERT_OK(matrix->csr.SetupColumns(machine()));
    ASSERT_OK(matrix->rows.Setup(matrix->csr, matrix->unknowns, machine()));
    params.index = index_.ref();
    params.couplings = couplings;
    params.unknowns = matrix->unknowns.ref();
    params.jacobian = on_.jacobian;
    params.v_inverse = {on_.v_inverse, num_points_};
    params.schur_diagonal = {machine_schur_diagonal_.data(), num_cameras_};
    params.camera_diagonal = on_.camera_diagonal;
    if constexpr (kOnHost) {
      ASSERT_OK(
          matrix->host_rows.Setup(params.index,
                                  params.couplings,
                                  nullptr,
                                  internal::CouplingScratch<Source>::kLocalF,
                                  machine()));
      params.rows = matrix->host_rows.ref();
    } else {
      matrix->scratch = Poisoned<unsigned char>(
          ScratchBytes<Source>(n_, couplings.num_chunks));
      params.scratch = matrix->scratch.data();
    }
  }
  // Column by column, `padding` values between two of them. Zero above the
  // diagonal, where nothing is written.
  Doubles Dense(Matrix* matrix, int64_t padding = 0) {
    const int64_t n = matrix->unknowns.ref().num_unknowns;
    const int64_t stride = n + padding;
    const Doubles values =
        Repeat({{stride * n}}, [&](const std::vector<double*>& out) {
          matrix->params.target = {};
          matrix->params.target.values = out[0];
          matrix->params.target.stride = stride;
          return kernels::Run(matrix->params, machine());
        })[0];
    Doubles s(static_cast<size_t>(n * n), 0.0);
    for (int64_t v = 0; v < n; ++v) {
      for (int64_t u = 0; u < n; ++u) {
        if (u < v) {
          EXPECT_TRUE(std::isnan(values[stride * v + u]));
        } else {
          s[n * v + u] = values[stride * v + u];
        }
      }
    }
    return s;
  }
  Doubles SparseValues(Matrix* matrix) {
    return Repeat({{matrix->csr.num_values()}},
                  [&](const std::vector<double*>& out) {
                    matrix->params.target = matrix->csr.target(out[0]);
                    return kernels::Run(matrix->params, machine());
                  })[0];
  }

  void ExpectNormalBlocks(bool is_damped);
  void ExpectProducts(bool is_damped);
  void ExpectJacobianProducts();
  void ExpectSchurComplement(bool is_damped, bool is_held);
  Numbers RunningMatrix(const std::vector<int64_t>& unknown);

  Structure pairs_;
  int64_t num_cameras_ = 0;
  int64_t num_points_ = 0;
  int64_t n_ = 0;
  ObservationIndex host_index_;
  HostMachine host_{1};
  RowIndex<Machine> index_;
  std::vector<bool> is_camera_padding_, is_point_padding_;
  int64_t longest_ = 0;
  bool points_need_damping_ = false;
  bool is_damped_ = false;
  bool are_points_damped_ = false;
  Operations<Source, Machine> on_;

  std::vector<CameraState<T>> states_;
  Doubles cameras_, points_, observations_, maps_;
  std::vector<T> scene_points_, scale_, row_scale_, jc_, jp_;
  Numbers running_jc_, running_jp_;
  Buffer<CameraState<T>> machine_states_;
  Buffer<double> machine_maps_;
  Buffer<T> machine_points_, machine_scale_, machine_row_scale_, machine_jc_,
      machine_jp_;

  Doubles b_, camera_diagonal_, point_diagonal_, camera_x_, point_x_,
      v_inverse_, schur_diagonal_;
  Buffer<double> machine_b_, machine_camera_diagonal_, machine_point_diagonal_,
      machine_camera_x_, machine_point_x_, machine_v_inverse_,
      machine_schur_diagonal_;
  Buffer<Breakdown> breakdown_;
};

using Combinations = ::testing::Types<
#ifdef CERES_EXT_TEST_ON_CUDA
    Combination<double, 9, true>,
    Combination<double, 10, true>,
    Combination<float, 9, true>,
    Combination<float, 10, true>,
    Combination<double, 9, true, true>,
    Combination<double, 10, true, true>,
    Combination<float, 9, true, true>,
    Combination<float, 10, true, true>,
#else
    // The host has no recomputed float.
    Combination<double, 9, true>,
    Combination<double, 10, true>,
    Combination<double, 9, true, true>,
    Combination<double, 10, true, true>,
    Combination<double, 18, false>,
#endif
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
TYPED_TEST_SUITE(OperationsTest, Combinations);

template <typename Combination>
void OperationsTest<Combination>::ExpectNormalBlocks(bool is_damped) {
  SetDiagonal(is_damped);
  const Numbers v = V();
  const Numbers u = U();
  const Numbers v_inverse = Inverses(v);
  const auto [g_c, g_p] = TransposeTimes(Inputs(b_));
  const char* const names[] = {"V", "Vi", "g_p", "U", "g_c", "S_c", "s"};
  const Numbers expected[] = {v,
                              v_inverse,
                              g_p,
                              u,
                              g_c,
                              SchurDiagonals(v_inverse, u),
                              Eliminated(v_inverse, Inputs(b_))};
  const auto expect = [&](const Outputs& found, int wanted) {
    for (int i = 0; i < 7; ++i) {
      // An inverse may be much larger than others.
      const double tolerance = i == 1 || i > 4 ? kInfinity : Tolerance();
      if (wanted >> i & 1) {
        EXPECT_TRUE(
            Close(found[i], Values(expected[i]), expected[i], tolerance))
            << names[i] << " of " << wanted;
      }
    }
  };
  const Outputs all = NormalBlocks(kAllOutputs);
  EXPECT_EQ(FirstBreakdown(), Breakdown::kNone);
  expect(all, kAllOutputs);
  // On a device vectors without matrices take another way.
  for (const int wanted :
       kOnHost ? std::vector<int>{1, 2, 4, 8, 16, 32 + 2, 64 + 2, 8 + 16}
               : std::vector<int>{2 + 16 + 64}) {
    const Outputs some = NormalBlocks(wanted);
    expect(some, wanted);
    for (int i = 0; kOnHost && i < 7; ++i) {
      EXPECT_TRUE((wanted >> i & 1) == 0 || SameBits(some[i], all[i]));
    }
  }
}

template <typename Combination>
void OperationsTest<Combination>::ExpectProducts(bool is_damped) {
  SetEliminated(is_damped);
  const Output cameras{C * num_cameras_};
  const Output points{3 * num_points_};
  const Numbers v_inverse = Inputs(v_inverse_);
  const Numbers camera_p = Inputs(camera_x_);
  const Numbers point_p = Inputs(point_x_);
  const Numbers f_p = Times(camera_p, {});
  Expect(
      "S p",
      {Damped(
          is_damped_, camera_diagonal_, camera_p, Eliminated(v_inverse, f_p))},
      4 * Tolerance(),
      {cameras},
      [&](auto& out) { return on_.SchurProductImplicitW(out[0]); });
  Expect("eliminated part of S p",
         {TransposeTimes(Minus(Motion(v_inverse, f_p))).first},
         4 * Tolerance(),
         {cameras},
         [&](auto& out) { return on_.SchurProductImplicitW(out[0], true); });
  {
    // Ended: q stays as it is.
    PcgScalars scalars;
    scalars.end = PcgEnd::kResidual;
    const auto machine_scalars = Upload(std::vector<PcgScalars>{scalars});
    auto ended = on_;
    ended.scalars = machine_scalars.data();
    EXPECT_EQ(Repeat({{C * num_cameras_, 1, &camera_x_}},
                     [&](auto& out) {
                       return ended.SchurProductImplicitW(out[0]);
                     })[0],
              camera_x_);
  }
  Expect("y",
         {ApplyInverse(v_inverse,
                       TransposeTimes(Plus(Inputs(b_), Minus(f_p))).second)},
         4 * Tolerance(),
         {points},
         [&](auto& out) { return on_.BackSubstituteImplicitW(out[0]); });
  const auto [camera_q, point_q] = TransposeTimes(Times(camera_p, point_p));
  Expect("J'J p",
         {Damped(is_damped_, camera_diagonal_, camera_p, camera_q),
          Damped(are_points_damped_, point_diagonal_, point_p, point_q)},
         Tolerance(),
         {cameras, points},
         [&](auto& out) { return on_.NormalProductImplicitW(out[0], out[1]); });
}

template <typename Combination>
void OperationsTest<Combination>::ExpectJacobianProducts() {
  const Output rows{2 * n_, 1, &b_};
  const Output cameras{C * num_cameras_, 1, &camera_x_};
  const Output points{3 * num_points_, 1, &point_x_};
  const Numbers j_x = Times(Inputs(camera_x_), Inputs(point_x_));
  const auto [camera_y, point_y] = TransposeTimes(Inputs(b_));
  Outputs products;
  for (const bool accumulate : {false, true}) {
    const auto plus_before = [&](const Numbers& sums, const Doubles& values) {
      return accumulate ? Plus(sums, Inputs(values)) : sums;
    };
    Outputs all = Expect(
        "J x", {plus_before(j_x, b_)}, Tolerance(), {rows}, [&](auto& out) {
          return on_.RightMultiply(out[0], accumulate);
        });
    const Outputs both = Expect(
        "J'y",
        {plus_before(camera_y, camera_x_), plus_before(point_y, point_x_)},
        Tolerance(),
        {cameras, points},
        [&](auto& out) {
          return on_.LeftMultiply(out[0], out[1], accumulate);
        });
    // One output at a time; the other one stays.
    const Outputs first = Repeat({cameras, points}, [&](auto& out) {
      return on_.LeftMultiply(out[0], nullptr, accumulate);
    });
    const Outputs second = Repeat({cameras, points}, [&](auto& out) {
      return on_.LeftMultiply(nullptr, out[1], accumulate);
    });
    EXPECT_TRUE(SameBits(first[0], both[0]));
    EXPECT_TRUE(SameBits(first[1], point_x_));
    EXPECT_TRUE(SameBits(second[0], camera_x_));
    EXPECT_TRUE(SameBits(second[1], both[1]));
    all.insert(all.end(), both.begin(), both.end());
    if (!accumulate) {
      products = all;
    } else if (kOnHost) {
      const Doubles* const before[] = {&b_, &camera_x_, &point_x_};
      for (int i = 0; i < 3; ++i) {
        for (size_t at = 0; at < all[i].size(); ++at) {
          EXPECT_EQ(all[i][at], (*before[i])[at] + products[i][at]);
        }
      }
    }
  }
  const Outputs norms =
      Expect("norms",
             {Diagonals<C>(U()), Diagonals<3>(V())},
             Tolerance(),
             {{C * num_cameras_}, {3 * num_points_}},
             [&](auto& out) { return on_.SquaredColumnNorms(out[0], out[1]); });
  EXPECT_TRUE(SameBits(Repeat({{C * num_cameras_}},
                              [&](auto& out) {
                                return on_.SquaredColumnNorms(out[0], nullptr);
                              })[0],
                       norms[0]));
  EXPECT_TRUE(SameBits(Repeat({{3 * num_points_}},
                              [&](auto& out) {
                                return on_.SquaredColumnNorms(nullptr, out[0]);
                              })[0],
                       norms[1]));

  if constexpr (!kRecomputed) {
    auto jc = Upload(InLayout(jc_, 2 * C));
    auto jp = Upload(InLayout(jp_, 6));
    ASSERT_OK(on_.ScaleColumns(jc.data(), jp.data()));
    // A product that is rounded to T.
    const ObservationIndexRef& index = host_index_.ref();
    std::vector<T> scaled_jc;
    std::vector<T> scaled_jp;
    for (int64_t i = 0; i < 2 * n_; ++i) {
      for (int j = 0; j < C; ++j) {
        scaled_jc.push_back(
            static_cast<T>(jc_[C * i + j] *
                           camera_x_[int64_t{C} * index.camera_id[i / 2] + j]));
      }
      for (int j = 0; j < 3; ++j) {
        scaled_jp.push_back(static_cast<T>(
            jp_[3 * i + j] * point_x_[int64_t{3} * index.point_id[i / 2] + j]));
      }
    }
    EXPECT_TRUE(SameBits(FromLayout(Download(jc), 2 * C), scaled_jc));
    EXPECT_TRUE(SameBits(FromLayout(Download(jp), 6), scaled_jp));
  }
}

// The lower triangle of S, for Vi and S_c as they are; what is in no block
// stays exact.
template <typename Combination>
typename OperationsTest<Combination>::Numbers
OperationsTest<Combination>::RunningMatrix(
    const std::vector<int64_t>& unknown) {
  const auto n = static_cast<int64_t>(unknown.size());
  const Numbers v_inverse = Inputs(v_inverse_);
  const ObservationIndexRef& index = host_index_.ref();
  std::vector<int64_t> id(static_cast<size_t>(C * num_cameras_), -1);
  for (int64_t u = 0; u < n; ++u) {
    id[unknown[u]] = u;
  }
  Sums sums(static_cast<size_t>(n * n));
  CouplingIndex couplings;
  EXPECT_TRUE(couplings.Build(index, CouplingList::kObservations, &host_).ok());
  const CouplingIndexRef& view = couplings.ref();
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
            m += running_jp_[3 * (2 * k + r) + e] * v_inverse[6 * p + place] *
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
        // A device may fuse D^2 and its addition. Both are in double.
        Number sum(schur_diagonal_[kPacked * c + PackedIndex(a, b)]);
        if (a == b && is_damped_) {
          const double d = camera_diagonal_[C * c + a];
          sum += Number(d) * Number(d);
        }
        running[n * v + u] = sum;
      }
    }
  }
  return running;
}

// S as a matrix, dense and sparse, and its products. is_held: columns 2 and 9
// of every third camera, all of camera 2 and columns of padding are not
// unknowns.
template <typename Combination>
void OperationsTest<Combination>::ExpectSchurComplement(bool is_damped,
                                                        bool is_held) {
  SetEliminated(is_damped, true);
  std::vector<unsigned char> varies(static_cast<size_t>(C * num_cameras_), 1);
  std::vector<int64_t> unknown;
  std::vector<int64_t> id(varies.size(), -1);
  for (size_t at = 0; at < varies.size(); ++at) {
    const size_t c = at / C;
    const size_t e = at % C;
    varies[at] = !is_held || (!is_camera_padding_[at] && c != 2 &&
                              (c % 3 != 0 || (e != 2 && e != 9)));
    if (varies[at]) {
      id[at] = static_cast<int64_t>(unknown.size());
      unknown.push_back(static_cast<int64_t>(at));
    }
  }
  Matrix matrix;
  ASSERT_NO_FATAL_FAILURE(SetUpMatrix(varies, &matrix));
  const auto n = static_cast<int64_t>(unknown.size());
  ASSERT_EQ(matrix.unknowns.ref().num_unknowns, n);

  // Dense: n x n.
  const Doubles s = Dense(&matrix);
  Numbers running = RunningMatrix(unknown);
  EXPECT_TRUE(Close(s, Values(running), running)) << "S";
  EXPECT_TRUE(SameBits(Dense(&matrix, 3), s));

  // Sparse: the same bits, columns ascending, the last one the diagonal.
  const SchurCsr<Machine>& csr = matrix.csr;
  const Doubles values = SparseValues(&matrix);
  std::vector<int32_t> column(values.size());
  ASSERT_OK(machine()->Download(csr.num_values(), csr.column(), column.data()));
  Doubles sparse(s.size());
  for (int64_t u = 0; u < n; ++u) {
    int32_t previous = -1;
    for (int64_t at = csr.host_row_begin()[u]; at < csr.host_row_begin()[u + 1];
         ++at) {
      EXPECT_GT(column[at], previous);
      previous = column[at];
      sparse[n * column[at] + u] = values[at];
    }
    EXPECT_EQ(previous, u);
  }
  EXPECT_EQ(sparse, s);

  // S p is the product that does not form S, for p of the unknowns: the blocks
  // on the diagonal have the error of S_c too.
  Doubles x;
  for (const int64_t column : unknown) {
    x.push_back(camera_x_[column]);
  }
  const SchurUnknownsRef& unknowns = matrix.unknowns.ref();
  const auto machine_x = Upload(x);
  auto machine_p = Upload(Doubles(varies.size(), 0.0));
  RunOk(ScatterValuesParams{
      n, unknowns.column, machine_x.data(), machine_p.data()});
  const Doubles p = Download(machine_p);
  for (size_t at = 0; at < id.size(); ++at) {
    EXPECT_EQ(p[at], id[at] < 0 ? 0.0 : camera_x_[at]);
  }
  const Doubles q =
      Repeat({{C * num_cameras_}}, [&](const std::vector<double*>& out) {
        auto on = on_;
        on.camera_x = machine_p.data();
        return on.SchurProductImplicitW(out[0]);
      })[0];
  const auto machine_q = Upload(q);
  const Doubles product = Repeat({{n}}, [&](const std::vector<double*>& out) {
    return kernels::Run(
        GatherValuesParams{n, unknowns.column, machine_q.data(), out[0]},
        machine());
  })[0];
  const Numbers v_inverse = Inputs(v_inverse_);
  const Numbers s_c = SchurDiagonals(v_inverse, U());
  const Numbers s_p = Damped(is_damped_,
                             camera_diagonal_,
                             Inputs(p),
                             Eliminated(v_inverse, Times(Inputs(p), {})));
  Doubles by_matrix(static_cast<size_t>(n));
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
  const SchurRowsRef& rows = matrix.rows.ref();
  const auto machine_values = Upload(values);
  auto partial = Poisoned<double>(rows.num_chunks * rows.width);
  const Doubles of_blocks = Repeat(
      {{C * num_cameras_}}, [&](const std::vector<double*>& out) -> Status {
        CERES_EXT_RETURN_IF_ERROR(kernels::Run(
            SchurRowChunksParams{
                rows, machine_values.data(), machine_p.data(), partial.data()},
            machine()));
        return kernels::Run(SchurRowSumsParams{rows, partial.data(), out[0]},
                            machine());
      })[0];
  Doubles by_blocks;
  for (size_t at = 0; at < id.size(); ++at) {
    if (id[at] >= 0) {
      by_blocks.push_back(of_blocks[at]);
    } else {
      EXPECT_EQ(of_blocks[at], 0.0);
    }
  }
  EXPECT_TRUE(Close(by_blocks, by_matrix, bounds)) << "S p by blocks";
}

// On a device: tiles that are smaller than they are otherwise.
RowIndex<Machine>::Options SmallTiles() {
  RowIndex<Machine>::Options options;
#ifdef CERES_EXT_TEST_ON_CUDA
  options.recomputed = {7, 40, 3};
  options.stored = {9, 50, 50, false};
#endif
  return options;
}

TYPED_TEST(OperationsTest, EdgeStructures) {
  for (const Structure& structure : EdgeStructures()) {
    for (const bool is_damped : {true, false}) {
      for (const bool is_padded : {true, false}) {
        if (!kOnHost && is_damped != is_padded) {
          continue;
        }
        SCOPED_TRACE(structure.name + (is_damped ? ", damped" : "") +
                     (is_padded ? ", padded" : ""));
        this->Prepare(structure, {}, is_padded);
        this->ExpectNormalBlocks(is_damped);
        this->ExpectProducts(is_damped);
        this->ExpectJacobianProducts();
        this->ExpectSchurComplement(is_damped, /*is_held=*/is_padded);
      }
    }
  }
}

TYPED_TEST(OperationsTest, NormalBlocks) {
  this->Prepare(MakeEdgePairs());
  this->ExpectNormalBlocks(true);
  this->ExpectNormalBlocks(false);
}

TYPED_TEST(OperationsTest, NormalBlocksOfLongTracks) {
  this->Prepare(MakeLongPairs());
  this->ExpectNormalBlocks(true);
}

// Cameras that see a point more than kLongRepeat times, and some that see it as
// often as that or less.
TYPED_TEST(OperationsTest, NormalBlocksOfLongRepeats) {
  Structure pairs = MakePairs(5, 9, {3, 1700, 2, 0, 5}, 7);
  for (const int32_t point : {0, 4}) {
    const int32_t first = point == 0 ? 0 : 2;
    for (int32_t k = 0; k < kLongRepeat; ++k) {
      pairs.camera.insert(pairs.camera.end(), {first, first + 1});
      pairs.point.insert(pairs.point.end(), {point, point});
    }
  }
  this->Prepare(pairs);
  if (!kOnHost) {
    EXPECT_GT(this->index_.ref().cuda_workspace->long_repeats.num_repeats, 2);
  }
  this->ExpectNormalBlocks(true);
  this->ExpectNormalBlocks(false);
}

TYPED_TEST(OperationsTest, NormalBlocksOfManyChunks) {
  // Camera 1 has more entries than a chunk.
  this->Prepare(MakePairs(5, 9000, {2, 1, 3, 0}, 21));
  this->ExpectNormalBlocks(true);
}

TYPED_TEST(OperationsTest, Products) {
  this->Prepare(MakeEdgePairs());
  this->ExpectProducts(true);
  this->ExpectProducts(false);
  this->ExpectJacobianProducts();
}

TYPED_TEST(OperationsTest, ProductsWithSmallTiles) {
  this->Prepare(MakeEdgePairs(), SmallTiles());
  this->ExpectProducts(true);
}

// Tiles of so many cameras that their segments are summed in several rounds.
TYPED_TEST(OperationsTest, ProductsOfScatteredPoints) {
  // One tile is full; the other has the last points.
  this->Prepare(MakePairs(4000, 260, {6, 5, 7}, 9, 15));
  if (!kOnHost) {
    const TileIndexRef& tiles =
        this->index_.ref().cuda_workspace->recomputed_tiles;
    EXPECT_GT(tiles.max_tile_segments, 2 * tiles.round_segments);
  }
  this->ExpectProducts(true);
}

TYPED_TEST(OperationsTest, ProductsOfLongTracks) {
  this->Prepare(MakeLongPairs());
  this->ExpectProducts(true);
  this->ExpectJacobianProducts();
}

TYPED_TEST(OperationsTest, SchurComplement) {
  // The lengths of MakeEdgePairs in fewer cameras and points: the bounds of a
  // matrix take long. Then no block has so many couplings that it is cut, and
  // then all are summed by chunks.
  struct Case {
    int num_cameras;
    int num_points;
    std::vector<int> lengths;
    unsigned seed;
    bool has_chunks;
  };
  for (const Case& c :
       {Case{24,
             48,
             {2, 3, 0, 1, 5, 31, 32, 33, 2, 4, 64, 65, 70, 3, 0, 2},
             3,
             true},
        Case{24, 48, {2, 3, 0, 1, 5, 7, 33, 2, 4, 3, 0, 2}, 3, false},
        Case{4, 2000, {3}, 23, true}}) {
    SCOPED_TRACE(c.lengths.size());
    this->Prepare(MakePairs(c.num_cameras, c.num_points, c.lengths, c.seed));
    if (!kOnHost) {
      CouplingIndexOf<Machine> couplings;
      using Source = typename TestFixture::Source;
      ASSERT_OK(couplings.Build(this->index_.ref(),
                                kCouplings<Source, Machine::kLayout>,
                                this->machine()));
      EXPECT_EQ(couplings.ref().num_chunks > 0, c.has_chunks);
    }
    this->ExpectSchurComplement(true, true);
    if (c.lengths.size() == 16) {
      this->ExpectSchurComplement(false, true);
    }
  }
}

#ifdef CERES_EXT_TEST_ON_CUDA
TYPED_TEST(OperationsTest, RefusesCouplingsThatListOthers) {
  using Source = typename TestFixture::Source;
  this->Prepare(MakePairs(24, 48, {2, 3, 0, 1, 5, 7, 33}, 3));
  constexpr bool kPoints =
      kCouplings<Source, kDeviceLayout> == CouplingList::kPoints;
  CudaCouplingIndex other;
  ASSERT_OK(
      other.Build(this->index_.ref(),
                  kPoints ? CouplingList::kObservations : CouplingList::kPoints,
                  this->machine()));
  this->SetEliminated(true, true);
  typename TestFixture::Matrix matrix;
  ASSERT_NO_FATAL_FAILURE(this->SetUpMatrix(
      std::vector<unsigned char>(24 * TypeParam::C, 1), &matrix));
  matrix.params.couplings = other.ref();
  EXPECT_EQ(kernels::Run(matrix.params, this->machine()).message,
            std::string("The Schur complement of this Jacobian needs an "
                        "index of couplings that lists ") +
                (kPoints ? "points, and this one lists observations."
                         : "observations, and this one lists points."));
}
#endif

// ---------------------------------------------------------------------------
// Literals.

class OperationsByHandTest
    : public OperationsTest<Combination<double, 9, false>> {
 protected:
  // Two cameras see one point. Jp = diag(1, 2) padded, and D_p = (1, 1, 1):
  //   V = diag(1 + 1, 4 + 4, 0), Vi = diag(1/3, 1/9, 1)
  void PrepareTwoCameras(const Doubles& jc) {
    Prepare({"", 2, 1, {0, 1}, {0, 0}});
    SetBlocks(jc, {1, 0, 0, 0, 2, 0, 1, 0, 0, 0, 2, 0});
    b_ = {1, 10, 2, 20};
    point_diagonal_ = {1, 1, 1};
    camera_diagonal_.assign(18, 2.0);
    SetInputs();
  }
};

// Jc has one element.
TEST_F(OperationsByHandTest, NormalBlocks) {
  Doubles jc(36, 0.0);
  jc[0] = 3;        // camera 0, row 0, column 0
  jc[18 + 10] = 5;  // camera 1, row 1, column 1
  PrepareTwoCameras(jc);
  SetDiagonal(true);
  const Outputs out = NormalBlocks(kAllOutputs);
  EXPECT_EQ(FirstBreakdown(), Breakdown::kNone);
  EXPECT_THAT(out[0], ElementsAre(2, 0, 8, 0, 0, 0));
  EXPECT_DOUBLE_EQ(out[1][0], 1.0 / 3);
  EXPECT_DOUBLE_EQ(out[1][2], 1.0 / 9);
  EXPECT_DOUBLE_EQ(out[1][5], 1.0);
  EXPECT_THAT(out[2], ElementsAre(3, 60, 0));
  EXPECT_EQ(out[3][0], 9);
  EXPECT_EQ(out[3][45 + PackedIndex(1, 1)], 25);
  EXPECT_EQ(out[4][0], 3);
  EXPECT_EQ(out[4][9 + 1], 100);
  // 9 - 3 * 3 / 3 and 25 - 10 * 10 / 9
  EXPECT_DOUBLE_EQ(out[5][0], 6);
  EXPECT_DOUBLE_EQ(out[5][45 + PackedIndex(1, 1)], 25 - 100.0 / 9);
  // 3 - 3 * 3 / 3 and 100 - 10 * 60 / 9
  // The inverse of 3 and the product round four times, at a scale of 3.
  EXPECT_NEAR(out[6][0], 0, 4 * kEpsilon * 3);
  EXPECT_DOUBLE_EQ(out[6][9 + 1], 100 - 600.0 / 9);
}

// Without damping, the point's third column is zero: Vi has a one there.
TEST_F(OperationsByHandTest, ZeroColumn) {
  PrepareTwoCameras(Doubles(36, 0.0));
  SetDiagonal(false);
  const Outputs out = NormalBlocks(kAllOutputs);
  EXPECT_EQ(FirstBreakdown(), Breakdown::kNone);
  EXPECT_EQ(out[1][5], 1.0);
  EXPECT_DOUBLE_EQ(out[1][2], 1.0 / 8);
}

TEST_F(OperationsByHandTest, TheFirstBrokenPointIsNamed) {
  const Structure structure = RandomStructure("random", 3, 2000, 2, 1);
  Prepare({"", 3, 2000, structure.camera, structure.point});
  // Equal rows of Jp: V has rank one, in exact arithmetic on small integers.
  Doubles jp(jp_.begin(), jp_.end());
  for (const int32_t p : {1999, 777, 1500}) {
    for (int64_t k = host_index_.ref().point_begin[p];
         k < host_index_.ref().point_begin[p + 1];
         ++k) {
      std::fill_n(jp.begin() + 6 * k, 6, 1.0);
    }
  }
  SetBlocks({jc_.begin(), jc_.end()}, jp);
  SetDiagonal(false);
  NormalBlocks(kAllOutputs);
  EXPECT_EQ(FirstBreakdown(), 777);
  SetDiagonal(true);
  NormalBlocks(kAllOutputs);
  EXPECT_EQ(FirstBreakdown(), Breakdown::kNone);
}

// One camera whose block is (1 2 0 .. 0; 0 .. 0 3), one point with
// (1 0 2; 0 3 0).
TEST_F(OperationsByHandTest, JacobianProducts) {
  Prepare({"", 1, 1, {0}, {0}});
  Doubles jc(18, 0.0);
  jc[0] = 1;
  jc[1] = 2;
  jc[17] = 3;
  SetBlocks(jc, {1, 0, 2, 0, 3, 0});
  camera_x_ = {1, 10, 0, 0, 0, 0, 0, 0, 100};
  point_x_ = {1, 2, 3};
  b_ = {1, 10};
  SetInputs();
  const Doubles before = {21 + 7, 300 + 6};
  for (const bool accumulate : {false, true}) {
    EXPECT_THAT(
        Repeat({{2, 1, &before}},
               [&](auto& out) {
                 return on_.RightMultiply(out[0], accumulate);
               })[0],
        accumulate ? ElementsAre(2 * 28, 2 * 306) : ElementsAre(28, 306));
  }
  const Outputs left = Repeat({{9}, {3}}, [&](auto& out) {
    return on_.LeftMultiply(out[0], out[1], false);
  });
  EXPECT_THAT(left[0], ElementsAre(1, 2, 0, 0, 0, 0, 0, 0, 30));
  EXPECT_THAT(left[1], ElementsAre(1, 30, 2));
  const Outputs norms = Repeat({{9}, {3}}, [&](auto& out) {
    return on_.SquaredColumnNorms(out[0], out[1]);
  });
  EXPECT_THAT(norms[0], ElementsAre(1, 4, 0, 0, 0, 0, 0, 0, 9));
  EXPECT_THAT(norms[1], ElementsAre(1, 9, 4));
}

// One camera, one point, Jc = (2; 0) in column 0, Jp = (1 0 0; 0 1 0), b =
// (3, 5), D_c = 1 in column 0, D_p = (1, 1, 1):
//   Vi = diag(1/2, 1/2, 1), S_00 = 4 + 1 - 2 * 2 / 2 = 3
//   y  = Vi (3 - 2 z, 5, 0)
TEST_F(OperationsByHandTest, SchurProducts) {
  Prepare({"", 1, 1, {0}, {0}});
  Doubles jc(18, 0.0);
  jc[0] = 2;
  SetBlocks(jc, {1, 0, 0, 0, 1, 0});
  b_ = {3, 5};
  camera_diagonal_ = {1, 0, 0, 0, 0, 0, 0, 0, 7};
  camera_x_ = {10, 0, 0, 0, 0, 0, 0, 0, 1};
  SetInputs();
  SetDiagonal(true);
  const auto v_inverse = Upload(Doubles{0.5, 0, 0.5, 0, 0, 1});
  on_.v_inverse = v_inverse.data();
  for (const bool eliminated_part : {false, true}) {
    const Doubles q = Repeat({{9}}, [&](auto& out) {
      return on_.SchurProductImplicitW(out[0], eliminated_part);
    })[0];
    EXPECT_EQ(q[0], eliminated_part ? -20 : 30);
    EXPECT_EQ(q[1], 0);
    EXPECT_EQ(q[8], eliminated_part ? 0 : 49);
  }
  EXPECT_THAT(
      Repeat({{3}},
             [&](auto& out) { return on_.BackSubstituteImplicitW(out[0]); })[0],
      ElementsAre((3 - 20) / 2.0, 2.5, 0));
}

// Jc has one element, 3 in (0, 0) of camera 0 and 5 in (1, 1) of camera 1, and
// then 5 in (0, 1), so that the two couple:
//   S_10(1, 0) = -(5 * 1) (1/3) (1 * 3)
TEST_F(OperationsByHandTest, SchurComplement) {
  for (const int at : {18 + 10, 18 + 1}) {
    Doubles jc(36, 0.0);
    jc[0] = 3;
    jc[at] = 5;
    PrepareTwoCameras(jc);
    SetEliminated(true, true);
    Matrix matrix;
    ASSERT_NO_FATAL_FAILURE(
        SetUpMatrix(std::vector<unsigned char>(18, 1), &matrix));
    const Doubles s = Dense(&matrix);
    EXPECT_DOUBLE_EQ(s[0], 6 + 4);
    EXPECT_EQ(s[18 * 8 + 8], 4);
    EXPECT_DOUBLE_EQ(s[18 * 10 + 10],
                     (at == 28 ? 25 - 100.0 / 9 : 25 - 25.0 / 3) + 4);
    EXPECT_DOUBLE_EQ(s[10], at == 28 ? 0.0 : -5.0);
    EXPECT_EQ(std::count(s.begin(), s.end(), 0.0),
              18 * 18 - (at == 28 ? 18 : 19));
  }
}

TEST_F(OperationsByHandTest, SchurComplementOfNoUnknowns) {
  Prepare(MakePairs(4, 10, {3}, 1));
  SetEliminated(true, true);
  Matrix matrix;
  ASSERT_NO_FATAL_FAILURE(
      SetUpMatrix(std::vector<unsigned char>(36, 0), &matrix));
  EXPECT_EQ(matrix.unknowns.ref().num_unknowns, 0);
  EXPECT_EQ(matrix.csr.num_values(), 0);
  EXPECT_TRUE(Dense(&matrix).empty());
  EXPECT_TRUE(SparseValues(&matrix).empty());
}

TEST_F(OperationsByHandTest, SchurComplementRefusesShortColumns) {
  Prepare(MakePairs(4, 10, {3}, 1));
  SetEliminated(true, true);
  Matrix matrix;
  ASSERT_NO_FATAL_FAILURE(
      SetUpMatrix(std::vector<unsigned char>(36, 1), &matrix));
  auto values = Poisoned<double>(36 * 36);
  matrix.params.target = {};
  matrix.params.target.values = values.data();
  matrix.params.target.stride = 35;
  const Status status = kernels::Run(matrix.params, machine());
  EXPECT_EQ(status.code, StatusCode::kInvalidArgument);
  EXPECT_NE(status.message.find("36 unknowns"), std::string::npos)
      << status.message;
}

TEST_F(MachineTest, SchurUnknownsRefuseMoreThanAnIdCounts) {
  SchurUnknowns<Machine> unknowns;
  BlockFamilies families;
  families.Add(2, 2147483647);
  EXPECT_EQ(unknowns.Setup(families, nullptr, machine()).code,
            StatusCode::kUnsupported);
}

}  // namespace
}  // namespace ceres_ext::kernels
