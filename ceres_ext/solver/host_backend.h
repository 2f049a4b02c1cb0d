// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The host as a machine for the solvers of this folder.
//
//   HostContext context(num_threads);
//   HostBackend backend;
//   Status status = backend.Setup(index.view(), &context);
//
// A Backend is a type with
//   kLayout, Buffer<T>       layout of block arrays, owner of an array
//   Allocate(n, &buffer)     memory, in Setup of a solver only
//   ReserveCameraSums(n)     scratch for n sums per camera in one operation
//   ReserveVectors(n)        scratch for vectors of n elements
//   Run(params)              one operation of cuda_kernels/, queued or done
//   Copy(n, from, to)        n values of the machine's memory
//   Read(from, &to)          waits for queued work; a record to the host
//   ShouldPoll(i)            whether to look at the scalars after iteration i
//   PcgLoop                  what it keeps of PCG's iterations between solves
//   QueueToEnd(...)          all iterations of PCG that are left, or false
//   RecordMark(m), SecondsBetweenMarks(m, n), m < kNumMarks
// where whatever may fail returns a Status.
#ifndef CERES_EXT_SOLVER_HOST_BACKEND_H_
#define CERES_EXT_SOLVER_HOST_BACKEND_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "cuda_kernels/base/block_view.h"
#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/machine/host_context.h"
#include "cuda_kernels/structure/host_workspace.h"
#include "cuda_kernels/ops/jacobian_products.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/structure/observation_index.h"
#include "cuda_kernels/ops/pcg.h"
#include "cuda_kernels/ops/preconditioner.h"
#include "cuda_kernels/ops/schur_products.h"
#include "cuda_kernels/base/status.h"

namespace ceres_ext::solver {

// Serves one solve at a time. Index and context must outlive it.
class HostBackend {
 public:
  static constexpr kernels::BlockLayout kLayout = kernels::kHostLayout;
  static constexpr int kNumMarks = 4;
  template <typename T>
  using Buffer = kernels::HostBuffer<T>;

  kernels::Status Setup(const kernels::ObservationIndexView& index,
                        kernels::HostContext* context) {
    index_ = index;
    return workspace_.Setup(index, context);
  }

  const kernels::ObservationIndexView& index() const { return index_; }
  kernels::HostWorkspace* workspace() { return &workspace_; }

  template <typename T>
  kernels::Status Allocate(int64_t n, kernels::HostBuffer<T>* buffer) {
    return buffer->Allocate(n);
  }
  kernels::Status ReserveCameraSums(int num_sums) {
    return workspace_.ReserveCameraSums(num_sums);
  }
  kernels::Status ReserveVectors(int64_t n) {
    return workspace_.ReserveVectorSums(n);
  }

  template <typename Source>
  kernels::Status Run(
      const kernels::NormalBlocksParams<Source, kLayout>& params) {
    kernels::host::NormalBlocks(params, &workspace_);
    return {};
  }
  template <typename Source>
  kernels::Status Run(
      const kernels::SchurProductImplicitWParams<Source, kLayout>& params) {
    kernels::host::SchurProductImplicitW(params, &workspace_);
    return {};
  }
  template <typename T, int C>
  kernels::Status Run(
      const kernels::SchurProductExplicitWParams<T, C, kLayout>& params) {
    kernels::host::SchurProductExplicitW(params, &workspace_);
    return {};
  }
  template <typename Source>
  kernels::Status Run(
      const kernels::BackSubstituteImplicitWParams<Source, kLayout>& params) {
    kernels::host::BackSubstituteImplicitW(params, &workspace_);
    return {};
  }
  template <typename T, int C>
  kernels::Status Run(
      const kernels::BackSubstituteExplicitWParams<T, C, kLayout>& params) {
    kernels::host::BackSubstituteExplicitW(params, &workspace_);
    return {};
  }
  template <typename Source>
  kernels::Status Run(
      const kernels::NormalProductImplicitWParams<Source>& params) {
    kernels::host::NormalProductImplicitW(params, &workspace_);
    return {};
  }
  template <typename T, int C>
  kernels::Status Run(
      const kernels::NormalProductExplicitWParams<T, C, kLayout>& params) {
    kernels::host::NormalProductExplicitW(params, &workspace_);
    return {};
  }
  template <int N>
  kernels::Status Run(
      const kernels::InvertBlockDiagonalParams<N, kLayout>& params) {
    kernels::host::InvertBlockDiagonal(params, workspace_.context());
    return {};
  }
  template <int N>
  kernels::Status Run(
      const kernels::ApplyBlockDiagonalParams<N, kLayout>& params) {
    kernels::host::ApplyBlockDiagonal(params, workspace_.context());
    return {};
  }
  kernels::Status Run(const kernels::PcgStartParams& params) {
    kernels::host::PcgStart(params, &workspace_);
    return {};
  }
  kernels::Status Run(const kernels::PcgDirectionParams& params) {
    kernels::host::PcgDirection(params, &workspace_);
    return {};
  }
  kernels::Status Run(const kernels::PcgAdvanceParams& params) {
    kernels::host::PcgAdvance(params, &workspace_);
    return {};
  }
  kernels::Status Run(const kernels::PcgResidualParams& params) {
    kernels::host::PcgResidual(params, &workspace_);
    return {};
  }
  kernels::Status Run(const kernels::DotParams& params) {
    kernels::host::Dot(params, &workspace_);
    return {};
  }

  kernels::Status Copy(int64_t n, const double* from, double* to) {
    std::copy_n(from, n, to);
    return {};
  }
  template <typename T>
  kernels::Status Read(const T* from, T* to) {
    *to = *from;
    return {};
  }
  bool ShouldPoll(int /*iteration*/) const { return true; }

  struct PcgLoop {
    void Reset() {}
  };
  template <typename Iterate>
  bool QueueToEnd(int /*i*/,
                  int /*period*/,
                  int /*max_num_iterations*/,
                  const Iterate& /*iterate*/,
                  PcgLoop* /*loop*/) {
    return false;
  }

  kernels::Status RecordMark(int mark) {
    marks_[mark] = std::chrono::steady_clock::now();
    return {};
  }
  double SecondsBetweenMarks(int first, int last) const {
    return std::chrono::duration<double>(marks_[last] - marks_[first]).count();
  }

 private:
  kernels::ObservationIndexView index_;
  kernels::HostWorkspace workspace_;
  std::chrono::steady_clock::time_point marks_[kNumMarks];
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_HOST_BACKEND_H_
