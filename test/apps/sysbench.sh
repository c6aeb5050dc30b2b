#!/bin/bash
# sysbench threads and mutex: a fixed number of events.
# shellcheck source=test/apps/lib.sh
source "$(dirname "$(readlink -f "$0")")/lib.sh"
need sysbench sysbench

counts() {
    grep -E 'Number of threads|total number of events|ERR|FATAL'
}
compare -f counts threads sysbench threads --threads=64 --thread-yields=100 --thread-locks=8 --events=3000 --time=0 run
compare -f counts mutex sysbench mutex --threads=64 --mutex-num=64 --mutex-locks=5000 --mutex-loops=100 run
compare -f counts cpu sysbench cpu --threads=8 --events=2000 --time=0 run
finish
