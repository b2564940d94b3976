#!/bin/bash
# Writes hostile.txt anew, from a real run: two people in one container, one of whom hides. `cargo xtask gen` makes hostile.svg of it.
#
#   sudo waybill up &
#   kubectl apply -f examples/pod.yaml
#   sudo docs/pictures/hostile.sh /var/lib/waybill > docs/pictures/hostile.txt
#
# Times are milliseconds since the first line. Each command runs as it is shown, but for the directory of the cluster.
set -eu
state=$1
export KUBECONFIG=$state/kubeconfig
began=$(date +%s%3N)

stamp() { echo -n "$(($(date +%s%3N) - began)) "; }
# A command and what it said, line by line. `sudo` is what a person would need; this script is root.
run() {
    stamp; echo "\$ $1"
    local words=${1//waybill trace/waybill trace --state-dir $state}
    { eval "${words//sudo /}" 2>&1 || true; } | while IFS= read -r line; do stamp; echo "  $line"; done
}
say() { stamp; echo "# $1"; }

for user in anna ben; do
    kubectl create clusterrolebinding "picture-$user" --clusterrole=edit --user="$user" > /dev/null
done
trap 'kubectl delete clusterrolebinding picture-anna picture-ben > /dev/null' EXIT

say "Anna and Ben are in one container. Ben empties his environment,"
say "leaves the session, and disconnects; his program goes on."
run "kubectl --as=anna exec web -- sh -c 'sleep 901 >&- 2>&- &'"
run "kubectl --as=ben exec web -- env -i setsid sh -c 'sleep 902 >&- 2>&- &'"
say "Later: two processes, and nobody is connected any more. Whose are they?"
run "pgrep -af 'sleep 90[12]'"
pid=$(pgrep -f '^sleep 902')
run "sudo grep -c AUDIT_ID /proc/$pid/environ"
say "The process does not tell. Its cgroup does:"
run "sudo waybill trace --pid $pid | cut -c-83"
kill $(pgrep -f '^sleep 90[12]')
