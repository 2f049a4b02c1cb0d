// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Loops over doubles for the processor that runs them.
//
//   CERES_EXT_SIMD_CLONES void Scale(int64_t n, double f, double* x) { ... }
//
// is compiled for AVX-512, AVX2 and the baseline; the dynamic linker chooses
// one. If -ffp-contract=off is set, all have the same bits. Arithmetic on
// vectors must be in the function itself: in an inlined one the compiler splits
// it for the baseline first.
#ifndef CERES_EXT_CUDA_KERNELS_BASE_SIMD_H_
#define CERES_EXT_CUDA_KERNELS_BASE_SIMD_H_

// Sanitizers start after the linker has called what chooses.
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && \
    !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&              \
    !defined(__SANITIZE_THREAD__)
#define CERES_EXT_SIMD_CLONES \
  __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CERES_EXT_SIMD_CLONES
#endif
#define CERES_EXT_SIMD_INLINE inline __attribute__((always_inline))

namespace ceres_ext::kernels {

inline constexpr int kSimdLanes = 8;
// Eight doubles, at any address of doubles: one register or several.
typedef double SimdDoubles
    __attribute__((vector_size(64), aligned(8), may_alias));

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_BASE_SIMD_H_
