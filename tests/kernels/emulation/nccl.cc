// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// libnccl.so.999 of emulated devices, one a process of this host (nccl.h): they
// exchange through a file of shared memory. A call that NCCL would refuse, or
// that would be another one's than the test means, is refused with a word on
// stderr. With CERES_EXT_TEST_NCCL=refuse no rank is connected.
#include <fcntl.h>
#include <nccl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/kernels/emulation/library_util.h"

namespace {

using emulation::Expect;

constexpr int kMaxSize = 16;
constexpr std::chrono::seconds kMostWait{60};
// Bytes from a rank to a rank in one exchange.
constexpr size_t kPieceBytes = size_t{1} << 16;

struct SharedMemory {
  std::atomic<int64_t> num_arrived;
  unsigned char pieces[kMaxSize][kMaxSize][kPieceBytes];
};

// A send or a receive of a group.
struct Part {
  const unsigned char* from = nullptr;
  unsigned char* to = nullptr;
  size_t bytes = 0;
};

}  // namespace

struct ncclComm {
  int rank = 0;
  int size = 1;
  SharedMemory* memory = nullptr;
  int64_t num_barriers = 0;
  Part sends[kMaxSize];
  Part receives[kMaxSize];

  // False: a rank has not come.
  bool Barrier() {
    ++num_barriers;
    ++memory->num_arrived;
    const auto end = std::chrono::steady_clock::now() + kMostWait;
    while (memory->num_arrived < num_barriers * size) {
      if (std::chrono::steady_clock::now() > end) {
        return Expect(false, "NCCL", "a rank has not come");
      }
      std::this_thread::yield();
    }
    return true;
  }

  // All sends and receives, in pieces. All ranks have parts of the same size.
  bool Exchange() {
    size_t bytes = 0;
    for (int i = 0; i < size; ++i) {
      bytes = std::max({bytes, sends[i].bytes, receives[i].bytes});
    }
    for (size_t at = 0; at < bytes; at += kPieceBytes) {
      const size_t n = std::min(kPieceBytes, bytes - at);
      for (int i = 0; i < size; ++i) {
        if (sends[i].bytes > 0) {
          std::memcpy(memory->pieces[rank][i], sends[i].from + at, n);
        }
      }
      if (!Barrier()) {
        return false;
      }
      for (int i = 0; i < size; ++i) {
        if (receives[i].bytes > 0) {
          std::memcpy(receives[i].to + at, memory->pieces[i][rank], n);
        }
      }
      if (!Barrier()) {
        return false;
      }
    }
    for (int i = 0; i < size; ++i) {
      sends[i] = {};
      receives[i] = {};
    }
    return true;
  }
};

namespace {

// The communicator whose group is open in this process.
ncclComm_t in_group = nullptr;
bool group_is_open = false;

bool ExpectArray(const char* name, const void* data, size_t bytes) {
  return Expect(
      emulation::IsOnDevice(data, bytes), name, "memory of the device");
}

ncclResult_t AddPart(const char* name,
                     ncclComm_t communicator,
                     ncclDataType_t type,
                     int rank) {
  if (!Expect(group_is_open, name, "no group") ||
      !Expect(communicator != nullptr, name, "no communicator") ||
      !Expect(type == ncclFloat64, name, "the type") ||
      !Expect(rank >= 0 && rank < communicator->size, name, "the rank")) {
    return ncclInvalidUsage;
  }
  in_group = communicator;
  return ncclSuccess;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = 9990000;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int count = 0;
  *id = {};
  std::snprintf(id->internal,
                sizeof(id->internal),
                "/ceres_ext_nccl_%d_%d",
                static_cast<int>(getpid()),
                ++count);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator,
                                    int size,
                                    ncclUniqueId id,
                                    int rank,
                                    ncclConfig_t* config) {
  const char* const refuse = std::getenv("CERES_EXT_TEST_NCCL");
  if ((refuse != nullptr && std::string(refuse) == "refuse") ||
      !Expect(size <= kMaxSize, "ncclCommInitRankConfig", "the size") ||
      !Expect(config->blocking == 0, "ncclCommInitRankConfig", "blocking")) {
    return ncclInvalidUsage;
  }
  const int file = shm_open(id.internal, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(SharedMemory)) != 0) {
    return ncclSystemError;
  }
  void* const memory = mmap(nullptr,
                            sizeof(SharedMemory),
                            PROT_READ | PROT_WRITE,
                            MAP_SHARED,
                            file,
                            0);
  close(file);
  if (memory == MAP_FAILED) {
    return ncclSystemError;
  }
  auto* const made = new ncclComm;
  made->rank = rank;
  made->size = size;
  made->memory = static_cast<SharedMemory*>(memory);
  *communicator = made;
  if (!made->Barrier()) {
    return ncclSystemError;
  }
  shm_unlink(id.internal);  // All have it open.
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  munmap(communicator->memory, sizeof(SharedMemory));
  delete communicator;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t /*communicator*/,
                                   ncclResult_t* error) {
  *error = ncclSuccess;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclInvalidUsage ? "invalid usage" : "system error";
}

ncclResult_t ncclGroupStart() {
  group_is_open = true;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  group_is_open = false;
  return in_group == nullptr || in_group->Exchange() ? ncclSuccess
                                                     : ncclSystemError;
}

ncclResult_t ncclSend(const void* from,
                      size_t n,
                      ncclDataType_t type,
                      int to,
                      ncclComm_t communicator,
                      cudaStream_t /*stream*/) {
  const ncclResult_t result = AddPart("ncclSend", communicator, type, to);
  if (result != ncclSuccess ||
      !ExpectArray("ncclSend", from, n * sizeof(double))) {
    return ncclInvalidUsage;
  }
  communicator->sends[to] = {
      static_cast<const unsigned char*>(from), nullptr, n * sizeof(double)};
  return ncclSuccess;
}

ncclResult_t ncclRecv(void* to,
                      size_t n,
                      ncclDataType_t type,
                      int from,
                      ncclComm_t communicator,
                      cudaStream_t /*stream*/) {
  const ncclResult_t result = AddPart("ncclRecv", communicator, type, from);
  if (result != ncclSuccess ||
      !ExpectArray("ncclRecv", to, n * sizeof(double))) {
    return ncclInvalidUsage;
  }
  communicator->receives[from] = {
      nullptr, static_cast<unsigned char*>(to), n * sizeof(double)};
  return ncclSuccess;
}

ncclResult_t ncclAllGather(const void* mine,
                           void* all,
                           size_t n,
                           ncclDataType_t type,
                           ncclComm_t communicator,
                           cudaStream_t stream) {
  static_cast<void>(ncclGroupStart());
  for (int rank = 0; rank < communicator->size; ++rank) {
    const ncclResult_t sent =
        ncclSend(mine, n, type, rank, communicator, stream);
    const ncclResult_t received =
        ncclRecv(static_cast<double*>(all) + static_cast<size_t>(rank) * n,
                 n,
                 type,
                 rank,
                 communicator,
                 stream);
    if (sent != ncclSuccess || received != ncclSuccess) {
      return ncclInvalidUsage;
    }
  }
  return ncclGroupEnd();
}

}  // extern "C"
