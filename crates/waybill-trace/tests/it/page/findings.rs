//! What an investigator finds, and sends to others.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use waybill_trace::{ProcessQuery, SavedTrace, SessionQuery, TraceSource};

use super::{
    incident::{audit_id, night},
    served::Visit,
};

#[test]
fn overlapping_sessions_of_two_users_are_told_apart() {
    let Some(visit) = Visit::of(night(), "by=pod&session=exec-7f21") else { return };
    let tab = &visit.tab;
    tab.wait_until("document.querySelectorAll('.branch').length > 8");
    // One above the other at 02:15, each in the colour of its user.
    let colours = "(async () => { \
        const { paintOf } = await import('/colours.js'); \
        await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))); \
        const canvas = document.getElementById('bars'); const context = canvas.getContext('2d'); \
        const [from, to] = ['02:15:40', '02:15:41'].map((at) => Date.parse(`2026-11-17T${at}Z`) * 1000); \
        const rows = await fetch('/api/sessions', { headers: { 'x-waybill-key': localStorage.getItem('waybill-page-key') } }).then((it) => it.json()); \
        const times = rows.sessions.flatMap((it) => [it.started, it.ended ?? rows.now]); \
        const [first, last] = [Math.min(...times), Math.max(...times)]; const pad = (last - first) * 0.01 + 1e5; \
        const x = Math.round(168 + ((from - first + pad) / (last - first + 2 * pad)) * (canvas.clientWidth - 168 - 14)); \
        const seen = new Map(); \
        for (let y = 0; y < canvas.height; y += 1) { const hex = '#' + [...context.getImageData(x, y, 1, 1).data.slice(0, 3)].map((it) => it.toString(16).padStart(2, '0')).join(''); if (!seen.has(hex)) seen.set(hex, y); } \
        return ['anna', 'ben'].map((user) => seen.get(paintOf(user).colour) ?? -1); })()";
    let lanes = tab.evaluate(colours);
    let (anna, ben) = (lanes[0].as_i64().unwrap(), lanes[1].as_i64().unwrap());
    assert!(anna >= 0 && ben >= 0 && (anna - ben).abs() >= 15, "{lanes}");
    // Each has their own programs, and leads to the other.
    assert!(visit.branches().iter().any(|line| line.contains("pg_dump")));
    assert!(tab.text("document.querySelector('.beside').textContent").contains("ben"));
    tab.click(".beside a[data-session=exec-81c0] .person");
    tab.wait_until("document.querySelector('#detail h2').textContent.includes('ben') && document.querySelectorAll('.branch').length === 3");
    assert_eq!(
        visit.branches(),
        [
            "sh -c 'tail -n 200 /var/log/app/error.log | less'",
            "tail -n 200 /var/log/app/error.log",
            "less"
        ]
        .map(|line| line.to_owned())
    );
    assert!(tab.text("document.querySelector('.beside').textContent").contains("anna"));
    visit.check_clean();
}

/// Who ran what in this pod between 02:10 and 02:20, and what did it start?
#[test]
fn a_pod_and_two_times_are_enough() {
    let Some(visit) = Visit::of(night(), "") else { return };
    let tab = &visit.tab;
    tab.click("#f-pod");
    tab.type_text("web-6d");
    tab.click("#f-since");
    tab.type_text("02:10");
    tab.click("#f-until");
    tab.type_text("02:20");
    tab.press("Enter");
    tab.wait_until("document.getElementById('count').textContent === '4 match'");
    let rows = visit.rows();
    assert!(rows.iter().all(|row| row.contains("web-6d4f9")), "{rows:?}");
    assert_eq!(
        tab.text("location.search"),
        "?pod=web-6d&since=2026-11-17T02:10:00Z&until=2026-11-17T02:20:00Z"
    );
    assert!(
        tab.text("document.getElementById('range').textContent")
            .contains("02:10:00 – 02:20:00 UTC")
    );
    tab.press("Escape");
    tab.press("G");
    tab.press("k");
    tab.wait_until("document.querySelectorAll('.branch').length > 8");
    let started = visit.branches().join("\n");
    assert!(
        started.contains("curl -fsSL")
            && started.contains("pg_dump -h db.shop")
            && started.contains("rm -rf"),
        "{started}"
    );
}

#[test]
fn a_link_restores_the_view_and_going_back_restores_the_one_before() {
    let view = "user=ann&command=pg_dump&by=pod&session=exec-7f21&process=48242@1794881618380137";
    let Some(visit) = Visit::of(night(), view) else { return };
    let tab = &visit.tab;
    tab.wait_until("document.querySelector('.more')?.textContent.includes('/usr/bin/pg_dump')");
    assert_eq!(visit.rows().len(), 1);
    assert_eq!(
        tab.text(
            "document.getElementById('f-user').value + document.getElementById('f-command').value"
        ),
        "annpg_dump"
    );
    assert_eq!(
        tab.text("document.querySelector('[data-by=pod]').getAttribute('aria-pressed')"),
        "true"
    );
    assert!(tab.text("document.querySelector('.branch.active').textContent").contains("pg_dump"));
    assert_eq!(tab.text("document.querySelectorAll('.branch > .what mark').length"), "1");
    assert_eq!(tab.text("decodeURIComponent(location.search)"), format!("?{view}"));
    // A link may name a session by its audit ID.
    visit.go(&format!("session={}", audit_id("exec-81c0")));
    tab.wait_until("location.search === '?session=exec-81c0' && document.querySelector('.row[aria-selected=true]')?.textContent.includes('ben')");
    tab.evaluate("history.back()");
    tab.wait_until("document.querySelector('.more')?.textContent.includes('/usr/bin/pg_dump') && document.querySelectorAll('.row[data-id]').length === 1");
    visit.check_clean();
}

#[test]
fn a_range_that_is_drawn_is_a_filter() {
    let Some(visit) = Visit::of(night(), "") else { return };
    let tab = &visit.tab;
    let (_, y) = tab.middle("#bars");
    tab.drag((700.0, y), (1_000.0, y));
    tab.wait_until("location.search.includes('since=') && location.search.includes('until=') && document.getElementById('count').textContent.includes('match')");
    assert!(visit.rows().len() < 28);
    tab.press("0");
    tab.wait_until(
        "location.search === '' && document.getElementById('count').textContent === '28'",
    );
}

#[test]
fn what_is_doubtful_is_said_before_what_is_known() {
    let Some(visit) = Visit::of(night(), "warnings=1") else { return };
    let tab = &visit.tab;
    assert_eq!(visit.rows().len(), 1);
    tab.press("j");
    tab.wait_until("document.querySelectorAll('.warn').length === 2");
    let said = tab.text("document.querySelector('.warns').textContent");
    assert!(
        said.contains("1 process was moved here: nobody can be named for it")
            && said.contains("backupd --once"),
        "{said}"
    );
    assert!(said.contains("14 events were lost"), "{said}");
    let above = tab.text("document.querySelector('.warns').getBoundingClientRect().top < document.querySelector('.tree').getBoundingClientRect().top");
    assert_eq!(above, "true");
}

#[test]
fn everything_that_is_known_of_a_session_is_there() {
    let Some(visit) = Visit::of(night(), "session=exec-6b02") else { return };
    let tab = &visit.tab;
    tab.wait_until("document.querySelectorAll('.branch').length === 4");
    let shown = tab.text("document.getElementById('detail').innerText.replace(/\\s+/g, ' ')");
    for fact in [
        "dora ran /entry.sh in payments/api-7c9b8",
        "exit 3",
        "02:06:40.300 – 02:11:12.900 UTC",
        "container app",
        "known from eBPF",
        "values are never recorded",
        "KUBERNETES_EXEC_AUDIT_ID the API server",
        "uid-dora",
        "oncall, system:authenticated",
        "10.20.3.41",
        &audit_id("exec-6b02"),
        "c-api-7c9b8",
        "signal 9",
    ] {
        assert!(shown.contains(fact), "{fact} is not in {shown}");
    }
    assert_eq!(
        visit.branches(),
        [
            "entry.sh migrate",
            "became migrate --to 2026111601 --token hidden",
            "check-schema --strict",
            "backfill --table invoices"
        ]
        .map(str::to_owned)
    );
    tab.evaluate("document.querySelectorAll('.branch')[3].querySelector('.what').click()");
    tab.wait_until("document.querySelector('.more')");
    let more = tab.text("document.querySelector('.more').innerText.replace(/\\s+/g, ' ')");
    assert!(
        more.contains("47133, started by 47101")
            && more.contains("2026-11-17 02:11:01.300137")
            && more.contains("signal 9")
            && more.contains("Known from eBPF"),
        "{more}"
    );
}

#[test]
fn what_is_filtered_is_exported_and_can_be_read_again() {
    let Some(visit) = Visit::of(night(), "user=anna") else { return };
    let folder = tempfile::tempdir().unwrap();
    visit.browser.save_to(folder.path());
    for format in ["json", "csv", "processes-csv"] {
        visit
            .tab
            .evaluate(&format!("document.querySelector('[data-format=\"{format}\"]').click()"));
    }
    let path = saved(folder.path(), "waybill-trace-", ".json");
    let trace = SavedTrace::read(&path).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let sessions = runtime.block_on(trace.sessions(&SessionQuery::default())).unwrap().sessions;
    let ids: Vec<_> = sessions.iter().map(|session| session.id.as_str()).collect();
    assert_eq!(ids, ["exec-7f21"]);
    let all = night();
    let own = all.processes.iter().filter(|process| process.session == "exec-7f21");
    let programs = runtime.block_on(trace.processes(&ProcessQuery::default())).unwrap();
    assert_eq!(programs, own.cloned().collect::<Vec<_>>());
    let table = fs::read_to_string(saved(folder.path(), "waybill-sessions-", ".csv")).unwrap();
    assert_eq!(table.lines().count(), 2);
    assert!(table.contains(",anna,"), "{table}");
    let table = fs::read_to_string(saved(folder.path(), "waybill-programs-", ".csv")).unwrap();
    assert_eq!(table.lines().count(), 13);
    visit.check_clean();
}

/// Waits for a file that the browser writes; it has another name until it is whole.
fn saved(folder: &Path, start: &str, end: &str) -> std::path::PathBuf {
    let begin = Instant::now();
    loop {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let is_it = |path: &std::path::PathBuf| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| name.starts_with(start) && name.ends_with(end))
        };
        if let Some(path) =
            names.into_iter().find(is_it).filter(|path| fs::metadata(path).unwrap().len() > 0)
        {
            return path;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "no {start}*{end}");
        thread::sleep(Duration::from_millis(20));
    }
}
