//! `bpf(2)`, as far as we use it. Numbers and structures are those of `linux/bpf.h`.

use std::{
    ffi::{CStr, c_int},
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
};

const MAP_CREATE: c_int = 0;
const MAP_LOOKUP_ELEM: c_int = 1;
const MAP_UPDATE_ELEM: c_int = 2;
const MAP_DELETE_ELEM: c_int = 3;
const PROG_LOAD: c_int = 5;
const OBJ_GET_INFO_BY_FD: c_int = 15;
const RAW_TRACEPOINT_OPEN: c_int = 17;

const PROG_TYPE_RAW_TRACEPOINT: u32 = 17;

/// What a map is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MapKind {
    Hash = 1,
    Array = 2,
    PerProcessorArray = 6,
    Ring = 27,
}

#[derive(Default)]
#[repr(C)]
struct MapRequest {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
}

#[derive(Default)]
#[repr(C)]
struct ElementRequest {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

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
    name: [u8; 16],
}

#[derive(Default)]
#[repr(C)]
struct TracepointRequest {
    name: u64,
    program: u32,
    padding: u32,
}

#[derive(Default)]
#[repr(C)]
struct InfoRequest {
    descriptor: u32,
    length: u32,
    info: u64,
}

/// Makes a map.
pub(crate) fn create_map(
    kind: MapKind,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
) -> io::Result<OwnedFd> {
    let request = MapRequest { kind: kind as u32, key_size, value_size, max_entries, flags: 0 };
    // SAFETY: the kernel reads one structure, and its answer is a new descriptor.
    unsafe { descriptor(call(MAP_CREATE, &request)?) }
}

/// Sets what a map has for a key; both are as large as the map says.
pub(crate) fn update<const K: usize, const V: usize>(
    map: BorrowedFd<'_>,
    key: [u8; K],
    value: [u8; V],
) -> io::Result<()> {
    let request = ElementRequest {
        map: map.as_raw_fd().unsigned_abs(),
        key: key.as_ptr().addr() as u64,
        value: value.as_ptr().addr() as u64,
        ..ElementRequest::default()
    };
    // SAFETY: the kernel reads one structure, a key and a value, which all outlive the call; callers know their sizes.
    unsafe { call(MAP_UPDATE_ELEM, &request).map(drop) }
}

/// Removes a key from a map.
pub(crate) fn delete<const K: usize>(map: BorrowedFd<'_>, key: [u8; K]) -> io::Result<()> {
    let request = ElementRequest {
        map: map.as_raw_fd().unsigned_abs(),
        key: key.as_ptr().addr() as u64,
        ..ElementRequest::default()
    };
    // SAFETY: the kernel reads one structure and a key, which both outlive the call; callers know its size.
    unsafe { call(MAP_DELETE_ELEM, &request).map(drop) }
}

/// The first number of an array of numbers.
pub(crate) fn first_number(array: BorrowedFd<'_>) -> io::Result<u64> {
    let (key, mut value) = (0_u32, 0_u64);
    let request = ElementRequest {
        map: array.as_raw_fd().unsigned_abs(),
        key: (&raw const key).addr() as u64,
        value: (&raw mut value).expose_provenance() as u64,
        ..ElementRequest::default()
    };
    // SAFETY: the kernel reads a key of 4 bytes and writes a value of 8, as callers made the map.
    unsafe { call(MAP_LOOKUP_ELEM, &request)? };
    Ok(value)
}

/// Has the kernel check and take a program for a raw tracepoint. If it refuses, `log` has its reasons.
pub(crate) fn load_program(
    name: &str,
    program: &[[u8; 8]],
    license: &CStr,
    log: &mut [u8],
) -> io::Result<OwnedFd> {
    let mut request = ProgramRequest {
        kind: PROG_TYPE_RAW_TRACEPOINT,
        length: u32::try_from(program.len()).unwrap_or(u32::MAX),
        instructions: program.as_ptr().addr() as u64,
        license: license.as_ptr().addr() as u64,
        log_level: u32::from(!log.is_empty()),
        log_size: u32::try_from(log.len()).unwrap_or(u32::MAX),
        ..ProgramRequest::default()
    };
    if !log.is_empty() {
        request.log = log.as_mut_ptr().expose_provenance() as u64;
    }
    // The last byte stays NUL.
    for (to, from) in request.name.iter_mut().take(15).zip(name.bytes()) {
        *to = from;
    }
    // SAFETY: the kernel reads one structure, the instructions and the license, and writes to the log, all of which outlive
    // the call; its answer is a new descriptor.
    unsafe { descriptor(call(PROG_LOAD, &request)?) }
}

/// Runs a program at a tracepoint, until the descriptor is closed.
pub(crate) fn attach(tracepoint: &CStr, program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let request = TracepointRequest {
        name: tracepoint.as_ptr().addr() as u64,
        program: program.as_raw_fd().unsigned_abs(),
        padding: 0,
    };
    // SAFETY: the kernel reads one structure and the name, which outlive the call; its answer is a new descriptor.
    unsafe { descriptor(call(RAW_TRACEPOINT_OPEN, &request)?) }
}

/// How often the kernel left a program out because it was already running on that processor.
pub(crate) fn missed_runs(program: BorrowedFd<'_>) -> io::Result<u64> {
    let mut info = [0_u8; INFO];
    let request = InfoRequest {
        descriptor: program.as_raw_fd().unsigned_abs(),
        length: u32::try_from(INFO).unwrap_or_default(),
        info: info.as_mut_ptr().expose_provenance() as u64,
    };
    // SAFETY: the kernel reads one structure, and writes at most as many bytes as that says.
    unsafe { call(OBJ_GET_INFO_BY_FD, &request)? };
    let misses = info.get(MISSES..MISSES + 8).and_then(|bytes| bytes.try_into().ok());
    Ok(misses.map_or(0, u64::from_ne_bytes))
}

/// `recursion_misses` in `bpf_prog_info`, and enough of that to have it.
const MISSES: usize = 208;
const INFO: usize = 224;

/// # Safety
/// What the request points to must be what the operation takes, and outlive the call.
unsafe fn call<R>(operation: c_int, request: &R) -> io::Result<i64> {
    // SAFETY: the caller's; the structure is as large as we say.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, operation, std::ptr::from_ref(request), size_of::<R>())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// # Safety
/// The number must be a new descriptor, which nobody else closes.
unsafe fn descriptor(number: i64) -> io::Result<OwnedFd> {
    let number = RawFd::try_from(number).map_err(io::Error::other)?;
    // SAFETY: the caller's.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
