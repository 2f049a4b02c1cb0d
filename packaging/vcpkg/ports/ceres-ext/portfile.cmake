# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# Builds the tree that this port is in, and the patched Ceres that it needs. Both
# are in a folder of their own, lib/ceres_ext, so that the port "ceres" may be
# installed too.
get_filename_component(EXT_PATH "${CMAKE_CURRENT_LIST_DIR}/../../../.." ABSOLUTE)

# One build: programs of either type can use these shared libraries.
set(VCPKG_BUILD_TYPE release)
# Headers and files of CMake are in the folder, too.
set(VCPKG_POLICY_EMPTY_INCLUDE_FOLDER enabled)
set(VCPKG_POLICY_SKIP_LIB_CMAKE_MERGE_CHECK enabled)
set(VCPKG_POLICY_SKIP_MISPLACED_CMAKE_FILES_CHECK enabled)

file(STRINGS "${EXT_PATH}/patches/2.2.0/series" PATCHES REGEX "^[^#]")
list(TRANSFORM PATCHES PREPEND "${EXT_PATH}/patches/2.2.0/")
vcpkg_from_github(
  OUT_SOURCE_PATH CERES_PATH
  REPO ceres-solver/ceres-solver
  REF 85331393dc0dff09f6fb9903ab0c4bfa3e134b01 # 2.2.0
  SHA512 16d3f4f3524b7532f666c0a626f1c678170698119eff3d914ade2e7cc65f25e644c2eabb618cd5805cba0fd4e08d3f64658a9f480934d8aace4089ec42b3d691
  PATCHES ${PATCHES})

# As scripts/lib/ceres.sh, without SuiteSparse and LAPACK, in place of which Ceres
# has Eigen.
vcpkg_cmake_configure(
  SOURCE_PATH "${CERES_PATH}"
  OPTIONS
    -DBUILD_SHARED_LIBS=ON
    -DBUILD_BENCHMARKS=OFF
    -DBUILD_EXAMPLES=OFF
    -DBUILD_TESTING=OFF
    -DEIGENMETIS=OFF
    -DGFLAGS=ON
    -DLAPACK=OFF
    -DMINIGLOG=OFF
    -DPROVIDE_UNINSTALL_TARGET=OFF
    -DSCHUR_SPECIALIZATIONS=ON
    -DSUITESPARSE=OFF
    -DUSE_CUDA=OFF)
vcpkg_cmake_install()
set(CERES_PREFIX "${CURRENT_BUILDTREES_DIR}/ceres")
file(REMOVE_RECURSE "${CERES_PREFIX}")
file(RENAME "${CURRENT_PACKAGES_DIR}" "${CERES_PREFIX}")

set(CUDA_OPTIONS -DCERES_EXT_CUDA=OFF)
if("cuda" IN_LIST FEATURES)
  vcpkg_find_cuda(OUT_CUDA_TOOLKIT_ROOT CUDA_ROOT)
  # A triplet may set it, as CMAKE_CUDA_ARCHITECTURES.
  if(NOT DEFINED CERES_EXT_CUDA_ARCHITECTURES)
    set(CERES_EXT_CUDA_ARCHITECTURES
        "75-real;80-real;86-real;90-real;100-real;120")
  endif()
  string(REPLACE ";" "\\;" CERES_EXT_CUDA_ARCHITECTURES
                 "${CERES_EXT_CUDA_ARCHITECTURES}")
  set(CUDA_OPTIONS
      -DCERES_EXT_CUDA=ON "-DCMAKE_CUDA_COMPILER=${NVCC}"
      "-DCMAKE_CUDA_ARCHITECTURES=${CERES_EXT_CUDA_ARCHITECTURES}")
endif()
vcpkg_cmake_configure(
  SOURCE_PATH "${EXT_PATH}"
  OPTIONS
    ${CUDA_OPTIONS}
    -DCERES_EXT_CERES=${CERES_PREFIX}
    -DCERES_EXT_BUILD_EXAMPLES=OFF
    -DCERES_EXT_BUILD_TESTS=OFF
    -DCERES_EXT_CUDSS=OFF)
vcpkg_cmake_install()

# The install tree can be moved.
set(TREE "${CURRENT_BUILDTREES_DIR}/tree")
file(REMOVE_RECURSE "${TREE}")
file(RENAME "${CURRENT_PACKAGES_DIR}" "${TREE}")
file(MAKE_DIRECTORY "${CURRENT_PACKAGES_DIR}/lib")
file(RENAME "${TREE}" "${CURRENT_PACKAGES_DIR}/lib/ceres_ext")
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/lib/ceres_ext/share/doc")

# find_package(ceres_ext) finds these.
file(
  INSTALL "${CMAKE_CURRENT_LIST_DIR}/ceres_extConfig.cmake"
          "${CURRENT_PACKAGES_DIR}/lib/ceres_ext/lib/cmake/ceres_ext/ceres_extConfigVersion.cmake"
  DESTINATION "${CURRENT_PACKAGES_DIR}/share/ceres_ext")
file(
  INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage"
  DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${EXT_PATH}/LICENSE" "${CERES_PATH}/LICENSE")
