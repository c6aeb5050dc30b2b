#!/bin/bash
# Varnish in front of a web server: hits, passes and misses of a thread a connection.
# shellcheck source=test/apps/serve.sh
source "$(dirname "$(readlink -f "$0")")/serve.sh"
packages=(varnish nginx wrk)
programs=(varnishd nginx wrk)
loads=(1 16 200)

prepare() {
    web_server || return
    cat >"$state/default.vcl" <<VCL
vcl 4.0;
backend default { .host = "127.0.0.1"; .port = "$port2"; }
sub vcl_recv {
    if (req.url ~ "^/pass/") {
        set req.url = regsub(req.url, "^/pass", "");
        return (pass);
    }
}
sub vcl_backend_response {
    if (bereq.url == "/f5000.txt") { set beresp.ttl = 0.05s; set beresp.grace = 0s; }
}
VCL
}

beside() {
    web_server_aside
}

command_line() {
    local jail=()
    ((EUID)) || jail=(-j unix,user=vcache)
    command=(varnishd "${jail[@]}" -F -f "$state/default.vcl" -a "127.0.0.1:$port" -T "127.0.0.1:$port3" -n "$state/varnish"
        -s malloc,64m -p thread_pool_min=50 -p thread_pool_max=500)
}

answers() {
    http_answers "$port"
}

load() {
    http_load "$1" "$2" "http://127.0.0.1:$port/f1000.txt"
}

check() {
    http_check "http://127.0.0.1:$port/" "$state/files" && http_check "http://127.0.0.1:$port/pass/" "$state/files"
}
serve "$@"
