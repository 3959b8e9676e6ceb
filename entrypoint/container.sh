#!/bin/sh
# What the image starts: kvverify with caches that any user can write, also below a read-only root with only /tmp mounted.
set -eu

scratch=${TMPDIR:-/tmp}
export HOME="$scratch" USER="${USER:-kvverify}" LOGNAME="${LOGNAME:-kvverify}" # a --user without a name has none of these
export XDG_CACHE_HOME="${XDG_CACHE_HOME:-$scratch/cache}"
export XDG_CONFIG_HOME="${XDG_CONFIG_HOME:-$scratch/config}"
export VLLM_CACHE_ROOT="${VLLM_CACHE_ROOT:-$scratch/cache/vllm}"
export TORCHINDUCTOR_CACHE_DIR="${TORCHINDUCTOR_CACHE_DIR:-$scratch/cache/torchinductor}"
export TRITON_CACHE_DIR="${TRITON_CACHE_DIR:-$scratch/cache/triton}"
export FLASHINFER_WORKSPACE_BASE="${FLASHINFER_WORKSPACE_BASE:-$scratch/cache/flashinfer}"
export CUDA_CACHE_PATH="${CUDA_CACHE_PATH:-$scratch/cache/cuda}"
export NUMBA_CACHE_DIR="${NUMBA_CACHE_DIR:-$scratch/cache/numba}"

# The hub's cache: what is mounted there, read-only too; else a writable place that ends with the container.
if [ -z "${HF_HOME:-}" ]; then
    HF_HOME=/cache/huggingface
    [ -w "$HF_HOME" ] || [ -n "$(ls -A "$HF_HOME" 2>/dev/null)" ] || HF_HOME=$scratch/huggingface
fi
export HF_HOME

export VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 LMCACHE_TRACK_USAGE=false HF_HUB_DISABLE_TELEMETRY=1

[ "${KVVERIFY_LIFELINE:-0}" = 1 ] || exec kvverify "$@"

# The run lives as long as somebody holds the other end of standard input: whoever started it may be killed without a word.
exec 3<&0
kvverify "$@" </dev/null &
run=$!
trap 'kill -TERM "$run" 2>/dev/null || true' TERM INT HUP
(
    trap - TERM INT HUP
    cat <&3 >/dev/null
    kill -TERM "$run" 2>/dev/null
) &
lifeline=$!
status=0
wait "$run" || status=$?
# A signal ends a wait early: the run still has its report to write.
while kill -0 "$run" 2>/dev/null; do
    status=0
    wait "$run" || status=$?
done
kill "$lifeline" 2>/dev/null || true
exit "$status"
