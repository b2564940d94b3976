//! The bytes in which our program in the kernel tells of a program that starts or ends, and what they say here. Pure.

/// Levels of cgroups that are told, from the first below the root.
pub(crate) const LEVELS: i16 = 16;

/// Processes above the parent that are told.
pub(crate) const ANCESTORS: i16 = 6;

/// So much of a command line is taken.
pub(crate) const ARGUMENTS: i16 = 4096;

/// So much of the name of a file is taken.
pub(crate) const FILE_NAME: i16 = 256;

/// Where members stand; those of 8 bytes first.
pub(crate) mod at {
    use super::{ANCESTORS, LEVELS};

    pub(crate) const TIME: i16 = 0;
    pub(crate) const BEGAN: i16 = 8;
    pub(crate) const PARENT_BEGAN: i16 = 16;
    pub(crate) const PARENT_CGROUP: i16 = 24;
    pub(crate) const ARGUMENTS_TOTAL: i16 = 32;
    pub(crate) const CGROUPS: i16 = 40;
    pub(crate) const KIND: i16 = CGROUPS + 8 * LEVELS;
    pub(crate) const PID: i16 = KIND + 4;
    pub(crate) const UID: i16 = KIND + 8;
    pub(crate) const PARENT: i16 = KIND + 12;
    pub(crate) const PID_NAMESPACE: i16 = KIND + 16;
    pub(crate) const INNER_PID: i16 = KIND + 20;
    pub(crate) const PARENT_PID_NAMESPACE: i16 = KIND + 24;
    pub(crate) const PARENT_INNER_PID: i16 = KIND + 28;
    pub(crate) const ARGUMENTS_LENGTH: i16 = KIND + 32;
    pub(crate) const FILE_NAME_LENGTH: i16 = KIND + 36;
    pub(crate) const ABOVE: i16 = KIND + 40;
    /// Not told: what the names of the cgroups are like.
    pub(crate) const MATCHES: i16 = ABOVE + 4 * ANCESTORS;
    /// Not told: the cgroup of a container's own processes.
    pub(crate) const LEAF: i16 = MATCHES + 8;
    /// Arguments, and after them the name of the file.
    pub(crate) const TEXT: i16 = LEAF + 8;

    /// Of the end of a process: these stand where a start has other things.
    pub(crate) const EXIT_CODE: i16 = 16;
    pub(crate) const GROUP_EXIT_CODE: i16 = 20;
    pub(crate) const SIGNAL_FLAGS: i16 = 24;
    pub(crate) const EXIT_KIND: i16 = 28;
    pub(crate) const EXIT_PID: i16 = 32;
    pub(crate) const EXIT_LENGTH: i16 = 40;
}

/// As large as the largest event.
pub(crate) const LARGEST: i16 = at::TEXT + ARGUMENTS + FILE_NAME;

/// In `KIND`.
pub(crate) const EXEC: u8 = 1;
pub(crate) const EXIT: u8 = 2;

/// The kernel's mark that all threads of a process end with one code.
const SIGNAL_GROUP_EXIT: u32 = 4;

/// Something that the kernel told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelEvent {
    /// A process began to run a program.
    Exec(Box<ExecEvent>),
    /// A process ended.
    Exit(ExitEvent),
}

/// A process began to run a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecEvent {
    /// When, in nanoseconds after boot.
    pub time: u64,
    /// The process, as the machine counts.
    pub pid: u32,
    /// When the process was made, in nanoseconds after boot.
    pub began: u64,
    /// Its user, as the machine counts.
    pub uid: u32,
    /// The IDs of its cgroup in the unified hierarchy and of those above, innermost first, without the root.
    pub cgroups: Vec<u64>,
    /// Its PID namespace; 0 if that is not known.
    pub pid_namespace: u32,
    /// Its own number there.
    pub inner_pid: u32,
    /// The process that made it, or who took over when that was gone.
    pub parent: ParentProcess,
    /// The processes above the parent, nearest first.
    pub above: Vec<u32>,
    /// The file, as whoever started it named it.
    pub program: Vec<u8>,
    /// Arguments, each followed by NUL.
    pub arguments: Vec<u8>,
    /// Whether there are more.
    pub is_cut: bool,
}

/// What is told of a parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParentProcess {
    /// As the machine counts.
    pub pid: u32,
    /// When it was made, in nanoseconds after boot.
    pub began: u64,
    /// The ID of its cgroup in the unified hierarchy.
    pub cgroup: u64,
    /// Its PID namespace; 0 if that is not known.
    pub pid_namespace: u32,
    /// Its own number there.
    pub inner_pid: u32,
}

/// A process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitEvent {
    /// When, in nanoseconds after boot.
    pub time: u64,
    /// The process, as the machine counts.
    pub pid: u32,
    /// When the process was made, in nanoseconds after boot; 0 if that is not known.
    pub began: u64,
    /// As `wait` tells it: the code in the second byte, the signal in the first.
    pub status: u32,
}

impl ExitEvent {
    /// The status of a process of which nobody can say how it ended.
    pub const UNKNOWN: u32 = u32::MAX;

    /// Its exit code, if it exited.
    pub fn code(&self) -> Option<i32> {
        let is_known = self.status != Self::UNKNOWN && self.signal().is_none();
        is_known.then(|| i32::from(self.status.to_le_bytes()[1]))
    }

    /// The signal, if one ended it.
    pub fn signal(&self) -> Option<i32> {
        let signal = self.status & 0x7f;
        (signal != 0 && self.status != Self::UNKNOWN)
            .then(|| i32::try_from(signal).unwrap_or_default())
    }
}

impl KernelEvent {
    /// Nothing for bytes that our program did not write.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() == place(at::EXIT_LENGTH)? {
            let is_exit = word(bytes, at::EXIT_KIND)? == u32::from(EXIT);
            return is_exit.then(|| parse_exit(bytes).map(Self::Exit))?;
        }
        let is_exec = word(bytes, at::KIND)? == u32::from(EXEC);
        is_exec.then(|| parse_exec(bytes).map(Box::new).map(Self::Exec))?
    }
}

fn parse_exit(bytes: &[u8]) -> Option<ExitEvent> {
    let is_group = word(bytes, at::SIGNAL_FLAGS)? & SIGNAL_GROUP_EXIT != 0;
    let status = if is_group { at::GROUP_EXIT_CODE } else { at::EXIT_CODE };
    Some(ExitEvent {
        time: double(bytes, at::TIME)?,
        pid: word(bytes, at::EXIT_PID)?,
        began: double(bytes, at::BEGAN)?,
        status: word(bytes, status)?,
    })
}

fn parse_exec(bytes: &[u8]) -> Option<ExecEvent> {
    let text = place(at::TEXT)?;
    let arguments = word(bytes, at::ARGUMENTS_LENGTH)? as usize;
    let name = word(bytes, at::FILE_NAME_LENGTH)? as usize;
    let end = text.checked_add(arguments)?;
    let program = bytes.get(end..end.checked_add(name)?)?;
    let cgroups = (0..LEVELS).map(|level| double(bytes, at::CGROUPS + 8 * level));
    let mut cgroups = cgroups.collect::<Option<Vec<u64>>>()?;
    cgroups.retain(|id| *id != 0);
    cgroups.reverse();
    let above = (0..ANCESTORS).map(|step| word(bytes, at::ABOVE + 4 * step));
    let mut above = above.collect::<Option<Vec<u32>>>()?;
    above.retain(|pid| *pid != 0);
    Some(ExecEvent {
        time: double(bytes, at::TIME)?,
        pid: word(bytes, at::PID)?,
        began: double(bytes, at::BEGAN)?,
        uid: word(bytes, at::UID)?,
        cgroups,
        pid_namespace: word(bytes, at::PID_NAMESPACE)?,
        inner_pid: word(bytes, at::INNER_PID)?,
        parent: ParentProcess {
            pid: word(bytes, at::PARENT)?,
            began: double(bytes, at::PARENT_BEGAN)?,
            cgroup: double(bytes, at::PARENT_CGROUP)?,
            pid_namespace: word(bytes, at::PARENT_PID_NAMESPACE)?,
            inner_pid: word(bytes, at::PARENT_INNER_PID)?,
        },
        above,
        program: program.split(|byte| *byte == 0).next().unwrap_or_default().to_vec(),
        arguments: bytes.get(text..end)?.to_vec(),
        is_cut: double(bytes, at::ARGUMENTS_TOTAL)? > arguments as u64,
    })
}

fn place(at: i16) -> Option<usize> {
    usize::try_from(at).ok()
}

fn word(bytes: &[u8], at: i16) -> Option<u32> {
    let at = place(at)?;
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn double(bytes: &[u8], at: i16) -> Option<u64> {
    let at = place(at)?;
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(bytes: &mut [u8], at: i16, value: &[u8]) {
        bytes[place(at).unwrap()..][..value.len()].copy_from_slice(value);
    }

    fn exec(arguments: &[u8], file: &[u8], total: u64) -> Vec<u8> {
        let mut bytes = vec![0; place(at::TEXT).unwrap()];
        put(&mut bytes, at::KIND, &u32::from(EXEC).to_le_bytes());
        put(&mut bytes, at::PID, &7_u32.to_le_bytes());
        put(&mut bytes, at::CGROUPS, &11_u64.to_le_bytes());
        put(&mut bytes, at::CGROUPS + 8, &12_u64.to_le_bytes());
        put(&mut bytes, at::ABOVE, &5_u32.to_le_bytes());
        put(&mut bytes, at::ARGUMENTS_TOTAL, &total.to_le_bytes());
        let length = |text: &[u8]| u32::try_from(text.len()).unwrap().to_le_bytes();
        put(&mut bytes, at::ARGUMENTS_LENGTH, &length(arguments));
        put(&mut bytes, at::FILE_NAME_LENGTH, &length(file));
        bytes.extend(arguments);
        bytes.extend(file);
        bytes
    }

    #[test]
    fn a_start_is_read() {
        let Some(KernelEvent::Exec(event)) =
            KernelEvent::parse(&exec(b"ls\0-l\0", b"/bin/ls\0", 6))
        else {
            panic!("it is one")
        };
        assert_eq!((event.pid, event.above.as_slice()), (7, &[5][..]));
        assert_eq!(event.cgroups, [12, 11], "innermost first");
        assert_eq!((event.program.as_slice(), event.is_cut), (&b"/bin/ls"[..], false));
        let cut = KernelEvent::parse(&exec(b"ls\0", b"/bin/ls\0", 6000)).unwrap();
        assert!(matches!(cut, KernelEvent::Exec(event) if event.is_cut));
    }

    #[test]
    fn an_end_is_read_with_the_code_of_all_its_threads() {
        let mut bytes = vec![0; place(at::EXIT_LENGTH).unwrap()];
        put(&mut bytes, at::EXIT_KIND, &u32::from(EXIT).to_le_bytes());
        put(&mut bytes, at::EXIT_CODE, &0x0100_u32.to_le_bytes());
        put(&mut bytes, at::GROUP_EXIT_CODE, &9_u32.to_le_bytes());
        let read = |bytes: &[u8]| match KernelEvent::parse(bytes) {
            Some(KernelEvent::Exit(event)) => (event.code(), event.signal()),
            other => panic!("{other:?}"),
        };
        assert_eq!(read(&bytes), (Some(1), None));
        put(&mut bytes, at::SIGNAL_FLAGS, &SIGNAL_GROUP_EXIT.to_le_bytes());
        assert_eq!(read(&bytes), (None, Some(9)));
    }

    #[test]
    fn bytes_of_somebody_else_are_no_event() {
        let whole = exec(b"ls\0-l\0", b"/bin/ls\0", 6);
        for length in 0..whole.len() {
            assert_eq!(KernelEvent::parse(&whole[..length]), None, "{length}");
        }
        let mut hostile = whole;
        put(&mut hostile, at::ARGUMENTS_LENGTH, &u32::MAX.to_le_bytes());
        assert_eq!(KernelEvent::parse(&hostile), None);
    }
}
