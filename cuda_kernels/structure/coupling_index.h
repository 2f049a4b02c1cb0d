// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Which blocks of the Schur complement S there are, and what each is summed
// from.
//
//   CouplingForecast forecast;
//   Status status = ForecastCouplings(index, list, &machine, &forecast);
//   CouplingIndex couplings;
//   if (status.ok()) status = couplings.Build(index, list, &machine);
//   params.couplings = couplings.ref();
//
// A *coupling* is two observations k and l of one point by cameras i and j,
// i > j: block (i, j) of S is minus the sum of W_k Vi W_l' over its couplings.
// Block (i, i) of each camera is in the index as well and has no couplings: it
// comes of NormalBlocks. A camera that sees a point more than once has all its
// observations in couplings with those of others.
//
// Blocks are sorted by (i, j); the couplings of a block by (k, l).
#ifndef CERES_EXT_CUDA_KERNELS_STRUCTURE_COUPLING_INDEX_H_
#define CERES_EXT_CUDA_KERNELS_STRUCTURE_COUPLING_INDEX_H_

#include <cstdint>

#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/structure/observation_index.h"

namespace ceres_ext::kernels {

class CudaMachine;
class HostMachine;

// The entry of a coupling in an index.
enum class CouplingList {
  kObservations,  // k and l, 8 B
  kPoints,        // their point, 4 B: the same Jacobian for all that see it
  kBlocks,        // nothing but the blocks of S: the host goes by rows of these
};

// k in the upper half, l in the lower one: one word, as sorts move it.
CERES_EXT_HOST_DEVICE inline int64_t MakeCoupling(int64_t k, int64_t l) {
  return k * (int64_t{1} << 32) + l;
}
CERES_EXT_HOST_DEVICE inline int64_t FirstOfCoupling(int64_t coupling) {
  return coupling >> 32;
}
CERES_EXT_HOST_DEVICE inline int64_t SecondOfCoupling(int64_t coupling) {
  return coupling & 0xffffffff;
}

// Blocks of more couplings than this, of all those in an index, are cut into
// chunks of as many, so that no warp works on one for long: with few in all the
// longest chain is the time of a kernel.
CERES_EXT_HOST_DEVICE inline int64_t CouplingChunkSize(int64_t num_couplings) {
  return num_couplings < (int64_t{1} << 21) ? 64 : 512;
}

// Couplings `begin` .. begin + CouplingChunkSize - 1 of a block, fewer at its
// end.
struct CouplingChunk {
  int64_t block = 0;
  int64_t begin = 0;
};

// Passed to kernels by value; owns nothing.
struct CouplingIndexRef {
  int32_t num_cameras = 0;
  int64_t num_blocks = 0;
  int64_t num_couplings = 0;
  int64_t num_chunks = 0;

  // The blocks of row i are row_begin[i] .. row_begin[i + 1] - 1, the last of
  // which is (i, i).
  const int64_t* row_begin = nullptr;  // num_cameras + 1
  const int32_t* row = nullptr;        // num_blocks: i
  const int32_t* column = nullptr;     // num_blocks: j
  // The couplings of block b are coupling_begin[b] .. coupling_begin[b + 1]
  // - 1.
  const int64_t* coupling_begin = nullptr;  // num_blocks + 1
  // num_couplings, one of them or none, the others null: CouplingList.
  const int64_t* coupling = nullptr;
  const int32_t* point = nullptr;

  // The chunks of the blocks that are cut, sorted by (block, begin); none with
  // kBlocks.
  const CouplingChunk* chunk = nullptr;

  CERES_EXT_HOST_DEVICE int64_t chunk_size() const {
    return CouplingChunkSize(num_couplings);
  }
};

// The first chunk of a block that is cut.
CERES_EXT_HOST_DEVICE inline int64_t FirstChunk(
    const CouplingIndexRef& couplings, int64_t block) {
  int64_t low = 0;
  int64_t high = couplings.num_chunks;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (couplings.chunk[middle].block < block) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// How many couplings with observations before it observation k has: those of
// its point by cameras below its own.
CERES_EXT_HOST_DEVICE inline int64_t NumCouplingsWithEarlier(
    const ObservationIndexRef& index, int64_t k) {
  const int64_t begin = index.point_begin[index.point_id[k]];
  const int32_t camera = index.camera_id[k];
  if (k == begin || index.camera_id[k - 1] != camera) {
    return k - begin;
  }
  // A camera may see a point thousands of times.
  int64_t first = begin;
  while (first < k) {
    const int64_t middle = (first + k) / 2;
    if (index.camera_id[middle] < camera) {
      first = middle + 1;
    } else {
      k = middle;
    }
  }
  return first - begin;
}

// The memory of an index of couplings, known from the observations alone.
struct CouplingForecast {
  int64_t num_couplings = 0;   // exact
  int64_t max_num_blocks = 0;  // no more than this
  int64_t row_couplings = 0;   // of the camera that has most
  int64_t bytes = 0;           // held by the index, at most
  int64_t build_bytes = 0;     // held beside it while it is built, at most
};

// index: one of the machine's. Allocates nothing.
Status ForecastCouplings(const ObservationIndexRef& index,
                         CouplingList list,
                         HostMachine* machine,
                         CouplingForecast* forecast);
Status ForecastCouplings(const ObservationIndexRef& index,
                         CouplingList list,
                         CudaMachine* machine,
                         CouplingForecast* forecast);
// The bytes of num_couplings and row_couplings, which are set.
void ForecastBytes(const ObservationIndexRef& index,
                   CouplingList list,
                   bool on_device,
                   CouplingForecast* forecast);

// The index in host memory. Building takes linear time and one thread; the
// result depends on the observations alone.
class CouplingIndex {
 public:
  // On an error the index is empty.
  Status Build(const ObservationIndexRef& index,
               CouplingList list,
               HostMachine* machine);

  // Valid until the next Build or the end of the object.
  const CouplingIndexRef& ref() const { return view_; }

 private:
  CouplingIndexRef view_;
  HostBuffer<int64_t> row_begin_;
  HostBuffer<int32_t> row_;
  HostBuffer<int32_t> column_;
  HostBuffer<int64_t> coupling_begin_;
  HostBuffer<int64_t> coupling_;
  HostBuffer<int32_t> point_;
  HostBuffer<CouplingChunk> chunk_;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_STRUCTURE_COUPLING_INDEX_H_
