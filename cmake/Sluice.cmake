# Helpers that keep the CMakeLists.txt of each folder a plain list of files.

# sluice_library(NAME SOURCES a.cc b.cc [PUBLIC libs] [PRIVATE libs])
# A static library sluice_NAME of the folder src/NAME; headers are included as "NAME/file.h".
function(sluice_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(sluice_${name} STATIC ${ARG_SOURCES})
  target_include_directories(sluice_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(sluice_${name} PUBLIC ${ARG_PUBLIC} PRIVATE sluice_options ${ARG_PRIVATE})
endfunction()

# sluice_test(NAME SOURCES a_test.cc [LIBS libs] [LABELS labels])
# One GoogleTest binary NAME; every case is a CTest test. The library under test and its dependencies go into LIBS.
function(sluice_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE sluice_options ${ARG_LIBS} GTest::gtest GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE SLUICE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  # Limits far above what any test takes: the machine may have other work.
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 300 PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 1800)
endfunction()
