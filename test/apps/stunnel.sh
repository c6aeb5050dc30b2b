#!/bin/bash
# stunnel, a thread a connection, TLS in front of a web server.
# shellcheck source=test/apps/serve.sh
source "$(dirname "$(readlink -f "$0")")/serve.sh"
packages=(stunnel4 nginx wrk openssl)
programs=(stunnel4 nginx wrk openssl)
loads=(1 16 200)
# it asks for SCHED_BATCH for one of its threads
uninteresting='LOG[3-7]|SSL_read|Connection reset|pthread_setschedparam'

prepare() {
    web_server || return
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout "$state/key.pem" \
        -out "$state/cert.pem" 2>/dev/null || return
    chmod 600 "$state/key.pem"
    cat >"$state/stunnel.conf" <<CONF
foreground = yes
pid = $state/stunnel.pid
debug = 4
output = $state/log
cert = $state/cert.pem
key = $state/key.pem
TIMEOUTclose = 0
[web]
accept = 127.0.0.1:$port
connect = 127.0.0.1:$port2
CONF
}

beside() {
    web_server_aside
}

command_line() {
    command=(stunnel4 "$state/stunnel.conf")
}

answers() {
    "$python" -c 'import ssl, sys, urllib.request as u
u.urlopen(sys.argv[1], timeout=5, context=ssl._create_unverified_context()).read()' "https://127.0.0.1:$port/f1.txt"
}

load() {
    http_load "$1" "$2" "https://127.0.0.1:$port/f1000.txt"
}

check() {
    http_check --tls "https://127.0.0.1:$port/" "$state/files"
}
serve "$@"
