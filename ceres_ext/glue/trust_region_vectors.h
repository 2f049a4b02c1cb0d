// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The vectors of Ceres's trust-region loop in the memory of a Machine. Sums
// have an order of their own (cuda_kernels/ops/vectors.h), so that neither
// threads nor runs change a bit.

#ifndef CERES_EXT_GLUE_TRUST_REGION_VECTORS_H_
#define CERES_EXT_GLUE_TRUST_REGION_VECTORS_H_

#include <cstdint>
#include <map>

#include "ceres/trust_region_vectors.h"
#include "ceres_ext/glue/machines.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/vectors.h"

namespace ceres_ext {

template <typename Machine>
class LoopVectors final : public ceres::internal::TrustRegionVectors {
 public:
  // *machine outlives the vectors.
  explicit LoopVectors(Machine* machine) : machine_(machine) {}
  // Once, before anything else. Takes the memory of all vectors that the loop
  // will ask for, so that a lack of it shows while there is another way.
  //   num_parameters: of x; num_effective_parameters: of a step
  kernels::Status Setup(int num_parameters,
                        int num_effective_parameters,
                        int num_residuals);
  int64_t bytes() const;

  bool IsHost() const final;
  double* Allocate(int n) final;
  void Free(double* x) final;
  bool CopyFromHost(int n, const double* host_x, double* y) final;
  bool CopyToHost(int n, const double* x, double* host_y) final;
  void Copy(int n, const double* x, double* y) final;
  void SetZero(int n, double* x) final;
  void SetOne(int n, double* x) final;
  void Negate(int n, const double* x, double* y) final;
  void Multiply(int n, const double* x, const double* y, double* z) final;
  void JacobiScaling(int n, double* x) final;
  void Clamp(int n, double min_value, double max_value, double* x) final;
  void LevenbergMarquardtDiagonal(int n,
                                  const double* x,
                                  double radius,
                                  double* y) final;
  void Invalidate(int n, double* x) final;
  bool NegateIfValid(int n, double* x) final;
  bool ProjectedGradientNorms(int n,
                              const double* x,
                              const double* projected_x,
                              double* max_norm,
                              double* norm) final;
  bool StepNorms(int n,
                 const double* x,
                 const double* candidate_x,
                 double* x_norm,
                 double* step_norm) final;
  bool ModelCostChange(int n,
                       const double* residuals,
                       const double* model_residuals,
                       double* model_cost_change) final;

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  // Remembers the first error; methods that can't report it leave that to the
  // next one that can.
  void Run(const kernels::Status& status);
  // Runs an operation that sets some of the scalars and reads them.
  template <typename Params>
  bool RunAndRead(Params params, kernels::LoopScalars* scalars);

  Machine* machine_;
  bool failed_ = false;
  Buffer<kernels::LoopScalars> scalars_;
  std::multimap<int64_t, Buffer<double>> free_;  // by size
  std::map<const double*, Buffer<double>> used_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_TRUST_REGION_VECTORS_H_
