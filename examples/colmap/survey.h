// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Surveyors' input in the refinement of a model: control points with
// measurements in images, and positions of cameras, each with standard
// deviations.
//
//   Survey survey;
//   bool ok = survey.Read(files, options, model, &error) &&
//             survey.Georeference(mode, &model, &error);
//   // if the model moves to an origin: now
//   survey.SetStart(origin, model);
//   BuildProblem(options, &model, &problem);
//   survey.AddTo(options, &model, &problem);
//   Solve(...);
//   survey.SetResult(model);
//
// Control holds the frame, so the problem needs no gauge (ProblemOptions::
// fix_gauge). Check points and check positions have no residuals; check points
// are intersected from their measurements with the refined cameras.

#ifndef EXAMPLES_COLMAP_SURVEY_H_
#define EXAMPLES_COLMAP_SURVEY_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ceres/problem.h"
#include "ceres_ext/covariance.h"
#include "examples/colmap/colmap_problem.h"
#include "problem_io/colmap_model.h"
#include "problem_io/survey_reader.h"

namespace ceres_ext::colmap {

// Paths; empty: none. survey_reader.h has the formats.
struct SurveyFiles {
  std::string points;
  std::string measurements;
  std::string positions;
  // Lines of images that the model does not have are left out, not an error.
  bool skip_missing_images = false;
};

// How a model gets into the frame of the control.
enum GeoreferenceMode {
  // By a similarity, unless the model is there: the RMS distance of control and
  // model is at most 1/20 of the control's extent.
  GEOREFERENCE_AUTO,
  GEOREFERENCE_ALWAYS,
  GEOREFERENCE_NEVER,
};

// A point, or the position of a camera, whose surveyed id is the image's name.
struct SurveyItem {
  SurveyedPoint surveyed;
  // In coordinates relative to the origin: as surveyed, and as adjusted.
  double given[3] = {0.0, 0.0, 0.0};
  double xyz[3] = {0.0, 0.0, 0.0};
  // Standard deviations of xyz, where there is a covariance.
  double std_dev[3] = {kNone, kNone, kNone};

  // If it is a point: its measurements, and the RMS of their errors.
  struct Measurement {
    int32_t image;  // index into Model::images
    double xy[2];
    double sigma;
  };
  std::vector<Measurement> measurements;
  double rms_in_pixels = kNone;
  // If it is a position: an index into Model::images.
  int32_t image = -1;

  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  // False for a check point whose measurements do not intersect.
  bool has_result() const { return std::isfinite(xyz[0]); }
  bool is_fixed() const {
    return surveyed.sigma[0] == 0.0 && surveyed.sigma[1] == 0.0 &&
           surveyed.sigma[2] == 0.0;
  }
};

class Survey {
 public:
  // Reads the files and finds their images in the model. False, with file, line
  // and what was expected in *error; in particular for an image that the model
  // does not have or that sees none of its points, a point without
  // measurements, a check point with less than two, and a position that is
  // fixed in part, or with poses of two blocks.
  bool Read(const SurveyFiles& files,
            const ProblemOptions& options,
            const Model& model,
            std::string* error);

  bool is_empty() const { return points_.empty() && positions_.empty(); }
  bool has_control() const;

  // Moves the model into the frame of the control, by Umeyama's similarity
  // (Least-Squares Estimation of Transformation Parameters Between Two Point
  // Patterns, 1991). georeference_text() says what was done. Does nothing
  // without control. False with *error if there are less than three control
  // points in two images and control positions together, or if they are on a
  // line.
  bool Georeference(GeoreferenceMode mode, Model* model, std::string* error);

  // Sets given and xyz, in the coordinates of `model`, which are relative to
  // `origin` (null: zero). Control points start where their measurements
  // intersect.
  void SetStart(const double* origin, const Model& model);

  // Adds residual blocks and manifolds of the control to a problem of the
  // model. Its blocks are xyz of control points. *this must outlive *problem
  // and must not move. A fixed position is set in the model.
  void AddTo(const ProblemOptions& options,
             Model* model,
             ceres::Problem* problem);
  // Blocks that AddTo adds.
  std::vector<double*> ControlBlocks();

  // After a solve: adjusted positions and check points, errors in pixels.
  void SetResult(const Model& model);

  // Pairs of blocks that a covariance needs for SetStandardDeviations, of a
  // problem that AddTo was called for.
  std::vector<std::pair<const double*, const double*>> CovariancePairs(
      const ProblemOptions& options,
      const Model& model,
      const ceres::Problem& problem) const;
  // std_dev of all items that have a result. For check points the errors of
  // cameras and of their own measurements. False if a block is missing.
  bool SetStandardDeviations(const ProblemOptions& options,
                             const Model& model,
                             const Covariance& covariance);

  const std::vector<SurveyItem>& points() const { return points_; }
  const std::vector<SurveyItem>& positions() const { return positions_; }
  const double* origin() const { return origin_; }
  const std::string& georeference_text() const { return text_; }

 private:
  bool ReadPoints(const SurveyFiles& files,
                  const Model& model,
                  std::string* error);
  bool ReadPositions(const SurveyFiles& files,
                     const ProblemOptions& options,
                     const Model& model,
                     std::string* error);

  std::vector<SurveyItem> points_;
  std::vector<SurveyItem> positions_;
  double origin_[3] = {0.0, 0.0, 0.0};
  std::string text_;
};

}  // namespace ceres_ext::colmap

#endif  // EXAMPLES_COLMAP_SURVEY_H_
