// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/structure/schur_pairs.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

namespace ceres_ext::kernels {
namespace {

// A stable counting sort by number(part), 0 <= number < n.
template <typename Part, typename Number>
void SortBy(int32_t n, const Number& number, std::vector<Part>* parts) {
  if (std::is_sorted(
          parts->begin(), parts->end(), [&](const Part& a, const Part& b) {
            return number(a) < number(b);
          })) {
    return;
  }
  std::vector<size_t> next(static_cast<size_t>(n) + 1, 0);
  for (const Part& part : *parts) {
    ++next[number(part) + 1];
  }
  std::partial_sum(next.begin(), next.end(), next.begin());
  std::vector<Part> sorted(parts->size());
  for (const Part& part : *parts) {
    sorted[next[number(part)]++] = part;
  }
  parts->swap(sorted);
}

// A stable sort of a few parts by number(part), in place.
template <typename Part, typename Number>
void SortRun(Part* begin, Part* end, const Number& number) {
  for (Part* part = begin; part != end; ++part) {
    const Part moved = *part;
    Part* to = part;
    for (; to != begin && number(to[-1]) > number(moved); --to) {
      *to = to[-1];
    }
    *to = moved;
  }
}

// By both halves of the key, stable.
template <typename Part>
void SortByKey(int32_t num_high, int32_t num_low, std::vector<Part>* parts) {
  const auto high = [](const Part& part) {
    return static_cast<size_t>(part.key >> 32);
  };
  const auto low = [](const Part& part) {
    return static_cast<size_t>(part.key & 0xffffffff);
  };
  // Rows mostly come in the order of their eliminated blocks.
  constexpr std::ptrdiff_t kLongestRun = 64;
  if (std::is_sorted(
          parts->begin(), parts->end(), [&](const Part& a, const Part& b) {
            return high(a) < high(b);
          })) {
    Part* const end = parts->data() + parts->size();
    for (Part *run = parts->data(), *next = run; run != end; run = next) {
      while (next != end && high(*next) == high(*run)) {
        ++next;
      }
      if (next - run <= kLongestRun) {
        SortRun(run, next, low);
      } else {
        std::stable_sort(run, next, [&](const Part& a, const Part& b) {
          return low(a) < low(b);
        });
      }
    }
    return;
  }
  SortBy(num_low, low, parts);
  SortBy(num_high, high, parts);
}

}  // namespace

void SchurPairsBuilder::Reserve(int e_family,
                                int64_t num_rows,
                                int64_t num_cells) {
  constexpr int64_t kMostRows = 1 << 20;  // more would be a guess at gigabytes
  if (num_rows > kMostRows) {
    return;
  }
  std::vector<Part>& parts = pair_parts_[e_family];
  parts.reserve(parts.size() + static_cast<size_t>(num_rows * num_cells));
  crossing_parts_.reserve(
      crossing_parts_.size() +
      static_cast<size_t>(num_rows * num_cells * (num_cells - 1) / 2));
}

void SchurPairsBuilder::AddRow(int batch,
                               int32_t row,
                               const Eliminated& e,
                               const std::vector<Cell>& cells) {
  const auto block = [&](const Cell& cell) {
    return first_block_[cell.family] + cell.block;
  };
  for (const Cell& cell : cells) {
    if (e.family >= 0) {
      const auto e_block = static_cast<uint64_t>(e.block);
      pair_parts_[e.family].push_back(
          {e_block << 32 | static_cast<uint64_t>(block(cell)),
           cell.value,
           batch,
           row,
           cell.size});
    }
    for (const Cell& other : cells) {
      if (block(other) < block(cell)) {
        const auto i = static_cast<uint64_t>(block(cell));
        crossing_parts_.push_back(
            {i << 32 | static_cast<uint64_t>(block(other)),
             CrossingValue(cell.value, other.value),
             batch,
             row,
             f_[other.family].size});
      }
    }
  }
}

Status SchurPairsBuilder::Build(HostContext* context) {
  // Neither reads what the other writes.
  Status statuses[2];
  const auto build = [&](int64_t i, int64_t /*end*/) {
    statuses[i] = i == 0 ? BuildAllPairs() : BuildCrossings();
  };
  if (context == nullptr) {
    build(0, 1);
    build(1, 2);
  } else {
    context->ParallelFor(2, 1, build);
  }
  return statuses[0].ok() ? statuses[1] : statuses[0];
}

Status SchurPairsBuilder::BuildAllPairs() {
  pairs_.resize(static_cast<size_t>(e_.size()));
  for (int i = 0; i < e_.size(); ++i) {
    CERES_EXT_RETURN_IF_ERROR(BuildPairs(i));
  }
  for (BatchLists& batch : batches_) {
    CERES_EXT_RETURN_IF_ERROR(MakeBlockLists(
        w_families_, batch.pair_cells, nullptr, &batch.pair_lists));
    batch.pair_cells = {};
  }
  return {};
}

int64_t SchurPairsBuilder::ForecastBytes(int64_t* build_bytes) const {
  *build_bytes = 0;
  constexpr int64_t kDouble = sizeof(double);
  constexpr int64_t kId = sizeof(int32_t);
  constexpr int64_t kOffset = sizeof(int64_t);
  // Taken when all couplings are listed.
  const int64_t of_sums = kDouble * (2 * w_families_.num_values() +
                                     crossing_families_.num_values());
  int64_t bytes = of_sums;
  bytes += (2 * kId + kOffset) * static_cast<int64_t>(blocks_.column.size());
  int64_t num_partial = 0;
  for (const Pairs& pairs : pairs_) {
    if (pairs.f_block.empty()) {
      continue;
    }
    ObservationIndexRef index;
    index.num_cameras = static_cast<int32_t>(pairs.camera_begin.size()) - 1;
    index.num_observations = static_cast<int64_t>(pairs.f_block.size());
    CouplingForecast couplings;
    std::vector<int64_t> of_row(static_cast<size_t>(index.num_cameras));
    int64_t widest = 0;
    for (size_t p = 0; p + 1 < pairs.point_begin.size(); ++p) {
      const int64_t begin = pairs.point_begin[p];
      const int64_t k = pairs.point_begin[p + 1] - begin;
      couplings.num_couplings += k * (k - 1) / 2;
      for (int64_t q = begin; q < begin + k; ++q) {
        of_row[static_cast<size_t>(pairs.f_block[static_cast<size_t>(q)])] +=
            q - begin;
      }
    }
    for (int32_t block = 0; block < index.num_cameras; ++block) {
      if (pairs.camera_begin[static_cast<size_t>(block) + 1] >
          pairs.camera_begin[static_cast<size_t>(block)]) {
        widest = std::max(widest, int64_t{f_[FamilyOf(block)].size});
      }
    }
    couplings.row_couplings = *std::max_element(of_row.begin(), of_row.end());
    kernels::ForecastBytes(
        index, CouplingList::kObservations, /*on_device=*/true, &couplings);
    *build_bytes = std::max(*build_bytes, couplings.build_bytes);
    // About those of the blocks that are cut, of one E family after the other.
    num_partial = std::max(num_partial,
                           widest * widest *
                               (couplings.num_couplings /
                                CouplingChunkSize(couplings.num_couplings)));
    bytes += couplings.bytes + (3 * kId + kOffset) * index.num_observations +
             kOffset * static_cast<int64_t>(pairs.point_begin.size() +
                                            pairs.camera_begin.size());
  }
  bytes += kDouble * num_partial;
  *build_bytes =
      std::max(int64_t{0}, *build_bytes - of_sums - kDouble * num_partial);
  return bytes + ListBytes();
}

int64_t SchurPairsBuilder::ForecastBytesOfW() const {
  constexpr int64_t kId = sizeof(int32_t);
  constexpr int64_t kOffset = sizeof(int64_t);
  int64_t bytes = static_cast<int64_t>(sizeof(double)) *
                  (w_families_.num_values() + crossing_families_.num_values());
  for (const Pairs& pairs : pairs_) {
    if (pairs.f_block.empty()) {
      continue;
    }
    bytes += (3 * kId + kOffset) * static_cast<int64_t>(pairs.f_block.size()) +
             kOffset * static_cast<int64_t>(pairs.point_begin.size() +
                                            pairs.camera_begin.size());
  }
  return bytes + ListBytes();
}

int64_t SchurPairsBuilder::ListBytes() const {
  constexpr int64_t kDouble = sizeof(double);
  constexpr int64_t kId = sizeof(int32_t);
  constexpr int64_t kOffset = sizeof(int64_t);
  int64_t bytes = 0;
  for (const BatchLists& batch : batches_) {
    for (const auto* lists : {&batch.pair_lists, &batch.crossing_lists}) {
      int64_t sums = 0;
      for (const BlockList& list : *lists) {
        bytes += kId * static_cast<int64_t>(list.block.size()) +
                 static_cast<int64_t>(sizeof(BlockCell) * list.cells.size()) +
                 kOffset * static_cast<int64_t>(list.segment_begin.size() +
                                                list.block_begin.size());
        if (!list.levels.empty() && list.sizes.size <= kMaxCutWidth) {
          sums = std::max(sums, list.sizes.num_segments * list.sizes.size);
        }
      }
      bytes += kDouble * sums;
    }
  }
  return bytes;
}

Status SchurPairsBuilder::BuildPairs(int e_family) {
  std::vector<Part> parts;
  parts.swap(pair_parts_[e_family]);
  if (parts.empty()) {
    return {};
  }
  SortByKey(e_[e_family].num_blocks, NumFBlocks(), &parts);
  Pairs& pairs = pairs_[e_family];
  pairs.e_size = e_[e_family].size;
  // For each family of F, its pairs so far; w_begin is first the place of a
  // pair among them.
  std::vector<int32_t> num_pairs(static_cast<size_t>(f_.size()), 0);
  for (size_t at = 0; at < parts.size(); ++at) {
    if (at == 0 || parts[at].key != parts[at - 1].key) {
      const auto f_block = static_cast<int32_t>(parts[at].key & 0xffffffff);
      if (pairs.f_block.size() == std::numeric_limits<int32_t>::max()) {
        return {StatusCode::kUnsupported,
                "The Schur complement as a matrix of 2^31 pairs of blocks."};
      }
      pairs.f_block.push_back(f_block);
      pairs.e_block.push_back(static_cast<int32_t>(parts[at].key >> 32));
      pairs.w_begin.push_back(num_pairs[FamilyOf(f_block)]++);
    }
  }
  std::vector<int> w_family;
  w_family.reserve(static_cast<size_t>(f_.size()));
  for (int f = 0; f < f_.size(); ++f) {
    w_family.push_back(
        w_families_.Add(f_[f].size * pairs.e_size, num_pairs[f]));
  }
  std::vector<size_t> of_batch(batches_.size(), 0);
  for (const Part& part : parts) {
    ++of_batch[part.batch];
  }
  for (size_t i = 0; i < batches_.size(); ++i) {
    std::vector<FamilyCell>& cells = batches_[i].pair_cells;
    cells.reserve(cells.size() + of_batch[i]);
  }
  size_t pair = 0;
  for (size_t at = 0; at < parts.size(); ++at) {
    pair += at > 0 && parts[at].key != parts[at - 1].key ? 1 : 0;
    batches_[parts[at].batch].pair_cells.push_back(
        {w_family[FamilyOf(pairs.f_block[pair])],
         static_cast<int32_t>(pairs.w_begin[pair]),
         {parts[at].value, parts[at].row, parts[at].size}});
  }
  const size_t n = pairs.f_block.size();
  pairs.point_begin.assign(static_cast<size_t>(e_[e_family].num_blocks) + 1, 0);
  pairs.camera_begin.assign(static_cast<size_t>(NumFBlocks()) + 1, 0);
  for (size_t i = 0; i < n; ++i) {
    const BlockFamily& family =
        w_families_[w_family[FamilyOf(pairs.f_block[i])]];
    pairs.w_begin[i] = family.value_begin + family.size * pairs.w_begin[i];
    ++pairs.point_begin[pairs.e_block[i] + 1];
    ++pairs.camera_begin[pairs.f_block[i] + 1];
  }
  std::partial_sum(pairs.point_begin.begin(),
                   pairs.point_begin.end(),
                   pairs.point_begin.begin());
  std::partial_sum(pairs.camera_begin.begin(),
                   pairs.camera_begin.end(),
                   pairs.camera_begin.begin());
  std::vector<int64_t> next = pairs.camera_begin;
  pairs.camera_entry.resize(n);
  for (size_t i = 0; i < n; ++i) {
    pairs.camera_entry[next[pairs.f_block[i]]++] = static_cast<int32_t>(i);
  }
  return {};
}

Status SchurPairsBuilder::BuildCrossings() {
  std::vector<Part> parts;
  parts.swap(crossing_parts_);
  SortByKey(NumFBlocks(), NumFBlocks(), &parts);
  // Families of two families of F, in the order of their numbers.
  const auto num_families = static_cast<size_t>(f_.size());
  std::vector<int32_t> num_blocks(num_families * num_families, 0);
  const auto families = [&](uint64_t key) {
    return FamilyOf(static_cast<int32_t>(key >> 32)) * num_families +
           FamilyOf(static_cast<int32_t>(key & 0xffffffff));
  };
  blocks_.row_begin.assign(static_cast<size_t>(NumFBlocks()) + 1, 0);
  std::vector<int32_t> place;  // of each crossing in its family
  for (size_t at = 0; at < parts.size(); ++at) {
    if (at == 0 || parts[at].key != parts[at - 1].key) {
      place.push_back(num_blocks[families(parts[at].key)]++);
      ++blocks_.row_begin[(parts[at].key >> 32) + 1];
      blocks_.column.push_back(
          static_cast<int32_t>(parts[at].key & 0xffffffff));
    }
  }
  std::partial_sum(blocks_.row_begin.begin(),
                   blocks_.row_begin.end(),
                   blocks_.row_begin.begin());
  std::vector<int> number(num_blocks.size(), -1);
  for (size_t of = 0; of < num_blocks.size(); ++of) {
    if (num_blocks[of] > 0) {
      const int columns = f_[static_cast<int>(of % num_families)].size;
      number[of] = crossing_families_.Add(
          f_[static_cast<int>(of / num_families)].size * columns,
          num_blocks[of]);
      crossings_.emplace_back().columns = columns;
    }
  }
  size_t crossing = 0;
  for (size_t at = 0; at < parts.size(); ++at) {
    const uint64_t key = parts[at].key;
    const bool is_first = at == 0 || key != parts[at - 1].key;
    crossing += at > 0 && is_first ? 1 : 0;
    const int family = number[families(key)];
    if (is_first) {
      Crossings& crossings = crossings_[family];
      crossings.row.push_back(static_cast<int32_t>(key >> 32));
      crossings.column.push_back(static_cast<int32_t>(key & 0xffffffff));
      crossings.place.push_back(static_cast<int64_t>(crossing));
    }
    batches_[parts[at].batch].crossing_cells.push_back(
        {family,
         place[crossing],
         {parts[at].value, parts[at].row, parts[at].size}});
  }
  for (BatchLists& batch : batches_) {
    CERES_EXT_RETURN_IF_ERROR(MakeBlockLists(crossing_families_,
                                             batch.crossing_cells,
                                             nullptr,
                                             &batch.crossing_lists));
    batch.crossing_cells = {};
  }
  return {};
}

}  // namespace ceres_ext::kernels
