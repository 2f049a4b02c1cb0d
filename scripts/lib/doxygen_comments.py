#!/usr/bin/env python3
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Doxygen's input filter: prints a header whose comments are Doxygen's.

The first comment describes the file. A comment line with three or more blanks
is code, except in a list item. A comment after a member belongs to it.
"""

import re
import sys


def escape(text):
    return re.sub(r"([\\@<>&#%$])", r"\\\1", text)


def main():
    lines = open(sys.argv[1]).read().splitlines()
    is_head, in_code, in_item = True, False, False
    out = []

    def end_code(indent):
        nonlocal in_code
        if in_code:
            out.append(f"{indent}/// \\endverbatim")
        in_code = False

    for number, line in enumerate(lines):
        comment = re.match(r"(\s*)//+(?!/)( ?)(.*)$", line)
        if not comment or "NOLINT" in line:
            end_code("")
            is_head = in_item = False
            after = re.match(r"(.*[;,])\s+// (.*)$", line)
            if after and "NOLINT" not in line:
                line = f"{after.group(1)}  ///< {escape(after.group(2))}"
            out.append(line)
            continue
        indent, blank, text = comment.groups()
        if is_head and number == 0:
            out.append("/// \\file")
            continue
        is_code = blank and text.startswith("  ") and not in_item
        if text.startswith(("- ", "* ")) or re.match(r"\d+\. ", text):
            in_item = True
            text = re.sub(r"^\d+\. ", "-# ", text)
        elif not text.strip():
            in_item = False
            # Blank lines within code are part of it.
            following = lines[number + 1] if number + 1 < len(lines) else ""
            is_code = in_code and re.match(r"\s*//   ", following)
        if is_code and not in_code:
            out.append(f"{indent}/// \\verbatim")
            in_code = True
        elif not is_code:
            end_code(indent)
        out.append(f"{indent}/// {text if in_code else escape(text)}".rstrip())
    print("\n".join(out))


if __name__ == "__main__":
    main()
