// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/structure/schur_pairs.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <utility>

namespace ceres_ext::kernels {

void SchurPairsBuilder::AddRow(int batch,
                               int32_t row,
                               const Eliminated& e,
                               const std::vector<Cell>& cells) {
  pair_parts_.resize(static_cast<size_t>(e_.size()));
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

int SchurPairsBuilder::FamilyOf(int32_t f_block) const {
  // The last one that begins there, as empty ones begin where the next does.
  return static_cast<int>(std::upper_bound(first_block_.begin(),
                                           first_block_.end(),
                                           f_block) -
                          first_block_.begin()) -
         1;
}

Status SchurPairsBuilder::Build() {
  pair_parts_.resize(static_cast<size_t>(e_.size()));
  pairs_.resize(static_cast<size_t>(e_.size()));
  for (int i = 0; i < e_.size(); ++i) {
    CERES_EXT_RETURN_IF_ERROR(BuildPairs(i));
  }
  CERES_EXT_RETURN_IF_ERROR(BuildCrossings());
  for (BatchLists& batch : batches_) {
    CERES_EXT_RETURN_IF_ERROR(
        MakeBlockLists(w_families_, batch.pair_cells, {}, &batch.pair_lists));
    CERES_EXT_RETURN_IF_ERROR(MakeBlockLists(
        crossing_families_, batch.crossing_cells, {}, &batch.crossing_lists));
    batch.pair_cells = {};
    batch.crossing_cells = {};
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
    num_partial =
        std::max(num_partial,
                 widest * widest * (couplings.num_couplings / kCouplingChunk));
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
                 kOffset * static_cast<int64_t>(list.segment_begin.size());
        if (!list.levels.empty()) {
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
  const auto less = [](const Part& a, const Part& b) { return a.key < b.key; };
  std::stable_sort(parts.begin(), parts.end(), less);
  if (parts.empty()) {
    return {};
  }
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
  std::stable_sort(parts.begin(),
                   parts.end(),
                   [](const Part& a, const Part& b) { return a.key < b.key; });
  // Families of two families of F, in the order of their numbers.
  std::map<std::pair<int, int>, int32_t> num_blocks;
  const auto families = [&](uint64_t key) {
    return std::make_pair(FamilyOf(static_cast<int32_t>(key >> 32)),
                          FamilyOf(static_cast<int32_t>(key & 0xffffffff)));
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
  std::map<std::pair<int, int>, int> number;
  for (const auto& [of, count] : num_blocks) {
    number[of] =
        crossing_families_.Add(f_[of.first].size * f_[of.second].size, count);
  }
  crossings_.resize(number.size());
  size_t crossing = 0;
  for (size_t at = 0; at < parts.size(); ++at) {
    const uint64_t key = parts[at].key;
    const bool is_first = at == 0 || key != parts[at - 1].key;
    crossing += at > 0 && is_first ? 1 : 0;
    const int family = number[families(key)];
    if (is_first) {
      Crossings& crossings = crossings_[family];
      crossings.columns = f_[families(key).second].size;
      crossings.row.push_back(static_cast<int32_t>(key >> 32));
      crossings.column.push_back(static_cast<int32_t>(key & 0xffffffff));
      crossings.place.push_back(static_cast<int64_t>(crossing));
    }
    batches_[parts[at].batch].crossing_cells.push_back(
        {family,
         place[crossing],
         {parts[at].value, parts[at].row, parts[at].size}});
  }
  return {};
}

}  // namespace ceres_ext::kernels
