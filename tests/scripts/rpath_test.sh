#!/usr/bin/env bash
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# rpath_test.sh FOLDER...
#
# No program and no library in the FOLDERs looks for libraries in the working
# folder, which is what the dynamic linker takes an empty or a relative entry of
# RUNPATH for.
set -euo pipefail

found=0
failed=0
for folder; do
  while IFS= read -r -d '' file; do
    dynamic=$(LC_ALL=C readelf -d "$file" 2>/dev/null |
      grep -E '\((RPATH|RUNPATH)\)') || continue
    found=$((found + 1))
    path="${dynamic#*\[}"
    path="${path%\]}"
    while IFS= read -r -d : entry; do
      if [[ "$entry" != /* && "$entry" != "\$ORIGIN"* ]]; then
        echo "FAILED: $file has the entry \"$entry\" in \"$path\""
        failed=1
        break
      fi
    done <<<"$path:"
  done < <(find "$folder/" -name CMakeFiles -prune -o \
    -type f \( -perm -u+x -o -name '*.so*' \) -print0)
done
((found > 0)) || { echo "FAILED: no program in $*" && exit 1; }
echo "$found programs and libraries"
exit "$failed"
