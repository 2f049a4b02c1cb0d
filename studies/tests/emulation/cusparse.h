// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#ifndef CERES_EXT_STUDIES_TESTS_EMULATION_CUSPARSE_H_
#define CERES_EXT_STUDIES_TESTS_EMULATION_CUSPARSE_H_

enum { MAJOR_VERSION, MINOR_VERSION };
inline int cusparseGetProperty(int /*type*/, int* value) { return *value = 0; }

#endif  // CERES_EXT_STUDIES_TESTS_EMULATION_CUSPARSE_H_
