#!/bin/busybox sh
/bin/busybox mkdir -p /sbin
/bin/busybox --install -s /bin
export PATH=/bin:/sbin HOME=/root TERM=dumb
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devices /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
for folder in /dev/shm /run /tmp; do
    mount -t tmpfs -o mode=1777 tmpfs "$folder"
done
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t ext4 -o noatime /dev/vda /var
mkdir -m 1777 /var/tmp
export TMPDIR=/var/tmp
mkswap /dev/vdb >/dev/null
ip link set lo up
hostname vm
uname -sr
sh /command
# The console is read by `xtask/src/vm/console.rs`.
echo "waybill-vm: exit code $?"
poweroff -f
