#!/usr/bin/env bash
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# tests/clients/colmap.sh; see --help.
set -euo pipefail
# shellcheck source=../../scripts/lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib/common.sh"
# shellcheck source=../../scripts/lib/ceres.sh
source "$ROOT/scripts/lib/ceres.sh"

usage() {
  cat <<'USAGE'
tests/clients/colmap.sh --model=FOLDER [--work=FOLDER] [--mirror=URL]
                        [--settings=KEY=VALUE,...] [--cores=LIST] [--runs=N]

Runs "colmap bundle_adjuster" of Debian 13, as it is and with its own options,
on a model, with its own libceres and by ceres_ext_run, in turn, and compares
times and costs. Expects that every solve with the plugin takes the full path
and ends at the cost of stock, but for 1e-6 of it, or below: COLMAP ends after
100 iterations, converged or not, and merged blocks get further in as many.

COLMAP chooses its linear solver by the number of images: above 1,000 it is
ITERATIVE_SCHUR with SCHUR_JACOBI.

By hand, as root, with debootstrap installed and Debian's packages in reach:
makes a Debian 13 in a folder, installs COLMAP there and runs scripts/setup of
this tree in it, which compiles Ceres: a quarter of an hour on two free cores,
and nothing the second time.

  --model=FOLDER   a COLMAP model, as text or binary
  --work=FOLDER    where Debian 13 is or will be (default build/colmap)
  --mirror=URL     where debootstrap gets Debian from; default: the first of this
                   machine's apt sources that has it
  --settings=LIST  of the plugin (default device=host)
  --cores=LIST     as taskset has it (default 0,1)
  --runs=N         of each (default 1)
USAGE
}

model=""
work="$BUILD_ROOT/colmap"
mirror=""
settings=device=host
cores=0,1
runs=1
for argument in "$@"; do
  case "$argument" in
    --model=*) model="${argument#*=}" ;;
    --work=*) work="${argument#*=}" ;;
    --mirror=*) mirror="${argument#*=}" ;;
    --settings=*) settings="${argument#*=}" ;;
    --cores=*) cores="${argument#*=}" ;;
    --runs=*) runs="${argument#*=}" ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      usage >&2
      die "unknown argument $argument"
      ;;
  esac
done
[[ -d "$model" ]] || die "--model: expected a folder, found '$model'"
[[ "$runs" =~ ^[1-9][0-9]*$ ]] || die "--runs: expected a number, found $runs"
taskset -c "$cores" true 2>/dev/null ||
  die "--cores: expected cores of this machine, found $cores"
((EUID == 0)) || die "needs root, for chroot"
have debootstrap || die "needs debootstrap"

model=$(readlink -f "$model")
mkdir -p "$work/log" "$CACHE"
work=$(readlink -f "$work")
lock "$work/.lock"
debian="$work/trixie"

# inside COMMAND...: as root of Debian 13. Its mounts go away with the command.
inside() {
  # shellcheck disable=SC2016
  unshare --mount --pid --fork sh -c '
    root="$1" model="$2"
    shift 2
    mount -t proc proc "$root/proc" && mount --bind "$model" "$root/model" &&
      exec chroot "$root" "$@"' sh "$debian" "$model" \
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

if [[ ! -e "$debian/opt/complete" ]]; then
  [[ -n "$mirror" ]] || find_mirror
  rm -rf "$debian"
  say "installing Debian 13 in $debian"
  run_logged "$work/log/debootstrap.log" "debootstrap" \
    debootstrap --variant=minbase --include=ca-certificates trixie "$debian" \
    "$mirror"
  mkdir -p "$debian/model"
  run_logged "$work/log/colmap.log" "installing COLMAP" \
    inside apt-get install -y --no-install-recommends colmap
  touch "$debian/opt/complete"
fi

# This tree, and the source of Ceres that it has here.
find_ceres_source ""
tree="$debian/opt/ceres_ext"
mkdir -p "$tree" "$debian/opt/cache"
cp -u "$CERES_SOURCE" "$debian/opt/cache/"
(cd "$ROOT" && git ls-files -z | tar -c --null -T - -f -) | tar -x -C "$tree"
say "building this library in Debian 13"
run_logged "$work/log/setup.log" "scripts/setup" \
  inside /opt/ceres_ext/scripts/setup
build=/opt/ceres_ext/build/host-only
run_logged "$work/log/install.log" "installing this library" \
  inside cmake --install "$build" --prefix /opt/installed
run_logged "$work/log/observer.log" "compiling the observer" inside sh -c '
  cd /opt/ceres_ext && c++ -std=c++17 -O1 -fPIC -shared \
    -isystem /usr/include/eigen3 -isystem build/ceres/include \
    -DGLOG_CUSTOM_PREFIX_SUPPORT tests/clients/solve_observer.cc \
    -o /opt/solve_observer.so -Lbuild/ceres/lib -lceres'

# adjust NAME PROGRAM...: COLMAP's report of a run, and the observer's line.
adjust() {
  local name="$1" log="$work/log/$1.log"
  shift
  rm -rf "$debian/opt/output" "$debian/opt/solves"
  mkdir "$debian/opt/output"
  inside taskset -c "$cores" env LD_PRELOAD=/opt/solve_observer.so \
    CERES_EXT_SOLVES=/opt/solves "$@" bundle_adjuster --input_path /model \
    --output_path /opt/output >"$log" 2>&1 || die_with_log "$log" "$*"
  [[ -s "$debian/opt/solves" ]] || die "$*: no solve, see $log"
  mv "$debian/opt/solves" "$work/$name"
  sed -nE "s/^ *(Residuals|Iterations|Time|(Initial|Final) cost) : /$name: \1 /p" \
    "$log"
}

failed=0
for ((run = 1; run <= runs; ++run)); do
  adjust stock colmap
  adjust plugin /opt/installed/bin/ceres_ext_run "--settings=$settings" colmap
  paste "$work/stock" "$work/plugin" | awk -F '\t' '
    {
      difference = ($11 - $5) / $5
      printf "stock: %s, cost %.12g\nplugin: %s, cost %.12g\n", $2, $5, $8, $11
      printf "relative difference %.1e; %s\n", difference, $12
      if (NF != 12 || difference > 1e-6 ||
          index($12, "[Ceres Ext: path FULL") == 0) failed = 1
    }
    END { exit failed }' || failed=1
done
((failed == 0)) || die "not as expected"
