# Compiler options of all own code, carried by the interface library sluice_options.
add_library(sluice_options INTERFACE)
target_compile_options(sluice_options INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor)

if(SLUICE_SANITIZE)
  target_compile_options(sluice_options INTERFACE -fsanitize=${SLUICE_SANITIZE} -fno-omit-frame-pointer
                                                  -fno-sanitize-recover=all -g1)
  target_link_options(sluice_options INTERFACE -fsanitize=${SLUICE_SANITIZE})
endif()

if(SLUICE_FUZZ)
  # All own code is instrumented, so that the fuzzers see its branches and the sanitizers its errors.
  target_compile_options(sluice_options INTERFACE -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -g1)
  target_link_options(sluice_options INTERFACE -fsanitize=address,undefined)
endif()

# ccache is used when it is there: a rebuild then costs the link only.
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()
