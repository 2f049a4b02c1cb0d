// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include <algorithm>
#include <cmath>

#include "cuda_kernels/host_workspace.h"
#include "cuda_kernels/pcg_kernels.h"

namespace ceres_ext::kernels::reference {
namespace {

struct TwoSums {
  double first = 0.0;
  double second = 0.0;
};

// sums over chunks of [0, n) of fn(begin, end), added in the order of chunks.
template <typename Function>
TwoSums SumOverChunks(int64_t n, HostWorkspace* workspace, Function&& fn) {
  constexpr int64_t kChunk = HostWorkspace::kVectorChunk;
  double* partial_sums = workspace->partial_sums();
  workspace->context()->ParallelFor(n, kChunk, [&](int64_t begin, int64_t end) {
    const TwoSums sums = fn(begin, end);
    partial_sums[2 * (begin / kChunk)] = sums.first;
    partial_sums[2 * (begin / kChunk) + 1] = sums.second;
  });
  TwoSums total;
  for (int64_t i = 0; i * kChunk < n; ++i) {
    total.first += partial_sums[2 * i];
    total.second += partial_sums[2 * i + 1];
  }
  return total;
}

// x'y over [begin, end), in four interleaved sums.
double DotOfChunk(const double* x,
                  const double* y,
                  int64_t begin,
                  int64_t end) {
  double sum[4] = {};
  int64_t i = begin;
  for (; i + 4 <= end; i += 4) {
    for (int j = 0; j < 4; ++j) {
      sum[j] += x[i + j] * y[i + j];
    }
  }
  for (int j = 0; i < end; ++i, ++j) {
    sum[j] += x[i] * y[i];
  }
  return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

double DotOfVectors(const double* x,
                    const double* y,
                    int64_t n,
                    HostWorkspace* workspace) {
  return SumOverChunks(n,
                       workspace,
                       [=](int64_t begin, int64_t end) {
                         return TwoSums{DotOfChunk(x, y, begin, end), 0.0};
                       })
      .first;
}

template <typename Function>
void ForEachElement(int64_t n, HostWorkspace* workspace, Function&& fn) {
  workspace->context()->ParallelFor(
      n, HostWorkspace::kVectorChunk, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          fn(i);
        }
      });
}

bool IsZeroOrInfinity(double x) { return x == 0.0 || std::isinf(x); }

}  // namespace

void PcgStart(const PcgStartParams& params, HostWorkspace* workspace) {
  const double* rhs = params.rhs;
  double* x = params.x;
  double* r = params.r;
  ForEachElement(params.n, workspace, [=](int64_t i) {
    x[i] = 0.0;
    r[i] = rhs[i];
  });
  PcgScalars& s = *params.scalars;
  s = {};
  s.norm_rhs = std::sqrt(DotOfVectors(rhs, rhs, params.n, workspace));
  s.norm_r = s.norm_rhs;
  s.q_tolerance = params.q_tolerance;
  s.tol_r = params.r_tolerance * s.norm_rhs;
  s.min_num_iterations = params.min_num_iterations;
  s.max_num_iterations = params.max_num_iterations;
  if (s.norm_rhs == 0.0) {
    s.end = PcgEnd::kZeroRightHandSide;
  } else if (s.min_num_iterations == 0 && s.norm_r <= s.tol_r) {
    s.end = PcgEnd::kInitialResidual;
  }
}

void PcgDirection(const PcgDirectionParams& params, HostWorkspace* workspace) {
  PcgScalars& s = *params.scalars;
  if (s.end != PcgEnd::kRunning) {
    return;
  }
  ++s.num_iterations;
  s.last_rho = s.rho;
  s.rho = DotOfVectors(params.r, params.z, params.n, workspace);
  if (IsZeroOrInfinity(s.rho)) {
    s.end = PcgEnd::kRhoBreakdown;
    return;
  }
  const double* z = params.z;
  double* p = params.p;
  if (s.num_iterations == 1) {
    ForEachElement(params.n, workspace, [=](int64_t i) { p[i] = z[i]; });
    return;
  }
  s.beta = s.rho / s.last_rho;
  if (IsZeroOrInfinity(s.beta)) {
    s.end = PcgEnd::kBetaBreakdown;
    return;
  }
  const double beta = s.beta;
  ForEachElement(
      params.n, workspace, [=](int64_t i) { p[i] = z[i] + beta * p[i]; });
}

void PcgAdvance(const PcgAdvanceParams& params, HostWorkspace* workspace) {
  PcgScalars& s = *params.scalars;
  if (s.end != PcgEnd::kRunning) {
    return;
  }
  s.pq = DotOfVectors(params.p, params.q, params.n, workspace);
  if (s.pq <= 0.0 || std::isinf(s.pq)) {
    s.end = PcgEnd::kIndefinite;
    return;
  }
  s.alpha = s.rho / s.pq;
  if (std::isinf(s.alpha)) {
    s.end = PcgEnd::kAlphaBreakdown;
    return;
  }
  const double* p = params.p;
  double* x = params.x;
  const double alpha = s.alpha;
  ForEachElement(params.n, workspace, [=](int64_t i) { x[i] += alpha * p[i]; });
}

void PcgResidual(const PcgResidualParams& params, HostWorkspace* workspace) {
  PcgScalars& s = *params.scalars;
  if (s.end != PcgEnd::kRunning) {
    return;
  }
  const double* rhs = params.rhs;
  const double* q = params.q;
  const double* x = params.x;
  double* r = params.r;
  const double alpha = s.alpha;
  const bool reset = params.reset;
  // first = x'(b + r), second = r'r
  const TwoSums sums =
      SumOverChunks(params.n, workspace, [=](int64_t begin, int64_t end) {
        TwoSums chunk;
        for (int64_t i = begin; i < end; ++i) {
          r[i] = reset ? rhs[i] - q[i] : r[i] - alpha * q[i];
          chunk.first += x[i] * (rhs[i] + r[i]);
          chunk.second += r[i] * r[i];
        }
        return chunk;
      });
  s.q1 = -sums.first;
  s.norm_r = std::sqrt(sums.second);
  s.zeta = s.num_iterations * (s.q1 - s.q0) / s.q1;
  const bool may_stop = s.num_iterations >= s.min_num_iterations;
  if (s.zeta < s.q_tolerance && may_stop) {
    s.end = PcgEnd::kQuadraticModel;
    return;
  }
  s.q0 = s.q1;
  if (s.norm_r <= s.tol_r && may_stop) {
    s.end = PcgEnd::kResidual;
  } else if (s.num_iterations >= s.max_num_iterations) {
    s.end = PcgEnd::kMaxNumIterations;
  }
}

void Dot(const DotParams& params, HostWorkspace* workspace) {
  *params.result = DotOfVectors(params.x, params.y, params.n, workspace);
}

}  // namespace ceres_ext::kernels::reference
