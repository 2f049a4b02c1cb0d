// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "benchmarks/study/host_study.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <vector>

#include "cuda_kernels/machine/host_context.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/structure/row_index.h"

namespace ceres_ext::bal {
namespace {

using kernels::HostMachine;
using kernels::Status;
using Source =
    kernels::StoredJacobian<double, kernels::BalShape<9>, kernels::kHostLayout>;

std::string Variant(const StudySettings& settings) {
  return settings.host_threads == 1
             ? "host"
             : "host, " + std::to_string(settings.host_threads) + " threads";
}

std::string What(const StudyRecord& record,
                 const StudyProblem& problem,
                 const Configuration& configuration) {
  return Variant(record.settings()) + ", " + problem.name + ", " +
         ConfigurationName(configuration);
}

// A problem in the order of its observation index, and a machine for it.
class HostProblem {
 public:
  explicit HostProblem(int num_threads) : machine_(num_threads) {}

  Status Setup(const BalProblem& bal) {
    std::vector<int32_t> point_order;
    CERES_EXT_RETURN_IF_ERROR(index_.Setup({bal.num_cameras(),
                                            bal.num_points(),
                                            bal.num_observations(),
                                            bal.camera_index.data(),
                                            bal.point_index.data()},
                                           {},
                                           &point_order,
                                           &machine_));
    CERES_EXT_RETURN_IF_ERROR(
        observations_.Allocate(2 * bal.num_observations()));
    for (int64_t k = 0; k < bal.num_observations(); ++k) {
      std::copy_n(&bal.observations[2 * int64_t{index_.view().input_id()[k]}],
                  2,
                  observations_.data() + 2 * k);
    }
    arrays_ = {index_.view(),
               bal.cameras.data(),
               bal.points.data(),
               observations_.data()};
    return {};
  }

  // The last of num_runs.
  Status Run(const StudyOptions& options, int num_runs, StudyResult* result) {
    LevenbergMarquardt<HostMachine, Source> lm;
    CERES_EXT_RETURN_IF_ERROR(lm.Setup(options, arrays_, &machine_));
    for (int i = 0; i < num_runs; ++i) {
      CERES_EXT_RETURN_IF_ERROR(lm.Optimize(result));
    }
    return {};
  }

 private:
  HostMachine machine_;
  kernels::RowIndex<HostMachine> index_;
  kernels::HostBuffer<double> observations_;
  ProblemArrays arrays_;
};

}  // namespace

Status TimeOneByOneOnHost(const StudyProblem& problem, StudyRecord* record) {
  HostProblem host(record->settings().host_threads);
  bool is_set_up = false;
  for (const Configuration& configuration : FourConfigurations()) {
    if (record->out_of_time()) {
      record->Skip(What(*record, problem, configuration), "out of time");
      continue;
    }
    if (!is_set_up) {
      CERES_EXT_RETURN_IF_ERROR(host.Setup(problem.bal));
      is_set_up = true;
    }
    StudyResult result;
    const StudyOptions options = MakeStudyOptions(configuration, 1, 1);
    // The second time all memory has been touched, as on a device.
    CERES_EXT_RETURN_IF_ERROR(host.Run(options, 2, &result));
    record->Size(problem)["runs"].push_back(RunRow(Variant(record->settings()),
                                                   "stored double",
                                                   configuration,
                                                   options,
                                                   result));
  }
  return {};
}

void TimeRunsOnHost(const std::vector<StudyProblem>& problems,
                    StudyRecord* record) {
  struct Job {
    const StudyProblem* problem;
    Configuration configuration;
  };
  const StudySettings& settings = record->settings();
  std::vector<Job> jobs;
  for (const StudyProblem& problem : problems) {
    for (const Configuration& configuration : FourConfigurations()) {
      jobs.push_back({&problem, configuration});
    }
  }
  if (settings.host_jobs > 1) {
    std::reverse(jobs.begin(), jobs.end());
  }
  std::mutex mutex;  // of next and *record
  size_t next = 0;
  const auto run = [&] {
    const Job* job;
    StudyOptions options;
    std::string what;
    {
      const std::lock_guard<std::mutex> lock(mutex);
      job = &jobs[next++];
      options = MakeStudyOptions(job->configuration,
                                 settings.num_lm_iterations,
                                 settings.num_pcg_iterations);
      what = What(*record, *job->problem, job->configuration);
      if (!record->HasTimeForAll(what,
                                 record->OneByOne(*job->problem,
                                                  Variant(settings),
                                                  "stored double",
                                                  job->configuration),
                                 options,
                                 settings.host_run_seconds)) {
        return;
      }
    }
    HostProblem host(settings.host_threads);
    StudyResult result;
    Status status = host.Setup(job->problem->bal);
    if (status.ok()) {
      status = host.Run(options, 1, &result);
    }
    const std::lock_guard<std::mutex> lock(mutex);
    record->Check(what + ", all iterations", status);
    if (status.ok()) {
      Json row = RunRow(Variant(settings),
                        "stored double",
                        job->configuration,
                        options,
                        result);
      row["host_jobs"] = settings.host_jobs;
      record->Size(*job->problem)["runs"].push_back(row);
    }
    std::string error;
    if (!record->Save(&error)) {
      std::fprintf(stderr, "bal_study: %s\n", error.c_str());
    }
  };
  kernels::HostContext pool(settings.host_jobs);
  pool.ParallelFor(
      static_cast<int64_t>(jobs.size()), 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          run();
        }
      });
}

}  // namespace ceres_ext::bal
