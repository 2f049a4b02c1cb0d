// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The output of the study: one JSON file, replaced after every size, so that an
// interrupted run leaves its measurements. Its shape:
// docs/measurements/study.md.
#ifndef STUDIES_STUDY_RECORD_H_
#define STUDIES_STUDY_RECORD_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "benchmarks/benchmark.h"
#include "cuda_kernels/base/status.h"
#include "problem_io/bal_problem.h"
#include "studies/levenberg_marquardt.h"
#include "studies/operation_counts.h"

namespace ceres_ext::bal {

struct StudySettings {
  std::vector<std::string> sizes;
  uint64_t seed = 1;
  // The stopping rule of whole runs, the paper's: at most so many iterations,
  // PCG to |r| <= eta |J'r|, and no more where an accepted step lowers the cost
  // by less than function_tolerance of it.
  int num_lm_iterations = 50;
  int num_pcg_iterations = 100;
  double eta = 0.1;
  double function_tolerance = 1e-6;
  // Iterations of the PCG solve that Table 4 and the comparisons time.
  int num_timed_pcg_iterations = 20;
  int num_repetitions = 20;  // of each kernel
  // A whole run begins no iteration after so many seconds, on the device and on
  // the host; what it has done by then is its row.
  double run_seconds = 60.0;
  double host_run_seconds = 60.0;
  double seconds = 540.0;  // Nothing is begun after this.
  bool host = true;
  bool gpu = true;
  // "iterations", "kernels", "reference", "runs", "float_runs" of the device,
  // "host_1x1" and "host_runs" of the host.
  std::vector<std::string> parts = {"iterations",
                                    "kernels",
                                    "reference",
                                    "runs",
                                    "float_runs",
                                    "host_1x1",
                                    "host_runs"};
  // Folder of final residuals, for comparing host and device; empty: none.
  std::string residuals;
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
  // True if a part is asked for.
  bool Wants(const std::string& part) const;
  // Options of a whole run that takes at most max_seconds, and what is left of
  // the time of the study.
  StudyOptions WholeRun(const Configuration& configuration,
                        double max_seconds) const;
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

// The file of the final residuals of a problem in a configuration, as doubles
// in the order of the device's index; empty if settings name no folder, or the
// problem has more than kMostKeptObservations, which the host alone does not
// solve in the time of a study.
inline constexpr int64_t kMostKeptObservations = 2'000'000;
std::string ResidualsFile(const StudySettings& settings,
                          const StudyProblem& problem,
                          const Configuration& configuration);

// No tolerance ends such a run.
StudyOptions MakeStudyOptions(const Configuration& configuration,
                              int num_lm_iterations,
                              int num_pcg_iterations);

// A timed run as a row of Size()["runs"], and as a line on the screen.
// variant: "cuda", "naive", "paper", "cusparse ...", "host" and layouts of
// them.
Json RunRow(const std::string& variant,
            const std::string& jacobian,
            const Configuration& configuration,
            const StudyOptions& options,
            const StudyResult& result);

// The operations of the W product, counted on an observation.
Json OperationTable();

}  // namespace ceres_ext::bal

#endif  // STUDIES_STUDY_RECORD_H_
