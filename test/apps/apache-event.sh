#!/bin/bash
# Apache with MPM event: apache.sh with the other model.
mpm=event
# shellcheck source=test/apps/apache.sh
source "$(dirname "$(readlink -f "$0")")/apache.sh"
