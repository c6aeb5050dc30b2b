#!/bin/bash
# Icecast: one source, many listeners that must get what it sends, in order.
# shellcheck source=test/apps/serve.sh
source "$(dirname "$(readlink -f "$0")")/serve.sh"
packages=(icecast2)
programs=(icecast2)
loads=(1 50 300)
uninteresting='send error|error|Client connection'

prepare() {
    local user
    user=$(own_user icecast2)
    mkdir "$state/logs" && give "$user" "$state/logs"
    cat >"$state/icecast.xml" <<XML
<icecast>
  <limits><clients>1000</clients><sources>2</sources><queue-size>4194304</queue-size><burst-size>65536</burst-size></limits>
  <authentication><source-password>secret</source-password><admin-user>admin</admin-user>
    <admin-password>secret</admin-password></authentication>
  <hostname>localhost</hostname>
  <listen-socket><port>$port</port><bind-address>127.0.0.1</bind-address></listen-socket>
  <fileserve>1</fileserve>
  <paths><basedir>$state</basedir><logdir>$state/logs</logdir><webroot>/usr/share/icecast2/web</webroot>
    <adminroot>/usr/share/icecast2/admin</adminroot></paths>
  <logging><accesslog>access.log</accesslog><errorlog>-</errorlog><loglevel>2</loglevel></logging>
  <security><chroot>0</chroot>$( ((EUID)) || echo "<changeowner><user>$user</user><group>icecast</group></changeowner>")</security>
</icecast>
XML
}

command_line() {
    command=(icecast2 -c "$state/icecast.xml")
}

answers() {
    "$python" -c 'import sys, urllib.request as u; u.urlopen(sys.argv[1], timeout=5).read()' \
        "http://127.0.0.1:$port/status-json.xsl"
}

load() { # the rate is KiB a second, which the source limits
    timeout 60 "$python" "$here/icecast_client.py" "$port" "$1" "$2"
}

check() {
    timeout 60 "$python" "$here/icecast_client.py" "$port" 20 1
}
serve "$@"
