// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "examples/bal/study/host_study.h"

#include <algorithm>

#include "cuda_kernels/host_context.h"
#include "cuda_kernels/observation_index.h"

namespace ceres_ext::bal {
namespace {

using kernels::Status;
using Source = kernels::StoredJacobian<double, 9, kernels::kHostLayout>;

}  // namespace

Status StudyOnHost(const StudyProblem& problem, StudyRecord* record) {
  const BalProblem& bal = problem.bal;
  const StudySettings& settings = record->settings();
  kernels::ObservationIndex index;
  CERES_EXT_RETURN_IF_ERROR(index.Build(bal.num_cameras(),
                                        bal.num_points(),
                                        bal.num_observations(),
                                        bal.camera_index.data(),
                                        bal.point_index.data()));
  kernels::HostBuffer<double> observations;
  CERES_EXT_RETURN_IF_ERROR(observations.Allocate(2 * bal.num_observations()));
  for (int64_t k = 0; k < bal.num_observations(); ++k) {
    std::copy_n(&bal.observations[2 * int64_t{index.view().input_id[k]}],
                2,
                observations.data() + 2 * k);
  }
  const ProblemArrays arrays{
      bal.cameras.data(), bal.points.data(), observations.data()};
  kernels::HostContext context(settings.host_threads);
  HostMachine machine;
  CERES_EXT_RETURN_IF_ERROR(machine.Setup(index.view(), &context));
  const std::string variant =
      settings.host_threads == 1
          ? "host"
          : "host, " + std::to_string(settings.host_threads) + " threads";
  for (const Configuration& configuration : FourConfigurations()) {
    const std::string what =
        variant + ", " + problem.name + ", " + ConfigurationName(configuration);
    if (record->out_of_time()) {
      record->Skip(what, "out of time");
      continue;
    }
    LevenbergMarquardt<HostMachine, Source> lm;
    StudyResult result;
    StudyOptions options = MakeStudyOptions(configuration, 1, 1);
    CERES_EXT_RETURN_IF_ERROR(lm.Setup(options, arrays, &machine));
    CERES_EXT_RETURN_IF_ERROR(lm.Run(&result));
    const Json one_by_one =
        RunRow(variant, "stored double", configuration, options, result);
    record->Size(problem)["runs"].push_back(one_by_one);

    options = MakeStudyOptions(
        configuration, settings.num_lm_iterations, settings.num_pcg_iterations);
    if (!record->HasTimeForAll(
            what, one_by_one, options, settings.run_seconds)) {
      continue;
    }
    CERES_EXT_RETURN_IF_ERROR(lm.Setup(options, arrays, &machine));
    CERES_EXT_RETURN_IF_ERROR(lm.Run(&result));
    record->Size(problem)["runs"].push_back(
        RunRow(variant, "stored double", configuration, options, result));
  }
  return {};
}

}  // namespace ceres_ext::bal
