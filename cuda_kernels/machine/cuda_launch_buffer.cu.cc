// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/machine/cuda_launch_buffer.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "cuda_kernels/machine/cuda_context.h"
#include "cuda_kernels/machine/cuda_launch.cuh"

namespace ceres_ext::kernels {

#ifdef __CUDACC__

// Parameters of SetManyKernel.
struct SetManyBytes {
  static constexpr int kMost = 12;
  struct Set {
    unsigned char* to;
    int32_t num_bytes;
    int32_t first_block;  // of the kernel
    uint64_t word;        // eight times the value
  };
  int32_t n = 0;
  int32_t num_blocks = 0;
  Set sets[kMost];

  bool Overlaps(const unsigned char* to, int64_t num_bytes) const {
    return std::any_of(sets, sets + n, [&](const Set& set) {
      return to < set.to + set.num_bytes && set.to < to + num_bytes;
    });
  }
};

namespace {

// The room of a buffer, and the fewest launches that a graph has: the launch of
// a smaller one would take as long.
constexpr int kMostLaunches = 128;
constexpr int64_t kMostValueBytes = int64_t{1} << 16;
constexpr int kLeastLaunches = 3;
// Sequences that are remembered; a step has some twenty.
constexpr size_t kMostSequences = 64;
// A sequence becomes a graph when it comes so often: that takes as long as some
// launches of it.
constexpr int kTimesBeforeGraph = 3;

constexpr int kSetBlock = 256;
constexpr int kBytesPerBlock = 32 * kSetBlock;

LaunchBuffer*& CurrentBuffer() {
  thread_local LaunchBuffer* buffer = nullptr;
  return buffer;
}

// Calls fn(byte) or fn(word of 8 bytes) of this block's share of num_bytes, the
// threads in turn; words where the addresses, ored, allow it.
template <typename OfWord, typename OfByte>
__device__ void ForEachWord(int64_t block,
                            int64_t num_bytes,
                            uint64_t addresses,
                            const OfWord& of_word,
                            const OfByte& of_byte) {
  const int64_t begin = block * kBytesPerBlock;
  const int64_t end =
      begin + kBytesPerBlock < num_bytes ? begin + kBytesPerBlock : num_bytes;
  int64_t words_end = begin;
  if (addresses % 8 == 0) {
    words_end = end - end % 8;
    for (int64_t i = begin + 8 * int64_t{threadIdx.x}; i < words_end;
         i += 8 * kSetBlock) {
      of_word(i);
    }
  }
  for (int64_t i = words_end + threadIdx.x; i < end; i += kSetBlock) {
    of_byte(i);
  }
}

// Mapping: as ForEachWord, block b of the kernel. Traffic: the bytes, read and
// written.
__global__ void __launch_bounds__(kSetBlock)
    CopyBytesKernel(unsigned char* to,
                    const unsigned char* from,
                    int64_t num_bytes) {
  ForEachWord(
      blockIdx.x,
      num_bytes,
      reinterpret_cast<uint64_t>(to) | reinterpret_cast<uint64_t>(from),
      [=](int64_t i) {
        *reinterpret_cast<uint64_t*>(to + i) =
            *reinterpret_cast<const uint64_t*>(from + i);
      },
      [=](int64_t i) { to[i] = from[i]; });
}

// Mapping: a range of blocks per set, each as ForEachWord. Traffic: the bytes,
// written.
__global__ void __launch_bounds__(kSetBlock)
    SetManyKernel(const SetManyBytes many) {
  int k = 0;
  while (k + 1 < many.n &&
         static_cast<int32_t>(blockIdx.x) >= many.sets[k + 1].first_block) {
    ++k;
  }
  unsigned char* const to = many.sets[k].to;
  const uint64_t word = many.sets[k].word;
  ForEachWord(
      static_cast<int32_t>(blockIdx.x) - many.sets[k].first_block,
      many.sets[k].num_bytes,
      reinterpret_cast<uint64_t>(to),
      [=](int64_t i) { *reinterpret_cast<uint64_t*>(to + i) = word; },
      [=](int64_t i) { to[i] = static_cast<unsigned char>(word); });
}

}  // namespace

struct LaunchBuffer::Launch {
  static constexpr int kMostValues = 24;

  Kernel kernel;       // function: null for an event
  cudaEvent_t event;   // null for a kernel
  int32_t first_byte;  // of the values
  int32_t num_bytes;
  int32_t num_values;
  uint16_t offsets[kMostValues];  // of the values, from first_byte on

  bool IsLike(const Launch& other) const {
    return kernel.function == other.kernel.function &&
           kernel.block_size == other.kernel.block_size &&
           event == other.event && num_bytes == other.num_bytes;
  }
  void FillPointers(unsigned char* values, void** pointers) const {
    for (int i = 0; i < num_values; ++i) {
      pointers[i] = values + first_byte + offsets[i];
    }
  }
  cudaKernelNodeParams NodeParams(void** pointers) const {
    cudaKernelNodeParams params = {};
    params.func = const_cast<void*>(kernel.function);
    params.gridDim = dim3(kernel.num_blocks);
    params.blockDim = dim3(kernel.block_size);
    params.sharedMemBytes = kernel.shared_bytes;
    params.kernelParams = pointers;
    return params;
  }
};

// Launches of the same kernels in the same order.
struct LaunchBuffer::Sequence {
  ~Sequence() { Clear(); }
  void Clear() {
    // A failure here is the echo of an earlier one that has been reported.
    if (executable != nullptr &&
        cudaGraphExecDestroy(executable) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
    }
    if (graph != nullptr && cudaGraphDestroy(graph) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
    }
    Forget();
  }
  void Forget() {
    executable = nullptr;
    graph = nullptr;
    nodes.clear();
  }

  uint64_t hash = 0;
  int64_t last_use = 0;
  int64_t num_uses = 0;
  // As they are in the graph.
  std::vector<Launch> launches;
  std::vector<unsigned char> values;
  std::vector<cudaGraphNode_t> nodes;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
};

LaunchBuffer::LaunchBuffer(cudaStream_t stream) : stream_(stream) {
  launches_ = std::make_unique<Launch[]>(kMostLaunches);
  values_ = std::make_unique<unsigned char[]>(kMostValueBytes);
  sets_ = std::make_unique<SetManyBytes>();
  sequences_.reserve(kMostSequences);
}

LaunchBuffer::~LaunchBuffer() {
  if (!sequences_.empty()) {
    const KeepCurrentContext keep;
    sequences_.clear();
  }
}

void LaunchBuffer::Forget() {
  is_empty_ = true;
  num_launches_ = 0;
  num_value_bytes_ = 0;
  *sets_ = {};
  for (const auto& sequence : sequences_) {
    sequence->Forget();
  }
}

Status LaunchBuffer::NewLaunch(int64_t num_value_bytes, Launch** launch) {
  if (num_launches_ == kMostLaunches ||
      num_value_bytes_ + num_value_bytes > kMostValueBytes) {
    CERES_EXT_RETURN_IF_ERROR(Start());
  }
  is_empty_ = false;
  *launch = &launches_[num_launches_++];
  **launch = {};
  (*launch)->first_byte = static_cast<int32_t>(num_value_bytes_);
  (*launch)->num_bytes = static_cast<int32_t>(num_value_bytes);
  num_value_bytes_ += num_value_bytes;
  return {};
}

Status LaunchBuffer::AddKernel(const Kernel& kernel,
                               int num_values,
                               const void* const* values,
                               const size_t* sizes) {
  CERES_EXT_RETURN_IF_ERROR(FlushSets());
  return AddAfterSets(kernel, num_values, values, sizes);
}

Status LaunchBuffer::AddAfterSets(const Kernel& kernel,
                                  int num_values,
                                  const void* const* values,
                                  const size_t* sizes) {
  constexpr int64_t kAlignment = 16;
  int64_t num_bytes = 0;
  for (int i = 0; i < num_values; ++i) {
    num_bytes += CeilDivide(static_cast<int64_t>(sizes[i]), kAlignment);
  }
  num_bytes *= kAlignment;
  if (num_values > Launch::kMostValues || num_bytes > kMostValueBytes) {
    return {StatusCode::kUnsupported,
            std::string(kernel.name) + " has too many parameters."};
  }
  Launch* launch = nullptr;
  CERES_EXT_RETURN_IF_ERROR(NewLaunch(num_bytes, &launch));
  launch->kernel = kernel;
  launch->num_values = num_values;
  int64_t at = 0;
  for (int i = 0; i < num_values; ++i) {
    launch->offsets[i] = static_cast<uint16_t>(at);
    const auto size = static_cast<int64_t>(sizes[i]);
    const int64_t room = kAlignment * CeilDivide(size, kAlignment);
    unsigned char* const to = values_.get() + launch->first_byte + at;
    std::memcpy(to, values[i], sizes[i]);
    // UpdateGraph compares what is between them too.
    std::memset(to + size, 0, static_cast<size_t>(room - size));
    at += room;
  }
  return {};
}

Status LaunchBuffer::AddSetBytes(void* to, int value, int64_t num_bytes) {
  auto* const bytes = static_cast<unsigned char*>(to);
  if (sets_->n == SetManyBytes::kMost || sets_->Overlaps(bytes, num_bytes)) {
    CERES_EXT_RETURN_IF_ERROR(FlushSets());
  }
  is_empty_ = false;
  sets_->sets[sets_->n++] = {
      bytes,
      static_cast<int32_t>(num_bytes),
      sets_->num_blocks,
      0x0101010101010101u * static_cast<unsigned char>(value)};
  sets_->num_blocks +=
      static_cast<int32_t>(CeilDivide(num_bytes, kBytesPerBlock));
  return {};
}

Status LaunchBuffer::FlushSets() {
  if (sets_->n == 0) {
    return {};
  }
  const SetManyBytes many = *sets_;
  *sets_ = {};
  const void* const values[] = {&many};
  const size_t sizes[] = {sizeof(many)};
  return AddAfterSets({"SetMany",
                       reinterpret_cast<const void*>(&SetManyKernel),
                       static_cast<unsigned>(many.num_blocks),
                       kSetBlock,
                       0},
                      1,
                      values,
                      sizes);
}

Status LaunchBuffer::AddCopy(void* to, const void* from, int64_t num_bytes) {
  const void* const values[] = {&to, &from, &num_bytes};
  const size_t sizes[] = {sizeof(to), sizeof(from), sizeof(num_bytes)};
  return AddKernel(
      {"CopyBytes",
       reinterpret_cast<const void*>(&CopyBytesKernel),
       static_cast<unsigned>(CeilDivide(num_bytes, kBytesPerBlock)),
       kSetBlock,
       0},
      3,
      values,
      sizes);
}

Status LaunchBuffer::AddEvent(cudaEvent_t event) {
  CERES_EXT_RETURN_IF_ERROR(FlushSets());
  Launch* launch = nullptr;
  CERES_EXT_RETURN_IF_ERROR(NewLaunch(0, &launch));
  launch->event = event;
  return {};
}

Status LaunchBuffer::Flush() {
  const Status status = FlushSets();
  const Status started = Start();
  is_empty_ = true;
  Status result = std::exchange(failure_, {});
  if (result.ok()) {
    result = status.ok() ? started : status;
  }
  return result;
}

void LaunchBuffer::FlushLater() {
  failure_ = Flush();
  is_empty_ = failure_.ok();
}

Status LaunchBuffer::Start() {
  if (num_launches_ == 0) {
    return {};
  }
  Status status;
  Sequence* const sequence = FindSequence();
  if (sequence != nullptr && sequence->executable != nullptr) {
    ++record_.num_graph_launches;
    const cudaError_t error = cudaGraphLaunch(sequence->executable, stream_);
    status =
        error == cudaSuccess ? Status() : CudaError("cudaGraphLaunch", error);
  } else {
    status = LaunchOneByOne();
  }
  num_launches_ = 0;
  num_value_bytes_ = 0;
  return status;
}

Status LaunchBuffer::LaunchOneByOne() const {
  for (int i = 0; i < num_launches_; ++i) {
    const Launch& launch = launches_[i];
    if (launch.event != nullptr) {
      CERES_EXT_RETURN_IF_CUDA_ERROR(cudaEventRecord(launch.event, stream_));
      continue;
    }
    void* pointers[Launch::kMostValues];
    launch.FillPointers(values_.get(), pointers);
    const cudaError_t error = cudaLaunchKernel(launch.kernel.function,
                                               dim3(launch.kernel.num_blocks),
                                               dim3(launch.kernel.block_size),
                                               pointers,
                                               launch.kernel.shared_bytes,
                                               stream_);
    if (error != cudaSuccess) {
      return CudaError(std::string("Launch of ") + launch.kernel.name, error);
    }
  }
  return {};
}

// The sequence of the launches that wait, with a graph of them if it has come
// often enough. Null: none.
LaunchBuffer::Sequence* LaunchBuffer::FindSequence() {
  if (!makes_graphs_ || num_launches_ < kLeastLaunches) {
    return nullptr;
  }
  const uint64_t hash = Hash();
  Sequence* found = nullptr;
  for (const auto& sequence : sequences_) {
    if (sequence->hash == hash &&
        std::equal(
            launches_.get(),
            launches_.get() + num_launches_,
            sequence->launches.begin(),
            sequence->launches.end(),
            [](const Launch& a, const Launch& b) { return a.IsLike(b); })) {
      found = sequence.get();
      break;
    }
  }
  try {
    if (found == nullptr) {
      found = NewSequence();
      found->hash = hash;
      found->num_uses = 0;
      found->launches.assign(launches_.get(), launches_.get() + num_launches_);
    }
    if (++found->num_uses >= kTimesBeforeGraph &&
        !(found->executable == nullptr ? MakeGraph(found)
                                       : UpdateGraph(found))) {
      found->Clear();
      makes_graphs_ = false;
    }
  } catch (const std::bad_alloc&) {
    makes_graphs_ = false;
    return nullptr;
  }
  found->last_use = ++num_uses_;
  return found;
}

// Empty, in place of the one used least recently where there are too many.
LaunchBuffer::Sequence* LaunchBuffer::NewSequence() {
  if (sequences_.size() < kMostSequences) {
    sequences_.push_back(std::make_unique<Sequence>());
    return sequences_.back().get();
  }
  const auto oldest = std::min_element(
      sequences_.begin(), sequences_.end(), [](const auto& a, const auto& b) {
        return a->last_use < b->last_use;
      });
  (*oldest)->Clear();
  return oldest->get();
}

// FNV-1a of what IsLike compares.
uint64_t LaunchBuffer::Hash() const {
  uint64_t hash = 14695981039346656037u;
  const auto add = [&hash](uint64_t value) {
    hash = (hash ^ value) * 1099511628211u;
  };
  for (int i = 0; i < num_launches_; ++i) {
    const Launch& launch = launches_[i];
    add(reinterpret_cast<uint64_t>(launch.kernel.function));
    add(launch.kernel.block_size);
    add(reinterpret_cast<uint64_t>(launch.event));
    add(static_cast<uint64_t>(launch.num_bytes));
  }
  return hash;
}

bool LaunchBuffer::MakeGraph(Sequence* sequence) {
  sequence->launches.assign(launches_.get(), launches_.get() + num_launches_);
  sequence->values.assign(values_.get(), values_.get() + num_value_bytes_);
  sequence->nodes.resize(static_cast<size_t>(num_launches_));
  cudaError_t error = cudaGraphCreate(&sequence->graph, 0);
  for (int i = 0; i < num_launches_ && error == cudaSuccess; ++i) {
    const Launch& launch = launches_[i];
    cudaGraphNode_t* const node = &sequence->nodes[i];
    const cudaGraphNode_t* const previous = i == 0 ? nullptr : node - 1;
    if (launch.event != nullptr) {
      error = cudaGraphAddEventRecordNode(
          node, sequence->graph, previous, i == 0 ? 0 : 1, launch.event);
      continue;
    }
    void* pointers[Launch::kMostValues];
    launch.FillPointers(values_.get(), pointers);
    const cudaKernelNodeParams params = launch.NodeParams(pointers);
    error = cudaGraphAddKernelNode(
        node, sequence->graph, previous, i == 0 ? 0 : 1, &params);
  }
  if (error == cudaSuccess) {
    error = cudaGraphInstantiate(&sequence->executable, sequence->graph, 0);
  }
  if (error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  ++record_.num_graphs;
  return true;
}

// Equal values whose padding differs are taken for different: they can't be
// cleared of it, since __builtin_clear_padding of GCC 12 clears other bytes of
// structs that have arrays of structs.
bool LaunchBuffer::UpdateGraph(Sequence* sequence) {
  for (int i = 0; i < num_launches_; ++i) {
    const Launch& launch = launches_[i];
    Launch& known = sequence->launches[i];
    unsigned char* const values = sequence->values.data() + known.first_byte;
    const unsigned char* const new_values = values_.get() + launch.first_byte;
    if (launch.event != nullptr ||
        (launch.kernel.num_blocks == known.kernel.num_blocks &&
         launch.kernel.shared_bytes == known.kernel.shared_bytes &&
         std::memcmp(
             values, new_values, static_cast<size_t>(launch.num_bytes)) == 0)) {
      continue;
    }
    known.kernel = launch.kernel;
    std::memcpy(values, new_values, static_cast<size_t>(launch.num_bytes));
    void* pointers[Launch::kMostValues];
    launch.FillPointers(values_.get(), pointers);
    const cudaKernelNodeParams params = launch.NodeParams(pointers);
    if (cudaGraphExecKernelNodeSetParams(
            sequence->executable, sequence->nodes[i], &params) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      return false;
    }
    ++record_.num_changed_kernels;
  }
  return true;
}

LaunchBuffer* CurrentLaunchBuffer() { return CurrentBuffer(); }

Status FlushLaunches() {
  LaunchBuffer* const buffer = CurrentBuffer();
  return buffer == nullptr ? Status() : buffer->Flush();
}

BufferLaunches::BufferLaunches(const CudaContext& context)
    : before_(CurrentBuffer()) {
  CurrentBuffer() = context.launch_buffer();
}

BufferLaunches::~BufferLaunches() { CurrentBuffer() = before_; }

#else  // The emulation launches at once.

struct LaunchBuffer::Launch {};
struct LaunchBuffer::Sequence {};
struct SetManyBytes {};

LaunchBuffer::LaunchBuffer(cudaStream_t stream) : stream_(stream) {}
LaunchBuffer::~LaunchBuffer() = default;
void LaunchBuffer::Forget() {}
Status LaunchBuffer::AddSetBytes(void*, int, int64_t) { return {}; }
Status LaunchBuffer::AddCopy(void*, const void*, int64_t) { return {}; }
Status LaunchBuffer::AddEvent(cudaEvent_t) { return {}; }
Status LaunchBuffer::Flush() { return {}; }
void LaunchBuffer::FlushLater() {}
LaunchBuffer* CurrentLaunchBuffer() { return nullptr; }
Status FlushLaunches() { return {}; }
BufferLaunches::BufferLaunches(const CudaContext& /*context*/)
    : before_(nullptr) {}
BufferLaunches::~BufferLaunches() = default;

#endif

}  // namespace ceres_ext::kernels
