// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Clusters of random graphs, and their vectors against Eigen's eigenvectors.

#include "ceres_ext/solver/preconditioner/coarse_vectors.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "Eigen/Dense"
#include "ceres_ext/solver/preconditioner/clusters.h"
#include "ceres_ext/solver/preconditioner/coarse_units.h"
#include "cuda_kernels/machine/host_cholesky.h"
#include "cuda_kernels/structure/block_families.h"
#include "gtest/gtest.h"

namespace ceres_ext::solver {
namespace {

using kernels::HostDenseCholesky;
constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

constexpr int32_t kMeanSize = 90;
constexpr int32_t kMaxNeighbors = 20;

// Columns of each cluster; its number is of 0 .. num_clusters - 1, all of which
// occur.
std::vector<int64_t> Columns(const std::vector<int32_t>& size,
                             const std::vector<int32_t>& cluster,
                             int32_t num_clusters) {
  EXPECT_EQ(cluster.size(), size.size());
  std::vector<int64_t> columns(static_cast<size_t>(num_clusters), 0);
  for (size_t b = 0; b < cluster.size(); ++b) {
    EXPECT_GE(cluster[b], 0);
    EXPECT_LT(cluster[b], num_clusters);
    columns[cluster[b]] += size[b];
  }
  for (const int64_t c : columns) {
    EXPECT_GT(c, 0);
  }
  return columns;
}

std::vector<Coupling> Chain(int32_t first, int32_t last, double weight) {
  std::vector<Coupling> couplings;
  for (int32_t b = first; b + 1 < last; ++b) {
    couplings.push_back({b, b + 1, weight});
  }
  return couplings;
}

TEST(Clusters, OfNothing) {
  int32_t num_clusters = -1;
  EXPECT_TRUE(
      MakeClusters({}, {}, kMeanSize, kMaxNeighbors, &num_clusters).empty());
  EXPECT_EQ(num_clusters, 0);
}

TEST(Clusters, BlocksWithoutCouplingsStayAlone) {
  int32_t num_clusters = 0;
  const std::vector<int32_t> cluster =
      MakeClusters({9, 9, 9}, {}, kMeanSize, kMaxNeighbors, &num_clusters);
  EXPECT_EQ(num_clusters, 3);
  EXPECT_EQ(cluster, (std::vector<int32_t>{0, 1, 2}));
}

TEST(Clusters, OfAChainArePiecesOfTheSizeAskedFor) {
  for (const int32_t n : {2, 10, 20, 100, 1001}) {
    SCOPED_TRACE(n);
    const std::vector<int32_t> size(static_cast<size_t>(n), 9);
    int32_t num_clusters = 0;
    const std::vector<int32_t> cluster = MakeClusters(
        size, Chain(0, n, 1.0), kMeanSize, kMaxNeighbors, &num_clusters);
    const std::vector<int64_t> columns = Columns(size, cluster, num_clusters);
    EXPECT_LE(*std::max_element(columns.begin(), columns.end()), 2 * kMeanSize);
    if (n >= 20) {
      EXPECT_GE(int64_t{9} * n / num_clusters, kMeanSize / 2);
    }
    // A cluster of a chain that is matched by edges is a piece of it.
    int32_t num_cuts = 0;
    for (size_t b = 0; b + 1 < cluster.size(); ++b) {
      num_cuts += cluster[b] != cluster[b + 1] ? 1 : 0;
    }
    EXPECT_EQ(num_cuts, num_clusters - 1);
  }
}

// Strong couplings inside of groups, weak ones between. A group has pairs, and
// pairs of pairs.
TEST(Clusters, FollowStrongCouplings) {
  constexpr int32_t kGroups = 6;
  constexpr int32_t kOfGroup = 12;
  std::mt19937 generator(3);
  // Blocks of a group are not neighbours by their numbers.
  std::vector<int32_t> number(kGroups * kOfGroup);
  for (size_t b = 0; b < number.size(); ++b) {
    number[b] = static_cast<int32_t>(b);
  }
  std::shuffle(number.begin(), number.end(), generator);
  std::vector<Coupling> couplings;
  for (int32_t a = 0; a < kGroups * kOfGroup; ++a) {
    for (int32_t b = a + 1; b < kGroups * kOfGroup; ++b) {
      const bool is_inside = a / kOfGroup == b / kOfGroup;
      if (is_inside || (a + b) % 7 == 0) {
        couplings.push_back(
            {number[a],
             number[b],
             is_inside ? 1.0 + 1e-3 * (generator() % 100) : 1e-3});
      }
    }
  }
  const std::vector<int32_t> size(number.size(), 9);
  int32_t num_clusters = 0;
  const std::vector<int32_t> cluster =
      MakeClusters(size, couplings, 9 * kOfGroup / 3, 1000, &num_clusters);
  Columns(size, cluster, num_clusters);
  // None has blocks of two groups.
  for (int32_t a = 0; a < kGroups * kOfGroup; ++a) {
    for (int32_t b = 0; b < kGroups * kOfGroup; ++b) {
      if (cluster[number[a]] == cluster[number[b]]) {
        EXPECT_EQ(a / kOfGroup, b / kOfGroup) << a << ", " << b;
      }
    }
  }
}

TEST(Clusters, WhatAllShareStaysAlone) {
  constexpr int32_t kNumBlocks = 41;  // the last is coupled with all others
  std::vector<Coupling> couplings = Chain(0, kNumBlocks - 1, 1.0);
  for (int32_t b = 0; b + 1 < kNumBlocks; ++b) {
    couplings.push_back({b, kNumBlocks - 1, 10.0});
  }
  std::vector<int32_t> size(kNumBlocks, 6);
  size.back() = 3;
  int32_t num_clusters = 0;
  const std::vector<int32_t> cluster =
      MakeClusters(size, couplings, kMeanSize, kMaxNeighbors, &num_clusters);
  const std::vector<int64_t> columns = Columns(size, cluster, num_clusters);
  EXPECT_EQ(columns[cluster.back()], 3);
  EXPECT_GT(num_clusters, 2);
  EXPECT_LT(num_clusters, kNumBlocks / 4);
}

// Three ranks that have parts of the views, some of them the same ones, have
// the units of one, and each first column once.
void ExpectSameOfRanks(const kernels::BlockFamilies& f,
                       const std::vector<unsigned char>& varies,
                       int32_t columns,
                       const std::vector<int32_t>& column,
                       const CoarseUnits& units,
                       std::mt19937* generator) {
  const auto num_views = static_cast<int32_t>(units.of_view.size());
  std::vector<int32_t> view;  // of all ranks
  std::vector<int64_t> begin = {0};
  for (int rank = 0; rank < 3; ++rank) {
    for (int32_t v = 0; v < num_views; ++v) {
      if (rank == 0 || (*generator)() % 3 == 0) {
        view.push_back(v);
      }
    }
    begin.push_back(static_cast<int64_t>(view.size()));
  }
  std::vector<int32_t> all;
  for (const int32_t v : view) {
    all.insert(all.end(),
               column.begin() + columns * v,
               column.begin() + columns * (v + 1));
  }
  std::vector<int32_t> firsts;
  for (size_t rank = 0; rank < 3; ++rank) {
    const CoarseUnits own = MakeUnitsOfRank(
        f, varies, columns, all, begin[rank], begin[rank + 1] - begin[rank]);
    EXPECT_EQ(own.blocks.begin, units.blocks.begin);
    EXPECT_EQ(own.blocks.column, units.blocks.column);
    EXPECT_EQ(own.num_units, units.num_units);
    EXPECT_EQ(own.are_views, units.are_views);
    for (size_t i = 0; i < own.of_view.size(); ++i) {
      const int32_t v = view[begin[rank] + i];
      EXPECT_EQ(own.of_view[i], units.of_view[v]);
      for (int32_t j = 0; j < columns; ++j) {
        EXPECT_EQ(own.column[columns * i + j], units.column[columns * v + j]);
      }
    }
    firsts.insert(
        firsts.end(), own.first_column.begin(), own.first_column.end());
  }
  std::vector<int32_t> expected = units.first_column;
  for (std::vector<int32_t>* const of : {&firsts, &expected}) {
    of->erase(std::remove(of->begin(), of->end(), -1), of->end());
    std::sort(of->begin(), of->end());
  }
  EXPECT_EQ(firsts, expected);
}

// Each unknown of a view is in one block; views with a block in common are one
// unit, and what many share is alone.
TEST(Units, OfRandomViews) {
  std::mt19937 generator(5);
  const auto below = [&](int32_t n) {
    return static_cast<int32_t>(generator() % static_cast<unsigned>(n));
  };
  for (int trial = 0; trial < 200; ++trial) {
    SCOPED_TRACE(trial);
    constexpr int32_t kPose = 6;
    constexpr int32_t kCamera = 4;
    constexpr int32_t kColumns = 12;  // two of them empty
    const int32_t num_views = below(40);
    const int32_t num_poses = 1 + below(40);
    const int32_t num_cameras = 1 + below(trial % 2 == 0 ? 4 : 30);
    kernels::BlockFamilies f;
    f.Add(kPose, num_poses);
    f.Add(kCamera, num_cameras);
    std::vector<unsigned char> varies(static_cast<size_t>(f.num_values()));
    for (unsigned char& of_value : varies) {
      of_value = generator() % 8 == 0 ? 0 : 1;
    }
    std::vector<int32_t> column(static_cast<size_t>(kColumns * num_views), -1);
    std::vector<int32_t> pose;
    std::vector<int32_t> camera;
    for (int32_t v = 0; v < num_views; ++v) {
      pose.push_back(trial % 3 == 0 ? below(num_poses) : v % num_poses);
      camera.push_back(below(num_cameras));
      for (int32_t i = 0; i < kPose; ++i) {
        column[kColumns * v + i] = kPose * pose[v] + i;
      }
      for (int32_t i = 0; i < kCamera; ++i) {
        column[kColumns * v + kPose + i] =
            static_cast<int32_t>(f[1].value_begin + kCamera * camera[v] + i);
      }
    }
    const CoarseUnits units = MakeUnits(f, varies, kColumns, column);
    const auto is_shared = [&](const std::vector<int32_t>& of_view,
                               int32_t block,
                               int32_t first,
                               int32_t size) {
      return std::any_of(varies.begin() + first,
                         varies.begin() + first + size,
                         [](unsigned char of) { return of != 0; }) &&
             std::count(of_view.begin(), of_view.end(), block) >
                 kMostViewsOfBlock;
    };
    std::vector<int32_t> block_of(varies.size(), -1);
    for (int32_t b = 0; b < units.blocks.size(); ++b) {
      for (int32_t u = units.blocks.begin[b]; u < units.blocks.begin[b + 1];
           ++u) {
        const int64_t at = units.blocks.column[u];
        EXPECT_EQ(block_of[at], -1);
        EXPECT_NE(varies[at], 0);
        block_of[at] = b;
      }
    }
    int32_t num_shared = 0;
    for (int32_t c = 0; c < num_cameras; ++c) {
      num_shared +=
          is_shared(camera, c, kPose * num_poses + kCamera * c, kCamera) ? 1
                                                                         : 0;
    }
    for (int32_t p = 0; p < num_poses; ++p) {
      num_shared += is_shared(pose, p, kPose * p, kPose) ? 1 : 0;
    }
    EXPECT_EQ(units.num_shared(), num_shared);
    bool are_views = true;
    for (int32_t v = 0; v < num_views; ++v) {
      for (int32_t i = 0; i < kPose + kCamera; ++i) {
        const int32_t at = column[kColumns * v + i];
        const bool of_pose = i < kPose;
        const int32_t first =
            of_pose ? kPose * pose[v] : kPose * num_poses + kCamera * camera[v];
        const bool shared = is_shared(of_pose ? pose : camera,
                                      of_pose ? pose[v] : camera[v],
                                      first,
                                      of_pose ? kPose : kCamera);
        if (varies[at] == 0) {
          EXPECT_EQ(block_of[at], -1);
          EXPECT_EQ(units.column[kColumns * v + i], -1);
        } else if (shared) {
          EXPECT_GE(block_of[at], units.num_units);
          EXPECT_EQ(units.column[kColumns * v + i], -1);
        } else {
          EXPECT_EQ(block_of[at], units.of_view[v]);
          EXPECT_EQ(units.column[kColumns * v + i], at);
        }
      }
      are_views = are_views && units.of_view[v] == v;
    }
    EXPECT_EQ(units.are_views, are_views);
    std::set<std::pair<int32_t, int32_t>> views;
    for (int32_t v = 0; v < num_views; ++v) {
      views.insert({pose[v], camera[v]});
    }
    if (views.size() == static_cast<size_t>(num_views)) {
      ExpectSameOfRanks(f, varies, kColumns, column, units, &generator);
    }
    // No column is the first of two views, and each is of one.
    std::vector<int32_t> first = units.first_column;
    first.erase(std::remove(first.begin(), first.end(), -1), first.end());
    std::sort(first.begin(), first.end());
    EXPECT_EQ(std::adjacent_find(first.begin(), first.end()), first.end());
    EXPECT_EQ(static_cast<int64_t>(first.size()),
              units.blocks.begin[static_cast<size_t>(units.num_units)]);
  }
}

TEST(Clusters, OfRandomGraphsHaveTheirLimits) {
  std::mt19937 generator(11);
  for (int trial = 0; trial < 50; ++trial) {
    SCOPED_TRACE(trial);
    const auto n = static_cast<int32_t>(1 + generator() % 200);
    std::vector<int32_t> size;
    for (int32_t b = 0; b < n; ++b) {
      // Some are larger than a cluster should be.
      size.push_back(static_cast<int32_t>(
          generator() % 20 == 0 ? 300 : 1 + generator() % 12));
    }
    std::vector<Coupling> couplings;
    for (int32_t a = 0; a < n; ++a) {
      for (int32_t b = a + 1; b < n; ++b) {
        if (generator() % static_cast<unsigned>(n) < 4) {
          couplings.push_back(
              {a, b, std::ldexp(1.0 + generator() % 7, -(a % 40))});
        }
      }
    }
    int32_t num_clusters = 0;
    const std::vector<int32_t> cluster =
        MakeClusters(size, couplings, kMeanSize, kMaxNeighbors, &num_clusters);
    const std::vector<int64_t> columns = Columns(size, cluster, num_clusters);
    std::vector<int32_t> num_blocks(static_cast<size_t>(num_clusters), 0);
    for (const int32_t c : cluster) {
      ++num_blocks[c];
    }
    for (int32_t c = 0; c < num_clusters; ++c) {
      if (num_blocks[c] > 1) {
        EXPECT_LE(columns[c], 2 * kMeanSize);
      }
    }
  }
}

// N of a chain of blocks with weak springs between them and to the ground, so
// that long bends are soft; B is its block diagonal.
struct Chained {
  ClusterSystem system;
  Eigen::MatrixXd n;
  Eigen::MatrixXd b;
};
Chained MakeChained(const std::vector<int32_t>& block_size,
                    double ground,
                    unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  Chained made;
  made.system.block_size = block_size;
  int64_t n = 0;
  for (const int32_t size : block_size) {
    n += size;
  }
  made.system.n = n;
  // Rows couple two blocks each.
  Eigen::MatrixXd a = Eigen::MatrixXd::Zero(3 * n, n);
  int64_t row = 0;
  int64_t begin = 0;
  for (size_t k = 0; k + 1 < block_size.size(); ++k) {
    const int64_t next = begin + block_size[k];
    for (int i = 0; i < block_size[k]; ++i, ++row) {
      for (int64_t j = begin; j < next; ++j) {
        a(row, j) = normal(generator);
      }
      for (int64_t j = next; j < next + block_size[k + 1]; ++j) {
        a(row, j) = normal(generator);
      }
    }
    begin = next;
  }
  made.n = a.transpose() * a;
  made.n.diagonal().array() += ground;
  made.b = Eigen::MatrixXd::Zero(n, n);
  begin = 0;
  for (const int32_t size : block_size) {
    made.b.block(begin, begin, size, size) =
        made.n.block(begin, begin, size, size);
    for (int32_t j = 0; j < size; ++j) {
      for (int32_t i = 0; i < size; ++i) {
        made.system.blocks.push_back(made.n(begin + i, begin + j));
      }
    }
    begin += size;
  }
  const int64_t stride = HostDenseCholesky::Stride(n);
  made.system.matrix.assign(static_cast<size_t>(stride * n), 0.0);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = j; i < n; ++i) {
      made.system.matrix[static_cast<size_t>(stride * j + i)] = made.n(i, j);
    }
  }
  return made;
}

Eigen::MatrixXd FindVectors(int32_t m, Chained* made) {
  std::vector<double> vectors;
  const kernels::Status status =
      FindCoarseVectors(m, 7, &made->system, &vectors);
  EXPECT_TRUE(status.ok()) << status.message;
  EXPECT_EQ(vectors.size(), static_cast<size_t>(made->n.rows() * m));
  return Eigen::Map<
      const Eigen::
          Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>(
      vectors.data(), made->n.rows(), m);
}

// The eigenvalues outside of the span determine the work of PCG: of all vectors
// that are B-orthogonal to the span, the lowest quotient. Two steps of subspace
// iteration from random vectors reach half of the best.
TEST(CoarseVectors, SpanTheSoftDirections) {
  constexpr int32_t kNumVectors = 12;
  for (unsigned seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    Chained made =
        MakeChained(std::vector<int32_t>(20, 9), /*ground=*/1e-4, seed);
    const Eigen::MatrixXd p = FindVectors(kNumVectors, &made);
    const int64_t n = made.n.rows();
    const Eigen::MatrixXd gram = p.transpose() * made.b * p;
    EXPECT_LE((gram - Eigen::MatrixXd::Identity(kNumVectors, kNumVectors))
                  .cwiseAbs()
                  .maxCoeff(),
              100.0 * static_cast<double>(n) * kEpsilon);
    const Eigen::GeneralizedSelfAdjointEigenSolver<Eigen::MatrixXd> all(made.n,
                                                                        made.b);
    // B^(1/2) is a Cholesky factor.
    const Eigen::MatrixXd l = made.b.llt().matrixL();
    const Eigen::MatrixXd in_span = l.transpose() * p;
    const Eigen::HouseholderQR<Eigen::MatrixXd> qr(in_span);
    const Eigen::MatrixXd q = qr.householderQ();
    const Eigen::MatrixXd rest = q.rightCols(n - kNumVectors);
    const Eigen::MatrixXd scaled =
        l.triangularView<Eigen::Lower>().solve(Eigen::MatrixXd(
            l.triangularView<Eigen::Lower>().solve(made.n).transpose()));
    const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> left(rest.transpose() *
                                                              scaled * rest);
    EXPECT_GE(left.eigenvalues()(0), 0.5 * all.eigenvalues()(kNumVectors))
        << all.eigenvalues().head(2 * kNumVectors).transpose();
  }
}

TEST(CoarseVectors, AreAllThatThereAreOfASmallCluster) {
  Chained made = MakeChained({3, 2}, 1e-2, 1);
  const Eigen::MatrixXd p = FindVectors(12, &made);
  const Eigen::MatrixXd gram = p.transpose() * made.b * p;
  for (int i = 0; i < 12; ++i) {
    for (int j = 0; j < 12; ++j) {
      EXPECT_NEAR(gram(i, j), i == j && i < 5 ? 1.0 : 0.0, 1e-12);
    }
  }
}

// The same input gives the same bits, another seed other vectors.
TEST(CoarseVectors, AreTheSameInEveryRun) {
  std::vector<double> first;
  for (int run = 0; run < 3; ++run) {
    Chained made = MakeChained(std::vector<int32_t>(6, 6), 1e-3, 2);
    std::vector<double> vectors;
    ASSERT_TRUE(
        FindCoarseVectors(4, run < 2 ? 5 : 6, &made.system, &vectors).ok());
    if (run == 0) {
      first = vectors;
    }
    EXPECT_EQ(vectors == first, run < 2);
  }
}

// For an indefinite matrix.
TEST(CoarseVectors, AreLeftOutWhereThereIsNoFactor) {
  Chained made = MakeChained({3, 3, 3}, 1e-2, 1);
  const int64_t stride = HostDenseCholesky::Stride(made.n.rows());
  made.system.matrix[static_cast<size_t>(stride * 4 + 4)] = -1.0;
  const Eigen::MatrixXd p = FindVectors(4, &made);
  EXPECT_EQ(p.cwiseAbs().maxCoeff(), 0.0);
}

}  // namespace
}  // namespace ceres_ext::solver
