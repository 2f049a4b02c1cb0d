// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/checkpoint.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "examples/bal/byte_stream.h"
#include "examples/bal/safe_file.h"
#include "nlohmann/json.hpp"

namespace ceres_ext::bal {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "The format is little-endian.");

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "ceres_ext.bal_checkpoint.1";
// With its end of line. Its twenty numbers take a quarter of it.
constexpr size_t kMaxHeaderSize = 4096;
constexpr size_t kChecksumSize = 4;

template <typename Array>
std::string_view Bytes(const Array& values) {
  return {reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(values[0])};
}

uint32_t Checksum(std::initializer_list<std::string_view> pieces) {
  uint32_t sum = 0;
  for (const std::string_view piece : pieces) {
    sum = crc32_z(
        sum, reinterpret_cast<const Bytef*>(piece.data()), piece.size());
  }
  return sum;
}

// What a checkpoint and its problem have to agree on.
Json Identity(const BalProblem& problem, int camera_size) {
  Json identity;
  identity["format"] = kFormat;
  identity["num_cameras"] = problem.num_cameras();
  identity["num_points"] = problem.num_points();
  identity["num_observations"] = problem.num_observations();
  identity["camera_size"] = camera_size;
  identity["observations_crc32"] = ObservationsChecksum(problem);
  return identity;
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

uint32_t ObservationsChecksum(const BalProblem& problem) {
  return Checksum({Bytes(problem.camera_index),
                   Bytes(problem.point_index),
                   Bytes(problem.observations)});
}

uint32_t ParametersChecksum(const BalProblem& problem) {
  return Checksum({Bytes(problem.cameras), Bytes(problem.points)});
}

bool WriteCheckpoint(const std::string& path,
                     const BalProblem& problem,
                     const Checkpoint& checkpoint,
                     std::string* error) {
  Json header = Identity(problem, checkpoint.camera_size);
  header["num_iterations"] = checkpoint.progress.num_iterations;
  header["trust_region_radius"] = checkpoint.progress.trust_region_radius;
  header["frame"]["scale"] = checkpoint.frame.scale;
  header["frame"]["origin"] = checkpoint.frame.origin;
  const std::string line = Dump(header) + "\n";
  const uint32_t sum =
      Checksum({line, Bytes(checkpoint.cameras), Bytes(checkpoint.points)});
  const std::string_view checksum(reinterpret_cast<const char*>(&sum),
                                  kChecksumSize);
  return WriteFile(
      path,
      {line, Bytes(checkpoint.cameras), Bytes(checkpoint.points), checksum},
      error);
}

bool ReadCheckpoint(const std::string& path,
                    const BalProblem& problem,
                    Checkpoint* checkpoint,
                    std::string* error) {
  const auto fail = [&path, error](const std::string& expected,
                                   const std::string& found) {
    *error = path + ": expected " + expected + ", found " + found;
    return false;
  };
  std::string found;
  const std::unique_ptr<ByteStream> stream = OpenFile(path, &found);
  if (stream == nullptr) {
    return fail("a readable file", found);
  }
  std::string bytes(kMaxHeaderSize, '\0');
  bytes.resize(stream->Read(bytes.data(), bytes.size()));
  if (!stream->error().empty()) {
    return fail("a readable file", stream->error());
  }
  const std::string line = bytes.substr(0, bytes.find('\n'));
  const Json header = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  const Json identity = Identity(problem, problem.camera_size);
  if (!header.is_object()) {
    return fail("a checkpoint of bundle_adjuster", "another kind of file");
  }
  for (const auto& [name, value] : identity.items()) {
    const Json other = header.value(name, Json());
    if (other != value) {
      return fail(
          "a checkpoint of this problem, with " + name + " " + Dump(value),
          Dump(other));
    }
  }

  checkpoint->camera_size = problem.camera_size;
  checkpoint->cameras.resize(problem.cameras.size());
  checkpoint->points.resize(problem.points.size());
  const size_t cameras = line.size() + 1;
  const size_t points = cameras + Bytes(problem.cameras).size();
  const size_t checksum = points + Bytes(problem.points).size();
  const size_t size = checksum + kChecksumSize;
  // One byte more than there should be.
  const size_t begin = bytes.size();
  bytes.resize(std::max(begin, size + 1));
  bytes.resize(begin +
               stream->Read(bytes.data() + begin, bytes.size() - begin));
  if (!stream->error().empty()) {
    return fail("a readable file", stream->error());
  }
  if (bytes.size() != size) {
    return fail("a whole checkpoint of " + std::to_string(size) + " bytes",
                bytes.size() > size ? "more" : std::to_string(bytes.size()));
  }
  uint32_t sum;
  std::memcpy(&sum, bytes.data() + checksum, kChecksumSize);
  if (sum != Checksum({std::string_view(bytes).substr(0, checksum)})) {
    return fail("an undamaged checkpoint", "a wrong checksum");
  }

  try {
    checkpoint->progress.num_iterations = header.at("num_iterations");
    checkpoint->progress.trust_region_radius = header.at("trust_region_radius");
    checkpoint->frame.scale = header.at("frame").at("scale");
    for (int k = 0; k < 3; ++k) {
      checkpoint->frame.origin[k] = header.at("frame").at("origin").at(k);
    }
  } catch (const Json::exception& exception) {
    return fail("a checkpoint of bundle_adjuster", exception.what());
  }
  const SolveProgress& progress = checkpoint->progress;
  if (progress.num_iterations < 0 ||
      !std::isfinite(progress.trust_region_radius) ||
      !(progress.trust_region_radius > 0.0)) {
    return fail("iterations >= 0 and a trust-region radius > 0", line);
  }
  std::memcpy(
      checkpoint->cameras.data(), bytes.data() + cameras, points - cameras);
  std::memcpy(
      checkpoint->points.data(), bytes.data() + points, checksum - points);
  return true;
}

}  // namespace ceres_ext::bal
