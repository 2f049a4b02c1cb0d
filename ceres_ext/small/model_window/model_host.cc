// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/model_window/model_host.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <new>

#include "ceres_ext/small/model_window/model_solve.h"
#include "ceres_ext/small/window/window_on_host.h"
#include "cuda_kernels/base/simd.h"

namespace ceres_ext {
namespace {

// From a candidate that is evaluated, or a phase behind it, to the next one.
template <typename Solve>
inline void AdvancePhases(Solve* solve) {
  if (solve->phase() == ModelPhase::kCandidate) {
    solve->EvaluatePriors();
    solve->Judge();
  }
  if (solve->phase() == ModelPhase::kEnded) {
    return;
  }
  if (solve->phase() == ModelPhase::kLinearize) {
    solve->AddCells();
  }
  if (solve->phase() != ModelPhase::kChoose) {
    solve->Eliminate();
    solve->FormSchur();
  }
  solve->Step();
}

// Without fused operations, which gives all instruction sets the same bits.
CERES_EXT_SIMD_CLONES __attribute__((flatten)) void Advance(
    ModelSolve<HostTeam, /*kIsDogleg=*/false>* solve) {
  AdvancePhases(solve);
}
CERES_EXT_SIMD_CLONES __attribute__((flatten)) void Advance(
    ModelSolve<HostTeam, /*kIsDogleg=*/true>* solve) {
  AdvancePhases(solve);
}

void Evaluate(const ModelHostRows& rows) {
  for (int64_t i = 0; i < rows.batch.num_rows; ++i) {
    try {
      static_cast<void>(
          rows.model->evaluate_row(rows.batch, /*jacobian=*/true, i));
    } catch (const std::bad_alloc&) {
      throw;
    } catch (...) {  // As a row that can't be evaluated.
      rows.batch.squared_norms[i] = NAN;
    }
  }
}

// d and D P of a prior's block; NaN if its manifold fails.
void SetDifference(const ModelWindow& window,
                   const internal::BlockDifference& difference,
                   const ModelPriorBlock& block) {
  double* const d = window.differences + block.difference;
  double* const by = window.by_columns + block.by_columns;
  std::vector<double> by_values(size_t(difference.num_columns()) *
                                difference.size());
  if (!difference.Evaluate(
          block.state >= 0 ? window.candidate + block.state
                           : window.constants - 1 - block.state,
          window.prior_values + block.reference,
          d,
          block.num_columns > 0 ? by_values.data() : nullptr)) {
    std::fill_n(d, block.num_differences, NAN);
    return;
  }
  const double* from = by_values.data();
  double* to = by;
  const int n = block.num_columns;
  for (int r = 0; r < block.num_differences && n > 0;
       ++r, from += block.size, to += n) {
    if (block.tangent < 0) {
      std::copy_n(from, n, to);
      continue;
    }
    const double* const p = window.tangents + block.tangent;
    std::fill_n(to, n, 0.0);
    for (int e = 0; e < block.size; ++e) {
      for (int c = 0; c < n; ++c) {
        to[c] += from[e] * p[n * e + c];
      }
    }
  }
}

void SetDifferences(const ModelWindow& window,
                    int k,
                    const BlockMarginalPrior& marginal) {
  const ModelPrior& prior = window.priors[k];
  for (int b = prior.block; b < prior.block_end; ++b) {
    const ModelPriorBlock& block = window.prior_blocks[b];
    try {
      SetDifference(window, marginal.difference(b - prior.block), block);
    } catch (const std::bad_alloc&) {
      throw;
    } catch (...) {  // As a manifold that fails.
      std::fill_n(
          window.differences + block.difference, block.num_differences, NAN);
    }
  }
}

template <bool kIsDogleg>
void Run(const ModelWindow& window,
         const LoopOptions& options,
         const std::vector<const BlockMarginalPrior*>& marginals,
         const std::vector<ModelHostRows>& rows) {
  HostTeam team(0, 1, nullptr, nullptr);
  ModelShared shared;
  ModelSolve<HostTeam, kIsDogleg> solve(window, &shared, &team);
  solve.Begin(options, options.begin);
  while (solve.phase() != ModelPhase::kEnded) {
    if (solve.phase() == ModelPhase::kCandidate) {
      for (const ModelHostRows& of_model : rows) {
        Evaluate(of_model);
      }
      for (size_t k = 0; k < marginals.size(); ++k) {
        SetDifferences(window, static_cast<int>(k), *marginals[k]);
      }
    }
    Advance(&solve);
  }
}

}  // namespace

void SolveModelWindowOnHost(
    const ModelWindowRecord& record,
    const ModelTables& tables,
    const LoopOptions& options,
    const unsigned char* inputs,
    unsigned char* outputs,
    const std::vector<const BlockMarginalPrior*>& marginals,
    std::vector<ModelHostRows>* rows,
    std::vector<double>* memory) {
  const int64_t scratch_size =
      ModelScratch(record.counts).num_bytes / int64_t{sizeof(double)};
  const int64_t schur_size = ModelSchurSize(record.counts.num_columns);
  int64_t size = scratch_size + schur_size;
  for (const ModelHostRows& of_model : *rows) {
    const int64_t n = of_model.batch.num_rows;
    size += n * (of_model.batch.f.row + of_model.model->num_residuals + 1);
  }
  if (static_cast<int64_t>(memory->size()) < size) {
    memory->resize(size);
  }
  ModelWindow window(record,
                     tables,
                     inputs,
                     outputs,
                     reinterpret_cast<unsigned char*>(memory->data()),
                     memory->data() + scratch_size);
  double* next = memory->data() + scratch_size + schur_size;
  for (ModelHostRows& of_model : *rows) {
    RowBatch& batch = of_model.batch;
    const auto n = static_cast<int32_t>(batch.num_rows);
    batch.f.data = next;
    batch.residuals = next + n * batch.f.row;
    batch.squared_norms = batch.residuals + n * of_model.model->num_residuals;
    next = batch.squared_norms + n;
    ModelRows of_window;
    of_window.num_residuals = of_model.model->num_residuals;
    of_window.stride = static_cast<int32_t>(batch.f.residual);
    of_window.columns = static_cast<const double*>(batch.f.data);
    of_window.residuals = batch.residuals;
    of_window.squared_norms = batch.squared_norms;
    of_window.loss = batch.loss;
    window.AddRows(n, of_window);
  }
  window.AddPriors();
  if (options.dogleg == DoglegType::kNone) {
    Run<false>(window, options, marginals, *rows);
  } else {
    Run<true>(window, options, marginals, *rows);
  }
}

}  // namespace ceres_ext
