// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/rows/host_evaluation.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <limits>
#include <mutex>
#include <new>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "ceres_ext/base/failure.h"

namespace ceres_ext {

using kernels::Status;
using kernels::StatusCode;

namespace {

constexpr int64_t kBlocksPerTask = 1 << 12;
// One thread sets the state of all objects, so that more rows have none.
constexpr int64_t kMostObjects = 1 << 14;

}  // namespace

Status HostEvaluation::Setup(std::shared_ptr<const ProblemRows> problem,
                             std::vector<int32_t> rows,
                             const std::vector<uint8_t>& is_eliminated,
                             kernels::HostContext* context) {
  context_ = context;
  problem_ = std::move(problem);
  rows_ = std::move(rows);
  const int64_t n = static_cast<int64_t>(rows_.size());
  // Most of the time goes into reaching the blocks in memory, so that is what
  // all threads do.
  std::vector<std::atomic<bool>> is_used(problem_->num_blocks());
  eliminated_.assign(n, -1);
  if (std::find(is_eliminated.begin(),
                is_eliminated.end(),
                elimination::kPrivate) != is_eliminated.end()) {
    private_.assign(n, -1);
  }
  context->ParallelFor(n, kBlocksPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      for (int j = 0; j < problem_->NumBlocks(rows_[k]); ++j) {
        const int32_t block = problem_->Block(rows_[k], j).index;
        if (block == BlockOfRow::kConstant) {
          continue;
        }
        if (is_eliminated[block] == elimination::kEliminated) {
          eliminated_[k] = j;
        } else if (is_eliminated[block] == elimination::kPrivate) {
          private_[k] = j;
        }
        if (!is_used[block].load(std::memory_order_relaxed)) {
          is_used[block].store(true, std::memory_order_relaxed);
        }
      }
    }
  });
  is_object_.clear();
  for (int64_t k = 0; n <= kMostObjects && k < n; ++k) {
    is_object_.push_back(problem_->HasObject(rows_[k]) ? 1 : 0);
  }
  int64_t num_values = 0;
  for (int32_t b = 0; b < problem_->num_blocks(); ++b) {
    const VaryingBlock block = problem_->block(b);
    if (block.manifold == nullptr || !is_used[b]) {
      continue;
    }
    if (plus_jacobian_begin_.empty()) {
      plus_jacobian_begin_.assign(problem_->num_blocks(), -1);
    }
    plus_jacobian_begin_[b] = num_values;
    manifolds_.push_back({block.manifold,
                          block.state_offset,
                          block.tangent_offset,
                          block.size,
                          block.tangent_size,
                          block.tangent_size});
    num_values += int64_t{block.size} * block.tangent_size;
  }
  CERES_EXT_RETURN_IF_ERROR(plus_jacobians_.Allocate(num_values));
  return costs_.Allocate((n + kRowsPerTask - 1) / kRowsPerTask, 0.0);
}

Status HostEvaluation::Publish(const double* host_state) {
  state_ = host_state;
  double* plus_jacobian = plus_jacobians_.data();
  // Serially: a user's PlusJacobian need not be thread safe.
  for (const BlockManifold& block : manifolds_) {
    CERES_EXT_RETURN_IF_ERROR(CallPlusJacobian(
        block, host_state + block.state_offset, plus_jacobian));
    plus_jacobian += int64_t{block.ambient_size} * block.tangent_size;
  }
  if (std::count(is_object_.begin(), is_object_.end(), 1) > 0 &&
      !problem_->SetStateOfObjects(host_state)) {
    is_object_.clear();
  }
  return {};
}

void HostEvaluation::AddBlocks(int64_t k, CeresRow* evaluation) const {
  const int32_t row = rows_[k];
  evaluation->Clear();
  for (int j = 0; j < problem_->NumBlocks(row); ++j) {
    const BlockOfRow block = problem_->Block(row, j);
    if (block.is_constant()) {
      const int size = problem_->BlockSize(row, j);
      evaluation->Add(block.constant_value, size, size, nullptr);
      continue;
    }
    const VaryingBlock varying = problem_->block(block.index);
    evaluation->Add(
        state_ + varying.state_offset,
        varying.size,
        varying.tangent_size,
        varying.manifold == nullptr
            ? nullptr
            : plus_jacobians_.data() + plus_jacobian_begin_[block.index]);
  }
}

void HostEvaluation::PlaceCells(int64_t k,
                                int e_values,
                                double* values,
                                std::vector<double*>* jacobians) const {
  const int32_t row = rows_[k];
  const int eliminated = eliminated_[k];
  const int last = private_.empty() ? -1 : private_[k];
  const int num_blocks = problem_->NumBlocks(row);
  jacobians->assign(num_blocks, nullptr);
  double* next = values;
  const auto take = [&](int j) {
    const int32_t block = problem_->Block(row, j).index;
    if (block != BlockOfRow::kConstant) {
      (*jacobians)[j] = next;
      next += int64_t{problem_->NumResiduals(row)} *
              problem_->block(block).tangent_size;
    }
  };
  if (eliminated >= 0) {
    take(eliminated);
  }
  if (e_values > 0) {
    next = values + e_values;
  }
  for (int j = 0; j < num_blocks; ++j) {
    if (j != eliminated && j != last) {
      take(j);
    }
  }
  if (last >= 0) {
    take(last);
  }
}

Status HostEvaluation::Evaluate(int64_t begin,
                                int64_t end,
                                bool apply_loss,
                                const PlaceOf& residuals_of,
                                const PlaceOf& values_of,
                                int e_values) {
  std::mutex mutex;
  // The first row that failed, and what it threw or the fault of its loss.
  int64_t failed = end;
  std::string thrown;
  std::string loss_fault;
  context_->ParallelFor(
      end - begin, kRowsPerTask, [&](int64_t first, int64_t last) {
        std::vector<double*> jacobians;
        CeresRow evaluation;
        std::vector<double> scratch;
        double sum = 0.0;
        for (int64_t k = begin + first; k < begin + last; ++k) {
          double cost = 0.0;
          bool is_valid = false;
          std::string what;
          try {
            if (values_of) {
              PlaceCells(k, e_values, values_of(k), &jacobians);
            }
            double* const residuals = residuals_of ? residuals_of(k) : nullptr;
            double** const values = values_of ? jacobians.data() : nullptr;
            if (IsObject(k)) {
              is_valid = problem_->EvaluateObject(
                  rows_[k], apply_loss, &cost, residuals, values, &scratch);
            } else {
              AddBlocks(k, &evaluation);
              std::unique_ptr<const ceres::CostFunction> owner;
              is_valid =
                  evaluation.Evaluate(*problem_->CostFunction(rows_[k], &owner),
                                      problem_->Loss(rows_[k]),
                                      apply_loss,
                                      &cost,
                                      residuals,
                                      values);
            }
          } catch (const std::bad_alloc&) {
            throw;  // It ends the solve.
          } catch (const std::exception& exception) {
            what = exception.what();
          } catch (...) {
            what = "something that is not a std::exception";
          }
          if (!is_valid) {
            const std::lock_guard<std::mutex> lock(mutex);
            if (k < failed) {
              failed = k;
              thrown = what;
              loss_fault = what.empty() ? evaluation.loss_fault() : "";
            }
            return;
          }
          sum += cost;
        }
        costs_.data()[(begin + first) / kRowsPerTask] = sum;
      });
  if (failed == end) {
    return {};
  }
  return {StatusCode::kNumericalFailure,
          (loss_fault.empty() ? "The cost function of residual block "
                              : loss_fault + " This is residual block ") +
              std::to_string(problem_->Number(rows_[failed])) +
              (!loss_fault.empty() ? "."
               : thrown.empty()    ? " can't be evaluated."
                                   : " threw: " + thrown)};
}

double HostEvaluation::cost() const {
  return std::accumulate(costs_.data(), costs_.data() + costs_.size(), 0.0);
}

}  // namespace ceres_ext
