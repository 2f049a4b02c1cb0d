#!/usr/bin/env bash
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# Run by rattler-build or conda-build in the folder that has ceres and ceres_ext: the
# patched Ceres and this library, both in a folder of their own, $PREFIX/lib/ceres_ext.
set -euo pipefail
source=$PWD
tree="$PREFIX/lib/ceres_ext"

while IFS= read -r name; do
  patch -d "$source/ceres" -p1 --fuzz=0 -i "$source/ceres_ext/patches/2.2.0/$name"
done < <(grep -v '^#' "$source/ceres_ext/patches/2.2.0/series")

# configure NAME SOURCE OPTION...
configure() {
  local name="$1" from="$2"
  shift 2
  # The variable has options of conda's compilers.
  # shellcheck disable=SC2086
  cmake ${CMAKE_ARGS:-} -G Ninja -S "$from" -B "$source/build_$name" \
    -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_PREFIX_PATH="$PREFIX" \
    -DCMAKE_INSTALL_LIBDIR=lib \
    "$@"
}

configure ceres "$source/ceres" \
  -DCMAKE_INSTALL_PREFIX="$source/ceres_prefix" \
  -DCMAKE_INSTALL_RPATH_USE_LINK_PATH=ON \
  -DBUILD_SHARED_LIBS=ON \
  -DBUILD_BENCHMARKS=OFF \
  -DBUILD_EXAMPLES=OFF \
  -DBUILD_TESTING=OFF \
  -DEIGENMETIS=OFF \
  -DGFLAGS=ON \
  -DLAPACK=ON \
  -DMINIGLOG=OFF \
  -DPROVIDE_UNINSTALL_TARGET=OFF \
  -DSCHUR_SPECIALIZATIONS=ON \
  -DSUITESPARSE=ON \
  -DUSE_CUDA=OFF
cmake --build "$source/build_ceres" -j "${CPU_COUNT:-2}"
cmake --install "$source/build_ceres"

configure ceres_ext "$source/ceres_ext" \
  -DCMAKE_INSTALL_PREFIX="$tree" \
  -DCERES_EXT_CERES="$source/ceres_prefix" \
  -DCERES_EXT_CUDA=OFF \
  -DCERES_EXT_BUILD_TESTS=OFF
cmake --build "$source/build_ceres_ext" -j "${CPU_COUNT:-2}"
cmake --install "$source/build_ceres_ext"

mkdir -p "$PREFIX/bin"
for program in "$tree"/bin/*; do
  [[ "$program" == *.py ]] ||
    ln -s "../lib/ceres_ext/bin/${program##*/}" "$PREFIX/bin/"
done
