# Finds nvcc for the CUDA backend. Sets SLUICE_HAVE_CUDA; without a compiler the build goes on without the backend.
#
# The architecture is passed by hand, and so is the flag of the language standard: CMake 3.25 does not know that nvcc has
# C++20.
# Every CUDA object is compiled through nvcc_checked.sh, which fails when ptxas reports spills or serialised wgmma and
# leaves the resources of each kernel beside the object.
set(SLUICE_HAVE_CUDA OFF)
if(SLUICE_CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    find_program(SLUICE_NVCC nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
    if(SLUICE_NVCC)
      set(CMAKE_CUDA_COMPILER ${SLUICE_NVCC} CACHE FILEPATH "nvcc")
    endif()
  endif()
  if(CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_ARCHITECTURES OFF)
    enable_language(CUDA)
    set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_EXTENSIONS OFF)
    set(SLUICE_HAVE_CUDA ON)
    find_package(CUDAToolkit REQUIRED)
    set(SLUICE_NVCC_OPTIONS -gencode=arch=compute_90a,code=sm_90a -Xptxas=-v -lineinfo --expt-relaxed-constexpr
                            -Xcompiler=-Wall,-Wextra,-Wno-unused-parameter)
    set(CMAKE_CUDA_COMPILER_LAUNCHER sh ${CMAKE_CURRENT_LIST_DIR}/nvcc_checked.sh ${CCACHE})
  else()
    message(STATUS "SLUICE_CUDA: nvcc was not found; building without the CUDA backend")
  endif()
endif()
