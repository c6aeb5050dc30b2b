#!/bin/bash
# memcached under a set/get load that checks each value.
# shellcheck source=test/apps/serve.sh
source "$(dirname "$(readlink -f "$0")")/serve.sh"
packages=(memcached)
programs=(memcached)
loads=(1 16 300)

prepare() {
    :
}

command_line() {
    local user=()
    ((EUID)) || user=(-u nobody)
    command=(memcached "${user[@]}" -l 127.0.0.1 -p "$port" -U 0 -t 4 -c 2000 -m 256)
}

answers() {
    (exec 3<>"/dev/tcp/127.0.0.1/$port")
}

load() {
    local output
    output=$("$python" "$here/memcached_client.py" "$port" "$1" $((1000 * $2 / $1 + 1))) || return
    printf 'rate=%s errors=0\n' "$(grep -oE '[0-9]+ a second' <<<"$output" | cut -d' ' -f1)"
}

check() {
    "$python" "$here/memcached_client.py" "$port" 100 20
}
serve "$@"
