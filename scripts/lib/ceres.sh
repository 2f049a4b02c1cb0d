# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
# shellcheck shell=bash
# The two Ceres of docs/which_ceres.md, pinned: finds the source of one, verifies it,
# applies its patches and builds it once into the cache.

OFFICIAL_URL="http://ceres-solver.org/ceres-solver-2.2.0.tar.gz"
OFFICIAL_SHA256=48b2302a7986ece172898477c3bcd6deb8fb5cf19b3327bc49969aad4cede82d
DEBIAN_NAME="ceres-solver_2.2.0+dfsg.orig.tar.xz"
DEBIAN_SHA256=fb22a61518dadb2cdfdbc698fbc9620d6d1e5e1b68a93b983086b668e39f395a
NEXT_NAME="ceres-solver-fe351d5.tar.xz"
NEXT_SHA256=0e52e42cd9f8243cabcc6c12da82191f5d90032622c77d9fb7ca2010cdb24af8
ABSEIL_NAME="abseil-cpp-20260817.0.tar.xz"
ABSEIL_SHA256=d5a14a12f086e644e62bba6378aeaa07b2714403e1d0e6de2d05e16fa140f76f
BAL_PROBLEM=data/problem-16-22106-pre.txt

# choose_ceres NAME: 2.2.0, the release, or next, its development branch. It goes to
# build/ceres or build/ceres-next, so that a checkout can have both.
choose_ceres() {
  case "$1" in
    2.2.0) CERES_VERSION=2.2.0 CERES_LINK=ceres ;;
    next) CERES_VERSION=2.3.0 CERES_LINK=ceres-next ;;
    *) die "Ceres: expected 2.2.0 or next, found $1" ;;
  esac
  export CERES_EXT_CERES_VERSION="$1"
  # shellcheck disable=SC2153
  CERES_PATCHES="$ROOT/patches/$1"
}
choose_ceres "${CERES_EXT_CERES_VERSION:-2.2.0}"
is_next() { [[ "$CERES_EXT_CERES_VERSION" == next ]]; }

# cache_folder: the folder of archives and of the built Ceres. Absolute, because
# a build of Ceres holds it and because programs started elsewhere use it.
cache_folder() {
  local folder="${CERES_EXT_CACHE:-}" home="${HOME:-}"
  # A relative XDG_CACHE_HOME does not count, says its specification.
  if [[ -z "$folder" && "${XDG_CACHE_HOME:-}" == /* ]]; then
    folder="$XDG_CACHE_HOME/ceres_ext"
  elif [[ -z "$folder" ]]; then
    [[ -n "$home" ]] || home=$(getent passwd "$EUID" | cut -d : -f 6) || home=""
    [[ -n "$home" ]] || die "no folder for the cache: HOME is not set and" \
      "user $EUID has no home; set CERES_EXT_CACHE"
    folder="$home/.cache/ceres_ext"
  fi
  readlink -m -- "$folder"
}
CACHE=$(cache_folder) || exit 1
export CERES_EXT_CACHE="$CACHE"

sha256_of() { sha256sum "$1" | cut -d ' ' -f 1; }

# verify_archive FILE [SHA256]: 0 where FILE is one of the two pinned archives of
# 2.2.0, or the one that SHA256 names; says what it expected and found otherwise.
verify_archive() {
  local found
  found=$(sha256_of "$1")
  [[ "$found" == "${2:-$OFFICIAL_SHA256}" ||
    "$found" == "${2:-$DEBIAN_SHA256}" ]] && return 0
  {
    echo "error: SHA-256 of $1 is not the one expected"
    if [[ -n "${2:-}" ]]; then
      echo "  expected $2"
    else
      echo "  expected $OFFICIAL_SHA256 (official archive)"
      echo "        or $DEBIAN_SHA256 (Debian's .orig.tar.xz)"
    fi
    echo "  found    $found"
  } >&2
  return 1
}

# download URL FILE SHA256: through apt's transport where there is one, because
# it knows the machine's proxies. FILE exists afterwards only if it is verified.
download() {
  local url="$1" file="$2" sha256="$3" status=1 part
  part=$(mktemp -d "$CACHE/download.XXXXXX") || exit 1
  if [[ -x /usr/lib/apt/apt-helper ]]; then
    timeout 120 /usr/lib/apt/apt-helper -o APT::Sandbox::User=root \
      -o Acquire::Retries=0 -o Acquire::http::Timeout=8 \
      -o Acquire::https::Timeout=8 download-file "$url" "$part/file" >"$part/log" 2>&1 && status=0
  elif have curl; then
    curl -fsSL --connect-timeout 8 --max-time 120 -o "$part/file" "$url" \
      >"$part/log" 2>&1 && status=0
  elif have wget; then
    wget -q --tries=1 --timeout=8 -O "$part/file" "$url" \
      >"$part/log" 2>&1 && status=0
  else
    echo "no apt-helper, curl or wget" >"$part/log"
  fi
  if ((status == 0)) && verify_archive "$part/file" "$sha256"; then
    mv "$part/file" "$file"
    rm -rf "$part"
    say "fetched $url, SHA-256 verified"
    return 0
  fi
  ((status == 0)) || echo "    not at $url: $(sed -n \
    -e '/^W:/d' -e 's,^E: Failed to fetch [^ ]* *,,p' -e t -e 's,^curl: ,,p' \
    "$part/log" | tail -n 1)" >&2
  rm -rf "$part"
  return 1
}

# mirror_urls: the archives of this machine's own apt sources.
mirror_urls() {
  have apt-get || return 0
  # shellcheck disable=SC2016
  apt-get indextargets --format '$(REPO_URI)' 2>/dev/null |
    sed 's,/*$,,' | grep -E '^https?:|^file:' | awk '!seen[$0]++' || true
}

# Debian's archive from the pools of the machine's own mirrors.
fetch_from_mirror_pool() {
  local mirror area
  for mirror in $(mirror_urls); do
    for area in main universe; do
      download "$mirror/pool/$area/c/ceres-solver/$DEBIAN_NAME" "$1" \
        "$DEBIAN_SHA256" && return 0
    done
  done
  return 1
}

# The same through apt's source index, in a private configuration: the system's
# sources stay as they are. Signatures are not asked for because the archive is
# checked against its pinned SHA-256 anyway.
fetch_from_source_index() {
  have apt-get || return 1
  local dir mirror suite="trixie main"
  ! grep -qx 'ID=ubuntu' /etc/os-release || suite="noble universe"
  dir=$(mktemp -d "$CACHE/apt.XXXXXX") || exit 1
  mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
  for mirror in $(mirror_urls); do
    echo "deb-src [trusted=yes] $mirror $suite"
  done >"$dir/sources.list"
  local apt=(apt-get -q -o APT::Sandbox::User=root -o Acquire::Retries=0
    -o Acquire::http::Timeout=8 -o "Dir::Etc::SourceList=$dir/sources.list"
    -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$dir/lists"
    -o "Dir::Cache=$dir/cache")
  local status=1
  # Mirrors that lack the suite make the update fail, one that has it suffices.
  timeout 120 "${apt[@]}" update >"$dir/log" 2>&1 || true
  if (cd "$dir" && timeout 120 "${apt[@]}" source --download-only --tar-only \
    ceres-solver >>log 2>&1) &&
    [[ -f "$dir/$DEBIAN_NAME" ]] &&
    verify_archive "$dir/$DEBIAN_NAME" "$DEBIAN_SHA256"; then
    mv "$dir/$DEBIAN_NAME" "$1"
    say "fetched $DEBIAN_NAME through apt's source index, SHA-256 verified"
    status=0
  fi
  rm -rf "$dir"
  return $status
}

# provide_archive NAME SHA256 GIVEN OPTION: $CACHE/NAME, verified, a copy of GIVEN
# where that is not empty. Dies where there is none, since no server is known that
# has this file.
provide_archive() {
  local file="$CACHE/$1"
  if [[ -n "$3" ]]; then
    [[ -f "$3" ]] || die "$4: $3 is not a file"
    verify_archive "$3" "$2" || exit 1
    cp "$3" "$file.part"
    mv "$file.part" "$file"
    say "$1: $3, SHA-256 verified"
  elif [[ ! -f "$file" ]]; then
    die "no $1: give it once with $4 PATH"
  else
    verify_archive "$file" "$2" || exit 1
  fi
}

# find_ceres_source [GIVEN] sets CERES_SOURCE to a verified archive, or to the
# folder GIVEN after a look at its version.
find_ceres_source() {
  local given="${1:-}"
  if is_next && [[ ! -d "$given" ]]; then
    provide_archive "$NEXT_NAME" "$NEXT_SHA256" "$given" --ceres-source
    CERES_SOURCE="$CACHE/$NEXT_NAME"
    return
  fi
  if [[ -n "$given" ]]; then
    [[ -e "$given" ]] || die "--ceres-source: $given does not exist"
    CERES_SOURCE=$(readlink -f "$given")
    if [[ -d "$CERES_SOURCE" ]]; then
      local header="$CERES_SOURCE/include/ceres/version.h" version
      [[ -f "$header" ]] ||
        die "--ceres-source: expected $header, is $given a Ceres source tree?"
      version=$(awk '/#define CERES_VERSION_(MAJOR|MINOR|REVISION)/ {
                       v = v s $3; s = "." } END { print v }' "$header")
      [[ "$version" == "$CERES_VERSION" ]] ||
        die "--ceres-source: expected Ceres $CERES_VERSION, found $version in $given"
      say "Ceres source: folder $given, version $version (a folder has no" \
        "checksum to verify)"
    else
      verify_archive "$CERES_SOURCE" || exit 1
      say "Ceres source: $given, SHA-256 verified"
      local name="ceres-solver-$CERES_VERSION.tar.gz"
      [[ "$(sha256_of "$CERES_SOURCE")" == "$OFFICIAL_SHA256" ]] ||
        name="$DEBIAN_NAME"
      cp "$CERES_SOURCE" "$CACHE/$name.part"
      mv "$CACHE/$name.part" "$CACHE/$name"
      CERES_SOURCE="$CACHE/$name"
    fi
    return
  fi
  local archive
  for archive in "$CACHE/ceres-solver-$CERES_VERSION.tar.gz" "$CACHE/$DEBIAN_NAME"; do
    if [[ -f "$archive" ]]; then
      if verify_archive "$archive"; then
        CERES_SOURCE="$archive"
        return
      fi
      rm -f "$archive"
    fi
  done
  say "looking for the source of Ceres $CERES_VERSION"
  CERES_SOURCE="$CACHE/ceres-solver-$CERES_VERSION.tar.gz"
  download "$OFFICIAL_URL" "$CERES_SOURCE" "$OFFICIAL_SHA256" && return
  CERES_SOURCE="$CACHE/$DEBIAN_NAME"
  fetch_from_mirror_pool "$CERES_SOURCE" && return
  fetch_from_source_index "$CERES_SOURCE" && return
  die "no source of Ceres $CERES_VERSION: neither $OFFICIAL_URL nor this" \
    "machine's apt mirrors have it. Fetch one of the two archives" \
    "elsewhere and give it: scripts/setup --ceres-source PATH"
}

# series: the patches, in order.
series() {
  # shellcheck disable=SC2153
  sed -e 's/#.*//' -e 's/[[:space:]]*$//' "$CERES_PATCHES/series" | grep . || true
}

# print_patches: their text, in order.
print_patches() {
  local patch
  while IFS= read -r patch; do
    cat "$CERES_PATCHES/$patch" || return 1
  done < <(series)
}

# unpack_ceres SOURCE FOLDER: a copy of the source with the series applied.
unpack_ceres() {
  local source="$1" folder="$2" patch
  mkdir -p "$folder"
  if [[ -d "$source" ]]; then
    cp -a "$source/." "$folder/"
  else
    tar -xf "$source" -C "$folder" --strip-components=1
  fi
  for patch in $(series); do
    patch -d "$folder" -p1 --fuzz=0 --no-backup-if-mismatch --forward \
      -i "$CERES_PATCHES/$patch" ||
      die "${CERES_PATCHES#"$ROOT/"}/$patch does not apply to $source"
  done
  ! is_next || complete_next "$folder"
}

# complete_next FOLDER: adds what a checkout of the development branch has and its
# pinned archive lacks: Abseil, which Ceres then builds and installs with itself,
# and the BAL problem, which is that of the release.
complete_next() {
  local abseil="$1/third_party/abseil-cpp"
  if [[ ! -f "$abseil/CMakeLists.txt" ]]; then
    provide_archive "$ABSEIL_NAME" "$ABSEIL_SHA256" \
      "${CERES_EXT_ABSEIL_SOURCE:-}" --abseil-source
    mkdir -p "$abseil"
    tar -xf "$CACHE/$ABSEIL_NAME" -C "$abseil" --strip-components=1
  fi
  cat "$ROOT/scripts/lib/abseil_with_ceres.cmake" >>"$abseil/CMakeLists.txt"
  [[ -f "$1/$BAL_PROBLEM" ]] || (
    choose_ceres 2.2.0
    find_ceres_source
    tar -xf "$CERES_SOURCE" -C "$1" --strip-components=1 --wildcards \
      "*/$BAL_PROBLEM"
  )
}

# CERES_STATIC=ON: a static library that needs nothing but Eigen, which is inside
# it, so that the Python package can hold it all; without the parts of SuiteSparse
# under the GPL, and without copies of Ceres's own Schur solvers for each size of
# block, which take half of its compile time and solve only what this project
# leaves to Ceres.
CERES_STATIC="${CERES_STATIC:-OFF}"

ceres_options() {
  cat <<OPTIONS
-DCMAKE_BUILD_TYPE=Release
-DBUILD_TESTING=OFF
-DBUILD_BENCHMARKS=OFF
-DBUILD_DOCUMENTATION=OFF
-DCMAKE_INSTALL_LIBDIR=lib
OPTIONS
  # This library's arithmetic has no fused operations, and has Ceres's bits. The
  # baseline of x86-64 has none.
  [[ "${CERES_TARGET:-$(uname -m)}" != aarch64 ]] ||
    echo "-DCMAKE_CXX_FLAGS=${CXXFLAGS:+$CXXFLAGS }-ffp-contract=off"
  if [[ "$CERES_STATIC" == ON ]]; then
    cat <<OPTIONS
-DBUILD_SHARED_LIBS=OFF
-DSCHUR_SPECIALIZATIONS=OFF
-DCMAKE_POSITION_INDEPENDENT_CODE=ON
-DSUITESPARSE=OFF
-DLAPACK=OFF
-DEIGENMETIS=OFF
-DMINIGLOG=ON
-DMINIGLOG_MAX_LOG_LEVEL=-1
-DGFLAGS=OFF
-DUSE_CUDA=OFF
-DBUILD_EXAMPLES=OFF
OPTIONS
    [[ -z "${CXX:-}" ]] || echo "-DCMAKE_CXX_COMPILER=$CXX"
    return
  fi
  if is_next; then
    # One library of Abseil, which libceres finds beside itself. Ceres's sources are
    # compiled in groups, which takes a third of the time.
    cat <<OPTIONS
-DBUILD_SHARED_LIBS=ON
-DCMAKE_UNITY_BUILD=ON
-DABSL_BUILD_MONOLITHIC_SHARED_LIBS=ON
-DWITH_SCHUR_SPECIALIZATIONS=ON
-DWITH_SUITESPARSE=ON
-DWITH_LAPACK=ON
-DWITH_CUDA=$CERES_CUDA
-DBUILD_EXAMPLES=ON
-DCMAKE_BUILD_RPATH_USE_ORIGIN=ON
-DCMAKE_INSTALL_RPATH=\$ORIGIN
-DCMAKE_INSTALL_RPATH_USE_LINK_PATH=ON
OPTIONS
  else
    cat <<OPTIONS
-DBUILD_SHARED_LIBS=ON
-DSCHUR_SPECIALIZATIONS=ON
-DSUITESPARSE=ON
-DLAPACK=ON
-DMINIGLOG=OFF
-DGFLAGS=ON
-DUSE_CUDA=$CERES_CUDA
-DBUILD_EXAMPLES=ON
-DCMAKE_BUILD_RPATH_USE_ORIGIN=ON
-DCMAKE_INSTALL_RPATH_USE_LINK_PATH=ON
OPTIONS
  fi
  if [[ "$CERES_CUDA" == ON ]]; then
    echo "-DCMAKE_CUDA_COMPILER=$NVCC"
    echo "-DCMAKE_CUDA_ARCHITECTURES=$CUDA_ARCHITECTURES"
  fi
}

# keep_schur_sizes SOURCE: Ceres's own generator writes its Schur solvers for the
# sizes that bundle adjustment has (rows of 2; points of 3; cameras of 6, 9 or any)
# and for any sizes. All 22 of the release take two thirds of its compile time.
keep_schur_sizes() {
  (cd "$1/internal/ceres" && rm generated/*.cc && python3 -B -c '
import generate_template_specializations as g
d = "Eigen::Dynamic"
g.SPECIALIZATIONS = [(2, 3, 6), (2, 3, 9), (2, 3, d), (2, d, d)]
g.Specialize("schur_eliminator", vars(g.schur_eliminator_template))
g.Specialize("partitioned_matrix_view", vars(g.partitioned_matrix_view_template))
g.GenerateQueryFile()')
}

# ceres_key [FOLDER]: names a build. Same key, same library.
ceres_key() {
  {
    series
    print_patches || exit 1
    ceres_options
    ! is_next || {
      echo "$NEXT_SHA256 $ABSEIL_SHA256"
      cat "$ROOT/scripts/lib/abseil_with_ceres.cmake"
    }
    sed -n -e '/^keep_schur_sizes()/,/^}/p' -e '/^build_ceres()/,/^}/p' \
      "${BASH_SOURCE[0]}"
    echo "${CXXFLAGS:-}"
    "${CXX:-c++}" --version
    [[ "$CERES_CUDA" == OFF ]] || "$NVCC" --version
    if have dpkg-query; then
      dpkg-query -W -f '${Package} ${Version}\n' libeigen3-dev libgflags-dev \
        libgoogle-glog-dev liblapack-dev libsuitesparse-dev 2>/dev/null || true
    fi
    if [[ -n "${1:-}" ]]; then
      (cd "$1" && find . -path ./.git -prune -o -type f -print0 |
        LC_ALL=C sort -z | xargs -0 sha256sum)
    fi
  } | sha256sum | cut -c 1-16
}

# build_ceres SOURCE PREFIX: the library, its plugin headers, its example
# bundle_adjuster (bin/) and the BAL problem it comes with (data/). PREFIX
# appears complete or not at all. Ceres's other examples are not built.
build_ceres() {
  local source="$1" prefix="$2" work="$2.work" options
  rm -rf "$work"
  mkdir -p "$work"
  mapfile -t options < <(ceres_options)
  if have ccache; then
    export CCACHE_BASEDIR="$work" CCACHE_NOHASHDIR=1
    options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
    [[ "$CERES_CUDA" == OFF ]] || options+=(-DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
  fi
  unpack_ceres "$source" "$work/source"
  keep_schur_sizes "$work/source"
  cmake -G Ninja -S "$work/source" -B "$work/build" \
    -DCMAKE_INSTALL_PREFIX="$prefix" "${options[@]}"
  local targets=(ceres) root="$work/root$prefix"
  [[ "$CERES_STATIC" == ON ]] || targets+=(bundle_adjuster)
  cmake --build "$work/build" -j "$(num_jobs)" --target "${targets[@]}"
  DESTDIR="$work/root" cmake --install "$work/build"
  mkdir -p "$root/bin" "$root/data"
  [[ "$CERES_STATIC" == ON ]] ||
    cp "$work/build/bin/bundle_adjuster" "$root/bin/"
  cp "$work/source/$BAL_PROBLEM" "$root/data/"
  cp "$work/source/LICENSE" "$root/"
  mv "$root" "$prefix"
  rm -rf "$work"
}

# provide_ceres [GIVEN]: build/ceres, build/ceres-static where CERES_STATIC is ON,
# leads to the patched Ceres, and build/ceres-source to the pristine source it
# comes from; of next, build/ceres-next and build/ceres-next-source. A folder given
# once is remembered by that link. CERES_TARGET, of another machine, is added to the
# first name. A subshell, whose end releases the lock.
provide_ceres() (
  local given="${1:-}" key prefix link="$CERES_LINK${CERES_TARGET:+-$CERES_TARGET}"
  local source_link="$BUILD_ROOT/$CERES_LINK-source"
  if [[ "$CERES_STATIC" == ON ]]; then
    ! is_next || die "a static Ceres, for the Python package, is Ceres 2.2.0 alone"
    link=ceres-static${CERES_TARGET:+-$CERES_TARGET}
    CERES_CUDA=OFF
  fi
  local log="$BUILD_ROOT/log/$link.log"
  if [[ -z "$given" && -d "$source_link" ]]; then
    given=$(readlink -f "$source_link")
  fi
  mkdir -p "$CACHE" || die "CERES_EXT_CACHE: cannot create $CACHE"
  lock "$CACHE/ceres-$CERES_VERSION.lock"
  find_ceres_source "$given"
  if [[ -d "$CERES_SOURCE" ]]; then
    key=$(ceres_key "$CERES_SOURCE")
  else
    key=$(ceres_key)
  fi
  prefix="$CACHE/ceres-$CERES_VERSION-$key"
  if [[ ! -d "$prefix/lib/cmake/Ceres" ]]; then
    rm -rf "$prefix"
    say "building Ceres $CERES_VERSION with $(series | wc -l) patches, once," \
      "into $prefix (log: build/log/$link.log)"
    # A shell of its own, so that its first failing command ends it.
    # shellcheck disable=SC2016
    run_logged "$log" "building Ceres" bash -euo pipefail -c \
      'source "$0/common.sh"; source "$0/ceres.sh"; build_ceres "$@"' \
      "$ROOT/scripts/lib" "$CERES_SOURCE" "$prefix"
  fi
  ln -sfn "$prefix" "$BUILD_ROOT/$link"
  ln -sfn "$CERES_SOURCE" "$source_link"
)
