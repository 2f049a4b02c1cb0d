#!/usr/bin/env bash
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# size_test.sh [TREE]
#
# No function of the product has more than 120 lines, no file more than 1,000, and
# front/ has at most 25 files. Functions are found by the indentation that
# clang-format gives them. Without TREE also tries the test itself, on a tree of
# its own.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# check TREE: prints what is too large.
check() {
  cd "$1"
  # shellcheck disable=SC2016
  find ceres_ext cuda_kernels -type f \
    \( -name '*.h' -o -name '*.cuh' -o -name '*.cc' \) -print0 |
    LC_ALL=C sort -z | xargs -0 awk '
      function end_of_file() {
        if (lines > 1000) print file ": " lines " lines"
      }
      FNR == 1 {
        end_of_file()
        file = FILENAME
        first = 0
        split("", is_function)
      }
      {
        lines = FNR
        # Between statements, and in macros.
        if (/^ *$/ || /^ *\/\// || /^ *#/ || /\\$/) { first = 0; next }
        match($0, /[^ ]/)
        indent = RSTART - 1
        if (/^ *}/ && is_function[indent]) {
          size = FNR - begin[indent] + 1
          if (size > 120)
            print file ":" begin[indent] ": a function of " size " lines"
          is_function[indent] = 0
        }
        if (!first) {
          first = FNR
          column = indent
          text = ""
        }
        text = text " " $0
        if (/{$/ && !/= {$/) {
          begin[column] = first
          is_function[column] = text ~ /\(/ && text !~ \
            /^ *(template <[^{]*> )?(namespace|class|struct|union|enum|extern)[ {]/
        }
        if (/[;{}:]$/) first = 0
      }
      END { end_of_file() }'
  local doors
  doors=$(find ceres_ext/front -type f | wc -l)
  ((doors <= 25)) || echo "ceres_ext/front: $doors files"
}

if (($#)); then
  check "$1"
  exit
fi

found=$(check "$root")
if [[ -n "$found" ]]; then
  echo "too large:" >&2
  echo "$found" >&2
  exit 1
fi

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/ceres_ext/front" "$tree/cuda_kernels"
# A class is not a function; its second function is too long, its third is not.
{
  echo 'class LongTwo {'
  echo '  int Short() const { return 1; }'
  echo '  template <int kColumns>'
  echo '  int Long(int a,'
  echo '           int b) {'
  for ((i = 0; i < 116; ++i)); do echo '    if (a) { ++b; }'; done
  echo '    return b;'
  echo '  }'
  echo '  int JustRight() {'
  for ((i = 0; i < 118; ++i)); do echo '    ++value;'; done
  echo '  }'
  echo '};'
} >"$tree/ceres_ext/long.h"
for ((i = 0; i < 1001; ++i)); do echo "int a$i;"; done \
  >"$tree/cuda_kernels/large.cc"
for ((i = 0; i < 26; ++i)); do echo >"$tree/ceres_ext/front/door_$i.cc"; done
expected="ceres_ext/long.h:3: a function of 121 lines
cuda_kernels/large.cc: 1001 lines
ceres_ext/front: 26 files"
found=$("${BASH_SOURCE[0]}" "$tree")
if [[ "$found" != "$expected" ]]; then
  printf 'expected:\n%s\nfound:\n%s\n' "$expected" "$found" >&2
  exit 1
fi
