#!/bin/bash
# Perl's interpreter threads: shared data, conditions, queues, signals, sockets, children.
# shellcheck source=test/apps/lib.sh
source "$(dirname "$(readlink -f "$0")")/lib.sh"
perl=/usr/bin/perl
[[ -x $perl ]] || perl=perl
need "$perl" perl
if ! "$perl" -Mthreads -e 1 2>/dev/null; then
    echo "$test_name: skipped: this perl is built without threads"
    exit 77
fi
compare "30 threads" "$perl" "$here/threads.pl" 30
finish
