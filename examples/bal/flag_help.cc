// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/flag_help.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "examples/bal/safe_file.h"
#include "gflags/gflags.h"

DECLARE_bool(help);
DECLARE_bool(helpshort);

namespace ceres_ext::bal {
namespace {

constexpr size_t kWidth = 80;
// Of both programs, for outputs that can't be written.
constexpr int kExitOutput = 4;

std::vector<gflags::CommandLineFlagInfo> FlagsOf(
    const std::string& source_file) {
  std::vector<gflags::CommandLineFlagInfo> all;
  gflags::GetAllFlags(&all);
  std::vector<gflags::CommandLineFlagInfo> own;
  for (auto& flag : all) {
    if (flag.filename == source_file) {
      own.push_back(std::move(flag));
    }
  }
  return own;
}

void AppendWrapped(const std::string& text,
                   const std::string& indent,
                   std::string* out) {
  std::istringstream words(text);
  std::string line = indent;
  for (std::string word; words >> word;) {
    if (line.size() > indent.size()) {
      if (line.size() + 1 + word.size() > kWidth) {
        *out += line + "\n";
        line = indent;
      } else {
        line += ' ';
      }
    }
    line += word;
  }
  *out += line + "\n";
}

void AppendFlag(const gflags::CommandLineFlagInfo& flag, std::string* out) {
  *out += "  --" + flag.name + " (" + flag.type;
  if (flag.type != "string") {
    *out += ", default " + flag.default_value;
  } else if (!flag.default_value.empty()) {
    *out += ", default \"" + flag.default_value + "\"";
  }
  *out += ")\n";
  AppendWrapped(flag.description, "      ", out);
}

}  // namespace

std::string FlagHelp(const std::string& introduction,
                     const std::string& source_file,
                     const std::vector<FlagGroup>& groups) {
  std::string help = introduction;
  std::set<std::string> named;
  for (const FlagGroup& group : groups) {
    help += "\n" + group.title + ":\n";
    for (const std::string& name : group.flags) {
      AppendFlag(gflags::GetCommandLineFlagInfoOrDie(name.c_str()), &help);
      named.insert(name);
    }
  }
  bool first = true;
  for (const auto& flag : FlagsOf(source_file)) {
    if (named.count(flag.name) == 0) {
      help += first ? "\nOther:\n" : "";
      first = false;
      AppendFlag(flag, &help);
    }
  }
  return help +
         "\nFlags of the libraries below (logging, flag files): --helpfull.\n";
}

std::vector<std::pair<std::string, std::string>> FlagValues(
    const std::vector<FlagGroup>& groups) {
  std::vector<std::pair<std::string, std::string>> values;
  for (const FlagGroup& group : groups) {
    for (const std::string& name : group.flags) {
      values.emplace_back(
          name,
          gflags::GetCommandLineFlagInfoOrDie(name.c_str()).current_value);
    }
  }
  std::sort(values.begin(), values.end());
  return values;
}

void ParseFlagsOrExit(const std::string& introduction,
                      const std::string& source_file,
                      const std::vector<FlagGroup>& groups,
                      int* argc,
                      char*** argv) {
  gflags::SetUsageMessage(introduction);
  gflags::ParseCommandLineNonHelpFlags(argc, argv, /*remove_flags=*/true);
  if (FLAGS_help || FLAGS_helpshort) {
    std::fputs(FlagHelp(introduction, source_file, groups).c_str(), stdout);
    std::string error;
    if (!FlushStandardOutput(&error)) {
      std::fprintf(stderr,
                   "%s: %s\n",
                   gflags::ProgramInvocationShortName(),
                   error.c_str());
      std::exit(kExitOutput);
    }
    std::exit(EXIT_SUCCESS);
  }
  gflags::HandleCommandLineHelpFlags();
  if (*argc > 1) {
    std::fprintf(stderr,
                 "%s: expected flags (--name=value) only, found '%s'; see "
                 "--help\n",
                 gflags::ProgramInvocationShortName(),
                 (*argv)[1]);
    std::exit(EXIT_FAILURE);
  }
}

}  // namespace ceres_ext::bal
