// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A text cut into blocks for several threads:
//
//   TextBlocks blocks(stream, block_size);
//   TextBlock block;                       // one a thread
//   while (blocks.Next(&block)) { ... }

#ifndef PROBLEM_IO_TEXT_BLOCKS_H_
#define PROBLEM_IO_TEXT_BLOCKS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "problem_io/byte_stream.h"

namespace ceres_ext::bal {

// A token, characters between white space, belongs to the block in which it
// starts and is at most this long.
constexpr size_t kMaxTokenSize = 1024;

struct TextBlock {
  int64_t index = 0;
  // The block's own text is from begin to end. The text goes on to text_end,
  // kMaxTokenSize farther where there is so much.
  const char* begin = nullptr;
  const char* end = nullptr;
  const char* text_end = nullptr;
  // True if the character before begin and the one at begin are of one token.
  bool starts_in_token = false;
  // True if nothing follows text_end; `error` then says what was found instead
  // of more text, empty if the text is complete.
  bool has_text_end = false;
  std::string error;
  // True if nothing follows end.
  bool is_last = false;

  std::vector<char> buffer;
};

class TextBlocks {
 public:
  TextBlocks(ByteStream* stream, size_t block_size);

  // The next block; false if there is none any more. Threads may call it:
  // each index from 0 to that of the last block comes once, and blocks of
  // higher ones, without text, may follow. Threads read their blocks of a
  // regular file or of memory concurrently; one thread at a time reads and
  // decompresses a stream, while others are busy with their blocks.
  bool Next(TextBlock* block);

 private:
  ByteStream* const stream_;
  const size_t block_size_;
  std::atomic<int64_t> next_ = 0;
  std::atomic<bool> at_end_ = false;
  // For streams: the last character of the previous block, and the text read
  // after it.
  std::mutex mutex_;
  std::string read_ahead_;
  bool is_all_read_ = false;
};

}  // namespace ceres_ext::bal

#endif  // PROBLEM_IO_TEXT_BLOCKS_H_
