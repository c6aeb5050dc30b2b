#!/bin/bash
# unbound with four threads: names of its own over UDP and TCP.
# shellcheck source=test/apps/serve.sh
source "$(dirname "$(readlink -f "$0")")/serve.sh"
packages=(unbound dnsutils dnsperf)
programs=(unbound dig dnsperf)
loads=(1 16 200)

prepare() {
    local i
    {
        cat <<CONF
server:
    num-threads: 4
    interface: 127.0.0.1
    port: $port
    username: "$( ((EUID)) || echo unbound)"
    chroot: ""
    directory: "$state"
    pidfile: "$state/unbound.pid"
    use-syslog: no
    logfile: ""
    do-daemonize: no
    module-config: "iterator"
    incoming-num-tcp: 300
    local-zone: "example.org." static
CONF
        for ((i = 0; i < 500; i++)); do
            printf '    local-data: "h%d.example.org. A 10.1.%d.%d"\n' $i $((i / 256)) $((i % 256))
            printf '    local-data: "h%d.example.org. TXT %s"\n' $i "$(printf 'x%.0s' {1..200})$i"
        done
        printf 'remote-control:\n    control-enable: no\n'
    } >"$state/unbound.conf"
    for ((i = 0; i < 500; i++)); do printf 'h%d.example.org A\n' $i; done >"$state/queries"
}

command_line() {
    command=(unbound -d -c "$state/unbound.conf")
}

answers() {
    dig +time=1 +tries=1 +short @127.0.0.1 -p "$port" h1.example.org A | grep -q 10.1.0.1
}

load() {
    dnsperf -s 127.0.0.1 -p "$port" -d "$state/queries" -l "$2" -c "$1" -T 1 -q 50 >"$work/dnsperf" 2>&1 || {
        cat "$work/dnsperf"
        return 1
    }
    awk '/Queries per second/ { r = $4 }
         /Queries lost/ { e += $3 }
         /Response codes/ && !/NOERROR [0-9]+ \(100/ { e++ }
         END { printf "rate=%.0f errors=%d\n", r, e }' "$work/dnsperf"
}

asked() { # OPTIONS: all names, each answer compared
    local i
    for ((i = 0; i < 500; i++)); do printf 'h%d.example.org A +short\nh%d.example.org TXT +short\n' $i $i; done >"$work/names"
    for ((i = 0; i < 500; i++)); do
        printf '10.1.%d.%d\n"%s%d"\n' $((i / 256)) $((i % 256)) "$(printf 'x%.0s' {1..200})" $i
    done >"$work/expected"
    dig "$@" @127.0.0.1 -p "$port" -f "$work/names" >"$work/answers" && cmp "$work/expected" "$work/answers"
}

check() {
    asked +notcp && asked +tcp
}

reload() {
    kill -HUP "$server"
    sleep 0.5
}
serve "$@"
