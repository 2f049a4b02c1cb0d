// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Flags whose values are names.

#ifndef EXAMPLES_BAL_FLAG_ENUM_H_
#define EXAMPLES_BAL_FLAG_ENUM_H_

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

namespace ceres_ext::bal {

template <typename Enum>
struct EnumName {
  const char* name;
  Enum value;
};

// Case does not matter, as in Ceres. On failure returns false and sets *error
// to one line that names the flag.
template <typename Enum>
bool ParseEnum(const char* flag,
               const std::string& text,
               const std::vector<EnumName<Enum>>& names,
               Enum* value,
               std::string* error) {
  const auto lower = [](std::string name) {
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
      return std::tolower(c);
    });
    return name;
  };
  std::string accepted;
  for (const EnumName<Enum>& entry : names) {
    if (lower(text) == lower(entry.name)) {
      *value = entry.value;
      return true;
    }
    accepted += (accepted.empty() ? "" : ", ") + std::string(entry.name);
  }
  *error = std::string("--") + flag + ": expected one of " + accepted +
           ", found '" + text + "'";
  return false;
}

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_FLAG_ENUM_H_
