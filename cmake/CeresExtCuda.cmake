# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
# Sets CERES_EXT_WITH_CUDA: ON where CERES_EXT_CUDA is ON and an nvcc works, and
# CERES_EXT_CUDSS_INCLUDE_DIR and _LIBRARY_DIR where cuDSS 1.0 or later is found.
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

# cuDSS: CUDSS_ROOT, the system's folders, or the package nvidia-cudss-cu<N> of
# Python, which has no file for CMake. Its library is opened by the process that
# needs it, by name, or in the folder found here.
if(CERES_EXT_WITH_CUDA AND CERES_EXT_CUDSS)
  if(CUDSS_ROOT) # The real path outlives this tree, of which it may be a link.
    file(REAL_PATH "${CUDSS_ROOT}" CUDSS_ROOT)
  endif()
  if(NOT EXISTS "${CERES_EXT_CUDSS_INCLUDE_DIR}/cudss.h")
    unset(CERES_EXT_CUDSS_INCLUDE_DIR CACHE) # of a folder that is gone
    unset(CERES_EXT_CUDSS_LIBRARY_DIR CACHE)
  endif()
  set(_python_cudss "nvidia/cu${CUDAToolkit_VERSION_MAJOR}")
  set(_site_packages "")
  find_program(CERES_EXT_PYTHON NAMES python3 python)
  if(CERES_EXT_PYTHON)
    execute_process(
      COMMAND
        "${CERES_EXT_PYTHON}" -c
        "import site, sysconfig; print(';'.join([sysconfig.get_path('purelib'), site.getusersitepackages()]))"
      OUTPUT_VARIABLE _site_packages
      OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  find_path(
    CERES_EXT_CUDSS_INCLUDE_DIR cudss.h
    HINTS "${CUDSS_ROOT}" ENV CUDSS_ROOT
    PATHS ${_site_packages}
    PATH_SUFFIXES include "${_python_cudss}/include")
  set(_cudss_version "")
  if(CERES_EXT_CUDSS_INCLUDE_DIR)
    file(STRINGS "${CERES_EXT_CUDSS_INCLUDE_DIR}/cudss.h" _line
         REGEX "^#define CUDSS_VERSION_MAJOR ")
    string(REGEX MATCH "[0-9]+" _cudss_version "${_line}")
  endif()
  if(NOT CERES_EXT_CUDSS_INCLUDE_DIR)
    set(_cudss "no cuDSS found (CUDSS_ROOT, scripts/setup --with-cudss)")
  elseif(NOT _cudss_version GREATER_EQUAL 1)
    set(_cudss "cuDSS 1.0 or later was expected in \
${CERES_EXT_CUDSS_INCLUDE_DIR}, found version ${_cudss_version}")
    unset(CERES_EXT_CUDSS_INCLUDE_DIR CACHE)
  else()
    set(_cudss "cuDSS ${_cudss_version} in ${CERES_EXT_CUDSS_INCLUDE_DIR}")
    get_filename_component(_cudss_root "${CERES_EXT_CUDSS_INCLUDE_DIR}"
                           DIRECTORY)
    find_path(
      CERES_EXT_CUDSS_LIBRARY_DIR "libcudss.so.${_cudss_version}"
      HINTS "${_cudss_root}"
      PATH_SUFFIXES lib lib64)
  endif()
  message(STATUS "Ceres Ext: ${_cudss}.")
endif()

if(CERES_EXT_WITH_CUDA)
  message(STATUS "Ceres Ext: CUDA toolkit ${CUDAToolkit_VERSION}, "
                 "architectures ${CMAKE_CUDA_ARCHITECTURES}.")
else()
  message(STATUS "Ceres Ext: host-only build, no CUDA toolkit in use.")
endif()
