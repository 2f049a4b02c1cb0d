// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Host stand-in for the input of a CUB call that counts; see cuda_runtime.h.
#ifndef CERES_EXT_TESTS_EMULATION_THRUST_COUNTING_ITERATOR_H_
#define CERES_EXT_TESTS_EMULATION_THRUST_COUNTING_ITERATOR_H_

namespace thrust {

template <typename T>
class counting_iterator {
 public:
  explicit counting_iterator(T first) : first_(first) {}
  template <typename N>
  T operator[](N i) const {
    return first_ + static_cast<T>(i);
  }

 private:
  T first_;
};

}  // namespace thrust

#endif  // CERES_EXT_TESTS_EMULATION_THRUST_COUNTING_ITERATOR_H_
