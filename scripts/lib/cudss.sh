# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
# shellcheck shell=bash
# NVIDIA's cuDSS, pinned: fetches its package of Python into the cache. Nothing
# of it is part of this project.

CUDSS_VERSION=1.0.0.35

# fetch_cudss PACKAGE FOLDER: what the package holds, by pip, which compares the
# checksum of its index. FOLDER appears complete or not at all.
fetch_cudss() {
  local package="$1" folder="$2" work="$2.work"
  rm -rf "$work"
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" --disable-pip-version-check download --no-cache-dir \
    --no-deps --only-binary=:all: --dest "$work" "$package==$CUDSS_VERSION"
  python3 -m zipfile -e "$work"/nvidia_cudss_*.whl "$work/root"
  mv "$work/root" "$folder"
  rm -rf "$work"
}

# provide_cudss [LINK]: it, or build/cudss, leads to cuDSS for this machine's
# toolkit. A subshell, whose end releases the lock.
provide_cudss() (
  [[ -n "$NVCC" ]] || die "--with-cudss: expected a CUDA toolkit, found none"
  # shellcheck disable=SC2153
  local package="nvidia-cudss-cu${CUDA_VERSION%%.*}"
  local folder="$CACHE/$package-$CUDSS_VERSION" licence
  mkdir -p "$CACHE" || die "CERES_EXT_CACHE: cannot create $CACHE"
  lock "$CACHE/cudss.lock"
  if ! compgen -G "$folder/nvidia/*/include/cudss.h" >/dev/null; then
    rm -rf "$folder"
    say "fetching $package $CUDSS_VERSION into $folder"
    # A shell of its own, so that its first failing command ends it.
    # shellcheck disable=SC2016
    run_logged "$BUILD_ROOT/log/cudss.log" "fetching $package" \
      bash -euo pipefail -c 'source "$0/cudss.sh"; fetch_cudss "$@"' \
      "$ROOT/scripts/lib" "$package" "$folder"
  fi
  licence=$(find "$folder" -iname 'licen[sc]e*' -type f | head -n 1)
  say "cuDSS is NVIDIA's; its licence: ${licence:-https://docs.nvidia.com/cuda/cudss/}"
  ln -sfn "$folder" "${1:-$BUILD_ROOT/cudss}"
)
