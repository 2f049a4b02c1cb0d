// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "problem_io/bal_text.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <utility>

#include "problem_io/bal_problem.h"
#include "problem_io/byte_stream.h"
#include "problem_io/for_each_chunk.h"
#include "problem_io/number_text.h"
#include "problem_io/progress_line.h"
#include "problem_io/text_blocks.h"

namespace ceres_ext::bal {
namespace {

constexpr int64_t kNumCounts = 3;

// A place between tokens.
struct Position {
  int64_t num_tokens = 0;
  int64_t line = 1;
};

int64_t CountLines(const char* begin, const char* end) {
  return std::count(begin, end, '\n');
}

// How many tokens start and lines end in the block. Sums of bytes, which can't
// overflow in so few steps, are what a compiler makes vector instructions of.
Position Count(const TextBlock& block) {
  constexpr ptrdiff_t kStep = 128;
  Position count = {0, 0};
  // The character before begin is there too; at the very first it is a space.
  for (const char* p = block.begin; p < block.end;) {
    const char* const stop = p + std::min(kStep, block.end - p);
    uint8_t num_tokens = 0;
    uint8_t num_lines = 0;
    for (; p < stop; ++p) {
      num_tokens += static_cast<uint8_t>(IsSpace(p[-1])) &
                    static_cast<uint8_t>(!IsSpace(p[0]));
      num_lines += p[0] == '\n';
    }
    count.num_tokens += num_tokens;
    count.line += num_lines;
  }
  return count;
}

std::string Integer(int64_t min, int64_t max) {
  return "an integer from " + std::to_string(min) + " to " +
         std::to_string(max);
}

std::string Ordinal(const char* what, int64_t i, int64_t count) {
  return std::string(what) + " " + std::to_string(i + 1) + " of " +
         std::to_string(count);
}

// The tokens of a problem, by their numbers:
//   0, 1, 2                     the counts
//   cameras_begin - 4 (n - i)   the first of four of observation i of n
//   cameras_begin, ...          parameters of cameras
//   points_begin, ...           coordinates of points, up to end
//
// Threads take blocks of text, count their tokens, learn in the order of the
// blocks which number their first token has, and put the values in their places
// with no order among them. So neither the problem nor the first fault depends
// on the number of threads or on where blocks end.
class TextReader {
 public:
  TextReader(const BalReadOptions& options,
             ByteStream* stream,
             BalProblem* problem)
      : stream_(stream),
        blocks_(stream, options.block_size),
        problem_(problem) {
    if (options.progress != nullptr) {
      progress_.emplace(
          "reading", stream->size(), /*is_at_most=*/false, options.progress);
    }
  }

  void ReadBlocks() {
    TextBlock block;
    try {
      while (blocks_.Next(&block) && ReadBlock(block)) {
        if (progress_.has_value()) {
          progress_->Add(block.end - block.begin);
        }
      }
    } catch (...) {
      const std::lock_guard<std::mutex> lock(order_);
      Stop();
      throw;
    }
  }

  // When all threads have read.
  bool IsGood(std::string* error) const {
    if (fault_.block == kNoFault) {
      return true;
    }
    *error = std::to_string(fault_.line) + ": expected " +
             Expected(fault_.token) + ", found " + fault_.found;
    return false;
  }

 private:
  static constexpr int64_t kNoFault = std::numeric_limits<int64_t>::max();
  struct Fault {
    int64_t block = kNoFault;
    int64_t token;
    int64_t line;
    std::string found;
  };

  // False if no more blocks are wanted.
  bool ReadBlock(const TextBlock& block) {
    const Position count = Count(block);
    Position position;
    {
      std::unique_lock<std::mutex> lock(order_);
      turn_.wait(lock, [&] { return next_ == block.index || is_stopped_; });
      if (is_stopped_) {
        return false;
      }
      position = position_;
      position_.num_tokens += count.num_tokens;
      position_.line += count.line;
      if (position.num_tokens < kNumCounts) {
        Fault fault;
        if (!Parse(block, position, 0, kNumCounts, &fault)) {
          KeepFirst(std::move(fault));
          return false;
        }
      }
      if (position_.num_tokens > kNumCounts) {
        MakeRoom();
      }
      if (block.is_last) {
        Stop();
        if (num_counts_ < kNumCounts || position_.num_tokens < end_ ||
            !block.error.empty()) {
          // Behind the faults of this block's own.
          KeepFirst(
              {block.index + 1,
               position_.num_tokens,
               position_.line,
               block.error.empty() ? "the end of the file" : block.error});
        }
      }
      ++next_;
      turn_.notify_all();
    }
    Fault fault;
    bool is_good;
    {
      const std::shared_lock<std::shared_mutex> lock(room_);
      is_good = Parse(block,
                      position,
                      kNumCounts,
                      std::numeric_limits<int64_t>::max(),
                      &fault);
    }
    if (!is_good) {
      const std::lock_guard<std::mutex> lock(order_);
      KeepFirst(std::move(fault));
    }
    return is_good && !block.is_last;
  }

  // Parses the block's tokens with the numbers begin, ..., end - 1.
  bool Parse(const TextBlock& block,
             const Position& position,
             int64_t begin,
             int64_t end,
             Fault* fault) {
    const char* p = block.begin;
    if (block.starts_in_token) {
      p = SkipToken(p, block.end);
    }
    for (int64_t token = position.num_tokens; token < end; ++token) {
      while (p < block.end && IsSpace(*p)) {
        ++p;
      }
      if (p >= block.end) {
        return true;
      }
      if (token < begin) {
        p = SkipToken(p, block.end);
        continue;
      }
      const char* const stop = ParseToken(token, p, block.text_end);
      // A token that a failure of the stream has cut off is not an error of its
      // own.
      const bool may_be_cut = block.has_text_end && !block.error.empty();
      if (stop == nullptr ||
          stop - p >= static_cast<ptrdiff_t>(kMaxTokenSize) ||
          (stop == block.text_end && may_be_cut)) {
        const bool is_cut =
            may_be_cut && SkipToken(p, block.text_end) == block.text_end &&
            block.text_end - p < static_cast<ptrdiff_t>(kMaxTokenSize);
        *fault = {block.index,
                  token,
                  position.line + CountLines(block.begin, p),
                  is_cut ? block.error : Quoted(p, block.text_end)};
        return false;
      }
      p = stop;
    }
    return true;
  }

  static const char* SkipToken(const char* p, const char* end) {
    return std::find_if(p, end, IsSpace);
  }

  // The end of the token, or nullptr if it is not allowed there.
  const char* ParseToken(int64_t token, const char* p, const char* end) {
    if (token < kNumCounts) {
      int32_t count;
      const char* const stop = ParseIndex(p, end, 1, kMaxCount, &count);
      if (stop != nullptr) {
        counts_[num_counts_++] = count;
      }
      if (num_counts_ == kNumCounts) {
        cameras_begin_ = kNumCounts + 4 * counts_[2];
        points_begin_ = cameras_begin_ + kCameraSize * counts_[0];
        end_ = points_begin_ + 3 * counts_[1];
      }
      return stop;
    }
    if (token < cameras_begin_) {
      const int64_t i = (token - kNumCounts) / 4;
      switch ((token - kNumCounts) % 4) {
        case 0:
          return ParseIndex(
              p, end, 0, counts_[0] - 1, &problem_->camera_index[i]);
        case 1:
          return ParseIndex(
              p, end, 0, counts_[1] - 1, &problem_->point_index[i]);
        case 2:
          return ParseFinite(p, end, &problem_->observations[2 * i]);
        default:
          return ParseFinite(p, end, &problem_->observations[2 * i + 1]);
      }
    }
    if (token < points_begin_) {
      return ParseFinite(p, end, &problem_->cameras[token - cameras_begin_]);
    }
    if (token < end_) {
      return ParseFinite(p, end, &problem_->points[token - points_begin_]);
    }
    return nullptr;
  }

  static const char* ParseIndex(const char* p,
                                const char* end,
                                int64_t min,
                                int64_t max,
                                int32_t* value) {
    int64_t wide;
    const char* const stop = ParseNumber(p, end, &wide);
    if (stop == nullptr || wide < min || wide > max) {
      return nullptr;
    }
    *value = static_cast<int32_t>(wide);
    return stop;
  }

  static const char* ParseFinite(const char* p,
                                 const char* end,
                                 double* value) {
    const char* const stop = ParseNumber(p, end, value);
    return stop != nullptr && std::isfinite(*value) ? stop : nullptr;
  }

  // Room for the tokens up to position_. A thread at a time makes it, while no
  // other one is in its block.
  void MakeRoom() {
    const int64_t num_tokens = std::min(position_.num_tokens, end_);
    const int64_t num_observations =
        (std::min(num_tokens, cameras_begin_) - kNumCounts + 3) / 4;
    const int64_t num_camera_values =
        std::min(num_tokens, points_begin_) - cameras_begin_;
    const int64_t num_point_values = num_tokens - points_begin_;
    if (num_observations <= problem_->num_observations() &&
        num_camera_values <= static_cast<int64_t>(problem_->cameras.size()) &&
        num_point_values <= static_cast<int64_t>(problem_->points.size())) {
      return;
    }
    const std::unique_lock<std::shared_mutex> lock(room_);
    Grow(num_observations, counts_[2], 8, 1, &problem_->camera_index);
    Grow(num_observations, counts_[2], 8, 1, &problem_->point_index);
    Grow(num_observations, counts_[2], 8, 2, &problem_->observations);
    Grow(num_camera_values, kCameraSize * counts_[0], 2, 1, &problem_->cameras);
    Grow(num_point_values, 3 * counts_[1], 2, 1, &problem_->points);
  }

  // For at least num_wanted items of `width` values: for as many as a text of
  // this size can hold, of which an item takes min_text_size characters and
  // more, or else for twice as many as before, but never for more than the
  // header promises.
  template <typename Array>
  void Grow(int64_t num_wanted,
            int64_t num_promised,
            int min_text_size,
            int width,
            Array* values) {
    const int64_t num_items = static_cast<int64_t>(values->size()) / width;
    if (num_wanted > num_items) {
      const int64_t num_held =
          std::max<int64_t>(1024, stream_->size() / min_text_size + 1);
      values->resize(width *
                     std::min(num_promised,
                              std::max({num_wanted, 2 * num_items, num_held})));
    }
  }

  // The expected text.
  std::string Expected(int64_t token) const {
    constexpr const char* kCountNames[kNumCounts] = {
        "cameras", "points", "observations"};
    if (token < kNumCounts) {
      return std::string("the number of ") + kCountNames[token] + ", " +
             Integer(1, kMaxCount);
    }
    if (token < cameras_begin_) {
      const std::string observation =
          Ordinal("observation", (token - kNumCounts) / 4, counts_[2]);
      switch ((token - kNumCounts) % 4) {
        case 0:
          return "the camera of " + observation + ", " +
                 Integer(0, counts_[0] - 1);
        case 1:
          return "the point of " + observation + ", " +
                 Integer(0, counts_[1] - 1);
        default:
          return "x and y of " + observation + ", finite numbers";
      }
    }
    if (token >= end_) {
      return "nothing after the last point";
    }
    const bool is_camera = token < points_begin_;
    const int64_t i = token - (is_camera ? cameras_begin_ : points_begin_);
    const int size = is_camera ? kCameraSize : 3;
    return Ordinal(is_camera ? "parameter" : "coordinate", i % size, size) +
           " of " +
           Ordinal(is_camera ? "camera" : "point",
                   i / size,
                   counts_[is_camera ? 0 : 1]) +
           ", a finite number";
  }

  // The functions below are for the one that holds order_.

  void Stop() {
    is_stopped_ = true;
    turn_.notify_all();
  }

  // All blocks before that of a fault have had their turn and come to their
  // end.
  void KeepFirst(Fault fault) {
    if (fault.block < fault_.block) {
      fault_ = std::move(fault);
    }
    Stop();
  }

  ByteStream* const stream_;
  std::optional<ProgressLine> progress_;
  TextBlocks blocks_;
  BalProblem* const problem_;

  std::mutex order_;
  std::condition_variable turn_;
  int64_t next_ = 0;  // the block whose turn it is
  Position position_;
  bool is_stopped_ = false;
  Fault fault_;

  // Set with the turn of the block in which they stand.
  int num_counts_ = 0;
  int64_t counts_[kNumCounts];  // cameras, points, observations
  int64_t cameras_begin_ = 0;
  int64_t points_begin_ = 0;
  int64_t end_ = 0;

  // Shared by those that fill the arrays.
  std::shared_mutex room_;
};

}  // namespace

bool ReadBalText(const BalReadOptions& options,
                 ByteStream* stream,
                 BalProblem* problem,
                 std::string* error) {
  int64_t num_threads = NumThreads(options.num_threads);
  if (stream->size() >= 0) {
    num_threads =
        std::min<int64_t>(num_threads, 1 + stream->size() / options.block_size);
  }
  TextReader reader(options, stream, problem);
  ForEachChunk(static_cast<int>(num_threads),
               num_threads,
               [&reader](int, int64_t, int64_t) { reader.ReadBlocks(); });
  return reader.IsGood(error);
}

}  // namespace ceres_ext::bal
