// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "problem_io/text_blocks.h"

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <string>

#include "problem_io/byte_stream.h"
#include "problem_io/number_text.h"

namespace ceres_ext::bal {

TextBlocks::TextBlocks(ByteStream* stream, size_t block_size)
    : stream_(stream), block_size_(block_size) {}

bool TextBlocks::Next(TextBlock* block) {
  // The character before the block, the block and what is behind it.
  const size_t wanted = 1 + block_size_ + kMaxTokenSize;
  const int64_t size = stream_->size();
  const size_t buffer_size =
      size < 0 ? wanted : std::min<int64_t>(wanted, 1 + size);
  if (block->buffer.size() < buffer_size) {
    block->buffer.resize(buffer_size);
  }
  char* const text = block->buffer.data();
  text[0] = ' ';
  size_t num_read = 1;
  block->error.clear();

  // The next text of a stream is at one place alone.
  std::unique_lock<std::mutex> lock(mutex_, std::defer_lock);
  if (size < 0) {
    lock.lock();
  }
  if (at_end_) {
    return false;
  }
  block->index = next_++;
  if (size < 0) {
    num_read = std::max(num_read, read_ahead_.copy(text, read_ahead_.size()));
    if (!is_all_read_) {
      num_read += stream_->Read(text + num_read, buffer_size - num_read);
      is_all_read_ = num_read < buffer_size;
    }
    if (is_all_read_) {
      block->error = stream_->error();
    }
  } else {
    const int64_t begin = block->index * static_cast<int64_t>(block_size_);
    const int64_t from = std::max<int64_t>(0, begin - 1);
    char* const to = text + (from - (begin - 1));
    // A file ends where it did when it was opened, if it hasn't shrunk.
    const int64_t left = std::max<int64_t>(0, size - from);
    const size_t num_wanted = std::min<int64_t>(left, text + buffer_size - to);
    num_read = std::max<size_t>(
        num_read,
        to - text + stream_->ReadAt(from, to, num_wanted, &block->error));
  }
  const size_t num_own = std::min(block_size_, num_read - 1);
  block->begin = text + 1;
  block->end = block->begin + num_own;
  block->text_end = text + num_read;
  block->starts_in_token = !IsSpace(text[0]);
  block->has_text_end = num_read < wanted;
  block->is_last = block->has_text_end && block->text_end == block->end;
  if (block->is_last) {
    at_end_ = true;
  }
  if (size < 0) {
    read_ahead_.assign(text + num_own, num_read - num_own);
  }
  return true;
}

}  // namespace ceres_ext::bal
