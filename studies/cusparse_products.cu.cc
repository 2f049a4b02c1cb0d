// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "studies/cusparse_products.h"

#include <cusparse.h>

#include <algorithm>
#include <limits>
#include <string>

#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/device_buffer.h"

#define CERES_EXT_RETURN_IF_CUSPARSE_ERROR(call)                               \
  do {                                                                         \
    const cusparseStatus_t ceres_ext_error_ = (call);                          \
    if (ceres_ext_error_ != CUSPARSE_STATUS_SUCCESS) {                         \
      return Status(                                                           \
          StatusCode::kDeviceError,                                            \
          std::string(#call ": ") + cusparseGetErrorString(ceres_ext_error_)); \
    }                                                                          \
  } while (false)

namespace ceres_ext::bal {
namespace {

using kernels::BlockRef;
using kernels::CeilDivide;
using kernels::CudaContext;
using kernels::DeviceBuffer;
using kernels::kDeviceLayout;
using kernels::Launch;
using kernels::ObservationIndexRef;
using kernels::PackedIndex;
using kernels::PackedSize;
using kernels::Status;
using kernels::StatusCode;
using Source = CusparseProducts::Source;

constexpr int kBlock = 256;

__device__ __forceinline__ int64_t Thread() {
  return int64_t{blockIdx.x} * kBlock + threadIdx.x;
}

// A compressed matrix on the device.
struct Arrays {
  int32_t* row_begin;
  int32_t* column;
  double* value;
};

// Row 2 k + r of J: 9 columns of the camera, 3 of the point.
__global__ void FillCsrStructureKernel(ObservationIndexRef index, Arrays a) {
  const int64_t k = Thread();
  if (k >= index.num_observations) {
    return;
  }
  for (int r = 0; r < 2; ++r) {
    const int64_t begin = 24 * k + 12 * r;
    a.row_begin[2 * k + r] = static_cast<int32_t>(begin);
    for (int i = 0; i < 9; ++i) {
      a.column[begin + i] = 9 * index.camera_id[k] + i;
    }
    for (int i = 0; i < 3; ++i) {
      a.column[begin + 9 + i] =
          9 * index.num_cameras + 3 * index.point_id[k] + i;
    }
  }
  if (k == index.num_observations - 1) {
    a.row_begin[2 * k + 2] = static_cast<int32_t>(24 * (k + 1));
  }
}

__global__ void FillCsrValuesKernel(ObservationIndexRef index,
                                    Source jacobian,
                                    double* value) {
  const int64_t k = Thread();
  if (k >= index.num_observations) {
    return;
  }
  for (int r = 0; r < 2; ++r) {
    for (int i = 0; i < 9; ++i) {
      value[24 * k + 12 * r + i] = jacobian.camera_blocks(k, 9 * r + i);
    }
    for (int i = 0; i < 3; ++i) {
      value[24 * k + 12 * r + 9 + i] = jacobian.point_blocks(k, 3 * r + i);
    }
  }
}

// First nonzero of row 9 c + i and of row 9 num_cameras + 3 p + i of J'.
__device__ __forceinline__ int64_t CameraRow(const ObservationIndexRef& index,
                                             int64_t c,
                                             int i) {
  const int64_t begin = index.camera_begin[c];
  return 18 * begin + 2 * i * (index.camera_begin[c + 1] - begin);
}
__device__ __forceinline__ int64_t PointRow(const ObservationIndexRef& index,
                                            int64_t p,
                                            int i) {
  const int64_t begin = index.point_begin[p];
  return 18 * index.num_observations + 6 * begin +
         2 * i * (index.point_begin[p + 1] - begin);
}

__global__ void FillTransposedRowsKernel(ObservationIndexRef index,
                                         int32_t* row_begin) {
  const int64_t t = Thread();
  if (t < index.num_cameras) {
    for (int i = 0; i < 9; ++i) {
      row_begin[9 * t + i] = static_cast<int32_t>(CameraRow(index, t, i));
    }
  } else if (t < int64_t{index.num_cameras} + index.num_points) {
    const int64_t p = t - index.num_cameras;
    for (int i = 0; i < 3; ++i) {
      row_begin[int64_t{9} * index.num_cameras + 3 * p + i] =
          static_cast<int32_t>(PointRow(index, p, i));
    }
  } else if (t == int64_t{index.num_cameras} + index.num_points) {
    row_begin[int64_t{9} * index.num_cameras + int64_t{3} * index.num_points] =
        static_cast<int32_t>(24 * index.num_observations);
  }
}

// Thread t fills observation camera_entry[t] in its camera's rows, and
// observation t in its point's rows. Columns where `value` is null.
__global__ void FillTransposedKernel(ObservationIndexRef index,
                                     Source jacobian,
                                     int32_t* column,
                                     double* value) {
  const int64_t t = Thread();
  if (t >= index.num_observations) {
    return;
  }
  const int64_t k = index.camera_entry[t];
  const int64_t c = index.camera_id[k];
  for (int i = 0; i < 9; ++i) {
    for (int r = 0; r < 2; ++r) {
      const int64_t at =
          CameraRow(index, c, i) + 2 * (t - index.camera_begin[c]) + r;
      if (value == nullptr) {
        column[at] = static_cast<int32_t>(2 * k + r);
      } else {
        value[at] = jacobian.camera_blocks(k, 9 * r + i);
      }
    }
  }
  const int64_t p = index.point_id[t];
  for (int i = 0; i < 3; ++i) {
    for (int r = 0; r < 2; ++r) {
      const int64_t at =
          PointRow(index, p, i) + 2 * (t - index.point_begin[p]) + r;
      if (value == nullptr) {
        column[at] = static_cast<int32_t>(2 * t + r);
      } else {
        value[at] = jacobian.point_blocks(t, 3 * r + i);
      }
    }
  }
}

// First block of block row 3 c + i (3 blocks of U, then one per observation)
// and of block row 3 num_cameras + p (3 per observation, then V).
__device__ __forceinline__ int64_t
BsrCameraRow(const ObservationIndexRef& index, int64_t c, int i) {
  const int64_t begin = index.camera_begin[c];
  return 9 * c + 3 * begin + i * (3 + index.camera_begin[c + 1] - begin);
}
__device__ __forceinline__ int64_t BsrPointRow(const ObservationIndexRef& index,
                                               int64_t p) {
  return int64_t{9} * index.num_cameras + 3 * index.num_observations +
         3 * index.point_begin[p] + p;
}

// Threads: observations, then cameras, then points. Structure where u is null.
__global__ void FillBsrKernel(
    ObservationIndexRef index,
    BlockRef<const double, PackedSize(9), kDeviceLayout> u,
    BlockRef<const double, 6, kDeviceLayout> v,
    BlockRef<const double, 27, kDeviceLayout> w,
    Arrays a) {
  int64_t t = Thread();
  const int32_t first_point = 3 * index.num_cameras;
  if (t < index.num_observations) {
    const int64_t k = index.camera_entry[t];
    const int64_t c = index.camera_id[k];
    const int64_t p = index.point_id[t];
    for (int i = 0; i < 3; ++i) {
      const int64_t at =
          BsrCameraRow(index, c, i) + 3 + t - index.camera_begin[c];
      const int64_t transposed =
          BsrPointRow(index, p) + 3 * (t - index.point_begin[p]) + i;
      if (u.data == nullptr) {
        a.column[at] = first_point + index.point_id[k];
        a.column[transposed] = 3 * index.camera_id[t] + i;
      } else {
        for (int e = 0; e < 9; ++e) {
          a.value[9 * at + e] = w(k, 9 * i + e);
          a.value[9 * transposed + e] = w(t, 9 * i + 3 * (e % 3) + e / 3);
        }
      }
    }
    return;
  }
  t -= index.num_observations;
  if (t < index.num_cameras) {
    for (int i = 0; i < 3; ++i) {
      const int64_t begin = BsrCameraRow(index, t, i);
      if (u.data == nullptr) {
        a.row_begin[3 * t + i] = static_cast<int32_t>(begin);
      }
      for (int j = 0; j < 3; ++j) {
        if (u.data == nullptr) {
          a.column[begin + j] = static_cast<int32_t>(3 * t + j);
          continue;
        }
        for (int e = 0; e < 9; ++e) {
          const int row = 3 * i + e / 3;
          const int column = 3 * j + e % 3;
          a.value[9 * (begin + j) + e] =
              u(t,
                column <= row ? PackedIndex(row, column)
                              : PackedIndex(column, row));
        }
      }
    }
    return;
  }
  t -= index.num_cameras;
  if (t < index.num_points) {
    const int64_t begin = BsrPointRow(index, t);
    const int64_t own = BsrPointRow(index, t + 1) - 1;
    if (u.data == nullptr) {
      a.row_begin[first_point + t] = static_cast<int32_t>(begin);
      a.column[own] = first_point + static_cast<int32_t>(t);
      if (t == index.num_points - 1) {
        a.row_begin[first_point + t + 1] = static_cast<int32_t>(own + 1);
      }
    } else {
      for (int e = 0; e < 9; ++e) {
        const int row = e / 3;
        const int column = e % 3;
        a.value[9 * own + e] = v(t,
                                 column <= row ? PackedIndex(row, column)
                                               : PackedIndex(column, row));
      }
    }
  }
}

// q = D^2 p over cameras, then points.
__global__ void SquaredDiagonalKernel(int64_t num_camera_values,
                                      int64_t n,
                                      const double* camera_diagonal,
                                      const double* point_diagonal,
                                      const double* p,
                                      double* q) {
  const int64_t i = Thread();
  if (i >= n) {
    return;
  }
  const double* diagonal =
      i < num_camera_values ? camera_diagonal : point_diagonal;
  const double d =
      diagonal == nullptr
          ? 0.0
          : diagonal[i < num_camera_values ? i : i - num_camera_values];
  q[i] = d * d * p[i];
}

}  // namespace

struct CusparseProducts::Impl {
  struct Matrix {
    int64_t num_rows = 0;
    int64_t num_columns = 0;
    DeviceBuffer<int32_t> row_begin;
    DeviceBuffer<int32_t> column;
    DeviceBuffer<double> value;
    cusparseSpMatDescr_t descriptor = nullptr;

    Arrays arrays() { return {row_begin.data(), column.data(), value.data()}; }
    int64_t bytes() const {
      return row_begin.bytes() + column.bytes() + value.bytes();
    }
    Status Allocate(int64_t rows,
                    int64_t columns,
                    int64_t num_blocks,
                    int64_t block_size,
                    CudaContext* context) {
      if (num_blocks * block_size > std::numeric_limits<int32_t>::max()) {
        return Status(StatusCode::kUnsupported,
                      std::to_string(num_blocks * block_size) +
                          " nonzeros need more than 32 bits.");
      }
      num_rows = rows;
      num_columns = columns;
      CERES_EXT_RETURN_IF_ERROR(row_begin.Allocate(context, rows + 1));
      CERES_EXT_RETURN_IF_ERROR(row_begin.SetZero());
      CERES_EXT_RETURN_IF_ERROR(column.Allocate(context, num_blocks));
      CERES_EXT_RETURN_IF_ERROR(
          value.Allocate(context, num_blocks * block_size));
      return value.SetZero();
    }
    Status Describe() {
      CERES_EXT_RETURN_IF_CUSPARSE_ERROR(
          cusparseCreateCsr(&descriptor,
                            num_rows,
                            num_columns,
                            value.size(),
                            row_begin.data(),
                            column.data(),
                            value.data(),
                            CUSPARSE_INDEX_32I,
                            CUSPARSE_INDEX_32I,
                            CUSPARSE_INDEX_BASE_ZERO,
                            CUDA_R_64F));
      return Status();
    }
  };

  ~Impl() {
    for (Matrix* matrix : {&jacobian, &transposed}) {
      if (matrix->descriptor != nullptr) {
        cusparseDestroySpMat(matrix->descriptor);
      }
    }
    for (cusparseDnVecDescr_t vector : {rows, columns_in, columns_out}) {
      if (vector != nullptr) {
        cusparseDestroyDnVec(vector);
      }
    }
    if (bsr_descriptor != nullptr) {
      cusparseDestroyMatDescr(bsr_descriptor);
    }
    if (handle != nullptr) {
      cusparseDestroy(handle);
    }
  }

  int64_t num_columns() const {
    return int64_t{9} * index.num_cameras + int64_t{3} * index.num_points;
  }

  // A buffer for out = op(A) in + beta out, and its analysis where wanted.
  Status Plan(cusparseOperation_t operation,
              const Matrix& matrix,
              cusparseDnVecDescr_t in,
              cusparseDnVecDescr_t out,
              const double* beta,
              bool analyse,
              DeviceBuffer<unsigned char>* buffer) {
    size_t size = 0;
    CERES_EXT_RETURN_IF_CUSPARSE_ERROR(
        cusparseSpMV_bufferSize(handle,
                                operation,
                                &one,
                                matrix.descriptor,
                                in,
                                beta,
                                out,
                                CUDA_R_64F,
                                CUSPARSE_SPMV_ALG_DEFAULT,
                                &size));
    CERES_EXT_RETURN_IF_ERROR(buffer->Allocate(
        context, std::max<int64_t>(16, static_cast<int64_t>(size))));
    if (analyse) {
      CERES_EXT_RETURN_IF_CUSPARSE_ERROR(
          cusparseSpMV_preprocess(handle,
                                  operation,
                                  &one,
                                  matrix.descriptor,
                                  in,
                                  beta,
                                  out,
                                  CUDA_R_64F,
                                  CUSPARSE_SPMV_ALG_DEFAULT,
                                  buffer->data()));
    }
    return Status();
  }

  Status StartWithDiagonal(const double* camera_diagonal,
                           const double* point_diagonal,
                           const double* camera_p,
                           const double* point_p,
                           double* camera_q,
                           double* point_q) {
    const int64_t num_camera_values = int64_t{9} * index.num_cameras;
    if (point_p != camera_p + num_camera_values ||
        point_q != camera_q + num_camera_values) {
      return Status(StatusCode::kUnsupported,
                    "cuSPARSE needs cameras and points in one vector.");
    }
    return Launch("SquaredDiagonal",
                  SquaredDiagonalKernel,
                  {CeilDivide(num_columns(), kBlock), kBlock},
                  context->stream(),
                  num_camera_values,
                  num_columns(),
                  camera_diagonal,
                  point_diagonal,
                  camera_p,
                  camera_q);
  }

  const double one = 1.0;
  const double zero = 0.0;
  ObservationIndexRef index;
  CusparseForm form = CusparseForm::kCsr;
  CudaContext* context = nullptr;
  cusparseHandle_t handle = nullptr;
  Matrix jacobian;
  Matrix transposed;
  Matrix normal;  // Block rows and columns.
  cusparseMatDescr_t bsr_descriptor = nullptr;
  DeviceBuffer<double> y;  // J p
  cusparseDnVecDescr_t rows = nullptr;
  cusparseDnVecDescr_t columns_in = nullptr;
  cusparseDnVecDescr_t columns_out = nullptr;
  DeviceBuffer<unsigned char> forward_buffer;
  DeviceBuffer<unsigned char> backward_buffer;
};

CusparseProducts::CusparseProducts() = default;
CusparseProducts::~CusparseProducts() = default;

Status CusparseProducts::Setup(const ObservationIndexRef& index,
                               CusparseForm form,
                               CudaContext* context) {
  impl_ = std::make_unique<Impl>();
  impl_->index = index;
  impl_->form = form;
  impl_->context = context;
  const cudaStream_t stream = context->stream();
  const int64_t n = index.num_observations;
  const int64_t num_columns = impl_->num_columns();
  CERES_EXT_RETURN_IF_CUSPARSE_ERROR(cusparseCreate(&impl_->handle));
  CERES_EXT_RETURN_IF_CUSPARSE_ERROR(cusparseSetStream(impl_->handle, stream));

  if (form == CusparseForm::kBsr) {
    const int64_t num_blocks =
        int64_t{9} * index.num_cameras + 6 * n + index.num_points;
    const int64_t size = int64_t{3} * index.num_cameras + index.num_points;
    CERES_EXT_RETURN_IF_ERROR(
        impl_->normal.Allocate(size, size, num_blocks, 9, context));
    CERES_EXT_RETURN_IF_CUSPARSE_ERROR(
        cusparseCreateMatDescr(&impl_->bsr_descriptor));
    return Launch(
        "FillBsr",
        FillBsrKernel,
        {CeilDivide(n + index.num_cameras + index.num_points, kBlock), kBlock},
        stream,
        index,
        BlockRef<const double, PackedSize(9), kDeviceLayout>(),
        BlockRef<const double, 6, kDeviceLayout>(),
        BlockRef<const double, 27, kDeviceLayout>(),
        impl_->normal.arrays());
  }

  CERES_EXT_RETURN_IF_ERROR(
      impl_->jacobian.Allocate(2 * n, num_columns, 24 * n, 1, context));
  CERES_EXT_RETURN_IF_ERROR(Launch("FillCsrStructure",
                                   FillCsrStructureKernel,
                                   {CeilDivide(n, kBlock), kBlock},
                                   stream,
                                   index,
                                   impl_->jacobian.arrays()));
  CERES_EXT_RETURN_IF_ERROR(impl_->jacobian.Describe());
  CERES_EXT_RETURN_IF_ERROR(impl_->y.Allocate(context, 2 * n));
  CERES_EXT_RETURN_IF_CUSPARSE_ERROR(
      cusparseCreateDnVec(&impl_->rows, 2 * n, impl_->y.data(), CUDA_R_64F));
  // The vectors of each product are set by Multiply; y is a placeholder.
  CERES_EXT_RETURN_IF_CUSPARSE_ERROR(cusparseCreateDnVec(
      &impl_->columns_in, num_columns, impl_->y.data(), CUDA_R_64F));
  CERES_EXT_RETURN_IF_CUSPARSE_ERROR(cusparseCreateDnVec(
      &impl_->columns_out, num_columns, impl_->y.data(), CUDA_R_64F));
  const bool stored = form == CusparseForm::kCsrTransposed;
  CERES_EXT_RETURN_IF_ERROR(impl_->Plan(CUSPARSE_OPERATION_NON_TRANSPOSE,
                                        impl_->jacobian,
                                        impl_->columns_in,
                                        impl_->rows,
                                        &impl_->zero,
                                        stored,
                                        &impl_->forward_buffer));
  if (!stored) {
    return impl_->Plan(CUSPARSE_OPERATION_TRANSPOSE,
                       impl_->jacobian,
                       impl_->rows,
                       impl_->columns_out,
                       &impl_->one,
                       false,
                       &impl_->backward_buffer);
  }
  CERES_EXT_RETURN_IF_ERROR(
      impl_->transposed.Allocate(num_columns, 2 * n, 24 * n, 1, context));
  CERES_EXT_RETURN_IF_ERROR(Launch(
      "FillTransposedRows",
      FillTransposedRowsKernel,
      {CeilDivide(int64_t{index.num_cameras} + index.num_points + 1, kBlock),
       kBlock},
      stream,
      index,
      impl_->transposed.row_begin.data()));
  CERES_EXT_RETURN_IF_ERROR(Launch("FillTransposed",
                                   FillTransposedKernel,
                                   {CeilDivide(n, kBlock), kBlock},
                                   stream,
                                   index,
                                   Source(),
                                   impl_->transposed.column.data(),
                                   static_cast<double*>(nullptr)));
  CERES_EXT_RETURN_IF_ERROR(impl_->transposed.Describe());
  return impl_->Plan(CUSPARSE_OPERATION_NON_TRANSPOSE,
                     impl_->transposed,
                     impl_->rows,
                     impl_->columns_out,
                     &impl_->one,
                     true,
                     &impl_->backward_buffer);
}

Status CusparseProducts::SetJacobian(const Source& jacobian) {
  const ObservationIndexRef& index = impl_->index;
  const cudaStream_t stream = impl_->context->stream();
  const int64_t num_blocks = CeilDivide(index.num_observations, kBlock);
  CERES_EXT_RETURN_IF_ERROR(Launch("FillCsrValues",
                                   FillCsrValuesKernel,
                                   {num_blocks, kBlock},
                                   stream,
                                   index,
                                   jacobian,
                                   impl_->jacobian.value.data()));
  if (impl_->form != CusparseForm::kCsrTransposed) {
    return Status();
  }
  return Launch("FillTransposed",
                FillTransposedKernel,
                {num_blocks, kBlock},
                stream,
                index,
                jacobian,
                impl_->transposed.column.data(),
                impl_->transposed.value.data());
}

Status CusparseProducts::SetBlocks(
    const ExplicitBlocksParams<Source, kDeviceLayout>& blocks) {
  const ObservationIndexRef& index = impl_->index;
  return Launch(
      "FillBsr",
      FillBsrKernel,
      {CeilDivide(index.num_observations + index.num_cameras + index.num_points,
                  kBlock),
       kBlock},
      impl_->context->stream(),
      index,
      BlockRef<const double, PackedSize(9), kDeviceLayout>(blocks.normal.u),
      BlockRef<const double, 6, kDeviceLayout>(blocks.normal.v),
      BlockRef<const double, 27, kDeviceLayout>(blocks.w),
      impl_->normal.arrays());
}

Status CusparseProducts::Multiply(
    const kernels::NormalProductImplicitWParams<Source>& params) {
  Impl* impl = impl_.get();
  CERES_EXT_RETURN_IF_ERROR(impl->StartWithDiagonal(params.camera_diagonal,
                                                    params.point_diagonal,
                                                    params.camera_p,
                                                    params.point_p,
                                                    params.camera_q,
                                                    params.point_q));
  CERES_EXT_RETURN_IF_CUSPARSE_ERROR(cusparseDnVecSetValues(
      impl->columns_in, const_cast<double*>(params.camera_p)));
  CERES_EXT_RETURN_IF_CUSPARSE_ERROR(
      cusparseDnVecSetValues(impl->columns_out, params.camera_q));
  CERES_EXT_RETURN_IF_CUSPARSE_ERROR(
      cusparseSpMV(impl->handle,
                   CUSPARSE_OPERATION_NON_TRANSPOSE,
                   &impl->one,
                   impl->jacobian.descriptor,
                   impl->columns_in,
                   &impl->zero,
                   impl->rows,
                   CUDA_R_64F,
                   CUSPARSE_SPMV_ALG_DEFAULT,
                   impl->forward_buffer.data()));
  const bool stored = impl->form == CusparseForm::kCsrTransposed;
  CERES_EXT_RETURN_IF_CUSPARSE_ERROR(cusparseSpMV(
      impl->handle,
      stored ? CUSPARSE_OPERATION_NON_TRANSPOSE : CUSPARSE_OPERATION_TRANSPOSE,
      &impl->one,
      stored ? impl->transposed.descriptor : impl->jacobian.descriptor,
      impl->rows,
      &impl->one,
      impl->columns_out,
      CUDA_R_64F,
      CUSPARSE_SPMV_ALG_DEFAULT,
      impl->backward_buffer.data()));
  return Status();
}

Status CusparseProducts::Multiply(
    const NormalProductExplicitWParams<double,
                                       kernels::BalShape<9>,
                                       kDeviceLayout>& params) {
  Impl* impl = impl_.get();
  CERES_EXT_RETURN_IF_ERROR(impl->StartWithDiagonal(params.camera_diagonal,
                                                    params.point_diagonal,
                                                    params.camera_p,
                                                    params.point_p,
                                                    params.camera_q,
                                                    params.point_q));
  Impl::Matrix& normal = impl->normal;
  CERES_EXT_RETURN_IF_CUSPARSE_ERROR(
      cusparseDbsrmv(impl->handle,
                     CUSPARSE_DIRECTION_ROW,
                     CUSPARSE_OPERATION_NON_TRANSPOSE,
                     static_cast<int>(normal.num_rows),
                     static_cast<int>(normal.num_columns),
                     static_cast<int>(normal.column.size()),
                     &impl->one,
                     impl->bsr_descriptor,
                     normal.value.data(),
                     normal.row_begin.data(),
                     normal.column.data(),
                     3,
                     params.camera_p,
                     &impl->one,
                     params.camera_q));
  return Status();
}

int64_t CusparseProducts::bytes() const {
  switch (impl_->form) {
    case CusparseForm::kCsr:
      return 2 * impl_->jacobian.bytes();
    case CusparseForm::kCsrTransposed:
      return impl_->jacobian.bytes() + impl_->transposed.bytes();
    case CusparseForm::kBsr:
      return impl_->normal.bytes();
  }
  return 0;
}

}  // namespace ceres_ext::bal
