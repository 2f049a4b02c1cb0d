#!/usr/bin/env bash
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# scripts/gpu_study.sh RESULTS [BINARIES] [--parts=PART,...] [--seconds=N] [FLAG...]
#
# The study of docs/measurements/study.md on a machine with a GPU. Builds
# nothing: BINARIES is the folder of bal_study, bal_study_v3 and bal_study_v4,
# build/release/studies where it is left out; FLAGs go to all of them.
# Nothing is begun after --seconds (540). Parts, in this order:
#   iterations, kernels, reference, runs, float_runs   bal_study on the GPU
#   profile               ncu's metrics for Tables 3 and 5, where it is installed
#   host_1x1, host_runs   the host alone, by the program for the highest level of
#                         x86-64 that its processor has
# Without --parts: all but the profile. Writes into the folder RESULTS:
#   study.json, study.txt   the record of the GPU, and what the program printed
#   host.json, host.txt     those of the host
#   ncu_SIZE.csv            the profiler's metrics
# CERES_EXT_STUDY_PROFILE  sizes to profile: all kernels at the first, Jacobians
#                          at the others (dubrovnik-182,venice-951,final-13682)
set -euo pipefail

if (($# < 1)) || [[ "$1" == -* ]]; then
  sed -n '4,22s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 1
fi
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
results=$1
shift
binaries=$root/build/release/studies
if (($# > 0)) && [[ "$1" != -* ]]; then
  binaries=$1
  shift
fi
parts=iterations,kernels,reference,runs,float_runs,host_1x1,host_runs
seconds=540
flags=()
for argument in "$@"; do
  case "$argument" in
    --parts=*) parts=${argument#*=} ;;
    --seconds=*) seconds=${argument#*=} ;;
    *) flags+=("$argument") ;;
  esac
done
for part in ${parts//,/ }; do
  case "$part" in
    iterations | kernels | reference | runs | float_runs) ;;
    host_1x1 | host_runs | profile) ;;
    *)
      echo "gpu_study: --parts: there is no part '$part'" >&2
      exit 1
      ;;
  esac
done
# choose PART...: those of them that are asked for, with commas.
choose() {
  local part chosen=()
  for part in "$@"; do
    [[ ",$parts," != *",$part,"* ]] || chosen+=("$part")
  done
  (
    IFS=,
    echo "${chosen[*]-}"
  )
}
left() { echo $((seconds > SECONDS ? seconds - SECONDS : 0)); }

program=$binaries/bal_study
[[ -x "$program" ]] || {
  echo "gpu_study: $program is missing; build the target bal_study" >&2
  exit 1
}
mkdir -p "$results"
# Final projections of the device, for the host's to be compared with.
residuals=$(mktemp -d)
trap 'rm -rf "$residuals"' EXIT

# cuSPARSE is not always where the loader looks.
for folder in "${CUDA_HOME:-/usr/local/cuda}/lib64" /usr/local/cuda/lib64; do
  if [[ -e "$folder/libcusparse.so.12" ]]; then
    export LD_LIBRARY_PATH="$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    break
  fi
done

# run RECORD PROGRAM FLAG...: what it prints goes to the screen and beside the
# record.
status=0
run() {
  local record=$1
  shift
  echo "gpu_study: $* ($SECONDS s)"
  "$@" --output="$results/$record.json" --residuals="$residuals" \
    "${flags[@]}" 2>&1 | tee "$results/$record.txt" || status=$?
}

device_parts=$(choose iterations kernels reference runs float_runs)
if [[ -n "$device_parts" ]]; then
  run study "$program" --nohost --parts="$device_parts" --seconds="$(left)"
fi

ncu=$(command -v ncu || true)
[[ -n "$ncu" || ! -x /opt/nvidia/nsight-compute/ncu ]] ||
  ncu=/opt/nvidia/nsight-compute/ncu
sizes=${CERES_EXT_STUDY_PROFILE:-dubrovnik-182,venice-951,final-13682}
if [[ -z "$(choose profile)" ]]; then
  sizes=
elif [[ -z "$ncu" ]]; then
  echo "gpu_study: there is no ncu, and no profile" >&2
  sizes=
  status=1
fi
memory=gpu__time_duration.sum
memory+=,dram__bytes_read.sum,dram__bytes_write.sum
for op in ld st; do
  memory+=,l1tex__t_requests_pipe_lsu_mem_global_op_$op.sum
  memory+=,l1tex__t_sectors_pipe_lsu_mem_global_op_$op.sum
  memory+=,l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_$op.ratio
  memory+=,smsp__sass_average_data_bytes_per_sector_mem_global_op_$op.pct
done
# Instructions of threads, for Table 3. Atomics of the naive form are reductions
# at L2.
operations=,l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum
for op in fadd fmul ffma dadd dmul dfma; do
  operations+=,smsp__sass_thread_inst_executed_op_${op}_pred_on.sum
done
what=all
for size in ${sizes//,/ }; do
  if (($(left) == 0)); then
    echo "gpu_study: no time for the profile of $size" >&2
    break
  fi
  kernels='(Naive(NormalBlocks|Coupling)|Paper(Jacobian|FormCoupling|Point(Blocks|Coupling)|Camera(Blocks|Coupling))'
  kernels+='|EvaluateJacobian|PointBlocks|Coupling|CameraChunk|StoredTile)Kernel'
  metrics=$memory$operations
  if [[ "$what" == jacobians ]]; then
    kernels='(Paper|Evaluate)JacobianKernel'
    metrics=$memory
  fi
  echo "gpu_study: profile of $size, $what ($SECONDS s)"
  timeout "$(left)" "$ncu" --clock-control none --profile-from-start off \
    --target-processes all --kernel-name-base demangled \
    --kernel-name "regex:$kernels" --metrics "$metrics" --csv --page raw \
    --print-units base --log-file "$results/ncu_$size.csv" \
    "$program" --profile="$what" --sizes="$size" || status=$?
  # plot_study.py puts it in the heading of Table 5.
  [[ ! -e "$results/ncu_$size.csv" ]] ||
    echo "# size $size" >>"$results/ncu_$size.csv"
  what=jacobians
done

# The highest level whose program is there, and all its instructions, as Linux
# lists them.
level() {
  local known needed flag name
  known=" $(sed -n '/^flags/{s/.*: //p;q}' /proc/cpuinfo) "
  for name in v4 v3; do
    needed='avx avx2 bmi1 bmi2 f16c fma abm movbe'
    [[ "$name" == v3 ]] || needed+=' avx512f avx512bw avx512cd avx512dq avx512vl'
    [[ -x "${program}_$name" ]] || continue
    for flag in $needed; do
      [[ "$known" == *" $flag "* ]] || continue 2
    done
    echo "_$name"
    return
  done
}
host_parts=$(choose host_1x1 host_runs)
if [[ -n "$host_parts" ]]; then
  host=$program$(level)
  echo "gpu_study: the host is measured by $host"
  if [[ "$host_parts" == *host_runs* && ",$device_parts," != *,reference,* ]]; then
    # The reference of its projections; takes a few seconds.
    run reference "$program" --nohost --parts=reference --seconds="$(left)" \
      --sizes=trafalgar-21,dubrovnik-88,dubrovnik-182,venice-245
  fi
  run host "$host" --nogpu --parts="$host_parts" --seconds="$(left)"
fi
exit "$status"
