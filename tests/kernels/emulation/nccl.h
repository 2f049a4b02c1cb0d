// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// In place of NCCL's header, with emulation/cuda_runtime.h: what the library
// calls. The functions are in libnccl.so.999 (nccl.cc).
#ifndef CERES_EXT_TESTS_EMULATION_NCCL_H_
#define CERES_EXT_TESTS_EMULATION_NCCL_H_

#include <cuda_runtime.h>

#include <cstddef>

#define NCCL_MAJOR 999

enum ncclResult_t {
  ncclSuccess = 0,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidUsage = 5,
  ncclInProgress = 7
};
enum ncclDataType_t { ncclFloat64 = 8 };

typedef struct ncclComm* ncclComm_t;
struct ncclUniqueId {
  char internal[128];
};
struct ncclConfig_t {
  int blocking;
};
#define NCCL_CONFIG_INITIALIZER \
  { 1 }

extern "C" {
ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator,
                                    int size,
                                    ncclUniqueId id,
                                    int rank,
                                    ncclConfig_t* config);
ncclResult_t ncclCommAbort(ncclComm_t communicator);
ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator,
                                   ncclResult_t* error);
const char* ncclGetErrorString(ncclResult_t result);
ncclResult_t ncclAllGather(const void* mine,
                           void* all,
                           size_t n,
                           ncclDataType_t type,
                           ncclComm_t communicator,
                           cudaStream_t stream);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclSend(const void* from,
                      size_t n,
                      ncclDataType_t type,
                      int to,
                      ncclComm_t communicator,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void* to,
                      size_t n,
                      ncclDataType_t type,
                      int from,
                      ncclComm_t communicator,
                      cudaStream_t stream);
}

#endif  // CERES_EXT_TESTS_EMULATION_NCCL_H_
