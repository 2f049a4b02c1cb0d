// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// This program, once more, in a process of its own.

#ifndef EXAMPLES_BAL_CHILD_PROCESS_H_
#define EXAMPLES_BAL_CHILD_PROCESS_H_

#include <functional>
#include <string>
#include <vector>

namespace ceres_ext::bal {

// The file that a child opens to write to ChildOutcome::output.
constexpr char kChildOutput[] = "/dev/fd/3";

struct ChildOutcome {
  int status = 0;  // of waitpid
  double seconds = 0.0;
  // The reason, if RunChild killed it.
  bool was_interrupted = false;
  bool was_out_of_time = false;
  std::string output;
  // The end of its standard error.
  std::string errors;
};

// Runs this program with these arguments until it ends. It is killed after
// max_seconds, when is_interrupted says so, and when this process dies. It
// reads nothing, its standard output goes nowhere, and signals to this process'
// group do not reach it. started is called with its process id. Returns false,
// with one line in *error, if it can't be started.
bool RunChild(const std::vector<std::string>& arguments,
              double max_seconds,
              bool (*is_interrupted)(),
              const std::function<void(int)>& started,
              ChildOutcome* outcome,
              std::string* error);

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_CHILD_PROCESS_H_
