#!/bin/sh
# Runs the CUDA compiler given as arguments and fails when ptxas spilled registers, used a stack frame it was not asked
# for in a kernel of sm90/, or serialised wgmma (C7508, C7510, C7512, C7520). What ptxas says of each kernel (registers,
# shared memory, stack) stays beside the object as FILE.o.ptxas; scripts/kernel_table.sh makes a table of them.
out=
previous=
for argument in "$@"; do
  [ "$previous" = -o ] && out=$argument
  previous=$argument
done
log=${out:-/tmp/nvcc_checked.$$}.ptxas
"$@" 2>"$log"
code=$?
grep -v -e '^ptxas info' -e '^    [0-9]* bytes' "$log" >&2
if [ $code -ne 0 ]; then
  exit $code
fi
if grep -E 'C75(08|10|12|20)' "$log" >&2 || grep -E '[1-9][0-9]* bytes spill (stores|loads)' "$log" >&2; then
  echo "nvcc_checked: ptxas spilled registers or serialised wgmma in $out (see $log)" >&2
  rm -f "$out"
  exit 1
fi
[ -z "$out" ] && rm -f "$log"
exit 0
