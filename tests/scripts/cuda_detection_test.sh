#!/usr/bin/env bash
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# Which architectures scripts/setup builds for and which GPU scripts/gpu_check
# records, by what nvidia-smi answers.
set -euo pipefail
# shellcheck source=testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/testing.sh"
# shellcheck source=../../scripts/lib/common.sh
source "$CHECKOUT/scripts/lib/common.sh"
# shellcheck source=../../scripts/lib/cuda.sh
source "$CHECKOUT/scripts/lib/cuda.sh"

fake nvcc <<<'echo "Cuda compilation tools, release 13.0, V13.0.48"'
export CUDACXX="$FAKE/nvcc"
defaults="75-virtual"

# detect: find_cuda with the nvidia-smi there is; what it says is in $said.
detect() {
  find_cuda >"$WORK/said" 2>&1
  said=$(<"$WORK/said")
}

fake nvidia-smi <<'SH'
case "$*" in
  *compute_cap*) printf '9.0\n8.0\n9.0\n' ;;
  *) printf 'GPU A\nGPU B\nGPU C\n' ;;
esac
SH
detect
expect_equal "two kinds of GPU" "$CUDA_ARCHITECTURES" "80;90"
expect_equal "their names" "$GPU_NAMES" $'GPU A\nGPU B\nGPU C'
expect_equal "what is said" "$said" ""

CERES_EXT_CUDA_ARCHITECTURES="75;86" detect
expect_equal "architectures given" "$CUDA_ARCHITECTURES" "75;86"

fake nvidia-smi <<'SH'
echo "NVIDIA-SMI has failed because it couldn't communicate with the driver."
exit 9
SH
detect
expect_equal "a driver that fails" "$CUDA_ARCHITECTURES" "$defaults"
expect_equal "GPUs of a driver that fails" "$GPU_NAMES" ""

mkdir -p "$WORK/programs" "$CHECKOUT"/{cuda_kernels,benchmarks} \
  "$CHECKOUT"/{ceres_ext/solver,tests/{kernels,front,solver,study}}
printf '#!/bin/sh\n' >"$WORK/programs/operations_benchmark"
chmod +x "$WORK/programs/operations_benchmark"
"$CHECKOUT/scripts/gpu_check" "$WORK/programs" "$WORK/checked" benchmark \
  >"$WORK/said" || fail "gpu_check: $(<"$WORK/said")"
record=$(<"$WORK/checked/record.json")
for field in '"gpu": "none"' '"driver": "none"' '"result": "skipped"'; do
  expect_has "the record without a GPU" "$record" "$field"
done

fake nvidia-smi <<<'echo "8.0"; exit 6'
detect
expect_equal "an answer with a failure" "$CUDA_ARCHITECTURES" "$defaults"
expect_equal "GPUs of an answer with a failure" "$GPU_NAMES" ""

# A driver from before the field was there.
fake nvidia-smi <<'SH'
case "$*" in
  *compute_cap*)
    echo 'Field "compute_cap" is not a valid field to query.'
    exit 2
    ;;
  *) echo 'GPU A' ;;
esac
SH
detect
expect_equal "an old driver" "$CUDA_ARCHITECTURES" "$defaults"
expect_equal "the GPU of an old driver" "$GPU_NAMES" "GPU A"

for answer in '[N/A]' $'9.0\n[N/A]' '9' '' 'GPU is lost' '9.0 '; do
  printf '%s\n' "$answer" >"$WORK/answer"
  fake nvidia-smi <<SH
case "\$*" in
  *compute_cap*) cat "$WORK/answer" ;;
  *) echo 'GPU A' ;;
esac
SH
  detect
  expect_equal "the answer \"$answer\"" "$CUDA_ARCHITECTURES" "$defaults"
  expect_has "what is said of \"$answer\"" "$said" \
    "expected compute capabilities of nvidia-smi"
done

fake nvidia-smi <<<'sleep 60'
NVIDIA_SMI_SECONDS=1
begin=$SECONDS
detect
((SECONDS - begin < 20)) || fail "it waited for an nvidia-smi that hangs"
expect_equal "a driver that hangs" "$CUDA_ARCHITECTURES" "$defaults"
expect_equal "GPUs of a driver that hangs" "$GPU_NAMES" ""
expect_has "what is said of a driver that hangs" "$said" \
  "nvidia-smi has not answered within 1 s"
