//! Which ids of the machine the users of a pod are: with `hostUsers: false`, a range that no other pod has.
//!
//! A pod keeps its range in a file of its directory, of the format that kubelets write there. The files are all that is known: a
//! node that is started again finds them, and a range is free when nothing of its pod will run again, or its directory is gone.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};
use waybill_core::id::PodUid;
use waybill_proto::cri::{IdMapping, NamespaceMode, UserNamespace};

use crate::directories::Directories;

/// How many ids a pod has; kubelets' default.
const LENGTH: u32 = 65536;

/// How many ranges there are at all, beside the machine's own and the one that holds the number which means "no id".
const MOST: u32 = u32::MAX / LENGTH - 1;

/// The name of the file in the directory of a pod.
const FILE: &str = "userns";

/// Whose ranges in these files pods may have; kubelets use the same name.
const OWNER: &str = "kubelet";
const SUBUID: &str = "/etc/subuid";
const SUBGID: &str = "/etc/subgid";

/// The ranges of all pods of a node.
#[derive(Debug)]
pub(crate) struct UserRanges {
    pods: PathBuf,
    most_pods: u32,
    /// Held while one is chosen, so that no two pods choose the same.
    choosing: Mutex<()>,
}

/// Why a pod has no range, as users read it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UsersError {
    #[error(
        "all {count} ranges of user ids of this node are in use; remove a pod with hostUsers: false, or give the user {OWNER} more \
         in {SUBUID} and {SUBGID}"
    )]
    Exhausted { count: u32 },
    #[error("{path} does not say which user ids a pod has; remove that pod and its directory")]
    Damaged { path: String },
    #[error("{SUBUID} and {SUBGID}: {reason}")]
    Configured { reason: &'static str },
    #[error("cannot {action} {path}: {source}")]
    Io { action: &'static str, path: String, source: io::Error },
}

/// Ranges that pods may have: so many, from this id on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pool {
    first: u32,
    count: u32,
}

/// What a file says.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Mappings {
    uid_mappings: Vec<Mapping>,
    gid_mappings: Vec<Mapping>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Mapping {
    host_id: u32,
    container_id: u32,
    length: u32,
}

impl UserRanges {
    /// For so many pods at once.
    pub(crate) fn new(directories: &Directories, most_pods: u32) -> Self {
        let most_pods = most_pods.min(MOST);
        Self { pods: directories.pods(), most_pods, choosing: Mutex::default() }
    }

    /// The range of a pod: the one that it has, or else the lowest that nobody has. Waits for the disk.
    pub(crate) fn of(&self, pod: &PodUid) -> Result<UserNamespace, UsersError> {
        self.choose(pod, || {
            let read = |path: &str| read(Path::new(path)).map(Option::unwrap_or_default);
            configured(&read(SUBUID)?, &read(SUBGID)?, self.most_pods)
        })
    }

    /// Lets others have the range of a pod of which nothing will run again. Fine if it has none.
    pub(crate) fn release(&self, pod: &PodUid) -> Result<(), UsersError> {
        let _choosing = self.choosing.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.pods.join(pod.as_str()).join(FILE);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed("remove", &path)(error))
            }
            _ => Ok(()),
        }
    }

    fn choose(
        &self,
        pod: &PodUid,
        pool: impl FnOnce() -> Result<Pool, UsersError>,
    ) -> Result<UserNamespace, UsersError> {
        let _choosing = self.choosing.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = self.pods.join(pod.as_str());
        if let Some(mapping) = load(&directory.join(FILE))? {
            return Ok(namespace(mapping));
        }
        let mapping = free(pool()?, &self.taken()?)?;
        fs::create_dir_all(&directory).map_err(failed("make", &directory))?;
        save(&directory, mapping)?;
        Ok(namespace(mapping))
    }

    /// What pods have, whether or not they still run.
    fn taken(&self) -> Result<Vec<Mapping>, UsersError> {
        let entries = match fs::read_dir(&self.pods) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed("list", &self.pods))?,
        };
        let mut taken = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed("list", &self.pods))?;
            taken.extend(load(&entry.path().join(FILE))?);
        }
        Ok(taken)
    }
}

/// The lowest range that overlaps with none of those `taken`.
fn free(pool: Pool, taken: &[Mapping]) -> Result<Mapping, UsersError> {
    let ends = |mapping: &Mapping| u64::from(mapping.host_id) + u64::from(mapping.length);
    // Those of other lengths, or from another time, may lie across several of ours.
    let used: BTreeSet<u64> = taken
        .iter()
        .flat_map(|it| u64::from(it.host_id / LENGTH)..ends(it).div_ceil(u64::from(LENGTH)))
        .collect();
    let mut all = (0..pool.count).map(|number| pool.first + number * LENGTH);
    let host_id = all.find(|first| !used.contains(&u64::from(first / LENGTH)));
    let host_id = host_id.ok_or(UsersError::Exhausted { count: pool.count })?;
    Ok(Mapping { host_id, container_id: 0, length: LENGTH })
}

/// What the administrator gave to pods: as for kubelets, one range of users and the same of groups, or none at all.
fn configured(subuid: &str, subgid: &str, most_pods: u32) -> Result<Pool, UsersError> {
    let of_owner = |text: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.trim().strip_prefix(OWNER));
        lines.filter_map(|line| line.strip_prefix(':')).map(str::to_owned).collect()
    };
    let wrong = |reason| UsersError::Configured { reason };
    let (users, groups) = (of_owner(subuid), of_owner(subgid));
    let range = match (users.as_slice(), groups.as_slice()) {
        // Above those of the machine itself.
        ([], []) => return Ok(Pool { first: LENGTH, count: most_pods }),
        ([users], [groups]) if users == groups => users,
        _ => return Err(wrong("the user kubelet needs one range in each, and both the same")),
    };
    let numbers = range.split_once(':').and_then(|(first, length)| {
        Some((first.parse::<u32>().ok()?, length.parse::<u32>().ok()?))
    });
    let (first, length) = numbers.ok_or_else(|| wrong("a range is two numbers"))?;
    if first < LENGTH || !first.is_multiple_of(LENGTH) || !length.is_multiple_of(LENGTH) {
        return Err(wrong(
            "the range of the user kubelet must begin and end at multiples of 65536, and above 0",
        ));
    }
    if first.checked_add(length).is_none() {
        return Err(wrong("the range of the user kubelet ends above all ids"));
    }
    let count = length / LENGTH;
    if count < most_pods {
        return Err(wrong(
            "the range of the user kubelet has less than 65536 ids for each pod that the node may have",
        ));
    }
    Ok(Pool { first, count })
}

fn load(path: &Path) -> Result<Option<Mapping>, UsersError> {
    let Some(text) = read(path)? else { return Ok(None) };
    let damaged = || UsersError::Damaged { path: path.display().to_string() };
    let found: Mappings = serde_json::from_str(&text).map_err(|_| damaged())?;
    match (found.uid_mappings.as_slice(), found.gid_mappings.as_slice()) {
        ([users], [groups])
            if users == groups
                && users.container_id == 0
                && users.host_id >= LENGTH
                && users.length >= LENGTH
                && users.host_id.checked_add(users.length).is_some() =>
        {
            Ok(Some(*users))
        }
        _ => Err(damaged()),
    }
}

/// `None` if there is no such file.
fn read(path: &Path) -> Result<Option<String>, UsersError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", path)(error)),
    }
}

/// Whole or not at all, and there after a power cut: a pod whose range was forgotten would share it with another.
fn save(directory: &Path, mapping: Mapping) -> Result<(), UsersError> {
    let (new, path) = (directory.join(".userns.new"), directory.join(FILE));
    let write = || -> io::Result<()> {
        let mappings = Mappings { uid_mappings: vec![mapping], gid_mappings: vec![mapping] };
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(&mappings)?)?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(directory)?.sync_all()
    };
    write().map_err(failed("write", &path))
}

fn namespace(mapping: Mapping) -> UserNamespace {
    let Mapping { host_id, container_id, length } = mapping;
    let ids = vec![IdMapping { host_id, container_id, length }];
    UserNamespace { mode: NamespaceMode::Pod.into(), uids: ids.clone(), gids: ids }
}

fn failed(action: &'static str, path: &Path) -> impl Fn(io::Error) -> UsersError {
    let path = path.display().to_string();
    move |source| UsersError::Io { action, path: path.clone(), source }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ranges(directory: &Path) -> UserRanges {
        let (state, logs) = (directory.to_owned(), directory.join("logs"));
        UserRanges::new(&Directories { state, logs }, 4)
    }

    fn uid(number: usize) -> PodUid {
        PodUid::parse(&format!("pod-{number}")).unwrap()
    }

    const POOL: Pool = Pool { first: LENGTH, count: 4 };

    fn first(found: &UserNamespace) -> u32 {
        found.uids[0].host_id
    }

    #[test]
    fn a_pod_keeps_its_range_until_its_directory_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let all = ranges(directory.path());
        let of =
            |all: &UserRanges, number| all.choose(&uid(number), || Ok(POOL)).map(|it| first(&it));
        assert_eq!(of(&all, 0).unwrap(), LENGTH);
        assert_eq!(of(&all, 1).unwrap(), 2 * LENGTH);
        assert_eq!(of(&all, 0).unwrap(), LENGTH);
        // Another node on the same directory.
        let again = ranges(directory.path());
        assert_eq!(of(&again, 1).unwrap(), 2 * LENGTH);
        fs::remove_dir_all(directory.path().join("pods/pod-0")).unwrap();
        assert_eq!(of(&again, 2).unwrap(), LENGTH);
        assert_eq!(of(&again, 3).unwrap(), 3 * LENGTH);
        assert_eq!(of(&again, 4).unwrap(), 4 * LENGTH);
        assert!(matches!(of(&again, 5), Err(UsersError::Exhausted { count: 4 })));
        // Twice is fine, and nobody else loses theirs.
        again.release(&uid(1)).unwrap();
        again.release(&uid(1)).unwrap();
        assert_eq!(of(&again, 5).unwrap(), 2 * LENGTH);
        assert_eq!(of(&again, 3).unwrap(), 3 * LENGTH);
    }

    #[test]
    fn nobody_gets_a_range_while_one_is_not_known() {
        let directory = tempfile::tempdir().unwrap();
        let all = ranges(directory.path());
        all.choose(&uid(0), || Ok(POOL)).unwrap();
        for damage in ["", "{", r#"{"uidMappings":[],"gidMappings":[]}"#] {
            fs::write(directory.path().join("pods/pod-0/userns"), damage).unwrap();
            for number in [0, 1] {
                let error = all.choose(&uid(number), || Ok(POOL)).unwrap_err();
                assert!(matches!(error, UsersError::Damaged { .. }), "{error}");
            }
        }
    }

    /// The format of kubelets.
    #[test]
    fn the_file_is_the_one_that_kubelets_write() {
        let directory = tempfile::tempdir().unwrap();
        ranges(directory.path()).choose(&uid(0), || Ok(POOL)).unwrap();
        let text = fs::read_to_string(directory.path().join("pods/pod-0/userns")).unwrap();
        let one = r#"[{"hostId":65536,"containerId":0,"length":65536}]"#;
        assert_eq!(text, format!(r#"{{"uidMappings":{one},"gidMappings":{one}}}"#));
    }

    #[test]
    fn the_administrator_may_say_which_ids_pods_have() {
        let check = |subuid: &str, subgid: &str| configured(subuid, subgid, 2).ok();
        assert_eq!(check("", "other:1:2\n"), Some(Pool { first: LENGTH, count: 2 }));
        let good = "root:1:2\nkubelet:131072:196608\n";
        assert_eq!(check(good, good), Some(Pool { first: 131_072, count: 3 }));
        for bad in [
            "kubelet:0:196608",
            "kubelet:65536:65536",
            "kubelet:100000:196608",
            "kubelet:131072:200000",
            "kubelet:x:y",
            "kubelet:131072:196608\nkubelet:524288:196608",
            "kubelet:4294901760:131072",
        ] {
            assert_eq!(check(bad, bad), None, "{bad}");
        }
        assert_eq!(check(good, ""), None);
        assert_eq!(check("kubeletx:1:2", ""), Some(Pool { first: LENGTH, count: 2 }));
    }

    proptest! {
        /// Whatever pods come and go, no two have an id in common, and none has one of the machine.
        #[test]
        fn no_two_pods_have_an_id_in_common(steps in prop::collection::vec((0_usize..8, any::<bool>()), 1..60)) {
            let directory = tempfile::tempdir().unwrap();
            let mut all = ranges(directory.path());
            let pool = Pool { first: LENGTH, count: 5 };
            let mut living: std::collections::BTreeMap<usize, u32> = Default::default();
            for (number, comes) in steps {
                if comes {
                    match all.choose(&uid(number), || Ok(pool)) {
                        Ok(found) => {
                            let before = living.insert(number, first(&found));
                            prop_assert!(before.is_none_or(|before| before == first(&found)));
                        }
                        Err(error) => {
                            prop_assert!(matches!(error, UsersError::Exhausted { .. }), "{}", error);
                            prop_assert_eq!(living.len(), 5);
                        }
                    }
                } else if living.remove(&number).is_some() {
                    fs::remove_dir_all(all.pods.join(uid(number).as_str())).unwrap();
                    all = ranges(directory.path());
                }
                let mut firsts: Vec<_> = living.values().copied().collect();
                firsts.sort_unstable();
                prop_assert!(firsts.iter().all(|first| *first >= LENGTH));
                prop_assert!(firsts.windows(2).all(|two| two[0] + LENGTH <= two[1]));
            }
        }

        /// Ranges of another length or place than ours are stepped around.
        #[test]
        fn a_free_range_overlaps_with_none(taken in prop::collection::vec((65_536_u32..1_000_000, 65_536_u32..400_000), 0..6)) {
            let taken: Vec<_> = taken
                .into_iter()
                .map(|(host_id, length)| Mapping { host_id, container_id: 0, length })
                .collect();
            let found = free(Pool { first: LENGTH, count: 100 }, &taken).unwrap();
            let end = found.host_id + found.length;
            for other in taken {
                prop_assert!(end <= other.host_id || other.host_id + other.length <= found.host_id);
            }
        }
    }
}
