// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The problem of BuildProblem as arrays, without an object per residual block:
//
//   ModelArrays arrays(options, selection, &model);
//   Solve(solver_options, ext_options, arrays.problem(), &summary);
//   arrays.Store();
//
// A solve has the bits of one of the ceres::Problem with OrderPointsFirst.

#ifndef CERES_EXT_EXAMPLES_COLMAP_MODEL_ARRAYS_H_
#define CERES_EXT_EXAMPLES_COLMAP_MODEL_ARRAYS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_set>
#include <vector>

#include "ceres/loss_function.h"
#include "ceres/manifold.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/summary.h"
#include "examples/colmap/colmap_problem.h"
#include "examples/colmap/position_priors.h"
#include "examples/colmap/problem_plan.h"
#include "problem_io/colmap_model.h"

namespace ceres_ext::colmap {

class ModelArrays {
 public:
  // As BuildProblem, with poses in one block each: options.split_pose must be
  // false. *model outlives this object and does not move.
  // positions: null, or priors of frames in the problem, which have the same
  // lifetime. An antenna is a further sensor.
  ModelArrays(const ProblemOptions& options,
              const ProblemSelection& selection,
              Model* model,
              PositionPriors* positions = nullptr);
  ModelArrays(const ModelArrays&) = delete;
  ModelArrays& operator=(const ModelArrays&) = delete;

  ArrayProblem* problem() { return &problem_; }

  // Copies the values of all blocks that vary into the model.
  void Store() const;

  // The address in the model of a block of the problem.
  const double* PlaceOf(const RunawayResidual::Block& block) const;

  // The addresses in the model of all blocks that vary.
  std::unordered_set<const double*> FindVarying() const;

 private:
  // Parameter blocks of one size.
  struct Blocks {
    explicit Blocks(int size_in) : size(size_in) {}
    int64_t num_blocks() const { return static_cast<int64_t>(places.size()); }

    const int size;
    std::vector<double*> places;  // in the model
    std::vector<double> values;
    std::vector<uint8_t> is_constant;
    std::vector<ceres::Manifold*> manifolds;
    // Bounds of all values; empty if none has one.
    std::vector<double> lower_bounds;
    std::vector<double> upper_bounds;
    int number = -1;  // in the problem
  };
  // Residual blocks of one type.
  struct Rows {
    std::vector<double> constants;
    std::vector<std::vector<int32_t>> blocks;  // one for each parameter block
  };

  // Returns the number of the new block.
  static int32_t Add(double* place,
                     bool is_constant,
                     ceres::Manifold* manifold,
                     Blocks* blocks);
  ceres::Manifold* Own(std::unique_ptr<ceres::Manifold> manifold);
  void AddPoses(const ProblemOptions& options, const ProblemPlan& plan);
  void AddCameras(const ProblemPlan& plan);
  // Adds the blocks to the problem, unless there are none.
  void AddToProblem(bool is_eliminated, Blocks* blocks);
  void AddRows(const ProblemPlan& plan, const ProblemPlan::Group& group);
  void AddPriors(const ProblemPlan& plan);
  void AddPositions(const ProblemPlan& plan, const PositionPriors& positions);
  // The constants of the rows and what makes cost functions of them.
  void SetConstants(const ProblemPlan& plan,
                    const ProblemPlan::Group& group,
                    Rows* rows,
                    ArrayProblem::Residuals* residuals);
  template <typename Error, typename MakeError>
  void SetConstantsOf(const ProblemPlan& plan,
                      const ProblemPlan::Group& group,
                      const MakeError& make_error,
                      Rows* rows,
                      ArrayProblem::Residuals* residuals);

  Model* const model_;
  const std::unique_ptr<ceres::LossFunction> loss_;
  std::unique_ptr<ceres::LossFunction> position_loss_;
  std::vector<std::unique_ptr<ceres::Manifold>> manifolds_;
  Blocks points_{3};
  Blocks poses_{7};
  Blocks sensors_{7};
  // By the number of parameters.
  std::vector<Blocks> cameras_;
  // Numbers of the blocks of the plan, -1 if they are not used.
  std::vector<int32_t> point_at_;
  std::vector<int32_t> pose_at_;
  std::vector<int32_t> sensor_at_;
  std::vector<int32_t> camera_at_;
  std::vector<std::unique_ptr<Rows>> rows_;
  ArrayProblem problem_;
};

}  // namespace ceres_ext::colmap

#endif  // CERES_EXT_EXAMPLES_COLMAP_MODEL_ARRAYS_H_
