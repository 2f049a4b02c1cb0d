#!/usr/bin/env bash
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# The behaviour of install_packages while another process holds apt's locks.
# Messages and statuses of apt-get are those of apt 2.6.
set -euo pipefail
# shellcheck source=testing.sh
source "$(dirname "${BASH_SOURCE[0]}")/testing.sh"
# shellcheck source=../../scripts/lib/common.sh
source "$CHECKOUT/scripts/lib/common.sh"
# shellcheck source=../../scripts/lib/packages.sh
source "$CHECKOUT/scripts/lib/packages.sh"

# Everything is there but the package "missing".
fake dpkg-query <<'SH'
for argument; do
  [[ "$argument" == missing ]] || echo "installed $argument"
done
SH
fake sudo <<'SH'
[[ "$1" != -n ]] || shift
exec "$@"
SH
for entry in "${TOOL_PACKAGES[@]}"; do
  have "${entry%%:*}" || fake "${entry%%:*}" <<<''
done
# The lists' lock is free at the third call, dpkg's at the fifth.
fake apt-get <<SH
echo "\$*" >>"$WORK/calls"
n=\$(wc -l <"$WORK/calls")
[[ "\$LC_ALL" == C ]] || exit 1
case "\$*" in
  *update*) lock=/var/lib/apt/lists/lock free=3 ;;
  *install*) lock=/var/lib/dpkg/lock-frontend free=5 ;;
esac
if ((n < free + \${HOLD_ON:-0})); then
  echo "E: Could not get lock \$lock. It is held by process 12 (apt-get)" >&2
  exit 100
fi
if [[ -n "\${BREAK:-}" ]]; then
  echo "E: Unable to fetch some archives" >&2
  exit 100
fi
SH

said=$(install_packages missing 2>&1) || fail "locks for a while: $said"
expect_equal "calls" "$(wc -l <"$WORK/calls")" 5
expect_has "what is said" "$said" "waiting, at most 600 s, for another process"
expect_has "what is said" "$said" "/var/lib/apt/lists/lock. It is held by"
expect_has "what is said" "$said" "/var/lib/dpkg/lock-frontend. It is held by"
expect_equal "times that it is said" "$(grep -c waiting <<<"$said")" 2
expect_lacks "what is said" "$said" "warning"

rm "$WORK/calls"
APT_LOCK_SECONDS=1
begin=$SECONDS
said=$(HOLD_ON=1000 install_packages missing 2>&1) && fail "a lock for good"
((SECONDS - begin < 20)) || fail "it waited for a lock without a bound"
expect_has "what is said" "$said" \
  "another process still holds apt's lock after 1 s"
expect_has "what is said" "$said" "error: apt-get install failed"

# It does not wait for errors other than locks.
said=$(BREAK=1 HOLD_ON=-1000 install_packages missing 2>&1) &&
  fail "an archive that is not there"
expect_lacks "what is said" "$said" "waiting"
expect_has "what is said" "$said" "error: apt-get install failed"
