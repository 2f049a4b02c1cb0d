// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// An evaluation without a solve: Ceres's loop begins, and where it asks for the
// first evaluation this keeps what it finds and ends the loop, as a failure
// that leaves all parameters alone.

#ifndef CERES_EXT_GLUE_RECORDING_EVALUATOR_H_
#define CERES_EXT_GLUE_RECORDING_EVALUATOR_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ceres/evaluator.h"
#include "ceres/execution_summary.h"
#include "ceres/sparse_matrix.h"
#include "ceres_ext/glue/failure.h"
#include "ceres_ext/glue/machine_setup.h"
#include "cuda_kernels/base/status.h"

namespace ceres_ext {

struct RecordedEvaluation {
  // What is asked for.
  bool apply_loss_function = true;
  bool want_gradient = false;

  // What was found, where is_done.
  bool is_done = false;
  double cost = 0.0;
  std::vector<double> gradient;  // a tangent vector of Ceres's loop
};

class RecordingEvaluator final : public ceres::internal::Evaluator {
 public:
  // *setup, which has made the evaluator, *failure and *recorded outlive the
  // object.
  RecordingEvaluator(std::shared_ptr<ceres::internal::Evaluator> evaluator,
                     MachineSetup* setup,
                     Failure* failure,
                     RecordedEvaluation* recorded)
      : evaluator_(std::move(evaluator)),
        setup_(setup),
        failure_(failure),
        recorded_(recorded) {}

  std::unique_ptr<ceres::internal::SparseMatrix> CreateJacobian() const final {
    return evaluator_->CreateJacobian();
  }

  bool Evaluate(const EvaluateOptions& evaluate_options,
                const double* state,
                double* /*cost*/,
                double* residuals,
                double* gradient,
                ceres::internal::SparseMatrix* jacobian) final {
    EvaluateOptions options = evaluate_options;
    options.apply_loss_function = recorded_->apply_loss_function;
    const bool want_gradient = recorded_->want_gradient;
    recorded_->is_done =
        evaluator_->Evaluate(options,
                             state,
                             &recorded_->cost,
                             residuals,
                             want_gradient ? gradient : nullptr,
                             want_gradient ? jacobian : nullptr) &&
        (!want_gradient || failure_->Guard(false, [&] {
          recorded_->gradient.resize(NumEffectiveParameters());
          const kernels::Status status = setup_->Download(
              NumEffectiveParameters(), gradient, recorded_->gradient.data());
          if (!status.ok()) {
            failure_->Set(status);
          }
          return status.ok();
        }));
    return false;
  }

  bool Plus(const double* state,
            const double* delta,
            double* state_plus_delta) const final {
    return evaluator_->Plus(state, delta, state_plus_delta);
  }
  int NumParameters() const final { return evaluator_->NumParameters(); }
  int NumEffectiveParameters() const final {
    return evaluator_->NumEffectiveParameters();
  }
  int NumResiduals() const final { return evaluator_->NumResiduals(); }
  std::map<std::string, ceres::internal::CallStatistics> Statistics()
      const final {
    return evaluator_->Statistics();
  }

 private:
  const std::shared_ptr<ceres::internal::Evaluator> evaluator_;
  MachineSetup* const setup_;
  Failure* const failure_;
  RecordedEvaluation* const recorded_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_RECORDING_EVALUATOR_H_
