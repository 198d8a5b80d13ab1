#!/usr/bin/env bash
# A real S3 server for tests: one Ceph monitor, one OSD with its objects in memory, one radosgw, all on
# loopback and all below one folder.
#
#   tools/radosgw.sh start FOLDER PORT ACCESS_KEY SECRET_KEY    FOLDER is new or empty; PORT+1 is taken too
#   tools/radosgw.sh stop FOLDER                                kills exactly the three processes it started
#
# Needs the packages ceph-mon ceph-osd radosgw ceph-common, and root. The daemons keep the script's output
# open: redirect it to a file, a pipe would never end. Objects are gone after `stop`.
set -euo pipefail

usage() { sed -n '5,6s/^# *//p' "$0" >&2; exit 2; }

stop() {
  local pid file
  for file in "$FOLDER"/radosgw.pid "$FOLDER"/osd.pid "$FOLDER"/mon.pid; do
    [ -f "$file" ] || continue
    pid=$(cat "$file")
    kill -KILL "$pid" 2>/dev/null || true   # nothing of theirs is to be saved
    # The port is free once it is gone, or dead and only waiting for its parent to notice.
    until grep -qs '^State:.[ZX]' "/proc/$pid/status" || [ ! -e "/proc/$pid" ]; do sleep 0.02; done
    rm -f "$file"
  done
}

write_configuration() {
  cat > "$CEPH_CONF" <<CONF
[global]
fsid = $1
mon_host = v2:127.0.0.1:$((PORT + 1))
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_ipv6 = false
run_dir = $FOLDER/run
admin_socket = $FOLDER/run/\$name.asok
log_file = $FOLDER/log/\$name.log
log_to_stderr = false
err_to_stderr = false
keyring = $FOLDER/keyring
# No keys between the daemons; encryption would need them, and radosgw asks for it by default.
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
ms_client_mode = crc
ms_mon_client_mode = crc
# One copy of everything, few placement groups: a pool is made in milliseconds.
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 4
osd_pool_default_pgp_num = 4
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_warn_on_pool_no_redundancy = false
mon_max_pg_per_osd = 2000
paxos_propose_interval = 0.02
paxos_min_wait = 0.01
[mon]
mon_data = $FOLDER/mon
mon_data_avail_crit = 1
mon_data_avail_warn = 2
[osd]
osd_data = $FOLDER/osd
osd_objectstore = memstore
memstore_device_bytes = 4294967296
[client]
rgw_data = $FOLDER/radosgw
# Without tcp_nodelay every small answer waits 40 ms for an acknowledgement.
rgw_frontends = beast endpoint=127.0.0.1:$PORT tcp_nodelay=1
rgw_thread_pool_size = 32
rgw_enable_usage_log = false
rgw_run_sync_thread = false
CONF
}

start() {
  local fsid osd osd_uuid
  mkdir -p "$FOLDER"/{mon,osd,radosgw,run,log}
  fsid=$(cat /proc/sys/kernel/random/uuid)
  osd_uuid=$(cat /proc/sys/kernel/random/uuid)
  write_configuration "$fsid"
  : > "$FOLDER/keyring"
  trap 'stop' ERR

  monmaptool --create --clobber --fsid "$fsid" --addv a "[v2:127.0.0.1:$((PORT + 1))]" "$FOLDER/monmap"
  ceph-mon --mkfs -i a --monmap "$FOLDER/monmap"
  ceph-mon -i a -f &
  echo $! > "$FOLDER/mon.pid"

  osd=$(timeout 60 ceph osd new "$osd_uuid")
  ceph-osd -i "$osd" --mkfs --osd-uuid "$osd_uuid"
  ceph-osd -i "$osd" -f &
  echo $! > "$FOLDER/osd.pid"
  timeout 60 ceph osd crush add "osd.$osd" 1 root=default host=localhost

  timeout 60 radosgw-admin user create --uid=tierdex --display-name=tierdex \
    --access-key="$ACCESS_KEY" --secret-key="$SECRET_KEY" > /dev/null
  radosgw -n client.rgw -f &
  echo $! > "$FOLDER/radosgw.pid"
  for _ in $(seq 3000); do
    if (exec 3<> "/dev/tcp/127.0.0.1/$PORT") 2>/dev/null; then echo ready; return; fi
    sleep 0.02
  done
  echo "radosgw does not answer on port $PORT; its log is in $FOLDER/log" >&2
  stop
  exit 1
}

[ $# -ge 2 ] || usage
FOLDER=$2
export CEPH_CONF=$FOLDER/ceph.conf
case $1 in
  start) [ $# -eq 5 ] || usage; PORT=$3 ACCESS_KEY=$4 SECRET_KEY=$5; start ;;
  stop) stop ;;
  *) usage ;;
esac
