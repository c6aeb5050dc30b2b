#!/bin/bash
# tinyproxy, a thread a connection, in front of a web server.
# shellcheck source=test/apps/serve.sh
source "$(dirname "$(readlink -f "$0")")/serve.sh"
packages=(tinyproxy nginx)
programs=(tinyproxy nginx)
loads=(1 16 200)

prepare() {
    web_server || return
    cat >"$state/tinyproxy.conf" <<CONF
$( ((EUID)) || printf 'User nobody\nGroup nogroup\n')
Port $port
Listen 127.0.0.1
Timeout 60
MaxClients 600
LogLevel Warning
DisableViaHeader Yes
CONF
}

beside() {
    web_server_aside
}

command_line() {
    command=(tinyproxy -d -c "$state/tinyproxy.conf")
}

answers() {
    http_proxy=http://127.0.0.1:$port http_answers "$port2"
}

load() { # it closes after each answer
    local output rounds
    rounds=$((400 * $2 / $1 + 1))
    output=$("$python" "$here/http_client.py" --close --proxy "127.0.0.1:$port" "http://127.0.0.1:$port2/" "$state/files" \
        "$1" "$rounds") || return
    printf 'rate=%s errors=0\n' "$(grep -oE '[0-9]+ a second' <<<"$output" | cut -d' ' -f1)"
}

check() {
    http_check --proxy "127.0.0.1:$port" "http://127.0.0.1:$port2/" "$state/files"
}
serve "$@"
