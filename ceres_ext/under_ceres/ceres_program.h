// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Work of Ceres's Program on the host beside this library.

#ifndef CERES_EXT_UNDER_CERES_CERES_PROGRAM_H_
#define CERES_EXT_UNDER_CERES_CERES_PROGRAM_H_

#include <atomic>
#include <cstdint>

#include "ceres/evaluation_callback.h"
#include "ceres/parameter_block.h"
#include "ceres/program.h"
#include "ceres_ext/session/host_program.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

class CeresProgram final : public HostProgram {
 public:
  // Both outlive the object.
  CeresProgram(ceres::internal::Program* program,
               kernels::HostContext* host_context)
      : program_(program),
        callback_(program->mutable_evaluation_callback()),
        host_context_(host_context) {}

  bool ReadsStates() const final { return callback_ != nullptr; }
  // The callback reads the user's state, and Ceres's blocks read this one.
  bool Publish(const double* state,
               bool want_jacobian,
               bool is_new_point) final {
    if (!program_->StateVectorToParameterBlocks(state)) {
      return false;
    }
    program_->CopyParameterBlockStateToUserState();
    callback_->PrepareForEvaluation(want_jacobian, is_new_point);
    return true;
  }
  // Program::Plus on threads from which what a user's manifold throws gets
  // here.
  bool Plus(const double* x, const double* delta, double* sum) final {
    constexpr int64_t kBlocksPerTask = 1 << 10;  // some 20 us
    const auto& all = program_->parameter_blocks();
    std::atomic<bool> ok{true};
    host_context_->ParallelFor(
        static_cast<int64_t>(all.size()),
        kBlocksPerTask,
        [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const int state = all[i]->state_offset();
            if (!all[i]->Plus(
                    x + state, delta + all[i]->delta_offset(), sum + state)) {
              ok = false;
            }
          }
        });
    return ok;
  }
  const double* Values(int state_offset) const final {
    // After the end of a solve the offsets that Ceres keeps are those of the
    // whole problem.
    int offset = 0;
    for (const auto* block : program_->parameter_blocks()) {
      if (offset == state_offset) {
        return block->user_state();
      }
      offset += block->Size();
    }
    return nullptr;
  }

 private:
  ceres::internal::Program* program_;
  ceres::EvaluationCallback* callback_;
  kernels::HostContext* host_context_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_UNDER_CERES_CERES_PROGRAM_H_
