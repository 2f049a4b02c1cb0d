// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/byte_stream.h"

#include <bzlib.h>
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ceres_ext::bal {
namespace {

constexpr size_t kCompressedChunk = 1 << 18;

class FileStream final : public ByteStream {
 public:
  explicit FileStream(std::FILE* file) : file_(file) {}
  ~FileStream() override { std::fclose(file_); }

  size_t Read(char* buffer, size_t size) override {
    const size_t num_read = std::fread(buffer, 1, size, file_);
    if (num_read < size && std::ferror(file_)) {
      error_ = std::string("a read error (") + std::strerror(errno) + ")";
    }
    return num_read;
  }

 private:
  std::FILE* file_;
};

class MemoryStream final : public ByteStream {
 public:
  MemoryStream(const char* data, size_t size) : data_(data), left_(size) {}

  size_t Read(char* buffer, size_t size) override {
    const size_t num_read = std::min(size, left_);
    if (num_read > 0) {
      std::memcpy(buffer, data_, num_read);
    }
    data_ += num_read;
    left_ -= num_read;
    return num_read;
  }

 private:
  const char* data_;
  size_t left_;
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

// What gzip and bzip2 have in common: chunks of compressed input, several
// compressed streams one after another, and nothing else behind them.
class DecompressingStream : public ByteStream {
 public:
  size_t Read(char* buffer, size_t size) override {
    size_t num_read = 0;
    while (num_read < size && error_.empty() && !at_end_) {
      if (input_size_ == 0 && !FillInput()) {
        break;
      }
      if (!in_stream_) {
        BeginStream();
        in_stream_ = error_.empty();
      }
      if (in_stream_) {
        num_read += Step(buffer + num_read, size - num_read);
      }
    }
    return num_read;
  }

 protected:
  DecompressingStream(const char* name, std::unique_ptr<ByteStream> raw)
      : name_(name), raw_(std::move(raw)), chunk_(kCompressedChunk) {}

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
    size = std::min<size_t>(size, 1 << 30);  // zlib counts in 32 bits
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
    size = std::min<size_t>(size, 1 << 30);  // bzip2 counts in 32 bits
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

std::unique_ptr<ByteStream> OpenFile(const std::string& path,
                                     std::string* error) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    *error = std::strerror(errno);
    return nullptr;
  }
  auto stream = std::make_unique<FileStream>(file);
  struct stat status;
  if (fstat(fileno(file), &status) == 0 && S_ISDIR(status.st_mode)) {
    *error = "a directory";
    return nullptr;
  }
  return stream;
}

std::unique_ptr<ByteStream> OpenMemory(const char* data, size_t size) {
  return std::make_unique<MemoryStream>(data, size);
}

std::unique_ptr<ByteStream> Decompress(std::unique_ptr<ByteStream> raw) {
  char magic[3] = {};
  const size_t num_read = raw->Read(magic, sizeof(magic));
  auto whole = std::make_unique<PrefixedStream>(std::string(magic, num_read),
                                                std::move(raw));
  if (num_read >= 2 && std::memcmp(magic, "\x1f\x8b", 2) == 0) {
    return std::make_unique<GzipStream>(std::move(whole));
  }
  if (num_read == 3 && std::memcmp(magic, "BZh", 3) == 0) {
    return std::make_unique<Bzip2Stream>(std::move(whole));
  }
  return whole;
}

}  // namespace ceres_ext::bal
