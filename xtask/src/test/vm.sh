# What the tier `vm` runs in its machine: the demo proves each of its scenes, then a limit holds, and then attacks from inside a
# container meet what they meet on other kernels. Here there is cgroup v2 alone.
set -e
waybill demo

waybill up --state-dir /root/state --built-in-images busybox --node-flag=--pod-max-pids=64 >/root/up 2>&1 &
up=$!
until grep -q '^ready in' /root/up; do
    kill -0 $up || { cat /root/up; exit 1; }
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

# No profile, so that nothing but the layout of cgroups stops the attacks.
waybill apply -f - <<'POD'
apiVersion: v1
kind: Pod
metadata: {name: attacker}
spec:
  terminationGracePeriodSeconds: 0
  securityContext: {seccompProfile: {type: Unconfined}}
  volumes: [{name: attacks, hostPath: {path: /bin}}]
  containers:
  - {name: main, image: 'waybill.dev/busybox:1', command: [sleep, '3600'], volumeMounts: [{name: attacks, mountPath: /attacks, readOnly: true}]}
POD
until waybill exec attacker -- true 2>/dev/null; do
    sleep 1
done
# Prints what an attack said; fails unless it was stopped, and stopped by this.
stopped() {
    expected=$1
    shift
    code=0
    waybill exec attacker -- "$@" >/root/said 2>&1 </dev/null || code=$?
    cat /root/said
    [ $code != 0 ] && grep -q "$expected" /root/said || { echo "not stopped by '$expected' (code $code): $*"; exit 1; }
}
attack=/attacks/waybill-hostile

# A program of the machine alone, by way of whatever directory a session's process was given.
cp /bin/busybox /root/busybox
for fd in $(seq 3 17); do
    stopped 'no such file\|not a directory\|permission denied' /proc/self/fd/$fd/../../../../../../../../root/busybox echo escaped
done

# What moves the machine or belongs to it alone, and what a session was not given on purpose.
stopped 'no file of the machine can be written' $attack levers
stopped 'nothing of the machine is shown' $attack hidden
stopped 'no release_agent can be written' $attack release-agent
stopped 'nothing else is open' $attack descriptors
stopped 'the working directory is /' $attack outer-directory

# Somebody else's session, whose cgroup is neither seen nor entered.
waybill exec attacker -- sleep 3601 >/dev/null 2>&1 </dev/null &
victim=$!
until waybill exec attacker -- ps | grep -q 'sleep 3601'; do
    sleep 1
done
stopped 'no other cgroup is below' $attack cgroups-see
stopped 'no cgroup is called exec' $attack cgroups-enter exec

# Limits that the attacker reaches are its own copies, if any; those of the pod hold, its sessions included.
waybill exec attacker -- $attack cgroups-lift </dev/null || true
stopped 'Resource temporarily unavailable' $attack fork-until-refused 100
kill $victim
waybill delete pod attacker
kill $up
wait $up
