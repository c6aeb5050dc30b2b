#!/bin/bash
# squid with a cache on disk that threads read and write (aufs), in front of a web server.
# shellcheck source=test/apps/serve.sh
source "$(dirname "$(readlink -f "$0")")/serve.sh"
packages=(squid nginx)
programs=(squid nginx)
loads=(1 16 200)
uninteresting='WARNING: Cannot write log|Pinger|Warning: empty ACL'

prepare() {
    local user
    web_server || return
    user=$(own_user proxy)
    mkdir "$state/squid" && give "$user" "$state/squid"
    cat >"$state/squid.conf" <<CONF
http_port 127.0.0.1:$port
cache_effective_user $user
pid_filename none
cache_log $state/squid/cache.log
access_log none
cache_store_log none
coredump_dir $state/squid
cache_dir aufs $state/squid/cache 100 4 4
cache_mem 1 MB
maximum_object_size_in_memory 0 KB
minimum_object_size 0 KB
pinger_enable off
visible_hostname localhost
icp_port 0
http_access allow all
shutdown_lifetime 1 seconds
CONF
    squid -N -z -f "$state/squid.conf" >"$state/install.log" 2>&1
}

beside() {
    web_server_aside
}

command_line() {
    command=(squid -N -d 1 -f "$state/squid.conf")
}

answers() {
    http_proxy=http://127.0.0.1:$port http_answers "$port2"
}

load() {
    printf 'wrk.path = "http://127.0.0.1:%s/f20000.txt"\n' "$port2" >"$work/wrk.lua"
    http_load "$1" "$2" "http://127.0.0.1:$port/" -s "$work/wrk.lua"
}

check() {
    http_check --proxy "127.0.0.1:$port" "http://127.0.0.1:$port2/" "$state/files"
}

reload() {
    kill -HUP "$server"
    sleep 1
}
serve "$@"
