# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
# scripts/lib/ceres.sh appends this to the CMakeLists.txt of the Abseil that Ceres
# builds.

# Its sources cannot be compiled in groups, as those of Ceres are.
set_target_properties(abseil_dll PROPERTIES UNITY_BUILD OFF)

# All of Abseil is installed with Ceres, also the parts that Ceres does not need,
# which have to be built for that.
set(_static "")
get_property(
  _folders
  DIRECTORY absl
  PROPERTY SUBDIRECTORIES)
foreach(_folder IN LISTS _folders)
  get_property(
    _targets
    DIRECTORY "${_folder}"
    PROPERTY BUILDSYSTEM_TARGETS)
  foreach(_target IN LISTS _targets)
    get_target_property(_type ${_target} TYPE)
    if(_type STREQUAL "STATIC_LIBRARY")
      list(APPEND _static ${_target})
    endif()
  endforeach()
endforeach()
list(JOIN _static " " _static)
cmake_language(EVAL CODE "cmake_language(DEFER DIRECTORY [[${CMAKE_SOURCE_DIR}]]
  CALL add_dependencies ceres ${_static})")
