#!/usr/bin/env bash
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# tests/clients/debian_package.sh; see --help.
set -euo pipefail
# shellcheck source=../../scripts/lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib/common.sh"
# shellcheck source=../../scripts/lib/ceres.sh
source "$ROOT/scripts/lib/ceres.sh"

usage() {
  cat <<'USAGE'
tests/clients/debian_package.sh [--work=FOLDER] [--mirror=URL] [--package=FOLDER]

Installs this project's package in the Debian 13 of colmap.sh, beside COLMAP and its
libceres4t64, and removes it again. Expects that the package adds files of
/usr/lib/ceres_ext and links to them in /usr/bin and changes no other, that COLMAP
still loads Debian's libceres, and that afterwards every file is as before.

Lists and SHA-256 of all files are compared, except logs and caches, and what dpkg and
apt write about packages, of which the list of installed packages is compared.

By hand, as root; the options are those of colmap.sh.
USAGE
}

work="$BUILD_ROOT/colmap"
mirror=""
package=""
for argument in "$@"; do
  case "$argument" in
    --work=*) work="${argument#*=}" ;;
    --mirror=*) mirror="${argument#*=}" ;;
    --package=*) package="${argument#*=}" ;;
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
# shellcheck source=debian.sh
source "$ROOT/tests/clients/debian.sh"
client="$work/client"
make_debian "$client" colmap
make_package

# remove_package: with the packages that came with it.
remove_package() {
  run_logged "$work/log/remove.log" "removing the package" \
    inside "$client" apt-get purge -y --autoremove ceres-ext
}

# list_files NAME: $work/NAME.files and $work/NAME.packages.
list_files() {
  local left_out=(-path ./opt -o -path ./tmp -o -path ./proc -o -path ./model -o
    -path ./var/cache -o -path ./var/log -o -path ./var/lib/dpkg -o
    -path ./var/lib/apt)
  (
    cd "$client"
    find . -xdev \( "${left_out[@]}" \) -prune -o -printf '%p %m %u:%g %y %l\n'
    find . -xdev \( "${left_out[@]}" \) -prune -o -type f -print0 |
      xargs -0 sha256sum | sed -E 's,^([0-9a-f]*)  (.*),\2 \1,'
  ) | LC_ALL=C sort >"$work/$1.files"
  # shellcheck disable=SC2016
  inside "$client" dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\n' \
    >"$work/$1.packages"
}

# loaded_ceres: the libceres that COLMAP loads.
loaded_ceres() {
  # shellcheck disable=SC2016
  inside "$client" sh -c 'readlink -f "$(ldd "$(command -v colmap)" |
    sed -n "s/.*libceres.so.4 => \([^ ]*\) .*/\1/p")"'
}

failed=0
expect() { # WHAT COMMAND...
  local what="$1"
  shift
  if "$@"; then
    echo "yes: $what"
  else
    echo "NO: $what"
    failed=1
  fi
}

if inside "$client" dpkg -s ceres-ext >/dev/null 2>&1; then
  remove_package
fi
list_files before
ceres_before=$(loaded_ceres)
install_package "$client"
list_files installed
(LC_ALL=C comm -13 "$work/before.files" "$work/installed.files") >"$work/added"
(LC_ALL=C comm -23 "$work/before.files" "$work/installed.files") >"$work/lost"
inside "$client" dpkg-query -L ceres-ext | LC_ALL=C sort >"$work/of_package"
# Files that are not of the package are of those that came with it.
: >"$work/of_nobody"
while read -r name; do
  name="${name#.}"
  if grep -qxF "$name" "$work/of_package"; then
    echo "$name"
  elif ! inside "$client" dpkg-query -S "$name" >/dev/null 2>&1; then
    echo "$name" >>"$work/of_nobody"
  fi
done < <(cut -d ' ' -f 1 "$work/added" | uniq) >"$work/added_by_package"
echo "$(wc -l <"$work/added_by_package") files and folders of ceres-ext;" \
  "$(($(wc -l <"$work/installed.packages") - $(wc -l <"$work/before.packages") - 1))" \
  "other packages came with it"
expect "no file was changed or removed, except the cache of the dynamic linker" \
  test -z "$(grep -v '^\./etc/ld\.so\.cache ' "$work/lost")"
expect "all that ceres-ext added is in /usr/lib/ceres_ext, or a link in /usr/bin" \
  test -z "$(grep -Ev '^/usr/lib/ceres_ext(/|$)' "$work/added_by_package" |
    while read -r name; do
      [[ "$(readlink "$client$name")" == ../lib/ceres_ext/bin/* ]] || echo "$name"
    done)"
expect "each added file is of a package, except the cache of the dynamic linker" \
  test -z "$(grep -vx '/etc/ld\.so\.cache' "$work/of_nobody")"
expect "libceres4t64 is as Debian made it" \
  test -z "$(inside "$client" dpkg --verify libceres4t64)"
expect "COLMAP loads $ceres_before" test "$(loaded_ceres)" = "$ceres_before"
expect "COLMAP by ceres_ext_run loads another" sh -c \
  "grep -q 'uses /usr/lib/ceres_ext/.* in place of' <<END
$(inside "$client" ceres_ext_run colmap help 2>&1)
END"
remove_package
list_files after
expect "after removal all files are as before" \
  cmp "$work/before.files" "$work/after.files"
expect "after removal all packages are as before" \
  cmp "$work/before.packages" "$work/after.packages"
((failed == 0)) || die "not as expected; lists of files are in $work"
