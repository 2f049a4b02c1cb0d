# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
# shellcheck shell=bash
# Distribution packages of Debian 12 and Ubuntu 24.04.

LIBRARY_PACKAGES=(
  libbenchmark-dev
  libbz2-dev
  libeigen3-dev
  libgflags-dev
  libgmock-dev
  libgoogle-glog-dev
  libgtest-dev
  liblapack-dev
  libsuitesparse-dev
  nlohmann-json3-dev
  zlib1g-dev
)
# command:package
TOOL_PACKAGES=(c++:g++ cmake:cmake ninja:ninja-build patch:patch tar:tar xz:xz-utils)

# install_packages [PACKAGE...]: what is missing of the lists above and of the
# arguments. Calls no apt where nothing is missing.
install_packages() {
  if ! have dpkg-query || ! have apt-get; then
    warn "no apt here; expecting to find: ${LIBRARY_PACKAGES[*]}"
    return
  fi
  local missing=() entry package
  for entry in "${TOOL_PACKAGES[@]}"; do
    have "${entry%%:*}" || missing+=("${entry##*:}")
  done
  local installed
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' \
    "${LIBRARY_PACKAGES[@]}" "$@" 2>/dev/null || true)
  for package in "${LIBRARY_PACKAGES[@]}" "$@"; do
    grep -qx "installed $package" <<<"$installed" || missing+=("$package")
  done
  ((${#missing[@]})) || return 0

  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q)
  if ((EUID != 0)); then
    have sudo || die "needs root or sudo for: apt-get install ${missing[*]}"
    if [[ -t 0 ]]; then apt=(sudo "${apt[@]}"); else apt=(sudo -n "${apt[@]}"); fi
  fi
  say "installing ${missing[*]}"
  # A third-party source that does not answer need not stop the installation.
  "${apt[@]}" update >"$BUILD_ROOT/log/apt-update.log" 2>&1 </dev/null ||
    warn "apt-get update reports errors, see $BUILD_ROOT/log/apt-update.log"
  run_logged "$BUILD_ROOT/log/apt-install.log" "apt-get install" \
    "${apt[@]}" install -y --no-install-recommends "${missing[@]}"
}
