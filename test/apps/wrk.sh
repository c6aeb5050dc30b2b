#!/bin/bash
# wrk, whose threads wait in epoll, as a client under the preload; the server runs natively.
# shellcheck source=test/apps/lib.sh
source "$(dirname "$(readlink -f "$0")")/lib.sh"
need wrk wrk
need "$python" python3
port=$(free_port)
preloaded
start_server "$port" "$python" "$here/http_delay.py" "$port" 0.002 || { skip "no server" && finish; }
# natively and preloaded alike: requests are answered, and none otherwise than with 200
verdict() {
    awk "/requests in/ { print (\$1 > 0 ? \"answered\" : \"none\") } /Socket errors|Non-2xx/"
}
compare -f verdict "4 threads, 64 connections" wrk -t4 -c64 -d2s --timeout 20s "http://127.0.0.1:$port/"
stop_server
finish
