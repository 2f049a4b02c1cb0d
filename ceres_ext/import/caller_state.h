// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The state of a problem of arrays (ceres_ext/array_problem.h) in the arrays of
// its caller: the blocks that vary of each array, one after the other. Ceres's
// loop reads it from there where it starts, and writes it there where it ends.

#ifndef CERES_EXT_IMPORT_CALLER_STATE_H_
#define CERES_EXT_IMPORT_CALLER_STATE_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "ceres/solver.h"
#include "ceres_ext/base/machines.h"
#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

class CallerState {
 public:
  // *summary: that of the solve, which says whether its state is of use. It
  // outlives this object.
  explicit CallerState(const ceres::Solver::Summary* summary)
      : summary_(summary) {}

  void Clear() { arrays_.clear(); }
  // varying: of the blocks which ones vary, ascending; empty: all of them.
  // on_device: the values are in the memory of the device that solves, and all
  // blocks vary.
  void Add(double* values,
           int size,
           int64_t num_blocks,
           std::vector<int32_t> varying,
           bool on_device = false) {
    const int64_t n =
        varying.empty() ? num_blocks : static_cast<int64_t>(varying.size());
    arrays_.push_back({values, size, n * size, std::move(varying), on_device});
  }

  // The values of the block that begins at this offset of the state.
  const double* Find(int64_t state_offset) const {
    for (const Array& array : arrays_) {
      if (state_offset < array.num_values) {
        const auto i = static_cast<int32_t>(state_offset / array.size);
        return array.Block(array.varying.empty() ? i : array.varying[i]);
      }
      state_offset -= array.num_values;
    }
    return nullptr;
  }

  template <typename Machine>
  kernels::Status CopyToMachine(double* state, Machine* machine) const {
    for (const Array& array : arrays_) {
      const double* from = array.values;
      kernels::HostBuffer<double> packed;
      if (!array.varying.empty()) {
        CERES_EXT_RETURN_IF_ERROR(packed.Allocate(array.num_values));
        double* to = packed.data();
        for (const int32_t block : array.varying) {
          to = std::copy_n(array.Block(block), array.size, to);
        }
        from = packed.data();
      }
      CERES_EXT_RETURN_IF_ERROR(
          machine->CopyFrom(array.num_values, from, array.on_device, state));
      state += array.num_values;
    }
    return {};
  }

  // Nothing is written where the solve has failed, and either all arrays of the
  // host are or, where a device fails on the way, none: what it sends is kept
  // aside till all is there. context: threads that copy.
  template <typename Machine>
  kernels::Status CopyFromMachine(const double* state,
                                  [[maybe_unused]] Machine* machine,
                                  kernels::HostContext* context) const {
    if (!summary_->IsSolutionUsable()) {
      return {};
    }
    kernels::HostBuffer<double> received;
    if constexpr (!kIsHost<Machine>) {
      int64_t n = 0;
      for (const Array& array : arrays_) {
        n += array.on_device ? 0 : array.num_values;
      }
      CERES_EXT_RETURN_IF_ERROR(received.Allocate(n));
      // Fresh pages come faster to several threads than to a copy.
      double* to = received.data();
      context->ParallelFor(n, kGrain, [to](int64_t begin, int64_t end) {
        std::fill(to + begin, to + end, 0.0);
      });
      const double* from = state;
      for (const Array& array : arrays_) {
        if (!array.on_device) {
          CERES_EXT_RETURN_IF_ERROR(
              machine->Download(array.num_values, from, to));
          to += array.num_values;
        }
        from += array.num_values;
      }
      from = state;
      for (const Array& array : arrays_) {
        if (array.on_device) {
          CERES_EXT_RETURN_IF_ERROR(machine->CopyTo(
              array.num_values, from, /*on_device=*/true, array.values));
        }
        from += array.num_values;
      }
      CERES_EXT_RETURN_IF_ERROR(machine->Synchronize());
    }
    const double* from = kIsHost<Machine> ? state : received.data();
    for (const Array& array : arrays_) {
      if (array.on_device) {
        continue;
      }
      if (array.varying.empty()) {
        context->ParallelFor(
            array.num_values, kGrain, [&](int64_t begin, int64_t end) {
              std::copy(from + begin, from + end, array.values + begin);
            });
        from += array.num_values;
      }
      for (const int32_t block : array.varying) {
        std::copy_n(from, array.size, array.Block(block));
        from += array.size;
      }
    }
    return {};
  }

 private:
  // Values of a task of a thread.
  static constexpr int64_t kGrain = 1 << 16;

  struct Array {
    double* values;
    int size;
    int64_t num_values;  // of those that vary
    std::vector<int32_t> varying;
    bool on_device;

    double* Block(int32_t block) const {
      return values + int64_t{size} * block;
    }
  };

  const ceres::Solver::Summary* summary_;
  std::vector<Array> arrays_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_IMPORT_CALLER_STATE_H_
