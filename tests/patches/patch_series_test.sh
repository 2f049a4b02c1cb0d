#!/usr/bin/env bash
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# patch_series_test.sh PATCHES SOURCE
#
# The series in the folder PATCHES is complete, each patch says what it is for and what
# tests it, and all apply in order to SOURCE, the pristine Ceres that they are for as an
# archive or a folder, with neither fuzz nor offset. Ends with 77 if there is no SOURCE.
set -euo pipefail
patches="$1"
source="${2:-}"

fail() {
  echo "FAILED: $*"
  exit 1
}

mapfile -t series < <(sed -e 's/#.*//' -e 's/[[:space:]]*$//' \
  "$patches/series" | grep .)
((${#series[@]} > 0)) || fail "$patches/series is empty"
[[ "$(printf '%s\n' "${series[@]}" | sort)" == "$(
  cd "$patches" && printf '%s\n' *.patch | sort
)" ]] || fail "$patches/series doesn't list all patches"
for patch in "${series[@]}"; do
  for field in Subject Why What Test Upstream; do
    sed '/^---$/q' "$patches/$patch" | grep -q "^$field: ." ||
      fail "$patch: no \"$field:\" in its header"
  done
  grep -q "\`${patch%.patch}\`" "$patches/../README.md" ||
    fail "$patch is not in patches/README.md"
done

if [[ -z "$source" || ! -e "$source" ]]; then
  echo "skipped: no pristine source of Ceres;" \
    "set CERES_EXT_CERES_ARCHIVE or run scripts/setup"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [[ -d "$source" ]]; then
  cp -a "$(readlink -f "$source")/." "$work/"
else
  tar -xf "$source" -C "$work" --strip-components=1
fi
for patch in "${series[@]}"; do
  patch -d "$work" -p1 --fuzz=0 --forward --no-backup-if-mismatch \
    -i "$patches/$patch" >"$work/log" 2>&1 ||
    fail "$patch does not apply: $(cat "$work/log")"
  ! grep -E 'fuzz|offset' "$work/log" || fail "$patch applies, but not exactly"
done
here=$(dirname "${BASH_SOURCE[0]}")
for patch in "${series[@]}"; do
  while read -r name; do
    [[ -f "$here/$name.cc" || -f "$work/internal/ceres/$name.cc" ]] ||
      fail "$patch names $name, which is neither in tests/patches nor Ceres's own"
  done < <(sed -n 's/^Test: //p' "$patches/$patch" | grep -oE '[a-z_]+_test')
done
echo "${#series[@]} patches apply to $source"
