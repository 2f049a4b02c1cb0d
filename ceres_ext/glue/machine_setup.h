// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// One machine and what Ceres is given of it for one solve.

#ifndef CERES_EXT_GLUE_MACHINE_SETUP_H_
#define CERES_EXT_GLUE_MACHINE_SETUP_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ceres/evaluator.h"
#include "ceres/linear_solver.h"
#include "ceres/preprocessor.h"
#include "ceres/trust_region_vectors.h"
#include "ceres_ext/glue/failure.h"
#include "ceres_ext/glue/program_import.h"
#include "ceres_ext/options.h"
#include "ceres_ext/summary.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

// What Ceres is given, which takes it, and what its summary says.
struct ProgramObjects {
  std::unique_ptr<ceres::internal::Evaluator> evaluator;
  std::unique_ptr<ceres::internal::LinearSolver> linear_solver;
  std::shared_ptr<ceres::internal::TrustRegionVectors> vectors;
  std::string schur_structure;
  // Blocks that vary, eliminated and others.
  std::vector<int> num_blocks;
  // Residual blocks that Ceres evaluates, and why this library doesn't some of
  // them that have a batched form.
  int64_t num_host_rows = 0;
  // Whether blocks of the Jacobian are float.
  bool has_float_blocks = false;
  std::set<std::string> notes;
};

// Outlives everything that it makes.
class MachineSetup {
 public:
  virtual ~MachineSetup() = default;

  // Bytes copied between host and machine so far.
  virtual int64_t copied_bytes() const = 0;
  // Whether what it has made can still be used: a user's own code may have
  // reset a device, or broken it.
  virtual bool IsAlive() const = 0;
  // Copies n values of the machine's memory to host_x.
  virtual kernels::Status Download(int64_t n,
                                   const double* x,
                                   double* host_x) = 0;
  // Makes evaluator, linear solver and vectors. All memory of the solve is
  // taken here. kUnsupported for what the machine doesn't know. *structure is
  // used up. Of *summary, which as *failure outlives the objects, device
  // ("host, 16 threads", "NVIDIA H200 (CUDA device 0)"), method and memory are
  // set, and the objects add to others.
  virtual kernels::Status SetupProgram(ProgramStructure* structure,
                                       ceres::internal::PreprocessedProblem* pp,
                                       Failure* failure,
                                       Summary* summary,
                                       ProgramObjects* objects) = 0;
};

// What solves one after the other share: threads, machines with the device
// memory that the last solve had, and the index of its observations. Not thread
// safe. To be cleared after a solve that failed, which may have left a device
// in any state.
class KeptMachines {
 public:
  // Threads of the host.
  kernels::HostContext* host_context(int num_threads);
  void Clear() {
    host_context_.reset();
    host_.reset();
    ClearDevice();
  }
  void ClearDevice() { device_.reset(); }
  // Whether there may be a next solve.
  bool is_for_several = false;

 private:
  friend std::unique_ptr<MachineSetup> CreateHostSetup(const Options&,
                                                       int,
                                                       KeptMachines*);
  friend kernels::Status CreateCudaSetup(const Options&,
                                         int,
                                         KeptMachines*,
                                         std::unique_ptr<MachineSetup>*);

  int num_threads_ = 0;
  std::shared_ptr<kernels::HostContext> host_context_;
  // Of machine_setup.cc's own types.
  std::shared_ptr<void> host_;
  std::shared_ptr<void> device_;
};

// kept: what this solve may use and leaves for the next one, and outlives it.
std::unique_ptr<MachineSetup> CreateHostSetup(const Options& options,
                                              int num_threads,
                                              KeptMachines* kept);
// kUnsupported where the build or the computer has no CUDA; num_threads: of the
// host, for what is put in order there.
kernels::Status CreateCudaSetup(const Options& options,
                                int num_threads,
                                KeptMachines* kept,
                                std::unique_ptr<MachineSetup>* setup);

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_MACHINE_SETUP_H_
