#!/bin/bash
# Python's http.server, a thread for each connection, which is kept.
# shellcheck source=test/apps/serve.sh
source "$(dirname "$(readlink -f "$0")")/serve.sh"
packages=(python3 wrk)
programs=("$python" wrk)
loads=(1 16 200)
# each request is logged
uninteresting='.'
quit_status=143

prepare() {
    site "$state/files"
}

command_line() {
    command=("$python" -c "import functools, http.server as h
handler = type('Handler', (h.SimpleHTTPRequestHandler,), {'protocol_version': 'HTTP/1.1', 'log_message': lambda *_: None})
server = type('Server', (h.ThreadingHTTPServer,), {'request_queue_size': 4000})
server(('127.0.0.1', $port), functools.partial(handler, directory='$state/files')).serve_forever()")
}

answers() {
    http_answers "$port"
}

load() {
    http_load "$1" "$2" "http://127.0.0.1:$port/f1000.txt"
}

check() {
    http_check "http://127.0.0.1:$port/" "$state/files"
}
serve "$@"
