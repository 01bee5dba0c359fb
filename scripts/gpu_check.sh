#!/bin/sh
# Tests of the CUDA kernels on the GPU of this machine: builds them (needs g++, CMake, ninja and nvcc, nothing else), runs
# them and prints a summary. With --sanitizer also a small part of them under compute-sanitizer (memcheck, racecheck).
# usage: scripts/gpu_check.sh [--binary FILE] [--cases N] [--sanitizer]     (--binary: use this gpu_tests, build nothing)
# Exit codes: 0 all passed, 1 a test failed, 3 the build failed, 77 there is no GPU.
cases=1000
binary=
sanitizer=
while [ $# -gt 0 ]; do
  case $1 in
    --binary) binary=$2; shift ;;
    --cases) cases=$2; shift ;;
    --sanitizer) sanitizer=1 ;;
    *) sed -n '2,5p' "$0"; exit 2 ;;
  esac
  shift
done
root=$(cd "$(dirname "$0")/.." && pwd)
if [ -z "$binary" ]; then
  build=$root/build/gpu-tests
  cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DSLUICE_GPU_TESTS_ONLY=ON || exit 3
  ninja -C "$build" gpu_tests || exit 3
  sh "$root/scripts/kernel_table.sh" "$build"
  binary=$build/tests/cuda/gpu/gpu_tests
fi
"$binary" --cases "$cases"
code=$?
if [ $code -ne 0 ] || [ -z "$sanitizer" ]; then
  exit $code
fi
for tool in memcheck racecheck; do
  for filter in "route: random" "finalise" "runner: weight formats" "runner: bad rows" "runner: quantised" "runner: gathered" "runner: one route" "decode: random" "decode: left" "decode: many"; do
    echo "compute-sanitizer --tool $tool, $filter"
    compute-sanitizer --tool $tool --error-exitcode 1 "$binary" --cases 15 --filter "$filter" || code=1
  done
done
exit $code
