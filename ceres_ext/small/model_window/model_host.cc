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

// Without fused operations, which gives all instruction sets the same bits.
CERES_EXT_SIMD_CLONES __attribute__((flatten)) bool Advance(
    ModelSolve<HostTeam>* solve) {
  return solve->Advance();
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

// True if r and the columns J P are evaluated.
bool EvaluateColumns(const ModelHostPrior& prior) {
  const int num_residuals = prior.num_residuals();
  std::vector<double*> jacobians;
  double* next = prior.jacobians;
  for (int k = 0; k < prior.prior->num_blocks(); ++k) {
    jacobians.push_back(next);
    next += int64_t{num_residuals} * prior.prior->difference(k).size();
  }
  if (!prior.prior->Evaluate(
          prior.values.data(), prior.residuals, jacobians.data())) {
    return false;
  }
  for (int k = 0; k < prior.prior->num_blocks(); ++k) {
    const ModelHostPrior::Block& block = prior.blocks[k];
    const int size = prior.prior->difference(k).size();
    const double* from = jacobians[k];
    double* to = prior.columns + block.column;
    for (int i = 0; i < num_residuals && block.num_columns > 0;
         ++i, from += size, to += prior.num_columns) {
      if (block.tangent == nullptr) {
        std::copy_n(from, size, to);
        continue;
      }
      std::fill_n(to, block.num_columns, 0.0);
      for (int e = 0; e < size; ++e) {
        for (int c = 0; c < block.num_columns; ++c) {
          to[c] += from[e] * block.tangent[block.num_columns * e + c];
        }
      }
    }
  }
  return true;
}

void Evaluate(const ModelHostPrior& prior) {
  *prior.squared_norm = NAN;
  try {
    if (!EvaluateColumns(prior)) {
      return;
    }
  } catch (const std::bad_alloc&) {
    throw;
  } catch (...) {  // As a prior that can't be evaluated.
    return;
  }
  double sum = 0.0;
  for (int i = 0; i < prior.num_residuals(); ++i) {
    sum += prior.residuals[i] * prior.residuals[i];
  }
  *prior.squared_norm = sum;
}

}  // namespace

void SolveModelWindowOnHost(const ModelWindowRecord& record,
                            const ModelTables& tables,
                            const TrustRegionOptions& options,
                            const unsigned char* inputs,
                            unsigned char* outputs,
                            std::vector<ModelHostRows>* rows,
                            std::vector<ModelHostPrior>* priors,
                            std::vector<double>* memory) {
  const int64_t scratch_size =
      ModelScratch(record.counts).num_bytes / int64_t{sizeof(double)};
  const int64_t schur_size = ModelSchurSize(record.counts.num_columns);
  int64_t size = scratch_size + schur_size;
  for (const ModelHostRows& of_model : *rows) {
    const int64_t n = of_model.batch.num_rows;
    size += n * (of_model.batch.f.row + of_model.model->num_residuals + 1);
  }
  for (const ModelHostPrior& prior : *priors) {
    size += int64_t{prior.num_residuals()} * (prior.num_columns + 1) + 1 +
            prior.num_derivatives();
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
  int32_t number = 0;
  for (ModelHostRows& of_model : *rows) {
    RowBatch& batch = of_model.batch;
    const auto n = static_cast<int32_t>(batch.num_rows);
    ModelRows& of_window = window.rows[window.num_models++];
    batch.f.data = next;
    batch.residuals = next + n * batch.f.row;
    batch.squared_norms = batch.residuals + n * of_model.model->num_residuals;
    next = batch.squared_norms + n;
    of_window = {number,
                 number + n,
                 of_model.model->num_residuals,
                 static_cast<int32_t>(batch.f.residual),
                 static_cast<const double*>(batch.f.data),
                 batch.residuals,
                 batch.squared_norms,
                 batch.loss};
    number += n;
  }
  for (ModelHostPrior& prior : *priors) {
    prior.columns = next;
    prior.residuals = next + int64_t{prior.num_residuals()} * prior.num_columns;
    prior.squared_norm = prior.residuals + prior.num_residuals();
    prior.jacobians = prior.squared_norm + 1;
    next = prior.jacobians + prior.num_derivatives();
    window.rows[window.num_models++] = {number,
                                        number + 1,
                                        prior.num_residuals(),
                                        prior.num_columns,
                                        prior.columns,
                                        prior.residuals,
                                        prior.squared_norm,
                                        kernels::LossRef()};
    ++number;
  }
  HostTeam team;
  int32_t verdict = 0;
  ModelSolve<HostTeam> solve(window, &verdict, &team);
  solve.Begin(options);
  do {
    for (const ModelHostRows& of_model : *rows) {
      Evaluate(of_model);
    }
    for (const ModelHostPrior& prior : *priors) {
      Evaluate(prior);
    }
  } while (Advance(&solve));
}

}  // namespace ceres_ext
