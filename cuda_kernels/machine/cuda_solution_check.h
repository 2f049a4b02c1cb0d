// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Checks that x solves A x = b, A symmetric and positive definite, on a device,
// because libraries may report success and return a wrong x. A dense factor
// overwrites A, so the residual is not formed as a vector but multiplied by a
// vector that is chosen before:
//
//   v_i = s_i / d_i, d_i = sqrt(a_ii), s_i = +-1, pseudo-random, of i alone
//   v'(A x - b), where A v is formed before the factor, or v'A x after it
//
//   CudaSolutionCheck check;
//   Status status = check.Setup(n, &machine);
//   if (status.ok()) status = check.QueueDenseMatrix(stride, a);
//   ... a becomes its factor
//   if (status.ok()) status = check.QueueRhs(b, sums);
//   ... b becomes x
//   if (status.ok()) status = check.QueueDenseSolution(x, nullptr, sums);
//   ... *sums is copied to the host
//   if (status.ok()) status = CheckSolution("cuSOLVER 12.0", n, false, sums);
//
// Bound (Higham, Accuracy and Stability of Numerical Algorithms, theorem 10.4;
// tests/kernels/cholesky_test_util.h has the constant for a device), u the unit
// roundoff, whatever the condition of A and the order of rows and sums:
//   |A x - b|_i <= (3 n + 7) u d_i y, y = sum_j d_j |x_j|
// Libraries may multiply by inverses of diagonal blocks. That adds the
// condition of such a block of the factor, which is below u^(-1/2) where there
// is a factor; u^(-1/3) is allowed for it. By Hoeffding's inequality, signs
// which don't depend on the residual add n terms of at most that to 8 sqrt(n)
// of them, except in one case of 10^13:
//   |v'(A x - b)| <= min(n, 8 sqrt(n)) (3 n + 7 + u^(-1/3)) u y
// The sums here add n (n / 32 + 30) u y, since |a_ij| <= d_i d_j and each
// thread adds at most n / 32 of their terms.
//
// Mixed precision: b - A x_k = E c_k, where c_k is the last correction, or x_0,
// and E the error of the factor in float, so that the bound is that of float
// with c_k in place of x, and of double with x, by which residuals are rounded.
//
// Values below 2^-10 |v'b| pass as well: the loop needs no step more exact.
//
// Order: fixed. Stream contract: all is queued on the machine's stream. Takes
// memory in Setup alone. One thread at a time. Host-includable.
#ifndef CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_SOLUTION_CHECK_H_
#define CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_SOLUTION_CHECK_H_

#include <cstdint>
#include <string>

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/machine/device_buffer.h"

namespace ceres_ext::kernels {

// A record on the device.
struct SolutionSums {
  double rhs = 0.0;         // v'b
  double product = 0.0;     // v'A x
  double solution = 0.0;    // y
  double correction = 0.0;  // y of c_k, in mixed precision
};

// library: name and version. n: unknowns. kDeviceError: x does not solve the
// system or is not finite. kNumericalFailure: b or the diagonal of A is not
// finite, so that there is nothing to compare with.
Status CheckSolution(const std::string& library,
                     int64_t n,
                     bool mixed_precision,
                     const SolutionSums& sums);

class CudaSolutionCheck {
 public:
  // The memory of Setup.
  static constexpr int64_t ForecastBytes(int64_t n) {
    return 2 * n * static_cast<int64_t>(sizeof(double));
  }
  Status Setup(int64_t n, CudaMachine* machine);
  void Release();

  // a: the lower triangle, column-major, which may change once this is done.
  Status QueueDenseMatrix(int64_t stride, const double* a);
  // The lower triangle in compressed sparse rows, which end with the diagonal.
  Status QueueSparseMatrix(const int64_t* row_begin, const double* values);

  // Writes sums->rhs, then the others. correction: c_k; null: none.
  Status QueueRhs(const double* b, SolutionSums* sums);
  Status QueueDenseSolution(const double* x,
                            const float* correction,
                            SolutionSums* sums);
  Status QueueSparseSolution(const int64_t* row_begin,
                             const int32_t* column,
                             const double* values,
                             const double* x,
                             SolutionSums* sums);

 private:
  CudaMachine* machine_ = nullptr;
  int64_t n_ = 0;
  DeviceBuffer<double> v_;
  // A v of a dense A; of a sparse one terms, by rows, of v'A x.
  DeviceBuffer<double> product_;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_SOLUTION_CHECK_H_
