#!/usr/bin/env bash
# Two Ray nodes on one machine, each in a network namespace of its own, joined by a virtual cable.
# Needs root and iproute2; touches no address outside the namespaces.
#
#   scripts/two_nodes.sh up DIR           makes both nodes; prints the address of the cluster
#   scripts/two_nodes.sh stop DIR a|b     ends a node's processes, as a power cut would
#   scripts/two_nodes.sh start DIR a|b    starts a node's Ray again
#   scripts/two_nodes.sh cable DIR up|down|slow|fast   slow: 40 ms each way and 1 % loss (slow_cable.py)
#   scripts/two_nodes.sh run DIR COMMAND  a command on node a, with the cluster's token
#   scripts/two_nodes.sh down DIR         ends their processes and removes the namespaces
#
# Node a is the head, 10.77.0.1:6399, with the custom resource node_a; node b is 10.77.0.2. With
# HIDE=FOLDER node b starts without sight of what lies in that folder, as without a shared file
# system, and with a cache of its own in DIR/cache.
set -euo pipefail

usage() { sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ $# -ge 2 ] || usage
what=$1 dir=$(realpath -m "$2")
here=$(dirname "$(realpath "$0")")
ray=${RAY:-$here/../.venv/bin/ray}
prefix=${NETNS_PREFIX:-refblend}
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$dir/token RAY_USAGE_STATS_ENABLED=0
export OMP_WAIT_POLICY=PASSIVE OMP_NUM_THREADS=1 RAY_worker_niceness=0
# The cluster must outlive a cut cable by this many seconds, not by Ray's default of a minute.
export RAY_gcs_rpc_server_reconnect_timeout_s=${RECONNECT_S:-30}

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
    local before=()
    if [ "$node" = b ] && [ -n "${HIDE:-}" ]; then
        # Each `ip netns exec` has a mount namespace of its own.
        # shellcheck disable=SC2016  # expanded by the inner shell
        before=(env XDG_CACHE_HOME="$dir/cache" bash -c 'mount -t tmpfs none "$0" && exec "$@"' "$HIDE")
    fi
    inside "$node" "${before[@]}" \
        "$ray" start "${options[@]}" --node-ip-address="$address" > "$dir/$node.log" 2>&1
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

# The addresses, and with them all connections, from one kind of device to another.
move() {
    local last=0 n
    for n in a b; do
        last=$((last + 1))
        inside $n ip link set "$2-$n" up mtu 9000
        inside $n ip addr del "10.77.0.$last/24" dev "$1-$n"
        inside $n ip addr add "10.77.0.$last/24" dev "$2-$n"
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
cable)
    case $3 in
    up | down) inside b ip link set veth-b "$3" ;;
    slow)
        coproc exec python3 "$here/slow_cable.py" "$prefix" 2> "$dir/slow_cable.log"
        echo "$COPROC_PID" > "$dir/slow_cable.pid"
        read -r <&"${COPROC[0]}"
        move veth tap
        ;;
    fast)
        [ -f "$dir/slow_cable.pid" ] || exit 0
        move tap veth
        kill "$(cat "$dir/slow_cable.pid")"
        rm "$dir/slow_cable.pid"
        ;;
    *) usage ;;
    esac
    ;;
run) inside a "${@:3}" ;;
down)
    bash "$0" cable "$dir" fast
    for n in a b; do
        stop $n TERM KILL
        ip netns del "$prefix-$n" 2> /dev/null || true
    done
    rm -rf "$dir/ray"
    ;;
*) usage ;;
esac
