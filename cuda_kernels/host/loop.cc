// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "cuda_kernels/machine/host_context.h"
#include "cuda_kernels/ops/loop.h"

namespace ceres_ext::kernels::host {
namespace {

// Elements, or blocks, that a thread handles at a time.
constexpr int64_t kGrain = 4096;

template <typename Function>
void ForEach(int64_t n, HostContext* context, Function&& fn) {
  context->ParallelFor(n, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      fn(i);
    }
  });
}

struct TwoSums {
  double first = 0.0;
  double second = 0.0;
};

struct Add {
  static double Combine(double a, double b) { return a + b; }
};
// NaN where one of them is.
struct Max {
  static double Combine(double a, double b) {
    return std::isnan(a) || a > b ? a : b;
  }
};

// Lane 0 of 256 after butterflies over 32 lanes, then the warps from 0 on.
template <typename First>
TwoSums CombineLanes(TwoSums* lanes) {
  constexpr int kWarp = 32;
  TwoSums result;
  for (int w = 0; w < kLoopLanes; w += kWarp) {
    TwoSums* lane = lanes + w;
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
      for (int t = 0; t < offset; ++t) {
        lane[t].first = First::Combine(lane[t].first, lane[t + offset].first);
        lane[t].second += lane[t + offset].second;
      }
    }
    result.first = First::Combine(result.first, lane[0].first);
    result.second += lane[0].second;
  }
  return result;
}

// Calls fn(i, sums) for each element: it adds the element to *sums, and with
// First = Max takes the larger one for `first`, which is >= 0. The loop order.
template <typename First, typename Function>
TwoSums Sum(int64_t n, HostContext* context, Function&& fn) {
  const int64_t num_blocks = LoopSumBlocks(n);
  TwoSums partial[kMaxLoopSumBlocks];
  context->ParallelFor(num_blocks, 1, [&](int64_t block, int64_t) {
    TwoSums lanes[kLoopLanes];
    for (int64_t begin = block * kLoopLanes; begin < n;
         begin += num_blocks * kLoopLanes) {
      const int count =
          static_cast<int>(std::min<int64_t>(kLoopLanes, n - begin));
      for (int t = 0; t < count; ++t) {
        fn(begin + t, &lanes[t]);
      }
    }
    partial[block] = CombineLanes<First>(lanes);
  });
  TwoSums lanes[kLoopLanes];
  for (int64_t i = 0; i < num_blocks; ++i) {
    TwoSums& lane = lanes[i % kLoopLanes];
    lane.first = First::Combine(lane.first, partial[i].first);
    lane.second += partial[i].second;
  }
  return CombineLanes<First>(lanes);
}

bool IsValid(double x) { return std::isfinite(x) && x != kImpossibleValue; }

// x + sum_j P_j d_j over the nonzero P_j, begin <= j < end.
double PlusLinear(
    double x, const double* P, const double* delta, int begin, int end) {
  for (int j = begin; j < end; ++j) {
    if (P[j] != 0.0) {
      x += P[j] * delta[j];
    }
  }
  return x;
}

// q_delta q, q_delta = (cos |d|, sin |d| d / |d|), w first.
void PlusQuaternion(const double* state,
                    const double* delta,
                    double* state_plus_delta) {
  const double norm = std::hypot(delta[0], delta[1], delta[2]);
  const double x[4] = {state[0], state[1], state[2], state[3]};
  if (norm == 0.0) {
    std::copy_n(x, 4, state_plus_delta);
    return;
  }
  const double scale = std::sin(norm) / norm;
  const double q[4] = {
      std::cos(norm), scale * delta[0], scale * delta[1], scale * delta[2]};
  double* y = state_plus_delta;
  y[0] = q[0] * x[0] - q[1] * x[1] - q[2] * x[2] - q[3] * x[3];
  y[1] = q[0] * x[1] + q[1] * x[0] + q[2] * x[3] - q[3] * x[2];
  y[2] = q[0] * x[2] - q[1] * x[3] + q[2] * x[0] + q[3] * x[1];
  y[3] = q[0] * x[3] + q[1] * x[2] - q[2] * x[1] + q[3] * x[0];
}

}  // namespace

void GatherTangent(const GatherTangentParams& params, HostContext* context) {
  const BlockTableView& table = params.table;
  ForEach(table.num_blocks, context, [&](int64_t i) {
    const int size = table.tangent_size[i];
    double* block = params.padded + i * table.padded_size;
    if (size > 0) {
      std::copy_n(params.vector + table.tangent_offset[i], size, block);
    }
    std::fill(block + size, block + table.padded_size, params.padding);
  });
}

void ScatterTangent(const ScatterTangentParams& params, HostContext* context) {
  const BlockTableView& table = params.table;
  ForEach(table.num_blocks, context, [&](int64_t i) {
    const int size = table.tangent_size[i];
    if (size > 0) {
      std::copy_n(params.padded + i * table.padded_size,
                  size,
                  params.vector + table.tangent_offset[i]);
    }
  });
}

void GatherState(const GatherStateParams& params, HostContext* context) {
  const BlockTableView& table = params.table;
  ForEach(table.num_blocks, context, [&](int64_t i) {
    const int64_t place = i * table.ambient_size;
    std::copy_n(table.state_offset[i] < 0
                    ? table.constant_values + place
                    : params.state + table.state_offset[i],
                table.ambient_size,
                params.ambient + place);
  });
}

void SetPadding(const SetPaddingParams& params, HostContext* context) {
  const BlockTableView& table = params.table;
  ForEach(table.num_blocks, context, [&](int64_t i) {
    double* block = params.padded + i * table.padded_size;
    double* padding = block + table.tangent_size[i];
    std::fill(block, padding, params.active_value);
    std::fill(padding, block + table.padded_size, params.padding);
  });
}

void GatherPairs(const GatherPairsParams& params, HostContext* context) {
  ForEach(params.n, context, [&](int64_t k) {
    std::copy_n(
        params.in + 2 * int64_t{params.source[k]}, 2, params.out + 2 * k);
  });
}

void CameraTangents(const CameraTangentsParams& params, HostContext* context) {
  const int64_t A = params.ambient_size;
  const int64_t C = params.padded_size;
  ForEach(params.num_cameras, context, [&](int64_t c) {
    if (params.kind[c] != ManifoldKind::kQuaternion) {
      return;
    }
    const double* q = params.cameras + A * c;
    const double corner[4][3] = {{-q[1], -q[2], -q[3]},
                                 {q[0], q[3], -q[2]},
                                 {-q[3], q[0], q[1]},
                                 {q[2], -q[1], q[0]}};
    for (int i = 0; i < 4; ++i) {
      std::copy_n(corner[i], 3, params.tangents + A * C * c + C * i);
    }
  });
}

void Plus(const PlusParams& params, HostContext* context) {
  const BlockTableView& table = params.table;
  ForEach(table.num_blocks, context, [&](int64_t block) {
    if (table.state_offset[block] < 0) {
      return;
    }
    const int columns = table.tangent_size[block];
    const double* x = params.state + table.state_offset[block];
    const double* delta =
        columns > 0 ? params.delta + table.tangent_offset[block] : nullptr;
    double* y = params.state_plus_delta + table.state_offset[block];
    int row = 0;
    int column = 0;
    if (params.kind != nullptr &&
        params.kind[block] == ManifoldKind::kQuaternion) {
      PlusQuaternion(x, delta, y);
      row = 4;
      column = 3;
    }
    const int shift = row - column;
    for (; row < table.ambient_size; ++row) {
      if (params.linear != nullptr) {
        const double* P = params.linear + (block * table.ambient_size + row) *
                                              table.padded_size;
        y[row] = PlusLinear(x[row], P, delta, column, columns);
      } else {
        y[row] = row - shift < columns ? x[row] + delta[row - shift] : x[row];
      }
    }
  });
}

void Copy(const CopyParams& params, HostContext* context) {
  ForEach(params.n, context, [&](int64_t i) { params.y[i] = params.x[i]; });
}

void SetConstant(const SetConstantParams& params, HostContext* context) {
  ForEach(params.n, context, [&](int64_t i) { params.x[i] = params.value; });
}

void Negate(const NegateParams& params, HostContext* context) {
  ForEach(params.n, context, [&](int64_t i) { params.y[i] = -params.x[i]; });
}

void AddVectors(const AddVectorsParams& params, HostContext* context) {
  ForEach(params.n, context, [&](int64_t i) {
    params.z[i] = params.x[i] + params.y[i];
  });
}

void Multiply(const MultiplyParams& params, HostContext* context) {
  ForEach(params.n, context, [&](int64_t i) {
    params.z[i] = params.x[i] * params.y[i];
  });
}

template <typename T>
void Cast(const CastParams<T>& params, HostContext* context) {
  ForEach(params.n, context, [&](int64_t i) {
    params.y[i] = static_cast<T>(params.x[i]);
  });
}
template void Cast<double>(const CastParams<double>&, HostContext*);
template void Cast<float>(const CastParams<float>&, HostContext*);

void JacobiScaling(const JacobiScalingParams& params, HostContext* context) {
  ForEach(params.n, context, [&](int64_t i) {
    params.x[i] = 1.0 / (1.0 + std::sqrt(params.x[i]));
  });
}

void Clamp(const ClampParams& params, HostContext* context) {
  ForEach(params.n, context, [&](int64_t i) {
    params.x[i] =
        std::min(std::max(params.x[i], params.min_value), params.max_value);
  });
}

void LevenbergMarquardtDiagonal(const LevenbergMarquardtDiagonalParams& params,
                                HostContext* context) {
  ForEach(params.n, context, [&](int64_t i) {
    params.y[i] = std::sqrt(params.x[i] / params.radius);
  });
}

void Invalidate(const InvalidateParams& params, HostContext* context) {
  SetConstant({params.n, kImpossibleValue, params.x}, context);
}

void CountInvalid(const CountInvalidParams& params, HostContext* context) {
  const TwoSums sums =
      Sum<Add>(params.n, context, [&](int64_t i, TwoSums* sums) {
        sums->first += IsValid(params.x[i]) ? 0.0 : 1.0;
      });
  params.scalars->num_invalid = static_cast<int64_t>(sums.first);
}

void NegateIfValid(const NegateIfValidParams& params, HostContext* context) {
  CountInvalid({params.n, params.x, params.scalars}, context);
  if (params.scalars->num_invalid == 0) {
    Negate({params.n, params.x, params.x}, context);
  }
}

void ProjectedGradientNorms(const ProjectedGradientNormsParams& params,
                            HostContext* context) {
  const TwoSums sums =
      Sum<Max>(params.n, context, [&](int64_t i, TwoSums* sums) {
        const double difference = params.x[i] - params.projected_x[i];
        sums->first = Max::Combine(sums->first, std::fabs(difference));
        sums->second += difference * difference;
      });
  params.scalars->max_norm = sums.first;
  params.scalars->norm = std::sqrt(sums.second);
}

void StepNorms(const StepNormsParams& params, HostContext* context) {
  const TwoSums sums =
      Sum<Add>(params.n, context, [&](int64_t i, TwoSums* sums) {
        const double difference = params.x[i] - params.candidate_x[i];
        sums->first += params.x[i] * params.x[i];
        sums->second += difference * difference;
      });
  params.scalars->x_norm = std::sqrt(sums.first);
  params.scalars->step_norm = std::sqrt(sums.second);
}

void ModelCostChange(const ModelCostChangeParams& params,
                     HostContext* context) {
  const TwoSums sums =
      Sum<Add>(params.n, context, [&](int64_t i, TwoSums* sums) {
        const double m = params.model_residuals[i];
        sums->first += m * (params.residuals[i] + m / 2.0);
      });
  params.scalars->model_cost_change = -sums.first;
}

template <typename T, int C>
void CorrectForLoss(const CorrectForLossParams<T, C, kHostLayout>& params,
                    HostContext* context) {
  const auto correct = [](const LossCorrector& corrector,
                          const double* residual,
                          int64_t k,
                          const auto& blocks) {
    if (blocks.data == nullptr) {
      return;
    }
    constexpr int kSize = std::decay_t<decltype(blocks)>::kBlockSize;
    double jacobian[kSize];
    T* block = &blocks(k, 0);
    std::copy_n(block, kSize, jacobian);
    corrector.CorrectJacobian<2, kSize / 2>(residual, jacobian);
    for (int i = 0; i < kSize; ++i) {
      block[i] = static_cast<T>(jacobian[i]);
    }
  };
  const TwoSums sums = Sum<
      Add>(params.num_observations, context, [&](int64_t k, TwoSums* sums) {
    double residual[2] = {params.residuals[2 * k], params.residuals[2 * k + 1]};
    const double s = residual[0] * residual[0] + residual[1] * residual[1];
    double rho[3] = {s, 1.0, 0.0};
    const int id = params.loss_id == nullptr ? 0 : params.loss_id[k];
    if (id != kNoLoss) {
      RobustLoss::EvaluateChain(params.losses, id, s, rho);
    }
    sums->first += rho[0];
    // Elsewhere the correction is the identity.
    if (rho[1] != 1.0 || rho[2] > 0.0) {
      const LossCorrector corrector(s, rho);
      correct(corrector, residual, k, params.camera_blocks);
      correct(corrector, residual, k, params.point_blocks);
      corrector.CorrectResidual<2>(residual);
    }
    if (params.corrected_residuals != nullptr) {
      std::copy_n(residual, 2, params.corrected_residuals + 2 * k);
    }
  });
  params.evaluation->cost = 0.5 * sums.first;
}

#define CERES_EXT_INSTANTIATE(T, C)                                            \
  template void CorrectForLoss(const CorrectForLossParams<T, C, kHostLayout>&, \
                               HostContext*)

CERES_EXT_INSTANTIATE(double, 9);
CERES_EXT_INSTANTIATE(double, 10);
CERES_EXT_INSTANTIATE(float, 9);
CERES_EXT_INSTANTIATE(float, 10);
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext::kernels::host
