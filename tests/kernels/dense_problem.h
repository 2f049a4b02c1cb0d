// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Small random problems for tests, with their matrices in dense form.
//
// Columns of J are [E F]: 3 per point, then C per camera. Dense matrices are
// made from the stored values, so they are exact whatever the storage type.
#ifndef CERES_EXT_TESTS_KERNELS_DENSE_PROBLEM_H_
#define CERES_EXT_TESTS_KERNELS_DENSE_PROBLEM_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "Eigen/Dense"
#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/structure/host_workspace.h"
#include "cuda_kernels/structure/observation_index.h"
#include "gtest/gtest.h"
#include "tests/kernels/structures.h"

namespace ceres_ext::kernels {

using Eigen::MatrixXd;
using Eigen::VectorXd;

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
constexpr double kFloatEpsilon = std::numeric_limits<float>::epsilon();

// A random linear system of a structure, in host layout.
template <typename T, int C>
class DenseProblem {
 public:
  using Source = StoredJacobian<T, BalShape<C>, kHostLayout>;

  DenseProblem(const Structure& structure, unsigned seed, int num_threads = 2)
      : machine(num_threads), generator_(seed) {
    EXPECT_TRUE(index_.Build(structure.pairs()).ok());
    EXPECT_TRUE(workspace.Setup(index_.ref(), &machine, C).ok());
    // All that NormalBlocks gives per camera.
    EXPECT_TRUE(workspace.ReserveCameraSums(2 * (PackedSize(C) + C)).ok());
    jc.resize(2 * C * num_observations());
    jp.resize(6 * num_observations());
    for (T& value : jc) {
      value = static_cast<T>(Normal());
    }
    for (T& value : jp) {
      value = static_cast<T>(Normal());
    }
    b = RandomVector(2 * num_observations());
    // LM diagonals between 0.5 and 1.5.
    camera_diagonal = VectorXd::Ones(C * num_cameras()) +
                      0.5 * UniformVector(C * num_cameras());
    point_diagonal = VectorXd::Ones(3 * num_points()) +
                     0.5 * UniformVector(3 * num_points());
  }

  // Makes columns inactive as set-up pads them: zero, with a unit diagonal.
  // Camera columns from `first` on, all of camera 0, and column 1 of each third
  // point.
  void Pad(int first) {
    const ObservationIndexRef& view = index();
    for (int64_t k = 0; k < num_observations(); ++k) {
      for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < C; ++j) {
          if (j >= first || view.camera_id[k] == 0) {
            jc[2 * C * k + C * i + j] = 0;
          }
        }
        if (view.point_id[k] % 3 == 0) {
          jp[6 * k + 3 * i + 1] = 0;
        }
      }
    }
    for (int64_t c = 0; c < num_cameras(); ++c) {
      for (int j = 0; j < C; ++j) {
        if (j >= first || c == 0) {
          camera_diagonal[C * c + j] = 1.0;
        }
      }
    }
    for (int64_t p = 0; p < num_points(); p += 3) {
      point_diagonal[3 * p + 1] = 1.0;
    }
  }

  const ObservationIndexRef& index() const { return workspace.index(); }
  int64_t num_cameras() const { return index().num_cameras; }
  int64_t num_points() const { return index().num_points; }
  int64_t num_observations() const { return index().num_observations; }
  int64_t num_e() const { return 3 * num_points(); }
  int64_t num_f() const { return C * num_cameras(); }
  int64_t num_columns() const { return num_e() + num_f(); }

  Source source() const {
    return {{jc.data(), num_observations()}, {jp.data(), num_observations()}};
  }

  MatrixXd E() const {
    MatrixXd e = MatrixXd::Zero(2 * num_observations(), num_e());
    for (int64_t k = 0; k < num_observations(); ++k) {
      for (int i = 0; i < 6; ++i) {
        e(2 * k + i / 3, 3 * index().point_id[k] + i % 3) = jp[6 * k + i];
      }
    }
    return e;
  }
  MatrixXd F() const {
    MatrixXd f = MatrixXd::Zero(2 * num_observations(), num_f());
    for (int64_t k = 0; k < num_observations(); ++k) {
      for (int i = 0; i < 2 * C; ++i) {
        f(2 * k + i / C, C * index().camera_id[k] + i % C) = jc[2 * C * k + i];
      }
    }
    return f;
  }
  MatrixXd J() const {
    MatrixXd j(2 * num_observations(), num_columns());
    j << E(), F();
    return j;
  }
  // Without damping, E'E of a point that is seen once is singular.
  bool HasPointSeenOnce() const {
    for (int64_t p = 0; p < num_points(); ++p) {
      if (index().point_begin[p + 1] - index().point_begin[p] == 1) {
        return true;
      }
    }
    return false;
  }
  MatrixXd DampingE(bool damped) const {
    return Damping(damped, point_diagonal);
  }
  MatrixXd DampingF(bool damped) const {
    return Damping(damped, camera_diagonal);
  }

  double Normal() { return normal_(generator_); }
  VectorXd RandomVector(int64_t n) {
    return VectorXd::NullaryExpr(n, [this] { return Normal(); });
  }
  VectorXd UniformVector(int64_t n) {
    std::uniform_real_distribution<double> uniform(-1.0, 1.0);
    return VectorXd::NullaryExpr(n, [&] { return uniform(generator_); });
  }

  HostMachine machine;
  HostWorkspace workspace;
  std::vector<T> jc;
  std::vector<T> jp;
  VectorXd b;
  VectorXd camera_diagonal;
  VectorXd point_diagonal;

 private:
  static MatrixXd Damping(bool damped, const VectorXd& diagonal) {
    MatrixXd matrix = MatrixXd::Zero(diagonal.size(), diagonal.size());
    if (damped) {
      matrix.diagonal() = diagonal.array().square();
    }
    return matrix;
  }

  ObservationIndex index_;
  std::mt19937 generator_;
  std::normal_distribution<double> normal_;
};

// The inverse of a block-diagonal matrix of 3 x 3 blocks, zero columns counted
// as unit columns, and, in every element of a block of *bound, what its norm
// times its condition number is: the scale of the rounding of its inverse.
inline MatrixXd InversePointBlocks(const MatrixXd& matrix, MatrixXd* bound) {
  MatrixXd inverse = MatrixXd::Zero(matrix.rows(), matrix.cols());
  *bound = inverse;
  for (int64_t i = 0; i < matrix.rows(); i += 3) {
    Eigen::Matrix3d block = matrix.block<3, 3>(i, i);
    for (int j = 0; j < 3; ++j) {
      if (block(j, j) == 0.0) {
        block(j, j) = 1.0;
      }
    }
    const Eigen::Vector3d values =
        Eigen::SelfAdjointEigenSolver<Eigen::Matrix3d>(block).eigenvalues();
    EXPECT_GT(values[0], 0.0);
    inverse.block<3, 3>(i, i) = block.inverse();
    bound->block<3, 3>(i, i).setConstant(values[2] / values[0] / values[0]);
  }
  return inverse;
}

// |actual - expected| <= bound, element by element.
inline void ExpectWithin(const VectorXd& actual,
                         const VectorXd& expected,
                         const VectorXd& bound) {
  ASSERT_EQ(actual.size(), expected.size());
  ASSERT_EQ(actual.size(), bound.size());
  for (int64_t i = 0; i < actual.size(); ++i) {
    // Written so that NaN fails.
    EXPECT_TRUE(std::abs(actual[i] - expected[i]) <= bound[i])
        << "element " << i << ": " << actual[i] << " against " << expected[i]
        << ", bound " << bound[i];
  }
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_TESTS_KERNELS_DENSE_PROBLEM_H_
