// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "problem_io/bal_npz.h"

#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <exception>
#include <mutex>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "problem_io/bal_part.h"
#include "problem_io/bal_problem.h"
#include "problem_io/byte_stream.h"
#include "problem_io/for_each_chunk.h"
#include "problem_io/npz_file.h"
#include "problem_io/number_text.h"

namespace ceres_ext::bal {
namespace {

enum ArrayId {
  CAMERA_INDEX,
  POINT_INDEX,
  OBSERVATIONS,
  CAMERAS,
  POINTS,
  NUM_ARRAYS,
};

struct ArrayForm {
  const char* name;
  bool is_index;
  // Values of a row; 0 if a row is a number.
  int width;
};

constexpr ArrayForm kForms[NUM_ARRAYS] = {{"camera_index", true, 0},
                                          {"point_index", true, 0},
                                          {"observations", false, 2},
                                          {"cameras", false, kCameraSize},
                                          {"points", false, 3}};

template <typename Array>
std::string_view Bytes(const Array& values) {
  return {reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(values[0])};
}

std::string Joined(const std::vector<int64_t>& numbers) {
  std::string text;
  for (const int64_t number : numbers) {
    text += (text.empty() ? "" : ", ") + std::to_string(number);
  }
  return text;
}

// A part of an array, which a thread reads.
struct Piece {
  int array = 0;
  int64_t begin = 0;  // number of a value
  int64_t end = 0;
  uint32_t crc = 0;
  // The first value that may not be there and how it reads, or what was found
  // in place of all.
  int64_t bad = -1;
  std::string found;
  bool is_read = false;
};

// The number of the first value that is not from 0 to count - 1, or size.
template <typename T>
int64_t FindBadIndex(const T* values, int64_t size, int64_t count) {
  // All at once first, which takes a fraction of the time.
  T bits = 0;
  T largest = 0;
  for (int64_t i = 0; i < size; ++i) {
    bits |= values[i];
    largest = std::max(largest, values[i]);
  }
  if (bits >= 0 && largest < count) {
    return size;
  }
  return std::find_if(values,
                      values + size,
                      [count](T v) { return v < 0 || v >= count; }) -
         values;
}

int64_t FindNotFinite(const double* values, int64_t size) {
  // 0 x is 0 for finite x alone.
  double sum = 0.0;
  for (int64_t i = 0; i < size; ++i) {
    sum += 0.0 * values[i];
  }
  return sum == 0.0 ? size : std::find_if(values, values + size, [](double v) {
                               return !std::isfinite(v);
                             }) - values;
}

class NpzProblemReader {
 public:
  NpzProblemReader(const BalReadOptions& options,
                   const ByteStream& file,
                   BalProblem* problem,
                   std::string* error)
      : options_(options), file_(file), problem_(problem), error_(error) {}

  bool Read() {
    return ReadForms() &&
           ReadArrays(
               {CAMERA_INDEX, POINT_INDEX, OBSERVATIONS, CAMERAS, POINTS});
  }

  bool ReadPart(int part, int num_parts, BalPart* of_part) {
    if (!ReadForms() || !ReadArrays({POINT_INDEX, CAMERAS, POINTS})) {
      return false;
    }
    *of_part = CutPart(*problem_, part, num_parts);
    return ReadObservations(*of_part);
  }

 private:
  bool ReadForms() {
    std::vector<NpyMember> members;
    return ReadNpzMembers(file_, &members, error_) && Choose(members) &&
           CheckForms();
  }

  bool Fail(int array, const std::string& expected, const std::string& found) {
    *error_ = std::string(kForms[array].name) + ".npy: expected " + expected +
              ", found " + found;
    return false;
  }

  bool Choose(const std::vector<NpyMember>& members) {
    bool is_there[NUM_ARRAYS] = {};
    for (const NpyMember& member : members) {
      int array = 0;
      while (array < NUM_ARRAYS &&
             member.name != std::string(kForms[array].name) + ".npy") {
        ++array;
      }
      if (array == NUM_ARRAYS) {
        *error_ =
            "expected only the arrays camera_index, point_index, observations, "
            "cameras and points, found the member " +
            Quoted(member.name.data(), member.name.data() + member.name.size());
        return false;
      }
      is_there[array] = true;
      members_[array] = member;
    }
    for (int array = 0; array < NUM_ARRAYS; ++array) {
      if (!is_there[array]) {
        return Fail(array, "this array", "none of this name");
      }
    }
    return true;
  }

  bool CheckForms() {
    for (int array = 0; array < NUM_ARRAYS; ++array) {
      const ArrayForm& form = kForms[array];
      const NpyMember& member = members_[array];
      if (form.is_index ? member.dtype != "<i4" && member.dtype != "<i8"
                        : member.dtype != "<f8") {
        return Fail(array,
                    form.is_index ? "dtype <i4 or <i8" : "dtype <f8",
                    Quoted(member.dtype.data(),
                           member.dtype.data() + member.dtype.size()));
      }
      const bool has_form = member.shape.size() == (form.width == 0 ? 1 : 2) &&
                            (form.width == 0 || member.shape[1] == form.width);
      if (!has_form || member.shape[0] < 1 || member.shape[0] > kMaxCount) {
        return Fail(
            array,
            std::string("a shape (n") +
                (form.width == 0 ? ",)"
                                 : ", " + std::to_string(form.width) + ")") +
                " with n from 1 to " + std::to_string(kMaxCount),
            "(" + Joined(member.shape) + ")");
      }
      if (array <= OBSERVATIONS &&
          member.shape[0] != members_[CAMERA_INDEX].shape[0]) {
        return Fail(array,
                    "as many rows as camera_index has, " +
                        std::to_string(members_[CAMERA_INDEX].shape[0]),
                    std::to_string(member.shape[0]));
      }
    }
    return true;
  }

  int64_t NumValues(int array) const {
    return members_[array].shape[0] * std::max(1, kForms[array].width);
  }
  int64_t ItemSize(int array) const {
    return members_[array].size / NumValues(array);
  }

  int64_t PieceSize() const {
    return static_cast<int64_t>(
        std::max<size_t>(1, options_.block_size / sizeof(double)));
  }

  bool ReadArrays(const std::vector<ArrayId>& arrays) {
    std::vector<Piece> pieces;
    const int64_t piece_size = PieceSize();
    for (const ArrayId array : arrays) {
      const int64_t num_values = NumValues(array);
      for (int64_t begin = 0; begin < num_values; begin += piece_size) {
        Piece piece;
        piece.array = array;
        piece.begin = begin;
        piece.end = std::min(begin + piece_size, num_values);
        pieces.push_back(piece);
      }
    }
    for (const ArrayId array : arrays) {
      switch (array) {
        case CAMERA_INDEX:
          problem_->camera_index.resize(NumValues(array));
          break;
        case POINT_INDEX:
          problem_->point_index.resize(NumValues(array));
          break;
        case OBSERVATIONS:
          problem_->observations.resize(NumValues(array));
          break;
        default:
          break;
      }
    }
    // Setting its values to zero first would happen while others read.
    std::once_flag has_room;
    const auto make_room = [this] {
      problem_->cameras.resize(NumValues(CAMERAS));
      problem_->points.resize(NumValues(POINTS));
    };
    std::atomic<size_t> next = 0;
    const int num_threads = static_cast<int>(
        std::min<size_t>(NumThreads(options_.num_threads), pieces.size()));
    ForEachChunk(num_threads, num_threads, [&](int chunk, int64_t, int64_t) {
      if (chunk == 0) {
        std::call_once(has_room, make_room);
      }
      std::vector<int64_t> buffer;
      for (;;) {
        const size_t i = next++;
        if (i >= pieces.size()) {
          return;
        }
        if (pieces[i].array >= CAMERAS) {
          std::call_once(has_room, make_room);
        }
        ReadPiece(&buffer, &pieces[i]);
      }
    });
    return CheckPieces(pieces, /*are_whole=*/true);
  }

  // Reads the observations of the part, in the order of the file. point_index
  // is that of all.
  bool ReadObservations(const BalPart& part) {
    const BalArray<int32_t> points = std::move(problem_->point_index);
    problem_->camera_index.resize(part.num_observations);
    problem_->point_index.resize(part.num_observations);
    problem_->observations.resize(2 * part.num_observations);
    const auto n = static_cast<int64_t>(points.size());
    const int64_t step = PieceSize();
    const int64_t num_blocks = (n + step - 1) / step;
    const auto is_of_part = [&](int64_t row) {
      return points[row] >= part.first_point &&
             points[row] < part.first_point + part.num_points;
    };
    std::vector<int64_t> first(static_cast<size_t>(num_blocks) + 1, 0);
    for (int64_t row = 0; row < n; ++row) {
      first[row / step + 1] += is_of_part(row) ? 1 : 0;
    }
    std::partial_sum(first.begin(), first.end(), first.begin());
    // Two of each block that has rows of the part.
    std::vector<Piece> pieces(static_cast<size_t>(2 * num_blocks));
    const int num_threads = static_cast<int>(
        std::min<int64_t>(NumThreads(options_.num_threads), num_blocks));
    ForEachChunk(num_threads, num_blocks, [&](int, int64_t begin, int64_t end) {
      std::vector<int64_t> buffer;
      std::vector<int32_t> cameras;
      std::vector<double> observations;
      for (int64_t block = begin; block < end; ++block) {
        if (first[block] == first[block + 1]) {
          continue;
        }
        const int64_t rows_begin = block * step;
        const int64_t rows_end = std::min(n, rows_begin + step);
        Piece* const of_block = &pieces[2 * block];
        of_block[0].array = CAMERA_INDEX;
        of_block[0].begin = rows_begin;
        of_block[0].end = rows_end;
        of_block[1].array = OBSERVATIONS;
        of_block[1].begin = 2 * rows_begin;
        of_block[1].end = 2 * rows_end;
        cameras.resize(rows_end - rows_begin);
        observations.resize(2 * cameras.size());
        ReadIndices(
            cameras.data(), members_[CAMERAS].shape[0], &buffer, of_block);
        ReadNumbers(observations.data(), of_block + 1);
        int64_t to = first[block];
        for (int64_t row = rows_begin; row < rows_end; ++row) {
          if (is_of_part(row)) {
            const int64_t from = row - rows_begin;
            problem_->camera_index[to] = cameras[from];
            problem_->point_index[to] = points[row] - part.first_point;
            std::copy_n(observations.begin() + 2 * from,
                        2,
                        problem_->observations.begin() + 2 * to);
            ++to;
          }
        }
      }
    });
    pieces.erase(
        std::remove_if(pieces.begin(),
                       pieces.end(),
                       [](const Piece& piece) { return piece.end == 0; }),
        pieces.end());
    return CheckPieces(pieces, /*are_whole=*/false);
  }

  void ReadPiece(std::vector<int64_t>* buffer, Piece* piece) const {
    switch (piece->array) {
      case CAMERA_INDEX:
        ReadIndices(problem_->camera_index.data() + piece->begin,
                    members_[CAMERAS].shape[0],
                    buffer,
                    piece);
        break;
      case POINT_INDEX:
        ReadIndices(problem_->point_index.data() + piece->begin,
                    members_[POINTS].shape[0],
                    buffer,
                    piece);
        break;
      case OBSERVATIONS:
        ReadNumbers(problem_->observations.data() + piece->begin, piece);
        break;
      case CAMERAS:
        ReadNumbers(problem_->cameras.data() + piece->begin, piece);
        break;
      default:
        ReadNumbers(problem_->points.data() + piece->begin, piece);
    }
  }

  // To values, the first of the piece.
  void ReadIndices(int32_t* values,
                   int64_t count,
                   std::vector<int64_t>* buffer,
                   Piece* piece) const {
    if (ItemSize(piece->array) == sizeof(int32_t)) {
      ReadBytes(values, piece);
      CheckIndices(values, count, piece);
      return;
    }
    const int64_t size = piece->end - piece->begin;
    buffer->resize(size);
    ReadBytes(buffer->data(), piece);
    CheckIndices(buffer->data(), count, piece);
    std::copy(buffer->begin(), buffer->end(), values);
  }

  template <typename T>
  static void CheckIndices(const T* values, int64_t count, Piece* piece) {
    const int64_t size = piece->end - piece->begin;
    const int64_t bad =
        piece->is_read ? FindBadIndex(values, size, count) : size;
    if (bad < size) {
      piece->bad = piece->begin + bad;
      piece->found = std::to_string(values[bad]);
    }
  }

  void ReadNumbers(double* values, Piece* piece) const {
    ReadBytes(values, piece);
    const int64_t size = piece->end - piece->begin;
    const int64_t bad = piece->is_read ? FindNotFinite(values, size) : size;
    if (bad < size) {
      piece->bad = piece->begin + bad;
      piece->found = NumberText(values[bad]);
    }
  }

  void ReadBytes(void* values, Piece* piece) const {
    const int64_t item_size = ItemSize(piece->array);
    const size_t size = item_size * (piece->end - piece->begin);
    auto* const bytes = static_cast<char*>(values);
    const size_t num_read =
        file_.ReadAt(members_[piece->array].begin + item_size * piece->begin,
                     bytes,
                     size,
                     &piece->found);
    piece->is_read = num_read == size;
    if (piece->is_read) {
      piece->crc = crc32_z(0, reinterpret_cast<const Bytef*>(bytes), size);
    } else if (piece->found.empty()) {
      piece->found = "the end of the file";
    }
  }

  // The first fault, whichever thread found it: damage before values.
  // are_whole: all of an array that any of them is of.
  bool CheckPieces(const std::vector<Piece>& pieces, bool are_whole) {
    bool is_whole[NUM_ARRAYS] = {};
    uint32_t crcs[NUM_ARRAYS];
    for (int array = 0; array < NUM_ARRAYS; ++array) {
      crcs[array] = members_[array].header_crc;
    }
    for (const Piece& piece : pieces) {
      const int64_t item_size = ItemSize(piece.array);
      if (!piece.is_read) {
        return Fail(piece.array,
                    std::to_string(item_size * (piece.end - piece.begin)) +
                        " bytes at offset " +
                        std::to_string(members_[piece.array].begin +
                                       item_size * piece.begin),
                    piece.found);
      }
      is_whole[piece.array] = are_whole;
      crcs[piece.array] = crc32_combine(
          crcs[piece.array], piece.crc, item_size * (piece.end - piece.begin));
    }
    for (int array = 0; array < NUM_ARRAYS; ++array) {
      if (is_whole[array] && crcs[array] != members_[array].crc) {
        return Fail(array, "an undamaged array", "a wrong CRC-32");
      }
    }
    for (const Piece& piece : pieces) {
      if (piece.bad >= 0) {
        const ArrayForm& form = kForms[piece.array];
        const int64_t count =
            members_[piece.array == CAMERA_INDEX ? CAMERAS : POINTS].shape[0];
        const std::string place =
            form.width == 0
                ? std::to_string(piece.bad)
                : Joined({piece.bad / form.width, piece.bad % form.width});
        return Fail(piece.array,
                    form.is_index
                        ? "integers from 0 to " + std::to_string(count - 1)
                        : "finite numbers",
                    piece.found + " at [" + place + "]");
      }
    }
    return true;
  }

  const BalReadOptions& options_;
  const ByteStream& file_;
  BalProblem* const problem_;
  std::string* const error_;
  NpyMember members_[NUM_ARRAYS];
};

// With cameras with a quaternion, the room that others take.
std::vector<NpyArray> ArraysOf(const BalProblem& problem) {
  const int64_t n = problem.num_observations();
  const auto name = [](ArrayId array) { return kForms[array].name; };
  return {
      {name(CAMERA_INDEX), "<i4", {n}, Bytes(problem.camera_index)},
      {name(POINT_INDEX), "<i4", {n}, Bytes(problem.point_index)},
      {name(OBSERVATIONS), "<f8", {n, 2}, Bytes(problem.observations)},
      {name(CAMERAS),
       "<f8",
       {problem.num_cameras(), kCameraSize},
       Bytes(problem.cameras)
           .substr(0, sizeof(double) * kCameraSize * problem.num_cameras())},
      {name(POINTS), "<f8", {problem.num_points(), 3}, Bytes(problem.points)}};
}

}  // namespace

bool ReadBalNpz(const BalReadOptions& options,
                const ByteStream& file,
                BalProblem* problem,
                std::string* error) {
  return NpzProblemReader(options, file, problem, error).Read();
}

bool ReadBalNpzPart(const BalReadOptions& options,
                    const ByteStream& file,
                    int part,
                    int num_parts,
                    BalProblem* problem,
                    BalPart* of_part,
                    std::string* error) {
  return NpzProblemReader(options, file, problem, error)
      .ReadPart(part, num_parts, of_part);
}

BalNpzWriter::BalNpzWriter(const std::string& path, const BalProblem& problem)
    : writer_(path, ArraysOf(problem)) {
  try {
    thread_ = std::thread([this] {
      try {
        writer_.WriteEarly(CAMERAS);  // the text before them
      } catch (const std::exception&) {
        // Finish writes what is not written yet.
      }
    });
  } catch (const std::exception&) {
    // As above: no thread, or no memory for it, is available.
  }
}

BalNpzWriter::~BalNpzWriter() { Wait(); }

void BalNpzWriter::Wait() {
  if (thread_.joinable()) {
    thread_.join();
  }
}

bool BalNpzWriter::Finish(const BalProblem& problem, std::string* error) {
  Wait();
  writer_.SetValues(CAMERAS, Bytes(problem.cameras));
  writer_.SetValues(POINTS, Bytes(problem.points));
  return writer_.Finish(error);
}

bool WriteBalNpz(const std::string& path,
                 const BalProblem& problem,
                 std::string* error) {
  return NpzWriter(path, ArraysOf(problem)).Finish(error);
}

}  // namespace ceres_ext::bal
