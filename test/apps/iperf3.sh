#!/bin/bash
# iperf3 with parallel streams: a thread each since 3.16, one loop before. The server runs natively.
# shellcheck source=test/apps/lib.sh
source "$(dirname "$(readlink -f "$0")")/lib.sh"
need iperf3 iperf3
version=$(iperf3 --version | awk 'NR == 1 { print $2 }')
what="a thread each"
if [[ $(printf '%s\n' 3.16 "${version%%[!0-9.]*}" | sort -V | head -1) != 3.16 ]]; then
    what="no threads"
    echo "      iperf3 $version has no threads (3.16): this shows that it is left as it is"
fi
port=$(free_port)
preloaded
start_server "$port" iperf3 -s -p "$port" || { skip "no server" && finish; }
# as many bytes as were asked for, on each of the streams
verdict() {
    "$python" -c "import json, sys; e = json.load(sys.stdin)[\"end\"]; print(len(e[\"streams\"]), e[\"sum_received\"][\"bytes\"] > 0)"
}
for direction in "" -R; do
    compare -f verdict "8 streams, $what${direction:+ $direction}" iperf3 -c 127.0.0.1 -p "$port" -P 8 -n 64M $direction -J
done
stop_server
finish
