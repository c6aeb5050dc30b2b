#!/bin/bash
# OpenJDK: platform threads that sleep, lock, wait for each other and talk through sockets; safepoints.
# shellcheck source=test/apps/lib.sh
source "$(dirname "$(readlink -f "$0")")/lib.sh"
need java openjdk-17-jdk-headless
need javac openjdk-17-jdk-headless
javac -d "$work" "$here/platform_threads.java" 2>"$work/javac.err" || {
    echo "$test_name: skipped: this javac does not compile the program: $(head -3 "$work/javac.err")"
    exit 77
}
# The serial collector's threads are few; the default's, as many as processors, work at the same time as Java's.
compare "200 threads" java -XX:+UseSerialGC -cp "$work" PlatformThreads 200
if [[ ! $quick ]]; then
    limit=400
    compare "1,000 threads, G1" java -XX:+UseG1GC -cp "$work" PlatformThreads 1000
    compare "5,000 threads asleep" java -Xmx512m -cp "$work" PlatformThreads 5000
fi
finish
