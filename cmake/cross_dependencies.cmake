# Dependencies of a cross-build. Highway (as we use it), nlohmann-json and CLI11 are headers, the same on every
# architecture: the host's are used, through links, since /usr/include itself holds the host's libc headers as well.
# GoogleTest is built from the source that Debian's package googletest installs.
set(cross_include ${PROJECT_BINARY_DIR}/host_headers)
file(MAKE_DIRECTORY ${cross_include})
foreach(package IN ITEMS hwy nlohmann CLI)
  if(NOT EXISTS /usr/include/${package})
    message(FATAL_ERROR "/usr/include/${package} is missing: apt-get install libhwy-dev nlohmann-json3-dev libcli11-dev")
  endif()
  file(CREATE_LINK /usr/include/${package} ${cross_include}/${package} SYMBOLIC)
endforeach()
target_include_directories(tidemill_highway SYSTEM INTERFACE ${cross_include})
foreach(library IN ITEMS nlohmann_json::nlohmann_json CLI11::CLI11)
  add_library(${library} INTERFACE IMPORTED)
  set_target_properties(${library} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES ${cross_include})
endforeach()

if(TIDEMILL_TESTS)
  if(NOT EXISTS /usr/src/googletest/CMakeLists.txt)
    message(FATAL_ERROR "/usr/src/googletest is missing: apt-get install googletest")
  endif()
  set(INSTALL_GTEST OFF)
  add_subdirectory(/usr/src/googletest ${PROJECT_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
endif()
