// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "problem_io/safe_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "problem_io/for_each_chunk.h"

namespace ceres_ext::bal {
namespace {

namespace fs = std::filesystem;

// As many as Linux follows.
constexpr int kMaxLinks = 40;
// The length of a name in a folder, at most 255 bytes on all file systems.
constexpr size_t kMaxNameInTemporary = 200;

// The files of a model of COLMAP.
constexpr int kMaxFiles = 5;

// The files that RemoveTemporaryFiles removes while the flag is set.
char temporary_to_remove[kMaxFiles][PATH_MAX];
std::atomic<bool> is_temporary_to_remove[kMaxFiles] = {};

bool IsSame(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// The number of the standard stream that `status` describes, else -1.
int StandardStream(const struct stat& status) {
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat stream;
    if (fstat(fd, &stream) == 0 && IsSame(stream, status)) {
      return fd;
    }
  }
  return -1;
}

// The target of symbolic links, whether or not the file exists.
std::string FollowLinks(const std::string& path) {
  fs::path end = path;
  for (int i = 0; i < kMaxLinks; ++i) {
    std::error_code status;
    const fs::path next = fs::read_symlink(end, status);
    if (status) {
      break;
    }
    end = end.parent_path() / next;  // next alone where it is absolute
  }
  return end.string();
}

std::string Folder(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

// False if the disk could not take it. Some file systems know no fsync.
bool Sync(int fd) { return fsync(fd) == 0 || errno == EINVAL; }

struct Place {
  dev_t device;
  ino_t inode;
  std::string name;  // in that folder; empty for an existing file
};

// False if nothing can be overwritten.
bool FindPlace(const std::string& path, Place* place) {
  if (path.empty()) {
    return false;
  }
  struct stat status;
  if (stat(path.c_str(), &status) == 0) {
    *place = {status.st_dev, status.st_ino, ""};
    return S_ISREG(status.st_mode) && StandardStream(status) < 0;
  }
  const std::string end = FollowLinks(path);
  if (stat(Folder(end).c_str(), &status) != 0) {
    return false;
  }
  *place = {status.st_dev, status.st_ino, fs::path(end).filename().string()};
  return true;
}

bool IsSameFile(const std::string& a, const std::string& b) {
  Place places[2];
  return FindPlace(a, &places[0]) && FindPlace(b, &places[1]) &&
         places[0].device == places[1].device &&
         places[0].inode == places[1].inode && places[0].name == places[1].name;
}

}  // namespace

std::unique_ptr<SafeFile> SafeFile::Create(const std::string& path,
                                           std::string* error) {
  std::unique_ptr<SafeFile> file(new SafeFile);
  if (!file->Open(path)) {
    *error = std::strerror(errno);
    return nullptr;
  }
  return file;
}

SafeFile::~SafeFile() {
  if (fd_ >= 0) {
    close(fd_);
  }
  if (!temporary_.empty()) {
    unlink(temporary_.c_str());
    is_temporary_to_remove[slot_] = false;
  }
}

bool SafeFile::Open(const std::string& path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) {
    return OpenTemporary(FollowLinks(path), 0666);
  }
  const int stream = StandardStream(status);
  if (stream >= 0) {
    // Existing files come first.
    std::fflush(stdout);
    fd_ = fcntl(stream, F_DUPFD_CLOEXEC, 0);
    return fd_ >= 0;
  }
  const std::string target = FollowLinks(path);
  struct stat target_status;
  if (!S_ISREG(status.st_mode) || stat(target.c_str(), &target_status) != 0 ||
      !IsSame(status, target_status)) {
    // Not to be replaced: no file, or one that has no name any more (in
    // /dev/fd).
    fd_ = open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
    return fd_ >= 0;
  }
  // A file that may not be written stays, whatever its folder allows.
  const mode_t permissions = status.st_mode & 0777;
  if (access(path.c_str(), W_OK) != 0 || !OpenTemporary(target, permissions)) {
    return false;
  }
  // The owner too, where that is allowed.
  if (fchown(fd_, status.st_uid, status.st_gid) != 0) {
    errno = 0;
  }
  return fchmod(fd_, permissions) == 0;
}

bool SafeFile::OpenTemporary(const std::string& target, int permissions) {
  const std::string name = fs::path(target).filename().string();
  if (name.empty()) {
    errno = ENOENT;
    return false;
  }
  while (slot_ < kMaxFiles && is_temporary_to_remove[slot_]) {
    ++slot_;
  }
  if (slot_ == kMaxFiles) {
    errno = EMFILE;
    return false;
  }
  const fs::path folder = fs::path(target).parent_path();
  for (int i = 0;; ++i) {
    const fs::path temporary =
        folder / ("." + name.substr(0, kMaxNameInTemporary) + "." +
                  std::to_string(getpid()) + "." + std::to_string(i) + ".tmp");
    if (temporary.native().size() >= PATH_MAX) {
      errno = ENAMETOOLONG;
      return false;
    }
    std::strcpy(temporary_to_remove[slot_], temporary.c_str());
    is_temporary_to_remove[slot_] = true;
    fd_ = open(
        temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, permissions);
    if (fd_ >= 0) {
      target_ = target;
      temporary_ = temporary.string();
      return true;
    }
    is_temporary_to_remove[slot_] = false;
    // The rest of a program that was killed.
    if (errno != EEXIST) {
      return false;
    }
  }
}

bool SafeFile::Finish(std::string* error) {
  bool good = temporary_.empty() || Sync(fd_);
  good = close(fd_) == 0 && good;
  fd_ = -1;
  if (!good) {
    *error = std::strerror(errno);
  }
  return good;
}

bool SafeFile::Commit(std::string* error) {
  if (fd_ >= 0 && !Finish(error)) {
    return false;
  }
  if (temporary_.empty()) {
    return true;
  }
  const bool good = rename(temporary_.c_str(), target_.c_str()) == 0;
  if (!good) {
    // All is written and on the disk; that much is not lost.
    *error = std::string(std::strerror(errno)) + ", and left it all in " +
             temporary_;
  }
  is_temporary_to_remove[slot_] = false;
  temporary_.clear();
  // The new name too is to survive a loss of power.
  const int folder =
      open(Folder(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    fsync(folder);
    close(folder);
  }
  return good;
}

std::string CannotWrite(const std::string& path, const std::string& found) {
  return path + ": expected a file that can be written, found " + found;
}

MappedFile::~MappedFile() {
  if (is_mapped()) {
    munmap(data_, size_);
  }
}

bool MappedFile::Map(int fd, int64_t size) {
  constexpr int64_t kMuch = 64 << 20;
  struct stat status;
  if (size < kMuch || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_size != 0 || fallocate(fd, 0, 0, size) != 0) {
    return false;
  }
  void* const pages = mmap(nullptr, size, PROT_WRITE, MAP_SHARED, fd, 0);
  if (pages == MAP_FAILED) {
    return false;  // The text written there has the same length.
  }
  data_ = static_cast<char*>(pages);
  size_ = size;
  return true;
}

void MappedFile::Write(int64_t offset, std::string_view piece) {
  const int num_threads = static_cast<int>(
      std::min<size_t>(NumThreads(0), 1 + piece.size() / (1 << 20)));
  ForEachChunk(num_threads,
               static_cast<int64_t>(piece.size()),
               [&](int, int64_t begin, int64_t end) {
                 std::copy(piece.data() + begin,
                           piece.data() + end,
                           data_ + offset + begin);
               });
}

bool WriteFile(const std::string& path,
               const std::vector<std::string_view>& pieces,
               std::string* error) {
  std::string found;
  const std::unique_ptr<SafeFile> file = SafeFile::Create(path, &found);
  bool good = file != nullptr;
  int64_t size = 0;
  for (const std::string_view piece : pieces) {
    size += static_cast<int64_t>(piece.size());
  }
  MappedFile mapped;
  const bool is_mapped = good && mapped.Map(file->fd(), size);
  int64_t offset = 0;
  for (const std::string_view piece : pieces) {
    if (is_mapped) {
      mapped.Write(offset, piece);
      offset += static_cast<int64_t>(piece.size());
    } else if (good && !WriteFully(file->fd(), piece.data(), piece.size())) {
      found = std::strerror(errno);
      good = false;
    }
  }
  if (good && file->Commit(&found)) {
    return true;
  }
  *error = CannotWrite(path, found);
  return false;
}

bool WriteFully(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t written = write(fd, data, size);
    if (written < 0 && errno != EINTR) {
      return false;
    }
    if (written > 0) {
      data += written;
      size -= written;
    }
  }
  return true;
}

void RemoveTemporaryFiles() {
  for (int i = 0; i < kMaxFiles; ++i) {
    if (is_temporary_to_remove[i]) {
      unlink(temporary_to_remove[i]);
    }
  }
}

bool CanWrite(const std::string& path, std::string* error) {
  struct stat status;
  const bool exists = stat(path.c_str(), &status) == 0;
  if (path.empty() || (exists && StandardStream(status) >= 0)) {
    return true;
  }
  std::string found;
  if (exists && S_ISDIR(status.st_mode)) {
    found = "a directory";
  } else if (exists && access(path.c_str(), W_OK) != 0) {
    found = "no permission";
  } else if (!exists || S_ISREG(status.st_mode)) {
    const std::string folder = Folder(FollowLinks(path));
    if (stat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
      found = "no such folder";
    } else if (access(folder.c_str(), W_OK | X_OK) != 0) {
      found = "no permission to create files in its folder";
    }
  }
  if (found.empty()) {
    return true;
  }
  *error = CannotWrite(path, found);
  return false;
}

bool IsStandardOutput(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 &&
         StandardStream(status) == STDOUT_FILENO;
}

bool FlushStandardOutput(std::string* error) {
  std::cout.flush();
  if (std::cout && std::fflush(stdout) == 0 && std::ferror(stdout) == 0) {
    return true;
  }
  *error =
      "standard output: expected that all of it can be written, found that "
      "some of it was not";
  return false;
}

bool CheckDistinct(const std::vector<OutputFile>& outputs,
                   const std::vector<InputFile>& inputs,
                   std::string* error) {
  std::vector<InputFile> others = inputs;
  for (const OutputFile& output : outputs) {
    for (const InputFile& other : others) {
      if (output.may_replace != other.flag &&
          IsSameFile(output.path, other.path)) {
        *error = std::string("--") + output.flag +
                 ": expected another file than that of --" + other.flag +
                 ", found the same, " + output.path;
        return false;
      }
    }
    others.push_back({output.flag, output.path});
  }
  return true;
}

}  // namespace ceres_ext::bal
