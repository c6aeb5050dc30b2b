#!/bin/bash
# nbdkit with its pool of threads a connection: an image is written, read and compared through it by several connections.
# shellcheck source=test/apps/serve.sh
source "$(dirname "$(readlink -f "$0")")/serve.sh"
packages=(nbdkit libnbd-bin)
programs=(nbdkit nbdcopy)
loads=(1 4 16)
# `answers` connects and goes away: whether it has been greeted by then is chance, natively too
uninteresting='reading initial client flags'

prepare() {
    truncate -s 64M "$state/disk" &&
        "$python" -c 'import random, sys
with open(sys.argv[1], "wb") as f:
    for i in range(64):
        f.write(random.Random(i).randbytes(1 << 20) if i % 4 else bytes(1 << 20))' "$state/image"
}

command_line() {
    command=(nbdkit -f -i 127.0.0.1 -p "$port" --threads 16 --filter=stats file "$state/disk" statsfile="$state/statistics")
}

answers() {
    (exec 3<>"/dev/tcp/127.0.0.1/$port")
}

load() { # each connection reads it all; the rate is MiB a second
    local i from=$EPOCHREALTIME bytes=0 until pids=() errors=0
    until=$((SECONDS + $2))
    while :; do
        for ((i = 0; i < $1; i++)); do
            timeout 60 nbdcopy --connections=1 --requests=16 --threads=1 "nbd://127.0.0.1:$port" null: &
            pids[i]=$!
        done
        for i in "${pids[@]}"; do
            wait "$i" || ((errors++))
            ((bytes += 64))
        done
        ((SECONDS < until && !errors)) || break
    done
    awk -v m="$bytes" -v a="$from" -v b="$EPOCHREALTIME" -v e="$errors" \
        'BEGIN { printf "rate=%.0f errors=%d\n", m / (b - a), e }'
}

check() {
    local n
    for n in 1 4; do
        truncate -s 0 "$state/disk" && truncate -s 64M "$state/disk" &&
            timeout 60 nbdcopy --connections=$n --requests=16 "$state/image" "nbd://127.0.0.1:$port" &&
            timeout 60 nbdcopy --connections=$n --requests=16 "nbd://127.0.0.1:$port" "$state/copy" &&
            cmp "$state/image" "$state/copy" && cmp "$state/image" "$state/disk" || return
    done
}
serve "$@"
