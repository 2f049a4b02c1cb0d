// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "problem_io/field_readers.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "problem_io/byte_stream.h"
#include "problem_io/colmap_model.h"
#include "problem_io/number_text.h"

namespace ceres_ext::colmap {
namespace {

using bal::IsSpace;
using bal::Quoted;

constexpr size_t kReadSize = size_t{1} << 18;

// COLMAP's name and number of the only type of sensor that is known here.
constexpr const char* kCameraSensor = "CAMERA";
constexpr int32_t kCameraSensorId = 0;

std::unique_ptr<bal::ByteStream> Open(const std::string& path,
                                      std::string* error) {
  std::string found;
  std::unique_ptr<bal::ByteStream> stream = bal::OpenFile(path, &found);
  if (stream == nullptr) {
    *error = path + ": expected a readable file, found " + found;
  }
  return stream;
}

// Appends what comes next to *buffer. False at the end of the data.
bool Append(size_t size, bal::ByteStream* stream, std::vector<char>* buffer) {
  const size_t old_size = buffer->size();
  buffer->resize(old_size + size);
  const size_t num_read = stream->Read(buffer->data() + old_size, size);
  buffer->resize(old_size + num_read);
  return num_read == size;
}

}  // namespace

TextFieldReader::TextFieldReader(const std::string& path, std::string* error)
    : path_(path), error_(error), stream_(Open(path, error)) {}

bool TextFieldReader::NextRecord(const char* /*records*/) {
  while (NextLine()) {
    SkipSpace();
    if (position_ < end_ && *position_ != '#') {
      return true;
    }
  }
  return false;
}

bool TextFieldReader::NextLine() {
  if (!good()) {
    return false;
  }
  size_t begin = next_;
  size_t searched = begin;
  for (;;) {
    const auto newline =
        std::find(buffer_.begin() + searched, buffer_.end(), '\n');
    if (newline != buffer_.end()) {
      end_ = buffer_.data() + (newline - buffer_.begin());
      next_ = newline + 1 - buffer_.begin();
      break;
    }
    // The whole buffer belongs to this line.
    buffer_.erase(buffer_.begin(), buffer_.begin() + begin);
    begin = 0;
    searched = buffer_.size();
    if (!at_end_) {
      at_end_ = !Append(std::max(kReadSize, searched), stream_.get(), &buffer_);
      continue;
    }
    ++line_;
    if (!stream_->error().empty()) {
      return Fail("a readable line", stream_->error());
    }
    --line_;
    next_ = buffer_.size();
    end_ = buffer_.data() + next_;
    if (searched == 0) {
      position_ = end_;
      return false;
    }
    break;
  }
  position_ = buffer_.data() + begin;
  ++line_;
  return true;
}

bool TextFieldReader::ReadCameraModel(const CameraModelInfo** model) {
  const std::string_view name = ReadWord();
  *model = FindCameraModel(name);
  return *model != nullptr ||
         Fail("MODEL, one of " + CameraModelNames(),
              Quoted(name.data(), name.data() + name.size()));
}

bool TextFieldReader::ReadSensorType() {
  const std::string_view type = ReadWord();
  return type == kCameraSensor ||
         Fail("SENSOR_TYPE, CAMERA (others are not supported)",
              Quoted(type.data(), type.data() + type.size()));
}

bool TextFieldReader::ReadName(std::string* name) {
  SkipSpace();
  const char* stop = end_;
  while (stop > position_ && IsSpace(stop[-1])) {
    --stop;
  }
  name->assign(position_, stop);
  position_ = end_;
  return good();
}

bool TextFieldReader::BeginPoints2d() { return NextLine() || good(); }

bool TextFieldReader::NextElement() { return good() && !AtLineEnd(); }

bool TextFieldReader::EndRecord(std::string_view expected) {
  return AtLineEnd() || Fail(expected, Found());
}

bool TextFieldReader::Fail(std::string_view expected,
                           const std::string& found) {
  *error_ = path_ + ":" + std::to_string(line_) + ": expected " +
            std::string(expected) + ", found " + found;
  return false;
}

bool TextFieldReader::AtLineEnd() {
  SkipSpace();
  return position_ == end_;
}

std::string_view TextFieldReader::ReadWord() {
  SkipSpace();
  const char* begin = position_;
  position_ = std::find_if(position_, end_, IsSpace);
  return std::string_view(begin, position_ - begin);
}

void TextFieldReader::SkipSpace() {
  position_ = std::find_if_not(position_, end_, IsSpace);
}

std::string TextFieldReader::Found() const {
  return position_ == end_ ? "the end of the line" : Quoted(position_, end_);
}

BinaryFieldReader::BinaryFieldReader(const std::string& path,
                                     std::string* error)
    : path_(path), error_(error), stream_(Open(path, error)) {}

bool BinaryFieldReader::NextRecord(const char* records) {
  if (records_.name == nullptr && !Begin(records, &records_)) {
    return false;
  }
  if (Next(&records_)) {
    return true;
  }
  field_ = position_;
  if (good() && Fill(1)) {
    Fail(kEndOfFile, "more bytes");
  }
  return false;
}

bool BinaryFieldReader::ReadCameraModel(const CameraModelInfo** model) {
  const std::string expected = "MODEL_ID, one of " + CameraModelIds();
  int32_t id = 0;
  if (!Read(expected, &id)) {
    return false;
  }
  *model = FindCameraModel(id);
  return *model != nullptr || Fail(expected, std::to_string(id));
}

bool BinaryFieldReader::ReadSensorType() {
  int32_t id;
  return Read("SENSOR_TYPE, 0, a camera (others are not supported)",
              &id,
              kCameraSensorId,
              kCameraSensorId);
}

bool BinaryFieldReader::ReadName(std::string* name) {
  field_ = position_;
  for (size_t size = 0; Fill(size + 1); ++size) {
    if (buffer_[position_ + size] == '\0') {
      name->assign(buffer_.data() + position_, size);
      position_ += size + 1;
      return true;
    }
  }
  return Fail("NAME with a zero byte behind it", kEndOfFile);
}

bool BinaryFieldReader::Begin(const char* name, List* list) {
  *list = List();
  list->name = name;
  field_ = position_;
  if (!Fill(sizeof(list->size))) {
    return Fail(std::string("the number of ") + name, kEndOfFile);
  }
  list->size = LoadLittleEndian<uint64_t>(buffer_.data() + position_);
  position_ += sizeof(list->size);
  return true;
}

bool BinaryFieldReader::FailAtEnd(const List& list) {
  return Fail(std::to_string(list.size) + " " + list.name,
              kEndOfFile + (" after " + std::to_string(list.num_read)));
}

bool BinaryFieldReader::ReadOn(size_t size) {
  if (!good()) {
    return false;
  }
  if (position_ + size > buffer_.size() && !at_end_) {
    // The text before the last field is not needed any more.
    buffer_.erase(buffer_.begin(), buffer_.begin() + field_);
    buffer_offset_ += static_cast<int64_t>(field_);
    position_ -= field_;
    field_ = 0;
    at_end_ =
        !Append(std::max(kReadSize, buffer_.size()), stream_.get(), &buffer_);
    if (!stream_->error().empty()) {
      return Fail("a readable file", stream_->error());
    }
  }
  return position_ + size <= buffer_.size();
}

bool BinaryFieldReader::Fail(std::string_view expected,
                             const std::string& found) {
  if (good()) {
    *error_ = path_ + ": byte " +
              std::to_string(buffer_offset_ + static_cast<int64_t>(field_)) +
              ": expected " + std::string(expected) + ", found " + found;
  }
  return false;
}

}  // namespace ceres_ext::colmap
