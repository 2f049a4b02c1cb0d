// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The rates of this machine and what device = auto would choose:
//
//   ceres_ext_machine [key=value,...]
//
// ceres_ext_run --machine runs it. Exit status 2 if the settings can't be read.

#include <cstdio>
#include <string>

#include "ceres_ext/machine_report.h"
#include "ceres_ext/options.h"

int main(int argc, char** argv) {
  ceres_ext::Options options;
  std::string error;
  if (argc > 2 ||
      !ceres_ext::ParseOptions(argc > 1 ? argv[1] : "", &options, &error)) {
    std::fprintf(stderr,
                 "ceres_ext_machine: %s\n",
                 argc > 2 ? "expected key=value,... alone" : error.c_str());
    return 2;
  }
  std::fputs(ceres_ext::MachineReport(options).c_str(), stdout);
  return 0;
}
