// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "problem_io/byte_stream.h"

#include <bzlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "problem_io/parallel_bzip2.h"

namespace ceres_ext::bal {
namespace {

constexpr size_t kCompressedChunk = 1 << 18;
constexpr size_t kDecompressedChunk = 1 << 16;

std::string ReadError() {
  return std::string("a read error (") + std::strerror(errno) + ")";
}

class FileStream final : public ByteStream {
 public:
  // size: -1 for files that are not regular.
  FileStream(std::FILE* file, int64_t size) : file_(file), size_(size) {}
  ~FileStream() override { std::fclose(file_); }

  size_t Read(char* buffer, size_t size) override {
    const size_t num_read = std::fread(buffer, 1, size, file_);
    if (num_read < size && std::ferror(file_)) {
      error_ = ReadError();
    }
    return num_read;
  }

  int64_t size() const override { return size_; }

  // No mapping: where a file shrinks that one would end the process.
  size_t ReadAt(int64_t offset,
                char* buffer,
                size_t size,
                std::string* error) const override {
    size_t num_read = 0;
    while (num_read < size) {
      const ssize_t more = pread(fileno(file_),
                                 buffer + num_read,
                                 size - num_read,
                                 static_cast<off_t>(offset + num_read));
      if (more < 0 && errno == EINTR) {
        continue;
      }
      if (more <= 0) {
        if (more < 0) {
          *error = ReadError();
        }
        break;
      }
      num_read += more;
    }
    return num_read;
  }

 private:
  std::FILE* file_;
  const int64_t size_;
};

class MemoryStream final : public ByteStream {
 public:
  MemoryStream(const char* data, size_t size) : data_(data), size_(size) {}

  size_t Read(char* buffer, size_t size) override {
    const size_t num_read = ReadAt(position_, buffer, size, nullptr);
    position_ += num_read;
    return num_read;
  }

  int64_t size() const override { return size_; }

  size_t ReadAt(int64_t offset,
                char* buffer,
                size_t size,
                std::string* /*error*/) const override {
    const size_t num_read =
        std::min<int64_t>(size, std::max<int64_t>(0, size_ - offset));
    if (num_read > 0) {
      std::memcpy(buffer, data_ + offset, num_read);
    }
    return num_read;
  }

 private:
  const char* data_;
  const int64_t size_;
  int64_t position_ = 0;
};

// The bytes of prefix, then those of rest.
class PrefixedStream final : public ByteStream {
 public:
  PrefixedStream(std::string prefix, std::unique_ptr<ByteStream> rest)
      : prefix_(std::move(prefix)), rest_(std::move(rest)) {}

  size_t Read(char* buffer, size_t size) override {
    const size_t from_prefix = prefix_.copy(buffer, size, position_);
    position_ += from_prefix;
    const size_t from_rest =
        rest_->Read(buffer + from_prefix, size - from_prefix);
    error_ = rest_->error();
    return from_prefix + from_rest;
  }

 private:
  const std::string prefix_;
  size_t position_ = 0;
  std::unique_ptr<ByteStream> rest_;
};

// The common part of gzip and bzip2: chunks of compressed input, several
// compressed streams one after another, and nothing else behind them.
class DecompressingStream : public ByteStream {
 public:
  size_t Read(char* buffer, size_t size) override {
    size_t num_read = 0;
    while (num_read < size && (position_ < output_size_ || FillOutput())) {
      const size_t part = std::min(size - num_read, output_size_ - position_);
      std::memcpy(buffer + num_read, output_.data() + position_, part);
      num_read += part;
      position_ += part;
    }
    return num_read;
  }

 protected:
  DecompressingStream(const char* name, std::unique_ptr<ByteStream> raw)
      : name_(name),
        raw_(std::move(raw)),
        chunk_(kCompressedChunk),
        output_(kDecompressedChunk) {}

  // Ready for a new compressed stream; sets error_ on failure.
  virtual void BeginStream() = 0;
  // Decompresses from input_ to buffer, returns the number of bytes written.
  // Sets in_stream_ to false at the end of a compressed stream, or error_.
  virtual size_t Step(char* buffer, size_t size) = 0;

  void SetCorrupt(const char* detail) {
    error_ = std::string("corrupt ") + name_ + " data (" + detail + ")";
  }

  const char* input_ = nullptr;
  size_t input_size_ = 0;
  bool in_stream_ = false;

 private:
  // False at the end or on failure. How much of corrupt data comes before the
  // failure depends on how much is asked for at a time, so that is the same
  // however Read is called.
  bool FillOutput() {
    position_ = 0;
    output_size_ = 0;
    while (output_size_ < output_.size() && error_.empty() && !at_end_) {
      if (input_size_ == 0 && !FillInput()) {
        break;
      }
      if (!in_stream_) {
        BeginStream();
        in_stream_ = error_.empty();
      }
      if (in_stream_) {
        output_size_ +=
            Step(output_.data() + output_size_, output_.size() - output_size_);
      }
    }
    return output_size_ > 0;
  }

  // False at the end of the raw data or on failure.
  bool FillInput() {
    input_ = chunk_.data();
    input_size_ = raw_->Read(chunk_.data(), chunk_.size());
    if (input_size_ > 0) {
      return true;
    }
    if (!raw_->error().empty()) {
      error_ = raw_->error();
    } else if (in_stream_) {
      error_ = std::string("truncated ") + name_ + " data";
    }
    at_end_ = true;
    return false;
  }

  const char* name_;
  std::unique_ptr<ByteStream> raw_;
  std::vector<char> chunk_;
  std::vector<char> output_;
  size_t output_size_ = 0;
  size_t position_ = 0;  // in output_
  bool at_end_ = false;
};

class GzipStream final : public DecompressingStream {
 public:
  explicit GzipStream(std::unique_ptr<ByteStream> raw)
      : DecompressingStream("gzip", std::move(raw)) {
    // 15: largest window; 16: a gzip header and checksum must be there.
    ready_ = inflateInit2(&zlib_, 15 + 16) == Z_OK;
  }
  ~GzipStream() override {
    if (ready_) {
      inflateEnd(&zlib_);
    }
  }

 private:
  void BeginStream() override {
    if (!ready_ || inflateReset(&zlib_) != Z_OK) {
      error_ = "too little memory for gzip";
    }
  }

  size_t Step(char* buffer, size_t size) override {
    zlib_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(input_));
    zlib_.avail_in = static_cast<uInt>(input_size_);
    zlib_.next_out = reinterpret_cast<Bytef*>(buffer);
    zlib_.avail_out = static_cast<uInt>(size);
    const int status = inflate(&zlib_, Z_NO_FLUSH);
    input_ += input_size_ - zlib_.avail_in;
    input_size_ = zlib_.avail_in;
    if (status == Z_STREAM_END) {
      in_stream_ = false;
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      SetCorrupt(zlib_.msg != nullptr ? zlib_.msg : zError(status));
    }
    return size - zlib_.avail_out;
  }

  z_stream zlib_ = {};
  bool ready_ = false;
};

class Bzip2Stream final : public DecompressingStream {
 public:
  explicit Bzip2Stream(std::unique_ptr<ByteStream> raw)
      : DecompressingStream("bzip2", std::move(raw)) {}
  ~Bzip2Stream() override { BZ2_bzDecompressEnd(&bzip2_); }

 private:
  void BeginStream() override {
    BZ2_bzDecompressEnd(&bzip2_);  // harmless before the first stream
    bzip2_ = {};
    if (BZ2_bzDecompressInit(&bzip2_, /*verbosity=*/0, /*small=*/0) != BZ_OK) {
      error_ = "too little memory for bzip2";
    }
  }

  size_t Step(char* buffer, size_t size) override {
    bzip2_.next_in = const_cast<char*>(input_);
    bzip2_.avail_in = static_cast<unsigned>(input_size_);
    bzip2_.next_out = buffer;
    bzip2_.avail_out = static_cast<unsigned>(size);
    const int status = BZ2_bzDecompress(&bzip2_);
    input_ += input_size_ - bzip2_.avail_in;
    input_size_ = bzip2_.avail_in;
    if (status == BZ_STREAM_END) {
      in_stream_ = false;
    } else if (status == BZ_DATA_ERROR_MAGIC) {
      SetCorrupt("no bzip2 header");
    } else if (status == BZ_MEM_ERROR) {
      error_ = "too little memory for bzip2";
    } else if (status != BZ_OK) {
      SetCorrupt("checksum or code error");
    }
    return size - bzip2_.avail_out;
  }

  bz_stream bzip2_ = {};
};

}  // namespace

size_t ByteStream::ReadAt(int64_t /*offset*/,
                          char* /*buffer*/,
                          size_t /*size*/,
                          std::string* error) const {
  *error = "no file to read at any place";
  return 0;
}

std::unique_ptr<ByteStream> OpenFile(const std::string& path,
                                     std::string* error) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    *error = std::strerror(errno);
    return nullptr;
  }
  struct stat status = {};
  const bool has_status = fstat(fileno(file), &status) == 0;
  // Files of /proc have contents but no size.
  const bool is_regular =
      has_status && S_ISREG(status.st_mode) && status.st_size > 0;
  auto stream =
      std::make_unique<FileStream>(file, is_regular ? status.st_size : -1);
  if (has_status && S_ISDIR(status.st_mode)) {
    *error = "a directory";
    return nullptr;
  }
  return stream;
}

std::unique_ptr<ByteStream> OpenMemory(const char* data, size_t size) {
  return std::make_unique<MemoryStream>(data, size);
}

std::string Peek(size_t size, std::unique_ptr<ByteStream>* stream) {
  std::string bytes(size, '\0');
  if ((*stream)->size() >= 0) {
    std::string error;
    bytes.resize((*stream)->ReadAt(0, bytes.data(), size, &error));
  } else {
    bytes.resize((*stream)->Read(bytes.data(), size));
    *stream = std::make_unique<PrefixedStream>(bytes, std::move(*stream));
  }
  return bytes;
}

std::unique_ptr<ByteStream> Decompress(std::unique_ptr<ByteStream> raw,
                                       int num_threads) {
  const std::string magic = Peek(3, &raw);
  if (magic.compare(0, 2, "\x1f\x8b") == 0) {
    return std::make_unique<GzipStream>(std::move(raw));
  }
  if (magic == "BZh") {
    const ByteStream* const file = raw->size() >= 0 ? raw.get() : nullptr;
    auto serial = std::make_unique<Bzip2Stream>(std::move(raw));
    if (file != nullptr) {
      return ParallelBzip2(file, std::move(serial), num_threads);
    }
    return serial;
  }
  return raw;
}

bool ReadAll(ByteStream* stream, std::vector<char>* bytes) {
  constexpr size_t kStep = 1 << 18;
  size_t num_read;
  do {
    const size_t size = bytes->size();
    if (bytes->capacity() < size + kStep) {
      bytes->reserve(2 * size + kStep);
    }
    bytes->resize(size + kStep);
    num_read = stream->Read(bytes->data() + size, kStep);
    bytes->resize(size + num_read);
  } while (num_read == kStep);
  return stream->error().empty();
}

}  // namespace ceres_ext::bal
