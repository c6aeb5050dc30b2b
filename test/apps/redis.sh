#!/bin/bash
# Redis with two threads (they spin, and have to have a processor each) for its input and output, a log on disk and dumps by fork.
# shellcheck source=test/apps/serve.sh
source "$(dirname "$(readlink -f "$0")")/serve.sh"
packages=(redis-server redis-tools)
programs=(redis-server redis-benchmark)
loads=(1 16 200)
uninteresting='overcommit|WARNING: The TCP backlog|no config file'

prepare() {
    mkdir "$state/data"
}

command_line() {
    command=(redis-server --bind 127.0.0.1 --port "$port" --dir "$state/data" --io-threads 2 --io-threads-do-reads yes
        --appendonly yes --save "" --loglevel notice --protected-mode no --maxclients 2000)
}

answers() {
    [[ $(redis-cli -p "$port" ping) == PONG ]]
}

load() {
    redis-benchmark -p "$port" -c "$1" -n $((5000 * $2)) -t set,get -d 200 --csv >"$work/bench" 2>&1 || {
        cat "$work/bench"
        return 1
    }
    awk -F'"' '$2 == "SET" || $2 == "GET" { r += 1 / $4; n++ }
               /[Ee]rror/ { e++ }
               END { printf "rate=%.0f errors=%d\n", r ? n / r : 0, e + (n != 2) }' "$work/bench"
}

check() { # what earlier runs left, new values, and a dump
    "$python" "$here/redis_client.py" "$port" 0 0 && "$python" "$here/redis_client.py" "$port" 50 20 || return
    redis-cli -p "$port" bgsave >/dev/null
    await 20 saved || {
        redis-cli -p "$port" info persistence
        return 1
    }
    redis-check-rdb "$state/data/dump.rdb" >"$work/rdb" 2>&1 && return
    tail -3 "$work/rdb"
    return 1
}

saved() {
    redis-cli -p "$port" info persistence | tr -d '\r' | grep -q 'rdb_bgsave_in_progress:0' &&
        redis-cli -p "$port" info persistence | tr -d '\r' | grep -q 'rdb_last_bgsave_status:ok'
}
serve "$@"
