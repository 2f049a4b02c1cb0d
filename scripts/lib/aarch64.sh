# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
# shellcheck shell=bash
# The libraries of this machine's Debian for 64-bit Arm, in a folder of the cache,
# without installing any here.

# As LIBRARY_PACKAGES, without the tools of Python, and what runs the programs.
AARCH64_PACKAGES=(libbz2-dev libc6-dev libeigen3-dev libgflags-dev libgmock-dev
  libgoogle-glog-dev libgtest-dev liblapack-dev libpython3-dev libstdc++6
  libsuitesparse-dev nlohmann-json3-dev zlib1g-dev)

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
