#!/usr/bin/env bash
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# killed_rank_test.sh MPIEXEC PROGRAM [TIMES]
#
# Kills a rank of PROGRAM (ranks_mpi_test) under mpirun at random moments. All
# processes must end within 60 s, and the exit status must not be 0.
set -euo pipefail
mpiexec="$1"
program="$2"
times="${3:-3}"

for ((run = 1; run <= times; ++run)); do
  log=$(mktemp)
  "$mpiexec" -n 3 "$program" --gtest_filter=*SolveAsOneDoes \
    --gtest_repeat=100 >"$log" 2>&1 &
  leader=$!
  ranks=()
  for ((i = 0; i < 300 && ${#ranks[@]} < 3; ++i)); do
    sleep 0.1
    mapfile -t ranks < <(pgrep -P "$leader" || true)
  done
  if ((${#ranks[@]} != 3)); then
    echo "run $run: expected three ranks, found ${#ranks[@]}" >&2
    tail -n 20 "$log" >&2
    exit 1
  fi
  sleep "$((RANDOM % 3)).$((RANDOM % 10))"
  kill -9 "${ranks[RANDOM % 3]}"
  for ((i = 0; i < 600; ++i)); do
    kill -0 "$leader" 2>/dev/null || break
    sleep 0.1
  done
  if kill -0 "$leader" 2>/dev/null; then
    echo "run $run: mpirun goes on a minute after a rank was killed" >&2
    kill -9 "$leader" "${ranks[@]}" || true
    exit 1
  fi
  status=0
  wait "$leader" || status=$?
  if ((status == 0)); then
    echo "run $run: mpirun ended with 0 although a rank was killed" >&2
    exit 1
  fi
  # A zombie, whose parent has ended, has ended too.
  for rank in "${ranks[@]}"; do
    for ((i = 0; i < 100; ++i)); do
      [[ "$(ps -o stat= -p "$rank" || true)" =~ ^[^Z] ]] || break
      sleep 0.1
    done
    if ((i == 100)); then
      echo "run $run: a rank goes on after mpirun has ended" >&2
      exit 1
    fi
  done
  rm -f "$log"
done
echo "$times ranks killed, all others ended"
