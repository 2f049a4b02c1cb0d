#!/usr/bin/env bash
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# No finding of shellcheck in any shell script of this project. Ends with 77
# where it is not installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if ! command -v shellcheck >/dev/null; then
  echo "skipped: no shellcheck"
  exit 77
fi
mapfile -t files < <(grep -rlE \
  '^(#!/usr/bin/env bash|# shellcheck shell=)' .ci scripts tests)
((${#files[@]} > 10)) || { echo "FAILED: found ${files[*]}" && exit 1; }
shellcheck -x "${files[@]}"
echo "${#files[@]} scripts"
