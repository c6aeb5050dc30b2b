#!/bin/bash
# A Rust program: std::thread, scope, mpsc, Mutex, Condvar, RwLock, Barrier, park, thread_local (all futex calls).
# shellcheck source=test/apps/lib.sh
source "$(dirname "$(readlink -f "$0")")/lib.sh"
command -v rustc >/dev/null || { echo "$test_name: skipped: no rustc" && exit 77; }
rustc --edition 2021 -O -o "$work/rust" "$here/rust.rs" 2>"$work/rustc.err" || {
    echo "$test_name: skipped: this rustc does not compile the program: $(head -3 "$work/rustc.err")"
    exit 77
}
compare rust "$work/rust"
finish
