// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "tests/common/scarce_system.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>

namespace {

// Counts what is asked for while it is on.
class Supply {
 public:
  bool Has() {
    if (!is_on_.load(std::memory_order_relaxed)) {
      return true;
    }
    const int64_t i = ++count_;
    return n_ == 0 || i < n_ || (i > n_ && !and_all_later_);
  }
  void TurnOn(const ceres_ext::Scarcity& scarcity) {
    n_ = scarcity.n;
    and_all_later_ = scarcity.and_all_later;
    count_ = 0;
    is_on_ = true;
  }
  void TurnOff() { is_on_ = false; }
  int64_t count() const { return count_; }

 private:
  std::atomic<bool> is_on_{false};
  std::atomic<int64_t> count_{0};
  std::atomic<int64_t> n_{0};
  std::atomic<bool> and_all_later_{false};
};

Supply memory_supply;
Supply thread_supply;
std::atomic<int64_t> num_live_blocks{0};

}  // namespace

namespace ceres_ext {

void MakeScarce(const Scarcity& allocations, const Scarcity& threads) {
  memory_supply.TurnOn(allocations);
  thread_supply.TurnOn(threads);
}
void MakePlentiful() {
  memory_supply.TurnOff();
  thread_supply.TurnOff();
}
int64_t NumAllocations() { return memory_supply.count(); }
int64_t NumThreads() { return thread_supply.count(); }
int64_t NumLiveBlocks() { return num_live_blocks; }

}  // namespace ceres_ext

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

bool ceres_ext::CanBeScarce() { return false; }

#else

bool ceres_ext::CanBeScarce() { return true; }

extern "C" {

// glibc's own, behind the names that this file takes.
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* memory);

static void* Counted(void* memory) {
  num_live_blocks += memory != nullptr ? 1 : 0;
  return memory;
}
static void* None() {
  errno = ENOMEM;
  return nullptr;
}

void* malloc(size_t size) {
  return memory_supply.Has() ? Counted(__libc_malloc(size)) : None();
}
void* calloc(size_t count, size_t size) {
  return memory_supply.Has() ? Counted(__libc_calloc(count, size)) : None();
}
void* realloc(void* memory, size_t size) {
  if (!memory_supply.Has()) {
    return None();
  }
  return memory == nullptr ? Counted(__libc_malloc(size))
                           : __libc_realloc(memory, size);
}
void* memalign(size_t alignment, size_t size) {
  return memory_supply.Has() ? Counted(__libc_memalign(alignment, size))
                             : None();
}
void* aligned_alloc(size_t alignment, size_t size) {
  return memalign(alignment, size);
}
int posix_memalign(void** memory, size_t alignment, size_t size) {
  *memory = memalign(alignment, size);
  return *memory != nullptr ? 0 : ENOMEM;
}
void free(void* memory) {
  num_live_blocks -= memory != nullptr ? 1 : 0;
  __libc_free(memory);
}

int pthread_create(pthread_t* thread,
                   const pthread_attr_t* attributes,
                   void* (*start)(void*),
                   void* argument) {
  using Create =
      int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create =
      reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  return thread_supply.Has() ? create(thread, attributes, start, argument)
                             : EAGAIN;
}

}  // extern "C"

#endif
