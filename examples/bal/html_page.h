// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Pages that need nothing but themselves: HTML that is well-formed XML, with
// style and plots inside, for light and dark screens.

#ifndef EXAMPLES_BAL_HTML_PAGE_H_
#define EXAMPLES_BAL_HTML_PAGE_H_

#include <string>
#include <string_view>
#include <vector>

namespace ceres_ext::bal {

// Any bytes as text of a page; invalid UTF-8 and characters that XML does not
// allow become U+FFFD.
std::string EscapeText(std::string_view text);

// For readers, with at most so many significant digits ("1.25e6"); a dash where
// the value is not finite.
std::string ShortNumber(double value, int num_digits = 6);

// A number in its short form; the attribute value has all of its bits, and id
// is there where it is not empty.
std::string Data(double value, const std::string& id = "", int num_digits = 6);

// Cells and captions below are HTML already, all other strings plain text.
std::string HtmlTable(const std::vector<std::string>& header,
                      const std::vector<std::vector<std::string>>& rows);

std::string HtmlFigure(const std::string& title,
                       const std::string& drawing,
                       const std::string& caption);

// `kind` comes before `subject` in heading and title.
std::string HtmlPage(const std::string& kind,
                     const std::string& subject,
                     const std::string& body);

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_HTML_PAGE_H_
