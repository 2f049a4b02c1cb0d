# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
# The install tree: libceres_ext, its public headers, bundle_adjuster and the
# package that find_package(ceres_ext) reads.
include(CMakePackageConfigHelpers)

set(_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/ceres_ext")
set_target_properties(
  ceres_ext
  PROPERTIES VERSION ${PROJECT_VERSION}
             SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
install(
  TARGETS ceres_ext
  EXPORT ceres_extTargets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(
  DIRECTORY "${PROJECT_SOURCE_DIR}/ceres_ext/"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/ceres_ext"
  FILES_MATCHING
  PATTERN "*.h"
  PATTERN glue EXCLUDE
  PATTERN solver EXCLUDE)
if(CERES_EXT_BUILD_EXAMPLES)
  install(TARGETS bundle_adjuster bal_generate
          DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()

install(
  EXPORT ceres_extTargets
  NAMESPACE ceres_ext::
  DESTINATION "${_package_dir}")
configure_package_config_file(
  cmake/ceres_extConfig.cmake.in "${PROJECT_BINARY_DIR}/ceres_extConfig.cmake"
  INSTALL_DESTINATION "${_package_dir}")
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/ceres_extConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/ceres_extConfig.cmake"
              "${PROJECT_BINARY_DIR}/ceres_extConfigVersion.cmake"
        DESTINATION "${_package_dir}")
install(
  FILES LICENSE
  DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/ceres_ext")
