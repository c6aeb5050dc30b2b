#!/bin/bash
# OpenLDAP's slapd with its pool of threads: searches and modifications, each answer compared.
# shellcheck source=test/apps/serve.sh
source "$(dirname "$(readlink -f "$0")")/serve.sh"
packages=(slapd ldap-utils)
programs=(slapd ldapsearch)
loads=(1 8 32)
base=dc=example,dc=org
login=(-x -D "cn=admin,$base" -w secret)

prepare() {
    local user i
    user=$(own_user openldap)
    mkdir "$state/db"
    cat >"$state/slapd.conf" <<CONF
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
pidfile $state/db/pid
modulepath /usr/lib/ldap
moduleload back_mdb
threads 16
database mdb
maxsize 268435456
suffix "$base"
rootdn "cn=admin,$base"
rootpw secret
directory $state/db
index objectClass,uid eq
dbnosync
CONF
    {
        printf 'dn: %s\nobjectClass: dcObject\nobjectClass: organization\no: Example\ndc: example\n\n' "$base"
        for ((i = 0; i < 1000; i++)); do
            printf 'dn: uid=u%d,%s\nobjectClass: inetOrgPerson\nuid: u%d\ncn: Person %d\nsn: S%d\ndescription: %0*d\n\n' \
                $i "$base" $i $i $i $((i + 1)) $i
        done
    } >"$state/people.ldif"
    slapadd -q -f "$state/slapd.conf" -l "$state/people.ldif" >"$state/install.log" 2>&1 &&
        give "$user" "$state/db"
}

command_line() {
    local user=()
    ((EUID)) || user=(-u openldap -g openldap)
    command=(slapd -d 0 -h "ldap://127.0.0.1:$port" -f "$state/slapd.conf" "${user[@]}")
}

answers() {
    ldapsearch -x -H "ldap://127.0.0.1:$port" -b "$base" -s base -LLL dn
}

searches() { # FIRST COUNT: one connection; the answers
    seq "$1" $(($1 + $2 - 1)) |
        timeout 60 ldapsearch -x -H "ldap://127.0.0.1:$port" -b "$base" -LLL -o ldif-wrap=no -f /dev/stdin "(uid=u%s)" description
}

load() {
    local i from=$EPOCHREALTIME pids=() errors=0 each=$((2000 * $2 / $1))
    ((each < 900)) || each=900
    for ((i = 0; i < $1; i++)); do
        searches $((i * 3)) "$each" >"$work/found.$i" &
        pids+=($!)
    done
    for i in "${pids[@]}"; do wait "$i" || ((errors++)); done
    (($(cat "$work"/found.* | grep -c '^description:') == each * $1)) || ((errors++))
    rm "$work"/found.*
    awk -v n=$((each * $1)) -v a="$from" -v b="$EPOCHREALTIME" -v e="$errors" \
        'BEGIN { printf "rate=%.0f errors=%d\n", n / (b - a), e }'
}

change() { # FIRST: ten people get another name, which is read back
    local i n
    for ((i = $1; i < $1 + 10; i++)); do
        n=$((i + RANDOM))
        printf 'dn: uid=u%d,%s\nchangetype: modify\nreplace: sn\nsn: S%d\n\n' "$i" "$base" "$n" |
            ldapmodify "${login[@]}" -H "ldap://127.0.0.1:$port" >/dev/null || return
        ldapsearch -x -H "ldap://127.0.0.1:$port" -b "uid=u$i,$base" -LLL sn | grep -qx "sn: S$n" || return
    done
}

check() {
    local i pids=()
    searches 0 1000 | sed -n 's/^description: //p' >"$work/descriptions"
    for ((i = 0; i < 1000; i++)); do printf '%0*d\n' $((i + 1)) $i; done | cmp - "$work/descriptions" || return
    for ((i = 0; i < 8; i++)); do
        change $((i * 20)) &
        pids+=($!)
    done
    for i in "${pids[@]}"; do wait "$i" || return; done
}
serve "$@"
