# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
# "cpack -G DEB": the install tree as a package of the Debian or Ubuntu on which it
# is built. All of it is in a folder of its own, beside the distribution's libceres,
# which it leaves alone; /usr/bin has links to the programs.
#   cpack -G DEB --config build/release/CPackConfig.cmake
set(CPACK_PACKAGE_NAME ceres-ext)
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_PACKAGE_CONTACT "The Ceres Ext Authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY
    "Bundle adjustment on the GPU under Ceres Solver")
set(CPACK_PACKAGE_DESCRIPTION
    "A solver for programs that use Ceres Solver ${Ceres_VERSION}: Schur complement solves and
evaluation on a GPU or, without one, on all processors. ceres_ext_run runs
unchanged programs with it, such as COLMAP; bundle_adjuster and colmap_adjuster
solve files; find_package(ceres_ext) finds the library for C++ programs.")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR DEB)
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr/lib/ceres_ext)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# libceres and libceres_ext are in the package.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS
    "${PROJECT_BINARY_DIR}/examples/lib" "${CERES_EXT_CERES_PREFIX}/lib"
    "${PROJECT_BINARY_DIR}/examples/${CMAKE_INSTALL_LIBDIR}")

# The links are in no other install tree.
set(_links "${PROJECT_BINARY_DIR}/package_links")
file(REMOVE_RECURSE "${_links}")
file(MAKE_DIRECTORY "${_links}")
foreach(_program ceres_ext_run ${_installed})
  if(NOT _program STREQUAL ceres_ext)
    file(CREATE_LINK "../lib/ceres_ext/bin/${_program}" "${_links}/${_program}"
         SYMBOLIC)
    install(
      FILES "${_links}/${_program}"
      DESTINATION /usr/bin
      COMPONENT links EXCLUDE_FROM_ALL)
  endif()
endforeach()
set(CPACK_INSTALL_CMAKE_PROJECTS
    "${PROJECT_BINARY_DIR};ceres_ext;ALL;/;${PROJECT_BINARY_DIR};links;links;/")
include(CPack)
