// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// stock_comparison BAL_FILE NUM_THREADS
//
// Solves a BAL problem in many configurations and prints, per configuration,
// all numbers of all iterations and the parameters, as hexadecimal floating
// point. Knows nothing of the patches: it is compiled against stock Ceres, run
// with stock and with patched libceres.so.4, and must print the same.
//
// With more than one thread Ceres adds the costs of residual blocks in the
// order in which threads finish, so no two runs print the same. Then this
// prints, per configuration, only the initial cost in decimal, which
// differs by rounding alone.

#include <cinttypes>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ceres/ceres.h"
#include "ceres/rotation.h"
#include "ceres_ext/base/ceres_version.h"

namespace {

using Options = ceres::Solver::Options;

struct Reprojection {
  template <typename T>
  bool operator()(const T* camera, const T* point, T* residuals) const {
    T p[3];
    ceres::AngleAxisRotatePoint(camera, point, p);
    const T x = -(p[0] + camera[3]) / (p[2] + camera[5]);
    const T y = -(p[1] + camera[4]) / (p[2] + camera[5]);
    const T r2 = x * x + y * y;
    const T scale = camera[6] * (1.0 + r2 * (camera[7] + r2 * camera[8]));
    residuals[0] = scale * x - u;
    residuals[1] = scale * y - v;
    return true;
  }
  double u;
  double v;
};

struct Bal {
  int num_cameras = 0;
  int num_points = 0;
  std::vector<int> camera_id;
  std::vector<int> point_id;
  std::vector<double> observations;
  std::vector<double> cameras;
  std::vector<double> points;
};

bool ReadBal(const char* path, Bal* bal) {
  FILE* file = std::fopen(path, "r");
  if (file == nullptr) {
    return false;
  }
  int num_observations = 0;
  bool ok = std::fscanf(file,
                        "%d %d %d",
                        &bal->num_cameras,
                        &bal->num_points,
                        &num_observations) == 3;
  for (int i = 0; ok && i < num_observations; ++i) {
    int camera;
    int point;
    double u;
    double v;
    ok = std::fscanf(file, "%d %d %lf %lf", &camera, &point, &u, &v) == 4;
    bal->camera_id.push_back(camera);
    bal->point_id.push_back(point);
    bal->observations.push_back(u);
    bal->observations.push_back(v);
  }
  bal->cameras.resize(9 * bal->num_cameras);
  bal->points.resize(3 * bal->num_points);
  for (std::vector<double>* values : {&bal->cameras, &bal->points}) {
    for (double& x : *values) {
      ok = ok && std::fscanf(file, "%lf", &x) == 1;
    }
  }
  std::fclose(file);
  return ok;
}

// The part of the problem with the first num_points points.
Bal FirstPoints(const Bal& bal, int num_points) {
  Bal part = bal;
  part.num_points = num_points;
  part.points.resize(3 * num_points);
  part.camera_id.clear();
  part.point_id.clear();
  part.observations.clear();
  for (size_t i = 0; i < bal.point_id.size(); ++i) {
    if (bal.point_id[i] < num_points) {
      part.camera_id.push_back(bal.camera_id[i]);
      part.point_id.push_back(bal.point_id[i]);
      part.observations.push_back(bal.observations[2 * i]);
      part.observations.push_back(bal.observations[2 * i + 1]);
    }
  }
  return part;
}

uint64_t Hash(const std::vector<double>& values) {
  uint64_t hash = 14695981039346656037u;
  for (double value : values) {
    uint64_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    hash = (hash ^ bits) * 1099511628211u;
  }
  return hash;
}

// Sees the state that callbacks see.
class StateHash final : public ceres::IterationCallback {
 public:
  explicit StateHash(const Bal* bal) : bal_(bal) {}
  ceres::CallbackReturnType operator()(
      const ceres::IterationSummary& summary) override {
    std::printf(
        "  state %d %016" PRIx64 "\n", summary.iteration, Hash(bal_->points));
    return ceres::SOLVER_CONTINUE;
  }

 private:
  const Bal* bal_;
};

struct Configuration {
  std::string name;
  std::function<void(Options*)> set;
  bool huber = false;
  bool bounds = false;
  bool fixed_intrinsics = false;
  bool with_ordering = true;
};

void Run(const Configuration& configuration,
         const char* problem_name,
         Bal bal,
         int num_threads) {
  ceres::Problem problem;
  for (size_t i = 0; i < bal.camera_id.size(); ++i) {
    problem.AddResidualBlock(
        new ceres::AutoDiffCostFunction<Reprojection, 2, 9, 3>(new Reprojection{
            bal.observations[2 * i], bal.observations[2 * i + 1]}),
        configuration.huber ? new ceres::HuberLoss(1.0) : nullptr,
        &bal.cameras[9 * bal.camera_id[i]],
        &bal.points[3 * bal.point_id[i]]);
  }
  for (int c = 0; c < bal.num_cameras; ++c) {
    double* camera = &bal.cameras[9 * c];
    if (configuration.fixed_intrinsics) {
      problem.SetManifold(
          camera, new ceres::SubsetManifold(9, std::vector<int>{6, 7, 8}));
    }
    if (configuration.bounds) {
      problem.SetParameterLowerBound(camera, 6, camera[6] - 1.0);
      problem.SetParameterUpperBound(camera, 6, camera[6] + 1.0);
    }
  }

  Options options;
  options.num_threads = num_threads;
  options.max_num_iterations = 6;
  options.logging_type = ceres::SILENT;
  if (configuration.with_ordering) {
    options.linear_solver_ordering =
        std::make_shared<ceres::ParameterBlockOrdering>();
    for (int p = 0; p < bal.num_points; ++p) {
      options.linear_solver_ordering->AddElementToGroup(&bal.points[3 * p], 0);
    }
    for (int c = 0; c < bal.num_cameras; ++c) {
      options.linear_solver_ordering->AddElementToGroup(&bal.cameras[9 * c], 1);
    }
  }
  configuration.set(&options);
  StateHash state_hash(&bal);
  if (options.update_state_every_iteration && num_threads == 1) {
    options.callbacks.push_back(&state_hash);
  }

  ceres::Solver::Summary summary;
  if (num_threads == 1) {
    std::printf("%s %s\n", problem_name, configuration.name.c_str());
  }
  ceres::Solve(options, &problem, &summary);
  if (num_threads > 1) {
    std::printf("%s %s %.17g %zu\n",
                problem_name,
                configuration.name.c_str(),
                summary.initial_cost,
                bal.camera_id.size());
    return;
  }
  for (const ceres::IterationSummary& it : summary.iterations) {
    std::printf("  %d %d%d%d %a %a %a %a %a %a %a %a %d %a %d\n",
                it.iteration,
                it.step_is_valid,
                it.step_is_nonmonotonic,
                it.step_is_successful,
                it.cost,
                it.cost_change,
                it.gradient_max_norm,
                it.gradient_norm,
                it.step_norm,
                it.relative_decrease,
                it.trust_region_radius,
                it.eta,
                it.linear_solver_iterations,
                it.step_size,
                it.line_search_iterations);
  }
  std::printf("  %s; %s -> %s; %s; %a %a; %d %d %d; %s %s\n",
              ceres::TerminationTypeToString(summary.termination_type),
              ceres::LinearSolverTypeToString(summary.linear_solver_type_given),
              ceres::LinearSolverTypeToString(summary.linear_solver_type_used),
              summary.message.c_str(),
              summary.initial_cost,
              summary.final_cost,
              summary.num_linear_solves,
              summary.num_inner_iteration_steps,
              summary.num_line_search_steps,
              summary.schur_structure_given.c_str(),
              summary.schur_structure_used.c_str());
  std::printf("  cameras %016" PRIx64 " points %016" PRIx64 "\n",
              Hash(bal.cameras),
              Hash(bal.points));
}

std::function<void(Options*)> LinearSolver(
    ceres::LinearSolverType type,
    ceres::PreconditionerType preconditioner = ceres::JACOBI,
    ceres::SparseLinearAlgebraLibraryType library = ceres::SUITE_SPARSE) {
  return [=](Options* options) {
    options->linear_solver_type = type;
    options->preconditioner_type = preconditioner;
    options->sparse_linear_algebra_library_type = library;
  };
}

std::function<void(Options*)> DenseSchurAnd(
    const std::function<void(Options*)>& set) {
  return [=](Options* options) {
    options->linear_solver_type = ceres::DENSE_SCHUR;
    set(options);
  };
}

std::vector<Configuration> LargeConfigurations() {
  return {
      {"ITERATIVE_SCHUR SCHUR_JACOBI",
       LinearSolver(ceres::ITERATIVE_SCHUR, ceres::SCHUR_JACOBI)},
      {"ITERATIVE_SCHUR JACOBI", LinearSolver(ceres::ITERATIVE_SCHUR)},
      {"CGNR JACOBI", LinearSolver(ceres::CGNR)},
      {"DENSE_SCHUR", LinearSolver(ceres::DENSE_SCHUR)},
      {"SPARSE_SCHUR SUITE_SPARSE", LinearSolver(ceres::SPARSE_SCHUR)},
      {"SPARSE_SCHUR EIGEN_SPARSE",
       LinearSolver(ceres::SPARSE_SCHUR, ceres::JACOBI, ceres::EIGEN_SPARSE)},
      {"DENSE_SCHUR TRADITIONAL_DOGLEG", DenseSchurAnd([](Options* options) {
         options->trust_region_strategy_type = ceres::DOGLEG;
         options->dogleg_type = ceres::TRADITIONAL_DOGLEG;
       })},
      {"DENSE_SCHUR SUBSPACE_DOGLEG", DenseSchurAnd([](Options* options) {
         options->trust_region_strategy_type = ceres::DOGLEG;
         options->dogleg_type = ceres::SUBSPACE_DOGLEG;
       })},
  };
}

std::vector<Configuration> SmallConfigurations() {
  std::vector<Configuration> configurations = {
      {"DENSE_QR", LinearSolver(ceres::DENSE_QR)},
      {"DENSE_NORMAL_CHOLESKY", LinearSolver(ceres::DENSE_NORMAL_CHOLESKY)},
      {"SPARSE_NORMAL_CHOLESKY", LinearSolver(ceres::SPARSE_NORMAL_CHOLESKY)},
      {"SPARSE_NORMAL_CHOLESKY dynamic",
       [](Options* options) {
         options->linear_solver_type = ceres::SPARSE_NORMAL_CHOLESKY;
         options->dynamic_sparsity = true;
       }},
      {"ITERATIVE_SCHUR CLUSTER_JACOBI",
       LinearSolver(ceres::ITERATIVE_SCHUR, ceres::CLUSTER_JACOBI)},
      {"ITERATIVE_SCHUR SCHUR_POWER_SERIES_EXPANSION",
       LinearSolver(ceres::ITERATIVE_SCHUR,
                    ceres::SCHUR_POWER_SERIES_EXPANSION)},
      {"nonmonotonic", DenseSchurAnd([](Options* options) {
         options->use_nonmonotonic_steps = true;
         options->initial_trust_region_radius = 1e16;
         options->max_num_iterations = 20;
       })},
      {"rejected steps", DenseSchurAnd([](Options* options) {
         options->initial_trust_region_radius = 1e16;
         options->min_relative_decrease = 0.9;
         options->max_num_iterations = 20;
       })},
      {"inner iterations", DenseSchurAnd([](Options* options) {
         options->use_inner_iterations = true;
       })},
      {"no Jacobi scaling", DenseSchurAnd([](Options* options) {
         options->jacobi_scaling = false;
       })},
      {"mixed precision", DenseSchurAnd([](Options* options) {
         options->use_mixed_precision_solves = true;
         options->max_num_refinement_iterations = 3;
       })},
      {"state updating", DenseSchurAnd([](Options* options) {
         options->update_state_every_iteration = true;
       })},
      {"line search LBFGS",
       [](Options* options) {
         options->minimizer_type = ceres::LINE_SEARCH;
         options->max_num_iterations = 20;
       }},
  };
  const auto dense_schur = LinearSolver(ceres::DENSE_SCHUR);
  Configuration huber{"Huber", dense_schur};
  huber.huber = true;
  configurations.push_back(huber);
  Configuration bounds{"bounds", dense_schur};
  bounds.bounds = true;
  configurations.push_back(bounds);
  Configuration fixed_intrinsics{"fixed intrinsics", dense_schur};
  fixed_intrinsics.fixed_intrinsics = true;
  configurations.push_back(fixed_intrinsics);
  Configuration automatic{"automatic ordering", dense_schur};
  automatic.with_ordering = false;
  configurations.push_back(automatic);
  return configurations;
}

}  // namespace

int main(int argc, char** argv) {
  ceres_ext::StartLogging(argv[0]);
  Bal bal;
  const int num_threads = argc == 3 ? std::atoi(argv[2]) : 0;
  if (num_threads < 1 || !ReadBal(argv[1], &bal)) {
    std::fprintf(stderr, "expected a BAL file and a number of threads\n");
    return 1;
  }
  for (const Configuration& configuration : LargeConfigurations()) {
    Run(configuration, "all", bal, num_threads);
  }
  const Bal part = FirstPoints(bal, 120);
  for (const Configuration& configuration : SmallConfigurations()) {
    Run(configuration, "part", part, num_threads);
  }
  return 0;
}
