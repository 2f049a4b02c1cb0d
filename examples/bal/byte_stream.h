// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Bytes of a file or of memory, decompressed on the way where they are gzip or
// bzip2. The first bytes decide, never the name.

#ifndef EXAMPLES_BAL_BYTE_STREAM_H_
#define EXAMPLES_BAL_BYTE_STREAM_H_

#include <cstddef>
#include <memory>
#include <string>

namespace ceres_ext::bal {

class ByteStream {
 public:
  virtual ~ByteStream() = default;

  // Fills buffer and returns how many bytes it holds. Fewer than size means
  // the end of the data or a failure; error() then tells which.
  virtual size_t Read(char* buffer, size_t size) = 0;

  // Empty while all is well, else what was found in place of data.
  const std::string& error() const { return error_; }

 protected:
  std::string error_;
};

// nullptr if the file can't be opened or is a directory; *error then completes
// the sentence "expected a readable file, found ...".
std::unique_ptr<ByteStream> OpenFile(const std::string& path,
                                     std::string* error);

// The caller keeps data alive.
std::unique_ptr<ByteStream> OpenMemory(const char* data, size_t size);

// Takes the first bytes of raw to choose between gzip, bzip2 and plain.
std::unique_ptr<ByteStream> Decompress(std::unique_ptr<ByteStream> raw);

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_BYTE_STREAM_H_
