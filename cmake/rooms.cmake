# Sets `result` to whether the tests of `name` are built. ONE_THREAD: they never run two threads, or none that other tests do not run
# alike, which leaves ThreadSanitizer nothing to find, and takes it minutes.
function(tidemill_has_tests name one_thread result)
  set(${result} ${TIDEMILL_TESTS} PARENT_SCOPE)
  if(TIDEMILL_TESTS AND one_thread AND TIDEMILL_SANITIZE STREQUAL "thread")
    message(STATUS "tests of ${name} are left out: they run no second thread of their own, so that ThreadSanitizer finds nothing")
    set(${result} OFF PARENT_SCOPE)
  endif()
endfunction()

# Where tests find their fixtures: in a header, since a folder of this checkout on each test's command line keeps a compiler cache from serving
# another checkout.
set(TIDEMILL_GENERATED ${PROJECT_BINARY_DIR}/generated)
file(CONFIGURE OUTPUT ${TIDEMILL_GENERATED}/tests/fixtures_path.h @ONLY CONTENT
  "#define TIDEMILL_FIXTURES \"@PROJECT_SOURCE_DIR@/tests/fixtures\"\n")

# What nearly every test includes is parsed once for all of them. By Clang, which the sanitizers' builds have: GCC 12 gives warnings of
# its own library then, and crashes where a file has another -O. Not with ccache, which keeps no objects made with a precompiled header unless
# it is told how little to look at.
function(tidemill_precompile_for_tests target)
  if(CCACHE OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    return()
  endif()
  if(NOT TARGET test_headers)
    file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/test_headers.cc CONTENT "int main() {}\n")
    add_executable(test_headers ${CMAKE_BINARY_DIR}/test_headers.cc)  # a program, since a library's code has another flag
    target_compile_options(test_headers PRIVATE ${TIDEMILL_TEST_FLAGS})
    target_link_libraries(test_headers PRIVATE tidemill_flags GTest::gmock)
    target_precompile_headers(test_headers PRIVATE
      <gmock/gmock.h> <gtest/gtest.h> <algorithm> <cmath> <filesystem> <fstream> <map> <random> <span> <string> <vector>)
  endif()
  target_precompile_headers(${target} REUSE_FROM test_headers)
endfunction()

# tidemill_compile_together(TARGET BATCH): BATCH files at a time, in one translation unit. Half of a file's compile time is the headers that
# the others of its room read, too. What Highway compiles once per level includes itself and stands alone, as does what replaces operator new,
# which the compiler shall not see through; and, by CMake's own rule, what has flags of its own. Each test is in a namespace of its file's name.
function(tidemill_compile_together target batch)
  if(NOT TIDEMILL_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    file(STRINGS ${source} stands_alone LIMIT_COUNT 1 REGEX "hwy/foreach_target.h|operator new\\(")
    if(stands_alone)
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${batch})
endfunction()

# tidemill_room(NAME [ONE_THREAD] SOURCES ... TESTS ... ONE_THREAD_TESTS ... DEPENDS ...): one folder of src/ as one static library and one
# test program. ONE_THREAD says of all its tests, ONE_THREAD_TESTS lists those of which it can be said.
# DEPENDS are rooms that stand lower, or outside libraries.
function(tidemill_room name)
  cmake_parse_arguments(ROOM "ONE_THREAD" "" "SOURCES;TESTS;ONE_THREAD_TESTS;DEPENDS" ${ARGN})
  set(library tidemill_${name})
  if(ROOM_SOURCES)
    add_library(${library} STATIC ${ROOM_SOURCES})
    target_link_libraries(${library} PUBLIC tidemill_flags ${ROOM_DEPENDS})
    target_compile_options(${library} PRIVATE -Wconversion -Wsign-conversion)  # not in tests, full of loops over literals
    if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT name MATCHES "^(tensor|kernels|state|decoding)$")
      target_compile_options(${library} PRIVATE -O2)  # no loops over numbers: -O3 costs a seventh of the compile time and gains nothing
    endif()
    tidemill_compile_together(${library} 12)
  else()
    add_library(${library} INTERFACE)
    target_link_libraries(${library} INTERFACE tidemill_flags ${ROOM_DEPENDS})
  endif()
  tidemill_has_tests(${name} ${ROOM_ONE_THREAD} has_tests)
  if(ROOM_ONE_THREAD_TESTS)
    tidemill_has_tests("${ROOM_ONE_THREAD_TESTS}" TRUE has_one_thread_tests)
    if(has_one_thread_tests)
      list(APPEND ROOM_TESTS ${ROOM_ONE_THREAD_TESTS})
    endif()
  endif()
  if(has_tests AND ROOM_TESTS)
    add_executable(${name}_test ${ROOM_TESTS})
    target_include_directories(${name}_test PRIVATE ${PROJECT_SOURCE_DIR} ${TIDEMILL_GENERATED})  # tests/support/...
    target_compile_options(${name}_test PRIVATE ${TIDEMILL_TEST_FLAGS})
    target_link_libraries(${name}_test PRIVATE ${library} GTest::gmock_main)
    tidemill_precompile_for_tests(${name}_test)
    tidemill_compile_together(${name}_test 6)
    add_test(NAME ${name} COMMAND ${name}_test --gtest_brief=1)
    set_tests_properties(${name} PROPERTIES LABELS fast TIMEOUT 600 COST 1000)  # run first
  endif()
endfunction()

# tidemill_test(NAME [SLOW] [ONE_THREAD] SOURCES ... DEPENDS ...): a test program outside the rooms, called from tests/. SLOW: it needs real
# weights or minutes, and runs only where the label `slow` is asked for.
function(tidemill_test name)
  cmake_parse_arguments(TEST "SLOW;ONE_THREAD" "" "SOURCES;DEPENDS" ${ARGN})
  tidemill_has_tests(${name} ${TEST_ONE_THREAD} has_tests)
  if(has_tests)
    add_executable(${name} ${TEST_SOURCES})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${TIDEMILL_GENERATED})
    target_compile_options(${name} PRIVATE ${TIDEMILL_TEST_FLAGS})
    target_link_libraries(${name} PRIVATE ${TEST_DEPENDS} GTest::gmock_main)
    tidemill_precompile_for_tests(${name})
    tidemill_compile_together(${name} 6)
    add_test(NAME ${name} COMMAND ${name} --gtest_brief=1)
    set_tests_properties(${name} PROPERTIES LABELS $<IF:$<BOOL:${TEST_SLOW}>,slow,fast> TIMEOUT 600)
  endif()
endfunction()
