// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The Jacobian of a model that this library does not know, recomputed in each
// product by kernels of the model's own module
// (ceres_ext/device/recomputed_form.cuh). The library has all that is around a
// kernel and launches it by its number.
#ifndef CERES_EXT_CUDA_KERNELS_MODEL_MODEL_JACOBIAN_H_
#define CERES_EXT_CUDA_KERNELS_MODEL_MODEL_JACOBIAN_H_

#include <cstdint>
#include <type_traits>

#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/model/shape.h"

namespace ceres_ext::kernels {

// The kernels that recompute a Jacobian. Those on tiles are named by what they
// are part of (cuda/camera_sums.cuh).
enum class ModelKernel : int {
  kEvaluate,
  kRightMultiply,
  kPointNorms,
  kLongPointNorms,
  kCameraNorms,
  kPointBlocks,
  kLongPointBlocks,
  kU,
  kSchurDiagonal,
  kSchurProduct,
  kEliminatedPart,
  kBackSubstitute,
  kNormalProduct,
  kLeftMultiply,
  kSchurRhs,
  kLongRepeats,
};
inline constexpr int kNumModelKernels = 16;

// A launch of a kernel of a form.
struct ModelLaunch {
  int kernel = 0;
  int device = 0;
  void* stream = nullptr;
  // Not null: the launch becomes a node of this graph that follows *last, and
  // *last, in place of work on the stream. Handles of CUDA.
  void* graph = nullptr;
  void** last = nullptr;
  int64_t num_blocks = 0;
  int block_size = 0;
  int64_t shared_bytes = 0;
  // The address of each of the kernel's parameters.
  void** arguments = nullptr;
};

// Kernels of a model for one purpose (ceres_ext::FormKind), in the module that
// they were compiled in. Functions return 0 or an error of CUDA, which
// error_string describes.
struct ModelForm {
  int32_t version = 0;      // ceres_ext::kBatchModelVersion
  int32_t params_size = 0;  // bytes of the parameters of all kernels
  // Columns of the block beside the point, padded, if the kernels recompute the
  // Jacobian.
  int32_t columns = 0;
  // Bit s: parameter block s may vary, if the kernels solve fits.
  uint32_t varying = 0;

  struct Facts {
    int num_registers = 0;
    int64_t local_bytes = 0;  // of a thread, spilled registers included
    int max_threads = 0;      // of a block
  };
  // Resources of a kernel on the current device.
  int (*get_facts)(int kernel, Facts* facts) = nullptr;
  int (*launch)(const ModelLaunch& launch) = nullptr;
  const char* (*error_string)(int error) = nullptr;
};

// Queues a kernel of a form on a stream of a device. Arguments have the types
// of the kernel's parameters.
template <typename... Arguments>
int LaunchForm(const ModelForm& form,
               int kernel,
               int device,
               void* stream,
               int64_t num_blocks,
               int block_size,
               Arguments... arguments) {
  void* addresses[] = {&arguments...};
  ModelLaunch launch;
  launch.kernel = kernel;
  launch.device = device;
  launch.stream = stream;
  launch.num_blocks = num_blocks;
  launch.block_size = block_size;
  launch.arguments = addresses;
  return form.launch(launch);
}

// A source (model/jacobian_source.h) of rows of two residuals, a point and one
// other block, whose Load functions the module has. It is compared as bytes, so
// that all of it are pointers, and what they point to changes with the state.
template <int F>
struct ModelJacobian {
  using Value = double;
  using Shape = BalShape<F>;
  static constexpr BlockLayout kLayout = kDeviceLayout;

  const ModelForm* form = nullptr;  // on the host
  const void* rows = nullptr;       // a ceres_ext::RowBatch, in device memory
  const int32_t* camera_id = nullptr;    // of each row
  const double* camera_scale = nullptr;  // F per camera
  const double* point_scale = nullptr;   // 3 per point
};

template <typename Source>
struct IsModel : std::false_type {};
template <int F>
struct IsModel<ModelJacobian<F>> : std::true_type {};

// Bytes of what kernels of F columns are given: a module whose number differs
// was compiled with other headers.
int32_t ModelParamsSize(int columns);

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MODEL_MODEL_JACOBIAN_H_
