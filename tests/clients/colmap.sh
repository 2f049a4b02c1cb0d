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
                        [--package=FOLDER] [--settings=KEY=VALUE,...]
                        [--cores=LIST] [--runs=N] [--mapper]

Runs "colmap bundle_adjuster" of Debian 13, as it is and with its own options,
on a model, with its own libceres and by the ceres_ext_run of this project's
package, in turn, and compares times and costs. Expects that every solve with the
plugin takes the full path and ends at the cost of stock, but for 1e-6 of it, or
below: COLMAP ends after 100 iterations, converged or not, and merged blocks get
further in as many.

COLMAP chooses its linear solver by the number of images: above 1,000 it is
ITERATIVE_SCHUR with SCHUR_JACOBI.

By hand, as root, with debootstrap installed and Debian's packages in reach: in
one Debian 13, scripts/setup of this tree and "cpack -G DEB", which compiles Ceres,
a quarter of an hour on two free cores and nothing the second time; in another,
clean one, COLMAP and the package that this has made.

  --model=FOLDER   a COLMAP model, as text or binary
  --mapper         also maps a database of the model's keypoints and matches
                   (model_database.py) from scratch with both, and expects models
                   of as many images, whose mean error differs by 1 % at most
  --work=FOLDER    where Debian 13 is or will be (default build/colmap)
  --mirror=URL     where debootstrap gets Debian from; default: the first of this
                   machine's apt sources that has it
  --package=FOLDER has a package and a solve_observer.so of Debian 13, which this
                   script otherwise makes (FOLDER/package of --work)
  --settings=LIST  of the plugin (default device=host)
  --cores=LIST     as taskset has it (default 0,1)
  --runs=N         of each (default 1)
USAGE
}

model=""
work="$BUILD_ROOT/colmap"
mirror=""
package=""
settings=device=host
cores=0,1
runs=1
mapper=no
for argument in "$@"; do
  case "$argument" in
    --model=*) model="${argument#*=}" ;;
    --work=*) work="${argument#*=}" ;;
    --mirror=*) mirror="${argument#*=}" ;;
    --package=*) package="${argument#*=}" ;;
    --settings=*) settings="${argument#*=}" ;;
    --cores=*) cores="${argument#*=}" ;;
    --runs=*) runs="${argument#*=}" ;;
    --mapper) mapper=yes ;;
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
model=$(readlink -f "$model")
# shellcheck source=debian.sh
source "$ROOT/tests/clients/debian.sh"
client="$work/client"
make_debian "$client" colmap
make_package
install_package "$client"
inside "$client" dpkg -s libceres4t64 ceres-ext |
  sed -nE 's/^(Package|Version): //p' | paste - -

# adjust NAME PROGRAM...: COLMAP's report of a run, and the observer's line.
adjust() {
  local name="$1" log="$work/log/$1.log"
  shift
  rm -rf "$client/opt/output" "$client/opt/solves"
  mkdir "$client/opt/output"
  inside "$client" taskset -c "$cores" env LD_PRELOAD=/opt/solve_observer.so \
    CERES_EXT_SOLVES=/opt/solves "$@" bundle_adjuster --input_path /model \
    --output_path /opt/output >"$log" 2>&1 || die_with_log "$log" "$*"
  [[ -s "$client/opt/solves" ]] || die "$*: no solve, see $log"
  mv "$client/opt/solves" "$work/$name"
  sed -nE "s/^ *(Residuals|Iterations|Time|(Initial|Final) cost) : /$name: \1 /p" \
    "$log"
}

failed=0
for ((run = 1; run <= runs; ++run)); do
  adjust stock colmap
  adjust plugin ceres_ext_run "--settings=$settings" colmap
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

# map NAME PROGRAM...: the images, points and mean error of the largest model.
map() {
  local name="$1" log="$work/log/$1.log" begin=$SECONDS
  shift
  rm -rf "$client/opt/mapped" "$client/opt/solves"
  mkdir -p "$client/opt/mapped" "$client/opt/images"
  inside "$client" taskset -c "$cores" env LD_PRELOAD=/opt/solve_observer.so \
    CERES_EXT_SOLVES=/opt/solves "$@" mapper --database_path /opt/database.db \
    --image_path /opt/images --output_path /opt/mapped \
    --Mapper.ba_refine_principal_point 0 --Mapper.extract_colors 0 \
    --Mapper.multiple_models 0 >"$log" 2>&1 || die_with_log "$log" "$*"
  mv "$client/opt/solves" "$work/$name"
  echo "$name: $((SECONDS - begin)) s, $(wc -l <"$work/$name") solves"
  awk -F '\t' '
    {
      path = ""
      if (match($6, /\[Ceres Ext: path [A-Z]+/)) {
        path = " " substr($6, RSTART, RLENGTH) "]"
      }
      print "  " $2 path
    }' "$work/$name" | sort | uniq -c
  inside "$client" colmap model_analyzer --path /opt/mapped/0 2>&1 |
    sed -nE 's/.*(Registered images|Points|Mean reprojection error): ([0-9.]+).*/\2/p' |
    paste -s -d ' ' | tee "$work/$name.model"
}
if [[ "$mapper" == yes ]]; then
  rm -rf "$client"/opt/database.db "$client/opt/text"
  mkdir "$client/opt/text"
  inside "$client" colmap model_converter --input_path /model --output_path /opt/text \
    --output_type TXT >"$work/log/text.log" 2>&1
  inside "$client" colmap database_creator --database_path /opt/database.db \
    >"$work/log/database.log" 2>&1
  python3 "$(dirname "${BASH_SOURCE[0]}")/model_database.py" "$client/opt/text" \
    "$client/opt/database.db"
  map stock_mapper colmap
  map plugin_mapper ceres_ext_run \
    "--settings=$settings,report=/opt/report.json" colmap
  paste -d ' ' "$work/stock_mapper.model" "$work/plugin_mapper.model" | awk '
    { exit !(NF == 6 && $1 == $4 && $6 <= 1.01 * $3) }' || failed=1
  [[ -s "$client/opt/report.json" ]] || failed=1
fi
((failed == 0)) || die "not as expected"
