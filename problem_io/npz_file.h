// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Arrays in a .npz file as numpy.savez writes it: a ZIP archive of .npy files
// that are stored and not compressed, so that several threads can read it. The
// libraries of Debian and Ubuntu for ZIP neither read from several threads nor
// align members, and accept what a strict reader has to refuse.

#ifndef PROBLEM_IO_NPZ_FILE_H_
#define PROBLEM_IO_NPZ_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "problem_io/byte_stream.h"
#include "problem_io/safe_file.h"

namespace ceres_ext::bal {

// True if a file that starts with these bytes may be one.
bool IsNpz(std::string_view first_bytes);

struct NpyArray {
  std::string name;            // "points"
  std::string dtype;           // "<f8"
  std::vector<int64_t> shape;  // C order
  std::string_view values;
};

// Writes the arrays, each at a multiple of 64 bytes, as a SafeFile (see
// safe_file.h). A size or an offset of the archive from zip64_from on is
// written in the form that ZIP has for 64 bits.
//
//   NpzWriter writer(path, arrays);
//   ... writer.WriteEarly(2) on another thread, or not ...
//   if (!writer.Finish(&error)) { ... }
//
// Without Finish, path stays what it was.
class NpzWriter {
 public:
  // Creates and destroys a SafeFile: one
  // thread at a time.
  NpzWriter(const std::string& path,
            std::vector<NpyArray> arrays,
            uint32_t zip64_from = 0xffffffff);
  ~NpzWriter();

  NpzWriter(const NpzWriter&) = delete;
  NpzWriter& operator=(const NpzWriter&) = delete;

  // As many bytes as there are.
  void SetValues(size_t array, std::string_view values) {
    arrays_[array].values = values;
  }
  // Writes the first num_arrays ones, whose values change no more, where that
  // can be done before the others are known; else Finish does. Any thread.
  void WriteEarly(size_t num_arrays);
  // Writes the rest. On failure returns false and sets *error to one line.
  bool Finish(std::string* error);

 private:
  struct Member;

  void Layout();
  std::string Directory() const;

  const std::string path_;
  std::vector<NpyArray> arrays_;
  const uint32_t zip64_from_;
  std::vector<Member> members_;
  int64_t directory_begin_ = 0;
  std::string found_;  // what is wrong with the file
  std::unique_ptr<SafeFile> file_;
  MappedFile mapped_;
};

bool WriteNpz(const std::string& path,
              const std::vector<NpyArray>& arrays,
              std::string* error,
              uint32_t zip64_from = 0xffffffff);

// An array in a file.
struct NpyMember {
  std::string name;  // "points.npy"
  std::string dtype;
  std::vector<int64_t> shape;  // C order
  // The place of the values; as many bytes as dtype and shape need.
  int64_t begin = 0;
  int64_t size = 0;
  // Bytes before the values, and of both.
  uint32_t header_crc = 0;
  uint32_t crc = 0;
};

// The members of the archive, in the order of its directory. Reads all but the
// values. All bytes of the members are in the file, and none belongs to two of
// them; names are different. On failure returns false and sets *error to
// "MEMBER: expected ..., found ...", without MEMBER where it is none's.
bool ReadNpzMembers(const ByteStream& file,
                    std::vector<NpyMember>* members,
                    std::string* error);

}  // namespace ceres_ext::bal

#endif  // PROBLEM_IO_NPZ_FILE_H_
