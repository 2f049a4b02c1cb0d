# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
# shellcheck shell=bash
# Sourced by the scripts here that run programs of Debian 13: installs it in folders,
# runs commands there as root, and makes this project's package there. Expects $work,
# where all of it is, $mirror and $package, which may be empty.

[[ -z "$package" || -f "$package/solve_observer.so" ]] ||
  die "--package: no solve_observer.so in $package"
((EUID == 0)) || die "needs root, for chroot"
have debootstrap || die "needs debootstrap"
mkdir -p "$work/log" "$CACHE"
work=$(readlink -f "$work")
lock "$work/.lock"

# inside ROOT COMMAND...: as root of a Debian 13, with the folder $model, if it is
# set, as /model. Its mounts go away with the command.
inside() {
  local root="$1"
  shift
  # shellcheck disable=SC2016
  unshare --mount --pid --fork --kill-child sh -c '
    root="$1" model="$2"
    shift 2
    mount -t proc proc "$root/proc" &&
      { [ -z "$model" ] || mount --bind "$model" "$root/model"; } &&
      exec chroot "$root" "$@"' sh "$root" "${model:-}" \
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C \
    DEBIAN_FRONTEND=noninteractive QT_QPA_PLATFORM=offscreen \
    CERES_EXT_CACHE=/opt/cache ${http_proxy:+"http_proxy=$http_proxy"} "$@"
}

find_mirror() {
  local candidate
  for candidate in $(mirror_urls); do
    if timeout 60 /usr/lib/apt/apt-helper -o APT::Sandbox::User=root \
      download-file "$candidate/dists/trixie/Release" "$work/Release" \
      >"$work/log/mirror.log" 2>&1; then
      mirror="$candidate"
      return
    fi
  done
  die "no apt source of this machine has Debian 13; name one: --mirror=URL"
}

# make_debian ROOT [PACKAGE...]
make_debian() {
  local root="$1"
  shift
  [[ ! -e "$root/opt/complete" ]] || return 0
  [[ -n "$mirror" ]] || find_mirror
  rm -rf "$root"
  say "installing Debian 13 in $root"
  run_logged "$work/log/debootstrap.log" "debootstrap" \
    debootstrap --variant=minbase --include=ca-certificates trixie "$root" \
    "$mirror"
  mkdir -p "$root/model"
  (($# == 0)) ||
    run_logged "$work/log/install.log" "installing $*" \
      inside "$root" apt-get install -y --no-install-recommends "$@"
  touch "$root/opt/complete"
}

# make_package: $package has the package and solve_observer.so. If it is empty they are
# made in a Debian 13, from this tree and from the source of Ceres that it has here,
# and it becomes $work/package. A second run only compiles sources that have changed.
make_package() {
  local builder="$work/builder" tree
  [[ -z "$package" ]] || return 0
  package="$work/package"
  make_debian "$builder"
  tree="$builder/opt/ceres_ext"
  find_ceres_source ""
  mkdir -p "$tree" "$builder/opt/cache"
  cp -u "$CERES_SOURCE" "$builder/opt/cache/"
  # shellcheck disable=SC2153
  (cd "$ROOT" && git ls-files -z | tar -c --null -T - -f -) | tar -x -C "$tree"
  say "building this library in Debian 13"
  run_logged "$work/log/setup.log" "scripts/setup" \
    inside "$builder" /opt/ceres_ext/scripts/setup
  run_logged "$work/log/package.log" "making the package" inside "$builder" sh -c '
    apt-get install -y --no-install-recommends dpkg-dev file &&
      rm -rf /opt/package && cd /opt/ceres_ext &&
      cpack -G DEB --config build/host-only/CPackConfig.cmake -B /opt/package &&
      c++ -std=c++17 -O1 -fPIC -shared \
        -isystem /usr/include/eigen3 -isystem build/ceres/include \
        -DGLOG_CUSTOM_PREFIX_SUPPORT tests/clients/solve_observer.cc \
        -o /opt/package/solve_observer.so -Lbuild/ceres/lib -lceres'
  rm -rf "$package"
  mkdir "$package"
  cp "$builder"/opt/package/ceres-ext_*.deb "$builder/opt/package/solve_observer.so" \
    "$package/"
}

# install_package ROOT
install_package() {
  rm -f "$1"/opt/ceres-ext_*.deb
  cp "$package"/ceres-ext_*.deb "$package/solve_observer.so" "$1/opt/"
  # shellcheck disable=SC2016
  run_logged "$work/log/install.log" "installing the package" inside "$1" \
    sh -c 'apt-get install -y --reinstall --no-install-recommends /opt/ceres-ext_*.deb'
}
