// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "python/src/residuals.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

#include "ceres/autodiff_cost_function.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/camera_models.h"
#include "ceres_ext/device_cost_function.h"
#include "ceres_ext/direction_cost_functions.h"
#include "ceres_ext/odometry_cost_functions.h"
#include "ceres_ext/photogrammetry.h"
#include "ceres_ext/written_model.h"
#include "examples/colmap/reprojection_costs.h"

namespace ceres_ext::python {
namespace {

using Roles = std::vector<std::string>;

template <int... kSizes>
std::vector<int> SizesOf(std::integer_sequence<int, kSizes...> /*sizes*/) {
  return {kSizes...};
}

// Functors that consist of doubles.
template <typename Functor>
bool IsFinite(const Functor& functor) {
  static_assert(sizeof(Functor) % sizeof(double) == 0);
  const auto* const values = reinterpret_cast<const double*>(&functor);
  return std::all_of(values,
                     values + sizeof(Functor) / sizeof(double),
                     [](double value) { return std::isfinite(value); });
}

// A functor of a measurement, or which is one.
template <typename Error>
Error ErrorOf(const double* measured) {
  if constexpr (std::is_constructible_v<Error, const double*>) {
    return Error(measured);
  } else {
    Error error;
    std::memcpy(&error, measured, sizeof(error));
    return error;
  }
}

template <typename Error>
bool ConvertPrior(const double* row, void* constants) {
  const Error error = ErrorOf<Error>(row);
  new (constants) WhitenedError<Error>{error, {}};
  return IsFinite(error);
}

// camera: null for none.
template <typename Camera, typename Rotation>
bool ConvertConstantRig(const double* row, void* constants) {
  using Error = ConstantRigReprojectionError<Camera, Rotation>;
  return IsFinite(*new (constants) Error(row[0], row[1], row + 2));
}

// True if a cost function has a model, whose constants are these.
template <typename Cost, typename Constants, typename = void>
struct HasConstants : std::false_type {};
template <typename Cost, typename Constants>
struct HasConstants<Cost,
                    Constants,
                    std::void_t<typename Cost::Model::Constants>>
    : std::is_same<typename Cost::Model::Constants, Constants> {};

// Without a Cost Ceres evaluates them, row by row: priors of cameras are few.
template <typename Error,
          typename Sizes,
          typename Cost = CostFunctionFor<ceres::AutoDiffCostFunction,
                                          WhitenedError<Error>,
                                          Sizes>>
void AddPrior(const char* name,
              const char* rotation,
              int num_columns,
              const Roles& roles,
              std::vector<NamedResidual>* all) {
  using Whitened = WhitenedError<Error>;
  all->push_back({name,
                  nullptr,
                  rotation,
                  Error::kNumResiduals,
                  num_columns,
                  roles,
                  SizesOf(Sizes()),
                  sizeof(Whitened),
                  &colmap::MakeCostFunction<Whitened, Cost>,
                  &ConvertPrior<Error>,
                  sizeof(Error) / sizeof(double),
                  HasConstants<Cost, Whitened>::value});
}

template <typename Rotation>
void AddPriors(std::vector<NamedResidual>* all) {
  constexpr int kPose = Rotation::kSize + 3;
  const char* const rotation = Rotation::kName;
  using Position = PositionPrior<Rotation>;
  AddPrior<Position, typename Position::BlockSizes>(
      "PositionPrior", rotation, 3, {"cam_from_world"}, all);
  AddPrior<Position, typename Position::SplitBlockSizes>(
      "PositionPrior", rotation, 3, {"rotation", "translation"}, all);
  using Pose = PosePrior<Rotation>;
  AddPrior<Pose, typename Pose::BlockSizes>(
      "PosePrior", rotation, kPose, {"cam_from_world"}, all);
  AddPrior<Pose, typename Pose::SplitBlockSizes>(
      "PosePrior", rotation, kPose, {"rotation", "translation"}, all);
  using Relative = RelativePosePrior<Rotation>;
  AddPrior<Relative, typename Relative::BlockSizes>(
      "RelativePosePrior",
      rotation,
      kPose,
      {"i_from_world", "j_from_world"},
      all);
  AddPrior<Relative, typename Relative::SplitBlockSizes>("RelativePosePrior",
                                                         rotation,
                                                         kPose,
                                                         {"rotation of i",
                                                          "translation of i",
                                                          "rotation of j",
                                                          "translation of j"},
                                                         all);
}

template <typename Functor, typename Sizes>
NamedResidual Reprojection(const char* name,
                           const char* camera_model,
                           const char* rotation,
                           const Roles& roles,
                           colmap::CostMaker maker) {
  return {name,
          camera_model,
          rotation,
          2,
          2,
          roles,
          SizesOf(Sizes()),
          sizeof(Functor),
          maker};
}

const Roles kOneBlock = {"point", "cam_from_world", "camera"};

// With device forms, of poses as COLMAP has them.
template <typename Camera>
void AddReprojectionErrors(std::vector<NamedResidual>* all) {
  const colmap::ReprojectionCostMakers makers =
      colmap::MakersOf(Camera::kModelId);
  const char* const camera = Camera::kName;
  const char* const rotation = EigenQuaternion::kName;
  using Error = ReprojectionError<Camera, EigenQuaternion>;
  all->push_back(Reprojection<Error, typename Error::BlockSizes>(
      "ReprojectionError", camera, rotation, kOneBlock, makers.one_block));
  all->push_back(Reprojection<Error, typename Error::SplitBlockSizes>(
      "ReprojectionError",
      camera,
      rotation,
      {"rotation", "translation", "point", "camera"},
      makers.split));
  using Rig = RigReprojectionError<Camera, EigenQuaternion>;
  all->push_back(Reprojection<Rig, typename Rig::BlockSizes>(
      "RigReprojectionError",
      camera,
      rotation,
      {"point", "cam_from_rig", "rig_from_world", "camera"},
      makers.rig));
  using Constant = ConstantRigReprojectionError<Camera, EigenQuaternion>;
  all->push_back(Reprojection<Constant, typename Constant::BlockSizes>(
      "ConstantRigReprojectionError",
      camera,
      rotation,
      {"point", "rig_from_world", "camera"},
      makers.constant_rig));
  all->back().num_columns = 2 + EigenQuaternion::kSize + 3;
  all->back().convert = &ConvertConstantRig<Camera, EigenQuaternion>;
  using Prior = IntrinsicsPrior<Camera::kNumParams>;
  all->push_back({"IntrinsicsPrior",
                  camera,
                  nullptr,
                  Camera::kNumParams,
                  2 * Camera::kNumParams,
                  {"camera"},
                  {Camera::kNumParams},
                  sizeof(Prior),
                  makers.prior});
}

// On the host only: nvcc needs seconds for each device form.
template <typename Camera, typename Rotation>
void AddOtherRotation(std::vector<NamedResidual>* all) {
  using Error = ReprojectionError<Camera, Rotation>;
  using Sizes = typename Error::BlockSizes;
  all->push_back(Reprojection<Error, Sizes>(
      "ReprojectionError",
      Camera::kName,
      Rotation::kName,
      kOneBlock,
      &colmap::MakeCostFunction<
          Error,
          DeviceCostFunction<ceres_ext::internal::WrittenModel<Error>>>));
}

template <typename Cost>
void AddBal(const char* name,
            int camera_size,
            std::vector<NamedResidual>* all) {
  using Constants = typename Cost::Model::Constants;
  all->push_back({name,
                  nullptr,
                  nullptr,
                  2,
                  2,
                  {"camera", "point"},
                  {camera_size, 3},
                  sizeof(Constants),
                  &colmap::MakeCostFunction<Constants, Cost>});
}

// The constants are all of the functor. They have device forms.
template <typename Error, typename Cost>
void AddWritten(const char* name,
                const char* rotation,
                const Roles& roles,
                std::vector<NamedResidual>* all) {
  all->push_back({name,
                  nullptr,
                  rotation,
                  Error::kNumResiduals,
                  sizeof(Error) / sizeof(double),
                  roles,
                  SizesOf(typename Error::BlockSizes()),
                  sizeof(Error),
                  &colmap::MakeCostFunction<Error, Cost>});
}

template <typename Error>
void AddDirection(const char* name,
                  const Roles& roles,
                  std::vector<NamedResidual>* all) {
  AddWritten<Error, ceres_ext::internal::DirectionCostFunction<Error>>(
      name, nullptr, roles, all);
}

// Rows of sliding windows, also with device forms.
void AddOdometryErrors(std::vector<NamedResidual>* all) {
  using Rotation = EigenQuaternion;
  const char* const rotation = Rotation::kName;
  AddWritten<InertialError<Rotation>, InertialCost>("InertialError",
                                                    rotation,
                                                    {"world_from_body of i",
                                                     "speed and biases of i",
                                                     "world_from_body of j",
                                                     "speed and biases of j"},
                                                    all);
  AddWritten<InverseDepthError<Rotation>, InverseDepthCost>(
      "InverseDepthError",
      rotation,
      {"world_from_body of the anchor",
       "world_from_body",
       "body_from_camera",
       "inverse depth",
       "time offset"},
      all);
  AddWritten<StereoInverseDepthError<Rotation>, StereoInverseDepthCost>(
      "StereoInverseDepthError",
      rotation,
      {"world_from_body of the anchor",
       "world_from_body",
       "body_from_camera of the anchor",
       "body_from_camera",
       "inverse depth",
       "time offset"},
      all);
  AddWritten<AnchorStereoInverseDepthError<Rotation>,
             AnchorStereoInverseDepthCost>("AnchorStereoInverseDepthError",
                                           rotation,
                                           {"body_from_camera of the anchor",
                                            "body_from_camera",
                                            "inverse depth",
                                            "time offset"},
                                           all);
  using Speed = SpeedAndBiasPrior;
  AddPrior<Speed, Speed::BlockSizes, SpeedAndBiasPriorCost>(
      "SpeedAndBiasPrior", nullptr, 9, {"speed and biases"}, all);
  using Planar = PlanarMotionError<Rotation>;
  AddPrior<Planar, Planar::BlockSizes, PlanarMotionCost>(
      "PlanarMotionError", rotation, 13, {"world_from_body"}, all);
  using Gnss = GnssPositionError<Rotation>;
  AddPrior<Gnss, Gnss::BlockSizes, GnssPositionCost>(
      "GnssPositionError", rotation, 3, {"world_from_body", "antenna"}, all);
}

std::vector<NamedResidual> MakeNamedResiduals() {
  std::vector<NamedResidual> all;
  AddBal<BalReprojectionError>("BalReprojectionError", 9, &all);
  AddBal<BalQuaternionReprojectionError>(
      "BalQuaternionReprojectionError", 10, &all);
  ForEachCameraModel([&](auto camera) {
    using Camera = decltype(camera);
    AddReprojectionErrors<Camera>(&all);
    AddOtherRotation<Camera, Quaternion>(&all);
    AddOtherRotation<Camera, AngleAxis>(&all);
  });
  AddPriors<EigenQuaternion>(&all);
  AddPriors<Quaternion>(&all);
  AddPriors<AngleAxis>(&all);
  AddPrior<PointPrior, PointPrior::BlockSizes>(
      "PointPrior", nullptr, 3, {"point"}, &all);
  AddDirection<DirectionError>(
      "DirectionError", {"center", "point", "scale"}, &all);
  AddDirection<RigDirectionError>(
      "RigDirectionError",
      {"center of the rig", "point", "scale", "scale of the rigs"},
      &all);
  AddDirection<SensorDirectionError>(
      "SensorDirectionError",
      {"center of the rig", "point", "scale", "place in the rig"},
      &all);
  AddOdometryErrors(&all);
  return all;
}

}  // namespace

const std::vector<NamedResidual>& NamedResiduals() {
  static const auto& all =
      *new std::vector<NamedResidual>(MakeNamedResiduals());
  return all;
}

bool SetInformation(int n,
                    const double* covariance,
                    double* information,
                    std::string* error) {
  if (covariance == nullptr) {
    std::fill_n(information, n * n, 0.0);
    for (int i = 0; i < n; ++i) {
      information[i * n + i] = 1.0;
    }
    return true;
  }
  return n == 3   ? SquareRootInformation<3>(covariance, information, error)
         : n == 6 ? SquareRootInformation<6>(covariance, information, error)
                  : SquareRootInformation<9>(covariance, information, error);
}

}  // namespace ceres_ext::python
