//! Puts the store together from what its directory holds.

use waybill_core::id::ResourceVersion;

use super::{
    directory::{Directory, Kind},
    frame::Record,
    log::{self, Log, Replayed},
    snapshot::{self, Restored},
    state::State,
};
use crate::store::{
    Change, StoreError,
    history::{History, Limits},
};

/// A store as its directory has it.
pub(super) struct Recovered {
    pub(super) state: State,
    pub(super) history: History,
    /// The log that takes new writes.
    pub(super) log: Log,
    /// The bytes of the logs before it that no snapshot has replaced.
    pub(super) older_bytes: u64,
}

/// Reads the newest snapshot and the logs after it, and removes what they replace.
pub(super) fn recover(directory: &Directory, limits: Limits) -> Result<Recovered, StoreError> {
    directory.remove_unfinished()?;
    let base = directory.list(Kind::Snapshot)?.last().copied();
    let Restored { state, reaches } = match base {
        Some(base) => snapshot::read(directory, base)?,
        None => Restored { state: State::empty(), reaches: 0.into() },
    };
    let base = state.revision();
    remove_before(directory, base)?;
    let mut replay = Replay { state, reaches, history: History::after(reaches, limits) };
    let (log, older_bytes) = replay.logs(directory, base)?;
    let Replay { state, history, .. } = replay;
    if state.revision() < reaches {
        let (path, offset) = (log.path().to_owned(), log.len());
        return Err(StoreError::Damaged {
            path,
            offset,
            reason: "the log ends before what the snapshot holds",
        });
    }
    Ok(Recovered { state, history, log, older_bytes })
}

/// Removes the files that the snapshot at `base` replaces.
pub(super) fn remove_before(
    directory: &Directory,
    base: ResourceVersion,
) -> Result<(), StoreError> {
    for kind in [Kind::Log, Kind::Snapshot] {
        for revision in directory.list(kind)?.into_iter().filter(|revision| *revision < base) {
            directory.remove(kind, revision)?;
        }
    }
    Ok(())
}

struct Replay {
    state: State,
    /// Up to here the snapshot may know more than the record at hand.
    reaches: ResourceVersion,
    history: History,
}

impl Replay {
    /// Performs the writes of all logs from `base` on; each must begin where the one before ends.
    fn logs(
        &mut self,
        directory: &Directory,
        base: ResourceVersion,
    ) -> Result<(Log, u64), StoreError> {
        let bases = directory.list(Kind::Log)?;
        if bases.is_empty() && base.get() == 0 {
            return Ok((Log::create(directory, base)?, 0));
        }
        let missing = |revision| StoreError::Damaged {
            path: directory.path(Kind::Log, revision),
            offset: 0,
            reason: "the file is missing",
        };
        let (newest, older) = bases.split_last().ok_or_else(|| missing(base))?;
        let (mut expected, mut older_bytes) = (base, 0);
        for (base, next) in older.iter().zip(bases.iter().skip(1)) {
            if *base != expected {
                return Err(missing(expected));
            }
            let Replayed { newest, bytes } =
                log::replay(directory, *base, *next, |record| self.record(record))?;
            (expected, older_bytes) = (newest, older_bytes + bytes);
        }
        if *newest != expected {
            return Err(missing(expected));
        }
        let (log, _) = log::resume(directory, *newest, |record| self.record(record))?;
        Ok((log, older_bytes))
    }

    fn record(&mut self, record: Record) {
        if record.revision <= self.reaches {
            self.state.set_revision(record.revision);
            self.state.reapply(record);
            return;
        }
        let previous = self.state.object(&record.key).map(|object| object.value.clone());
        let Record { key, revision, value } = record;
        let change = Change { key, revision, value, previous };
        self.state.apply(&change);
        self.history.extend([change]);
    }
}
