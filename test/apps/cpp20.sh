#!/bin/bash
# A C++20 program: thread, jthread, async, condition_variable, semaphore, latch, barrier, atomic::wait, thread_local.
# shellcheck source=test/apps/lib.sh
source "$(dirname "$(readlink -f "$0")")/lib.sh"
[[ -x $binaries/cpp20 ]] || { echo "$test_name: skipped: the compiler has no C++20" && exit 77; }
compare cpp20 "$binaries/cpp20"
finish
