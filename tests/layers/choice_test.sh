#!/usr/bin/env bash
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# choice_test.sh [TREE]
#
# plan/ alone chooses, and goes from one attempt to the next (docs/architecture.md):
# nothing else asks whether an option leaves a choice open or what fallback is, and
# a plan is decided on in an attempt of TryEach alone. Without TREE also tries the
# test itself, on a tree of its own.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# check TREE: prints each choice that is not the plan's.
check() {
  cd "$1"
  local open='(DEVICE|JACOBIAN|LINEAR_SOLVER|PRECONDITIONER)_AUTO'
  open="($open|(FORCING_SEQUENCE|SCHUR_FACTORIZATION)_AUTO|FALLBACK_[A-Z_]+)"
  {
    grep -rnE --include='*.h' --include='*.cc' --include='*.cuh' \
      "[=!]= *$open|$open *[=!]=|case $open|[.>]fallback *[=!]=" ceres_ext |
      grep -v '^ceres_ext/plan/' || true
    grep -rnE --include='*.h' --include='*.cc' '[.>]fallback\b' ceres_ext/plan |
      grep -v '^ceres_ext/plan/attempts\.cc:' || true
    grep -rlE --include='*.cc' '\bDecide\(' ceres_ext |
      grep -v '^ceres_ext/plan/' | xargs -r grep -L 'TryEach(' || true
  } | LC_ALL=C sort
}

if (($#)); then
  check "$1"
  exit
fi

found=$(check "$root")
if [[ -n "$found" ]]; then
  echo "not the plan's to choose:" >&2
  echo "$found" >&2
  exit 1
fi

# The violations that the test must find.
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree"/ceres_ext/{plan,front,session}
echo 'if (options.device == DEVICE_AUTO) {' >"$tree/ceres_ext/plan/good.cc"
echo 'return options.fallback == FALLBACK_REFUSE;' \
  >"$tree/ceres_ext/plan/attempts.cc"
echo 'options.fallback = FALLBACK_REFUSE;' >"$tree/ceres_ext/front/good.cc"
echo 'TryEach(&attempts, [&] { Decide(request);' >"$tree/ceres_ext/front/each.cc"
echo 'if (options.fallback == FALLBACK_REFUSE) {' >"$tree/ceres_ext/plan/a.cc"
echo 'if (DEVICE_AUTO == options.device) {' >"$tree/ceres_ext/front/a.cc"
echo 'switch (x) { case FORCING_SEQUENCE_AUTO:' >"$tree/ceres_ext/session/a.h"
echo 'const auto plan = Decide(request);' >"$tree/ceres_ext/session/b.cc"
found=$(check "$tree")
expected='ceres_ext/front/a.cc:1:if (DEVICE_AUTO == options.device) {
ceres_ext/plan/a.cc:1:if (options.fallback == FALLBACK_REFUSE) {
ceres_ext/session/a.h:1:switch (x) { case FORCING_SEQUENCE_AUTO:
ceres_ext/session/b.cc'
if [[ "$found" != "$expected" ]]; then
  printf 'expected\n%s\nfound\n%s\n' "$expected" "$found" >&2
  exit 1
fi
echo "plan/ alone chooses"
