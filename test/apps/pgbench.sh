#!/bin/bash
# PostgreSQL's pgbench with threads (-j), against a cluster of its own that runs natively: PostgreSQL itself has a
# process for each connection, and nothing to gain.
# shellcheck source=test/apps/lib.sh
source "$(dirname "$(readlink -f "$0")")/lib.sh"
PATH=$PATH:$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -1)
need pgbench postgresql
need initdb postgresql
chmod 711 "$work"
as=()
if ((!EUID)); then # PostgreSQL refuses to run as root
    id postgres >/dev/null 2>&1 || { echo "$test_name: skipped: root, and no user postgres" && exit 77; }
    as=(setpriv --reuid=postgres --regid=postgres --clear-groups --)
fi
mkdir "$work/cluster" "$work/socket"
((EUID)) || chown postgres "$work/cluster" "$work/socket"
port=$(free_port)
(cd / && "${as[@]}" "$(command -v initdb)" -D "$work/cluster" -A trust -U postgres --no-sync) >"$work/initdb.out" 2>&1 || {
    skip "initdb fails: $(tail -1 "$work/initdb.out")"
    finish
}
preloaded
cd / && start_server "$port" "${as[@]}" "$(command -v postgres)" -D "$work/cluster" -k "$work/socket" -p "$port" \
    -c listen_addresses=127.0.0.1 -c max_connections=200 -c fsync=off || {
    skip "no server: $(tail -1 "$work/server.err")"
    finish
}
to=(-h 127.0.0.1 -p "$port" -U postgres postgres)
await_sql() {
    local i
    for ((i = 0; i < 200; i++)); do
        psql "${to[@]}" -c 'select 1' >/dev/null 2>&1 && return
        sleep 0.05
    done
}
await_sql
pgbench -i -q -s 4 "${to[@]}" >"$work/init.out" 2>&1 || { skip "pgbench -i: $(tail -1 "$work/init.out")" && finish; }

# What pgbench says of its transactions; and the accounts must agree with the history of what was done to them.
verdict() {
    grep -E '^number of (clients|threads|transactions|failed)'
    psql -At "${to[@]}" -c 'select (select sum(abalance) from pgbench_accounts) = sum(delta)
        and (select sum(tbalance) from pgbench_tellers) = sum(delta)
        and (select sum(bbalance) from pgbench_branches) = sum(delta) from pgbench_history' 2>&1
}
each=$((quick ? 50 : 200))
compare -f verdict "4 threads, 16 clients" pgbench -n -c 16 -j 4 -t $each "${to[@]}"
compare -f verdict "64 threads, 64 clients" pgbench -n -c 64 -j 64 -t $((each / 2)) -M prepared "${to[@]}"
compare -f verdict "a connection for each transaction" pgbench -n -c 16 -j 16 -C -t $((each / 5)) "${to[@]}"
compare -f verdict "at a rate" pgbench -n -c 20 -j 20 -R 1000 -t 20 -S "${to[@]}"
kill -INT "$server"
wait "$server" 2>/dev/null
finish
