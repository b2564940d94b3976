//! The two programs that the kernel runs for us: when a process begins to run a program, and when one ends. Pure; the
//! [loader](super::ebpf) hands them to the kernel.
//!
//! Only processes of containers and sessions are told of: those with a cgroup above them that is called as the runtime, or the
//! wrapper of stock clusters, calls theirs. That is for the cost alone. Whose cgroup it is, is decided by its ID, elsewhere.
//!
//! Neither changes anything. To read structures of the kernel a program must be declared to be under the GPL or a license that goes
//! with it: these two, as they are written here, may be used under MIT or GPL-2.0 as well.

use super::{
    assembler::{
        Assembler,
        Helper::{
            BootNanoseconds, CurrentPidTgid, CurrentUidGid, MapDelete, MapLookup, MapUpdate,
            ReadKernel, ReadKernelString, ReadUser, RingOutput,
        },
        If, Instruction, Label, R0, R1, R2, R3, R4, R6, R7, R8, R9, Register, STACK, Width,
    },
    layout::{ANCESTORS, ARGUMENTS, EXEC, EXIT, FILE_NAME, LARGEST, LEVELS, at},
    offsets::Offsets,
};

/// What the kernel is told about the license.
pub(crate) const LICENSE: &std::ffi::CStr = c"Dual MIT/GPL";

/// The maps that the programs use, by their descriptors in this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapDescriptors {
    /// Where events go.
    pub(crate) ring: i32,
    /// Room to write an event, for each processor.
    pub(crate) scratch: i32,
    /// How many events did not fit into the ring.
    pub(crate) lost: i32,
    /// Cgroups of containers whose own processes nobody wants to know of.
    pub(crate) ignored: i32,
    /// Processes that were told of, and when they were made.
    pub(crate) tracked: i32,
}

/// Bits of `MATCHES`.
const SESSION: i32 = 1;
const CONTAINER: i32 = 2;

/// Slots of 8 bytes on the stack.
const KEY: i16 = -8;
const POINTER: i16 = -16;
const KEPT: i16 = -24;
const LEVEL: i16 = -32;
const NAME: i16 = -48;

/// Registers that stay: the context, the task that it is about, room for the event.
const CONTEXT: Register = R6;
const TASK: Register = R7;
const EVENT: Register = R8;

struct Writer<'a> {
    code: Assembler,
    offsets: &'a Offsets,
    maps: MapDescriptors,
    end: Label,
}

/// For `sched_process_exec`, whose arguments are the task, its former PID and the `linux_binprm`.
pub(crate) fn exec_program(offsets: &Offsets, maps: MapDescriptors) -> Option<Vec<Instruction>> {
    let mut writer = Writer::begin(offsets, maps);
    writer.take_room();
    writer.match_cgroups();
    writer.skip_ignored();
    writer.write_process();
    writer.write_parent();
    writer.write_text();
    writer.track();
    writer.send_text();
    writer.finish()
}

/// For `sched_process_exit`, whose first argument is the task.
pub(crate) fn exit_program(offsets: &Offsets, maps: MapDescriptors) -> Option<Vec<Instruction>> {
    let mut writer = Writer::begin(offsets, maps);
    writer.find_tracked();
    writer.take_room();
    writer.write_exit();
    writer.forget_tracked();
    writer.code.set(R9, at::EXIT_LENGTH.into());
    writer.send();
    writer.finish()
}

impl<'a> Writer<'a> {
    fn begin(offsets: &'a Offsets, maps: MapDescriptors) -> Self {
        let mut code = Assembler::default();
        let end = code.label();
        code.copy(CONTEXT, R1);
        code.load(Width::Double, TASK, CONTEXT, 0);
        Self { code, offsets, maps, end }
    }

    fn finish(mut self) -> Option<Vec<Instruction>> {
        self.code.place(self.end);
        self.code.set(R0, 0);
        self.code.exit();
        self.code.finish()
    }

    /// `EVENT` points to room of this processor, which nobody else uses while a program runs.
    fn take_room(&mut self) {
        self.code.store_number(Width::Double, STACK, KEY, 0);
        self.look_up(self.maps.scratch);
        self.code.jump_if(R0, If::Equal, 0, self.end);
        self.code.copy(EVENT, R0);
    }

    /// `R0` is what the map has for `KEY`, or 0.
    fn look_up(&mut self, map: i32) {
        self.code.set_map(R1, map);
        self.code.copy(R2, STACK);
        self.code.add(R2, KEY.into());
        self.code.call(MapLookup);
    }

    /// Reads from the kernel's memory to `base + place`; zeros if there is nothing.
    fn read(&mut self, base: Register, place: i16, length: i32, from: Register, offset: u32) {
        self.code.copy(R3, from);
        self.code.add(R3, i32::try_from(offset).unwrap_or(i32::MAX));
        self.code.copy(R1, base);
        self.code.add(R1, place.into());
        self.code.set(R2, length);
        self.code.call(ReadKernel);
    }

    /// Reads to a place in the event.
    fn tell(&mut self, place: i16, length: i32, from: Register, offset: u32) {
        self.read(EVENT, place, length, from, offset);
    }

    /// `to` is the pointer at `from + offset`.
    fn follow(&mut self, to: Register, from: Register, offset: u32) {
        self.read(STACK, POINTER, 8, from, offset);
        self.code.load(Width::Double, to, STACK, POINTER);
    }

    fn store(&mut self, width: Width, place: i16, from: Register) {
        self.code.store(width, EVENT, place, from);
    }

    /// Writes the IDs of all cgroups, and ends the program unless one is called as those of containers or sessions.
    fn match_cgroups(&mut self) {
        self.code.store_number(Width::Double, EVENT, at::MATCHES, 0);
        for level in 0..LEVELS {
            self.code.store_number(Width::Double, EVENT, at::CGROUPS + 8 * level, 0);
        }
        let offsets = self.offsets;
        self.follow(R9, TASK, offsets.task_cgroups);
        self.follow(R9, R9, offsets.css_set_dfl_cgrp);
        self.code.store(Width::Double, STACK, KEPT, R9);
        self.code.store_number(Width::Double, STACK, LEVEL, 0);
        self.read(STACK, LEVEL, 4, R9, offsets.cgroup_level);
        let done = self.code.label();
        for level in 1..=LEVELS {
            self.code.load(Width::Double, R1, STACK, LEVEL);
            self.code.set(R2, level.into());
            self.code.jump_if_register(R2, If::Greater, R1, done);
            self.match_level(level);
        }
        self.code.place(done);
        self.code.load(Width::Double, R9, EVENT, at::MATCHES);
        self.code.jump_if(R9, If::Equal, 0, self.end);
    }

    fn match_level(&mut self, level: i16) {
        let offsets = self.offsets;
        self.code.load(Width::Double, R9, STACK, KEPT);
        self.follow(R9, R9, offsets.cgroup_ancestors + 8 * u32::from(level.unsigned_abs()));
        self.follow(R9, R9, offsets.cgroup_kn);
        let id = at::CGROUPS + 8 * (level - 1);
        self.tell(id, 8, R9, offsets.kernfs_id);
        self.follow(R9, R9, offsets.kernfs_name);
        self.code.store_number(Width::Double, STACK, NAME, 0);
        self.code.store_number(Width::Double, STACK, NAME + 8, 0);
        self.code.copy(R3, R9);
        self.code.copy(R1, STACK);
        self.code.add(R1, NAME.into());
        self.code.set(R2, 16);
        self.code.call(ReadKernelString);
        self.code.load(Width::Double, R9, STACK, NAME);
        // `sessions` of a container, and what the wrapper of stock clusters makes.
        self.match_name(b"sessions", Some(0), SESSION, None);
        self.match_name(b"waybill-", None, SESSION, None);
        self.match_name(b"processe", Some(u16::from_le_bytes(*b"s\0")), CONTAINER, Some(id));
    }

    /// Notes a match if the name in `R9` begins so, and goes on so. The cgroup at `leaf` is noted with it.
    fn match_name(&mut self, begins: &[u8; 8], goes_on: Option<u16>, bit: i32, leaf: Option<i16>) {
        let other = self.code.label();
        self.code.set_wide(R1, u64::from_le_bytes(*begins));
        self.code.jump_if_register(R9, If::NotEqual, R1, other);
        if let Some(goes_on) = goes_on {
            self.code.load(Width::Half, R1, STACK, NAME + 8);
            self.code.jump_if(R1, If::NotEqual, goes_on.into(), other);
        }
        // The walk goes down, and the innermost name counts: the runtime's own cgroup, above all containers, may begin as the
        // wrapper's sessions do.
        self.code.store_number(Width::Double, EVENT, at::MATCHES, bit);
        if let Some(id) = leaf {
            self.code.load(Width::Double, R1, EVENT, id);
            self.store(Width::Double, at::LEAF, R1);
        }
        self.code.place(other);
    }

    /// Ends the program for a container's own processes of which nobody wants to know.
    fn skip_ignored(&mut self) {
        let wanted = self.code.label();
        self.code.jump_if(R9, If::NotEqual, CONTAINER, wanted);
        self.code.load(Width::Double, R1, EVENT, at::LEAF);
        self.code.store(Width::Double, STACK, KEY, R1);
        self.look_up(self.maps.ignored);
        self.code.jump_if(R0, If::NotEqual, 0, self.end);
        self.code.place(wanted);
    }

    fn write_process(&mut self) {
        self.code.store_number(Width::Word, EVENT, at::KIND, EXEC.into());
        self.code.call(BootNanoseconds);
        self.store(Width::Double, at::TIME, R0);
        self.code.call(CurrentPidTgid);
        self.code.shift_right(R0, 32);
        self.store(Width::Word, at::PID, R0);
        self.code.call(CurrentUidGid);
        self.store(Width::Word, at::UID, R0);
        self.tell(at::BEGAN, 8, TASK, self.offsets.task_start_boottime);
        self.write_namespace(TASK, at::PID_NAMESPACE, at::INNER_PID);
    }

    /// The PID namespace of a task and its number there. Loses `R9`.
    fn write_namespace(&mut self, task: Register, namespace: i16, inner: i16) {
        let offsets = self.offsets;
        self.follow(R9, task, offsets.task_thread_pid);
        self.code.store_number(Width::Double, STACK, LEVEL, 0);
        self.read(STACK, LEVEL, 4, R9, offsets.pid_level);
        // The last of its numbers is the one of its own namespace.
        self.code.load(Width::Double, R1, STACK, LEVEL);
        self.code.multiply(R1, i32::try_from(offsets.upid_size).unwrap_or(i32::MAX));
        self.code.add_register(R9, R1);
        self.code.add(R9, i32::try_from(offsets.pid_numbers).unwrap_or(i32::MAX));
        self.tell(inner, 4, R9, offsets.upid_nr);
        self.follow(R9, R9, offsets.upid_ns);
        self.tell(namespace, 4, R9, offsets.pid_namespace_inum);
    }

    /// The parent, and those above it. `TASK` walks up with them.
    fn write_parent(&mut self) {
        let offsets = self.offsets;
        self.code.store(Width::Double, STACK, KEPT, TASK);
        self.go_up();
        self.tell(at::PARENT, 4, TASK, offsets.task_tgid);
        self.tell(at::PARENT_BEGAN, 8, TASK, offsets.task_start_boottime);
        self.write_namespace(TASK, at::PARENT_PID_NAMESPACE, at::PARENT_INNER_PID);
        self.follow(R9, TASK, offsets.task_cgroups);
        self.follow(R9, R9, offsets.css_set_dfl_cgrp);
        self.follow(R9, R9, offsets.cgroup_kn);
        self.tell(at::PARENT_CGROUP, 8, R9, offsets.kernfs_id);
        for step in 0..ANCESTORS {
            self.go_up();
            self.tell(at::ABOVE + 4 * step, 4, TASK, offsets.task_tgid);
        }
        self.code.load(Width::Double, TASK, STACK, KEPT);
    }

    /// To the process that made this one; its first thread stands for it.
    fn go_up(&mut self) {
        self.follow(TASK, TASK, self.offsets.task_real_parent);
        self.follow(TASK, TASK, self.offsets.task_group_leader);
    }

    /// Arguments and the name of the file. `R9` is the length of the arguments, and `R0` that of the name.
    fn write_text(&mut self) {
        let offsets = self.offsets;
        self.follow(TASK, TASK, offsets.task_mm);
        self.follow(R9, TASK, offsets.mm_arg_end);
        self.follow(TASK, TASK, offsets.mm_arg_start);
        self.code.subtract_register(R9, TASK);
        self.store(Width::Double, at::ARGUMENTS_TOTAL, R9);
        let (fits, read, whole) = (self.code.label(), self.code.label(), self.code.label());
        self.code.jump_if(R9, If::Greater, ARGUMENTS.into(), fits);
        self.code.jump(read);
        self.code.place(fits);
        self.code.set(R9, ARGUMENTS.into());
        self.code.place(read);
        self.code.copy(R1, EVENT);
        self.code.add(R1, at::TEXT.into());
        self.code.copy(R2, R9);
        self.code.copy(R3, TASK);
        self.code.call(ReadUser);
        self.code.jump_if(R0, If::Equal, 0, whole);
        self.code.set(R9, 0);
        self.code.place(whole);
        self.store(Width::Word, at::ARGUMENTS_LENGTH, R9);
        self.code.load(Width::Double, TASK, CONTEXT, 16);
        self.follow(TASK, TASK, offsets.binprm_filename);
        self.code.copy(R3, TASK);
        self.code.copy(R1, EVENT);
        self.code.add(R1, at::TEXT.into());
        self.code.add_register(R1, R9);
        self.code.set(R2, FILE_NAME.into());
        self.code.call(ReadKernelString);
        // Also what is below zero, an error.
        let (short, named) = (self.code.label(), self.code.label());
        self.code.jump_if(R0, If::Greater, FILE_NAME.into(), short);
        self.code.jump(named);
        self.code.place(short);
        self.code.set(R0, 0);
        self.code.place(named);
        self.store(Width::Word, at::FILE_NAME_LENGTH, R0);
        self.code.add_register(R9, R0);
        self.code.add(R9, at::TEXT.into());
    }

    /// The end of a process is told if its beginning was.
    fn track(&mut self) {
        self.code.load(Width::Word, R1, EVENT, at::PID);
        self.code.store_number(Width::Double, STACK, KEY, 0);
        self.code.store(Width::Word, STACK, KEY, R1);
        self.code.set_map(R1, self.maps.tracked);
        self.code.copy(R2, STACK);
        self.code.add(R2, KEY.into());
        self.code.copy(R3, EVENT);
        self.code.add(R3, at::BEGAN.into());
        self.code.set(R4, 0);
        self.code.call(MapUpdate);
    }

    fn send_text(&mut self) {
        self.code.jump_if(R9, If::Greater, LARGEST.into(), self.end);
        self.send();
    }

    /// `R9` bytes of the event; one that does not fit is counted.
    fn send(&mut self) {
        self.code.set_map(R1, self.maps.ring);
        self.code.copy(R2, EVENT);
        self.code.copy(R3, R9);
        self.code.set(R4, 0);
        self.code.call(RingOutput);
        self.code.jump_if(R0, If::Equal, 0, self.end);
        self.code.store_number(Width::Double, STACK, KEY, 0);
        self.look_up(self.maps.lost);
        self.code.jump_if(R0, If::Equal, 0, self.end);
        self.code.set(R1, 1);
        self.code.add_shared(R0, 0, R1);
    }

    /// Ends the program for processes that were never told of. When they were made is in `KEPT`.
    fn find_tracked(&mut self) {
        self.code.call(CurrentPidTgid);
        self.code.shift_right(R0, 32);
        self.code.store_number(Width::Double, STACK, KEY, 0);
        self.code.store(Width::Word, STACK, KEY, R0);
        self.look_up(self.maps.tracked);
        self.code.jump_if(R0, If::Equal, 0, self.end);
        self.code.load(Width::Double, R9, R0, 0);
        self.code.store(Width::Double, STACK, KEPT, R9);
        // Other threads of it may run on.
        self.follow(R9, TASK, self.offsets.task_signal);
        self.code.store_number(Width::Double, STACK, LEVEL, 0);
        self.read(STACK, LEVEL, 4, R9, self.offsets.signal_live);
        self.code.load(Width::Double, R1, STACK, LEVEL);
        self.code.jump_if(R1, If::NotEqual, 0, self.end);
    }

    fn write_exit(&mut self) {
        let offsets = self.offsets;
        self.code.store_number(Width::Word, EVENT, at::EXIT_KIND, EXIT.into());
        self.code.call(BootNanoseconds);
        self.store(Width::Double, at::TIME, R0);
        self.code.load(Width::Double, R1, STACK, KEPT);
        self.store(Width::Double, at::BEGAN, R1);
        self.code.call(CurrentPidTgid);
        self.code.shift_right(R0, 32);
        self.store(Width::Double, at::EXIT_PID, R0);
        self.tell(at::EXIT_CODE, 4, TASK, offsets.task_exit_code);
        self.follow(R9, TASK, offsets.task_signal);
        self.tell(at::GROUP_EXIT_CODE, 4, R9, offsets.signal_group_exit_code);
        self.tell(at::SIGNAL_FLAGS, 4, R9, offsets.signal_flags);
    }

    fn forget_tracked(&mut self) {
        self.code.call(CurrentPidTgid);
        self.code.shift_right(R0, 32);
        self.code.store_number(Width::Double, STACK, KEY, 0);
        self.code.store(Width::Word, STACK, KEY, R0);
        self.code.set_map(R1, self.maps.tracked);
        self.code.copy(R2, STACK);
        self.code.add(R2, KEY.into());
        self.code.call(MapDelete);
    }
}
