// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "problem_io/number_text.h"

#include <locale.h>
#include <stdlib.h>

#include <cmath>
#include <string>

namespace ceres_ext::bal {

bool ParseTiny(const std::string& number, double* value) {
  static const locale_t kLocale = newlocale(LC_ALL_MASK, "C", nullptr);
  *value = strtod_l(number.c_str(), nullptr, kLocale);
  return std::isfinite(*value);
}

std::string RoundedText(double value, int num_digits) {
  char text[32];
  return std::string(text,
                     std::to_chars(text,
                                   text + sizeof(text),
                                   value,
                                   std::chars_format::general,
                                   num_digits)
                         .ptr);
}

std::string Quoted(const char* begin, const char* end) {
  constexpr size_t kMaxQuotedSize = 40;
  static constexpr char kHex[] = "0123456789abcdef";
  std::string quoted = "'";
  for (const char* c = begin; c < end && !IsSpace(*c); ++c) {
    if (quoted.size() > kMaxQuotedSize) {
      quoted += "...";
      break;
    }
    if (*c >= ' ' && *c <= '~') {
      quoted += *c;
    } else {
      const auto byte = static_cast<unsigned char>(*c);
      quoted += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return quoted + "'";
}

}  // namespace ceres_ext::bal
