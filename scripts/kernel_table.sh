#!/bin/sh
# Prints registers, shared memory, stack and barriers of every kernel of a CUDA build as a Markdown table.
# usage: scripts/kernel_table.sh [BUILD_FOLDER]
build=${1:-build/cuda}
echo "| kernel | registers | shared bytes | stack bytes |"
echo "|---|---|---|---|"
find "$build" -name '*.ptxas' | sort | xargs cat | awk '
  /Compiling entry function/ { split($0, part, "\047"); name = part[2] }
  /bytes stack frame/ { stack = $1 }
  /Used [0-9]+ registers/ {
    shared = 0
    for (i = 1; i <= NF; ++i) {
      if ($i == "registers,") registers = $(i - 1)
      if ($i ~ /^smem/) shared = $(i - 2)
    }
    print name "\t" registers "\t" shared "\t" stack
  }' | c++filt | sed 's/(anonymous namespace):://g; s/(sluice::[A-Za-z0-9_:]*)//g' |
  awk -F '\t' '{ sub(/\(.*/, "", $1); sub(/^void /, "", $1); print "| `" $1 "` | " $2 " | " $3 " | " $4 " |" }' | sort -u
