//! `waybill envfile`, as a person or a script uses it.

use std::{fs, io::Read, os::unix::fs::PermissionsExt, process::Command};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};

use crate::run::Dir;

const GOOD: &str = "# config\nA='1'\nCERT='two\nlines'\nA='last'\nEMPTY=''\n";

/// FILE-26
#[test]
fn check_counts_the_variables_of_a_good_file() {
    let dir = Dir::new().file("app.env", GOOD).file("one.env", "A='1'");
    dir.run(&["envfile", "check", "app.env", "one.env"])
        .succeeds("app.env: 3 variables, no faults\none.env: 1 variable, no faults\n");
}

/// FILE-20, FILE-31: every fault with line, caret and advice, and not a byte of a value.
#[test]
fn check_explains_every_fault_without_showing_values_file_20() {
    let bad = "DB_HOST=localhost\nexport TOKEN='abc'\nPASSWORD='hunter2\nNEXT='x'\n";
    let dir = Dir::new().file("bad.env", bad);
    dir.run(&["envfile", "check", "bad.env"]).fails(
        "\
error[unquoted]: a value must be enclosed in single quotes
 --> bad.env:1:9
  |
1 | DB_HOST=…
  |         ^
  = help: write NAME='value'; `waybill envfile fmt` does it for you

error[export]: export is not supported
 --> bad.env:2:1
  |
2 | export TOKEN='…'
  | ^
  = help: write NAME='value' alone; `waybill envfile fmt` does it for you

error[text-after-value]: only a comment may follow a value on its line
 --> bad.env:4:7
  |
4 | …'…
  |   ^
  = note: this value begins on line 3; is its closing quote missing there?
  = help: end the line after the closing quote; a value cannot contain a single quote

bad.env: 3 faults (values appear as …)
",
    );
}

#[test]
fn check_prints_json_for_machines() {
    let dir = Dir::new().file("bad.env", "A='1'\nB=2\n").file("good.env", GOOD);
    let ran = dir.run(&["envfile", "check", "-o", "json", "good.env", "bad.env"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (1, ""));
    assert_eq!(
        serde_json::from_slice::<Value>(&ran.stdout).unwrap(),
        json!([{
            "file": "bad.env",
            "line": 2,
            "column": 3,
            "code": "unquoted",
            "message": "a value must be enclosed in single quotes",
            "help": "write NAME='value'; `waybill envfile fmt` does it for you",
        }])
    );
    dir.run(&["envfile", "check", "-o", "json", "good.env"]).succeeds("[]\n");
}

/// FILE-35
#[test]
fn strict_names_can_be_asked_for() {
    let dir = Dir::new().file("app.env", "a:b='1'\n");
    assert_eq!(dir.run(&["envfile", "check", "app.env"]).code, 0);
    let strict = dir.run(&["envfile", "check", "--names", "strict", "app.env"]);
    assert_eq!(strict.code, 1);
    assert!(strict.stderr.contains("error[name-character]"), "{}", strict.stderr);
}

/// FILE-33, FILE-34
#[test]
fn get_prints_one_value_and_nothing_else_file_34() {
    let dir = Dir::new().file("app.env", GOOD).file("bytes.env", b"B='\xff\n'");
    dir.run(&["envfile", "get", "A", "app.env"]).succeeds("last");
    dir.run(&["envfile", "get", "CERT", "app.env"]).succeeds("two\nlines");
    dir.run(&["envfile", "get", "EMPTY", "app.env"]).succeeds("");
    dir.run(&["envfile", "get", "app.env", "A"]).succeeds("last");
    dir.run_with_input(&["envfile", "get", "K", "-"], b"K='v'").succeeds("v");
    assert_eq!(dir.run(&["envfile", "get", "B", "bytes.env"]).stdout, b"\xff\n");
}

/// FILE-17
#[test]
fn get_needs_the_key_and_a_whole_good_file_file_17() {
    let dir = Dir::new().file("app.env", GOOD).file("bad.env", "A='1'\nB=secret\n");
    dir.run(&["envfile", "get", "NONE", "app.env"])
        .fails("error: app.env does not define \"NONE\"\n");
    let bad = dir.run(&["envfile", "get", "A", "bad.env"]);
    assert_eq!((bad.code, bad.stdout.len()), (1, 0));
    assert!(bad.stderr.contains("--> bad.env:2:3") && !bad.stderr.contains("secret"));
    dir.run(&["envfile", "get", "A", "none.env"])
        .fails("error: opening none.env: No such file or directory (os error 2)\n");
}

#[test]
fn json_prints_all_variables_and_bytes_as_base64() {
    let dir = Dir::new().file("app.env", GOOD);
    dir.run(&["envfile", "json", "app.env"])
        .succeeds("{\n  \"A\": \"last\",\n  \"CERT\": \"two\\nlines\",\n  \"EMPTY\": \"\"\n}\n");
    dir.run_with_input(&["envfile", "json", "-"], b"B='\xff\xfe'\n")
        .succeeds("{\n  \"B\": {\n    \"base64\": \"//4=\"\n  }\n}\n");
    dir.run_with_input(&["envfile", "json", "-"], b"").succeeds("{}\n");
}

#[test]
fn fmt_rewrites_dotenv_forms() {
    let dotenv = "\u{feff}# note\r\nexport A=one two # why\r\nB=\"x\\ty\"\r\n\r\nC = d\r\n";
    Dir::new()
        .run_with_input(&["envfile", "fmt", "-"], dotenv.as_bytes())
        .succeeds("# note\nA='one two' # why\nB='x\ty'\n\nC='d'\n");
}

#[test]
fn fmt_says_why_it_cannot_and_writes_nothing() {
    let dir = Dir::new().file(".env", "A=ok\nB=\"it's\"\n");
    for arguments in [&["envfile", "fmt", ".env"][..], &["envfile", "fmt", "--write", ".env"]] {
        dir.run(arguments).fails(
            "\
error[single-quote]: an env file cannot hold a value that contains a single quote
 --> .env:2:6
  |
2 | B=\"…\"
  |    ^
  = help: keep such a value in a Secret or ConfigMap instead

.env: 1 fault (values appear as …)
",
        );
    }
    assert_eq!(fs::read(dir.path(".env")).unwrap(), b"A=ok\nB=\"it's\"\n");
}

#[test]
fn fmt_replaces_a_file_with_the_same_permissions() {
    let dir = Dir::new().file("app.env", "A=b\n");
    fs::set_permissions(dir.path("app.env"), fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("app.env", dir.path("link.env")).unwrap();
    dir.run(&["envfile", "fmt", "-w", "link.env"]).succeeds("");
    assert_eq!(fs::read(dir.path("app.env")).unwrap(), b"A='b'\n");
    assert_eq!(fs::metadata(dir.path("app.env")).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(fs::symlink_metadata(dir.path("link.env")).unwrap().is_symlink());
    assert_eq!(fs::read_dir(dir.path("")).unwrap().count(), 2, "no temporary file is left");
    dir.run(&["envfile", "fmt", "-w", "-"])
        .fails("error: --write needs a file, standard input cannot be replaced\n");
}

/// For images that have no shell to redirect with.
#[test]
fn fmt_writes_to_another_file_whole_or_not_at_all() {
    let dir = Dir::new().file(".env", "A=b\n").file("bad.env", "A=\"it's\"\n");
    dir.run(&["envfile", "fmt", ".env", "--output", "app.env"]).succeeds("");
    assert_eq!(fs::read(dir.path("app.env")).unwrap(), b"A='b'\n");
    assert_eq!(fs::metadata(dir.path("app.env")).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(dir.run(&["envfile", "fmt", "bad.env", "-o", "app.env"]).code, 1);
    assert_eq!(fs::read(dir.path("app.env")).unwrap(), b"A='b'\n");
    dir.run_with_input(&["envfile", "fmt", "-", "-o", "app.env"], b"C=d\n").succeeds("");
    assert_eq!(fs::read(dir.path("app.env")).unwrap(), b"C='d'\n");
    assert_eq!(fs::read_dir(dir.path("")).unwrap().count(), 3, "no temporary file is left");
    let ran = dir.run(&["envfile", "fmt", ".env", "-o", "none/app.env"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.starts_with("error: writing none/app.env: "), "{}", ran.stderr);
    assert_eq!(dir.run(&["envfile", "fmt", ".env", "-w", "-o", "app.env"]).code, 2);
}

/// FILE-36: an endless input ends in an error, not in memory.
#[test]
fn input_is_read_only_as_far_as_a_file_may_go_file_36() {
    let dir = Dir::new();
    let exact = [b"A='b'\n".as_slice(), &[b'#'; 65_530]].concat();
    assert_eq!(dir.run_with_input(&["envfile", "check", "-"], &exact).code, 0);
    let over = [exact.as_slice(), b"#"].concat();
    dir.run_with_input(&["envfile", "check", "-"], &over).fails(
        "\
error[file-too-long]: the file has more than 65536 bytes, which is the most that is allowed
 --> standard input:2:65531
  = help: keep large content in a volume and put its path into a variable

standard input: 1 fault (values appear as …)
",
    );
    let endless = dir.run(&["envfile", "check", "/dev/zero"]);
    assert_eq!(endless.code, 1);
}

#[test]
fn wrong_usage_exits_with_2() {
    let dir = Dir::new().file("app.env", GOOD);
    for arguments in [
        &["envfile"][..],
        &["envfile", "check"],
        &["envfile", "get", "A"],
        &["envfile", "check", "--names", "loose", "app.env"],
        &["envfile", "wash", "app.env"],
        &["nothing"],
        &[],
    ] {
        let ran = dir.run(arguments);
        assert_eq!(ran.code, 2, "{arguments:?}");
        assert!(ran.stderr.contains("--help"), "{arguments:?}: {}", ran.stderr);
    }
    let help = dir.run(&["envfile", "--help"]);
    assert_eq!(help.code, 0);
    assert!(String::from_utf8(help.stdout).unwrap().contains("Examples:"));
}

/// The README shows what a person sees; scripts get the value and nothing else.
#[test]
fn get_ends_the_line_on_a_terminal_only() {
    let dir = Dir::new().file("app.env", "A='1'\n");
    assert_eq!(dir.run(&["envfile", "get", "A", "app.env"]).stdout, b"1");
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap();
    let terminal = fs::File::options().write(true).open(name.to_str().unwrap()).unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_waybill"))
        .args(["envfile", "get", "A", "app.env"])
        .current_dir(dir.path("."))
        .stdout(terminal)
        .status();
    assert!(status.unwrap().success());
    let mut shown = [0; 16];
    let length = fs::File::from(controller).read(&mut shown).unwrap();
    assert_eq!(&shown[..length], b"1\r\n");
}
