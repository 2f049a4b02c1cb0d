#!/usr/bin/env bash
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# Checks that cuda_faults_test intercepts every function of CUDA's runtime that
# the library calls.
#
#   cuda_faults_calls_test.sh LIST OBJECT...
#
# OBJECT: archives and object files of the library. Functions that register
# kernels when a program starts, and functions that only translate an error, are
# left out. So are those that connect several devices (cuda_peer_sum.h), which
# cuda_faults_test does not have.
set -euo pipefail
list="$1"
shift
left_out='^(cudaGetErrorString|__cuda(GetKernel|PopCallConfiguration|PushCallConfiguration|Register.*|UnregisterFatBinary)'
left_out+='|cudaDevice(CanAccessPeer|EnablePeerAccess|GetByPCIBusId|GetPCIBusId)'
left_out+='|cudaIpc(CloseMemHandle|GetMemHandle|OpenMemHandle)'
left_out+='|cudaMallocFromPoolAsync|cudaMemPool(Create|Destroy|SetAccess))$'
called="$(nm -u "$@" | awk '$1 == "U" {print $2}' |
  grep -E '^(__)?cu(da|[A-Z])[A-Za-z0-9_]*$|^(nvml|cublas|cusolver|cusparse)' |
  grep -vE "$left_out" | sort -u)"
if [[ "$(wc -l <<<"$called")" -lt 20 ]]; then
  echo "FAILED: the objects call hardly any function of CUDA:" "$called"
  exit 1
fi
missing="$(comm -23 <(echo "$called") <(sort -u "$list"))"
if [[ -n "$missing" ]]; then
  echo "FAILED: the library calls, and $(basename "$list") lacks:" "$missing"
  exit 1
fi
echo "$(wc -l <<<"$called") functions of CUDA's runtime are called."
