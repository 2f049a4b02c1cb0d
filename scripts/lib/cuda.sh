# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
# shellcheck shell=bash
# The CUDA toolkit and GPUs of this machine.

# Seconds for nvidia-smi to answer; a driver in trouble lets it wait for ever.
NVIDIA_SMI_SECONDS=20

# query_gpus FIELD: one line per GPU. Fails if there is no nvidia-smi, if it
# fails, or if it does not answer in time; its output is then ignored.
query_gpus() {
  have nvidia-smi || return 1
  local status=0 answer
  answer=$(timeout --kill-after=1 "$NVIDIA_SMI_SECONDS" nvidia-smi \
    --query-gpu="$1" --format=csv,noheader 2>/dev/null </dev/null) || status=$?
  if ((status == 124 || status == 137)); then
    warn "nvidia-smi has not answered within $NVIDIA_SMI_SECONDS s"
  fi
  ((status == 0)) || return 1
  echo "$answer"
}

# gpu_architectures: those of the GPUs here for CMake, "80;90". Fails where they
# are not known.
gpu_architectures() {
  local capabilities
  capabilities=$(query_gpus compute_cap) || return 1
  if grep -qvxE '[0-9]+[.][0-9]' <<<"$capabilities"; then
    warn "expected compute capabilities of nvidia-smi, found" \
      "\"${capabilities//$'\n'/, }\""
    return 1
  fi
  tr -d . <<<"$capabilities" | sort -un | paste -sd';'
}

# find_cuda sets
#   NVCC                its path, empty for none
#   CUDA_VERSION        "13.0"
#   CUDA_ARCHITECTURES  for CMake: CERES_EXT_CUDA_ARCHITECTURES, or those of the
#                       GPUs here, or PTX for every GPU since Turing
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

  GPU_NAMES=$(query_gpus name) || GPU_NAMES=""
  CUDA_ARCHITECTURES="${CERES_EXT_CUDA_ARCHITECTURES:-}"
  if [[ -z "$CUDA_ARCHITECTURES" && -n "$GPU_NAMES" ]]; then
    CUDA_ARCHITECTURES=$(gpu_architectures) || CUDA_ARCHITECTURES=""
  fi
  CUDA_ARCHITECTURES="${CUDA_ARCHITECTURES:-75-virtual}"

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
    say "CUDA toolkit $CUDA_VERSION, no GPU: the host path is used; device code" \
      "is compiled for $CUDA_ARCHITECTURES (scripts/setup --help)"
  else
    say "CUDA toolkit $CUDA_VERSION, GPU: ${GPU_NAMES//$'\n'/, }"
  fi
}
