# Third-party packages, all from the distribution. Linked statically into the binary, so that one built here runs elsewhere.
find_package(Threads REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(fmt REQUIRED)
find_package(CLI11 REQUIRED)
# ./run needs no test packages: without them the tests are left out, and ./check, which installs them, configures again.
if(SLUICE_TESTS)
  find_package(GTest)
  if(NOT GTest_FOUND)
    message(STATUS "GoogleTest was not found: the tests are not built")
  endif()
  find_package(rapidcheck)
  if(NOT rapidcheck_FOUND)
    message(STATUS "RapidCheck was not found: the property tests are not built")
  endif()
endif()

# These ship static archives without CMake targets.
function(sluice_static_package target header archive)
  find_path(${target}_INCLUDE ${header} REQUIRED)
  find_library(${target}_ARCHIVE ${archive} REQUIRED)
  add_library(${target} STATIC IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${${target}_ARCHIVE}
                                             INTERFACE_INCLUDE_DIRECTORIES ${${target}_INCLUDE})
endfunction()
sluice_static_package(pcre2 pcre2.h libpcre2-8.a)
target_compile_definitions(pcre2 INTERFACE PCRE2_STATIC)
sluice_static_package(utf8proc utf8proc.h libutf8proc.a)
target_compile_definitions(utf8proc INTERFACE UTF8PROC_STATIC)
sluice_static_package(event_core event2/event.h libevent_core.a)
sluice_static_package(http_parser http_parser.h libhttp_parser.a)
sluice_static_package(yaml_cpp yaml-cpp/yaml.h libyaml-cpp.a)

# fmt_once.cc is written for this major version; another one is used header-only.
if(fmt_VERSION VERSION_GREATER_EQUAL 9 AND fmt_VERSION VERSION_LESS 10)
  add_library(sluice_fmt STATIC ${CMAKE_CURRENT_LIST_DIR}/fmt_once.cc)
  target_include_directories(sluice_fmt SYSTEM PUBLIC
                             $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)
else()
  add_library(sluice_fmt INTERFACE)
  target_link_libraries(sluice_fmt INTERFACE fmt::fmt-header-only)
endif()

# OpenMPI is loaded at run time, when a run has several ranks: only its headers are needed here, and without them the build
# runs one rank.
find_path(SLUICE_MPI_INCLUDE mpi.h PATH_SUFFIXES openmpi/include ${CMAKE_LIBRARY_ARCHITECTURE}/openmpi/include openmpi
          PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE} /usr/lib)
if(SLUICE_MPI_INCLUDE)
  set(SLUICE_HAVE_MPI ON)
else()
  set(SLUICE_HAVE_MPI OFF)
  message(STATUS "OpenMPI's headers were not found: the build runs one rank")
endif()
