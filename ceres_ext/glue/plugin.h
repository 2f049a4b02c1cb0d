// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// What Ceres asks for its linear solver, evaluator and loop vectors during one
// solve. It decides once, in OwnsOrdering, which path the solve takes:
//
//   PATH_FULL           every residual block is in one residual batch:
//                       BatchEvaluator, BatchLinearSolver, LoopVectors, and
//                       Ceres need not reorder the problem;
//   PATH_LINEAR_SOLVER  Ceres evaluates, RowLinearSolver solves;
//   PATH_CERES          nothing: the reason says why.
//
// The first two run on a device where there is one that can, else on the host.
//
// An object serves one solve and outlives everything that it makes. Not thread
// safe; solves that run at once have one each.

#ifndef CERES_EXT_GLUE_PLUGIN_H_
#define CERES_EXT_GLUE_PLUGIN_H_

#include <memory>
#include <string>

#include "ceres/evaluator.h"
#include "ceres/linear_solver.h"
#include "ceres/preprocessor.h"
#include "ceres/solver_plugin.h"
#include "ceres/trust_region_vectors.h"
#include "ceres_ext/glue/backends.h"
#include "ceres_ext/glue/batch_shape.h"
#include "ceres_ext/glue/program_import.h"
#include "ceres_ext/glue/solve_record.h"
#include "ceres_ext/options.h"
#include "ceres_ext/summary.h"
#include "cuda_kernels/base/status.h"

namespace ceres_ext {

class BundlePlugin final : public ceres::internal::SolverPlugin {
 public:
  // append_to_message: the caller sees only a ceres::Solver::Summary, so Finish
  // adds path and reason to its message.
  BundlePlugin(const Options& options, bool append_to_message);
  ~BundlePlugin() override;

  bool OwnsOrdering(ceres::internal::PreprocessedProblem* pp) override;
  bool SetupLinearSolver(ceres::internal::PreprocessedProblem* pp) override;
  bool SetupEvaluator(ceres::internal::PreprocessedProblem* pp) override;
  std::shared_ptr<ceres::internal::TrustRegionVectors> CreateTrustRegionVectors(
      ceres::internal::PreprocessedProblem* pp) override;
  void Finish(const ceres::internal::PreprocessedProblem& pp,
              ceres::Solver::Summary* summary) override;

  // Copies what this solve added to Ceres's summary.
  void FillSummary(Summary* summary) const;

 private:
  // A machine with the batch on it, or an empty one.
  template <typename Backend>
  struct Site {
    std::unique_ptr<Backend> machine;
    BatchShape<Backend> shape;

    // The shape's buffers go before their machine.
    void Reset() {
      shape = BatchShape<Backend>();
      machine.reset();
    }
  };

  void Decline(const std::string& reason);
  // Ends the solve with the reason where the caller wants no fallback.
  bool MayFallBack(const std::string& reason, std::string* error) const;
  bool WantsDevice() const { return options_.device != DEVICE_HOST; }

#ifdef CERES_EXT_WITH_CUDA
  kernels::Status CreateCudaMachine(std::unique_ptr<CudaMachine>* machine);
#endif
  // Makes evaluator, linear solver and vectors of PATH_FULL.
  template <typename Backend>
  kernels::Status SetupBatch(const BatchStructure& batch,
                             ceres::internal::PreprocessedProblem* pp,
                             Site<Backend>* site);
  template <typename Backend, typename T, int C>
  kernels::Status CreateBatchObjects(const BatchStructure& batch,
                                     ceres::internal::PreprocessedProblem* pp,
                                     Site<Backend>* site);
  void UseHost(const std::string& why_no_device);

  const Options options_;
  // options_ with what the machine in use makes of them.
  Options effective_options_;
  const bool append_to_message_;
  SolvePath path_ = PATH_CERES;
  std::string reason_;
  // Where a device was wanted: why there is none.
  std::string why_no_device_;
  SolveRecord record_;
  int num_threads_ = 1;

  Site<HostMachine> host_;
#ifdef CERES_EXT_WITH_CUDA
  Site<CudaMachine> cuda_;
#endif

  // For Ceres's summary.
  int num_points_ = 0;
  int num_cameras_ = 0;
  std::string schur_structure_;

  // Until Ceres takes them.
  std::unique_ptr<ceres::internal::Evaluator> evaluator_;
  std::unique_ptr<ceres::internal::LinearSolver> linear_solver_;
  std::shared_ptr<ceres::internal::TrustRegionVectors> vectors_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_PLUGIN_H_
