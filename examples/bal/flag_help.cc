// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/flag_help.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gflags/gflags.h"
#include "problem_io/number_text.h"
#include "problem_io/safe_file.h"

DECLARE_bool(help);
DECLARE_bool(helpshort);

namespace ceres_ext::bal {
namespace {

constexpr size_t kWidth = 80;
// A help text of both programs, for outputs that can't be written.
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

// With as many digits as read back as the same number, where gflags writes 17,
// as in 0.10000000000000001.
std::string ShortestText(double value) {
  for (int num_digits = 1;; ++num_digits) {
    std::string text = RoundedText(value, num_digits);
    if (num_digits == 17 || std::stod(text) == value) {
      return text;
    }
  }
}

void AppendFlag(const gflags::CommandLineFlagInfo& flag, std::string* out) {
  *out += "  --" + flag.name + " (" + flag.type;
  if (flag.type == "double") {
    *out += ", default " + ShortestText(std::stod(flag.default_value));
  } else if (flag.type != "string") {
    *out += ", default " + flag.default_value;
  } else if (!flag.default_value.empty()) {
    *out += ", default \"" + flag.default_value + "\"";
  }
  *out += ")\n";
  AppendWrapped(flag.description, "      ", out);
}

[[noreturn]] void FailUsage(const std::string& error) {
  std::fprintf(
      stderr, "%s: %s\n", gflags::ProgramInvocationShortName(), error.c_str());
  std::exit(EXIT_FAILURE);
}

// How many letters differ: the least number of insertions, deletions and
// replacements that make one name the other.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

// The nearest of the names, "" where more than a third of the letters differ.
// COLMAP's flags are also known behind a dot: BundleAdjustment.NAME.
std::string Nearest(const std::string& unknown,
                    const std::set<std::string>& names) {
  const std::string name = unknown.substr(unknown.rfind('.') + 1);
  std::string nearest;
  size_t distance = name.size() / 3 + 1;
  for (const std::string& candidate : names) {
    const size_t d = EditDistance(name, candidate);
    if (d < distance) {
      distance = d;
      nearest = candidate;
    }
  }
  return nearest;
}

const char* WhatTypeTakes(const std::string& type) {
  return type == "bool"     ? "true or false"
         : type == "double" ? "a number"
         : type == "string" ? "a text"
                            : "a whole number";
}

// Reads the command line as gflags does, for unknown flags and values of the
// wrong type. gflags ends the process there with messages of its own form,
// which suggest no flag.
void CheckFlags(const std::set<std::string>& names, int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    if (name == "--") {
      return;
    }
    if (name.size() < 2 || name[0] != '-') {
      continue;
    }
    name.erase(0, name[1] == '-' ? 2 : 1);
    const size_t equals = name.find('=');
    const bool has_value = equals != std::string::npos;
    std::string value = has_value ? name.substr(equals + 1) : "";
    name = name.substr(0, equals);
    if (name == "undefok") {
      return;
    }
    gflags::CommandLineFlagInfo flag;
    if (!gflags::GetCommandLineFlagInfo(name.c_str(), &flag)) {
      if (!has_value && name.rfind("no", 0) == 0 &&
          gflags::GetCommandLineFlagInfo(name.c_str() + 2, &flag) &&
          flag.type == "bool") {
        continue;
      }
      const std::string nearest = Nearest(name, names);
      FailUsage("--" + name + " is not a flag; " +
                (nearest.empty() ? "" : "did you mean --" + nearest + "? ") +
                "see --help");
    }
    if (!has_value && flag.type != "bool") {
      if (++i == argc) {
        FailUsage("--" + name + ": expected " + WhatTypeTakes(flag.type) +
                  ", found none");
      }
      value = argv[i];
    } else if (!has_value) {
      continue;
    }
    if (names.count(flag.name) != 0 &&
        gflags::SetCommandLineOption(flag.name.c_str(), value.c_str())
            .empty()) {
      FailUsage("--" + name + ": expected " + WhatTypeTakes(flag.type) +
                ", found '" + value + "'");
    }
  }
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
  // For the name of the program.
  gflags::SetArgv(*argc, const_cast<const char**>(*argv));
  std::set<std::string> names;
  for (const auto& flag : FlagsOf(source_file)) {
    names.insert(flag.name);
  }
  for (const FlagGroup& group : groups) {
    names.insert(group.flags.begin(), group.flags.end());
  }
  CheckFlags(names, *argc, *argv);
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
    FailUsage(std::string("expected flags (--name=value) only, found '") +
              (*argv)[1] + "'; see --help");
  }
}

}  // namespace ceres_ext::bal
