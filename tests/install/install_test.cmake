# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
# Installs the build into a fresh folder, moves it, and configures, builds and
# runs the consumer against it.
function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE "${WORK_DIR}")
run(${CMAKE_COMMAND} --install "${BUILD_DIR}" --prefix "${WORK_DIR}/installed")
# The package must not depend on where it was installed at first.
file(RENAME "${WORK_DIR}/installed" "${WORK_DIR}/moved")

file(GLOB_RECURSE headers RELATIVE "${WORK_DIR}/moved/include"
     "${WORK_DIR}/moved/include/*")
foreach(header IN LISTS headers)
  if(NOT header MATCHES "^ceres_ext/[a-z_]+\\.h$")
    message(FATAL_ERROR "${header} is installed but not public.")
  endif()
endforeach()

run(${CMAKE_COMMAND}
    -G Ninja
    -S "${CONSUMER_DIR}"
    -B "${WORK_DIR}/build"
    -DCMAKE_PREFIX_PATH=${WORK_DIR}/moved
    -DCeres_ROOT=${CERES_PREFIX}
    -DCERES_EXT_VERSION=${VERSION}
    -DCMAKE_CXX_COMPILER=${CXX_COMPILER}
    -DCMAKE_CXX_COMPILER_LAUNCHER=${CXX_COMPILER_LAUNCHER}
    -DCMAKE_BUILD_TYPE=Debug)
run(${CMAKE_COMMAND} --build "${WORK_DIR}/build")
run("${WORK_DIR}/build/consumer")
if(EXISTS "${WORK_DIR}/moved/bin/bundle_adjuster")
  run("${WORK_DIR}/moved/bin/bundle_adjuster" --version)
endif()
