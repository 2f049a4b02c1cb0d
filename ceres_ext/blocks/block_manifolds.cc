// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/blocks/block_manifolds.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <numeric>
#include <string_view>
#include <typeinfo>
#include <utility>

#include "ceres_ext/base/failure.h"

namespace ceres_ext {

using kernels::ManifoldFactor;
using kernels::ManifoldKind;
using kernels::Status;
using kernels::StatusCode;

namespace {

// Reads a type's name, without its spaces, piece by piece.
class TypeReader {
 public:
  explicit TypeReader(std::string_view name) : left_(name) {}

  // Reads a manifold of Ceres's and appends the factors of it that are not
  // linear; false for anything else.
  bool ReadManifold(std::vector<ManifoldKind>* curved) {
    if (Eat("ceres::ProductManifold<")) {
      do {
        if (!ReadPart(curved)) {
          return false;
        }
      } while (Eat(","));
      return Eat(">");
    }
    if (Eat("ceres::EuclideanManifold<")) {
      return EatSize();
    }
    if (Eat("ceres::SphereManifold<")) {
      curved->push_back(ManifoldKind::kSphere);
      return EatSize();
    }
    if (Eat("ceres::LineManifold<")) {
      curved->push_back(ManifoldKind::kLine);
      return EatSize();
    }
    if (Eat("ceres::QuaternionManifold")) {
      curved->push_back(ManifoldKind::kQuaternion);
      return true;
    }
    if (Eat("ceres::EigenQuaternionManifold")) {
      curved->push_back(ManifoldKind::kEigenQuaternion);
      return true;
    }
    return Eat("ceres::SubsetManifold");
  }

  bool is_at_end() const { return left_.empty(); }

 private:
  // Part of a product: a manifold, or a pointer to one.
  bool ReadPart(std::vector<ManifoldKind>* curved) {
    const bool is_unique = Eat("std::unique_ptr<");
    const bool is_shared = !is_unique && Eat("std::shared_ptr<");
    const std::string_view before = left_;
    if (!ReadManifold(curved)) {
      return false;
    }
    Eat("const");
    const std::string_view pointee =
        before.substr(0, before.size() - left_.size());
    if (is_unique) {
      return Eat(",std::default_delete<") && Eat(pointee) && Eat(">>");
    }
    if (is_shared) {
      return Eat(">");
    }
    Eat("*");
    return true;
  }

  // A template argument, and what closes it; ceres::DYNAMIC is -1.
  bool EatSize() {
    Eat("-");
    const size_t size = left_.find_first_not_of("0123456789");
    if (size == 0 || size == std::string_view::npos) {
      return false;
    }
    left_.remove_prefix(size);
    return Eat(">");
  }

  bool Eat(std::string_view text) {
    if (left_.substr(0, text.size()) != text) {
      return false;
    }
    left_.remove_prefix(text.size());
    return true;
  }

  std::string_view left_;
};

// The factors of this type that are not linear, in their order; none: the type
// isn't Ceres's.
std::optional<std::vector<ManifoldKind>> CurvedFactors(
    const ceres::Manifold& manifold) {
  std::string name = TypeName(manifold);
  name.erase(std::remove(name.begin(), name.end(), ' '), name.end());
  TypeReader reader(name);
  std::vector<ManifoldKind> curved;
  if (!reader.ReadManifold(&curved) || !reader.is_at_end()) {
    return std::nullopt;
  }
  return curved;
}

bool HasSize(ManifoldKind kind, int size) {
  switch (kind) {
    case ManifoldKind::kQuaternion:
    case ManifoldKind::kEigenQuaternion:
      return size == 4;
    case ManifoldKind::kLine:
      return size % 2 == 0;
    default:
      return true;
  }
}

// Most values of a manifold that isn't linear. All its values are tried one by
// one, and its derivative is computed.
constexpr int kMostValues = 256;

// The places of the factors. A value of a linear factor moves by itself, or not
// at all; in a factor that is not linear, each value depends on some tangent
// coordinate. So NaN is put into one value after the other.
bool PlaceFactors(const ceres::Manifold& manifold,
                  const std::vector<ManifoldKind>& curved,
                  std::vector<ManifoldFactor>* factors) {
  const int size = manifold.AmbientSize();
  if (!curved.empty() && size > kMostValues) {
    return false;
  }
  std::vector<double> x(size, 1.0);
  const std::vector<double> delta(manifold.TangentSize(), 0.5);
  std::vector<double> moved(size);
  std::vector<double> y(size);
  if (!manifold.Plus(x.data(), delta.data(), moved.data())) {
    return false;
  }
  // One past the last value of what begins at a value and moves as one.
  std::vector<int> end(size);
  std::iota(end.begin(), end.end(), 1);
  for (int k = 0; !curved.empty() && k < size; ++k) {
    x[k] = std::numeric_limits<double>::quiet_NaN();
    if (!manifold.Plus(x.data(), delta.data(), y.data())) {
      return false;
    }
    x[k] = 1.0;
    int first = k;
    while (first > 0 && std::isnan(y[first - 1])) {
      --first;
    }
    int last = k + 1;
    while (last < size && std::isnan(y[last])) {
      ++last;
    }
    end[first] = std::max(end[first], last);
  }
  size_t next = 0;
  for (int k = 0; k < size; k = end[k]) {
    ManifoldFactor factor;
    factor.size = end[k] - k;
    if (factor.size > 1) {
      if (next == curved.size() || !HasSize(curved[next], factor.size)) {
        return false;
      }
      factor.kind = curved[next++];
    } else {
      factor.kind =
          moved[k] == 1.0 ? ManifoldKind::kConstant : ManifoldKind::kEuclidean;
      if (!factors->empty() && factors->back().kind == factor.kind) {
        ++factors->back().size;
        continue;
      }
    }
    factors->push_back(factor);
  }
  return next == curved.size();
}

bool AreClose(const std::vector<double>& x, const std::vector<double>& y) {
  // Values of at most about one after some dozen roundings; real differences
  // are far larger.
  constexpr double kTolerance = 1e-10;
  return std::equal(x.begin(), x.end(), y.begin(), [](double a, double b) {
    return std::fabs(a - b) <= kTolerance;
  });
}

// True if the factors do what the manifold does at some point. Linear ones of
// many values have a derivative too large to compute, and Plus tells of it.
bool AgreesWith(const ceres::Manifold& manifold,
                const std::vector<ManifoldFactor>& factors) {
  const int rows = manifold.AmbientSize();
  const int columns = manifold.TangentSize();
  const bool has_jacobian = rows <= kMostValues;
  std::vector<double> x(rows);
  std::vector<double> delta(columns);
  for (int i = 0; i < rows; ++i) {
    x[i] = 0.5 * std::cos(0.7 * i + 0.3);
  }
  for (int i = 0; i < columns; ++i) {
    delta[i] = 0.3 * std::sin(0.9 * i + 0.4);
  }
  std::vector<double> y(rows);
  std::vector<double> expected_y(rows);
  const auto num_values =
      has_jacobian ? static_cast<size_t>(rows) * columns : 0;
  std::vector<double> jacobian(num_values);
  std::vector<double> expected_jacobian(num_values);
  int row = 0;
  int column = 0;
  for (const ManifoldFactor& factor : factors) {
    row += factor.size;
    column += factor.tangent_size();
  }
  if (row != rows || column != columns ||
      !manifold.Plus(x.data(), delta.data(), expected_y.data()) ||
      (has_jacobian &&
       !manifold.PlusJacobian(x.data(), expected_jacobian.data()))) {
    return false;
  }
  row = 0;
  column = 0;
  for (const ManifoldFactor& factor : factors) {
    kernels::Plus(
        factor, x.data() + row, delta.data() + column, y.data() + row);
    if (has_jacobian) {
      kernels::PlusJacobian(factor,
                            x.data() + row,
                            columns,
                            jacobian.data() + row * columns + column);
    }
    row += factor.size;
    column += factor.tangent_size();
  }
  return AreClose(y, expected_y) && AreClose(jacobian, expected_jacobian);
}

// Status of call(), a function of the manifold of this name.
template <typename Call>
Status Checked(const BlockManifold& block, const char* name, Call&& call) {
  std::string what;
  if (Succeeds(std::forward<Call>(call), &what)) {
    return {};
  }
  return {StatusCode::kNumericalFailure,
          std::string("Manifold::") + name + " of the parameter block at " +
              std::to_string(block.state_offset) + " of the state (" +
              TypeName(*block.manifold) + ") " + what};
}

}  // namespace

bool ReadManifold(const ceres::Manifold& manifold,
                  std::vector<ManifoldFactor>* factors) {
  factors->clear();
  const auto curved = CurvedFactors(manifold);
  return curved.has_value() && PlaceFactors(manifold, *curved, factors) &&
         AgreesWith(manifold, *factors);
}

std::optional<ManifoldFactors::Place> ManifoldFactors::Find(
    const BlockManifold& block) {
  const auto place_of = [this](const std::vector<ManifoldFactor>& factors) {
    std::vector<std::pair<ManifoldKind, int32_t>> key;
    bool is_linear = true;
    for (const ManifoldFactor& factor : factors) {
      key.emplace_back(factor.kind, factor.size);
      is_linear &= factor.is_linear();
    }
    const Place place = {static_cast<int32_t>(factors_.size()),
                         static_cast<int32_t>(factors.size()),
                         is_linear};
    const auto [entry, is_new] = places_.try_emplace(std::move(key), place);
    if (is_new) {
      factors_.insert(factors_.end(), factors.begin(), factors.end());
    }
    return entry->second;
  };
  if (block.manifold == nullptr) {
    return place_of({{block.tangent_size == 0 ? ManifoldKind::kConstant
                                              : ManifoldKind::kEuclidean,
                      block.ambient_size}});
  }
  const auto [entry, is_new] =
      of_object_.try_emplace(block.manifold, std::nullopt);
  std::vector<ManifoldFactor> factors;
  if (is_new && ReadManifold(*block.manifold, &factors)) {
    entry->second = place_of(factors);
  }
  return entry->second;
}

Status CallPlus(const BlockManifold& block,
                const double* x,
                const double* delta,
                double* x_plus_delta) {
  return Checked(block, "Plus", [&] {
    return block.manifold->Plus(x, delta, x_plus_delta);
  });
}

Status CallPlusJacobian(const BlockManifold& block,
                        const double* x,
                        double* plus_jacobian) {
  double* const end =
      plus_jacobian + int64_t{block.ambient_size} * block.tangent_size;
  std::fill(plus_jacobian, end, std::numeric_limits<double>::quiet_NaN());
  return Checked(block, "PlusJacobian", [&] {
    return block.manifold->PlusJacobian(x, plus_jacobian) &&
           std::all_of(plus_jacobian, end, [](double value) {
             return std::isfinite(value);
           });
  });
}

}  // namespace ceres_ext
