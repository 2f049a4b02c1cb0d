// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "problem_io/text_writer.h"

#include <bzlib.h>
#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "problem_io/safe_file.h"

namespace ceres_ext::bal {

// Bytes on the way to a file descriptor. Close() tells whether all arrived; the
// descriptor stays open.
class TextWriter::Sink {
 public:
  virtual ~Sink() = default;
  virtual bool Write(const char* data, size_t size) = 0;
  virtual bool Close() = 0;

  // nullptr, with errno, if memory or file descriptors run out.
  static std::unique_ptr<Sink> Create(const std::string& path, int fd);
};

namespace {

constexpr size_t kBufferSize = 1 << 20;

class PlainSink final : public TextWriter::Sink {
 public:
  explicit PlainSink(int fd) : fd_(fd) {}
  bool Write(const char* data, size_t size) override {
    return WriteFully(fd_, data, size);
  }
  bool Close() override { return true; }

 private:
  int fd_;
};

class GzipSink final : public TextWriter::Sink {
 public:
  explicit GzipSink(gzFile file) : file_(file) {}
  bool Write(const char* data, size_t size) override {
    return gzwrite(file_, data, static_cast<unsigned>(size)) ==
           static_cast<int>(size);
  }
  bool Close() override { return gzclose(file_) == Z_OK; }

 private:
  gzFile file_;
};

class Bzip2Sink final : public TextWriter::Sink {
 public:
  explicit Bzip2Sink(std::FILE* file) : file_(file) {
    bzip2_ = BZ2_bzWriteOpen(&status_, file_, 9, 0, 0);
  }
  bool Write(const char* data, size_t size) override {
    if (status_ == BZ_OK) {
      BZ2_bzWrite(
          &status_, bzip2_, const_cast<char*>(data), static_cast<int>(size));
    }
    return status_ == BZ_OK;
  }
  bool Close() override {
    const bool good = status_ == BZ_OK;
    BZ2_bzWriteClose(&status_, bzip2_, /*abandon=*/!good, nullptr, nullptr);
    if (status_ == BZ_IO_ERROR) {
      // libbz2 frees nothing while the stream's error indicator is set.
      std::clearerr(file_);
      int ignored;
      BZ2_bzWriteClose(&ignored, bzip2_, /*abandon=*/1, nullptr, nullptr);
    }
    return std::fclose(file_) == 0 && good && status_ == BZ_OK;
  }

 private:
  std::FILE* file_;
  BZFILE* bzip2_;
  int status_;
};

}  // namespace

bool EndsWith(const std::string& text, std::string_view end) {
  return text.size() >= end.size() &&
         text.compare(text.size() - end.size(), end.size(), end) == 0;
}

std::unique_ptr<TextWriter::Sink> TextWriter::Sink::Create(
    const std::string& path, int fd) {
  if (!EndsWith(path, ".gz") && !EndsWith(path, ".bz2")) {
    return std::make_unique<PlainSink>(fd);
  }
  // The libraries close what they write to.
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) {
    return nullptr;
  }
  if (EndsWith(path, ".gz")) {
    if (gzFile file = gzdopen(copy, "wb")) {
      return std::make_unique<GzipSink>(file);
    }
  } else if (std::FILE* file = fdopen(copy, "wb")) {
    return std::make_unique<Bzip2Sink>(file);
  }
  close(copy);
  return nullptr;
}

TextWriter::TextWriter(const std::string& path) : path_(path) {
  buffer_.reserve(kBufferSize);
  std::string found;
  file_ = SafeFile::Create(path, &found);
  if (file_ == nullptr) {
    SetError(found);
    return;
  }
  errno = 0;
  sink_ = Sink::Create(path, file_->fd());
  if (sink_ == nullptr) {
    SetError();
  }
}

TextWriter::~TextWriter() = default;

TextWriter& TextWriter::operator<<(std::string_view text) {
  if (buffer_.size() + text.size() > kBufferSize) {
    Flush();
  }
  buffer_ += text;
  return *this;
}

bool TextWriter::Finish(std::string* error) {
  if (sink_ != nullptr) {
    Flush();
    if (!sink_->Close() && error_.empty()) {
      SetError();
    }
    sink_ = nullptr;
    std::string found;
    if (error_.empty() && !file_->Finish(&found)) {
      SetError(found);
    }
  }
  *error = error_;
  return error_.empty();
}

bool TextWriter::Close(std::string* error) {
  std::string found;
  if (Finish(error) && !file_->Commit(&found)) {
    SetError(found);
  }
  file_ = nullptr;
  *error = error_;
  return error_.empty();
}

void TextWriter::Flush() {
  if (error_.empty()) {
    errno = 0;
    if (!sink_->Write(buffer_.data(), buffer_.size())) {
      SetError();
    }
  }
  buffer_.clear();
}

void TextWriter::SetError() {
  SetError(errno != 0 ? std::strerror(errno) : "an error of compression");
}

void TextWriter::SetError(const std::string& found) {
  error_ = CannotWrite(path_, found);
}

}  // namespace ceres_ext::bal
