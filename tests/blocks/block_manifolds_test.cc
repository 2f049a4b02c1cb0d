// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Manifolds against Ceres's own objects: which are known, what their factors
// compute, and blocks of a state on a machine.

#include "ceres_ext/blocks/block_manifolds.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ceres/autodiff_manifold.h"
#include "ceres/line_manifold.h"
#include "ceres/manifold.h"
#include "ceres/product_manifold.h"
#include "ceres/sphere_manifold.h"
#include "gtest/gtest.h"
#include "tests/common/on_machine.h"
#include "tests/common/own_manifold.h"

// A user may have a class of any name.
namespace other::ceres {
class SubsetManifold final : public ::ceres_ext::OwnManifold {
 public:
  SubsetManifold() : OwnManifold(4) {}
};
}  // namespace other::ceres

// A user may even give a class of Ceres's another meaning.
namespace ceres {
template <>
bool SphereManifold<77>::Plus(const double* x,
                              const double* delta,
                              double* y) const {
  const double sum = std::accumulate(x, x + 77, 0.0);
  for (int i = 0; i < 77; ++i) {
    y[i] = sum + delta[i / 2];
  }
  return true;
}
}  // namespace ceres

namespace ceres_ext {
namespace {

using ceres::DYNAMIC;
using ceres::EigenQuaternionManifold;
using ceres::EuclideanManifold;
using ceres::LineManifold;
using ceres::ProductManifold;
using ceres::QuaternionManifold;
using ceres::SphereManifold;
using ceres::SubsetManifold;
using kernels::ManifoldFactor;
using kernels::ManifoldKind;

constexpr ManifoldKind kConstant = ManifoldKind::kConstant;
constexpr ManifoldKind kEuclidean = ManifoldKind::kEuclidean;
constexpr ManifoldKind kQuaternion = ManifoldKind::kQuaternion;
constexpr ManifoldKind kEigenQuaternion = ManifoldKind::kEigenQuaternion;
constexpr ManifoldKind kSphere = ManifoldKind::kSphere;
constexpr ManifoldKind kLine = ManifoldKind::kLine;

struct Known {
  std::string name;
  std::shared_ptr<ceres::Manifold> manifold;
  std::vector<ManifoldFactor> factors;
};

template <typename T, typename... Args>
std::shared_ptr<ceres::Manifold> Make(Args&&... args) {
  return std::make_shared<T>(std::forward<Args>(args)...);
}

std::vector<Known> KnownManifolds() {
  static QuaternionManifold quaternion;
  const SubsetManifold none(3, {});
  const SubsetManifold second(3, {1});
  using Pose = ProductManifold<EigenQuaternionManifold, EuclideanManifold<3>>;
  using Nested = ProductManifold<Pose,
                                 ProductManifold<SphereManifold<3>, Pose>,
                                 LineManifold<2>>;
  // Sizes that the type leaves open.
  using Open = ProductManifold<EuclideanManifold<DYNAMIC>,
                               SphereManifold<DYNAMIC>,
                               SphereManifold<DYNAMIC>,
                               SubsetManifold,
                               LineManifold<DYNAMIC>,
                               QuaternionManifold,
                               EuclideanManifold<DYNAMIC>>;
  return {
      {"Euclidean", Make<EuclideanManifold<3>>(), {{kEuclidean, 3}}},
      {"EuclideanOpen",
       Make<EuclideanManifold<DYNAMIC>>(300),
       {{kEuclidean, 300}}},
      {"Quaternion", Make<QuaternionManifold>(), {{kQuaternion, 4}}},
      {"EigenQuaternion",
       Make<EigenQuaternionManifold>(),
       {{kEigenQuaternion, 4}}},
      {"Sphere2", Make<SphereManifold<2>>(), {{kSphere, 2}}},
      {"Sphere3", Make<SphereManifold<3>>(), {{kSphere, 3}}},
      {"Sphere10", Make<SphereManifold<10>>(), {{kSphere, 10}}},
      {"SphereOpen", Make<SphereManifold<DYNAMIC>>(256), {{kSphere, 256}}},
      {"Line2", Make<LineManifold<2>>(), {{kLine, 4}}},
      {"Line3", Make<LineManifold<3>>(), {{kLine, 6}}},
      {"LineOpen", Make<LineManifold<DYNAMIC>>(7), {{kLine, 14}}},
      {"SubsetOfAll",
       Make<SubsetManifold>(3, std::vector<int>{}),
       {{kEuclidean, 3}}},
      {"SubsetOfNone",
       Make<SubsetManifold>(3, std::vector<int>{0, 1, 2}),
       {{kConstant, 3}}},
      {"Subset",
       Make<SubsetManifold>(9, std::vector<int>{8, 0, 4, 3}),
       {{kConstant, 1},
        {kEuclidean, 2},
        {kConstant, 2},
        {kEuclidean, 3},
        {kConstant, 1}}},
      {"Camera",
       Make<ProductManifold<QuaternionManifold, EuclideanManifold<6>>>(),
       {{kQuaternion, 4}, {kEuclidean, 6}}},
      {"FixedTranslation",
       Make<ProductManifold<EigenQuaternionManifold, SubsetManifold>>(
           EigenQuaternionManifold(), second),
       {{kEigenQuaternion, 4},
        {kEuclidean, 1},
        {kConstant, 1},
        {kEuclidean, 1}}},
      {"Pointers",
       Make<ProductManifold<std::unique_ptr<SphereManifold<3>>,
                            std::shared_ptr<SubsetManifold>,
                            QuaternionManifold*,
                            const QuaternionManifold*>>(
           std::make_unique<SphereManifold<3>>(),
           std::make_shared<SubsetManifold>(second),
           &quaternion,
           &quaternion),
       {{kSphere, 3},
        {kEuclidean, 1},
        {kConstant, 1},
        {kEuclidean, 1},
        {kQuaternion, 4},
        {kQuaternion, 4}}},
      {"Nested",
       Make<Nested>(),
       {{kEigenQuaternion, 4},
        {kEuclidean, 3},
        {kSphere, 3},
        {kEigenQuaternion, 4},
        {kEuclidean, 3},
        {kLine, 4}}},
      {"Open",
       Make<Open>(EuclideanManifold<DYNAMIC>(0),
                  SphereManifold<DYNAMIC>(4),
                  SphereManifold<DYNAMIC>(2),
                  none,
                  LineManifold<DYNAMIC>(3),
                  QuaternionManifold(),
                  EuclideanManifold<DYNAMIC>(2)),
       {{kSphere, 4},
        {kSphere, 2},
        {kEuclidean, 3},
        {kLine, 6},
        {kQuaternion, 4},
        {kEuclidean, 2}}},
  };
}

bool IsCurved(const std::vector<ManifoldFactor>& factors, ManifoldKind kind) {
  return std::any_of(factors.begin(), factors.end(), [&](const auto& factor) {
    return factor.kind == kind;
  });
}

TEST(ReadManifold, KnowsAllOfCeres) {
  for (const Known& known : KnownManifolds()) {
    SCOPED_TRACE(known.name + ": " + TypeName(*known.manifold));
    std::vector<ManifoldFactor> factors;
    ASSERT_TRUE(ReadManifold(*known.manifold, &factors));
    ASSERT_EQ(factors.size(), known.factors.size());
    for (size_t i = 0; i < factors.size(); ++i) {
      EXPECT_EQ(factors[i].kind, known.factors[i].kind) << i;
      EXPECT_EQ(factors[i].size, known.factors[i].size) << i;
    }
  }
}

struct AutoDiffSum {
  template <typename T>
  bool Plus(const T* x, const T* delta, T* y) const {
    y[0] = x[0] + delta[0];
    y[1] = x[1] + delta[1];
    return true;
  }
  template <typename T>
  bool Minus(const T* y, const T* x, T* delta) const {
    delta[0] = y[0] - x[0];
    delta[1] = y[1] - x[1];
    return true;
  }
};

// Ceres itself could not hold the derivative of these.
TEST(ReadManifold, KnowsLongLinearOnes) {
  constexpr int kSize = 1000000;
  std::vector<ManifoldFactor> factors;
  ASSERT_TRUE(ReadManifold(SubsetManifold(kSize, {17}), &factors));
  ASSERT_EQ(factors.size(), 3u);
  EXPECT_EQ(factors[0].size, 17);
  EXPECT_EQ(factors[2].size, kSize - 18);
}

TEST(ReadManifold, LeavesWhatItDoesNotKnow) {
  using ceres::Manifold;
  std::vector<ManifoldFactor> factors;
  const auto is_known = [&](const Manifold& manifold) {
    return ReadManifold(manifold, &factors);
  };
  EXPECT_FALSE(is_known(OwnManifold(4)));
  EXPECT_FALSE(is_known(other::ceres::SubsetManifold()));
  EXPECT_FALSE(is_known(ceres::AutoDiffManifold<AutoDiffSum, 2, 2>()));
  EXPECT_FALSE(is_known(ProductManifold<QuaternionManifold, OwnManifold>(
      QuaternionManifold(), OwnManifold(2))));
  EXPECT_FALSE(is_known(
      ProductManifold<QuaternionManifold, other::ceres::SubsetManifold>()));
  // It may point to any type.
  EXPECT_FALSE(
      is_known(ProductManifold<QuaternionManifold, std::unique_ptr<Manifold>>(
          QuaternionManifold(), std::make_unique<QuaternionManifold>())));
  QuaternionManifold quaternion;
  EXPECT_FALSE(is_known(
      ProductManifold<Manifold*, QuaternionManifold>(&quaternion, quaternion)));
  const auto free_one = [](QuaternionManifold* manifold) { delete manifold; };
  using Owner = std::unique_ptr<QuaternionManifold, decltype(free_one)>;
  EXPECT_FALSE(is_known(ProductManifold<Owner, QuaternionManifold>(
      Owner(new QuaternionManifold, free_one), quaternion)));
  // Its type alone is Ceres's.
  EXPECT_FALSE(is_known(SphereManifold<77>()));
  EXPECT_TRUE(is_known(SphereManifold<76>()));
  // Larger than what is asked for its factors.
  EXPECT_FALSE(is_known(SphereManifold<DYNAMIC>(257)));
}

// The largest of |values|.
double Largest(const std::vector<double>& values) {
  double largest = 0.0;
  for (const double value : values) {
    largest = std::max(largest, std::fabs(value));
  }
  return largest;
}

// States at which something happens: any, the poles of spheres and next to
// them, the equator, and zero.
std::vector<std::vector<double>> States(int size) {
  std::vector<std::vector<double>> states;
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  for (int i = 0; i < 6; ++i) {
    std::vector<double> x(size);
    for (double& value : x) {
      value = normal(random);
    }
    states.push_back(x);
  }
  for (const double last : {1.0, -1.0, 0.0}) {
    for (const double first : {0.0, 1e-9, 1e-7, 1.0}) {
      // Every factor ends somewhere.
      for (int end = 1; end <= size; end += size > 30 ? 85 : 1) {
        std::vector<double> x(size, 0.0);
        x[0] = first;
        x[end / 2] = first;
        x[end - 1] = last;
        states.push_back(x);
      }
    }
  }
  return states;
}

std::vector<std::vector<double>> Deltas(int size) {
  std::vector<std::vector<double>> deltas;
  std::mt19937 random(8);
  std::normal_distribution<double> normal;
  for (const double length :
       {1.0, 0.0, 1e-320, 1e-170, 1e-155, 1e-8, 1e3, 1e200}) {
    std::vector<double> delta(size);
    for (double& value : delta) {
      value = length * normal(random);
    }
    deltas.push_back(delta);
  }
  // One value alone.
  for (int i = 0; i<size; i += size> 30 ? 85 : 1) {
    deltas.emplace_back(size, 0.0);
    deltas.back()[i] = 0.3;
  }
  return deltas;
}

// How far a value may be from Ceres's: nothing without spheres and lines.
// Otherwise norms, products by H, sines and cosines of |delta|, whose rounding
// is one of |delta|, and products of them: some n + 16 roundings of values of
// at most |x| + |delta|, up to four of them one after the other.
double Tolerance(const Known& known,
                 const std::vector<double>& x,
                 const std::vector<double>& delta) {
  if (!IsCurved(known.factors, kSphere) && !IsCurved(known.factors, kLine)) {
    return 0.0;
  }
  const double n = static_cast<double>(x.size());
  return 4 * (n + 16) * kEpsilon * (1.0 + std::sqrt(n) * Largest(x)) *
         (1.0 + std::sqrt(n) * Largest(delta));
}

void ExpectSame(const std::vector<double>& actual,
                const std::vector<double>& expected,
                double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(actual[i])) << i << ": " << actual[i];
    } else if (tolerance == 0.0 || std::isinf(expected[i])) {
      EXPECT_EQ(actual[i], expected[i]) << i;
    } else if (std::isfinite(tolerance)) {
      EXPECT_NEAR(actual[i], expected[i], tolerance) << i;
    }
  }
}

TEST(ManifoldFactors, ComputeWhatCeresComputes) {
  for (const Known& known : KnownManifolds()) {
    SCOPED_TRACE(known.name);
    const ceres::Manifold& manifold = *known.manifold;
    const int rows = manifold.AmbientSize();
    const int columns = manifold.TangentSize();
    for (const std::vector<double>& x : States(rows)) {
      std::vector<double> expected(static_cast<size_t>(rows) * columns, 0.0);
      ASSERT_TRUE(manifold.PlusJacobian(x.data(), expected.data()));
      std::vector<double> jacobian(expected.size(), 0.0);
      int row = 0;
      int column = 0;
      for (const ManifoldFactor& factor : known.factors) {
        kernels::PlusJacobian(
            factor,
            x.data() + row,
            columns,
            jacobian.data() + static_cast<size_t>(row) * columns + column);
        row += factor.size;
        column += factor.tangent_size();
      }
      ASSERT_EQ(row, rows);
      ASSERT_EQ(column, columns);
      ExpectSame(jacobian, expected, Tolerance(known, x, {}));
      for (const std::vector<double>& delta : Deltas(columns)) {
        std::vector<double> expected_y(rows);
        ASSERT_TRUE(manifold.Plus(x.data(), delta.data(), expected_y.data()));
        std::vector<double> y(rows);
        std::vector<double> in_place = x;
        row = 0;
        column = 0;
        for (const ManifoldFactor& factor : known.factors) {
          for (const bool is_in_place : {false, true}) {
            kernels::Plus(factor,
                          (is_in_place ? in_place : x).data() + row,
                          delta.data() + column,
                          (is_in_place ? in_place : y).data() + row);
          }
          row += factor.size;
          column += factor.tangent_size();
        }
        ExpectSame(in_place, y, 0.0);
        ExpectSame(y, expected_y, Tolerance(known, x, delta));
        if (HasFailure()) {
          return;
        }
      }
    }
  }
}

// ---------------------------------------------------------------------------

// Blocks of a state with gaps: those of KnownManifolds several times, blocks
// without a manifold, constant ones and some with user-defined manifolds.
class Blocks : public OnMachine {
 protected:
  void SetUp() override {
    OnMachine::SetUp();
    if (IsSkipped()) {
      return;
    }
    known_ = KnownManifolds();
    for (int run = 0; run < 3; ++run) {
      for (const Known& known : known_) {
        // Which can't have a place in a program without columns.
        if (known.manifold->TangentSize() > 0) {
          Add(known.manifold.get(),
              known.manifold->AmbientSize(),
              known.manifold->TangentSize(),
              run);
        }
      }
      Add(nullptr, 5, 5, run);
      Add(&own_, 4, 4, run);
      blocks_.push_back({nullptr, -1, -1, 3, 0, run});
      Add(&own_in_product_, 5, 4, run);
    }
    std::mt19937 random(3);
    std::normal_distribution<double> normal;
    for (auto* values : {&state_, &delta_}) {
      for (double& value : *values) {
        value = normal(random);
      }
    }
  }

  void Add(const ceres::Manifold* manifold, int rows, int columns, int spare) {
    blocks_.push_back({manifold,
                       static_cast<int32_t>(state_.size()) + 2,
                       static_cast<int32_t>(delta_.size()) + 1,
                       rows,
                       columns,
                       columns + spare});
    state_.resize(state_.size() + rows + 2);
    delta_.resize(delta_.size() + columns + 1);
  }

  // How far a device may be from Ceres: eight roundings more in sines and
  // cosines.
  static double Tolerance(const BlockManifold& block) {
    if (kIsHost<TestMachine> || block.manifold == nullptr) {
      return 0.0;
    }
    // Values of at most 4, |delta| at most 8 sqrt(n).
    return 4 * (block.ambient_size + 24) * kEpsilon * 32 * block.ambient_size;
  }

  std::vector<Known> known_;
  Fault fault_ = Fault::kNone;
  OwnManifold own_{4, &fault_};
  ProductManifold<OwnManifold, SphereManifold<2>> own_in_product_{
      OwnManifold(3), SphereManifold<2>()};
  std::vector<BlockManifold> blocks_;
  std::vector<double> state_;
  std::vector<double> delta_;
  BlockManifolds<TestMachine> manifolds_;
};

TEST_F(Blocks, TangentsAreThoseOfCeres) {
  ASSERT_TRUE(manifolds_.Setup(blocks_, true, machine_.get()).ok());
  const BlockManifold& last = blocks_.back();
  const auto last_begin = static_cast<int64_t>(blocks_.size()) - 1;
  Buffer<double> x = Upload(state_);
  std::vector<double> first;
  for (int run = 0; run < 2; ++run) {
    const kernels::Status status = manifolds_.UpdateTangents(x.data());
    ASSERT_TRUE(status.ok()) << status.message;
    const std::vector<double> tangents =
        Download(manifolds_.tangent_begin(last_begin) +
                     int64_t{last.ambient_size} * last.matrix_stride,
                 manifolds_.tangents());
    if (run == 1) {
      EXPECT_EQ(tangents, first);
      break;
    }
    first = tangents;
    int64_t begin = 0;
    for (size_t i = 0; i < blocks_.size(); ++i) {
      SCOPED_TRACE(i);
      const BlockManifold& block = blocks_[i];
      ASSERT_EQ(manifolds_.tangent_begin(static_cast<int64_t>(i)), begin);
      const int stride = block.matrix_stride;
      std::vector<double> expected(block.ambient_size * stride, 0.0);
      std::vector<double> packed(block.ambient_size * block.tangent_size, 0.0);
      if (block.manifold != nullptr) {
        ASSERT_TRUE(block.manifold->PlusJacobian(&state_[block.state_offset],
                                                 packed.data()));
      } else {
        for (int j = 0; j < block.tangent_size; ++j) {
          packed[j * block.tangent_size + j] = 1.0;
        }
      }
      for (int row = 0; row < block.ambient_size; ++row) {
        std::copy_n(packed.begin() + row * block.tangent_size,
                    block.tangent_size,
                    expected.begin() + row * stride);
      }
      ExpectSame(
          {tangents.begin() + begin,
           tangents.begin() + begin + static_cast<int64_t>(expected.size())},
          expected,
          Tolerance(block));
      begin += static_cast<int64_t>(expected.size());
    }
  }
}

TEST_F(Blocks, PlusIsThatOfCeres) {
  ASSERT_TRUE(manifolds_.Setup(blocks_, false, machine_.get()).ok());
  Buffer<double> x = Upload(state_);
  Buffer<double> d = Upload(delta_);
  std::vector<double> first;
  for (const bool in_place : {false, true}) {
    Buffer<double> y =
        Upload(in_place ? state_ : std::vector<double>(state_.size(), -7.0));
    const kernels::Status status =
        manifolds_.Plus(in_place ? y.data() : x.data(), d.data(), y.data());
    ASSERT_TRUE(status.ok()) << status.message;
    std::vector<double> moved =
        Download(static_cast<int64_t>(state_.size()), y.data());
    std::vector<double> expected = state_;
    size_t next = 0;
    for (const BlockManifold& block : blocks_) {
      if (block.state_offset < 0) {
        continue;
      }
      // Gaps stay.
      for (; next < static_cast<size_t>(block.state_offset); ++next) {
        EXPECT_EQ(moved[next], in_place ? state_[next] : -7.0);
        moved[next] = state_[next];
      }
      next += block.ambient_size;
      const double* from = &state_[block.state_offset];
      const double* by = &delta_[block.tangent_offset];
      std::vector<double> to(block.ambient_size);
      if (block.manifold != nullptr) {
        ASSERT_TRUE(block.manifold->Plus(from, by, to.data()));
      } else {
        for (int j = 0; j < block.ambient_size; ++j) {
          to[j] = from[j] + by[j];
        }
      }
      ExpectSame({moved.begin() + block.state_offset,
                  moved.begin() + block.state_offset + block.ambient_size},
                 to,
                 Tolerance(block));
    }
    if (in_place) {
      EXPECT_EQ(moved, first);
    }
    first = moved;
  }
}

TEST_F(Blocks, SayWhatTheHostCalls) {
  ASSERT_TRUE(manifolds_.Setup(blocks_, false, machine_.get()).ok());
  if (kIsHost<TestMachine>) {
    EXPECT_GT(manifolds_.num_called(), 6);
    EXPECT_EQ(manifolds_.called_type(), "ceres::EuclideanManifold<3>");
  } else {
    EXPECT_EQ(manifolds_.num_called(), 6);
    EXPECT_EQ(manifolds_.called_type(), "ceres_ext::OwnManifold");
  }
  BlockManifolds<TestMachine> none;
  ASSERT_TRUE(none.Setup({}, true, machine_.get()).ok());
  EXPECT_EQ(none.num_called(), 0);
  EXPECT_EQ(none.called_type(), "");
  EXPECT_TRUE(none.UpdateTangents(nullptr).ok());
  EXPECT_TRUE(none.Plus(nullptr, nullptr, nullptr).ok());
}

TEST_F(Blocks, FaultsOfAUsersManifoldAreSaid) {
  ASSERT_TRUE(manifolds_.Setup(blocks_, true, machine_.get()).ok());
  Buffer<double> x = Upload(state_);
  Buffer<double> d = Upload(delta_);
  Buffer<double> y = Upload(state_);
  const auto own = std::find_if(
      blocks_.begin(), blocks_.end(), [this](const BlockManifold& block) {
        return block.manifold == &own_;
      });
  const std::string block = " of the parameter block at " +
                            std::to_string(own->state_offset) +
                            " of the state (ceres_ext::OwnManifold) ";
  const auto expect = [&](Fault fault,
                          const std::string& plus,
                          const std::string& plus_jacobian) {
    fault_ = fault;
    const kernels::Status moved = manifolds_.Plus(x.data(), d.data(), y.data());
    EXPECT_EQ(moved.message,
              plus.empty() ? "" : "Manifold::Plus" + block + plus);
    EXPECT_EQ(moved.code,
              plus.empty() ? kernels::StatusCode::kOk
                           : kernels::StatusCode::kNumericalFailure);
    const kernels::Status updated = manifolds_.UpdateTangents(x.data());
    EXPECT_EQ(updated.message,
              plus_jacobian.empty()
                  ? ""
                  : "Manifold::PlusJacobian" + block + plus_jacobian);
    EXPECT_EQ(updated.code,
              plus_jacobian.empty() ? kernels::StatusCode::kOk
                                    : kernels::StatusCode::kNumericalFailure);
  };
  expect(Fault::kFails, "failed", "failed");
  expect(Fault::kThrows, "threw: no way on", "threw: no way on");
  expect(Fault::kIsNotFinite, "", "failed");
  expect(Fault::kWritesNothing, "", "failed");
  expect(Fault::kNone, "", "");
}

}  // namespace
}  // namespace ceres_ext
