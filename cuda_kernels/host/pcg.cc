// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/structure/host_workspace.h"
#include "cuda_kernels/ops/pcg.h"

namespace ceres_ext::kernels::host {
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

}  // namespace

void PcgStart(const PcgStartParams& params, HostWorkspace* workspace) {
  const double* rhs = params.rhs;
  double* x = params.x;
  double* r = params.r;
  ForEachElement(params.n, workspace, [=](int64_t i) {
    x[i] = 0.0;
    r[i] = rhs[i];
  });
  *params.scalars = StartPcg(DotOfVectors(rhs, rhs, params.n, workspace),
                             params.q_tolerance,
                             params.r_tolerance,
                             params.min_num_iterations,
                             params.max_num_iterations);
}

void PcgDirection(const PcgDirectionParams& params, HostWorkspace* workspace) {
  PcgScalars& s = *params.scalars;
  if (s.end != PcgEnd::kRunning) {
    return;
  }
  SetPcgRho(DotOfVectors(params.r, params.z, params.n, workspace), &s);
  if (s.end != PcgEnd::kRunning) {
    return;
  }
  const double* z = params.z;
  double* p = params.p;
  if (s.num_iterations == 1) {
    ForEachElement(params.n, workspace, [=](int64_t i) { p[i] = z[i]; });
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
  SetPcgAlpha(DotOfVectors(params.p, params.q, params.n, workspace), &s);
  if (s.end != PcgEnd::kRunning) {
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
  SetPcgResidual(sums.first, sums.second, &s);
}

void Dot(const DotParams& params, HostWorkspace* workspace) {
  *params.result = DotOfVectors(params.x, params.y, params.n, workspace);
}

}  // namespace ceres_ext::kernels::host
