#!/usr/bin/env bash
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# scripts/measure preconditioners on runs by hand whose tables are known.
set -euo pipefail
# shellcheck source=testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/testing.sh"
command -v python3 >/dev/null || exit 77

mkdir "$WORK/binaries"
# On seed 1 the default is best. On seed 2 it is 1.0006 times as high as the
# best, within 0.1 % of it as soon. On seed 3 it takes 1.3 times as long, and an
# exact step finds no memory.
cat >"$WORK/binaries/preconditioners_benchmark" <<'EOF'
#!/usr/bin/env bash
# run SEED SOLVER COST SECONDS
run() {
  echo "{\"size\": \"20k\", \"scene\": \"city\", \"seed\": $1," \
    '"start": "far", "loss": "none", "device": "host", "precision": "double",' \
    "\"solver\": \"$2\", \"ending\": \"\", \"steps\": 3, \"rejected\": 1," \
    "\"pcg\": 30, \"with_second_level\": 20, \"seconds\": 0.5," \
    "\"cost\": $3, \"termination\": \"CONVERGENCE\"," \
    "\"progress\": [[0, 0, 5000], [1, $4, $3], [3, 0.5, $3]]}"
}
echo "arguments: $*" >&2
run 1 default 1000 0.1
run 1 pcg 1000.9 0.2
run 2 default 1000.6 0.1
run 2 pcg 1000 0.1
run 3 default 1000 0.13
run 3 pcg 1000 0.1
echo '{"size": "20k", "scene": "city", "seed": 3, "start": "far",' \
  '"loss": "none", "solver": "exact", "ending": "Out of memory."}'
EOF
chmod +x "$WORK/binaries/preconditioners_benchmark"
said=$("$SOURCE_ROOT/scripts/measure" preconditioners --machine=host --threads=2 \
  "$WORK/binaries" "$WORK/out" 20k 2>&1)
expect_has "arguments" "$said" \
  "arguments: --sizes=20k --device=host --threads=2 --seconds="
expect_has "broken rules" "$said" "breaks the rule on 2 of 3 problems"
expect_has "cost" "$said" "| 20k | city | 2 | far | none | 1.00060 | 1.00 |"
expect_has "time" "$said" "| 20k | city | 3 | far | none | 1.00000 | 1.30 |"
expect_has "default" "$said" \
  "| 20k | default | 3 | 2 | 1.00000 | 1.00060 | 2 | 1.00 | 1.30 |"
expect_has "pcg" "$said" \
  "| 20k | pcg | 3 | 2 | 1.00000 | 1.00090 | 2 | 1.00 | 2.00 |"
tables=$(cat "$WORK/out/tables.md")
expect_has "a run" "$tables" \
  "| far | none | default | 3 (1) | 30 (20) | 0.100 | 0.500 | 1000.6 | 1.00060 |"
expect_has "no run" "$tables" "| exact |  |  |  |  |  | Out of memory. |"
expect_equal "runs" "$(wc -l <"$WORK/out/preconditioners.jsonl")" 7
echo "tables and rules of runs by hand"
