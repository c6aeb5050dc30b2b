#!/bin/bash
# nginx with pools of threads that read the files (aio threads), a reload under load.
# shellcheck source=test/apps/serve.sh
source "$(dirname "$(readlink -f "$0")")/serve.sh"
packages=(nginx wrk)
programs=(nginx wrk)
loads=(1 16 200)
uninteresting='could not open error log file'

prepare() {
    site "$state/files" || return
    mkdir "$state/tmp" && give "$(own_user www-data)" "$state/tmp"
    cat >"$state/nginx.conf" <<CONF
daemon off;
worker_processes 2;
pid $state/nginx.pid;
error_log $state/log warn;
$( ((EUID)) || echo 'user www-data;')
thread_pool files threads=32 max_queue=65536;
events { worker_connections 2000; }
http {
    access_log off;
    client_body_temp_path $state/tmp/body; proxy_temp_path $state/tmp/proxy;
    fastcgi_temp_path $state/tmp/fastcgi; uwsgi_temp_path $state/tmp/uwsgi; scgi_temp_path $state/tmp/scgi;
    keepalive_requests 1000000;
    sendfile off;
    aio threads=files;
    output_buffers 2 32k;
    server { listen 127.0.0.1:$port; root $state/files; }
}
CONF
}

command_line() {
    command=(nginx -e "$state/log" -c "$state/nginx.conf")
}

answers() {
    http_answers "$port"
}

load() {
    http_load "$1" "$2" "http://127.0.0.1:$port/f20000.txt"
}

check() {
    http_check "http://127.0.0.1:$port/" "$state/files"
}

reload() {
    local client
    http_load 20 2 "http://127.0.0.1:$port/f5000.txt" >"$work/reload" &
    client=$!
    sleep 0.5
    kill -HUP "$server"
    wait "$client"
    ! grep -q rate=0 "$work/reload"
}
serve "$@"
