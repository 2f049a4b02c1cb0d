# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

# ceres_ext_unite(TARGET [HOT] [ALONE file...]): the C++ sources of a folder are
# compiled as one, so that headers and templates are read once, which takes a third
# of the time. Within a folder, names in unnamed namespaces differ therefore. Hot
# code, the files ALONE or all of a HOT target, is compiled by itself, except where
# CMAKE_UNITY_BUILD asks for all (scripts/tidy).
function(ceres_ext_unite target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "HOT" "" "ALONE")
  if(arg_HOT AND NOT CMAKE_UNITY_BUILD)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  if(arg_ALONE AND NOT CMAKE_UNITY_BUILD)
    list(REMOVE_ITEM sources ${arg_ALONE})
  endif()
  foreach(source IN LISTS sources)
    get_filename_component(folder "${source}" DIRECTORY)
    get_filename_component(folder "${folder}" NAME)
    set_source_files_properties("${source}" PROPERTIES UNITY_GROUP "all_${folder}")
  endforeach()
  # Lambdas of a source that hold types of its unnamed namespace.
  target_compile_options(
    ${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endfunction()

# ceres_ext_host_windows(file...): sources with CERES_EXT_RUN_WINDOW. Without fused
# operations, so that all instruction sets have the same bits
# (cuda_kernels/base/simd.h). A solve is one function; with -O3 it takes three times
# as long to compile and is not faster.
function(ceres_ext_host_windows)
  set(options -ffp-contract=off)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_BUILD_TYPE MATCHES "^Rel")
    list(APPEND options -O2 -ftree-vectorize -fvect-cost-model)
  endif()
  set_source_files_properties(${ARGV} PROPERTIES COMPILE_OPTIONS "${options}")
endfunction()

# ceres_ext_add_test(NAME
#   SOURCES file...        test sources, GoogleTest with its main linked in
#   LIBRARIES target...    what is under test
#   [LABELS label...]      ctest labels beside the area's folder name; gpu: of no
#                          use without a GPU, and disabled by CERES_EXT_GPU_TESTS
#   [ARGUMENTS arg...]     arguments of the test program
#   [ENVIRONMENT K=V...]   environment of the test program
#   [TIMEOUT seconds]      default 300
#   [SHARDS number])       default 1
# One program and one ctest entry NAME; or several, NAME_1 and on, each of which
# runs a part of the tests, so that a long one takes several processors. Tests
# outside the quick run have the label "ceres". A NAME that ends in _emulated is
# that of a program on an emulated device, whose libraries find what they share
# with it in the program itself (tests/kernels/emulation/cusolver.cc).
set(CERES_EXT_EMULATED_LIBRARIES "${PROJECT_BINARY_DIR}/tests/emulated_libraries")
function(ceres_ext_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT;SHARDS"
                        "SOURCES;LIBRARIES;LABELS;ARGUMENTS;ENVIRONMENT")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR
            "ceres_ext_add_test(${name}): unknown ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  add_executable(${name} ${arg_SOURCES})
  # Tests were half of all compiling; the libraries that they test are optimised.
  target_compile_options(
    ${name} PRIVATE "$<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>")
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  set(problems "")
  if("${arg_SOURCES}" MATCHES "bal_test_problem\\.h")
    set(problems ceres_ext_test_problems)
  endif()
  target_link_libraries(${name} PRIVATE ${problems} ${arg_LIBRARIES} GTest::gmock
                                        GTest::gtest GTest::gtest_main)
  if(NOT arg_SHARDS)
    set(arg_SHARDS 1)
  endif()
  set(tests ${name})
  if(arg_SHARDS GREATER 1)
    list(TRANSFORM tests APPEND "_1")
    foreach(shard RANGE 2 ${arg_SHARDS})
      list(APPEND tests ${name}_${shard})
    endforeach()
  endif()
  get_filename_component(area "${CMAKE_CURRENT_SOURCE_DIR}" NAME)
  set(index 0)
  foreach(test IN LISTS tests)
    set(environment ${arg_ENVIRONMENT})
    if(arg_SHARDS GREATER 1)
      list(APPEND environment GTEST_TOTAL_SHARDS=${arg_SHARDS}
           GTEST_SHARD_INDEX=${index})
      math(EXPR index "${index} + 1")
    endif()
    add_test(NAME ${test} COMMAND ${name} ${arg_ARGUMENTS})
    set_tests_properties(
      ${test}
      PROPERTIES LABELS "${area};${arg_LABELS}" TIMEOUT ${arg_TIMEOUT}
                 ENVIRONMENT "${environment}")
    if("gpu" IN_LIST arg_LABELS AND NOT CERES_EXT_GPU_TESTS)
      set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
      set_tests_properties(${test} PROPERTIES DISABLED ON)
    endif()
    if(name MATCHES "_emulated$")
      set_tests_properties(
        ${test}
        PROPERTIES
          ENVIRONMENT_MODIFICATION
          "LD_LIBRARY_PATH=path_list_prepend:${CERES_EXT_EMULATED_LIBRARIES}")
    endif()
  endforeach()
  if(name MATCHES "_emulated$")
    set_target_properties(${name} PROPERTIES ENABLE_EXPORTS ON)
  endif()
endfunction()

# ceres_ext_add_machine_test(NAME SOURCES file... LIBRARIES target...
#   [SHARDS number])     of the program on an emulated device
# Tests of all machines: NAME_test on the host and, with CERES_EXT_TEST_ON_CUDA,
# NAME_test_emulated on an emulated device and NAME_cuda_test on a GPU.
function(ceres_ext_add_machine_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "SHARDS" "SOURCES;LIBRARIES")
  if(NOT arg_SHARDS)
    set(arg_SHARDS 1)
  endif()
  ceres_ext_add_test(${name}_test SOURCES ${arg_SOURCES}
                     LIBRARIES ${arg_LIBRARIES})
  ceres_ext_add_test(
    ${name}_test_emulated SOURCES ${arg_SOURCES}
    LIBRARIES ceres_ext_kernels_emulated ${arg_LIBRARIES} TIMEOUT 900
    SHARDS ${arg_SHARDS})
  target_compile_definitions(${name}_test_emulated PRIVATE CERES_EXT_TEST_ON_CUDA
                                                           CERES_EXT_EMULATED)
  if(CERES_EXT_WITH_CUDA)
    ceres_ext_add_test(${name}_cuda_test SOURCES ${arg_SOURCES}
                       LIBRARIES ${arg_LIBRARIES} LABELS gpu)
    target_compile_definitions(${name}_cuda_test PRIVATE CERES_EXT_TEST_ON_CUDA)
  endif()
endfunction()
