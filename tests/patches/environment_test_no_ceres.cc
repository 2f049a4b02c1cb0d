// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A library with the entry point of a plugin that isn't linked to Ceres.

extern "C" __attribute__((visibility("default"))) void* CeresCreateSolverPlugin(
    int /*abi_version*/,
    const char* /*settings*/,
    char* /*error*/,
    int /*error_size*/) {
  return nullptr;
}
