// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Prototype of products and normal blocks for rows with several F slots:
// measured answers before the library gets any shape. Stands alone.
//
//   nvcc -O3 -std=c++17 -arch=sm_90 -x cu -I. \
//       benchmarks/slot_prototype.cu.cc -o slot_prototype
//   slot_prototype check              every variant against the host, PASS/FAIL
//   slot_prototype measure [fraction [double|float|both [A|B|C|all]]]
//
// Without a GPU, "check" alone, in tests/kernels/emulation:
//   g++ -O1 -std=c++17 -Itests/kernels/emulation -I. -x c++ \
//       benchmarks/slot_prototype.cu.cc -o slot_prototype
//
// A row k has 2 residuals, one E block (point, 3 columns) and F blocks, one a
// slot: slot s has C_s columns and names a block of its family.
//   y_k = sum_s F_ks p_s,  e_p = Vi_p sum_k E_k' y_k,
//   q_s = D^2 p + sum_k F_ks' (y_k - E_k e_p)
// Rows are sorted by point; blocks lie continuous-element (BlockView).
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

// ---------------------------------------------------------------- machine --

#ifdef __CUDACC__
#define DYNAMIC_SHARED(name) \
  extern __shared__ __align__(16) unsigned char name[]
#else
#define DYNAMIC_SHARED(name) unsigned char* name = ::emulation::DynamicShared()
#endif

void Check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    std::printf("FAIL %s: %s\n", what, cudaGetErrorString(error));
    std::exit(1);
  }
}

template <typename... Parameters, typename... Arguments>
void Launch(const char* name,
            void (*kernel)(Parameters...),
            int64_t num_blocks,
            int block_size,
            int64_t shared_bytes,
            Arguments... arguments) {
  if (num_blocks == 0) {
    return;
  }
#ifdef __CUDACC__
  if (shared_bytes > 40 * 1024) {
    Check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                               cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared_bytes)),
          name);
  }
  kernel<<<static_cast<unsigned>(num_blocks),
           static_cast<unsigned>(block_size),
           static_cast<size_t>(shared_bytes)>>>(arguments...);
  Check(cudaGetLastError(), name);
#else
  static_cast<void>(name);
  ::emulation::Run(
      num_blocks, block_size, shared_bytes, [&] { kernel(arguments...); });
#endif
}

void Synchronize() {
  const cudaStream_t stream = nullptr;
  Check(cudaStreamSynchronize(stream), "synchronize");
}

template <typename T>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(int64_t size) { Resize(size); }
  explicit DeviceArray(const std::vector<T>& values) { Upload(values); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() {
    if (data_ != nullptr) {
      cudaFree(data_);
    }
  }
  void Resize(int64_t size) {
    if (size <= capacity_) {
      size_ = size;
      return;
    }
    if (data_ != nullptr) {
      cudaFree(data_);
    }
    void* data = nullptr;
    Check(cudaMalloc(&data, static_cast<size_t>(size) * sizeof(T)), "memory");
    data_ = static_cast<T*>(data);
    size_ = capacity_ = size;
  }
  void Upload(const std::vector<T>& values) {
    Resize(static_cast<int64_t>(values.size()));
    Check(cudaMemcpyAsync(data_,
                          values.data(),
                          values.size() * sizeof(T),
                          cudaMemcpyHostToDevice,
                          nullptr),
          "upload");
    Synchronize();
  }
  std::vector<T> Download() const {
    std::vector<T> values(static_cast<size_t>(size_));
    Check(cudaMemcpyAsync(values.data(),
                          data_,
                          values.size() * sizeof(T),
                          cudaMemcpyDeviceToHost,
                          nullptr),
          "download");
    Synchronize();
    return values;
  }
  // All bytes one: NaN in floating point.
  void Poison() {
    Check(cudaMemsetAsync(
              data_, 0xff, static_cast<size_t>(size_) * sizeof(T), nullptr),
          "memset");
  }
  T* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  T* data_ = nullptr;
  int64_t size_ = 0;
  int64_t capacity_ = 0;
};

// Median of 9 in ms, between events, after two.
double Median(const std::function<void()>& fn) {
#ifdef __CUDACC__
  cudaEvent_t events[2];
  Check(cudaEventCreate(&events[0]), "event");
  Check(cudaEventCreate(&events[1]), "event");
  fn();
  fn();
  std::vector<float> times;
  for (int i = 0; i < 9; ++i) {
    Check(cudaEventRecord(events[0]), "event");
    fn();
    Check(cudaEventRecord(events[1]), "event");
    Check(cudaEventSynchronize(events[1]), "event");
    float ms = 0;
    Check(cudaEventElapsedTime(&ms, events[0], events[1]), "event");
    times.push_back(ms);
  }
  cudaEventDestroy(events[0]);
  cudaEventDestroy(events[1]);
  std::sort(times.begin(), times.end());
  return times[4];
#else
  fn();
  return 1.0;
#endif
}

double g_copy_rate = 0;  // TB/s, read plus written

void Print(const std::string& name, double ms, double bytes) {
  const double rate = 1e-9 * bytes / ms;
  std::printf("%-64s %8.3f ms %7.3f GB %5.2f TB/s %4.0f %% of copy, %.2f x\n",
              name.c_str(),
              ms,
              1e-9 * bytes,
              rate,
              100 * rate / g_copy_rate,
              g_copy_rate / rate);
  std::fflush(stdout);
}

void MeasureCopy() {
  const int64_t n = int64_t{1} << 30;
  DeviceArray<char> a(n);
  DeviceArray<char> b(n);
  const double ms = Median([&] {
    Check(cudaMemcpyAsync(b.data(),
                          a.data(),
                          static_cast<size_t>(n),
                          cudaMemcpyDeviceToDevice,
                          nullptr),
          "copy");
  });
  g_copy_rate = 2e-9 * static_cast<double>(n) / ms;
  std::printf(
      "copy of 1 GiB: %.3f ms, %.2f TB/s read plus written\n", ms, g_copy_rate);
}

__host__ __device__ constexpr int PackedSize(int n) { return n * (n + 1) / 2; }
__host__ __device__ constexpr int PackedIndex(int i, int j) {
  return i * (i + 1) / 2 + j;
}
// Odd, so that rows of shared memory begin at different banks.
__host__ __device__ constexpr int Odd(int n) { return n | 1; }

constexpr int kTileRows = 256;
constexpr int kBlock = 256;
constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

// -------------------------------------------------------------- structure --

struct Random {
  uint64_t state;
  uint64_t Next() {
    uint64_t z = (state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  int Below(int n) {
    return static_cast<int>(Next() % static_cast<uint64_t>(n));
  }
};

// Rows sorted by point, then image.
struct Rows {
  int num_images = 0;
  int num_points = 0;
  std::vector<int32_t> point_begin;  // [num_points + 1]
  std::vector<int32_t> image;        // per row
  int64_t num_rows() const { return static_cast<int64_t>(image.size()); }
};

// Place of (x, y) on Hilbert's curve of a square of 2^bits.
uint32_t Hilbert(uint32_t x, uint32_t y, int bits) {
  uint32_t d = 0;
  for (uint32_t s = 1u << (bits - 1); s > 0; s /= 2) {
    const uint32_t rx = (x & s) > 0;
    const uint32_t ry = (y & s) > 0;
    d += s * s * ((3 * rx) ^ ry);
    if (ry == 0) {
      if (rx == 1) {
        x = (1u << bits) - 1 - x;
        y = (1u << bits) - 1 - y;
      }
      std::swap(x, y);
    }
  }
  return d;
}

// The sequence of benchmarks/cuda_benchmark.cc: a point belongs to one of
// num_images / 70 places and is seen by neighbouring images; points in the
// library's order for tiles.
Rows MakeSequence(int num_images, int num_points, int64_t num_rows) {
  Random random{7};
  std::vector<int> length(static_cast<size_t>(num_points));
  int64_t total = 0;
  for (int& n : length) {
    n = std::min(60,
                 2 + static_cast<int>(
                         2.3 * std::pow(random.Uniform() + 1e-4, -0.62) - 0.5));
    total += n;
  }
  while (total != num_rows) {
    int& n = length[static_cast<size_t>(random.Below(num_points))];
    const int change = total < num_rows ? 1 : -1;
    if (n + change >= 2 && n + change <= 60) {
      n += change;
      total += change;
    }
  }
  const int num_places = std::max(1, num_images / 70);
  std::vector<int32_t> begin(1, 0);
  std::vector<int32_t> image;
  image.reserve(static_cast<size_t>(num_rows));
  std::vector<std::pair<uint32_t, int32_t>> order;
  std::vector<int32_t> track;
  for (int i = 0; i < num_points; ++i) {
    const int n = length[static_cast<size_t>(i)];
    const int place = static_cast<int>(int64_t{i} * num_places / num_points);
    const int base = place * 70 + static_cast<int>(random.Uniform() * 30);
    track.clear();
    while (static_cast<int>(track.size()) < n) {
      int32_t c = base + random.Below(40 + n);
      if (c >= num_images) {
        c = num_images - 1 - random.Below(40 + n);
      }
      if (std::find(track.begin(), track.end(), c) == track.end()) {
        track.push_back(c);
      }
    }
    std::sort(track.begin(), track.end());
    order.emplace_back(Hilbert(static_cast<uint32_t>(track.front()) / 4,
                               static_cast<uint32_t>(track.back()) / 4,
                               12),
                       i);
    image.insert(image.end(), track.begin(), track.end());
    begin.push_back(static_cast<int32_t>(image.size()));
  }
  std::sort(order.begin(), order.end());
  Rows rows;
  rows.num_images = num_images;
  rows.num_points = num_points;
  rows.point_begin.push_back(0);
  rows.image.reserve(image.size());
  for (const auto& [key, i] : order) {
    rows.image.insert(rows.image.end(),
                      image.begin() + begin[static_cast<size_t>(i)],
                      image.begin() + begin[static_cast<size_t>(i) + 1]);
    rows.point_begin.push_back(static_cast<int32_t>(rows.image.size()));
  }
  return rows;
}

// Edge sizes. long_points: points of more rows than a tile.
Rows MakeEdges(uint64_t seed, bool long_points, bool repeats) {
  Random random{seed};
  Rows rows;
  rows.num_images = 37;
  rows.num_points = 400;
  rows.point_begin.push_back(0);
  const int sizes[] = {0, 1, 31, 32, 33, 2, 3, 5, 7, 11};
  for (int i = 0; i < rows.num_points; ++i) {
    int n = sizes[random.Below(10)];
    if (i < 10) {
      n = sizes[i];
    }
    if (long_points && (i == 100 || i == 101 || i == 399)) {
      n = i == 100 ? 257 : (i == 101 ? 700 : 512);
    } else if (i == 200 || i == 201) {
      n = i == 200 ? 256 : 255;
    }
    std::vector<int32_t> track;
    const int base = random.Below(rows.num_images);
    for (int j = 0; j < n; ++j) {
      int32_t c = (base + random.Below(12)) % rows.num_images;
      if (n > 12) {
        c = random.Below(rows.num_images);
      }
      if (!repeats || !(long_points || n < 34)) {
        while (n <= rows.num_images &&
               std::find(track.begin(), track.end(), c) != track.end()) {
          c = (c + 1) % rows.num_images;
        }
        if (n > rows.num_images && !repeats && j >= rows.num_images) {
          break;
        }
        while (!repeats &&
               std::find(track.begin(), track.end(), c) != track.end()) {
          c = (c + 1) % rows.num_images;
        }
      }
      track.push_back(c);
    }
    std::sort(track.begin(), track.end());
    rows.image.insert(rows.image.end(), track.begin(), track.end());
    rows.point_begin.push_back(static_cast<int32_t>(rows.image.size()));
  }
  return rows;
}

// A run of points with at most kTileRows rows, or up to kTileRows rows of a
// longer point.
struct alignas(16) TileHeader {
  int32_t point_begin;
  int32_t num_points;
  int32_t row_begin;
  int32_t num_rows;
  int32_t long_point;  // number among the long points, or -1
  int32_t unused[3];
};

// One slot's part of a tile.
struct alignas(16) SlotTile {
  int32_t block_begin;  // of tile blocks
  int32_t num_blocks;
  int32_t segment_begin;  // of segments
  int32_t num_segments;
};

struct Tiles {
  std::vector<TileHeader> header;
  std::vector<int32_t> point_id;    // per row
  std::vector<int32_t> long_point;  // their numbers
  int max_points = 0;
};

Tiles MakeTiles(const Rows& rows) {
  Tiles tiles;
  const auto add =
      [&](int point, int num_points, int row, int num_rows, int long_point) {
        TileHeader h = {};
        h.point_begin = point;
        h.num_points = num_points;
        h.row_begin = row;
        h.num_rows = num_rows;
        h.long_point = long_point;
        tiles.header.push_back(h);
        tiles.max_points = std::max(tiles.max_points, num_points);
      };
  int first = 0;
  const auto begin = [&](int p) {
    return rows.point_begin[static_cast<size_t>(p)];
  };
  for (int p = 0; p < rows.num_points; ++p) {
    const int n = begin(p + 1) - begin(p);
    const bool full = p > first && (begin(p + 1) - begin(first) > kTileRows ||
                                    p - first >= 256);
    if (full) {
      add(first, p - first, begin(first), begin(p) - begin(first), -1);
      first = p;
    }
    if (n > kTileRows) {
      for (int r = 0; r < n; r += kTileRows) {
        add(p,
            1,
            begin(p) + r,
            std::min(kTileRows, n - r),
            static_cast<int>(tiles.long_point.size()));
      }
      tiles.long_point.push_back(p);
      first = p + 1;
    }
  }
  if (first < rows.num_points) {
    add(first,
        rows.num_points - first,
        begin(first),
        begin(rows.num_points) - begin(first),
        -1);
  }
  tiles.point_id.resize(rows.image.size());
  for (int p = 0; p < rows.num_points; ++p) {
    std::fill(tiles.point_id.begin() + begin(p),
              tiles.point_id.begin() + begin(p + 1),
              p);
  }
  return tiles;
}

// What a slot adds to the tiles. Segments are cut so that none is longer than
// segment_length.
struct SlotIndex {
  int num_blocks = 0;
  std::vector<int32_t> block;      // per row
  std::vector<SlotTile> tile;      // per tile
  std::vector<uint32_t> position;  // per row: block in tile << 16 | place
  std::vector<uint32_t> group;     // per row: first place << 16 | count of
                                   // the rows of its (block, point)
  bool repeats = false;
  std::vector<int32_t> block_id;        // per tile block
  std::vector<int32_t> block_segment;   // per tile block and one a tile
  std::vector<int32_t> segment_first;   // per segment and one a tile: place
  std::vector<int32_t> row_begin, row;  // tile blocks of a block
  std::vector<int32_t> segment_row_begin, segment_row;  // its segments
  int max_blocks = 0;
  int max_segments = 0;
};

void MakeRowLists(const std::vector<int32_t>& block_of_row,
                  int num_blocks,
                  std::vector<int32_t>* begin,
                  std::vector<int32_t>* list) {
  begin->assign(static_cast<size_t>(num_blocks) + 1, 0);
  for (int32_t b : block_of_row) {
    ++(*begin)[static_cast<size_t>(b) + 1];
  }
  for (int b = 0; b < num_blocks; ++b) {
    (*begin)[static_cast<size_t>(b) + 1] += (*begin)[static_cast<size_t>(b)];
  }
  std::vector<int32_t> next(begin->begin(), begin->end() - 1);
  list->resize(block_of_row.size());
  for (size_t r = 0; r < block_of_row.size(); ++r) {
    (*list)[static_cast<size_t>(next[static_cast<size_t>(block_of_row[r])]++)] =
        static_cast<int32_t>(r);
  }
}

SlotIndex MakeSlotIndex(const Rows& rows,
                        const Tiles& tiles,
                        int num_blocks,
                        const std::function<int32_t(int32_t)>& block_of_image,
                        int segment_length) {
  SlotIndex index;
  index.num_blocks = num_blocks;
  const size_t num_rows = rows.image.size();
  const size_t num_tiles = tiles.header.size();
  index.block.resize(num_rows);
  index.position.resize(num_rows);
  index.group.resize(num_rows);
  index.tile.resize(num_tiles);
  struct Part {
    std::vector<int32_t> block_id, block_segment, segment_first, segment_block;
    bool repeats = false;
  };
  const int num_threads =
      std::max(1, std::min(16, static_cast<int>(num_tiles / 64)));
  std::vector<Part> parts(static_cast<size_t>(num_threads));
  const auto work = [&](int thread) {
    Part& part = parts[static_cast<size_t>(thread)];
    const size_t from = num_tiles * static_cast<size_t>(thread) /
                        static_cast<size_t>(num_threads);
    const size_t to = num_tiles * static_cast<size_t>(thread + 1) /
                      static_cast<size_t>(num_threads);
    std::vector<uint64_t> keys;
    for (size_t t = from; t < to; ++t) {
      const TileHeader& h = tiles.header[t];
      keys.clear();
      for (int r = 0; r < h.num_rows; ++r) {
        const size_t k = static_cast<size_t>(h.row_begin + r);
        index.block[k] = block_of_image(rows.image[k]);
        keys.push_back(static_cast<uint64_t>(index.block[k]) << 16 |
                       static_cast<uint64_t>(r));
      }
      std::sort(keys.begin(), keys.end());
      SlotTile& s = index.tile[t];
      s.block_begin = static_cast<int32_t>(part.block_id.size());
      s.segment_begin = static_cast<int32_t>(part.segment_block.size());
      int num_blocks_here = 0;
      int num_segments = 0;
      int run = 0;
      int group_first = 0;
      for (int place = 0; place < h.num_rows; ++place) {
        const size_t i = static_cast<size_t>(place);
        const int32_t b = static_cast<int32_t>(keys[i] >> 16);
        const size_t k = static_cast<size_t>(h.row_begin) + (keys[i] & 0xffff);
        const bool fresh =
            place == 0 || b != static_cast<int32_t>(keys[i - 1] >> 16);
        if (fresh) {
          part.block_id.push_back(b);
          part.block_segment.push_back(num_segments);
          ++num_blocks_here;
          run = 0;
        }
        if (run % segment_length == 0) {
          part.segment_first.push_back(place);
          part.segment_block.push_back(b);
          ++num_segments;
        }
        ++run;
        index.position[k] = static_cast<uint32_t>(num_blocks_here - 1) << 16 |
                            static_cast<uint32_t>(place);
        if (fresh || tiles.point_id[k] !=
                         tiles.point_id[static_cast<size_t>(h.row_begin) +
                                        (keys[i - 1] & 0xffff)]) {
          group_first = place;
        }
        // The last of a group knows its count.
        const bool last =
            place + 1 == h.num_rows ||
            static_cast<int32_t>(keys[i + 1] >> 16) != b ||
            tiles.point_id[static_cast<size_t>(h.row_begin) +
                           (keys[i + 1] & 0xffff)] != tiles.point_id[k];
        if (last) {
          for (int o = group_first; o <= place; ++o) {
            index.group[static_cast<size_t>(h.row_begin) +
                        (keys[static_cast<size_t>(o)] & 0xffff)] =
                static_cast<uint32_t>(group_first) << 16 |
                static_cast<uint32_t>(place - group_first + 1);
          }
          part.repeats = part.repeats || place > group_first;
        }
      }
      part.block_segment.push_back(num_segments);
      part.segment_first.push_back(h.num_rows);
      s.num_blocks = num_blocks_here;
      s.num_segments = num_segments;
    }
    const size_t count = to - from;
    static_cast<void>(count);
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < num_threads; ++i) {
    threads.emplace_back(work, i);
  }
  work(0);
  for (std::thread& t : threads) {
    t.join();
  }
  std::vector<int32_t> segment_block;
  for (int i = 0; i < num_threads; ++i) {
    Part& part = parts[static_cast<size_t>(i)];
    const size_t from =
        num_tiles * static_cast<size_t>(i) / static_cast<size_t>(num_threads);
    const size_t to = num_tiles * static_cast<size_t>(i + 1) /
                      static_cast<size_t>(num_threads);
    for (size_t t = from; t < to; ++t) {
      SlotTile& s = index.tile[t];
      s.block_begin += static_cast<int32_t>(index.block_id.size());
      s.segment_begin += static_cast<int32_t>(segment_block.size());
      index.max_blocks = std::max(index.max_blocks, s.num_blocks);
      index.max_segments = std::max(index.max_segments, s.num_segments);
    }
    const auto append = [](std::vector<int32_t>* to_list,
                           const std::vector<int32_t>& list) {
      to_list->insert(to_list->end(), list.begin(), list.end());
    };
    append(&index.block_id, part.block_id);
    append(&index.block_segment, part.block_segment);
    append(&index.segment_first, part.segment_first);
    append(&segment_block, part.segment_block);
    index.repeats = index.repeats || part.repeats;
  }
  MakeRowLists(index.block_id, num_blocks, &index.row_begin, &index.row);
  MakeRowLists(
      segment_block, num_blocks, &index.segment_row_begin, &index.segment_row);
  return index;
}

// Which rows the second stage adds. A block with more than `threshold` of them
// is added in chunks of kRowChunk first.
constexpr int kRowChunk = 512;

struct alignas(16) RowChunk {
  int32_t begin;
  int32_t end;
  int32_t unused[2];
};

struct RowListDevice {
  DeviceArray<int32_t> begin, row, chunk_begin;
  DeviceArray<RowChunk> chunk;
  int num_blocks = 0;
  int num_chunks = 0;
  int64_t num_rows = 0;

  void Upload(const std::vector<int32_t>& begin_in,
              const std::vector<int32_t>& row_in,
              int threshold) {
    num_blocks = static_cast<int>(begin_in.size()) - 1;
    num_rows = static_cast<int64_t>(row_in.size());
    std::vector<RowChunk> chunks;
    std::vector<int32_t> chunk_begins(1, 0);
    for (size_t b = 0; b + 1 < begin_in.size(); ++b) {
      if (begin_in[b + 1] - begin_in[b] > threshold) {
        for (int32_t r = begin_in[b]; r < begin_in[b + 1]; r += kRowChunk) {
          chunks.push_back(
              {r, std::min(begin_in[b + 1], r + kRowChunk), {0, 0}});
        }
      }
      chunk_begins.push_back(static_cast<int32_t>(chunks.size()));
    }
    num_chunks = static_cast<int>(chunks.size());
    begin.Upload(begin_in);
    row.Upload(row_in);
    chunk.Upload(chunks);
    chunk_begin.Upload(chunk_begins);
  }
};

struct SlotDevice {
  DeviceArray<SlotTile> tile;
  DeviceArray<uint32_t> position, group;
  DeviceArray<int32_t> block, block_id, block_segment, segment_first;
  RowListDevice tile_rows, segment_rows;
  int num_blocks = 0;
  int max_blocks = 0;
  int max_segments = 0;
  int64_t num_tile_blocks = 0;
  int64_t num_segments = 0;
  bool repeats = false;

  SlotDevice(const SlotIndex& index, int threshold) {
    tile.Upload(index.tile);
    position.Upload(index.position);
    group.Upload(index.group);
    block.Upload(index.block);
    block_id.Upload(index.block_id);
    block_segment.Upload(index.block_segment);
    segment_first.Upload(index.segment_first);
    tile_rows.Upload(index.row_begin, index.row, threshold);
    segment_rows.Upload(index.segment_row_begin, index.segment_row, threshold);
    num_blocks = index.num_blocks;
    max_blocks = index.max_blocks;
    max_segments = index.max_segments;
    num_tile_blocks = static_cast<int64_t>(index.block_id.size());
    num_segments = static_cast<int64_t>(index.segment_row.size());
    repeats = index.repeats;
  }
};

// ------------------------------------------------------------ second stage --

constexpr int kSumBlock = 256;

struct SumSlot {
  const int32_t* row_begin = nullptr;
  const int32_t* row = nullptr;
  const int32_t* chunk_begin = nullptr;
  const RowChunk* chunk = nullptr;
  const double* chunk_sum = nullptr;
  int32_t first = 0;  // its first thread block
  int columns = 0;
  const void* partial = nullptr;
  const double* diagonal = nullptr;  // null: zero
  const double* p = nullptr;
  double* out = nullptr;
  bool accumulate = false;
};
constexpr int kMaxSlots = 4;
struct SumArgs {
  SumSlot slot[kMaxSlots];
  int num_slots = 0;
};

// sums[r][j], r rows at a time; valid in thread j < columns.
// Order: thread (r, j) adds every num_r-th row, thread j then adds those sums.
template <typename Value, typename RowOf>
__device__ __forceinline__ double SumRows(const Value* values,
                                          int begin,
                                          int end,
                                          int columns,
                                          const RowOf& row_of,
                                          double* sums) {
  const int num_r = kSumBlock / columns;
  const int r = static_cast<int>(threadIdx.x) / columns;
  const int j = static_cast<int>(threadIdx.x) - r * columns;
  double sum = 0.0;
  if (r < num_r) {
#pragma unroll 4
    for (int i = begin + r; i < end; i += num_r) {
      sum += static_cast<double>(values[int64_t{row_of(i)} * columns + j]);
    }
    sums[threadIdx.x] = sum;
  }
  __syncthreads();  // Element j of all rows is summed by one thread.
  sum = 0.0;
  if (static_cast<int>(threadIdx.x) < columns) {
    for (int i = 0; i < num_r; ++i) {
      sum += sums[i * columns + j];
    }
  }
  return sum;
}

// chunk_sum of a chunk = sum of its rows. Mapping: one thread block a chunk.
template <typename T>
__global__ void __launch_bounds__(kSumBlock)
    SumChunksKernel(SumSlot s, double* chunk_sum) {
  __shared__ double sums[kSumBlock];
  const RowChunk chunk = s.chunk[blockIdx.x];
  const double sum = SumRows(
      static_cast<const T*>(s.partial),
      chunk.begin,
      chunk.end,
      s.columns,
      [&](int i) { return s.row[i]; },
      sums);
  if (static_cast<int>(threadIdx.x) < s.columns) {
    chunk_sum[int64_t{s.columns} * blockIdx.x + threadIdx.x] = sum;
  }
}

// out_b = D_b^2 p_b + sum of the rows of block b, of all slots.
// Mapping: one thread block per block.
template <typename T>
__global__ void __launch_bounds__(kSumBlock) SumBlocksKernel(SumArgs args) {
  __shared__ double sums[kSumBlock];
  int slot = 0;
  while (slot + 1 < args.num_slots &&
         static_cast<int>(blockIdx.x) >= args.slot[slot + 1].first) {
    ++slot;
  }
  const SumSlot& s = args.slot[slot];
  const int b = static_cast<int>(blockIdx.x) - s.first;
  double sum;
  if (s.chunk_begin[b + 1] > s.chunk_begin[b]) {
    sum = SumRows(
        s.chunk_sum,
        s.chunk_begin[b],
        s.chunk_begin[b + 1],
        s.columns,
        [](int i) { return i; },
        sums);
  } else {
    sum = SumRows(
        static_cast<const T*>(s.partial),
        s.row_begin[b],
        s.row_begin[b + 1],
        s.columns,
        [&](int i) { return s.row[i]; },
        sums);
  }
  if (static_cast<int>(threadIdx.x) < s.columns) {
    const int64_t at = int64_t{s.columns} * b + threadIdx.x;
    if (s.diagonal != nullptr) {
      const double d = s.diagonal[at];
      sum += d * d * s.p[at];
    }
    s.out[at] = s.accumulate ? s.out[at] + sum : sum;
  }
}

// ---------------------------------------------------------------- products --

template <int... kC>
struct Slots {
  static constexpr int kCount = sizeof...(kC);
  __host__ __device__ static constexpr int Columns(int s) {
    const int c[] = {kC...};
    return c[s];
  }
  // Columns before slot s.
  __host__ __device__ static constexpr int Offset(int s) {
    const int c[] = {kC...};
    int sum = 0;
    for (int i = 0; i < s; ++i) {
      sum += c[i];
    }
    return sum;
  }
  static constexpr int kTotal = (0 + ... + kC);
};

template <typename F, int... kI>
__device__ __forceinline__ void ForEachSlot(F&& f,
                                            std::integer_sequence<int, kI...>) {
  (f(std::integral_constant<int, kI>()), ...);
}
template <typename S, typename F>
__device__ __forceinline__ void ForEachSlot(F&& f) {
  ForEachSlot(f, std::make_integer_sequence<int, S::kCount>());
}

struct ProductSlot {
  const void* f = nullptr;  // 2 columns arrays of num_rows
  const SlotTile* tile = nullptr;
  const uint32_t* position = nullptr;
  const int32_t* block = nullptr;
  const int32_t* block_id = nullptr;
  const int32_t* block_segment = nullptr;
  const int32_t* segment_first = nullptr;
  const double* p = nullptr;
  void* partial = nullptr;  // columns per tile block
  int columns = 0;
  int max_blocks = 0;
  int max_segments = 0;
};

struct ProductArgs {
  const TileHeader* header = nullptr;
  const int32_t* point_id = nullptr;
  const int32_t* point_begin = nullptr;
  const int32_t* long_point = nullptr;
  const void* e = nullptr;            // 6 arrays of num_rows
  const double* v_inverse = nullptr;  // 6 arrays of num_points
  int64_t num_rows = 0;
  int64_t num_points = 0;
  int num_tiles = 0;
  int tile_begin = 0;
  int max_points = 0;
  double* long_e = nullptr;     // 3 per long point
  double* point_sum = nullptr;  // 3 per point, halves
  const double* point_e = nullptr;
  int prefetch_tiles = 0;  // ask L2 for the tile that far ahead; 0: not
  bool tree = false;       // a tile with one block of a slot sums by warps
  ProductSlot slot[kMaxSlots];
  int num_slots = 0;
};

enum ProductMode : int { kFused = 0, kFirstHalf = 1, kSecondHalf = 2 };

// Sum over a full warp of each v[i], i < kSize (a power of 2), by halving the
// array; lane l < kSize gets that of v[l]. Order: a fixed tree.
template <int kHalf, int kSize>
__device__ __forceinline__ double HalveOverWarp(int lane, double* v) {
  if constexpr (kHalf >= 1) {
    const bool upper = (lane & kHalf) != 0;
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const double send = upper ? v[i] : v[i + kHalf];
      const double keep = upper ? v[i + kHalf] : v[i];
      v[i] = keep + __shfl_xor_sync(kAllLanes, send, kHalf);
    }
    return HalveOverWarp<kHalf / 2, kSize>(lane, v);
  } else {
    double sum = v[0];
#pragma unroll
    for (int bit = kSize; bit < kWarp; bit *= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, bit);
    }
    return sum;
  }
}

__host__ __device__ constexpr int PowerOf2(int n) {
  int p = 1;
  while (p < n) {
    p *= 2;
  }
  return p;
}

__device__ __forceinline__ void Prefetch(const void* p) {
#ifdef __CUDACC__
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#else
  static_cast<void>(p);
#endif
}

// Sums of a slot over its tile blocks: area holds C values of each place,
// Odd(C) apart. Segments first, each in place, where a block has more than one.
// Order: ascending places of a segment, ascending segments of a block.
template <typename T>
__device__ __forceinline__ void SumTileBlocks(const ProductSlot& slot,
                                              const SlotTile& tile,
                                              int tile_number,
                                              int columns,
                                              const int* segment_first,
                                              T* area) {
  const int stride = Odd(columns);
  T* const partial =
      static_cast<T*>(slot.partial) + int64_t{columns} * tile.block_begin;
  const bool cut = tile.num_segments != tile.num_blocks;
  for (int i = static_cast<int>(threadIdx.x); i < columns * tile.num_segments;
       i += kBlock) {
    const int s = i / columns;
    const int j = i - s * columns;
    const int first = segment_first[s];
    const int last = segment_first[s + 1];
    double sum = 0.0;
    for (int place = first; place < last; ++place) {
      sum += static_cast<double>(area[stride * place + j]);
    }
    if (cut) {
      area[stride * first + j] = static_cast<T>(sum);
    } else {
      partial[i] = static_cast<T>(sum);
    }
  }
  if (!cut) {
    return;
  }
  __syncthreads();  // A block's segments belong to several threads.
  const int32_t* block_segment =
      slot.block_segment + tile.block_begin + tile_number;
  for (int i = static_cast<int>(threadIdx.x); i < columns * tile.num_blocks;
       i += kBlock) {
    const int b = i / columns;
    const int j = i - b * columns;
    const int last = block_segment[b + 1];
    double sum = 0.0;
    for (int s = block_segment[b]; s < last; ++s) {
      sum += static_cast<double>(area[stride * segment_first[s] + j]);
    }
    partial[i] = static_cast<T>(sum);
  }
}

// Bytes of shared memory of ProductKernel. columns: of each slot.
int64_t ProductSharedBytes(const ProductArgs& p,
                           int value_size,
                           bool together) {
  int64_t area = 3;
  int64_t sum = 0;
  int64_t vectors = 0;
  int64_t ints = p.max_points + 1;
  for (int s = 0; s < p.num_slots; ++s) {
    const ProductSlot& slot = p.slot[s];
    area = std::max<int64_t>(area, Odd(slot.columns));
    sum += Odd(slot.columns);
    vectors += int64_t{Odd(slot.columns)} * slot.max_blocks;
    ints += slot.max_segments + 1;
  }
  if (together) {
    area = std::max(area, sum);
  }
  return int64_t{48} * p.max_points +
         value_size * (area * kTileRows + 3 * p.max_points + vectors) +
         4 * ints + 16;
}

// q = S p of a tile with fixed columns.
// Inputs, outputs: ProductArgs; partial gets F'y, a row per slot and tile
// block. Mapping: one thread block per tile, one thread per row in point order,
// which keeps its blocks in registers for both halves. Order: a point's rows in
// their order; SumTileBlocks. Traffic: per row its blocks, once and coalesced,
// 4 B of point and 4 B per slot.
template <typename T, int kMinBlocks, int kMode, bool kTogether, typename S>
__global__ void __launch_bounds__(kBlock, kMinBlocks)
    ProductKernel(ProductArgs p) {
  DYNAMIC_SHARED(shared);
  const int thread = static_cast<int>(threadIdx.x);
  const int tile = static_cast<int>(blockIdx.x) + p.tile_begin;
  const TileHeader header = p.header[tile];
  const bool active = thread < header.num_rows;
  const int64_t k = int64_t{header.row_begin} + thread;
  const T* const e_blocks = static_cast<const T*>(p.e);
  T f[2 * S::kTotal];
  T e[6];
  uint32_t position[S::kCount];
  SlotTile slot_tile[S::kCount];
  int point = 0;
  ForEachSlot<S>([&](auto slot) {
    constexpr int s = decltype(slot)::value;
    slot_tile[s] = p.slot[s].tile[tile];
  });
  if (active) {
    ForEachSlot<S>([&](auto slot) {
      constexpr int s = decltype(slot)::value;
      constexpr int kC = S::Columns(s);
      const T* const blocks = static_cast<const T*>(p.slot[s].f);
#pragma unroll
      for (int i = 0; i < 2 * kC; ++i) {
        f[2 * S::Offset(s) + i] = __ldcs(&blocks[i * p.num_rows + k]);
      }
      position[s] = p.slot[s].position[k];
    });
#pragma unroll
    for (int i = 0; i < 6; ++i) {
      e[i] = __ldcs(&e_blocks[i * p.num_rows + k]);
    }
    point = p.point_id[k] - header.point_begin;
  }
  if (p.prefetch_tiles > 0 && tile + p.prefetch_tiles < p.num_tiles) {
    // Lines of 128 B of the tile ahead: its rows begin about there.
    const int64_t ahead =
        k + int64_t{p.prefetch_tiles} * kTileRows - kTileRows / 2;
    constexpr int kPerLine = 128 / static_cast<int>(sizeof(T));
    if (thread % kPerLine == 0 && ahead < p.num_rows) {
      ForEachSlot<S>([&](auto slot) {
        constexpr int s = decltype(slot)::value;
        const T* const blocks = static_cast<const T*>(p.slot[s].f);
#pragma unroll
        for (int i = 0; i < 2 * S::Columns(s); ++i) {
          Prefetch(&blocks[i * p.num_rows + ahead]);
        }
      });
#pragma unroll
      for (int i = 0; i < 6; ++i) {
        Prefetch(&e_blocks[i * p.num_rows + ahead]);
      }
    }
  }

  // All that later phases ask of memory is asked for now.
  double* const v_inverse = reinterpret_cast<double*>(shared);
  T* const area = reinterpret_cast<T*>(v_inverse + 6 * p.max_points);
  int area_size = 3;
  ForEachSlot<S>([&](auto slot) {
    constexpr int kStride = Odd(S::Columns(decltype(slot)::value));
    area_size = kTogether ? area_size + kStride
                          : (area_size < kStride ? kStride : area_size);
  });
  if (kTogether && area_size > 3) {
    area_size -= 3;
    area_size = area_size < 3 ? 3 : area_size;
  }
  T* const motions = area + area_size * kTileRows;
  T* vectors[S::kCount];
  int* segment_first[S::kCount];
  {
    T* next = motions + 3 * p.max_points;
    ForEachSlot<S>([&](auto slot) {
      constexpr int s = decltype(slot)::value;
      vectors[s] = next;
      next += Odd(S::Columns(s)) * p.slot[s].max_blocks;
    });
    int* ints = reinterpret_cast<int*>(next);
    ForEachSlot<S>([&](auto slot) {
      constexpr int s = decltype(slot)::value;
      segment_first[s] = ints;
      ints += p.slot[s].max_segments + 1;
    });
    // point_first follows.
    int* const point_first = ints;
    const int num_points = header.num_points;
    if (kMode == kFused) {
      for (int i = thread; i < 6 * num_points; i += kBlock) {
        const int j = i / num_points;
        v_inverse[i] = p.v_inverse[j * p.num_points + header.point_begin +
                                   (i - j * num_points)];
      }
    }
    if (kMode == kSecondHalf) {
      for (int i = thread; i < 3 * num_points; i += kBlock) {
        motions[i] = static_cast<T>(p.point_e[3 * header.point_begin + i]);
      }
    } else {
      for (int i = thread; i <= num_points; i += kBlock) {
        point_first[i] =
            p.point_begin[header.point_begin + i] - header.row_begin;
      }
    }
    ForEachSlot<S>([&](auto slot) {
      constexpr int s = decltype(slot)::value;
      constexpr int kC = S::Columns(s);
      const ProductSlot& a = p.slot[s];
      if (kMode != kFirstHalf) {
        for (int i = thread; i <= slot_tile[s].num_segments; i += kBlock) {
          segment_first[s][i] =
              a.segment_first[slot_tile[s].segment_begin + tile + i];
        }
      }
      for (int i = thread; i < kC * slot_tile[s].num_blocks; i += kBlock) {
        const int b = i / kC;
        const int j = i - b * kC;
        vectors[s][Odd(kC) * b + j] = static_cast<T>(
            a.p[int64_t{kC} * a.block_id[slot_tile[s].block_begin + b] + j]);
      }
    });
    __syncthreads();  // Vectors of blocks are read by many threads.
    T y[2] = {T(0), T(0)};
    if (active) {
      ForEachSlot<S>([&](auto slot) {
        constexpr int s = decltype(slot)::value;
        constexpr int kC = S::Columns(s);
        const T* const x =
            vectors[s] + Odd(kC) * static_cast<int>(position[s] >> 16);
#pragma unroll
        for (int i = 0; i < kC; ++i) {
          y[0] += f[2 * S::Offset(s) + i] * x[i];
          y[1] += f[2 * S::Offset(s) + kC + i] * x[i];
        }
      });
      if (kMode != kSecondHalf) {
#pragma unroll
        for (int i = 0; i < 3; ++i) {
          area[3 * thread + i] = e[i] * y[0] + e[3 + i] * y[1];
        }
      }
    }
    if (kMode != kSecondHalf) {
      __syncthreads();  // A point's rows belong to several threads.
      if (header.long_point < 0) {
        for (int i = thread; i < num_points; i += kBlock) {
          double sum[3] = {0.0, 0.0, 0.0};
          const int last = point_first[i + 1];
          for (int o = point_first[i]; o < last; ++o) {
#pragma unroll
            for (int j = 0; j < 3; ++j) {
              sum[j] += static_cast<double>(area[3 * o + j]);
            }
          }
          if (kMode == kFirstHalf) {
#pragma unroll
            for (int j = 0; j < 3; ++j) {
              p.point_sum[3 * (int64_t{header.point_begin} + i) + j] = sum[j];
            }
          } else {
            const double* const v = v_inverse + i;
            const double v1 = v[num_points];
            const double v3 = v[3 * num_points];
            const double v4 = v[4 * num_points];
            motions[3 * i] =
                static_cast<T>(v[0] * sum[0] + v1 * sum[1] + v3 * sum[2]);
            motions[3 * i + 1] = static_cast<T>(
                v1 * sum[0] + v[2 * num_points] * sum[1] + v4 * sum[2]);
            motions[3 * i + 2] = static_cast<T>(v3 * sum[0] + v4 * sum[1] +
                                                v[5 * num_points] * sum[2]);
          }
        }
      } else if (kMode == kFused && thread < 3) {
        motions[thread] =
            static_cast<T>(p.long_e[3 * header.long_point + thread]);
      }
      if (kMode == kFirstHalf) {
        return;  // The whole block leaves.
      }
      __syncthreads();  // Motions go to many threads, and the area is used
                        // anew.
    }
    if (active) {
      const T* const u = motions + 3 * point;
      y[0] -= e[0] * u[0] + e[1] * u[1] + e[2] * u[2];
      y[1] -= e[3] * u[0] + e[4] * u[1] + e[5] * u[2];
    }
    T* slot_area = area;
    ForEachSlot<S>([&](auto slot) {
      constexpr int s = decltype(slot)::value;
      constexpr int kC = S::Columns(s);
      const bool tree = p.tree && slot_tile[s].num_blocks == 1;
      if (!kTogether && s > 0) {
        __syncthreads();  // The area is used anew.
      }
      if (tree) {
        constexpr int kPadded = PowerOf2(kC);
        double v[kPadded];
#pragma unroll
        for (int i = 0; i < kPadded; ++i) {
          v[i] = 0.0;
        }
        if (active) {
#pragma unroll
          for (int i = 0; i < kC; ++i) {
            v[i] = static_cast<double>(f[2 * S::Offset(s) + i] * y[0] +
                                       f[2 * S::Offset(s) + kC + i] * y[1]);
          }
        }
        const int lane = thread % kWarp;
        const double sum = HalveOverWarp<kPadded / 2, kPadded>(lane, v);
        if (lane < kC) {
          slot_area[kC * (thread / kWarp) + lane] = static_cast<T>(sum);
        }
      } else if (active) {
        T* const out =
            slot_area + Odd(kC) * static_cast<int>(position[s] & 0xffff);
#pragma unroll
        for (int i = 0; i < kC; ++i) {
          out[i] = f[2 * S::Offset(s) + i] * y[0] +
                   f[2 * S::Offset(s) + kC + i] * y[1];
        }
      }
      if (!kTogether || s == S::kCount - 1) {
        __syncthreads();  // A block's rows belong to several threads.
        T* sum_area = kTogether ? area : slot_area;
        ForEachSlot<S>([&](auto other) {
          constexpr int o = decltype(other)::value;
          if (kTogether || o == s) {
            constexpr int kD = S::Columns(o);
            if (p.tree && slot_tile[o].num_blocks == 1) {
              if (thread < kD) {
                double sum = 0.0;
#pragma unroll
                for (int w = 0; w < kBlock / kWarp; ++w) {
                  sum += static_cast<double>(sum_area[kD * w + thread]);
                }
                static_cast<T*>(
                    p.slot[o].partial)[int64_t{kD} * slot_tile[o].block_begin +
                                       thread] = static_cast<T>(sum);
              }
            } else {
              SumTileBlocks(p.slot[o],
                            slot_tile[o],
                            tile,
                            kD,
                            segment_first[o],
                            sum_area);
            }
            if (kTogether) {
              sum_area += Odd(kD) * kTileRows;
            }
          }
        });
      }
      if (kTogether) {
        slot_area += Odd(kC) * kTileRows;
      }
    });
  }
}

// Asks for one value on its way to shared memory; WaitForCopies waits for all
// that this thread has asked for.
template <typename T>
__device__ __forceinline__ void CopyAsync(T* to, const T* from) {
#ifdef __CUDACC__
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address),
               "l"(from),
               "n"(sizeof(T)));
#else
  *to = *from;
#endif
}
__device__ __forceinline__ void WaitForCopies() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// As ProductSharedBytes, of RuntimeProductKernel.
int64_t RuntimeSharedBytes(const ProductArgs& p, int value_size, bool staged) {
  int64_t values = 0;
  if (staged) {
    values = 6;
    for (int s = 0; s < p.num_slots; ++s) {
      values += 2 * p.slot[s].columns;
    }
  }
  return ProductSharedBytes(p, value_size, false) +
         values * kTileRows * value_size;
}

// q = S p of a tile, columns and slots known at run time. kStaged: a thread's
// blocks wait in shared memory, [element][row]; else they are read from memory
// twice, the second time from cache it is hoped.
// Mapping, order: as ProductKernel.
template <typename T, bool kStaged>
__global__ void __launch_bounds__(kBlock,
                                  (sizeof(T) == 8 ? 2 : 4) * (kStaged ? 1 : 2))
    RuntimeProductKernel(ProductArgs p) {
  DYNAMIC_SHARED(shared);
  const int thread = static_cast<int>(threadIdx.x);
  const int tile = static_cast<int>(blockIdx.x) + p.tile_begin;
  const TileHeader header = p.header[tile];
  const int num_points = header.num_points;
  const bool active = thread < header.num_rows;
  const int64_t k = int64_t{header.row_begin} + thread;
  const T* const e_blocks = static_cast<const T*>(p.e);
  double* const v_inverse = reinterpret_cast<double*>(shared);
  T* const area = reinterpret_cast<T*>(v_inverse + 6 * p.max_points);
  int area_size = 3;
  int total = 0;
  for (int s = 0; s < p.num_slots; ++s) {
    const int stride = Odd(p.slot[s].columns);
    area_size = area_size < stride ? stride : area_size;
    total += p.slot[s].columns;
  }
  T* const stage = area + area_size * kTileRows;  // 2 total, then 6, of E
  T* const motions = stage + (kStaged ? (2 * total + 6) * kTileRows : 0);
  T* const vectors = motions + 3 * p.max_points;
  int vectors_size = 0;
  for (int s = 0; s < p.num_slots; ++s) {
    vectors_size += Odd(p.slot[s].columns) * p.slot[s].max_blocks;
  }
  int* const ints = reinterpret_cast<int*>(vectors + vectors_size);
  int point = 0;
  T e[6] = {};
  if (active) {
    if (kStaged) {
      int at = 0;
      for (int s = 0; s < p.num_slots; ++s) {
        const T* from = static_cast<const T*>(p.slot[s].f) + k;
        const int n = 2 * p.slot[s].columns;
#pragma unroll 4
        for (int i = 0; i < n; ++i) {
          CopyAsync(&stage[(at + i) * kTileRows + thread], from);
          from += p.num_rows;
        }
        at += n;
      }
    }
#pragma unroll
    for (int i = 0; i < 6; ++i) {
      e[i] = __ldcs(&e_blocks[i * p.num_rows + k]);
    }
    point = p.point_id[k] - header.point_begin;
  }
  for (int i = thread; i < 6 * num_points; i += kBlock) {
    const int j = i / num_points;
    v_inverse[i] = p.v_inverse[j * p.num_points + header.point_begin +
                               (i - j * num_points)];
  }
  int* const point_first = ints;
  for (int i = thread; i <= num_points; i += kBlock) {
    point_first[i] = p.point_begin[header.point_begin + i] - header.row_begin;
  }
  {
    int* segment_first = ints + p.max_points + 1;
    T* x = vectors;
    for (int s = 0; s < p.num_slots; ++s) {
      const ProductSlot& a = p.slot[s];
      const SlotTile t = a.tile[tile];
      for (int i = thread; i <= t.num_segments; i += kBlock) {
        segment_first[i] = a.segment_first[t.segment_begin + tile + i];
      }
      for (int i = thread; i < a.columns * t.num_blocks; i += kBlock) {
        const int b = i / a.columns;
        const int j = i - b * a.columns;
        x[Odd(a.columns) * b + j] = static_cast<T>(
            a.p[int64_t{a.columns} * a.block_id[t.block_begin + b] + j]);
      }
      segment_first += a.max_segments + 1;
      x += Odd(a.columns) * a.max_blocks;
    }
  }
  if (kStaged) {
    WaitForCopies();
  }
  __syncthreads();  // Vectors of blocks are read by many threads.
  T y[2] = {T(0), T(0)};
  if (active) {
    const T* x = vectors;
    const T* f0 = stage + thread;
    for (int s = 0; s < p.num_slots; ++s) {
      const ProductSlot& a = p.slot[s];
      const int columns = a.columns;
      const T* const x_b =
          x + Odd(columns) * static_cast<int>(a.position[k] >> 16);
      const int64_t step = kStaged ? int64_t{kTileRows} : p.num_rows;
      if (!kStaged) {
        f0 = static_cast<const T*>(a.f) + k;
      }
      const T* const f1 = f0 + columns * step;
#pragma unroll 4
      for (int i = 0; i < columns; ++i) {
        y[0] += f0[i * step] * x_b[i];
        y[1] += f1[i * step] * x_b[i];
      }
      f0 += 2 * columns * step;
      x += Odd(columns) * a.max_blocks;
    }
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      area[3 * thread + i] = e[i] * y[0] + e[3 + i] * y[1];
    }
  }
  __syncthreads();  // A point's rows belong to several threads.
  if (header.long_point < 0) {
    for (int i = thread; i < num_points; i += kBlock) {
      double sum[3] = {0.0, 0.0, 0.0};
      const int last = point_first[i + 1];
      for (int o = point_first[i]; o < last; ++o) {
#pragma unroll
        for (int j = 0; j < 3; ++j) {
          sum[j] += static_cast<double>(area[3 * o + j]);
        }
      }
      const double* const v = v_inverse + i;
      const double v1 = v[num_points];
      const double v3 = v[3 * num_points];
      const double v4 = v[4 * num_points];
      motions[3 * i] =
          static_cast<T>(v[0] * sum[0] + v1 * sum[1] + v3 * sum[2]);
      motions[3 * i + 1] = static_cast<T>(
          v1 * sum[0] + v[2 * num_points] * sum[1] + v4 * sum[2]);
      motions[3 * i + 2] = static_cast<T>(v3 * sum[0] + v4 * sum[1] +
                                          v[5 * num_points] * sum[2]);
    }
  } else if (thread < 3) {
    motions[thread] = static_cast<T>(p.long_e[3 * header.long_point + thread]);
  }
  __syncthreads();  // Motions go to many threads, and the area is used anew.
  if (active) {
    const T* const u = motions + 3 * point;
    y[0] -= e[0] * u[0] + e[1] * u[1] + e[2] * u[2];
    y[1] -= e[3] * u[0] + e[4] * u[1] + e[5] * u[2];
  }
  const T* f0 = stage + thread;
  const int* segment_first = ints + p.max_points + 1;
  for (int s = 0; s < p.num_slots; ++s) {
    const ProductSlot& a = p.slot[s];
    const int columns = a.columns;
    const int64_t step = kStaged ? int64_t{kTileRows} : p.num_rows;
    if (s > 0) {
      __syncthreads();  // The area is used anew.
    }
    if (active) {
      if (!kStaged) {
        f0 = static_cast<const T*>(a.f) + k;
      }
      const T* const f1 = f0 + columns * step;
      T* const out =
          area + Odd(columns) * static_cast<int>(a.position[k] & 0xffff);
#pragma unroll 4
      for (int i = 0; i < columns; ++i) {
        out[i] = f0[i * step] * y[0] + f1[i * step] * y[1];
      }
    }
    f0 += 2 * columns * step;
    __syncthreads();  // A block's rows belong to several threads.
    SumTileBlocks(a, a.tile[tile], tile, columns, segment_first, area);
    segment_first += a.max_segments + 1;
  }
}

// e_p of long points (halves: their sums). Mapping: one thread block a point,
// any columns. Order: every 256th row, then a tree.
template <typename T, int kMode>
__global__ void __launch_bounds__(kBlock) LongPointKernel(ProductArgs p) {
  __shared__ double sums[3 * kBlock];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t point = p.long_point[blockIdx.x];
  const T* const e = static_cast<const T*>(p.e);
  double sum[3] = {0.0, 0.0, 0.0};
  for (int64_t k = p.point_begin[point] + thread; k < p.point_begin[point + 1];
       k += kBlock) {
    T y[2] = {T(0), T(0)};
    for (int s = 0; s < p.num_slots; ++s) {
      const ProductSlot& slot = p.slot[s];
      const T* const f = static_cast<const T*>(slot.f);
      const double* const x = slot.p + int64_t{slot.columns} * slot.block[k];
      for (int i = 0; i < slot.columns; ++i) {
        y[0] += f[i * p.num_rows + k] * static_cast<T>(x[i]);
        y[1] += f[(slot.columns + i) * p.num_rows + k] * static_cast<T>(x[i]);
      }
    }
    for (int i = 0; i < 3; ++i) {
      sum[i] += static_cast<double>(e[i * p.num_rows + k] * y[0] +
                                    e[(3 + i) * p.num_rows + k] * y[1]);
    }
  }
  for (int i = 0; i < 3; ++i) {
    sums[3 * thread + i] = sum[i];
  }
  for (int half = kBlock / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) {
      for (int i = 0; i < 3; ++i) {
        sums[3 * thread + i] += sums[3 * (thread + half) + i];
      }
    }
  }
  if (thread == 0) {
    const auto v = [&](int i) { return p.v_inverse[i * p.num_points + point]; };
    if (kMode == kFirstHalf) {
      for (int i = 0; i < 3; ++i) {
        p.point_sum[3 * point + i] = sums[i];
      }
    } else {
      double* const out = p.long_e + 3 * blockIdx.x;
      out[0] = v(0) * sums[0] + v(1) * sums[1] + v(3) * sums[2];
      out[1] = v(1) * sums[0] + v(2) * sums[1] + v(4) * sums[2];
      out[2] = v(3) * sums[0] + v(4) * sums[1] + v(5) * sums[2];
    }
  }
}

// e_p = Vi_p s_p. Mapping: one thread per point from `first` on.
__global__ void __launch_bounds__(kBlock)
    EliminateKernel(int64_t first,
                    int64_t num_points,
                    const double* v_inverse,
                    const double* point_sum,
                    double* point_e) {
  const int64_t p = first + int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (p >= num_points) {
    return;
  }
  double v[6];
  double s[3];
  for (int i = 0; i < 6; ++i) {
    v[i] = v_inverse[i * num_points + p];
  }
  for (int i = 0; i < 3; ++i) {
    s[i] = point_sum[3 * p + i];
  }
  point_e[3 * p] = v[0] * s[0] + v[1] * s[1] + v[3] * s[2];
  point_e[3 * p + 1] = v[1] * s[0] + v[2] * s[1] + v[4] * s[2];
  point_e[3 * p + 2] = v[3] * s[0] + v[4] * s[1] + v[5] * s[2];
}

// q_c += sum of F'(F p) over rows of kR residuals and one block of kC columns,
// sorted by block. Mapping: one thread per block.
template <typename T, int kR, int kC>
__global__ void __launch_bounds__(kBlock) PriorKernel(int num_blocks,
                                                      int64_t num_rows,
                                                      const int32_t* row_begin,
                                                      const T* f,
                                                      const double* p,
                                                      double* q) {
  const int b = static_cast<int>(blockIdx.x * kBlock + threadIdx.x);
  if (b >= num_blocks) {
    return;
  }
  double sum[kC] = {};
  for (int32_t k = row_begin[b]; k < row_begin[b + 1]; ++k) {
#pragma unroll
    for (int r = 0; r < kR; ++r) {
      T y = T(0);
      T row[kC];
#pragma unroll
      for (int i = 0; i < kC; ++i) {
        row[i] = f[(r * kC + i) * num_rows + k];
        y += row[i] * static_cast<T>(p[kC * b + i]);
      }
#pragma unroll
      for (int i = 0; i < kC; ++i) {
        sum[i] += static_cast<double>(row[i] * y);
      }
    }
  }
  for (int i = 0; i < kC; ++i) {
    q[kC * b + i] += sum[i];
  }
}

// ------------------------------------------------------------ normal blocks --

struct alignas(16) PointRecord {
  double v_inverse[6];
  double step[3];
  double unused;
};

// Vi = (sum E'E + D^2)^-1 and Vi g. Mapping: one thread per point.
template <typename T>
__global__ void __launch_bounds__(kBlock)
    PointBlocksKernel(int64_t num_points,
                      int64_t num_rows,
                      const int32_t* point_begin,
                      const T* e,
                      const double* b,
                      double diagonal,
                      double* v_inverse,
                      PointRecord* records) {
  const int64_t p = int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (p >= num_points) {
    return;
  }
  const double d2 = diagonal * diagonal;
  double v[6] = {d2, 0.0, d2, 0.0, 0.0, d2};
  double g[3] = {0.0, 0.0, 0.0};
  for (int64_t k = point_begin[p]; k < point_begin[p + 1]; ++k) {
    double j[6];
#pragma unroll
    for (int i = 0; i < 6; ++i) {
      j[i] = static_cast<double>(e[i * num_rows + k]);
    }
    const double b0 = b[2 * k];
    const double b1 = b[2 * k + 1];
#pragma unroll
    for (int i = 0; i < 3; ++i) {
#pragma unroll
      for (int o = 0; o <= i; ++o) {
        v[PackedIndex(i, o)] += j[i] * j[o] + j[3 + i] * j[3 + o];
      }
      g[i] += j[i] * b0 + j[3 + i] * b1;
    }
  }
  // Cofactors: well conditioned enough here.
  const double c0 = v[2] * v[5] - v[4] * v[4];
  const double c1 = v[3] * v[4] - v[1] * v[5];
  const double c3 = v[1] * v[4] - v[2] * v[3];
  const double scale = 1.0 / (v[0] * c0 + v[1] * c1 + v[3] * c3);
  PointRecord r;
  r.v_inverse[0] = c0 * scale;
  r.v_inverse[1] = c1 * scale;
  r.v_inverse[2] = (v[0] * v[5] - v[3] * v[3]) * scale;
  r.v_inverse[3] = c3 * scale;
  r.v_inverse[4] = (v[1] * v[3] - v[0] * v[4]) * scale;
  r.v_inverse[5] = (v[0] * v[2] - v[1] * v[1]) * scale;
  r.step[0] =
      r.v_inverse[0] * g[0] + r.v_inverse[1] * g[1] + r.v_inverse[3] * g[2];
  r.step[1] =
      r.v_inverse[1] * g[0] + r.v_inverse[2] * g[1] + r.v_inverse[4] * g[2];
  r.step[2] =
      r.v_inverse[3] * g[0] + r.v_inverse[4] * g[1] + r.v_inverse[5] * g[2];
  r.unused = 0.0;
#pragma unroll
  for (int i = 0; i < 6; ++i) {
    v_inverse[i * num_points + p] = r.v_inverse[i];
  }
  records[p] = r;
}

struct NormalArgs {
  const TileHeader* header = nullptr;
  const int32_t* point_id = nullptr;
  const void* e = nullptr;
  const double* b = nullptr;
  const PointRecord* records = nullptr;
  int64_t num_rows = 0;
  ProductSlot slot;
  const uint32_t* group = nullptr;  // null: no repeats
  double* partial = nullptr;        // row of each segment
  // Today's form.
  const int32_t* camera_begin = nullptr;
  const int32_t* camera_entry = nullptr;
  const int32_t* entry_point = nullptr;
  const int32_t* chunk_camera = nullptr;
  const int32_t* camera_chunk_begin = nullptr;
};

template <int kC>
struct NormalShape {
  static constexpr int kRow = PackedSize(kC) + kC;  // matrix, then vector
  static constexpr int kF = Odd(2 * kC);
  static constexpr int kT = Odd(2 * (kC + 1));
};

// x = Vi a, Vi packed.
__device__ __forceinline__ void Multiply3(const double* v,
                                          const double* a,
                                          double* x) {
  x[0] = v[0] * a[0] + v[1] * a[1] + v[3] * a[2];
  x[1] = v[1] * a[0] + v[2] * a[1] + v[4] * a[2];
  x[2] = v[3] * a[0] + v[4] * a[1] + v[5] * a[2];
}

// Stages F and T = F - E Vi Z' (without kEliminated: F), Z = sum of F'E over
// the rows of one block and point, with y = b - E Vi g as column C of T:
//   U, S_c, rhs = sum over rows of F' [T y].
// fs: kF a place; ts: kT a place. Ends with a barrier.
template <typename T, int kC, bool kEliminated, bool kGroups>
__device__ __forceinline__ void StageRows(const NormalArgs& p,
                                          const TileHeader& header,
                                          T* fs,
                                          double* ts) {
  using N = NormalShape<kC>;
  const int thread = static_cast<int>(threadIdx.x);
  const bool active = thread < header.num_rows;
  const int64_t k = int64_t{header.row_begin} + thread;
  const T* const blocks = static_cast<const T*>(p.slot.f);
  const T* const e_blocks = static_cast<const T*>(p.e);
  double f[2 * kC];
  double e[6] = {};
  double y[2] = {0.0, 0.0};
  PointRecord record = {};
  int place = 0;
  uint32_t group = 1;
  if (active) {
#pragma unroll
    for (int i = 0; i < 2 * kC; ++i) {
      f[i] = static_cast<double>(__ldcs(&blocks[i * p.num_rows + k]));
    }
    y[0] = p.b[2 * k];
    y[1] = p.b[2 * k + 1];
    place = static_cast<int>(p.slot.position[k] & 0xffff);
    if (kEliminated) {
#pragma unroll
      for (int i = 0; i < 6; ++i) {
        e[i] = static_cast<double>(__ldcs(&e_blocks[i * p.num_rows + k]));
      }
      record = p.records[p.point_id[k]];
      if (kGroups) {
        group = p.group[k];
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        y[i] -= e[3 * i] * record.step[0] + e[3 * i + 1] * record.step[1] +
                e[3 * i + 2] * record.step[2];
      }
    }
#pragma unroll
    for (int i = 0; i < 2 * kC; ++i) {
      fs[N::kF * place + i] = static_cast<T>(f[i]);
    }
  }
  if (kEliminated) {
    if (!kGroups) {
      // T = (I - E Vi E') F.
      double m[3];
      {
        double x[3];
        Multiply3(record.v_inverse, e, x);
        m[0] = 1.0 - (e[0] * x[0] + e[1] * x[1] + e[2] * x[2]);
        m[1] = -(e[3] * x[0] + e[4] * x[1] + e[5] * x[2]);
        Multiply3(record.v_inverse, e + 3, x);
        m[2] = 1.0 - (e[3] * x[0] + e[4] * x[1] + e[5] * x[2]);
      }
#pragma unroll
      for (int i = 0; i < kC; ++i) {
        const double a = f[i];
        const double c = f[kC + i];
        f[i] = m[0] * a + m[1] * c;
        f[kC + i] = m[1] * a + m[2] * c;
      }
    } else {
      // W of a group is summed by its first row, as many columns at a time as
      // a row of ts holds.
      constexpr int kStep = N::kT / 3;
      const int first = static_cast<int>(group >> 16);
      const int count = static_cast<int>(group & 0xffff);
#pragma unroll
      for (int c = 0; c < kC; c += kStep) {
        const int end = c + kStep < kC ? c + kStep : kC;
        if (c > 0) {
          __syncthreads();  // The columns before have been read.
        }
        if (active) {
#pragma unroll
          for (int i = c; i < c + kStep; ++i) {
            if (i < end) {
              double* const w = ts + N::kT * place + 3 * (i - c);
              w[0] = e[0] * f[i] + e[3] * f[kC + i];
              w[1] = e[1] * f[i] + e[4] * f[kC + i];
              w[2] = e[2] * f[i] + e[5] * f[kC + i];
            }
          }
        }
        __syncthreads();  // A group's rows belong to several threads.
        if (active && place == first) {
          for (int i = 0; i < end - c; ++i) {
            double z[3] = {0.0, 0.0, 0.0};
            for (int o = first; o < first + count; ++o) {
              const double* const w = ts + N::kT * o + 3 * i;
              z[0] += w[0];
              z[1] += w[1];
              z[2] += w[2];
            }
            Multiply3(record.v_inverse, z, ts + N::kT * first + 3 * i);
          }
        }
        __syncthreads();  // Vi Z' goes to the group.
        if (active) {
#pragma unroll
          for (int i = c; i < c + kStep; ++i) {
            if (i < end) {
              const double* const x = ts + N::kT * first + 3 * (i - c);
              f[i] -= e[0] * x[0] + e[1] * x[1] + e[2] * x[2];
              f[kC + i] -= e[3] * x[0] + e[4] * x[1] + e[5] * x[2];
            }
          }
        }
      }
      __syncthreads();  // ts is used anew.
    }
  }
  if (active) {
    double* const t = ts + N::kT * place;
#pragma unroll
    for (int i = 0; i < kC; ++i) {
      t[i] = f[i];
      t[kC + 1 + i] = f[kC + i];
    }
    t[kC] = y[0];
    t[2 * kC + 1] = y[1];
  }
  __syncthreads();  // A block's rows belong to several threads.
}

// partial row of each segment of a tile = packed sum of F' T, then F' y.
// Mapping: one thread block per tile; a thread per element of a segment's row.
// Order: ascending places. Traffic: blocks once, coalesced.
template <typename T, int kC, bool kEliminated, bool kGroups>
__global__ void __launch_bounds__(kBlock, kC <= 12 ? 2 : 1)
    NormalTileKernel(NormalArgs p) {
  using N = NormalShape<kC>;
  DYNAMIC_SHARED(shared);
  double* const ts = reinterpret_cast<double*>(shared);
  T* const fs = reinterpret_cast<T*>(ts + N::kT * kTileRows);
  unsigned char* const pairs =
      reinterpret_cast<unsigned char*>(fs + N::kF * kTileRows);
  const int thread = static_cast<int>(threadIdx.x);
  const int tile = static_cast<int>(blockIdx.x);
  const TileHeader header = p.header[tile];
  const SlotTile slot_tile = p.slot.tile[tile];
  if (thread < N::kRow) {
    int i = 0;
    while (PackedIndex(i + 1, 0) <= thread) {
      ++i;
    }
    pairs[2 * thread] = static_cast<unsigned char>(i);
    pairs[2 * thread + 1] =
        static_cast<unsigned char>(thread - PackedIndex(i, 0));
  }
  const int32_t* const segment_first =
      p.slot.segment_first + slot_tile.segment_begin + tile;
  StageRows<T, kC, kEliminated, kGroups>(p, header, fs, ts);
  double* const out = p.partial + int64_t{N::kRow} * slot_tile.segment_begin;
  for (int item = thread; item < N::kRow * slot_tile.num_segments;
       item += kBlock) {
    const int s = item / N::kRow;
    const int at = item - s * N::kRow;
    const int i = pairs[2 * at];
    const int j = pairs[2 * at + 1];
    const int first = segment_first[s];
    const int last = segment_first[s + 1];
    const double* t = ts + N::kT * first + i;
    const T* f = fs + N::kF * first + j;
    double sum = 0.0;
    for (int place = first; place < last; ++place) {
      sum += t[0] * static_cast<double>(f[0]) +
             t[kC + 1] * static_cast<double>(f[kC]);
      t += N::kT;
      f += N::kF;
    }
    out[item] = sum;
  }
}

template <typename T, int kC>
int64_t NormalTileBytes() {
  using N = NormalShape<kC>;
  return kTileRows * (8 * N::kT + static_cast<int64_t>(sizeof(T)) * N::kF) +
         2 * N::kRow + 16;
}

// Today's form (cuda_kernels/cuda/camera_chunks.cuh), without repeats.
constexpr int kChunkBlock = 128;
constexpr int kCameraChunk = 4096;

template <typename T, int kC, bool kEliminated>
__global__ void __launch_bounds__(kChunkBlock) CameraChunkKernel(NormalArgs p) {
  using N = NormalShape<kC>;
  constexpr int kNumWarps = kChunkBlock / kWarp;
  __shared__ double rows[kNumWarps][N::kRow];
  const int32_t chunk = static_cast<int32_t>(blockIdx.x);
  const int32_t camera = p.chunk_camera[chunk];
  const int64_t begin =
      p.camera_begin[camera] +
      int64_t{kCameraChunk} * (chunk - p.camera_chunk_begin[camera]);
  const int64_t camera_end = p.camera_begin[camera + 1];
  const int64_t end =
      begin + kCameraChunk < camera_end ? begin + kCameraChunk : camera_end;
  const T* const blocks = static_cast<const T*>(p.slot.f);
  const T* const e_blocks = static_cast<const T*>(p.e);
  double row[N::kRow];
#pragma unroll
  for (int i = 0; i < N::kRow; ++i) {
    row[i] = 0.0;
  }
  int64_t j = begin + threadIdx.x;
  int32_t next_k = j < end ? p.camera_entry[j] : 0;
  int32_t next_point = j < end ? p.entry_point[j] : 0;
  for (; j < end; j += kChunkBlock) {
    const int64_t k = next_k;
    const int32_t point = next_point;
    if (j + kChunkBlock < end) {
      next_k = p.camera_entry[j + kChunkBlock];
      next_point = p.entry_point[j + kChunkBlock];
    }
    T f[2 * kC];
    double y[2] = {p.b[2 * k], p.b[2 * k + 1]};
    double m[3] = {1.0, 0.0, 1.0};
#pragma unroll
    for (int i = 0; i < 2 * kC; ++i) {
      f[i] = blocks[i * p.num_rows + k];
    }
    if (kEliminated) {
      const PointRecord r = p.records[point];
      double e[6];
#pragma unroll
      for (int i = 0; i < 6; ++i) {
        e[i] = static_cast<double>(e_blocks[i * p.num_rows + k]);
      }
      double x[3];
      double z[3];
      Multiply3(r.v_inverse, e, x);
      Multiply3(r.v_inverse, e + 3, z);
      m[0] -= e[0] * x[0] + e[1] * x[1] + e[2] * x[2];
      m[1] -= e[3] * x[0] + e[4] * x[1] + e[5] * x[2];
      m[2] -= e[3] * z[0] + e[4] * z[1] + e[5] * z[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        y[i] -= e[3 * i] * r.step[0] + e[3 * i + 1] * r.step[1] +
                e[3 * i + 2] * r.step[2];
      }
    }
#pragma unroll
    for (int i = 0; i < kC; ++i) {
      const double a = static_cast<double>(f[i]);
      const double c = static_cast<double>(f[kC + i]);
      row[PackedSize(kC) + i] += a * y[0] + c * y[1];
      const double t0 = kEliminated ? m[0] * a + m[1] * c : a;
      const double t1 = kEliminated ? m[1] * a + m[2] * c : c;
#pragma unroll
      for (int o = 0; o <= i; ++o) {
        row[PackedIndex(i, o)] += t0 * static_cast<double>(f[o]) +
                                  t1 * static_cast<double>(f[kC + o]);
      }
    }
  }
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int i = 0; i < N::kRow; i += kWarp) {
    double v[kWarp];
#pragma unroll
    for (int o = 0; o < kWarp; ++o) {
      v[o] = i + o < N::kRow ? row[i + o < N::kRow ? i + o : 0] : 0.0;
    }
    const double sum = HalveOverWarp<kWarp / 2, kWarp>(lane, v);
    if (i + lane < N::kRow) {
      rows[threadIdx.x / kWarp][i + lane] = sum;
    }
  }
  __syncthreads();  // Warps meet.
  for (int i = static_cast<int>(threadIdx.x); i < N::kRow; i += kChunkBlock) {
    double sum = 0.0;
    for (int w = 0; w < kNumWarps; ++w) {
      sum += rows[w][i];
    }
    p.partial[int64_t{N::kRow} * chunk + i] = sum;
  }
}

// ------------------------------------------------------------------- values --

__device__ __forceinline__ double HashUniform(uint64_t z) {
  z = (z + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-52 - 1.0;
}

// Uniform in (-1, 1). Mapping: a thread strides over elements.
template <typename T>
__global__ void __launch_bounds__(kBlock)
    FillKernel(int64_t n, uint64_t seed, T* out) {
  for (int64_t i = int64_t{blockIdx.x} * kBlock + threadIdx.x; i < n;
       i += int64_t{gridDim.x} * kBlock) {
    out[i] = static_cast<T>(HashUniform(static_cast<uint64_t>(i) * 64 + seed));
  }
}

template <typename T>
void Fill(int64_t n, uint64_t seed, T* out) {
  const int64_t num_blocks = std::min<int64_t>(4096, (n + kBlock - 1) / kBlock);
  Launch("Fill", FillKernel<T>, num_blocks, kBlock, 0, n, seed, out);
}

// ------------------------------------------------------------------ problem --

// Everything that all variants share: rows, tiles, blocks, points.
template <typename T>
struct Problem {
  const Rows* rows = nullptr;
  const Tiles* tiles = nullptr;
  DeviceArray<TileHeader> header;
  DeviceArray<int32_t> point_id, point_begin, long_point;
  DeviceArray<T> e, f;
  DeviceArray<double> b, v_inverse, long_e, point_sum, point_e;
  DeviceArray<PointRecord> records;
  int max_columns = 0;
  double damping = 0.1;

  Problem(const Rows* rows_in, const Tiles* tiles_in, int max_columns_in)
      : rows(rows_in), tiles(tiles_in), max_columns(max_columns_in) {
    header.Upload(tiles->header);
    point_id.Upload(tiles->point_id);
    point_begin.Upload(rows->point_begin);
    long_point.Upload(tiles->long_point);
    const int64_t n = rows->num_rows();
    e.Resize(6 * n);
    f.Resize(2 * max_columns * n);
    b.Resize(2 * n);
    Fill(6 * n, 1, e.data());
    Fill(2 * max_columns * n, 2, f.data());
    Fill(2 * n, 3, b.data());
    v_inverse.Resize(6 * int64_t{rows->num_points});
    records.Resize(rows->num_points);
    point_sum.Resize(3 * int64_t{rows->num_points});
    point_e.Resize(3 * int64_t{rows->num_points});
    long_e.Resize(3 * std::max<int64_t>(1, long_point.size()));
    PointBlocks();
    Synchronize();
  }

  void PointBlocks() {
    Launch("PointBlocks",
           PointBlocksKernel<T>,
           (rows->num_points + kBlock - 1) / kBlock,
           kBlock,
           0,
           int64_t{rows->num_points},
           rows->num_rows(),
           static_cast<const int32_t*>(point_begin.data()),
           static_cast<const T*>(e.data()),
           static_cast<const double*>(b.data()),
           damping,
           v_inverse.data(),
           records.data());
  }
};

// One slot of a product: index, blocks and vectors.
template <typename T>
struct SlotData {
  const SlotDevice* index = nullptr;
  int columns = 0;
  int first_column = 0;  // in Problem::f
  DeviceArray<double> p, q, diagonal;
  DeviceArray<T> partial;
  DeviceArray<double> chunk_sum;

  SlotData(const SlotDevice* index_in, int columns_in, int first_column_in)
      : index(index_in), columns(columns_in), first_column(first_column_in) {
    const int64_t n = int64_t{columns} * index->num_blocks;
    p.Resize(n);
    q.Resize(n);
    diagonal.Resize(n);
    Fill(n, 4 + static_cast<uint64_t>(first_column), p.data());
    Fill(n, 5 + static_cast<uint64_t>(first_column), diagonal.data());
    partial.Resize(columns * index->num_tile_blocks);
    chunk_sum.Resize(
        std::max<int64_t>(1, int64_t{columns} * index->tile_rows.num_chunks));
  }
};

// A product with S by fixed columns.
template <typename T>
class Product {
 public:
  Product(const Problem<T>& problem,
          const std::vector<std::pair<const SlotDevice*, int>>& slots)
      : problem_(problem) {
    int first = 0;
    for (const auto& [index, columns] : slots) {
      slots_.push_back(std::make_unique<SlotData<T>>(index, columns, first));
      first += columns;
    }
    const int64_t n = problem.rows->num_rows();
    args_.header = problem.header.data();
    args_.point_id = problem.point_id.data();
    args_.point_begin = problem.point_begin.data();
    args_.long_point = problem.long_point.data();
    args_.e = problem.e.data();
    args_.v_inverse = problem.v_inverse.data();
    args_.num_rows = n;
    args_.num_points = problem.rows->num_points;
    args_.num_tiles = static_cast<int>(problem.tiles->header.size());
    args_.max_points = problem.tiles->max_points;
    args_.long_e = problem.long_e.data();
    args_.point_sum = problem.point_sum.data();
    args_.point_e = problem.point_e.data();
    args_.num_slots = static_cast<int>(slots_.size());
    int num_blocks = 0;
    for (size_t i = 0; i < slots_.size(); ++i) {
      const SlotData<T>& data = *slots_[i];
      ProductSlot& s = args_.slot[i];
      s.f = problem.f.data() + int64_t{2} * data.first_column * n;
      s.tile = data.index->tile.data();
      s.position = data.index->position.data();
      s.block = data.index->block.data();
      s.block_id = data.index->block_id.data();
      s.block_segment = data.index->block_segment.data();
      s.segment_first = data.index->segment_first.data();
      s.p = data.p.data();
      s.partial = data.partial.data();
      s.columns = data.columns;
      s.max_blocks = data.index->max_blocks;
      s.max_segments = data.index->max_segments;
      SumSlot& sum = sum_.slot[i];
      const RowListDevice& rows = data.index->tile_rows;
      sum.row_begin = rows.begin.data();
      sum.row = rows.row.data();
      sum.chunk_begin = rows.chunk_begin.data();
      sum.chunk = rows.chunk.data();
      sum.chunk_sum = data.chunk_sum.data();
      sum.first = num_blocks;
      sum.columns = data.columns;
      sum.partial = data.partial.data();
      sum.diagonal = data.diagonal.data();
      sum.p = data.p.data();
      sum.out = data.q.data();
      num_blocks += data.index->num_blocks;
    }
    sum_.num_slots = args_.num_slots;
    num_sum_blocks_ = num_blocks;
  }

  ProductArgs& args() { return args_; }
  const Problem<T>& problem() const { return problem_; }
  SlotData<T>& slot(int i) { return *slots_[static_cast<size_t>(i)]; }
  int num_slots() const { return args_.num_slots; }

  void Poison() {
    for (auto& s : slots_) {
      s->partial.Poison();
      s->q.Poison();
      s->chunk_sum.Poison();
    }
  }

  template <int kMinBlocks, bool kTogether, typename S, int kMode = kFused>
  void Tiles(int tile_begin, int tile_end) {
    ProductArgs args = args_;
    args.tile_begin = tile_begin;
    Launch("Product",
           ProductKernel<T, kMinBlocks, kMode, kTogether, S>,
           tile_end - tile_begin,
           kBlock,
           ProductSharedBytes(args, sizeof(T), kTogether),
           args);
  }

  void LongPoints() {
    Launch("LongPoint",
           LongPointKernel<T, kFused>,
           problem_.long_point.size(),
           kBlock,
           0,
           args_);
  }

  template <int kMinBlocks, bool kTogether, typename S>
  void Fused() {
    LongPoints();
    Tiles<kMinBlocks, kTogether, S>(0, args_.num_tiles);
    Sum();
  }

  template <bool kStaged>
  void Runtime() {
    LongPoints();
    Launch("RuntimeProduct",
           RuntimeProductKernel<T, kStaged>,
           args_.num_tiles,
           kBlock,
           RuntimeSharedBytes(args_, sizeof(T), kStaged),
           args_);
    Sum();
  }

  template <int kMinBlocks, typename S>
  void Halves() {
    Tiles<kMinBlocks, false, S, kFirstHalf>(0, args_.num_tiles);
    Launch("LongPoint",
           LongPointKernel<T, kFirstHalf>,
           problem_.long_point.size(),
           kBlock,
           0,
           args_);
    Eliminate(0);
    Tiles<kMinBlocks, false, S, kSecondHalf>(0, args_.num_tiles);
    Sum();
  }

  void Eliminate(int64_t first) {
    Launch("Eliminate",
           EliminateKernel,
           (args_.num_points - first + kBlock - 1) / kBlock,
           kBlock,
           0,
           first,
           args_.num_points,
           args_.v_inverse,
           static_cast<const double*>(args_.point_sum),
           problem_.point_e.data());
  }

  void Sum() {
    for (int i = 0; i < args_.num_slots; ++i) {
      SlotData<T>& data = *slots_[static_cast<size_t>(i)];
      Launch("SumChunks",
             SumChunksKernel<T>,
             data.index->tile_rows.num_chunks,
             kSumBlock,
             0,
             sum_.slot[i],
             data.chunk_sum.data());
    }
    Launch(
        "SumBlocks", SumBlocksKernel<T>, num_sum_blocks_, kSumBlock, 0, sum_);
  }

  // Compulsory bytes: blocks, an id per slot, Vi and the range of a point, p, q
  // and D.
  double Bytes() const {
    double bytes = 6.0 * sizeof(T) * static_cast<double>(args_.num_rows) +
                   56.0 * static_cast<double>(args_.num_points);
    for (const auto& s : slots_) {
      bytes += (2.0 * s->columns * sizeof(T) + 4.0) *
                   static_cast<double>(args_.num_rows) +
               24.0 * static_cast<double>(s->p.size());
    }
    return bytes;
  }

  std::vector<std::vector<double>> Result() {
    std::vector<std::vector<double>> q;
    for (auto& s : slots_) {
      q.push_back(s->q.Download());
    }
    return q;
  }

 private:
  const Problem<T>& problem_;
  ProductArgs args_;
  SumArgs sum_;
  int num_sum_blocks_ = 0;
  std::vector<std::unique_ptr<SlotData<T>>> slots_;
};

// Sums of packed rows of one slot.
template <typename T>
class Normal {
 public:
  Normal(const Problem<T>& problem, const SlotDevice& index, int columns)
      : problem_(problem), index_(index), columns_(columns) {
    const int64_t n = problem.rows->num_rows();
    args_.header = problem.header.data();
    args_.point_id = problem.point_id.data();
    args_.e = problem.e.data();
    args_.b = problem.b.data();
    args_.records = problem.records.data();
    args_.num_rows = n;
    args_.slot.f = problem.f.data();
    args_.slot.tile = index.tile.data();
    args_.slot.position = index.position.data();
    args_.slot.segment_first = index.segment_first.data();
    args_.slot.columns = columns;
    args_.group = index.repeats ? index.group.data() : nullptr;
    row_size_ = PackedSize(columns) + columns;
    out_.Resize(int64_t{row_size_} * index.num_blocks);
    chunk_sum_.Resize(std::max<int64_t>(
        1, int64_t{row_size_} * index.segment_rows.num_chunks));
  }

  int64_t row_size() const { return row_size_; }
  NormalArgs& args() { return args_; }

  // partial: at least row_size per segment.
  void SetPartial(DeviceArray<double>* partial) {
    partial->Resize(int64_t{row_size_} * index_.num_segments);
    args_.partial = partial->data();
  }

  void Poison() {
    out_.Poison();
    chunk_sum_.Poison();
  }

  template <int kC, bool kEliminated>
  void Tiled() {
    Launch("NormalTile",
           kEliminated && args_.group != nullptr
               ? NormalTileKernel<T, kC, kEliminated, kEliminated>
               : NormalTileKernel<T, kC, kEliminated, false>,
           static_cast<int64_t>(problem_.tiles->header.size()),
           kBlock,
           NormalTileBytes<T, kC>(),
           args_);
    Sum();
  }

  void Sum() {
    SumArgs sum;
    sum.num_slots = 1;
    SumSlot& s = sum.slot[0];
    const RowListDevice& rows = index_.segment_rows;
    s.row_begin = rows.begin.data();
    s.row = rows.row.data();
    s.chunk_begin = rows.chunk_begin.data();
    s.chunk = rows.chunk.data();
    s.chunk_sum = chunk_sum_.data();
    s.columns = row_size_;
    s.partial = args_.partial;
    s.out = out_.data();
    Launch("SumChunks",
           SumChunksKernel<double>,
           rows.num_chunks,
           kSumBlock,
           0,
           s,
           chunk_sum_.data());
    Launch("SumBlocks",
           SumBlocksKernel<double>,
           index_.num_blocks,
           kSumBlock,
           0,
           sum);
  }

  // What CameraOrder below makes.
  template <int kC, bool kEliminated>
  void Chunks(const RowListDevice& chunk_rows, int num_chunks) {
    Launch("CameraChunk",
           CameraChunkKernel<T, kC, kEliminated>,
           num_chunks,
           kChunkBlock,
           0,
           args_);
    SumArgs sum;
    sum.num_slots = 1;
    SumSlot& s = sum.slot[0];
    s.row_begin = chunk_rows.begin.data();
    s.row = chunk_rows.row.data();
    s.chunk_begin = chunk_rows.chunk_begin.data();
    s.columns = row_size_;
    s.partial = args_.partial;
    s.out = out_.data();
    Launch("SumBlocks",
           SumBlocksKernel<double>,
           index_.num_blocks,
           kSumBlock,
           0,
           sum);
  }

  std::vector<double> Result() { return out_.Download(); }

  // Blocks of J, b, an id per row, the record of a point, the result.
  double Bytes(bool eliminated) const {
    const double n = static_cast<double>(args_.num_rows);
    return n * (2.0 * columns_ * sizeof(T) + 16 + 4 +
                (eliminated ? 6.0 * sizeof(T) : 0.0)) +
           (eliminated ? 80.0 * problem_.rows->num_points : 0.0) +
           8.0 * static_cast<double>(out_.size());
  }

 private:
  const Problem<T>& problem_;
  const SlotDevice& index_;
  int columns_;
  int row_size_;
  NormalArgs args_;
  DeviceArray<double> out_;
  DeviceArray<double> chunk_sum_;
};

// Rows in the order of the blocks of an index, in chunks: today's form.
struct CameraOrder {
  DeviceArray<int32_t> begin, entry, entry_point, chunk_camera, chunk_begin;
  RowListDevice chunk_rows;
  int num_chunks = 0;

  CameraOrder(const Tiles& tiles,
              const std::vector<int32_t>& block,
              int num_blocks) {
    std::vector<int32_t> begins;
    std::vector<int32_t> entries;
    MakeRowLists(block, num_blocks, &begins, &entries);
    std::vector<int32_t> points(entries.size());
    for (size_t i = 0; i < entries.size(); ++i) {
      points[i] = tiles.point_id[static_cast<size_t>(entries[i])];
    }
    std::vector<int32_t> cameras;
    std::vector<int32_t> first(1, 0);
    std::vector<int32_t> list;
    for (int c = 0; c < num_blocks; ++c) {
      const int n =
          begins[static_cast<size_t>(c) + 1] - begins[static_cast<size_t>(c)];
      for (int r = 0; r < n; r += kCameraChunk) {
        list.push_back(static_cast<int32_t>(cameras.size()));
        cameras.push_back(c);
      }
      first.push_back(static_cast<int32_t>(cameras.size()));
    }
    num_chunks = static_cast<int>(cameras.size());
    begin.Upload(begins);
    entry.Upload(entries);
    entry_point.Upload(points);
    chunk_camera.Upload(cameras);
    chunk_begin.Upload(first);
    chunk_rows.Upload(first, list, std::numeric_limits<int>::max());
  }

  void Set(NormalArgs* args) const {
    args->camera_begin = begin.data();
    args->camera_entry = entry.data();
    args->entry_point = entry_point.data();
    args->chunk_camera = chunk_camera.data();
    args->camera_chunk_begin = chunk_begin.data();
  }
};

// -------------------------------------------------------------------- check --

bool g_failed = false;

void Report(const std::string& name, double worst, bool same_bits) {
  const bool pass = worst <= 1.0 && same_bits;  // NaN fails.
  g_failed = g_failed || !pass;
  std::printf("%s %-66s worst error / bound %.2g%s\n",
              pass ? "PASS" : "FAIL",
              name.c_str(),
              worst,
              same_bits ? "" : ", two runs differ");
  std::fflush(stdout);
}

// Vi and E on the host.
template <typename T>
struct HostValues {
  std::vector<T> e, f;
  std::vector<double> v_inverse, b;
  std::vector<PointRecord> records;
  explicit HostValues(const Problem<T>& problem)
      : e(problem.e.Download()),
        f(problem.f.Download()),
        v_inverse(problem.v_inverse.Download()),
        b(problem.b.Download()),
        records(problem.records.Download()) {}
};

// q and the sum of the magnitudes of its terms, in double.
template <typename T>
void ReferenceProduct(Product<T>* product,
                      std::vector<std::vector<double>>* q,
                      std::vector<std::vector<double>>* scale) {
  const Problem<T>& problem = product->problem();
  const Rows& rows = *problem.rows;
  const HostValues<T> h(problem);
  const size_t n = static_cast<size_t>(rows.num_rows());
  const size_t num_points = static_cast<size_t>(rows.num_points);
  const size_t num_slots = static_cast<size_t>(product->num_slots());
  std::vector<std::vector<double>> p(num_slots);
  std::vector<std::vector<int32_t>> block(num_slots);
  q->assign(num_slots, {});
  scale->assign(num_slots, {});
  for (size_t s = 0; s < num_slots; ++s) {
    SlotData<T>& data = product->slot(static_cast<int>(s));
    p[s] = data.p.Download();
    block[s] = data.index->block.Download();
    const std::vector<double> d = data.diagonal.Download();
    for (size_t i = 0; i < d.size(); ++i) {
      (*q)[s].push_back(d[i] * d[i] * p[s][i]);
      (*scale)[s].push_back(std::abs((*q)[s].back()));
    }
  }
  for (size_t point = 0; point < num_points; ++point) {
    const size_t begin = static_cast<size_t>(rows.point_begin[point]);
    const size_t end = static_cast<size_t>(rows.point_begin[point + 1]);
    std::vector<double> y(2 * (end - begin));
    std::vector<double> size(2 * (end - begin));
    double sum[3] = {};
    double sum_size[3] = {};
    const auto f = [&](size_t s, int r, int i, size_t k) {
      const SlotData<T>& data = product->slot(static_cast<int>(s));
      return static_cast<double>(h.f[static_cast<size_t>(2 * data.first_column +
                                                         r * data.columns + i) *
                                         n +
                                     k]);
    };
    const auto e = [&](int r, int i, size_t k) {
      return static_cast<double>(h.e[static_cast<size_t>(3 * r + i) * n + k]);
    };
    for (size_t k = begin; k < end; ++k) {
      for (int r = 0; r < 2; ++r) {
        double& value = y[2 * (k - begin) + static_cast<size_t>(r)];
        double& magnitude = size[2 * (k - begin) + static_cast<size_t>(r)];
        for (size_t s = 0; s < num_slots; ++s) {
          const int columns = product->slot(static_cast<int>(s)).columns;
          for (int i = 0; i < columns; ++i) {
            const double term =
                f(s, r, i, k) *
                p[s][static_cast<size_t>(columns * block[s][k] + i)];
            value += term;
            magnitude += std::abs(term);
          }
        }
        for (int i = 0; i < 3; ++i) {
          sum[i] += e(r, i, k) * value;
          sum_size[i] += std::abs(e(r, i, k)) * magnitude;
        }
      }
    }
    double x[3] = {};
    double x_size[3] = {};
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 3; ++j) {
        const double v =
            h.v_inverse[static_cast<size_t>(j <= i ? PackedIndex(i, j)
                                                   : PackedIndex(j, i)) *
                            num_points +
                        point];
        x[i] += v * sum[j];
        x_size[i] += std::abs(v) * sum_size[j];
      }
    }
    for (size_t k = begin; k < end; ++k) {
      for (int r = 0; r < 2; ++r) {
        double value = y[2 * (k - begin) + static_cast<size_t>(r)];
        double magnitude = size[2 * (k - begin) + static_cast<size_t>(r)];
        for (int i = 0; i < 3; ++i) {
          value -= e(r, i, k) * x[i];
          magnitude += std::abs(e(r, i, k)) * x_size[i];
        }
        for (size_t s = 0; s < num_slots; ++s) {
          const int columns = product->slot(static_cast<int>(s)).columns;
          for (int i = 0; i < columns; ++i) {
            const size_t at = static_cast<size_t>(columns * block[s][k] + i);
            (*q)[s][at] += f(s, r, i, k) * value;
            (*scale)[s][at] += std::abs(f(s, r, i, k)) * magnitude;
          }
        }
      }
    }
  }
}

// First-order bound of a term's roundings: in T those along its way (p, the
// columns of y, 2 for E'y, e, 4 for y - E e, 2 for F'y and 3 for sums of
// segments, tiles), in double those of sums over rows of a point and of a
// block, on both sides.
template <typename T>
double ProductBound(const Rows& rows, int columns) {
  const double eps_t = std::is_same<T, double>::value ? 0x1p-53 : 0x1p-24;
  int longest = 0;
  for (int p = 0; p < rows.num_points; ++p) {
    longest = std::max(longest,
                       rows.point_begin[static_cast<size_t>(p) + 1] -
                           rows.point_begin[static_cast<size_t>(p)]);
  }
  return (columns + 14) * eps_t +
         2.0 * (longest + static_cast<double>(rows.num_rows()) + columns + 20) *
             0x1p-53;
}

double WorstRatio(const std::vector<std::vector<double>>& a,
                  const std::vector<std::vector<double>>& b,
                  const std::vector<std::vector<double>>& scale,
                  double bound) {
  double worst = 0.0;
  for (size_t s = 0; s < a.size(); ++s) {
    for (size_t i = 0; i < a[s].size(); ++i) {
      const double error = std::abs(a[s][i] - b[s][i]);
      const double allowed = bound * scale[s][i] + 1e-300;
      if (!(error / allowed <= worst)) {
        worst = error / allowed;
        if (std::isnan(worst)) {
          return worst;
        }
      }
    }
  }
  return worst;
}

bool SameBits(const std::vector<std::vector<double>>& a,
              const std::vector<std::vector<double>>& b) {
  for (size_t s = 0; s < a.size(); ++s) {
    if (std::memcmp(a[s].data(), b[s].data(), a[s].size() * sizeof(double)) !=
        0) {
      return false;
    }
  }
  return true;
}

template <typename T>
const char* TypeName() {
  return std::is_same<T, double>::value ? "double" : "float";
}

template <typename T>
void CheckProductVariant(const std::string& name,
                         Product<T>* product,
                         const std::vector<std::vector<double>>& expected,
                         const std::vector<std::vector<double>>& scale,
                         const std::function<void()>& fn) {
  product->Poison();
  fn();
  const auto first = product->Result();
  product->Poison();
  fn();
  const auto second = product->Result();
  int columns = 0;
  for (int s = 0; s < product->num_slots(); ++s) {
    columns += product->slot(s).columns;
  }
  Report(std::string(TypeName<T>()) + " " + name,
         WorstRatio(first,
                    expected,
                    scale,
                    ProductBound<T>(*product->problem().rows, columns)),
         SameBits(first, second));
}

// The forms of a product with fixed columns.
template <typename T, typename S>
void CheckFixed(const std::string& name, Product<T>* product) {
  constexpr int kMin = std::is_same<T, double>::value ? 2 : 4;
  std::vector<std::vector<double>> expected;
  std::vector<std::vector<double>> scale;
  ReferenceProduct(product, &expected, &scale);
  const auto check = [&](const std::string& form,
                         const std::function<void()>& fn) {
    CheckProductVariant(name + ", " + form, product, expected, scale, fn);
  };
  check("fused", [&] { product->template Fused<kMin, false, S>(); });
  if (S::kCount > 1) {
    check("fused, slots together",
          [&] { product->template Fused<kMin, true, S>(); });
  }
  product->args().tree = true;
  check("fused, tree", [&] { product->template Fused<kMin, false, S>(); });
  if (S::kCount > 1) {
    check("fused, slots together, tree",
          [&] { product->template Fused<kMin, true, S>(); });
  }
  product->args().tree = false;
  product->args().prefetch_tiles = 2;
  check("fused, prefetch", [&] { product->template Fused<kMin, false, S>(); });
  product->args().prefetch_tiles = 0;
  check("halves", [&] { product->template Halves<kMin, S>(); });
  check("run-time sizes, read twice",
        [&] { product->template Runtime<false>(); });
  check("run-time sizes, staged", [&] { product->template Runtime<true>(); });
}

// U or S_c and right-hand side of one slot.
template <typename T>
void ReferenceNormal(const Problem<T>& problem,
                     const SlotDevice& index,
                     int columns,
                     bool eliminated,
                     std::vector<double>* out,
                     std::vector<double>* scale) {
  const Rows& rows = *problem.rows;
  const HostValues<T> h(problem);
  const std::vector<int32_t> block = index.block.Download();
  const size_t n = static_cast<size_t>(rows.num_rows());
  const int row_size = PackedSize(columns) + columns;
  out->assign(static_cast<size_t>(row_size * index.num_blocks), 0.0);
  scale->assign(out->size(), 0.0);
  const auto f = [&](int r, int i, size_t k) {
    return static_cast<double>(
        h.f[static_cast<size_t>(r * columns + i) * n + k]);
  };
  const auto e = [&](int r, int i, size_t k) {
    return static_cast<double>(h.e[static_cast<size_t>(3 * r + i) * n + k]);
  };
  for (size_t p = 0; p < static_cast<size_t>(rows.num_points); ++p) {
    const size_t begin = static_cast<size_t>(rows.point_begin[p]);
    const size_t end = static_cast<size_t>(rows.point_begin[p + 1]);
    const PointRecord& record = h.records[p];
    for (size_t k = begin; k < end; ++k) {
      double* const row = out->data() + static_cast<size_t>(row_size) *
                                            static_cast<size_t>(block[k]);
      double* const size = scale->data() + static_cast<size_t>(row_size) *
                                               static_cast<size_t>(block[k]);
      for (int r = 0; r < 2; ++r) {
        double y = h.b[2 * k + static_cast<size_t>(r)];
        double y_size = std::abs(y);
        if (eliminated) {
          for (int i = 0; i < 3; ++i) {
            y -= e(r, i, k) * record.step[i];
            y_size += std::abs(e(r, i, k) * record.step[i]);
          }
        }
        for (int i = 0; i < columns; ++i) {
          row[PackedSize(columns) + i] += f(r, i, k) * y;
          size[PackedSize(columns) + i] += std::abs(f(r, i, k)) * y_size;
          for (int j = 0; j <= i; ++j) {
            row[PackedIndex(i, j)] += f(r, i, k) * f(r, j, k);
            size[PackedIndex(i, j)] += std::abs(f(r, i, k) * f(r, j, k));
          }
        }
      }
      if (!eliminated) {
        continue;
      }
      // - W_k Vi W_l' for all rows l of the same block.
      for (size_t l = begin; l < end; ++l) {
        if (block[l] != block[k]) {
          continue;
        }
        for (int i = 0; i < columns; ++i) {
          for (int j = 0; j <= i; ++j) {
            for (int a = 0; a < 3; ++a) {
              for (int c = 0; c < 3; ++c) {
                const double v = record.v_inverse[c <= a ? PackedIndex(a, c)
                                                         : PackedIndex(c, a)];
                double wk = 0.0;
                double wl = 0.0;
                double wk_size = 0.0;
                double wl_size = 0.0;
                for (int r = 0; r < 2; ++r) {
                  wk += f(r, i, k) * e(r, a, k);
                  wl += f(r, j, l) * e(r, c, l);
                  wk_size += std::abs(f(r, i, k) * e(r, a, k));
                  wl_size += std::abs(f(r, j, l) * e(r, c, l));
                }
                row[PackedIndex(i, j)] -= wk * v * wl;
                size[PackedIndex(i, j)] += wk_size * std::abs(v) * wl_size;
              }
            }
          }
        }
      }
    }
  }
}

template <typename T>
void CheckNormalVariant(const std::string& name,
                        Normal<T>* normal,
                        const Rows& rows,
                        const std::vector<double>& expected,
                        const std::vector<double>& scale,
                        DeviceArray<double>* partial,
                        const std::function<void()>& fn) {
  partial->Poison();
  normal->Poison();
  fn();
  const std::vector<std::vector<double>> first = {normal->Result()};
  partial->Poison();
  normal->Poison();
  fn();
  const std::vector<std::vector<double>> second = {normal->Result()};
  // All sums in double: rows of a block, of a point, and 20 along a term.
  const double bound =
      2.0 * (2.0 * static_cast<double>(rows.num_rows()) + 20) * 0x1p-53;
  Report(std::string(TypeName<T>()) + " " + name,
         WorstRatio(first, {expected}, {scale}, bound),
         SameBits(first, second));
}

template <typename T, int kC>
void CheckNormal(const std::string& name,
                 const Problem<T>& problem,
                 const SlotDevice& index,
                 const CameraOrder* order) {
  Normal<T> normal(problem, index, kC);
  DeviceArray<double> partial;
  normal.SetPartial(&partial);
  const auto forms = [&](auto eliminated) {
    constexpr bool kEliminated = decltype(eliminated)::value;
    std::vector<double> expected;
    std::vector<double> scale;
    ReferenceNormal(problem, index, kC, kEliminated, &expected, &scale);
    const std::string what = std::string(kEliminated ? "S_c" : "U") + " " +
                             std::to_string(kC) + ", " + name;
    const auto check = [&](const std::string& form,
                           const std::function<void()>& fn) {
      CheckNormalVariant(what + ", " + form,
                         &normal,
                         *problem.rows,
                         expected,
                         scale,
                         &partial,
                         fn);
    };
    check("tiles", [&] { normal.template Tiled<kC, kEliminated>(); });
    if (order != nullptr) {
      order->Set(&normal.args());
      check("today's chunks", [&] {
        normal.template Chunks<kC, kEliminated>(order->chunk_rows,
                                                order->num_chunks);
      });
    }
  };
  forms(std::false_type());
  forms(std::true_type());
}

template <typename T>
void CheckAll() {
  for (int round = 0; round < 2; ++round) {
    const Rows rows = MakeEdges(11 + static_cast<uint64_t>(round), true, true);
    const Tiles tiles = MakeTiles(rows);
    const Problem<T> problem(&rows, &tiles, 16);
    const int images = rows.num_images;
    const auto own = [](int32_t i) { return i; };
    const auto one = [](int32_t) { return 0; };
    const auto three = [](int32_t i) { return i % 3; };
    const int cut = round == 0 ? 32 : 5;
    const int threshold = round == 0 ? 1 << 30 : 4;
    const SlotDevice per_image(MakeSlotIndex(rows, tiles, images, own, cut),
                               threshold);
    const SlotDevice shared(MakeSlotIndex(rows, tiles, 1, one, cut), threshold);
    const SlotDevice few(MakeSlotIndex(rows, tiles, 3, three, cut), threshold);
    const SlotDevice uncut(MakeSlotIndex(rows, tiles, 1, one, kTileRows),
                           threshold);
    const std::string tag = round == 0 ? "" : " (cut 5, two steps)";
    {
      Product<T> a(problem, {{&per_image, 9}});
      CheckFixed<T, Slots<9>>("9 per image" + tag, &a);
    }
    {
      Product<T> a(problem, {{&per_image, 6}, {&per_image, 4}});
      CheckFixed<T, Slots<6, 4>>("6 + 4 per image" + tag, &a);
    }
    {
      Product<T> a(problem, {{&per_image, 6}, {&shared, 8}});
      CheckFixed<T, Slots<6, 8>>("6 + 8 shared" + tag, &a);
    }
    {
      Product<T> a(problem, {{&per_image, 6}, {&few, 8}});
      CheckFixed<T, Slots<6, 8>>("6 + 8 of three blocks" + tag, &a);
    }
    {
      Product<T> a(problem, {{&per_image, 6}, {&uncut, 4}});
      CheckFixed<T, Slots<6, 4>>("6 + 4 shared, uncut" + tag, &a);
    }
    {
      Product<T> a(problem,
                   {{&per_image, 3}, {&per_image, 3}, {&per_image, 3}});
      CheckFixed<T, Slots<3, 3, 3>>("3 + 3 + 3" + tag, &a);
    }
  }
  for (const bool repeats : {false, true}) {
    const Rows rows = MakeEdges(21, false, repeats);
    const Tiles tiles = MakeTiles(rows);
    const Problem<T> problem(&rows, &tiles, 16);
    const auto own = [](int32_t i) { return i; };
    const auto one = [](int32_t) { return 0; };
    const SlotIndex own_index =
        MakeSlotIndex(rows, tiles, rows.num_images, own, 32);
    const SlotDevice per_image(own_index, 1 << 30);
    const SlotDevice shared(MakeSlotIndex(rows, tiles, 1, one, 32), 4);
    const CameraOrder order(tiles, own_index.block, rows.num_images);
    const CameraOrder* const camera_order =
        own_index.repeats ? nullptr : &order;
    const std::string tag = own_index.repeats ? "repeats" : "per image";
    CheckNormal<T, 6>(tag, problem, per_image, camera_order);
    CheckNormal<T, 9>(tag, problem, per_image, camera_order);
    CheckNormal<T, 12>(tag, problem, per_image, camera_order);
    CheckNormal<T, 16>(tag, problem, per_image, camera_order);
    CheckNormal<T, 8>("shared", problem, shared, nullptr);
  }
}

// ------------------------------------------------------------------ measure --

struct Indices {
  Rows rows;
  Tiles tiles;
  std::unique_ptr<SlotDevice> per_image, second, third, shared_uncut,
      shared_one_step, shared_32, shared_16;
  std::unique_ptr<CameraOrder> order;
};

template <typename T, typename S, int kMin>
void MeasureFixed(const std::string& name, Product<T>* product) {
  const std::string type = std::string(TypeName<T>()) + " ";
  const double bytes = product->Bytes();
  product->args().prefetch_tiles = 0;
  product->args().tree = false;
  Print(type + name + ", fused",
        Median([&] { product->template Fused<kMin, false, S>(); }),
        bytes);
  Print(type + name + ", fused, second stage alone",
        Median([&] { product->Sum(); }),
        bytes);
  if (S::kCount > 1) {
    Print(type + name + ", fused, slots together",
          Median([&] { product->template Fused<kMin, true, S>(); }),
          bytes);
  }
  if (product->slot(product->num_slots() - 1).index->num_blocks == 1) {
    product->args().tree = true;
    Print(type + name + ", fused, tree",
          Median([&] { product->template Fused<kMin, false, S>(); }),
          bytes);
    product->args().tree = false;
  }
  Print(type + name + ", A5 run-time sizes, read twice",
        Median([&] { product->template Runtime<false>(); }),
        bytes);
  Print(type + name + ", A5 run-time sizes, staged",
        Median([&] { product->template Runtime<true>(); }),
        bytes);
  for (const int waves : {1, 2}) {
    product->args().prefetch_tiles = waves * kMin * 132;
    Print(type + name + ", fused, L2 prefetch " + std::to_string(waves) +
              " waves ahead",
          Median([&] { product->template Fused<kMin, false, S>(); }),
          bytes);
  }
  product->args().prefetch_tiles = 0;
}

template <typename T>
void MeasureProducts(const Indices& x, const Problem<T>& problem) {
  constexpr bool kDouble = std::is_same<T, double>::value;
  constexpr int kMin = kDouble ? 2 : 4;
  const SlotDevice* own = x.per_image.get();
  {
    Product<T> a(problem, {{own, 9}});
    MeasureFixed<T, Slots<9>, kMin>("A1 9 per image", &a);
    Print(std::string(TypeName<T>()) + " A1 9 per image, fused, 3 / 5 blocks",
          Median([&] { a.template Fused<kDouble ? 3 : 5, false, Slots<9>>(); }),
          a.Bytes());
    Print(std::string(TypeName<T>()) + " A5 9 per image, halves",
          Median([&] { a.template Halves<kMin, Slots<9>>(); }),
          a.Bytes());
  }
  {
    Product<T> a(problem, {{own, 6}, {x.second.get(), 4}});
    MeasureFixed<T, Slots<6, 4>, kMin>("A2 6 + 4 per image", &a);
    Print(std::string(TypeName<T>()) + " A5 6 + 4 per image, halves",
          Median([&] { a.template Halves<kMin, Slots<6, 4>>(); }),
          a.Bytes());
  }
  {
    Product<T> a(problem, {{own, 6}, {x.second.get(), 8}});
    MeasureFixed<T, Slots<6, 8>, kMin>("A2 6 + 8 per image", &a);
    Print(std::string(TypeName<T>()) + " A5 6 + 8 per image, halves",
          Median([&] { a.template Halves<kMin, Slots<6, 8>>(); }),
          a.Bytes());
  }
  const std::vector<std::pair<std::string, const SlotDevice*>> shared = {
      {"a: uncut, one step", x.shared_uncut.get()},
      {"cut 32, one step", x.shared_one_step.get()},
      {"b: cut 32, two steps", x.shared_32.get()},
      {"cut 16, two steps", x.shared_16.get()}};
  for (const auto& [name, index] : shared) {
    {
      Product<T> a(problem, {{own, 6}, {index, 4}});
      MeasureFixed<T, Slots<6, 4>, kMin>("A3 6 + 4 shared, " + name, &a);
    }
    {
      Product<T> a(problem, {{own, 6}, {index, 8}});
      MeasureFixed<T, Slots<6, 8>, kMin>("A3 6 + 8 shared, " + name, &a);
    }
  }
  {
    Product<T> a(problem, {{own, 3}, {x.second.get(), 3}, {x.third.get(), 3}});
    MeasureFixed<T, Slots<3, 3, 3>, kMin>("A4 3 + 3 + 3 per image", &a);
    Product<T> b(problem, {{own, 3}, {own, 3}, {own, 3}});
    Print(
        std::string(TypeName<T>()) + " A4 3 + 3 + 3, one index for all, fused",
        Median([&] { b.template Fused<kMin, false, Slots<3, 3, 3>>(); }),
        b.Bytes());
  }
}

template <typename T, int kC>
void MeasureNormal(const Indices& x,
                   const Problem<T>& problem,
                   DeviceArray<double>* partial) {
  Normal<T> normal(problem, *x.per_image, kC);
  normal.SetPartial(partial);
  x.order->Set(&normal.args());
  const auto forms = [&](auto eliminated) {
    constexpr bool kEliminated = decltype(eliminated)::value;
    const std::string name = std::string(TypeName<T>()) + " B " +
                             (kEliminated ? "S_c, s " : "U, g ") +
                             std::to_string(kC);
    Print(name + ", today's chunks",
          Median([&] {
            normal.template Chunks<kC, kEliminated>(x.order->chunk_rows,
                                                    x.order->num_chunks);
          }),
          normal.Bytes(kEliminated));
    Print(name + ", (i) tiles",
          Median([&] { normal.template Tiled<kC, kEliminated>(); }),
          normal.Bytes(kEliminated));
  };
  forms(std::false_type());
  forms(std::true_type());
  Print(
      std::string(TypeName<T>()) + " B second stage alone, rows of " +
          std::to_string(normal.row_size()),
      Median([&] { normal.Sum(); }),
      8.0 * static_cast<double>(normal.row_size() * x.per_image->num_segments));
}

template <typename T, int kC>
void MeasureSharedNormal(const Indices& x,
                         const Problem<T>& problem,
                         DeviceArray<double>* partial) {
  Normal<T> normal(problem, *x.shared_32, kC);
  normal.SetPartial(partial);
  const std::string name = std::string(TypeName<T>()) + " B ";
  Print(name + "U, g shared " + std::to_string(kC) + ", (i) tiles",
        Median([&] { normal.template Tiled<kC, false>(); }),
        normal.Bytes(false));
  Print(name + "S_c, s shared " + std::to_string(kC) + ", (i) tiles",
        Median([&] { normal.template Tiled<kC, true>(); }),
        normal.Bytes(true));
}

template <typename T>
void MeasureNormals(const Indices& x, Problem<T>* problem) {
  Print(std::string(TypeName<T>()) + " B V, Vi, g_p, Vi g_p (a thread a point)",
        Median([&] { problem->PointBlocks(); }),
        static_cast<double>(x.rows.num_rows()) * (6.0 * sizeof(T) + 16) +
            132.0 * x.rows.num_points);
  DeviceArray<double> partial;
  MeasureNormal<T, 6>(x, *problem, &partial);
  MeasureNormal<T, 9>(x, *problem, &partial);
  MeasureNormal<T, 12>(x, *problem, &partial);
  MeasureNormal<T, 16>(x, *problem, &partial);
  MeasureSharedNormal<T, 4>(x, *problem, &partial);
  MeasureSharedNormal<T, 8>(x, *problem, &partial);
}

template <typename T>
void MeasureBatches(const Indices& x, const Problem<T>& problem) {
  constexpr int kMin = std::is_same<T, double>::value ? 2 : 4;
  using S = Slots<6, 4>;
  const std::string type = std::string(TypeName<T>()) + " C 6 + 4 per image, ";
  Product<T> a(problem, {{x.per_image.get(), 6}, {x.second.get(), 4}});
  const int images = x.rows.num_images;
  DeviceArray<T> prior(int64_t{36} * images);
  Fill(prior.size(), 9, prior.data());
  std::vector<int32_t> begins;
  for (int i = 0; i <= images; ++i) {
    begins.push_back(i);
  }
  DeviceArray<int32_t> begin(begins);
  const auto priors = [&] {
    Launch("Prior",
           PriorKernel<T, 6, 6>,
           (images + kBlock - 1) / kBlock,
           kBlock,
           0,
           images,
           int64_t{images},
           static_cast<const int32_t*>(begin.data()),
           static_cast<const T*>(prior.data()),
           static_cast<const double*>(a.slot(0).p.data()),
           a.slot(0).q.data());
  };
  const double bytes = a.Bytes();
  Print(type + "fused alone",
        Median([&] { a.template Fused<kMin, false, S>(); }),
        bytes);
  Print(type + "fused, and priors of F alone",
        Median([&] {
          a.template Fused<kMin, false, S>();
          priors();
        }),
        bytes + 36.0 * sizeof(T) * images + 24.0 * 6 * images);
  Print(type + "halves, and priors",
        Median([&] {
          a.template Halves<kMin, S>();
          priors();
        }),
        bytes);
  // The last hundredth of the tiles has points that a second batch sees too.
  const int num_tiles = a.args().num_tiles;
  const int pure = num_tiles - num_tiles / 100;
  const int64_t first_point =
      x.tiles.header[static_cast<size_t>(pure)].point_begin;
  Print(type + "fused on 99 % of the tiles, halves on the others",
        Median([&] {
          a.template Tiles<kMin, false, S, kFused>(0, pure);
          a.template Tiles<kMin, false, S, kFirstHalf>(pure, num_tiles);
          a.Eliminate(first_point);
          a.template Tiles<kMin, false, S, kSecondHalf>(pure, num_tiles);
          a.Sum();
          priors();
        }),
        bytes);
}

Indices MakeIndices(double fraction) {
  Indices x;
  x.rows = fraction < 0
               ? MakeSequence(1000, 770000, 5000000)
               : MakeSequence(std::max(200, static_cast<int>(13682 * fraction)),
                              static_cast<int>(4456117 * fraction),
                              static_cast<int64_t>(28987644 * fraction));
  x.tiles = MakeTiles(x.rows);
  const auto own = [](int32_t i) { return i; };
  const auto one = [](int32_t) { return 0; };
  constexpr int kNever = 1 << 30;
  constexpr int kThreshold = 4096;
  {
    const SlotIndex index =
        MakeSlotIndex(x.rows, x.tiles, x.rows.num_images, own, 32);
    x.per_image = std::make_unique<SlotDevice>(index, kThreshold);
    x.second = std::make_unique<SlotDevice>(index, kThreshold);
    x.third = std::make_unique<SlotDevice>(index, kThreshold);
    x.order =
        std::make_unique<CameraOrder>(x.tiles, index.block, x.rows.num_images);
    std::printf(
        "%d images, %d points, %lld rows, %d tiles of %.1f rows and %.1f "
        "images (at most %d), %.1f segments, at most %d points a tile\n",
        x.rows.num_images,
        x.rows.num_points,
        static_cast<long long>(x.rows.num_rows()),
        static_cast<int>(x.tiles.header.size()),
        static_cast<double>(x.rows.num_rows()) /
            static_cast<double>(x.tiles.header.size()),
        static_cast<double>(x.per_image->num_tile_blocks) /
            static_cast<double>(x.tiles.header.size()),
        x.per_image->max_blocks,
        static_cast<double>(x.per_image->num_segments) /
            static_cast<double>(x.tiles.header.size()),
        x.tiles.max_points);
  }
  x.shared_uncut = std::make_unique<SlotDevice>(
      MakeSlotIndex(x.rows, x.tiles, 1, one, kTileRows), kNever);
  {
    const SlotIndex index = MakeSlotIndex(x.rows, x.tiles, 1, one, 32);
    x.shared_one_step = std::make_unique<SlotDevice>(index, kNever);
    x.shared_32 = std::make_unique<SlotDevice>(index, kThreshold);
  }
  x.shared_16 = std::make_unique<SlotDevice>(
      MakeSlotIndex(x.rows, x.tiles, 1, one, 16), kThreshold);
  return x;
}

template <typename T>
void MeasureType(const Indices& x, const std::string& parts) {
  Problem<T> problem(&x.rows, &x.tiles, 16);
  if (parts == "all" || parts == "A") {
    MeasureProducts<T>(x, problem);
  }
  if (parts == "all" || parts == "B") {
    MeasureNormals<T>(x, &problem);
  }
  if (parts == "all" || parts == "C") {
    MeasureBatches<T>(x, problem);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "check";
  if (what == "check") {
    CheckAll<double>();
    CheckAll<float>();
    std::printf("%s\n", g_failed ? "FAIL" : "PASS, all");
    return g_failed ? 1 : 0;
  }
  const double fraction = argc > 2 ? std::atof(argv[2]) : 1.0;
  const std::string type = argc > 3 ? argv[3] : "both";
  const std::string parts = argc > 4 ? argv[4] : "all";
  MeasureCopy();
  const Indices x = MakeIndices(fraction);
  if (type == "double" || type == "both") {
    MeasureType<double>(x, parts);
  }
  if (type == "float" || type == "both") {
    MeasureType<float>(x, parts);
  }
  return 0;
}
