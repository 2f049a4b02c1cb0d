// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A sentence of parts: Sentence("residuals ", i, ", row ", row).

#ifndef CERES_EXT_BASE_SENTENCE_H_
#define CERES_EXT_BASE_SENTENCE_H_

#include <limits>
#include <sstream>
#include <string>

namespace ceres_ext {

// Numbers have all their digits.
template <typename... Parts>
std::string Sentence(const Parts&... parts) {
  std::ostringstream text;
  text.precision(std::numeric_limits<double>::max_digits10);
  (text << ... << parts);
  return text.str();
}

}  // namespace ceres_ext

#endif  // CERES_EXT_BASE_SENTENCE_H_
