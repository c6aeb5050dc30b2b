#!/bin/bash
# Python's http.server and socketserver with a thread for each request, and concurrent.futures.
# shellcheck source=test/apps/lib.sh
source "$(dirname "$(readlink -f "$0")")/lib.sh"
need "$python" python3
compare "50 clients" "$python" "$here/python_servers.py" 50
[[ $quick ]] || compare "1,000 clients" "$python" "$here/python_servers.py" 1000
finish
