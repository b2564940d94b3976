//! The parts of the page that only think, each asked in a browser.

use serde_json::{Value, json};
use waybill_testkit::chromium::Tab;

use super::served::{Record, Visit};

fn page() -> Option<Visit> {
    let visit = Visit::start(Record::default(), "")?;
    visit.tab.wait_until("!document.getElementById('main').hidden");
    Some(visit)
}

#[track_caller]
fn check(tab: &Tab, module: &str, expression: &str, expected: &Value) {
    let found = tab.evaluate(&format!("import('/{module}').then((it) => ({expression}))"));
    assert_eq!(found, *expected, "{expression}");
}

#[test]
fn what_cannot_be_seen_is_written_as_an_escape() {
    let Some(visit) = page() else { return };
    let plain = |text: &str, shown: &str| {
        check(&visit.tab, "text.js", &format!("it.plain({})", json!(text)), &json!(shown));
    };
    plain("plain text, Ünïcödé, 日本, שלום", "plain text, Ünïcödé, 日本, שלום");
    plain("a\u{202e}b\u{2066}c\u{200f}d", "a\\u{202e}b\\u{2066}c\\u{200f}d");
    plain("\u{1b}[31mred\u{1b}[0m\u{7}", "\\x1b[31mred\\x1b[0m\\x07");
    plain("one\ntwo\tthree\r\u{0}", "one\\ntwo\\tthree\\r\\0");
    plain("zero\u{200b}width\u{feff}\u{ad}\u{3164}", "zero\\u{200b}width\\u{feff}\\xad\\u{3164}");
    plain("no\u{a0}space\u{2003}x\u{2028}y", "no\\xa0space\\u{2003}x\\u{2028}y");
    plain("\u{9b}31m \u{85}", "\\x9b31m \\x85");
    plain("\u{e0041}\u{e000}", "\\u{e0041}\\u{e000}");
    plain("z\u{301}\u{301}\u{301}\u{301}", "z\\u{0301}\\u{0301}\\u{0301}\\u{0301}");
    // Half a pair, which only JSON can carry.
    check(&visit.tab, "text.js", "it.plain('a\\ud800b')", &json!("a\\u{d800}b"));
}

#[test]
fn a_command_can_be_pasted_without_harm() {
    let Some(visit) = page() else { return };
    let pasted = |words: Value, line: &str| {
        check(&visit.tab, "text.js", &format!("it.pasteable({words})"), &json!(line));
    };
    pasted(json!(["ls", "-la", "/a b", "", "it's", "$(x)"]), "ls -la '/a b' '' 'it'\\''s' '$(x)'");
    pasted(json!(["printf", "a\nrm -rf /\u{1b}"]), "printf $'a\\x0arm -rf /\\x1b'");
    pasted(json!(["echo", "\u{202e}'\\"]), "echo $'\\U0000202e\\'\\\\'");
}

#[test]
fn a_time_means_the_last_one_before_now() {
    let Some(visit) = page() else { return };
    // 2026-11-17T02:30:00Z
    let now = 1_794_882_600_000_000_i64;
    let typed = |text: &str, meant: Value| {
        check(
            &visit.tab,
            "time.js",
            &format!("it.parseTyped({}, {now}) ?? null", json!(text)),
            &meant,
        );
    };
    typed("02:10", json!("2026-11-17T02:10:00Z"));
    typed("23:10", json!("2026-11-16T23:10:00Z"));
    typed(" 2:10:05 ", json!("2026-11-17T02:10:05Z"));
    typed("2026-11-15 02:10", json!("2026-11-15T02:10:00Z"));
    typed("2026-11-15T02:10:00+01:00", json!("2026-11-15T01:10:00Z"));
    typed("15m", json!("15m"));
    for wrong in ["", "25:00", "02:60", "yesterday", "2026-13-01 00:00", "1", "99999999999d"] {
        typed(wrong, Value::Null);
    }
    // The end of a range is after its start.
    check(
        &visit.tab,
        "time.js",
        &format!("it.parseTyped('00:10', {now}, {now} - 3 * 3600e6)"),
        &json!("2026-11-17T00:10:00Z"),
    );
    check(
        &visit.tab,
        "time.js",
        "[it.span(120), it.span(6.04e6), it.span(397e6), it.span(7500e6), it.span(3e11)]",
        &json!(["120 µs", "6.0 s", "6 m 37 s", "2 h 05 m", "3 d 11 h"]),
    );
}

#[test]
fn sessions_that_overlap_are_in_different_lanes_and_lanes_are_few() {
    let Some(visit) = page() else { return };
    let code = "(() => { const all = Array.from({ length: 3000 }, (_, n) => ({ id: `${n}`, started: (n * 7919) % 1e5, ended: (n * 7919) % 1e5 + 1 + (n * 31) % 500, state: 'over' })); \
                const lanes = it.pack(all, 0); \
                const clash = lanes.some((lane) => lane.some((one, at) => at && lane[at - 1].ended > one.started)); \
                const most = Math.max(...all.map((one) => all.filter((other) => other.started <= one.started && other.ended > one.started).length)); \
                return [clash, lanes.length === most, lanes.flat().length]; })()";
    check(&visit.tab, "lanes.js", code, &json!([false, true, 3000]));
    let running = "it.pack([{ id: 'a', started: 5, ended: null, state: 'running' }, { id: 'b', started: 9, ended: 10, state: 'over' }], 20).length";
    check(&visit.tab, "lanes.js", running, &json!(2));
}

#[test]
fn the_tree_has_each_program_below_the_one_that_ran_when_it_began() {
    let Some(visit) = page() else { return };
    let code = "(() => { const one = (pid, above, started, replaced = false) => ({ pid, above, started, replaced, program: `p${started}`, arguments: [] }); \
                const { roots } = it.grow([one(1, null, 1, true), one(1, null, 2), one(2, 1, 3), one(3, 2, 4), one(2, 1, 5), one(4, 2, 6), one(9, 77, 7), one(5, 5, 8)]); \
                return it.flatten(roots).map((node) => `${'-'.repeat(node.depth)}${node.process.program}${node.became ? '*' : ''}`); })()";
    // A process that ran another program, a number that was used twice, a parent that nobody knows, one that is its own.
    check(
        &visit.tab,
        "tree.js",
        code,
        &json!(["p1", "-p2*", "--p3", "---p4", "--p5", "---p6", "p7", "p8"]),
    );
    let deep = "(() => { const all = Array.from({ length: 50000 }, (_, n) => ({ pid: n, above: n ? n - 1 : null, started: n, program: '', arguments: [] })); \
                const { roots } = it.grow(all); return [it.flatten(roots).length, roots[0].below]; })()";
    check(&visit.tab, "tree.js", deep, &json!([50_000, 49_999]));
}
