//! Records of a node whose cgroups and processes are folders.

use waybill_api::stock::Verdict;

use super::*;

/// A node whose cgroups and processes are folders.
struct Node {
    folder: tempfile::TempDir,
    records: Records,
}

impl Node {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let directory = RunDirectory::for_test(&folder.path().join("run"));
        let records = Records::new(directory, folder.path());
        Self { folder, records }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A session that begins at second `started`, by the process 7.
    fn session(
        &self,
        number: u8,
        started: u64,
        change: impl FnOnce(&mut SessionRecord),
    ) -> SessionRecord {
        let id = SessionId::from_random([number; 16]);
        let cgroup = format!("/sys/fs/cgroup/c/{}", id.cgroup_name());
        fs::create_dir_all(self.path(&cgroup[1..])).unwrap();
        fs::write(self.path(&cgroup[1..]).join("cgroup.procs"), "").unwrap();
        let mut record = SessionRecord {
            version: 1,
            session: Some(id.clone()),
            kind: StockKind::Exec,
            namespace: "ns".to_owned(),
            pod: "web".to_owned(),
            uid: "u".to_owned(),
            container: "c".to_owned(),
            container_id: "id".to_owned(),
            argv: vec!["sh".to_owned()],
            cgroup,
            cgroup_id: 5,
            started_ns: started * 1_000_000_000,
            pid: Some(7),
            tty: false,
            verdict: Verdict::Attributed,
            privileged: false,
            ended_ns: None,
            exit_code: None,
        };
        change(&mut record);
        let layout = self.records.directory.layout();
        let file =
            record.session.as_ref().map_or(layout.unattributed(&id), |id| layout.session(id));
        self.records.directory.write_json(&file, &record).unwrap();
        record
    }

    fn populate(&self, record: &SessionRecord, pids: &str) {
        fs::write(self.path(&record.cgroup[1..]).join("cgroup.procs"), pids).unwrap();
    }

    fn ended(&self, number: u8) -> Option<u64> {
        let id = SessionId::from_random([number; 16]);
        let all = self.records.newest(&RecordsQuery::default()).sessions;
        let found = all.into_iter().find(|it| it.record.session.as_ref() == Some(&id));
        found.unwrap().record.ended_ns.map(|ns| ns / 1_000_000_000)
    }
}

fn second(second: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(second)
}

#[test]
fn a_session_ends_when_nobody_is_in_its_cgroup_any_more() {
    let node = Node::new();
    let record = node.session(1, 10, |_| ());
    fs::create_dir_all(node.path("proc/7")).unwrap();
    node.records.look(second(11));
    assert_eq!(node.ended(1), None, "its runtime has not come that far");
    node.populate(&record, "70\n");
    fs::remove_dir(node.path("proc/7")).unwrap();
    node.records.look(second(12));
    assert_eq!(node.ended(1), None, "somebody is there");
    node.populate(&record, "");
    node.records.look(second(13));
    assert_eq!(node.ended(1), Some(13));
    node.records.look(second(14));
    assert_eq!(node.ended(1), Some(13), "once");
}

#[test]
fn a_session_whose_cgroup_is_gone_has_ended_also_for_an_agent_that_comes_back() {
    let node = Node::new();
    let record = node.session(1, 10, |_| ());
    fs::remove_dir_all(node.path(&record.cgroup[1..])).unwrap();
    node.records.look(second(20));
    assert_eq!(node.ended(1), Some(20));
    let again = Records::new(node.records.directory.clone(), node.folder.path());
    again.look(second(30));
    assert_eq!(node.ended(1), Some(20));
}

/// The kernel may give its number to somebody else.
#[test]
fn nobody_is_about_to_begin_for_ever() {
    let node = Node::new();
    node.session(1, 10, |_| ());
    fs::create_dir_all(node.path("proc/7")).unwrap();
    node.records.look(second(129));
    assert_eq!(node.ended(1), None);
    node.records.look(second(131));
    assert_eq!(node.ended(1), Some(131));
}

#[test]
fn a_debug_container_ends_when_its_pod_says_so_or_is_gone() {
    let node = Node::new();
    for (number, container) in [(1, "a"), (2, "b"), (3, "d")] {
        node.session(number, 10, |record| {
            record.kind = StockKind::Debug;
            record.container = container.to_owned();
            (record.cgroup, record.cgroup_id) = (String::new(), 0);
            record.uid = if container == "d" { "v".to_owned() } else { "u".to_owned() };
        });
    }
    node.records.look(second(11));
    node.records.end_debug("u", "a", second(12), 3);
    node.records.end_debug("w", "b", second(12), 3);
    assert_eq!((node.ended(1), node.ended(2)), (Some(12), None));
    node.records.end_all_but(&BTreeSet::from(["v".to_owned()]), second(14));
    assert_eq!((node.ended(2), node.ended(3)), (Some(14), None));
    node.records.end_pod("v", second(15));
    assert_eq!(node.ended(3), Some(15));
    let told = node.records.newest(&RecordsQuery::default()).sessions;
    assert_eq!(told.iter().filter_map(|it| it.record.exit_code).collect::<Vec<_>>(), [3]);
}

#[test]
fn what_runs_in_a_session_is_told_while_it_runs() {
    let node = Node::new();
    let record = node.session(1, 10, |_| ());
    node.populate(&record, "70\n71\nx\n");
    for (pid, line) in [(70, "sh\0-c\0true\0"), (71, "")] {
        fs::create_dir_all(node.path(&format!("proc/{pid}"))).unwrap();
        fs::write(node.path(&format!("proc/{pid}/cmdline")), line).unwrap();
    }
    let told = node.records.newest(&RecordsQuery::default()).sessions;
    let told: Vec<_> = told[0].processes.iter().map(|it| (it.pid, it.argv.join(" "))).collect();
    assert_eq!(told, [(70, "sh -c true".to_owned()), (71, String::new())]);
}

#[test]
fn the_newest_that_are_wanted_are_told() {
    let node = Node::new();
    let named = |number: u8, namespace: &str, ended: Option<u64>| {
        node.session(number, u64::from(number), |record| {
            record.namespace = namespace.to_owned();
            record.ended_ns = ended.map(|second| second * 1_000_000_000);
        });
    };
    named(1, "ns", Some(5));
    named(2, "other", Some(50));
    named(3, "ns", None);
    named(4, "ns", Some(60));
    // Refused, so it never ran.
    node.session(5, 40, |record| (record.session, record.cgroup_id) = (None, 0));
    let told = |query: RecordsQuery| -> (Vec<u64>, bool) {
        let answer = node.records.newest(&query);
        let mut starts: Vec<_> =
            answer.sessions.iter().map(|it| it.record.started_ns / 1_000_000_000).collect();
        starts.sort_unstable();
        (starts, answer.truncated)
    };
    let all = RecordsQuery::default();
    assert_eq!(told(all.clone()), (vec![1, 2, 3, 4, 40], false));
    assert_eq!(told(RecordsQuery { namespace: Some("other".to_owned()), ..all.clone() }).0, [2]);
    assert!(told(RecordsQuery { pod: Some("x".to_owned()), ..all.clone() }).0.is_empty());
    assert_eq!(told(RecordsQuery { since_ns: Some(45_000_000_000), ..all.clone() }).0, [2, 3, 4]);
    let (some, truncated) = told(RecordsQuery { limit: Some(2), ..all });
    assert_eq!((some.len(), truncated), (2, true));
}

#[test]
fn records_go_a_day_after_their_end_and_not_while_they_run() {
    let node = Node::new();
    let running = node.session(1, 10, |_| ());
    node.populate(&running, "70\n");
    node.session(2, 10, |record| record.ended_ns = Some(11_000_000_000));
    node.session(3, 10, |record| {
        (record.session, record.cgroup_id, record.cgroup) = (None, 0, String::new());
    });
    let written =
        fs::metadata(node.records.directory.layout().sessions()).unwrap().modified().unwrap();
    node.records.sweep(written + KEPT_FOR - Duration::from_secs(60));
    assert_eq!(node.records.newest(&RecordsQuery::default()).sessions.len(), 3);
    node.records.sweep(written + KEPT_FOR + Duration::from_secs(60));
    let left = node.records.newest(&RecordsQuery::default()).sessions;
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].record.session, running.session);
}

/// One user can begin any number of sessions.
#[test]
fn room_is_made_of_the_container_that_has_most_the_oldest_first() {
    let node = Node::new();
    for number in 1..=9 {
        let record = node.session(number, u64::from(number), |record| {
            record.ended_ns = Some(20_000_000_000);
            record.container = if number < 3 { "quiet" } else { "busy" }.to_owned();
        });
        // Files of one moment have no order.
        let path = node.records.directory.layout().session(&record.session.unwrap());
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(second(number.into())).unwrap();
    }
    let records = node.records.directory.records();
    make_room(&records, 4);
    let left = node.records.newest(&RecordsQuery::default()).sessions;
    let mut left: Vec<_> = left.iter().map(|it| it.record.started_ns / 1_000_000_000).collect();
    left.sort_unstable();
    assert_eq!(left, [1, 2, 8, 9]);
    make_room(&node.records.directory.records(), 4);
    assert_eq!(node.records.directory.records().len(), 4);
}
