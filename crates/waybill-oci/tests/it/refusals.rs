//! What is not exactly what gate signed does not happen, and the line says why.

use std::fs;

use waybill_api::stock::{Layout, Mode, StockClaims, StockKind, Verdict};

use crate::lab::{Lab, owned, sealed, seconds, signed, signing_key, token, with_each};

const COMMAND: [&str; 3] = ["sh", "-c", "echo happened"];

#[track_caller]
fn check(lab: &Lab, words: &[String], reason: &str) {
    let output = lab.exec(words);
    lab.check_refused(&output, &format!("waybill: exec refused: {reason}"));
}

#[test]
fn a_changed_claim_is_refused() {
    with_each(Mode::Record, |lab| {
        type Change = fn(&mut StockClaims);
        let cases: [(Change, &str); 10] = [
            (|claims| claims.uid = "other".to_owned(), "for another container"),
            (|claims| claims.container = "other".to_owned(), "for another container"),
            (|claims| claims.pod = "other".to_owned(), "for another container"),
            (|claims| claims.namespace = "other".to_owned(), "for another container"),
            (|claims| claims.tty = true, "changed on the way"),
            (|claims| claims.kind = StockKind::Attach, "changed on the way"),
            (|claims| claims.kind = StockKind::Debug, "changed on the way"),
            (|claims| claims.expires_at = seconds() - 60, "expired"),
            (|claims| claims.expires_at += 600, "expired"),
            (|claims| claims.issued_at += 100, "expired"),
        ];
        for (change, reason) in cases {
            let mut claims = lab.claims(None, &COMMAND);
            change(&mut claims);
            check(lab, &signed(&claims, None, &COMMAND), reason);
        }
        assert!(lab.strangers().iter().all(|record| record.verdict == Verdict::Refused));
    });
}

#[test]
fn changed_words_are_refused() {
    with_each(Mode::Record, |lab| {
        let claims = lab.claims(None, &COMMAND);
        check(lab, &signed(&claims, None, &["sh", "-c", "echo other"]), "changed on the way");
        check(lab, &signed(&claims, None, &["sh", "-c echo happened"]), "changed on the way");
        check(lab, &signed(&claims, Some("waybill-sealed:x"), &COMMAND), "changed on the way");
        let mut more = signed(&claims, None, &COMMAND);
        more.push(String::new());
        check(lab, &more, "changed on the way");
        more.truncate(2);
        check(lab, &more, "not signed by this cluster");
        // None of that used it up.
        assert!(lab.exec(&signed(&claims, None, &COMMAND)).status.success());
    });
}

#[test]
fn a_token_that_nobody_here_signed_is_refused() {
    with_each(Mode::Record, |lab| {
        let claims = lab.claims(None, &COMMAND);
        let mut words = signed(&claims, None, &COMMAND);
        words[0] = format!("waybill-exec:{}", token(&claims, &signing_key(2)));
        check(lab, &words, "not signed by this cluster");
        words[0] = "waybill-exec:".to_owned();
        check(lab, &words, "not signed by this cluster");
        fs::remove_file(lab.layout.keys()).unwrap();
        check(lab, &signed(&claims, None, &COMMAND), "not signed by this cluster");
    });
}

#[test]
fn a_token_is_good_once() {
    with_each(Mode::Enforce, |lab| {
        let words = signed(&lab.claims(None, &COMMAND), None, &COMMAND);
        assert!(lab.exec(&words).status.success());
        check(lab, &words, "used before");
    });
}

#[test]
fn sealed_variables_open_here_and_once() {
    with_each(Mode::Enforce, |lab| {
        let run = |word: &str| signed(&lab.claims(Some(word), &COMMAND), Some(word), &COMMAND);
        let word = sealed(&[("A", "1")], |_| {});
        assert!(lab.exec(&run(&word)).status.success());
        check(lab, &run(&word), "used before");
        check(
            lab,
            &run(&sealed(&[("A", "1")], |sealed| sealed.uid = "other".to_owned())),
            "for another container",
        );
        check(
            lab,
            &run(&sealed(&[("A", "1")], |sealed| sealed.expires_at = seconds() - 1)),
            "expired",
        );
        check(
            lab,
            &run(&sealed(&[("A", "1")], |sealed| sealed.kid = "n2".to_owned())),
            "variables cannot be opened",
        );
        check(
            lab,
            &run(&sealed(&[("A", "1")], |sealed| sealed.kid = "../keys.json".to_owned())),
            "variables cannot be opened",
        );
        check(
            lab,
            &run(&sealed(&[("A", "1")], |sealed| sealed.names.clear())),
            "variables cannot be opened",
        );
        check(lab, &run(&sealed(&[("A", "a\0b")], |_| {})), "variables cannot be opened");
        check(lab, &run("waybill-sealed:AAAA"), "variables cannot be opened");
    });
}

/// D14: what cannot be recorded does not happen.
#[test]
fn an_exec_that_cannot_be_recorded_is_refused() {
    with_each(Mode::Record, |lab| {
        fs::remove_dir_all(lab.layout.sessions()).unwrap();
        check(lab, &signed(&lab.claims(None, &COMMAND), None, &COMMAND), "not recorded");
        check(lab, &owned(&COMMAND), "not recorded");
        fs::remove_dir_all(Layout::used(&lab.layout)).unwrap();
        check(lab, &signed(&lab.claims(None, &COMMAND), None, &COMMAND), "not recorded");
    });
}

#[test]
fn a_call_that_is_not_understood_is_refused() {
    with_each(Mode::Record, |lab| {
        let file = lab.process(&owned(&COMMAND), false, &[]);
        let output = lab
            .wrapped(&["exec", "--cgroup", "x", "--process", file.to_str().unwrap(), &lab.id])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(output.stderr, b"waybill: refused: the command line is not understood\n");
        let file = lab.path("opt/oci.json");
        let config = fs::read(&file).unwrap();
        fs::write(&file, "{}").unwrap();
        let output = lab.exec(&owned(&COMMAND));
        lab.check_refused(&output, "waybill: refused: there is no configuration");
        fs::write(&file, config).unwrap();
    });
}
