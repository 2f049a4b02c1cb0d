// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "studies/study_record.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <thread>

#include "cuda_kernels/model/bal_model.h"

namespace ceres_ext::bal {
namespace {

std::string Now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc;
  char text[32];
  gmtime_r(&now, &utc);
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) {
      const size_t colon = line.find(':');
      return colon + 2 < line.size() ? line.substr(colon + 2) : "";
    }
  }
  return "";
}

// The instruction set of the host's code.
std::string HostInstructions() {
#if defined(__AVX512F__) && defined(__AVX512VL__)
  return "x86-64-v4";
#elif defined(__AVX2__) && defined(__FMA__)
  return "x86-64-v3";
#else
  return "the compiler's default";
#endif
}

const char* EndName(StudyEnd end) {
  switch (end) {
    case StudyEnd::kIterations:
      return "iterations";
    case StudyEnd::kFunctionTolerance:
      return "function tolerance";
    case StudyEnd::kTime:
      return "time";
  }
  return "";
}

Json ToJson(const OperationCounts& counts) {
  return {{"multiplications", counts.multiplications},
          {"additions", counts.additions},
          {"loads", counts.loads}};
}

// Counts one call of fn, which reads `loads` values of the matrix.
template <typename Function>
OperationCounts Count(int64_t loads, Function&& fn) {
  CountingScalar::counts() = OperationCounts();
  fn();
  OperationCounts counts = CountingScalar::counts();
  counts.loads = loads;
  return counts;
}

}  // namespace

StudyRecord::StudyRecord(const StudySettings& settings)
    : settings_(settings), begin_(std::chrono::steady_clock::now()) {
  json_["format"] = "ceres_ext_study";
  json_["format_version"] = 1;
  json_["date"] = Now();
  json_["machine"] = {
      {"cpu", CpuName()},
      {"hardware_threads", std::thread::hardware_concurrency()}};
  json_["settings"] = {
      {"sizes", settings.sizes},
      {"seed", settings.seed},
      {"shuffle_points", true},
      {"num_lm_iterations", settings.num_lm_iterations},
      {"num_pcg_iterations", settings.num_pcg_iterations},
      {"eta", settings.eta},
      {"function_tolerance", settings.function_tolerance},
      {"num_timed_pcg_iterations", settings.num_timed_pcg_iterations},
      {"num_repetitions", settings.num_repetitions},
      {"run_seconds", settings.run_seconds},
      {"host_run_seconds", settings.host_run_seconds},
      {"seconds", settings.seconds},
      {"host_threads", 1},
      {"host_instructions", HostInstructions()},
      {"parts", settings.parts}};
  json_["operations"] = OperationTable();
  json_["sizes"] = Json::array();
  json_["skipped"] = Json::array();
}

Json& StudyRecord::Size(const StudyProblem& problem) {
  for (Json& size : json_["sizes"]) {
    if (size["name"] == problem.name) {
      return size;
    }
  }
  json_["sizes"].push_back(
      {{"name", problem.name},
       {"num_cameras", problem.bal.num_cameras()},
       {"num_points", problem.bal.num_points()},
       {"num_observations", problem.bal.num_observations()},
       {"runs", Json::array()},
       {"iterations", Json::array()},
       {"kernels", Json::array()}});
  return json_["sizes"].back();
}

double StudyRecord::elapsed_seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                       begin_)
      .count();
}

bool StudyRecord::Wants(const std::string& part) const {
  return std::find(settings_.parts.begin(), settings_.parts.end(), part) !=
         settings_.parts.end();
}

StudyOptions StudyRecord::WholeRun(const Configuration& configuration,
                                   double max_seconds) const {
  StudyOptions options = MakeStudyOptions(
      configuration, settings_.num_lm_iterations, settings_.num_pcg_iterations);
  options.r_tolerance = settings_.eta;
  options.function_tolerance = settings_.function_tolerance;
  options.max_seconds =
      std::min(max_seconds, settings_.seconds - elapsed_seconds());
  return options;
}

void StudyRecord::Skip(const std::string& what, const std::string& why) {
  std::printf("  not measured: %s (%s)\n", what.c_str(), why.c_str());
  json_["skipped"].push_back({{"what", what}, {"why", why}});
}

void StudyRecord::Check(const std::string& what,
                        const kernels::Status& status) {
  if (status.ok()) {
    return;
  }
  Skip(what, status.message);
  if (status.code != kernels::StatusCode::kUnsupported) {
    std::fprintf(
        stderr, "bal_study: %s: %s\n", what.c_str(), status.message.c_str());
    ++num_failures_;
  }
}

bool StudyRecord::Save(std::string* error) const {
  std::fflush(stdout);
  if (settings_.output.empty()) {
    return true;
  }
  Json json = json_;
  json["elapsed_seconds"] = elapsed_seconds();
  const std::string part = settings_.output + ".part";
  std::ofstream file(part);
  file << json.dump(1) << "\n";
  file.close();
  if (!file || std::rename(part.c_str(), settings_.output.c_str()) != 0) {
    *error = "Can't write " + settings_.output + ".";
    return false;
  }
  return true;
}

const std::vector<Configuration>& FourConfigurations() {
  static const auto* const kConfigurations = new std::vector<Configuration>{
      {false, false}, {false, true}, {true, false}, {true, true}};
  return *kConfigurations;
}

std::string ConfigurationName(const Configuration& configuration) {
  return std::string(configuration.use_schur ? "Schur" : "no Schur") +
         (configuration.explicit_w ? ", explicit W" : ", implicit W");
}

std::string ResidualsFile(const StudySettings& settings,
                          const StudyProblem& problem,
                          const Configuration& configuration) {
  if (settings.residuals.empty() ||
      problem.bal.num_observations() > kMostKeptObservations) {
    return "";
  }
  return settings.residuals + "/" + problem.name +
         (configuration.use_schur ? "_schur" : "_normal") +
         (configuration.explicit_w ? "_explicit" : "_implicit");
}

StudyOptions MakeStudyOptions(const Configuration& configuration,
                              int num_lm_iterations,
                              int num_pcg_iterations) {
  StudyOptions options;
  options.solver.use_schur = configuration.use_schur;
  options.explicit_w = configuration.explicit_w;
  options.solver.preconditioner = solver::PreconditionerType::kJacobi;
  options.solver.max_num_iterations = num_pcg_iterations;
  options.num_lm_iterations = num_lm_iterations;
  return options;
}

Json RunRow(const std::string& variant,
            const std::string& jacobian,
            const Configuration& configuration,
            const StudyOptions& options,
            const StudyResult& result) {
  std::printf(
      "  %-21s %-18s %-22s %2d x %3d  %10.4f s  LM %2d  PCG %6lld  cost %.9e  "
      "%s\n",
      variant.c_str(),
      jacobian.c_str(),
      ConfigurationName(configuration).c_str(),
      options.num_lm_iterations,
      options.solver.max_num_iterations,
      result.total_seconds,
      result.num_lm_iterations,
      static_cast<long long>(result.num_pcg_iterations),
      result.final_cost,
      EndName(result.end));
  std::fflush(stdout);
  Json row = {{"variant", variant},
              {"jacobian", jacobian},
              {"use_schur", configuration.use_schur},
              {"explicit_w", configuration.explicit_w},
              {"max_lm_iterations", options.num_lm_iterations},
              {"max_pcg_iterations", options.solver.max_num_iterations},
              {"total_seconds", Rounded(result.total_seconds)},
              {"initial_cost", result.initial_cost},
              {"final_cost", result.final_cost},
              {"num_lm_iterations", result.num_lm_iterations},
              {"num_accepted", result.num_accepted},
              {"num_pcg_iterations", result.num_pcg_iterations}};
  if (options.r_tolerance >= 0.0) {
    row["eta"] = options.r_tolerance;
    row["end"] = EndName(result.end);
    row["lm_seconds"] = Json::array();
    for (const double seconds : result.lm_seconds) {
      row["lm_seconds"].push_back(Rounded(seconds));
    }
    row["lm_pcg_iterations"] = result.lm_pcg_iterations;
  }
  return row;
}

Json OperationTable() {
  constexpr int C = 9;
  using T = CountingScalar;
  T jc[2 * C];
  T jp[6];
  T w[3 * C];
  T camera[C];
  T point[3];
  for (int i = 0; i < 2 * C; ++i) {
    jc[i] = 0.5 + i;
    jp[i % 6] = 0.25 * i;
    camera[i % C] = 1.0 + i;
    point[i % 3] = 2.0 - i;
  }
  Json table;
  const auto add = [&](const char* name, const OperationCounts& counted) {
    table.push_back({{"product", name}, {"counted", ToJson(counted)}});
  };
  add("explicit, W e",
      Count(3 * C, [&] { MultiplyExplicitToCamera<C>(w, point, camera); }));
  add("explicit, W' z",
      Count(3 * C, [&] { MultiplyExplicitToPoint<C>(w, camera, point); }));
  add("implicit, W e", Count(2 * (C + 3), [&] {
        MultiplyImplicit<3, C>(jp, point, jc, camera);
      }));
  add("implicit, W' z", Count(2 * (C + 3), [&] {
        MultiplyImplicit<C, 3>(jc, camera, jp, point);
      }));
  add("forming W", Count(2 * (C + 3), [&] { FormCoupling<C>(jc, jp, w); }));

  // Recomputed Jacobians: the code of bal_model.h itself, in the camera's local
  // coordinates.
  kernels::CameraState<T> state;
  for (int i = 0; i < 9; ++i) {
    state.R[i] = i % 4 == 0 ? 1.0 : 0.0;
  }
  state.t[0] = state.t[1] = 0.1;
  state.t[2] = -5.0;
  state.f = 500.0;
  state.k1 = state.k2 = 0.01;
  kernels::Projection<T> projection;
  T y[2];
  add("recomputed, projection",
      Count(0, [&] { projection = kernels::Project(state, point); }));
  add("recomputed, W e", Count(0, [&] {
        kernels::PointMultiply(state, projection, point, y);
        kernels::CameraTransposeMultiplyAndAccumulate(
            state, projection, y, camera);
      }));
  add("recomputed, W' z", Count(0, [&] {
        kernels::CameraMultiply(state, projection, camera, y);
        kernels::PointTransposeMultiplyAndAccumulate(
            state, projection, y, point);
      }));
  return table;
}

}  // namespace ceres_ext::bal
