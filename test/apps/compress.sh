#!/bin/bash
# pigz, xz -T4 and zstd -T4: compressed as natively, bit for bit, and back again; by file and by pipe.
# shellcheck source=test/apps/lib.sh
source "$(dirname "$(readlink -f "$0")")/lib.sh"

"$python" - "$work/data" <<'PY'
import random, sys
random.seed(7)
words = [bytes(random.choices(b"abcdefghijklmnop ", k=random.randint(2, 12))) for _ in range(5000)]
with open(sys.argv[1], "wb") as f:
    for _ in range(14):
        f.write(b"".join(random.choices(words, k=40000)))
        f.write(random.randbytes(20000))
PY
[[ -s $work/data ]] || { echo "no data" && exit 1; }

# "sh -c" so that the pipe's ends are under the preload too
round_trip() { # NAME COMPRESS DECOMPRESS
    compare -f sha256sum "$1 file" sh -c "$2 <'$work/data'"
    compare -f sha256sum "$1 pipe" sh -c "cat '$work/data' | $2 | cat"
    cp "$work/native.out" "$work/packed"
    compare -f sha256sum "$1 back" sh -c "$3 <'$work/packed'"
    if cmp -s "$work/preload.out" "$work/data"; then
        pass "$1 round trip"
    else
        fail "$1 round trip: not what went in"
    fi
}
tried=0
for tool in pigz xz zstd; do
    command -v $tool >/dev/null || (need $tool "${tool/%xz/xz-utils}") || continue
    ((tried++))
    case $tool in
    pigz) round_trip pigz "pigz -p8 -b128 -n -c" "pigz -d -c" ;;
    xz) round_trip xz "xz -T4 -1 --block-size=1MiB -c" "xz -T4 -d -c" ;;
    zstd) round_trip zstd "zstd -T4 -7 -B1MB -q -c" "zstd -d -q -c" ;;
    esac
done
((tried)) || exit 77
finish
