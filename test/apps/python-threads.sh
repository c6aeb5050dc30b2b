#!/bin/bash
# python3 with 10,000 threading.Thread objects that sleep at the same time.
# shellcheck source=test/apps/lib.sh
source "$(dirname "$(readlink -f "$0")")/lib.sh"
need "$python" python3

counts() {
    grep -oE ' (n|woken)=[0-9]+'
}
figures() {
    grep -oE '(seconds|kernel_threads|peak_rss_kb)=[^ ]*' "$work/preload.out" | tr '\n' ' '
}
compare -f counts "10,000 threads" "$python" "$root/test/bench/threads.py" 10000 3
printf '      last run: %s\n' "$(figures)"
finish
