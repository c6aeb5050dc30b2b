# shellcheck shell=bash
# Sourced by the tests of servers in place of lib.sh: the test, and the steps that it is made of as verbs for tools
# that measure and for looking around by hand.
#
#   NAME.sh [OPTIONS of lib.sh]         the test: natively, then preloaded with each of -c and -i
#   NAME.sh [OPTIONS] [-s DIR] VERB     one step of it
#
#   install             installs what is missing
#   start [preload]     starts the server in the background, natively or with the first of -c and -i
#   ready               waits until it answers
#   load [CONNECTIONS]  loads it for -t seconds; prints `NAME: connections=N rate=R errors=E` (R: requests a second)
#   check               asks for things and compares the answers with what they must be
#   reload              has it reload gracefully, where it can, and waits until it answers
#   status              prints `NAME: pid=P port=P kernel_threads=N descriptors=N`
#   stop                ends it by SIGTERM and removes DIR
#   loads               prints the numbers of connections that suit it
#
# Each verb's status is 0, or 1 with the reason on stderr; 77 where the application is missing. Between two verbs the
# server lives in DIR (default: one for each NAME and user in $TMPDIR): configuration, data, log, pid and port.
#
#   s=test/apps/mariadb.sh; $s -c 2 start preload && $s ready && $s -t 10 load 256 && $s check; $s stop
#
# What a test of a server defines, and then calls `serve "$@"`:
#
#   packages=(...)  programs=(...)   Debian's packages, and programs that are there when they are installed
#   loads=(...)     numbers of connections
#   prepare         makes configuration and data in $state, for $port (and $port2, $port3), the first time
#   command_line    sets command=(...), the server in the foreground
#   answers         0 when it answers
#   load N SECONDS  as the verb; prints `rate=R errors=E`. Natively run, as are the next
#   check           as the verb
#   reload          optional: the same with the pid in $server
#   beside          optional: starts other processes natively, `aside COMMAND...` for each
#   quit_status     optional: the status after SIGTERM (default 0)
#   uninteresting   optional: an extended regular expression for lines of the log that do not count as new

takes_verbs=1
state=''
# shellcheck source=test/apps/lib.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"
quit_status=0
uninteresting='^$'
chmod 711 "$work" # servers change to a user of their own
PATH=$PATH:/usr/sbin:/sbin

reason() {
    printf '%s: %s\n' "$test_name" "$*" >&2
    return 1
}

installed() {
    local i
    for ((i = 0; i < ${#programs[@]}; i++)); do
        need "${programs[i]}" "${packages[i]:-${packages[0]}}"
    done
}

# The user whom a server started by root takes.
own_user() { # USER, one that its package makes
    if ((EUID)); then id -un; else echo "$1"; fi
}

give() { # USER PATH...: what a server writes to belongs to its user
    ((EUID)) || chown -R "$@"
}

ports() { # three below those that the kernel gives to clients
    "$python" - <<'PY'
import random, socket
s = []
while len(s) < 3:
    x = socket.socket()
    x.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        x.bind(("127.0.0.1", random.randrange(10000, 30000)))
        s.append(x)
    except OSError:
        pass
print(*(x.getsockname()[1] for x in s))
PY
}

# --- for those that speak HTTP --------------------------------------------------

site() { # DIR: files of several sizes that differ in each part
    "$python" - "$1" <<'PY'
import os, random, sys
os.makedirs(sys.argv[1])
for size in (0, 1, 100, 1000, 5000, 20000, 70000, 300000):
    with open(f"{sys.argv[1]}/f{size}.txt", "wb") as file:
        file.write(random.Random(size).randbytes(size))
PY
    chmod -R a+rX "$1"
}

http_answers() { # PORT
    "$python" -c 'import sys, urllib.request as u; u.urlopen(sys.argv[1], timeout=5).read()' "http://127.0.0.1:$1/f1.txt"
}

http_check() { # ARGUMENTS of http_client.py, without numbers: kept connections, and one for each request
    timeout 60 "$python" "$here/http_client.py" "$@" 50 30 && timeout 60 "$python" "$here/http_client.py" --close "$@" 20 20
}

http_load() { # CONNECTIONS SECONDS URL [OPTIONS]: by wrk
    wrk -t1 -c"$1" -d"$2s" --timeout 20s "${@:4}" "$3" >"$work/wrk" 2>&1 || {
        cat "$work/wrk"
        return 1
    }
    awk '/Requests.sec/ { r = $2 }
         /Socket errors/ { gsub(",", ""); e += $4 + $6 + $8 + $10 }
         /Non-2xx/ { e += $NF }
         END { printf "rate=%s errors=%d\n", r, e }' "$work/wrk"
}

# A web server for those that stand in front of one: serves $state/files at $port2, natively.
web_server() { # needs nginx
    site "$state/files" || return
    mkdir "$state/web" && give "$(own_user www-data)" "$state/web"
    cat >"$state/web.conf" <<CONF
daemon off;
worker_processes 1;
pid $state/web/pid;
error_log $state/web/error.log;
$( ((EUID)) || echo 'user www-data;')
events { worker_connections 4000; }
http {
    access_log off;
    client_body_temp_path $state/web/body; proxy_temp_path $state/web/proxy;
    fastcgi_temp_path $state/web/fastcgi; uwsgi_temp_path $state/web/uwsgi; scgi_temp_path $state/web/scgi;
    keepalive_requests 1000000;
    server { listen 127.0.0.1:$port2 backlog=4000; root $state/files; add_header Cache-Control "max-age=600"; }
}
CONF
}

web_server_aside() {
    aside nginx -e "$state/web/error.log" -c "$state/web.conf"
    await 10 http_answers "$port2" 2>/dev/null
}

# --- steps --------------------------------------------------

made() { # the state, once
    if [[ ! -f $state/ports ]]; then
        mkdir -p "$state" && chmod 711 "$state" || return
        ports >"$state/ports"
        read -r port port2 port3 <"$state/ports"
        prepare || return
    fi
    # shellcheck disable=SC2034 # the tests use them
    read -r port port2 port3 <"$state/ports"
}

begin() { # "${prefix[@]}" says how
    [[ -f $state/aside ]] || ! declare -F beside >/dev/null || beside || return
    command=()
    command_line
    "${prefix[@]}" "${command[@]}" </dev/null >>"$state/log" 2>&1 &
    server=$!
    echo "$server" >"$state/pid"
}

# A process that lives as long as the state does; it leads a group, as all background processes here (set -m).
aside() { # COMMAND...
    "$@" </dev/null >>"$state/aside.log" 2>&1 &
    echo $! >>"$state/aside"
    disown
}

end_aside() {
    local pid
    [[ -f $state/aside ]] || return 0
    while read -r pid; do kill -TERM -- "-$pid"; done <"$state/aside" 2>/dev/null
    rm "$state/aside"
}

alive() {
    kill -0 "$server" 2>/dev/null
}

await() { # SECONDS CONDITION...
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        ((SECONDS < end)) || return 1
        sleep 0.05
    done
}

answers_or_gone() {
    answers >/dev/null 2>&1 || ! alive
}

ready() {
    await 30 answers_or_gone && alive
}

gone() {
    ! alive
}

kernel_threads() {
    cat "/proc/$server/task"/*/comm 2>/dev/null | wc -l
}

# Open descriptors of the server and its children.
descriptors() {
    local pid all=0 n
    for pid in "$server" $(pgrep -P "$server"); do
        n=$(ls "/proc/$pid/fd" 2>/dev/null | wc -l)
        all=$((all + n))
    done
    echo "$all"
}

# --- the test --------------------------------------------------

declare -A native_rate

log_lines() { # lines that say something is wrong, without what differs from run to run
    grep -iE 'warn|error|fail|crit|alert|emerg|fatal|abort|assert|panic|corrupt|libvthread' "$state/log" |
        grep -vE "$uninteresting" | sed -E 's/0x[0-9a-f]+/X/g; s/[0-9]+/N/g' | sort -u
}

# A step of the test that may hang: in a process of its own, so that the server can be traced meanwhile.
step() { # NAME FUNCTION...: $status, output in $work/step.out
    local saved=("${prefix[@]}")
    prefix=()
    run step "${@:2}"
    prefix=("${saved[@]}")
    ((status)) || return 0
    fail "$label: $1: status $status"
    ((status != 124)) || trace "$server" >"$work/step.trace"
    show step
    tail -n 15 "$state/log" | sed 's/^/        log: /'
    return 1
}

end_server() { # 0 when it ends as it should
    kill -TERM "$server"
    if ! await 30 gone; then
        trace "$server"
        pkill -KILL -P "$server"
        kill -KILL -- "-$server" "$server"
        wait "$server"
        fail "$label: does not end by SIGTERM"
        return 1
    fi
    wait "$server"
    status=$?
    if ((status != quit_status)); then
        fail "$label: ends with status $status after SIGTERM, not $quit_status"
        tail -n 15 "$state/log" | sed 's/^/        log: /'
        return 1
    fi
} 2>/dev/null

bring_up() {
    begin
    children=("$server")
    ready && return
    fail "$label: does not answer"
    alive && trace "$server"
    tail -n 15 "$state/log" | sed 's/^/        log: /'
    end_server
    return 1
}

cycle() { # the server's life, as $label
    local n rate line fds
    : >"$state/log"
    bring_up || return
    if [[ ${#prefix[@]} != 0 ]] && ! grep -qs libvthread "/proc/$server/maps"; then
        fail "$label: the library is not loaded"
    fi
    if step "content" check; then
        local numbers=("${loads[@]}")
        [[ ! $quick ]] || numbers=("${loads[1]}")
        for n in "${numbers[@]}"; do
            step "load of $n" load "$n" "$seconds" || break
            line=$(grep -o 'rate=.*' "$work/step.out")
            rate=${line#rate=} rate=${rate%% *}
            if [[ $line != *errors=0* ]]; then
                fail "$label: load of $n: $line"
                show step
            elif [[ ! ${native_rate[$n]:-} ]]; then
                native_rate[$n]=$rate
                pass "$label: $n connections: $line"
            else
                pass "$label: $n connections: $line (native ${native_rate[$n]})"
            fi
        done
        ((status)) || step "content after the load" check
        if ((!status)) && [[ ! $quick ]]; then
            fds=$(descriptors)
            step "second load" load "${loads[0]}" "$seconds" && await 10 fewer "$((fds + leak_slack))" ||
                fail "$label: $(descriptors) descriptors after $fds"
        fi
        if ((!status)) && declare -F reload >/dev/null; then
            reload && ready || fail "$label: does not answer after a reload"
            step "content after the reload" check
        fi
    fi
    end_server || return
    # the same port at once
    [[ $quick ]] || { bring_up && step "content after the restart" check && end_server; } || return
    pass "$label: stops$([[ $quick ]] || echo ", starts again")"
    if [[ ${#prefix[@]} == 0 ]]; then
        log_lines >"$work/native.lines"
    else
        log_lines | comm -13 "$work/native.lines" - >"$work/new.lines"
        if [[ -s $work/new.lines ]]; then
            fail "$label: the log has lines that it has not natively"
            head -10 "$work/new.lines" | sed 's/^/        /'
        fi
    fi
}
leak_slack=4

fewer() {
    (($(descriptors) <= $1))
}

whole_test() {
    local n back
    state=$work/state
    : "${seconds:=$((quick ? 1 : 2))}"
    trap 'end_aside; clean_up' EXIT
    installed
    label=native
    made || { skip "cannot prepare" && finish; }
    preloaded
    cycle
    if ((failed)); then
        failed=0
        skip "fails natively"
        finish
    fi
    passed=0
    for back in $io; do
        for n in $carriers; do
            label="carriers $n $back"
            preloaded "$n" "$back"
            cycle
        done
    done
    finish
}

serve() { # the arguments that lib.sh left
    if [[ ${1:-} == -s ]]; then
        state=$2
        shift 2
    fi
    (($#)) || whole_test
    : "${state:=${TMPDIR:-/tmp}/vthread-app-$test_name-$UID}"
    local verb=$1 number_of=${2:-${loads[0]}}
    case $verb in
    install) install=1 installed && exit ;;
    loads) echo "${loads[*]}" && exit ;;
    esac
    installed
    if [[ $verb != start ]]; then
        [[ -f $state/pid ]] || { reason "not started" || exit; }
        server=$(<"$state/pid")
    fi
    made || { reason "cannot prepare $state" || exit; }
    case $verb in
    start)
        if [[ -f $state/pid ]] && server=$(<"$state/pid") && alive; then
            reason "runs already: $server" || exit
        fi
        preloaded
        [[ ${2:-} != preload ]] || preloaded "${carriers%% *}" "${io%% *}"
        begin
        disown "$server"
        ;;
    ready)
        ready || reason "does not answer; $state/log: $(tail -1 "$state/log")" || exit
        ;;
    load) printf '%s: connections=%s %s\n' "$test_name" "$number_of" "$(load "$number_of" "${seconds:-10}")" ;;
    check) check || reason "wrong content" || exit ;;
    reload)
        if declare -F reload >/dev/null; then reload && ready; else reason "cannot reload"; fi || exit
        ;;
    status)
        alive || reason "has ended" || exit
        printf '%s: pid=%s port=%s kernel_threads=%s descriptors=%s\n' "$test_name" "$server" "$port" \
            "$(kernel_threads)" "$(descriptors)"
        ;;
    stop)
        kill -TERM "$server" 2>/dev/null
        await 30 gone || { kill -KILL "$server" && reason "had to be killed"; }
        verb=$?
        end_aside
        rm -rf "$state"
        exit $verb
        ;;
    *) reason "no verb $verb; see serve.sh" || exit 2 ;;
    esac
    exit 0
}
