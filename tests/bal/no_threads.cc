// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A library to preload: the system starts no threads.

#include <pthread.h>

#include <cerrno>

extern "C" int pthread_create(pthread_t* /*thread*/,
                              const pthread_attr_t* /*attributes*/,
                              void* (* /*start*/)(void*),
                              void* /*argument*/) {
  return EAGAIN;
}
