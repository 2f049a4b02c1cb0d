// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A batch of observations: each row has one eliminated block and one other, of
// sizes known at compile time (the Source's Shape), as camera and point of
// bundle adjustment. It owns the F family. Where it owns the E family too, a
// product with S is one pass over the observations; else, where other batches
// have rows of its points, it takes part in two steps.
//
// Operations: cuda_kernels/ops. Source: StoredJacobian or RecomputedJacobian
// (cuda_kernels/model/jacobian_source.h).
#ifndef CERES_EXT_SOLVER_OBSERVATION_BATCH_H_
#define CERES_EXT_SOLVER_OBSERVATION_BATCH_H_

#include <cstdint>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "cuda_kernels/base/block_view.h"
#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/jacobian_products.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/ops/schur_products.h"
#include "cuda_kernels/ops/vectors.h"
#include "cuda_kernels/structure/host_workspace.h"
#include "cuda_kernels/structure/observation_index.h"

namespace ceres_ext::solver {

template <typename Machine, typename SourceIn>
class ObservationBatch final : public Batch {
 public:
  using Source = SourceIn;
  using Shape = typename Source::Shape;

  // What the index views and the machine must outlive the batch. Blocks of the
  // index are those of families e_family and f_family in their order.
  void Setup(const kernels::ObservationIndexView& index,
             int e_family,
             int f_family,
             Machine* machine) {
    index_ = index;
    e_family_ = e_family;
    f_family_ = f_family;
    machine_ = machine;
  }
  // The Jacobian that everything works on.
  void SetJacobian(const Source& jacobian) { jacobian_ = jacobian; }

  int64_t num_residuals() const final {
    return Shape::kNumResiduals * index_.num_observations;
  }
  kernels::Status SetupSolver(const InexactSolverOptions& options,
                              const ProblemBlocks& blocks) final;
  kernels::Status RightMultiply(const double* e,
                                const double* f,
                                bool accumulate,
                                double* y) final;
  kernels::Status LeftMultiplyAndAccumulate(const double* y,
                                            double* e,
                                            double* f) final;
  kernels::Status SquaredColumnNorms(double* e, double* f) final;
  kernels::Status EliminatedBlocks(const NormalBlocksRequest& request) final;
  kernels::Status OtherBlocks(const NormalBlocksRequest& request) final;
  kernels::Status MultiplyToEliminated(
      const double* f_p, double* s, const kernels::PcgScalars* scalars) final;
  kernels::Status MultiplySchur(const ProductRequest& request) final;
  kernels::Status MultiplyNormal(const ProductRequest& request) final;
  kernels::Status BackSubstitute(const double* b,
                                 const double* v_inverse,
                                 const double* z,
                                 double* y) final;
  void AppendOperands(std::vector<const void*>* operands) const final;
  int64_t bytes() const final;

  // Where the two families stand and whose the points are, for all but what a
  // solver asks; SetupSolver does it as well.
  kernels::Status SetBlocks(const ProblemBlocks& blocks);
  bool owns_points() const { return owns_points_; }
  // Scratch of the points, where they are shared: E values each.
  double* point_scratch() { return point_scratch_.data(); }

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;
  static constexpr kernels::BlockLayout kLayout = Machine::kLayout;
  static constexpr int E = Shape::kE;
  static constexpr int F = Shape::kF;

  // The family's part of an array over families, null where that is.
  template <typename T>
  T* Points(T* e) const {
    return e == nullptr ? nullptr : e + e_begin_;
  }
  template <typename T>
  T* Cameras(T* f) const {
    return f == nullptr ? nullptr : f + f_begin_;
  }
  template <typename T>
  kernels::BlockView<T, Shape::kPackedE, kLayout> PointView(T* packed) const {
    return {packed == nullptr ? nullptr : packed + e_packed_begin_,
            index_.num_points};
  }
  template <typename T>
  kernels::BlockView<T, Shape::kPackedF, kLayout> CameraView(T* packed) const {
    return {packed == nullptr ? nullptr : packed + f_packed_begin_,
            index_.num_cameras};
  }
  // to += from, over the points.
  kernels::Status AddToPoints(int64_t n, const double* from, double* to) {
    return Run(kernels::AddVectorsParams{n, to, from, to}, machine_);
  }

  kernels::ObservationIndexView index_;
  Machine* machine_ = nullptr;
  Source jacobian_;
  int e_family_ = 0;
  int f_family_ = 0;
  bool owns_points_ = true;
  int64_t e_begin_ = 0;
  int64_t f_begin_ = 0;
  int64_t e_packed_begin_ = 0;
  int64_t f_packed_begin_ = 0;

  // Of points that are shared.
  Buffer<double> point_scratch_;   // E per point
  Buffer<double> packed_scratch_;  // packed per point
  Buffer<double> residual_scratch_;
  Buffer<double> zero_points_;
  Buffer<double> zero_cameras_;
};

}  // namespace ceres_ext::solver

#include "ceres_ext/solver/observation_batch_impl.h"

#endif  // CERES_EXT_SOLVER_OBSERVATION_BATCH_H_
