//! Reads what the kernel counts for a cgroup.

use std::{fs, io, path::Path};

use crate::engine::MemoryStats;

/// What v1 shows as a limit when there is none: the largest number of whole pages.
const NO_LEGACY_LIMIT: u64 = 1 << 62;

/// A file that holds one number.
pub(super) fn number(file: &Path) -> io::Result<u64> {
    parse(fs::read_to_string(file)?.trim())
}

/// A file that holds one number, or `max` for none.
pub(super) fn limit(file: &Path) -> io::Result<Option<u64>> {
    match fs::read_to_string(file)?.trim() {
        "max" => Ok(None),
        number => parse(number).map(Some),
    }
}

/// One number of a file that holds a name and a number in each line.
pub(super) fn field(file: &Path, name: &str) -> io::Result<u64> {
    fields(file)?.get(name)
}

pub(super) fn legacy_memory(directory: &Path) -> io::Result<MemoryStats> {
    let stat = fields(&directory.join("memory.stat"))?;
    let usage = number(&directory.join("memory.usage_in_bytes"))?;
    let limit = number(&directory.join("memory.limit_in_bytes"))?;
    Ok(MemoryStats {
        usage,
        working_set: usage.saturating_sub(stat.get("total_inactive_file")?),
        rss: stat.get("total_rss")?,
        limit: (limit < NO_LEGACY_LIMIT).then_some(limit),
        swap_usage: stat.get("total_swap").ok(),
        swap_limit: None,
        page_faults: stat.get("total_pgfault")?,
        major_page_faults: stat.get("total_pgmajfault")?,
    })
}

pub(super) fn unified_memory(directory: &Path) -> io::Result<MemoryStats> {
    let stat = fields(&directory.join("memory.stat"))?;
    let usage = number(&directory.join("memory.current"))?;
    Ok(MemoryStats {
        usage,
        working_set: usage.saturating_sub(stat.get("inactive_file")?),
        rss: stat.get("anon")?,
        limit: limit(&directory.join("memory.max"))?,
        swap_usage: number(&directory.join("memory.swap.current")).ok(),
        swap_limit: limit(&directory.join("memory.swap.max")).ok().flatten(),
        page_faults: stat.get("pgfault")?,
        major_page_faults: stat.get("pgmajfault")?,
    })
}

struct Fields(String);

impl Fields {
    fn get(&self, name: &str) -> io::Result<u64> {
        self.0
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a counter is missing"))
            .and_then(parse)
    }
}

fn fields(file: &Path) -> io::Result<Fields> {
    fs::read_to_string(file).map(Fields)
}

fn parse(text: &str) -> io::Result<u64> {
    text.trim().parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_v2_counts_the_working_set_without_inactive_files() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        write("memory.stat", "anon 10\nfile 90\ninactive_file 30\npgfault 7\npgmajfault 2\n");
        write("memory.current", "100\n");
        write("memory.max", "max\n");
        write("memory.swap.current", "5\n");
        write("memory.swap.max", "50\n");
        assert_eq!(
            unified_memory(directory.path()).unwrap(),
            MemoryStats {
                usage: 100,
                working_set: 70,
                rss: 10,
                limit: None,
                swap_usage: Some(5),
                swap_limit: Some(50),
                page_faults: 7,
                major_page_faults: 2,
            }
        );
    }

    #[test]
    fn a_counter_is_found_by_its_whole_name() {
        let fields = Fields("oom 1\noom_kill 3\noom_kill_disable 0\n".to_owned());
        assert_eq!(fields.get("oom_kill").unwrap(), 3);
        assert!(fields.get("kill").is_err());
    }
}
