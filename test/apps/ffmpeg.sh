#!/bin/bash
# ffmpeg: encoders, decoders and filters with threads. x264's output is not always the same to the bit, natively either; so
# it encodes without loss here, and what comes back must be the same.
# shellcheck source=test/apps/lib.sh
source "$(dirname "$(readlink -f "$0")")/lib.sh"
need ffmpeg ffmpeg
export source="-f lavfi -i testsrc2=size=320x240:rate=25:duration=4" quiet="-hide_banner -loglevel error -nostdin -y"

there_and_back() { # NAME ENCODER...
    if [[ $(ffmpeg -hide_banner -encoders 2>/dev/null) != *" $2 "* ]]; then
        skip "$1: not in this ffmpeg"
        return
    fi
    # shellcheck disable=SC2016 # the inner shell's
    compare "$1" bash -c 'set -o pipefail
        ffmpeg $quiet $source -pix_fmt yuv420p -c:v "$@" -f nut - |
            ffmpeg $quiet -threads 8 -i - -f framemd5 -' - "${@:2}"
}
for threads in 4 16; do
    there_and_back "x264, $threads threads" libx264 -threads $threads -preset veryfast -qp 0
done
there_and_back "ffv1, 8 threads" ffv1 -threads 8 -slices 9 -level 3
# shellcheck disable=SC2086 # words
compare "filters in threads" ffmpeg $quiet -filter_threads 4 $source -vf gblur=2,hqdn3d,unsharp,hflip -f framemd5 -
finish
