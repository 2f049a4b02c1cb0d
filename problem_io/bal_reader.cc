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

// The part of a problem that is read.
struct Wanted {
  int part = 0;
  int num_parts = 1;
  BalPart* of_part = nullptr;  // null: all
};

bool ReadNpzOf(const BalReadOptions& options,
               const ByteStream& file,
               const Wanted& wanted,
               BalProblem* problem,
               std::string* error) {
  return wanted.of_part == nullptr ? ReadBalNpz(options, file, problem, error)
                                   : ReadBalNpzPart(options,
                                                    file,
                                                    wanted.part,
                                                    wanted.num_parts,
                                                    problem,
                                                    wanted.of_part,
                                                    error);
}

bool ReadNpz(const BalReadOptions& options,
             const Wanted& wanted,
             ByteStream* stream,
             BalProblem* problem,
             std::string* error) {
  if (stream->size() >= 0) {
    return ReadNpzOf(options, *stream, wanted, problem, error);
  }
  // The directory comes last, in a pipe too.
  std::vector<char> bytes;
  if (!ReadAll(stream, &bytes)) {
    *error = "expected a whole .npz file, found " + stream->error();
    return false;
  }
  return ReadNpzOf(
      options, *OpenMemory(bytes.data(), bytes.size()), wanted, problem, error);
}

bool ReadText(const BalReadOptions& options,
              const Wanted& wanted,
              ByteStream* stream,
              BalProblem* problem,
              std::string* error) {
  if (!ReadBalText(options, stream, problem, error)) {
    return false;
  }
  if (wanted.of_part != nullptr) {
    *wanted.of_part = CutPart(*problem, wanted.part, wanted.num_parts);
    KeepPart(*wanted.of_part, problem);
  }
  return true;
}

bool ReadStream(const std::string& name,
                std::unique_ptr<ByteStream> raw,
                const BalReadOptions& options,
                const Wanted& wanted,
                BalProblem* problem,
                std::string* error) {
  *problem = BalProblem();
  error->clear();
  try {
    std::unique_ptr<ByteStream> stream =
        Decompress(std::move(raw), NumThreads(options.num_threads));
    const bool is_npz = IsNpz(Peek(4, &stream));
    std::string found;
    if (is_npz ? ReadNpz(options, wanted, stream.get(), problem, &found)
               : ReadText(options, wanted, stream.get(), problem, &found)) {
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

bool ReadFile(const std::string& path,
              const BalReadOptions& options,
              const Wanted& wanted,
              BalProblem* problem,
              std::string* error) {
  std::string found;
  std::unique_ptr<ByteStream> raw = OpenFile(path, &found);
  if (raw == nullptr) {
    *problem = BalProblem();
    *error = path + ": expected a readable file, found " + found;
  } else if (ReadStream(
                 path, std::move(raw), options, wanted, problem, error)) {
    return true;
  }
  if (IsColmapModel(path)) {
    *error = path +
             ": expected a problem in BAL format, found a model of COLMAP, "
             "which colmap_adjuster refines";
  }
  return false;
}

}  // namespace

bool ReadBalFile(const std::string& path,
                 BalProblem* problem,
                 std::string* error,
                 const BalReadOptions& options) {
  return ReadFile(path, options, {}, problem, error);
}

bool ReadBalPart(const std::string& path,
                 int part,
                 int num_parts,
                 BalProblem* problem,
                 BalPart* of_part,
                 std::string* error,
                 const BalReadOptions& options) {
  return ReadFile(path, options, {part, num_parts, of_part}, problem, error);
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
  return ReadStream(name, OpenMemory(data, size), options, {}, problem, error);
}

}  // namespace ceres_ext::bal
