# shellcheck shell=bash
# Sourced by the application tests: runs an unmodified program natively and under the preload and compares.
#
#   NAME.sh [--install] [-l LIBRARY] [-b BINARIES] [-c "CARRIERS..."] [-i "IO..."] [-t SECONDS] [-e NAME=VALUE] [-q]
#
# --install has apt-get install the application when it is missing; without it, the test is skipped (77).
# Servers have verbs besides (start, ready, load, check, stop), for tools that measure: serve.sh says how.
# What fails natively is reported and not counted. A run that takes too long is back-traced by gdb and killed.
# Programs see as standard input what the function got.

set -uo pipefail
set -m # background processes with a group of their own, and with SIGINT not ignored

test_name=$(basename "$0" .sh)
here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
root=$(cd "$here/../.." && pwd)
library=$root/build/libvthread.so
binaries=$root/build/test/apps
install=''
carriers='2 1' # the runs under the preload: VTHREAD_CARRIERS of each
io=auto        # and VTHREAD_IO
seconds=''     # of each load (the tests of servers)
quick=''       # a short form
environment=() # for what runs under the preload
limit=120      # seconds for one run

while (($#)); do
    case $1 in
    --install) install=1 && shift ;;
    -l) library=$2 && shift 2 ;;
    -b) binaries=$2 && shift 2 ;;
    -c) carriers=$2 && shift 2 ;;
    -i) io=$2 && shift 2 ;;
    -t) seconds=$2 && shift 2 ;;
    -q) quick=1 && shift ;;
    -e) environment+=("$2") && shift 2 ;;
    *)
        [[ ${takes_verbs:-} && $1 != --* ]] && break
        echo "usage: $0 [--install] [-l LIBRARY] [-b BINARIES] [-c 'CARRIERS...'] [-i 'IO...'] [-t SECONDS] [-e NAME=VALUE] [-q]" >&2
        exit 2
        ;;
    esac
done
library=$(readlink -f "$library")
if [[ ! -f $library && ! ${1:-} ]]; then
    echo "$test_name: no library: build it first, or say where it is with -l" >&2
    exit 2
fi
# shellcheck disable=SC2034 # the tests use it
bench=$(dirname "$binaries")/bench
python=/usr/bin/python3
[[ -x $python ]] || python=python3

work=$(mktemp -d "${TMPDIR:-/tmp}/vthread-$test_name.XXXXXX") || exit 1
children=()
clean_up() {
    local pid
    for pid in "${children[@]}"; do
        kill -KILL -- "-$pid"
    done 2>/dev/null
    wait 2>/dev/null
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
unset LD_PRELOAD "${!VTHREAD_@}"
ulimit -n "$(ulimit -Hn)"

passed=0 failed=0 skipped=0

pass() {
    ((passed++))
    printf 'ok    %s\n' "$*"
}

fail() {
    ((failed++))
    printf 'FAIL  %s\n' "$*"
}

skip() {
    ((skipped++))
    printf 'skip  %s\n' "$*"
}

finish() {
    printf '%s: %d passed, %d failed, %d skipped\n' "$test_name" $passed $failed $skipped
    ((failed)) && exit 1
    ((passed)) || exit 77
    exit 0
}

get() { # PACKAGES...
    DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@" \
        >"$work/apt.log" 2>&1 || tail -3 "$work/apt.log"
}

# The application, and the package that it comes from.
need() { # COMMAND PACKAGE
    command -v "$1" >/dev/null && return
    if [[ $install ]]; then
        get "$2"
        command -v "$1" >/dev/null && return
    fi
    echo "$test_name: skipped: no $1 (package $2; --install installs it)"
    exit 77
}

prefix=() # what goes in front of a command
preloaded() { # CARRIERS [IO], or nothing for native
    prefix=()
    [[ ! ${1:-} ]] || prefix=(env "${environment[@]}" "$root/scripts/vthread" -l "$library" -c "$1" --io "${2:-auto}" --)
}

# What all the threads of a process and its children are doing.
trace() { # PID
    local pid
    for pid in "$1" $(pgrep -P "$1"); do
        printf -- '--- backtrace of %s (%s)\n' "$pid" "$(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null)"
        if command -v gdb >/dev/null; then
            timeout 60 gdb -p "$pid" -batch -nx -ex 'set pagination off' -ex 'thread apply all bt 24' 2>&1 |
                awk '/^Thread/ { thread = $0; next }
                     /^#0/ { idle = /become_spare/; if (idle) n++; else print thread }
                     /^#/ && !idle
                     END { if (n) print n " idle carriers" }' | head -300
        fi
    done
}

# Runs "${prefix[@]}" COMMAND... with its output in $work/TAG.out and .err; $status is its, 124 when it took too long.
run() { # TAG COMMAND...
    local tag=$1 pid end
    shift
    exec 3<&0
    "${prefix[@]}" "$@" <&3 3<&- >"$work/$tag.out" 2>"$work/$tag.err" &
    pid=$!
    exec 3<&-
    children=("$pid" "${children[@]}")
    end=$((SECONDS + limit))
    {
        while kill -0 "$pid" && ((SECONDS <= end)); do
            sleep 0.05
        done
        if kill -0 "$pid"; then
            trace "$pid" >"$work/$tag.trace"
            kill -KILL -- "-$pid"
            wait "$pid"
            status=124
        else
            wait "$pid"
            status=$?
        fi
    } 2>/dev/null # or bash tells of each that a signal ended
    children=("${children[@]:1}")
}

# What a failed run left.
show() { # TAG
    local part
    for part in out err trace; do
        [[ -s $work/$1.$part ]] || continue
        printf '      %s:\n' "$part"
        if [[ $part == trace ]]; then cat "$work/$1.$part"; else tail -n 15 "$work/$1.$part"; fi | sed 's/^/        /'
    done
}

# Runs COMMAND natively, then under the preload: each must end with 0 and print the same, through FILTER (a function
# or command that reads the output; cat by default). Options in front: -f FILTER.
compare() { # [-f FILTER] NAME COMMAND...
    local filter=cat name n back label started
    if [[ $1 == -f ]]; then
        filter=$2
        shift 2
    fi
    name=$1
    shift
    exec 4<&0
    preloaded
    started=$(date +%s%N)
    run native "$@" <&4
    if ((status)); then
        skip "$name: fails natively (status $status)"
        show native
        return
    fi
    $filter <"$work/native.out" >"$work/native.cmp"
    printf '      %s native: %d ms\n' "$name" $((($(date +%s%N) - started) / 1000000))
    for back in $io; do
        for n in $carriers; do
            preloaded "$n" "$back"
            label="$name, carriers $n"
            [[ $back == auto ]] || label+=" $back"
            started=$(date +%s%N)
            run preload "$@" <&4
            $filter <"$work/preload.out" >"$work/preload.cmp"
            if ((status)); then
                fail "$label: status $status, natively 0"
                show preload
            elif grep -q '^vthread: ' "$work/preload.err"; then
                fail "$name: $(grep -m1 '^vthread: ' "$work/preload.err")"
            elif ! cmp -s "$work/native.cmp" "$work/preload.cmp"; then
                fail "$label: prints something else than natively"
                diff "$work/native.cmp" "$work/preload.cmp" | head -20 | sed 's/^/        /'
            else
                pass "$label: $((($(date +%s%N) - started) / 1000000)) ms"
            fi
        done
    done
    exec 4<&-
}

free_port() {
    "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# Starts "${prefix[@]}" COMMAND..., a server, and waits for its PORT; its pid into $server.
start_server() { # PORT COMMAND...
    local port=$1 i
    shift
    "${prefix[@]}" "$@" </dev/null >"$work/server.out" 2>"$work/server.err" &
    server=$!
    children+=("$server")
    for ((i = 0; i < 200; i++)); do
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && return 0
        kill -0 "$server" 2>/dev/null || break
        sleep 0.05
    done
    return 1
}

# Ends the server by SIGTERM; $status is its, 137 when it had to be killed.
stop_server() {
    local i
    kill -TERM "$server"
    for ((i = 0; i < 200; i++)); do
        kill -0 "$server" || break
        sleep 0.05
    done
    if kill -0 "$server"; then
        trace "$server" >"$work/server.trace"
        kill -KILL -- "-$server"
    fi
    wait "$server"
    status=$?
} 2>/dev/null # or bash tells of each that a signal ended
