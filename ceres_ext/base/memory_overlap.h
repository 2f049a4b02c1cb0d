// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#ifndef CERES_EXT_BASE_MEMORY_OVERLAP_H_
#define CERES_EXT_BASE_MEMORY_OVERLAP_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace ceres_ext {

struct MemoryRange {
  const void* begin;
  const void* end;
  int64_t owner;
  bool is_written;
};

// Owners of two ranges that overlap, one of which is written; -1 and -1: there
// are none. Ranges of one owner may overlap.
inline std::pair<int64_t, int64_t> FindOverlap(
    std::vector<MemoryRange> ranges) {
  const std::less<const void*> less;
  std::sort(ranges.begin(),
            ranges.end(),
            [&](const MemoryRange& a, const MemoryRange& b) {
              return a.begin != b.begin ? less(a.begin, b.begin)
                                        : a.owner < b.owner;
            });
  // Among the ranges that begin before the current one, the one that ends last,
  // and among those that are written.
  const MemoryRange* last = nullptr;
  const MemoryRange* last_written = nullptr;
  const auto extend = [&](const MemoryRange& range, const MemoryRange** to) {
    *to = *to == nullptr || less((*to)->end, range.end) ? &range : *to;
  };
  for (const MemoryRange& range : ranges) {
    for (const MemoryRange* const before :
         {last_written, range.is_written ? last : nullptr}) {
      if (before != nullptr && before->owner != range.owner &&
          less(range.begin, before->end)) {
        return {before->owner, range.owner};
      }
    }
    extend(range, &last);
    if (range.is_written) {
      extend(range, &last_written);
    }
  }
  return {-1, -1};
}

}  // namespace ceres_ext

#endif  // CERES_EXT_BASE_MEMORY_OVERLAP_H_
