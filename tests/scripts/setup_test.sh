#!/usr/bin/env bash
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# scripts/setup and scripts/test with a cmake that builds nothing: where the
# built Ceres goes, when it is built again, and what of the project is built.
set -euo pipefail
# shellcheck source=testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/testing.sh"

fake nvcc <<<'echo "Cuda compilation tools, release 13.0, V13.0.48"'
export CUDACXX="$FAKE/nvcc"
fake nvidia-smi <<<'exit 9'
fake dpkg-query <<'SH'
for argument; do echo "installed $argument"; done
SH
fake apt-get <<<'echo "apt-get is not to be called" && exit 1'
for tool in c++ ninja; do fake "$tool" <<<'echo "version 1"'; done
fake ctest <<SH
echo "ctest \$*" >>"$WORK/calls"
SH
# Behaves like the real one: a relative prefix becomes absolute, the files of an
# installation go behind DESTDIR.
fake cmake <<SH
echo "cmake \$*" >>"$WORK/calls"
SH
cat >>"$FAKE/cmake" <<'SH'
prefix="" folder="" preset=""
arguments=("$@")
while (($#)); do
  case "$1" in
    -B | --install) folder="$2" ;;
    -DCMAKE_INSTALL_PREFIX=*) prefix="${1#*=}" ;;
    --preset) preset="$2" ;;
  esac
  shift
done
if [[ -n "$prefix" ]]; then
  [[ "$prefix" == /* ]] || prefix="$PWD/$prefix"
  mkdir -p "$folder/bin"
  echo "$prefix" >"$folder/prefix"
  echo >"$folder/bin/bundle_adjuster"
elif [[ "${arguments[0]}" == --install ]]; then
  mkdir -p "$DESTDIR$(<"$folder/prefix")/lib/cmake/Ceres"
elif [[ "${arguments[0]}" == --build && -n "$preset" ]]; then
  mkdir -p "build/$preset/examples/bal"
  printf '#!/bin/sh\necho "solving $1"\n' \
    >"build/$preset/examples/bal/bundle_adjuster"
  chmod +x "build/$preset/examples/bal/bundle_adjuster"
fi
SH

# A source of Ceres as far as the scripts look at it, and a patch to it.
ceres="$WORK/a ceres"
mkdir -p "$ceres/include/ceres" "$ceres/data" "$CHECKOUT/patches/2.2.0"
printf '#define CERES_VERSION_%s\n' 'MAJOR 2' 'MINOR 2' 'REVISION 0' \
  >"$ceres/include/ceres/version.h"
echo problem >"$ceres/data/problem-16-22106-pre.txt"
echo licence >"$ceres/LICENSE"
mkdir -p "$ceres/internal/ceres/generated"
touch "$ceres/internal/ceres/generated/schur_eliminator_2_2_2.cc"
cat >"$ceres/internal/ceres/generate_template_specializations.py" <<'PY'
class schur_eliminator_template:
    pass
class partitioned_matrix_view_template:
    pass
def Specialize(name, data):
    open(f"generated/{name}_sizes.cc", "w").write(str(SPECIALIZATIONS))
def GenerateQueryFile():
    pass
PY
write_patch() {
  printf -- '--- a/added\n+++ b/added\n@@ -0,0 +1 @@\n+%s\n' "$1" \
    >"$CHECKOUT/patches/2.2.0/0001-one.patch"
}
write_patch one
echo 0001-one.patch >"$CHECKOUT/patches/2.2.0/series"

run() {
  : >"$WORK/calls"
  "$@" >"$WORK/said" 2>&1 </dev/null || fail "$*: $(cat "$WORK/said")"
  said=$(<"$WORK/said")
}
setup() { run "$CHECKOUT/scripts/setup" "$@"; }
# expect_built N: Ceres was built N times by the last run.
expect_built() {
  expect_equal "builds of Ceres" \
    "$(grep -c -- '--target ceres bundle_adjuster' "$WORK/calls" || true)" "$1"
}
# expect_entries FOLDER N: it holds N builds of Ceres, all of them whole, and
# the checkout leads to one.
expect_entries() {
  local entry n=0
  for entry in "$1"/ceres-2.2.0-*; do
    [[ -d "$entry/lib/cmake/Ceres" && -f "$entry/bin/bundle_adjuster" &&
      -f "$entry/data/problem-16-22106-pre.txt" ]] ||
      fail "$entry is no whole Ceres: $(cd "$entry" && find .)"
    n=$((n + 1))
  done
  expect_equal "builds of Ceres in $1" "$n" "$2"
  [[ "$(readlink -f "$CHECKOUT/build/ceres")" == "$1"/ceres-2.2.0-* ]] ||
    fail "build/ceres leads to $(readlink "$CHECKOUT/build/ceres")"
}

# A relative cache is that of the caller's working folder.
mkdir -p "$WORK/caller"
cd "$WORK/caller"
export CERES_EXT_CACHE="my cache"
setup --ceres-source "../a ceres"
expect_built 1
expect_entries "$WORK/caller/my cache" 1
expect_has "the solve" "$said" "solving --input=$CHECKOUT/build/ceres/data/"
setup
expect_built 0
export CERES_EXT_CACHE="../caller/./my cache"
setup
expect_built 0

# The patches are part of what names a build.
write_patch two
setup
expect_built 1
expect_entries "$WORK/caller/my cache" 2

# The results of an interrupted or faulty build are built again.
rm -r "$CHECKOUT/build/ceres/lib"
setup
expect_built 1
expect_entries "$WORK/caller/my cache" 2

# setup builds what a solve and an installation need, test all of the project.
expect_has "setup" "$(<"$WORK/calls")" \
  " --target ceres_ext bundle_adjuster bal_convert bal_filter bal_generate ceres_ext_machine colmap_adjuster"
expect_lacks "setup" "$(<"$WORK/calls")" "ctest"
run "$CHECKOUT/scripts/test"
expect_built 0
build=$(grep -- '--build --preset release' "$WORK/calls")
expect_lacks "test" "$build" "--target"
expect_has "test" "$(<"$WORK/calls")" "ctest --preset release"
# Tests that do nothing without a GPU are built on demand.
expect_has "without a GPU" "$(<"$WORK/calls")" "-DCERES_EXT_GPU_TESTS=OFF"
CERES_EXT_GPU_TESTS=ON run "$CHECKOUT/scripts/test"
expect_has "for another machine" "$(<"$WORK/calls")" "-DCERES_EXT_GPU_TESTS=ON"

# The next Ceres, from a checkout that has its Abseil, beside the release.
next="$WORK/next ceres"
cp -a "$ceres" "$next"
sed -i 's/MINOR 2/MINOR 3/' "$next/include/ceres/version.h"
mkdir -p "$next/third_party/abseil-cpp"
touch "$next/third_party/abseil-cpp/CMakeLists.txt"
cp -r "$CHECKOUT/patches/2.2.0" "$CHECKOUT/patches/next"
release=$(readlink "$CHECKOUT/build/ceres")
# expect_refused REASON ARGUMENT...
expect_refused() {
  local reason="$1"
  shift
  ! "$CHECKOUT/scripts/setup" "$@" >"$WORK/said" 2>&1 </dev/null ||
    fail "setup $* works"
  expect_has "setup $*" "$(<"$WORK/said")" "$reason"
}
expect_refused "expected 2.2.0 or next, found 3" --ceres=3
expect_refused "no ceres-solver-fe351d5.tar.xz: give it once with --ceres-source" \
  --ceres=next
expect_refused "is not the one expected" --ceres=next \
  --ceres-source "$ceres/LICENSE"
expect_refused "expected Ceres 2.3.0, found 2.2.0" --ceres=next \
  --ceres-source "$ceres"
setup --ceres next --ceres-source "$next"
expect_built 1
expect_has "next" "$(<"$WORK/calls")" "-DWITH_SUITESPARSE=ON"
expect_has "next" "$(<"$WORK/calls")" "--preset release-next"
expect_has "next" "$said" "solving --input=$CHECKOUT/build/ceres-next/data/"
CERES_EXT_CERES_VERSION=next run "$CHECKOUT/scripts/test"
expect_built 0
expect_has "next" "$(<"$WORK/calls")" "ctest --preset release-next"
expect_equal "the release" "$(readlink "$CHECKOUT/build/ceres")" "$release"
setup
expect_built 0
# Its pinned archive comes without Abseil.
rm -r "$next/third_party"
expect_refused "no abseil-cpp-20260817.0.tar.xz: give it once with --abseil-source" \
  --ceres=next

# cuDSS is fetched once, and builds have it from then on.
expect_lacks "without cuDSS" "$(<"$WORK/calls")" "-DCUDSS_ROOT"
fake python3 <<SH
echo "python3 \$*" >>"$WORK/calls"
SH
cat >>"$FAKE/python3" <<'SH'
case "$2" in
  venv)
    mkdir -p "$3/bin"
    printf '#!/bin/sh\n%s\n' 'while [ "$1" != --dest ]; do shift; done' \
      'touch "$2/nvidia_cudss_cu13-1-py3-none-any.whl"; echo "$3" >&2' \
      >"$3/bin/pip"
    chmod +x "$3/bin/pip"
    ;;
  zipfile)
    mkdir -p "$5/nvidia/cu13/include" "$5/a.dist-info/licenses"
    touch "$5/nvidia/cu13/include/cudss.h" "$5/a.dist-info/licenses/LICENSE.txt"
    ;;
esac
SH
setup --with-cudss
package="$WORK/caller/my cache/nvidia-cudss-cu13-1.0.0.35"
expect_has "cuDSS" "$(<"$CHECKOUT/build/log/cudss.log")" \
  "nvidia-cudss-cu13==1.0.0.35"
expect_has "cuDSS" "$said" \
  "its licence: $package/a.dist-info/licenses/LICENSE.txt"
expect_equal "cuDSS" "$(readlink "$CHECKOUT/build/cudss")" "$package"
[[ ! -e "$package.work" ]] || fail "$package.work is left"
expect_has "with cuDSS" "$(<"$WORK/calls")" "-DCUDSS_ROOT=$CHECKOUT/build/cudss"
setup --with-cudss
expect_lacks "a second time" "$(<"$WORK/calls")" "python3"
setup
expect_has "later" "$(<"$WORK/calls")" "-DCUDSS_ROOT=$CHECKOUT/build/cudss"

# The wheel for CUDA 12 has a toolkit, a cuDSS and a build of its own; the fake
# python3 ends it before the bindings.
(
  export CERES_EXT_CACHE="$WORK/cache of CUDA 12"
  fake uname <<<'echo x86_64'
  # shellcheck disable=SC2016
  fake dpkg-deb <<<'cat "$2"'
  # shellcheck source=../../scripts/lib/project.sh
  source "$CHECKOUT/scripts/lib/project.sh"
  packages="$WORK/packages/usr"
  mkdir -p "$packages/bin" "$packages/include" "$packages/share/doc/nvidia-cuda-toolkit" \
    "$packages"/lib/nvidia-cuda-toolkit/{bin/crt,compute-sanitizer,libdevice} \
    "$packages/lib/x86_64-linux-gnu"
  touch "$packages"/bin/{cudafe++,cuobjdump,fatbinary,nvlink,ptxas} \
    "$packages/lib/nvidia-cuda-toolkit/bin/cicc" \
    "$packages"/lib/x86_64-linux-gnu/lib{cudadevrt,cudart_static,cublas_static}.a \
    "$packages/share/doc/nvidia-cuda-toolkit/copyright"
  printf '#!/bin/sh\necho release 12.4, V12.4.131\n' \
    >"$packages/lib/nvidia-cuda-toolkit/bin/nvcc"
  chmod +x "$packages/lib/nvidia-cuda-toolkit/bin/nvcc"
  # All packages are the same here.
  # shellcheck disable=SC2317
  fetch_debian() { tar -cf "$3" -C "$WORK/packages" ./usr; }
  (provide_cuda12) || fail "CUDA 12"
  # shellcheck disable=SC2317
  fetch_debian() { fail "CUDA 12 is fetched a second time"; }
  provide_cuda12
  toolkit="${CUDACXX%/bin/nvcc}"
  [[ "$toolkit" == "$CERES_EXT_CACHE"/cuda-12.4-* ]] || fail "found $toolkit"
  expect_equal "the libraries" "$(cd "$toolkit" && echo lib64/*)" \
    "lib64/libcudadevrt.a lib64/libcudart_static.a"
  [[ -f "$toolkit/nvvm/bin/cicc" ]] || fail "$toolkit has no cicc"

  : >"$WORK/calls"
  CUDACXX="$FAKE/nvcc" "$CHECKOUT/scripts/wheel" --local --cuda=12 \
    >"$WORK/said" 2>&1 </dev/null && fail "a wheel without Python"
  expect_has "CUDA 12" "$(<"$WORK/said")" "CUDA toolkit 12.4"
  calls=$(<"$WORK/calls")
  for part in "-B $CHECKOUT/build/wheel-cuda12/library" \
    "-DCMAKE_CUDA_COMPILER=$toolkit/bin/nvcc" \
    "-DCMAKE_CUDA_ARCHITECTURES=75-real;80-real;86-real;90 " \
    "-DCMAKE_CUDA_FLAGS=-Xfatbin=-compress-all" \
    "-DCUDSS_ROOT=$CHECKOUT/build/cudss-cuda12"; do
    expect_has "CUDA 12" "$calls" "$part"
  done
  expect_has "CUDA 12" "$(readlink "$CHECKOUT/build/cudss-cuda12")" \
    "/nvidia-cudss-cu12-"
  expect_equal "cuDSS" "$(readlink "$CHECKOUT/build/cudss")" "$package"

  # The wheel of the machine's toolkit is as before.
  : >"$WORK/calls"
  CUDACXX="$FAKE/nvcc" "$CHECKOUT/scripts/wheel" --local \
    >"$WORK/said" 2>&1 </dev/null && fail "a wheel without Python"
  calls=$(<"$WORK/calls")
  for part in "-B $CHECKOUT/build/wheel/library" "-DCMAKE_CUDA_COMPILER=$FAKE/nvcc" \
    ";100-real;120 -DCMAKE_CUDA_FLAGS=--compress-mode=size"; do
    expect_has "CUDA 13" "$calls" "$part"
  done
)
rm "$FAKE/uname" "$FAKE/dpkg-deb"

# An incomplete file is fetched again; a failure is reported.
rm -r "$package/nvidia"
setup --with-cudss
expect_has "again" "$(<"$WORK/calls")" "python3 -m venv"
rm -r "$package/nvidia"
fake python3 <<<'echo "no such package" >&2; exit 1'
! "$CHECKOUT/scripts/setup" --with-cudss >"$WORK/said" 2>&1 </dev/null ||
  fail "a cuDSS that can't be fetched"
expect_has "no cuDSS" "$(<"$WORK/said")" "no such package"
[[ ! -e "$package" ]] || fail "$package is half there"
rm "$FAKE/python3" "$CHECKOUT/build/cudss"

# Without HOME the user's home counts; without that one, nothing is guessed.
unset CERES_EXT_CACHE HOME
fake getent <<<"echo \"user:x:\$2:\$2::$WORK/home:/bin/sh\""
XDG_CACHE_HOME="relative" setup
expect_entries "$WORK/home/.cache/ceres_ext" 1
fake getent <<<'exit 2'
! "$CHECKOUT/scripts/setup" >"$WORK/said" 2>&1 </dev/null ||
  fail "a cache without a home"
expect_has "without a home" "$(<"$WORK/said")" "set CERES_EXT_CACHE"
XDG_CACHE_HOME="$WORK/xdg" setup
expect_entries "$WORK/xdg/ceres_ext" 1

echo file >"$WORK/file"
! CERES_EXT_CACHE="$WORK/file/cache" "$CHECKOUT/scripts/setup" \
  >"$WORK/said" 2>&1 </dev/null || fail "a cache in a file"
expect_has "a cache in a file" "$(<"$WORK/said")" \
  "error: CERES_EXT_CACHE: cannot create $WORK/file/cache"
