// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// What the study writes: one JSON file, replaced after every size, so that a
// run that is cut off leaves what it has measured. Its shape:
// docs/measurements/study.md.
#ifndef BENCHMARKS_STUDY_STUDY_RECORD_H_
#define BENCHMARKS_STUDY_STUDY_RECORD_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "benchmarks/study/levenberg_marquardt.h"
#include "benchmarks/study/operation_counts.h"
#include "cuda_kernels/base/status.h"
#include "examples/bal/bal_problem.h"
#include "nlohmann/json.hpp"

namespace ceres_ext::bal {

using Json = nlohmann::ordered_json;

struct StudySettings {
  std::vector<std::string> sizes;
  uint64_t seed = 1;
  bool shuffle_points = true;
  int num_lm_iterations = 50;
  int num_pcg_iterations = 100;
  // Iterations of the PCG solve that Table 4 and the comparisons time.
  int num_timed_pcg_iterations = 20;
  int num_repetitions = 20;  // of each kernel
  // No run of the naive variant, and none of the host, is begun that must be
  // expected to take longer, as judged from one iteration.
  double run_seconds = 60.0;
  double host_run_seconds = 60.0;
  double seconds = 540.0;  // Nothing is begun after this.
  int host_threads = 1;
  int host_jobs = 1;  // runs of the host implementation at once
  bool host = true;
  bool gpu = true;
  // Of the device: "iterations", "kernels", "runs", "naive_runs".
  std::vector<std::string> parts = {
      "iterations", "kernels", "runs", "naive_runs"};
  std::string output;  // empty: no file
};

// One problem of the study, as generated.
struct StudyProblem {
  std::string name;
  BalProblem bal;
};

// A configuration of the inexact solver: Schur complement or not, W implicit or
// explicit. The preconditioner is the block diagonal of J'J + D^2.
struct Configuration {
  bool use_schur;
  bool explicit_w;
};

class StudyRecord {
 public:
  explicit StudyRecord(const StudySettings& settings);

  const StudySettings& settings() const { return settings_; }
  Json& json() { return json_; }
  // The entry of a size; made where it does not exist.
  Json& Size(const StudyProblem& problem);

  double elapsed_seconds() const;
  bool out_of_time() const { return elapsed_seconds() > settings_.seconds; }
  // The row of 1 x 1 of a variant; null where there is none.
  Json OneByOne(const StudyProblem& problem,
                const std::string& variant,
                const std::string& jacobian,
                const Configuration& configuration);
  // Whether a run must be expected to end within max_seconds and within the
  // time of the study, as judged by its row of 1 x 1. The expectation is
  // recorded nowhere. Skips `what` where not.
  bool HasTimeForAll(const std::string& what,
                     const Json& one_by_one,
                     const StudyOptions& options,
                     double max_seconds);
  // Notes something that was not measured, and why.
  void Skip(const std::string& what, const std::string& why);
  // Skips `what` where the status is not OK, and counts a failure, unless it
  // is that the machine does not support it.
  void Check(const std::string& what, const kernels::Status& status);
  int num_failures() const { return num_failures_; }
  // False and a sentence in *error where the file can't be written.
  bool Save(std::string* error) const;

 private:
  StudySettings settings_;
  Json json_;
  int num_failures_ = 0;
  std::chrono::steady_clock::time_point begin_;
};

const std::vector<Configuration>& FourConfigurations();
std::string ConfigurationName(const Configuration& configuration);

StudyOptions MakeStudyOptions(const Configuration& configuration,
                              int num_lm_iterations,
                              int num_pcg_iterations);

// A timed run as a row of Size()["runs"], and as a line on the screen.
// variant: "cuda", "naive", "naive continuous", "cusparse ...", "host".
Json RunRow(const std::string& variant,
            const std::string& jacobian,
            const Configuration& configuration,
            const StudyOptions& options,
            const StudyResult& result);

// The operations of the W product, by formula and counted on a few
// observations.
Json OperationTable();

}  // namespace ceres_ext::bal

#endif  // BENCHMARKS_STUDY_STUDY_RECORD_H_
