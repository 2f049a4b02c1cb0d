// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Lists degenerate cameras and points of a problem, and removes them.

#include <cinttypes>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "examples/bal/degenerate.h"
#include "examples/bal/flag_help.h"
#include "examples/bal/interrupt.h"
#include "gflags/gflags.h"
#include "problem_io/bal_problem.h"
#include "problem_io/bal_reader.h"
#include "problem_io/bal_writer.h"
#include "problem_io/safe_file.h"

// clang-format off
DEFINE_string(input, "",
              "Problem to read: plain text, gzip, bzip2 or .npz, detected by "
              "its first bytes. /dev/stdin works.");
DEFINE_string(output, "",
              "Write the rest to this file, which may be the input: as arrays "
              "if the name ends in .npz, otherwise as text, compressed if it "
              "ends in .gz or .bz2. If empty, only list.");
// clang-format on

namespace ceres_ext::bal {
namespace {

constexpr const char kIntroduction[] =
    R"(bal_filter --input=FILE [--output=FILE]

Lists the cameras and points of a problem of the "Bundle Adjustment in the
Large" kind that are degenerate: whose block of the normal equations, J'J at the
values of the file, is rank-deficient, so that a solver has nothing but its
damping to hold them. Their observations go with them, which may make others
degenerate; so it is repeated until there is none.

  bal_filter --input=problem-16-22106-pre.txt.bz2 --output=filtered.txt

Exit codes:
  0  the list is complete, and the output is written
  1  a flag is unknown or has a value that is not accepted
  2  the input could not be read
  3  nothing is left to be written
  4  an output, standard output among them, could not be written
)";

int Fail(int code, const std::string& error) {
  std::cerr << "bal_filter: " << error << std::endl;
  return code;
}

std::string Sizes(const BalProblem& problem) {
  return std::to_string(problem.num_cameras()) + " cameras, " +
         std::to_string(problem.num_points()) + " points, " +
         std::to_string(problem.num_observations()) + " observations";
}

int Run() {
  std::string error;
  if (FLAGS_input.empty()) {
    return Fail(1,
                "--input: expected the name of a file, found none; see --help");
  }
  if (!FLAGS_output.empty() && !CanWrite(FLAGS_output, &error)) {
    return Fail(4, error);
  }
  HandleSignals("bal_filter");
  BalProblem problem;
  if (!ReadBalFile(FLAGS_input, &problem, &error)) {
    return Fail(2, error);
  }
  std::cout << FLAGS_input << ": " << Sizes(problem) << "\n";
  const std::vector<DegenerateBlock> removed = RemoveDegenerate(&problem);
  if (!removed.empty()) {
    std::cout << "round  kind    id        observations  relative pivot\n";
  }
  for (const DegenerateBlock& block : removed) {
    char line[128];
    std::snprintf(line,
                  sizeof(line),
                  "%-5d  %-6s  %-8d  %-12" PRId64 "  %.1e\n",
                  block.round,
                  block.is_camera ? "camera" : "point",
                  block.id,
                  block.num_observations,
                  block.relative_pivot);
    std::cout << line;
  }
  std::cout << "without degenerate blocks: " << Sizes(problem) << "\n";
  if (!FlushStandardOutput(&error)) {
    return Fail(4, error);
  }
  if (FLAGS_output.empty()) {
    return 0;
  }
  if (problem.num_observations() == 0) {
    return Fail(3,
                "expected cameras and points that are not degenerate, found "
                "none; nothing is written");
  }
  return WriteBalFile(FLAGS_output, problem, &error) ? 0 : Fail(4, error);
}

int Main(int argc, char** argv) {
  gflags::SetVersionString(CERES_EXT_VERSION);
  ParseFlagsOrExit(
      kIntroduction, __FILE__, {{"Files", {"input", "output"}}}, &argc, &argv);
  return Run();
}

}  // namespace
}  // namespace ceres_ext::bal

int main(int argc, char** argv) { return ceres_ext::bal::Main(argc, argv); }
