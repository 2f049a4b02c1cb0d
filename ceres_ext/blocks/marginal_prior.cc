// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/marginal_prior.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "ceres/line_manifold.h"
#include "ceres/sphere_manifold.h"
#include "ceres_ext/base/sentence.h"
#include "ceres_ext/blocks/block_manifolds.h"
#include "ceres_ext/blocks/quaternion_difference.h"

namespace ceres_ext {
namespace internal {
namespace {

using Kind = BlockDifference::Kind;

// The parts of a manifold; one of kind kManifold if it is not Ceres's.
std::vector<BlockDifference::Part> PartsOf(const ceres::Manifold* manifold,
                                           int size) {
  if (manifold == nullptr) {
    return {{Kind::kValues, size, nullptr}};
  }
  std::vector<kernels::ManifoldFactor> factors;
  if (!ReadManifold(*manifold, &factors)) {
    return {{Kind::kManifold,
             manifold->AmbientSize(),
             {std::shared_ptr<void>(), manifold}}};
  }
  std::vector<BlockDifference::Part> parts;
  for (const kernels::ManifoldFactor& factor : factors) {
    BlockDifference::Part part{Kind::kHeld, factor.size, nullptr};
    switch (factor.kind) {
      case kernels::ManifoldKind::kConstant:
        break;
      case kernels::ManifoldKind::kEuclidean:
        part.kind = Kind::kValues;
        break;
      case kernels::ManifoldKind::kQuaternion:
        part.kind = Kind::kQuaternion;
        break;
      case kernels::ManifoldKind::kEigenQuaternion:
        part.kind = Kind::kEigenQuaternion;
        break;
      case kernels::ManifoldKind::kSphere:
        part.kind = Kind::kManifold;
        part.manifold = std::make_shared<ceres::SphereManifold<ceres::DYNAMIC>>(
            factor.size);
        break;
      case kernels::ManifoldKind::kLine:
        part.kind = Kind::kManifold;
        part.manifold = std::make_shared<ceres::LineManifold<ceres::DYNAMIC>>(
            factor.size / 2);
        break;
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

// Ceres's manifolds have the derivative of y (-) x_0 at y = x_0 alone. That by
// the tangent at x is a central difference of fourth order. Its truncation is
// h^4 / 30 times the fifth derivative and its rounding 1.5 eps / h, together
// some 4e-13 at the h below. by_x: in rows of `stride` values, zeros on entry,
// or null.
bool DifferenceOfManifold(const ceres::Manifold& manifold,
                          const double* x,
                          const double* reference,
                          int stride,
                          double* d,
                          double* by_x) {
  constexpr double kStep = 1e-3;
  if (!manifold.Minus(x, reference, d)) {
    return false;
  }
  if (by_x == nullptr) {
    return true;
  }
  const int size = manifold.AmbientSize();
  const int n = manifold.TangentSize();
  std::vector<double> tangent(n, 0.0);
  std::vector<double> moved(size);
  std::vector<double> at_moved(n);
  std::vector<double> by_tangent(size_t(n) * n, 0.0);
  for (int c = 0; c < n; ++c) {
    for (const double steps : {1.0, -1.0, 2.0, -2.0}) {
      tangent[c] = steps * kStep;
      if (!manifold.Plus(x, tangent.data(), moved.data()) ||
          !manifold.Minus(moved.data(), reference, at_moved.data())) {
        return false;
      }
      const double weight = (std::fabs(steps) == 1.0 ? 8.0 : -1.0) *
                            std::copysign(1.0, steps) / (12.0 * kStep);
      for (int e = 0; e < n; ++e) {
        by_tangent[n * e + c] += weight * (at_moved[e] - d[e]);
      }
    }
    tangent[c] = 0.0;
  }
  std::vector<double> tangent_by_x(size_t(n) * size);
  if (!manifold.MinusJacobian(x, tangent_by_x.data())) {
    return false;
  }
  for (int e = 0; e < n; ++e) {
    for (int c = 0; c < n; ++c) {
      for (int k = 0; k < size; ++k) {
        by_x[stride * e + k] +=
            by_tangent[n * e + c] * tangent_by_x[size * c + k];
      }
    }
  }
  return true;
}

}  // namespace

int BlockDifference::Part::num_columns() const {
  switch (kind) {
    case Kind::kHeld:
      return 0;
    case Kind::kValues:
      return size;
    case Kind::kManifold:
      return manifold->TangentSize();
    default:
      return 3;
  }
}

BlockDifference::BlockDifference(int size, const ceres::Manifold* manifold)
    : BlockDifference(PartsOf(manifold, size)) {}

BlockDifference::BlockDifference(std::vector<Part> parts)
    : parts_(std::move(parts)) {
  for (const Part& part : parts_) {
    size_ += part.size;
    num_columns_ += part.num_columns();
  }
}

bool BlockDifference::Evaluate(const double* x,
                               const double* reference,
                               double* d,
                               double* by_x) const {
  if (by_x != nullptr) {
    std::fill_n(by_x, num_columns_ * size_, 0.0);
  }
  int value = 0;
  int column = 0;
  for (const Part& part : parts_) {
    double* const part_by_x =
        by_x == nullptr ? nullptr : by_x + size_ * column + value;
    switch (part.kind) {
      case Kind::kHeld:
        break;
      case Kind::kValues:
        for (int e = 0; e < part.size; ++e) {
          d[column + e] = x[value + e] - reference[value + e];
          if (by_x != nullptr) {
            part_by_x[(size_ + 1) * e] = 1.0;
          }
        }
        break;
      case Kind::kManifold:
        if (!DifferenceOfManifold(*part.manifold,
                                  x + value,
                                  reference + value,
                                  size_,
                                  d + column,
                                  part_by_x)) {
          return false;
        }
        break;
      default:
        DifferenceOfQuaternions(part.kind,
                                x + value,
                                reference + value,
                                size_,
                                d + column,
                                part_by_x);
    }
    value += part.size;
    column += part.num_columns();
  }
  return true;
}

}  // namespace internal

std::unique_ptr<BlockMarginalPrior> BlockMarginalPrior::Create(
    const std::vector<Block>& blocks,
    const double* references,
    int num_residuals,
    const double* a,
    const double* b,
    std::string* error) {
  std::unique_ptr<BlockMarginalPrior> prior(new BlockMarginalPrior());
  std::string what;
  std::vector<internal::BlockDifference> differences;
  for (size_t k = 0; k < blocks.size() && what.empty(); ++k) {
    const auto& [size, manifold] = blocks[k];
    if (size < 1) {
      what = Sentence(
          "has ", size, " values in block ", k, "; expected at least one");
    } else if (manifold != nullptr && manifold->AmbientSize() != size) {
      what = Sentence("has ",
                      size,
                      " values in block ",
                      k,
                      ", but its manifold has ",
                      manifold->AmbientSize());
    } else if (k > 0 && manifold != nullptr &&
               manifold == blocks[k - 1].manifold) {
      // Reading a manifold takes microseconds.
      differences.push_back(internal::BlockDifference(differences.back()));
    } else {
      differences.emplace_back(size, manifold);
    }
  }
  if (what.empty()) {
    what = prior->Set(
        std::move(differences), "blocks", references, num_residuals, a, b);
  }
  if (what.empty()) {
    return prior;
  }
  if (error != nullptr) {
    *error = "a marginal prior " + what;
  }
  return nullptr;
}

std::string BlockMarginalPrior::Set(
    std::vector<internal::BlockDifference> differences,
    const char* plural,
    const double* references,
    int num_residuals,
    const double* a,
    const double* b) {
  using Kind = internal::BlockDifference::Kind;
  if (differences.empty() || num_residuals < 1) {
    return Sentence("has ",
                    differences.size(),
                    " ",
                    plural,
                    " and ",
                    num_residuals,
                    " residuals; expected at least one of each");
  }
  differences_ = std::move(differences);
  int num_values = 0;
  for (const internal::BlockDifference& difference : differences_) {
    begin_.emplace_back(num_values, num_columns_);
    num_values += difference.size();
    num_columns_ += difference.num_columns();
    largest_block_ =
        std::max(largest_block_, difference.size() * difference.num_columns());
    mutable_parameter_block_sizes()->push_back(difference.size());
  }
  references_.assign(references, references + num_values);
  matrix_.assign(a, a + int64_t{num_columns_} * num_residuals);
  offset_.assign(b, b + num_residuals);
  for (const auto& [name, values] : {std::make_pair("references", &references_),
                                     std::make_pair("A", &matrix_),
                                     std::make_pair("b", &offset_)}) {
    for (size_t i = 0; i < values->size(); ++i) {
      if (!std::isfinite((*values)[i])) {
        return std::string("has ") + name + "[" + std::to_string(i) +
               "] = " + std::to_string((*values)[i]) +
               "; expected a finite value";
      }
    }
  }
  for (int k = 0; k < num_blocks(); ++k) {
    const double* value = &references_[reference_begin(k)];
    for (const internal::BlockDifference::Part& part :
         differences_[k].parts()) {
      const bool is_quaternion =
          part.kind == Kind::kQuaternion || part.kind == Kind::kEigenQuaternion;
      if (is_quaternion &&
          std::all_of(value, value + 4, [](double q) { return q == 0.0; })) {
        return "has a zero quaternion in reference " + std::to_string(k);
      }
      value += part.size;
    }
  }
  set_num_residuals(num_residuals);
  return "";
}

bool BlockMarginalPrior::Evaluate(double const* const* blocks,
                                  double* residuals,
                                  double** jacobians) const {
  std::copy(offset_.begin(), offset_.end(), residuals);
  std::vector<double> d(num_columns_);
  std::vector<double> by_x(jacobians == nullptr ? 0 : largest_block_);
  for (int k = 0; k < num_blocks(); ++k) {
    const internal::BlockDifference& difference = differences_[k];
    const int size = difference.size();
    const int n = difference.num_columns();
    double* const jacobian = jacobians == nullptr ? nullptr : jacobians[k];
    if (!difference.Evaluate(blocks[k],
                             &references_[reference_begin(k)],
                             d.data(),
                             jacobian == nullptr ? nullptr : by_x.data())) {
      return false;
    }
    if (jacobian != nullptr) {
      std::fill_n(jacobian, int64_t{size} * num_residuals(), 0.0);
    }
    for (int i = 0; i < num_residuals(); ++i) {
      const double* const a =
          &matrix_[int64_t{num_columns_} * i + column_begin(k)];
      for (int c = 0; c < n; ++c) {
        residuals[i] += a[c] * d[c];
      }
      for (int c = 0; c < n && jacobian != nullptr; ++c) {
        double* const row = jacobian + int64_t{size} * i;
        for (int e = 0; e < size; ++e) {
          row[e] += a[c] * by_x[size * c + e];
        }
      }
    }
  }
  return true;
}

}  // namespace ceres_ext
