// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/machine/cuda_peer_sum.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <utility>

#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_process.h"
#include "cuda_kernels/machine/rank_messages.h"

namespace ceres_ext::kernels {
namespace {

constexpr int kBlockSize = 512;

// A device that has acquired `to` sees what this thread has written before, and
// what other threads of its block have written before a barrier.
__device__ __forceinline__ void Release(uint64_t value, uint64_t* to) {
#ifdef __CUDACC__
  __threadfence_system();
  *const_cast<volatile uint64_t*>(to) = value;
#else
  __atomic_store_n(to, value, __ATOMIC_RELEASE);
#endif
}

// Until *at is `value`, with what was written before it; false: stopped.
__device__ __forceinline__ bool Acquire(uint64_t value,
                                        const uint64_t* at,
                                        const int32_t* stop) {
  // The host's memory is looked at every millisecond or so: where all blocks
  // look at once, that takes 0.14 ms on an H200.
  constexpr int kLooks = 4096;
  for (int look = 1; *const_cast<const volatile uint64_t*>(at) < value;
       ++look) {
    if (look % kLooks == 0 && stop != nullptr &&
        *const_cast<const volatile int32_t*>(stop) != 0) {
      return false;
    }
  }
#ifdef __CUDACC__
  __threadfence_system();
#else
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
  return true;
}

// Mapping: a block has a slice of x, which is the same on all ranks, and waits
// for the same block of each of them, thread i for that of rank i. A rank that
// writes values of sum s + 2 has ended s + 1, for which all others have come,
// and so these have ended s: two sets of values are enough.
__global__ void __launch_bounds__(kBlockSize)
    PeerSumKernel(const PeerSumParams p) {
  __shared__ int is_stopped;
  const auto block = static_cast<int64_t>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  PeerWindow* const mine = p.windows[p.rank];
  const uint64_t sum = mine->num_sums[block] + 1;
  const int64_t slice = CeilDivide(p.n, p.num_blocks);
  const int64_t begin = block * slice;
  const int64_t end = begin + slice < p.n ? begin + slice : p.n;

  if (thread == 0) {
    is_stopped = 0;
  }
  for (int64_t i = begin + thread; i < end; i += kBlockSize) {
    mine->values[sum % 2][i] = p.x[i];
  }
  __syncthreads();
  if (thread < p.size && thread != p.rank) {
    Release(sum, &p.windows[thread]->arrived[p.rank][block]);
    if (!Acquire(sum, &mine->arrived[thread][block], p.stop)) {
      is_stopped = 1;
    }
  }
  __syncthreads();

  for (int64_t i = begin + thread; i < end; i += kBlockSize) {
    if (is_stopped != 0) {
      // The windows of ranks that have ended may be gone.
      p.x[i] = NAN;
      continue;
    }
    double values[PeerWindow::kMaxRanks];
#pragma unroll
    for (int rank = 0; rank < PeerWindow::kMaxRanks; ++rank) {
      values[rank] =
          rank < p.size ? __ldcg(&p.windows[rank]->values[sum % 2][i]) : 0.0;
    }
    double x = values[0];
#pragma unroll
    for (int rank = 1; rank < PeerWindow::kMaxRanks; ++rank) {
      if (rank < p.size) {
        x += values[rank];
      }
    }
    p.x[i] = x;
  }
  if (thread == 0) {
    mine->num_sums[block] = sum;
  }
}

}  // namespace

Status QueuePeerSum(const PeerSumParams& params, CudaContext* context) {
  return Launch("PeerSum",
                PeerSumKernel,
                {params.num_blocks, kBlockSize},
                context->stream(),
                params);
}

Status CudaPeerSum::Sum(int64_t n, double* x, CudaContext* context) {
  PeerSumParams params = params_;
  params.n = n;
  params.x = x;
  return QueuePeerSum(params, context);
}

void CudaPeerSum::Stop() { *static_cast<volatile int32_t*>(stop_.get()) = 1; }

#ifdef __CUDACC__

namespace {

Status Unsupported(const std::string& why) {
  return {StatusCode::kUnsupported, why};
}

// A rank's message before all connect.
struct Card {
  char why_not[128] = {};
  char computer[64] = {};
  char bus_id[32] = {};  // of the device
  uint64_t process = 0;
  int32_t num_multiprocessors = 0;

  bool IsOnComputerOf(const Card& other) const {
    return std::strcmp(computer, other.computer) == 0;
  }
};

struct WindowAddress {
  char why_not[128] = {};
  PeerWindow* window = nullptr;
  cudaIpcMemHandle_t handle = {};
};

// The process's number may be that of another one in another container.
uint64_t RandomOfProcess() {
  static const uint64_t value = [] {
    std::random_device random;
    return uint64_t{random()} << 32 | random();
  }();
  return value;
}

Status MakeCard(const CudaContext& context, Card* card) {
  const char* const disable = std::getenv("NCCL_P2P_DISABLE");
  if (disable != nullptr && std::strcmp(disable, "0") != 0) {
    return Unsupported("NCCL_P2P_DISABLE is set.");
  }
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  if (!boot.getline(card->computer, sizeof(card->computer))) {
    return Unsupported("the system does not name the computer.");
  }
  card->process = RandomOfProcess();
  card->num_multiprocessors = context.num_multiprocessors();
  CERES_EXT_RETURN_IF_CUDA_ERROR(cudaDeviceGetPCIBusId(
      card->bus_id, sizeof(card->bus_id), context.device()));
  return {};
}

// *peer: this process's number of another rank's device, whose memory `device`
// can use.
Status FindPeer(int device, const Card& other, int* peer) {
  int can_access = 0;
  CERES_EXT_RETURN_IF_CUDA_ERROR(cudaDeviceGetByPCIBusId(peer, other.bus_id));
  CERES_EXT_RETURN_IF_CUDA_ERROR(
      cudaDeviceCanAccessPeer(&can_access, device, *peer));
  return can_access != 0
             ? Status()
             : Unsupported("its device can't use the memory of another one.");
}

// For all memory of both devices.
Status EnableAccess(int peer) {
  const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled) {
    static_cast<void>(cudaGetLastError());
    return {};
  }
  return error == cudaSuccess ? Status()
                              : CudaError("cudaDeviceEnablePeerAccess", error);
}

}  // namespace

Status CudaPeerSum::MakeWindow(const std::vector<int>& pool_of,
                               CudaContext* context) {
  CERES_EXT_RETURN_IF_ERROR(AllocatePageLocked(sizeof(int32_t), &stop_));
  *static_cast<int32_t*>(stop_.get()) = 0;
  params_.stop = static_cast<const int32_t*>(stop_.get());
  CERES_EXT_RETURN_IF_ERROR(beacon_.Place());
  void* window = nullptr;
  if (pool_of.empty()) {
    CERES_EXT_RETURN_IF_CUDA_ERROR(cudaMalloc(&window, sizeof(PeerWindow)));
  } else {
    // Access to this memory alone: with cudaDeviceEnablePeerAccess each
    // allocation of the process would be mapped on all devices.
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = device_;
    CERES_EXT_RETURN_IF_CUDA_ERROR(cudaMemPoolCreate(&pool_, &properties));
    for (const int device : pool_of) {
      cudaMemAccessDesc access = {};
      access.location.type = cudaMemLocationTypeDevice;
      access.location.id = device;
      access.flags = cudaMemAccessFlagsProtReadWrite;
      CERES_EXT_RETURN_IF_CUDA_ERROR(cudaMemPoolSetAccess(pool_, &access, 1));
    }
    CERES_EXT_RETURN_IF_CUDA_ERROR(cudaMallocFromPoolAsync(
        &window, sizeof(PeerWindow), pool_, context->stream()));
  }
  params_.windows[params_.rank] = static_cast<PeerWindow*>(window);
  // A kernel that is loaded later may wait for those of all devices.
  cudaFuncAttributes attributes = {};
  CERES_EXT_RETURN_IF_CUDA_ERROR(cudaFuncGetAttributes(
      &attributes, reinterpret_cast<const void*>(PeerSumKernel)));
  CERES_EXT_RETURN_IF_ERROR(context->SetBytes(window, 0, sizeof(PeerWindow)));
  return context->Synchronize();
}

Status CudaPeerSum::Try(CudaContext* context) {
  constexpr int kNumValues = 1000;
  constexpr std::chrono::seconds kLongest{10};
  PeerWindow* const window = params_.windows[params_.rank];
  // Beyond what sums of so few values use.
  double* const x = window->values[1] + PeerWindow::kMaxValues - kNumValues;
  std::vector<double> values(kNumValues);
  for (int i = 0; i < kNumValues; ++i) {
    values[i] = i + params_.rank;
  }
  CERES_EXT_RETURN_IF_ERROR(
      context->CopyToDevice(x, values.data(), kNumValues * sizeof(double)));
  // Three, so that both sets of values are used again.
  for (int sum = 0; sum < 3; ++sum) {
    CERES_EXT_RETURN_IF_ERROR(Sum(kNumValues, x, context));
  }
  const auto begin = std::chrono::steady_clock::now();
  while (cudaStreamQuery(context->stream()) == cudaErrorNotReady) {
    if (std::chrono::steady_clock::now() - begin > kLongest) {
      Stop();
    }
  }
  CERES_EXT_RETURN_IF_ERROR(
      context->CopyToHost(values.data(), x, kNumValues * sizeof(double)));
  const int size = params_.size;
  for (int i = 0; i < kNumValues; ++i) {
    const double first = size * i + 0.5 * size * (size - 1);
    if (values[i] != size * size * first) {
      return Unsupported("its device does not see what others write.");
    }
  }
  return {};
}

Status CudaPeerSum::Connect(Communicator* ranks,
                            CudaContext* context,
                            std::unique_ptr<CudaPeerSum>* result) {
  const int size = ranks->size();
  const int rank = ranks->rank();
  if (size > PeerWindow::kMaxRanks) {
    return Unsupported("There are more than " +
                       std::to_string(PeerWindow::kMaxRanks) + " ranks.");
  }
  Card card;
  Explain(MakeCard(*context, &card), &card);
  std::vector<Card> cards;
  CERES_EXT_RETURN_IF_ERROR(GatherMessages(card, ranks, &cards));
  int num_blocks = PeerWindow::kMaxBlocks;
  for (int i = 0; i < size; ++i) {
    if (!cards[i].IsOnComputerOf(cards[0])) {
      return Unsupported("The ranks are on several computers.");
    }
    for (int j = 0; j < i; ++j) {
      if (std::strcmp(cards[i].bus_id, cards[j].bus_id) == 0) {
        return Unsupported("Two ranks have the same device.");
      }
    }
    num_blocks = std::min(num_blocks, cards[i].num_multiprocessors);
  }

  std::unique_ptr<CudaPeerSum> made(new CudaPeerSum(context->device()));
  made->params_.rank = rank;
  made->params_.size = size;
  made->params_.num_blocks = std::max(num_blocks, 1);
  const bool are_threads =
      std::all_of(cards.begin(), cards.end(), [&](const Card& other) {
        return other.process == card.process;
      });
  WindowAddress address;
  Status status;
  std::vector<int> peers;
  for (int i = 0; i < size && status.ok(); ++i) {
    int peer = 0;
    if (i != rank) {
      status = FindPeer(context->device(), cards[i], &peer);
      peers.push_back(peer);
      if (status.ok() && !are_threads && cards[i].process == card.process) {
        status = EnableAccess(peer);
      }
    }
  }
  if (status.ok()) {
    status =
        made->MakeWindow(are_threads ? peers : std::vector<int>(), context);
  }
  if (status.ok()) {
    address.window = made->params_.windows[rank];
    const cudaError_t error =
        are_threads ? cudaSuccess
                    : cudaIpcGetMemHandle(&address.handle, address.window);
    if (error != cudaSuccess) {
      status = CudaError("cudaIpcGetMemHandle", error);
    }
  }
  Explain(status, &address);
  std::vector<WindowAddress> addresses;
  CERES_EXT_RETURN_IF_ERROR(GatherMessages(address, ranks, &addresses));

  // Its answer alone is of use now.
  WindowAddress answer;
  for (int i = 0; i < size && status.ok(); ++i) {
    void* window = addresses[i].window;
    if (cards[i].process != card.process) {
      const cudaError_t error = cudaIpcOpenMemHandle(
          &window, addresses[i].handle, cudaIpcMemLazyEnablePeerAccess);
      if (error != cudaSuccess) {
        status = CudaError("cudaIpcOpenMemHandle", error);
        break;
      }
      made->opened_.push_back(window);
    }
    made->params_.windows[i] = static_cast<PeerWindow*>(window);
  }
  Explain(status, &answer);
  CERES_EXT_RETURN_IF_ERROR(GatherMessages(answer, ranks, &addresses));
  Explain(made->Try(context), &answer);
  CERES_EXT_RETURN_IF_ERROR(GatherMessages(answer, ranks, &addresses));
  *result = std::move(made);
  return {};
}

bool CudaPeerSum::IsAlive() const {
  const KeepCurrentContext keep;
  return beacon_.MakeCurrent() && beacon_.IsThere();
}

CudaPeerSum::~CudaPeerSum() {
  if (!beacon_.IsPlaced() || !IsAlive()) {
    // Its addresses may be in use by others.
    static_cast<void>(stop_.release());
    return;
  }
  const KeepCurrentContext keep;
  // A failure here is the echo of an earlier one that has been reported.
  bool is_ok = beacon_.MakeCurrent();
  for (void* const opened : opened_) {
    is_ok = cudaIpcCloseMemHandle(opened) == cudaSuccess && is_ok;
  }
  is_ok = cudaFree(params_.windows[params_.rank]) == cudaSuccess && is_ok;
  is_ok =
      (pool_ == nullptr || cudaMemPoolDestroy(pool_) == cudaSuccess) && is_ok;
  beacon_.Remove();
  if (!is_ok) {
    static_cast<void>(cudaGetLastError());
  }
}

#else  // __CUDACC__

Status CudaPeerSum::Connect(Communicator* /*ranks*/,
                            CudaContext* /*context*/,
                            std::unique_ptr<CudaPeerSum>* /*result*/) {
  return {StatusCode::kUnsupported, "An emulated device has no others."};
}
CudaPeerSum::~CudaPeerSum() = default;
bool CudaPeerSum::IsAlive() const { return true; }

#endif  // __CUDACC__

}  // namespace ceres_ext::kernels
