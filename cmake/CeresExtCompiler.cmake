# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
# Language level, build type, warnings and sanitizers of everything built here.
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE
      Release
      CACHE STRING "Build type." FORCE)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
endif()

# Targets choose the warnings of g++ in their device sources. Suppressed of nvcc,
# 554: a conversion of BlockRef to itself that is never called. 2810: nvcc takes
# the reference that an assignment of a Status returns for a Status; its 3004 and
# g++ find each Status that is ignored.
add_compile_options(
  $<$<COMPILE_LANGUAGE:CXX>:-Wall>
  $<$<COMPILE_LANGUAGE:CXX>:-Wextra>
  $<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-diag-suppress=554,2810>)
if(CERES_EXT_WERROR)
  add_compile_options(
    $<$<COMPILE_LANGUAGE:CXX>:-Werror>
    $<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-Werror=all-warnings>)
endif()

if(CERES_EXT_SANITIZE)
  # Under AddressSanitizer Eigen would align what it allocates by itself, and
  # Ceres, which is built without, frees it.
  add_compile_definitions(EIGEN_MALLOC_ALREADY_ALIGNED=1)
  add_compile_options(
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${CERES_EXT_SANITIZE}>
    $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all>
    $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>)
  add_link_options(-fsanitize=${CERES_EXT_SANITIZE})
endif()
