//! Texts that processes and users wrote to harm whoever reads them.

use waybill_trace::RecordedSession;

use super::{
    incident::{Programs, night, session},
    served::{Record, Visit},
};

const SCRIPT: &str = "<script>window.harmed = 1</script>";
const IMAGE: &str = "<img src=x onerror=window.harmed=2>";
const SVG: &str = "</span><svg onload=window.harmed=3><a href=\"javascript:window.harmed=4\">x</a>";
const TURNED: &str = "rm \u{202e}gnp.exe\u{202c} \u{2066}x\u{2069}";
const TERMINAL: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m";
const TEMPLATE: &str = "${window.harmed=5}{{constructor.constructor('window.harmed=6')()}}";

/// A record in which everything that can be written is hostile.
pub(super) fn hostile() -> (Record, RecordedSession) {
    let mut record = night();
    let mut session = session(
        "exec-evil",
        SCRIPT,
        "shop/web-6d4f9",
        &["sh", "-c", SCRIPT, IMAGE, TURNED, TERMINAL],
        "02:12:00",
        Some("02:17:00"),
    );
    session.trace.pod = IMAGE.to_owned();
    session.trace.namespace = "\"><b>shop".to_owned();
    session.trace.container = SVG.to_owned();
    session.trace.variables = vec!["A=<b>".to_owned(), TURNED.to_owned()];
    let caller = session.trace.caller.as_mut().unwrap();
    caller.impersonator = Some(SVG.to_owned());
    caller.groups = vec![IMAGE.to_owned()];
    let mut programs = Programs::of(&session);
    programs.add(50_001, None, 1, Some(9_000), &["sh", "-c", SCRIPT]);
    programs.add(50_002, Some(50_001), 10, Some(90), &[IMAGE, SVG, TEMPLATE]);
    programs.add(
        50_003,
        Some(50_001),
        20,
        Some(90),
        &["echo", TURNED, "line one\nline two\r\n\tthree", "\u{0}nul", "zero\u{200b}width"],
    );
    programs.add(50_004, Some(50_001), 30, Some(90), &["printf", TERMINAL]);
    let long = format!("{}END", "A".repeat(100_000));
    programs.add(50_005, Some(50_001), 40, Some(90), &["python3", "-c", &long]);
    programs.add(50_006, Some(50_001), 50, Some(90), &["echo", "", " ", "hidden", "'; rm -rf / #"]);
    let many = vec!["x"; 5_000];
    programs.add(50_007, Some(50_001), 60, Some(90), &many);
    record.processes.extend(programs.close(&mut session));
    record.sessions.push(session.clone());
    (record, session)
}

#[test]
fn a_hostile_command_line_is_shown_as_text_and_runs_nothing() {
    let (record, _) = hostile();
    let Some(visit) = Visit::of(record, "session=exec-evil") else { return };
    let tab = &visit.tab;
    tab.wait_until("document.querySelectorAll('.branch').length === 7");
    // As they were written, letter by letter.
    let shown = tab.text("document.getElementById('detail').textContent");
    for text in [SCRIPT, IMAGE, SVG, TEMPLATE] {
        assert!(shown.contains(text), "{text} is not in {shown}");
    }
    assert!(
        visit.rows().iter().any(|row| row.contains(SCRIPT) && row.contains(IMAGE)),
        "{:?}",
        visit.rows()
    );
    // What turns text around, moves a terminal or breaks a line stands there as an escape.
    for escape in [
        "rm \\u{202e}gnp.exe\\u{202c}",
        "\\x1b[2J\\x1b]0;owned\\x07\\x9b31m",
        "line one\\nline two\\r\\n\\tthree",
        "\\0nul",
        "zero\\u{200b}width",
    ] {
        assert!(shown.contains(escape), "{escape} is not in {shown}");
    }
    assert_eq!(tab.text("/[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u200b-\\u200f\\u202a-\\u202e\\u2066-\\u2069]/.test(document.documentElement.outerHTML)"), "false");
    // Everywhere else that shows it, too.
    tab.evaluate("document.querySelector('[data-by=pod]').click()");
    tab.hover(tab.middle("#bars"));
    tab.press("Escape");
    tab.wait_until("document.querySelector('.overview')");
    assert_eq!(tab.evaluate("window.harmed ?? null"), serde_json::Value::Null);
    assert_eq!(tab.text("document.querySelectorAll('main script, main img, main svg, main b b, main [onerror], main [onload], a[href^=javascript]').length"), "0");
    visit.check_clean();
}

#[test]
fn a_hundred_kilobytes_are_cut_and_shown_whole_when_somebody_asks() {
    let (record, _) = hostile();
    let Some(visit) = Visit::of(record, "session=exec-evil") else { return };
    let tab = &visit.tab;
    tab.wait_until("document.querySelectorAll('.branch').length === 7");
    let short =
        tab.evaluate("document.getElementById('detail').textContent.length").as_u64().unwrap();
    assert!(short < 20_000, "{short} letters at first");
    tab.evaluate("document.querySelectorAll('.branch')[4].querySelector('.what').click()");
    tab.wait_until("document.querySelector('.more button')?.textContent.includes('Show all 100')");
    tab.evaluate("document.querySelector('.more button').click()");
    tab.wait_until("document.querySelector('.more .arguments').textContent.includes('AAAEND')");
    let length =
        tab.text("[...document.querySelectorAll('.more .arguments li')].at(-1).textContent.length");
    assert_eq!(length, "100003");
    visit.check_clean();
}

/// The words that stand for a hidden argument may be written by a process; only the record says what is hidden.
#[test]
fn a_process_cannot_fake_a_hidden_argument() {
    let (record, _) = hostile();
    let Some(visit) = Visit::of(record, "session=exec-evil") else { return };
    visit.tab.wait_until("document.querySelectorAll('.branch').length === 7");
    assert_eq!(visit.tab.text("document.querySelectorAll('.branch .hid').length"), "0");
    visit.go("session=exec-7f21");
    visit.tab.wait_until("document.querySelectorAll('.branch .hid').length === 1");
    assert!(
        visit.branches().iter().any(|line| line.contains("Authorization: hidden")),
        "{:?}",
        visit.branches()
    );
}

#[test]
fn a_hostile_link_is_a_search_that_finds_nothing() {
    let Some(visit) = Visit::of(night(), "") else { return };
    let link = "q=%3Cimg%20src%3Dx%20onerror%3Dwindow.harmed%3D1%3E&user=%22%3E%3Cscript%3E&session=..%2F..%2Fetc%2Fpasswd&process=%3Cb%3E&by=__proto__&since=%3Cb%3E";
    visit.go(link);
    visit.tab.wait_until("!document.getElementById('banner').hidden");
    assert!(visit.tab.shown().contains("since is no time"), "{}", visit.tab.shown());
    visit.go(&link.replace("&since=%3Cb%3E", ""));
    visit.tab.wait_until(
        "document.getElementById('nothing').textContent.includes('No session matches')",
    );
    visit
        .tab
        .wait_until("document.getElementById('detail').textContent.includes('not in the record')");
    assert_eq!(visit.tab.evaluate("window.harmed ?? null"), serde_json::Value::Null);
    // The browser itself logs the answers 400 and 404.
    let faults = visit.tab.faults();
    assert!(faults.iter().all(|fault| fault.contains("status of 40")), "{faults:?}");
}
