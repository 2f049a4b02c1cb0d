// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/machine/cuda_sparse_cholesky.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <map>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_libraries.cuh"
#include "cuda_kernels/machine/cuda_library_handles.h"
#include "cuda_kernels/machine/cuda_solution_check.h"
#include "cuda_kernels/machine/device_buffer.h"

namespace ceres_ext::kernels {

#if CERES_EXT_WITH_CUDSS
namespace {

// A place in the values that is behind all of them: every byte 0x7f.
constexpr int kNowhereByte = 0x7f;

// *first = the least i for which x_i is not finite; as it was where all are.
// The least of integers is the same in every order, so that an atomic does no
// harm. Traffic: 8 B a value.
Status QueueFindNotFinite(int64_t n,
                          const double* x,
                          unsigned long long* first,  // NOLINT: as atomicMin
                          cudaStream_t stream) {
  return ForEach("FindNotFinite", n, stream, [=] __device__(int64_t i) {
    if (!(fabs(x[i]) < INFINITY)) {
      atomicMin(first, static_cast<unsigned long long>(i));  // NOLINT
    }
  });
}

// cuDSS does not document the type of CUDSS_DATA_FLOPS, which has been an
// integer and a double of 8 bytes. The bits of a double of 1.0 and more are an
// integer above 4e18, the operations of a dense matrix of two million rows.
int64_t FlopsOf(int64_t bits) {
  double value = 1.0;
  int64_t bits_of_one = 0;
  std::memcpy(&bits_of_one, &value, sizeof(value));
  if (bits < bits_of_one) {
    return bits;
  }
  std::memcpy(&value, &bits, sizeof(value));
  return value < 9e18 ? static_cast<int64_t>(value)
                      : std::numeric_limits<int64_t>::max();
}

}  // namespace

// The objects of cuDSS, and the memory that it has taken from the context.
class CudaSparseCholesky::Handles {
 public:
  Handles(const CudssFunctions* cudss, CudaContext* context)
      : cudss(cudss), context_(context) {}
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;
  // Resources of a lost device must not be destroyed. Errors are the echo of
  // earlier ones.
  ~Handles() {
    const KeepCurrentContext keep;
    if (context_->IsAlive()) {
      static_cast<void>(context_->Synchronize());  // It may use the handle.
      for (const cudssMatrix_t matrix : {a, x, b}) {
        if (matrix != nullptr) {
          static_cast<void>(cudss->cudssMatrixDestroy(matrix));
        }
      }
      if (data != nullptr) {
        static_cast<void>(cudss->cudssDataDestroy(libraries->cudss, data));
      }
      if (config != nullptr) {
        static_cast<void>(cudss->cudssConfigDestroy(config));
      }
      if (!blocks_.empty() && libraries->cudss != nullptr) {
        // It has memory of this object.
        static_cast<void>(cudss->cudssDestroy(libraries->cudss));
        libraries->cudss = nullptr;
      }
      static_cast<void>(cudaGetLastError());
    }
    if (libraries != nullptr) {
      libraries->memory_owner = nullptr;
    }
    ReturnLibraryHandles(std::move(libraries));
    for (const auto& [data, num_bytes] : blocks_) {
      context_->Free(data, num_bytes);
    }
  }

  // Before a call of cuDSS, and what has come of it.
  void Begin() { memory_status_.code = StatusCode::kOk; }
  Status Check(const char* call, cudssStatus_t status) {
    if (status == CUDSS_STATUS_SUCCESS) {
      return {};
    }
    static_cast<void>(cudaGetLastError());
    if (!memory_status_.ok()) {
      return memory_status_;
    }
    return {
        status == CUDSS_STATUS_ALLOC_FAILED    ? StatusCode::kOutOfMemory
        : status == CUDSS_STATUS_NOT_SUPPORTED ? StatusCode::kUnsupported
                                               : StatusCode::kDeviceError,
        std::string(call) + " failed with status " +
            std::to_string(static_cast<int>(status)) +
            (status == CUDSS_STATUS_ALLOC_FAILED ? ", out of memory." : ".")};
  }

  // For cuDSS; 0 if it has worked. Sizes are kept here, so that the account is
  // right whatever cuDSS says that it gives back. owner: the address of
  // LibraryHandles::memory_owner.
  static int Allocate(void* owner,
                      void** data,
                      size_t num_bytes,
                      cudaStream_t /*stream*/) {
    auto* const handles = *static_cast<Handles**>(owner);
    return handles != nullptr &&
                   handles->Allocate(data, static_cast<int64_t>(num_bytes))
               ? 0
               : 1;
  }
  static int Free(void* owner,
                  void* data,
                  size_t /*num_bytes*/,
                  cudaStream_t /*stream*/) {
    auto* const handles = *static_cast<Handles**>(owner);
    if (handles == nullptr || data == nullptr) {
      return data == nullptr ? 0 : 1;
    }
    const auto found = handles->blocks_.find(data);
    if (found == handles->blocks_.end()) {
      return 1;
    }
    handles->context_->Free(data, found->second);
    handles->blocks_.erase(found);
    return 0;
  }

  const CudssFunctions* const cudss;
  std::unique_ptr<LibraryHandles> libraries;  // not null after Configure
  cudssConfig_t config = nullptr;
  cudssData_t data = nullptr;
  cudssMatrix_t a = nullptr;
  cudssMatrix_t x = nullptr;
  cudssMatrix_t b = nullptr;
  const double* values = nullptr;  // of a
  bool has_info = false;           // of a factorisation that has failed
  // Replaces x and b in an analysis; b if Solve's is x.
  DeviceBuffer<double> rhs;
  DeviceBuffer<unsigned long long> first_not_finite;  // NOLINT: as atomicMin
  CudaSolutionCheck check;
  DeviceBuffer<SolutionSums> sums;

 private:
  // No exception may pass through cuDSS. It says no more of a failure than that
  // there was one: the first is kept for Check.
  bool Allocate(void** data, int64_t num_bytes) {
    *data = nullptr;
    try {
      const Status status = context_->Allocate(num_bytes, data);
      if (!status.ok()) {
        memory_status_ = memory_status_.ok() ? status : memory_status_;
        return false;
      }
      if (*data != nullptr) {
        blocks_.emplace(*data, num_bytes);
      }
      return true;
    } catch (const std::exception&) {
      context_->Free(*data, num_bytes);
      *data = nullptr;
      memory_status_.code = StatusCode::kOutOfMemory;
      return false;
    }
  }

  CudaContext* const context_;
  std::map<void*, int64_t> blocks_;  // bytes by address
  Status memory_status_;
};

// handles->function(arguments...), a call of cuDSS.
#define CERES_EXT_CALL(function, ...)                                      \
  do {                                                                     \
    CERES_EXT_RETURN_IF_ERROR(FlushLaunches());                            \
    handles->Begin();                                                      \
    CERES_EXT_RETURN_IF_ERROR(                                             \
        handles->Check(#function, handles->cudss->function(__VA_ARGS__))); \
  } while (false)

CudaSparseCholesky::CudaSparseCholesky() = default;
CudaSparseCholesky::~CudaSparseCholesky() = default;

Status CudaSparseCholesky::Available() {
  const CudssFunctions* cudss = nullptr;
  return LoadCudss(&cudss);
}

void CudaSparseCholesky::Release() {
  handles_.reset();
  is_analyzed_ = false;
  was_factorized_ = false;
  has_factor_ = false;
  num_factor_values_ = 0;
  num_flops_ = 0;
  device_bytes_ = 0;
  peak_device_bytes_ = 0;
}

Status CudaSparseCholesky::Analyze(const LowerCsr& csr,
                                   const double* values,
                                   CudaMachine* machine) {
  Release();
  Status status = TryAnalyze(csr, values, machine);
  is_analyzed_ = status.ok();
  if (!status.ok()) {
    handles_.reset();
  }
  return status;
}

// One that is not whole is destroyed.
Status CudaSparseCholesky::MakeHandle(LibraryHandles* libraries) {
  Handles* const handles = handles_.get();
  cudssHandle_t handle = nullptr;
  const auto make = [&]() -> Status {
    CERES_EXT_CALL(cudssCreate, &handle);
    cudssDeviceMemHandler_t memory = {};
    memory.ctx = &libraries->memory_owner;
    memory.device_alloc = &Handles::Allocate;
    memory.device_free = &Handles::Free;
    std::strncpy(memory.name, "Ceres Ext", sizeof(memory.name) - 1);
    CERES_EXT_CALL(cudssSetDeviceMemHandler, handle, &memory);
    if (std::getenv("CUDSS_JIT_CACHE_DIR") == nullptr) {
      CERES_EXT_CALL(cudssSetJitCacheDir, handle, "");  // none
    }
    return {};
  };
  Status status = make();
  if (status.ok()) {
    libraries->cudss = handle;
  } else if (handle != nullptr) {
    static_cast<void>(handles->cudss->cudssDestroy(handle));
  }
  return status;
}

Status CudaSparseCholesky::Configure() {
  Handles* const handles = handles_.get();
  CERES_EXT_RETURN_IF_ERROR(
      BorrowLibraryHandles(*machine_->context(), &handles->libraries));
  LibraryHandles* const libraries = handles->libraries.get();
  libraries->memory_owner = handles;
  if (libraries->cudss == nullptr) {
    CERES_EXT_RETURN_IF_ERROR(MakeHandle(libraries));
  }
  CERES_EXT_CALL(cudssSetStream, libraries->cudss, machine_->stream());
  CERES_EXT_CALL(cudssConfigCreate, &handles->config);
  const int deterministic = 1;
  CERES_EXT_CALL(cudssConfigSet,
                 handles->config,
                 CUDSS_CONFIG_DETERMINISTIC_MODE,
                 &deterministic,
                 sizeof(deterministic));
  // A positive definite matrix needs none, and one would be of the values that
  // there are at the analysis.
  const cudssMatchingAlg_t matching = CUDSS_MATCHING_ALG_NONE;
  CERES_EXT_CALL(cudssConfigSet,
                 handles->config,
                 CUDSS_CONFIG_MATCHING_ALG,
                 &matching,
                 sizeof(matching));
  CERES_EXT_CALL(cudssDataCreate, handles->libraries->cudss, &handles->data);
  return {};
}

Status CudaSparseCholesky::CreateMatrices(const double* values) {
  Handles* const handles = handles_.get();
  const LowerCsr& csr = csr_;
  CERES_EXT_CALL(cudssMatrixCreateCsr,
                 &handles->a,
                 csr.n,
                 csr.n,
                 csr.num_values,
                 csr.row_begin,
                 nullptr,  // A row ends where the next begins.
                 csr.column,
                 values,
                 CUDA_R_64I,
                 CUDA_R_32I,
                 CUDA_R_64F,
                 CUDSS_MTYPE_SPD,
                 CUDSS_MVIEW_LOWER,
                 CUDSS_BASE_ZERO);
  handles->values = values;
  for (cudssMatrix_t* const vector : {&handles->x, &handles->b}) {
    CERES_EXT_CALL(cudssMatrixCreateDn,
                   vector,
                   csr.n,
                   1,
                   csr.n,
                   handles->rhs.data(),
                   CUDA_R_64F,
                   CUDSS_LAYOUT_COL_MAJOR);
  }
  return {};
}

Status CudaSparseCholesky::TryAnalyze(const LowerCsr& csr,
                                      const double* values,
                                      CudaMachine* machine) {
  if (csr.n < 0 || csr.n > std::numeric_limits<int32_t>::max() ||
      csr.num_values < csr.n || (csr.n == 0 && csr.num_values != 0)) {
    return {StatusCode::kInvalidArgument,
            "There is no lower triangle of " + std::to_string(csr.n) +
                " rows with " + std::to_string(csr.num_values) + " values."};
  }
  const CudssFunctions* cudss = nullptr;
  CERES_EXT_RETURN_IF_ERROR(LoadCudss(&cudss));
  csr_ = csr;
  machine_ = machine;
  if (csr.n == 0) {
    return {};
  }
  CudaContext* const context = machine->context();
  CERES_EXT_RETURN_IF_ERROR(context->Activate());
  handles_.reset(new (std::nothrow) Handles(cudss, context));
  Handles* const handles = handles_.get();
  if (handles == nullptr) {
    return {StatusCode::kOutOfMemory, "Out of host memory."};
  }
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(csr.n, &handles->rhs));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(1, &handles->first_not_finite));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(1, &handles->sums));
  CERES_EXT_RETURN_IF_ERROR(handles->check.Setup(csr.n, machine));
  const int64_t others_bytes = context->used_bytes();

  CERES_EXT_RETURN_IF_ERROR(Configure());
  CERES_EXT_RETURN_IF_ERROR(CreateMatrices(values));
  CERES_EXT_CALL(cudssExecute,
                 handles->libraries->cudss,
                 CUDSS_PHASE_ANALYSIS,
                 handles->config,
                 handles->data,
                 handles->a,
                 handles->x,
                 handles->b);
  CERES_EXT_RETURN_IF_ERROR(machine->Synchronize());

  const auto get =
      [&](cudssDataParam_t what, void* to, size_t num_bytes) -> Status {
    size_t num_written = 0;
    CERES_EXT_CALL(cudssDataGet,
                   handles->libraries->cudss,
                   handles->data,
                   what,
                   to,
                   num_bytes,
                   &num_written);
    return {};
  };
  int64_t flops = 0;
  // Permanent and most bytes of the device, then others.
  int64_t estimates[16] = {};
  CERES_EXT_RETURN_IF_ERROR(
      get(CUDSS_DATA_LU_NNZ, &num_factor_values_, sizeof(num_factor_values_)));
  CERES_EXT_RETURN_IF_ERROR(get(CUDSS_DATA_FLOPS, &flops, sizeof(flops)));
  CERES_EXT_RETURN_IF_ERROR(
      get(CUDSS_DATA_MEMORY_ESTIMATES, estimates, sizeof(estimates)));
  num_flops_ = FlopsOf(flops);
  const int64_t own_bytes =
      handles->rhs.bytes() + handles->first_not_finite.bytes() +
      handles->sums.bytes() + CudaSolutionCheck::ForecastBytes(csr.n);
  device_bytes_ = own_bytes + estimates[0];
  peak_device_bytes_ = own_bytes + std::max(estimates[0], estimates[1]);
  return context->CheckLimit(others_bytes - own_bytes + peak_device_bytes_);
}

Status CudaSparseCholesky::FindNotFinite(const double* values, int64_t* first) {
  auto* const found = handles_->first_not_finite.data();
  CERES_EXT_RETURN_IF_ERROR(
      machine_->context()->SetBytes(found, kNowhereByte, sizeof(*found)));
  CERES_EXT_RETURN_IF_ERROR(
      QueueFindNotFinite(csr_.num_values, values, found, machine_->stream()));
  unsigned long long at = 0;  // NOLINT: as atomicMin
  CERES_EXT_RETURN_IF_ERROR(machine_->Download(1, found, &at));
  *first = std::min(static_cast<int64_t>(at), csr_.num_values);
  return {};
}

Status CudaSparseCholesky::Factorize(const double* values,
                                     int64_t* failed_order) {
  *failed_order = 0;
  has_factor_ = false;
  if (!is_analyzed_) {
    return {StatusCode::kInvalidArgument,
            "A factorisation was requested before the analysis of the matrix."};
  }
  if (csr_.n == 0) {
    has_factor_ = true;
    return {};
  }
  Handles* const handles = handles_.get();
  // cuDSS is not to be asked what it does with these.
  int64_t not_finite = 0;
  CERES_EXT_RETURN_IF_ERROR(FindNotFinite(values, &not_finite));
  if (not_finite < csr_.num_values) {
    std::vector<int64_t> row_begin(static_cast<size_t>(csr_.n) + 1);
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Download(csr_.n + 1, csr_.row_begin, row_begin.data()));
    *failed_order =
        std::upper_bound(row_begin.begin(), row_begin.end(), not_finite) -
        row_begin.begin();
    return {};
  }
  if (values != handles->values) {
    CERES_EXT_CALL(cudssMatrixSetValues, handles->a, values);
    handles->values = values;
  }
  if (handles->has_info) {
    // It stays until somebody takes it away.
    const int none = 0;
    CERES_EXT_CALL(cudssDataSet,
                   handles->libraries->cudss,
                   handles->data,
                   CUDSS_DATA_INFO,
                   &none,
                   sizeof(none));
    handles->has_info = false;
  }
  CERES_EXT_RETURN_IF_ERROR(FlushLaunches());
  handles->Begin();
  const cudssStatus_t status = handles->cudss->cudssExecute(
      handles->libraries->cudss,
      was_factorized_ ? CUDSS_PHASE_REFACTORIZATION : CUDSS_PHASE_FACTORIZATION,
      handles->config,
      handles->data,
      handles->a,
      handles->x,
      handles->b);
  // A matrix that is not positive definite may be an error of the call too.
  if (status != CUDSS_STATUS_EXECUTION_FAILED) {
    CERES_EXT_RETURN_IF_ERROR(handles->Check("cudssExecute", status));
  }
  Status executed = handles->Check("cudssExecute", status);
  int info = 0;
  size_t num_written = 0;
  CERES_EXT_CALL(cudssDataGet,
                 handles->libraries->cudss,
                 handles->data,
                 CUDSS_DATA_INFO,
                 &info,
                 sizeof(info),
                 &num_written);
  if (info == 0) {
    was_factorized_ = was_factorized_ || executed.ok();
    has_factor_ = executed.ok();
    return executed;
  }
  handles->has_info = true;
  *failed_order = kUnknownOrder;
  // info is the order of a minor of P A P', whose rows are those of A by P.
  std::vector<int32_t> row(static_cast<size_t>(csr_.n));
  handles->Begin();
  if (info > 0 && info <= csr_.n &&
      handles->cudss->cudssDataGet(handles->libraries->cudss,
                                   handles->data,
                                   CUDSS_DATA_PERM_REORDER_ROW,
                                   row.data(),
                                   row.size() * sizeof(int32_t),
                                   &num_written) == CUDSS_STATUS_SUCCESS) {
    *failed_order = int64_t{row[static_cast<size_t>(info) - 1]} + 1;
  }
  return {};
}

Status CudaSparseCholesky::QueueSolution(const double* b, double* x) {
  Handles* const handles = handles_.get();
  CERES_EXT_CALL(cudssMatrixSetValues, handles->b, b);
  CERES_EXT_CALL(cudssMatrixSetValues, handles->x, x);
  CERES_EXT_CALL(cudssExecute,
                 handles->libraries->cudss,
                 CUDSS_PHASE_SOLVE,
                 handles->config,
                 handles->data,
                 handles->a,
                 handles->x,
                 handles->b);
  return {};
}

Status CudaSparseCholesky::Solve(const double* b, double* x) {
  if (!has_factor_) {
    return {StatusCode::kInvalidArgument,
            "A solution was requested without a factor of the matrix."};
  }
  if (csr_.n == 0) {
    return {};
  }
  Handles* const handles = handles_.get();
  if (x == b) {
    CERES_EXT_RETURN_IF_ERROR(machine_->context()->CopyOnDevice(
        handles->rhs.data(), b, handles->rhs.bytes()));
    b = handles->rhs.data();
  }
  CERES_EXT_RETURN_IF_ERROR(QueueSolution(b, x));
  SolutionSums* const sums = handles->sums.data();
  CERES_EXT_RETURN_IF_ERROR(
      handles->check.QueueSparseMatrix(csr_.row_begin, handles->values));
  CERES_EXT_RETURN_IF_ERROR(handles->check.QueueRhs(b, sums));
  return handles->check.QueueSparseSolution(
      csr_.row_begin, csr_.column, handles->values, x, sums);
}

Status CudaSparseCholesky::SolveColumns(int64_t num_columns,
                                        double* b,
                                        double* x) {
  if (!has_factor_) {
    return {StatusCode::kInvalidArgument,
            "Solutions were requested without a factor of the matrix."};
  }
  if (csr_.n == 0 || num_columns == 0) {
    return {};
  }
  // One after the other: cuDSS refuses several at a time with this
  // configuration (CUDSS_STATUS_NOT_SUPPORTED).
  for (int64_t j = 0; j < num_columns; ++j) {
    CERES_EXT_RETURN_IF_ERROR(QueueSolution(b + csr_.n * j, x + csr_.n * j));
  }
  return {};
}

Status CudaSparseCholesky::CheckSolution() {
  solution_is_wrong_ = false;
  if (!has_factor_) {
    return {
        StatusCode::kInvalidArgument,
        "A check of a solution was requested without a factor of the matrix."};
  }
  if (csr_.n == 0) {
    return {};
  }
  SolutionSums sums;
  CERES_EXT_RETURN_IF_ERROR(
      machine_->Download(1, handles_->sums.data(), &sums));
  Status status = ::ceres_ext::kernels::CheckSolution(
      handles_->cudss->library, csr_.n, /*mixed_precision=*/false, sums);
  solution_is_wrong_ = status.code == StatusCode::kDeviceError;
  return status;
}

#undef CERES_EXT_CALL

#else  // no header of cuDSS

class CudaSparseCholesky::Handles {};
CudaSparseCholesky::CudaSparseCholesky() = default;
CudaSparseCholesky::~CudaSparseCholesky() = default;

Status CudaSparseCholesky::Available() {
  return {StatusCode::kUnsupported,
          "This library was built without the header of cuDSS 1.0 or later."};
}
void CudaSparseCholesky::Release() {}
Status CudaSparseCholesky::Analyze(const LowerCsr& /*csr*/,
                                   const double* /*values*/,
                                   CudaMachine* /*machine*/) {
  return Available();
}
Status CudaSparseCholesky::Factorize(const double* /*values*/,
                                     int64_t* failed_order) {
  *failed_order = 0;
  return Available();
}
Status CudaSparseCholesky::Solve(const double* /*b*/, double* /*x*/) {
  return Available();
}
Status CudaSparseCholesky::SolveColumns(int64_t /*num_columns*/,
                                        double* /*b*/,
                                        double* /*x*/) {
  return Available();
}
Status CudaSparseCholesky::CheckSolution() { return Available(); }

#endif

}  // namespace ceres_ext::kernels
