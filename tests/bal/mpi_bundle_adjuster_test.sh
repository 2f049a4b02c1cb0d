#!/usr/bin/env bash
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# mpi_bundle_adjuster_test.sh MPIEXEC PROGRAMS
#
# mpi_bundle_adjuster of the folder PROGRAMS by several processes against
# bundle_adjuster by one: the same steps, costs to rounding and outputs; bad input
# and flags end all processes with the code and sentence of one.
set -euo pipefail
mpiexec="$1"
programs="$2"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() {
  echo "$*" >&2
  exit 1
}
# mpi N FLAGS...: standard output and error in the file "log".
mpi() {
  "$mpiexec" -n "$1" "$programs/mpi_bundle_adjuster" "${@:2}" --device=host \
    --num_threads=1 >log 2>&1
}
# expect CODE SENTENCE COMMAND...
expect() {
  local code=0
  "${@:3}" || code=$?
  ((code == $1)) || fail "$* ended with $code: $(cat log)"
  grep -qF -- "$2" log || fail "$* said: $(cat log)"
}

"$programs/bal_generate" --num_cameras=20 --num_points=500 \
  --num_observations=4000 --output=problem.npz >/dev/null
solve=(--num_iterations=10 --linear_solver=iterative_schur
  --preconditioner=schur_jacobi --eta=1e-6)
"$programs/bundle_adjuster" --input=problem.npz "${solve[@]}" --device=host \
  --num_threads=1 --output=one.txt --report_json=one.json >/dev/null
for ranks in 1 2 3; do
  for input in problem.npz problem.txt; do
    [[ "$input" == *.npz || "$ranks" == 2 ]] || continue
    [[ -f "$input" ]] || "$programs/bal_convert" --input=problem.npz --output="$input" >/dev/null
    expect 0 CONVERGENCE mpi "$ranks" --input="$input" "${solve[@]}" \
      --output=several.txt --report_json=several.json --final_ply=several.ply
    [[ -s several.ply ]] || fail "no several.ply"
    # Sums of the ranks round differently, so PCG, to eta = 1e-6, may end one
    # iteration apart: costs differ by 1e-6, and entries, which a problem without a
    # gauge lets move, by 1e-3.
    python3 - <<'PYTHON' || fail "$ranks ranks, $input"
import json

one, several = (json.load(open(name + ".json")) for name in ("one", "several"))
costs = [
    [i["cost"] for i in report["iterations"]] for report in (one, several)
]
assert len(costs[0]) == len(costs[1]), costs
for a, b in zip(*costs):
    assert abs(a - b) <= 1e-6 * a, (a, b)
assert several["problem"]["num_observations"] == 4000, several["problem"]
values = [open(name + ".txt").read().split() for name in ("one", "several")]
assert len(values[0]) == len(values[1])
for a, b in zip(*values):
    a, b = float(a), float(b)
    assert abs(a - b) <= 1e-3 * max(1.0, abs(a)), (a, b)
PYTHON
  done
done

expect 2 "rank 1: nothing.npz: expected a readable file" \
  mpi 2 --input=nothing.npz
expect 1 "--covariance: not available with mpi_bundle_adjuster" \
  mpi 2 --input=problem.npz --covariance=c.json
expect 4 "no_folder" mpi 2 --input=problem.npz --output=no_folder/a.npz
expect 3 "the solve failed" \
  mpi 2 --input=problem.npz --linear_solver=dense_schur --fallback=refuse
expect 1 "mpi_bundle_adjuster solves a problem with several" \
  env OMPI_COMM_WORLD_SIZE=2 sh -c \
  "'$programs/bundle_adjuster' --input=problem.npz >log 2>&1"
