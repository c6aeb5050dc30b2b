#!/bin/bash
# libmicrohttpd with a thread a connection, in a small program (microhttpd.c).
# shellcheck source=test/apps/serve.sh
source "$(dirname "$(readlink -f "$0")")/serve.sh"
packages=(wrk gcc)
programs=(wrk cc)
loads=(1 16 300)

prepare() {
    [[ ! $install || -f /usr/include/microhttpd.h ]] || get libmicrohttpd-dev
    if [[ ! -f /usr/include/microhttpd.h ]]; then
        echo "$test_name: skipped: no microhttpd.h (package libmicrohttpd-dev; --install installs it)"
        exit 77
    fi
    site "$state/files" && cc -O2 -pthread "$here/microhttpd.c" -o "$state/microhttpd" -lmicrohttpd
}

command_line() {
    command=("$state/microhttpd" "$port" "$state/files")
}

answers() {
    http_answers "$port"
}

load() {
    http_load "$1" "$2" "http://127.0.0.1:$port/f1000.txt"
}

check() {
    http_check "http://127.0.0.1:$port/" "$state/files" || return
    local i pids=()
    for ((i = 0; i < 8; i++)); do
        curl -sS --data-binary "@$state/files/f300000.txt" "http://127.0.0.1:$port/echo" |
            cmp - "$state/files/f300000.txt" &
        pids+=($!)
    done
    for i in "${pids[@]}"; do wait "$i" || return; done
}
serve "$@"
