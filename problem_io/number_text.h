// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Numbers as text, in any locale.

#ifndef PROBLEM_IO_NUMBER_TEXT_H_
#define PROBLEM_IO_NUMBER_TEXT_H_

#include <charconv>
#include <string>
#include <system_error>
#include <type_traits>

namespace ceres_ext::bal {

inline bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// A case of ParseNumber for numbers that are too small for a double; from_chars
// refuses them like numbers that are too large, for which this is false.
bool ParseTiny(const std::string& number, double* value);

// Reads the number at begin and returns where it ends, at white space or at
// end. nullptr if there is none, or none that fits.
template <typename T>
const char* ParseNumber(const char* begin, const char* end, T* value) {
  // from_chars knows no plus sign.
  if (begin + 1 < end && *begin == '+' && begin[1] != '-') {
    ++begin;
  }
  auto [stop, status] = std::from_chars(begin, end, *value);
  if constexpr (std::is_floating_point_v<T>) {
    if (status == std::errc::result_out_of_range &&
        ParseTiny(std::string(begin, stop - begin), value)) {
      status = std::errc();
    }
  }
  return status == std::errc() && (stop == end || IsSpace(*stop)) ? stop
                                                                  : nullptr;
}

// Integers; floating point numbers in the shortest form that reads back as the
// same bits.
template <typename T>
std::string NumberText(T value) {
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof(text), value).ptr);
}

// A finite number with at most so many significant digits.
std::string RoundedText(double value, int num_digits);

// The token that starts at begin, in quotes and safe to print on one line.
std::string Quoted(const char* begin, const char* end);

}  // namespace ceres_ext::bal

#endif  // PROBLEM_IO_NUMBER_TEXT_H_
