# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
# shellcheck shell=bash
# Distribution packages of Debian 12 and Ubuntu 24.04.

LIBRARY_PACKAGES=(
  libbz2-dev
  libeigen3-dev
  libgflags-dev
  libgmock-dev
  libgoogle-glog-dev
  libgtest-dev
  liblapack-dev
  libsuitesparse-dev
  nlohmann-json3-dev
  python3-dev
  python3-venv
  zlib1g-dev
)
# command:package
TOOL_PACKAGES=(c++:g++ ccache:ccache cmake:cmake ninja:ninja-build patch:patch tar:tar xz:xz-utils)

# Seconds to wait for another process that holds one of apt's locks.
APT_LOCK_SECONDS=600

# run_apt LOG COMMAND...: an apt-get command, again while another process holds
# a lock that it needs. apt's own DPkg::Lock::Timeout does not cover the locks
# of the lists and of the archives.
run_apt() {
  local log="$1" end=$((SECONDS + APT_LOCK_SECONDS)) waits=0 status
  shift
  while true; do
    status=0
    "$@" >"$log" 2>&1 </dev/null || status=$?
    if ((status == 0)) || ! grep -q '^E: Could not get lock ' "$log"; then
      return "$status"
    fi
    if ((SECONDS >= end)); then
      warn "another process still holds apt's lock after $APT_LOCK_SECONDS s"
      return "$status"
    fi
    if ((waits++ == 0)); then
      say "waiting, at most $APT_LOCK_SECONDS s, for another process that" \
        "holds apt's lock:" \
        "$(sed -n 's/^E: Could not get lock //p' "$log" | head -n 1)"
    fi
    sleep 1
  done
}

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

  # run_apt knows apt's messages in English.
  local apt=(env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get -q)
  if ((EUID != 0)); then
    have sudo || die "needs root or sudo for: apt-get install ${missing[*]}"
    if [[ -t 0 ]]; then apt=(sudo "${apt[@]}"); else apt=(sudo -n "${apt[@]}"); fi
  fi
  say "installing ${missing[*]}"
  # A third-party source that does not answer need not stop the installation.
  run_apt "$BUILD_ROOT/log/apt-update.log" "${apt[@]}" update ||
    warn "apt-get update reports errors, see $BUILD_ROOT/log/apt-update.log"
  run_apt "$BUILD_ROOT/log/apt-install.log" \
    "${apt[@]}" install -y --no-install-recommends "${missing[@]}" ||
    die_with_log "$BUILD_ROOT/log/apt-install.log" "apt-get install"
}
