#!/bin/bash
# Usage: zkServer.sh start-foreground | status
#
# Stands in for the official image's script of that name in the image that scripts/images makes from
# Debian's packages. Takes the ZOO_* variables that compose/ sets, with that image's defaults.
set -eu

data=${ZOO_DATA_DIR:-/data}
id=${ZOO_MY_ID:-1}
servers=${ZOO_SERVERS:-server.1=localhost:2888:3888;2181}

start() {
    mkdir -p "$data"
    echo "$id" >"$data/myid"
    # ZOO_SERVERS and ZOO_CFG_EXTRA hold several settings each, hence no quotes.
    # shellcheck disable=SC2086
    printf '%s\n' \
        "dataDir=$data" \
        "tickTime=${ZOO_TICK_TIME:-2000}" \
        "initLimit=${ZOO_INIT_LIMIT:-5}" \
        "syncLimit=${ZOO_SYNC_LIMIT:-2}" \
        "maxClientCnxns=${ZOO_MAX_CLIENT_CNXNS:-60}" \
        "admin.enableServer=${ZOO_ADMINSERVER_ENABLED:-true}" \
        "4lw.commands.whitelist=${ZOO_4LW_COMMANDS_WHITELIST:-srvr}" \
        $servers \
        ${ZOO_CFG_EXTRA:-} >"$data/zoo.cfg"
    # The jar's manifest names most of what it needs, but not all of Netty and no logger.
    java=/usr/share/java
    exec java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
        -cp "$java/zookeeper.jar:$java/netty-codec.jar:$java/netty-resolver.jar:$java/slf4j-simple.jar" \
        org.apache.zookeeper.server.quorum.QuorumPeerMain "$data/zoo.cfg"
}

# A server says its mode only when it serves: alone, or as a member of a quorum. One that is asked
# while it loads its data may neither answer nor hang up. This starts no Java process to ask with,
# which would be most of a small machine's work.
status() {
    for server in $servers; do
        case $server in "server.$id="*) port=${server##*[;:]} ;; esac
    done
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    printf srvr >&3
    while read -r -t 2 line <&3; do
        case $line in "Mode: "*) echo "$line" && return ;; esac
    done
    echo "there is no server that serves" >&2
    return 1
}

case ${1:-} in
    start-foreground) start ;;
    status) status ;;
    *) sed -n 's/^# Usage: /usage: /p' "$0" >&2 && exit 64 ;;
esac
