#!/bin/bash
# Node: worker_threads, and the thread pool that its files, names, zlib and crypto go through.
# shellcheck source=test/apps/lib.sh
source "$(dirname "$(readlink -f "$0")")/lib.sh"
need node nodejs
major=$(node -p "process.versions.node.split(\".\")[0]")
if ((major < 14)); then
    echo "$test_name: skipped: node $major is too old for the program (14)"
    exit 77
fi
compare "12 workers" node "$here/threads.mjs" 12
[[ $quick ]] || UV_THREADPOOL_SIZE=64 compare "12 workers, 64 threads in the pool" node "$here/threads.mjs" 12
finish
