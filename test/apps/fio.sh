#!/bin/bash
# fio with its jobs as threads: writes files, reads them back and compares checksums of each block.
# shellcheck source=test/apps/lib.sh
source "$(dirname "$(readlink -f "$0")")/lib.sh"
need fio fio
verdict() {
    grep -oE "err= *[0-9]+" | sort | uniq -c
}
cd "$work" || exit 1 # where it leaves the state of its checks
for engine in psync sync pvsync2 mmap libaio posixaio io_uring; do
    if ! fio --enghelp 2>/dev/null | grep -qw "$engine"; then
        skip "$engine: not in this fio"
        continue
    fi
    depth=1
    [[ $engine != *aio && $engine != io_uring ]] || depth=8
    compare -f verdict "$engine, 8 threads" fio --thread --name=job --numjobs=8 --directory="$work" --ioengine=$engine \
        --iodepth=$depth --rw=randrw --bs=4k --size=1m --verify=crc32c --verify_fatal=1 --fallocate=none
    rm -f job.* ./*-verify.state
done
finish
