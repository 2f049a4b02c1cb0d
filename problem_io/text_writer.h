// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Text, or any bytes, on its way into a file:
//
//   TextWriter writer(path);
//   writer.Number(7) << " cameras\n";
//   if (!writer.Close(&error)) { ... }

#ifndef PROBLEM_IO_TEXT_WRITER_H_
#define PROBLEM_IO_TEXT_WRITER_H_

#include <charconv>
#include <memory>
#include <string>
#include <string_view>

#include "problem_io/safe_file.h"

namespace ceres_ext::bal {

bool EndsWith(const std::string& text, std::string_view end);

// Collects text and hands it to a SafeFile in large pieces, compressed if the
// name ends in .gz or .bz2. Failure is sticky and comes out of Finish() and
// Close(), without which the file stays what it was.
class TextWriter {
 public:
  explicit TextWriter(const std::string& path);
  ~TextWriter();

  TextWriter& operator<<(std::string_view text);

  // Integers; floating point numbers in the shortest form (at most 17
  // significant digits) that reads back as the same bits.
  template <typename T>
  TextWriter& Number(T value) {
    char text[32];
    const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
    return *this << std::string_view(text, end - text);
  }

  // All text is on the disk, but not yet in its place: for several files that
  // must all be complete before any of them replaces its target.
  bool Finish(std::string* error);

  // Finishes and moves the file to its place.
  bool Close(std::string* error);

  class Sink;

 private:
  void Flush();
  void SetError();
  void SetError(const std::string& found);

  const std::string path_;
  std::string buffer_;
  std::unique_ptr<SafeFile> file_;
  std::unique_ptr<Sink> sink_;
  std::string error_;
};

}  // namespace ceres_ext::bal

#endif  // PROBLEM_IO_TEXT_WRITER_H_
