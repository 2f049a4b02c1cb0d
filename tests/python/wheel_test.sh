#!/usr/bin/env bash
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# wheel_test.sh WHEEL BUILD WORK [TEST...]
#
# Tests the wheel of scripts/wheel on machines that have neither compiler nor CUDA
# toolkit: in a virtual environment in the folder WORK, where the files TEST of
# python/tests, or all of them, run with the programs of the build folder BUILD,
# and, as root, in a minimal Debian 13, where the example of README.md runs.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
wheel=$(readlink -f "$1")
build=$(cd "$2" && pwd)
work="$3"
tests=("${@:4}")
((${#tests[@]})) || tests=("")
export PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1

rm -rf --one-file-system "$work"
mkdir -p "$work/wheels"
work=$(cd "$work" && pwd)

# The Python of README.md, between what it takes for granted and a check. Its last
# line is the cost of the solution, the same bits everywhere.
{
  cat <<'PYTHON'
import sys
import ceres_ext
bal = ceres_ext.read_bal(sys.argv[1])
camera_values, point_values, camera_index, point_index, pixels = bal
PYTHON
  # shellcheck disable=SC2016
  sed -n '/^```python$/,/^```$/p' "$root/README.md" | sed '/^```/d'
  cat <<'PYTHON'
summary = ceres_ext.solve(problem, max_num_iterations=1)
assert summary.path == "FULL", summary.path_reason
print(f"{summary.initial_cost:.17g}")
PYTHON
} >"$work/readme.py"
"$build/examples/bal/bal_generate" --num_cameras=20 --num_points=500 \
  --num_observations=2000 --output="$work/problem.txt" >/dev/null

echo "==> a virtual environment"
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet "$wheel" mypy pytest
for package in pyceres pycolmap; do
  "$work/venv/bin/pip" install --quiet --only-binary :all: "$package" \
    >"$work/$package.log" 2>&1 || echo "no $package: its tests are skipped"
done
"$work/venv/bin/python" "$work/readme.py" "$work/problem.txt" | tail -n 1 |
  tee "$work/here.txt"
(cd "$work" && env CERES_EXT_BUILD="$build" \
  venv/bin/python -m pytest -q -rs -p no:cacheprovider \
  "${tests[@]/#/$root/python/tests/}")
echo "==> where the environment is moved to"
mv "$work/venv" "$work/moved"
packages=$(echo "$work"/moved/lib/python3*/site-packages)
PYTHONPATH="$packages" python3 "$work/readme.py" "$work/problem.txt" | tail -n 1 |
  cmp - "$work/here.txt"

if ((EUID != 0)) || ! command -v debootstrap >/dev/null; then
  echo "skipped: Debian 13, which needs root and debootstrap"
  exit 0
fi
echo "==> a minimal Debian 13"
"$work/moved/bin/python" -m pip download --quiet --dest "$work/wheels" \
  --only-binary :all: --python-version 3.13 --platform manylinux_2_28_x86_64 "$wheel"
# debootstrap takes no folder with spaces.
debian=$(mktemp -d /tmp/ceres_ext_debian.XXXXXX)
trap 'rm -rf --one-file-system "$debian"' EXIT
chmod 755 "$debian"
# shellcheck disable=SC2016
mirror=$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null |
  grep -m 1 -E '^https?://[^ ]*/debian/?$' || echo http://deb.debian.org/debian)
debootstrap --variant=minbase --include=python3,python3-pip trixie "$debian" "$mirror" \
  >"$work/debootstrap.log" 2>&1 || {
  tail -n 5 "$work/debootstrap.log"
  exit 1
}
cp "$work"/wheels/*.whl "$work/readme.py" "$work/problem.txt" "$debian/tmp/"
cat >"$debian/tmp/run.sh" <<'RUN'
set -e
if command -v cc || ldconfig -p | grep -E 'libcuda|libglog|libceres'; then
  echo "expected neither a compiler nor libraries"
  exit 1
fi
python3 -m pip install --quiet --no-index --find-links /tmp --break-system-packages \
  --root-user-action=ignore ceres_ext
python3 /tmp/readme.py /tmp/problem.txt
RUN
chroot "$debian" sh /tmp/run.sh >"$work/debian.txt" 2>&1 || {
  tail -n 20 "$work/debian.txt"
  exit 1
}
tail -n 1 "$work/debian.txt" | cmp - "$work/here.txt"
rm -rf --one-file-system "$work"
