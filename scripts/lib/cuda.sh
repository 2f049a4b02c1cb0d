# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
# shellcheck shell=bash
# What CUDA this machine has.

# find_cuda sets
#   NVCC                its path, empty for none
#   CUDA_VERSION        "13.0"
#   CUDA_ARCHITECTURES  for CMake: CERES_EXT_CUDA_ARCHITECTURES, or those of the
#                       GPUs here, or PTX for every GPU since Turing and Hopper
#                       code
#   GPU_NAMES           one line per GPU, empty for none
#   CERES_CUDA          ON where the toolkit also has the libraries Ceres needs
# and exports them.
find_cuda() {
  export NVCC="" CUDA_VERSION="" CUDA_ARCHITECTURES="" GPU_NAMES="" CERES_CUDA=OFF
  local candidate
  for candidate in "${CUDACXX:-}" "$(command -v nvcc || true)" \
    "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" /usr/local/cuda/bin/nvcc; do
    if [[ -n "$candidate" && -x "$candidate" ]]; then
      NVCC="$candidate"
      break
    fi
  done
  [[ -n "$NVCC" ]] || return 0
  CUDA_VERSION=$("$NVCC" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')

  local capabilities=""
  if have nvidia-smi; then
    GPU_NAMES=$(nvidia-smi --query-gpu=name --format=csv,noheader \
      2>/dev/null || true)
    capabilities=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader \
      2>/dev/null | tr -d . | sort -un | paste -sd';' || true)
  fi
  CUDA_ARCHITECTURES="${CERES_EXT_CUDA_ARCHITECTURES:-${capabilities:-75-virtual;90-real}}"

  local toolkit
  toolkit=$(cd "$(dirname "$(readlink -f "$NVCC")")/.." && pwd)
  local name
  CERES_CUDA=ON
  for name in cublas cusolver cusparse; do
    compgen -G "$toolkit/lib64/lib$name.so" >/dev/null ||
      compgen -G "$toolkit/targets/*/lib/lib$name.so" >/dev/null ||
      compgen -G "/usr/lib/*-linux-gnu/lib$name.so" >/dev/null || CERES_CUDA=OFF
  done
}

say_cuda() {
  if [[ -z "$NVCC" ]]; then
    say "host-only build: no CUDA toolkit"
  elif [[ -z "$GPU_NAMES" ]]; then
    say "CUDA toolkit $CUDA_VERSION, no GPU: the host path is used"
  else
    say "CUDA toolkit $CUDA_VERSION, GPU: ${GPU_NAMES//$'\n'/, }"
  fi
}
