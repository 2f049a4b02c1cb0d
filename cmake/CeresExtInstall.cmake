# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
# The install tree: libceres_ext, its public headers, the patched Ceres with its
# headers and package, ceres_ext_run, bundle_adjuster and the package that
# find_package(ceres_ext) reads. It holds all of them and can be moved.
include(CMakePackageConfigHelpers)

set(_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/ceres_ext")
set_target_properties(
  ceres_ext
  PROPERTIES VERSION ${PROJECT_VERSION}
             SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(_installed ceres_ext)
if(CERES_EXT_BUILD_EXAMPLES)
  list(APPEND _installed bundle_adjuster bal_convert bal_filter bal_generate
       ceres_ext_machine colmap_adjuster)
endif()
# Both libraries are found from where a program or library is. Ceres's package
# wants its library in "lib", whatever the folder of this one is. The build tree is
# laid out for the same RPATH: where an installation is to change it, CMake ends
# that of the build tree in an empty entry, which the dynamic linker takes for the
# working directory.
set(_folders "${CMAKE_INSTALL_LIBDIR}" lib)
list(REMOVE_DUPLICATES _folders)
foreach(_target IN LISTS _installed)
  set(_from "${CMAKE_INSTALL_BINDIR}")
  if(_target STREQUAL ceres_ext)
    set(_from "${CMAKE_INSTALL_LIBDIR}")
  endif()
  set(_rpath "$ORIGIN")
  foreach(_folder IN LISTS _folders)
    file(RELATIVE_PATH _relative "/prefix/${_from}" "/prefix/${_folder}")
    if(_relative)
      list(APPEND _rpath "$ORIGIN/${_relative}")
    endif()
  endforeach()
  set_target_properties(
    ${_target} PROPERTIES INSTALL_RPATH "${_rpath}" INSTALL_RPATH_USE_LINK_PATH
                          ON BUILD_WITH_INSTALL_RPATH ON)
endforeach()
set_target_properties(
  ceres_ext PROPERTIES LIBRARY_OUTPUT_DIRECTORY
                       "${PROJECT_BINARY_DIR}/examples/${CMAKE_INSTALL_LIBDIR}")

install(
  TARGETS ceres_ext
  EXPORT ceres_extTargets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(
  DIRECTORY "${CERES_EXT_CERES_PREFIX}/include" "${CERES_EXT_CERES_PREFIX}/lib"
  DESTINATION .
  USE_SOURCE_PERMISSIONS
  PATTERN pkgconfig EXCLUDE)
# For programs that cannot be changed: the script that replaces their libceres
# by the patched one.
set(LIBDIR "${CMAKE_INSTALL_LIBDIR}")
configure_file("${PROJECT_SOURCE_DIR}/scripts/ceres_ext_run"
               "${PROJECT_BINARY_DIR}/ceres_ext_run" @ONLY)
install(PROGRAMS "${PROJECT_BINARY_DIR}/ceres_ext_run"
        DESTINATION "${CMAKE_INSTALL_BINDIR}")
install(
  DIRECTORY "${PROJECT_SOURCE_DIR}/ceres_ext/"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/ceres_ext"
  FILES_MATCHING
  PATTERN "*.h"
  PATTERN "*.cuh"
  PATTERN base EXCLUDE
  PATTERN blocks EXCLUDE
  PATTERN front EXCLUDE
  PATTERN import EXCLUDE
  PATTERN plan EXCLUDE
  PATTERN rows EXCLUDE
  PATTERN session EXCLUDE
  PATTERN small EXCLUDE
  PATTERN under_ceres EXCLUDE
  PATTERN solver EXCLUDE)
# The headers that public ones, users' .cu files above all, are made of. They are
# not for users to include, and are below ceres_ext/device, which is a folder of
# includes of the target. All others are private.
foreach(
  _header
  ceres_ext/small/fit/fit.h
  ceres_ext/small/fit/fit_solve.h
  ceres_ext/solver/dogleg_region.h
  ceres_ext/solver/step_search.h
  ceres_ext/solver/trust_region.h
  cuda_kernels/base/block_ref.h
  cuda_kernels/base/breakdown.h
  cuda_kernels/base/buffer.h
  cuda_kernels/base/clamp.h
  cuda_kernels/base/host_device.h
  cuda_kernels/base/pcg_scalars.h
  cuda_kernels/base/small_matrix.h
  cuda_kernels/base/status.h
  cuda_kernels/base/term_sum.h
  cuda_kernels/base/vector_sums.h
  cuda_kernels/cuda/camera_chunks.cuh
  cuda_kernels/cuda/camera_sums.cuh
  cuda_kernels/cuda/jacobian_products_impl.cuh
  cuda_kernels/cuda/model_kernels.cuh
  cuda_kernels/cuda/normal_blocks_impl.cuh
  cuda_kernels/cuda/point_tasks.cuh
  cuda_kernels/cuda/stored_tiles.cuh
  cuda_kernels/cuda/vector_sums.cuh
  cuda_kernels/machine/communicator.h
  cuda_kernels/machine/cuda_context.h
  cuda_kernels/machine/cuda_graph.h
  cuda_kernels/machine/cuda_launch.cuh
  cuda_kernels/machine/cuda_launch_buffer.h
  cuda_kernels/machine/cuda_machine.h
  cuda_kernels/machine/cuda_sort.h
  cuda_kernels/machine/cuda_warp.cuh
  cuda_kernels/machine/device_buffer.h
  cuda_kernels/machine/host_context.h
  cuda_kernels/machine/host_machine.h
  cuda_kernels/model/bal_model.h
  cuda_kernels/model/jacobian_source.h
  cuda_kernels/model/manifold.h
  cuda_kernels/model/model_jacobian.h
  cuda_kernels/model/robust_loss.h
  cuda_kernels/model/shape.h
  cuda_kernels/ops/jacobian_products.h
  cuda_kernels/ops/normal_blocks.h
  cuda_kernels/ops/vector_operation.h
  cuda_kernels/structure/cuda_workspace.h
  cuda_kernels/structure/observation_index.h
  cuda_kernels/structure/tile_index.h)
  get_filename_component(_folder "${_header}" DIRECTORY)
  install(FILES "${PROJECT_SOURCE_DIR}/${_header}"
          DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/ceres_ext/device/${_folder}")
endforeach()
if(CERES_EXT_BUILD_EXAMPLES)
  install(TARGETS bundle_adjuster bal_convert bal_filter bal_generate
                  ceres_ext_machine colmap_adjuster
          DESTINATION "${CMAKE_INSTALL_BINDIR}")
  install(PROGRAMS "${PROJECT_SOURCE_DIR}/examples/bal/compare_solvers.py"
                   "${PROJECT_SOURCE_DIR}/examples/bal/solve_page.py"
          DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()

install(
  EXPORT ceres_extTargets
  NAMESPACE ceres_ext::
  DESTINATION "${_package_dir}")
# The same of the build tree, with what else python/ is made of.
set(_exported ceres_ext)
if(CERES_EXT_BUILD_EXAMPLES)
  list(APPEND _exported colmap problem_io)
endif()
export(
  TARGETS ${_exported}
  NAMESPACE ceres_ext::
  FILE "${PROJECT_BINARY_DIR}/ceres_extTargets.cmake")
set(_ceres_package_dir lib/cmake/Ceres)
set(_with_cudss OFF)
if(CERES_EXT_CUDSS_INCLUDE_DIR)
  set(_with_cudss "${CERES_EXT_CUDSS}")
endif()
configure_package_config_file(
  cmake/ceres_extConfig.cmake.in "${PROJECT_BINARY_DIR}/ceres_extConfig.cmake"
  INSTALL_DESTINATION "${_package_dir}"
  PATH_VARS _ceres_package_dir)
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/ceres_extConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/ceres_extConfig.cmake"
              "${PROJECT_BINARY_DIR}/ceres_extConfigVersion.cmake"
        DESTINATION "${_package_dir}")
install(
  FILES LICENSE
  DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/ceres_ext")
