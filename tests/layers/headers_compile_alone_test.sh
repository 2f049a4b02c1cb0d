#!/usr/bin/env bash
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# headers_compile_alone_test.sh COMPILER CERES
#
# Each header compiles with nothing before it: .h by the host's compiler without
# CUDA's headers, .cuh by the same with the device emulated
# (tests/kernels/emulation). CERES: folder of the patched Ceres.
set -euo pipefail
compiler=$1
ceres=$2
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export compiler ceres

# alone HEADER
alone() {
  local flags=(-std=c++17 -fsyntax-only -x c++ -I. -I/usr/include/eigen3
    -isystem "$ceres/include" -isystem "$ceres/include/ceres_plugin"
    -Wno-unknown-pragmas)
  [[ "$1" != *.cuh ]] || flags+=(-Itests/kernels/emulation)
  printf '#include "%s"\n' "$1" | "$compiler" "${flags[@]}" - ||
    { echo "$1 does not compile alone" >&2; return 1; }
}
export -f alone

# shellcheck disable=SC2016
find cuda_kernels ceres_ext examples benchmarks \
  \( -name '*.h' -o -name '*.cuh' \) -print0 | LC_ALL=C sort -z |
  xargs -0 -P "$(nproc)" -I{} bash -c 'alone "$1"' _ {}
if printf '#include "%s"\n' nothing/there.h |
  "$compiler" -std=c++17 -fsyntax-only -x c++ -I. - 2>/dev/null; then
  echo "the compiler takes anything" >&2
  exit 1
fi
