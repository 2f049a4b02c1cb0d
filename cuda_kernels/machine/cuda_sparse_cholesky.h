// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Cholesky's factorisation P A P' = L L' of a sparse symmetric matrix on a
// device, by cuDSS, which is loaded at first use and linked to nothing
// (cuda_libraries.h).
//
//   CudaSparseCholesky cholesky;
//   Status status = cholesky.Analyze(csr, values, &machine);  // once
//   int64_t failed_order = 0;
//   if (status.ok()) status = cholesky.Factorize(values, &failed_order);
//   if (status.ok() && failed_order == 0) status = cholesky.Solve(b, x);
//   if (status.ok()) status = cholesky.CheckSolution();
//
// cuDSS chooses P, on the host, and what the factor will have, in Analyze. Its
// deterministic mode is on: the same input has the same bits on the same device
// and library. It keeps no cache of kernels on disk unless CUDSS_JIT_CACHE_DIR
// says where.
//
// Stream contract: everything is queued on the machine's stream. Analyze and
// Factorize wait for it, Solve doesn't, CheckSolution does.
// Memory: through the context's account, except for memory that cuDSS keeps.
// Thread safety: one thread at a time, as the machine, which must outlive the
// object. Host-includable: needs no CUDA toolkit.
#ifndef CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_SPARSE_CHOLESKY_H_
#define CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_SPARSE_CHOLESKY_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_library_handles.h"
#include "cuda_kernels/machine/cuda_machine.h"

namespace ceres_ext::kernels {

// The pattern of the lower triangle in compressed sparse rows, on the device:
// the columns of a row ascend and end with that of its diagonal.
struct LowerCsr {
  int64_t n = 0;                       // rows, at most 2^31 - 1
  int64_t num_values = 0;              // row_begin[n]
  const int64_t* row_begin = nullptr;  // n + 1
  const int32_t* column = nullptr;     // num_values
};

class CudaSparseCholesky {
 public:
  CudaSparseCholesky();
  ~CudaSparseCholesky();
  CudaSparseCholesky(const CudaSparseCholesky&) = delete;
  CudaSparseCholesky& operator=(const CudaSparseCholesky&) = delete;

  // Loads the libraries; no work on a device. kUnsupported: cuDSS is missing or
  // is not as expected, or the build has no header for it.
  static Status Available();

  // Orders and analyses the pattern, which must stay as it is until the last
  // Factorize, and takes the memory that the analysis keeps. values: room on
  // the device for num_values of them, whatever they are yet. May be called
  // again, for another pattern or machine. Errors: those of Available;
  // kInvalidArgument: n or num_values can't be; kOutOfMemory: the machine has
  // no more, or, with the numbers, factor and workspace would not fit beneath
  // its limit, of which nothing has been taken then; kDeviceError.
  Status Analyze(const LowerCsr& csr,
                 const double* values,
                 CudaMachine* machine);

  // As before an analysis: no memory is held.
  void Release();

  // Results of an analysis. Values of L, operations of a factorisation, and
  // bytes of the device: those that stay after the first factorisation, and the
  // most there are during it.
  int64_t num_factor_values() const { return num_factor_values_; }
  int64_t num_flops() const { return num_flops_; }
  int64_t device_bytes() const { return device_bytes_; }
  int64_t peak_device_bytes() const { return peak_device_bytes_; }

  // values: num_values of them in the order of the pattern, kept. The first
  // call takes the factor's memory; later ones reuse it. *failed_order: 0, or
  // where there is no factor k > 0, counted from 1, if row k of A is to blame,
  // since its pivot is not positive in the order of elimination or the row has
  // a value which is not finite, or kUnknownOrder where cuDSS doesn't say. That
  // is not an error of this call: those are kOutOfMemory, kDeviceError, and
  // kInvalidArgument without an analysis.
  static constexpr int64_t kUnknownOrder = -1;
  Status Factorize(const double* values, int64_t* failed_order);

  // x = A^-1 b, n values each on the device; x may be b. kInvalidArgument:
  // there is no factor. b that is not finite, or a factor that has overflown,
  // gives an x that is not finite.
  Status Solve(const double* b, double* x);
  // x = A^-1 b, n x num_columns values each, column-major without gaps; x is
  // not b. Not checked.
  Status SolveColumns(int64_t num_columns, double* b, double* x);
  // The result of cuda_solution_check.h for the last Solve.
  Status CheckSolution();
  // True if that was that cuDSS's solution is wrong, and not an error of CUDA.
  bool solution_is_wrong() const { return solution_is_wrong_; }

 private:
  class Handles;

  Status TryAnalyze(const LowerCsr& csr,
                    const double* values,
                    CudaMachine* machine);
  Status MakeHandle(LibraryHandles* libraries);
  // Creates cuDSS's data, and the matrices of csr_.
  Status Configure();
  Status CreateMatrices(const double* values);
  // *first: the first of the values that is not finite; their number: all are.
  Status FindNotFinite(const double* values, int64_t* first);
  // x = A^-1 b, not checked.
  Status QueueSolution(const double* b, double* x);

  LowerCsr csr_;
  CudaMachine* machine_ = nullptr;
  int64_t num_factor_values_ = 0;
  int64_t num_flops_ = 0;
  int64_t device_bytes_ = 0;
  int64_t peak_device_bytes_ = 0;
  bool is_analyzed_ = false;
  bool was_factorized_ = false;  // once, so that it can be done again
  bool has_factor_ = false;
  bool solution_is_wrong_ = false;
  // cuDSS's; null if there is nothing analysed.
  std::unique_ptr<Handles> handles_;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_SPARSE_CHOLESKY_H_
