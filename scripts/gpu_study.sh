#!/usr/bin/env bash
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# scripts/gpu_study.sh RESULTS [BAL_STUDY [FLAG...]]
#
# The study of docs/measurements/study.md on a machine with a GPU. Builds
# nothing: BAL_STUDY is the program, build/release/benchmarks/study/bal_study
# where it is empty or left out; FLAGs go to it. Writes into the folder RESULTS:
#   study.json   the record
#   study.txt    what the program printed
#   ncu.csv      the profiler's metrics (Table 5) and the size that it looked
#                at, where ncu is installed
# CERES_EXT_STUDY_PROFILE  size to profile (default venice-744), "none" for none
# CERES_EXT_STUDY_MEASURE  "none" leaves the measurements out, to profile only
set -euo pipefail

if (($# < 1)); then
  sed -n '4,15s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 1
fi
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
results=$1
program=${2:-}
program=${program:-$root/build/release/benchmarks/study/bal_study}
shift $(($# < 2 ? $# : 2))
mkdir -p "$results"
[[ -x "$program" ]] || {
  echo "gpu_study: $program is not there; build the target bal_study" >&2
  exit 1
}

# cuSPARSE is not always where the loader looks.
for folder in "${CUDA_HOME:-/usr/local/cuda}/lib64" /usr/local/cuda/lib64; do
  if [[ -e "$folder/libcusparse.so.12" ]]; then
    export LD_LIBRARY_PATH="$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    break
  fi
done

status=0
if [[ "${CERES_EXT_STUDY_MEASURE:-all}" != none ]]; then
  "$program" --output="$results/study.json" "$@" 2>&1 |
    tee "$results/study.txt" || status=$?
fi

profile=${CERES_EXT_STUDY_PROFILE:-venice-744}
ncu=$(command -v ncu || true)
[[ -n "$ncu" || ! -x /opt/nvidia/nsight-compute/ncu ]] ||
  ncu=/opt/nvidia/nsight-compute/ncu
if [[ "$profile" == none ]]; then
  exit "$status"
fi
if [[ -z "$ncu" ]]; then
  echo "gpu_study: no ncu on this machine, Table 5 is left out" >&2
  exit "$status"
fi
metrics=gpu__time_duration.sum
metrics+=,dram__bytes_read.sum,dram__bytes_write.sum
for op in ld st; do
  metrics+=,l1tex__t_requests_pipe_lsu_mem_global_op_$op.sum
  metrics+=,l1tex__t_sectors_pipe_lsu_mem_global_op_$op.sum
  metrics+=,l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_$op.ratio
  metrics+=,smsp__sass_average_data_bytes_per_sector_mem_global_op_$op.pct
done
# Atomics of the naive variant are reductions at L2.
metrics+=,l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum
# The naive variant's kernels and ours, both in both layouts.
kernels='Naive(Jacobian|NormalBlocks|NormalProduct|Coupling|ToPoints|ToCameras)'
kernels+='|(EvaluateJacobian|PointBlocks|Coupling|CameraChunk|StoredTile)Kernel'
"$ncu" --clock-control none --profile-from-start off --target-processes all \
  --kernel-name-base demangled \
  --kernel-name "regex:$kernels" \
  --metrics "$metrics" --csv --page raw --print-units base --log-file "$results/ncu.csv" \
  "$program" --profile --sizes="$profile" || status=$?
# plot_study.py puts it in the heading of Table 5.
[[ ! -e "$results/ncu.csv" ]] || echo "# size $profile" >>"$results/ncu.csv"
exit "$status"
