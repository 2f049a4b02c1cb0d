// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

int OnlyOtherCeresHasThis() { return 0; }
