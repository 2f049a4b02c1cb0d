# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
# shellcheck shell=bash disable=SC2034
# Sourced by the scripts: where things are, how they speak, run and lock.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BUILD_ROOT="$ROOT/build"

say() { printf '==> %s\n' "$*"; }
warn() { printf 'warning: %s\n' "$*" >&2; }
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

# num_jobs: one per processor, but at most one per 1.5 GiB of memory, which is
# what the largest translation units of Ceres and of this project take.
num_jobs() {
  local processors memory
  processors=$(nproc)
  memory=$(awk '/^MemAvailable:/ { n = int($2 / 1572864) }
                END { print n < 1 ? 1 : n }' /proc/meminfo)
  echo $((processors < memory ? processors : memory))
}

# die_with_log LOG WHAT: shows the end of the log and says where the rest is.
die_with_log() {
  tail -n 40 "$1" >&2
  die "$2 failed; the end of its log is above, all of it in $1"
}

# run_logged LOG WHAT COMMAND...: quiet while it works.
run_logged() {
  local log="$1" what="$2" begin=$SECONDS
  shift 2
  mkdir -p "$(dirname "$log")"
  "$@" >"$log" 2>&1 </dev/null || die_with_log "$log" "$what"
  if ((SECONDS - begin >= 5)); then
    say "$what took $((SECONDS - begin)) s"
  fi
}

# lock FILE: holds FILE until this shell ends; waits for another holder.
lock() {
  local file="$1" fd
  mkdir -p "$(dirname "$file")"
  exec {fd}>"$file"
  if ! flock -n "$fd"; then
    say "waiting for another run that holds $file"
    flock "$fd"
  fi
}

# built_program FOLDER NAME: where it is below the folder, or nothing.
built_program() {
  find "$1" -type f -perm -u+x -name "$2" | head -n 1
}
