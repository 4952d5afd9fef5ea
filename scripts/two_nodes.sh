#!/usr/bin/env bash
# Two Ray nodes on one machine, each in a network namespace of its own, joined by a virtual cable.
# Needs root and iproute2; touches no address outside the namespaces.
#
#   scripts/two_nodes.sh up DIR           makes both nodes; prints the address of the cluster
#   scripts/two_nodes.sh stop DIR a|b     ends a node's processes, as a power cut would
#   scripts/two_nodes.sh start DIR a|b    starts a node's Ray again
#   scripts/two_nodes.sh run DIR COMMAND  a command on node a, with the cluster's token
#   scripts/two_nodes.sh down DIR         ends their processes and removes the namespaces
#
# Node a is the head, 10.77.0.1:6399, with the custom resource node_a; node b is 10.77.0.2.
set -euo pipefail

usage() { sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ $# -ge 2 ] || usage
what=$1 dir=$(realpath -m "$2")
here=$(dirname "$(realpath "$0")")
ray=${RAY:-$here/../.venv/bin/ray}
prefix=${NETNS_PREFIX:-refblend}
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$dir/token RAY_USAGE_STATS_ENABLED=0
export OMP_WAIT_POLICY=PASSIVE OMP_NUM_THREADS=1 RAY_worker_niceness=0

inside() { ip netns exec "$prefix-$1" "${@:2}"; }

start() {
    local node=$1 address=10.77.0.1
    local options=(--disable-usage-stats --num-cpus="${CPUS:-3}" --object-store-memory=150000000
        --resources="{\"node_$node\": 1}")
    if [ "$node" = a ]; then
        options+=(--head --port=6399 --include-dashboard=false --temp-dir="$dir/ray")
    else
        address=10.77.0.2
        options+=(--address=10.77.0.1:6399)
    fi
    inside "$node" "$ray" start "${options[@]}" --node-ip-address="$address" > "$dir/$node.log" 2>&1
}

stop() {
    local node=$1 pids
    for signal in "${@:2}"; do
        pids=$(ip netns pids "$prefix-$node" 2> /dev/null || true)
        [ -n "$pids" ] || return 0
        # shellcheck disable=SC2086  # one word for each process
        kill -"$signal" $pids 2> /dev/null || true
        sleep 1
    done
}

case $what in
up)
    mkdir -p "$dir"
    (umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' > "$dir/token")
    for n in a b; do ip netns add "$prefix-$n"; done
    ip link add veth-a netns "$prefix-a" type veth peer name veth-b netns "$prefix-b"
    inside a ip addr add 10.77.0.1/24 dev veth-a
    inside b ip addr add 10.77.0.2/24 dev veth-b
    for n in a b; do
        inside $n ip link set lo up
        inside $n ip link set "veth-$n" up
    done
    start a
    start b
    echo 10.77.0.1:6399
    ;;
start) start "$3" ;;
stop) stop "$3" KILL ;;
run) inside a "${@:3}" ;;
down)
    for n in a b; do
        stop $n TERM KILL
        ip netns del "$prefix-$n" 2> /dev/null || true
    done
    rm -rf "$dir/ray"
    ;;
*) usage ;;
esac
