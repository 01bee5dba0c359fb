#!/bin/sh
# GPUs as ranks, on a machine with several and with NCCL and OpenMPI: the checks of groups with ranks as threads and as
# processes, what happens when a rank fails, and expert layers over the GPUs.
# usage: scripts/gpu_ranks_check.sh FOLDER     FOLDER has gpu_tests, comm_nccl_test and nccl_probe of a build with CUDA
# LD_LIBRARY_PATH leads to libnccl.so.2 where the system does not; NCCL_NVLS_ENABLE=0 keeps NCCL off NVLink's multicast.
# Exit code: 0 all passed, 1 something failed.
folder=${1:?the folder with the binaries}
limit=10
code=0
gpus=$(nvidia-smi -L | wc -l)
log=$(mktemp)
trap 'rm -f "$log"' EXIT

passed() { echo "ok   $1"; }
failed() { echo "FAIL $1"; sed 's/^/       /' "$log" | tail -15; code=1; }

# A fault of rank 1: `fault MODE SECONDS CODE TEXT`. All end with the code within the time, the text names the cause, and
# nothing stays behind.
fault() {
  begin=$(date +%s)
  timeout $((limit + 60)) "$folder/nccl_probe" "$1" --tp "$gpus" --limit "$limit" >"$log" 2>&1
  got=$?
  took=$(($(date +%s) - begin))
  name="rank 1: $1, exit code $got after $took s: $(grep -o 'rank.*' "$log" | head -1)"
  sleep 3
  if [ $got -ne "$3" ] || ! grep -q started "$log" || ! grep -q "$4" "$log" || pgrep -x nccl_probe >"$log.left"; then
    failed "$name"
  elif [ $took -gt "$2" ]; then
    failed "$name, later than $2 s"
  else
    passed "$name"
  fi
  rm -f "$log.left"
}

"$folder/comm_nccl_test" >"$log" 2>&1 && passed "groups, $gpus GPUs as threads: $(grep -c ': ok' "$log") checks" ||
  failed "groups, GPUs as threads"
"$folder/nccl_probe" conformance --tp "$gpus" --limit 60 >"$log" 2>&1 &&
  passed "groups, $gpus GPUs as processes: $(grep -c ' ok$' "$log") checks" || failed "groups, GPUs as processes"
fault kill 30 5 "rank 1"
fault throw 8 3 "rank 1: shard 2 can't be read"
fault hang 45 5 "no end within"
fault stop 45 5 "no end within"
"$folder/gpu_tests" --filter "ranks: GPUs over NCCL" || code=1
exit $code
