# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# cmake -DROOT=FOLDER -DWORK=FOLDER -P vcpkg_test.cmake
#
# Runs the portfile of packaging/vcpkg in ROOT with functions of vcpkg's names that
# install empty files. The options that it passes, a line each, are in
# WORK/ceres.txt and WORK/ceres_ext.txt, and the patches in WORK/patches.txt. It
# does not replace a test with vcpkg itself.
cmake_minimum_required(VERSION 3.25)
set(PORT ceres-ext)
set(TARGET_TRIPLET x64-linux-dynamic)
set(FEATURES core ${FEATURES})
set(CURRENT_PACKAGES_DIR "${WORK}/packages")
set(CURRENT_BUILDTREES_DIR "${WORK}/buildtrees")
file(MAKE_DIRECTORY "${CURRENT_PACKAGES_DIR}" "${CURRENT_BUILDTREES_DIR}")

function(vcpkg_from_github)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "OUT_SOURCE_PATH;REPO;REF;SHA512"
                        "PATCHES")
  string(LENGTH "${arg_SHA512}" length)
  if(NOT length EQUAL 128 OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "vcpkg_from_github: ${ARGV}")
  endif()
  list(JOIN arg_PATCHES "\n" patches)
  file(WRITE "${WORK}/patches.txt" "${patches}\n")
  file(MAKE_DIRECTORY "${WORK}/source")
  file(TOUCH "${WORK}/source/LICENSE")
  set(${arg_OUT_SOURCE_PATH} "${WORK}/source" PARENT_SCOPE)
endfunction()

function(vcpkg_find_cuda)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "OUT_CUDA_TOOLKIT_ROOT" "")
  set(${arg_OUT_CUDA_TOOLKIT_ROOT} /cuda PARENT_SCOPE)
  set(NVCC /cuda/bin/nvcc PARENT_SCOPE)
endfunction()

function(vcpkg_cmake_configure)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "SOURCE_PATH" "OPTIONS")
  if(arg_UNPARSED_ARGUMENTS OR NOT IS_DIRECTORY "${arg_SOURCE_PATH}")
    message(FATAL_ERROR "vcpkg_cmake_configure: ${ARGV}")
  endif()
  set(name ceres)
  if(EXISTS "${arg_SOURCE_PATH}/ceres_ext")
    set(name ceres_ext)
  endif()
  set_property(GLOBAL PROPERTY CONFIGURED ${name})
  file(WRITE "${WORK}/${name}.txt" "")
  foreach(option IN LISTS arg_OPTIONS)
    file(APPEND "${WORK}/${name}.txt" "${option}\n")
  endforeach()
endfunction()

function(vcpkg_cmake_install)
  get_property(name GLOBAL PROPERTY CONFIGURED)
  if(name STREQUAL "ceres_ext" AND NOT EXISTS
                                   "${WORK}/buildtrees/ceres/lib/cmake/Ceres")
    message(FATAL_ERROR "no Ceres where CERES_EXT_CERES says")
  endif()
  foreach(package Ceres ceres_ext)
    foreach(file Config.cmake ConfigVersion.cmake)
      file(WRITE
           "${CURRENT_PACKAGES_DIR}/lib/cmake/${package}/${package}${file}"
           "set(FOUND_FILE \"\${CMAKE_CURRENT_LIST_FILE}\")\n")
    endforeach()
  endforeach()
  file(WRITE "${CURRENT_PACKAGES_DIR}/share/doc/ceres_ext/LICENSE" "")
endfunction()

function(vcpkg_install_copyright)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "COMMENT" "FILE_LIST")
  foreach(file IN LISTS arg_FILE_LIST)
    if(NOT EXISTS "${file}")
      message(FATAL_ERROR "no licence ${file}")
    endif()
  endforeach()
  file(WRITE "${CURRENT_PACKAGES_DIR}/share/${PORT}/copyright" "")
endfunction()

include("${ROOT}/packaging/vcpkg/ports/ceres-ext/portfile.cmake")

# Nothing is installed outside of lib/ceres_ext and share.
file(GLOB folders RELATIVE "${CURRENT_PACKAGES_DIR}" "${CURRENT_PACKAGES_DIR}/*"
     "${CURRENT_PACKAGES_DIR}/lib/*" "${CURRENT_PACKAGES_DIR}/share/*")
set(expected "lib;lib/ceres_ext;share;share/ceres-ext;share/ceres_ext")
if(NOT folders STREQUAL expected)
  message(FATAL_ERROR "expected ${expected}, found ${folders}")
endif()
foreach(file ceres-ext/copyright ceres-ext/usage ceres_ext/ceres_extConfig.cmake
             ceres_ext/ceres_extConfigVersion.cmake)
  if(NOT EXISTS "${CURRENT_PACKAGES_DIR}/share/${file}")
    message(FATAL_ERROR "no share/${file}")
  endif()
endforeach()
# The package that find_package finds leads to the one in lib/ceres_ext.
include("${CURRENT_PACKAGES_DIR}/share/ceres_ext/ceres_extConfig.cmake")
file(REAL_PATH
     "${CURRENT_PACKAGES_DIR}/lib/ceres_ext/lib/cmake/ceres_ext/ceres_extConfig.cmake"
     expected)
file(REAL_PATH "${FOUND_FILE}" found)
if(NOT found STREQUAL expected)
  message(FATAL_ERROR "expected ${expected}, found ${found}")
endif()
