//! The profile of containers that ask for none, or for that of the runtime: a list of what is allowed, of the shape that other
//! runtimes have, so that what runs there runs here (docs/adr/0042).
//!
//! A call that is known and not allowed gets `EPERM`. A number that no call has is answered as by a kernel that does not have it.
//! As on other runtimes, a capability that the container was given lifts what belongs to it.

use std::collections::BTreeSet;

use oci_spec::runtime::Capability;

use super::{
    calls::{self, Abi, Call},
    policy::{AbiPolicy, Action, Condition, Policy, Rule, Test, Verdict},
};
use crate::capability::bit;

/// What everybody may call.
const ALLOWED: &str = "
    access cachestat chdir chmod chown chown32 close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2
    fadvise64 fadvise64_64 fallocate fanotify_mark fchdir fchmod fchmodat fchmodat2 fchown fchown32 fchownat fcntl fcntl64
    fdatasync flock fstat fstat64 fstatat64 fstatfs fstatfs64 fsync ftruncate ftruncate64 futimesat getcwd getdents getdents64
    inotify_add_watch inotify_init inotify_init1 inotify_rm_watch ioctl lchown lchown32 link linkat listmount _llseek lseek
    lstat lstat64 mkdir mkdirat mknod mknodat name_to_handle_at newfstatat open openat openat2 pipe pipe2 pread64 preadv
    preadv2 pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv rename renameat renameat2 rmdir sendfile
    sendfile64 splice stat stat64 statfs statfs64 statmount statx symlink symlinkat sync sync_file_range sync_file_range2
    arm_fadvise64_64 arm_sync_file_range syncfs tee truncate truncate64 umask unlink unlinkat utime utimensat
    utimensat_time64 utimes vmsplice write writev

    fgetxattr flistxattr fremovexattr fsetxattr getxattr getxattrat lgetxattr listxattr listxattrat llistxattr lremovexattr
    lsetxattr removexattr removexattrat setxattr setxattrat

    epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2
    io_cancel io_destroy io_getevents io_pgetevents io_pgetevents_time64 io_setup io_submit _newselect poll ppoll
    ppoll_time64 pselect6 pselect6_time64 select signalfd signalfd4 timerfd_create timerfd_gettime timerfd_gettime64
    timerfd_settime timerfd_settime64

    brk cacheflush get_thread_area madvise map_shadow_stack membarrier memfd_create memfd_secret mincore mlock mlock2
    mlockall mmap mmap2 mprotect mremap mseal msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect
    process_mrelease process_vm_readv remap_file_pages set_thread_area set_tls arch_prctl modify_ldt breakpoint uretprobe

    execve execveat exit exit_group fork futex futex_requeue futex_time64 futex_wait futex_waitv futex_wake get_robust_list
    getcpu getpgid getpgrp getpid getppid getpriority getrandom getrlimit getrusage getsid gettid ioprio_get ioprio_set
    pidfd_open prctl prlimit64 restart_syscall rseq sched_get_priority_max sched_get_priority_min sched_getaffinity
    sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_rr_get_interval_time64 sched_setaffinity
    sched_setattr sched_setparam sched_setscheduler sched_yield set_robust_list set_tid_address setpgid setpriority
    setrlimit setsid sysinfo times ugetrlimit uname vfork wait4 waitid waitpid

    kill pause pidfd_send_signal rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend
    rt_sigtimedwait rt_sigtimedwait_time64 rt_tgsigqueueinfo sigaltstack sigprocmask sigreturn tgkill tkill

    capget capset getegid getegid32 geteuid geteuid32 getgid getgid32 getgroups getgroups32 getresgid getresgid32 getresuid
    getresuid32 getuid getuid32 setfsgid setfsgid32 setfsuid setfsuid32 setgid setgid32 setgroups setgroups32 setregid
    setregid32 setresgid setresgid32 setresuid setresuid32 setreuid setreuid32 setuid setuid32

    landlock_add_rule landlock_create_ruleset landlock_restrict_self lsm_get_self_attr lsm_list_modules lsm_set_self_attr
    seccomp

    adjtimex alarm clock_adjtime clock_adjtime64 clock_getres clock_getres_time64 clock_gettime clock_gettime64
    clock_nanosleep clock_nanosleep_time64 getitimer gettimeofday nanosleep setitimer time timer_create timer_delete
    timer_getoverrun timer_gettime timer_gettime64 timer_settime timer_settime64

    accept accept4 bind connect getpeername getsockname getsockopt listen recv recvfrom recvmmsg recvmmsg_time64 recvmsg
    send sendmmsg sendmsg sendto setsockopt shutdown socketcall socketpair

    ipc mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64 mq_timedsend mq_timedsend_time64 mq_unlink
    msgctl msgget msgrcv msgsnd semctl semget semop semtimedop semtimedop_time64 shmat shmctl shmdt shmget
";

/// Of 32-bit ABIs alone: the first forms of calls that all may make, and names that no kernel has anything for. Those are not denied
/// because a shorter program costs each session less.
const ALLOWED_AS_OF_OLD: &str = "
    nice oldfstat oldlstat oldolduname oldstat olduname readdir sgetmask sigaction signal sigpending sigsuspend ssetmask

    break ftime gtty idle lock mpx prof profil stty ulimit
";

/// What one of these capabilities allows.
const LIFTED: &[(&[Capability], &str)] = &[
    (
        &[Capability::SysAdmin],
        "clone clone3 unshare setns mount umount umount2 pivot_root fsopen fsconfig fsmount fspick move_mount open_tree
         open_tree_attr mount_setattr fanotify_init lookup_dcookie quotactl quotactl_fd setdomainname sethostname",
    ),
    (&[Capability::SysAdmin, Capability::Bpf], "bpf"),
    (&[Capability::SysAdmin, Capability::Perfmon], "perf_event_open"),
    (&[Capability::SysAdmin, Capability::Syslog], "syslog"),
    (&[Capability::SysPtrace], "kcmp pidfd_getfd process_madvise process_vm_writev ptrace"),
    (&[Capability::SysModule], "delete_module finit_module init_module"),
    (&[Capability::DacReadSearch], "open_by_handle_at"),
    (&[Capability::SysBoot], "reboot"),
    (&[Capability::SysChroot], "chroot"),
    (&[Capability::SysPacct], "acct"),
    (&[Capability::SysRawio], "ioperm iopl"),
    (&[Capability::SysTime], "clock_settime clock_settime64 settimeofday stime"),
    (&[Capability::SysTtyConfig], "vhangup"),
    (&[Capability::SysNice], "get_mempolicy mbind set_mempolicy set_mempolicy_home_node"),
];

/// What is answered as by an older kernel, because programs then do the same in another way. The flags of `clone3` are in memory,
/// where no filter can look.
const AS_UNKNOWN: &str = "clone3 file_getattr file_setattr";

/// The new namespaces that `clone` can make.
const CLONE_NAMESPACES: u64 = 0x7e02_0000;
/// `unshare` can make one of time besides; for `clone` that bit is part of a signal's number.
const UNSHARE_NAMESPACES: u64 = CLONE_NAMESPACES | 0x80;
const PTRACE_ATTACH: u64 = 16;
const PTRACE_SEIZE: u64 = 0x4206;
/// Ciphers in the kernel, and the way to the host of a virtual machine: both have been a way into many kernels.
const AF_ALG: u64 = 38;
const AF_VSOCK: u64 = 40;
/// `PER_LINUX` and `PER_LINUX32`, each also with `UNAME26`, and the question which one it is.
const PERSONALITIES: [u64; 5] = [0, 8, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// What containers with these capabilities in their bounding set may call.
pub(super) fn policy(abis: &[Abi], capabilities: u64) -> Policy {
    let lists = Lists::of(capabilities);
    let policy_of = |&abi: &Abi| {
        let verdicts = calls::all().filter_map(|call: Call| {
            let number = call.number(abi)?;
            Some((number..=number, lists.verdict(call.name)))
        });
        AbiPolicy::new(abi, verdicts.collect(), Action::UNKNOWN)
    };
    Policy { abis: abis.iter().map(policy_of).collect(), elsewhere: Action::UNKNOWN }
}

/// The lists above for one set of capabilities.
struct Lists {
    allowed: BTreeSet<&'static str>,
    unknown: BTreeSet<&'static str>,
}

impl Lists {
    fn of(capabilities: u64) -> Self {
        let has = |by: &[Capability]| by.iter().any(|&it| bit(it) & capabilities != 0);
        let lifted = LIFTED.iter().filter(|(by, _)| has(by));
        let lifted = lifted.flat_map(|(_, names)| names.split_ascii_whitespace());
        Self {
            allowed: [ALLOWED, ALLOWED_AS_OF_OLD]
                .into_iter()
                .flat_map(str::split_ascii_whitespace)
                .chain(lifted)
                .collect(),
            unknown: AS_UNKNOWN.split_ascii_whitespace().collect(),
        }
    }

    fn verdict(&self, name: &str) -> Verdict {
        if self.allowed.contains(name) {
            Verdict::plain(Action::ALLOW)
        } else if self.unknown.contains(name) {
            Verdict::plain(Action::UNKNOWN)
        } else {
            by_argument(name).unwrap_or_else(|| Verdict::plain(Action::FORBIDDEN))
        }
    }
}

/// What is allowed with some first arguments. The kernel looks at their lower half alone, so that is what is judged.
fn by_argument(name: &str) -> Option<Verdict> {
    let verdict = match name {
        "clone" => allowed_if([first(CLONE_NAMESPACES, 0)]),
        "unshare" => allowed_if([first(UNSHARE_NAMESPACES, 0)]),
        "personality" => allowed_if(PERSONALITIES.map(|value| first(LOWER_HALF, value))),
        // A debugger may still start the program that it debugs.
        "ptrace" => allowed_unless([PTRACE_ATTACH, PTRACE_SEIZE]),
        "socket" => allowed_unless([AF_ALG, AF_VSOCK]),
        _ => return None,
    };
    Some(verdict)
}

const LOWER_HALF: u64 = 0xffff_ffff;

fn first(mask: u64, value: u64) -> Condition {
    Condition { argument: 0, test: Test::Masked { mask, value } }
}

fn allowed_if<const N: usize>(conditions: [Condition; N]) -> Verdict {
    let rules = conditions.map(|it| Rule { conditions: vec![it], action: Action::ALLOW });
    Verdict { rules: rules.into(), otherwise: Action::FORBIDDEN }
}

fn allowed_unless<const N: usize>(values: [u64; N]) -> Verdict {
    let rules = values.map(|value| Rule {
        conditions: vec![first(LOWER_HALF, value)],
        action: Action::FORBIDDEN,
    });
    Verdict { rules: rules.into(), otherwise: Action::ALLOW }
}

#[cfg(test)]
mod tests;
