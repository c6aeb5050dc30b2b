#!/bin/bash
# Ruby's threads, which one lock lets run in turns: locks, queues, interruption, sockets, Net::HTTP, children.
# shellcheck source=test/apps/lib.sh
source "$(dirname "$(readlink -f "$0")")/lib.sh"
need ruby ruby
compare "100 threads" ruby "$here/threads.rb" 100
[[ $quick ]] || compare "1,000 threads" ruby "$here/threads.rb" 1000
finish
