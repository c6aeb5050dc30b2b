#!/bin/bash
# Apache with MPM event: apache.sh with the other model. A process whose threads are all busy closes the connections that it
# keeps, and a request may be on its way there; so each of the four has threads for all connections of a load, however unevenly
# they fall to them.
mpm=event
: "${most:=1024}"
# shellcheck source=test/apps/apache.sh
source "$(dirname "$(readlink -f "$0")")/apache.sh"
