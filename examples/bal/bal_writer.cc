// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/bal_writer.h"

#include <bzlib.h>
#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "examples/bal/safe_file.h"

namespace ceres_ext::bal {
namespace {

constexpr size_t kBufferSize = 1 << 20;

// Bytes on the way to a file descriptor. Close() tells whether all arrived; the
// descriptor stays open.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual bool Write(const char* data, size_t size) = 0;
  virtual bool Close() = 0;
};

class PlainSink final : public Sink {
 public:
  explicit PlainSink(int fd) : fd_(fd) {}
  bool Write(const char* data, size_t size) override {
    return WriteFully(fd_, data, size);
  }
  bool Close() override { return true; }

 private:
  int fd_;
};

class GzipSink final : public Sink {
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

class Bzip2Sink final : public Sink {
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

bool EndsWith(const std::string& text, std::string_view end) {
  return text.size() >= end.size() &&
         text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// nullptr, with errno, if memory or file descriptors run out.
std::unique_ptr<Sink> CreateSink(const std::string& path, int fd) {
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

// Collects text and hands it to a SafeFile in large pieces. Failure is sticky
// and comes out of Close(), without which the file stays what it was.
class TextWriter {
 public:
  explicit TextWriter(const std::string& path) : path_(path) {
    buffer_.reserve(kBufferSize);
    std::string found;
    file_ = SafeFile::Create(path, &found);
    if (file_ == nullptr) {
      SetError(found);
      return;
    }
    errno = 0;
    sink_ = CreateSink(path, file_->fd());
    if (sink_ == nullptr) {
      SetError();
    }
  }

  TextWriter& operator<<(std::string_view text) {
    if (buffer_.size() + text.size() > kBufferSize) {
      Flush();
    }
    buffer_ += text;
    return *this;
  }

  // Integers; floating point numbers in the shortest form that reads back as
  // the same bits.
  template <typename T>
  TextWriter& Number(T value) {
    char text[32];
    const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
    return *this << std::string_view(text, end - text);
  }

  bool Close(std::string* error) {
    Flush();
    if (sink_ != nullptr && !sink_->Close() && error_.empty()) {
      SetError();
    }
    sink_ = nullptr;
    std::string found;
    if (error_.empty() && !file_->Commit(&found)) {
      SetError(found);
    }
    file_ = nullptr;
    *error = error_;
    return error_.empty();
  }

 private:
  void Flush() {
    if (error_.empty()) {
      errno = 0;
      if (!sink_->Write(buffer_.data(), buffer_.size())) {
        SetError();
      }
    }
    buffer_.clear();
  }

  void SetError() {
    SetError(errno != 0 ? std::strerror(errno) : "an error of compression");
  }

  void SetError(const std::string& found) {
    error_ = CannotWrite(path_, found);
  }

  const std::string path_;
  std::string buffer_;
  std::unique_ptr<SafeFile> file_;
  std::unique_ptr<Sink> sink_;
  std::string error_;
};

}  // namespace

bool WriteBalFile(const std::string& path,
                  const BalProblem& problem,
                  std::string* error) {
  if (problem.camera_size != 9) {
    *error = path + ": expected cameras with 9 parameters, found " +
             std::to_string(problem.camera_size);
    return false;
  }
  TextWriter writer(path);
  writer.Number(problem.num_cameras()) << " ";
  writer.Number(problem.num_points()) << " ";
  writer.Number(problem.num_observations()) << "\n";
  for (int64_t i = 0; i < problem.num_observations(); ++i) {
    writer.Number(problem.camera_index[i]) << " ";
    writer.Number(problem.point_index[i]) << " ";
    writer.Number(problem.observations[2 * i]) << " ";
    writer.Number(problem.observations[2 * i + 1]) << "\n";
  }
  for (const double parameter : problem.cameras) {
    writer.Number(parameter) << "\n";
  }
  for (const double coordinate : problem.points) {
    writer.Number(coordinate) << "\n";
  }
  return writer.Close(error);
}

bool WritePlyFile(const std::string& path,
                  const std::vector<double>& camera_centers,
                  const std::vector<double>& points,
                  std::string* error) {
  TextWriter writer(path);
  writer << "ply\nformat ascii 1.0\nelement vertex ";
  writer.Number((camera_centers.size() + points.size()) / 3);
  writer << "\nproperty float x\nproperty float y\nproperty float z\n"
            "property uchar red\nproperty uchar green\nproperty uchar blue\n"
            "end_header\n";
  const auto write_vertices = [&writer](const std::vector<double>& xyz,
                                        const char* color) {
    for (size_t i = 0; i < xyz.size(); ++i) {
      writer.Number(static_cast<float>(xyz[i]));
      writer << (i % 3 == 2 ? color : " ");
    }
  };
  write_vertices(camera_centers, " 0 255 0\n");
  write_vertices(points, " 255 255 255\n");
  return writer.Close(error);
}

bool WriteTextFile(const std::string& path,
                   const std::string& text,
                   std::string* error) {
  TextWriter writer(path);
  writer << text;
  return writer.Close(error);
}

}  // namespace ceres_ext::bal
