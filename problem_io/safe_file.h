// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Output files that are written completely or not at all.

#ifndef PROBLEM_IO_SAFE_FILE_H_
#define PROBLEM_IO_SAFE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ceres_ext::bal {

// A file is written under another name in the same folder and replaces the
// target when all of it is on the disk:
//
//   std::unique_ptr<SafeFile> file = SafeFile::Create(path, &error);
//   ... write to file->fd() ...
//   if (!file->Commit(&error)) { ... }
//
// Without Commit, path stays what it was. A file that is replaced hands on its
// permissions; at the end of symbolic links, the file is replaced and the links
// stay; other hard links keep the old contents. Files that are not regular
// (devices, pipes) and the program's standard output and error are written
// directly. Five SafeFiles at a time.
//
// Errors complete the sentence of CannotWrite.
class SafeFile {
 public:
  static std::unique_ptr<SafeFile> Create(const std::string& path,
                                          std::string* error);
  ~SafeFile();

  SafeFile(const SafeFile&) = delete;
  SafeFile& operator=(const SafeFile&) = delete;

  int fd() const { return fd_; }

  // The first half of Commit: all is on the disk, and fd() is closed.
  bool Finish(std::string* error);

  bool Commit(std::string* error);

 private:
  SafeFile() = default;
  bool Open(const std::string& path);
  bool OpenTemporary(const std::string& target, int permissions);

  int fd_ = -1;
  // The replaced file and its replacement; empty for files that are written
  // directly.
  std::string target_;
  std::string temporary_;
  // The entry that RemoveTemporaryFiles finds.
  int slot_ = 0;
};

// "PATH: expected a file that can be written, found FOUND".
std::string CannotWrite(const std::string& path, const std::string& found);

// A new file in memory, of a size that the file system has promised: pieces may
// be written in any order, by all threads.
class MappedFile {
 public:
  MappedFile() = default;
  ~MappedFile();

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // Returns false and changes nothing if the size is small, fd is not an empty
  // file, or the file system cannot promise the space; without that promise a
  // full disk would kill.
  bool Map(int fd, int64_t size);
  bool is_mapped() const { return data_ != nullptr; }
  void Write(int64_t offset, std::string_view piece);

 private:
  char* data_ = nullptr;
  int64_t size_ = 0;
};

// Writes the pieces one behind another, as a SafeFile. On failure returns false
// and sets *error to one line.
bool WriteFile(const std::string& path,
               const std::vector<std::string_view>& pieces,
               std::string* error);

// Writes all bytes, however many calls that takes. False leaves errno.
bool WriteFully(int fd, const char* data, size_t size);

// Removes the temporary files of SafeFiles that are not committed yet. Signal
// handlers may call it.
void RemoveTemporaryFiles();

// An early word on what would else fail after long work; a full disk still
// shows only then. On failure returns false and sets *error to one line. An
// empty path is never written.
bool CanWrite(const std::string& path, std::string* error);

// True if an output of this path goes to standard output.
bool IsStandardOutput(const std::string& path);

// False, with one line in *error, if something that this program wrote to
// standard output did not get there.
bool FlushStandardOutput(std::string* error);

struct InputFile {
  const char* flag;
  std::string path;
};

struct OutputFile {
  const char* flag;
  std::string path;
  // The flag of the input whose place it may take.
  std::string may_replace = "";
};

// True if no output replaces another output or an input: if no two paths lead,
// through links of any kind, to one regular file, or to one name for a missing
// file. Devices, pipes and the program's own standard output and error don't
// count, nor do empty paths. On failure returns false and sets *error to one
// line that names both flags.
bool CheckDistinct(const std::vector<OutputFile>& outputs,
                   const std::vector<InputFile>& inputs,
                   std::string* error);

}  // namespace ceres_ext::bal

#endif  // PROBLEM_IO_SAFE_FILE_H_
