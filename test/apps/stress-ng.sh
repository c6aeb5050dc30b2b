#!/bin/bash
# stress-ng's thread stressors, short: they check themselves.
# shellcheck source=test/apps/lib.sh
source "$(dirname "$(readlink -f "$0")")/lib.sh"
need stress-ng stress-ng

verdict() {
    grep -oE 'successful run completed|unsuccessful|[0-9]+ failed' | sort -u
}
stressor() { # NAME OPTIONS...
    local name=$1
    shift
    # its messages are on stderr in some versions, on stdout in others
    # shellcheck disable=SC2016 # for the inner shell
    compare -f verdict "$name" bash -c 'exec 2>&1; exec stress-ng --verify --temp-path "$0" "$@"' "$work" "$@"
}
stressor pthread --pthread 2 --pthread-max 256 -t 2
stressor mutex --mutex 2 --mutex-procs 16 -t 2
stressor sem --sem 2 --sem-procs 16 -t 2
stressor futex --futex 2 -t 2
finish
