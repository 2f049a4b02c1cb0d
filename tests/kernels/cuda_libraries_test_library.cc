// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Shared libraries that cuda_libraries_test opens, by what is defined:
//   TEST_MAJOR_VERSION   the version that it reports; the minor one is 3
//   TEST_STATUS          the result of TestGetProperty
//   TEST_NO_PROPERTY     it has no TestGetProperty
//   TEST_NO_FUNCTION     it has no TestFunction
//   TEST_UNDEFINED       it needs an undefined function

#ifndef TEST_MAJOR_VERSION
#define TEST_MAJOR_VERSION 7
#endif
#ifndef TEST_STATUS
#define TEST_STATUS 0
#endif

extern "C" {

#ifndef TEST_NO_PROPERTY
int TestGetProperty(int property, int* value) {
  *value = property == 0 ? TEST_MAJOR_VERSION : 3;
  return property == 2 ? 1 : TEST_STATUS;
}
#endif

int TestGetVersion(int* version) {
  *version = 10000 * TEST_MAJOR_VERSION + 1204;
  return TEST_STATUS;
}

int TestOtherFunction() { return 1; }

#ifdef TEST_UNDEFINED
int TestNobodyHasThis();
int TestFunction() { return TestNobodyHasThis(); }
#elif !defined(TEST_NO_FUNCTION)
int TestFunction() { return 42; }
#endif
}
