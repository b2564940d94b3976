//! The memory of a ring in which the kernel writes what it tells us: one writer at a time, and one reader, us.
//!
//! The first page is ours and says how far we have read; the second is the kernel's and says how far it has written; then come
//! the data, once around.

use std::{
    io,
    os::fd::BorrowedFd,
    ptr::{self, NonNull},
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use rustix::{
    mm::{MapFlags, ProtFlags, mmap, munmap},
    param::page_size,
};

/// In the length of a record: it is not written yet, or is to be passed over.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;

/// Before each record stand its length and a number for the kernel.
const HEADER: u64 = 8;

/// The ring, seen from here.
#[derive(Debug)]
pub(crate) struct RingMemory {
    consumer: Pages,
    producer: Pages,
    /// How many bytes of data; a power of two.
    length: u64,
}

impl RingMemory {
    /// Maps the ring `map`, which has `length` bytes of data, a power of two and a multiple of the page size.
    pub(crate) fn map(map: BorrowedFd<'_>, length: u32) -> io::Result<Self> {
        let page = page_size();
        let bytes = usize::try_from(length).map_err(io::Error::other)?;
        let consumer = Pages::map(map, 0, page, ProtFlags::READ | ProtFlags::WRITE)?;
        // The kernel offers the data twice, one after the other. Once is enough, and takes half the memory.
        let producer = Pages::map(map, page as u64, page + bytes, ProtFlags::READ)?;
        Ok(Self { consumer, producer, length: length.into() })
    }

    /// Gives every record that is there to `take`, and makes room for new ones. `buffer` is scratch.
    pub(crate) fn drain(&mut self, buffer: &mut Vec<u8>, mut take: impl FnMut(&[u8])) {
        let mut at = self.read_so_far().load(Ordering::Acquire);
        loop {
            let written = self.written_so_far().load(Ordering::Acquire);
            if at >= written {
                return;
            }
            let header = self.length_at(at).load(Ordering::Acquire);
            if header & BUSY != 0 {
                return;
            }
            let length = header & !(BUSY | DISCARDED);
            if header & DISCARDED == 0 {
                self.copy(at + HEADER, length, buffer);
                take(buffer);
            }
            at += (u64::from(length) + HEADER).next_multiple_of(8);
            self.read_so_far().store(at, Ordering::Release);
        }
    }

    fn read_so_far(&self) -> &AtomicU64 {
        // SAFETY: the page is mapped while we live, is aligned, and is only used as this number.
        unsafe { self.consumer.start.cast().as_ref() }
    }

    fn written_so_far(&self) -> &AtomicU64 {
        // SAFETY: as above; it is only loaded, for we cannot write there.
        unsafe { self.producer.start.cast().as_ref() }
    }

    fn length_at(&self, at: u64) -> &AtomicU32 {
        // SAFETY: records begin at multiples of 8, so the number is aligned and does not reach over the end; it is only loaded.
        unsafe { self.data(at).cast().as_ref() }
    }

    /// Where a position of the stream is; less than `length` bytes before the end.
    fn data(&self, at: u64) -> NonNull<u8> {
        let offset = usize::try_from(at & (self.length - 1)).unwrap_or(0);
        // SAFETY: the offset is less than the length of the data, which follow the first page.
        unsafe { self.producer.start.add(page_size() + offset) }
    }

    /// A record may go on at the beginning of the ring.
    fn copy(&self, at: u64, length: u32, buffer: &mut Vec<u8>) {
        let length = u64::from(length).min(self.length);
        let first = length.min(self.length - (at & (self.length - 1)));
        buffer.clear();
        buffer.reserve(usize::try_from(length).unwrap_or(0));
        for (from, count) in [(at, first), (at + first, length - first)] {
            let count = usize::try_from(count).unwrap_or(0);
            // SAFETY: both parts are within the data, room for them was reserved, and the kernel does not write to a record
            // that we have not passed.
            unsafe {
                let end = buffer.as_mut_ptr().add(buffer.len());
                ptr::copy_nonoverlapping(self.data(from).as_ptr(), end, count);
                buffer.set_len(buffer.len() + count);
            }
        }
    }
}

/// Pages that are mapped.
#[derive(Debug)]
struct Pages {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory belongs to the process, not to a thread, and is only reached through atomics and by who has the ring alone.
unsafe impl Send for Pages {}

impl Pages {
    fn map(map: BorrowedFd<'_>, offset: u64, length: usize, rights: ProtFlags) -> io::Result<Self> {
        // SAFETY: new pages, at an address that the kernel chooses.
        let start =
            unsafe { mmap(ptr::null_mut(), length, rights, MapFlags::SHARED, map, offset)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, length })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: they were mapped here, and nobody refers to them any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}
