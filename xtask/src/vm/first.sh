#!/bin/busybox sh
# pivot_root, which containers need, does not work on the root that the kernel unpacks: so there is another.
busybox=/bin/busybox
for module in /modules/*; do
    $busybox insmod "$module"
done
$busybox mount -t tmpfs -o mode=755,size=75% root /new
$busybox mv /system/* /new/
exec $busybox switch_root /new /sbin/init
