// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The matrix of a second level, E = P'S P. A new way to form it is a file here
// and a line in CoarseSpace::Setup. Ranks form it of their rows, and
// CoarseSpace sums it.
#ifndef CERES_EXT_SOLVER_PRECONDITIONER_COARSE_MATRIX_H_
#define CERES_EXT_SOLVER_PRECONDITIONER_COARSE_MATRIX_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "ceres_ext/solver/operator/linear_operator.h"
#include "ceres_ext/solver/preconditioner/clusters.h"
#include "ceres_ext/solver/preconditioner/coarse_units.h"
#include "ceres_ext/solver/schur_contribution.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/coarse_space.h"

namespace ceres_ext::solver {

template <typename Machine>
class CoarseMatrix {
 public:
  virtual ~CoarseMatrix() = default;

  // The unknowns of S, whose blocks are clustered. The unknowns of an F block
  // stand one after the other.
  virtual const CoarseBlocks& blocks() const = 0;
  // There is another Jacobian.
  virtual void Forget() {}
  // The system that Form will be of, whose S is formed if it is needed.
  virtual kernels::Status Update(const LinearSystem& /*system*/,
                                 const double* /*v_inverse*/) {
    return {};
  }
  // After the first Update: those of this rank.
  virtual kernels::Status ListCouplings(std::vector<Coupling>* couplings) = 0;
  // *couplings: those of all ranks, which get the weights of MakeClusters.
  // Returns its max_neighbors.
  virtual int32_t WeighCouplings(std::vector<Coupling>* /*couplings*/) {
    return std::numeric_limits<int32_t>::max();
  }
  // cluster: of each block. place: of each value of F its place in the order of
  // P, -1 if it is not an unknown, in the machine's memory, which outlives
  // this. Takes all memory.
  virtual kernels::Status SetClusters(const std::vector<int32_t>& cluster,
                                      int32_t num_clusters,
                                      const int32_t* place) = 0;
  // The lower triangle of this rank's part of E, column-major, whose memory is
  // zero. Vectors that are zero have a diagonal of zero.
  virtual kernels::Status Form(const LinearSystem& system,
                               const double* v_inverse,
                               const kernels::ProlongationRef& p,
                               int64_t stride,
                               double* e) = 0;
  // Writes the rows that are not summed of parts, by all ranks.
  virtual kernels::Status FormRest(const kernels::ProlongationRef& /*p*/,
                                   int64_t /*stride*/,
                                   double* /*e*/) {
    return {};
  }
  // The rows that S is of, if these are one batch's, and no F block that is in
  // a cluster with others is in two of their cameras; else null.
  virtual CoarseRows* only_rows() { return nullptr; }
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_PRECONDITIONER_COARSE_MATRIX_H_
