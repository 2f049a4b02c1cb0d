// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// libcudss.so.999 of an emulated device (cudss.h): a dense factorisation, with
// the rows in reverse order. A call that cuDSS would refuse, or that would be
// another one's than the test means, is refused with a word on stderr.
#include <cudss.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/kernels/emulation/library_util.h"

struct cudssContext {
  bool has_stream = false;
  bool has_cache_folder = false;
  std::string cache_folder;
  cudssDeviceMemHandler_t memory = {};
};

struct cudssConfig {
  bool is_deterministic = false;
  cudssMatchingAlg_t matching = CUDSS_MATCHING_ALG_AUTO;
};

struct cudssMatrix {
  int64_t n = 0;
  int64_t num_values = 0;
  const int64_t* row_begin = nullptr;  // null: a vector
  const int32_t* column = nullptr;
  void* values = nullptr;
};

struct cudssData {
  int64_t n = -1;  // -1: before an analysis
  bool was_factorized = false;
  // The first failure, until it is set to 0.
  int info = 0;
  int64_t num_factor_values = 0;
  int64_t num_flops = 0;
  void* analysis = nullptr;
  double* factor = nullptr;
};

namespace {

using emulation::Expect;

cudssStatus_t StatusOf(cudaError_t error) {
  return error == cudaSuccess ? CUDSS_STATUS_SUCCESS
                              : CUDSS_STATUS_EXECUTION_FAILED;
}

// Memory on the device, for a matrix of n rows: kept by an analysis and a
// factor, and used by each phase.
size_t AnalysisBytes(int64_t n) { return static_cast<size_t>(16 * n + 40); }
size_t FactorBytes(int64_t n) {
  return static_cast<size_t>(n * n) * sizeof(double);
}
size_t ScratchBytes(int64_t n) {
  return static_cast<size_t>(n + 3) * sizeof(double);
}

void* Allocate(cudssHandle_t handle, size_t num_bytes) {
  void* data = nullptr;
  return handle->memory.device_alloc(
             handle->memory.ctx, &data, num_bytes, nullptr) == 0
             ? data
             : nullptr;
}
void Free(cudssHandle_t handle, void* data, size_t num_bytes) {
  if (data != nullptr) {
    handle->memory.device_free(handle->memory.ctx, data, num_bytes, nullptr);
  }
}

int64_t Reverse(int64_t n, int64_t i) { return n - 1 - i; }

template <typename T>
bool IsOnDevice(const T* data, int64_t size) {
  return emulation::IsOnDevice(data, static_cast<size_t>(size) * sizeof(T));
}

// Calls element(i, j, index) for the elements of the lower triangle.
template <typename Function>
void ForEachElement(const cudssMatrix& a, const Function& element) {
  for (int64_t i = 0; i < a.n; ++i) {
    for (int64_t k = a.row_begin[i]; k < a.row_begin[i + 1]; ++k) {
      element(i, a.column[k], k);
    }
  }
}

bool IsLowerTriangle(const cudssMatrix& a) {
  if (a.row_begin[0] != 0 || a.row_begin[a.n] != a.num_values) {
    return false;
  }
  for (int64_t i = 0; i < a.n; ++i) {
    const int64_t begin = a.row_begin[i];
    const int64_t end = a.row_begin[i + 1];
    if (begin >= end || a.column[end - 1] != i || a.column[begin] < 0) {
      return false;
    }
    for (int64_t k = begin + 1; k < end; ++k) {
      if (a.column[k - 1] >= a.column[k]) {
        return false;
      }
    }
  }
  return true;
}

cudssStatus_t Analyze(cudssHandle_t handle,
                      cudssData_t data,
                      const cudssMatrix& a) {
  if (!Expect(IsLowerTriangle(a), "analysis", "no lower triangle") ||
      !Expect(data->n < 0, "analysis", "there has been one")) {
    return CUDSS_STATUS_INVALID_VALUE;
  }
  data->analysis = Allocate(handle, AnalysisBytes(a.n));
  void* const scratch = Allocate(handle, ScratchBytes(a.n));
  Free(handle, scratch, ScratchBytes(a.n));
  if (data->analysis == nullptr || scratch == nullptr) {
    return CUDSS_STATUS_ALLOC_FAILED;
  }
  // The rows that each column of the factor has: those of the matrix and of the
  // columns whose first row below the diagonal it is.
  const auto n = static_cast<size_t>(a.n);
  std::vector<std::vector<int64_t>> rows(n);
  ForEachElement(a, [&](int64_t i, int64_t j, int64_t) {
    const int64_t p = Reverse(a.n, i);
    const int64_t q = Reverse(a.n, j);
    rows[static_cast<size_t>(std::min(p, q))].push_back(std::max(p, q));
  });
  std::vector<int64_t> last_column(n, -1);  // that has the row
  for (int64_t j = 0; j < a.n; ++j) {
    std::vector<int64_t> below;
    int64_t first = a.n;
    for (const int64_t i : rows[static_cast<size_t>(j)]) {
      if (i != j && last_column[static_cast<size_t>(i)] != j) {
        last_column[static_cast<size_t>(i)] = j;
        below.push_back(i);
        first = std::min(first, i);
      }
    }
    rows[static_cast<size_t>(j)] = {};
    const auto count = static_cast<int64_t>(below.size()) + 1;
    data->num_factor_values += count;
    data->num_flops += count * count;
    if (first < a.n) {
      std::vector<int64_t>& next = rows[static_cast<size_t>(first)];
      next.insert(next.end(), below.begin(), below.end());
    }
  }
  data->n = a.n;
  return CUDSS_STATUS_SUCCESS;
}

cudssStatus_t Factorize(cudssHandle_t handle,
                        int phase,
                        cudssData_t data,
                        const cudssMatrix& a) {
  // The first until one succeeds, then the other, which need not take memory.
  if (!Expect(data->n == a.n, "factorization", "no analysis") ||
      !Expect((phase == CUDSS_PHASE_REFACTORIZATION) == data->was_factorized,
              "factorization",
              "the wrong one of the two")) {
    return CUDSS_STATUS_INVALID_VALUE;
  }
  if (data->factor == nullptr) {
    data->factor = static_cast<double*>(Allocate(handle, FactorBytes(a.n)));
  }
  void* const scratch = Allocate(handle, ScratchBytes(a.n));
  Free(handle, scratch, ScratchBytes(a.n));
  if (data->factor == nullptr || scratch == nullptr) {
    return CUDSS_STATUS_ALLOC_FAILED;
  }
  const int64_t n = a.n;
  double* const l = data->factor;  // column-major
  std::memset(l, 0, FactorBytes(n));
  const double* const values = static_cast<const double*>(a.values);
  ForEachElement(a, [&](int64_t i, int64_t j, int64_t k) {
    l[Reverse(n, i) * n + Reverse(n, j)] = values[k];
  });
  for (int64_t j = 0; j < n; ++j) {
    const double pivot = l[j * n + j];
    if (!(pivot > 0.0)) {
      data->info = data->info == 0 ? static_cast<int>(j + 1) : data->info;
      return CUDSS_STATUS_SUCCESS;  // It is the device that has noticed.
    }
    for (int64_t i = j; i < n; ++i) {
      l[j * n + i] /= std::sqrt(pivot);
    }
    for (int64_t k = j + 1; k < n; ++k) {
      for (int64_t i = k; i < n; ++i) {
        l[k * n + i] -= l[j * n + i] * l[j * n + k];
      }
    }
  }
  data->was_factorized = true;
  return CUDSS_STATUS_SUCCESS;
}

cudssStatus_t Solve(cudssHandle_t handle,
                    cudssData_t data,
                    const cudssMatrix& x,
                    const cudssMatrix& b) {
  if (!Expect(data->was_factorized && data->info == 0, "solve", "no factor") ||
      !Expect(x.values != b.values, "solve", "x is b") ||
      !Expect(x.num_values == b.num_values && b.num_values % data->n == 0,
              "solve",
              "columns of other sizes")) {
    return CUDSS_STATUS_INVALID_VALUE;
  }
  const int64_t n = data->n;
  auto* const y = static_cast<double*>(Allocate(handle, ScratchBytes(n)));
  if (y == nullptr) {
    return CUDSS_STATUS_ALLOC_FAILED;
  }
  const double* const l = data->factor;
  for (int64_t begin = 0; begin < b.num_values; begin += n) {
    for (int64_t i = 0; i < n; ++i) {
      y[i] = static_cast<const double*>(b.values)[begin + Reverse(n, i)];
    }
    for (int64_t j = 0; j < n; ++j) {
      y[j] /= l[j * n + j];
      for (int64_t i = j + 1; i < n; ++i) {
        y[i] -= l[j * n + i] * y[j];
      }
    }
    for (int64_t j = n - 1; j >= 0; --j) {
      for (int64_t i = j + 1; i < n; ++i) {
        y[j] -= l[j * n + i] * y[i];
      }
      y[j] /= l[j * n + j];
    }
    for (int64_t i = 0; i < n; ++i) {
      static_cast<double*>(x.values)[begin + Reverse(n, i)] =
          emulation::Spoiled("cuDSS", Reverse(n, i), y[i]);
    }
  }
  Free(handle, y, ScratchBytes(n));
  return CUDSS_STATUS_SUCCESS;
}

// Writes a value that is asked for by its size.
template <typename T>
cudssStatus_t Write(const T* from,
                    size_t size,
                    void* value,
                    size_t num_bytes,
                    size_t* num_written) {
  if (!Expect(num_bytes == size * sizeof(T), "cudssDataGet", "the size")) {
    return CUDSS_STATUS_INVALID_VALUE;
  }
  std::memcpy(value, from, num_bytes);
  *num_written = num_bytes;
  return CUDSS_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

cudssStatus_t cudssGetProperty(int type, int* value) {
  *value = type == 0 ? CUDSS_VERSION_MAJOR : 0;
  return CUDSS_STATUS_SUCCESS;
}

cudssStatus_t cudssCreate(cudssHandle_t* handle) {
  *handle = emulation::CreateHandle<cudssContext>("cudssCreate");
  return *handle == nullptr ? CUDSS_STATUS_ALLOC_FAILED : CUDSS_STATUS_SUCCESS;
}

cudssStatus_t cudssDestroy(cudssHandle_t handle) {
  emulation::DestroyHandle("cudssDestroy", handle);
  return CUDSS_STATUS_SUCCESS;
}

cudssStatus_t cudssSetStream(cudssHandle_t handle, cudaStream_t) {
  handle->has_stream = true;
  return StatusOf(emulation::Next("cudssSetStream"));
}

cudssStatus_t cudssSetDeviceMemHandler(cudssHandle_t handle,
                                       const cudssDeviceMemHandler_t* memory) {
  if (handle->memory.device_alloc != nullptr) {
    return CUDSS_STATUS_NOT_SUPPORTED;  // as cuDSS 1.0 does
  }
  handle->memory = *memory;
  return StatusOf(emulation::Next("cudssSetDeviceMemHandler"));
}

cudssStatus_t cudssSetJitCacheDir(cudssHandle_t handle, const char* folder) {
  handle->has_cache_folder = true;
  handle->cache_folder = folder;
  return StatusOf(emulation::Next("cudssSetJitCacheDir"));
}

cudssStatus_t cudssConfigCreate(cudssConfig_t* config) {
  *config = emulation::CreateHandle<cudssConfig>("cudssConfigCreate");
  return *config == nullptr ? CUDSS_STATUS_ALLOC_FAILED : CUDSS_STATUS_SUCCESS;
}

cudssStatus_t cudssConfigDestroy(cudssConfig_t config) {
  emulation::DestroyHandle("cudssConfigDestroy", config);
  return CUDSS_STATUS_SUCCESS;
}

cudssStatus_t cudssConfigSet(cudssConfig_t config,
                             cudssConfigParam_t what,
                             const void* value,
                             size_t num_bytes) {
  const char* const name = "cudssConfigSet";
  switch (what) {
    case CUDSS_CONFIG_DETERMINISTIC_MODE:
      if (!Expect(num_bytes == sizeof(int), name, "the size")) {
        return CUDSS_STATUS_INVALID_VALUE;
      }
      config->is_deterministic = *static_cast<const int*>(value) != 0;
      break;
    case CUDSS_CONFIG_MATCHING_ALG:
      if (!Expect(num_bytes == sizeof(config->matching), name, "the size")) {
        return CUDSS_STATUS_INVALID_VALUE;
      }
      config->matching = *static_cast<const cudssMatchingAlg_t*>(value);
      break;
  }
  return StatusOf(emulation::Next(name));
}

cudssStatus_t cudssDataCreate(cudssHandle_t, cudssData_t* data) {
  *data = emulation::CreateHandle<cudssData>("cudssDataCreate");
  return *data == nullptr ? CUDSS_STATUS_ALLOC_FAILED : CUDSS_STATUS_SUCCESS;
}

cudssStatus_t cudssDataDestroy(cudssHandle_t handle, cudssData_t data) {
  Free(handle, data->factor, FactorBytes(data->n));
  // cuDSS need not say truly how much it gives back.
  Free(handle, data->analysis, 0);
  emulation::DestroyHandle("cudssDataDestroy", data);
  return CUDSS_STATUS_SUCCESS;
}

cudssStatus_t cudssDataSet(cudssHandle_t,
                           cudssData_t data,
                           cudssDataParam_t what,
                           const void* value,
                           size_t num_bytes) {
  if (!Expect(what == CUDSS_DATA_INFO && num_bytes == sizeof(int),
              "cudssDataSet",
              "the parameter or its size")) {
    return CUDSS_STATUS_INVALID_VALUE;
  }
  data->info = *static_cast<const int*>(value);
  return StatusOf(emulation::Next("cudssDataSet"));
}

cudssStatus_t cudssDataGet(cudssHandle_t,
                           cudssData_t data,
                           cudssDataParam_t what,
                           void* value,
                           size_t num_bytes,
                           size_t* num_written) {
  const cudaError_t error = emulation::NextOnDevice("cudssDataGet");
  if (error != cudaSuccess) {
    return StatusOf(error);
  }
  const int64_t n = data->n;
  if (!Expect(n >= 0, "cudssDataGet", "no analysis")) {
    return CUDSS_STATUS_INVALID_VALUE;
  }
  switch (what) {
    case CUDSS_DATA_INFO:
      return Write(&data->info, 1, value, num_bytes, num_written);
    case CUDSS_DATA_LU_NNZ:
      return Write(&data->num_factor_values, 1, value, num_bytes, num_written);
    case CUDSS_DATA_FLOPS: {
      // Both types that cuDSS has had.
      const auto flops = static_cast<double>(data->num_flops);
      return n % 2 == 0
                 ? Write(&data->num_flops, 1, value, num_bytes, num_written)
                 : Write(&flops, 1, value, num_bytes, num_written);
    }
    case CUDSS_DATA_MEMORY_ESTIMATES: {
      int64_t estimates[16] = {};
      estimates[0] = static_cast<int64_t>(AnalysisBytes(n) + FactorBytes(n));
      estimates[1] = estimates[0] + static_cast<int64_t>(ScratchBytes(n));
      return Write(estimates, 16, value, num_bytes, num_written);
    }
    case CUDSS_DATA_PERM_REORDER_ROW: {
      std::vector<int32_t> row;
      for (int64_t i = 0; i < n; ++i) {
        row.push_back(static_cast<int32_t>(Reverse(n, i)));
      }
      return Write(row.data(), row.size(), value, num_bytes, num_written);
    }
  }
  return CUDSS_STATUS_NOT_SUPPORTED;
}

cudssStatus_t cudssMatrixCreateCsr(cudssMatrix_t* matrix,
                                   int64_t num_rows,
                                   int64_t num_columns,
                                   int64_t num_values,
                                   const void* row_begin,
                                   const void* row_end,
                                   const void* column,
                                   const void* values,
                                   cudaDataType offset_type,
                                   cudaDataType index_type,
                                   cudaDataType value_type,
                                   cudssMatrixType_t type,
                                   cudssMatrixViewType_t view,
                                   cudssIndexBase_t base) {
  const char* const name = "cudssMatrixCreateCsr";
  const auto* const begins = static_cast<const int64_t*>(row_begin);
  const auto* const columns = static_cast<const int32_t*>(column);
  if (!Expect(num_rows == num_columns && num_rows > 0, name, "the size") ||
      !Expect(offset_type == CUDA_R_64I && index_type == CUDA_R_32I &&
                  value_type == CUDA_R_64F,
              name,
              "the types") ||
      !Expect(type == CUDSS_MTYPE_SPD && view == CUDSS_MVIEW_LOWER &&
                  base == CUDSS_BASE_ZERO,
              name,
              "the kind of matrix") ||
      !Expect(IsOnDevice(begins, num_rows + 1) && row_end == nullptr &&
                  IsOnDevice(columns, num_values) &&
                  IsOnDevice(static_cast<const double*>(values), num_values),
              name,
              "no arrays on the device")) {
    return CUDSS_STATUS_INVALID_VALUE;
  }
  *matrix = emulation::CreateHandle<cudssMatrix>(name);
  if (*matrix == nullptr) {
    return CUDSS_STATUS_ALLOC_FAILED;
  }
  **matrix = {num_rows, num_values, begins, columns, const_cast<void*>(values)};
  return CUDSS_STATUS_SUCCESS;
}

cudssStatus_t cudssMatrixCreateDn(cudssMatrix_t* matrix,
                                  int64_t num_rows,
                                  int64_t num_columns,
                                  int64_t stride,
                                  const void* values,
                                  cudaDataType value_type,
                                  cudssLayout_t layout) {
  const char* const name = "cudssMatrixCreateDn";
  if (!Expect(num_columns >= 1 && stride == num_rows &&
                  value_type == CUDA_R_64F && layout == CUDSS_LAYOUT_COL_MAJOR,
              name,
              "no vectors without gaps") ||
      !Expect(IsOnDevice(static_cast<const double*>(values),
                         num_rows * num_columns),
              name,
              "no values on the device")) {
    return CUDSS_STATUS_INVALID_VALUE;
  }
  *matrix = emulation::CreateHandle<cudssMatrix>(name);
  if (*matrix == nullptr) {
    return CUDSS_STATUS_ALLOC_FAILED;
  }
  **matrix = {num_rows,
              num_rows * num_columns,
              nullptr,
              nullptr,
              const_cast<void*>(values)};
  return CUDSS_STATUS_SUCCESS;
}

cudssStatus_t cudssMatrixSetValues(cudssMatrix_t matrix, const void* values) {
  if (!Expect(
          IsOnDevice(static_cast<const double*>(values), matrix->num_values),
          "cudssMatrixSetValues",
          "no values on the device")) {
    return CUDSS_STATUS_INVALID_VALUE;
  }
  matrix->values = const_cast<void*>(values);
  return StatusOf(emulation::Next("cudssMatrixSetValues"));
}

cudssStatus_t cudssMatrixDestroy(cudssMatrix_t matrix) {
  emulation::DestroyHandle("cudssMatrixDestroy", matrix);
  return CUDSS_STATUS_SUCCESS;
}

cudssStatus_t cudssExecute(cudssHandle_t handle,
                           int phase,
                           cudssConfig_t config,
                           cudssData_t data,
                           cudssMatrix_t a,
                           cudssMatrix_t x,
                           cudssMatrix_t b) {
  const char* const name = "cudssExecute";
  const bool has_users_cache = std::getenv("CUDSS_JIT_CACHE_DIR") != nullptr;
  if (!Expect(handle->has_stream, name, "no stream") ||
      !Expect(handle->memory.device_alloc != nullptr &&
                  handle->memory.device_free != nullptr,
              name,
              "no memory handler") ||
      !Expect(handle->has_cache_folder != has_users_cache &&
                  handle->cache_folder.empty(),
              name,
              "a cache on disk that the user has not asked for") ||
      !Expect(config->is_deterministic, name, "not deterministic") ||
      // Reads values that may not be there yet.
      !Expect(config->matching == CUDSS_MATCHING_ALG_NONE, name, "matching")) {
    return CUDSS_STATUS_INVALID_VALUE;
  }
  const cudaError_t error = emulation::NextOnDevice(name);
  if (error != cudaSuccess) {
    return StatusOf(error);
  }
  switch (phase) {
    case CUDSS_PHASE_ANALYSIS:
      return Analyze(handle, data, *a);
    case CUDSS_PHASE_FACTORIZATION:
    case CUDSS_PHASE_REFACTORIZATION:
      return Factorize(handle, phase, data, *a);
    case CUDSS_PHASE_SOLVE:
      return Solve(handle, data, *x, *b);
    default:
      return CUDSS_STATUS_INVALID_VALUE;
  }
}

}  // extern "C"
