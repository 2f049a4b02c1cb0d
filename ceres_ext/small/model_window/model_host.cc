// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/model_window/model_host.h"

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

}  // namespace

void SolveModelWindowOnHost(const ModelWindowRecord& record,
                            const ModelTables& tables,
                            const TrustRegionOptions& options,
                            const unsigned char* inputs,
                            unsigned char* outputs,
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
  HostTeam team;
  int32_t verdict = 0;
  ModelSolve<HostTeam> solve(window, &verdict, &team);
  solve.Begin(options);
  do {
    for (const ModelHostRows& of_model : *rows) {
      Evaluate(of_model);
    }
  } while (Advance(&solve));
}

}  // namespace ceres_ext
