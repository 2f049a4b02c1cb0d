# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
# Installs the build into a fresh folder, moves it, and configures, builds and
# runs the consumer against it alone; then programs that know nothing of this
# project, by ceres_ext_run.
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
  # The headers below ceres_ext/device are a list in cmake/CeresExtInstall.cmake,
  # which tests/layers compares with the includes of public headers.
  if(NOT
     header
     MATCHES
     "^(ceres_ext/([a-z_]+|device/[a-z_]+|device/(ceres_ext|cuda_kernels)/[a-z_/]+)|(ceres|ceres_plugin|absl)/.+)\\.(h|cuh|inc)$"
  )
    message(FATAL_ERROR "${header} is installed but not public.")
  endif()
endforeach()

# Nothing in it leads to the folders that it was made of.
file(REAL_PATH "${CERES_PREFIX}" ceres_prefix)
function(expect_none_of_those_folders name content)
  foreach(folder "${BUILD_DIR}" "${ceres_prefix}" "${WORK_DIR}/installed")
    string(FIND "${content}" "${folder}" place)
    if(NOT place EQUAL -1)
      message(FATAL_ERROR "${name} names ${folder}.")
    endif()
  endforeach()
endfunction()
file(GLOB_RECURSE texts "${WORK_DIR}/moved/lib*/cmake/*"
     "${WORK_DIR}/moved/bin/ceres_ext_run")
foreach(text IN LISTS texts)
  file(READ "${text}" content)
  expect_none_of_those_folders("${text}" "${content}")
endforeach()
file(GLOB binaries "${WORK_DIR}/moved/bin/*" "${WORK_DIR}/moved/lib*/*.so")
foreach(binary IN LISTS binaries)
  execute_process(
    COMMAND readelf -d "${binary}" OUTPUT_VARIABLE content ERROR_QUIET)
  expect_none_of_those_folders("${binary}" "${content}")
endforeach()

run(${CMAKE_COMMAND}
    -G Ninja
    -S "${CONSUMER_DIR}"
    -B "${WORK_DIR}/build"
    -DCMAKE_PREFIX_PATH=${WORK_DIR}/moved
    -DCERES_EXT_VERSION=${VERSION}
    -DCERES_EXT_WITH_CUDA=${WITH_CUDA}
    -DCMAKE_CXX_COMPILER=${CXX_COMPILER}
    -DCMAKE_CXX_COMPILER_LAUNCHER=${CXX_COMPILER_LAUNCHER}
    -DCMAKE_BUILD_TYPE=Debug)
run(${CMAKE_COMMAND} --build "${WORK_DIR}/build")
run("${WORK_DIR}/build/consumer")
# expect_ceres BUILD: find_package has found the Ceres of the same prefix.
function(expect_ceres build)
  load_cache("${build}" READ_WITH_PREFIX found_ Ceres_DIR)
  if(NOT found_Ceres_DIR STREQUAL "${WORK_DIR}/moved/lib/cmake/Ceres")
    message(FATAL_ERROR "${build} found Ceres in ${found_Ceres_DIR}")
  endif()
endfunction()
expect_ceres("${WORK_DIR}/build")
foreach(program build/consumer moved/${LIBDIR}/libceres_ext.so)
  execute_process(COMMAND ldd "${WORK_DIR}/${program}" OUTPUT_VARIABLE libraries
                          COMMAND_ERROR_IS_FATAL ANY)
  if(NOT libraries MATCHES "libceres\\.so\\.4 => (/[^\n]*) \\(0x")
    message(FATAL_ERROR "${program} has no Ceres:\n${libraries}")
  endif()
  file(REAL_PATH "${CMAKE_MATCH_1}" found)
  file(REAL_PATH "${WORK_DIR}/moved/lib/libceres.so.4" expected)
  if(NOT found STREQUAL expected)
    message(FATAL_ERROR "${program} has the Ceres of ${found}")
  endif()
endforeach()

# The first program of docs/start.md, as the page has it.
file(READ "${START_PAGE}" page)
string(REGEX MATCH "```c\\+\\+\n([^`]*)```" found "${page}")
file(WRITE "${WORK_DIR}/first/first.cc" "${CMAKE_MATCH_1}")
string(REGEX MATCH "```cmake\n([^`]*)```" found "${page}")
file(WRITE "${WORK_DIR}/first/CMakeLists.txt" "${CMAKE_MATCH_1}")
run(${CMAKE_COMMAND}
    -G Ninja
    -S "${WORK_DIR}/first"
    -B "${WORK_DIR}/first/build"
    -DCMAKE_PREFIX_PATH=${WORK_DIR}/moved
    -DCMAKE_CXX_COMPILER=${CXX_COMPILER}
    -DCMAKE_CXX_COMPILER_LAUNCHER=${CXX_COMPILER_LAUNCHER}
    -DCMAKE_BUILD_TYPE=Release)
run(${CMAKE_COMMAND} --build "${WORK_DIR}/first/build")
execute_process(
  COMMAND "${WORK_DIR}/first/build/first" OUTPUT_VARIABLE report
                                          COMMAND_ERROR_IS_FATAL ANY)
if(NOT report MATCHES "solved by: FULL")
  message(FATAL_ERROR "docs/start.md: expected the path FULL:\n${report}")
endif()

# Another Ceres before it in CMAKE_PREFIX_PATH is not taken; one that a program
# has found before, without the patches, is refused by name.
file(COPY "${WORK_DIR}/moved/lib/cmake/Ceres"
     DESTINATION "${WORK_DIR}/other/lib/cmake")
file(GLOB others "${WORK_DIR}/other/lib/cmake/Ceres/CeresTargets*.cmake")
foreach(other IN LISTS others)
  file(READ "${other}" content)
  string(REPLACE "ceres_plugin" "ceres_other" content "${content}")
  string(REPLACE "\${_IMPORT_PREFIX}" "${WORK_DIR}/moved" content "${content}")
  file(WRITE "${other}" "${content}")
endforeach()
run(${CMAKE_COMMAND}
    -G Ninja
    -S "${CONSUMER_DIR}"
    -B "${WORK_DIR}/build"
    "-DCMAKE_PREFIX_PATH=${WORK_DIR}/other;${WORK_DIR}/moved"
    -UCeres_DIR)
expect_ceres("${WORK_DIR}/build")
execute_process(
  COMMAND
    ${CMAKE_COMMAND} -G Ninja -S "${CONSUMER_DIR}" -B "${WORK_DIR}/build"
    "-DCMAKE_PREFIX_PATH=${WORK_DIR}/other;${WORK_DIR}/moved"
    "-DCeres_DIR=${WORK_DIR}/other/lib/cmake/Ceres"
  RESULT_VARIABLE status
  OUTPUT_QUIET
  ERROR_VARIABLE said)
string(REGEX REPLACE "[ \n]+" " " said "${said}")
if(status EQUAL 0 OR NOT said MATCHES "lacks the patches of Ceres Ext")
  message(FATAL_ERROR "A Ceres without the patches: ${status}, ${said}")
endif()
if(EXISTS "${WORK_DIR}/moved/bin/bundle_adjuster")
  run("${WORK_DIR}/moved/bin/bundle_adjuster" --version)
  find_program(PYTHON NAMES python3)
  if(PYTHON)
    run("${WORK_DIR}/moved/bin/compare_solvers.py" --help)
  endif()
endif()

# A user's functor on the device, from the install tree: on_the_gpu ends where
# plain_ceres does, and says who evaluated.
if(CUDA_COMPILER)
  run(${CMAKE_COMMAND}
      -G Ninja
      -S "${CUSTOM_FUNCTOR_DIR}"
      -B "${WORK_DIR}/custom_functor"
      "-DCMAKE_PREFIX_PATH=${WORK_DIR}/moved"
      -DCMAKE_CXX_COMPILER=${CXX_COMPILER}
      -DCMAKE_CXX_COMPILER_LAUNCHER=${CXX_COMPILER_LAUNCHER}
      -DCMAKE_CUDA_COMPILER=${CUDA_COMPILER}
      "-DCMAKE_CUDA_ARCHITECTURES=${CUDA_ARCHITECTURES}"
      -DCMAKE_BUILD_TYPE=Release)
  string(TIMESTAMP begin "%s")
  run(${CMAKE_COMMAND} --build "${WORK_DIR}/custom_functor" --target on_the_gpu)
  string(TIMESTAMP end "%s")
  math(EXPR seconds "${end} - ${begin}")
  message(STATUS "on_the_gpu.cu: compiled in ${seconds} s")
  run(${CMAKE_COMMAND} --build "${WORK_DIR}/custom_functor")
  foreach(program plain_ceres on_the_gpu)
    execute_process(
      COMMAND "${WORK_DIR}/custom_functor/${program}" "${BAL_PROBLEM}"
      OUTPUT_VARIABLE report COMMAND_ERROR_IS_FATAL ANY)
    if(NOT report MATCHES "Final +([0-9.]+e[+-][0-9]+)")
      message(FATAL_ERROR "${program} reports no final cost:\n${report}")
    endif()
    set(cost_of_${program} "${CMAKE_MATCH_1}")
  endforeach()
  # The first four digits, as the two stop at a relative change of 1e-6.
  string(SUBSTRING "${cost_of_plain_ceres}" 0 5 expected)
  if(NOT cost_of_on_the_gpu MATCHES "^${expected}"
     OR NOT report MATCHES "all residual blocks are evaluated by this library")
    message(FATAL_ERROR "expected ${cost_of_plain_ceres}, found:\n${report}")
  endif()

  # The same with a Jacobian that is recomputed: nvcc finds every header, and
  # without a device the host says that it stores.
  set(recomputed "${WORK_DIR}/recomputed_functor")
  file(COPY "${CUSTOM_FUNCTOR_DIR}/CMakeLists.txt"
            "${CUSTOM_FUNCTOR_DIR}/plain_ceres.cc" DESTINATION "${recomputed}")
  file(READ "${CUSTOM_FUNCTOR_DIR}/on_the_gpu.cu" source)
  string(REPLACE "ceres_ext/device_cost" "ceres_ext/recomputed_cost" source
                 "${source}")
  string(REPLACE "EXT_DEVICE_COST" "EXT_RECOMPUTED_COST" source "${source}")
  string(
    REPLACE
      "ceres_ext::Options()"
      "[] { ceres_ext::Options recomputed; recomputed.jacobian = ceres_ext::JACOBIAN_RECOMPUTED; return recomputed; }()"
      source "${source}")
  file(WRITE "${recomputed}/on_the_gpu.cu" "${source}")
  run(${CMAKE_COMMAND}
      -G Ninja
      -S "${recomputed}"
      -B "${recomputed}/build"
      "-DCMAKE_PREFIX_PATH=${WORK_DIR}/moved"
      -DCMAKE_CXX_COMPILER=${CXX_COMPILER}
      -DCMAKE_CUDA_COMPILER=${CUDA_COMPILER}
      "-DCMAKE_CUDA_ARCHITECTURES=${CUDA_ARCHITECTURES}"
      -DCMAKE_BUILD_TYPE=Release)
  string(TIMESTAMP begin "%s")
  run(${CMAKE_COMMAND} --build "${recomputed}/build" --target on_the_gpu)
  string(TIMESTAMP end "%s")
  math(EXPR seconds "${end} - ${begin}")
  message(STATUS "on_the_gpu.cu, recomputed: compiled in ${seconds} s")
  execute_process(
    COMMAND "${recomputed}/build/on_the_gpu" "${BAL_PROBLEM}"
    OUTPUT_VARIABLE report COMMAND_ERROR_IS_FATAL ANY)
  if(NOT report MATCHES "Final +${expected}"
     OR NOT report MATCHES "recomputed Jacobian|since the host stores it")
    message(FATAL_ERROR "expected ${cost_of_plain_ceres}, found:\n${report}")
  endif()
endif()

# Built against Ceres alone.
run(${CMAKE_COMMAND}
    -G Ninja
    -S "${UNCHANGED_DIR}"
    -B "${WORK_DIR}/unchanged"
    -DCeres_ROOT=${CERES_PREFIX}
    -DCMAKE_CXX_COMPILER=${CXX_COMPILER}
    -DCMAKE_CXX_COMPILER_LAUNCHER=${CXX_COMPILER_LAUNCHER}
    -DCMAKE_BUILD_TYPE=Debug)
run(${CMAKE_COMMAND} --build "${WORK_DIR}/unchanged")
file(REAL_PATH "${WORK_DIR}/moved/${LIBDIR}" lib)

# ceres_ext_run ARGUMENT...: its exit status and what it and the program say are
# as expected.
function(expect_run status out err)
  execute_process(
    COMMAND "${WORK_DIR}/moved/bin/ceres_ext_run" ${ARGN}
    RESULT_VARIABLE found_status
    OUTPUT_VARIABLE found_out
    ERROR_VARIABLE found_err)
  if(NOT found_status EQUAL status
     OR NOT found_out MATCHES "${out}"
     OR NOT found_err MATCHES "${err}")
    message(
      FATAL_ERROR
        "ceres_ext_run ${ARGN}\n expected ${status}, ${out}, ${err}\n"
        " found ${found_status}, ${found_out}, ${found_err}")
  endif()
endfunction()
set(built "${WORK_DIR}/unchanged")
foreach(program unchanged unchanged_rpath)
  expect_run(2 "Ceres Ext: path FULL" "uses ${lib}/libceres.so.4 in place of"
             "${built}/${program}" one two)
endforeach()
expect_run(0 "Ceres Ext: path FULL on host"
           "CERES_SOLVER_PLUGIN=ceres_ext:device=host" --settings=device=host
           "${built}/unchanged")
file(WRITE "${WORK_DIR}/script" "#!/bin/sh\nexec '${built}/unchanged' one\n")
file(CHMOD "${WORK_DIR}/script" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
expect_run(1 "Ceres Ext: path FULL" "is a script" "${WORK_DIR}/script")
# The interpreter itself; python3 may be a script that starts it.
execute_process(
  COMMAND python3 -c "import os, sys; print(os.path.realpath(sys.executable), end='')"
  OUTPUT_VARIABLE python3
  ERROR_QUIET)
if(python3)
  # A module of Python loads its libraries when it is imported.
  file(
    WRITE "${WORK_DIR}/module.py"
    "import ctypes, os, sys\n"
    "ctypes.CDLL('libceres.so.4')\n"
    "print(*(l.split(maxsplit=5)[-1] for l in open('/proc/self/maps') if 'libceres.so' in l))\n"
    "sys.exit(os.environ['CERES_SOLVER_PLUGIN'] != 'ceres_ext:device=host')\n")
  expect_run(0 "${lib}/libceres.so" "modules that .*python3[.0-9]* imports"
             --settings=device=host "${python3}" "${WORK_DIR}/module.py")
endif()
expect_run(125 "^$" "does not use Ceres" "${built}/without")
expect_run(125 "^$" "links Ceres statically" "${built}/linked_statically")
expect_run(125 "^$" "uses libceres.so.3, and this is Ceres 2\\."
           "${built}/other_3")
expect_run(125 "^$" "uses Ceres 2.9.9, and this is Ceres 2\\."
           "${built}/other_later")
expect_run(125 "^$" "does not fit .*OnlyOtherCeresHasThis" "${built}/other_4")
expect_run(127 "^$" "program not found" "${built}/nothing")
expect_run(125 "^$" "expected a program")
expect_run(0 "^host: .*values of a stored Jacobian per second.*device" "^$" --machine)
expect_run(125 "^$" "takes no program" --machine "${built}/unchanged")
expect_run(2 "^$" "machine_rates: expected one of" --settings=machine_rates=1
           --machine)
expect_run(125 "^$" "unknown option --setting" --setting=1 "${built}/unchanged")
