//! Changes, and what is said when there are none to be had.

use jiff::SignedDuration;
use waybill_trace::End;

use super::{
    incident::{Programs, night, session, time},
    served::Visit,
};

#[test]
fn sessions_show_as_they_begin_and_end() {
    let Some(visit) = Visit::of(night(), "") else { return };
    let tab = &visit.tab;
    let mut new = session("exec-new", "mallory", "shop/web-6d4f9", &["sh"], "02:29:50", None);
    visit.served.record.change(new.clone(), &[]);
    tab.wait_until(
        "document.querySelector('.row[data-id=exec-new]')?.textContent.includes('running')",
    );
    tab.wait_until(
        "document.getElementById('say').textContent === 'mallory began exec in shop/web-6d4f9'",
    );
    tab.wait_until("document.querySelector('#users option[value=mallory]')");
    new.trace.end = End::Exited { at: time("02:29:55"), code: 7 };
    visit.served.record.change(new, &[]);
    tab.wait_until(
        "document.querySelector('.row[data-id=exec-new]').textContent.includes('exit 7')",
    );
    visit.check_clean();
}

#[test]
fn programs_of_the_chosen_session_show_as_they_start() {
    let Some(visit) = Visit::of(night(), "session=exec-90aa") else { return };
    let tab = &visit.tab;
    tab.wait_until("document.querySelectorAll('.branch').length === 3");
    let record = night();
    let mut chosen = record.sessions.iter().find(|it| it.id == "exec-90aa").unwrap().clone();
    let mut programs = Programs::of(&chosen);
    programs.add(48_600, Some(48_402), 480_000, Some(900), &["nc", "10.0.7.9", "4444"]);
    chosen.programs += 1;
    visit.served.record.change(chosen, &programs.all);
    tab.wait_until("document.querySelectorAll('.branch').length === 4 && document.getElementById('program-count').textContent === '4'");
    assert!(visit.branches().iter().any(|line| line.contains("nc 10.0.7.9 4444")));
    visit.check_clean();
}

#[test]
fn filters_hold_for_what_is_new_and_a_reader_stays_where_they_read() {
    let Some(visit) = Visit::of(night(), "q=healthcheck") else { return };
    let tab = &visit.tab;
    tab.evaluate("document.getElementById('list').scrollTop = 120");
    tab.wait_until("document.getElementById('list').scrollTop === 120");
    let place = "(() => { const row = [...document.querySelectorAll('.row[data-id]')].find((row) => row.getBoundingClientRect().top > 460); return `${row.dataset.id} ${row.getBoundingClientRect().top}`; })()";
    let before = tab.text(place);
    let other = session("exec-x1", "mallory", "shop/web-6d4f9", &["sh"], "02:29:50", None);
    visit.served.record.change(other, &[]);
    let mut wanted = session("exec-x2", "mallory", "shop/web-6d4f9", &["sh"], "02:29:51", None);
    let mut programs = Programs::of(&wanted);
    // Only a program in it matches.
    programs.add(60_000, None, 1, None, &["healthcheck"]);
    wanted.programs = 1;
    visit.served.record.change(wanted, &programs.all);
    tab.wait_until("!document.getElementById('fresh').hidden && document.getElementById('fresh').textContent.includes('1 new session')");
    assert_eq!(tab.text(place), before);
    tab.click("#fresh");
    tab.wait_until("document.querySelector('.row[data-id=exec-x2]') && document.getElementById('list').scrollTop === 0");
    assert_eq!(tab.text("document.querySelectorAll('.row[data-id=exec-x1]').length"), "0");
}

#[test]
fn nothing_moves_while_live_is_off() {
    let Some(visit) = Visit::of(night(), "") else { return };
    let tab = &visit.tab;
    tab.press("l");
    tab.wait_until("document.getElementById('live-text').textContent === 'Paused'");
    visit
        .served
        .record
        .change(session("exec-new", "mallory", "shop/web-6d4f9", &["sh"], "02:29:50", None), &[]);
    // Whoever goes on gets what was missed.
    assert_eq!(tab.text("document.querySelectorAll('.row[data-id=exec-new]').length"), "0");
    tab.press("l");
    tab.wait_until("document.querySelector('.row[data-id=exec-new]')");
}

#[test]
fn a_record_that_cannot_be_read_is_said_with_its_reason() {
    let Some(visit) = Visit::of(night(), "") else { return };
    let tab = &visit.tab;
    visit.served.record.break_down("no space left on device");
    tab.press("/");
    tab.type_text("anna");
    tab.wait_until("document.getElementById('banner').textContent.includes('Sessions cannot be read: cannot read the record: no space left on device')");
    // What was known stays.
    assert!(!visit.rows().is_empty());
}

#[test]
fn a_lost_connection_is_said_and_what_was_seen_stays() {
    let Some(mut visit) = Visit::of(night(), "session=exec-7f21") else { return };
    visit.tab.wait_until("document.querySelectorAll('.branch').length > 8");
    visit.served.stop();
    visit
        .tab
        .wait_until("document.getElementById('banner').textContent.includes('Connection lost')");
    assert_eq!(visit.tab.text("document.getElementById('live-text').textContent"), "Lost");
    assert!(visit.branches().len() > 8);
    visit.picture("lost");
}

#[test]
fn a_session_that_lasts_is_as_long_as_it_is_now() {
    let Some(visit) = Visit::of(night(), "session=exec-90aa") else { return };
    visit.tab.wait_until("document.querySelector('#detail .facts')");
    let length = SignedDuration::from_secs(8 * 60 + 29);
    let facts = visit.tab.text("document.querySelector('#detail .facts').textContent");
    assert!(
        facts.contains(&format!("{} m {} s", length.as_mins(), length.as_secs() % 60))
            && facts.contains("running"),
        "{facts}"
    );
}
