// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Repeats the study of Kommera, Muknahallipatna and McInroy, "Optimized CUDA
// Implementation to Improve the Performance of Bundle Adjustment Algorithm on
// GPUs" (2024), with the kernels of this project. See
// docs/measurements/study.md.

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/benchmark.h"
#include "gflags/gflags.h"
#include "problem_io/bal_synthetic.h"
#include "studies/host_study.h"
#include "studies/study_record.h"

#ifdef BAL_STUDY_WITH_DEVICE
#include "cuda_kernels/machine/cuda_context.h"
#include "studies/device_study.h"
#endif

// clang-format off
DEFINE_string(output, "", "Write the record to this JSON file.");
DEFINE_string(sizes,
              "trafalgar-21,dubrovnik-88,dubrovnik-182,venice-245,venice-744,"
              "venice-951,venice-1288,final-1936,final-4585,final-13682",
              "Sizes, by names that bal_generate --list shows or as "
              "CAMERASxPOINTSxOBSERVATIONS, from small to large. Kernels are "
              "measured one by one on the last.");
DEFINE_uint64(seed, 1, "Sizes of the synthetic problems.");
DEFINE_int32(lm, 50, "Levenberg-Marquardt iterations of a whole run, at most.");
DEFINE_int32(pcg, 100, "PCG iterations of each, at most.");
DEFINE_int32(timed_pcg, 20,
             "PCG iterations over which one iteration is averaged.");
DEFINE_int32(repetitions, 20, "Repetitions of each kernel.");
DEFINE_double(eta, 0.1,
              "PCG of a whole run ends where |r| <= eta |J'r|.");
DEFINE_double(function_tolerance, 1e-6,
              "A whole run ends where an accepted step lowers the cost by less "
              "than this part of it.");
DEFINE_double(run_seconds, 60.0,
              "A whole run on the GPU begins no iteration after so many "
              "seconds.");
DEFINE_double(host_run_seconds, 60.0, "The same on the host.");
DEFINE_double(seconds, 540.0, "Begin nothing after so many seconds.");
DEFINE_string(parts,
              "iterations,kernels,reference,runs,float_runs,host_1x1,host_runs",
              "The parts to measure, in this order. On the GPU: one PCG "
              "iteration "
              "and 1 x 1 of all variants, each kernel, whole runs with the "
              "stopping rule: ours with stored Jacobians, all others, those of "
              "blocks in float; on the host, after that and alone: 1 x 1, "
              "whole runs.");
DEFINE_string(residuals, "",
              "Folder for final residuals of whole runs on the GPU, with which "
              "a study of the host compares its own.");
DEFINE_bool(gpu, true, "Measure on the GPU, where there is one.");
DEFINE_bool(host, true, "Measure the host implementation.");
DEFINE_string(profile, "",
              "Only launch the kernels that a profiler is to look at, on the "
              "last size, between cudaProfilerStart and cudaProfilerStop: "
              "\"all\", or \"jacobians\" for one evaluation of each.");
// clang-format on

namespace ceres_ext::bal {
namespace {

constexpr char kUsage[] =
    R"(bal_study --output=RECORD.json [flags]

Times the kernels of this project on synthetic problems of the sizes of the BAL
data set: normal equations and PCG iterations in four configurations, whole
optimisations, each kernel, the host implementation, the naive and the optimised
kernels of the paper and cuSPARSE.

Exit codes: 0, the record is written; 1, a flag has a value that is not accepted;
2, a measurement failed, and the record holds what was measured before; 4, the
record could not be written.
)";

bool Generate(const std::string& name,
              const StudySettings& settings,
              StudyProblem* problem,
              std::string* error) {
  SyntheticOptions options;
  char end;
  if (!FindBalSize(name, &options) &&
      std::sscanf(name.c_str(),
                  "%" SCNd32 "x%" SCNd32 "x%" SCNd64 "%c",
                  &options.num_cameras,
                  &options.num_points,
                  &options.num_observations,
                  &end) != 3) {
    *error = "--sizes: there is no size named '" + name + "'.";
    return false;
  }
  options.seed = settings.seed;
  options.shuffle_points = true;
  SyntheticProblem synthetic;
  const auto begin = std::chrono::steady_clock::now();
  if (!GenerateSynthetic(options, &synthetic, error)) {
    return false;
  }
  problem->name = name;
  problem->bal = std::move(synthetic.start);
  std::printf(
      "%s: %d cameras, %d points, %lld observations (generated in %.1f s)\n",
      name.c_str(),
      problem->bal.num_cameras(),
      problem->bal.num_points(),
      static_cast<long long>(problem->bal.num_observations()),
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
          .count());
  std::fflush(stdout);
  return true;
}

// Exit code 4 where the record can't be written.
int Save(const StudyRecord& record) {
  std::string error;
  if (!record.Save(&error)) {
    std::fprintf(stderr, "bal_study: %s\n", error.c_str());
    return 4;
  }
  return 0;
}

#ifdef BAL_STUDY_WITH_DEVICE
// The parts in their order, sizes from large to small: what is left when the
// time ends matters least.
int MeasureOnDevice(const std::vector<StudyProblem>& problems,
                    kernels::CudaContext* context,
                    StudyRecord* record) {
  std::vector<std::unique_ptr<DeviceStudy>> studies;  // small to large
  studies.reserve(problems.size());
  for (const StudyProblem& problem : problems) {
    studies.push_back(std::make_unique<DeviceStudy>(&problem, context, record));
  }
  for (size_t i = problems.size(); i-- > 0;) {
    const std::string what = "GPU, " + problems[i].name;
    if (record->out_of_time()) {
      record->Skip(what, "out of time");
      continue;
    }
    record->Check(what, studies[i]->Setup());
    if (record->Wants("iterations")) {
      studies[i]->TimeIterations();
    }
    if (const int code = Save(*record)) {
      return code;
    }
  }
  if (record->Wants("kernels") && !studies.empty()) {
    studies.back()->TimeKernels();
    if (const int code = Save(*record)) {
      return code;
    }
  }
  for (const auto& [part, time] :
       {std::pair{"reference", &DeviceStudy::TimeReference},
        std::pair{"runs", &DeviceStudy::TimeRuns},
        std::pair{"float_runs", &DeviceStudy::TimeFloatRuns}}) {
    for (size_t i = problems.size(); i-- > 0 && record->Wants(part);) {
      (studies[i].get()->*time)();
      if (const int code = Save(*record)) {
        return code;
      }
    }
  }
  record->json()["machine"]["peak_device_bytes"] = context->peak_bytes();
  return 0;
}
#endif

// From small to large: the largest take as long as all others.
int MeasureOnHost(const std::vector<StudyProblem>& problems,
                  StudyRecord* record) {
  for (const auto& [part, time] : {std::pair{"host_1x1", &TimeOneByOneOnHost},
                                   std::pair{"host_runs", &TimeRunsOnHost}}) {
    for (const StudyProblem& problem : problems) {
      if (!record->Wants(part)) {
        break;
      }
      std::printf("%s, %s (%.0f s)\n",
                  problem.name.c_str(),
                  part,
                  record->elapsed_seconds());
      record->Check("host, " + problem.name, time(problem, record));
      if (const int code = Save(*record)) {
        return code;
      }
    }
  }
  return 0;
}

int Run(const StudySettings& settings) {
  StudyRecord record(settings);
  std::string error;
#ifdef BAL_STUDY_WITH_DEVICE
  std::unique_ptr<kernels::CudaContext> context;
  if (settings.gpu) {
    const kernels::Status status = kernels::CudaContext::Create({}, &context);
    if (!status.ok()) {
      record.Skip("GPU", status.message);
    }
  }
  if (!FLAGS_profile.empty()) {
    StudyProblem problem;
    if (context == nullptr) {
      std::fprintf(stderr, "bal_study: --profile needs a GPU.\n");
      return 2;
    }
    if (!Generate(settings.sizes.back(), settings, &problem, &error)) {
      std::fprintf(stderr, "bal_study: %s\n", error.c_str());
      return 1;
    }
    const kernels::Status status =
        RunForProfiler(problem, FLAGS_profile == "jacobians", context.get());
    if (!status.ok()) {
      std::fprintf(stderr, "bal_study: %s\n", status.message.c_str());
    }
    return status.ok() ? 0 : 2;
  }
  if (context != nullptr) {
    record.Check("GPU", StudyDevice(context.get(), &record));
  }
#else
  if (!FLAGS_profile.empty()) {
    std::fprintf(stderr, "bal_study: --profile needs a build with CUDA.\n");
    return 2;
  }
  if (settings.gpu) {
    record.Skip("GPU", "built without CUDA");
  }
#endif

  // All at once: 24 bytes per observation.
  std::vector<StudyProblem> problems;
  for (const std::string& name : settings.sizes) {
    if (record.out_of_time()) {
      record.Skip(name, "out of time");
      continue;
    }
    problems.emplace_back();
    if (!Generate(name, settings, &problems.back(), &error)) {
      std::fprintf(stderr, "bal_study: %s\n", error.c_str());
      return 1;
    }
    record.Size(problems.back());
  }
#ifdef BAL_STUDY_WITH_DEVICE
  if (context != nullptr) {
    if (const int code = MeasureOnDevice(problems, context.get(), &record)) {
      return code;
    }
  }
#endif
  if (settings.host) {
    if (const int code = MeasureOnHost(problems, &record)) {
      return code;
    }
  }
  if (const int code = Save(record)) {
    return code;
  }
  return record.num_failures() == 0 ? 0 : 2;
}

}  // namespace
}  // namespace ceres_ext::bal

int main(int argc, char** argv) {
  using namespace ceres_ext::bal;
  gflags::SetVersionString(CERES_EXT_VERSION);
  gflags::SetUsageMessage(kUsage);
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  StudySettings settings;
  settings.sizes = ceres_ext::SplitAtCommas(FLAGS_sizes);
  settings.seed = FLAGS_seed;
  settings.num_lm_iterations = FLAGS_lm;
  settings.num_pcg_iterations = FLAGS_pcg;
  settings.num_timed_pcg_iterations = FLAGS_timed_pcg;
  settings.num_repetitions = FLAGS_repetitions;
  settings.run_seconds = FLAGS_run_seconds;
  settings.host_run_seconds = FLAGS_host_run_seconds;
  settings.seconds = FLAGS_seconds;
  settings.eta = FLAGS_eta;
  settings.function_tolerance = FLAGS_function_tolerance;
  settings.residuals = FLAGS_residuals;
  settings.host = FLAGS_host;
  settings.gpu = FLAGS_gpu;
  settings.output = FLAGS_output;
  if (settings.sizes.empty() || FLAGS_lm < 1 || FLAGS_pcg < 1 ||
      FLAGS_timed_pcg < 1 || FLAGS_repetitions < 1) {
    std::fprintf(stderr,
                 "bal_study: expected at least one size, and --lm, --pcg, "
                 "--timed_pcg and --repetitions of at least 1\n");
    return 1;
  }
  if (!FLAGS_profile.empty() && FLAGS_profile != "all" &&
      FLAGS_profile != "jacobians") {
    std::fprintf(stderr,
                 "bal_study: --profile is 'all' or 'jacobians', not '%s'\n",
                 FLAGS_profile.c_str());
    return 1;
  }
  const std::vector<std::string> all_parts = settings.parts;
  settings.parts = ceres_ext::SplitAtCommas(FLAGS_parts);
  for (const std::string& part : settings.parts) {
    if (std::find(all_parts.begin(), all_parts.end(), part) ==
        all_parts.end()) {
      std::fprintf(
          stderr, "bal_study: --parts: there is no part '%s'\n", part.c_str());
      return 1;
    }
  }
  return Run(settings);
}
