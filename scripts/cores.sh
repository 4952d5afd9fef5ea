#!/usr/bin/env bash
# How many jobs this machine has room for: one per core, each with the GiB of memory that $1 says.
set -euo pipefail
kib=$(awk '/^MemTotal:/ { print $2 }' "${MEMINFO:-/proc/meminfo}")
limit=$(cat "${MEMORY_MAX:-/sys/fs/cgroup/memory.max}" 2>/dev/null || echo max) # a container's, in bytes
if [[ $limit =~ ^[0-9]+$ ]] && ((limit / 1024 < kib)); then kib=$((limit / 1024)); fi
fit=$(((kib + 524288) / ($1 * 1048576))) # 8 GiB are announced as a bit less
cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
((fit < cores)) && cores=$fit
echo $((cores > 0 ? cores : 1))
