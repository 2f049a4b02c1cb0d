// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Launches that wait, so that many reach the device at once. A step of a small
// problem is some hundred short kernels, and the host takes longer to launch
// one than the device to run it. A sequence of launches that comes again is one
// CUDA graph.
//
//   context->SetBuffersLaunches(true);
//   const BufferLaunches scope(*context);
//   ...  // kernels::Launch, context->SetBytes, machine->RecordMark
//   context->Synchronize();  // Flushes.
//
// While a scope lives, kernels::Launch of its thread on the context's stream,
// and small copies, settings of bytes and marks of the context and its machine,
// are stored with the values of their parameters. They start, in order, when
// the host waits, when anything else is queued on the stream or when the buffer
// is full. So nothing but the time of a launch, and of the message of its
// failure, changes. A sequence is known by its kernels and grids; parameters
// that have changed since its last launch are set in its graph. Thread safety:
// that of the context. Host-includable: needs no CUDA toolkit.
#ifndef CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_LAUNCH_BUFFER_H_
#define CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_LAUNCH_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cuda_kernels/base/status.h"

typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;

namespace ceres_ext::kernels {

struct SetManyBytes;

class LaunchBuffer {
 public:
  explicit LaunchBuffer(cudaStream_t stream);
  ~LaunchBuffer();
  LaunchBuffer(const LaunchBuffer&) = delete;
  LaunchBuffer& operator=(const LaunchBuffer&) = delete;

  cudaStream_t stream() const { return stream_; }
  bool empty() const { return is_empty_; }

  struct Kernel {
    const char* name;
    const void* function;
    unsigned num_blocks;
    unsigned block_size;
    unsigned shared_bytes;
  };
  // values, sizes: of the parameters.
  Status AddKernel(const Kernel& kernel,
                   int num_values,
                   const void* const* values,
                   const size_t* sizes);
  // Up to kMostBytes.
  static constexpr int64_t kMostBytes = int64_t{1} << 18;
  Status AddSetBytes(void* to, int value, int64_t num_bytes);
  Status AddCopy(void* to, const void* from, int64_t num_bytes);
  // cudaEventRecord.
  Status AddEvent(cudaEvent_t event);

  // Starts what waits. An error is that of a launch since the last Flush.
  Status Flush();
  // The same, for callers that can't report: the next Flush has the error.
  void FlushLater();
  // For a context that has been lost: CUDA has destroyed the graphs.
  void Forget();

  // Counts since the buffer was made.
  struct Record {
    int64_t num_graphs = 0;
    int64_t num_graph_launches = 0;
    int64_t num_changed_kernels = 0;
  };
  const Record& record() const { return record_; }

 private:
  struct Launch;
  struct Sequence;

  Status NewLaunch(int64_t num_value_bytes, Launch** launch);
  Status AddAfterSets(const Kernel& kernel,
                      int num_values,
                      const void* const* values,
                      const size_t* sizes);
  Status FlushSets();
  Status Start();
  Status LaunchOneByOne() const;
  Sequence* FindSequence();
  Sequence* NewSequence();
  uint64_t Hash() const;
  // False: CUDA refuses.
  bool MakeGraph(Sequence* sequence);
  bool UpdateGraph(Sequence* sequence);

  const cudaStream_t stream_;
  std::unique_ptr<Launch[]> launches_;
  std::unique_ptr<unsigned char[]> values_;
  bool is_empty_ = true;  // Flush has nothing to do or to say.
  int num_launches_ = 0;
  int64_t num_value_bytes_ = 0;
  // Settings of bytes that follow each other are one kernel, the last so far.
  std::unique_ptr<SetManyBytes> sets_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  int64_t num_uses_ = 0;
  bool makes_graphs_ = true;  // CUDA has not refused.
  Status failure_;
  Record record_;
};

// The buffer of this thread's scope; null: launches are not buffered.
LaunchBuffer* CurrentLaunchBuffer();
// Before a call that queues on the stream of this thread's scope by itself.
Status FlushLaunches();

class CudaContext;

// Launches of this thread on the context's stream wait while it lives, if the
// context says so (CudaContext::SetBuffersLaunches).
class BufferLaunches {
 public:
  explicit BufferLaunches(const CudaContext& context);
  ~BufferLaunches();
  BufferLaunches(const BufferLaunches&) = delete;
  BufferLaunches& operator=(const BufferLaunches&) = delete;

 private:
  LaunchBuffer* const before_;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_LAUNCH_BUFFER_H_
