# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
# Sets CERES_EXT_WITH_CUDA: ON where CERES_EXT_CUDA is ON and an nvcc works.
include(CheckLanguage)
set(CERES_EXT_WITH_CUDA OFF)
if(CERES_EXT_CUDA)
  # nvcc is often installed but not in PATH.
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(
      CERES_EXT_NVCC nvcc
      HINTS ENV CUDA_HOME ENV CUDA_PATH
      PATHS /usr/local/cuda
      PATH_SUFFIXES bin)
    if(CERES_EXT_NVCC)
      set(CMAKE_CUDA_COMPILER "${CERES_EXT_NVCC}")
    endif()
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 90)
    endif()
    set(CMAKE_CUDA_STANDARD 17)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(CERES_EXT_WITH_CUDA ON)
  endif()
endif()
if(CERES_EXT_WITH_CUDA)
  message(STATUS "Ceres Ext: CUDA toolkit ${CUDAToolkit_VERSION}, "
                 "architectures ${CMAKE_CUDA_ARCHITECTURES}.")
else()
  message(STATUS "Ceres Ext: host-only build, no CUDA toolkit in use.")
endif()
