// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/machine/cuda_communicator.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_libraries.cuh"
#include "cuda_kernels/machine/cuda_peer_sum.h"
#include "cuda_kernels/machine/rank_messages.h"

namespace ceres_ext::kernels {
namespace {

// Up to so many ranks each takes the values of all and sums them itself: one
// exchange of size - 1 times the values, where two of parts move
// 2 (size - 1) / size times.
constexpr int kMostDirect = 4;

}  // namespace

#if CERES_EXT_WITH_NCCL

namespace {

// sum[i] = parts[i] + parts[n + i] + ..., in this order.
struct SumOfParts {
  CERES_EXT_HOST_DEVICE void operator()(int64_t i) const {
    double x = parts[i];
    for (int rank = 1; rank < size; ++rank) {
      x += parts[rank * n + i];
    }
    sum[i] = x;
  }

  int64_t n;
  int size;
  const double* parts;
  double* sum;
};

Status SumOfRanks(int64_t n,
                  int size,
                  const double* parts,
                  double* sum,
                  cudaStream_t stream) {
  return ForEach("SumOfRanks", n, stream, SumOfParts{n, size, parts, sum});
}

// A rank's message before NCCL connects.
struct Opening {
  ncclUniqueId id = {};
  char why_not[384] = {};
};

struct Outcome {
  char why_not[384] = {};
};

}  // namespace

class CudaCommunicator::Handle {
 public:
  explicit Handle(const NcclFunctions* functions) : nccl(functions) {}
  // Ends what is queued, if there is any, and waits for no other rank.
  ~Handle() {
    if (communicator != nullptr) {
      static_cast<void>(nccl->ncclCommAbort(communicator));
    }
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  const NcclFunctions* const nccl;
  ncclComm_t communicator = nullptr;
};

#define CERES_EXT_NCCL(function, ...)    \
  CERES_EXT_RETURN_IF_ERROR(WaitForNccl( \
      #function, static_cast<int>(handle_->nccl->function(__VA_ARGS__))))

Status CudaCommunicator::ConnectByNccl() {
  Opening opening;
  const NcclFunctions* nccl = nullptr;
  Explain(LoadNccl(&nccl), &opening);
  if (nccl != nullptr && ranks_->rank() == 0 &&
      nccl->ncclGetUniqueId(&opening.id) != ncclSuccess) {
    Explain({StatusCode::kUnsupported, "ncclGetUniqueId failed."}, &opening);
  }
  std::vector<Opening> openings;
  CERES_EXT_RETURN_IF_ERROR(GatherMessages(opening, ranks_, &openings));
  handle_ = std::make_unique<Handle>(nccl);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const Status status = WaitForNccl(
      "ncclCommInitRankConfig",
      static_cast<int>(nccl->ncclCommInitRankConfig(&handle_->communicator,
                                                    ranks_->size(),
                                                    openings[0].id,
                                                    ranks_->rank(),
                                                    &config)));
  Outcome outcome;
  Explain(status, &outcome);
  std::vector<Outcome> outcomes;
  return GatherMessages(outcome, ranks_, &outcomes);
}

Status CudaCommunicator::SumByNccl(int64_t n,
                                   double* x,
                                   double* scratch,
                                   CudaContext* context) {
  const int size = ranks_->size();
  const cudaStream_t stream = context->stream();
  if (size <= kMostDirect) {
    CERES_EXT_NCCL(ncclAllGather,
                   x,
                   scratch,
                   static_cast<size_t>(n),
                   ncclFloat64,
                   handle_->communicator,
                   stream);
    return SumOfRanks(n, size, scratch, x, stream);
  }
  // Rank i sums part i; the last part is padded.
  const int64_t part = (n + size - 1) / size;
  double* const padded = scratch;
  double* const parts = scratch + size * part;
  constexpr int64_t kBytes = sizeof(double);
  CERES_EXT_RETURN_IF_ERROR(context->CopyOnDevice(padded, x, n * kBytes));
  CERES_EXT_RETURN_IF_ERROR(
      context->SetBytes(padded + n, 0, (size * part - n) * kBytes));
  CERES_EXT_NCCL(ncclGroupStart);
  for (int rank = 0; rank < size; ++rank) {
    CERES_EXT_NCCL(ncclSend,
                   padded + rank * part,
                   static_cast<size_t>(part),
                   ncclFloat64,
                   rank,
                   handle_->communicator,
                   stream);
    CERES_EXT_NCCL(ncclRecv,
                   parts + rank * part,
                   static_cast<size_t>(part),
                   ncclFloat64,
                   rank,
                   handle_->communicator,
                   stream);
  }
  CERES_EXT_NCCL(ncclGroupEnd);
  CERES_EXT_RETURN_IF_ERROR(SumOfRanks(part, size, parts, parts, stream));
  CERES_EXT_NCCL(ncclAllGather,
                 parts,
                 padded,
                 static_cast<size_t>(part),
                 ncclFloat64,
                 handle_->communicator,
                 stream);
  return context->CopyOnDevice(x, padded, n * kBytes);
}

Status CudaCommunicator::WaitForNccl(const char* call, int result) {
  auto state = static_cast<ncclResult_t>(result);
  BeginWait();
  // A function of a group says what it has to at the end of the group.
  const bool is_in_group =
      std::strcmp(call, "ncclSend") == 0 || std::strcmp(call, "ncclRecv") == 0;
  while (state == ncclInProgress && !is_in_group) {
    CERES_EXT_RETURN_IF_ERROR(Watch());
    if (handle_->nccl->ncclCommGetAsyncError(handle_->communicator, &state) !=
        ncclSuccess) {
      state = ncclInternalError;
    }
  }
  if (state == ncclSuccess || state == ncclInProgress) {
    return {};
  }
  return Fail(std::string(call) +
              " failed: " + handle_->nccl->ncclGetErrorString(state) + ".");
}

Status CudaCommunicator::NcclStatus() {
  ncclResult_t state = ncclSuccess;
  if (handle_ != nullptr && handle_->communicator != nullptr &&
      handle_->nccl->ncclCommGetAsyncError(handle_->communicator, &state) ==
          ncclSuccess &&
      state != ncclSuccess && state != ncclInProgress) {
    return Fail(std::string("NCCL failed: ") +
                handle_->nccl->ncclGetErrorString(state) + ".");
  }
  return {};
}

void CudaCommunicator::StopNccl() {
  if (handle_ != nullptr && handle_->communicator != nullptr) {
    static_cast<void>(handle_->nccl->ncclCommAbort(handle_->communicator));
    handle_->communicator = nullptr;
  }
}

#undef CERES_EXT_NCCL

#else  // CERES_EXT_WITH_NCCL

class CudaCommunicator::Handle {};

Status CudaCommunicator::ConnectByNccl() {
  return {StatusCode::kUnsupported,
          "Ceres Ext was compiled without the header of NCCL."};
}
Status CudaCommunicator::SumByNccl(int64_t /*n*/,
                                   double* /*x*/,
                                   double* /*scratch*/,
                                   CudaContext* /*context*/) {
  return {StatusCode::kUnsupported, "There is no NCCL."};
}
Status CudaCommunicator::NcclStatus() { return {}; }
void CudaCommunicator::StopNccl() {}

#endif  // CERES_EXT_WITH_NCCL

CudaCommunicator::CudaCommunicator(Communicator* ranks, int device)
    : ranks_(ranks), device_(device) {}

CudaCommunicator::~CudaCommunicator() = default;

Status CudaCommunicator::Get(Communicator* ranks,
                             CudaContext* context,
                             std::shared_ptr<CudaCommunicator>* communicator) {
  std::shared_ptr<CudaCommunicator>& kept = ranks->of_device_;
  const char is_kept = kept != nullptr && kept->device_ == context->device() &&
                       kept->error_.empty() &&
                       (kept->peers_ == nullptr || kept->peers_->IsAlive());
  std::vector<char> are_kept;
  CERES_EXT_RETURN_IF_ERROR(GatherRecords(is_kept, ranks, &are_kept));
  if (std::find(are_kept.begin(), are_kept.end(), 0) == are_kept.end()) {
    *communicator = kept;
    return {};
  }
  kept.reset();
  std::shared_ptr<CudaCommunicator> made(
      new CudaCommunicator(ranks, context->device()));
  Status status = CudaPeerSum::Connect(ranks, context, &made->peers_);
  if (status.code == StatusCode::kUnsupported) {
    status = made->ConnectByNccl();
  }
  CERES_EXT_RETURN_IF_ERROR(status);
  kept = std::move(made);
  *communicator = kept;
  return {};
}

int64_t CudaCommunicator::MaxValues() const {
  return peers_ != nullptr ? PeerWindow::kMaxValues
                           : std::numeric_limits<int64_t>::max();
}

int64_t CudaCommunicator::ScratchSize(int64_t n) const {
  if (peers_ != nullptr) {
    return 0;
  }
  const int64_t size = ranks_->size();
  return size <= kMostDirect ? size * n : 2 * size * ((n + size - 1) / size);
}

Status CudaCommunicator::Sum(int64_t n,
                             double* x,
                             double* scratch,
                             CudaContext* context) {
  if (!error_.empty()) {
    return {StatusCode::kDeviceError, error_};
  }
  if (n == 0 || IsCountingMemory()) {
    return {};
  }
  if (!IsRecording()) {
    CERES_EXT_RETURN_IF_ERROR(Meet());
  }
  return peers_ != nullptr ? peers_->Sum(n, x, context)
                           : SumByNccl(n, x, scratch, context);
}

bool CudaCommunicator::AllAgree(bool mine) {
  if (!error_.empty()) {
    return false;
  }
  const char answer = mine ? 1 : 0;
  std::vector<char> all;
  const Status status = GatherRecords(answer, ranks_, &all);
  if (!status.ok()) {
    static_cast<void>(Fail(status.message));
    return false;
  }
  return std::find(all.begin(), all.end(), 0) == all.end();
}

// All ranks come here before any of them queues work that waits for the others.
// The first launch of a kernel, and memory that a rank takes or frees, may wait
// for devices that can use its memory, and these must not yet wait for it.
Status CudaCommunicator::Meet() {
  const char mine = 0;
  all_.resize(static_cast<size_t>(ranks_->size()));
  std::string error;
  return ranks_->AllGather(&mine, sizeof(mine), all_.data(), &error)
             ? Status()
             : Fail(error);
}

Status CudaCommunicator::Watch() {
  if (!error_.empty()) {
    return {StatusCode::kDeviceError, error_};
  }
  CERES_EXT_RETURN_IF_ERROR(NcclStatus());
  // A rank may have ended because it has done its part, whose last bytes are on
  // their way.
  constexpr std::chrono::seconds kOnTheirWay{1};
  const auto now = Clock::now();
  std::string error;
  if (ranks_->HasFailed(&error)) {
    failure_seen_ = std::min(failure_seen_, now);
    if (now - failure_seen_ > kOnTheirWay) {
      return Fail(error);
    }
  } else {
    failure_seen_ = Clock::time_point::max();
  }
  if (now - wait_begin_ > ranks_->timeout()) {
    return Fail("Rank " + std::to_string(ranks_->rank()) + " waited " +
                std::to_string(ranks_->timeout().count()) +
                " ms for work of the devices of all ranks.");
  }
  return {};
}

Status CudaCommunicator::Fail(const std::string& message) {
  error_ = message;
  if (peers_ != nullptr) {
    peers_->Stop();
  }
  StopNccl();
  return {StatusCode::kDeviceError, error_};
}

}  // namespace ceres_ext::kernels
