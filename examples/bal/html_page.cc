// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/html_page.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "problem_io/number_text.h"

namespace ceres_ext::bal {
namespace {

constexpr char kStyle[] = R"(
:root{color-scheme:light dark;--back:#fff;--text:#1c1c1e;--soft:#5f6368;
--line:#dadce0;--c0:#1967b3;--c1:#c85a00;--c2:#14804a;--c3:#b0308c;--c4:#6b4fc0;
--c5:#80660a;--c6:#0b7f92;--c7:#b3261e}
@media(prefers-color-scheme:dark){:root{--back:#17181a;--text:#e8eaed;
--soft:#a4a9b0;--line:#3c4043;--c0:#6cb0f5;--c1:#ff9d4d;--c2:#5fcf93;--c3:#f07fd0;
--c4:#b3a0ff;--c5:#d9bf55;--c6:#5ccfe0;--c7:#ff8a80}}
body{margin:0 auto;max-width:1080px;padding:16px 24px 40px;background:var(--back);
color:var(--text);font:14px/1.45 system-ui,"Segoe UI","DejaVu Sans",sans-serif}
h1{font-size:21px;overflow-wrap:anywhere}
h2{font-size:17px;margin:28px 0 8px}
h3{font-size:14px;margin:0 0 4px}
p{max-width:75ch}
table{border-collapse:collapse;margin:6px 0;font-size:13px;font-variant-numeric:tabular-nums}
th,td{padding:2px 12px 2px 0;text-align:left;vertical-align:top;
border-bottom:1px solid var(--line)}
td:not(:last-child){white-space:nowrap}
td:last-child{min-width:5em;overflow-wrap:anywhere}
th{color:var(--soft);font-weight:600}
.wide{overflow-x:auto}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(440px,1fr));
gap:22px 26px}
figure{margin:0}
.figures>figure:only-child{max-width:720px}
figcaption{color:var(--soft);font-size:13px}
.key{display:inline-block;margin-right:14px;white-space:nowrap}
.key svg{width:26px;height:10px;vertical-align:middle;margin-right:5px}
.bad{color:var(--c7);font-weight:600}
svg{display:block;width:100%;height:auto}
svg.in{display:inline-block}
svg text{font:12px system-ui,"Segoe UI","DejaVu Sans",sans-serif;fill:var(--text)}
svg .label{fill:var(--soft)}
svg .grid{stroke:var(--line);fill:none}
svg .frame{stroke:var(--soft);fill:none}
svg .series{fill:none;stroke-width:1.7;stroke-linejoin:round}
svg .area{stroke-width:1.4;fill-opacity:.3}
svg .dots{fill:none;stroke-linecap:round}
svg .dashed{stroke-dasharray:5 3}
)";

// One character of UTF-8 at the head of `text`, its length in *size; -1, with a
// length of 1, where there is none.
int32_t DecodeCharacter(std::string_view text, size_t* size) {
  const auto byte = [text](size_t i) -> int32_t {
    return static_cast<unsigned char>(text[i]);
  };
  const int32_t first = byte(0);
  *size = 1;
  if (first < 0x80) {
    return first;
  }
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) {
    return -1;
  }
  int32_t character = first & (0x7f >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) {
      return -1;
    }
    character = character << 6 | (byte(i) & 0x3f);
  }
  constexpr int32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (character < kSmallest[length]) {
    return -1;
  }
  *size = length;
  return character;
}

bool IsXmlCharacter(int32_t c) {
  return c == '\t' || c == '\n' || c == '\r' || (c >= 0x20 && c <= 0xd7ff) ||
         (c >= 0xe000 && c <= 0xfffd) || (c >= 0x10000 && c <= 0x10ffff);
}

std::string Cells(const std::string& tag,
                  const std::vector<std::string>& cells) {
  std::string row = "<tr>";
  for (const std::string& cell : cells) {
    row.append("<").append(tag).append(">").append(cell);
    row.append("</").append(tag).append(">");
  }
  return row + "</tr>\n";
}

}  // namespace

std::string EscapeText(std::string_view text) {
  std::string escaped;
  while (!text.empty()) {
    size_t size;
    const int32_t c = DecodeCharacter(text, &size);
    if (c == '&') {
      escaped += "&amp;";
    } else if (c == '<') {
      escaped += "&lt;";
    } else if (c == '>') {
      escaped += "&gt;";
    } else if (c == '"') {
      escaped += "&quot;";
    } else if (IsXmlCharacter(c)) {
      escaped += text.substr(0, size);
    } else {
      escaped += "\xef\xbf\xbd";
    }
    text.remove_prefix(size);
  }
  return escaped;
}

std::string ShortNumber(double value, int num_digits) {
  if (!std::isfinite(value)) {
    return "–";
  }
  std::string number = RoundedText(value, num_digits);
  // "e+06" to "e6", "e-07" to "e-7".
  const size_t exponent = number.find('e');
  if (exponent != std::string::npos) {
    size_t digits = exponent + 1;
    if (number[digits] == '+') {
      number.erase(digits, 1);
    } else {
      ++digits;
    }
    while (digits + 1 < number.size() && number[digits] == '0') {
      number.erase(digits, 1);
    }
  }
  return number;
}

std::string Data(double value, const std::string& id, int num_digits) {
  return "<data" + (id.empty() ? id : " id=\"" + id + "\"") + " value=\"" +
         (std::isfinite(value) ? NumberText(value) : std::string()) + "\">" +
         ShortNumber(value, num_digits) + "</data>";
}

std::string HtmlTable(const std::vector<std::string>& header,
                      const std::vector<std::vector<std::string>>& rows) {
  std::string table = "<div class=\"wide\"><table>\n";
  if (!header.empty()) {
    table += Cells("th", header);
  }
  for (const std::vector<std::string>& row : rows) {
    table += Cells("td", row);
  }
  return table + "</table></div>\n";
}

std::string HtmlFigure(const std::string& title,
                       const std::string& drawing,
                       const std::string& caption) {
  return "<figure><h3>" + EscapeText(title) + "</h3>\n" + drawing +
         "<figcaption>" + caption + "</figcaption></figure>\n";
}

std::string HtmlPage(const std::string& kind,
                     const std::string& subject,
                     const std::string& body) {
  const std::string title = EscapeText(kind + " " + subject);
  return "<!DOCTYPE html>\n"
         "<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n"
         "<head><meta charset=\"utf-8\"/>\n"
         "<meta name=\"viewport\" "
         "content=\"width=device-width,initial-scale=1\"/>\n"
         "<title>" +
         title + "</title>\n<style>" + kStyle +
         "</style></head>\n<body>\n<h1>" + title + "</h1>\n" + body +
         "</body></html>\n";
}

}  // namespace ceres_ext::bal
