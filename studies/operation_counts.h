// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Operations of the products with W_k = Jc' Jp (C x 3) of one observation:
//
//   to the camera  q += W e     implicit: y = Jp e, q += Jc' y
//   to the point   s += W' z    implicit: y = Jc z, s += Jp' y
//
// as code for any scalar type, so that a type that counts gives Table 3.
#ifndef STUDIES_OPERATION_COUNTS_H_
#define STUDIES_OPERATION_COUNTS_H_

#include <cstdint>

namespace ceres_ext::bal {

struct OperationCounts {
  int64_t multiplications = 0;  // divisions count as one
  int64_t additions = 0;        // subtractions too
  int64_t loads = 0;            // values of the matrix read per observation
};

// A number that counts what is done with it. One thread.
class CountingScalar {
 public:
  static OperationCounts& counts() {
    static OperationCounts counts;
    return counts;
  }

  CountingScalar() = default;
  CountingScalar(double value) : value_(value) {}  // NOLINT: as double.
  explicit operator double() const { return value_; }

  friend CountingScalar operator+(CountingScalar a, CountingScalar b) {
    ++counts().additions;
    return a.value_ + b.value_;
  }
  friend CountingScalar operator-(CountingScalar a, CountingScalar b) {
    ++counts().additions;
    return a.value_ - b.value_;
  }
  friend CountingScalar operator*(CountingScalar a, CountingScalar b) {
    ++counts().multiplications;
    return a.value_ * b.value_;
  }
  friend CountingScalar operator/(CountingScalar a, CountingScalar b) {
    ++counts().multiplications;
    return a.value_ / b.value_;
  }
  CountingScalar& operator+=(CountingScalar b) { return *this = *this + b; }

 private:
  double value_ = 0.0;
};

// q += W e, W (C x 3).
template <int C, typename T>
void MultiplyExplicitToCamera(const T* w, const T* e, T* q) {
  for (int i = 0; i < C; ++i) {
    for (int j = 0; j < 3; ++j) {
      q[i] += w[3 * i + j] * e[j];
    }
  }
}

// s += W' z.
template <int C, typename T>
void MultiplyExplicitToPoint(const T* w, const T* z, T* s) {
  for (int i = 0; i < C; ++i) {
    for (int j = 0; j < 3; ++j) {
      s[j] += w[3 * i + j] * z[i];
    }
  }
}

// y = A x, 2 x N; then out += B' y, B 2 x M.
template <int N, int M, typename T>
void MultiplyImplicit(const T* a, const T* x, const T* b, T* out) {
  T y[2];
  for (int r = 0; r < 2; ++r) {
    y[r] = a[N * r] * x[0];
    for (int i = 1; i < N; ++i) {
      y[r] += a[N * r + i] * x[i];
    }
  }
  for (int i = 0; i < M; ++i) {
    for (int r = 0; r < 2; ++r) {
      out[i] += b[M * r + i] * y[r];
    }
  }
}

// W = Jc' Jp.
template <int C, typename T>
void FormCoupling(const T* jc, const T* jp, T* w) {
  for (int i = 0; i < C; ++i) {
    for (int j = 0; j < 3; ++j) {
      w[3 * i + j] = jc[i] * jp[j] + jc[C + i] * jp[3 + j];
    }
  }
}

}  // namespace ceres_ext::bal

#endif  // STUDIES_OPERATION_COUNTS_H_
