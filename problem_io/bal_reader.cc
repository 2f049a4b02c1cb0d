// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "problem_io/bal_reader.h"

#include <cstdint>
#include <filesystem>
#include <locale>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "problem_io/bal_npz.h"
#include "problem_io/bal_text.h"
#include "problem_io/byte_stream.h"
#include "problem_io/for_each_chunk.h"
#include "problem_io/npz_file.h"

namespace ceres_ext::bal {
namespace {

bool ReadNpz(const BalReadOptions& options,
             ByteStream* stream,
             BalProblem* problem,
             std::string* error) {
  if (stream->size() >= 0) {
    return ReadBalNpz(options, *stream, problem, error);
  }
  // The directory comes last, in a pipe too.
  std::vector<char> bytes;
  if (!ReadAll(stream, &bytes)) {
    *error = "expected a whole .npz file, found " + stream->error();
    return false;
  }
  return ReadBalNpz(
      options, *OpenMemory(bytes.data(), bytes.size()), problem, error);
}

bool ReadStream(const std::string& name,
                std::unique_ptr<ByteStream> raw,
                const BalReadOptions& options,
                BalProblem* problem,
                std::string* error) {
  *problem = BalProblem();
  error->clear();
  try {
    std::unique_ptr<ByteStream> stream =
        Decompress(std::move(raw), NumThreads(options.num_threads));
    const bool is_npz = IsNpz(Peek(4, &stream));
    std::string found;
    if (is_npz ? ReadNpz(options, stream.get(), problem, &found)
               : ReadBalText(options, stream.get(), problem, &found)) {
      return true;
    }
    *error = name + (is_npz ? ": " : ":") + found;
  } catch (const std::bad_alloc&) {
    *error = name + ": expected a problem that fits in memory, found " +
             std::to_string(problem->num_observations()) +
             " observations and more";
  }
  *problem = BalProblem();
  return false;
}

// By names: the folder of a model, or a file of one.
bool IsColmapModel(const std::string& path) {
  for (const char* file : {"cameras", "images", "points3D", "rigs", "frames"}) {
    for (const char* suffix : {".txt", ".bin"}) {
      const std::string name = std::string(file) + suffix;
      std::error_code ignored;
      if (std::filesystem::path(path).filename() == name ||
          std::filesystem::exists(path + "/" + name, ignored)) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

bool ReadBalFile(const std::string& path,
                 BalProblem* problem,
                 std::string* error,
                 const BalReadOptions& options) {
  std::string found;
  std::unique_ptr<ByteStream> raw = OpenFile(path, &found);
  if (raw == nullptr) {
    *problem = BalProblem();
    *error = path + ": expected a readable file, found " + found;
  } else if (ReadStream(path, std::move(raw), options, problem, error)) {
    return true;
  }
  if (IsColmapModel(path)) {
    *error = path +
             ": expected a problem in BAL format, found a model of COLMAP, "
             "which colmap_adjuster refines";
  }
  return false;
}

bool IsBalFile(const std::string& path) {
  std::string ignored;
  std::unique_ptr<ByteStream> stream = OpenFile(path, &ignored);
  if (stream == nullptr) {
    return false;
  }
  stream = Decompress(std::move(stream), /*num_threads=*/1);
  const std::string begin = Peek(256, &stream);
  if (IsNpz(begin)) {
    return true;
  }
  std::istringstream text(begin);
  text.imbue(std::locale::classic());
  int64_t num_cameras = 0;
  int64_t num_points = 0;
  int64_t num_observations = 0;
  int64_t camera = 0;
  int64_t point = 0;
  double x = 0.0;
  double y = 0.0;
  return text >> num_cameras >> num_points >> num_observations >> camera >>
             point >> x >> y &&
         num_cameras > 0 && num_points > 0 && num_observations > 0;
}

bool ReadBalMemory(const std::string& name,
                   const char* data,
                   size_t size,
                   BalProblem* problem,
                   std::string* error,
                   const BalReadOptions& options) {
  return ReadStream(name, OpenMemory(data, size), options, problem, error);
}

}  // namespace ceres_ext::bal
