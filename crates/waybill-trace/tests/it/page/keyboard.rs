//! Without a mouse, and without seeing.

use super::{incident::night, served::Visit};

const CHOSEN: &str = "document.querySelector('.row[aria-selected=true]')";

#[test]
fn everything_is_reached_by_keys() {
    let Some(visit) = Visit::of(night(), "") else { return };
    let tab = &visit.tab;
    tab.press("j");
    tab.wait_until(&format!("{CHOSEN}.textContent.includes('02:25:57')"));
    tab.press("j");
    tab.press("j");
    tab.press("k");
    tab.wait_until(&format!("{CHOSEN}.textContent.includes('02:25:01')"));
    tab.wait_until("document.querySelectorAll('.branch').length === 2");
    // Into the tree, along it, into a program, and out again.
    tab.press("Enter");
    tab.wait_until("document.activeElement.matches('.tree')");
    tab.press("j");
    tab.wait_until("document.querySelector('.branch.active').textContent.includes('tcpdump')");
    tab.press("Enter");
    tab.wait_until("document.querySelector('.more')?.textContent.includes('48507') && location.search.includes('process=48507')");
    tab.press("Enter");
    tab.wait_until("!document.querySelector('.more') && !location.search.includes('process')");
    tab.press("k");
    tab.press("ArrowLeft");
    tab.wait_until("document.querySelectorAll('.branch').length === 1");
    tab.press("ArrowRight");
    tab.wait_until("document.querySelectorAll('.branch').length === 2");
    tab.press("Escape");
    tab.wait_until("document.activeElement.id === 'list'");
    tab.press("Escape");
    tab.wait_until("!location.search.includes('session') && document.querySelector('.overview')");
    // Search, and only what is found.
    tab.press("/");
    tab.wait_until("document.activeElement.id === 'f-q'");
    tab.type_text("pg_dump");
    tab.press("Enter");
    tab.wait_until("document.getElementById('count').textContent === '2 match'");
    tab.press("Escape");
    tab.press("G");
    tab.wait_until("document.querySelector('.branch.active')?.textContent.includes('pg_dump')");
    tab.press("u");
    tab.wait_until("new URLSearchParams(location.search).get('user') === '\"anna\"'");
    tab.press("b");
    tab.wait_until("location.search.includes('by=pod')");
    tab.press("?");
    tab.wait_until("document.getElementById('help').open");
    tab.press("Escape");
    tab.wait_until("!document.getElementById('help').open");
    tab.press("t");
    tab.wait_until("document.documentElement.dataset.theme === 'dark'");
    // Letters in a field are letters.
    tab.press("/");
    tab.evaluate("document.getElementById('f-q').value = ''");
    for letter in ["j", "k", "t", "?"] {
        tab.press(letter);
    }
    assert_eq!(
        tab.text("document.getElementById('f-q').value + document.documentElement.dataset.theme"),
        "jkt?dark"
    );
    visit.check_clean();
}

#[test]
fn the_link_that_is_copied_means_the_same_tomorrow() {
    let Some(visit) = Visit::of(night(), "since=20m&session=exec-90aa") else { return };
    visit.browser.grant(&visit.served.origin(), &["clipboardReadWrite", "clipboardSanitizedWrite"]);
    visit.tab.press("c");
    visit.tab.wait_until("document.getElementById('banner').textContent.includes('Link copied')");
    let link = visit.tab.text("navigator.clipboard.readText()");
    assert_eq!(
        link,
        format!("{}/?since=2026-11-17T02:10:00Z&session=exec-90aa", visit.served.origin())
    );
}

#[test]
fn whoever_listens_to_the_page_hears_what_others_see() {
    let Some(visit) = Visit::of(night(), "session=exec-90aa") else { return };
    let tab = &visit.tab;
    tab.wait_until("document.querySelectorAll('.branch').length === 3");
    let nodes = tab.accessible();
    let has = |role: &str, name: &str| {
        nodes.iter().any(|(found, told)| found == role && told.contains(name))
    };
    for (role, name) in [
        ("banner", ""),
        ("search", ""),
        ("main", ""),
        ("region", "Timeline"),
        ("region", "Sessions"),
        ("region", "Chosen session"),
        ("listbox", "Sessions, newest first"),
        ("heading", "carl"),
        (
            "option",
            "carl, by unix:root, exec psql -U postgres, in shop/db-0, container app, at 02:21:30, running, 1 moved process, 14 lost events",
        ),
        ("tree", "Programs"),
        ("treeitem", "pg_dump orders, process 48411, user id 0, exit 0"),
        ("textbox", "From"),
        ("combobox", "User"),
        ("note", ""),
        ("StaticText", "14 events were lost"),
        ("status", ""),
    ] {
        assert!(has(role, name), "no {role} {name:?} in {nodes:#?}");
    }
    // Every control has a name.
    let nameless: Vec<_> = nodes
        .iter()
        .filter(|(role, name)| {
            ["button", "textbox", "combobox", "checkbox", "link", "option", "treeitem"]
                .contains(&role.as_str())
                && name.is_empty()
        })
        .collect();
    assert!(nameless.is_empty(), "{nameless:?}");
    tab.press("/");
    tab.type_text("eve");
    tab.wait_until("document.getElementById('say').textContent === '5 sessions match'");
}
