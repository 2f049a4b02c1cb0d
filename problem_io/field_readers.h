// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The fields of a file of a model, one after another. Text and binary files
// hold the same ones in the same order, so that two classes with the same
// functions read them:
//
//   FieldReader reader(path, &error);
//   while (reader.NextRecord("cameras")) {
//     if (!reader.Read("CAMERA_ID, an integer", &id) || ...) {
//       return false;
//     }
//   }
//   return reader.good();
//
// NextRecord      to the next record, if there is one; `records` names all
// Read            a number in [min, max]; `expected` completes "expected ..."
// ReadCameraModel of those that FindCameraModel knows
// ReadSensorType  true if it is a camera
// ReadName        what is left of a line, or what ends in a zero byte
// BeginPoints2d, BeginTrack
//                 to the lists that end a record
// NextElement     to the next element of a list, if there is one
// EndRecord       for records that end in no list
// Fail            says what was expected and found where the reader stands
//
// Functions that return bool are false after a failure too, of which the first
// is kept in *error.

#ifndef PROBLEM_IO_FIELD_READERS_H_
#define PROBLEM_IO_FIELD_READERS_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "problem_io/byte_stream.h"
#include "problem_io/colmap_model.h"
#include "problem_io/little_endian.h"
#include "problem_io/number_text.h"

namespace ceres_ext::colmap {

class TextFieldReader {
 public:
  static constexpr const char* kSuffix = ".txt";

  TextFieldReader(const std::string& path, std::string* error);

  // A line that is neither empty nor a comment.
  bool NextRecord(const char* records);

  template <typename T>
  bool Read(std::string_view expected,
            T* value,
            T min = std::numeric_limits<T>::lowest(),
            T max = std::numeric_limits<T>::max()) {
    SkipSpace();
    const char* stop = bal::ParseNumber(position_, end_, value);
    // NaN fails too.
    if (stop == nullptr || !(*value >= min && *value <= max)) {
      return Fail(expected, Found());
    }
    position_ = stop;
    return true;
  }

  bool ReadCameraModel(const CameraModelInfo** model);
  bool ReadSensorType();
  bool ReadName(std::string* name);
  // A line of their own, which may be missing at the end of the file.
  bool BeginPoints2d();
  bool BeginTrack() { return good(); }
  bool NextElement();
  bool EndRecord(std::string_view expected);

  bool Fail(std::string_view expected, const std::string& found);
  bool good() const { return error_->empty(); }

 private:
  // To the next line, whatever is in it. False at the end of the file.
  bool NextLine();
  bool AtLineEnd();
  std::string_view ReadWord();
  void SkipSpace();
  std::string Found() const;

  const std::string path_;
  std::string* error_;
  std::unique_ptr<bal::ByteStream> stream_;
  std::vector<char> buffer_;
  bool at_end_ = false;
  size_t next_ = 0;  // where the next line begins in buffer_
  // The rest of this line.
  const char* position_ = nullptr;
  const char* end_ = nullptr;
  int64_t line_ = 0;
};

// Memory grows with the bytes that arrive, never with a count that they
// promise.
class BinaryFieldReader {
 public:
  static constexpr const char* kSuffix = ".bin";

  BinaryFieldReader(const std::string& path, std::string* error);

  bool NextRecord(const char* records);

  template <typename T>
  bool Read(std::string_view expected,
            T* value,
            T min = std::numeric_limits<T>::lowest(),
            T max = std::numeric_limits<T>::max()) {
    field_ = position_;
    if (!Fill(sizeof(T))) {
      return Fail(expected, kEndOfFile);
    }
    *value = LoadLittleEndian<T>(buffer_.data() + position_);
    position_ += sizeof(T);
    // NaN fails too.
    if (!(*value >= min && *value <= max)) {
      return Fail(expected, bal::NumberText(*value));
    }
    return true;
  }

  bool ReadCameraModel(const CameraModelInfo** model);
  bool ReadSensorType();
  bool ReadName(std::string* name);
  bool BeginPoints2d() { return Begin("2D points", &elements_); }
  bool BeginTrack() { return Begin("elements of the track", &elements_); }
  bool NextElement() { return Next(&elements_); }
  bool EndRecord(std::string_view /*expected*/) { return good(); }

  bool Fail(std::string_view expected, const std::string& found);
  bool good() const { return error_->empty(); }

 private:
  static constexpr const char* kEndOfFile = "the end of the file";

  // A count, and that many of what it counts.
  struct List {
    const char* name = nullptr;
    uint64_t size = 0;
    uint64_t num_read = 0;
  };
  bool Begin(const char* name, List* list);
  bool Next(List* list) {
    if (!good() || list->num_read == list->size) {
      return false;
    }
    field_ = position_;
    if (!Fill(1)) {
      return FailAtEnd(*list);
    }
    ++list->num_read;
    return true;
  }
  bool FailAtEnd(const List& list);

  // True if there are so many bytes at position_ or can be read there.
  bool Fill(size_t size) {
    // Most fields are, and a call for each would take longer than the field.
    return (good() && position_ + size <= buffer_.size()) || ReadOn(size);
  }
  bool ReadOn(size_t size);

  const std::string path_;
  std::string* error_;
  std::unique_ptr<bal::ByteStream> stream_;
  std::vector<char> buffer_;
  bool at_end_ = false;
  int64_t buffer_offset_ = 0;  // of buffer_ in the file
  // In buffer_: where the next field begins, and where the last one does.
  size_t position_ = 0;
  size_t field_ = 0;
  List records_;
  List elements_;
};

}  // namespace ceres_ext::colmap

#endif  // PROBLEM_IO_FIELD_READERS_H_
