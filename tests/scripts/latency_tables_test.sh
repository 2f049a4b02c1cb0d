#!/usr/bin/env bash
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# scripts/latency_tables.py on a record of scripts/measure latency --machine=host,
# and on records by hand whose tables are known; arguments of measure.
set -euo pipefail
# shellcheck source=testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/testing.sh"
command -v python3 >/dev/null || exit 77
scripts="$SOURCE_ROOT/scripts"

# The record: Table 3 against the same numbers by awk.
record="$SOURCE_ROOT/tests/scripts/latency"
said=$("$scripts/latency_tables.py" "$record")
expect_has "the machine" "$said" "Machine: host, 2 threads."
# rate COUNT: windows per second with so many in parallel.
rate() {
  sed -n "s/.*\"count\": $1, \"windows_per_second\": \([0-9.]*\).*/\1/p" \
    "$record/parallel.jsonl"
}
for count in 1 2 4 8; do
  ratio=$(awk -v a="$(rate "$count")" -v b="$(rate 1)" \
    'BEGIN { printf "(%.1f x)", a / b }')
  expect_has "Table 3" "$(grep "^| $count | [0-9.]* ([0-9.]* x) |" \
    <<<"$said")" "$ratio"
done
expect_has "Table 2" "$said" \
  "| ordinary path, ceres_ext::Solve, cuda_graph=auto, 5 cameras constant |"
expect_has "Figure 8" "$said" "W10, poisson arrivals:"
# Only the GPU's resources are missing.
expect_equal "tables that were not measured" \
  "$(grep -c '^Not measured.$' <<<"$said")" 1

# By hand. A submission of one keeps up with 80 windows a second and not with
# 150, which a submission of four does.
hand="$WORK/by hand"
mkdir -p "$hand"
stream() {
  echo '{"mode": "stream", "window": "W10", "machine": "cuda",' \
    "\"arrivals\": \"poisson\", \"batch\": $1, \"offered_per_second\": $2," \
    "\"arrived_per_second\": $2, \"windows_per_second\": $3," \
    "\"latency_ms_p50\": $4, \"latency_ms_p99\": $5, \"windows\": 9}"
}
{
  for size in "1 100" "4 200"; do
    echo "{\"mode\": \"rates\", \"window\": \"W10\", \"batch\": ${size% *}," \
      "\"windows_per_second\": ${size#* }}"
  done
  for choice in "80 1" "150 4"; do
    echo "{\"mode\": \"choice\", \"window\": \"W10\"," \
      "\"offered_per_second\": ${choice% *}, \"batch\": ${choice#* }}"
  done
  stream 1 80 80 10 20
  stream 1 150 100 400 900
  stream 4 80 80 60 90
  stream 4 150 149 30 50
} >"$hand/streams.jsonl"
# 200 us, of which packing takes 20 and the kernel 110; copies take 40.
cat >"$hand/single.jsonl" <<'EOF'
{"mode": "submissions", "window": "W10", "iterations": 0, "submit_ms_p50": 0.05, "wait_ms_p50": 0.15, "latency_ms_p50": 0.2, "latency_ms_p99": 0.3, "latency_ms_max": 0.4, "device": "a GPU"}
{"mode": "batch", "window": "W10", "iterations": 0, "single_pack_ms_p50": 0.02}
EOF
cat >"$hand/timeline_W10.csv" <<'EOF'
kind,name,bytes,start_ns,end_ns,stream
copy_to_device,,100,0,10000,7
kernel,"void a::SolveWindowsKernel<3, (int)9>(a::Windows)",0,10000,120000,7
copy_to_host,,100,120000,150000,7
kernel,"OtherKernel()",0,150000,950000,7
copy_to_device,,100,1000000,1010000,7
kernel,"void a::SolveWindowsKernel<3, (int)9>(a::Windows)",0,1010000,1120000,7
copy_to_host,,100,1120000,1150000,7
EOF
# A fusion that pays, and one that is slower than A and then B, which the rule
# does not see.
cat >"$hand/operations.csv" <<'EOF'
operation,"sequence, ms","city, ms"
double stored J x,1,2
double stored J'y,1,1
double stored (J'J + D^2) p,1.9,3.5
double recomputed J x,1,1
double recomputed J'y,1,1
double recomputed (J'J + D^2) p,2.1,1
EOF
said=$("$scripts/latency_tables.py" "$hand" \
  "--operations=$hand/operations.csv")
expect_has "a name" "$(python3 "$scripts/timeline_table.py" \
  "$hand/timeline_W10.csv")" "SolveWindowsKernel<3, 9> "
for line in "| 80.0 | 10.0 / 20.0 | 60.0 / 90.0 |" \
  "| 150 | 100 per second at most | 30.0 / 50.0 |" \
  "| 1 | 100 | 80.0 | 10.0 |" \
  "| 4 | 149 | 149 | 30.0 |" \
  "| 80.0 | 1 | 100 | 20.0 | 1 | 20.0 |" \
  "| 150 | 4 | 200 | 50.0 | 4 | 50.0 |" \
  "| W10 | 0 | 0.05 | 0.15 | 0.20 | 0.30 | 0.40 | 1.50 |" \
  "| W10 | 200 | 20.0 | 110 | 40.0 | 70.0 |" \
  "sequence | 1.000 | 1.000 | 0.100 | 1.900 | 2.000 | fuse | holds |" \
  "city | 2.000 | 1.000 | -0.500 | 3.500 | 4.000 | fuse | does not hold |" \
  "sequence | 1.000 | 1.000 | -0.100 | 2.100 | 2.000 | apart | holds |"; do
  expect_has "by hand" "$said" "$line"
done

mkdir "$WORK/empty"
said=$("$scripts/latency_tables.py" "$WORK/empty")
expect_equal "tables of an empty folder" \
  "$(grep -c '^Not measured.$' <<<"$said")" 5
expect_has "the machine of an empty folder" "$said" "Machine: not recorded."
status=0
"$scripts/latency_tables.py" "$WORK/missing" 2>/dev/null || status=$?
expect_equal "status without a folder" "$status" 2

# measure with a program that prints its arguments.
mkdir "$WORK/binaries"
cat >"$WORK/binaries/batch_benchmark" <<'EOF'
#!/usr/bin/env bash
echo "{\"mode\": \"none\", \"window\": \"W10\", \"arguments\": \"$*\"}"
EOF
chmod +x "$WORK/binaries/batch_benchmark"
"$scripts/measure" latency --machine=host "$WORK/binaries" "$WORK/out" \
  streams >/dev/null
expect_has "arguments" "$(cat "$WORK/out/streams.jsonl")" \
  "--threads=2 --window=W10 --machine=host --stream_loads="
expect_has "its tables" "$(cat "$WORK/out/tables.md")" "Not measured."
# refused STATUS PART ARGUMENT...
refused() {
  local expected="$1" part="$2" said status=0
  shift 2
  said=$("$scripts/measure" latency "$@" 2>&1) || status=$?
  expect_equal "status of measure latency $*" "$status" "$expected"
  expect_has "measure latency $*" "$said" "$part"
}
refused 2 "invalid choice: 'tpu'" --machine=tpu "$WORK/binaries"
refused 1 "expected batch_benchmark in" "$WORK/empty" "$WORK/out"
refused 2 "unknown step streets" "$WORK/binaries" "$WORK/out" streets
echo "tables of the record, by hand and of nothing"
