// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Converts a COLMAP model to the ceres::Problem that COLMAP's bundle_adjuster
// builds.

#ifndef EXAMPLES_COLMAP_COLMAP_PROBLEM_H_
#define EXAMPLES_COLMAP_COLMAP_PROBLEM_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ceres/problem.h"
#include "ceres/solver.h"
#include "ceres_ext/camera_intrinsics.h"
#include "ceres_ext/summary.h"
#include "problem_io/colmap_model.h"

namespace ceres_ext::colmap {

enum LossType { LOSS_TRIVIAL, LOSS_SOFT_L1, LOSS_CAUCHY, LOSS_HUBER };

// How the gauge is fixed, as BundleAdjustmentGauge of COLMAP.
enum GaugeType { GAUGE_TWO_CAMERAS, GAUGE_THREE_POINTS };

struct ProblemOptions {
  // True: each pose is two blocks, quaternion (4) and translation (3), as up to
  // COLMAP 3.13. False: it is one block of 7. The tangent space has 6
  // dimensions either way. Must be false if an image is of another sensor than
  // the reference of its rig.
  bool split_pose = false;

  // Parameters of cameras that vary. A block without any is constant.
  bool refine_focal_length = true;
  bool refine_principal_point = false;
  bool refine_extra_params = true;

  // Poses of frames, rig_from_world, and of sensors in rigs, sensor_from_rig,
  // vary. The second also requires that images of the rig's reference sensor
  // are in the problem.
  bool refine_rig_from_world = true;
  bool refine_sensor_from_rig = true;
  // The rotation of rig_from_world is constant.
  bool constant_rig_from_world_rotation = false;

  // Parameters of cameras that vary keep within these limits, if they are
  // wanted.
  bool bound_intrinsics = false;
  IntrinsicsLimits intrinsics_limits;
  // Soft priors on the parameters of cameras that vary, at their values here by
  // the camera's id, or in the model if they are not here; a weight of 0 leaves
  // them free.
  IntrinsicsPriorWeights intrinsics_prior_weights;
  std::map<uint32_t, std::vector<double>> expected_intrinsics;

  bool refine_points3D = true;
  // Points with a shorter track are left out; 0: none.
  int min_track_length = 0;

  // True: blocks are held constant as described below. False: the gauge is
  // free.
  bool fix_gauge = true;
  GaugeType gauge = GAUGE_TWO_CAMERAS;

  LossType loss = LOSS_TRIVIAL;
  double loss_scale = 1.0;  // pixels
};

// The part of a model that is in the problem and what is constant in it, as
// BundleAdjustmentConfig of COLMAP has it. An empty vector: all images, or no
// others.
struct ProblemSelection {
  std::vector<bool> images;  // by the index of the image
  // By the index of an image: rig_from_world of its frame is constant.
  std::vector<bool> constant_poses;
  // By the index of a camera: its parameters, or its sensor_from_rig.
  std::vector<bool> constant_cameras;
  std::vector<bool> constant_sensors;
  // By the index of a point: all observations are in the problem, those of
  // other images with constant poses and, unless images have them too, constant
  // cameras. No image of them may be of the reference sensor of a frame of
  // which an image is selected.
  std::vector<bool> added_points;
  std::vector<bool> constant_points;
};

// Names an observation at a pole of an EQUIRECTANGULAR camera, which no problem
// may have: its evaluation fails. Points of fewer observations than
// min_track_length are left out. Empty if there is none. Poses of all images
// are up to date (SetPosesOfSensors).
std::string FindPole(const Model& model, int min_track_length);

// Adds a residual block per 2D point that sees a point. It has 2 residuals in
// pixels, differentiated by ceres::Jet, or 0 if the point is behind the camera.
// Blocks are the poses of frames (FramePose; without frames those of images)
// and of sensors in *model's rigs, the parameters of its cameras and its
// points. Quaternions are normalised if necessary. *model must outlive *problem
// and must not move. Images, cameras and points without observations have no
// block and are not changed. The poses of images whose sensor is not the
// reference do not change: SetPosesOfSensors. Blocks have the order of
// ModelArrays: points, poses, sensors, cameras; residual blocks are in the
// order of images, one camera model and kind of sensor after the other, then
// the priors of cameras, one camera model after the other.
//
// Points with observations that are not in the problem are constant.
//
// Gauge by two cameras: among the images with observations, in the order of
// their ids, that are of reference sensors or of sensors whose pose is
// constant, the pose of the first one's frame is constant. One component of the
// translation of the next frame at another position is constant too: that along
// which the two are farthest apart. Nothing is done if two frames are constant
// already. If there are no two such frames, the gauge is fixed by three points:
// the first three points that do not lie in a plane with the origin are
// constant, constant ones first.
void BuildProblem(const ProblemOptions& options,
                  Model* model,
                  ceres::Problem* problem,
                  const ProblemSelection& selection = ProblemSelection());

// Sets an ordering of *options that eliminates the points, if that may differ
// from Ceres's: if images see most of the points, Ceres eliminates some images
// and keeps points. control: points of the problem beside those of the model.
void OrderPointsFirst(const ceres::Problem& problem,
                      const Model& model,
                      const std::vector<double*>& control,
                      ceres::Solver::Options* options);

// True if an image is of another sensor than the reference of its rig.
bool HasOtherSensors(const Model& model);

// A focal length that the observations do not determine: the solve moved it to
// more than 10 times or less than a tenth of its start, or it is not positive.
// COLMAP's mapper gives focal lengths the range of 0.1 to 10 times the size of
// the image; a start that was measured or calibrated is much nearer.
struct RunawayFocalLength {
  uint32_t camera_id;
  int index;  // 0 or 1, of fx and fy
  double start;
  double end;
};
// start: the cameras of the model before the solve.
std::vector<RunawayFocalLength> FindRunawayFocalLengths(
    const std::vector<Camera>& start, const Model& model);

// A line on each: which camera, from where to where.
std::string RunawayText(const std::vector<RunawayFocalLength>& runaways);

// An observation of ceres_ext::Summary::runaway_residuals: a solve has ended
// away from a minimum, since steps that bring the point to the plane of the
// camera were rejected.
struct RunawayObservation {
  int64_t point_id;
  uint32_t image_id;
  double depth;  // of the point in the camera, at the end
  double trial;  // residual of the last such step, in pixels; may be NaN
};
// place_of: the address in the model of a block of such a residual, or null.
// Poses of all images are up to date (SetPosesOfSensors).
std::vector<RunawayObservation> FindRunawayObservations(
    const ceres_ext::Summary& summary,
    const std::function<
        const double*(const ceres_ext::RunawayResidual::Block&)>& place_of,
    const Model& model);
std::string RunawayText(const std::vector<RunawayObservation>& runaways);

// The position of a camera, -R't of its pose, whatever the length of the
// quaternion.
void CameraCenter(const double* pose, double* center);

// Positions of the cameras of all images.
std::vector<double> CameraCenters(const Model& model);

// Sets the mean reprojection error of each point, or -1 if no camera that sees
// the point has it in front.
void UpdateErrors(Model* model);

}  // namespace ceres_ext::colmap

#endif  // EXAMPLES_COLMAP_COLMAP_PROBLEM_H_
