# What the tier `vm` runs in its machine: the demo proves each of its scenes, a limit holds, nothing that holds a value is swapped, a pod
# has users of its own, and then attacks from inside containers meet what they meet on other kernels. Here there is cgroup v2 alone.
set -e
# From the beginning: roles look when they start whether there is any. Not more than can be searched in an emulated machine.
mkswap /dev/vdb 49152 >/dev/null
swapon /dev/vdb
waybill demo

# Roles share a cgroup with a process like any other, so that the kernel can be told to take their memory away.
roles=/sys/fs/cgroup/roles
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
mkdir $roles
# On ext4: what lies on a tmpfs cannot be shown to other users before Linux 6.3.
sh -c 'echo $$ >$0/cgroup.procs && exec "$@"' $roles \
    waybill up --state-dir /var/state --built-in-images busybox --node-flag=--pod-max-pids=64 >/root/up 2>&1 &
up=$!
until grep -q '^ready in' /root/up; do
    kill -0 $up || { cat /root/up; exit 1; }
    sleep 1
done
export KUBECONFIG=/var/state/kubeconfig
# Where this machine is busy, the other one may not answer in time.
apply() {
    cat >/root/manifest
    until waybill apply -f /root/manifest; do
        sleep 1
    done
}
# Waits until a pod runs commands.
ready() {
    until waybill exec $1 -- true 2>/dev/null </dev/null; do
        sleep 1
    done
}
# Prints what an attack in a pod said; fails unless it was stopped, and stopped by this.
stopped() {
    pod=$1
    expected=$2
    shift 2
    code=0
    waybill exec $pod -- "$@" >/root/said 2>&1 </dev/null || code=$?
    cat /root/said
    [ $code != 0 ] && grep -q "$expected" /root/said || { echo "not stopped by '$expected' (code $code): $*"; exit 1; }
}
# The process of the machine that runs `sleep` with this argument; command lines of shells hold this script.
sleeper() {
    for pid in $(pidof sleep); do
        [ "$(tr '\0' ' ' </proc/$pid/cmdline)" != "sleep $1 " ] || echo $pid
    done
}
swapped_out() {
    awk '/^pswpout / {print $2}' /proc/vmstat
}

# A pod beyond its limit is killed, and nothing of it went to swap before.
before=$(swapped_out)
apply <<'POD'
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
[ "$(swapped_out)" = "$before" ] || { echo "a pod was swapped out: $before and $(swapped_out) pages"; exit 1; }
waybill delete pod limited

# Values stay in memory: of the roles, which are locked, and of the pod. What is ordinary is swapped, and found on the disk.
canary=$(head -c 64 /dev/urandom | md5sum | cut -c 1-32)
apply <<POD
apiVersion: v1
kind: Secret
metadata: {name: canary}
stringData: {word: $canary}
---
apiVersion: v1
kind: Pod
metadata: {name: keeper}
spec:
  terminationGracePeriodSeconds: 0
  volumes: [{name: secret, secret: {secretName: canary}}]
  containers:
  - name: main
    image: 'waybill.dev/busybox:1'
    command: [sleep, '36011']
    env: [{name: WORD, valueFrom: {secretKeyRef: {name: canary, key: word}}}]
    volumeMounts: [{name: secret, mountPath: /secret}]
POD
ready keeper
[ "$(waybill exec keeper -- sh -c 'echo $WORD; cat /secret/word' </dev/null | tr -d '\n')" = "$canary$canary" ]
place=/sys/fs/cgroup$(cut -d : -f 3 /proc/$(sleeper 36011)/cgroup)
pod=$(dirname $(dirname $place))
[ "$(cat $pod/memory.swap.max)" = 0 ] || { echo "a pod may use swap: $pod"; exit 1; }
sh -c 'echo $$ >$0/cgroup.procs; text=$(yes ordinary-text | head -c 4000000); echo >/root/ordinary; while :; do sleep 36012; done' $roles &
ordinary=$!
until [ -e /root/ordinary ]; do
    sleep 1
done
# Less can be had than is asked for.
echo 512M >$roles/memory.reclaim || true
field() {
    awk -v name="$2:" '$1 == name {print $2}' /proc/$1/status
}
[ "$(field $ordinary VmSwap)" -gt 0 ] || { echo 'nothing was swapped, so nothing is shown'; exit 1; }
found=
for pid in $(cat $roles/cgroup.procs); do
    line=$(tr '\0' ' ' </proc/$pid/cmdline) || continue
    case $line in
    *' apiserver '* | *' runtime '* | *' node '* | *' driver '*)
        found="$found $(echo "$line" | grep -o -w -e apiserver -e runtime -e node -e driver | head -n 1)"
        [ "$(field $pid VmLck)" -gt 0 ] && [ "$(field $pid VmSwap)" = 0 ] || { echo "swapped: $line"; cat /proc/$pid/status; exit 1; }
        ;;
    esac
done
echo "locked:$found"
for role in apiserver runtime node driver; do
    echo "$found" | grep -q $role || { echo "no $role was looked at"; exit 1; }
done
on_disk=$(head -c 50331648 /dev/vdb | tr -cs 'a-z0-9-' '\n' | grep -o -e ordinary-text -e $canary | sort -u | tr '\n' ' ')
[ "$on_disk" = 'ordinary-text ' ] || { echo "on the disk that is swapped to: $on_disk"; exit 1; }
kill $ordinary

# A pod with users of its own, whose root has every capability and no filter.
mkdir -p /var/attacks
cp /bin/waybill-hostile /var/attacks/
apply <<'POD'
apiVersion: v1
kind: Pod
metadata: {name: users}
spec:
  hostUsers: false
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 0
  securityContext: {seccompProfile: {type: Unconfined}}
  volumes: [{name: attacks, hostPath: {path: /var/attacks}}]
  containers:
  - name: main
    image: 'waybill.dev/busybox:1'
    command: [sleep, '36013']
    securityContext: {capabilities: {add: [ALL]}}
    volumeMounts: [{name: attacks, mountPath: /attacks, readOnly: true}]
---
apiVersion: v1
kind: Pod
metadata: {name: users-and-secret}
spec:
  hostUsers: false
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 0
  volumes: [{name: secret, secret: {secretName: canary}}]
  containers:
  - {name: main, image: 'waybill.dev/busybox:1', command: [sleep, '36014'], volumeMounts: [{name: secret, mountPath: /secret}]}
POD
ready users
waybill exec users -- sh -c 'id -u; cat /proc/self/uid_map' </dev/null
[ "$(waybill exec users -- id -u </dev/null)" = 0 ]
[ "$(field $(sleeper 36013) Uid)" -ge 65536 ] || { echo 'root of a pod is root of the machine'; exit 1; }
attack=/attacks/waybill-hostile
stopped users 'no right of the machine' $attack rights
stopped users 'no file of the machine can be written' $attack levers
stopped users 'setresuid' $attack stranger 65536
stopped users 'nothing else is open' $attack descriptors
stopped users 'no release_agent can be written' $attack release-agent
case $(uname -r) in
6.1.*)
    # Secrets lie on a ramfs there, which the kernel cannot show to other users: refused, with its name.
    until waybill get pod users-and-secret -o json >/root/pod && grep -q 'ramfs' /root/pod; do
        sleep 1
    done
    grep 'ramfs' /root/pod
    ;;
*)
    ready users-and-secret
    [ "$(waybill exec users-and-secret -- cat /secret/word </dev/null)" = "$canary" ]
    ;;
esac
for name in keeper users users-and-secret; do
    waybill delete pod $name
done

# No profile, so that nothing but the layout of cgroups stops the attacks.
apply <<'POD'
apiVersion: v1
kind: Pod
metadata: {name: attacker}
spec:
  terminationGracePeriodSeconds: 0
  securityContext: {seccompProfile: {type: Unconfined}}
  volumes: [{name: attacks, hostPath: {path: /var/attacks}}]
  containers:
  - {name: main, image: 'waybill.dev/busybox:1', command: [sleep, '3600'], volumeMounts: [{name: attacks, mountPath: /attacks, readOnly: true}]}
POD
ready attacker

# A program of the machine alone, by way of whatever directory a session's process was given.
cp /bin/busybox /root/busybox
for fd in $(seq 3 17); do
    stopped attacker 'no such file\|not a directory\|permission denied' /proc/self/fd/$fd/../../../../../../../../root/busybox echo escaped
done

# What moves the machine or belongs to it alone, and what a session was not given on purpose.
stopped attacker 'no file of the machine can be written' $attack levers
stopped attacker 'nothing of the machine is shown' $attack hidden
stopped attacker 'no release_agent can be written' $attack release-agent
stopped attacker 'nothing else is open' $attack descriptors
stopped attacker 'the working directory is /' $attack outer-directory

# Devices of the machine, by nodes that the container makes itself: its disk, and what the kernel says. The null device is everybody's.
disk=$(tr : ' ' </sys/block/vda/dev)
stopped attacker 'not permitted' sh -c "busybox mknod /disk b $disk; busybox dd if=/disk of=/dev/null bs=512 count=1"
stopped attacker 'not permitted' sh -c "busybox mknod /disk2 b $disk; echo >/disk2"
stopped attacker 'not permitted' sh -c 'busybox mknod /kmsg c 1 11; busybox head -c 1 /kmsg'
waybill exec attacker -- sh -c 'busybox mknod /null c 1 3; echo >/null' </dev/null

# Somebody else's session, whose cgroup is neither seen nor entered.
waybill exec attacker -- sleep 3601 >/dev/null 2>&1 </dev/null &
victim=$!
until waybill exec attacker -- ps | grep -q 'sleep 3601'; do
    sleep 1
done
stopped attacker 'no other cgroup is below' $attack cgroups-see
stopped attacker 'no cgroup is called exec' $attack cgroups-enter exec

# Limits that the attacker reaches are its own copies, if any; those of the pod hold, its sessions included.
waybill exec attacker -- $attack cgroups-lift </dev/null || true
stopped attacker 'Resource temporarily unavailable' $attack fork-until-refused 100
kill $victim
waybill delete pod attacker
kill $up
wait $up

# The attacks of the runtime's own tests, by first processes and by sessions, each with its control. Left out are those that make
# thousands of sessions or import an image over and over, which takes minutes in an emulated machine.
cd /var/tmp
"$SUITE" --test-threads=2 hostile:: hostile_program:: hostile_proc::whoever engine_escape:: engine_cgroup:: hostile_users:: \
    --skip those_who_enter_a_pod --show-output >/root/suite 2>&1 || { cat /root/suite; exit 1; }
grep '^test ' /root/suite
if grep SKIPPED /root/suite; then
    exit 1
fi
