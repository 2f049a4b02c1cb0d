// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The common part of bundle_adjuster and colmap_adjuster.

#ifndef EXAMPLES_BAL_ADJUSTER_PROGRAM_H_
#define EXAMPLES_BAL_ADJUSTER_PROGRAM_H_

#include <string>
#include <vector>

#include "examples/bal/flag_help.h"

namespace ceres_ext::bal {

enum ExitCode {
  EXIT_USABLE_SOLUTION = 0,
  EXIT_USAGE = 1,
  EXIT_INPUT = 2,
  EXIT_SOLVE_FAILED = 3,
  EXIT_OUTPUT = 4,
  EXIT_INTERRUPTED = 5,
};

struct AdjusterProgram {
  const char* name;
  const char* what_it_solves;  // "a problem"
  // See ParseFlagsOrExit.
  const char* introduction;
  const char* source_file;
  std::vector<FlagGroup> flag_groups;
};

// Parses the flags, prepares logs and signals and returns what `run` returns,
// or EXIT_SOLVE_FAILED where it runs out of memory.
int RunAdjuster(const AdjusterProgram& program,
                ExitCode (*run)(),
                int argc,
                char** argv);

// One line on standard error, behind the name of the program. Returns code.
ExitCode Fail(ExitCode code, const std::string& error);

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_ADJUSTER_PROGRAM_H_
