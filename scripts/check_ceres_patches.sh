#!/usr/bin/env bash
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# scripts/check_ceres_patches.sh; see --help.
set -euo pipefail
# shellcheck source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
# shellcheck source=lib/ceres.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/ceres.sh"

usage() {
  cat <<'USAGE'
scripts/check_ceres_patches.sh [--ceres=2.2.0|next] [--source PATH]
                               [--work FOLDER] [--jobs N] [--no-suite | --each]

Builds Ceres 2.2.0, or next (docs/which_ceres.md), as it is and with its patches, and
checks that these keep what patches/README.md says they keep:

  headers   every public header is the same, except those of Jets and rotations,
            all functions of which give the same bits on the host
  symbols   every dynamic symbol that stock exports, the patched library exports
  results   a program compiled against stock's headers gives the same bits with
            both libraries, in many configurations, on one thread; on two, where
            Ceres itself is not reproducible, the same cost up to rounding
  suite     Ceres's own tests pass on the patched tree

  --source PATH   pristine Ceres, an archive or a folder; default: what
                  scripts/setup uses
  --work FOLDER   where to build, kept for the next time
                  (default build/check-ceres, of next build/check-ceres-next)
  --jobs N        compilers at once
  --no-suite      leave out Ceres's own tests, which take most of the time
  --each          instead of all that: applies one patch after the other, builds
                  Ceres with each and runs its own tests, without the generated
                  ones of bundle adjustment, which are whole solves

Without CUDA, which has no part in what is checked. The suite of next needs
GoogleTest 1.14, which Debian 12 does not have. Ends with 77 if there is no source.
USAGE
}

source_given=""
work=""
jobs=$(num_jobs)
suite=1
each=0
while (($#)); do
  case "$1" in
    --ceres=*) choose_ceres "${1#*=}" ;;
    --source | --work | --jobs)
      (($# >= 2)) || die "$1: expected a value"
      case "$1" in
        --source) source_given="$2" ;;
        --work) work="$2" ;;
        --jobs) jobs="$2" ;;
      esac
      shift
      ;;
    --no-suite) suite=0 ;;
    --each) each=1 ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      usage >&2
      die "unknown argument $1"
      ;;
  esac
  shift
done
[[ "$jobs" =~ ^[1-9][0-9]*$ ]] || die "--jobs: expected a number, found $jobs"

work="${work:-$BUILD_ROOT/check-$CERES_LINK}"
mkdir -p "$work/log" "$CACHE"
work=$(cd "$work" && pwd)
lock "$work/.lock"
# In a subshell first, which a missing source ends.
if ! (find_ceres_source "$source_given"); then
  [[ -z "$source_given" ]] || exit 1
  echo "skipped: no source of Ceres $CERES_VERSION"
  exit 77
fi
find_ceres_source "$source_given" >"$work/log/source.log"

# The same paths relative to the build folders, so that ccache compiles what the
# patches don't change once.
launcher=()
if have ccache; then
  export CCACHE_BASEDIR="$work" CCACHE_NOHASHDIR=1
  launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi

# unpack NAME: $work/NAME/source, pristine or patched, again only if archive
# or patches have changed.
unpack() {
  local name="$1" folder="$work/$1/source" key
  key=$(
    {
      echo "$CERES_SOURCE"
      [[ -d "$CERES_SOURCE" ]] || sha256_of "$CERES_SOURCE"
      [[ "$name" == stock ]] || print_patches
    } | sha256sum
  )
  if [[ "$(cat "$work/$name/key" 2>/dev/null)" != "$key" ]]; then
    rm -rf "$folder"
    if [[ "$name" == patched ]]; then
      unpack_ceres "$CERES_SOURCE" "$folder"
    elif [[ -d "$CERES_SOURCE" ]]; then
      mkdir -p "$folder"
      cp -a "$CERES_SOURCE/." "$folder/"
    else
      mkdir -p "$folder"
      tar -xf "$CERES_SOURCE" -C "$folder" --strip-components=1
    fi
    if is_next && [[ "$name" != patched ]]; then complete_next "$folder"; fi
    echo "$key" >"$work/$name/key"
  fi
}

# build_library NAME TESTING [OPTION...]: libceres, installed in $work/NAME/install.
build_library() {
  local folder="$work/$1" testing="$2" options=(-DSCHUR_SPECIALIZATIONS=ON -DSUITESPARSE=ON
    -DLAPACK=ON -DUSE_CUDA=OFF -DMINIGLOG=OFF -DGFLAGS=ON)
  ! is_next || options=(-DWITH_SCHUR_SPECIALIZATIONS=ON -DWITH_SUITESPARSE=ON
    -DWITH_LAPACK=ON -DWITH_CUDA=OFF -DABSL_BUILD_MONOLITHIC_SHARED_LIBS=ON)
  shift 2
  rm -rf "$folder/install"
  # With && because callers look at the status, which switches off errexit.
  cmake -G Ninja -S "$folder/source" -B "$folder/build" \
    -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON \
    "${options[@]}" -DBUILD_EXAMPLES=OFF -DBUILD_BENCHMARKS=OFF \
    "-DBUILD_TESTING=$testing" "-DCMAKE_INSTALL_PREFIX=$folder/install" \
    -DCMAKE_INSTALL_LIBDIR=lib "${launcher[@]}" "$@" &&
    cmake --build "$folder/build" -j "$jobs" --target ceres &&
    cmake --install "$folder/build"
}

failed=()
# check WHAT COMMAND...: COMMAND is a function that can't rely on errexit.
check() {
  local what="$1" status=0
  shift
  "$@" || status=$?
  if ((status == 0)); then say "$what: ok"; else
    say "$what: FAILED"
    failed+=("$what")
  fi
}

# Those that 0005-jets-for-cuda changes and the one that it adds.
check_headers() {
  local name header others=()
  for header in jet.h rotation.h jet_traits.h port.h math.h; do
    others+=(--exclude="$header")
  done
  diff -r "${others[@]}" "$work/stock/install/include/ceres" \
    "$work/patched/install/include/ceres" || return 1
  local libraries=(-lglog)
  ! is_next || libraries=("-L$work/stock/install/lib" -labseil_dll
    "-Wl,-rpath,$work/stock/install/lib")
  for name in stock patched; do
    "${CXX:-c++}" -std=c++17 -O2 -I "$work/$name/install/include" \
      -isystem "$(pkg-config --variable=pcfiledir eigen3 |
        sed 's,/share/pkgconfig$,/include/eigen3,')" \
      -o "$work/$name/jets" "$ROOT/tests/patches/stock_comparison/jets.cc" \
      "${libraries[@]}" && "$work/$name/jets" >"$work/log/$name-jets" || return 1
  done
  [[ -s "$work/log/stock-jets" ]] &&
    cmp "$work/log/stock-jets" "$work/log/patched-jets"
}

# Undefined symbols are not exports.
exported() {
  nm -D --defined-only "$work/$1/install/lib/libceres.so.4" |
    awk '{ print $NF }' | sort
}

check_symbols() {
  exported stock >"$work/log/stock-symbols"
  exported patched >"$work/log/patched-symbols"
  local missing
  missing=$(comm -23 "$work/log/stock-symbols" "$work/log/patched-symbols")
  echo "    $(wc -l <"$work/log/stock-symbols") symbols of stock," \
    "$(wc -l <"$work/log/patched-symbols") of the patched library"
  [[ -z "$missing" ]] || { echo "missing: $missing" && return 1; }
}

# run_comparison NAME THREADS: the comparison program on the library of NAME.
run_comparison() {
  OPENBLAS_NUM_THREADS=1 \
    LD_LIBRARY_PATH="$work/$1/install/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
    "$work/comparison/stock_comparison" "$work/stock/source/$BAL_PROBLEM" "$2" \
    >"$work/log/$1-results-$2"
}

check_results_one_thread() {
  run_comparison stock 1 2>/dev/null && run_comparison patched 1 2>/dev/null &&
    cmp "$work/log/stock-results-1" "$work/log/patched-results-1" || return 1
  echo "    $(grep -c '^[a-z]' "$work/log/stock-results-1") configurations," \
    "$(grep -c '^  [0-9]' "$work/log/stock-results-1") iterations"
}

# A sum of n terms, none of them negative, has a relative error of at most
# n * 2^-53 in whatever order; two sums differ by at most n * 2^-52.
check_results_two_threads() {
  run_comparison stock 2 2>/dev/null && run_comparison patched 2 2>/dev/null &&
    paste "$work/log/stock-results-2" "$work/log/patched-results-2" | awk -F '\t' '
      {
        n = split($1, a, " ")
        split($2, b, " ")
        difference = a[n - 1] - b[n - 1]
        if (difference < 0) difference = -difference
        if ($1 == "" || $2 == "" || difference > a[n] * 2 ^ -52 * a[n - 1]) {
          print "stock: " $1 "\npatched: " $2
          failed = 1
        }
      }
      END { exit failed || NR == 0 }'
}

# run_suite NAME: builds and runs Ceres's own tests in $work/NAME.
run_suite() {
  run_logged "$work/log/$1-suite-build.log" "building Ceres's own tests" \
    cmake --build "$work/$1/build" -j "$jobs"
  local status=0
  # The tests of next look for their data beside the build folder.
  ! is_next || ln -sfn source/data "$work/$1/data"
  ctest --test-dir "$work/$1/build" -j "$jobs" \
    >"$work/log/$1-suite.log" 2>&1 </dev/null || status=$?
  sed -n '/tests passed/,/Total Test time/p' "$work/log/$1-suite.log"
  if ((status != 0)); then
    sed -n '/The following tests FAILED/,$p' "$work/log/$1-suite.log"
    return 1
  fi
}

# check_one_more PATCH: the tree of $work/each with it. Compiled a dozen times, so
# with little optimisation and few Schur solvers.
check_one_more() {
  patch -d "$work/each/source" -p1 --fuzz=0 --forward --no-backup-if-mismatch \
    -i "$CERES_PATCHES/$1" >"$work/log/each-patch.log" &&
    build_library each ON -DCMAKE_CXX_FLAGS_RELEASE="-O1 -DNDEBUG" \
      "-DCMAKE_UNITY_BUILD=$(is_next && echo ON || echo OFF)" \
      >"$work/log/each-${1%%-*}-build.log" 2>&1 </dev/null &&
    run_suite each
}

check_each() {
  rm -rf "$work/each/key"
  unpack each >"$work/log/each-unpack.log"
  keep_schur_sizes "$work/each/source"
  sed -i '/add_subdirectory(generated_bundle_adjustment_tests)/d' \
    "$work/each/source/internal/ceres/CMakeLists.txt"
  local patch
  for patch in $(series); do
    check "Ceres's own tests with $patch" check_one_more "$patch"
  done
}

check_series() {
  local name testing=OFF
  for name in stock patched; do
    unpack "$name" >"$work/log/$name-unpack.log"
  done
  ((suite == 0)) || testing=ON
  say "building stock and patched Ceres in $work"
  build_library stock OFF >"$work/log/stock-build.log" 2>&1 </dev/null ||
    die "building stock Ceres failed, see $work/log/stock-build.log"
  build_library patched "$testing" >"$work/log/patched-build.log" 2>&1 </dev/null ||
    die "building patched Ceres failed, see $work/log/patched-build.log"
  run_logged "$work/log/comparison.log" "building the comparison program" \
    cmake -G Ninja -S "$ROOT/tests/patches/stock_comparison" \
    -B "$work/comparison" -DCMAKE_BUILD_TYPE=Release \
    "-DCeres_DIR=$work/stock/install/lib/cmake/Ceres"
  run_logged "$work/log/comparison.log" "building the comparison program" \
    cmake --build "$work/comparison" -j "$jobs"

  check "public headers" check_headers
  check "exported symbols" check_symbols
  check "results on one thread" check_results_one_thread
  check "results on two threads" check_results_two_threads
  ((suite == 0)) || check "Ceres's own tests" run_suite patched
}

if ((each)); then check_each; else check_series; fi
((${#failed[@]} == 0)) || die "failed: ${failed[*]}"
say "the patches keep what they promise"
