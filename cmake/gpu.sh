#!/usr/bin/env bash
# The commands of ./run for a machine with a GPU, which sources this file. Nothing is installed there: what is
# missing comes from .bundle.

gpu_out=build/gpu-out

gpu_arguments() {
  while (($#)); do
    [[ $1 == --out && $# -gt 1 ]] || die 2 "./run $command takes --out DIR, not '$1'"
    gpu_out=$2
    shift 2
  done
  mkdir -p "$gpu_out"
  export PATH=$PATH:/usr/local/cuda/bin
  command -v nvcc >/dev/null ||
    die 2 "No nvcc: install the CUDA toolkit (12.3 or newer)."
}

gpu_build() { # gpu_build CLI TARGETS...; CLI: ON or OFF
  local options=("-DSEALRING_CLI=$1" -DSEALRING_CUDA=ON) library
  shift
  [[ ! -d .bundle ]] || options+=("-DCMAKE_PREFIX_PATH=$PWD/.bundle")
  if [[ ! -e /usr/include/openssl/evp.h && -d .bundle/openssl ]]; then
    library=$(ldconfig -p | sed -n 's/.*libcrypto.so.3 .*=> //p' | head -n 1)
    options+=("-DOPENSSL_INCLUDE_DIR=$PWD/.bundle/openssl" "-DOPENSSL_CRYPTO_LIBRARY=$library")
  fi
  cmake -S . -B build/run-gpu -G Ninja "${options[@]}"
  ninja -C build/run-gpu -j "$jobs" "$@"
}

gpu_tests() { # gpu_tests NAME [ARGUMENTS...]
  local name=$1 status=0
  shift
  # Line by line: of a test that hangs the log has the name.
  stdbuf -oL "$@" "--gtest_output=json:$gpu_out/$name.json" 2>&1 | tee "$gpu_out/$name.log" || status=$?
  echo "::$(gpu_counts "$name" | awk '{ print $1 " passed, " $2 " failed, " $3 " skipped" }')"
  return $status
}

# gpu_counts NAME: passed, failed and skipped, from the log's last lines; a log without them is one failure.
gpu_counts() {
  local result='s/^\[ *\(PASSED\|FAILED\|SKIPPED\) *\] \([0-9]*\) test.*/\1 \2/p'
  sed -n "$result" "$gpu_out/$1.log" 2>/dev/null | awk '{ n[$1] = $2 }
    END { if (!NR) n["FAILED"] = 1; print n["PASSED"] + 0, n["FAILED"] + 0, n["SKIPPED"] + 0 }'
}

# gpu_step NAME COMMAND...: a counted step that writes NAME.log, and its row of the last table.
gpu_rows=()
gpu_step() {
  local begin=$SECONDS counts
  rm -f "$gpu_out/$1.log"
  counted_step "$@"
  read -ra counts < <(gpu_counts "$1")
  $last_ok || ((counts[1] > 0)) || counts[1]=1 # what a sanitizer found is no failed test
  gpu_rows+=("$(printf '%-12s %8s %8s %8s %8s' "$1" "${counts[@]}" "$(duration $((SECONDS - begin)))")")
}

# A tool of the toolkit may be there and not work in this machine: that is said and counted, not a failure.
gpu_skip() { # gpu_skip NAME REASON
  echo "[  SKIPPED ] 1 test: $2" >"$gpu_out/$1.log"
  echo "::skipped: $2"
}

gpu_sanitizer() { # gpu_sanitizer TOOL SECONDS [FILTER]
  local tests=build/run-gpu/tests/gpu_tests probe=$gpu_out/$1-probe.log
  if ! timeout 60 compute-sanitizer --tool "$1" "$tests" --gtest_filter='*ALiveSlot*' >"$probe" 2>&1; then
    gpu_skip "$1" "compute-sanitizer does not work here, see $probe"
    return
  fi
  SR_TEST_SANITIZER=1 gpu_tests "$1" timeout "$2" compute-sanitizer --tool "$1" --error-exitcode 3 "$tests" \
    --gtest_filter="${3:-*}"
}

gpu_profiler() {
  local probe=$gpu_out/ncu-probe.log
  if ! timeout 60 ncu --metrics gpu__time_duration.sum --launch-count 2 build/run-gpu/tests/gpu_tests \
    --gtest_filter='*HardLimits*' >"$probe" 2>&1 || ! grep -q gpu__time_duration.sum "$probe"; then
    gpu_skip ncu "ncu does not work here, see $probe"
    return
  fi
  echo "[  PASSED  ] 1 test." >"$gpu_out/ncu.log"
  echo "::ncu can read this GPU's counters"
}

run_gpu_test() {
  gpu_arguments "$@"
  step_total=6
  required_step "GPU build" gpu_build OFF gpu_tests
  gpu_step "gpu-tests" gpu_tests gpu-tests timeout 300 build/run-gpu/tests/gpu_tests
  # A sanitizer slows kernels down by 20 and more: one test of each kind of kernel.
  gpu_step "memcheck" gpu_sanitizer memcheck 120 \
    '*EveryLength*:*Bulk*:*BadTag*:Vectors*:Numbers*:*FusedGpu*:*EverySumOfEveryType:*Bit*'
  # racecheck does not follow the barriers of several teams in a block (docs/kernel-notes.md).
  local each='*FusedGpuSuites.EveryOperation'
  gpu_step "racecheck" gpu_sanitizer racecheck 110 \
    "*BadTag*:*Bulk*:$each/0:$each/1:*.ColumnsInTurn:*EverySumOfEveryType"
  gpu_step "synccheck" gpu_sanitizer synccheck 60 '*ColumnsInTurn'
  gpu_step "ncu" gpu_profiler
  printf '\n%-12s %8s %8s %8s %8s\n' "" passed failed skipped time
  printf '%s\n' "${gpu_rows[@]}"
  echo "commit $(tree_commit); logs and JSON in $gpu_out"
  ((broken == 0))
}

# The commit of this tree; of a copy without .git, the one that was bundled.
tree_commit() {
  { [[ -e .git ]] && git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null; } ||
    cat .bundle/commit 2>/dev/null || echo unknown
}

run_gpu_bench() {
  gpu_arguments "$@"
  step_total=2
  required_step "GPU build" gpu_build OFF gpu_bench
  step_number=$((step_number + 1))
  echo "[$step_number/$step_total] GPU bench"
  build/run-gpu/gpu_bench --out "$gpu_out" --commit "$(tree_commit)" 2>"$gpu_out/gpu-bench.log" ||
    { tail -n 20 "$gpu_out/gpu-bench.log" >&2 && exit 1; }
  echo "every row with its samples: $gpu_out/gpu-bench.json"
}

# The folder of the NCCL that this machine's PyTorch brings, if it has one and the loader knows none.
nccl_folder() {
  [[ $(ldconfig -p 2>/dev/null) != *"libnccl.so.2 "* ]] || return 0
  python3 -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0] + "/lib")' 2>/dev/null || true
}

# The GPUs that a program sees here: not those that CUDA_VISIBLE_DEVICES hides.
gpu_count() {
  local all seen
  all=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ') || true
  if [[ -n ${CUDA_VISIBLE_DEVICES+set} ]]; then
    seen=$(tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep -c .) || true
    ((seen >= all)) || all=$seen
  fi
  echo "$all"
}

gpu_records=()
# gpu_record NAME VARIABLES... -- ARGUMENTS...: one record, measured by `sealring bench`.
gpu_record() {
  local name=$1 variables=()
  shift
  while [[ $1 != -- ]]; do
    variables+=("$1")
    shift
  done
  shift
  rm -f "$gpu_out/$name.json"
  counted_step "$name" env "${variables[@]}" timeout -k 10 150 build/run-gpu/sealring bench "$@" \
    --device cuda --commit "$(tree_commit)" --json "$gpu_out/$name.json"
  cp "$log_dir/$name.log" "$gpu_out/$name.txt"
  # What was wrong or broken off is no record.
  if $last_ok; then gpu_records+=("$name"); else rm -f "$gpu_out/$name.json"; fi
}

# What stands in docs/benchmarks.md of collectives on GPUs. Multicast is off everywhere: it would be under
# confidential computing.
run_gpu_collectives() {
  local nccl=nccl,nccl-windows,nccl-blocks pair large gpus path name
  gpu_arguments "$@"
  unset "${!SEALRING_@}" # the caller's settings are no part of a record
  pkg-config --exists hwloc 2>/dev/null || die 2 "No hwloc: install libhwloc-dev and pkgconf."
  gpus=$(gpu_count)
  step_total=3
  ((gpus < 2)) || step_total=15
  required_step "GPU build" gpu_build ON sealring
  export NCCL_NVLS_ENABLE=0
  path=$(nccl_folder)
  [[ -z $path ]] || export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$path
  large=(-b 64M -e 256M -f 4)
  gpu_record one-gpu -- all_reduce --ranks-per-gpu 2 "${large[@]}" \
    --suite chacha20-poly1305,aes-256-gcm,aes-128-gcm
  gpu_record one-gpu-graph -- all_reduce --ranks-per-gpu 2 -b 64K -e 64K --graph \
    --suite chacha20-poly1305,aes-256-gcm
  if ((gpus >= 2)); then
    pair=(--ranks 2 --suite "$nccl,chacha20-poly1305")
    gpu_record all_reduce -- all_reduce "${pair[@]}" -b 64K -e 256M -f 4
    gpu_record all_reduce-25M -- all_reduce "${pair[@]}" -b 25M -e 25M
    gpu_record all_reduce-1G -- all_reduce "${pair[@]}" -b 1G -e 1G -c 0
    gpu_record graph -- all_reduce "${pair[@]}" -b 64K -e 64K --graph
    gpu_record bf16 -- all_reduce "${pair[@]}" "${large[@]}" --dtype bf16
    gpu_record reduce_scatter -- reduce_scatter "${pair[@]}" "${large[@]}"
    gpu_record all_gather -- all_gather "${pair[@]}" "${large[@]}"
    gpu_record columns -- all_reduce --ranks 2 --suite nccl,chacha20-poly1305 -b 256M -e 256M \
      --columns 16,32,48,66,99,132,198,264,396
    gpu_record aes -- all_reduce --ranks 2 "${large[@]}" --suite nccl,nccl-blocks,aes-256-gcm,aes-128-gcm
    gpu_record staged-nccl SEALRING_PATH=staged -- all_reduce --ranks 2 --suite nccl,chacha20-poly1305 \
      "${large[@]}"
    gpu_record staged-nccl-graph SEALRING_PATH=staged -- all_reduce --ranks 2 \
      --suite nccl,chacha20-poly1305 -b 1M -e 16M -f 16 --graph
    # The chunks of NCCL's sends, 128 KiB as it comes, as large as those of its collectives.
    gpu_record sockets SEALRING_PATH=staged NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_NET=Socket \
      NCCL_SOCKET_IFNAME=lo NCCL_P2P_NET_CHUNKSIZE=524288 -- all_reduce --ranks 2 \
      --suite nccl,chacha20-poly1305 -b 64M -e 64M -n 10
  fi
  # The rows, without what stands around them.
  for name in "${gpu_records[@]}"; do
    printf '\n%s\n' "$name"
    grep -E '^ +[0-9.]+[KMG]? +[0-9]+ ' "$gpu_out/$name.txt" | cut -c 1-150 || true
  done
  ((gpus >= 2)) || echo "not measured: the 12 records between two GPUs ($gpus found)"
  echo "commit $(tree_commit); records and their tables in $gpu_out"
  ((broken == 0))
}
