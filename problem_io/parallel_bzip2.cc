// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "problem_io/parallel_bzip2.h"

#include <bzlib.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "problem_io/byte_stream.h"
#include "problem_io/for_each_chunk.h"

namespace ceres_ext::bal {
namespace {

// A stream of bzip2 is "BZh" and a digit, the blocks, the end. Blocks and end
// begin, at any bit, with one of these numbers and a checksum: that of the
// block, of all blocks. Zero bits fill the last byte.
constexpr uint64_t kBlockMagic = 0x314159265359;
constexpr uint64_t kEndMagic = 0x177245385090;
constexpr int kMagicBits = 48;
constexpr int kChecksumBits = 32;
constexpr int64_t kHeaderBits = 32;

struct Mark {
  int64_t bit;
  bool is_end;
};

// The data in the bits from begin to end of the file.
struct Block {
  int64_t begin;
  int64_t end;
  char level;  // the digit
  uint32_t checksum;
};

// Appends the marks that begin in the bytes from begin to end - 1.
void FindMarks(const ByteStream& raw,
               int64_t begin,
               int64_t end,
               std::vector<Mark>* marks) {
  constexpr int64_t kStep = 1 << 18;
  constexpr int64_t kWindow = 8;
  // Bit 2 s + is_end of candidates[b]: b may be the second byte of a mark that
  // begins s bits behind the start of the first.
  std::array<uint16_t, 256> candidates = {};
  for (int shift = 0; shift < 8; ++shift) {
    for (const bool is_end : {false, true}) {
      const uint64_t magic = is_end ? kEndMagic : kBlockMagic;
      const auto second =
          static_cast<uint8_t>(magic >> (kMagicBits - 16 + shift));
      candidates[second] |= 1 << (2 * shift + is_end);
    }
  }
  std::vector<char> buffer(kStep + kWindow);
  std::string ignored;
  for (; begin < end; begin += kStep) {
    const int64_t size = std::min(kStep, end - begin);
    std::fill(buffer.begin(), buffer.end(), '\0');
    raw.ReadAt(begin, buffer.data(), size + kWindow, &ignored);
    for (int64_t i = 0; i < size; ++i) {
      const uint16_t bits = candidates[static_cast<uint8_t>(buffer[i + 1])];
      if (bits == 0) {
        continue;
      }
      uint64_t window;
      std::memcpy(&window, buffer.data() + i, sizeof(window));
      window = __builtin_bswap64(window);
      for (int shift = 0; shift < 8; ++shift) {
        const uint64_t magic = window << shift >> (64 - kMagicBits);
        for (const bool is_end : {false, true}) {
          if (magic == (is_end ? kEndMagic : kBlockMagic)) {
            marks->push_back({8 * (begin + i) + shift, is_end});
          }
        }
      }
    }
  }
}

// The 32 bits from that one on; false if the file ends before.
bool ReadBits32(const ByteStream& raw, int64_t bit, uint32_t* value) {
  char bytes[8] = {};
  std::string ignored;
  const size_t size = bit % 8 == 0 ? 4 : 5;
  if (raw.ReadAt(bit / 8, bytes, size, &ignored) != size) {
    return false;
  }
  uint64_t window;
  std::memcpy(&window, bytes, sizeof(window));
  *value = static_cast<uint32_t>(__builtin_bswap64(window) << bit % 8 >> 32);
  return true;
}

// Empty if the file is not streams of whole blocks from its first byte to
// its last.
std::vector<Block> FindBlocks(const ByteStream& raw, int num_threads) {
  constexpr int64_t kMinPerThread = 1 << 20;
  num_threads = static_cast<int>(
      std::min<int64_t>(num_threads, 1 + raw.size() / kMinPerThread));
  std::vector<std::vector<Mark>> parts(num_threads);
  ForEachChunk(
      num_threads, raw.size(), [&](int chunk, int64_t begin, int64_t end) {
        FindMarks(raw, begin, end, &parts[chunk]);
      });
  std::vector<Mark> marks;
  for (const std::vector<Mark>& part : parts) {
    marks.insert(marks.end(), part.begin(), part.end());
  }

  std::vector<Block> blocks;
  int64_t header = 0;  // byte of the stream that comes next
  size_t i = 0;
  while (header < raw.size()) {
    uint32_t magic;
    if (!ReadBits32(raw, 8 * header, &magic) || magic >> 8 != 0x425a68 ||
        (magic & 0xff) < '1' || (magic & 0xff) > '9' || i == marks.size() ||
        marks[i].bit != 8 * header + kHeaderBits) {
      return {};
    }
    uint32_t all = 0;
    uint32_t checksum;
    for (; i < marks.size() && !marks[i].is_end; ++i) {
      if (i + 1 == marks.size() ||
          !ReadBits32(raw, marks[i].bit + kMagicBits, &checksum)) {
        return {};
      }
      all = (all << 1 | all >> 31) ^ checksum;
      blocks.push_back({marks[i].bit,
                        marks[i + 1].bit,
                        static_cast<char>(magic & 0xff),
                        checksum});
    }
    if (i == marks.size() ||
        !ReadBits32(raw, marks[i].bit + kMagicBits, &checksum) ||
        checksum != all) {
      return {};
    }
    header = (marks[i].bit + kMagicBits + kChecksumBits + 7) / 8;
    ++i;
  }
  return i == marks.size() ? blocks : std::vector<Block>();
}

// The block as a stream of its own.
bool ReadAsStream(const ByteStream& raw,
                  const Block& block,
                  std::vector<char>* stream) {
  const int64_t num_bits = block.end - block.begin;
  const int shift = static_cast<int>(block.begin % 8);
  const int64_t num_bytes = num_bits / 8 + 2;
  std::vector<char> bytes(num_bytes);
  std::string error;
  // Behind the block there are at least the ten bytes of an end.
  if (static_cast<int64_t>(raw.ReadAt(
          block.begin / 8, bytes.data(), num_bytes, &error)) != num_bytes) {
    return false;
  }
  *stream = {'B', 'Z', 'h', block.level};
  stream->reserve(num_bytes + 16);
  for (int64_t i = 0; i < num_bits / 8; ++i) {
    const auto high = static_cast<uint8_t>(bytes[i]);
    const auto low = static_cast<uint8_t>(bytes[i + 1]);
    stream->push_back(static_cast<char>((high << 8 | low) << shift >> 8));
  }
  int num_open = 0;  // bits of the last byte that are taken
  const auto append = [&](uint64_t value, int size) {
    while (size-- > 0) {
      if (num_open == 0) {
        stream->push_back('\0');
      }
      stream->back() |=
          static_cast<char>((value >> size & 1) << (7 - num_open));
      num_open = (num_open + 1) % 8;
    }
  };
  const auto high = static_cast<uint8_t>(bytes[num_bits / 8]);
  const auto low = static_cast<uint8_t>(bytes[num_bits / 8 + 1]);
  const int num_left = static_cast<int>(num_bits % 8);
  append(((high << 8 | low) << shift >> 8 & 0xff) >> (8 - num_left), num_left);
  append(kEndMagic, kMagicBits);
  append(block.checksum, kChecksumBits);
  return true;
}

// False if libbz2 refuses the block.
bool Decompress(const ByteStream& raw,
                const Block& block,
                std::vector<char>* text) {
  std::vector<char> stream;
  if (!ReadAsStream(raw, block, &stream)) {
    return false;
  }
  // Runs of equal characters, of which text of numbers has none, make more of
  // it, 255 of five.
  for (unsigned capacity : {1u << 20, 51u * 900000 + (1u << 20)}) {
    text->resize(capacity);
    const int status =
        BZ2_bzBuffToBuffDecompress(text->data(),
                                   &capacity,
                                   stream.data(),
                                   static_cast<unsigned>(stream.size()),
                                   /*small=*/0,
                                   /*verbosity=*/0);
    if (status != BZ_OUTBUFF_FULL) {
      text->resize(status == BZ_OK ? capacity : 0);
      return status == BZ_OK;
    }
  }
  return false;
}

class ParallelBzip2Stream final : public ByteStream {
 public:
  ParallelBzip2Stream(const ByteStream* raw,
                      std::unique_ptr<ByteStream> serial,
                      std::vector<Block> blocks,
                      int num_threads)
      : raw_(raw),
        serial_(std::move(serial)),
        blocks_(std::move(blocks)),
        results_(2 * num_threads) {
    threads_.reserve(num_threads);
    for (int i = 0; i < num_threads; ++i) {
      try {
        threads_.emplace_back([this] { DecompressBlocks(); });
      } catch (const std::system_error&) {
        break;  // no more threads are available
      }
    }
    is_serial_ = threads_.empty();
  }

  ~ParallelBzip2Stream() override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_stopped_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }

  size_t Read(char* buffer, size_t size) override {
    size_t num_read = 0;
    while (num_read < size && !is_serial_ && current_ < blocks_.size()) {
      Result& result = results_[current_ % results_.size()];
      {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return result.is_there; });
      }
      if (!result.is_good) {
        is_serial_ = true;
        break;
      }
      const size_t part =
          std::min(size - num_read, result.text.size() - position_);
      std::copy_n(result.text.data() + position_, part, buffer + num_read);
      num_read += part;
      position_ += part;
      num_before_ += part;
      if (position_ == result.text.size()) {
        position_ = 0;
        {
          const std::lock_guard<std::mutex> lock(mutex_);
          result.is_there = false;
          ++current_;
        }
        changed_.notify_all();
      }
    }
    if (is_serial_) {
      SkipInSerial();
      const size_t part = serial_->Read(buffer + num_read, size - num_read);
      num_read += part;
      num_before_ += part;
      num_skipped_ += part;
      error_ = serial_->error();
    }
    return num_read;
  }

 private:
  struct Result {
    bool is_there = false;
    bool is_good = false;
    std::vector<char> text;
  };

  void DecompressBlocks() {
    for (;;) {
      size_t i;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] {
          return is_stopped_ || next_ == blocks_.size() ||
                 next_ < current_ + results_.size();
        });
        if (is_stopped_ || next_ == blocks_.size()) {
          return;
        }
        i = next_++;
      }
      Result& result = results_[i % results_.size()];
      bool is_good;
      try {
        is_good = Decompress(*raw_, blocks_[i], &result.text);
      } catch (const std::bad_alloc&) {
        is_good = false;
      }
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        result.is_good = is_good;
        result.is_there = true;
      }
      changed_.notify_all();
    }
  }

  // To where the blocks have come.
  void SkipInSerial() {
    std::vector<char> buffer(1 << 16);
    while (num_skipped_ < num_before_) {
      const size_t part = serial_->Read(
          buffer.data(),
          std::min<int64_t>(buffer.size(), num_before_ - num_skipped_));
      if (part == 0) {
        return;
      }
      num_skipped_ += part;
    }
  }

  const ByteStream* const raw_;
  const std::unique_ptr<ByteStream> serial_;
  const std::vector<Block> blocks_;

  // Block i goes to results_[i % results_.size()] when that of block
  // i - results_.size() is read.
  std::vector<Result> results_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t next_ = 0;     // the first block that no thread has taken
  size_t current_ = 0;  // the one that is read
  bool is_stopped_ = false;
  std::vector<std::thread> threads_;

  // State of Read.
  size_t position_ = 0;  // in the current block
  bool is_serial_ = false;
  int64_t num_before_ = 0;   // bytes read
  int64_t num_skipped_ = 0;  // bytes that serial_ has given
};

}  // namespace

std::unique_ptr<ByteStream> ParallelBzip2(const ByteStream* raw,
                                          std::unique_ptr<ByteStream> serial,
                                          int num_threads) {
  if (num_threads <= 1) {
    return serial;
  }
  std::vector<Block> blocks = FindBlocks(*raw, num_threads);
  if (blocks.size() <= 1) {
    return serial;
  }
  num_threads = static_cast<int>(std::min<size_t>(num_threads, blocks.size()));
  return std::make_unique<ParallelBzip2Stream>(
      raw, std::move(serial), std::move(blocks), num_threads);
}

}  // namespace ceres_ext::bal
