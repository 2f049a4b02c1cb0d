// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Brings a bundle adjustment problem from one of its formats to another one.

#include <iostream>
#include <string>

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
              "Write it to this file, which may be the input's: as arrays if "
              "the name ends in .npz, else as text, compressed if it ends in "
              ".gz or .bz2.");
// clang-format on

namespace ceres_ext::bal {
namespace {

constexpr const char kIntroduction[] =
    R"(bal_convert --input=FILE --output=FILE

Brings a problem of the "Bundle Adjustment in the Large" kind from one of its
formats to another one; all keep all bits of its numbers.

  bal_convert --input=problem-16-22106-pre.txt.bz2 --output=problem.npz
  python3 -c 'import numpy; print(numpy.load("problem.npz")["cameras"])'

Exit codes:
  0  the problem is written
  1  a flag is unknown or has a value that is not accepted
  2  the input could not be read
  4  the output could not be written
)";

int Fail(int code, const std::string& error) {
  std::cerr << "bal_convert: " << error << std::endl;
  return code;
}

int Run() {
  std::string error;
  if (FLAGS_input.empty() || FLAGS_output.empty()) {
    return Fail(1,
                std::string(FLAGS_input.empty() ? "--input" : "--output") +
                    ": expected the name of a file, found none; see --help");
  }
  if (!CanWrite(FLAGS_output, &error)) {
    return Fail(4, error);
  }
  HandleSignals("bal_convert");
  BalProblem problem;
  if (!ReadBalFile(FLAGS_input, &problem, &error)) {
    return Fail(2, error);
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
