// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Between Ceres's vectors and arrays of padded blocks, and what moves blocks:
//
//   GatherTangent, ScatterTangent   Ceres's tangent vector <-> padded blocks
//   GatherState                     state -> blocks
//   GatherTuples                    measurements -> order of an index
//   Plus                            state + delta
//   Together                        several of these in one launch
//
// Vector operations (ops/vector_operation.h) without sums: the same bits on
// every machine.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_BLOCK_TABLE_H_
#define CERES_EXT_CUDA_KERNELS_OPS_BLOCK_TABLE_H_

#include <cstdint>

#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/ops/vector_operation.h"

namespace ceres_ext::kernels {

// The places of the blocks of one kind (cameras, or points) in Ceres's vectors.
// Block i has tangent_size[i] <= padded_size values at tangent_offset[i] of a
// tangent vector and ambient_size values at state_offset[i] of a state. A block
// without columns has tangent_size 0, a constant block state_offset -1 as well;
// offsets of missing blocks are not read. If all blocks vary, with as many
// columns as values, tangent_offset and tangent_size are null: a block's first
// column then is state_offset[i] + tangent_shift. *Padding* are the places of a
// padded vector (num_blocks x padded_size, row-major) beyond tangent_size[i].
// If values of a block are held, its columns are at the places of its other
// values, and the places of those that are held are padding.
struct BlockTableRef {
  int32_t num_blocks = 0;
  int32_t padded_size = 0;
  int32_t ambient_size = 0;
  int32_t tangent_shift = 0;
  const int32_t* tangent_offset = nullptr;  // num_blocks
  const int32_t* tangent_size = nullptr;    // num_blocks
  const int32_t* state_offset = nullptr;    // num_blocks
  // ambient_size per block, read where state_offset < 0; null: nowhere.
  const double* constant_values = nullptr;
  // Bit j: value j of the block is held. For blocks of up to 8; null for none.
  const uint8_t* held = nullptr;

  CERES_EXT_HOST_DEVICE int32_t FirstColumn(int64_t block) const {
    return tangent_offset == nullptr ? state_offset[block] + tangent_shift
                                     : tangent_offset[block];
  }
  CERES_EXT_HOST_DEVICE int32_t NumColumns(int64_t block) const {
    return tangent_size == nullptr ? ambient_size : tangent_size[block];
  }
  // Which of the block's values of a tangent vector a place of the padded one
  // has; -1 if it is padding.
  CERES_EXT_HOST_DEVICE int ValueAt(int64_t block, int element) const {
    const int bits = held == nullptr ? 0 : held[block];
    if (bits == 0) {
      return element < NumColumns(block) ? element : -1;
    }
    int before = 0;
    for (int j = 0; j < element; ++j) {
      before += bits >> j & 1;
    }
    return (bits >> element & 1) != 0 ? -1 : element - before;
  }

  CERES_EXT_HOST_DEVICE int64_t num_padded_values() const {
    return int64_t{num_blocks} * padded_size;
  }
};

// state_offset of a table whose blocks stand one after the other: block i has
// order[i] before it (null: i).
// Traffic: 8 B per block.
struct UniformBlockTableParams {
  int64_t n = 0;
  const int32_t* order = nullptr;  // n
  int32_t block_size = 0;
  int32_t state_begin = 0;
  int32_t* state_offset = nullptr;  // n

  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    state_offset[i] =
        state_begin +
        (order == nullptr ? static_cast<int32_t>(i) : order[i]) * block_size;
  }
};

// records[i] = `like`, with state_offset[i] as its first word.
// Traffic: 20 B per record.
struct StateRecordsParams {
  struct alignas(16) Record {
    int32_t words[4];
  };
  int64_t n = 0;
  Record like = {};
  const int32_t* state_offset = nullptr;  // n
  Record* records = nullptr;              // n

  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    Record record = like;
    record.words[0] = state_offset[i];
    records[i] = record;
  }
};

// padded = vector, and `padding` where the vector has no value.
// Traffic: 16 B per value, 8 B where the vector is null.
struct GatherTangentParams {
  BlockTableRef table;
  const double* vector = nullptr;  // null: zero
  double padding = 0.0;
  double* padded = nullptr;

  int64_t size() const { return table.num_padded_values(); }
  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    const int64_t block = i / table.padded_size;
    const int element = static_cast<int>(i - block * table.padded_size);
    const int at = table.ValueAt(block, element);
    padded[i] = at < 0              ? padding
                : vector == nullptr ? 0.0
                                    : vector[table.FirstColumn(block) + at];
  }
};

// The values of `padded` that have a place in the vector go there; nothing else
// in the vector changes.
// Traffic: 16 B per value.
struct ScatterTangentParams {
  BlockTableRef table;
  const double* padded = nullptr;
  double* vector = nullptr;

  int64_t size() const { return table.num_padded_values(); }
  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    const int64_t block = i / table.padded_size;
    const int element = static_cast<int>(i - block * table.padded_size);
    const int at = table.ValueAt(block, element);
    if (at >= 0) {
      vector[table.FirstColumn(block) + at] = padded[i];
    }
  }
};

// ambient (num_blocks x ambient_size, row-major) = the blocks' values in
// `state`, or their constant values.
// Traffic: 16 B per value.
struct GatherStateParams {
  BlockTableRef table;
  const double* state = nullptr;
  double* ambient = nullptr;

  int64_t size() const {
    return int64_t{table.num_blocks} * table.ambient_size;
  }
  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    const int64_t block = i / table.ambient_size;
    const int element = static_cast<int>(i - block * table.ambient_size);
    const int32_t offset = table.state_offset[block];
    ambient[i] =
        offset < 0 ? table.constant_values[i] : state[offset + element];
  }
};

// Tuple k of `out`, of kSize values, = tuple source[k] of `in`.
// Traffic: 4 + 16 kSize B per tuple.
template <int kSize>
struct GatherTuplesParams {
  int64_t n = 0;
  const int32_t* source = nullptr;  // n
  const double* in = nullptr;       // kSize per tuple
  double* out = nullptr;            // kSize n

  CERES_EXT_HOST_DEVICE void Apply(int64_t k) const {
    const int64_t i = source[k];
    for (int j = 0; j < kSize; ++j) {
      out[kSize * k + j] = in[kSize * i + j];
    }
  }
};

// state_plus_delta = state + delta for the blocks that have a place in the
// state, in their first tangent_size values; their others stay as in `state`,
// and nothing else in state_plus_delta changes. It may be `state`.
// Traffic: 24 B per value.
struct PlusParams {
  BlockTableRef table;
  const double* state = nullptr;
  const double* delta = nullptr;  // a tangent vector
  double* state_plus_delta = nullptr;

  int64_t size() const { return table.num_blocks; }
  CERES_EXT_HOST_DEVICE void Apply(int64_t block) const {
    const int32_t state_offset = table.state_offset[block];
    if (state_offset < 0) {
      return;
    }
    const int columns = table.NumColumns(block);
    const double* x = state + state_offset;
    const double* d = columns > 0 ? delta + table.FirstColumn(block) : nullptr;
    double* y = state_plus_delta + state_offset;
    for (int i = 0; i < table.ambient_size; ++i) {
      y[i] = i < columns ? x[i] + d[i] : x[i];
    }
  }
};

// Operations of one kind as one: the elements of the first, of the second, and
// so on. For launches that take longer than what they do.
template <typename P>
struct TogetherParams {
  static constexpr int kMost = 4;
  static constexpr int kUnroll = 1;
  P part[kMost];
  int64_t end[kMost] = {};  // of each, the elements up to its last
  int num_parts = 0;

  // Fewer than kMost have been added.
  void Add(const P& params) {
    part[num_parts] = params;
    const int64_t begin = size();
    for (int k = num_parts++; k < kMost; ++k) {
      end[k] = begin + params.size();
    }
  }
  int64_t size() const { return end[kMost - 1]; }
  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    for (int k = 0; k < kMost; ++k) {
      if (i < end[k]) {
        part[k].Apply(k == 0 ? i : i - end[k - 1]);
        return;
      }
    }
  }
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_BLOCK_TABLE_H_
