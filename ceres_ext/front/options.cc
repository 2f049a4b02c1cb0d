// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/options.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "ceres_ext/front/option_table.h"
#include "ceres_ext/plan/device_choice.h"

namespace ceres_ext {

bool Options::IsValid(std::string* error) const {
  std::string ignored;
  std::string* message = error != nullptr ? error : &ignored;
  const std::vector<OptionRow>& table = OptionTable();
  if (!std::all_of(table.begin(), table.end(), [&](const OptionRow& row) {
        return row.Check(*this, message);
      })) {
    return false;
  }
  if (jacobian == JACOBIAN_RECOMPUTED && !batch_evaluation) {
    *message = "jacobian = RECOMPUTED requires batch_evaluation = true";
    return false;
  }
  if (linear_solver == LINEAR_SOLVER_CGNR &&
      preconditioner == PRECONDITIONER_SCHUR_JACOBI) {
    *message =
        "preconditioner = SCHUR_JACOBI needs a Schur complement; with "
        "linear_solver = CGNR expected IDENTITY or JACOBI";
    return false;
  }
  std::vector<int> devices;
  return ReadDevices(cuda_devices, &devices, message);
}

bool ParseOptions(const std::string& settings,
                  Options* options,
                  std::string* error) {
  std::string ignored;
  std::string* message = error != nullptr ? error : &ignored;
  Options parsed = *options;
  std::set<std::string> seen;
  size_t begin = 0;
  while (begin < settings.size()) {
    const size_t end = std::min(settings.find(',', begin), settings.size());
    const std::string item = settings.substr(begin, end - begin);
    if (end + 1 == settings.size()) {
      *message = "'" + settings + "' ends with a comma";
      return false;
    }
    begin = end + 1;

    const size_t equals = item.find('=');
    if (equals == std::string::npos) {
      *message = "'" + item + "' is not of the form key=value";
      return false;
    }
    const std::string key = item.substr(0, equals);
    const std::string value = item.substr(equals + 1);
    if (!seen.insert(key).second) {
      *message = "key '" + key + "' is given twice";
      return false;
    }

    const std::vector<OptionRow>& table = OptionTable();
    const auto row =
        std::find_if(table.begin(), table.end(), [&](const OptionRow& r) {
          return r.name == key;
        });
    if (row == table.end()) {
      *message = "expected one of the keys ";
      for (const OptionRow& known : table) {
        *message += std::string(known.name) + ", ";
      }
      *message += "found '" + key + "'";
      return false;
    }
    if (!row->Set(value, &parsed, message)) {
      return false;
    }
  }
  if (!parsed.IsValid(message)) {
    return false;
  }
  *options = parsed;
  return true;
}

}  // namespace ceres_ext
