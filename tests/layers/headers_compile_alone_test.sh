#!/usr/bin/env bash
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# headers_compile_alone_test.sh COMPILER CERES [NVCC [CUDA_INCLUDE_DIRS]]
#
# Each header compiles with nothing before it: .h by the host's compiler, with
# CUDA's types only where it says so itself, .cuh by the same with the device
# emulated (tests/kernels/emulation). CERES: folder of the patched Ceres.
set -euo pipefail
compiler=$1
ceres=$2
nvcc=${3:-}
cuda_include=${4:-}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# Needs CUDA's own libraries.
needs_cuda='benchmarks/study/cusparse_products.h'
export compiler ceres cuda_include

# alone HEADER
alone() {
  local flags=(-std=c++17 -fsyntax-only -x c++ -I. -I/usr/include/eigen3
    -isystem "$ceres/include" -isystem "$ceres/include/ceres_plugin"
    -Wno-unknown-pragmas)
  case "$1" in
    *.cuh) flags+=(-Itests/kernels/emulation) ;;
    benchmarks/study/*) [[ -z "$cuda_include" ]] ||
      flags+=(-isystem "$cuda_include" -DCERES_EXT_WITH_CUDA) ;;
  esac
  printf '#include "%s"\n' "$1" | "$compiler" "${flags[@]}" - ||
    { echo "$1 does not compile alone" >&2; return 1; }
}
export -f alone

find cuda_kernels ceres_ext examples benchmarks \
  \( -name '*.h' -o -name '*.cuh' \) -print0 | LC_ALL=C sort -z |
  if [[ -z "$nvcc" ]]; then grep -zv "$needs_cuda"; else cat; fi |
  xargs -0 -P "$(nproc)" -I{} bash -c 'alone "$1"' _ {}
if printf '#include "%s"\n' nothing/there.h |
  "$compiler" -std=c++17 -fsyntax-only -x c++ -I. - 2>/dev/null; then
  echo "the compiler takes anything" >&2
  exit 1
fi
