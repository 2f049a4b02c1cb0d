// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Copies a list of ceres::Problems into batches.

#ifndef CERES_EXT_FRONT_BATCH_OF_PROBLEMS_H_
#define CERES_EXT_FRONT_BATCH_OF_PROBLEMS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ceres/problem.h"
#include "ceres_ext/base/memory_overlap.h"
#include "ceres_ext/import/table_of_problem.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

class BatchOfProblems {
 public:
  // Reads the problems with the threads of *context.
  BatchOfProblems(const std::vector<ceres::Problem*>* problems,
                  kernels::HostContext* context);

  // False, with a sentence in *error, if a problem is null or would change a
  // block that another problem has too.
  bool AreApart(std::string* error) const;
  // Reason why problem i is in no batch; empty if it is in one.
  const std::string& reason(int64_t i) const { return reasons_[i]; }

  // Problems with the same arrays, end to end, and their numbers in the list.
  struct Part {
    std::vector<int64_t> numbers;
    std::unique_ptr<TableOfProblem> table;
  };
  // Once. In the order of their first problems.
  std::vector<Part> MakeParts();

 private:
  void Read(int64_t i);
  // Null if the problems of these numbers have too many losses.
  std::unique_ptr<TableOfProblem> Join(
      const std::vector<int64_t>& numbers) const;

  const std::vector<ceres::Problem*>& problems_;
  std::vector<std::string> reasons_;
  std::vector<std::unique_ptr<TableOfProblem>> tables_;
  std::vector<std::vector<MemoryRange>> ranges_;  // of each problem
};

}  // namespace ceres_ext

#endif  // CERES_EXT_FRONT_BATCH_OF_PROBLEMS_H_
