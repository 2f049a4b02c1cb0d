// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// w = E^-1 v for a coarse matrix E, dense and positive definite, in each
// iteration of PCG: on the host by its Cholesky factor, on a device by the
// inverse, so that it is one product that a graph can hold.
#ifndef CERES_EXT_SOLVER_PRECONDITIONER_COARSE_SOLVER_H_
#define CERES_EXT_SOLVER_PRECONDITIONER_COARSE_SOLVER_H_

#include <cstdint>
#include <type_traits>

#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/machine/host_cholesky.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/ops/coarse_inverse.h"
#include "cuda_kernels/ops/coarse_space.h"

namespace ceres_ext::solver {

// None for machines that replace operations of the device.
template <typename Machine>
class CoarseSolver {
 public:
  static kernels::Status Available() {
    return {kernels::StatusCode::kUnsupported,
            "This machine has no factorisation."};
  }
  static int64_t Stride(int64_t n) { return n; }
  kernels::Status Setup(int64_t /*n*/, Machine* /*machine*/) {
    return Available();
  }
  kernels::Status Factorize(double* /*e*/, int64_t* /*failed_order*/) {
    return Available();
  }
  kernels::Status Solve(const double* /*v*/,
                        double* /*w*/,
                        const kernels::PcgScalars* /*scalars*/) {
    return Available();
  }
};

template <>
class CoarseSolver<kernels::HostMachine> {
 public:
  static kernels::Status Available() { return {}; }
  static int64_t Stride(int64_t n) {
    return kernels::HostDenseCholesky::Stride(n);
  }
  // Takes all memory.
  kernels::Status Setup(int64_t n, kernels::HostMachine* machine) {
    return cholesky_.Setup(n, machine);
  }
  // e: the lower triangle, column-major by Stride, which belongs to this object
  // until the last Solve. *failed_order: HostDenseCholesky::ReadFailedOrder.
  kernels::Status Factorize(double* e, int64_t* failed_order) {
    CERES_EXT_RETURN_IF_ERROR(cholesky_.QueueFactorization(e));
    return cholesky_.ReadFailedOrder(failed_order);
  }
  kernels::Status Solve(const double* v,
                        double* w,
                        const kernels::PcgScalars* /*scalars*/) {
    return cholesky_.Solve(v, w);
  }

 private:
  kernels::HostDenseCholesky cholesky_;
};

template <>
class CoarseSolver<kernels::CudaMachine> {
 public:
  static kernels::Status Available() { return {}; }
  static int64_t Stride(int64_t n) { return n; }
  kernels::Status Setup(int64_t n, kernels::CudaMachine* machine) {
    machine_ = machine;
    n_ = n;
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(1, &failed_order_));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(kernels::CoarseInverseParams::kTile * n, &panel_));
    return machine->Allocate(kernels::kCoarseLanes * n, &partial_);
  }
  kernels::Status Factorize(double* e, int64_t* failed_order) {
    inverse_ = e;
    CERES_EXT_RETURN_IF_ERROR(machine_->SetZero(1, failed_order_.data()));
    CERES_EXT_RETURN_IF_ERROR(Run(
        kernels::CoarseInverseParams{
            n_, Stride(n_), e, panel_.data(), failed_order_.data()},
        machine_));
    int32_t failed = 0;
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Download(1, failed_order_.data(), &failed));
    *failed_order = failed;
    return {};
  }
  kernels::Status Solve(const double* v,
                        double* w,
                        const kernels::PcgScalars* scalars) {
    CERES_EXT_RETURN_IF_ERROR(Run(
        kernels::DenseProductParams{
            n_, Stride(n_), inverse_, v, partial_.data(), scalars},
        machine_));
    return Run(kernels::SumLanesParams{n_, partial_.data(), w, scalars},
               machine_);
  }

 private:
  kernels::CudaMachine* machine_ = nullptr;
  int64_t n_ = 0;
  kernels::CudaMachine::Buffer<int32_t> failed_order_;
  kernels::CudaMachine::Buffer<double> panel_;
  const double* inverse_ = nullptr;
  kernels::CudaMachine::Buffer<double> partial_;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_PRECONDITIONER_COARSE_SOLVER_H_
