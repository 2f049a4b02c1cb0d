// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// --help that shows the flags of this program alone, in groups, and exits with
// 0 (that of gflags shows those of every library, and exits with 1).

#ifndef EXAMPLES_BAL_FLAG_HELP_H_
#define EXAMPLES_BAL_FLAG_HELP_H_

#include <string>
#include <utility>
#include <vector>

namespace ceres_ext::bal {

struct FlagGroup {
  std::string title;
  std::vector<std::string> flags;
};

// `introduction`, then each group with type, default and description of its
// flags. Flags that source_file defines and no group names come last, under
// "Other".
std::string FlagHelp(const std::string& introduction,
                     const std::string& source_file,
                     const std::vector<FlagGroup>& groups);

// Value of each flag of the groups, in the order of names.
std::vector<std::pair<std::string, std::string>> FlagValues(
    const std::vector<FlagGroup>& groups);

// Parses the command line, and ends the process if there is nothing to do: with
// 0 after --help (of FlagHelp; 4 if it can't be written) or --version, with 1
// after a line about an unknown flag, which names the nearest one, a value of
// the wrong type or an argument that is not a flag.
void ParseFlagsOrExit(const std::string& introduction,
                      const std::string& source_file,
                      const std::vector<FlagGroup>& groups,
                      int* argc,
                      char*** argv);

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_FLAG_HELP_H_
