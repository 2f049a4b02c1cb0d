# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
# Left out of the stubs: with it a type checker would take any name for an option.
SolverOptions.__setattr__$:

