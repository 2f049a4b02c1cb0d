#!/usr/bin/env bash
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# conda_test.sh
#
# The recipe of packaging/conda, without conda: it has this project's version and the
# pinned source of Ceres, and its script, with a cmake that builds nothing, applies the
# patches, passes options that exist and links the programs.
set -euo pipefail
# shellcheck source=testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/testing.sh"
recipe="$SOURCE_ROOT/packaging/conda"
ceres_source="$SOURCE_ROOT/build/ceres-source"

version=$(sed -n 's/^project(ceres_ext VERSION \([0-9.]*\).*/\1/p' \
  "$SOURCE_ROOT/CMakeLists.txt")
expect_has "version" "$(cat "$recipe/recipe.yaml")" "version: \"$version\""
expect_has "source of Ceres" "$(cat "$recipe/recipe.yaml")" \
  "sha256: $(sed -n 's/^OFFICIAL_SHA256=//p' "$SOURCE_ROOT/scripts/lib/ceres.sh")"

if [[ ! -e "$ceres_source" ]]; then
  echo "skipped: the script of the recipe, which needs build/ceres-source"
  exit 0
fi
build="$WORK/build of conda"
mkdir -p "$build/ceres" "$build/ceres_ext"
if [[ -d "$ceres_source" ]]; then
  cp -a "$ceres_source/." "$build/ceres/"
else
  tar -xf "$(readlink -f "$ceres_source")" -C "$build/ceres" --strip-components=1
fi
cp -R "$SOURCE_ROOT/patches" "$build/ceres_ext/"

# Writes the options to a file a project, and installs two programs.
fake cmake <<'FAKE'
case "$1" in
  --build) ;;
  --install)
    [[ "$2" == */build_ceres ]] || {
      mkdir -p "$PREFIX/lib/ceres_ext/bin"
      touch "$PREFIX/lib/ceres_ext/bin/ceres_ext_run" "$PREFIX/lib/ceres_ext/bin/page.py"
    }
    ;;
  *)
    name=ceres
    [[ "$*" != *-DCERES_EXT_CERES=* ]] || name=ceres_ext
    printf '%s\n' "$@" >"$PREFIX.$name"
    ;;
esac
FAKE
export PREFIX="$WORK/prefix of conda"
mkdir "$PREFIX"
(cd "$build" && CMAKE_ARGS="-DCMAKE_AR=ar" bash "$recipe/build.sh") >"$WORK/log" 2>&1 ||
  { tail -n 5 "$WORK/log" && fail "build.sh"; }
expect_equal "patches applied" "$(grep -c '^patching file' "$WORK/log")" \
  "$(grep -v '^#' "$SOURCE_ROOT/patches/2.2.0/series" |
    sed "s|^|$SOURCE_ROOT/patches/2.2.0/|" | xargs -d '\n' cat | grep -c '^+++ ')"
expect_equal "links" "$(cd "$PREFIX/bin" && echo *)" ceres_ext_run
expect_equal "the link" "$(readlink "$PREFIX/bin/ceres_ext_run")" \
  ../lib/ceres_ext/bin/ceres_ext_run

# options PROJECT: the names of those that are not CMake's.
options() {
  sed -n 's/^-D\([A-Za-z_]*\)=.*/\1/p' "$PREFIX.$1" | grep -v '^CMAKE_'
}
for option in $(options ceres); do
  [[ "$option" == BUILD_SHARED_LIBS ]] ||
    grep -qE "option\($option\b" "$build/ceres/CMakeLists.txt" ||
    fail "the recipe passes $option, which is no option of Ceres"
done
for option in $(options ceres_ext); do
  grep -qE "(option|set)\($option\b|\b$option\b.*CACHE|^set\($option$" \
    "$SOURCE_ROOT/CMakeLists.txt" "$SOURCE_ROOT"/cmake/*.cmake ||
    fail "the recipe passes $option, which is no option of this project"
done
