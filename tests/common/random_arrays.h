// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Random problems of arrays of all kinds of rows, blocks, losses, weights and
// manifolds.

#ifndef CERES_EXT_TESTS_COMMON_RANDOM_ARRAYS_H_
#define CERES_EXT_TESTS_COMMON_RANDOM_ARRAYS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ceres/autodiff_cost_function.h"
#include "ceres/ceres.h"
#include "ceres/manifold.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/bal_cost_functions.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/functors.h"
#include "tests/common/own_loss.h"
#include "tests/common/own_manifold.h"
#include "tests/common/random_cases.h"

namespace ceres_ext {

// With constants that are not a model's: x and y, negated.
inline ceres::CostFunction* MakeOfNegated(const void* constants) {
  const double* const xy = static_cast<const double*>(constants);
  return new DeviceAutoDiffCostFunction<SplitReprojection, 2, 6, 3, 3>(
      SplitReprojection{-xy[0], -xy[1]});
}
inline ceres::CostFunction* MakeOfCeres(const void* constants) {
  const double* const xy = static_cast<const double*>(constants);
  return new ceres::AutoDiffCostFunction<SplitReprojection, 2, 4, 3, 3, 3>(
      new SplitReprojection{xy[0], xy[1]});
}

// A problem and all that its arrays point to.
class RandomArrays {
 public:
  using Parameters = ArrayProblem::Parameters;
  using Residuals = ArrayProblem::Residuals;
  using Index = ArrayProblem::Index;
  template <typename Functor, int... kSizes>
  using Cost = DeviceAutoDiffCostFunction<Functor, kSizes...>;

  explicit RandomArrays(Random* random)
      : random_(*random),
        nine_(MakeBalTestProblem(2 + random->Below(6),
                                 8 + random->Below(40),
                                 2 + random->Below(3),
                                 9,
                                 1 + random->Below(1000))),
        ten_(MakeBalTestProblem(nine_.num_cameras(),
                                nine_.num_points(),
                                2 + random->Below(2),
                                10,
                                1 + random->Below(1000))) {
    // Points that all see; kinds of cameras.
    points_ = AddParameters(nine_.points, 3);
    const int num_kinds = 1 + random_.Below(3);
    for (int i = 0; i < num_kinds; ++i) {
      AddKind();
    }
    // Other points, and blocks that no row names.
    if (random_.Chance(0.2)) {
      AddParameters(std::vector<double>(12, 0.5), 4);
    }
  }

  ArrayProblem* problem() { return &problem_; }

  // Gives some arrays bounds: intervals around, beside and beyond the start,
  // from narrow to wide, some of them of one side; one for all blocks, or one a
  // block. Values that can't be moved start within theirs.
  void AddBounds() {
    ArrayProblem bounded;
    for (const Parameters& p : problem_.parameters()) {
      bounded.AddParameters(random_.Chance(0.4)   ? p
                            : random_.Chance(0.3) ? WithOneInterval(p)
                                                  : WithIntervals(p));
    }
    for (const Residuals& residuals : problem_.residuals()) {
      bounded.AddResiduals(residuals);
    }
    problem_ = bounded;
  }

  std::string Describe() const {
    std::string text;
    for (const Parameters& p : problem_.parameters()) {
      text += "parameters " + std::to_string(p.num_blocks) + " x " +
              std::to_string(p.size) + (p.is_constant != nullptr ? " c" : "") +
              (p.manifold != nullptr ? " m" : "") +
              (p.manifolds != nullptr ? " ms" : "") +
              (p.MayHaveBounds() ? " b" : "") + "\n";
    }
    for (const Residuals& r : problem_.residuals()) {
      text += "residuals " + std::to_string(r.num_blocks) + " of";
      for (const Index& index : r.blocks) {
        text += " " + std::to_string(index.parameters);
      }
      text += r.loss == &own_       ? " own loss"
              : r.loss == &huber_   ? " huber"
              : r.loss == &trivial_ ? " trivial"
              : r.loss != nullptr   ? " cauchy"
                                    : "";
      text += r.weights != nullptr ? " weights" : "";
      text += r.cost_functions != nullptr ? " objects"
              : r.constants_are_of_model  ? " model"
                                          : " made";
      text += "\n";
    }
    return text;
  }

  std::vector<std::vector<double>> Values() const {
    std::vector<std::vector<double>> values;
    for (const auto& array : values_) {
      values.push_back(*array);
    }
    return values;
  }
  void SetValues(const std::vector<std::vector<double>>& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      std::copy(values[i].begin(), values[i].end(), values_[i]->begin());
    }
  }

 private:
  template <typename T>
  T* Keep(std::vector<T> values,
          std::vector<std::unique_ptr<std::vector<T>>>* to) {
    to->push_back(std::make_unique<std::vector<T>>(std::move(values)));
    return to->back()->data();
  }

  int AddParameters(const std::vector<double>& values, int size) {
    Parameters p;
    p.values = Keep(values, &values_);
    p.num_blocks = static_cast<int64_t>(values.size()) / size;
    p.size = size;
    const auto n = static_cast<size_t>(p.num_blocks);
    if (random_.Chance(0.3)) {
      std::vector<uint8_t> is_constant(n, 0);
      const double share = random_.OneOf({0.1, 0.5, 1.0});
      for (uint8_t& one : is_constant) {
        one = random_.Chance(share) ? 1 : 0;
      }
      p.is_constant = Keep(is_constant, &bytes_);
    }
    if (size == 4) {
      p.manifold = &quaternion_;
    } else if (random_.Chance(0.15)) {
      p.manifold = Manifold(size);
    }
    if (random_.Chance(0.1)) {
      std::vector<ceres::Manifold*> manifolds(n, p.manifold);
      for (auto*& one : manifolds) {
        one = random_.Chance(0.3) ? Manifold(size) : one;
      }
      p.manifolds = Keep(manifolds, &manifold_arrays_);
    }
    return problem_.AddParameters(p);
  }
  // True if value j of block i moves by itself.
  static bool Moves(const Parameters& p, int64_t i, int j) {
    const ceres::Manifold* const manifold = p.ManifoldOf(i);
    if (p.is_constant != nullptr && p.is_constant[i] != 0) {
      return false;
    }
    if (manifold == nullptr) {
      return true;
    }
    std::vector<double> moved(p.size);
    const std::vector<double> delta(manifold->TangentSize(), 0.1);
    const double* const x = p.values + i * p.size;
    return manifold->Plus(x, delta.data(), moved.data()) && moved[j] != x[j];
  }
  Parameters WithIntervals(Parameters p) {
    constexpr double kNone = std::numeric_limits<double>::infinity();
    const double share = random_.OneOf({0.02, 0.1, 0.5, 1.0});
    const auto n = static_cast<size_t>(p.num_blocks * p.size);
    std::vector<double> lower(n, -kNone);
    std::vector<double> upper(n, kNone);
    for (size_t k = 0; k < n; ++k) {
      if (!random_.Chance(share)) {
        continue;
      }
      const double x = p.values[k];
      const double width =
          (std::abs(x) + 0.01) * random_.OneOf({1e-6, 1e-3, 0.1, 1.0});
      const auto block = static_cast<int64_t>(k) / p.size;
      const double center =
          Moves(p, block, static_cast<int>(k) % p.size)
              ? x + width * random_.OneOf({0.0, 0.5, -0.5, 2.0})
              : x;
      const int sides = random_.Below(5);
      lower[k] = sides == 0 ? -kNone : center - width;
      upper[k] = sides == 1 ? kNone : center + width;
    }
    p.lower_bounds = Keep(lower, &values_of_rows_);
    p.upper_bounds =
        random_.Chance(0.9) ? Keep(upper, &values_of_rows_) : nullptr;
    return p;
  }
  // The interval of value j has those of all blocks, or, if all move, half of
  // that.
  Parameters WithOneInterval(Parameters p) {
    const auto size = static_cast<size_t>(p.size);
    std::vector<double> lower(size, std::numeric_limits<double>::infinity());
    std::vector<double> upper(size, -std::numeric_limits<double>::infinity());
    for (int j = 0; j < p.size; ++j) {
      bool all_move = true;
      for (int64_t i = 0; i < p.num_blocks; ++i) {
        const double x = p.values[i * p.size + j];
        lower[j] = std::min(lower[j], x - 1e-3);
        upper[j] = std::max(upper[j], x + 1e-3);
        all_move = all_move && Moves(p, i, j);
      }
      const double inside = all_move ? 0.25 * (upper[j] - lower[j]) : 0.0;
      lower[j] += inside;
      upper[j] -= inside;
    }
    p.lower_bound = Keep(lower, &values_of_rows_);
    p.upper_bound = Keep(upper, &values_of_rows_);
    return p;
  }

  ceres::Manifold* Manifold(int size) {
    std::unique_ptr<ceres::Manifold> manifold;
    switch (random_.Below(4)) {
      case 0:
        manifold = std::make_unique<OwnManifold>(size);
        break;
      case 1: {  // Nothing varies.
        std::vector<int> all;
        for (int i = 0; i < size; ++i) {
          all.push_back(i);
        }
        manifold = std::make_unique<ceres::SubsetManifold>(size, all);
        break;
      }
      case 2:
        if (size == 10) {
          manifold = std::make_unique<BalCameraManifold>();
          break;
        }
        [[fallthrough]];
      default:
        manifold = std::make_unique<ceres::SubsetManifold>(
            size, std::vector<int>{random_.Below(size)});
    }
    manifolds_.push_back(std::move(manifold));
    return manifolds_.back().get();
  }

  // Loss and weights, and adds it.
  void Add(Residuals residuals) {
    switch (random_.Below(6)) {
      case 0:
        residuals.loss = &huber_;
        break;
      case 1:
        residuals.loss = &cauchy_;
        break;
      case 2:
        residuals.loss = random_.Chance(0.3) ? &own_ : nullptr;
        break;
      case 3:
        residuals.loss = &trivial_;
        break;
      default:
        break;
    }
    if (random_.Chance(0.4)) {
      std::vector<double> weights;
      const int kinds = random_.OneOf({1, 3, 100000});
      for (int64_t k = 0; k < residuals.num_blocks; ++k) {
        weights.push_back(0.01 * random_.Below(kinds) + 0.5);
      }
      if (weights.size() % 2 == 1) {
        weights[weights.size() / 2] = 0.0;
      }
      residuals.weights = Keep(weights, &values_of_rows_);
    }
    problem_.AddResiduals(residuals);
  }
  // As the template of ArrayProblem does, by its means.
  template <typename CostFunction>
  void Add(int64_t n, const double* constants, std::vector<Index> blocks) {
    ArrayProblem other;
    other.AddResiduals<CostFunction>(n, constants, std::move(blocks));
    AddInParts(other.residuals()[0]);
  }
  // In one array or two.
  void AddInParts(const Residuals& all) {
    const bool has_index =
        std::all_of(all.blocks.begin(), all.blocks.end(), [](const Index& i) {
          return i.block != nullptr;
        });
    if (all.num_blocks < 2 || !has_index || random_.Chance(0.6)) {
      Add(all);
      return;
    }
    Residuals first = all;
    Residuals second = all;
    first.num_blocks = all.num_blocks / 3;
    second.num_blocks -= first.num_blocks;
    for (Index& index : second.blocks) {
      index.block += first.num_blocks;
    }
    if (all.cost_functions != nullptr) {
      second.cost_functions += first.num_blocks;
    } else {
      second.constants = static_cast<const char*>(all.constants) +
                         first.num_blocks * all.constants_bytes;
    }
    Add(first);
    Add(second);
  }

  // Columns begin .. begin + size - 1 of the cameras, as an array.
  static std::vector<double> Columns(const BalTestProblem& bal,
                                     int begin,
                                     int size) {
    std::vector<double> values;
    for (int i = 0; i < bal.num_cameras(); ++i) {
      const double* const camera = bal.cameras.data() + bal.camera_size * i;
      values.insert(values.end(), camera + begin, camera + begin + size);
    }
    return values;
  }
  std::vector<int32_t> Zeros(size_t n) const { return std::vector<int32_t>(n); }

  // Intrinsics: of each camera, or of all.
  Index Intrinsics(const BalTestProblem& bal) {
    const int begin = bal.camera_size - 3;
    if (random_.Chance(0.5)) {
      return {AddParameters(Columns(bal, begin, 3), 3), bal.camera_id.data()};
    }
    std::vector<double> first = Columns(bal, begin, 3);
    first.resize(3);
    return {AddParameters(first, 3),
            Keep(Zeros(bal.camera_id.size()), &indices_)};
  }

  void AddKind() {
    const BalTestProblem& nine = nine_;
    const BalTestProblem& ten = ten_;
    const auto n9 = static_cast<int64_t>(nine.camera_id.size());
    const auto n10 = static_cast<int64_t>(ten.camera_id.size());
    const Index point9 = {points_, nine.point_id.data()};
    const Index point10 = {points_, ten.point_id.data()};
    const int kind = random_.Below(9);
    switch (kind) {
      case 0:
      case 1: {
        const int cameras = AddParameters(nine.cameras, 9);
        const Index camera = {cameras, nine.camera_id.data()};
        Add<BalReprojectionError>(
            n9, nine.observations.data(), {camera, point9});
        if (kind == 1) {
          // Beside observations of the same blocks.
          AddDepths(camera, point9);
        }
        if (random_.Chance(0.4)) {
          AddPriors<9>(cameras);
        }
        return;
      }
      case 2:
        Add<BalQuaternionReprojectionError>(
            n10,
            ten.observations.data(),
            {{AddParameters(ten.cameras, 10), ten.camera_id.data()}, point10});
        return;
      case 3:
      case 4: {
        const int poses = AddParameters(Columns(nine, 0, 6), 6);
        const Index pose = {poses, nine.camera_id.data()};
        Add<Cost<SplitReprojection, 2, 6, 3, 3>>(
            n9, nine.observations.data(), {pose, Intrinsics(nine), point9});
        if (kind == 4) {
          AddBetween(poses);
          AddPriors<6>(poses);
        }
        return;
      }
      case 5: {  // Ceres's cost functions, made of constants.
        Residuals residuals;
        residuals.num_blocks = n10;
        residuals.blocks = SplitBlocks();
        residuals.constants = ten.observations.data();
        residuals.constants_bytes = 16;
        residuals.make_cost_function = &MakeOfCeres;
        AddInParts(residuals);
        return;
      }
      case 6: {  // Cost functions of a model, made of others.
        std::vector<double> negated = nine.observations;
        for (double& value : negated) {
          value = -value;
        }
        Residuals residuals;
        residuals.num_blocks = n9;
        residuals.blocks = {
            {AddParameters(Columns(nine, 0, 6), 6), nine.camera_id.data()},
            Intrinsics(nine),
            point9};
        residuals.constants = Keep(negated, &values_of_rows_);
        residuals.constants_bytes = 16;
        residuals.make_cost_function = &MakeOfNegated;
        AddInParts(residuals);
        return;
      }
      case 7: {  // Objects: Ceres's and this library's by turns.
        std::vector<ceres::CostFunction*> cost_functions;
        for (int64_t k = 0; k < n9; ++k) {
          owned_.emplace_back(nine.MakeCost(
              k, k % 3 != 0 ? Derivatives::kAutodiff : Derivatives::kAnalytic));
          cost_functions.push_back(owned_.back().get());
        }
        Residuals residuals;
        residuals.num_blocks = n9;
        residuals.blocks = {
            {AddParameters(nine.cameras, 9), nine.camera_id.data()}, point9};
        residuals.cost_functions = Keep(cost_functions, &function_arrays_);
        AddInParts(residuals);
        return;
      }
      default:
        Add<Cost<SplitReprojection, 2, 4, 3, 3, 3>>(
            n10, ten.observations.data(), SplitBlocks());
        AddPriors<3>(points_);
    }
  }

  std::vector<Index> SplitBlocks() {
    return {{AddParameters(Columns(ten_, 0, 4), 4), ten_.camera_id.data()},
            {AddParameters(Columns(ten_, 4, 3), 3), ten_.camera_id.data()},
            Intrinsics(ten_),
            {points_, ten_.point_id.data()}};
  }
  void AddDepths(const Index& camera, const Index& point) {
    std::vector<double> depths(1 + random_.Below(5), -4.0);
    Add<Cost<Depth, 1, 9, 3>>(static_cast<int64_t>(depths.size()),
                              Keep(depths, &values_of_rows_),
                              {camera, point});
  }
  // One for each block, without an index.
  template <int N>
  void AddPriors(int parameters) {
    const Parameters& p = problem_.parameters()[parameters];
    std::vector<double> constants;
    for (int64_t i = 0; i < p.num_blocks; ++i) {
      constants.push_back(2.0);
      constants.insert(
          constants.end(), p.values + N * i, p.values + N * (i + 1));
      constants.back() += 0.01;
    }
    Add<Cost<Prior<N>, N, N>>(p.num_blocks,
                              Keep(constants, &values_of_rows_),
                              {{parameters, nullptr}});
  }
  void AddBetween(int poses) {
    const Parameters& p = problem_.parameters()[poses];
    std::vector<int32_t> from;
    std::vector<int32_t> to;
    std::vector<double> constants;
    for (int32_t i = 1; i < p.num_blocks; ++i) {
      from.push_back(i - 1);
      to.push_back(i);
      for (int j = 0; j < 6; ++j) {
        constants.push_back(p.values[6 * i + j] - p.values[6 * i - 6 + j]);
      }
    }
    Add<Cost<Between, 6, 6, 6>>(
        static_cast<int64_t>(from.size()),
        Keep(constants, &values_of_rows_),
        {{poses, Keep(from, &indices_)}, {poses, Keep(to, &indices_)}});
  }

  Random& random_;
  const BalTestProblem nine_;
  const BalTestProblem ten_;
  int points_ = 0;
  ArrayProblem problem_;
  ceres::HuberLoss huber_{1.0};
  ceres::CauchyLoss cauchy_{0.5};
  ceres::TrivialLoss trivial_;
  OwnLoss own_;
  ceres::QuaternionManifold quaternion_;
  std::vector<std::unique_ptr<ceres::Manifold>> manifolds_;
  std::vector<std::unique_ptr<ceres::CostFunction>> owned_;
  std::vector<std::unique_ptr<std::vector<double>>> values_;
  std::vector<std::unique_ptr<std::vector<double>>> values_of_rows_;
  std::vector<std::unique_ptr<std::vector<uint8_t>>> bytes_;
  std::vector<std::unique_ptr<std::vector<int32_t>>> indices_;
  std::vector<std::unique_ptr<std::vector<ceres::Manifold*>>> manifold_arrays_;
  std::vector<std::unique_ptr<std::vector<ceres::CostFunction*>>>
      function_arrays_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_COMMON_RANDOM_ARRAYS_H_
