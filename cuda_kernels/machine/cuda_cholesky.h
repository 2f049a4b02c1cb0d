// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Cholesky's factorisation A = L L' of a dense symmetric matrix on a device, by
// cuSOLVER, which is loaded at first use and linked to nothing
// (cuda_libraries.h), or where it is small and of double by one block of
// threads (cuda_small_cholesky.h).
//
//   CudaDenseCholesky cholesky;
//   Status status = cholesky.Setup(n, {}, &machine);
//   int64_t failed_order = 0;
//   if (status.ok()) status = cholesky.Factorize(a, &failed_order);
//   if (status.ok() && failed_order == 0) status = cholesky.Solve(b, x);
//   if (status.ok()) status = cholesky.CheckSolution();
//   if (status.ok()) status = cholesky.Invert();  // a = A^-1
//
// A matrix is n x n doubles on the device, column-major with Stride(n) from
// column to column; what is above its diagonal and behind its columns has no
// meaning. n is 64 bits wide: n^2 may be more than 2^31.
//
// Mixed precision: L is of float, of a copy of A, which has to stay as it was.
// x_0 = (L L')^-1 b, then, as in Ceres, as often as asked for,
//   x_{i+1} = x_i + (L L')^-1 (b - A x_i)
// with the residual in double. Each step shrinks the error by about cond(A)
// times float's rounding, n times that in the worst case, down to what double
// gives.
// With conjugate_gradients L is of A + s diag(A), s = kShift sqrt(n) u_float,
// so that rounding does not make it indefinite, and x is by conjugate gradients
// of A in double, with L L' as preconditioner (Saad, Iterative Methods for
// Sparse Linear Systems, 2003, algorithm 9.1), until r'(L L')^-1 r falls to
// kTolerance^2 of its first value. A is not refined where its condition is 1 /
// s, but takes an iteration for each direction, such as those of the gauge,
// that bends less.
//
// Order: fixed, or cuSOLVER's and cuBLAS's own, without atomics: the same input
// has the same bits on the same device and libraries.
// Stream contract: everything is queued on the machine's stream. Factorize
// waits for it, once, Solve doesn't, CheckSolution does.
// Memory: through the machine's account, except for some tens of megabytes that
// the libraries keep. Thread safety: one thread at a time, as the machine,
// which must outlive the object. Host-includable: needs no CUDA toolkit.
#ifndef CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_CHOLESKY_H_
#define CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_CHOLESKY_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_library_handles.h"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/machine/cuda_solution_check.h"
#include "cuda_kernels/machine/device_buffer.h"

namespace ceres_ext::kernels {

class CudaDenseCholesky {
 public:
  struct Options {
    bool mixed_precision = false;
    // Refinement iterations of x, with mixed precision alone; at least 0.
    int max_num_refinement_iterations = 0;
    // With mixed precision alone, in place of refinement. Solve waits.
    bool conjugate_gradients = false;

    bool refines() const {
      return mixed_precision &&
             (conjugate_gradients || max_num_refinement_iterations > 0);
    }
  };
  static constexpr double kShift = 8.0;
  static constexpr double kTolerance = 1e-6;
  static constexpr int kMostIterations = 30;

  // The largest n: addresses and bytes of no matrix up to it overflow.
  static constexpr int64_t kMaxSize = int64_t{1} << 29;
  // Values from column to column: whole 128 bytes, with which the libraries are
  // up to 1.2 times as fast (docs/measurements/study_exact.md).
  static constexpr int64_t Stride(int64_t n) { return (n + 15) / 16 * 16; }

  CudaDenseCholesky() = default;
  ~CudaDenseCholesky();
  CudaDenseCholesky(const CudaDenseCholesky&) = delete;
  CudaDenseCholesky& operator=(const CudaDenseCholesky&) = delete;

  // Loads the libraries; no work on a device. kUnsupported: a library is
  // missing or is not as expected, or the build has no headers for it.
  static Status Available();

  // *device_bytes: what Setup with the same arguments comes to hold of the
  // machine's account, beside the caller's matrix. Takes none of it; Setup uses
  // the library handles that are made here. Errors: those of Available;
  // kInvalidArgument: n is negative or above kMaxSize, or the number of
  // iterations negative; else a call of a library failed.
  Status ForecastBytes(int64_t n,
                       const Options& options,
                       CudaMachine* machine,
                       int64_t* device_bytes);

  // Takes all memory that the calls below work in. May be called again, for
  // another size, other options or another machine. Errors: those of
  // ForecastBytes, kOutOfMemory. After an error no memory is held.
  Status Setup(int64_t n, const Options& options, CudaMachine* machine);

  // a: the lower triangle of A. In double L replaces it; with mixed precision
  // it stays. Either way it belongs to this object until the last Solve.
  // *failed_order: 0, or k where the leading minor of order k is not positive,
  // so that the k-th row and column are to blame, or where the k-th element of
  // L's diagonal is not finite, as happens at the latest in the k-th row if
  // that has a value which is not finite, or too large for float in mixed
  // precision. There is no factor then and A is lost in double, which is not an
  // error of this call: those are of the device and of the order of calls.
  Status Factorize(double* a, int64_t* failed_order);
  // In two parts: the first is queued, and Solve may be queued behind it; the
  // second waits. Without a factor, solutions are invalid too.
  Status QueueFactorization(double* a);
  Status ReadFailedOrder(int64_t* failed_order);

  // x = A^-1 b, n values each; x may be b. kInvalidArgument: there is no
  // factor. b that is not finite gives an x that isn't. kNumericalFailure:
  // conjugate gradients did not converge.
  Status Solve(const double* b, double* x);
  // x = A^-1 b, n x num_columns values, column-major without gaps; x may be b
  // before Invert, and may not after it. In double alone, and not checked.
  Status SolveColumns(int64_t num_columns, const double* b, double* x);
  // Replaces the factor by A^-1, both triangles of it. After that
  // SolveColumns alone may be called, until the next factorisation. In double
  // alone. Takes kInversionBlock n doubles of device memory until it is done,
  // and waits. n^3 multiplications, most of them by cuBLAS in blocks of that
  // size; Du Croz and Higham, Stability of Methods for Matrix Inversion, 1992,
  // methods 2C and 3.
  Status Invert();
  static constexpr int64_t kInversionBlock = 1024;
  static constexpr int64_t InversionBytes(int64_t n) {
    return kInversionBlock * n * static_cast<int64_t>(sizeof(double));
  }
  // The result of cuda_solution_check.h for the last Solve. If ReadFailedOrder
  // came after that, it does not wait.
  Status CheckSolution();

 private:
  // The results of a factorisation and of a solution that the host reads, on
  // the device.
  struct Result {
    int32_t info = 0;           // cuSOLVER's, of the factorisation
    int32_t bad_diagonal = 0;   // the first element of L's that won't do
    int32_t solution_info = 0;  // cuSOLVER's, of the solution
    int32_t unused = 0;
    double product = 0.0;  // r'(L L')^-1 r of conjugate gradients
    SolutionSums sums;
  };

  // Checks arguments and makes handles; *num_device_bytes and *num_host_bytes:
  // of cuSOLVER's workspace.
  Status Prepare(int64_t n,
                 const Options& options,
                 CudaMachine* machine,
                 size_t* num_device_bytes,
                 size_t* num_host_bytes);
  Status TrySetup(int64_t n, const Options& options, CudaMachine* machine);
  void ReleaseMemory();
  // x = (L L')^-1 x in the type of the factor, for columns side by side.
  Status SolveInPlace(void* x, int64_t num_columns = 1);
  Status SolveMixed(const double* b, double* x);
  Status SolveByGradients(const double* b, double* x);
  // y = alpha A x + beta y
  Status Multiply(double alpha, const double* x, double beta, double* y);
  void ReturnHandles();
  // Makes cuBLAS's handle, without atomics.
  Status PrepareCublas();
  // The steps of Invert. work: kInversionBlock n values.
  Status InvertFactor(double* work);
  Status MultiplyFactors(double* work);
  // The last one of mixed precision, or x of conjugate gradients, else null.
  const float* correction() const {
    return options_.mixed_precision ? correction_.data() : nullptr;
  }

  CudaMachine* machine_ = nullptr;
  std::unique_ptr<LibraryHandles> handles_;
  int64_t n_ = -1;  // -1: there has been no Setup.
  Options options_;
  bool has_factor_ = false;
  bool is_inverted_ = false;
  bool is_small_ = false;  // The matrix is factorised by cuda_small_cholesky.h.
  double* a_ = nullptr;    // the caller's
  DeviceBuffer<unsigned char> workspace_;
  HostBuffer<unsigned char> host_workspace_;
  DeviceBuffer<Result> result_;
  Result read_;
  bool is_solution_read_ = false;  // read_ has the sums of the last Solve
  CudaSolutionCheck check_;
  DeviceBuffer<float> float_factor_;
  DeviceBuffer<float> correction_;
  DeviceBuffer<double> residual_;
  DeviceBuffer<double> rhs_;
  DeviceBuffer<double> direction_;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_CHOLESKY_H_
