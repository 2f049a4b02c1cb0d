// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/solve_folder.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <limits>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "ceres/loss_function.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/batch.h"
#include "examples/bal/adjuster_flags.h"
#include "examples/bal/bal_geometry.h"
#include "examples/bal/solver_flags.h"
#include "nlohmann/json.hpp"
#include "problem_io/bal_problem.h"
#include "problem_io/bal_reader.h"
#include "problem_io/bal_writer.h"
#include "problem_io/safe_file.h"
#include "problem_io/text_writer.h"

namespace ceres_ext::bal {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct File {
  fs::path path;
  BalProblem problem;
  Similarity frame;
};

// In the order of their names, without those that begin with a dot.
bool ListFiles(const std::string& folder,
               std::vector<fs::path>* files,
               std::string* error) {
  std::error_code code;
  for (fs::directory_iterator i(folder, code), end; !code && i != end;
       i.increment(code)) {
    if (i->is_regular_file(code) && i->path().filename().string()[0] != '.') {
      files->push_back(i->path());
    }
  }
  if (code) {
    *error = folder + ": cannot list the folder: " + code.message();
    return false;
  }
  std::sort(files->begin(), files->end());
  if (files->empty()) {
    *error = folder + ": expected files of BAL problems, found none";
  }
  return !files->empty();
}

// All problems end to end. The files' problems stay as they are.
class Batch {
 public:
  Batch(const SolveBalOptions& options, const std::vector<File>& files)
      : camera_size_(FLAGS_use_quaternions ? 10 : 9),
        huber_(1.0),
        num_problems_(static_cast<int64_t>(files.size())) {
    for (const File& file : files) {
      Append(file.problem);
    }
    ArrayProblem::Parameters cameras;
    cameras.values = cameras_.data();
    cameras.num_blocks = camera_begin_.back();
    cameras.size = camera_size_;
    cameras.manifold = options.use_manifolds ? &manifold_ : nullptr;
    ArrayProblem::Parameters points;
    points.values = points_.data();
    points.num_blocks = point_begin_.back();
    points.size = 3;
    const int c = batch_.problem.AddParameters(cameras);
    const int p = batch_.problem.AddParameters(points);
    const std::vector<ArrayProblem::Index> blocks = {{c, camera_index_.data()},
                                                     {p, point_index_.data()}};
    ceres::LossFunction* const loss = options.robustify ? &huber_ : nullptr;
    if (camera_size_ == 9) {
      batch_.problem.AddResiduals<BalReprojectionError>(
          row_begin_.back(), observations_.data(), blocks, loss);
    } else {
      batch_.problem.AddResiduals<BalQuaternionReprojectionError>(
          row_begin_.back(), observations_.data(), blocks, loss);
    }
    batch_.num_problems = num_problems_;
    batch_.parameter_begin = {camera_begin_.data(), point_begin_.data()};
    batch_.residual_begin = {row_begin_.data()};
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  ProblemBatch* batch() { return &batch_; }

  // The refined values of problem i.
  void CopyTo(size_t i, BalProblem* problem) const {
    std::copy_n(cameras_.begin() + camera_begin_[i] * camera_size_,
                problem->cameras.size(),
                problem->cameras.begin());
    std::copy_n(points_.begin() + point_begin_[i] * 3,
                problem->points.size(),
                problem->points.begin());
  }

 private:
  void Append(const BalProblem& problem) {
    const auto first_camera = static_cast<int32_t>(camera_begin_.back());
    const auto first_point = static_cast<int32_t>(point_begin_.back());
    for (const int32_t c : problem.camera_index) {
      camera_index_.push_back(first_camera + c);
    }
    for (const int32_t p : problem.point_index) {
      point_index_.push_back(first_point + p);
    }
    const auto append = [](const auto& from, std::vector<double>* to) {
      to->insert(to->end(), from.begin(), from.end());
    };
    append(problem.cameras, &cameras_);
    append(problem.points, &points_);
    append(problem.observations, &observations_);
    camera_begin_.push_back(camera_begin_.back() + problem.num_cameras());
    point_begin_.push_back(point_begin_.back() + problem.num_points());
    row_begin_.push_back(static_cast<int64_t>(camera_index_.size()));
  }

  const int camera_size_;
  ceres::HuberLoss huber_;
  BalCameraManifold manifold_;
  const int64_t num_problems_;
  std::vector<double> cameras_;
  std::vector<double> points_;
  std::vector<double> observations_;
  std::vector<int32_t> camera_index_;
  std::vector<int32_t> point_index_;
  std::vector<int64_t> camera_begin_{0};
  std::vector<int64_t> point_begin_{0};
  std::vector<int64_t> row_begin_{0};
  ProblemBatch batch_;
};

// Reads what can be read. False where a file can't be, or more points than 32
// bits can number are in all.
bool ReadFiles(const std::vector<fs::path>& paths, std::vector<File>* files) {
  bool are_all_read = true;
  int64_t num_points = 0;
  for (const fs::path& path : paths) {
    File file;
    file.path = path;
    std::string error;
    bool is_read = ReadBalFile(path.string(), &file.problem, &error);
    num_points += file.problem.num_points();
    if (is_read && num_points > std::numeric_limits<int32_t>::max()) {
      error = path.string() + ": a batch has at most 2^31 - 1 points in all";
      is_read = false;
    }
    if (!is_read) {
      Fail(EXIT_INPUT, error);
      are_all_read = false;
      continue;
    }
    file.frame = StartFromFlags(&file.problem);
    files->push_back(std::move(file));
  }
  return are_all_read;
}

void PrintProblem(const File& file, const ProblemSummary& summary) {
  std::cout << file.path.filename().string() << ": "
            << file.problem.num_cameras() << " cameras, "
            << file.problem.num_points() << " points, "
            << file.problem.num_observations() << " observations; "
            << ceres::TerminationTypeToString(summary.termination_type)
            << ", cost " << summary.initial_cost << " -> " << summary.final_cost
            << ", "
            << summary.num_successful_steps + summary.num_unsuccessful_steps
            << " steps; "
            << (summary.IsSolvedWhole() ? "window" : summary.path_reason)
            << "\n";
}

Json JsonOf(const File& file, const ProblemSummary& summary) {
  return {{"name", file.path.filename().string()},
          {"cameras", file.problem.num_cameras()},
          {"points", file.problem.num_points()},
          {"observations", file.problem.num_observations()},
          {"termination_type",
           ceres::TerminationTypeToString(summary.termination_type)},
          {"message", summary.message},
          {"initial_cost", summary.initial_cost},
          {"final_cost", summary.final_cost},
          {"successful_steps", summary.num_successful_steps},
          {"unsuccessful_steps", summary.num_unsuccessful_steps},
          {"latency_seconds", summary.latency_in_seconds},
          {"window", summary.IsSolvedWhole()},
          {"path_reason", summary.path_reason}};
}

std::string ReportJson(const std::vector<File>& files,
                       const BatchSummary& summary) {
  Json problems = Json::array();
  for (size_t i = 0; i < files.size(); ++i) {
    problems.push_back(JsonOf(files[i], summary.problems[i]));
  }
  const Json report = {{"device", summary.device},
                       {"windows", summary.num_windows},
                       {"total_seconds", summary.total_time_in_seconds},
                       {"pack_seconds", summary.pack_time_in_seconds},
                       {"window_seconds", summary.window_time_in_seconds},
                       {"other_seconds", summary.other_time_in_seconds},
                       {"problems_per_second", summary.problems_per_second()},
                       {"latency_p50_seconds", summary.LatencyPercentile(50.0)},
                       {"latency_p99_seconds", summary.LatencyPercentile(99.0)},
                       {"problems", problems}};
  return report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
         "\n";
}

}  // namespace

ExitCode SolveFolder() {
  SolveBalOptions options;
  std::string error;
  if (!SolveOptionsFromFlags(&options, &error)) {
    return Fail(EXIT_USAGE, error);
  }
  options.solver_options.minimizer_progress_to_stdout = false;
  if (!CanWrite(FLAGS_report_json, &error)) {
    return Fail(EXIT_OUTPUT, error);
  }
  std::vector<fs::path> paths;
  if (!ListFiles(FLAGS_batch, &paths, &error)) {
    return Fail(EXIT_INPUT, error);
  }
  if (!FLAGS_output.empty()) {
    std::error_code code;
    fs::create_directories(FLAGS_output, code);
    if (!fs::is_directory(FLAGS_output)) {
      return Fail(EXIT_OUTPUT, FLAGS_output + ": expected a folder");
    }
  }
  std::vector<File> files;
  ExitCode code = ReadFiles(paths, &files) ? EXIT_USABLE_SOLUTION : EXIT_INPUT;
  const auto fail = [&code](ExitCode of_one, const std::string& sentence) {
    Fail(of_one, sentence);
    code = code == EXIT_USABLE_SOLUTION ? of_one : code;
  };
  Batch batch(options, files);
  BatchSummary summary;
  if (!SolveBatch(options.solver_options,
                  options.ext_options,
                  batch.batch(),
                  &summary,
                  &error)) {
    return Fail(EXIT_SOLVE_FAILED, "the batch failed: " + error);
  }
  for (size_t i = 0; i < files.size(); ++i) {
    File& file = files[i];
    const ProblemSummary& of_one = summary.problems[i];
    PrintProblem(file, of_one);
    if (!of_one.IsSolutionUsable()) {
      fail(EXIT_SOLVE_FAILED,
           file.path.string() + ": the solve failed: " + of_one.message);
      continue;
    }
    if (!FLAGS_output.empty()) {
      batch.CopyTo(i, &file.problem);
      Undo(file.frame, &file.problem);
      ToAngleAxes(&file.problem);
      const fs::path to = fs::path(FLAGS_output) / file.path.filename();
      if (!WriteBalFile(to.string(), file.problem, &error)) {
        fail(EXIT_OUTPUT, error);
      }
    }
  }
  std::cout << summary.BriefReport() << std::endl;
  if (!FLAGS_report_json.empty() &&
      !WriteTextFile(FLAGS_report_json, ReportJson(files, summary), &error)) {
    fail(EXIT_OUTPUT, error);
  }
  if (!FlushStandardOutput(&error)) {
    fail(EXIT_OUTPUT, error);
  }
  return code;
}

}  // namespace ceres_ext::bal
