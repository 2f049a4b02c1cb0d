// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// This process's knowledge of a problem's rows and of its machines, for the
// plan (plan/solve_plan.h).

#ifndef CERES_EXT_SESSION_KNOWN_FACTS_H_
#define CERES_EXT_SESSION_KNOWN_FACTS_H_

#include <memory>
#include <string>
#include <utility>

#include "ceres_ext/import/problem_structure.h"
#include "ceres_ext/options.h"
#include "ceres_ext/plan/solve_plan.h"
#include "ceres_ext/session/kept_machines.h"

namespace ceres_ext {

// The facts of a structure. The caller adds num_values and num_host_values.
RowFacts FactsOf(const ProblemStructure& structure);
// Adds those of S as a matrix, which takes a pass over the rows, two if many of
// them repeat.
void CountCouplings(const ProblemStructure& structure,
                    kernels::HostContext* context,
                    RowFacts* facts);

class KnownFacts final : public MachineFacts {
 public:
  // All outlive the object.
  KnownFacts(const Options& options,
             int num_threads,
             const ProblemStructure* structure,
             KeptMachines* kept)
      : options_(options),
        num_threads_(num_threads),
        structure_(structure),
        kept_(kept) {}

  // The device has failed: the host needs none of its memory.
  void DropDevice() {
    if (device_ != nullptr) {
      device_.reset();
      kept_->ClearDevice();
    }
  }
  // The device of a plan that takes one.
  const std::shared_ptr<KeptMachines::Device>& device() const {
    return device_;
  }
  // Seconds that starting CUDA has taken since the last call; 0 if it had been
  // started before.
  double TakeContextSeconds() { return std::exchange(context_seconds_, 0.0); }

  bool BuildHasCuda() const final;
  // Opens the device when first asked.
  std::string WhyNoDevice() const final;
  std::string WhyHost(const SolveWork& work) const final;
  std::string WhyNoFactorization(SchurFactorizationType type) const final;
  kernels::MachineRates Rates() const final;
  kernels::MachineRates HostRates(double host_seconds) const final;
  std::string WhyNotRecomputed() const final;

 private:
  const Options& options_;
  const int num_threads_;
  const ProblemStructure* structure_;
  KeptMachines* kept_;
  mutable std::string why_no_device_;
  mutable std::shared_ptr<KeptMachines::Device> device_;
  mutable double context_seconds_ = 0.0;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SESSION_KNOWN_FACTS_H_
