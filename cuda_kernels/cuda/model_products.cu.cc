// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// All operations on the Jacobians of models that this library does not know:
// the bodies of stored ones, except for kernels that read blocks, which the
// model's module has.
#include <cstdint>
#include <string>
#include <type_traits>

#include "cuda_kernels/cuda/model_kernels.cuh"
#include "cuda_kernels/cuda/schur_products_impl.cuh"

namespace ceres_ext::kernels {

template <int F>
struct BlocksOf<ModelJacobian<F>> {
  using Type = JacobianBlocks<ModelJacobian<F>>;
};

template <int F>
struct CameraCoordinates<ModelJacobian<F>> {
  using Local = BalShape<F>;
  __device__ static double Map(const ModelJacobian<F>&, int32_t, int i, int j) {
    return i == j ? 1.0 : 0.0;
  }
};

namespace {

// As Launch; arguments: of the types that the kernel has, or as large.
template <typename... Arguments>
Status LaunchInModule(ModelKernel kernel,
                      const ModelForm& module,
                      const LaunchGrid& grid,
                      CudaMachine* machine,
                      Arguments... arguments) {
  if (grid.num_blocks <= 0) {
    return Status();
  }
  if (grid.num_blocks > 0x7fffffff) {
    return Status(StatusCode::kUnsupported,
                  "A kernel of a model needs more than 2^31 - 1 blocks.");
  }
  CERES_EXT_RETURN_IF_ERROR(FlushLaunches());
  void* addresses[] = {&arguments...};
  ModelLaunch launch;
  launch.kernel = static_cast<int>(kernel);
  launch.device = machine->context()->device();
  launch.stream = machine->stream();
#ifdef __CUDACC__
  GraphRecording* const recording = CurrentGraphRecording();
  void* last = nullptr;
  if (recording != nullptr) {
    last = recording->last;
    launch.graph = recording->graph;
    launch.last = &last;
  }
#endif
  launch.num_blocks = grid.num_blocks;
  launch.block_size = static_cast<int>(grid.block_size);
  launch.shared_bytes = grid.shared_bytes;
  launch.arguments = addresses;
  const int error = module.launch(launch);
#ifdef __CUDACC__
  if (recording != nullptr) {
    recording->last = static_cast<cudaGraphNode_t>(last);
  }
#endif
  return error == 0
             ? Status()
             : Status(StatusCode::kDeviceError,
                      "Launch of kernel " +
                          std::to_string(static_cast<int>(kernel)) +
                          " of a model failed: " + module.error_string(error) +
                          ".");
}

}  // namespace

template <int kMode, int F>
Status LaunchTiles(
    const StoredTileParams<JacobianBlocks<ModelJacobian<F>>>& params,
    int64_t num_bytes,
    CudaMachine* machine) {
  constexpr ModelKernel kKernel = TileKernelOfModel(kMode);
  static_assert(kKernel != ModelKernel::kSchurRhs || kMode == kSchurRhsMode);
  return LaunchInModule(kKernel,
                        *params.source.form,
                        {params.tiles.num_tiles, kStoredBlock, num_bytes},
                        machine,
                        params);
}

// The two kernels of points: of short tracks and of long ones.
template <typename Params, typename... Others>
Status LaunchPointTasksInModule(ModelKernel kernel,
                                ModelKernel long_kernel,
                                const Params& params,
                                CudaMachine* machine,
                                Others... others) {
  const ObservationIndexRef& index = params.index;
  const PointTasks tasks{index.cuda_workspace->num_long_points,
                         index.cuda_workspace->long_point};
  const auto launch = [&](ModelKernel which, int64_t num_threads) {
    return LaunchInModule(
        which,
        *params.jacobian.form,
        {CeilDivide(num_threads, kPointTaskBlock), kPointTaskBlock},
        machine,
        params,
        tasks,
        others...);
  };
  CERES_EXT_RETURN_IF_ERROR(launch(kernel, index.num_points));
  return launch(long_kernel, int64_t{tasks.num_long_points} * kWarpSize);
}

template <int F>
Status PointBlocks(
    const NormalBlocksParams<ModelJacobian<F>, kDeviceLayout>& params,
    PointRecord<3>* records,
    CudaMachine* machine) {
  return LaunchPointTasksInModule(ModelKernel::kPointBlocks,
                                  ModelKernel::kLongPointBlocks,
                                  params,
                                  machine,
                                  records);
}

template <int F>
Status PointNorms(const SquaredColumnNormsParams<ModelJacobian<F>>& params,
                  CudaMachine* machine) {
  return LaunchPointTasksInModule(
      ModelKernel::kPointNorms, ModelKernel::kLongPointNorms, params, machine);
}

template <typename Shape, int F>
Status SumLongRepeats(const ObservationIndexRef& index,
                      const ModelJacobian<F>& source,
                      CudaMachine* machine) {
  const CudaWorkspaceRef& workspace = *index.cuda_workspace;
  return LaunchInModule(ModelKernel::kLongRepeats,
                        *source.form,
                        {workspace.long_repeats.num_repeats, kChunkBlock},
                        machine,
                        index,
                        source,
                        workspace.long_repeats,
                        workspace.entry_point);
}

template <int F, typename Term>
Status SumCameraChunks(const ObservationIndexRef& index,
                       const ModelJacobian<F>& source,
                       const Term& term,
                       CudaMachine* machine) {
  using Source = ModelJacobian<F>;
  constexpr bool kIsU = std::is_same_v<Term, ModelU<Source>>;
  constexpr bool kIsNorms = std::is_same_v<Term, CameraNormTerm<Source>>;
  if constexpr (!kIsU && !kIsNorms &&
                !std::is_same_v<Term, ModelSchurDiagonal<Source>>) {
    return Status(StatusCode::kInvalidArgument,
                  "The workspace has no tiles for stored blocks.");
  } else {
    const CudaWorkspaceRef& workspace = *index.cuda_workspace;
    return LaunchInModule(kIsU       ? ModelKernel::kU
                          : kIsNorms ? ModelKernel::kCameraNorms
                                     : ModelKernel::kSchurDiagonal,
                          *source.form,
                          {workspace.num_chunks, kChunkBlock},
                          machine,
                          index,
                          source,
                          term,
                          workspace.chunk_camera,
                          workspace.camera_chunk_begin,
                          workspace.entry_point,
                          workspace.partial);
  }
}

int32_t ModelParamsSize(int columns) {
  return WithStoredColumns(columns, [](auto f) {
    using Source = ModelJacobian<f>;
    return SizeOfModelParams<Source, JacobianBlocks<Source>>();
  });
}

#define CERES_EXT_INSTANTIATE(F)                                         \
  template <>                                                            \
  Status Run(const RightMultiplyParams<ModelJacobian<F>>& params,        \
             CudaMachine* machine) {                                     \
    return LaunchInModule(                                               \
        ModelKernel::kRightMultiply,                                     \
        *params.jacobian.form,                                           \
        {CeilDivide(params.index.num_observations, kProductBlock),       \
         kProductBlock},                                                 \
        machine,                                                         \
        params);                                                         \
  }                                                                      \
  template Status Run(const SquaredColumnNormsParams<ModelJacobian<F>>&, \
                      CudaMachine*);                                     \
  template Status Run(                                                   \
      const NormalBlocksParams<ModelJacobian<F>, kDeviceLayout>&,        \
      CudaMachine*);                                                     \
  CERES_EXT_INSTANTIATE_PRODUCTS(ModelJacobian<F>)
CERES_EXT_FOR_EACH_STORED_COLUMNS(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext::kernels
