#!/bin/bash
# Apache with threads (MPM worker and event): files, a graceful restart, connections that are kept and that are not.
# shellcheck source=test/apps/serve.sh
source "$(dirname "$(readlink -f "$0")")/serve.sh"
packages=(apache2 wrk)
programs=(apache2 wrk)
loads=(1 16 200)
: "${mpm:=worker}" # or event: apache-event.sh
: "${most:=256}"   # connections, in four processes
# said by each restart
uninteresting='AH00098|AH00558'

prepare() {
    local modules=/usr/lib/apache2/modules name user
    user=$(own_user www-data)
    site "$state/files" || return
    mkdir "$state/logs"
    {
        printf 'ServerRoot %s\nDefaultRuntimeDir %s\nPidFile %s/httpd.pid\n' "$state" "$state" "$state"
        for name in "mpm_$mpm" authz_core mime dir; do
            printf 'LoadModule %s_module %s/mod_%s.so\n' "$name" "$modules" "$name"
        done
        ((EUID)) || printf 'User %s\nGroup %s\n' "$user" "$(id -gn "$user")"
        cat <<CONF
ServerName localhost
Listen 127.0.0.1:$port
ErrorLog $state/log
LogLevel warn
TypesConfig /etc/mime.types
DocumentRoot $state/files
<Directory />
    Require all granted
</Directory>
StartServers 4
ServerLimit 8
ListenBacklog 4000
ThreadsPerChild $((most / 4))
ThreadLimit $((most / 4))
MaxRequestWorkers $most
MinSpareThreads 1
MaxSpareThreads $most
MaxKeepAliveRequests 0
KeepAliveTimeout 5
GracefulShutdownTimeout 5
CONF
    } >"$state/httpd.conf"
}

command_line() {
    command=(apache2 -f "$state/httpd.conf" -DFOREGROUND)
}

answers() {
    http_answers "$port"
}

load() {
    http_load "$1" "$2" "http://127.0.0.1:$port/f1000.txt"
}

check() {
    http_check "http://127.0.0.1:$port/" "$state/files"
}

reload() { # as apachectl graceful, twice, under load
    local client
    http_load 20 3 "http://127.0.0.1:$port/f5000.txt" >"$work/reload" &
    client=$!
    sleep 0.5
    kill -USR1 "$server"
    sleep 1
    kill -USR1 "$server"
    wait "$client"
    ! grep -q rate=0 "$work/reload"
}
serve "$@"
