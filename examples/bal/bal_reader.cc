// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/bal_reader.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "examples/bal/byte_stream.h"
#include "examples/bal/number_text.h"

namespace ceres_ext::bal {
namespace {

constexpr size_t kBufferSize = 1 << 18;
// No number is longer: 17 digits behind the 323 zeros of the smallest double
// take a third of it.
constexpr ptrdiff_t kMaxTokenSize = 1024;

// Splits a stream into numbers. A failure is sticky and is kept as what was
// found and in which line; the caller knows what it expected.
class NumberReader {
 public:
  explicit NumberReader(ByteStream* stream)
      : stream_(stream), buffer_(kBufferSize) {
    position_ = end_ = buffer_.data();
  }

  bool ReadIndex(int64_t min, int64_t max, int32_t* value) {
    int64_t wide;
    if (!ReadNumber(&wide)) {
      return false;
    }
    if (wide < min || wide > max) {
      return Fail(Quoted(token_, end_));
    }
    *value = static_cast<int32_t>(wide);
    return true;
  }

  bool ReadFinite(double* value) {
    return ReadNumber(value) &&
           (std::isfinite(*value) || Fail(Quoted(token_, end_)));
  }

  // True where nothing but white space is left.
  bool ReadEnd() {
    if (SkipSpace()) {
      return Fail(Quoted(position_, end_));
    }
    return stream_->error().empty() || Fail(stream_->error());
  }

  int64_t line() const { return line_; }
  const std::string& found() const { return found_; }

 private:
  template <typename T>
  bool ReadNumber(T* value) {
    if (!SkipSpace()) {
      return Fail(stream_->error().empty() ? "the end of the file"
                                           : stream_->error());
    }
    if (end_ - position_ < kMaxTokenSize) {
      Refill();
    }
    token_ = position_;
    const char* stop = ParseNumber(token_, end_, value);
    if (stop == nullptr || stop - token_ >= kMaxTokenSize ||
        (stop == end_ && !stream_->error().empty())) {
      return FailAtToken();
    }
    position_ = const_cast<char*>(stop);
    return true;
  }

  // False at the end of the stream.
  bool SkipSpace() {
    for (;;) {
      for (; position_ < end_; ++position_) {
        if (!IsSpace(*position_)) {
          return true;
        }
        line_ += *position_ == '\n';
      }
      if (!Refill()) {
        return false;
      }
    }
  }

  // Moves what is left to the front and reads behind it. False if nothing new
  // came.
  bool Refill() {
    if (at_end_) {
      return false;
    }
    const size_t left = end_ - position_;
    std::memmove(buffer_.data(), position_, left);
    const size_t num_read =
        stream_->Read(buffer_.data() + left, buffer_.size() - left);
    at_end_ = num_read < buffer_.size() - left;
    position_ = buffer_.data();
    end_ = position_ + left + num_read;
    return num_read > 0;
  }

  // A token that the stream's failure has cut off is no finding of its own.
  bool FailAtToken() {
    const bool cut = !stream_->error().empty() &&
                     std::find_if<const char*>(token_, end_, IsSpace) == end_;
    return Fail(cut ? stream_->error() : Quoted(token_, end_));
  }

  bool Fail(std::string found) {
    found_ = std::move(found);
    return false;
  }

  ByteStream* stream_;
  std::vector<char> buffer_;
  char* position_;
  char* end_;
  const char* token_ = nullptr;
  bool at_end_ = false;
  int64_t line_ = 1;
  std::string found_;
};

// Doubles the capacity, but never beyond the total that the header promises.
template <typename T>
void Append(T value, int64_t total, std::vector<T>* values) {
  if (values->size() == values->capacity()) {
    const auto doubled = std::max<int64_t>(1024, 2 * values->size());
    values->reserve(std::min(total, doubled));
  }
  values->push_back(value);
}

std::string Integer(int64_t min, int64_t max) {
  return "an integer from " + std::to_string(min) + " to " +
         std::to_string(max);
}

std::string Ordinal(const char* what, int64_t i, int64_t count) {
  return std::string(what) + " " + std::to_string(i + 1) + " of " +
         std::to_string(count);
}

// False on failure; *expected then says what should have come.
bool ReadProblem(NumberReader* reader,
                 BalProblem* problem,
                 std::string* expected) {
  constexpr int64_t kMaxCount = std::numeric_limits<int32_t>::max();
  constexpr const char* kCountNames[3] = {"cameras", "points", "observations"};
  int32_t counts[3];
  for (int i = 0; i < 3; ++i) {
    if (!reader->ReadIndex(1, kMaxCount, &counts[i])) {
      *expected = std::string("the number of ") + kCountNames[i] + ", " +
                  Integer(1, kMaxCount);
      return false;
    }
  }
  const int64_t num_cameras = counts[0];
  const int64_t num_points = counts[1];
  const int64_t num_observations = counts[2];

  for (int64_t i = 0; i < num_observations; ++i) {
    int32_t camera;
    int32_t point;
    double xy[2];
    if (!reader->ReadIndex(0, num_cameras - 1, &camera)) {
      *expected = "the camera of " +
                  Ordinal("observation", i, num_observations) + ", " +
                  Integer(0, num_cameras - 1);
      return false;
    }
    if (!reader->ReadIndex(0, num_points - 1, &point)) {
      *expected = "the point of " +
                  Ordinal("observation", i, num_observations) + ", " +
                  Integer(0, num_points - 1);
      return false;
    }
    if (!reader->ReadFinite(&xy[0]) || !reader->ReadFinite(&xy[1])) {
      *expected = "x and y of " + Ordinal("observation", i, num_observations) +
                  ", finite numbers";
      return false;
    }
    Append(camera, num_observations, &problem->camera_index);
    Append(point, num_observations, &problem->point_index);
    Append(xy[0], 2 * num_observations, &problem->observations);
    Append(xy[1], 2 * num_observations, &problem->observations);
  }

  const auto read_parameters = [&](const char* block,
                                   const char* parameter,
                                   int64_t num_blocks,
                                   int64_t block_size,
                                   std::vector<double>* values) {
    for (int64_t i = 0; i < num_blocks * block_size; ++i) {
      double value;
      if (!reader->ReadFinite(&value)) {
        *expected = Ordinal(parameter, i % block_size, block_size) + " of " +
                    Ordinal(block, i / block_size, num_blocks) +
                    ", a finite number";
        return false;
      }
      Append(value, num_blocks * block_size, values);
    }
    return true;
  };
  if (!read_parameters(
          "camera", "parameter", num_cameras, 9, &problem->cameras) ||
      !read_parameters(
          "point", "coordinate", num_points, 3, &problem->points)) {
    return false;
  }
  if (!reader->ReadEnd()) {
    *expected = "nothing after the last point";
    return false;
  }
  return true;
}

bool ReadStream(const std::string& name,
                std::unique_ptr<ByteStream> raw,
                BalProblem* problem,
                std::string* error) {
  *problem = BalProblem();
  try {
    const std::unique_ptr<ByteStream> stream = Decompress(std::move(raw));
    NumberReader reader(stream.get());
    std::string expected;
    if (ReadProblem(&reader, problem, &expected)) {
      return true;
    }
    *error = name + ":" + std::to_string(reader.line()) + ": expected " +
             expected + ", found " + reader.found();
  } catch (const std::bad_alloc&) {
    *error = name + ": expected a problem that fits in memory, found " +
             std::to_string(problem->num_observations()) +
             " observations and more";
  }
  *problem = BalProblem();
  return false;
}

}  // namespace

bool ReadBalFile(const std::string& path,
                 BalProblem* problem,
                 std::string* error) {
  std::string found;
  std::unique_ptr<ByteStream> raw = OpenFile(path, &found);
  if (raw == nullptr) {
    *problem = BalProblem();
    *error = path + ": expected a readable file, found " + found;
    return false;
  }
  return ReadStream(path, std::move(raw), problem, error);
}

bool ReadBalMemory(const std::string& name,
                   const char* data,
                   size_t size,
                   BalProblem* problem,
                   std::string* error) {
  return ReadStream(name, OpenMemory(data, size), problem, error);
}

}  // namespace ceres_ext::bal
