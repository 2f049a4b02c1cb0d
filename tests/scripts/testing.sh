# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
# shellcheck shell=bash disable=SC2034
# Sourced by the tests of the scripts: a checkout of its own with a difficult
# name, and a folder of programs that come before the machine's. No test here
# builds anything, installs anything or uses the network.

fail() {
  echo "FAILED: $*"
  exit 1
}

# expect_equal WHAT FOUND EXPECTED
expect_equal() {
  [[ "$2" == "$3" ]] || fail "$1: expected \"$3\", found \"$2\""
}

# expect_has WHAT TEXT PART
expect_has() {
  [[ "$2" == *"$3"* ]] || fail "$1: expected \"$3\" in \"$2\""
}

# expect_lacks WHAT TEXT PART
expect_lacks() {
  [[ "$2" != *"$3"* ]] || fail "$1: did not expect \"$3\" in \"$2\""
}

SOURCE_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
WORK=$(readlink -f "$(mktemp -d)")
trap 'rm -rf "$WORK"' EXIT
FAKE="$WORK/fake"
CHECKOUT="$WORK/check out, A & B"
mkdir -p "$FAKE" "$CHECKOUT/build/log" "$WORK/home"
cp -R "$SOURCE_ROOT/scripts" "$CHECKOUT/"
export PATH="$FAKE:$PATH" HOME="$WORK/home"
unset CERES_EXT_CACHE CERES_EXT_CERES_SOURCE CERES_EXT_CUDA_ARCHITECTURES \
  XDG_CACHE_HOME

# fake NAME: a program NAME; its bash script is standard input.
fake() {
  { echo "#!/usr/bin/env bash" && cat; } >"$FAKE/$1"
  chmod +x "$FAKE/$1"
}
