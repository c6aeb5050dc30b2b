#!/bin/bash
# Servers of a thread a connection, and one on epoll, under a client that checks each answer.
# shellcheck source=test/apps/lib.sh
source "$(dirname "$(readlink -f "$0")")/lib.sh"
[[ -x $bench/load ]] || { echo "$test_name: skipped: no $bench/load" && exit 77; }
limit=60

exchange() { # NAME CONNECTIONS "LOAD OPTIONS" SECONDS SERVER [ARGUMENTS AFTER PORT...]
    local name=$1 conns=$2 options=$3 seconds=$4 program=$5 port line client
    shift 5
    port=$(free_port)
    if ! start_server "$port" "$bench/$program" "$port" "$@"; then
        fail "$name: does not listen"
        show server
        return 1
    fi
    local saved=("${prefix[@]}")
    prefix=()
    # shellcheck disable=SC2086 # options are words
    run client "$bench/load" $options "$port" "$conns" "$seconds"
    client=$status
    prefix=("${saved[@]}")
    ((client != 124)) || trace "$server"
    line=$(grep '^load conns' "$work/client.out")
    stop_server
    if ((client)) || [[ $line != *" errors=0 "* || $line == *" requests=0 "* ]]; then
        fail "$name: client's status $client: $line"
        show server
        return 1
    fi
    if ((status != 143)); then
        fail "$name: the server ended with $status and not by SIGTERM"
        show server
        return 1
    fi
    pass "$name: $(grep -oE '(requests|req_s|p95_us)=[^ ]*' <<<"$line" | tr '\n' ' ')"
}
exchanges() { # NAME-PREFIX
    exchange "$1 echo, thread a connection" 200 "" 2 echo_tpc
    exchange "$1 echo, small stacks" 50 "" 1 echo_tpc 64
    exchange "$1 echo of 16 KB" 50 "-s 16000" 1 echo_tpc
    exchange "$1 echo, a connection a request" 50 "-1" 1 echo_tpc
    exchange "$1 echo, epoll" 200 "" 1 echo_epoll 3
    exchange "$1 delay, thread a connection" 500 "-1 -n 2000" 30 delay_tpc 100
    exchange "$1 delay, pool" 100 "-1 -n 1000" 30 delay_tpc 50 50
}
preloaded
exchanges native
if ((failed)); then
    failed=0
    skip "fails natively"
    finish
fi
passed=0
for n in $carriers; do
    preloaded "$n"
    exchanges "carriers $n"
done
finish
