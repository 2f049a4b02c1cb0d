// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Copies a list of ceres::Problems into batches of windows.

#ifndef CERES_EXT_FRONT_BATCH_OF_PROBLEMS_H_
#define CERES_EXT_FRONT_BATCH_OF_PROBLEMS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ceres/loss_function.h"
#include "ceres/manifold.h"
#include "ceres/problem.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/batchable_cost_function.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

// One problem, as far as it may be a window.
struct ReadProblem {
  // Reason why it is not a window; empty if it may be one.
  std::string reason;
  BatchModelKind kind = BatchModelKind::kOther;
  // The parameter blocks that residual blocks depend on, as cameras and points,
  // in the order of the problem.
  struct Blocks {
    std::vector<double*> values;
    std::vector<uint8_t> is_constant;
    std::vector<ceres::Manifold*> manifolds;
  };
  Blocks cameras;
  Blocks points;
  // One entry per residual block, two in `observed`.
  std::vector<int32_t> camera;
  std::vector<int32_t> point;
  std::vector<double> observed;  // x and y
  std::vector<const ceres::LossFunction*> losses;
};

// A batch of the problems of one kind.
class BatchOfKind {
 public:
  // `numbers` are those of the problems of this batch. `losses` has one entry
  // per residual block of these problems, in order; `ids` and `weights` are
  // what FindChains (blocks/loss_model.h) returns for them.
  BatchOfKind(const std::vector<ReadProblem>& problems,
              const std::vector<int64_t>& numbers,
              const std::vector<const ceres::LossFunction*>& losses,
              const std::vector<uint8_t>& ids,
              const std::vector<double>& weights);
  BatchOfKind(const BatchOfKind&) = delete;
  BatchOfKind& operator=(const BatchOfKind&) = delete;

  // Number of each problem of this batch in the list of all problems.
  const std::vector<int64_t>& numbers() const { return numbers_; }
  const ProblemBatch* batch() const { return &batch_; }
  // Writes the values of problem k of this batch that vary to the caller's
  // blocks.
  void Write(int64_t k) const;

 private:
  struct Parameters {
    int size = 0;
    std::vector<double> values;
    std::vector<uint8_t> is_constant;
    std::vector<ceres::Manifold*> manifolds;
    std::vector<double*> places;
    std::vector<int64_t> begin{0};

    void Append(const ReadProblem::Blocks& blocks);
    int AddTo(ArrayProblem* problem);
    void Write(int64_t k) const;
  };
  // Residual blocks of one loss.
  struct Rows {
    ceres::LossFunction* loss = nullptr;
    std::vector<double> observed;
    std::vector<double> weights;
    std::vector<int32_t> camera;
    std::vector<int32_t> point;
    std::vector<int64_t> begin{0};
  };

  std::vector<int64_t> numbers_;
  Parameters cameras_;
  Parameters points_;
  std::vector<Rows> rows_;
  ProblemBatch batch_;
};

class BatchOfProblems {
 public:
  // Reads the problems with the threads of *context.
  BatchOfProblems(const std::vector<ceres::Problem*>* problems,
                  kernels::HostContext* context);

  // False, with a sentence in *error, if a problem is null or would change a
  // block that another problem has too.
  bool AreApart(std::string* error) const;
  // Reason why problem i is not a window; empty if it may be one.
  const std::string& reason(int64_t i) const { return read_[i].reason; }
  // Null if no problem is of this kind, or if they have too many losses, which
  // reason() says then.
  std::unique_ptr<BatchOfKind> Make(BatchModelKind kind);

 private:
  // A block in memory.
  struct Range {
    const double* begin;
    const double* end;
    int64_t problem;
    bool is_written;
  };
  void Read(int64_t i);

  const std::vector<ceres::Problem*>& problems_;
  std::vector<ReadProblem> read_;
  std::vector<std::vector<Range>> ranges_;  // of each problem
};

}  // namespace ceres_ext

#endif  // CERES_EXT_FRONT_BATCH_OF_PROBLEMS_H_
