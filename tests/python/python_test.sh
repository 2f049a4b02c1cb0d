#!/usr/bin/env bash
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# python_test.sh BUILD WORK
#
# Builds the Python package, with the library of the build folder BUILD, in
# BUILD/python, where it stays, installs it into a fresh virtual environment in the
# folder WORK, and runs python/tests and the examples in Python there. Ends with 77
# where there is no Python to compile for or pip reaches no index.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build="$1"
work="$2"

skip() {
  echo "skipped: $*"
  exit 77
}
command -v python3 >/dev/null || skip "no python3"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
  skip "expected Python 3.10 or newer, found $(python3 --version)"
python3 -c '
import os, sys, sysconfig
path = os.path.join(sysconfig.get_path("include"), "Python.h")
sys.exit(not os.path.exists(path))' || skip "no Python.h; install python3-dev"
rm -rf "$work"
mkdir -p "$work"
python3 -m venv "$work/venv" ||
  skip "no virtual environments; install python3-venv"

export PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
install() { "$work/venv/bin/pip" install --quiet --retries 2 "$@"; }
if ! install matplotlib mypy pytest >"$work/pip.log" 2>&1; then
  tail -n 3 "$work/pip.log"
  skip "pip can't install matplotlib, mypy and pytest; $work/pip.log has more"
fi
# Packages with a Ceres of their own, which tests put beside this one.
for package in pyceres pycolmap; do
  install --only-binary :all: "$package" >"$work/$package.log" 2>&1 ||
    echo "no $package: its tests are skipped; $work/$package.log says why"
done

rm -rf "$build/python"
"$work/venv/bin/pip" wheel --quiet --no-deps --wheel-dir "$build/python" \
  --config-settings="build-dir=$work/build" \
  --config-settings="cmake.define.CERES_EXT_BUILD=$build" "$root"
install "$build"/python/*.whl
cd "$work"
CERES_EXT_BUILD="$build" venv/bin/python -m pytest -q -rs \
  -p no:cacheprovider "$root/python/tests" "$root/tests/examples"
cd "$root"
rm -rf "$work"
