#!/bin/bash
# An OpenMP program with more threads than processors. libgomp's futex calls are inline and cannot be intercepted.
# shellcheck source=test/apps/lib.sh
source "$(dirname "$(readlink -f "$0")")/lib.sh"
[[ -x $binaries/openmp ]] || { echo "$test_name: skipped: the compiler has no OpenMP" && exit 77; }
export OMP_DYNAMIC=false
for threads in 8 32; do
    OMP_NUM_THREADS=$threads compare "$threads threads" "$binaries/openmp"
    OMP_NUM_THREADS=$threads OMP_WAIT_POLICY=active compare "$threads threads, active" "$binaries/openmp" 20
done
finish
