//! What the kernel offers and no safe library does: fork, clone into a cgroup, execve, programs that judge
//! devices, a few ioctls.
//!
//! All `unsafe` of the runtime stands here. Whoever forks is single-threaded (the spawner, a monitor and
//! their children), so a child may allocate and run any code until it executes a program.
#![allow(unsafe_code, reason = "system calls that have no safe wrapper")]

use std::{
    ffi::{CStr, CString, c_char, c_int, c_long, c_void},
    fs::File,
    io::{self, Write as _},
    marker::PhantomData,
    mem,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    path::Path,
    ptr,
};

use rustix::{
    event::PollFd,
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create},
    mm::{Advice, MapFlags, ProtFlags, madvise, mmap},
    mount::{OpenTreeFlags, open_tree},
    process::Pid,
    thread::UnshareFlags,
};

/// Which side of a fork this is.
pub(crate) enum Fork {
    Parent(Pid),
    Child,
}

/// Forks the calling process, which must have one thread only.
pub(crate) fn fork() -> io::Result<Fork> {
    // SAFETY: the callers are single-threaded, so the child inherits no lock that somebody holds.
    let pid = unsafe { libc::fork() };
    fork_result(c_long::from(pid))
}

/// Forks the calling process, which must have one thread only; the child is in `cgroup` from its first instruction.
pub(crate) fn fork_into(cgroup: BorrowedFd<'_>) -> io::Result<Fork> {
    // SAFETY: an all-zero `clone_args` is a valid request for a plain fork.
    let mut arguments: libc::clone_args = unsafe { mem::zeroed() };
    arguments.flags = CLONE_INTO_CGROUP;
    arguments.exit_signal = u64::from(libc::SIGCHLD.unsigned_abs());
    arguments.cgroup = u64::from(cgroup.as_raw_fd().unsigned_abs());
    // SAFETY: the structure outlives the call and its size is passed. No stack is given and memory is not
    // shared, so the child goes on with a copy, as after fork; the callers are single-threaded.
    let pid = unsafe {
        libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<libc::clone_args>())
    };
    fork_result(pid)
}

/// Linux 5.7; the `libc` crate knows it only as an `int` that it does not fit into.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

fn fork_result(pid: c_long) -> io::Result<Fork> {
    match pid {
        0 => Ok(Fork::Child),
        pid if pid > 0 => i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .map(Fork::Parent)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EOVERFLOW)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Ends the process at once, without running exit handlers that belong to the process it was forked from.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Pointers to C strings, ended by a null pointer, as `execve` takes them.
pub(crate) struct Pointers<'a> {
    list: Vec<*const c_char>,
    strings: PhantomData<&'a [u8]>,
}

impl<'a> Pointers<'a> {
    pub(crate) fn to(strings: &'a [CString]) -> Self {
        Self::collect(strings.iter().map(CString::as_c_str))
    }

    /// To each string of a block in which every string ends with NUL. What follows the last NUL is left out.
    pub(crate) fn into_block(block: &'a [u8]) -> Self {
        Self::collect(
            block
                .split_inclusive(|&byte| byte == 0)
                .filter_map(|string| CStr::from_bytes_with_nul(string).ok()),
        )
    }

    fn collect(strings: impl Iterator<Item = &'a CStr>) -> Self {
        let list = strings.map(CStr::as_ptr).chain([ptr::null()]).collect();
        Self { list, strings: PhantomData }
    }
}

/// Replaces the process by a program; returns only if that failed.
pub(crate) fn execve(program: &CStr, argv: &Pointers<'_>, envp: &Pointers<'_>) -> io::Error {
    // SAFETY: all three point to NUL-terminated strings that are borrowed for the call, and both lists end with null.
    unsafe { libc::execve(program.as_ptr(), argv.list.as_ptr(), envp.list.as_ptr()) };
    io::Error::last_os_error()
}

/// Leaves namespaces for new ones. `flags` holds namespaces only.
pub(crate) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: without `FILES` no descriptor changes its meaning for other threads, and there are none.
    unsafe { rustix::thread::unshare_unsafe(flags - UnshareFlags::FILES) }?;
    Ok(())
}

/// Closes every descriptor from `first` on. Only for a child that was just forked and keeps none of them.
pub(crate) fn close_from(first: RawFd) -> io::Result<()> {
    close_range(first, 0)
}

fn close_range(first: RawFd, flags: u32) -> io::Result<()> {
    // SAFETY: plain numbers. Owners of the closed descriptors are never dropped: the callers end by exec or `exit_now`.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, first.unsigned_abs(), u32::MAX, flags) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Closes all descriptors but `keep`, from 3 on.
pub(crate) fn close_all_but(keep: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut keep: Vec<u32> = keep.iter().map(|fd| fd.as_raw_fd().unsigned_abs()).collect();
    keep.sort_unstable();
    let mut first = 3;
    for fd in keep {
        if fd > first {
            // SAFETY: as in `close_range`.
            unsafe { libc::syscall(libc::SYS_close_range, first, fd - 1, 0_u32) };
        }
        first = first.max(fd + 1);
    }
    close_range(first.cast_signed(), 0)
}

/// Closes all descriptors but sockets, from 3 on. Only for a child that keeps none of the others.
pub(crate) fn close_all_but_sockets() -> io::Result<()> {
    /// The kernel gives out the lowest free number, and a child that keeps few has none above.
    const LOOKED_AT: RawFd = 256;
    close_range(LOOKED_AT, 0)?;
    for number in 3..LOOKED_AT {
        // SAFETY: the number is looked at only; one that is not open brings an error.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        let Ok(stat) = rustix::fs::fstat(fd) else { continue };
        if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_socket() {
            // SAFETY: as in `close_range`.
            unsafe { libc::close(number) };
        }
    }
    Ok(())
}

/// Blocks `SIGCHLD` and returns a descriptor that becomes readable when a child changed its state.
pub(crate) fn child_signals() -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised by `sigemptyset` before it is read, and the new descriptor is ours.
    unsafe {
        let mut set = mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// Gives a program the signals it expects: none blocked, `SIGPIPE` not ignored. Rust's start-up and
/// [`child_signals`] changed both, and both survive `execve`.
pub(crate) fn reset_signals() {
    // SAFETY: the set is initialised before it is read, and `SIG_DFL` installs no code of ours.
    unsafe {
        let mut set = mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, ptr::null_mut());
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

/// Ignores a signal.
pub(crate) fn ignore_signal(signal: c_int) {
    // SAFETY: `SIG_IGN` installs no code of ours.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// Ends this process by a signal, as it would have ended without a handler: shells tell that from an exit code, and stop their
/// scripts. Returns if that signal ends nobody.
pub fn end_by_signal(signal: c_int) {
    // SAFETY: `SIG_DFL` installs no code of ours, the set is initialised before it is read, and the numbers are plain.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        let mut set = mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut());
        libc::raise(signal);
    }
}

/// Brings up the loopback device of the network namespace that the calling thread is in.
pub(crate) fn raise_loopback() -> io::Result<()> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: an all-zero `ifreq` is valid, and "lo" with its NUL fits into the name.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or(1);
    // SAFETY: the kernel reads one `ifreq`, which outlives the call.
    let result =
        unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Opens a program on a read-only mount that belongs to no namespace. A process that runs from it can be found by a
/// container without giving it a way to write to the program (CVE-2019-5736).
pub(crate) fn open_program_read_only(program: &Path) -> io::Result<OwnedFd> {
    clone_mount(program, libc::MOUNT_ATTR_RDONLY)
}

/// Opens a copy of the mount at `path`, with that as its root, which belongs to no namespace yet.
pub(crate) fn clone_mount(path: &Path, attributes: u64) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let mount = open_tree(rustix::fs::CWD, path, flags)?;
    if attributes != 0 {
        set_attributes(mount.as_fd(), attributes, 0)?;
    }
    Ok(mount)
}

/// Shows the files of a mount as if each belonged to who stands for its owner in a user namespace. The mount must be new, and
/// its file system able to.
pub(crate) fn map_ids(mount: BorrowedFd<'_>, user_namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: all-zero attributes change nothing.
    let mut change: libc::mount_attr = unsafe { mem::zeroed() };
    change.attr_set = libc::MOUNT_ATTR_IDMAP;
    change.userns_fd = u64::from(user_namespace.as_raw_fd().unsigned_abs());
    change_mount(mount, &change, 0)
}

/// Makes a mount read-only, and those below it if `throughout`.
pub(crate) fn make_read_only(mount: BorrowedFd<'_>, throughout: bool) -> io::Result<()> {
    let flags = if throughout { libc::AT_RECURSIVE } else { 0 };
    set_attributes(mount, libc::MOUNT_ATTR_RDONLY, flags)
}

/// Makes a mount one in which nothing is run, gives its owner's rights, or is a device.
pub(crate) fn make_inert(mount: BorrowedFd<'_>) -> io::Result<()> {
    let attributes = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC | libc::MOUNT_ATTR_NODEV;
    set_attributes(mount, attributes, 0)
}

fn set_attributes(mount: BorrowedFd<'_>, attributes: u64, flags: i32) -> io::Result<()> {
    // SAFETY: all-zero attributes change nothing.
    let mut change: libc::mount_attr = unsafe { mem::zeroed() };
    change.attr_set = attributes;
    change_mount(mount, &change, flags)
}

fn change_mount(mount: BorrowedFd<'_>, change: &libc::mount_attr, flags: i32) -> io::Result<()> {
    // SAFETY: the path is empty and NUL-terminated, the structure outlives the call and its size is passed.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | flags,
            ptr::from_ref(change),
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Forgets the environment that the process was started with.
pub(crate) fn clear_environment() {
    // SAFETY: the spawner calls it first thing, while it has one thread.
    unsafe { libc::clearenv() };
}

/// Waits for any of `fds` without a limit, and holds little memory meanwhile.
pub(crate) fn poll_with_little_memory(fds: &mut [PollFd<'_>]) -> rustix::io::Result<usize> {
    give_memory_back();
    rustix::event::poll(fds, None)
}

unsafe extern "C" {
    /// Marks of the linker: where our program begins, and where its code ends. Only their addresses mean something.
    static __executable_start: u8;
    static etext: u8;
}

/// Lets go of free parts of the heap, and of the pages of our program that hold constants and code. Those stay in the page
/// cache, where the kernel may take them for others, and come back as they are needed. What that buys: ADR 0050.
pub fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no preconditions.
    unsafe {
        libc::malloc_trim(0)
    };
    let page = rustix::param::page_size();
    let start = (&raw const __executable_start).addr().next_multiple_of(page);
    let end = (&raw const etext).addr() / page * page;
    // SAFETY: between the two marks lie mappings of the file that we run from, which are never writable: what has to be
    // written when the program is loaded comes after its code. What is dropped is read from the file again.
    let _ = unsafe {
        let start = (&raw const __executable_start).with_addr(start).cast_mut().cast();
        madvise(start, end.saturating_sub(start.addr()), Advice::LinuxDontNeed)
    };
}

/// Puts what the loader wrote into our program, and nobody writes any more, into a sealed file in memory, and maps that in its
/// place. A fork copies an entry for each page that a process wrote to, and none for pages of a file: of those the loader writes
/// 1.5 MB, so that every session paid for them when it was forked and again when it became a program. What that buys: ADR 0079.
///
/// Only for a process with one thread. Where it cannot be done, everything stays as it was.
pub(crate) fn share_what_the_loader_wrote() -> io::Result<()> {
    let mut found = None;
    // SAFETY: the callback is called before this returns, with a pointer to `found`, as it expects.
    unsafe { libc::dl_iterate_phdr(Some(find_relro), (&raw mut found).cast()) };
    let Some(Relro { start, length }) = found else { return Ok(()) };
    // SAFETY: the loader has made the range read-only, and it is mapped for as long as the program runs.
    let bytes = unsafe { std::slice::from_raw_parts(start.cast_const().cast::<u8>(), length) };
    let file =
        File::from(memfd_create(c"loaded", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    (&file).write_all(bytes)?;
    fcntl_add_seals(
        &file,
        SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL,
    )?;
    // SAFETY: the new mapping has the bytes and the protection of the one that it replaces, in one step; there is no other
    // thread, and nothing of ours writes there, or it would have died of it before.
    unsafe { mmap(start, length, ProtFlags::READ, MapFlags::PRIVATE | MapFlags::FIXED, &file, 0) }?;
    Ok(())
}

/// The whole pages that the loader wrote to and then made read-only.
struct Relro {
    start: *mut c_void,
    length: usize,
}

/// Finds them in the first program that it is shown, which is our own, and ends the search.
unsafe extern "C" fn find_relro(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    found: *mut c_void,
) -> c_int {
    // SAFETY: `dl_iterate_phdr` shows a valid structure, whose headers are mapped.
    let (base, headers) = unsafe {
        let info = &*info;
        (info.dlpi_addr, std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()))
    };
    let page = rustix::param::page_size();
    for header in headers.iter().filter(|header| header.p_type == libc::PT_GNU_RELRO) {
        let from = usize::try_from(base.wrapping_add(header.p_vaddr)).unwrap_or(0);
        let length = usize::try_from(header.p_memsz).unwrap_or(0);
        let (start, end) = (from.next_multiple_of(page), from.saturating_add(length) / page * page);
        if start < end {
            let relro =
                Relro { start: ptr::with_exposed_provenance_mut(start), length: end - start };
            // SAFETY: the only caller passes an `Option<Relro>` of its own.
            unsafe { *found.cast::<Option<Relro>>() = Some(relro) };
        }
    }
    1
}

/// Keeps bytes from being written to swap for as long as the process lives.
pub(crate) fn lock_in_memory(bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the range is borrowed memory of ours, and locking it changes nothing about its content.
    let result = unsafe { libc::mlock(bytes.as_ptr().cast(), bytes.len()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes the current directory the root and lets go of everything else that was mounted.
pub(crate) fn pivot_to_current_directory() -> io::Result<()> {
    // SAFETY: two valid C strings. The old root comes to lie on the new one, from where it is detached.
    let result = unsafe { libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    rustix::mount::unmount(".", rustix::mount::UnmountFlags::DETACH)?;
    rustix::process::chdir("/")?;
    Ok(())
}

/// Takes over descriptor 0, through which a re-executed spawner gets its socket.
pub(crate) fn take_stdin() -> OwnedFd {
    // SAFETY: called once, first thing in a process that was started for this.
    unsafe { rustix::stdio::take_stdin() }
}

/// Sends a signal by number, which may be one that has no name.
pub(crate) fn kill(pid: Pid, signal: c_int) -> io::Result<()> {
    // SAFETY: plain numbers.
    let result = unsafe { libc::kill(pid.as_raw_nonzero().get(), signal) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives this process, and all that descend from it, a session keyring that nobody else has. Kernels may be built without keys.
pub(crate) fn leave_session_keyring() -> io::Result<()> {
    /// `KEYCTL_JOIN_SESSION_KEYRING` of `linux/keyctl.h`.
    const JOIN: c_long = 1;
    let anonymous = ptr::null::<c_char>();
    // SAFETY: plain numbers, and no name.
    let result = unsafe { libc::syscall(libc::SYS_keyctl, JOIN, anonymous) };
    let error = io::Error::last_os_error();
    if result >= 0 || error.raw_os_error() == Some(libc::ENOSYS) { Ok(()) } else { Err(error) }
}

/// Has a program judge every system call of this thread, for ever, and of all that descend from it.
pub(crate) fn install_seccomp_filter(program: &[libc::sock_filter], flags: u32) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel copies a program of the given length, which outlives the call and is not written to.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            c_long::from(flags),
            &raw const program,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether the kernel takes programs that judge the use of devices: it may have none, and we may lack the right.
pub(crate) fn can_guard_devices() -> bool {
    /// Returns 1, which allows everything.
    const ALLOW: [[u8; 8]; 2] = [[0xb7, 0, 0, 0, 1, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
    load_device_program(&ALLOW).is_ok()
}

/// Has a program judge every use of a device by processes in a cgroup of the unified hierarchy and below. It
/// stays until the cgroup is removed, and adds to what others attached.
pub(crate) fn guard_devices(cgroup: BorrowedFd<'_>, program: &[[u8; 8]]) -> io::Result<()> {
    let program = load_device_program(program)?;
    let attachment = Attachment {
        target: cgroup.as_raw_fd().unsigned_abs(),
        program: program.as_raw_fd().unsigned_abs(),
        kind: BPF_CGROUP_DEVICE,
        flags: BPF_F_ALLOW_MULTI,
    };
    // SAFETY: the kernel reads one structure of the given size, which outlives the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_PROG_ATTACH,
            &raw const attachment,
            size_of::<Attachment>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn load_device_program(program: &[[u8; 8]]) -> io::Result<OwnedFd> {
    let request = ProgramRequest {
        kind: BPF_PROG_TYPE_CGROUP_DEVICE,
        length: u32::try_from(program.len()).unwrap_or(u32::MAX),
        instructions: program.as_ptr().addr() as u64,
        license: c"Apache-2.0".as_ptr().addr() as u64,
        ..ProgramRequest::default()
    };
    // SAFETY: the kernel reads one structure of the given size, the instructions and the license, all of which
    // outlive the call, and its answer is a new descriptor.
    unsafe {
        let fd = libc::syscall(
            libc::SYS_bpf,
            BPF_PROG_LOAD,
            &raw const request,
            size_of::<ProgramRequest>(),
        );
        match RawFd::try_from(fd) {
            Ok(fd) if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// From `linux/bpf.h`.
const BPF_PROG_LOAD: c_int = 5;
const BPF_PROG_ATTACH: c_int = 8;
const BPF_PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const BPF_CGROUP_DEVICE: u32 = 6;
const BPF_F_ALLOW_MULTI: u32 = 2;

/// The part of `bpf_attr` that loads a program without a log, a name or flags.
#[derive(Default)]
#[repr(C)]
struct ProgramRequest {
    kind: u32,
    length: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
}

/// The part of `bpf_attr` that attaches one.
#[repr(C)]
struct Attachment {
    target: u32,
    program: u32,
    kind: u32,
    flags: u32,
}

#[cfg(test)]
mod tests {
    use rustix::event::PollFlags;

    use super::*;

    /// The kernel says of each page between the marks that nobody can write to it.
    #[test]
    fn what_is_given_back_was_never_written() {
        let (start, end) = ((&raw const __executable_start).addr(), (&raw const etext).addr());
        assert!(start < end);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let address = |text: &str| usize::from_str_radix(text, 16).unwrap();
        let inside = maps.lines().filter(|line| {
            let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
            address(from) < end && address(to) > start
        });
        let rights: Vec<_> = inside.map(|line| line.split(' ').nth(1).unwrap()).collect();
        assert!(rights.contains(&"r-xp"), "{rights:?}");
        assert!(rights.iter().all(|it| ["r--p", "r-xp"].contains(it)), "{rights:?}");
        let (read, write) = rustix::pipe::pipe().unwrap();
        drop(write);
        let mut fds = [PollFd::new(&read, PollFlags::IN)];
        assert_eq!(poll_with_little_memory(&mut fds), Ok(1));
    }

    #[test]
    fn a_block_points_to_each_string_and_ends_with_null() {
        let block = b"A=1\0B=\0rest without end";
        let pointers = Pointers::into_block(block);
        assert_eq!(pointers.list.len(), 3);
        assert!(pointers.list[2].is_null());
        assert_eq!(pointers.list[1], block[4..].as_ptr().cast());
    }
}
