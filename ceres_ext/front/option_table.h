// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// One row for each field of Options that has a name for users. ParseOptions,
// Options::IsValid, the Python package, the flags of the programs, their --help
// and the table of docs/options.md are made of it.

#ifndef CERES_EXT_FRONT_OPTION_TABLE_H_
#define CERES_EXT_FRONT_OPTION_TABLE_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "ceres_ext/options.h"

namespace ceres_ext {

// Upper-case names of the values 0, 1, ... of an enum.
using ValueNames = std::vector<const char*>;

struct EnumField {
  ValueNames names;
  // The number in the field, which need not be one of the values.
  int (*get)(const Options& options);
  void (*set)(int value, Options* options);
};

struct OptionRow {
  const char* name;
  std::variant<EnumField,
               bool Options::*,
               int Options::*,
               int64_t Options::*,
               double Options::*,
               std::string Options::*>
      field;
  // The heading of --help that the flag is under.
  const char* group;
  const char* sentence;
  // The least value of a number; numbers are finite in any case.
  double min = 0.0;

  // "auto, host, cuda" or "a number from 0 to 2147483647".
  std::string Accepted() const;

  // The value as text that Set reads.
  std::string Get(const Options& options) const;

  // False with "NAME: expected ..., found ..." in *error where the value is not
  // accepted; the field may have it then. Case of names does not matter.
  bool Set(const std::string& text, Options* options, std::string* error) const;
  bool Check(const Options& options, std::string* error) const;
};

// In the order of the fields.
const std::vector<OptionRow>& OptionTable();

}  // namespace ceres_ext

#endif  // CERES_EXT_FRONT_OPTION_TABLE_H_
