// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Sets of blocks, and the lists of entries of cells, for PlanModelWindow.
#ifndef CERES_EXT_SMALL_MODEL_WINDOW_BLOCK_SET_H_
#define CERES_EXT_SMALL_MODEL_WINDOW_BLOCK_SET_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ceres_ext/small/model_window/model_window.h"

namespace ceres_ext {

// A set of blocks of F.
struct BlockSet {
  static constexpr int kBits = 64;
  static constexpr int kWords = kMaxModelBlocks / kBits;

  uint64_t words[kWords] = {};

  void Add(int b) { words[b / kBits] |= uint64_t{1} << (b % kBits); }
  void Remove(int b) { words[b / kBits] &= ~(uint64_t{1} << (b % kBits)); }
  bool Has(int b) const { return (words[b / kBits] >> (b % kBits) & 1) != 0; }
  void Add(const BlockSet& other) {
    for (int w = 0; w < kWords; ++w) {
      words[w] |= other.words[w];
    }
  }
  // In ascending order.
  template <typename Function>
  void ForEach(const Function& function) const {
    for (int w = 0; w < kWords; ++w) {
      for (uint64_t bits = words[w]; bits != 0; bits &= bits - 1) {
        function(kBits * w + __builtin_ctzll(bits));
      }
    }
  }
};

// `begin` counts entries, then is where the next one goes, then is their end,
// from which the cell before begins.
template <typename Field>
void ToBegins(std::vector<ModelCell>* cells, Field field, int32_t* total) {
  for (ModelCell& cell : *cells) {
    const int32_t n = cell.*field;
    cell.*field = *total;
    *total += n;
  }
}
template <typename Field>
void StepBack(std::vector<ModelCell>* cells, Field field) {
  for (size_t k = cells->size() - 1; k > 0; --k) {
    (*cells)[k].*field = (*cells)[k - 1].*field;
  }
}

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_MODEL_WINDOW_BLOCK_SET_H_
