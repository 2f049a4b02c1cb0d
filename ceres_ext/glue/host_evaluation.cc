// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/host_evaluation.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <new>
#include <numeric>
#include <string>

#include "ceres/parameter_block.h"
#include "ceres/residual_block.h"
#include "ceres_ext/glue/failure.h"

namespace ceres_ext {

using ceres::internal::ParameterBlock;
using ceres::internal::ResidualBlock;
using kernels::Status;
using kernels::StatusCode;

namespace {

constexpr int64_t kBlocksPerTask = 1 << 12;

}  // namespace

Status HostEvaluation::Setup(const ceres::internal::Program& program,
                             const std::vector<int32_t>& rows,
                             const std::vector<uint8_t>& is_eliminated,
                             kernels::HostContext* context) {
  context_ = context;
  const int64_t n = static_cast<int64_t>(rows.size());
  // Most of the time goes into reaching the blocks in memory, so that is what
  // all threads do.
  std::vector<std::atomic<bool>> is_used(program.NumParameterBlocks());
  std::atomic<int64_t> scratch_size{0};
  rows_.resize(n);
  eliminated_.assign(n, -1);
  context->ParallelFor(n, kBlocksPerTask, [&](int64_t begin, int64_t end) {
    int64_t most = 0;
    for (int64_t k = begin; k < end; ++k) {
      const ResidualBlock* row = program.residual_blocks()[rows[k]];
      rows_[k] = row;
      most = std::max<int64_t>(most, row->NumScratchDoublesForEvaluate());
      for (int j = 0; j < row->NumParameterBlocks(); ++j) {
        const ParameterBlock* block = row->parameter_blocks()[j];
        if (block->IsConstant()) {
          continue;
        }
        if (is_eliminated[block->index()] != 0) {
          eliminated_[k] = j;
        }
        is_used[block->index()].store(true, std::memory_order_relaxed);
      }
    }
    int64_t known = scratch_size;
    while (most > known && !scratch_size.compare_exchange_weak(known, most)) {
    }
  });
  scratch_size_ = scratch_size;
  for (ParameterBlock* block : program.parameter_blocks()) {
    if (is_used[block->index()]) {
      (block->manifold() == nullptr ? plain_ : curved_)
          .blocks.mutable_parameter_blocks()
          ->push_back(block);
    }
  }
  for (Blocks* blocks : {&plain_, &curved_}) {
    int64_t size = 0;
    for (const ParameterBlock* block : blocks->blocks.parameter_blocks()) {
      blocks->begin.push_back(size);
      size += block->Size();
    }
    CERES_EXT_RETURN_IF_ERROR(blocks->state.Allocate(size));
  }
  // Whole cache lines per thread.
  scratch_size_ = (scratch_size_ + 15) / 8 * 8;
  CERES_EXT_RETURN_IF_ERROR(
      scratch_.Allocate(scratch_size_ * context->num_threads()));
  return costs_.Allocate((n + kRowsPerTask - 1) / kRowsPerTask, 0.0);
}

Status HostEvaluation::Publish(const double* host_state) {
  for (Blocks* blocks : {&plain_, &curved_}) {
    const auto& all = blocks->blocks.parameter_blocks();
    // Blocks without a manifold need not be told of new values at the address
    // that they have.
    std::atomic<bool> is_elsewhere{blocks == &curved_};
    context_->ParallelFor(
        static_cast<int64_t>(all.size()),
        kBlocksPerTask,
        [&](int64_t begin, int64_t end) {
          bool one_is_elsewhere = false;
          for (int64_t i = begin; i < end; ++i) {
            double* const place = blocks->state.data() + blocks->begin[i];
            std::copy_n(
                host_state + all[i]->state_offset(), all[i]->Size(), place);
            one_is_elsewhere |= all[i]->state() != place;
          }
          if (one_is_elsewhere) {
            is_elsewhere = true;
          }
        });
    // Serially: a user's PlusJacobian need not be thread safe.
    const auto publish = [&] {
      return blocks->blocks.StateVectorToParameterBlocks(blocks->state.data());
    };
    std::string what;
    if (is_elsewhere && !Succeeds(publish, &what)) {
      return {StatusCode::kNumericalFailure, "Manifold::PlusJacobian " + what};
    }
  }
  return {};
}

void HostEvaluation::PlaceCells(int64_t k,
                                int e_values,
                                double* values,
                                std::vector<double*>* jacobians) const {
  const ResidualBlock& row = *rows_[k];
  const int eliminated = eliminated_[k];
  jacobians->assign(row.NumParameterBlocks(), nullptr);
  double* next = values;
  const auto take = [&](int j) {
    (*jacobians)[j] = next;
    next += row.NumResiduals() * row.parameter_blocks()[j]->TangentSize();
  };
  if (eliminated >= 0) {
    take(eliminated);
  }
  if (e_values > 0) {
    next = values + e_values;
  }
  for (int j = 0; j < row.NumParameterBlocks(); ++j) {
    if (j != eliminated && !row.parameter_blocks()[j]->IsConstant()) {
      take(j);
    }
  }
}

Status HostEvaluation::Evaluate(int64_t begin,
                                int64_t end,
                                bool apply_loss,
                                const PlaceOf& residuals_of,
                                const PlaceOf& values_of,
                                int e_values) {
  std::mutex mutex;
  // The first row that failed, and what it threw.
  int64_t failed = end;
  std::string thrown;
  context_->ParallelFor(
      end - begin, kRowsPerTask, [&](int64_t first, int64_t last, int thread) {
        std::vector<double*> jacobians;
        double sum = 0.0;
        for (int64_t k = begin + first; k < begin + last; ++k) {
          double cost = 0.0;
          bool is_valid = false;
          std::string what;
          try {
            if (values_of) {
              PlaceCells(k, e_values, values_of(k), &jacobians);
            }
            is_valid =
                rows_[k]->Evaluate(apply_loss,
                                   &cost,
                                   residuals_of ? residuals_of(k) : nullptr,
                                   values_of ? jacobians.data() : nullptr,
                                   scratch_.data() + scratch_size_ * thread);
          } catch (const std::bad_alloc&) {
            throw;  // It ends the solve.
          } catch (const std::exception& exception) {
            what = exception.what();
          } catch (...) {
            what = "something that is no std::exception";
          }
          if (!is_valid) {
            const std::lock_guard<std::mutex> lock(mutex);
            if (k < failed) {
              failed = k;
              thrown = what;
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
          "The cost function of residual block " +
              std::to_string(rows_[failed]->index()) +
              (thrown.empty() ? " can't be evaluated." : " threw: " + thrown)};
}

double HostEvaluation::cost() const {
  return std::accumulate(costs_.data(), costs_.data() + costs_.size(), 0.0);
}

}  // namespace ceres_ext
