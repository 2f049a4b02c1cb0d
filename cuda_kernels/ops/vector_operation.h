// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Operations on vectors, each written once for all machines as a formula for
// one element beside its parameters:
//
//   struct NegateParams {  // y = -x
//     int64_t n = 0;
//     const double* x = nullptr;
//     double* y = nullptr;
//     CERES_EXT_HOST_DEVICE void Apply(int64_t i) const { y[i] = -x[i]; }
//   };
//   Status status = Run(NegateParams{n, x, y}, &machine);
//
// An operation has one of
//   void Apply(int64_t i) const        does element i
//   TwoSums Term(int64_t i) const      what element i adds to the sums; may
//                                      write elements as well
// and, with Term,
//   void Set(const TwoSums&) const     what becomes of the sums; called once
//   using First = MaxFirst             where `first` is a maximum
// and may have
//   int64_t size() const               number of elements; else it is n
//   bool Begin()                       looks at scalars before the first
//                                      element, may keep them in fields of its
//                                      own; false if nothing is done
//   int64_t grain() const              with Apply, elements of a task of the
//                                      host, else 4096, or all below 8192
//   static constexpr int kUnroll       elements per turn of a thread, else 4;
//                                      1: an element takes long, and a task of
//                                      the host has 256
//   static constexpr int kMinBlocks    blocks per multiprocessor that registers
//                                      are limited for, else the compiler's
//                                      choice (1 took 10 % off the cost's rate)
// Element i may be read and written by Apply(i) or Term(i) alone. An operation
// is compiled for a device by its line in cuda/vectors.cu.cc.
//
// Mapping: threads stride over the elements. Order: Apply sums nothing; Term
// sums in the order of base/vector_sums.h. Traffic: 8 B per element and
// pointer, 16 B where a vector is changed in place.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_VECTOR_OPERATION_H_
#define CERES_EXT_CUDA_KERNELS_OPS_VECTOR_OPERATION_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/base/vector_sums.h"
#include "cuda_kernels/machine/host_machine.h"

namespace ceres_ext::kernels {

class CudaMachine;

#define CERES_EXT_DETECT(Trait, expression) \
  template <typename P, typename = void>    \
  struct Trait : std::false_type {};        \
  template <typename P>                     \
  struct Trait<P, std::void_t<decltype(expression)>> : std::true_type {}
CERES_EXT_DETECT(HasApply, &P::Apply);
CERES_EXT_DETECT(HasTerm, &P::Term);
CERES_EXT_DETECT(HasSize, &P::size);
CERES_EXT_DETECT(HasBegin, &P::Begin);
CERES_EXT_DETECT(HasGrain, &P::grain);
CERES_EXT_DETECT(HasUnroll, P::kUnroll);
CERES_EXT_DETECT(HasMinBlocks, P::kMinBlocks);
#undef CERES_EXT_DETECT

template <typename P, typename = void>
struct FirstOf {
  using Type = AddFirst;
};
template <typename P>
struct FirstOf<P, std::void_t<typename P::First>> {
  using Type = typename P::First;
};

template <typename P>
inline constexpr bool kIsVectorOperation =
    HasApply<P>::value || HasTerm<P>::value;

template <typename P>
int64_t NumElements(const P& params) {
  if constexpr (HasSize<P>::value) {
    return params.size();
  } else {
    return params.n;
  }
}

template <typename P>
CERES_EXT_HOST_DEVICE bool Begin(P* params) {
  if constexpr (HasBegin<P>::value) {
    return params->Begin();
  } else {
    return true;
  }
}

namespace internal {

// The calling thread handles shorter vectors alone. With 8,192 elements
// x += alpha p took 1.4 us on one thread and 2.0 on two, r -= alpha q with its
// sums 7.1 and 6.0; beside two busy processes two threads took 2.8 and 13.2
// (docs/measurements/busy_host.md).
inline constexpr int64_t kMinParallel = 8192;
// Elements that a thread of the host handles at a time.
inline constexpr int64_t kVectorGrain = 4096;
// Blocks of a sum that it handles side by side, so that it reads longer runs.
inline constexpr int64_t kSumGrain = 8;

// True if an element takes so long that none of this counts.
template <typename P, bool kHasUnroll = HasUnroll<P>::value>
struct IsLong : std::false_type {};
template <typename P>
struct IsLong<P, true> : std::bool_constant<P::kUnroll == 1> {};
inline constexpr int64_t kLongGrain = kSumLanes;

// Lanes of one block, and lane 0 after all have been combined.
struct SumBlock {
  double first[kSumLanes] = {};
  double second[kSumLanes] = {};

  template <typename First>
  TwoSums Combine() {
    constexpr int kWarp = 32;
    TwoSums result;
    for (int w = 0; w < kSumLanes; w += kWarp) {
      for (int offset = kWarp / 2; offset > 0; offset /= 2) {
        for (int t = w; t < w + offset; ++t) {
          first[t] = First::Combine(first[t], first[t + offset]);
          second[t] += second[t + offset];
        }
      }
      result.first = First::Combine(result.first, first[w]);
      result.second += second[w];
    }
    return result;
  }
};

template <typename P>
TwoSums SumTerms(const P& params, int64_t n, HostContext* context) {
  using First = typename FirstOf<P>::Type;
  const int64_t num_blocks = NumSumBlocks(n);
  TwoSums partial[kMaxSumBlocks];
  const auto sum_blocks = [&](int64_t from, int64_t to) {
    const P p = params;
    SumBlock blocks[kSumGrain];
    for (int64_t begin = 0; begin < n; begin += num_blocks * kSumLanes) {
      for (int64_t block = from; block < to; ++block) {
        SumBlock& sums = blocks[block - from];
        const int64_t first = begin + block * kSumLanes;
        const int count = static_cast<int>(
            std::max<int64_t>(0, std::min<int64_t>(kSumLanes, n - first)));
        for (int t = 0; t < count; ++t) {
          const TwoSums term = p.Term(first + t);
          sums.first[t] = First::Combine(sums.first[t], term.first);
          sums.second[t] += term.second;
        }
      }
    }
    for (int64_t block = from; block < to; ++block) {
      partial[block] = blocks[block - from].template Combine<First>();
    }
  };
  if (IsLong<P>::value) {
    context->ParallelFor(num_blocks, 1, sum_blocks);
  } else if (n < kMinParallel) {
    for (int64_t from = 0; from < num_blocks; from += kSumGrain) {
      sum_blocks(from, std::min(from + kSumGrain, num_blocks));
    }
  } else {
    context->ParallelFor(num_blocks, kSumGrain, sum_blocks);
  }
  SumBlock last;
  for (int64_t i = 0; i < num_blocks; ++i) {
    const int64_t lane = i % kSumLanes;
    last.first[lane] = First::Combine(last.first[lane], partial[i].first);
    last.second[lane] += partial[i].second;
  }
  return last.Combine<First>();
}

}  // namespace internal

template <typename P>
std::enable_if_t<kIsVectorOperation<P>, Status> Run(const P& params,
                                                    HostMachine* machine) {
  P p = params;
  if (!Begin(&p)) {
    return {};
  }
  const int64_t n = NumElements(p);
  if constexpr (HasTerm<P>::value) {
    p.Set(internal::SumTerms(p, n, machine->context()));
  } else {
    int64_t grain = internal::IsLong<P>::value   ? internal::kLongGrain
                    : n < internal::kMinParallel ? n
                                                 : internal::kVectorGrain;
    if constexpr (HasGrain<P>::value) {
      grain = p.grain();
    }
    machine->context()->ParallelFor(n, grain, [&](int64_t begin, int64_t end) {
      const P copy = p;
      for (int64_t i = begin; i < end; ++i) {
        copy.Apply(i);
      }
    });
  }
  return {};
}

template <typename P>
std::enable_if_t<kIsVectorOperation<P>, Status> Run(const P& params,
                                                    CudaMachine* machine);

// Runs one after the other, with the bits of Run. A CudaMachine does it in one
// kernel of one block where sums take no more (NumSumBlocks); compiled by a
// line there. A machine of one's own keeps its overloads of Run.
template <typename Machine, typename... P>
std::enable_if_t<!std::is_same_v<Machine, CudaMachine>, Status> RunInOrder(
    Machine* machine, const P&... params) {
  Status status;
  static_cast<void>(((status = Run(params, machine)).ok() && ...));
  return status;
}
template <typename... P>
Status RunInOrder(CudaMachine* machine, const P&... params);

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_VECTOR_OPERATION_H_
