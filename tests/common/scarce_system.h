// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A system that runs out of memory or threads when a test says so: replaces
// malloc and its kin, and pthread_create, in the test program.
#ifndef CERES_EXT_TESTS_COMMON_SCARCE_SYSTEM_H_
#define CERES_EXT_TESTS_COMMON_SCARCE_SYSTEM_H_

#include <cstdint>

namespace ceres_ext {

// False if a sanitizer has replaced them already.
bool CanBeScarce();

// The resources of a system: all except the n-th request, or the first n - 1.
// Counted from 1 over all threads; n = 0: everything.
struct Scarcity {
  int64_t n = 0;
  bool and_all_later = false;
};

// From now on, with the counts starting again.
void MakeScarce(const Scarcity& allocations, const Scarcity& threads);
// Everything is available again.
void MakePlentiful();
// Since MakeScarce.
int64_t NumAllocations();
int64_t NumThreads();
// Blocks of memory that are held, of the whole process.
int64_t NumLiveBlocks();

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_COMMON_SCARCE_SYSTEM_H_
