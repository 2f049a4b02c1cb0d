// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/machine/cuda_cholesky.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_libraries.cuh"
#include "cuda_kernels/machine/cuda_small_cholesky.h"

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
#define CERES_EXT_CALL(table, function, ...)               \
  do {                                                     \
    CERES_EXT_RETURN_IF_ERROR(FlushLaunches());            \
    CERES_EXT_RETURN_IF_ERROR(                             \
        Check(#function, (table)->function(__VA_ARGS__))); \
  } while (false)

// y = x + shift diag(x) on and below the diagonal, rounded to float. Block c
// has column c. Traffic: 12 B an element.
__global__ void __launch_bounds__(kBlock) CastLowerTriangle(
    int64_t n, int64_t stride, double shift, const double* x, float* y) {
  const int64_t column = blockIdx.x;
  for (int64_t row = column + threadIdx.x; row < n; row += kBlock) {
    const double value = x[column * stride + row];
    y[column * stride + row] =
        static_cast<float>(row == column ? value + shift * value : value);
  }
}

// Threads of the kernels below, which are one block.
constexpr int kSumBlock = 1024;

// The sum over the block, in all threads.
__device__ double SumInAll(double value) {
  __shared__ double sum;
  value = BlockSum<kSumBlock>(value);
  if (threadIdx.x == 0) {
    sum = value;
  }
  __syncthreads();
  return sum;
}

// *product = r'z, p = z + beta p, beta its quotient with the one before.
// Traffic: 28 B an element.
__global__ void __launch_bounds__(kSumBlock) UpdateDirection(int64_t n,
                                                             bool is_first,
                                                             const float* z,
                                                             const double* r,
                                                             double* p,
                                                             double* product) {
  const double before = is_first ? 0.0 : *product;
  double value = 0.0;
  for (int64_t i = threadIdx.x; i < n; i += kSumBlock) {
    value += r[i] * static_cast<double>(z[i]);
  }
  value = SumInAll(value);
  const double beta = is_first ? 0.0 : value / before;
  for (int64_t i = threadIdx.x; i < n; i += kSumBlock) {
    p[i] = static_cast<double>(z[i]) + (is_first ? 0.0 : beta * p[i]);
  }
  if (threadIdx.x == 0) {
    *product = value;
  }
}

// x += alpha p, r -= alpha q, q = A p, alpha = product / p'q.
// Traffic: 64 B an element.
__global__ void __launch_bounds__(kSumBlock)
    UpdateSolution(int64_t n,
                   const double* product,
                   const double* p,
                   const double* q,
                   double* x,
                   double* r) {
  double value = 0.0;
  for (int64_t i = threadIdx.x; i < n; i += kSumBlock) {
    value += p[i] * q[i];
  }
  const double alpha = *product / SumInAll(value);
  for (int64_t i = threadIdx.x; i < n; i += kSumBlock) {
    x[i] += alpha * p[i];
    r[i] -= alpha * q[i];
  }
}

// y = x
template <typename From, typename To>
Status CastVector(int64_t n, const From* x, To* y, cudaStream_t stream) {
  return ForEach("CastVector", n, stream, [=] __device__(int64_t i) {
    y[i] = static_cast<To>(x[i]);
  });
}

// y += x
Status AddFloatVector(int64_t n,
                      const float* x,
                      double* y,
                      cudaStream_t stream) {
  return ForEach("AddFloatVector", n, stream, [=] __device__(int64_t i) {
    y[i] += static_cast<double>(x[i]);
  });
}

// A tile of a matrix that a block of threads has at a time.
constexpr int kTile = 32;
constexpr int kTileRows = 8;

// Zeros above the diagonal. Block c has column c.
__global__ void __launch_bounds__(kBlock)
    ZeroUpperTriangle(int64_t stride, double* a) {
  const int64_t column = blockIdx.x;
  for (int64_t row = threadIdx.x; row < column; row += kBlock) {
    a[column * stride + row] = 0.0;
  }
}

// Each tile on the diagonal of a lower triangle becomes its inverse. Block t
// has tile t, thread c its column c: x = L^-1 e_c by substitution.
__global__ void __launch_bounds__(kTile)
    InvertTiles(int64_t n, int64_t stride, double* a) {
  __shared__ double l[kTile][kTile + 1];
  __shared__ double x[kTile][kTile + 1];
  const int64_t first = int64_t{blockIdx.x} * kTile;
  const int size = static_cast<int>(n - first < kTile ? n - first : kTile);
  const int c = static_cast<int>(threadIdx.x);
  double* const tile = a + first * (stride + 1);
  if (c < size) {
    for (int j = 0; j < size; ++j) {
      l[c][j] = tile[j * stride + c];
    }
  }
  __syncthreads();
  if (c < size) {
    for (int i = 0; i < size; ++i) {
      double sum = i == c ? 1.0 : 0.0;
      for (int k = c; k < i; ++k) {
        sum -= l[i][k] * x[k][c];
      }
      x[i][c] = i < c ? 0.0 : sum / l[i][i];
    }
  }
  __syncthreads();
  if (c < size) {
    for (int j = 0; j <= c; ++j) {
      tile[j * stride + c] = x[c][j];
    }
  }
}

// y = x, rows x columns, and its transpose; of the square above, what is on and
// below the diagonal of x. A block has a tile of x.
// Traffic: 24 B an element.
__global__ void __launch_bounds__(kTile* kTileRows) CopySymmetric(
    int64_t rows, int64_t columns, const double* x, int64_t stride, double* y) {
  __shared__ double tile[kTile][kTile + 1];
  const int64_t tiles_down = (rows + kTile - 1) / kTile;
  const int64_t i0 = int64_t{blockIdx.x} % tiles_down * kTile;
  const int64_t j0 = int64_t{blockIdx.x} / tiles_down * kTile;
  if (i0 < j0) {
    return;
  }
  const int lane = static_cast<int>(threadIdx.x) % kTile;
  const int warp = static_cast<int>(threadIdx.x) / kTile;
  for (int k = warp; k < kTile; k += kTileRows) {
    const int64_t i = i0 + lane;
    const int64_t j = j0 + k;
    if (i < rows && j < columns) {
      tile[k][lane] = x[j * rows + i];
      if (i >= j) {
        y[j * stride + i] = tile[k][lane];
      }
    }
  }
  __syncthreads();
  for (int k = warp; k < kTile; k += kTileRows) {
    const int64_t i = i0 + k;
    const int64_t j = j0 + lane;
    if (i < rows && j < columns && i > j) {
      y[i * stride + j] = tile[lane][k];
    }
  }
}

// A matrix of a batch, column-major, `step` values from one to the next.
struct Operand {
  const double* values;
  int64_t stride;
  int64_t step;
};
struct Target {
  double* values;
  int64_t stride;
  int64_t step;
};
struct ProductSize {
  int64_t rows;
  int64_t columns;
  int64_t inner;
};
// c = alpha a b, `count` times.
Status MultiplyBatched(const CublasFunctions* cublas,
                       cublasHandle_t handle,
                       const ProductSize& size,
                       double alpha,
                       const Operand& a,
                       const Operand& b,
                       const Target& c,
                       int64_t count) {
  const double zero = 0.0;
  CERES_EXT_CALL(cublas,
                 cublasDgemmStridedBatched_64,
                 handle,
                 CUBLAS_OP_N,
                 CUBLAS_OP_N,
                 size.rows,
                 size.columns,
                 size.inner,
                 &alpha,
                 a.values,
                 a.stride,
                 a.step,
                 b.values,
                 b.stride,
                 b.step,
                 &zero,
                 c.values,
                 c.stride,
                 c.step,
                 count);
  return {};
}

// *first = the least k for which the k-th element of the diagonal, counted from
// 1, is not finite and positive; as it was where all are. A value of A that is
// not finite, at (i, j), makes element i of the diagonal of L so or an earlier
// one: L_ij is not finite or, of an infinite L_jj, that one. The least of
// integers is the same in every order, so that an atomic does no harm.
template <typename T>
Status FindBadDiagonal(int64_t n,
                       int64_t stride,
                       const T* factor,
                       int32_t* first,
                       cudaStream_t stream) {
  return ForEach("FindBadDiagonal", n, stream, [=] __device__(int64_t i) {
    const T x = factor[i * stride + i];
    if (!(x > T(0) && x < static_cast<T>(INFINITY))) {
      atomicMin(first, static_cast<int32_t>(i + 1));
    }
  });
}

// Nothing is held for a size that is 0.
template <typename T>
Status AllocateExactly(int64_t size, CudaMachine* machine, DeviceBuffer<T>* x) {
  if (x->size() != size) {
    x->Release();
  }
  return size == 0 ? Status() : machine->Allocate(size, x);
}

double Shift(int64_t n, const CudaDenseCholesky::Options& options) {
  constexpr double kFloatRoundoff = 5.9604644775390625e-8;  // 2^-24
  return options.conjugate_gradients
             ? CudaDenseCholesky::kShift * kFloatRoundoff *
                   std::sqrt(static_cast<double>(n))
             : 0.0;
}

// Elements of the buffers of a solver, which Setup takes and the forecast
// counts.
struct Sizes {
  Sizes(int64_t n, const CudaDenseCholesky::Options& options) {
    result = n == 0 ? 0 : 1;
    float_factor =
        options.mixed_precision ? n * CudaDenseCholesky::Stride(n) : 0;
    correction = options.mixed_precision ? n : 0;
    refinement = options.refines() ? n : 0;
    direction = options.mixed_precision && options.conjugate_gradients ? n : 0;
  }
  int64_t result;
  int64_t float_factor;
  int64_t correction;
  int64_t refinement;  // residual_ and rhs_, each
  int64_t direction;
};

}  // namespace

CudaDenseCholesky::~CudaDenseCholesky() { ReturnHandles(); }

void CudaDenseCholesky::ReturnHandles() {
  if (handles_ == nullptr) {
    return;
  }
  const KeepCurrentContext keep;
  if (machine_->context()->IsAlive()) {
    // Work that uses memory of the handles. An error is the echo of an earlier
    // one.
    static_cast<void>(machine_->Synchronize());
  }
  ReturnLibraryHandles(std::move(handles_));
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
  CERES_EXT_RETURN_IF_ERROR(Available());
  CERES_EXT_RETURN_IF_ERROR(LoadCusolver(&cusolver));
  if (machine != machine_) {
    ReturnHandles();
    machine_ = machine;
  }
  if (n == 0) {
    return {};
  }
  CERES_EXT_RETURN_IF_ERROR(machine->context()->Activate());
  if (handles_ == nullptr) {
    CERES_EXT_RETURN_IF_ERROR(
        BorrowLibraryHandles(*machine->context(), &handles_));
  }
  if (handles_->cusolver == nullptr) {
    CERES_EXT_CALL(cusolver, cusolverDnCreate, &handles_->cusolver);
  }
  CERES_EXT_CALL(
      cusolver, cusolverDnSetStream, handles_->cusolver, machine->stream());
  if (handles_->params == nullptr) {
    CERES_EXT_CALL(cusolver, cusolverDnCreateParams, &handles_->params);
  }
  if (options.refines()) {
    CERES_EXT_RETURN_IF_ERROR(PrepareCublas());
  }
  const cudaDataType type = options.mixed_precision ? CUDA_R_32F : CUDA_R_64F;
  CERES_EXT_CALL(cusolver,
                 cusolverDnXpotrf_bufferSize,
                 handles_->cusolver,
                 handles_->params,
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
                  kDouble * (2 * sizes.refinement + sizes.direction);
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
      AllocateExactly(sizes.direction, machine, &direction_));
  CERES_EXT_RETURN_IF_ERROR(
      host_workspace_.Allocate(static_cast<int64_t>(num_host_bytes)));
  n_ = n;
  options_ = options;
  is_small_ = !options.mixed_precision &&
              n <= MostRowsOfSmallCholesky(*machine->context());
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
  direction_.Release();
  static_cast<void>(host_workspace_.Allocate(0));
}

Status CudaDenseCholesky::Factorize(double* a, int64_t* failed_order) {
  *failed_order = 0;
  CERES_EXT_RETURN_IF_ERROR(QueueFactorization(a));
  return ReadFailedOrder(failed_order);
}

Status CudaDenseCholesky::QueueFactorization(double* a) {
  has_factor_ = false;
  is_inverted_ = false;
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
                                     {n_, kBlock},
                                     stream,
                                     n_,
                                     stride,
                                     Shift(n_, options_),
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
  if (is_small_) {
    CERES_EXT_RETURN_IF_ERROR(
        QueueSmallFactorization(n_, stride, a, info, machine_));
  } else {
    const cudaDataType type = is_float ? CUDA_R_32F : CUDA_R_64F;
    CERES_EXT_CALL(cusolver,
                   cusolverDnXpotrf,
                   handles_->cusolver,
                   handles_->params,
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
  }
  CERES_EXT_RETURN_IF_ERROR(
      is_float ? FindBadDiagonal(
                     n_, stride, float_factor_.data(), bad_diagonal, stream)
               : FindBadDiagonal(n_, stride, a, bad_diagonal, stream));
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
  if (is_small_ && num_columns == 1) {
    return QueueSmallSolution(
        n_, Stride(n_), a_, static_cast<double*>(x), machine_);
  }
  const CusolverFunctions* cusolver = nullptr;
  CERES_EXT_RETURN_IF_ERROR(LoadCusolver(&cusolver));
  const bool is_float = options_.mixed_precision;
  const cudaDataType type = is_float ? CUDA_R_32F : CUDA_R_64F;
  // Its info would say no more than what it returns.
  CERES_EXT_CALL(cusolver,
                 cusolverDnXpotrs,
                 handles_->cusolver,
                 handles_->params,
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
  if (!has_factor_ || is_inverted_) {
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
    CERES_EXT_RETURN_IF_ERROR(options_.conjugate_gradients
                                  ? SolveByGradients(b, x)
                                  : SolveMixed(b, x));
  } else {
    if (x != b) {
      CERES_EXT_RETURN_IF_ERROR(machine_->context()->CopyOnDevice(
          x, b, n_ * static_cast<int64_t>(sizeof(double))));
    }
    CERES_EXT_RETURN_IF_ERROR(SolveInPlace(x));
  }
  return check_.QueueDenseSolution(x, correction(), sums);
}

Status CudaDenseCholesky::SolveColumns(int64_t num_columns,
                                       const double* b,
                                       double* x) {
  if (!has_factor_ || options_.mixed_precision || (is_inverted_ && x == b)) {
    return {StatusCode::kInvalidArgument,
            "Solutions were requested without a factor in double."};
  }
  if (n_ == 0 || num_columns == 0) {
    return {};
  }
  if (is_inverted_) {
    const CublasFunctions* cublas = nullptr;
    CERES_EXT_RETURN_IF_ERROR(LoadCublas(&cublas));
    return MultiplyBatched(cublas,
                           handles_->cublas,
                           {n_, num_columns, n_},
                           1.0,
                           {a_, Stride(n_), 0},
                           {b, n_, 0},
                           {x, n_, 0},
                           1);
  }
  if (x != b) {
    CERES_EXT_RETURN_IF_ERROR(machine_->context()->CopyOnDevice(
        x, b, n_ * num_columns * static_cast<int64_t>(sizeof(double))));
  }
  return SolveInPlace(x, num_columns);
}

Status CudaDenseCholesky::PrepareCublas() {
  const CublasFunctions* cublas = nullptr;
  CERES_EXT_RETURN_IF_ERROR(LoadCublas(&cublas));
  if (handles_->cublas == nullptr) {
    CERES_EXT_CALL(cublas, cublasCreate_v2, &handles_->cublas);
  }
  CERES_EXT_CALL(
      cublas, cublasSetStream_v2, handles_->cublas, machine_->stream());
  CERES_EXT_CALL(cublas,
                 cublasSetAtomicsMode,
                 handles_->cublas,
                 CUBLAS_ATOMICS_NOT_ALLOWED);
  return {};
}

Status CudaDenseCholesky::Invert() {
  if (!has_factor_ || is_inverted_ || options_.mixed_precision) {
    return {StatusCode::kInvalidArgument,
            "A matrix was to be inverted without a factor in double."};
  }
  if (n_ > 0) {
    CERES_EXT_RETURN_IF_ERROR(PrepareCublas());
    DeviceBuffer<double> work;
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(kInversionBlock * n_, &work));
    has_factor_ = false;
    CERES_EXT_RETURN_IF_ERROR(InvertFactor(work.data()));
    CERES_EXT_RETURN_IF_ERROR(MultiplyFactors(work.data()));
    CERES_EXT_RETURN_IF_ERROR(machine_->Synchronize());
    has_factor_ = true;
  }
  is_inverted_ = true;
  return {};
}

// a_ = L^-1, with zeros above its diagonal. The inverse of a triangle of two
// rows and columns of blocks,
//   [A 0; B C]^-1 = [A^-1 0; -C^-1 B A^-1 C^-1],
// by doubling: from tiles to kInversionBlock all pairs of blocks of one size at
// once, beyond that column of blocks by column, the last one first, with all
// rows below it as C.
Status CudaDenseCholesky::InvertFactor(double* work) {
  const CublasFunctions* cublas = nullptr;
  CERES_EXT_RETURN_IF_ERROR(LoadCublas(&cublas));
  const cudaStream_t stream = machine_->stream();
  const int64_t stride = Stride(n_);
  const auto at = [this, stride](int64_t i, int64_t j) {
    return a_ + j * stride + i;
  };
  CERES_EXT_RETURN_IF_ERROR(Launch("ZeroUpperTriangle",
                                   ZeroUpperTriangle,
                                   {n_, kBlock},
                                   stream,
                                   stride,
                                   a_));
  CERES_EXT_RETURN_IF_ERROR(Launch("InvertTiles",
                                   InvertTiles,
                                   {CeilDivide(n_, kTile), kTile},
                                   stream,
                                   n_,
                                   stride,
                                   a_));
  for (int64_t b = kTile; b < kInversionBlock && b < n_; b *= 2) {
    const int64_t step = 2 * b * (stride + 1);
    const int64_t num_whole = n_ / (2 * b);
    const int64_t last = 2 * b * num_whole;
    // Pairs that are whole, then what there is of another.
    for (const auto& [first, rows, count] :
         {std::array<int64_t, 3>{0, b, num_whole},
          std::array<int64_t, 3>{last, n_ - last - b, 1}}) {
      if (rows <= 0 || count == 0) {
        continue;
      }
      CERES_EXT_RETURN_IF_ERROR(
          MultiplyBatched(cublas,
                          handles_->cublas,
                          {rows, b, b},
                          1.0,
                          {at(first + b, first), stride, step},
                          {at(first, first), stride, step},
                          {work, rows, rows * b},
                          count));
      CERES_EXT_RETURN_IF_ERROR(
          MultiplyBatched(cublas,
                          handles_->cublas,
                          {rows, b, rows},
                          -1.0,
                          {at(first + b, first + b), stride, step},
                          {work, rows, rows * b},
                          {at(first + b, first), stride, step},
                          count));
    }
  }
  constexpr int64_t b = kInversionBlock;
  for (int64_t first = (CeilDivide(n_, b) - 2) * b; first >= 0; first -= b) {
    const int64_t rows = n_ - first - b;
    const double one = 1.0;
    CERES_EXT_CALL(cublas,
                   cublasDtrmm_v2_64,
                   handles_->cublas,
                   CUBLAS_SIDE_LEFT,
                   CUBLAS_FILL_MODE_LOWER,
                   CUBLAS_OP_N,
                   CUBLAS_DIAG_NON_UNIT,
                   rows,
                   b,
                   &one,
                   at(first + b, first + b),
                   stride,
                   at(first + b, first),
                   stride,
                   work,
                   rows);
    CERES_EXT_RETURN_IF_ERROR(MultiplyBatched(cublas,
                                              handles_->cublas,
                                              {rows, b, b},
                                              -1.0,
                                              {work, rows, 0},
                                              {at(first, first), stride, 0},
                                              {at(first + b, first), stride, 0},
                                              1));
  }
  return {};
}

// a_ = X'X of X = a_, a lower triangle with zeros above it. The columns from j
// on need only the rows and columns of X from j on, so the columns before j may
// be overwritten, and so may the blocks above X's diagonal.
Status CudaDenseCholesky::MultiplyFactors(double* work) {
  const CublasFunctions* cublas = nullptr;
  CERES_EXT_RETURN_IF_ERROR(LoadCublas(&cublas));
  const int64_t stride = Stride(n_);
  for (int64_t first = 0; first < n_; first += kInversionBlock) {
    const int64_t rows = n_ - first;
    const int64_t columns = std::min(kInversionBlock, rows);
    double* const x = a_ + first * (stride + 1);
    const double one = 1.0;
    CERES_EXT_CALL(cublas,
                   cublasDtrmm_v2_64,
                   handles_->cublas,
                   CUBLAS_SIDE_LEFT,
                   CUBLAS_FILL_MODE_LOWER,
                   CUBLAS_OP_T,
                   CUBLAS_DIAG_NON_UNIT,
                   rows,
                   columns,
                   &one,
                   x,
                   stride,
                   x,
                   stride,
                   work,
                   rows);
    CERES_EXT_RETURN_IF_ERROR(
        Launch("CopySymmetric",
               CopySymmetric,
               {CeilDivide(rows, kTile) * CeilDivide(columns, kTile),
                kTile * kTileRows},
               machine_->stream(),
               rows,
               columns,
               work,
               stride,
               x));
  }
  return {};
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
  if (options_.refines() && x == b) {
    CERES_EXT_RETURN_IF_ERROR(context->CopyOnDevice(rhs_.data(), b, num_bytes));
    b = rhs_.data();
  }
  CERES_EXT_RETURN_IF_ERROR(CastVector(n_, b, correction_.data(), stream));
  CERES_EXT_RETURN_IF_ERROR(SolveInPlace(correction_.data()));
  CERES_EXT_RETURN_IF_ERROR(CastVector(n_, correction_.data(), x, stream));
  for (int i = 0; i < options_.max_num_refinement_iterations; ++i) {
    CERES_EXT_RETURN_IF_ERROR(
        context->CopyOnDevice(residual_.data(), b, num_bytes));
    CERES_EXT_RETURN_IF_ERROR(Multiply(-1.0, x, 1.0, residual_.data()));
    CERES_EXT_RETURN_IF_ERROR(
        CastVector(n_, residual_.data(), correction_.data(), stream));
    CERES_EXT_RETURN_IF_ERROR(SolveInPlace(correction_.data()));
    CERES_EXT_RETURN_IF_ERROR(
        AddFloatVector(n_, correction_.data(), x, stream));
  }
  return {};
}

Status CudaDenseCholesky::SolveByGradients(const double* b, double* x) {
  const cudaStream_t stream = machine_->stream();
  double* const r = rhs_.data();
  double* const p = direction_.data();
  double* const q = residual_.data();
  double* const product = &result_.data()->product;
  CERES_EXT_RETURN_IF_ERROR(machine_->context()->CopyOnDevice(
      r, b, n_ * static_cast<int64_t>(sizeof(double))));
  CERES_EXT_RETURN_IF_ERROR(machine_->SetZero(n_, x));
  double first = 0.0;
  for (int i = 0; i <= kMostIterations; ++i) {
    CERES_EXT_RETURN_IF_ERROR(CastVector(n_, r, correction_.data(), stream));
    CERES_EXT_RETURN_IF_ERROR(SolveInPlace(correction_.data()));
    CERES_EXT_RETURN_IF_ERROR(Launch("UpdateDirection",
                                     UpdateDirection,
                                     {1, kSumBlock},
                                     stream,
                                     n_,
                                     i == 0,
                                     correction_.data(),
                                     r,
                                     p,
                                     product));
    CERES_EXT_RETURN_IF_ERROR(machine_->Download(1, result_.data(), &read_));
    first = i == 0 ? read_.product : first;
    if (!(read_.product >= 0.0)) {
      break;
    }
    if (read_.product <= kTolerance * kTolerance * first) {
      // For the check.
      return CastVector(n_, x, correction_.data(), stream);
    }
    CERES_EXT_RETURN_IF_ERROR(Multiply(1.0, p, 0.0, q));
    CERES_EXT_RETURN_IF_ERROR(Launch("UpdateSolution",
                                     UpdateSolution,
                                     {1, kSumBlock},
                                     stream,
                                     n_,
                                     product,
                                     p,
                                     q,
                                     x,
                                     r));
  }
  return {StatusCode::kNumericalFailure,
          "Conjugate gradients with a factor in float did not converge in " +
              std::to_string(kMostIterations) + " iterations."};
}

Status CudaDenseCholesky::Multiply(double alpha,
                                   const double* x,
                                   double beta,
                                   double* y) {
  const CublasFunctions* cublas = nullptr;
  CERES_EXT_RETURN_IF_ERROR(LoadCublas(&cublas));
  CERES_EXT_CALL(cublas,
                 cublasDsymv_v2_64,
                 handles_->cublas,
                 CUBLAS_FILL_MODE_LOWER,
                 n_,
                 &alpha,
                 a_,
                 Stride(n_),
                 x,
                 1,
                 &beta,
                 y,
                 1);
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
Status CudaDenseCholesky::SolveColumns(int64_t /*num_columns*/,
                                       const double* /*b*/,
                                       double* /*x*/) {
  return Available();
}
Status CudaDenseCholesky::Invert() { return Available(); }
Status CudaDenseCholesky::CheckSolution() { return Available(); }

#endif

}  // namespace ceres_ext::kernels
