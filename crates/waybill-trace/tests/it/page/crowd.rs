//! Ten thousand sessions and two hundred thousand programs.

use jiff::SignedDuration;
use waybill_trace::{End, RecordedProcess, RecordedSession};

use super::{
    incident::{Programs, session, time},
    served::{Record, Visit},
};

const SESSIONS: u32 = 10_000;
const PROGRAMS: u32 = 20;

/// Sessions of 40 users in 120 pods over a day, each with 20 programs. Always the same.
pub(super) fn crowd() -> Record {
    let mut sessions = Vec::new();
    let mut processes = Vec::new();
    for number in 0..SESSIONS {
        let (session, programs) = one(number);
        sessions.push(session);
        processes.extend(programs);
    }
    Record::of(sessions, processes)
}

fn one(number: u32) -> (RecordedSession, Vec<RecordedProcess>) {
    // Spread without a clock or a dice.
    let spread = number.wrapping_mul(2_654_435_761) >> 8;
    let user = format!("user-{:02}", spread % 40);
    let place = format!("team-{}/app-{:03}", spread % 12, spread / 7 % 120);
    let command = ["sh", "-c", "make -j4 check && ./deploy --to staging"];
    let mut session = session(&format!("s{number:05}"), &user, &place, &command, "02:00:00", None);
    let start = time("02:00:00") - SignedDuration::from_secs(86_000)
        + SignedDuration::from_millis(i64::from(number) * 8_600);
    let length = SignedDuration::from_millis(400 + i64::from(spread % 240_000));
    session.trace.started = start;
    session.trace.end =
        End::Exited { at: start + length, code: i32::from(number.is_multiple_of(37)) };
    let mut programs = Programs::of(&session);
    let first = 1_000 + number % 30_000;
    programs.add(first, None, 0, Some(length.as_millis().try_into().unwrap()), &command);
    for child in 1..PROGRAMS {
        let above = first + child / 4;
        programs.add(
            first + child,
            Some(above),
            i64::from(child) * 11,
            Some(9),
            &["cc", "-O2", "-c", "main.c", "-o", "main.o"],
        );
    }
    let processes = programs.close(&mut session);
    (session, processes)
}

#[test]
fn ten_thousand_sessions_and_two_hundred_thousand_programs_load_and_scroll() {
    let Some(visit) = Visit::of(crowd(), "") else { return };
    let tab = &visit.tab;
    assert_eq!(
        tab.text("document.getElementById('count').textContent.replace(/\\D/g, '')"),
        "10000"
    );
    // Only what can be seen exists, at the top, in the middle and at the end.
    for share in ["0", "0.5", "1"] {
        tab.evaluate(&format!("(() => {{ const list = document.getElementById('list'); list.scrollTop = list.scrollHeight * {share}; }})()"));
        tab.wait_until("[...document.querySelectorAll('.row')].some((row) => { const box = row.getBoundingClientRect(); \
                        const list = document.getElementById('list').getBoundingClientRect(); return box.top >= list.top && box.bottom <= list.bottom; })");
        let rows = tab.evaluate("document.querySelectorAll('.row').length").as_u64().unwrap();
        assert!(rows < 100, "{rows} rows exist");
    }
    tab.wait_until("document.querySelector('[data-id=\"s00000\"]')");
    tab.press("g");
    tab.wait_until("document.querySelectorAll('.branch').length > 0 && document.getElementById('program-count').textContent === '20'");
    tab.click("#f-q");
    tab.type_text("user-07 app-011");
    tab.wait_until("document.getElementById('count').textContent.includes('match')");
    assert!(
        visit.rows().iter().all(|row| row.contains("user-07") && row.contains("app-011")),
        "{:?}",
        visit.rows()
    );
    visit.check_clean();
}
