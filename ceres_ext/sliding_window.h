// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The window of an odometry or SLAM system from frame to frame: keyframes and
// what they see are added, the window is solved, and its oldest blocks are
// dropped with the prior that they leave (marginalize.h).
//
//   ceres_ext::SlidingWindow window(options, ext_options);
//   std::string error;
//   const int poses = window.AddBlockKind(7, &pose_manifold, &error);
//   const int speeds = window.AddBlockKind(9, nullptr, &error);
//   const int inertial = window.AddResidualKind<ceres_ext::InertialCost>(
//       {poses, speeds, poses, speeds}, nullptr, &error);
//   ...
//   for (int64_t frame = 1;; ++frame) {
//     window.AddBlock(poses, frame, pose, &error);
//     window.AddBlock(speeds, frame, speed, &error);
//     window.AddResidual(
//         inertial, row, {frame - 1, frame - 1, frame, frame}, &error);
//     window.Drop(poses, frame - 10, &error);
//     window.Drop(speeds, frame - 10, &error);
//     window.Solve(&summary, &error);
//     use(window.Values(poses, frame));
//   }
//
// Blocks have numbers that the caller gives, any int64_t, once in their kind.
// Kinds are numbered from 0. SolveBatch solves the window, as one problem
// (batch.h): with the bits that it has for arrays with the same blocks and
// residual blocks in the order in which they were added, and each prior behind
// them. A window costs what has changed plus a copy of its values.
//
// Functions with *error return false or -1, with a sentence in *error (may be
// null), if an argument is not valid or memory runs out, and change nothing
// then. They throw nothing; the constructor and Numbers may throw
// std::bad_alloc.
//
// Thread safety: one thread at a time. Losses and manifolds outlive the object.

#ifndef CERES_EXT_SLIDING_WINDOW_H_
#define CERES_EXT_SLIDING_WINDOW_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ceres/loss_function.h"
#include "ceres/manifold.h"
#include "ceres/solver.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/options.h"

namespace ceres_ext {

class SlidingWindow {
 public:
  SlidingWindow(const ceres::Solver::Options& options,
                const Options& ext_options);
  ~SlidingWindow();
  SlidingWindow(const SlidingWindow&) = delete;
  SlidingWindow& operator=(const SlidingWindow&) = delete;

  // Parameter blocks of one size and manifold (null: none).
  int AddBlockKind(int size, ceres::Manifold* manifold, std::string* error);

  // Residual blocks of one type of cost function, one that
  // ArrayProblem::AddResiduals takes. block_kinds: the kind of each of its
  // blocks.
  template <typename CostFunction>
  int AddResidualKind(const std::vector<int>& block_kinds,
                      ceres::LossFunction* loss,
                      std::string* error) {
    ArrayProblem problem;
    problem.AddResiduals<CostFunction>(
        0,
        static_cast<const typename CostFunction::Model::Constants*>(nullptr),
        {},
        loss);
    return AddResidualKind(problem.residuals()[0], block_kinds, error);
  }
  // The same of residual blocks that are made from constants. `form` is without
  // blocks and arrays.
  int AddResidualKind(const ArrayProblem::Residuals& form,
                      const std::vector<int>& block_kinds,
                      std::string* error);

  // values: as many as the kind has; copied.
  bool AddBlock(int kind,
                int64_t number,
                const double* values,
                std::string* error);
  // A constant block does not vary, and is one until this is called again.
  bool SetConstant(int kind,
                   int64_t number,
                   bool is_constant,
                   std::string* error);
  // The values of a block, which may be changed between solves; null if there
  // is no such block. Valid until blocks of its kind are added, cut or dropped.
  double* Values(int kind, int64_t number);
  const double* Values(int kind, int64_t number) const;

  // One residual block. numbers: those of its blocks.
  template <typename Constants>
  bool AddResidual(int kind,
                   const Constants& constants,
                   const std::vector<int64_t>& numbers,
                   std::string* error) {
    return numbers.size() == NumBlocksOf(kind)
               ? AddResiduals(kind,
                              1,
                              &constants,
                              sizeof(constants),
                              numbers.data(),
                              /*weights=*/nullptr,
                              error)
               : RefuseNumbers(kind, numbers.size(), error);
  }
  // n residual blocks. constants: n times constants_bytes, those of the kind.
  // numbers: n times those of a residual block. weights: as in
  // ArrayProblem::Residuals, or null.
  bool AddResiduals(int kind,
                    int64_t n,
                    const void* constants,
                    int64_t constants_bytes,
                    const int64_t* numbers,
                    const double* weights,
                    std::string* error);

  // The covariance of a block is wanted of each solve from now on, or no more
  // (ProblemBatch::covariance_is_wanted).
  bool WantCovariance(int kind,
                      int64_t number,
                      bool is_wanted,
                      std::string* error);

  // Marks a block, which the next solve that succeeds drops at its solution.
  // The residual blocks that depend on it go into a prior on the blocks that
  // stay, as Marginalize has it.
  bool Drop(int kind, int64_t number, std::string* error);
  // Removes a block and all residual blocks that depend on it, without a trace.
  // A block that a prior is on cannot be cut.
  bool Cut(int kind, int64_t number, std::string* error);
  // Removes the residual blocks of one kind that depend on a block, for example
  // those from a keyframe that is about to be dropped to points that stay.
  bool CutResiduals(int residual_kind,
                    int kind,
                    int64_t number,
                    std::string* error);

  // False, with nothing changed, as SolveBatch; false as well if the solution
  // is not usable or a prior fails: then nothing is dropped, and
  // summary->problems[0] has the solve. Blocks in `marginals` and `covariances`
  // have their kinds and numbers.
  bool Solve(BatchSummary* summary, std::string* error);

  int64_t NumBlocks(int kind) const;
  int64_t NumResiduals(int residual_kind) const;
  int64_t NumPriors() const;
  // Numbers of a kind's blocks, in the order in which they were added.
  std::vector<int64_t> Numbers(int kind) const;

 private:
  class Body;

  // Blocks of a residual block of a kind; 0 if there is no such kind.
  size_t NumBlocksOf(int kind) const;
  bool RefuseNumbers(int kind, size_t num_numbers, std::string* error) const;

  std::unique_ptr<Body> body_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SLIDING_WINDOW_H_
