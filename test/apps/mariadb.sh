#!/bin/bash
# MariaDB with a thread a connection: sysbench's read-write transactions, transfers that keep a sum, read-back.
# shellcheck source=test/apps/serve.sh
source "$(dirname "$(readlink -f "$0")")/serve.sh"
packages=(mariadb-server mariadb-client sysbench)
programs=(mariadbd mariadb-slap sysbench)
loads=(16 256 1000)
: "${threads:=one-thread-per-connection}" # or pool-of-threads: mariadb-pool.sh
: "${most:=1000}" # connections
# connections that a client left; deleted records that are still in an index when the tables are checked
uninteresting='Aborted connection|proxies_priv|Clustered index record not found .*info_bits=32'

sql() { # as root, one statement or several; the answer without headings
    mariadb --no-defaults --default-character-set=utf8mb4 -uroot -S "$state/data/socket" -N -B "$@"
}

prepare() {
    local user
    user=$(own_user mysql)
    mkdir "$state/data" && give "$user" "$state/data" || return
    mariadb-install-db --no-defaults --user="$user" --datadir="$state/data" \
        --auth-root-authentication-method=normal --skip-test-db >"$state/install.log" 2>&1 || return
    cat >"$state/my.cnf" <<CNF
[mysqld]
user=$user
datadir=$state/data
socket=$state/data/socket
pid-file=$state/data/pid
tmpdir=$state/data
bind-address=127.0.0.1
port=$port
skip-name-resolve
skip-log-bin
character-set-server=utf8mb4
collation-server=utf8mb4_general_ci
thread_handling=$threads
max_connections=$((most + 200))
back_log=$most
max_prepared_stmt_count=100000
innodb_buffer_pool_size=64M
innodb_flush_log_at_trx_commit=2
CNF
}

command_line() {
    command=(mariadbd --defaults-file="$state/my.cnf")
}

answers() {
    sql -e 'select 1' && fill
}

# The tables, once: for sysbench, a sum that transfers keep, and contents that say what they are.
fill() {
    [[ ! -f $state/filled ]] || return 0
    sql <<'SQL' && bench prepare >"$state/fill.log" 2>&1 && touch "$state/filled"
create or replace database app;
create user if not exists app@'127.0.0.1' identified by 'app';
grant all on app.* to app@'127.0.0.1';
use app;
create table account (id int primary key, amount bigint not null) engine=innodb;
insert into account select seq, 1000 from seq_1_to_100;
create table texts (id int primary key, body mediumtext not null, sum char(32) not null) engine=innodb;
insert into texts select seq, repeat(concat('text ', seq, '/'), seq * 10), '' from seq_1_to_300;
update texts set sum = md5(body);
delimiter //
create procedure transfer() begin
    declare a, b int;
    declare exit handler for 1213, 1205 rollback;
    set a = 1 + floor(rand() * 100), b = 1 + floor(rand() * 100);
    start transaction;
    update account set amount = amount - 1 where id = a;
    update account set amount = amount + 1 where id = b;
    if (select count(*) from texts where id between a and a + 5 and md5(body) <> sum) > 0 then
        signal sqlstate '45000' set message_text = 'a wrong text';
    end if;
    commit;
end //
SQL
}

bench() { # SYSBENCH ARGUMENTS
    sysbench oltp_read_write --db-driver=mysql --mysql-host=127.0.0.1 --mysql-port="$port" --mysql-user=app \
        --mysql-password=app --mysql-db=app --tables=4 --table-size=5000 "$@"
}

load() {
    bench --threads="$1" --time="$2" run >"$work/sysbench" 2>&1 || {
        cat "$work/sysbench"
        return 1
    }
    awk '/transactions:/ { split($3, rate, "("); r = rate[2] }
         /reconnects:/ { e += $2 }
         /FATAL|ERROR/ { e++ }
         END { printf "rate=%s errors=%d\n", r, e }' "$work/sysbench"
}

check() {
    local sum
    mariadb-slap --no-defaults -h127.0.0.1 -P"$port" -uapp -papp --create-schema=app --no-drop --concurrency=32 \
        --number-of-queries=640 --delimiter=';' --query='call transfer()' >"$work/slap" 2>&1 || {
        cat "$work/slap"
        return 1
    }
    sum=$(sql app -e 'select sum(amount) from account; select count(*) from texts where md5(body) = sum;
        select count(*) from sbtest1; check table account, texts, sbtest1, sbtest2, sbtest3, sbtest4 extended') || return
    [[ $(head -3 <<<"$sum" | tr '\n' ' ') == "100000 300 5000 " ]] && (($(grep -c 'status.OK' <<<"$sum") == 6)) && return
    printf '%s\n' "$sum"
    return 1
}
serve "$@"
