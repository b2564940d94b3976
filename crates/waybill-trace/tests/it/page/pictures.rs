//! Pictures of the page in each of its states, kept below the target folder for people to look at. With `WAYBILL_PICTURES` set, those
//! of the guide are written to it.

use std::{env, fs, path::Path};

use super::{
    crowd::crowd,
    hostile::hostile,
    incident::night,
    served::{Record, Visit},
};

/// How large a picture of the guide may be.
const BYTES: u64 = 150_000;

const TREE: &str = "document.querySelectorAll('.branch').length > 2";

#[test]
fn pictures_of_a_night() {
    let Some(visit) = Visit::of(night(), "") else { return };
    let tab = &visit.tab;
    tab.resize(1280, 800);
    visit.picture("overview");
    tab.prefer("dark");
    tab.wait_until("document.getElementById('theme').textContent === 'Light'");
    keep(&visit, "overview-dark");
    visit.go("session=exec-7f21");
    tab.wait_until(TREE);
    visit.picture("session-dark");
    tab.prefer("light");
    tab.wait_until(&format!("document.getElementById('theme').textContent === 'Dark' && {TREE}"));
    keep(&visit, "session");
    for (width, height) in [(1920, 1080), (1024, 768), (800, 900)] {
        tab.resize(width, height);
        visit.picture(&format!("session-{width}"));
    }
    tab.resize(1280, 800);
    visit.go("pod=web-6d&since=2026-11-17T02:10:00Z&until=2026-11-17T02:20:00Z&session=exec-7f21");
    tab.wait_until(TREE);
    keep(&visit, "pod-and-times");
    visit.go("q=pg_dump&by=pod&session=exec-7f21&process=48226@1794881608850137");
    tab.wait_until("document.querySelector('.more')");
    keep(&visit, "program");
    visit.go("session=exec-90aa");
    tab.wait_until(TREE);
    keep(&visit, "warnings");
    visit.go("user=nobody");
    tab.wait_until("!document.getElementById('nothing').hidden");
    visit.picture("no-match");
    tab.press("?");
    visit.picture("help");
}

#[test]
fn pictures_of_the_rare() {
    let (record, _) = hostile();
    let Some(visit) = Visit::of(record, "session=exec-evil") else { return };
    visit.tab.wait_until(TREE);
    visit.picture("hostile");
    visit.served.record.break_down("no space left on device");
    visit.go("");
    visit.tab.wait_until("!document.getElementById('banner').hidden");
    visit.picture("error");
    let Some(visit) = Visit::start(Record::default(), "") else { return };
    visit.tab.wait_until("!document.getElementById('nothing').hidden");
    visit.picture("empty");
    visit.tab.evaluate("localStorage.clear()");
    visit.go("session=exec-7f21");
    visit.tab.wait_until("!document.getElementById('gate').hidden");
    visit.picture("door");
}

#[test]
fn pictures_of_a_crowd() {
    let Some(visit) = Visit::of(crowd(), "session=s09000") else { return };
    visit.tab.wait_until(TREE);
    visit.picture("crowd");
    visit.go("by=pod&since=2026-11-16T12:00:00Z&until=2026-11-16T13:00:00Z");
    visit.tab.wait_until("document.getElementById('count').textContent.includes('match')");
    visit.picture("crowd-hour");
}

/// One that is in the guide, too; it is written there if somebody asks for it.
#[expect(clippy::disallowed_methods, reason = "the one way to tell a test to write them")]
fn keep(visit: &Visit, name: &str) {
    visit.picture(name);
    let small = visit.path(name).with_extension("webp");
    visit.tab.picture(&small);
    let size = fs::metadata(&small).unwrap().len();
    assert!(size < BYTES, "{name} has {size} bytes");
    if env::var_os("WAYBILL_PICTURES").is_some() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/pictures");
        fs::create_dir_all(&folder).unwrap();
        fs::copy(small, folder.join(format!("trace-{name}.webp"))).unwrap();
    }
}
