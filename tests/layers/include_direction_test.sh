#!/usr/bin/env bash
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# include_direction_test.sh [TREE]
#
# An include may skip downwards in the table of docs/architecture.md, never
# point up, and host/ and cuda/ don't know each other. Installed headers include
# installed headers alone; problem_io/ includes those and one header of the
# machines. No headers include each other in a circle. Without TREE also tries
# the test itself, on a tree of its own.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# includes: FILE:LINE:#include "PATH" of each include of the project's files.
includes() {
  find cuda_kernels ceres_ext problem_io examples benchmarks studies python \
    -path studies/tests -prune -o -type f \
    \( -name '*.h' -o -name '*.cuh' -o -name '*.cc' \) -print0 |
    LC_ALL=C sort -z |
    xargs -0 grep -HnE \
      '^#include "(cuda_kernels|ceres_ext|problem_io|examples|benchmarks|studies|python|tests)/'
}

# check TREE: prints each include that points up, and the files of circles.
check() {
  cd "$1"
  # tsort says "FROM: input contains a loop:" and then the files of the loop.
  { includes | sed -E 's/:.*"(.*)"$/ \1/' | tsort 2>&1 >/dev/null || true; } |
    sed -nE 's/^tsort: (.*\.cuh?|.*\.h)$/\1: is in a circle of includes/p'
  local installed=""
  if [[ -f cmake/CeresExtInstall.cmake ]]; then
    installed=$(grep -oE \
      '(cuda_kernels|ceres_ext/(solver|small))/[a-z_/]+\.(cuh?|h)' \
      cmake/CeresExtInstall.cmake | tr '\n' ' ')
  fi
  includes |
    awk -F '[:"]' -v installed=" $installed" '
      # The layer of a file; -1: none.
      function layer(path) {
        if (path ~ /^cuda_kernels\/base\//) return 0
        if (path ~ /^cuda_kernels\/machine\//) return 1
        if (path ~ /^cuda_kernels\/model\//) return 2
        if (path ~ /^cuda_kernels\/structure\//) return 3
        if (path ~ /^cuda_kernels\/ops\//) return 4
        if (path ~ /^cuda_kernels\/(host|cuda)\//) return 5
        if (path ~ /^ceres_ext\/solver\//) return 6
        if (path ~ /^ceres_ext\/(device\/)?[^\/]*\.(h|cuh)$/) return 7
        if (path ~ /^ceres_ext\/base\//) return 8
        if (path ~ /^ceres_ext\/import\//) return 9
        if (path ~ /^ceres_ext\/blocks\//) return 10
        if (path ~ /^ceres_ext\/rows\//) return 11
        if (path ~ /^ceres_ext\/plan\//) return 12
        if (path ~ /^ceres_ext\/session\//) return 13
        if (path ~ /^ceres_ext\/under_ceres\//) return 14
        # Kernels of users include these; beside solver/.
        if (path ~ /^ceres_ext\/small\/fit\/fit(_solve)?\.h$/) return 6
        if (path ~ /^ceres_ext\/small\//) return 15
        if (path ~ /^ceres_ext\/front\//) return 16
        if (path ~ /^problem_io\//) return 17
        if (path ~ /^(examples|benchmarks|studies|python)\//) return 18
        return -1
      }
      {
        from = $1; to = $4
        a = layer(from); b = layer(to)
        wrong = ""
        if (a < 0 || b < 0) wrong = "is in no layer"
        else if (b > a) wrong = "points up"
        else if ((a == 7 || index(installed, " " from " ")) && b != 7 &&
                 !index(installed, " " to " "))
          wrong = "is not installed"
        else if (a == 17 && b != 17 && b != 7 &&
                 to != "cuda_kernels/machine/host_processors.h")
          wrong = "is not for problem_io"
        # Bodies are reached through ops/, except for templates that others
        # instantiate and loops for bodies of studies/.
        else if (b == 5 && to !~ /\.cuh$/ && a != 5 &&
                 from !~ /^studies\//)
          wrong = "is a body, include ops/ for it"
        else if ((from ~ /^cuda_kernels\/host\// &&
                  to ~ /^cuda_kernels\/cuda\//) ||
                 (from ~ /^cuda_kernels\/cuda\// &&
                  to ~ /^cuda_kernels\/host\//))
          wrong = "is of the other machine"
        else if (to ~ /\.cuh$/ && from !~ /\.cuh$/ && from !~ /\.cu\.cc$/)
          wrong = "is for nvcc alone"
        if (wrong != "") print from ":" $2 ": " to " " wrong
      }'
}

if (($#)); then
  check "$1"
  exit
fi

found=$(check "$root")
if [[ -n "$found" ]]; then
  echo "$found" >&2
  exit 1
fi

# The violations that the test must find.
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree"/{examples,benchmarks,studies,python,problem_io}
mkdir -p "$tree"/ceres_ext/{solver,import,rows}
mkdir -p "$tree"/cuda_kernels/{base,ops,host,cuda} "$tree/cmake"
echo '  cuda_kernels/ops/installed.h' >"$tree/cmake/CeresExtInstall.cmake"
echo '#include "cuda_kernels/base/b.h"' >"$tree/cuda_kernels/ops/installed.h"
echo '#include "cuda_kernels/ops/b.h"' >"$tree/cuda_kernels/base/a.h"
echo '#include "cuda_kernels/cuda/b.cuh"' >"$tree/cuda_kernels/host/a.cc"
echo '#include "cuda_kernels/cuda/b.cuh"' >"$tree/ceres_ext/solver/a.cc"
echo '#include "cuda_kernels/base/b.h"' >"$tree/ceres_ext/a.h"
echo '#include "ceres_ext/import/b.h"' >"$tree/ceres_ext/solver/b.cc"
echo '#include "ceres_ext/rows/b.h"' >"$tree/ceres_ext/import/a.cc"
echo '#include "tests/b.h"' >"$tree/ceres_ext/rows/a.h"
echo '#include "ceres_ext/rows/b.h"' >"$tree/problem_io/a.h"
echo '#include "examples/b.h"' >"$tree/problem_io/b.h"
echo '#include "cuda_kernels/base/b.h"' >"$tree/cuda_kernels/ops/good.h"
echo '#include "ceres_ext/b.h"' >"$tree/problem_io/good.h"
echo '#include "problem_io/b.h"' >"$tree/examples/good.h"
echo '#include "benchmarks/b.h"' >"$tree/studies/good.h"
echo '#include "studies/b.h"' >"$tree/problem_io/c.h"
# A circle of three, and headers that include one of them.
echo '#include "cuda_kernels/base/circle_b.h"' >"$tree/cuda_kernels/base/circle_a.h"
echo '#include "cuda_kernels/base/circle_c.h"' >"$tree/cuda_kernels/base/circle_b.h"
echo '#include "cuda_kernels/base/circle_a.h"' >"$tree/cuda_kernels/base/circle_c.h"
echo '#include "cuda_kernels/base/circle_c.h"' >"$tree/cuda_kernels/base/good.h"
found=$(check "$tree")
expected='ceres_ext/a.h:1: cuda_kernels/base/b.h is not installed
ceres_ext/import/a.cc:1: ceres_ext/rows/b.h points up
ceres_ext/rows/a.h:1: tests/b.h is in no layer
ceres_ext/solver/a.cc:1: cuda_kernels/cuda/b.cuh is for nvcc alone
ceres_ext/solver/b.cc:1: ceres_ext/import/b.h points up
cuda_kernels/base/a.h:1: cuda_kernels/ops/b.h points up
cuda_kernels/base/circle_a.h: is in a circle of includes
cuda_kernels/base/circle_b.h: is in a circle of includes
cuda_kernels/base/circle_c.h: is in a circle of includes
cuda_kernels/host/a.cc:1: cuda_kernels/cuda/b.cuh is of the other machine
cuda_kernels/ops/installed.h:1: cuda_kernels/base/b.h is not installed
problem_io/a.h:1: ceres_ext/rows/b.h is not for problem_io
problem_io/b.h:1: examples/b.h points up
problem_io/c.h:1: studies/b.h points up'
if [[ "$(LC_ALL=C sort <<<"$found")" != "$expected" ]]; then
  printf 'expected\n%s\nfound\n%s\n' "$expected" "$found" >&2
  exit 1
fi
echo "includes point down, and none in a circle"
