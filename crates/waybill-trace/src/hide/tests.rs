//! What is hidden, and what an investigator must still be able to read.

use super::*;

/// The words of `line` as a shell would tell them apart, for tests without quotes.
#[track_caller]
fn check(arguments: &[&str], expected: &[&str]) {
    let words: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    let (shown, hidden_at) = hide_secrets(arguments.first().unwrap_or(&""), &words);
    assert_eq!(shown, expected);
    let changed = words.iter().zip(&shown).enumerate().filter(|(_, (word, shown))| word != shown);
    let changed: Vec<_> = changed.map(|(at, _)| u32::try_from(at).unwrap()).collect();
    assert_eq!(hidden_at, changed, "positions");
}

#[track_caller]
fn shown_as_it_is(line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    check(&words, &words);
}

#[test]
fn values_of_flags_that_are_called_secrets_are_hidden() {
    check(&["login", "--password", "hunter2"], &["login", "--password", HIDDEN]);
    check(&["login", "--password=hunter2"], &["login", "--password=[hidden]"]);
    check(&["x", "--db-password=a=b", "y"], &["x", "--db-password=[hidden]", "y"]);
    check(&["x", "-token", "abc"], &["x", "-token", HIDDEN]);
    check(&["x", "--api-key", "k y"], &["x", "--api-key", HIDDEN]);
    check(&["x", "--accessToken=abc"], &["x", "--accessToken=[hidden]"]);
    check(&["x", "--password", "--verbose"], &["x", "--password", "--verbose"]);
}

#[test]
fn flags_of_one_letter_are_known_by_their_program() {
    check(&["mysql", "-uroot", "-phunter2"], &["mysql", "-uroot", "-p[hidden]"]);
    check(&["/usr/bin/sshpass", "-p", "x", "ssh"], &["/usr/bin/sshpass", "-p", HIDDEN, "ssh"]);
    check(&["redis-cli", "-a", "x"], &["redis-cli", "-a", HIDDEN]);
    check(&["curl", "-u", "me:pw"], &["curl", "-u", HIDDEN]);
    shown_as_it_is("ssh -p 22 host");
    shown_as_it_is("mkdir -p a/b");
    shown_as_it_is("mysql -p shop");
}

#[test]
fn variables_that_are_called_secrets_are_hidden() {
    check(
        &["env", "AWS_SECRET_ACCESS_KEY=abc", "PGPASSWORD=x", "LEVEL=2"],
        &["env", "AWS_SECRET_ACCESS_KEY=[hidden]", "PGPASSWORD=[hidden]", "LEVEL=2"],
    );
    check(&["docker", "-e", "API_KEY=1"], &["docker", "-e", "API_KEY=[hidden]"]);
}

#[test]
fn passwords_and_parameters_of_urls_are_hidden() {
    check(
        &["psql", "postgres://app:s3cret@db:5432/shop?sslmode=require"],
        &["psql", "postgres://app:[hidden]@db:5432/shop?sslmode=require"],
    );
    check(&["x", "ftp://a:p/w@h/"], &["x", "ftp://a:[hidden]@h/"]);
    check(
        &["curl", "https://h/p?access_token=abc&page=2"],
        &["curl", "https://h/p?access_token=[hidden]&page=2"],
    );
    shown_as_it_is("curl https://user@host:8080/path?page=2");
}

#[test]
fn headers_and_bodies_are_hidden() {
    check(
        &["curl", "-H", "Authorization: Bearer abc def", "https://h"],
        &["curl", "-H", "Authorization: [hidden]", "https://h"],
    );
    check(&["curl", "-H", "X-Api-Key: abc"], &["curl", "-H", "X-Api-Key: [hidden]"]);
    check(&["curl", "-H", "Accept: text/html"], &["curl", "-H", "Accept: text/html"]);
    check(
        &["curl", "-d", r#"{"user":"anna","password":"pw","n":1}"#],
        &["curl", "-d", r#"{"user":"anna","password":"[hidden]","n":1}"#],
    );
    check(&["curl", "-d", "user=anna&password=pw"], &["curl", "-d", "user=anna&password=[hidden]"]);
}

#[test]
fn scripts_are_looked_into() {
    check(
        &[
            "sh",
            "-c",
            "echo hi; mysql -phunter2 shop && curl -H 'Authorization: Bearer abc' h | tee x",
        ],
        &[
            "sh",
            "-c",
            "echo hi; mysql -p[hidden] shop && curl -H 'Authorization: [hidden]' h | tee x",
        ],
    );
    check(
        &["sh", "-c", "PASSWORD=\"a b\" run --token abc -v"],
        &["sh", "-c", "PASSWORD=[hidden] run --token [hidden] -v"],
    );
    check(
        &["bash", "-c", "bash -c 'login --password x'"],
        &["bash", "-c", "bash -c 'login --password [hidden]'"],
    );
}

#[test]
fn words_with_the_shape_of_a_token_are_hidden() {
    for token in [
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefghijk",
        "ghp_0123456789abcdefghijABCDEFGHIJ012345",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLE2KEY",
        "x7Yq2Lm9Pz4Rt8Kw3Vb6Nc",
    ] {
        check(&["x", token], &["x", HIDDEN]);
        check(&["x", &format!("--value={token}")], &["x", "--value=[hidden]"]);
    }
    check(&["x", "-----BEGIN PRIVATE KEY-----MIIE"], &["x", HIDDEN]);
}

#[test]
fn what_an_investigator_needs_is_shown() {
    for line in [
        "cat /etc/passwd",
        "ls -la /usr/lib/x86_64-linux-gnu/libLLVM-14.so.1",
        "git checkout 9aaa572c0ffee9aaa572c0ffee9aaa572c0ffee0",
        "docker pull registry/app@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "kubectl get pod web-6d4cf56db6-x7k2p",
        "java com.example.MyVeryLongServiceFactoryImpl",
        "tool --token-file=/run/token --password-file /run/pw --auth-type basic-auth",
        "find / -name id_rsa -perm -4000",
        "curl http://169.254.169.254/latest/meta-data/iam/security-credentials/",
        "echo 550e8400-e29b-41d4-a716-446655440000",
        "passwd root",
    ] {
        shown_as_it_is(line);
    }
}

/// A process writes the mark itself: positions tell the truth.
#[test]
fn a_mark_that_a_process_wrote_is_not_told_as_ours() {
    let words = ["x".to_owned(), HIDDEN.to_owned()];
    assert_eq!(hide_secrets("x", &words).1, Vec::<u32>::new());
}

#[test]
fn no_text_makes_it_fail() {
    for text in [
        "",
        "=",
        "://",
        "://:@",
        "a://:@b",
        "\"",
        "'",
        "--=",
        "é=ü",
        "token=é",
        "\":",
        "{\"password\":",
        "-p",
        ":",
    ] {
        for program in ["", "mysql", "curl"] {
            let words = [text, text, text].map(str::to_owned);
            let _ = hide_secrets(program, &words);
            let script = [text, &format!("{text} {text} '{text} {text}")].map(str::to_owned);
            let _ = hide_secrets(program, &script);
        }
    }
}
