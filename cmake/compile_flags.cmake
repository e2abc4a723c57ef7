# Flags every target of the project shares. One floating-point meaning everywhere: no contraction, no fast-math.
add_library(tidemill_flags INTERFACE)
target_include_directories(tidemill_flags INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_compile_options(tidemill_flags INTERFACE
  -ffp-contract=off -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
  $<$<BOOL:${TIDEMILL_WERROR}>:-Werror>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(tidemill_flags INTERFACE -Wno-restrict)  # GCC 12 sees overlaps in "a" + std::string (GCC bug 105651)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(TIDEMILL_X86 ON)
  # The lowest machine we run on. Faster instruction sets are chosen at run time, file by file.
  target_compile_options(tidemill_flags INTERFACE -march=x86-64-v2 -maes -mpclmul)
endif()

if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT TIDEMILL_SANITIZE)
  target_compile_options(tidemill_flags INTERFACE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -fstack-protector-strong)
  target_link_options(tidemill_flags INTERFACE -Wl,-z,relro,-z,now)
else()
  target_compile_definitions(tidemill_flags INTERFACE TIDEMILL_DEBUG_CHECKS=1 _GLIBCXX_ASSERTIONS=1)
endif()

# A test's own code: half of its compile time is the optimiser's, and what it tests is in the libraries.
set(TIDEMILL_TEST_FLAGS -O1)
if(TIDEMILL_SANITIZE)
  set(TIDEMILL_TEST_FLAGS -O0)
endif()

if(TIDEMILL_SANITIZE STREQUAL "address")
  set(sanitize -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
elseif(TIDEMILL_SANITIZE STREQUAL "thread")
  set(sanitize -fsanitize=thread -fno-omit-frame-pointer)
  target_compile_definitions(tidemill_flags INTERFACE TIDEMILL_THREAD_SANITIZER=1)
  # Clang 14 links C++ programs with an operator new that tests cannot replace, and C programs without: malloc below it is watched all the same.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    target_link_options(tidemill_flags INTERFACE --driver-mode=gcc)
    set(CMAKE_CXX_STANDARD_LIBRARIES "-lstdc++ -lm")
  endif()
elseif(TIDEMILL_SANITIZE)
  message(FATAL_ERROR "TIDEMILL_SANITIZE is '${TIDEMILL_SANITIZE}'; expected empty, address or thread")
endif()
if(TIDEMILL_SANITIZE)
  list(APPEND sanitize -g1)  # lines of a stack trace; all of it costs a third of the compile time
endif()
if(TIDEMILL_FUZZERS)
  list(APPEND sanitize -fsanitize=fuzzer-no-link)
endif()
if(TIDEMILL_COVERAGE)
  list(APPEND sanitize -fprofile-instr-generate -fcoverage-mapping)
endif()
target_compile_options(tidemill_flags INTERFACE ${sanitize})
target_link_options(tidemill_flags INTERFACE ${sanitize})

# Highway compiles a kernel file once per target. We choose among baseline, AVX2 and AVX-512; its other targets are off.
set(TIDEMILL_HWY_OFF "HWY_SSSE3|HWY_AVX3_DL")
# Its headers are all we use: levels are chosen by our own table, so nothing of its library is linked.
add_library(tidemill_highway INTERFACE)
target_compile_definitions(tidemill_highway INTERFACE "HWY_DISABLED_TARGETS=(${TIDEMILL_HWY_OFF})")
if(NOT TIDEMILL_X86)
  target_compile_definitions(tidemill_highway INTERFACE HWY_COMPILE_ONLY_STATIC=1)
endif()
