// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Batches of problems of poses (photogrammetry.h) with constant intrinsics or
// their own, of which something is constant, left out or weighted, and priors
// on the poses, also marginal ones.
#ifndef CERES_EXT_TESTS_FRONT_POSE_CASES_H_
#define CERES_EXT_TESTS_FRONT_POSE_CASES_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <type_traits>
#include <vector>

#include "ceres/autodiff_cost_function.h"
#include "ceres/loss_function.h"
#include "ceres/manifold.h"
#include "ceres/problem.h"
#include "ceres/rotation.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/camera_models.h"
#include "ceres_ext/device_cost_function.h"
#include "ceres_ext/marginal_prior.h"
#include "ceres_ext/photogrammetry.h"

namespace ceres_ext {
inline namespace pose_cases {

// One pose of an angle axis and a translation, in the layout of a Rotation.
template <typename Rotation>
std::vector<double> PoseOf(const double* angle_axis,
                           const double* translation) {
  double q[4];
  ceres::AngleAxisToQuaternion(angle_axis, q);
  std::vector<double> pose(angle_axis, angle_axis + 3);
  if (std::is_same_v<Rotation, Quaternion>) {
    pose.assign(q, q + 4);
  } else if (std::is_same_v<Rotation, EigenQuaternion>) {
    pose = {q[1], q[2], q[3], q[0]};
  }
  pose.insert(pose.end(), translation, translation + 3);
  return pose;
}

template <typename Camera, typename Generator>
std::vector<double> SomeIntrinsics(Generator* generator) {
  std::uniform_real_distribution<double> uniform(-1.0, 1.0);
  std::vector<double> params;
  for (int i = 0; i < Camera::kNumFocalLengths; ++i) {
    params.push_back(500.0 + 20.0 * uniform(*generator));
  }
  params.push_back(320.0);
  params.push_back(240.0);
  for (int i = 0; i < Camera::kNumExtraParams; ++i) {
    params.push_back(0.02 * uniform(*generator));
  }
  if (Camera::kModelId == FovCamera::kModelId) {
    params[4] = 0.5;
  } else if (Camera::kModelId == EucmCamera::kModelId) {
    params[4] = 0.6;
    params[5] = 1.1;
  }
  return params;
}

// The cost functions of a camera model, without its type, so that few types of
// problems are compiled.
struct CameraOfCase {
  int num_params;
  std::vector<double> (*make_intrinsics)(std::mt19937* generator);
  // From an observation x, y.
  ceres::CostFunction* (*make_cost_function)(const void* observed);
  bool is_of_model;  // ArrayProblem::Residuals::constants_are_of_model
};

template <typename Rotation, typename Camera>
CameraOfCase CameraOf() {
  using Error = ReprojectionError<Camera, Rotation>;
  // Ceres's cost functions are compiled faster.
  constexpr bool kIsOfModel = std::is_same_v<Camera, OpenCvCamera>;
  using Cost =
      std::conditional_t<kIsOfModel,
                         CostFunctionFor<DeviceAutoDiffCostFunction, Error>,
                         CostFunctionFor<ceres::AutoDiffCostFunction, Error>>;
  return {
      Camera::kNumParams,
      [](std::mt19937* generator) { return SomeIntrinsics<Camera>(generator); },
      [](const void* observed) -> ceres::CostFunction* {
        return new Cost(new Error(*static_cast<const Error*>(observed)));
      },
      kIsOfModel};
}

// Intrinsics of a case: two blocks that the images share by chance, or a block
// for each pose, of which every fourth has the other camera.
enum class IntrinsicsOfCase { kShared, kOwn };

// Rows of two arrays, and priors of three. Cost functions belong to the case.
template <typename Rotation>
struct PoseCase {
  using OtherCamera = SimpleRadialFisheyeCamera;
  using OtherError = WeightedError<ReprojectionError<OtherCamera, Rotation>>;
  using OtherCost = CostFunctionFor<ceres::AutoDiffCostFunction, OtherError>;
  using Position = WhitenedError<PositionPrior<Rotation>>;
  using Pose = WhitenedError<PosePrior<Rotation>>;
  using Relative = WeightedError<RelativePosePrior<Rotation>>;
  static constexpr int kPose = Rotation::kSize + 3;
  static constexpr int kNumArrays = 5;
  static constexpr int kSides = 2;

  // Residual blocks of an array, in order.
  struct Array {
    std::vector<std::shared_ptr<ceres::CostFunction>> cost_functions;
    std::vector<int32_t> pose[kSides];
    std::vector<int32_t> point;
    std::vector<int32_t> params;
    std::vector<uint8_t> is_active;
    std::vector<double> weights;
    ceres::LossFunction* loss = nullptr;

    void Add(ceres::CostFunction* cost_function, int i, int j, int p, int k) {
      cost_functions.emplace_back(cost_function);
      pose[0].push_back(i);
      pose[1].push_back(j);
      point.push_back(p);
      params.push_back(k);
      is_active.push_back(1);
      weights.push_back(1.0);
    }
  };

  // A marginal prior.
  struct Marginal {
    std::vector<int32_t> poses;
    std::shared_ptr<ceres::CostFunction> cost_function;
    uint8_t is_active = 1;
    double weight = 1.0;
  };

  std::vector<double> poses;
  std::vector<double> points;
  CameraOfCase camera;
  std::vector<double> params;                   // of `camera`
  std::vector<double> other_params;             // of OtherCamera
  std::vector<double> observed;                 // of array 0
  std::vector<uint8_t> params_are_constant[2];  // of both
  ceres::Manifold* params_manifold[2] = {nullptr, nullptr};
  std::vector<uint8_t> pose_is_constant;
  std::vector<uint8_t> point_is_constant;
  Array arrays[kNumArrays];  // Cost, OtherCost, positions, poses, relative
  // By array, each with one number of poses and one of residuals.
  std::vector<std::vector<Marginal>> marginals;
  ceres::Manifold* manifold = nullptr;

  int num_poses() const { return static_cast<int>(poses.size()) / kPose; }
  int num_points() const { return static_cast<int>(points.size()) / 3; }

  PoseCase(int num_poses,
           int num_points,
           int views,
           unsigned seed,
           const CameraOfCase& camera_in = CameraOf<Rotation, OpenCvCamera>(),
           IntrinsicsOfCase intrinsics = IntrinsicsOfCase::kShared)
      : camera(camera_in) {
    const bool has_own = intrinsics == IntrinsicsOfCase::kOwn;
    std::mt19937 generator(seed);
    std::uniform_real_distribution<double> uniform(-1.0, 1.0);
    std::normal_distribution<double> normal;
    for (int i = 0; i < num_poses; ++i) {
      // On a ring of radius 4 around the points.
      const double angle_axis[3] = {0.1 * uniform(generator),
                                    6.28 * i / num_poses,
                                    0.1 * uniform(generator)};
      const double translation[3] = {0.1 * uniform(generator),
                                     0.1 * uniform(generator),
                                     4.0 + 0.2 * uniform(generator)};
      const std::vector<double> pose =
          PoseOf<Rotation>(angle_axis, translation);
      poses.insert(poses.end(), pose.begin(), pose.end());
    }
    for (int i = 0; i < 3 * num_points; ++i) {
      points.push_back(uniform(generator));
    }
    for (int k = 0; k < (has_own ? num_poses : 2); ++k) {
      const auto of_camera = camera.make_intrinsics(&generator);
      params.insert(params.end(), of_camera.begin(), of_camera.end());
      const auto of_other = SomeIntrinsics<OtherCamera>(&generator);
      other_params.insert(other_params.end(), of_other.begin(), of_other.end());
    }
    for (int j = 0; j < num_points; ++j) {
      const int first = static_cast<int>(generator() % num_poses);
      for (int v = 0; v < std::min(views, num_poses); ++v) {
        const int i = (first + v) % num_poses;
        if (has_own) {
          AddObservation(i, j, i, i % 4 != 3, &generator);
        } else {
          const int k = static_cast<int>(generator() % 2);
          AddObservation(i, j, k, generator() % 4 != 0, &generator);
        }
      }
    }
    AddPriors(&generator);
    for (double& value : points) {
      value += 0.05 * normal(generator);
    }
    for (int i = 0; i < num_poses; ++i) {
      for (int e = 0; e < 3; ++e) {
        poses[kPose * i + Rotation::kSize + e] += 0.02 * normal(generator);
      }
    }
    pose_is_constant.assign(num_poses, 0);
    point_is_constant.assign(num_points, 0);
    for (std::vector<uint8_t>& are_constant : params_are_constant) {
      are_constant.assign(has_own ? num_poses : 2, has_own ? 0 : 1);
    }
  }

  std::unique_ptr<ceres::Problem> MakeProblem(bool priors_first = false) {
    ceres::Problem::Options options;
    options.manifold_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
    options.cost_function_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
    auto problem = std::make_unique<ceres::Problem>(options);
    for (int e = 0; e < kNumArrays; ++e) {
      const int a = priors_first ? kNumArrays - 1 - e : e;
      const Array& array = arrays[a];
      for (size_t k = 0; k < array.cost_functions.size(); ++k) {
        if (array.is_active[k] == 0) {
          continue;
        }
        std::vector<double*> blocks;
        for (int b = 0; b < NumBlocks(a); ++b) {
          blocks.push_back(ValuesOf(a, b) + SizeOf(a, b) * IdsOf(a, b)[k]);
        }
        problem->AddResidualBlock(
            array.cost_functions[k].get(),
            new ceres::ScaledLoss(
                array.loss, array.weights[k], ceres::DO_NOT_TAKE_OWNERSHIP),
            blocks);
        if (a < 2 && params_are_constant[a][array.params[k]] != 0) {
          problem->SetParameterBlockConstant(blocks[2]);
        } else if (a < 2) {
          problem->SetManifold(blocks[2], params_manifold[a]);
        }
      }
    }
    for (const auto& array : marginals) {
      for (const Marginal& marginal : array) {
        std::vector<double*> blocks;
        for (const int32_t i : marginal.poses) {
          blocks.push_back(&poses[kPose * i]);
        }
        if (marginal.is_active != 0) {
          problem->AddResidualBlock(
              marginal.cost_function.get(),
              new ceres::ScaledLoss(
                  nullptr, marginal.weight, ceres::DO_NOT_TAKE_OWNERSHIP),
              blocks);
        }
      }
    }
    for (int i = 0; i < num_poses(); ++i) {
      double* const pose = &poses[kPose * i];
      if (problem->HasParameterBlock(pose)) {
        problem->SetManifold(pose, manifold);
        if (pose_is_constant[i] != 0) {
          problem->SetParameterBlockConstant(pose);
        }
      }
    }
    for (int i = 0; i < num_points(); ++i) {
      if (problem->HasParameterBlock(&points[3 * i]) &&
          point_is_constant[i] != 0) {
        problem->SetParameterBlockConstant(&points[3 * i]);
      }
    }
    return problem;
  }

  // Adds a marginal prior of any numbers, with references near the poses.
  void AddMarginal(size_t array,
                   const std::vector<int32_t>& of_poses,
                   int num_residuals,
                   unsigned seed) {
    std::mt19937 generator(seed);
    std::uniform_real_distribution<double> uniform(-1.0, 1.0);
    std::vector<double> references;
    for (const int32_t i : of_poses) {
      for (int e = 0; e < kPose; ++e) {
        references.push_back(poses[kPose * i + e] + 0.02 * uniform(generator));
      }
    }
    std::vector<double> a(6 * of_poses.size() * num_residuals);
    for (double& value : a) {
      value = 20.0 * uniform(generator);
    }
    std::vector<double> b(num_residuals);
    for (double& value : b) {
      value = 0.2 * uniform(generator);
    }
    marginals.resize(std::max(marginals.size(), array + 1));
    marginals[array].push_back(
        {of_poses,
         MarginalPrior<Rotation>::Create(static_cast<int>(of_poses.size()),
                                         references.data(),
                                         num_residuals,
                                         a.data(),
                                         b.data(),
                                         nullptr)});
  }

  // Parameter block b of a residual block of array a: points 0, poses 1 and 2,
  // params 3 and 4.
  static constexpr int NumBlocks(int a) { return a < 2 ? 3 : a == 4 ? 2 : 1; }
  static constexpr int RoleOf(int a, int b) {
    return a >= 2 ? 1 : b == 0 ? 0 : b == 1 ? 1 : 2 + a;
  }
  int SizeOf(int a, int b) const {
    const int sizes[] = {3, kPose, camera.num_params, OtherCamera::kNumParams};
    return sizes[RoleOf(a, b)];
  }
  double* ValuesOf(int a, int b) {
    std::vector<double>* const values[] = {
        &points, &poses, &params, &other_params};
    return values[RoleOf(a, b)]->data();
  }
  const std::vector<int32_t>& IdsOf(int a, int b) const {
    const Array& array = arrays[a];
    return a >= 2   ? array.pose[b]
           : b == 0 ? array.point
           : b == 1 ? array.pose[0]
                    : array.params;
  }

 private:
  template <typename Generator>
  void AddObservation(
      int i, int j, int k, bool is_first_array, Generator* generator) {
    std::normal_distribution<double> normal;
    const double* const pose = &poses[kPose * i];
    const double* const point = &points[3 * j];
    double pixel[2];
    if (is_first_array) {
      double error[2] = {0.0, 0.0};
      const std::unique_ptr<const ceres::CostFunction> projection(
          camera.make_cost_function(error));
      const double* const blocks[] = {
          point, pose, &params[camera.num_params * k]};
      projection->Evaluate(blocks, pixel, nullptr);
      for (int e = 0; e < 2; ++e) {
        error[e] = pixel[e] + normal(*generator);
        observed.push_back(error[e]);
      }
      arrays[0].Add(camera.make_cost_function(error), i, 0, j, k);
    } else {
      ReprojectionError<OtherCamera, Rotation> error{0.0, 0.0};
      error(point, pose, &other_params[OtherCamera::kNumParams * k], pixel);
      error.x = pixel[0] + normal(*generator);
      error.y = pixel[1] + normal(*generator);
      const double weight =
          0.5 + 0.25 * static_cast<double>((*generator)() % 4);
      arrays[1].Add(new OtherCost(new OtherError{{error}, weight}), i, 0, j, k);
    }
  }

  // Each pose has a measured position, every second one a measured pose, and
  // each is measured from the next one, some twice and from both sides.
  template <typename Generator>
  void AddPriors(Generator* generator) {
    std::normal_distribution<double> normal;
    const int n = num_poses();
    const auto near = [&](const double* pose) {
      std::vector<double> measured(pose, pose + kPose);
      for (double& value : measured) {
        value += 0.01 * normal(*generator);
      }
      return measured;
    };
    for (int i = 0; i < n; ++i) {
      const double* const pose = &poses[kPose * i];
      Position position{};
      ProjectionCenter<Rotation>(
          pose, pose + Rotation::kSize, position.position);
      for (double& value : position.position) {
        value += 0.02 * normal(*generator);
      }
      SetMatrix(3, position.sqrt_information, generator);
      arrays[2].Add(new CostFunctionFor<ceres::AutoDiffCostFunction, Position>(
                        new Position(position)),
                    i,
                    0,
                    0,
                    0);
      if (i % 2 == 0) {
        Pose measured{PosePrior<Rotation>(near(pose).data()), {}};
        SetMatrix(6, measured.sqrt_information, generator);
        arrays[3].Add(new CostFunctionFor<ceres::AutoDiffCostFunction, Pose>(
                          new Pose(measured)),
                      i,
                      0,
                      0,
                      0);
      }
      const int j = (i + 1) % n;
      for (int twice = 0; i != j && twice < (i % 3 == 0 ? 2 : 1); ++twice) {
        AddRelative(twice == 0 ? i : j, twice == 0 ? j : i, near, generator);
      }
    }
  }

  template <typename Near, typename Generator>
  void AddRelative(int i, int j, const Near& near, Generator* generator) {
    // i_from_world * j_from_world^-1.
    double angle_axis[kSides][3];
    double matrix[kSides][9];
    const double* translation[kSides];
    const int ids[kSides] = {i, j};
    for (int s = 0; s < kSides; ++s) {
      const double* const pose = &poses[kPose * ids[s]];
      double q[4];
      Rotation::ToQuaternion(pose, q);
      ceres::QuaternionToAngleAxis(q, angle_axis[s]);
      ceres::AngleAxisToRotationMatrix(angle_axis[s], matrix[s]);
      translation[s] = pose + Rotation::kSize;
    }
    // Column-major: R_i R_j'.
    double product[9];
    double t[3];
    for (int r = 0; r < 3; ++r) {
      for (int c = 0; c < 3; ++c) {
        product[r + 3 * c] = 0.0;
        for (int e = 0; e < 3; ++e) {
          product[r + 3 * c] += matrix[0][r + 3 * e] * matrix[1][c + 3 * e];
        }
      }
    }
    for (int r = 0; r < 3; ++r) {
      t[r] = translation[0][r];
      for (int c = 0; c < 3; ++c) {
        t[r] -= product[r + 3 * c] * translation[1][c];
      }
    }
    double relative[3];
    ceres::RotationMatrixToAngleAxis(product, relative);
    const std::vector<double> measured =
        near(PoseOf<Rotation>(relative, t).data());
    arrays[4].Add(
        new CostFunctionFor<ceres::AutoDiffCostFunction, Relative>(
            new Relative{{RelativePosePrior<Rotation>(measured.data())},
                         20.0 + static_cast<double>((*generator)() % 8)}),
        i,
        j,
        0,
        0);
  }

  template <typename Generator>
  static void SetMatrix(int n, double* matrix, Generator* generator) {
    std::uniform_real_distribution<double> uniform(-1.0, 1.0);
    for (int r = 0; r < n; ++r) {
      for (int c = 0; c < n; ++c) {
        matrix[n * r + c] = (r == c ? 30.0 : 0.0) + 5.0 * uniform(*generator);
      }
    }
  }
};

// Cases end to end.
template <typename Case>
struct PoseBatch {
  static constexpr int kRoles = 4;
  ProblemBatch batch;
  std::vector<double> values[kRoles];
  std::vector<uint8_t> is_constant[kRoles];
  std::vector<int64_t> begin[kRoles];
  std::vector<ceres::Manifold*> manifolds[kRoles];  // but of points
  struct Array {
    std::vector<int32_t> ids[3];
    std::vector<double> observed;
    std::vector<double> weights;
    std::vector<uint8_t> is_active;
    std::vector<ceres::CostFunction*> cost_functions;
    std::vector<int64_t> begin{0};
  };
  Array arrays[Case::kNumArrays];
  struct MarginalArray {
    std::vector<std::vector<int32_t>> ids;
    std::vector<double> weights;
    std::vector<uint8_t> is_active;
    std::vector<ceres::CostFunction*> cost_functions;
    std::vector<int64_t> begin{0};
  };
  std::vector<MarginalArray> marginals;

  // The cases outlive the batch.
  explicit PoseBatch(std::vector<Case>* cases) {
    const Case& first = (*cases)[0];
    const int sizes[kRoles] = {
        3, Case::kPose, first.SizeOf(0, 2), first.SizeOf(1, 2)};
    for (auto& of_role : begin) {
      of_role.push_back(0);
    }
    for (Case& one : *cases) {
      const std::vector<double>* const from[kRoles] = {
          &one.points, &one.poses, &one.params, &one.other_params};
      for (int a = 0; a < Case::kNumArrays; ++a) {
        Append(one, a);
      }
      for (int r = 0; r < kRoles; ++r) {
        values[r].insert(values[r].end(), from[r]->begin(), from[r]->end());
        begin[r].push_back(static_cast<int64_t>(values[r].size()) / sizes[r]);
        is_constant[r].resize(begin[r].back());
        manifolds[r].resize(begin[r].back(),
                            r == 1   ? one.manifold
                            : r >= 2 ? one.params_manifold[r - 2]
                                     : nullptr);
      }
      for (int a = 0; a < 2; ++a) {
        std::copy(one.params_are_constant[a].begin(),
                  one.params_are_constant[a].end(),
                  is_constant[2 + a].end() -
                      static_cast<int64_t>(one.params_are_constant[a].size()));
      }
      std::copy(one.point_is_constant.begin(),
                one.point_is_constant.end(),
                is_constant[0].end() - one.num_points());
      std::copy(one.pose_is_constant.begin(),
                one.pose_is_constant.end(),
                is_constant[1].end() - one.num_poses());
    }
    for (int r = 0; r < kRoles; ++r) {
      ArrayProblem::Parameters parameters;
      parameters.values = values[r].data();
      parameters.num_blocks = begin[r].back();
      parameters.size = sizes[r];
      parameters.is_constant = is_constant[r].data();
      parameters.manifolds = r >= 1 ? manifolds[r].data() : nullptr;
      batch.problem.AddParameters(parameters);
      batch.parameter_begin.push_back(begin[r].data());
    }
    for (int a = 0; a < Case::kNumArrays; ++a) {
      Array& array = arrays[a];
      std::vector<ArrayProblem::Index> blocks;
      for (int b = 0; b < Case::NumBlocks(a); ++b) {
        blocks.push_back({Case::RoleOf(a, b), array.ids[b].data()});
      }
      ArrayProblem::Residuals residuals;
      residuals.num_blocks = array.begin.back();
      residuals.blocks = blocks;
      residuals.loss = first.arrays[a].loss;
      residuals.weights = array.weights.data();
      if (a == 0) {
        residuals.constants = array.observed.data();
        residuals.constants_bytes = 2 * sizeof(double);
        residuals.make_cost_function = first.camera.make_cost_function;
        residuals.constants_are_of_model = first.camera.is_of_model;
      } else {
        residuals.cost_functions = array.cost_functions.data();
      }
      batch.problem.AddResiduals(residuals);
      batch.residual_begin.push_back(array.begin.data());
      batch.residual_is_active.push_back(array.is_active.data());
    }
    AddMarginals(*cases);
    batch.num_problems = static_cast<int64_t>(cases->size());
  }
  PoseBatch(const PoseBatch&) = delete;
  PoseBatch& operator=(const PoseBatch&) = delete;

  // Writes the values of problem i to a case.
  void CopyTo(int i, Case* one) const {
    one->points.assign(values[0].begin() + 3 * begin[0][i],
                       values[0].begin() + 3 * begin[0][i + 1]);
    one->poses.assign(values[1].begin() + Case::kPose * begin[1][i],
                      values[1].begin() + Case::kPose * begin[1][i + 1]);
    std::vector<double>* const params[] = {&one->params, &one->other_params};
    for (int a = 0; a < 2; ++a) {
      const int64_t size = one->SizeOf(a, 2);
      params[a]->assign(values[2 + a].begin() + size * begin[2 + a][i],
                        values[2 + a].begin() + size * begin[2 + a][i + 1]);
    }
  }

 private:
  void AddMarginals(const std::vector<Case>& cases) {
    for (const Case& one : cases) {
      marginals.resize(std::max(marginals.size(), one.marginals.size()));
    }
    for (size_t a = 0; a < marginals.size(); ++a) {
      MarginalArray& array = marginals[a];
      for (size_t i = 0; i < cases.size(); ++i) {
        if (a < cases[i].marginals.size()) {
          for (const typename Case::Marginal& one : cases[i].marginals[a]) {
            array.ids.resize(one.poses.size());
            for (size_t s = 0; s < one.poses.size(); ++s) {
              array.ids[s].push_back(
                  static_cast<int32_t>(begin[1][i] + one.poses[s]));
            }
            array.weights.push_back(one.weight);
            array.is_active.push_back(one.is_active);
            array.cost_functions.push_back(one.cost_function.get());
          }
        }
        array.begin.push_back(static_cast<int64_t>(array.weights.size()));
      }
      if (array.weights.empty()) {
        continue;
      }
      ArrayProblem::Residuals residuals;
      residuals.num_blocks = array.begin.back();
      for (const std::vector<int32_t>& ids : array.ids) {
        residuals.blocks.push_back({1, ids.data()});
      }
      residuals.weights = array.weights.data();
      residuals.cost_functions = array.cost_functions.data();
      batch.problem.AddResiduals(residuals);
      batch.residual_begin.push_back(array.begin.data());
      batch.residual_is_active.push_back(array.is_active.data());
    }
  }

  void Append(const Case& one, int a) {
    const typename Case::Array& from = one.arrays[a];
    Array& to = arrays[a];
    for (size_t k = 0; k < from.cost_functions.size(); ++k) {
      for (int b = 0; b < Case::NumBlocks(a); ++b) {
        to.ids[b].push_back(static_cast<int32_t>(
            begin[Case::RoleOf(a, b)].back() + one.IdsOf(a, b)[k]));
      }
      to.cost_functions.push_back(from.cost_functions[k].get());
    }
    to.weights.insert(
        to.weights.end(), from.weights.begin(), from.weights.end());
    to.is_active.insert(
        to.is_active.end(), from.is_active.begin(), from.is_active.end());
    to.begin.push_back(static_cast<int64_t>(to.weights.size()));
    if (a == 0) {
      to.observed.insert(
          to.observed.end(), one.observed.begin(), one.observed.end());
    }
  }
};

}  // namespace pose_cases
}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_FRONT_POSE_CASES_H_
