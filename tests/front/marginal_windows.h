// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Windows of any blocks and rows for tests of ceres_ext/marginalize.h, and the
// prior that is expected of them, in quadruple precision.

#ifndef CERES_EXT_TESTS_FRONT_MARGINAL_WINDOWS_H_
#define CERES_EXT_TESTS_FRONT_MARGINAL_WINDOWS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "ceres/cost_function.h"
#include "ceres/loss_function.h"
#include "ceres/manifold.h"
#include "ceres/product_manifold.h"
#include "ceres_ext/marginalize.h"
#include "gtest/gtest.h"
#include "tests/front/quad_marginal.h"

namespace ceres_ext {

using PoseManifold = ceres::ProductManifold<ceres::EigenQuaternionManifold,
                                            ceres::EuclideanManifold<3>>;

// A window of any blocks, as arrays.
struct Window {
  struct Blocks {
    int size;
    ceres::Manifold* manifold;
    std::vector<double> values;
    std::vector<uint8_t> is_constant;
    std::vector<uint8_t> is_dropped;
    int64_t n() const { return static_cast<int64_t>(values.size()) / size; }
  };
  struct Rows {
    std::vector<int> arrays;
    std::vector<std::vector<int32_t>> blocks;  // by slot
    std::vector<std::shared_ptr<ceres::CostFunction>> owned;
    std::vector<ceres::CostFunction*> cost_functions;
    ceres::LossFunction* loss = nullptr;
    std::vector<double> weights;  // empty: none
    std::vector<uint8_t> is_cut;
  };
  std::vector<Blocks> blocks;
  std::vector<Rows> rows;

  ArrayProblem MakeArrays() {
    ArrayProblem problem;
    for (Blocks& b : blocks) {
      ArrayProblem::Parameters p{b.values.data(), b.n(), b.size};
      p.manifold = b.manifold;
      p.is_constant = b.is_constant.data();
      problem.AddParameters(p);
    }
    for (Rows& r : rows) {
      ArrayProblem::Residuals residuals;
      residuals.num_blocks = static_cast<int64_t>(r.cost_functions.size());
      residuals.cost_functions = r.cost_functions.data();
      residuals.loss = r.loss;
      residuals.weights = r.weights.empty() ? nullptr : r.weights.data();
      for (size_t s = 0; s < r.arrays.size(); ++s) {
        residuals.blocks.push_back({r.arrays[s], r.blocks[s].data()});
      }
      problem.AddResiduals(residuals);
    }
    return problem;
  }
  BlocksToDrop Drop() const {
    BlocksToDrop drop;
    for (const Blocks& b : blocks) {
      drop.parameter_is_dropped.push_back(b.is_dropped.data());
    }
    for (const Rows& r : rows) {
      drop.residual_is_cut.push_back(r.is_cut.empty() ? nullptr
                                                      : r.is_cut.data());
    }
    return drop;
  }
  bool DependsOnDropped(const Rows& r, size_t k) const {
    for (size_t s = 0; s < r.arrays.size(); ++s) {
      if (blocks[r.arrays[s]].is_dropped[r.blocks[s][k]] != 0) {
        return true;
      }
    }
    return false;
  }
  void AddRow(Rows* r,
              std::vector<int32_t> of_slots,
              std::shared_ptr<ceres::CostFunction> cost_function) {
    r->blocks.resize(of_slots.size());
    for (size_t s = 0; s < of_slots.size(); ++s) {
      r->blocks[s].push_back(of_slots[s]);
    }
    r->cost_functions.push_back(cost_function.get());
    r->owned.push_back(std::move(cost_function));
  }
};

using BlockName = std::pair<int, int32_t>;

// The prior in quadruple precision, of J at `references` (blocks without one:
// at their values).
struct Expected {
  Expected(const Window& window,
           const std::map<BlockName, std::vector<double>>& references) {
    std::map<BlockName, size_t> column;
    size_t num_dropped = 0;
    for (const bool dropped : {true, false}) {
      for (size_t a = 0; a < window.blocks.size(); ++a) {
        const Window::Blocks& b = window.blocks[a];
        for (int32_t i = 0; i < b.n(); ++i) {
          const BlockName name{static_cast<int>(a), i};
          if ((b.is_dropped[i] != 0) != dropped || b.is_constant[i] != 0 ||
              !IsUsed(window, name)) {
            continue;
          }
          column[name] = num_columns;
          const int t =
              b.manifold == nullptr ? b.size : b.manifold->TangentSize();
          num_columns += t;
          if (!dropped) {
            kept.push_back(name);
            kept_columns.push_back(t);
          }
        }
      }
      if (dropped) {
        num_dropped = num_columns;
      }
    }
    QuadMatrix matrix(num_columns + 1);
    for (const Window::Rows& r : window.rows) {
      for (size_t k = 0; k < r.cost_functions.size(); ++k) {
        if (window.DependsOnDropped(r, k) &&
            (r.is_cut.empty() || r.is_cut[k] == 0)) {
          AddRow(window, r, k, column, references, &matrix);
          ++num_rows;
        }
      }
    }
    has_rows = !matrix[0].empty() || !matrix.back().empty();
    if (has_rows) {
      marginal = std::make_unique<QuadMarginal>(num_dropped, matrix);
    }
    num_dropped_columns = static_cast<int>(num_dropped);
  }

  static bool IsUsed(const Window& window, const BlockName& name) {
    for (const Window::Rows& r : window.rows) {
      for (size_t k = 0; k < r.cost_functions.size(); ++k) {
        for (size_t s = 0; s < r.arrays.size(); ++s) {
          if (r.arrays[s] == name.first && r.blocks[s][k] == name.second &&
              window.DependsOnDropped(r, k) &&
              (r.is_cut.empty() || r.is_cut[k] == 0)) {
            return true;
          }
        }
      }
    }
    return false;
  }

  static void AddRow(const Window& window,
                     const Window::Rows& r,
                     size_t k,
                     const std::map<BlockName, size_t>& column,
                     const std::map<BlockName, std::vector<double>>& references,
                     QuadMatrix* matrix) {
    const ceres::CostFunction& cost_function = *r.cost_functions[k];
    const int m = cost_function.num_residuals();
    std::vector<const double*> x;
    std::vector<const double*> x_0;
    std::vector<std::vector<double>> ambient;
    std::vector<double*> jacobians;
    for (size_t s = 0; s < r.arrays.size(); ++s) {
      const Window::Blocks& b = window.blocks[r.arrays[s]];
      x.push_back(&b.values[int64_t{b.size} * r.blocks[s][k]]);
      const auto found = references.find({r.arrays[s], r.blocks[s][k]});
      x_0.push_back(found == references.end() ? x.back()
                                              : found->second.data());
      ambient.emplace_back(m * b.size);
    }
    for (auto& values : ambient) {
      jacobians.push_back(values.data());
    }
    std::vector<double> residuals(m);
    std::vector<double> ignored(m);
    ASSERT_TRUE(cost_function.Evaluate(x.data(), residuals.data(), nullptr));
    ASSERT_TRUE(
        cost_function.Evaluate(x_0.data(), ignored.data(), jacobians.data()));
    // Ceres's correction (Triggs).
    Quad s = 0;
    for (const double value : residuals) {
      s += Quad{value} * value;
    }
    double rho[3] = {static_cast<double>(s), 1.0, 0.0};
    if (r.loss != nullptr) {
      r.loss->Evaluate(static_cast<double>(s), rho);
    }
    const Quad weight = r.weights.empty() ? 1.0 : r.weights[k];
    const Quad slope = Sqrt(weight * rho[1]);
    Quad root = 1;
    if (s > 0 && rho[2] > 0.0) {
      root = Sqrt(1 + 2 * s * rho[2] / rho[1]);
    }
    std::vector<Quad> r_corrected;
    for (const double value : residuals) {
      r_corrected.push_back(slope / root * value);
    }
    const size_t first = matrix->back().size();
    for (auto& of_column : *matrix) {
      of_column.resize(first + m);
    }
    for (size_t slot = 0; slot < r.arrays.size(); ++slot) {
      const auto place = column.find({r.arrays[slot], r.blocks[slot][k]});
      if (place == column.end()) {
        continue;
      }
      const Window::Blocks& b = window.blocks[r.arrays[slot]];
      const int t = b.manifold == nullptr ? b.size : b.manifold->TangentSize();
      std::vector<double> plus(b.size * t, 0.0);
      std::vector<double> shift(t);
      if (b.manifold == nullptr) {
        for (int e = 0; e < t; ++e) {
          plus[(t + 1) * e] = 1.0;
          shift[e] = x[slot][e] - x_0[slot][e];
        }
      } else {
        ASSERT_TRUE(b.manifold->PlusJacobian(x_0[slot], plus.data()));
        ASSERT_TRUE(b.manifold->Minus(x[slot], x_0[slot], shift.data()));
      }
      for (int c = 0; c < t; ++c) {
        std::vector<Quad> j(m, 0);
        Quad rj = 0;
        for (int i = 0; i < m; ++i) {
          for (int e = 0; e < b.size; ++e) {
            j[i] += Quad{ambient[slot][b.size * i + e]} * plus[t * e + c];
          }
          rj += residuals[i] * j[i];
        }
        for (int i = 0; i < m; ++i) {
          const Quad alpha_over_s = s > 0 ? (1 - root) / s : Quad{0};
          const Quad value = slope * (j[i] - alpha_over_s * residuals[i] * rj);
          (*matrix)[place->second + c][first + i] = value;
          r_corrected[i] -= value * shift[c];
        }
      }
    }
    for (int i = 0; i < m; ++i) {
      matrix->back()[first + i] = r_corrected[i];
    }
  }

  std::vector<BlockName> kept;
  std::vector<int> kept_columns;
  size_t num_columns = 0;
  int num_dropped_columns = 0;
  int64_t num_rows = 0;
  bool has_rows = false;
  std::unique_ptr<QuadMarginal> marginal;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_FRONT_MARGINAL_WINDOWS_H_
