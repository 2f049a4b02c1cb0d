# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
# Finds the patched Ceres that scripts/setup builds, one of those of
# docs/which_ceres.md. Ceres::ceres_plugin adds its internal headers, for
# ceres_ext/under_ceres and what it needs of them.
# CERES_EXT_CERES_PREFIX  its install prefix
# CERES_EXT_CERES_NAME    2.2.0 or next, the folder of its patches
set(CERES_EXT_CERES
    ""
    CACHE PATH "Prefix of the patched Ceres; empty to let find_package look.")
if(CERES_EXT_CERES)
  # The real path differs from one build of Ceres to the next, so that changed
  # patches compile everything again.
  file(REAL_PATH "${CERES_EXT_CERES}" _prefix)
  if(NOT EXISTS "${_prefix}/lib/cmake/Ceres")
    message(FATAL_ERROR "No Ceres in ${CERES_EXT_CERES}; scripts/setup builds "
                        "it.")
  endif()
  set(Ceres_DIR
      "${_prefix}/lib/cmake/Ceres"
      CACHE PATH "The directory containing CeresConfig.cmake." FORCE)
endif()
find_package(Ceres REQUIRED)
if(Ceres_VERSION VERSION_EQUAL 2.2.0)
  set(CERES_EXT_CERES_NAME 2.2.0)
elseif(Ceres_VERSION VERSION_EQUAL 2.3.0)
  set(CERES_EXT_CERES_NAME next)
else()
  message(FATAL_ERROR "Expected Ceres 2.2.0 or 2.3.0, found ${Ceres_VERSION} in "
                      "${Ceres_DIR}.")
endif()
get_filename_component(CERES_EXT_CERES_PREFIX "${Ceres_DIR}/../../.." ABSOLUTE)
if(NOT TARGET Ceres::ceres_plugin)
  message(FATAL_ERROR
            "The Ceres in ${CERES_EXT_CERES_PREFIX} lacks the patches of this "
            "project (patches/); scripts/setup builds one.")
endif()

get_target_property(_type Ceres::ceres TYPE)
if(CERES_EXT_STATIC)
  if(NOT _type STREQUAL STATIC_LIBRARY)
    message(FATAL_ERROR "CERES_EXT_STATIC: expected a static Ceres in "
                        "${CERES_EXT_CERES_PREFIX}, found a shared one.")
  endif()
  # Ceres's own logging, as Ceres was built with it: nothing below warnings.
  add_compile_definitions(MAX_LOG_LEVEL=-1)
  return()
endif()

# Installed and built files find libceres, and the Abseil that was built with it,
# beside themselves, built ones by a link. Everything here is linked to that, since
# CMake adds the folders of libraries outside of the build tree to what is
# installed.
set(_targets Ceres::ceres)
if(TARGET absl::abseil_dll)
  list(APPEND _targets absl::abseil_dll)
endif()
foreach(_target IN LISTS _targets)
  get_target_property(_configurations ${_target} IMPORTED_CONFIGURATIONS)
  foreach(_configuration IN LISTS _configurations)
    get_target_property(_library ${_target} IMPORTED_LOCATION_${_configuration})
    get_target_property(_soname ${_target} IMPORTED_SONAME_${_configuration})
    set(_link "${PROJECT_BINARY_DIR}/examples/lib/${_soname}")
    file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/examples/lib")
    file(CREATE_LINK "${_library}" "${_link}" SYMBOLIC)
    set_target_properties(${_target} PROPERTIES
                          IMPORTED_LOCATION_${_configuration} "${_link}")
  endforeach()
endforeach()
message(STATUS "Ceres Ext: Ceres ${Ceres_VERSION} in ${CERES_EXT_CERES_PREFIX}")
