// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Bytes of a file or of memory, decompressed on the way where they are gzip or
// bzip2. The first bytes decide, never the name.

#ifndef PROBLEM_IO_BYTE_STREAM_H_
#define PROBLEM_IO_BYTE_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ceres_ext::bal {

class ByteStream {
 public:
  virtual ~ByteStream() = default;

  // Fills buffer and returns how many bytes it holds. Fewer than size means
  // the end of the data or a failure; error() then tells which.
  virtual size_t Read(char* buffer, size_t size) = 0;

  // Empty while all is well, else what was found in place of data.
  const std::string& error() const { return error_; }

  // How many bytes a regular file or memory has, else -1. If it is not
  // negative, ReadAt may be called, by several threads at a time. A file may
  // shrink or grow all the same: what ReadAt returns counts.
  virtual int64_t size() const { return -1; }

  // As Read, from that offset, with an error of its own; *error is untouched
  // while all is well. Does not move what Read reads next.
  virtual size_t ReadAt(int64_t offset,
                        char* buffer,
                        size_t size,
                        std::string* error) const;

 protected:
  std::string error_;
};

// nullptr if the file can't be opened or is a directory; *error then completes
// the sentence "expected a readable file, found ...".
std::unique_ptr<ByteStream> OpenFile(const std::string& path,
                                     std::string* error);

// The caller keeps data alive.
std::unique_ptr<ByteStream> OpenMemory(const char* data, size_t size);

// The first bytes, as many as there are up to size. *stream still has them.
std::string Peek(size_t size, std::unique_ptr<ByteStream>* stream);

// The first bytes of raw choose between gzip, bzip2 and plain. The blocks of
// bzip2 are decompressed by num_threads threads where raw's size() is known.
std::unique_ptr<ByteStream> Decompress(std::unique_ptr<ByteStream> raw,
                                       int num_threads);

// The rest of a stream. False leaves its error().
bool ReadAll(ByteStream* stream, std::vector<char>* bytes);

}  // namespace ceres_ext::bal

#endif  // PROBLEM_IO_BYTE_STREAM_H_
