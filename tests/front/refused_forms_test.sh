#!/usr/bin/env bash
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# refused_forms_test.sh COMPILER CERES
#
# CERES_EXT_COST_FUNCTION is an error of the compiler, with a sentence, for each
# form that is named and that the type cannot have. The device is emulated.
set -euo pipefail
compiler=$1
ceres=$2
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# says SENTENCE TYPE FORM...: the error for the forms; no error if SENTENCE is
# empty. A type is the number of residuals and the sizes of blocks.
says() {
  local sentence=$1 type=$2 found
  shift 2
  found=$("$compiler" -std=c++17 -fsyntax-only -x c++ -Wno-unknown-pragmas -I. \
    -Itests/kernels/emulation -I/usr/include/eigen3 -isystem "$ceres/include" \
    - 2>&1 <<END || true
#include "ceres_ext/device/cost_function.cuh"
struct Sum {
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* x, T* residuals) const {
    residuals[0] = residuals[1] = x[0];
    return true;
  }
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* x, const T*, T* residuals) const {
    return (*this)(x, residuals);
  }
  double unused;
};
using namespace ceres_ext;
CERES_EXT_COST_FUNCTION(DeviceAutoDiffCostFunction<Sum, $type>$(printf ', %s' "$@"))
END
  )
  if [[ -z "$sentence" ]]; then
    [[ "$found" != *error:* ]] && return
  else
    [[ "$found" == *"static assertion failed: $sentence"* ]] && return
  fi
  printf '%s of <%s>: expected "%s", found\n%s\n' "$*" "$type" "$sentence" \
    "$found" >&2
  exit 1
}

says "" "2, 3, 18" form::Rows form::Recomputed "form::Fits<0>"
recomputed="form::Recomputed needs two residuals and two or more parameter blocks"
says "$recomputed" "3, 3, 18" form::Recomputed
says "$recomputed" "2, 3" form::Recomputed
says "$recomputed" "2, 3, 19" form::Rows form::Recomputed
fits="form::Fits needs numbers of parameter blocks"
says "$fits" "2, 3, 14" "form::Fits<>"
says "$fits" "2, 3, 14" "form::Fits<2>"
says "$fits" "2, 3, 14" "form::Fits<-1>"
says "forms are form::Rows, form::Recomputed and form::Fits" "2, 3" int
says "each form is named once" "2, 3, 14" "form::Fits<0>" "form::Fits<1>"
echo "forms that a type cannot have are refused"
