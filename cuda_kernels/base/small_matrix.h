// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Dense matrices of fixed small size, for one thread.
//
// A symmetric N x N matrix is *packed*: its lower triangle row by row, element
// (i, j), j <= i, at i (i + 1) / 2 + j. A rectangular one is row-major.
#ifndef CERES_EXT_CUDA_KERNELS_BASE_SMALL_MATRIX_H_
#define CERES_EXT_CUDA_KERNELS_BASE_SMALL_MATRIX_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "cuda_kernels/base/host_device.h"

namespace ceres_ext::kernels {

// The largest relative error of one rounding.
template <typename T>
inline constexpr T kUnitRoundoff = std::numeric_limits<T>::epsilon() / 2;

// Columns of a parameter block at most: elements of its packed matrix, and of
// the product of two blocks, are numbered in int, and rows keep the columns of
// a cell in 16 bits.
inline constexpr int kMaxBlockColumns = std::numeric_limits<int16_t>::max();

// In int, n is at most kMaxBlockColumns.
template <typename Int>
CERES_EXT_HOST_DEVICE constexpr Int PackedSize(Int n) {
  return n * (n + 1) / 2;
}

// Place of element (i, j), j <= i.
CERES_EXT_HOST_DEVICE constexpr int PackedIndex(int i, int j) {
  return i * (i + 1) / 2 + j;
}

// y += A x, A M x N, row-major; each element of A x is made, columns from 0 on,
// before it is added.
template <int M, int N, typename T, typename X, typename Y>
CERES_EXT_HOST_DEVICE inline void MatrixMultiplyAndAccumulate(const T* a,
                                                              const X* x,
                                                              Y* y) {
  for (int i = 0; i < M; ++i) {
    Y sum = static_cast<Y>(a[N * i]) * x[0];
    for (int j = 1; j < N; ++j) {
      sum += static_cast<Y>(a[N * i + j]) * x[j];
    }
    y[i] += sum;
  }
}

// x += A'y, likewise. Order: rows from 0 on.
template <int M, int N, typename T, typename Y, typename X>
CERES_EXT_HOST_DEVICE inline void MatrixTransposeMultiplyAndAccumulate(
    const T* a, const Y* y, X* x) {
  for (int j = 0; j < N; ++j) {
    X sum = static_cast<X>(a[j]) * y[0];
    for (int i = 1; i < M; ++i) {
      sum += static_cast<X>(a[N * i + j]) * y[i];
    }
    x[j] += sum;
  }
}

// a += diag(d)^2.
template <int N, typename T>
CERES_EXT_HOST_DEVICE inline void AddSquaredDiagonal(const T* d, T* a) {
  for (int i = 0; i < N; ++i) {
    a[PackedIndex(i, i)] += d[i] * d[i];
  }
}

// The size of a matrix that is known at run time alone.
inline constexpr int kDynamic = -1;

// Element i of A x, N x N, columns from 0 on. kN: N, or kDynamic.
template <int kN, typename Matrix, typename T>
CERES_EXT_HOST_DEVICE inline T SymmetricProduct(Matrix a,
                                                int i,
                                                const T* x,
                                                int n = kN) {
  const int N = kN == kDynamic ? n : kN;
  T sum = 0;
  for (int j = 0; j < N; ++j) {
    sum += a[j <= i ? PackedIndex(i, j) : PackedIndex(j, i)] * x[j];
  }
  return sum;
}

// y = A x.
template <int N, typename T>
CERES_EXT_HOST_DEVICE inline void SymmetricMultiply(const T* a,
                                                    const T* x,
                                                    T* y) {
  for (int i = 0; i < N; ++i) {
    y[i] = SymmetricProduct<N>(a, i, x);
  }
}

// A packed matrix whose elements stand `stride` values apart.
template <typename T>
struct StridedMatrix {
  T* data = nullptr;
  int64_t stride = 1;
  CERES_EXT_HOST_DEVICE T& operator[](int element) const {
    return data[element * stride];
  }
};

// A = A^-1, in place, N x N; a[e] is element e. Returns false if a pivot is
// not positive or not finite; A is then unspecified.
//   A = L D L',  K = L^-1 (both unit lower),  A^-1 = K' D^-1 K
//
// A diagonal element that is exactly zero gets the pivot one. The matrices of
// this library are sums of squares J'J + D^2: a zero there means that the
// column of J is zero and undamped, its row of A is zero as well, and its
// right-hand side is zero. The unit pivot leaves that unknown at zero and the
// others alone.
//
// is_definite: A is such a sum, with D > 0, so that all pivots are positive
// except for rounding. Elimination rounds pivot i by up to some N u a_ii, u =
// 2^-53 (Higham, Accuracy and Stability of Numerical Algorithms, section 10.1).
// One of at most that says nothing: column i lies in the span of those before
// it, as far as numbers go. a_ii then replaces it. The step of the unknown i
// becomes rounding, and the others take the whole step. A^-1 is rather too
// small than too large, so that the Schur complement which subtracts it stays
// definite. False is then returned only where an element or a pivot is not
// finite.
template <int kN, typename Matrix>
CERES_EXT_HOST_DEVICE inline bool InvertSymmetric(Matrix a,
                                                  int n = kN,
                                                  bool is_definite = false) {
  const int N = kN == kDynamic ? n : kN;
  using T = std::remove_reference_t<decltype(a[0])>;
  // L below the diagonal, 1 / D on it.
  for (int i = 0; i < N; ++i) {
    const int row = PackedIndex(i, 0);
    const T diagonal = a[row + i];
    T pivot = diagonal == T(0) ? T(1) : diagonal;
    for (int j = 0; j < i; ++j) {
      // a[row + j] = L_ij D_j; those before it are.
      for (int k = 0; k < j; ++k) {
        a[row + j] -= a[row + k] * a[PackedIndex(j, k)];
      }
    }
    for (int j = 0; j < i; ++j) {
      const T scaled = a[row + j];
      a[row + j] *= a[PackedIndex(j, j)];
      pivot -= scaled * a[row + j];
    }
    if (is_definite && pivot <= T(N) * kUnitRoundoff<T> * diagonal &&
        !std::isinf(pivot)) {
      pivot = diagonal;
    }
    // Written so that NaN fails; infinity has no usable inverse either.
    if (!(pivot > T(0)) || std::isinf(pivot)) {
      return false;
    }
    a[row + i] = T(1) / pivot;
  }
  // K_ij = -(L_ij + sum_{j<k<i} L_ik K_kj). Ascending j overwrites what is no
  // longer needed of L.
  for (int i = 1; i < N; ++i) {
    for (int j = 0; j < i; ++j) {
      T sum = a[PackedIndex(i, j)];
      for (int k = j + 1; k < i; ++k) {
        sum += a[PackedIndex(i, k)] * a[PackedIndex(k, j)];
      }
      a[PackedIndex(i, j)] = -sum;
    }
  }
  // (A^-1)_ij = sum_{k>=i} K_ki K_kj / D_k reads rows from i on only.
  for (int i = 0; i < N; ++i) {
    for (int j = 0; j <= i; ++j) {
      T sum = j < i ? a[PackedIndex(i, j)] * a[PackedIndex(i, i)]
                    : a[PackedIndex(i, i)];
      for (int k = i + 1; k < N; ++k) {
        sum +=
            a[PackedIndex(k, i)] * a[PackedIndex(k, j)] * a[PackedIndex(k, k)];
      }
      a[PackedIndex(i, j)] = sum;
    }
  }
  return true;
}

// A = diag(A)^-1, in place, where A is a positive semidefinite matrix plus D^2
// (zero if d is null) up to rounding: elements below d_i^2 > 0 are raised to
// it, zero elements count as one. Returns false if one is negative or not
// finite; A is then unspecified.
template <int kN, typename T, typename Matrix>
CERES_EXT_HOST_DEVICE inline bool InvertDiagonal(const T* d,
                                                 Matrix a,
                                                 int n = kN) {
  const int N = kN == kDynamic ? n : kN;
  for (int i = 0; i < N; ++i) {
    T diagonal = a[PackedIndex(i, i)];
    const T least = d == nullptr ? T(0) : d[i] * d[i];
    if (least > T(0) && diagonal < least) {
      diagonal = least;
    }
    if (diagonal == T(0)) {
      diagonal = T(1);
    }
    if (!(diagonal > T(0)) || std::isinf(diagonal)) {
      return false;
    }
    for (int j = 0; j < i; ++j) {
      a[PackedIndex(i, j)] = T(0);
    }
    a[PackedIndex(i, i)] = T(1) / diagonal;
  }
  return true;
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_BASE_SMALL_MATRIX_H_
