# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
# shellcheck shell=bash
# The libraries of this machine's Debian for 64-bit Arm and a toolkit of CUDA that
# compiles for it, in folders of the cache, without installing any here.

# As LIBRARY_PACKAGES, without the tools of Python, and what runs the programs.
AARCH64_PACKAGES=(libbz2-dev libc6-dev libeigen3-dev libgflags-dev libgmock-dev
  libgoogle-glog-dev libgtest-dev liblapack-dev libpython3-dev libpython3-stdlib
  libstdc++6 libsuitesparse-dev nlohmann-json3-dev python3-minimal zlib1g-dev)

# unpack_aarch64 FOLDER: the packages and all that they depend on, in root/.
unpack_aarch64() {
  local folder="$1" root="$1/root" link target name
  local apt=(apt-get -q "-oDir::State::Lists=$folder/lists"
    "-oDir::State::status=$folder/status" "-oDir::Cache::archives=$folder/archives"
    -oDir::Cache::pkgcache= -oDir::Cache::srcpkgcache= -oAPT::Architecture=arm64
    -oAPT::Architectures=arm64 -oAPT::Install-Recommends=false
    -oAPT::Sandbox::User=root -oDebug::NoLocking=true)
  mkdir -p "$root" "$folder/lists/partial" "$folder/archives/partial"
  : >"$folder/status"
  "${apt[@]}" update
  "${apt[@]}" install -y --download-only "${AARCH64_PACKAGES[@]}"
  for name in "$folder"/archives/*.deb; do dpkg-deb -x "$name" "$root"; done
  rm -r "$folder/archives" "$folder/lists" "$folder/status"
  # These links are made by the packages' scripts in a whole system.
  ln -sf blas/libblas.so.3 lapack/liblapack.so.3 blas/libblas.so lapack/liblapack.so \
    "$root/usr/lib/aarch64-linux-gnu/"
  find "$root" -type l -lname '/*' -print0 |
    while IFS= read -r -d '' link; do
      target=$(readlink "$link")
      ln -sfn "$(realpath -m --relative-to "${link%/*}" "$root$target")" "$link"
    done
}

# provide_aarch64 exports CERES_EXT_AARCH64_ROOT, for cmake/aarch64.cmake.
provide_aarch64() {
  if ! have apt-get || ! have dpkg-deb; then
    die "expected apt-get and dpkg-deb, found none"
  fi
  local key folder
  key=$({
    cat /etc/os-release
    printf '%s\n' "${AARCH64_PACKAGES[@]}"
    declare -f unpack_aarch64
  } | sha256sum | cut -c 1-16)
  folder="$CACHE/aarch64-$key"
  mkdir -p "$CACHE" || die "CERES_EXT_CACHE: cannot create $CACHE"
  if [[ ! -d "$folder" ]]; then
    rm -rf "$folder.work"
    say "fetching the packages of 64-bit Arm into $folder"
    # A shell of its own, so that its first failing command ends it.
    # shellcheck disable=SC2016
    run_logged "$BUILD_ROOT/log/aarch64-packages.log" "fetching packages" \
      bash -euo pipefail -c 'source "$0"; unpack_aarch64 "$1"' \
      "${BASH_SOURCE[0]}" "$folder.work"
    mv "$folder.work" "$folder"
  fi
  export CERES_EXT_AARCH64_ROOT="$folder/root"
}

# fetch_cudart PACKAGE VERSION FOLDER: the libraries of CUDA's run time, from NVIDIA's
# package of Python, whose checksum pip compares.
fetch_cudart() {
  python3 -m pip --disable-pip-version-check download --no-cache-dir --no-deps \
    --only-binary=:all: --platform manylinux_2_28_aarch64 \
    --platform manylinux2014_aarch64 --dest "$3/package" "$1==$2.*"
  python3 -m zipfile -e "$3"/package/*.whl "$3/package"
  cp "$3"/package/nvidia/*/lib/* "$3/lib/"
  ln -s "$(cd "$3/lib" && echo libcudart.so.*)" "$3/lib/libcudart.so" # CMake expects one.
  cp "$3"/package/*.dist-info/licenses/* "$3/LICENSE"
  rm -r "$3/package"
}

# provide_aarch64_cuda replaces NVCC by that of a toolkit in the cache: this machine's
# compilers and headers with the libraries of 64-bit Arm, which nvcc compiles for if
# its host compiler does.
provide_aarch64_cuda() {
  [[ "$CUDA_VERSION" == 13.* ]] || die "expected CUDA 13, found ${CUDA_VERSION:-none}"
  local toolkit folder target
  toolkit=$(cd "$(dirname "$(readlink -f "$NVCC")")/.." && pwd)
  folder="$CACHE/cuda-aarch64-$CUDA_VERSION-$({
    echo "$toolkit"
    declare -f fetch_cudart provide_aarch64_cuda
  } | sha256sum | cut -c 1-16)"
  target="$folder.work/targets/aarch64-linux"
  if [[ ! -d "$folder" ]]; then
    rm -rf "$folder.work"
    mkdir -p "$target/lib" "$folder.work/bin"
    cp -rs "$toolkit/bin/." "$folder.work/bin"
    ln -s "$toolkit/nvvm" "$folder.work/nvvm"
    ln -s "$toolkit/include" "$target/include"
    say "fetching nvidia-cuda-runtime $CUDA_VERSION for aarch64 into $folder"
    # A shell of its own, so that its first failing command ends it.
    # shellcheck disable=SC2016
    run_logged "$BUILD_ROOT/log/aarch64-cuda.log" "fetching nvidia-cuda-runtime" \
      bash -euo pipefail -c 'source "$0"; fetch_cudart "$@"' "${BASH_SOURCE[0]}" \
      nvidia-cuda-runtime "$CUDA_VERSION" "$target"
    mv "$folder.work" "$folder"
  fi
  say "CUDA is NVIDIA's; its licence: $folder/targets/aarch64-linux/LICENSE"
  export NVCC="$folder/bin/nvcc"
}

# provide_aarch64_python ROOT FOLDER PACKAGE...: FOLDER/python runs the Python of the
# packages in ROOT with qemu, and finds the packages of pip in FOLDER/site.
# FOLDER/include has its headers, without those of the C library.
provide_aarch64_python() {
  local root="$1" folder="$2" version
  shift 2
  rm -rf "$folder/site" "$folder/include"
  cat >"$folder/python" <<WRAPPER
#!/bin/sh
PYTHONPATH="$folder/site" exec qemu-aarch64 -L "$root" "$root/usr/bin/python3" "\$@"
WRAPPER
  chmod +x "$folder/python"
  version=$("$folder/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  cp -r "$root/usr/include/python$version" "$folder/include"
  cp "$root/usr/include/aarch64-linux-gnu/python$version/pyconfig.h" "$folder/include/"
  run_logged "$BUILD_ROOT/log/aarch64-python.log" "fetching packages of Python" \
    python3 -m pip install --disable-pip-version-check --target "$folder/site" \
    --platform manylinux_2_28_aarch64 --platform manylinux2014_aarch64 \
    --python-version "$version" --only-binary=:all: "$@"
}
