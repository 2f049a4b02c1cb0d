# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
# shellcheck shell=bash
# Configures and builds this project; the parts that setup and test share.

for part in common packages cuda ceres cudss glibc cuda12; do
  # shellcheck source=/dev/null
  source "$(dirname "${BASH_SOURCE[0]}")/$part.sh"
done

# With these, ccache finds the results of a clone in another folder.
export CCACHE_BASEDIR="$ROOT" CCACHE_NOHASHDIR=true

# The targets for a solve and "cmake --install"; scripts/test builds the rest.
# shellcheck disable=SC2034
INSTALLED=(ceres_ext bundle_adjuster bal_convert bal_filter bal_generate
  ceres_ext_machine colmap_adjuster)

# prepare [CERES_SOURCE]: packages, CUDA, the patched Ceres. Everything that a
# build in build/ needs; fast where it is all there.
prepare() {
  mkdir -p "$BUILD_ROOT/log"
  lock "$BUILD_ROOT/.lock"
  install_packages
  find_cuda
  say_cuda
  provide_ceres "${1:-}"
}

# main_preset: the preset of this machine and the chosen Ceres.
main_preset() {
  local preset=host-only
  [[ -z "$NVCC" ]] || preset=release
  ! is_next || preset+=-next
  echo "$preset"
}

# build_preset PRESET [TARGET...]: configures, then builds the targets, or all
# of them. CERES_EXT_WERROR, CERES_EXT_STUDIES, CERES_EXT_GPU_TESTS: as the options
# of CMake; the default of the first is OFF, of the second what it was, and of the
# third ON if there is a GPU.
build_preset() {
  local preset="$1" targets=()
  local arguments=("-DCERES_EXT_WERROR=${CERES_EXT_WERROR:-OFF}")
  [[ -z "${CERES_EXT_STUDIES:-}" ]] ||
    arguments+=("-DCERES_EXT_STUDIES=$CERES_EXT_STUDIES")
  local gpu_tests="${CERES_EXT_GPU_TESTS:-}"
  if [[ -z "$gpu_tests" ]]; then
    gpu_tests=$([[ -n "$GPU_NAMES" ]] && echo ON || echo OFF)
  fi
  arguments+=("-DCERES_EXT_GPU_TESTS=$gpu_tests")
  shift
  (($# == 0)) || targets=(--target "$@")
  if [[ "$preset" == release* || "$preset" == debug ]] && [[ -n "$NVCC" ]]; then
    arguments+=("-DCMAKE_CUDA_COMPILER=$NVCC"
      "-DCMAKE_CUDA_ARCHITECTURES=$CUDA_ARCHITECTURES")
    [[ ! -d "$BUILD_ROOT/cudss" ]] ||
      arguments+=("-DCUDSS_ROOT=$BUILD_ROOT/cudss")
  fi
  run_logged "$BUILD_ROOT/log/$preset-configure.log" "configuring $preset" \
    env -C "$ROOT" cmake --preset "$preset" "${arguments[@]}"
  say "building $preset (log: build/log/$preset-build.log)"
  run_logged "$BUILD_ROOT/log/$preset-build.log" "building $preset" \
    env -C "$ROOT" cmake --build --preset "$preset" -j "$(num_jobs)" \
    "${targets[@]}"
}
