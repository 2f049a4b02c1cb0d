// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/adjuster_program.h"

#include <iostream>
#include <new>
#include <string>

#include "ceres_ext/base/ceres_version.h"
#include "examples/bal/flag_help.h"
#include "examples/bal/interrupt.h"
#include "gflags/gflags.h"

namespace ceres_ext::bal {
namespace {

const char* program_name = "";

}  // namespace

int RunAdjuster(const AdjusterProgram& program,
                ExitCode (*run)(),
                int argc,
                char** argv) {
  program_name = program.name;
  // Ceres's warnings go to the terminal, not to files in /tmp.
  StartLogging(argv[0]);
  gflags::SetVersionString(CERES_EXT_VERSION);
  ParseFlagsOrExit(program.introduction,
                   program.source_file,
                   program.flag_groups,
                   &argc,
                   &argv);
  HandleSignals(program.name);
  try {
    return run();
  } catch (const std::bad_alloc&) {
    return Fail(EXIT_SOLVE_FAILED,
                std::string("expected ") + program.what_it_solves +
                    " that fits in memory, found no more memory");
  }
}

ExitCode Fail(ExitCode code, const std::string& error) {
  std::cout.flush();
  std::cerr << program_name << ": " << error << std::endl;
  return code;
}

}  // namespace ceres_ext::bal
