#!/bin/bash
# MariaDB with its pool of threads: mariadb.sh with the other model.
threads=pool-of-threads
# shellcheck source=test/apps/mariadb.sh
source "$(dirname "$(readlink -f "$0")")/mariadb.sh"
