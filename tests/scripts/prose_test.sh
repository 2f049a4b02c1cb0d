#!/usr/bin/env bash
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# scripts/prose finds the forms of docs/plain_words.md in pages, comments and
# strings, with file and line, and links and names of files that do not exist. It
# respects exceptions and refuses unused ones. Then it runs on this checkout.
set -euo pipefail
# shellcheck source=testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/testing.sh"
command -v git >/dev/null && command -v python3 >/dev/null || exit 77

tree="$WORK/tree"
mkdir -p "$tree/scripts" "$tree/docs" "$tree/tests"
git -C "$tree" init -q

# prose STATUS: runs it on the tree; its output is in $said.
prose() {
  local status=0
  said=$("$SOURCE_ROOT/scripts/prose" "$tree" 2>&1) || status=$?
  expect_equal "exit status" "$status" "$1"
}

cat >"$tree/docs/page.md" <<'EOF'
# What a heading may say

This page is plain. Where do questions begin? Here.

`of a user's own` in code does not count. [A link](page.md), [a heading](#what-a-heading-may-say),
[elsewhere](https://example.com/x.md), `good.cc`, `tests/a_test.cc`, `a_test` and [a folder](../tests).
EOF
cat >"$tree/good.cc" <<'EOF'
// Returns the sum.
int Sum(int a, int b) { return a + b; }  // 'Of course' is allowed: Of course.
int x;  // in docs/page.md, at the end
        // of which is more
EOF
touch "$tree/tests/a_test.cc"
prose 0

cat >"$tree/docs/page.md" <<'EOF'
Everything is solved
here, but for dogleg steps.

| cell | Whether it is solved |

[A link](gone.md), [a heading](page.md#gone), `tests/gone.cc`, `gone_test`
EOF
cat >"$tree/bad.cc" <<'EOF'
// Adds two numbers. Of
// others it says nothing.
int Sum(int a, int b) { return a + b; }
const char* kMessage =
    "this can't "
    "be had";
// Nobody reads docs/gone.md.
int n;  // a number
// That of the sum.
int sum;
// Those of both, but for one.
EOF
cat >"$tree/bad.py" <<'EOF'
"""A module.

What it returns.
"""
x = 1  # the table is made anew
EOF
cat >"$tree/bad.sh" <<'EOF'
#!/bin/sh
# A script.
echo "the program can't be served"
EOF
cat >"$tree/tests/a_test.cc" <<'EOF'
// A test compares texts, which are not checked: "is dear".
const char* kText = "not there";
EOF
prose 1
for place in 'docs/page.md:2: "but for"' 'docs/page.md:4: "Whether ..."' \
  'bad.cc:1: "Of ..."' 'bad.cc:6: "is had"' 'bad.py:3: "What ..."' \
  'bad.py:5: "anew"' 'bad.sh:3: "serves"' 'a_test.cc:1: "dear"' \
  'docs/page.md:6: "broken link" (write: a link that exists): gone.md' \
  'docs/page.md:6: "broken link" (write: a link that exists): page.md#gone' \
  'docs/page.md:6: "missing file" (write: a file that exists): tests/gone.cc' \
  'docs/page.md:6: "missing test" (write: a test that exists): gone_test' \
  'bad.cc:7: "nobody"' 'bad.cc:7: "missing file"' 'bad.cc:9: "That of ..."' \
  'bad.cc:11: "That of ..."' 'bad.cc:11: "but for"'; do
  expect_has "findings" "$said" "$place"
done
expect_lacks "strings of tests" "$said" "a_test.cc:2"
expect_has "count" "$said" "17 findings"

cat >"$tree/scripts/prose_exceptions.txt" <<'EOF'
# A comment.
bad.* | *
tests/a_test.cc | dear | compares texts
docs/page.md | but for | dogleg
docs/page.md | Whether ... | it is solved
docs/page.md | broken link | gone
docs/page.md | missing file | gone
docs/page.md | missing test | gone
EOF
prose 0

echo "docs/page.md | anew | nothing" >>"$tree/scripts/prose_exceptions.txt"
prose 1
expect_has "unused exception" "$said" \
  "scripts/prose_exceptions.txt:9: this exception matches nothing"
echo "docs/page.md | an unknown form | nothing" \
  >"$tree/scripts/prose_exceptions.txt"
prose 1
expect_has "unknown form" "$said" "an unknown form is not a form"

# A plain finding and no exception: the counts are the same.
rm "$tree/scripts/prose_exceptions.txt"
expect_has "counts" "$("$SOURCE_ROOT/scripts/prose" --count "$tree")" \
  "   17  all"

if git -C "$SOURCE_ROOT" rev-parse -q --git-dir >/dev/null 2>&1; then
  "$SOURCE_ROOT/scripts/prose"
fi
echo "scripts/prose finds what it must"
