#!/usr/bin/env bash
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# include_direction_test.sh [TREE]
#
# An include may skip downwards in the table of docs/architecture.md, never
# point up, and host/ and cuda/ don't know each other. Installed headers include
# installed headers alone. Without TREE also tries the test itself, on a tree of
# its own.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# check TREE: prints each include that points up.
check() {
  cd "$1"
  local installed=""
  if [[ -f cmake/CeresExtInstall.cmake ]]; then
    installed=$(grep -oE 'cuda_kernels/[a-z_/]+\.cuh?|cuda_kernels/[a-z_/]+\.h' \
      cmake/CeresExtInstall.cmake | tr '\n' ' ')
  fi
  find cuda_kernels ceres_ext examples benchmarks python -type f \
    \( -name '*.h' -o -name '*.cuh' -o -name '*.cc' \) -print0 |
    LC_ALL=C sort -z |
    xargs -0 grep -HnE \
      '^#include "(cuda_kernels|ceres_ext|examples|benchmarks|python|tests)/' |
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
        if (path ~ /^ceres_ext\/[^\/]*\.(h|cuh)$/) return 7
        if (path ~ /^ceres_ext\/glue\//) return 8
        if (path ~ /^ceres_ext\/[^\/]*\.cc$/) return 9
        if (path ~ /^(examples|benchmarks|python)\//) return 10
        return -1
      }
      {
        from = $1; to = $4
        a = layer(from); b = layer(to)
        wrong = ""
        if (a < 0 || b < 0) wrong = "is in no layer"
        else if (b > a) wrong = "points up"
        else if (a == 7 && b != 7 && !index(installed, " " to " "))
          wrong = "is not installed"
        # Bodies are reached through ops/, but for templates that others
        # instantiate and loops for bodies of the study.
        else if (b == 5 && to !~ /\.cuh$/ && a != 5 &&
                 from !~ /^benchmarks\/study\//)
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

# What the test is to find.
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree"/{examples,benchmarks,python,ceres_ext/{solver,glue}}
mkdir -p "$tree"/cuda_kernels/{base,ops,host,cuda}
echo '#include "cuda_kernels/ops/b.h"' >"$tree/cuda_kernels/base/a.h"
echo '#include "cuda_kernels/cuda/b.cuh"' >"$tree/cuda_kernels/host/a.cc"
echo '#include "cuda_kernels/cuda/b.cuh"' >"$tree/ceres_ext/solver/a.cc"
echo '#include "cuda_kernels/base/b.h"' >"$tree/ceres_ext/a.h"
echo '#include "ceres_ext/glue/b.h"' >"$tree/ceres_ext/solver/b.cc"
echo '#include "tests/b.h"' >"$tree/ceres_ext/glue/a.h"
echo '#include "cuda_kernels/base/b.h"' >"$tree/cuda_kernels/ops/good.h"
found=$(check "$tree")
expected='ceres_ext/a.h:1: cuda_kernels/base/b.h is not installed
ceres_ext/glue/a.h:1: tests/b.h is in no layer
ceres_ext/solver/a.cc:1: cuda_kernels/cuda/b.cuh is for nvcc alone
ceres_ext/solver/b.cc:1: ceres_ext/glue/b.h points up
cuda_kernels/base/a.h:1: cuda_kernels/ops/b.h points up
cuda_kernels/host/a.cc:1: cuda_kernels/cuda/b.cuh is of the other machine'
if [[ "$(LC_ALL=C sort <<<"$found")" != "$expected" ]]; then
  printf 'expected\n%s\nfound\n%s\n' "$expected" "$found" >&2
  exit 1
fi
echo "includes point down"
