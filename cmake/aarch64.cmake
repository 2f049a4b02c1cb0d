# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
# A toolchain file: compiles for 64-bit Arm with CC and CXX of the environment against
# the packages in its folder CERES_EXT_AARCH64_ROOT, and runs what it has compiled
# with qemu (scripts/aarch64, scripts/wheel).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_SYSROOT "$ENV{CERES_EXT_AARCH64_ROOT}")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L "${CMAKE_SYSROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
# Ceres is outside.
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)
