#!/usr/bin/env bash
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# docs/use.md shows the difference between the two programs of
# examples/custom_functor, except for their first comments.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

shown=$(sed -n "/^\`\`\`diff\$/,/^\`\`\`\$/p" docs/use.md | grep -v "^\`\`\`")
found=$({ diff -U0 examples/custom_functor/plain_ceres.cc \
  examples/custom_functor/on_the_gpu.cu || true; } |
  grep -E '^[-+]' | grep -vE '^(---|\+\+\+) |^[-+]// ')
diff <(echo "$shown") <(echo "$found") ||
  { echo "docs/use.md shows another difference" >&2; exit 1; }
echo "docs/use.md shows the difference"
