// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Observation indices and sums of lists in a machine's memory. An object has
// working memory for all that it builds.
//
//   IndexBuilder<Machine> builder(&machine);
//   IndexBuilder<Machine>::Index index;
//   Status status = builder.Build(pairs, &index);
#ifndef CERES_EXT_CUDA_KERNELS_STRUCTURE_INDEX_BUILDER_H_
#define CERES_EXT_CUDA_KERNELS_STRUCTURE_INDEX_BUILDER_H_

#include <cstdint>
#include <type_traits>

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/machine/cuda_sort.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/structure/cuda_observation_index.h"
#include "cuda_kernels/structure/observation_index.h"

namespace ceres_ext::kernels {

template <typename Machine>
class IndexBuilder {
  static constexpr bool kIsHost = std::is_base_of_v<HostMachine, Machine>;

 public:
  using Index =
      std::conditional_t<kIsHost, ObservationIndex, CudaObservationIndex>;

  explicit IndexBuilder(Machine* machine) : machine_(machine) {}
  // pairs: in the machine's memory.
  Status Build(const ObservationPairs& pairs, Index* index) {
    if constexpr (kIsHost) {
      return index->Build(pairs, machine_->account());
    } else {
      return index->Build(pairs, &scratch_, machine_->context());
    }
  }
  // x[i] = x[0] + ... + x[i]. *total: the last of them, or 0.
  template <typename T>
  Status InclusiveSum(int64_t n, T* x, T* total) {
    if constexpr (kIsHost) {
      *total = 0;
      for (int64_t i = 0; i < n; ++i) {
        x[i] = *total += x[i];
      }
      return {};
    } else {
      return kernels::InclusiveSum(
          n, x, total, &scratch_.sort, machine_->context());
    }
  }

 private:
  struct NoScratch {};

  Machine* const machine_;
  std::conditional_t<kIsHost, NoScratch, CudaIndexScratch> scratch_;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_STRUCTURE_INDEX_BUILDER_H_
