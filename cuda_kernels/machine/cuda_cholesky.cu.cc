// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/machine/cuda_cholesky.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_libraries.cuh"

namespace ceres_ext::kernels {

#if CERES_EXT_WITH_CUSOLVER
namespace {

// Threads per block of the kernels here.
constexpr int kBlock = 256;

// The values of cuSOLVER's info, which is a place in the matrix, and of a place
// at which the kernel below has found nothing: every byte 0x7f.
constexpr int kNothingByte = 0x7f;
constexpr int32_t kNothing = 0x7f7f7f7f;

// The calls of a library say what happened by a number alone.
Status LibraryError(const char* call, int status, bool is_out_of_memory) {
  static_cast<void>(cudaGetLastError());
  return {
      is_out_of_memory ? StatusCode::kOutOfMemory : StatusCode::kDeviceError,
      std::string(call) + " failed with status " + std::to_string(status) +
          (is_out_of_memory ? ", out of memory." : ".")};
}
Status Check(const char* call, cusolverStatus_t status) {
  return status == CUSOLVER_STATUS_SUCCESS
             ? Status()
             : LibraryError(
                   call, status, status == CUSOLVER_STATUS_ALLOC_FAILED);
}
Status Check(const char* call, cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS
             ? Status()
             : LibraryError(call, status, status == CUBLAS_STATUS_ALLOC_FAILED);
}
// function(arguments...) of a table of functions.
#define CERES_EXT_CALL(table, function, ...) \
  CERES_EXT_RETURN_IF_ERROR(Check(#function, (table)->function(__VA_ARGS__)))

// y = x on and below the diagonal, rounded to float. Block c has column c.
// Traffic: 12 B an element.
__global__ void __launch_bounds__(kBlock)
    CastLowerTriangle(int64_t n, int64_t stride, const double* x, float* y) {
  const int64_t column = blockIdx.x;
  for (int64_t row = column + threadIdx.x; row < n; row += kBlock) {
    y[column * stride + row] = static_cast<float>(x[column * stride + row]);
  }
}

// y = x
template <typename From, typename To>
__global__ void __launch_bounds__(kBlock)
    CastVector(int64_t n, const From* x, To* y) {
  const int64_t i = int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (i < n) {
    y[i] = static_cast<To>(x[i]);
  }
}

// y += x
__global__ void __launch_bounds__(kBlock)
    AddFloatVector(int64_t n, const float* x, double* y) {
  const int64_t i = int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (i < n) {
    y[i] += static_cast<double>(x[i]);
  }
}

// *first = the least k for which the k-th element of the diagonal, counted from
// 1, is not finite and positive; as it was where all are. A value of A that is
// not finite, at (i, j), makes element i of the diagonal of L so or an earlier
// one: L_ij is not finite or, of an infinite L_jj, that one. The least of
// integers is the same in every order, so that an atomic does no harm.
template <typename T>
__global__ void __launch_bounds__(kBlock) FindBadDiagonal(int64_t n,
                                                          int64_t stride,
                                                          const T* factor,
                                                          int32_t* first) {
  const int64_t i = int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (i < n) {
    const T x = factor[i * stride + i];
    if (!(x > T(0) && x < static_cast<T>(INFINITY))) {
      atomicMin(first, static_cast<int32_t>(i + 1));
    }
  }
}

template <typename... Parameters, typename... Arguments>
Status LaunchForEach(const char* name,
                     void (*kernel)(int64_t, Parameters...),
                     int64_t n,
                     cudaStream_t stream,
                     Arguments... arguments) {
  return Launch(
      name, kernel, CeilDivide(n, kBlock), kBlock, 0, stream, n, arguments...);
}

// Nothing is held for a size that is 0.
template <typename T>
Status AllocateExactly(int64_t size, CudaMachine* machine, DeviceBuffer<T>* x) {
  if (x->size() != size) {
    x->Release();
  }
  return size == 0 ? Status() : machine->Allocate(size, x);
}

// Elements of the buffers of a solver, which Setup takes and the forecast
// counts.
struct Sizes {
  Sizes(int64_t n, const CudaDenseCholesky::Options& options) {
    const bool refines =
        options.mixed_precision && options.max_num_refinement_iterations > 0;
    result = n == 0 ? 0 : 1;
    float_factor =
        options.mixed_precision ? n * CudaDenseCholesky::Stride(n) : 0;
    correction = options.mixed_precision ? n : 0;
    refinement = refines ? n : 0;
  }
  int64_t result;
  int64_t float_factor;
  int64_t correction;
  int64_t refinement;  // residual_ and rhs_, each
};

}  // namespace

CudaDenseCholesky::~CudaDenseCholesky() { DestroyHandles(); }

void CudaDenseCholesky::DestroyHandles() {
  if (cusolver_ == nullptr && params_ == nullptr && cublas_ == nullptr) {
    return;
  }
  // Resources of a lost device must not be destroyed. Errors are the echo of
  // earlier ones.
  const KeepCurrentContext keep;
  const CusolverFunctions* cusolver = nullptr;
  const CublasFunctions* cublas = nullptr;
  if (machine_->context()->IsAlive() && LoadCusolver(&cusolver).ok() &&
      LoadCublas(&cublas).ok()) {
    if (cublas_ != nullptr) {
      static_cast<void>(cublas->cublasDestroy_v2(cublas_));
    }
    if (params_ != nullptr) {
      static_cast<void>(cusolver->cusolverDnDestroyParams(params_));
    }
    if (cusolver_ != nullptr) {
      static_cast<void>(cusolver->cusolverDnDestroy(cusolver_));
    }
    static_cast<void>(cudaGetLastError());
  }
  cublas_ = nullptr;
  params_ = nullptr;
  cusolver_ = nullptr;
}

Status CudaDenseCholesky::Available() {
  const CusolverFunctions* cusolver = nullptr;
  const CublasFunctions* cublas = nullptr;
  CERES_EXT_RETURN_IF_ERROR(LoadCusolver(&cusolver));
  return LoadCublas(&cublas);
}

Status CudaDenseCholesky::Prepare(int64_t n,
                                  const Options& options,
                                  CudaMachine* machine,
                                  size_t* num_device_bytes,
                                  size_t* num_host_bytes) {
  *num_device_bytes = 0;
  *num_host_bytes = 0;
  if (n < 0 || n > kMaxSize) {
    return {StatusCode::kInvalidArgument,
            "A matrix of " + std::to_string(n) +
                " rows cannot be factorised; 0 to " + std::to_string(kMaxSize) +
                " rows are supported."};
  }
  if (options.max_num_refinement_iterations < 0) {
    return {StatusCode::kInvalidArgument,
            "The number of refinement iterations, " +
                std::to_string(options.max_num_refinement_iterations) +
                ", is negative."};
  }
  const CusolverFunctions* cusolver = nullptr;
  const CublasFunctions* cublas = nullptr;
  CERES_EXT_RETURN_IF_ERROR(LoadCusolver(&cusolver));
  CERES_EXT_RETURN_IF_ERROR(LoadCublas(&cublas));
  if (machine != machine_) {
    DestroyHandles();
    machine_ = machine;
  }
  if (n == 0) {
    return {};
  }
  CERES_EXT_RETURN_IF_ERROR(machine->context()->Activate());
  if (cusolver_ == nullptr) {
    CERES_EXT_CALL(cusolver, cusolverDnCreate, &cusolver_);
  }
  CERES_EXT_CALL(cusolver, cusolverDnSetStream, cusolver_, machine->stream());
  if (params_ == nullptr) {
    CERES_EXT_CALL(cusolver, cusolverDnCreateParams, &params_);
  }
  if (options.mixed_precision && options.max_num_refinement_iterations > 0) {
    if (cublas_ == nullptr) {
      CERES_EXT_CALL(cublas, cublasCreate_v2, &cublas_);
    }
    CERES_EXT_CALL(cublas, cublasSetStream_v2, cublas_, machine->stream());
    CERES_EXT_CALL(
        cublas, cublasSetAtomicsMode, cublas_, CUBLAS_ATOMICS_NOT_ALLOWED);
  }
  const cudaDataType type = options.mixed_precision ? CUDA_R_32F : CUDA_R_64F;
  CERES_EXT_CALL(cusolver,
                 cusolverDnXpotrf_bufferSize,
                 cusolver_,
                 params_,
                 CUBLAS_FILL_MODE_LOWER,
                 n,
                 type,
                 nullptr,
                 Stride(n),
                 type,
                 num_device_bytes,
                 num_host_bytes);
  return {};
}

Status CudaDenseCholesky::ForecastBytes(int64_t n,
                                        const Options& options,
                                        CudaMachine* machine,
                                        int64_t* device_bytes) {
  *device_bytes = 0;
  // Resources of another machine must not outlast their place here.
  if (machine != machine_) {
    ReleaseMemory();
  }
  size_t num_device_bytes = 0;
  size_t num_host_bytes = 0;
  CERES_EXT_RETURN_IF_ERROR(
      Prepare(n, options, machine, &num_device_bytes, &num_host_bytes));
  const Sizes sizes(n, options);
  constexpr int64_t kDouble = sizeof(double);
  constexpr int64_t kFloat = sizeof(float);
  constexpr int64_t kResult = sizeof(Result);
  *device_bytes = static_cast<int64_t>(num_device_bytes) +
                  kResult * sizes.result + CudaSolutionCheck::ForecastBytes(n) +
                  kFloat * (sizes.float_factor + sizes.correction) +
                  2 * kDouble * sizes.refinement;
  return {};
}

Status CudaDenseCholesky::Setup(int64_t n,
                                const Options& options,
                                CudaMachine* machine) {
  if (machine != machine_) {
    ReleaseMemory();
  }
  n_ = -1;
  has_factor_ = false;
  a_ = nullptr;
  Status status = TrySetup(n, options, machine);
  if (!status.ok()) {
    ReleaseMemory();
  }
  return status;
}

Status CudaDenseCholesky::TrySetup(int64_t n,
                                   const Options& options,
                                   CudaMachine* machine) {
  size_t num_device_bytes = 0;
  size_t num_host_bytes = 0;
  CERES_EXT_RETURN_IF_ERROR(
      Prepare(n, options, machine, &num_device_bytes, &num_host_bytes));
  const Sizes sizes(n, options);
  CERES_EXT_RETURN_IF_ERROR(AllocateExactly(
      static_cast<int64_t>(num_device_bytes), machine, &workspace_));
  CERES_EXT_RETURN_IF_ERROR(AllocateExactly(sizes.result, machine, &result_));
  // It is read as a whole, before all of it is written.
  CERES_EXT_RETURN_IF_ERROR(machine->SetZero(result_.size(), result_.data()));
  CERES_EXT_RETURN_IF_ERROR(check_.Setup(n, machine));
  CERES_EXT_RETURN_IF_ERROR(
      AllocateExactly(sizes.float_factor, machine, &float_factor_));
  CERES_EXT_RETURN_IF_ERROR(
      AllocateExactly(sizes.correction, machine, &correction_));
  CERES_EXT_RETURN_IF_ERROR(
      AllocateExactly(sizes.refinement, machine, &residual_));
  CERES_EXT_RETURN_IF_ERROR(AllocateExactly(sizes.refinement, machine, &rhs_));
  CERES_EXT_RETURN_IF_ERROR(
      host_workspace_.Allocate(static_cast<int64_t>(num_host_bytes)));
  n_ = n;
  options_ = options;
  return {};
}

void CudaDenseCholesky::ReleaseMemory() {
  n_ = -1;
  has_factor_ = false;
  workspace_.Release();
  result_.Release();
  check_.Release();
  float_factor_.Release();
  correction_.Release();
  residual_.Release();
  rhs_.Release();
  static_cast<void>(host_workspace_.Allocate(0));
}

Status CudaDenseCholesky::Factorize(double* a, int64_t* failed_order) {
  *failed_order = 0;
  CERES_EXT_RETURN_IF_ERROR(QueueFactorization(a));
  return ReadFailedOrder(failed_order);
}

Status CudaDenseCholesky::QueueFactorization(double* a) {
  has_factor_ = false;
  if (n_ < 0) {
    return {StatusCode::kInvalidArgument,
            "A factorisation was requested before the set-up."};
  }
  a_ = a;
  if (n_ == 0) {
    has_factor_ = true;
    return {};
  }
  const CusolverFunctions* cusolver = nullptr;
  CERES_EXT_RETURN_IF_ERROR(LoadCusolver(&cusolver));
  const cudaStream_t stream = machine_->stream();
  const int64_t stride = Stride(n_);
  const bool is_float = options_.mixed_precision;
  if (is_float) {
    CERES_EXT_RETURN_IF_ERROR(Launch("CastLowerTriangle",
                                     CastLowerTriangle,
                                     n_,
                                     kBlock,
                                     0,
                                     stream,
                                     n_,
                                     stride,
                                     a,
                                     float_factor_.data()));
  }
  CERES_EXT_RETURN_IF_ERROR(check_.QueueDenseMatrix(stride, a));
  int32_t* const info = &result_.data()->info;
  int32_t* const bad_diagonal = &result_.data()->bad_diagonal;
  CERES_EXT_RETURN_IF_ERROR(
      machine_->context()->SetBytes(info, 0, sizeof(int32_t)));
  CERES_EXT_RETURN_IF_ERROR(machine_->context()->SetBytes(
      bad_diagonal, kNothingByte, sizeof(int32_t)));
  const cudaDataType type = is_float ? CUDA_R_32F : CUDA_R_64F;
  CERES_EXT_CALL(cusolver,
                 cusolverDnXpotrf,
                 cusolver_,
                 params_,
                 CUBLAS_FILL_MODE_LOWER,
                 n_,
                 type,
                 is_float ? static_cast<void*>(float_factor_.data()) : a,
                 stride,
                 type,
                 workspace_.data(),
                 static_cast<size_t>(workspace_.size()),
                 host_workspace_.data(),
                 static_cast<size_t>(host_workspace_.size()),
                 info);
  CERES_EXT_RETURN_IF_ERROR(is_float ? LaunchForEach("FindBadDiagonal",
                                                     FindBadDiagonal<float>,
                                                     n_,
                                                     stream,
                                                     stride,
                                                     float_factor_.data(),
                                                     bad_diagonal)
                                     : LaunchForEach("FindBadDiagonal",
                                                     FindBadDiagonal<double>,
                                                     n_,
                                                     stream,
                                                     stride,
                                                     a,
                                                     bad_diagonal));
  has_factor_ = true;  // So far as is known.
  return {};
}

Status CudaDenseCholesky::ReadFailedOrder(int64_t* failed_order) {
  *failed_order = 0;
  if (!has_factor_) {
    return {StatusCode::kInvalidArgument, "There is no matrix to factorise."};
  }
  if (n_ == 0) {
    return {};
  }
  has_factor_ = false;
  CERES_EXT_RETURN_IF_ERROR(machine_->Download(1, result_.data(), &read_));
  is_solution_read_ = true;
  if (read_.info < 0) {
    return {StatusCode::kDeviceError,
            "cusolverDnXpotrf refused its argument " +
                std::to_string(-read_.info) + "."};
  }
  // The matrix that cuSOLVER has left after its info is not a factor. It may
  // have continued for some columns with an element that is not finite.
  if (read_.info > 0) {
    *failed_order = std::min(read_.info, read_.bad_diagonal);
  } else if (read_.bad_diagonal != kNothing) {
    *failed_order = read_.bad_diagonal;
  }
  has_factor_ = *failed_order == 0;
  return {};
}

Status CudaDenseCholesky::SolveInPlace(void* x, int64_t num_columns) {
  const CusolverFunctions* cusolver = nullptr;
  CERES_EXT_RETURN_IF_ERROR(LoadCusolver(&cusolver));
  const bool is_float = options_.mixed_precision;
  const cudaDataType type = is_float ? CUDA_R_32F : CUDA_R_64F;
  // Its info would say no more than what it returns.
  CERES_EXT_CALL(cusolver,
                 cusolverDnXpotrs,
                 cusolver_,
                 params_,
                 CUBLAS_FILL_MODE_LOWER,
                 n_,
                 num_columns,
                 type,
                 is_float ? static_cast<const void*>(float_factor_.data()) : a_,
                 Stride(n_),
                 type,
                 x,
                 n_,
                 &result_.data()->solution_info);
  return {};
}

Status CudaDenseCholesky::Solve(const double* b, double* x) {
  if (!has_factor_) {
    return {StatusCode::kInvalidArgument,
            "A solution was requested without a factor of the matrix."};
  }
  if (n_ == 0) {
    return {};
  }
  SolutionSums* const sums = &result_.data()->sums;
  is_solution_read_ = false;
  CERES_EXT_RETURN_IF_ERROR(check_.QueueRhs(b, sums));
  if (options_.mixed_precision) {
    CERES_EXT_RETURN_IF_ERROR(SolveMixed(b, x));
  } else {
    if (x != b) {
      CERES_EXT_RETURN_IF_ERROR(machine_->context()->CopyOnDevice(
          x, b, n_ * static_cast<int64_t>(sizeof(double))));
    }
    CERES_EXT_RETURN_IF_ERROR(SolveInPlace(x));
  }
  return check_.QueueDenseSolution(x, correction(), sums);
}

Status CudaDenseCholesky::SolveColumns(int64_t num_columns, double* x) {
  if (!has_factor_ || options_.mixed_precision) {
    return {StatusCode::kInvalidArgument,
            "Solutions were requested without a factor in double."};
  }
  return n_ == 0 ? Status() : SolveInPlace(x, num_columns);
}

Status CudaDenseCholesky::CheckSolution() {
  if (n_ < 0) {
    return {StatusCode::kInvalidArgument,
            "A check of a solution was requested before the set-up."};
  }
  if (n_ == 0) {
    return {};
  }
  if (!is_solution_read_) {
    CERES_EXT_RETURN_IF_ERROR(machine_->Download(1, result_.data(), &read_));
    is_solution_read_ = true;
  }
  const CusolverFunctions* cusolver = nullptr;
  CERES_EXT_RETURN_IF_ERROR(LoadCusolver(&cusolver));
  return ::ceres_ext::kernels::CheckSolution(
      cusolver->library, n_, options_.mixed_precision, read_.sums);
}

Status CudaDenseCholesky::SolveMixed(const double* b, double* x) {
  CudaContext* const context = machine_->context();
  const int64_t num_bytes = n_ * static_cast<int64_t>(sizeof(double));
  const cudaStream_t stream = machine_->stream();
  if (refines() && x == b) {
    CERES_EXT_RETURN_IF_ERROR(context->CopyOnDevice(rhs_.data(), b, num_bytes));
    b = rhs_.data();
  }
  CERES_EXT_RETURN_IF_ERROR(LaunchForEach("CastVector",
                                          CastVector<double, float>,
                                          n_,
                                          stream,
                                          b,
                                          correction_.data()));
  CERES_EXT_RETURN_IF_ERROR(SolveInPlace(correction_.data()));
  CERES_EXT_RETURN_IF_ERROR(LaunchForEach("CastVector",
                                          CastVector<float, double>,
                                          n_,
                                          stream,
                                          correction_.data(),
                                          x));
  if (!refines()) {
    return {};
  }
  const CublasFunctions* cublas = nullptr;
  CERES_EXT_RETURN_IF_ERROR(LoadCublas(&cublas));
  const double minus_one = -1.0;
  const double one = 1.0;
  for (int i = 0; i < options_.max_num_refinement_iterations; ++i) {
    CERES_EXT_RETURN_IF_ERROR(
        context->CopyOnDevice(residual_.data(), b, num_bytes));
    CERES_EXT_CALL(cublas,
                   cublasDsymv_v2_64,
                   cublas_,
                   CUBLAS_FILL_MODE_LOWER,
                   n_,
                   &minus_one,
                   a_,
                   Stride(n_),
                   x,
                   1,
                   &one,
                   residual_.data(),
                   1);
    CERES_EXT_RETURN_IF_ERROR(LaunchForEach("CastVector",
                                            CastVector<double, float>,
                                            n_,
                                            stream,
                                            residual_.data(),
                                            correction_.data()));
    CERES_EXT_RETURN_IF_ERROR(SolveInPlace(correction_.data()));
    CERES_EXT_RETURN_IF_ERROR(LaunchForEach(
        "AddFloatVector", AddFloatVector, n_, stream, correction_.data(), x));
  }
  return {};
}

#undef CERES_EXT_CALL

#else  // no headers of cuSOLVER and cuBLAS

CudaDenseCholesky::~CudaDenseCholesky() = default;
Status CudaDenseCholesky::Available() {
  return {StatusCode::kUnsupported,
          "This library was built without the headers of cuSOLVER and cuBLAS."};
}
Status CudaDenseCholesky::ForecastBytes(int64_t /*n*/,
                                        const Options& /*options*/,
                                        CudaMachine* /*machine*/,
                                        int64_t* device_bytes) {
  *device_bytes = 0;
  return Available();
}
Status CudaDenseCholesky::Setup(int64_t /*n*/,
                                const Options& /*options*/,
                                CudaMachine* /*machine*/) {
  return Available();
}
Status CudaDenseCholesky::Factorize(double* /*a*/, int64_t* failed_order) {
  *failed_order = 0;
  return Available();
}
Status CudaDenseCholesky::QueueFactorization(double* /*a*/) {
  return Available();
}
Status CudaDenseCholesky::ReadFailedOrder(int64_t* failed_order) {
  *failed_order = 0;
  return Available();
}
Status CudaDenseCholesky::Solve(const double* /*b*/, double* /*x*/) {
  return Available();
}
Status CudaDenseCholesky::CheckSolution() { return Available(); }

#endif

}  // namespace ceres_ext::kernels
