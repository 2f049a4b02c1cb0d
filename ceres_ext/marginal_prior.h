// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A dense prior on any number of blocks, as a window that marginalises its
// oldest keyframe leaves it: a Gaussian of the other blocks x (poses, speeds
// and biases, extrinsics, a time offset), linearised at their values x_0 of
// that time.
//
//   cost 1/2 |A d + b|^2,  d = x (-) x_0
//
// d stacks the differences of the blocks, each in the tangent space of its
// manifold. x_0 and A stay as they are in later solves, since values at another
// linearisation would add information that no measurement has (Dong-Si and
// Mourikis 2011, Leutenegger et al. 2015). Marginalize (marginalize.h) makes
// such priors. With H and g the Schur complement of J'J and J'r at x_0:
//
//   H = L L',  A = L',  b = L^-1 g
//
//   std::string error;
//   // A pose and a block of 9; a: m x 15, row-major; b: m
//   auto prior = ceres_ext::BlockMarginalPrior::Create(
//       {{7, &pose_manifold}, {9}}, x_0, m, a, b, &error);
//   problem.AddResidualBlock(prior.release(), nullptr, pose, speed_and_bias);
//   // n poses of 7 values; a: m x 6 n
//   auto of_poses =
//       ceres_ext::MarginalPrior<ceres_ext::EigenQuaternion>::Create(
//           n, x_0, m, a, b, &error);
//
// SolveBatch and WindowSolver solve windows of poses with priors of poses
// whole, if they have no loss (docs/batch.md). All other solves evaluate them
// on the host.
//
// Thread safety: const member functions may be called from any thread, and call
// those of user-defined manifolds.

#ifndef CERES_EXT_MARGINAL_PRIOR_H_
#define CERES_EXT_MARGINAL_PRIOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ceres/cost_function.h"
#include "ceres/manifold.h"
#include "ceres_ext/photogrammetry.h"

namespace ceres_ext {

namespace internal {

// The difference of a block from its reference.
class BlockDifference {
 public:
  enum class Kind {
    kHeld,             // no column
    kValues,           // x - x_0
    kQuaternion,       // half the rotation vector, w x y z
    kEigenQuaternion,  // the same, x y z w
    kManifold          // Minus of a manifold
  };
  struct Part {
    Kind kind = Kind::kValues;
    int size = 0;                                     // values
    std::shared_ptr<const ceres::Manifold> manifold;  // of kManifold

    int num_columns() const;
  };

  // manifold: null for x - x_0. One that is not Ceres's outlives the object.
  BlockDifference(int size, const ceres::Manifold* manifold);
  explicit BlockDifference(std::vector<Part> parts);

  int size() const { return size_; }
  int num_columns() const { return num_columns_; }
  const std::vector<Part>& parts() const { return parts_; }

  // d: num_columns(); by_x: its derivative by the values, num_columns() x
  // size(), row-major, or null. False if a manifold fails.
  bool Evaluate(const double* x,
                const double* reference,
                double* d,
                double* by_x) const;

 private:
  std::vector<Part> parts_;
  int size_ = 0;
  int num_columns_ = 0;
};

}  // namespace internal

// Residuals A d + b of any number of blocks of any sizes. The difference d of a
// block is
//
//   no manifold             x - x_0
//   SubsetManifold          the same of the values that vary
//   QuaternionManifold,     Minus of the manifold, half the rotation vector of
//   EigenQuaternionManifold R R_0', in radians, except that q and -q have the
//                           same
//   any other manifold      Minus of the manifold
//   ProductManifold         of Ceres's: one after the other
//
// Derivatives are exact to rounding at turns of less than pi, and those of
// other manifolds, which have none of Minus, to about 1e-12 by differences.
class BlockMarginalPrior : public ceres::CostFunction {
 public:
  struct Block {
    int size = 0;  // values
    // Null: none. One that is not Ceres's, or a product with one, outlives the
    // prior.
    const ceres::Manifold* manifold = nullptr;
  };

  // references: the values of the blocks, one after the other; a: num_residuals
  // x the tangent sizes of all blocks, row-major; b: num_residuals. All are
  // copied. Returns null, with a sentence in *error (may be null), if a number
  // is less than 1, a manifold is of another size, a value is not finite or a
  // quaternion is zero.
  static std::unique_ptr<BlockMarginalPrior> Create(
      const std::vector<Block>& blocks,
      const double* references,
      int num_residuals,
      const double* a,
      const double* b,
      std::string* error);

  int num_blocks() const { return static_cast<int>(differences_.size()); }
  // The values of all blocks.
  const std::vector<double>& references() const { return references_; }
  // num_residuals() x num_columns(), row-major.
  const std::vector<double>& matrix() const { return matrix_; }
  const std::vector<double>& offset() const { return offset_; }
  int num_columns() const { return num_columns_; }
  // The first value and the first column of block k.
  int reference_begin(int k) const { return begin_[k].first; }
  int column_begin(int k) const { return begin_[k].second; }
  const internal::BlockDifference& difference(int k) const {
    return differences_[k];
  }

  bool Evaluate(double const* const* blocks,
                double* residuals,
                double** jacobians) const override;

 protected:
  BlockMarginalPrior() = default;
  // Returns what is not valid, as a predicate; empty if all is. plural: of the
  // blocks.
  std::string Set(std::vector<internal::BlockDifference> differences,
                  const char* plural,
                  const double* references,
                  int num_residuals,
                  const double* a,
                  const double* b);

 private:
  std::vector<internal::BlockDifference> differences_;
  std::vector<std::pair<int, int>> begin_;
  int num_columns_ = 0;
  int largest_block_ = 0;  // values times columns
  std::vector<double> references_;
  std::vector<double> matrix_;
  std::vector<double> offset_;
};

// The same of poses, each one block: the values of its Rotation
// (photogrammetry.h), then the translation. The difference of a pose has those
// of the rotation first:
//
//   quaternions  half the rotation vector of R R_0'
//   AngleAxis    the difference of the rotation vectors
//
// and t - t_0, in the unit of the points.
template <typename Rotation>
class MarginalPrior final : public BlockMarginalPrior {
 public:
  static constexpr int kPoseSize = Rotation::kSize + 3;
  static constexpr int kTangentSize = 6;

  // references: num_poses x kPoseSize; a: num_residuals x kTangentSize *
  // num_poses, row-major; b: num_residuals. The rest as of BlockMarginalPrior.
  static std::unique_ptr<MarginalPrior> Create(int num_poses,
                                               const double* references,
                                               int num_residuals,
                                               const double* a,
                                               const double* b,
                                               std::string* error) {
    std::unique_ptr<MarginalPrior> prior(new MarginalPrior());
    const std::string what =
        prior->Set(std::vector<internal::BlockDifference>(
                       num_poses > 0 ? num_poses : 0, DifferenceOfPose()),
                   "poses",
                   references,
                   num_residuals,
                   a,
                   b);
    if (what.empty()) {
      return prior;
    }
    if (error != nullptr) {
      *error = "a marginal prior " + what;
    }
    return nullptr;
  }

  int num_poses() const { return num_blocks(); }

  static internal::BlockDifference DifferenceOfPose() {
    using Kind = internal::BlockDifference::Kind;
    if constexpr (Rotation::kSize == 3) {
      return internal::BlockDifference(kPoseSize, nullptr);
    } else {
      constexpr Kind kRotation = std::is_same_v<Rotation, Quaternion>
                                     ? Kind::kQuaternion
                                     : Kind::kEigenQuaternion;
      return internal::BlockDifference(
          {{kRotation, 4, nullptr}, {Kind::kValues, 3, nullptr}});
    }
  }

 private:
  MarginalPrior() = default;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_MARGINAL_PRIOR_H_
