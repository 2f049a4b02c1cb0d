# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
# Finds the patched Ceres 2.2.0 that scripts/setup builds. Ceres::ceres_plugin
# adds its internal headers, for ceres_ext/glue only.
# CERES_EXT_CERES_PREFIX  its install prefix
set(CERES_EXT_CERES
    ""
    CACHE PATH "Prefix of the patched Ceres; empty to let find_package look.")
if(CERES_EXT_CERES)
  # The real path differs from one build of Ceres to the next, so that changed
  # patches compile everything again, and is outside of this tree, so that
  # installed programs find it.
  file(REAL_PATH "${CERES_EXT_CERES}" _prefix)
  if(NOT EXISTS "${_prefix}/lib/cmake/Ceres")
    message(FATAL_ERROR "No Ceres in ${CERES_EXT_CERES}; scripts/setup builds "
                        "it.")
  endif()
  set(Ceres_DIR
      "${_prefix}/lib/cmake/Ceres"
      CACHE PATH "The directory containing CeresConfig.cmake." FORCE)
endif()
find_package(Ceres 2.2.0 EXACT REQUIRED)
get_filename_component(CERES_EXT_CERES_PREFIX "${Ceres_DIR}/../../.." ABSOLUTE)
if(NOT TARGET Ceres::ceres_plugin)
  message(FATAL_ERROR
            "The Ceres in ${CERES_EXT_CERES_PREFIX} lacks the patches of this "
            "project (patches/series); scripts/setup builds one.")
endif()
message(STATUS "Ceres Ext: Ceres ${Ceres_VERSION} in ${CERES_EXT_CERES_PREFIX}")
