#!/bin/bash
# memcached under a set/get load that checks each value.
# shellcheck source=test/apps/lib.sh
source "$(dirname "$(readlink -f "$0")")/lib.sh"
need memcached memcached

user=()
((EUID)) || user=(-u nobody)
exchange() { # NAME
    local port
    port=$(free_port)
    if ! start_server "$port" memcached "${user[@]}" -l 127.0.0.1 -p "$port" -U 0 -t 4 -c 2000 -m 256; then
        fail "$1: does not listen"
        show server
        return 1
    fi
    if [[ ${#prefix[@]} != 0 ]] && ! grep -q libvthread "/proc/$server/maps"; then
        fail "$1: the library is not loaded"
    fi
    local saved=("${prefix[@]}")
    prefix=()
    run client "$python" "$here/memcached_client.py" "$port" 300 30
    prefix=("${saved[@]}")
    if ((status == 124)); then
        trace "$server"
    fi
    local client=$status
    stop_server
    if ((client)); then
        fail "$1: client's status $client"
        show client
        return 1
    fi
    if ((status)); then
        fail "$1: memcached ended with $status"
        show server
        return 1
    fi
    pass "$1: $(tail -1 "$work/client.out")"
}
limit=60
preloaded
exchange native
if ((failed)); then
    failed=0
    skip "fails natively"
    finish
fi
passed=0
for n in $carriers; do
    preloaded "$n"
    exchange "carriers $n"
done
finish
