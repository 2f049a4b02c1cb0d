// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The operations on a NestedJacobian, by the bodies of stored blocks: how they
// read it, and their instantiations. Its vector operations are with all others
// (vectors.cu.cc).
#include "cuda_kernels/model/nested_jacobian.h"

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda_kernels/cuda/jacobian_products_impl.cuh"
#include "cuda_kernels/cuda/normal_blocks_impl.cuh"
#include "cuda_kernels/cuda/schur_complement_impl.cuh"
#include "cuda_kernels/cuda/schur_products_impl.cuh"

namespace ceres_ext::kernels {

template <BlockLayout kLayout>
struct CameraCoordinates<NestedJacobian<kLayout>> {
  using Local = typename NestedJacobian<kLayout>::Shape;
  // One column of G.
  __device__ static double Map(const NestedJacobian<kLayout>&,
                               int32_t,
                               int i,
                               int j) {
    return i == j ? 1.0 : 0.0;
  }
};

template <BlockLayout kLayout>
class CameraJacobianReader<NestedJacobian<kLayout>> {
 public:
  __device__ CameraJacobianReader(const NestedJacobian<kLayout>& source,
                                  int32_t /*camera*/)
      : source_(source) {}
  __device__ __forceinline__ void Load(int64_t k,
                                       int32_t /*point*/,
                                       double* jc,
                                       double* jp) const {
    source_.camera_blocks.Load(k, jc);
    if (jp != nullptr) {
      source_.point_blocks.Load(k, jp);
    }
  }

 private:
  const NestedJacobian<kLayout>& source_;
};

template <typename Source>
struct NestedBlocksInRegisters : JacobianBlocks<Source> {
  __device__ __forceinline__ void Load(const Source& source, int64_t k) {
    source.Load(k, 0, 0, this->jc, this->jp);
  }
};
template <BlockLayout kLayout>
struct BlocksOf<NestedJacobian<kLayout>> {
  using Type = NestedBlocksInRegisters<NestedJacobian<kLayout>>;
};

// L J is made for each coupling: records of it would take 224 bytes a row, as
// much as half of all else.
template <BlockLayout kLayout>
class CouplingReader<NestedJacobian<kLayout>, kLayout> {
 public:
  using Source = NestedJacobian<kLayout>;
  using Shape = typename Source::Shape;
  using Coupling = int64_t;

  __device__ CouplingReader(const SchurComplementParams<Source, kLayout>& p,
                            const void* /*records*/,
                            const void* /*cameras*/,
                            int32_t /*i*/,
                            int32_t /*j*/)
      : p_(p) {}

  __device__ __forceinline__ void Load(const CouplingIndexRef& couplings,
                                       int64_t at,
                                       Coupling* coupling) const {
    *coupling = couplings.coupling[at];
  }
  __device__ __forceinline__ void First(Coupling coupling,
                                        double* jc,
                                        double* jp_vi) const {
    const int64_t k = FirstOfCoupling(coupling);
    const int32_t point = p_.index.point_id[k];
    double v_inverse[Shape::kPackedE];
#pragma unroll
    for (int e = 0; e < Shape::kPackedE; ++e) {
      v_inverse[e] = p_.v_inverse(point, e);
    }
    double jp[Shape::kESize];
    p_.jacobian.Load(k, 0, point, jc, jp);
#pragma unroll
    for (int r = 0; r < Shape::kNumResiduals; ++r) {
      SymmetricMultiply<Shape::kE>(
          v_inverse, jp + Shape::kE * r, jp_vi + Shape::kE * r);
    }
  }
  __device__ __forceinline__ void Second(Coupling coupling,
                                         double* jc,
                                         double* jp) const {
    p_.jacobian.Load(SecondOfCoupling(coupling), 0, 0, jc, jp);
  }

 private:
  const SchurComplementParams<Source, kLayout>& p_;
};

using Nested = NestedJacobian<kDeviceLayout>;
CERES_EXT_INSTANTIATE_PRODUCTS(Nested)
CERES_EXT_INSTANTIATE_COMPLEMENT(Nested)
template Status Run(const NormalBlocksParams<Nested, kDeviceLayout>&,
                    CudaMachine*);
template Status Run(const RightMultiplyParams<Nested>&, CudaMachine*);
template Status Run(const SquaredColumnNormsParams<Nested>&, CudaMachine*);

}  // namespace ceres_ext::kernels
