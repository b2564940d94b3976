# What the tier `vm` runs in its machine: the demo proves each of its scenes, and then a limit holds.
set -e
waybill demo

waybill up --state-dir /root/state --built-in-images busybox >/root/up 2>&1 &
until grep -q '^ready in' /root/up; do
    kill -0 $! || { cat /root/up; exit 1; }
    sleep 1
done
export KUBECONFIG=/root/state/kubeconfig
waybill apply -f - <<'POD'
apiVersion: v1
kind: Pod
metadata: {name: limited}
spec:
  restartPolicy: Never
  containers:
  - {name: main, image: 'waybill.dev/busybox:1', command: [tail, /dev/zero], resources: {limits: {memory: 32Mi}}}
POD
until waybill get pod limited -o json >/root/pod && grep -q '"phase": *"Failed"' /root/pod; do
    sleep 1
done
grep -q '"reason": *"OOMKilled"' /root/pod || { cat /root/pod; exit 1; }
waybill delete pod limited
kill $!
wait $!
