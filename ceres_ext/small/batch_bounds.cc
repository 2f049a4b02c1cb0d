// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/batch_bounds.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>

#include "ceres_ext/base/sentence.h"
#include "ceres_ext/import/array_rows.h"
#include "ceres_ext/small/marginal.h"

namespace ceres_ext {
namespace {

using Parameters = ArrayProblem::Parameters;
using Residuals = ArrayProblem::Residuals;

bool AreValidOffsets(const std::string& name,
                     const int64_t* begin,
                     int64_t num_problems,
                     int64_t num_blocks,
                     std::string* error) {
  if (begin == nullptr) {
    *error = name + " is null";
    return false;
  }
  bool is_valid = begin[0] == 0 && begin[num_problems] == num_blocks;
  for (int64_t i = 0; i < num_problems; ++i) {
    is_valid &= begin[i] <= begin[i + 1];
  }
  if (!is_valid) {
    *error = Sentence(name,
                      ": expected ",
                      num_problems + 1,
                      " numbers that do not fall, from 0 to ",
                      num_blocks);
  }
  return is_valid;
}

// True if row k of problem i names a block of another problem.
bool IsForeign(const ProblemBatch& batch,
               const ArrayProblem::Index& index,
               int64_t i,
               int64_t k) {
  const int64_t* const begin = batch.parameter_begin[index.parameters];
  const int64_t block = index.BlockOf(k);
  return (block < begin[i] || block >= begin[i + 1]) && block >= 0 &&
         block < batch.problem.parameters()[index.parameters].num_blocks;
}

bool HasForeignBlocks(const ProblemBatch& batch,
                      size_t r,
                      kernels::HostContext* context,
                      std::string* error) {
  constexpr int64_t kProblemsPerTask = 16;
  const int64_t* const rows = batch.residual_begin[r];
  const Residuals& residuals = batch.problem.residuals()[r];
  for (size_t b = 0; b < residuals.blocks.size(); ++b) {
    const ArrayProblem::Index& index = residuals.blocks[b];
    // The first problem that has one; its first row is found again.
    std::atomic<int64_t> first{batch.num_problems};
    context->ParallelFor(
        batch.num_problems, kProblemsPerTask, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            bool is_foreign = false;
            for (int64_t k = rows[i]; k < rows[i + 1]; ++k) {
              is_foreign |= IsForeign(batch, index, i, k);
            }
            int64_t seen = first.load();
            while (is_foreign && i < seen &&
                   !first.compare_exchange_weak(seen, i)) {
            }
          }
        });
    const int64_t i = first.load();
    for (int64_t k = rows[i]; i < batch.num_problems && k < rows[i + 1]; ++k) {
      if (IsForeign(batch, index, i, k)) {
        *error = Sentence("residuals ",
                          r,
                          ", blocks[",
                          b,
                          "]: residual block ",
                          k,
                          " of problem ",
                          i,
                          " names block ",
                          index.BlockOf(k),
                          " of parameters ",
                          index.parameters,
                          ", which is another problem's");
        return true;
      }
    }
  }
  return false;
}

}  // namespace

bool IsValidBatch(const ProblemBatch& batch,
                  kernels::HostContext* context,
                  std::string* error) {
  const auto& parameters = batch.problem.parameters();
  const auto& residuals = batch.problem.residuals();
  if (batch.num_problems < 0 ||
      batch.num_problems > std::numeric_limits<int32_t>::max()) {
    *error = Sentence(
        "num_problems is ", batch.num_problems, ", expected 0 to 2^31 - 1");
    return false;
  }
  if (HasDeviceArrays(batch.problem)) {
    *error = "an array of the batch is on a device, expected host memory";
    return false;
  }
  const auto has_size = [error](const char* name, size_t n, size_t expected) {
    if (n != expected) {
      *error = Sentence(name, " has ", n, " arrays, expected ", expected);
    }
    return n == expected;
  };
  const auto has_size_or_none = [&](const char* name, size_t n, size_t all) {
    return n == 0 || has_size(name, n, all);
  };
  if (!has_size(
          "parameter_begin", batch.parameter_begin.size(), parameters.size()) ||
      !has_size(
          "residual_begin", batch.residual_begin.size(), residuals.size()) ||
      !has_size_or_none("parameter_is_active",
                        batch.parameter_is_active.size(),
                        parameters.size()) ||
      !has_size_or_none("residual_is_active",
                        batch.residual_is_active.size(),
                        residuals.size()) ||
      !has_size_or_none("covariance_is_wanted",
                        batch.covariance_is_wanted.size(),
                        parameters.size()) ||
      !IsValidDrop(batch, error)) {
    return false;
  }
  for (size_t a = 0; a < parameters.size(); ++a) {
    if (!AreValidOffsets(Sentence("parameter_begin[", a, "]"),
                         batch.parameter_begin[a],
                         batch.num_problems,
                         parameters[a].num_blocks,
                         error)) {
      return false;
    }
  }
  // Two problems must not write the same memory.
  const std::less<const double*> less;
  for (size_t a = 0; a < parameters.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      const Parameters& p = parameters[a];
      const Parameters& q = parameters[b];
      if (p.values != nullptr && q.values != nullptr && p.num_blocks > 0 &&
          q.num_blocks > 0 &&
          less(p.values, q.values + q.num_blocks * q.size) &&
          less(q.values, p.values + p.num_blocks * p.size)) {
        *error = Sentence(
            "parameters ", b, " and parameters ", a, " overlap in memory");
        return false;
      }
    }
  }
  for (size_t r = 0; r < residuals.size(); ++r) {
    if (!AreValidOffsets(Sentence("residual_begin[", r, "]"),
                         batch.residual_begin[r],
                         batch.num_problems,
                         residuals[r].num_blocks,
                         error)) {
      return false;
    }
    for (const ArrayProblem::Index& index : residuals[r].blocks) {
      if (index.parameters < 0 ||
          index.parameters >= static_cast<int>(parameters.size())) {
        *error = Sentence("residuals ",
                          r,
                          " names parameters ",
                          index.parameters,
                          ", expected 0 <= parameters < ",
                          parameters.size());
        return false;
      }
    }
    if (HasForeignBlocks(batch, r, context, error)) {
      return false;
    }
  }
  return true;
}

}  // namespace ceres_ext
