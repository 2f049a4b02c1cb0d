// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// For a package that is linked with glibc 2.31 and runs with 2.28: what gcc's
// static libstdc++ expects of a newer glibc, and functions of which 2.29 has a
// newer version, in their older one, which has the same results. Compiled without
// built-in functions and without headers, whose declarations it would contradict.
#define HIDDEN __attribute__((visibility("hidden")))

struct stat;
int __xstat(int version, const char* path, struct stat* result);
int __fxstat(int version, int file, struct stat* result);
long getrandom(void* bytes, unsigned long size, unsigned flags);

// The version of struct stat, which is struct stat64 too, and the oldest glibc.
#ifdef __aarch64__
#define STAT_VERSION 0
#define OLDEST "GLIBC_2.17"
#else
#define STAT_VERSION 1
#define OLDEST "GLIBC_2.2.5"
#endif

// glibc 2.33.
HIDDEN int stat(const char* path, struct stat* result) {
  return __xstat(STAT_VERSION, path, result);
}
HIDDEN int fstat64(int file, struct stat* result) {
  return __fxstat(STAT_VERSION, file, result);
}

// glibc 2.32. 0: the process may have several threads.
HIDDEN char __libc_single_threaded = 0;

// glibc 2.36.
HIDDEN unsigned arc4random(void) {
  unsigned result = 0;
  while (getrandom(&result, sizeof(result), 0) != sizeof(result)) {
  }
  return result;
}

// glibc 2.29 has versions that don't call matherr.
#define OLDER_1(name)                                   \
  __asm__(".symver older_" #name "," #name "@" OLDEST); \
  double older_##name(double x);                        \
  HIDDEN double name(double x) { return older_##name(x); }
OLDER_1(exp)
OLDER_1(exp2)
OLDER_1(log)
OLDER_1(log2)
__asm__(".symver older_pow,pow@" OLDEST);
double older_pow(double x, double y);
HIDDEN double pow(double x, double y) { return older_pow(x, y); }
