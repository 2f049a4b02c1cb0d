# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

# ceres_ext_add_test(NAME
#   SOURCES file...        test sources, GoogleTest with its main linked in
#   LIBRARIES target...    what is under test
#   [LABELS label...]      ctest labels beside the area's folder name
#   [ARGUMENTS arg...]     arguments of the test program
#   [ENVIRONMENT K=V...]   environment of the test program
#   [TIMEOUT seconds])     default 300
# One program and one ctest entry NAME. What does not belong into the quick run
# has the label "ceres". A NAME that ends in _emulated is that of a program on an
# emulated device, whose libraries find what they share with it in the program
# itself (tests/kernels/emulation/cusolver.cc).
set(CERES_EXT_EMULATED_LIBRARIES "${PROJECT_BINARY_DIR}/tests/emulated_libraries")
function(ceres_ext_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT"
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
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} GTest::gmock
                                        GTest::gtest GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name} ${arg_ARGUMENTS})
  get_filename_component(area "${CMAKE_CURRENT_SOURCE_DIR}" NAME)
  set_tests_properties(
    ${name}
    PROPERTIES LABELS "${area};${arg_LABELS}" TIMEOUT ${arg_TIMEOUT}
               ENVIRONMENT "${arg_ENVIRONMENT}")
  if(name MATCHES "_emulated$")
    set_target_properties(${name} PROPERTIES ENABLE_EXPORTS ON)
    set_tests_properties(
      ${name}
      PROPERTIES ENVIRONMENT_MODIFICATION
                 "LD_LIBRARY_PATH=path_list_prepend:${CERES_EXT_EMULATED_LIBRARIES}")
  endif()
endfunction()
