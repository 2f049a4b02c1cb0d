// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The rows of a table of the functors of photogrammetry.h: all cameras and
// rotations; all other functors, with one camera and rotation each; poses in
// one block and split.
#ifndef CERES_EXT_BENCHMARKS_PHOTOGRAMMETRY_ERRORS_H_
#define CERES_EXT_BENCHMARKS_PHOTOGRAMMETRY_ERRORS_H_

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ceres_ext/camera_models.h"
#include "ceres_ext/photogrammetry.h"

namespace ceres_ext {

// A functor with values of its blocks, one after the other, at which nothing is
// degenerate. Sizes: one of the functor's lists of block sizes.
template <typename E, typename Sizes>
struct PhotogrammetryCase {
  using Error = E;
  using BlockSizes = Sizes;
  std::string name;
  Error error;
  std::vector<double> parameters;
};

namespace internal {

template <typename Sizes, typename Function, typename Error>
void Visit(Function& f,
           const std::string& name,
           const Error& error,
           std::vector<std::vector<double>> blocks) {
  PhotogrammetryCase<Error, Sizes> visited{name, error, {}};
  for (const auto& block : blocks) {
    visited.parameters.insert(
        visited.parameters.end(), block.begin(), block.end());
  }
  f(visited);
}

// A unit covariance makes the whitened residuals those of the error itself.
template <typename Error>
WhitenedError<Error> Whitened(const Error& error) {
  WhitenedError<Error> whitened{error, {}};
  for (int i = 0; i < Error::kNumResiduals; ++i) {
    whitened.sqrt_information[i * (Error::kNumResiduals + 1)] = 1.0;
  }
  return whitened;
}

// A turn by 0.6 about (1, 2, 2) / 3, and a step of 5 forwards.
template <typename Rotation>
std::vector<double> CasePose() {
  const double vector[3] = {0.2, 0.4, 0.4};
  double wxyz[4];
  AngleAxis::ToQuaternion(vector, wxyz);
  std::vector<double> pose(wxyz, wxyz + 4);
  if (Rotation::kSize == 3) {
    pose.assign(vector, vector + 3);
  } else if (std::string(Rotation::kName) == EigenQuaternion::kName) {
    pose = {wxyz[1], wxyz[2], wxyz[3], wxyz[0]};
  }
  pose.insert(pose.end(), {0.1, -0.2, 5.0});
  return pose;
}

template <typename Camera>
std::vector<double> CaseParams() {
  std::vector<double> params(Camera::kNumFocalLengths, 900.0);
  params.insert(params.end(), {500.0, 400.0});
  params.resize(Camera::kNumParams, 0.01);
  return params;
}

// Functors of a point or a pose other than a plain reprojection error.
template <typename Rotation, typename Function>
void ForEachOtherCase(Function& f,
                      const std::vector<double>& point,
                      const std::vector<double>& pose,
                      const std::string& in) {
  using Camera = SimpleRadialCamera;
  const std::vector<double> params = internal::CaseParams<Camera>();
  using Error = ReprojectionError<Camera, Rotation>;
  const Error error{500.0, 400.0};
  using Sizes = typename Error::BlockSizes;
  using SplitSizes = typename Error::SplitBlockSizes;
  Visit<SplitSizes>(f, "reprojection split" + in, error, {pose, point, params});
  Visit<Sizes>(f,
               "weighted reprojection" + in,
               WeightedError<Error>{error, 2.0},
               {point, pose, params});
  Visit<Sizes>(
      f, "whitened reprojection" + in, Whitened(error), {point, pose, params});

  using RigError = RigReprojectionError<Camera, Rotation>;
  const RigError rig{500.0, 400.0};
  Visit<typename RigError::BlockSizes>(
      f, "rig reprojection" + in, rig, {point, pose, pose, params});
  Visit<typename RigError::SplitBlockSizes>(
      f, "rig reprojection split" + in, rig, {pose, pose, point, params});
  const ConstantRigReprojectionError<Camera, Rotation> constant_rig(
      500.0, 400.0, pose.data());
  Visit<Sizes>(
      f, "constant rig reprojection" + in, constant_rig, {point, pose, params});
  Visit<SplitSizes>(f,
                    "constant rig reprojection split" + in,
                    constant_rig,
                    {pose, point, params});

  using Position = PositionPrior<Rotation>;
  const Position position{{1.0, 2.0, 3.0}};
  Visit<typename Position::BlockSizes>(
      f, "whitened position prior" + in, Whitened(position), {pose});
  Visit<typename Position::SplitBlockSizes>(
      f, "position prior split" + in, position, {pose});
  using Prior = PosePrior<Rotation>;
  const Prior prior(pose.data());
  Visit<typename Prior::BlockSizes>(
      f, "whitened pose prior" + in, Whitened(prior), {pose});
  Visit<typename Prior::SplitBlockSizes>(
      f, "pose prior split" + in, prior, {pose});
  using Relative = RelativePosePrior<Rotation>;
  const Relative relative(pose.data());
  Visit<typename Relative::BlockSizes>(
      f, "whitened relative pose prior" + in, Whitened(relative), {pose, pose});
  Visit<typename Relative::SplitBlockSizes>(
      f, "relative pose prior split" + in, relative, {pose, pose});
}

}  // namespace internal

// Calls f(PhotogrammetryCase) for each.
template <typename Function>
void ForEachPhotogrammetryCase(Function&& f) {
  using internal::Visit;
  using internal::Whitened;
  const std::vector<double> point = {0.3, -0.4, 0.5};
  const auto for_rotation = [&](auto rotation) {
    using Rotation = std::decay_t<decltype(rotation)>;
    const std::string in = std::string(" ") + Rotation::kName;
    const std::vector<double> pose = internal::CasePose<Rotation>();

    ForEachCameraModel([&](auto camera) {
      using Camera = std::decay_t<decltype(camera)>;
      using Error = ReprojectionError<Camera, Rotation>;
      // One rotation is enough for the rarer ones.
      if constexpr (Camera::kModelId <= FullOpenCvCamera::kModelId ||
                    Camera::kModelId == SimpleRadialFisheyeCamera::kModelId ||
                    Camera::kModelId == RadialFisheyeCamera::kModelId ||
                    std::is_same_v<Rotation, EigenQuaternion>) {
        Visit<typename Error::BlockSizes>(
            f,
            std::string("reprojection ") + Camera::kName + in,
            Error{500.0, 400.0},
            {point, pose, internal::CaseParams<Camera>()});
      }
    });

    // For other functors one rotation is enough.
    if constexpr (std::is_same_v<Rotation, EigenQuaternion>) {
      internal::ForEachOtherCase<Rotation>(f, point, pose, in);
    }
  };
  for_rotation(AngleAxis());
  for_rotation(Quaternion());
  for_rotation(EigenQuaternion());
  Visit<PointPrior::BlockSizes>(f,
                                "whitened point prior",
                                Whitened(PointPrior{{0.0, 0.0, 0.0}}),
                                {point});
}

}  // namespace ceres_ext

#endif  // CERES_EXT_BENCHMARKS_PHOTOGRAMMETRY_ERRORS_H_
