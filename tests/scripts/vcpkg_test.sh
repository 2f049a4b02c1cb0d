#!/usr/bin/env bash
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# vcpkg_test.sh
#
# The port of packaging/vcpkg, without vcpkg: the manifest names what the portfile
# uses, every option that it passes exists, and its patches apply.
set -euo pipefail
# shellcheck source=testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/testing.sh"
port="$SOURCE_ROOT/packaging/vcpkg/ports/ceres-ext"

python3 - "$port" "$SOURCE_ROOT" <<'PYTHON'
import json
import pathlib
import re
import sys

port, root = map(pathlib.Path, sys.argv[1:])
manifest = json.loads((port / "vcpkg.json").read_text())
assert manifest["name"] == port.name
assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", manifest["name"])
project = (root / "CMakeLists.txt").read_text()
version = re.search(r"project\(ceres_ext VERSION ([0-9.]+)", project)
assert manifest["version"] == version[1], version
used = set(re.findall(r'"(\w+)" IN_LIST FEATURES', (port / "portfile.cmake").read_text()))
assert used == set(manifest["features"]), used
PYTHON

# options FILE: the names of the options in a list of -DNAME=VALUE.
options() { sed -n 's/^-D\([A-Za-z_]*\)=.*/\1/p' "$1"; }

for features in "" cuda; do
  work="$WORK/vcpkg$features"
  cmake "-DROOT=$SOURCE_ROOT" "-DWORK=$work" "-DFEATURES=$features" \
    -P "$SOURCE_ROOT/tests/scripts/vcpkg_test.cmake"
  expect_equal "patches" "$(sed 's|.*/||' "$work/patches.txt")" \
    "$(grep -v '^#' "$SOURCE_ROOT/patches/2.2.0/series")"
  for option in $(options "$work/ceres_ext.txt"); do
    [[ "$option" == CMAKE_* ]] ||
      grep -qE "(option|set)\($option\b|\b$option\b.*CACHE|^set\($option$" \
        "$SOURCE_ROOT/CMakeLists.txt" "$SOURCE_ROOT"/cmake/*.cmake ||
      fail "the portfile passes $option, which is no option of this project"
  done
  expect_equal "options, with $(wc -l <"$work/ceres_ext.txt") lines" \
    "$(grep -c '^-D' "$work/ceres_ext.txt")" "$(wc -l <"$work/ceres_ext.txt")"
done
expect_has "with CUDA" "$(cat "$WORK/vcpkgcuda/ceres_ext.txt")" "CERES_EXT_CUDA=ON"
expect_has "with CUDA" "$(cat "$WORK/vcpkgcuda/ceres_ext.txt")" ";90-real;"
expect_has "without CUDA" "$(cat "$WORK/vcpkg/ceres_ext.txt")" "CERES_EXT_CUDA=OFF"

# Ceres's side, where its source is.
source="$SOURCE_ROOT/build/ceres-source"
if [[ ! -e "$source" ]] || ! command -v git >/dev/null; then
  echo "skipped: Ceres's options and patches, which need build/ceres-source and git"
  exit 0
fi
mkdir "$WORK/ceres"
if [[ -d "$source" ]]; then
  cp -a "$source/." "$WORK/ceres/"
else
  tar -xf "$(readlink -f "$source")" -C "$WORK/ceres" --strip-components=1
fi
for option in $(options "$WORK/vcpkg/ceres.txt"); do
  grep -qE "option\($option\b" "$WORK/ceres/CMakeLists.txt" ||
    fail "the portfile passes $option, which is no option of Ceres"
done
# As vcpkg applies them.
cd "$WORK/ceres"
git init -q .
while IFS= read -r patch; do
  git -c core.autocrlf=false apply --ignore-whitespace --whitespace=nowarn "$patch" ||
    fail "git does not apply $patch"
done <"$WORK/vcpkg/patches.txt"
