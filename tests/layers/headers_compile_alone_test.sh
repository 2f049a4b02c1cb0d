#!/usr/bin/env bash
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# headers_compile_alone_test.sh COMPILER CERES COMMANDS
#
# Each header compiles with nothing before it, .h without CUDA's headers. CERES:
# folder of the patched Ceres; COMMANDS: compile_commands.json of the build.
#
# A source that the build compiles with a host compiler shows it of the header
# that it includes before any code, and that header of the one that it includes
# first. All others are compiled here: .h by the host's compiler, .cuh by the same
# with the device emulated (tests/kernels/emulation).
set -euo pipefail
compiler=$1
ceres=$2
commands=$3
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export compiler ceres
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# first_includes: reads names of files, one a line; prints each that includes a
# header of this project before any code, and the header. Ahead of it there may be
# comments, white space and a header's guard.
first_includes() {
  # shellcheck disable=SC2016
  tr '\n' '\0' | xargs -0 -r awk '
    FNR == 1 { looking = 1 }
    !looking || /^[[:space:]]*(\/\/.*)?$/ { next }
    /^#(ifndef|define) [A-Z0-9_]+_(H|CUH)_$/ { next }
    { looking = 0 }
    /^#include "/ { split($0, part, "\""); print FILENAME "\t" part[2] }'
}

# shown_by SOURCES HEADERS: the headers, one a line, that the sources show.
shown_by() {
  { first_includes <"$1" | cut -f 2 | sed 's/^/\t/'; first_includes <"$2"; } |
    awk -F '\t' '
      $1 == "" { next_shown[$2] = 1; next }
      { first[$1] = $2 }
      END {
        for (header in next_shown)
          for (; header != "" && !(header in shown); header = first[header]) {
            shown[header] = 1
            print header
          }
      }' | LC_ALL=C sort -u
}

# alone HEADER
alone() {
  local flags=(-std=c++17 -fsyntax-only -x c++ -I. -I/usr/include/eigen3
    -isystem "$ceres/include" -isystem "$ceres/include/ceres_plugin"
    -Wno-unknown-pragmas)
  [[ "$1" != *.cuh ]] || flags+=(-Itests/kernels/emulation)
  if [[ "$1" == */mpi_communicator.h ]]; then
    local mpi
    if ! mpi=$(mpicxx --showme:compile 2>/dev/null); then
      echo "$1: skipped, since there is no OpenMPI"
      return 0
    fi
    read -ra mpi <<<"$mpi"
    flags+=("${mpi[@]}")
  fi
  printf '#include "%s"\n' "$1" | "$compiler" "${flags[@]}" - ||
    { echo "$1 does not compile alone" >&2; return 1; }
}
export -f alone

# A test of the test: what is shown, and what is not.
mkdir "$work/try"
(
  cd "$work/try"
  printf '// A comment.\n\n#include "a.h"\n#include "b.h"\n' >a.cc
  printf '#define CODE\n#include "b.h"\n' >b.cc
  printf '#ifndef A_H_\n#define A_H_\n\n#include "c.h"\n#endif\n' >a.h
  printf '#ifndef C_H_\n#define C_H_\n#include <vector>\n#include "b.h"\n' >c.h
  printf '#include "d.h"\n' >b.h
  printf '%s\n' a.cc b.cc >sources
  printf '%s\n' a.h b.h c.h >headers
  found=$(shown_by sources headers | tr '\n' ' ')
  [[ "$found" == "a.h c.h " ]] || { echo "found $found" >&2; exit 1; }
)
if alone nothing/there.h 2>/dev/null; then
  echo "the compiler takes anything" >&2
  exit 1
fi

if grep -rnE '^#include [<"](cu[a-z_0-9]*\.h|cuda/|cub/|thrust/|nv)' \
  --include='*.h' cuda_kernels ceres_ext problem_io examples benchmarks studies; then
  echo "a .h includes a header of CUDA" >&2
  exit 1
fi

# The headers that the host's compiler compiles: no "-x cu" in its command.
awk -F '"' '/^ *"command": / { is_host = !/ -x cu / }
  /^ *"file": / && is_host { print $4 }' "$commands" >"$work/sources"
(($(wc -l <"$work/sources") > 100)) ||
  { echo "$commands has hardly any source" >&2; exit 1; }
find cuda_kernels ceres_ext problem_io examples benchmarks studies \
  \( -name '*.h' -o -name '*.cuh' \) | LC_ALL=C sort >"$work/headers"
shown_by "$work/sources" "$work/headers" >"$work/shown"
LC_ALL=C comm -23 "$work/headers" "$work/shown" >"$work/others"
echo "$(wc -l <"$work/headers") headers, of which $(wc -l <"$work/others") are" \
  "compiled here"
# shellcheck disable=SC2016
tr '\n' '\0' <"$work/others" |
  xargs -0 -P "$(nproc)" -I{} bash -c 'alone "$1"' _ {}
