// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "problem_io/npz_file.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "problem_io/byte_stream.h"
#include "problem_io/for_each_chunk.h"
#include "problem_io/number_text.h"

namespace ceres_ext::bal {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "ZIP and the arrays are little-endian.");

// The records of ZIP ("APPNOTE.TXT" of PKWARE, 4.3), without what has no fixed
// size.
constexpr uint32_t kLocalHeader = 0x04034b50;
constexpr int64_t kLocalHeaderSize = 30;
constexpr uint32_t kDirectoryEntry = 0x02014b50;
constexpr int64_t kDirectoryEntrySize = 46;
constexpr uint32_t kEnd = 0x06054b50;
constexpr int64_t kEndSize = 22;
constexpr uint32_t kEnd64 = 0x06064b50;
constexpr int64_t kEnd64Size = 56;
constexpr uint32_t kEnd64Locator = 0x07064b50;
constexpr int64_t kEnd64LocatorSize = 20;
// Extra fields: sizes and offsets of 64 bits, and padding.
constexpr uint16_t kExtra64 = 0x0001;
constexpr uint16_t kExtraPadding = 0xd935;
constexpr int64_t kExtraHeaderSize = 4;
constexpr uint16_t kVersion = 20;
constexpr uint16_t kVersion64 = 45;
constexpr uint16_t kUtf8Name = 1 << 11;
constexpr uint16_t kFirstDay = 0x0021;  // 1980-01-01
constexpr uint32_t kMax32 = 0xffffffff;
constexpr uint16_t kMax16 = 0xffff;

constexpr int64_t kAlignment = 64;
constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr int64_t kMaxNpyHeaderSize = 10000;  // that of numpy.load
// With names of 64 KiB it would have two members.
constexpr int64_t kMaxDirectorySize = 1 << 17;

template <typename T>
void Put(T value, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// The value of type T at that offset, which the caller has checked.
template <typename T>
T Get(std::string_view bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

uint32_t Crc(std::string_view bytes, uint32_t crc = 0) {
  return crc32_z(
      crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
}

// On all threads.
uint32_t ParallelCrc(std::string_view bytes, uint32_t crc) {
  constexpr size_t kMinPerThread = 1 << 20;
  const int num_threads = static_cast<int>(
      std::min<size_t>(NumThreads(0), 1 + bytes.size() / kMinPerThread));
  std::vector<uint32_t> crcs(num_threads);
  std::vector<int64_t> sizes(num_threads);
  ForEachChunk(
      num_threads, bytes.size(), [&](int chunk, int64_t begin, int64_t end) {
        sizes[chunk] = end - begin;
        crcs[chunk] = Crc(bytes.substr(begin, end - begin));
      });
  for (int chunk = 0; chunk < num_threads; ++chunk) {
    crc = crc32_combine(crc, crcs[chunk], sizes[chunk]);
  }
  return crc;
}

// With its size a multiple of kAlignment, as the values behind it want it.
std::string NpyHeader(const NpyArray& array) {
  std::string text =
      "{'descr': '" + array.dtype + "', 'fortran_order': False, 'shape': (";
  for (const int64_t size : array.shape) {
    text += std::to_string(size) + ", ";
  }
  // A tuple of one ends in a comma, one of several in none.
  text.resize(text.size() - (array.shape.size() == 1 ? 1 : 2));
  text += "), }";
  std::string header(kNpyMagic);
  header += {1, 0};
  const size_t size = header.size() + 2 + text.size() + 1;
  text.append((kAlignment - size % kAlignment) % kAlignment, ' ');
  text += '\n';
  Put(static_cast<uint16_t>(text.size()), &header);
  return header + text;
}

// The local header's and the directory's description of a member.
std::string MemberFields(const std::string& name,
                         bool is_64,
                         uint32_t crc,
                         int64_t size,
                         size_t extra_size) {
  std::string bytes;
  Put(is_64 ? kVersion64 : kVersion, &bytes);
  Put(uint16_t{0}, &bytes);  // flags
  Put(uint16_t{0}, &bytes);  // stored
  Put(uint16_t{0}, &bytes);  // midnight
  Put(kFirstDay, &bytes);
  Put(crc, &bytes);
  const uint32_t size_32 = is_64 ? kMax32 : static_cast<uint32_t>(size);
  Put(size_32, &bytes);
  Put(size_32, &bytes);
  Put(static_cast<uint16_t>(name.size()), &bytes);
  Put(static_cast<uint16_t>(extra_size), &bytes);
  return bytes;
}

// A part of a file in memory, or what keeps it from being there.
bool ReadPart(const ByteStream& file,
              int64_t begin,
              int64_t size,
              std::string* bytes,
              std::string* error) {
  bytes->resize(size);
  std::string found;
  const int64_t num_read = file.ReadAt(begin, bytes->data(), size, &found);
  if (num_read == size) {
    return true;
  }
  *error = "expected " + std::to_string(size) + " bytes at offset " +
           std::to_string(begin) + ", found " +
           (found.empty() ? std::to_string(num_read) : found);
  return false;
}

// A directory entry, and what its local header adds.
struct Entry {
  std::string name;
  uint16_t flags;
  uint16_t method;
  uint32_t crc;
  uint64_t compressed_size;
  uint64_t size;
  uint64_t local_header;
  int64_t begin;  // of the member's bytes
};

// Replaces those of `values` that are all ones by what the extra fields say.
// False if these are cut or hold no such value.
bool ResolveExtra64(std::string_view extra,
                    const std::vector<uint64_t*>& values) {
  size_t next = 0;
  const auto resolve = [&](std::string_view field) {
    size_t offset = 0;
    for (; next < values.size(); ++next) {
      if (*values[next] == kMax32) {
        if (offset + 8 > field.size()) {
          return false;
        }
        *values[next] = Get<uint64_t>(field, offset);
        offset += 8;
      }
    }
    return true;
  };
  bool is_resolved = false;
  while (!extra.empty()) {
    if (extra.size() < kExtraHeaderSize) {
      return false;
    }
    const auto id = Get<uint16_t>(extra, 0);
    const auto size = Get<uint16_t>(extra, 2);
    extra.remove_prefix(kExtraHeaderSize);
    if (extra.size() < size) {
      return false;
    }
    if (id == kExtra64) {
      if (is_resolved || !resolve(extra.substr(0, size))) {
        return false;
      }
      is_resolved = true;
    }
    extra.remove_prefix(size);
  }
  // Without such a field all ones are not a size or an offset.
  return is_resolved ||
         std::none_of(values.begin(), values.end(), [](const uint64_t* value) {
           return *value == kMax32;
         });
}

class NpzReader {
 public:
  NpzReader(const ByteStream& file, std::string* error)
      : file_(file), error_(error) {}

  bool Read(std::vector<NpyMember>* members) {
    members->clear();
    std::vector<Entry> entries;
    if (!ReadEnd() || !ReadDirectory(&entries)) {
      return false;
    }
    for (Entry& entry : entries) {
      NpyMember member;
      member.name = entry.name;
      if (!CheckEntry(entry) || !ReadLocalHeader(&entry) ||
          !ReadNpyHeader(entry, &member)) {
        *error_ = Quoted(entry.name) + ": " + *error_;
        return false;
      }
      for (const NpyMember& other : *members) {
        if (other.name == member.name) {
          return Fail("members of different names",
                      "two with the name " + Quoted(member.name));
        }
      }
      members->push_back(std::move(member));
    }
    return CheckOverlaps(entries);
  }

 private:
  // Names of other files may hold anything.
  static std::string Quoted(const std::string& name) {
    const bool is_plain = std::all_of(name.begin(), name.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
             (c >= '0' && c <= '9') || c == '_' || c == '.';
    });
    return is_plain && !name.empty() && name.size() <= 40
               ? name
               : bal::Quoted(name.data(), name.data() + name.size());
  }

  bool Fail(const std::string& expected, const std::string& found) {
    *error_ = "expected " + expected + ", found " + found;
    return false;
  }

  // The records at the end of the file, which say where the directory is.
  bool ReadEnd() {
    const int64_t size = file_.size();
    const int64_t tail_size =
        std::min(size, kEnd64Size + kEnd64LocatorSize + kEndSize);
    std::string bytes;
    if (!ReadPart(file_, size - tail_size, tail_size, &bytes, error_)) {
      return false;
    }
    const std::string_view tail = bytes;
    if (tail_size < kEndSize ||
        Get<uint32_t>(tail, tail_size - kEndSize) != kEnd ||
        Get<uint16_t>(tail, tail_size - 2) != 0) {
      return Fail("an .npz file that ends in the end record of its directory",
                  "none there: a file cut off, or one with a comment");
    }
    const std::string_view end = tail.substr(tail_size - kEndSize);
    uint64_t disks = Get<uint16_t>(end, 4) | Get<uint16_t>(end, 6);
    uint64_t num_here = Get<uint16_t>(end, 8);
    num_entries_ = Get<uint16_t>(end, 10);
    uint64_t directory_size = Get<uint32_t>(end, 12);
    uint64_t directory = Get<uint32_t>(end, 16);
    directory_end_ = size - kEndSize;

    const int64_t locator = tail_size - kEndSize - kEnd64LocatorSize;
    if (locator >= 0 && Get<uint32_t>(tail, locator) == kEnd64Locator) {
      directory_end_ = size - tail_size;
      if (locator < kEnd64Size || Get<uint32_t>(tail, 0) != kEnd64 ||
          Get<uint64_t>(tail, 4) != kEnd64Size - 12 ||
          Get<uint64_t>(tail, locator + 8) !=
              static_cast<uint64_t>(directory_end_)) {
        return Fail("the end record of 64 bits right before its locator",
                    "another one");
      }
      // The record of 32 bits says the same or leaves it to this one.
      const auto agree = [](uint64_t value, uint64_t all_ones, uint64_t wide) {
        return value == all_ones || value == wide;
      };
      const auto num_here_64 = Get<uint64_t>(tail, 24);
      const auto num_entries_64 = Get<uint64_t>(tail, 32);
      const auto directory_size_64 = Get<uint64_t>(tail, 40);
      const auto directory_64 = Get<uint64_t>(tail, 48);
      if (!agree(num_here, kMax16, num_here_64) ||
          !agree(num_entries_, kMax16, num_entries_64) ||
          !agree(directory_size, kMax32, directory_size_64) ||
          !agree(directory, kMax32, directory_64)) {
        return Fail("two end records that agree", "two that differ");
      }
      disks = Get<uint32_t>(tail, 16) | Get<uint32_t>(tail, 20) |
              Get<uint32_t>(tail, locator + 4) |
              (Get<uint32_t>(tail, locator + 16) > 1 ? 1 : 0);
      num_here = num_here_64;
      num_entries_ = num_entries_64;
      directory_size = directory_size_64;
      directory = directory_64;
    }
    if (disks != 0 || num_here != num_entries_) {
      return Fail("an archive of one file", "a part of one of several");
    }
    const auto directory_end = static_cast<uint64_t>(directory_end_);
    if (directory_size > directory_end ||
        directory != directory_end - directory_size) {
      return Fail("a directory that ends right before its end record",
                  std::to_string(directory_size) + " bytes at offset " +
                      std::to_string(directory));
    }
    if (directory_size > kMaxDirectorySize) {
      return Fail("a directory of at most " +
                      std::to_string(kMaxDirectorySize) + " bytes",
                  std::to_string(directory_size));
    }
    directory_ = static_cast<int64_t>(directory);
    return true;
  }

  bool ReadDirectory(std::vector<Entry>* entries) {
    std::string bytes;
    if (!ReadPart(
            file_, directory_, directory_end_ - directory_, &bytes, error_)) {
      return false;
    }
    std::string_view rest = bytes;
    while (!rest.empty()) {
      if (rest.size() < kDirectoryEntrySize ||
          Get<uint32_t>(rest, 0) != kDirectoryEntry) {
        return Fail(
            "a directory of " + std::to_string(num_entries_) + " entries",
            "something else behind entry " + std::to_string(entries->size()));
      }
      const auto name_size = Get<uint16_t>(rest, 28);
      const auto extra_size = Get<uint16_t>(rest, 30);
      const auto comment_size = Get<uint16_t>(rest, 32);
      const size_t entry_size =
          kDirectoryEntrySize + name_size + extra_size + comment_size;
      if (rest.size() < entry_size) {
        return Fail(
            "directory entries that end in the directory",
            "one that does not, entry " + std::to_string(entries->size() + 1));
      }
      Entry entry = {};
      entry.name = rest.substr(kDirectoryEntrySize, name_size);
      entry.flags = Get<uint16_t>(rest, 8);
      entry.method = Get<uint16_t>(rest, 10);
      entry.crc = Get<uint32_t>(rest, 16);
      entry.compressed_size = Get<uint32_t>(rest, 20);
      entry.size = Get<uint32_t>(rest, 24);
      entry.local_header = Get<uint32_t>(rest, 42);
      if (Get<uint16_t>(rest, 34) != 0) {
        return Fail("an archive of one file", "a part of one of several");
      }
      if (!ResolveExtra64(
              rest.substr(kDirectoryEntrySize + name_size, extra_size),
              {&entry.size, &entry.compressed_size, &entry.local_header})) {
        return Fail("whole extra fields",
                    "others in the directory entry of " + Quoted(entry.name));
      }
      rest.remove_prefix(entry_size);
      entries->push_back(std::move(entry));
    }
    if (entries->size() != num_entries_) {
      return Fail("a directory of " + std::to_string(num_entries_) + " entries",
                  std::to_string(entries->size()));
    }
    return true;
  }

  bool CheckEntry(const Entry& entry) {
    if ((entry.flags & 1) != 0) {
      return Fail("no encryption", "an encrypted member");
    }
    if (entry.method != 0) {
      return Fail(
          "a member that is stored, as by numpy.savez",
          "compression method " + std::to_string(entry.method) +
              (entry.method == 8 ? ", as of numpy.savez_compressed" : ""));
    }
    if ((entry.flags & ~kUtf8Name) != 0) {
      return Fail("no flags but that of UTF-8 names",
                  std::to_string(entry.flags));
    }
    if (entry.compressed_size != entry.size) {
      return Fail("one size of a stored member",
                  std::to_string(entry.compressed_size) + " and " +
                      std::to_string(entry.size));
    }
    return true;
  }

  bool ReadLocalHeader(Entry* entry) {
    const auto before_directory = static_cast<uint64_t>(directory_);
    if (entry->local_header > before_directory ||
        before_directory - entry->local_header < kLocalHeaderSize) {
      return Fail("a member before the directory",
                  "offset " + std::to_string(entry->local_header));
    }
    const auto header = static_cast<int64_t>(entry->local_header);
    std::string fixed;
    if (!ReadPart(file_, header, kLocalHeaderSize, &fixed, error_)) {
      return false;
    }
    if (Get<uint32_t>(fixed, 0) != kLocalHeader) {
      return Fail("a local header at offset " + std::to_string(header),
                  "something else");
    }
    const auto name_size = Get<uint16_t>(fixed, 26);
    const auto extra_size = Get<uint16_t>(fixed, 28);
    std::string variable;
    if (!ReadPart(file_,
                  header + kLocalHeaderSize,
                  name_size + extra_size,
                  &variable,
                  error_)) {
      return false;
    }
    uint64_t compressed_size = Get<uint32_t>(fixed, 18);
    uint64_t size = Get<uint32_t>(fixed, 22);
    if (variable.compare(0, name_size, entry->name) != 0 ||
        !ResolveExtra64(std::string_view(variable).substr(name_size),
                        {&size, &compressed_size}) ||
        Get<uint16_t>(fixed, 6) != entry->flags ||
        Get<uint16_t>(fixed, 8) != entry->method ||
        Get<uint32_t>(fixed, 14) != entry->crc || size != entry->size ||
        compressed_size != entry->compressed_size) {
      return Fail("a local header that agrees with the directory",
                  "one that differs");
    }
    entry->begin = header + kLocalHeaderSize + name_size + extra_size;
    if (entry->begin > directory_ ||
        entry->size > static_cast<uint64_t>(directory_ - entry->begin)) {
      return Fail("a member that ends before the directory",
                  std::to_string(entry->size) + " bytes at offset " +
                      std::to_string(entry->begin));
    }
    return true;
  }

  bool ReadNpyHeader(const Entry& entry, NpyMember* member) {
    // The length has two bytes in version 1, four in 2 and 3.
    const auto size = static_cast<int64_t>(entry.size);
    std::string bytes;
    if (!ReadPart(file_,
                  entry.begin,
                  std::min<int64_t>(size, kMaxNpyHeaderSize),
                  &bytes,
                  error_)) {
      return false;
    }
    const std::string_view start = bytes;
    const char major = start.size() < 12 ? '\0' : start[6];
    if (start.substr(0, kNpyMagic.size()) != kNpyMagic || major < 1 ||
        major > 3 || start[7] != 0) {
      return Fail("an .npy file of version 1.0, 2.0 or 3.0", "something else");
    }
    const size_t text_begin = major == 1 ? 10 : 12;
    const uint64_t text_size =
        major == 1 ? Get<uint16_t>(start, 8) : Get<uint32_t>(start, 8);
    if (text_size > start.size() - text_begin) {
      return Fail("an .npy header of at most " +
                      std::to_string(start.size() - text_begin) + " bytes",
                  std::to_string(text_size));
    }
    const std::string_view text = start.substr(text_begin, text_size);
    bool is_fortran_order = false;
    if (!ParseNpyHeader(text, &is_fortran_order, member)) {
      return Fail("an .npy header with 'descr', 'fortran_order' and 'shape'",
                  bal::Quoted(text.data(), text.data() + text.size()));
    }
    if (is_fortran_order) {
      return Fail("C order (numpy.ascontiguousarray)", "Fortran's");
    }
    const auto header_size = static_cast<int64_t>(text_begin + text_size);
    member->begin = entry.begin + header_size;
    member->size = size - header_size;
    member->header_crc = Crc(start.substr(0, header_size));
    member->crc = entry.crc;
    int64_t num_bytes = ItemSize(member->dtype);
    if (num_bytes == 0) {
      return Fail("a number type of NumPy, as <f8",
                  bal::Quoted(member->dtype.data(),
                              member->dtype.data() + member->dtype.size()));
    }
    for (const int64_t length : member->shape) {
      if (__builtin_mul_overflow(num_bytes, length, &num_bytes)) {
        num_bytes = -1;
        break;
      }
    }
    if (num_bytes != member->size) {
      return Fail("as many bytes as dtype and shape need",
                  std::to_string(member->size));
    }
    return true;
  }

  // For "<f8" 8; 0 for unknown types.
  static int64_t ItemSize(std::string_view dtype) {
    constexpr std::string_view kOrders = "<>|=";
    constexpr std::string_view kKinds = "biufc";
    int64_t size = 0;
    if (dtype.size() < 3 || kOrders.find(dtype[0]) == std::string_view::npos ||
        kKinds.find(dtype[1]) == std::string_view::npos ||
        std::from_chars(dtype.data() + 2, dtype.data() + dtype.size(), size)
                .ptr != dtype.data() + dtype.size()) {
      return 0;
    }
    return size >= 1 && size <= 32 ? size : 0;
  }

  // A dictionary of Python with these three keys, each once, in any order:
  //   {'descr': '<f8', 'fortran_order': False, 'shape': (3, 9), }
  static bool ParseNpyHeader(std::string_view text,
                             bool* is_fortran_order,
                             NpyMember* member) {
    const auto skip_space = [&text] {
      text.remove_prefix(
          std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    };
    const auto take = [&](std::string_view word) {
      skip_space();
      if (text.substr(0, word.size()) != word) {
        return false;
      }
      text.remove_prefix(word.size());
      return true;
    };
    const auto take_text = [&](std::string* value) {
      skip_space();
      const char quote = text.empty() ? '\0' : text[0];
      const size_t end = text.find(quote, 1);
      if ((quote != '\'' && quote != '"') || end == std::string_view::npos) {
        return false;
      }
      *value = text.substr(1, end - 1);
      text.remove_prefix(end + 1);
      return true;
    };
    const auto take_shape = [&] {
      constexpr size_t kMaxDimensions = 32;
      if (!take("(")) {
        return false;
      }
      while (!take(")")) {
        skip_space();
        int64_t length;
        const auto [stop, status] =
            std::from_chars(text.data(), text.data() + text.size(), length);
        if (status != std::errc() || length < 0 ||
            member->shape.size() == kMaxDimensions) {
          return false;
        }
        text.remove_prefix(stop - text.data());
        member->shape.push_back(length);
        if (!take(",")) {
          // (3) is a number and no tuple.
          return member->shape.size() > 1 && take(")");
        }
      }
      return true;
    };
    int num_seen[3] = {0, 0, 0};
    if (!take("{")) {
      return false;
    }
    while (!take("}")) {
      std::string key;
      if (!take_text(&key) || !take(":")) {
        return false;
      }
      if (key == "descr" && num_seen[0]++ == 0) {
        if (!take_text(&member->dtype)) {
          return false;
        }
      } else if (key == "fortran_order" && num_seen[1]++ == 0) {
        *is_fortran_order = take("True");
        if (!*is_fortran_order && !take("False")) {
          return false;
        }
      } else if (key == "shape" && num_seen[2]++ == 0) {
        if (!take_shape()) {
          return false;
        }
      } else {
        return false;
      }
      if (!take(",")) {
        if (!take("}")) {
          return false;
        }
        break;
      }
    }
    skip_space();
    return text.empty() && num_seen[0] + num_seen[1] + num_seen[2] == 3;
  }

  bool CheckOverlaps(std::vector<Entry> entries) {
    std::sort(
        entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
          return a.local_header < b.local_header;
        });
    for (size_t i = 0; i + 1 < entries.size(); ++i) {
      if (entries[i].begin + entries[i].size > entries[i + 1].local_header) {
        return Fail("members that share no bytes",
                    Quoted(entries[i].name) + " and " +
                        Quoted(entries[i + 1].name) + " that do");
      }
    }
    return true;
  }

  const ByteStream& file_;
  std::string* const error_;
  uint64_t num_entries_ = 0;
  int64_t directory_ = 0;
  int64_t directory_end_ = 0;
};

}  // namespace

bool IsNpz(std::string_view first_bytes) {
  return first_bytes.substr(0, 4) == "PK\x03\x04" ||
         first_bytes.substr(0, 4) == "PK\x05\x06";  // no member
}

struct NpzWriter::Member {
  std::string name;
  std::string npy_header;
  int64_t offset = 0;
  int64_t size = 0;  // npy_header and values
  bool is_size_64 = false;
  bool is_offset_64 = false;
  std::string extra;
  bool is_written = false;
  uint32_t crc = 0;  // of what is written

  // The bytes before the values.
  std::string Header() const {
    std::string header;
    Put(kLocalHeader, &header);
    header += MemberFields(name, is_size_64, crc, size, extra.size());
    return header + name + extra + npy_header;
  }
};

NpzWriter::NpzWriter(const std::string& path,
                     std::vector<NpyArray> arrays,
                     uint32_t zip64_from)
    : path_(path),
      arrays_(std::move(arrays)),
      zip64_from_(zip64_from),
      file_(SafeFile::Create(path, &found_)) {
  Layout();
}

NpzWriter::~NpzWriter() = default;

void NpzWriter::Layout() {
  int64_t offset = 0;
  for (const NpyArray& array : arrays_) {
    Member member;
    member.name = array.name + ".npy";
    member.npy_header = NpyHeader(array);
    member.offset = offset;
    member.size =
        static_cast<int64_t>(member.npy_header.size() + array.values.size());
    member.is_size_64 = member.size >= zip64_from_;
    member.is_offset_64 = offset >= zip64_from_;

    // Sizes of 64 bits, then as much padding as puts the header behind it at a
    // multiple of kAlignment.
    std::string& extra = member.extra;
    if (member.is_size_64) {
      Put(kExtra64, &extra);
      Put(uint16_t{16}, &extra);
      Put(member.size, &extra);
      Put(member.size, &extra);
    }
    const int64_t end =
        offset + kLocalHeaderSize +
        static_cast<int64_t>(member.name.size() + extra.size()) +
        kExtraHeaderSize + 2;
    const int64_t padding = (kAlignment - end % kAlignment) % kAlignment;
    Put(kExtraPadding, &extra);
    Put(static_cast<uint16_t>(2 + padding), &extra);
    Put(static_cast<uint16_t>(kAlignment), &extra);
    extra.append(padding, '\0');
    offset +=
        static_cast<int64_t>(member.Header().size() + array.values.size());
    members_.push_back(std::move(member));
  }
  directory_begin_ = offset;
}

std::string NpzWriter::Directory() const {
  std::string directory;
  for (const Member& member : members_) {
    std::string extra;
    if (member.is_size_64 || member.is_offset_64) {
      Put(kExtra64, &extra);
      Put(static_cast<uint16_t>(16 * member.is_size_64 +
                                8 * member.is_offset_64),
          &extra);
      if (member.is_size_64) {
        Put(member.size, &extra);
        Put(member.size, &extra);
      }
      if (member.is_offset_64) {
        Put(member.offset, &extra);
      }
    }
    Put(kDirectoryEntry, &directory);
    Put(member.is_size_64 || member.is_offset_64 ? kVersion64 : kVersion,
        &directory);
    directory += MemberFields(
        member.name, member.is_size_64, member.crc, member.size, extra.size());
    Put(uint16_t{0}, &directory);  // no comment
    Put(uint16_t{0}, &directory);  // the first disk
    Put(uint16_t{0}, &directory);  // binary
    Put(uint32_t{0}, &directory);  // no attributes
    Put(member.is_offset_64 ? kMax32 : static_cast<uint32_t>(member.offset),
        &directory);
    directory += member.name + extra;
  }

  const auto num_arrays = static_cast<int64_t>(members_.size());
  const auto directory_size = static_cast<int64_t>(directory.size());
  const bool is_64 = directory_begin_ >= zip64_from_;
  if (is_64) {
    const int64_t end_64 = directory_begin_ + directory_size;
    Put(kEnd64, &directory);
    Put(kEnd64Size - 12, &directory);
    Put(kVersion64, &directory);
    Put(kVersion64, &directory);
    Put(uint64_t{0}, &directory);  // disks
    Put(num_arrays, &directory);
    Put(num_arrays, &directory);
    Put(directory_size, &directory);
    Put(directory_begin_, &directory);
    Put(kEnd64Locator, &directory);
    Put(uint32_t{0}, &directory);
    Put(end_64, &directory);
    Put(uint32_t{1}, &directory);  // disks
  }
  Put(kEnd, &directory);
  Put(uint32_t{0}, &directory);  // disks
  Put(static_cast<uint16_t>(num_arrays), &directory);
  Put(static_cast<uint16_t>(num_arrays), &directory);
  Put(static_cast<uint32_t>(directory_size), &directory);
  Put(is_64 ? kMax32 : static_cast<uint32_t>(directory_begin_), &directory);
  Put(uint16_t{0}, &directory);  // no comment
  return directory;
}

void NpzWriter::WriteEarly(size_t num_arrays) {
  // Sums are the same size whatever they are.
  const auto size = directory_begin_ + static_cast<int64_t>(Directory().size());
  if (!mapped_.is_mapped() &&
      (file_ == nullptr || !mapped_.Map(file_->fd(), size))) {
    return;
  }
  for (size_t i = 0; i < num_arrays; ++i) {
    Member& member = members_[i];
    if (!member.is_written) {
      const std::string_view values = arrays_[i].values;
      member.crc = ParallelCrc(values, Crc(member.npy_header));
      const std::string header = member.Header();
      mapped_.Write(member.offset, header);
      mapped_.Write(member.offset + static_cast<int64_t>(header.size()),
                    values);
      member.is_written = true;
    }
  }
}

bool NpzWriter::Finish(std::string* error) {
  bool good = file_ != nullptr;
  if (good) {
    WriteEarly(members_.size());
  }
  if (good && mapped_.is_mapped()) {
    mapped_.Write(directory_begin_, Directory());
  } else if (good) {
    const auto write = [&](std::string_view piece) {
      if (good && !WriteFully(file_->fd(), piece.data(), piece.size())) {
        found_ = std::strerror(errno);
        good = false;
      }
    };
    for (size_t i = 0; i < members_.size(); ++i) {
      const std::string_view values = arrays_[i].values;
      members_[i].crc = ParallelCrc(values, Crc(members_[i].npy_header));
      write(members_[i].Header());
      write(values);
    }
    write(Directory());
  }
  if (good && file_->Commit(&found_)) {
    return true;
  }
  *error = CannotWrite(path_, found_);
  return false;
}

bool WriteNpz(const std::string& path,
              const std::vector<NpyArray>& arrays,
              std::string* error,
              uint32_t zip64_from) {
  return NpzWriter(path, arrays, zip64_from).Finish(error);
}

bool ReadNpzMembers(const ByteStream& file,
                    std::vector<NpyMember>* members,
                    std::string* error) {
  return NpzReader(file, error).Read(members);
}

}  // namespace ceres_ext::bal
