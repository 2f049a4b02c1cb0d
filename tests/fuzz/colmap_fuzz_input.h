// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A model of COLMAP as one string of bytes: 't' or 'b' for its form, then its
// files, each behind its size in two bytes, the lower one first. Text that is
// cut off is missing.

#ifndef TESTS_FUZZ_COLMAP_FUZZ_INPUT_H_
#define TESTS_FUZZ_COLMAP_FUZZ_INPUT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

namespace ceres_ext::colmap {

constexpr const char* kFuzzedFiles[] = {
    "cameras", "images", "points3D", "rigs", "frames"};

inline std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

inline std::string Pack(const std::string& folder, bool is_binary) {
  std::string packed = is_binary ? "b" : "t";
  for (const char* name : kFuzzedFiles) {
    const std::string bytes =
        ReadAll(folder + "/" + name + (is_binary ? ".bin" : ".txt"));
    packed += static_cast<char>(bytes.size() & 255);
    packed += static_cast<char>(bytes.size() >> 8);
    packed += bytes;
  }
  return packed;
}

// Leaves nothing else of a model in the folder.
inline void Unpack(const uint8_t* data,
                   size_t size,
                   const std::string& folder) {
  const uint8_t* end = data + size;
  const bool is_binary = data < end && *data++ == 'b';
  for (const char* name : kFuzzedFiles) {
    const std::string path = folder + "/" + name;
    std::remove((path + (is_binary ? ".txt" : ".bin")).c_str());
    const std::string file = path + (is_binary ? ".bin" : ".txt");
    if (end - data < 2) {
      std::remove(file.c_str());
      continue;
    }
    const ptrdiff_t wanted = data[0] + 256 * data[1];
    data += 2;
    const ptrdiff_t file_size = std::min<ptrdiff_t>(wanted, end - data);
    std::ofstream(file, std::ios::binary)
        .write(reinterpret_cast<const char*>(data), file_size);
    data += file_size;
  }
}

}  // namespace ceres_ext::colmap

#endif  // TESTS_FUZZ_COLMAP_FUZZ_INPUT_H_
