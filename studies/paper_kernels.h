// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// For comparison only: the two implementations of Kommera, Muknahallipatna and
// McInroy (2024), rewritten from the text of the paper.
//
//   PaperForm::kNaive      one thread per projection sweeps over the
//                          observations once and adds into whatever they touch
//                          by atomics
//   PaperForm::kOptimized  no atomics: one thread per point (kPointsPerThread
//                          of them, one after the other), one block per camera
//                          whose threads share its observations out and whose
//                          partial sums one thread adds (section 5.1)
//
// Both in both layouts, and so the vectors too: in kContinuousElement value i
// of camera c, point p or observation k is at i * number + c, p or k, in
// parameters, residuals, steps, gradients and D as in blocks (section 5.2). The
// paper's naive implementation is block-contiguous, its optimised one
// continuous-element; the other two tell layout and kernel apart.
//
// As in the paper W alone is implicit: products read U and V, which are stored,
// and Jc' (Jp e) or W e. Choices that the paper leaves open: threads per block
// (kThreads, kCameraThreads), points per thread, and that U and V are stored as
// one triangle here. T is the type of J and W; float evaluates the Jacobian in
// float from rounded parameters, as the paper's code, which is single
// precision. Vectors, U, V, cost and all sums are double, as in all variants of
// the study.
//
// Order: kOptimized sums in a fixed order; kNaive has none, and two runs may
// differ in the last bits. 9-parameter cameras.
#ifndef STUDIES_PAPER_KERNELS_H_
#define STUDIES_PAPER_KERNELS_H_

#include <cstdint>
#include <type_traits>

#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/ops/block_rows.h"
#include "cuda_kernels/structure/observation_index.h"

namespace ceres_ext::bal {

enum class PaperForm { kNaive, kOptimized };

// Vector steps of PCG and of the Levenberg-Marquardt loop are those of
// CudaMachine: they work element by element, in any layout.
template <PaperForm kFormIn, typename T, kernels::BlockLayout kLayoutIn>
class PaperMachine : public kernels::CudaMachine {
 public:
  static constexpr PaperForm kForm = kFormIn;
  static constexpr kernels::BlockLayout kLayout = kLayoutIn;
  using Source = kernels::StoredJacobian<T, kernels::BalShape<9>, kLayout>;
};

template <typename Machine>
struct IsPaperMachine : std::false_type {};
template <PaperForm F, typename T, kernels::BlockLayout L>
struct IsPaperMachine<PaperMachine<F, T, L>> : std::true_type {};

template <kernels::BlockLayout L>
using PaperCameras = kernels::BlockRef<double, 9, L>;
template <kernels::BlockLayout L>
using PaperPoints = kernels::BlockRef<double, 3, L>;

// residuals_k = projection of the point of observation k - observation_k.
template <kernels::BlockLayout L>
struct PaperResidualsParams {
  kernels::ObservationIndexRef index;
  kernels::BlockRef<const double, 9, L> cameras;
  kernels::BlockRef<const double, 3, L> points;
  kernels::BlockRef<const double, 2, L> observations;
  kernels::BlockRef<double, 2, L> residuals;
};

// Jc and Jp of all observations from the parameters as they are: each thread
// computes rotation and its derivative.
template <typename T, kernels::BlockLayout L>
struct PaperJacobianParams {
  kernels::ObservationIndexRef index;
  kernels::BlockRef<const T, 9, L> cameras;
  kernels::BlockRef<const T, 3, L> points;
  kernels::BlockRef<T, 18, L> camera_blocks;
  kernels::BlockRef<T, 6, L> point_blocks;
};

// Squared norms of the columns of J, diag(J'J).
template <typename T, kernels::BlockLayout L>
struct PaperColumnNormsParams {
  kernels::ObservationIndexRef index;
  kernels::StoredJacobian<T, kernels::BalShape<9>, L> jacobian;
  PaperCameras<L> cameras;
  PaperPoints<L> points;
};

// U, V and, where they are not null, W, g_c = Jc' b and g_p = Jp' b.
template <typename T, kernels::BlockLayout L>
struct PaperNormalBlocksParams {
  kernels::ObservationIndexRef index;
  kernels::StoredJacobian<T, kernels::BalShape<9>, L> jacobian;
  kernels::BlockRef<const double, 2, L> b;
  kernels::BlockRef<double, kernels::PackedSize(9), L> u;
  kernels::BlockRef<double, kernels::PackedSize(3), L> v;
  kernels::BlockRef<T, 27, L> w;
  PaperCameras<L> camera_gradient;
  PaperPoints<L> point_gradient;
};

// s_p += sum_k W_k' z_c where s is not null; q_c += sign sum_k W_k e_p where q
// is not null. W from w, or from the Jacobian where w is null.
template <typename T, kernels::BlockLayout L>
struct PaperCouplingParams {
  kernels::ObservationIndexRef index;
  kernels::StoredJacobian<T, kernels::BalShape<9>, L> jacobian;
  kernels::BlockRef<const T, 27, L> w;
  kernels::BlockRef<const double, 9, L> z;
  PaperPoints<L> s;
  kernels::BlockRef<const double, 3, L> e;
  double sign = 1.0;
  PaperCameras<L> q;
  const kernels::PcgScalars* scalars = nullptr;  // ended: nothing is done
};

// q_i = (A_i + D_i^2) p_i, blocks of N. One thread per block.
template <int N, kernels::BlockLayout L>
struct PaperDampedProductParams {
  kernels::BlockRef<const double, kernels::PackedSize(N), L> a;
  kernels::BlockRef<const double, N, L> diagonal;
  kernels::BlockRef<const double, N, L> p;
  kernels::BlockRef<double, N, L> q;
  const kernels::PcgScalars* scalars = nullptr;  // ended: nothing is done
};

// y_p = Vi_p (g_p - s_p); g null: Vi_p s_p. y may be s. One thread per point.
template <kernels::BlockLayout L>
struct PaperPointSolveParams {
  kernels::BlockRef<const double, 6, L> v_inverse;
  kernels::BlockRef<const double, 3, L> g;
  kernels::BlockRef<const double, 3, L> s;
  PaperPoints<L> y;
  const kernels::PcgScalars* scalars = nullptr;  // ended: nothing is done
};

// *largest = max_k |a_k - b_k|_2 of two sets of residuals, in pixels; b in the
// block-contiguous layout. Elements that are not finite count as infinite.
template <kernels::BlockLayout L>
struct LargestDifferenceParams {
  kernels::BlockRef<const double, 2, L> a;
  const double* b = nullptr;
  double* largest = nullptr;  // one value on the device, set
};

// to(i, e) = from[N i + e]: the layout of the caller's vectors into L.
template <int N, kernels::BlockLayout L>
struct ToLayoutParams {
  const double* from = nullptr;
  kernels::BlockRef<double, N, L> to;
};

template <PaperForm F, typename T, kernels::BlockLayout L>
kernels::Status Run(const PaperResidualsParams<L>& params,
                    PaperMachine<F, T, L>* machine);
template <PaperForm F, typename T, kernels::BlockLayout L>
kernels::Status Run(const PaperJacobianParams<T, L>& params,
                    PaperMachine<F, T, L>* machine);
template <PaperForm F, typename T, kernels::BlockLayout L>
kernels::Status Run(const PaperColumnNormsParams<T, L>& params,
                    PaperMachine<F, T, L>* machine);
template <PaperForm F, typename T, kernels::BlockLayout L>
kernels::Status Run(const PaperNormalBlocksParams<T, L>& params,
                    PaperMachine<F, T, L>* machine);
template <PaperForm F, typename T, kernels::BlockLayout L>
kernels::Status Run(const PaperCouplingParams<T, L>& params,
                    PaperMachine<F, T, L>* machine);
template <PaperForm F, typename T, kernels::BlockLayout L>
kernels::Status Run(const PaperPointSolveParams<L>& params,
                    PaperMachine<F, T, L>* machine);
template <PaperForm F, typename T, kernels::BlockLayout L>
kernels::Status Run(const LargestDifferenceParams<L>& params,
                    PaperMachine<F, T, L>* machine);
// N is 3 or 9.
template <int N, PaperForm F, typename T, kernels::BlockLayout L>
kernels::Status Run(const PaperDampedProductParams<N, L>& params,
                    PaperMachine<F, T, L>* machine);
// N is 2, 3 or 9.
template <int N, PaperForm F, typename T, kernels::BlockLayout L>
kernels::Status Run(const ToLayoutParams<N, L>& params,
                    PaperMachine<F, T, L>* machine);
// N is 3 or 9. As CudaMachine's, one thread per block, vectors in the layout L.
template <int N, PaperForm F, typename T, kernels::BlockLayout L>
std::enable_if_t<N != kernels::kDynamic, kernels::Status> Run(
    const kernels::InvertBlocksParams<N>& params,
    PaperMachine<F, T, L>* machine);
template <int N, PaperForm F, typename T, kernels::BlockLayout L>
std::enable_if_t<N != kernels::kDynamic, kernels::Status> Run(
    const kernels::ApplyBlocksParams<N>& params,
    PaperMachine<F, T, L>* machine);

}  // namespace ceres_ext::bal

#endif  // STUDIES_PAPER_KERNELS_H_
