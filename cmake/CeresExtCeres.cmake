# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
# Finds the patched Ceres 2.2.0 that scripts/setup builds. Ceres::ceres_plugin
# adds its internal headers, for ceres_ext/glue only.
# CERES_EXT_CERES_PREFIX  its install prefix
find_package(Ceres 2.2.0 EXACT REQUIRED)
get_filename_component(CERES_EXT_CERES_PREFIX "${Ceres_DIR}/../../.." ABSOLUTE)
if(NOT TARGET Ceres::ceres_plugin)
  message(WARNING "The Ceres in ${CERES_EXT_CERES_PREFIX} lacks the patches of "
                  "this project (patches/series); scripts/setup builds one.")
endif()
message(STATUS "Ceres Ext: Ceres ${Ceres_VERSION} in ${CERES_EXT_CERES_PREFIX}")
