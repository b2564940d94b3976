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
    check(&["x", "-----BEGIN PRIVATE KEY-----MIIE"], &["x", "-----BEGIN PRIVATE KEY-----[hidden]"]);
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
        "docker run -p 80:80 -v /etc/passwd:/etc/passwd:ro -v secrets:/run/secrets registry/auth:1.2",
        "grep -r password /etc",
        "npm install https://registry:8080/@scope/pkg https://registry/@scope/pkg",
        "sudo -u root id",
        "mysql -u root shop",
        "curl -sSfLo out https://host/a?page=2",
        "kubectl get secret web -o yaml",
        "kubectl config use-context main",
        "git clone ssh://git@host/x https://oauth@host/x",
        "git config user.name anna",
        "vault kv get secret/web",
        "htpasswd -c file anna",
        "tar -pxzf x.tgz",
    ] {
        shown_as_it_is(line);
    }
    for script in [
        "ps aux | grep mysql; cat /etc/passwd | sort",
        "find / -name '*.pem' -exec cat {} \\;",
        "psql -c \"SELECT count(*) FROM tokens WHERE id = 'x'\"",
        "for x in a b; do echo \"$x\" | tee -a log; done",
        "std::auth::login(); a ? token : other",
        "echo hi | cat; passwd --help >/dev/null || true",
    ] {
        check(&["sh", "-c", script], &["sh", "-c", script]);
    }
}

/// Commands as people type them, each with the secret `hunter2`.
const TYPED: &[&[&str]] = &[
    &["mysql", "-phunter2"],
    &["mysql", "-uroot", "-phunter2", "db"],
    &["app", "--password", "hunter2"],
    &["app", "-password", "hunter2"],
    &["curl", "-u", "user:hunter2", "http://h"],
    &["curl", "-uuser:hunter2", "http://h"],
    &["curl", "-su", "user:hunter2", "http://h"],
    &["curl", "--user", "user:hunter2", "http://h"],
    &["curl", "--proxy-user", "user:hunter2", "http://h"],
    &["curl", "-H", "X-Auth-Token: hunter2", "http://h"],
    &["curl", "-H", "X-Api-Key:hunter2", "http://h"],
    &["curl", "-H", "Authorization:Bearer hunter2", "http://h"],
    &["curl", "-HAuthorization: Bearer hunter2", "http://h"],
    &["curl", "-H", "PRIVATE-TOKEN: hunter2"],
    &["curl", "-d", "user=a&password=hunter2", "http://h"],
    &["curl", "-d", r#"{"user": "a", "password": "hunter2"}"#, "http://h"],
    &["curl", "-d", r#"{"user":"a","password":"hunter2"}"#],
    &["wget", "--http-password=hunter2"],
    &["sh", "-c", "AWS_SECRET_ACCESS_KEY=hunter2 true"],
    &["sh", "-c", "export TOKEN=hunter2"],
    &["sh", "-c", "export PASSWORD='correct horse hunter2'"],
    &["sh", "-c", "export PASSWORD=$'hunter2 x'"],
    &["sh", "-c", r#"export PASSWORD=correct\ hunter2"#],
    &["sh", "-c", "echo hunter2 | passwd --stdin root"],
    &["sh", "-c", "echo root:hunter2 | chpasswd"],
    &["sh", "-c", "docker login -u a --password-stdin <<< hunter2"],
    &["sh", "-c", r#"bash -c "mysql -phunter2""#],
    &["sh", "-c", "true;mysql -phunter2"],
    &["sh", "-c", "true&&PGPASSWORD=hunter2 psql"],
    &["sh", "-c", "x=$(mysql -phunter2)"],
    &["sh", "-c", "(mysql -phunter2)"],
    &["psql", "postgresql://u:hunter2@h/db"],
    &["psql", "host=h user=u password=hunter2 dbname=x"],
    &["java", "-Durl=jdbc:sqlserver://h;user=sa;password=hunter2"],
    &["java", "-Ddb.password=hunter2"],
    &["redis-cli", "-a", "hunter2"],
    &["redis-cli", "-u", "redis://:hunter2@h"],
    &["git", "clone", "https://hunter2@github.com/x"],
    &["git", "clone", "https://x-access-token:hunter2@github.com/x"],
    &["sshpass", "-p", "hunter2", "ssh", "h"],
    &["sshpass", "-phunter2", "ssh"],
    &["ansible-playbook", "-e", "ansible_become_pass=hunter2"],
    &["ansible-playbook", "-e", "{ansible_password: hunter2}"],
    &["openssl", "rsa", "-passin", "pass:hunter2"],
    &["openssl", "enc", "-aes-256-cbc", "-k", "hunter2"],
    &["vault", "kv", "put", "secret/x", "value=hunter2"],
    &["vault", "login", "hunter2"],
    &["aws", "configure", "set", "aws_secret_access_key", "hunter2"],
    &["kubectl", "create", "secret", "generic", "x", "--from-literal=a=hunter2"],
    &["kubectl", "--token", "hunter2"],
    &["useradd", "-p", "hunter2", "joe"],
    &["htpasswd", "-b", "f", "joe", "hunter2"],
    &["htpasswd", "-nb", "joe", "hunter2"],
    &["mysql", "-e", "CREATE USER a IDENTIFIED BY 'hunter2'"],
    &["psql", "-c", "ALTER USER a WITH PASSWORD 'hunter2'"],
    &["psql", "-c", "alter role a password 'hunter2';"],
    &["mongosh", "-u", "a", "-p", "hunter2"],
    &["ldapsearch", "-D", "cn=a", "-w", "hunter2"],
    &["ldappasswd", "-s", "hunter2", "-w", "hunter2"],
    &["smbclient", "//h/s", "-U", "u%hunter2"],
    &["rclone", "--webdav-pass", "hunter2"],
    &["env", "RESTIC_PASSWORD=hunter2", "restic"],
    &["env", "pw=hunter2", "x"],
    &["env", "dbPass=hunter2"],
    &["env", "MYSQL_PWD=hunter2"],
    &["sh", "-c", r#"printf 'password: hunter2\n' > f"#],
    &["python3", "-c", "conn=connect(password='hunter2')"],
    &["python3", "-c", "x={'password':'hunter2'}"],
    &["sh", "-c", "cat > f <<EOF\npassword: hunter2\nEOF\nrm -rf /evidence"],
    &["curl", "https://hooks.slack.com/services/T000/B000/hunter2xxxx"],
    &["curl", "https://api.telegram.org/bot123456:hunter2abcdefghijklmnop/getMe"],
    &["azcopy", "https://a.blob.core/x?sv=1&sig=hunter2%3D"],
    &["x", "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=hunter2=="],
    &["x", "amqp://u:hunter2@h/v"],
    &["x", "http://a:hunter2@h,http://b:hunter2@h"],
    &["x", "--db=postgres://u:hunter2@h/db"],
    &["x", "http://ok/?u=ftp://u:hunter2@h"],
    &["wpa_passphrase", "ssid", "hunter2"],
    &["zip", "-P", "hunter2", "a"],
    &["unzip", "-P", "hunter2", "a"],
    &["7z", "a", "-phunter2", "x"],
    &["gpg", "--passphrase", "hunter2"],
    &["plink", "-pw", "hunter2"],
    &["xfreerdp", "/u:a", "/p:hunter2"],
    &["mysqlsh", "--password=hunter2"],
    &["mariadb-dump", "-phunter2"],
    &["mysqlimport", "-phunter2"],
    &["docker", "login", "-u", "a", "-p", "hunter2"],
    &["docker", "run", "-e", "PASSWORD=hunter2", "x"],
    &["docker", "run", "-ePASSWORD=hunter2", "x"],
    &["skopeo", "copy", "--src-creds", "u:hunter2"],
    &["skopeo", "inspect", "--creds=u:hunter2"],
    &["mosquitto_pub", "-u", "a", "-P", "hunter2"],
    &["snmpget", "-A", "hunter2", "-X", "hunter2"],
    &["lftp", "-u", "user,hunter2", "h"],
    &["sqlcmd", "-U", "sa", "-P", "hunter2"],
    &["cypher-shell", "-p", "hunter2"],
    &["npm", "config", "set", "//reg/:_authToken", "hunter2"],
    &["git", "-c", "http.extraHeader=Authorization: Basic hunter2"],
    &["http", "-a", "u:hunter2", "h"],
    &["sh", "-c", "echo hunter2 | sudo -S id"],
    &["wpa", "psk=hunter2"],
    &["x", "--passwd-text", "hunter2"],
    &["x", "--pw", "hunter2"],
    &["x", "--access-key", "hunter2"],
    &["x", "--secret-key=hunter2"],
    &["docker", "login", "-phunter2"],
    &["sudo", "-u", "root", "mysql", "-phunter2"],
    &["kubectl", "exec", "web", "--", "mysql", "-phunter2", "shop"],
    &["sh", "-c", "sudo -u app mysql -phunter2"],
    &["sh", "-c", "cat <<EOF | chpasswd\nroot:hunter2\nEOF\ntrue"],
    &["sh", "-c", "chpasswd <<< root:hunter2"],
    &["sh", "-c", "printf '%s' hunter2 | base64 | docker login --password-stdin"],
    &["sh", "-c", "curl -sSfLu me:hunter2 h"],
    &["sh", "-c", "curl -d 'user=a&password=a(hunter2' h"],
    &["sh", "-c", "curl -H 'Cookie: a=b; c=hunter2' h"],
    &["sh", "-c", "X=`mysql -phunter2`"],
    &["sh", "-c", "if true; then mysql -phunter2; fi"],
    &["sh", "-c", r#"docker run -e DB_PASSWORD="hunter2 x" app"#],
    &["mount", "-o", "username=a,password=hunter2,x", "//h/s"],
    &["x", "password=a;hunter2"],
    &["x", "user=a&password=ab'hunter2"],
    &["env", "PASSWORD=correct horse hunter2"],
    &["php", "-r", "$o = ['password' => 'hunter2'];"],
    &["python3", "-c", r#"os.environ["DB_PASSWORD"] = 'hunter2'"#],
    &["ruby", "-e", r#"connect(:password => "hunter2")"#],
    &["node", "-e", "c({password: 'hunter2'})"],
    &["node", "-e", r#"c({"password" : "hunter2"})"#],
    &["psql", "-c", "CREATE ROLE a LOGIN ENCRYPTED PASSWORD 'hunter2'"],
    &["sqlplus", "-c", "CREATE USER a IDENTIFIED BY hunter2;"],
    &["mysql", "-e", "SET PASSWORD FOR 'a'@'h' = PASSWORD('hunter2')"],
    &["mysql", "-e", "ALTER USER a IDENTIFIED WITH caching_sha2_password BY 'hunter2'"],
    &["sh", "-c", r#"mysql -e "CREATE USER a IDENTIFIED BY \"hunter2\"""#],
    &["git", "clone", "https://hunter2:x-oauth-basic@github.com/x"],
    &["x", "ftp://a:p/hunter2@h/"],
    &["x", "postgres://u:a;hunter2@h"],
    &["sqlplus", "scott/hunter2@db"],
    &["redis-cli", "CONFIG", "SET", "requirepass", "hunter2"],
    &["redis-cli", "AUTH", "hunter2"],
    &["git", "config", "--global", "gitlab.token", "hunter2"],
    &["kubectl", "create", "secret", "generic", "x", "--from-literal", "a=hunter2"],
    &["mysqladmin", "-u", "root", "password", "hunter2"],
    &["nmcli", "d", "wifi", "connect", "home", "password", "hunter2"],
    &[
        "x",
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nhunter2hunter2hunter2\nhunter2==\n-----END RSA PRIVATE KEY-----\n",
    ],
    &["x", r#"-----BEGIN PRIVATE KEY-----\nMIIEhunter2hunter2hunter2\nhunter2"#],
    &["sh", "-c", r#"echo "don't"; login --password hunter2; echo won't"#],
    &["curl", "-H", "Authorization:hunter2"],
    &["curl", "-H", "X-Auth-Token:hunter2"],
    &["curl", "--user=me:hunter2"],
];

/// Hole: two in three of these were recorded with the secret in them.
#[test]
fn no_secret_of_what_people_type_is_shown() {
    let mut leaks = Vec::new();
    for arguments in TYPED {
        let words: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let (shown, hidden_at) = hide_secrets(arguments[0], &words);
        if shown.concat().contains("hunter2") || hidden_at.is_empty() {
            leaks.push(shown);
        }
        // Nor when a shell is asked to do it.
        let needs_quotes = |word: &&str| word.contains([' ', ';', '(', '&', '\'', '"', '\\', '\n']);
        if !arguments.iter().any(needs_quotes) {
            let script = words.join(" ");
            let words = ["sh", "-c", &format!("true;{script}")].map(str::to_owned);
            let (shown, _) = hide_secrets("sh", &words);
            if shown.concat().contains("hunter2") {
                leaks.push(shown);
            }
        }
    }
    assert!(leaks.is_empty(), "{leaks:#?}");
}

/// Hole: who called a part of a script a secret, hid the rest of it from whoever looked.
#[test]
fn nobody_hides_a_script_by_calling_a_part_of_it_a_secret() {
    for (arguments, expected) in [
        (
            ["python3", "-c", "password=1;import os;os.system('EVIL payload')"],
            "password=[hidden];import os;os.system('EVIL payload')",
        ),
        (["/tmp/x", "-c", "password=1;EVIL()"], "password=[hidden];EVIL()"),
        (
            ["sh", "-c", "password: ; rm -rf /EVIL; curl EVIL"],
            "password: ; rm -rf /EVIL; curl EVIL",
        ),
        (
            ["sh", "-c", ": token: \n cp /etc/shadow /EVIL\n nc EVIL 1"],
            ": token: \n cp /etc/shadow /EVIL\n nc EVIL 1",
        ),
        (["/bin/sh", "--token", "EVIL"], "EVIL"),
        (["perl", "-e", "#://:;system('EVIL')#@"], "#://:;system('EVIL')#@"),
        (["perl", "-e", "x://:EVIL(q(1))#@"], "x://:EVIL(q(1))#@"),
        (
            ["python3", "-c", "#PRIVATE KEY-----\nEVIL everything"],
            "#PRIVATE KEY-----\nEVIL everything",
        ),
        (["sh", "-c", "password='x\ny'; EVIL"], "password=[hidden]; EVIL"),
        (["perl", "-e", "'token':1(system(EVIL)"], "'token':[hidden](system(EVIL)"),
        (["sh", "-c", "TOKEN= EVIL; PASSWORD=$(EVIL) EVIL"], "TOKEN= EVIL; PASSWORD=$(EVIL) EVIL"),
        (
            ["sh", "-c", "login --token $(EVIL) --password \"$EVIL\""],
            "login --token $(EVIL) --password \"$EVIL\"",
        ),
        (
            ["sh", "-c", "cat <<E\npassword: x\nE\nrm -rf /EVIL"],
            "cat <<E\npassword: [hidden]\nE\nrm -rf /EVIL",
        ),
        (["token=x;EVIL", "1", "2"], "2"),
    ] {
        let words = arguments.map(str::to_owned);
        let (shown, _) = hide_secrets(arguments[0], &words);
        assert_eq!(shown[2], expected);
    }
    let words = ["token=x;EVIL".to_owned()];
    assert_eq!(hide_secrets("token=x;EVIL", &words).0, ["token=[hidden];EVIL"]);
}

/// What went through it once stays as it is.
#[test]
fn what_was_hidden_is_not_hidden_again() {
    for arguments in TYPED {
        let words: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let (once, _) = hide_secrets(arguments[0], &words);
        let (twice, _) = hide_secrets(arguments[0], &once);
        assert!(!twice.concat().contains("hunter2"));
        let (thrice, _) = hide_secrets(arguments[0], &twice);
        assert_eq!(twice, thrice);
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
        "token:",
        "token= ",
        "password '",
        "set password '",
        "set identified by ",
        "identified é by é",
        "PRIVATE KEY-----",
        "x://é:é@é",
        "$'\\",
        "\\",
        "<<a\n",
        "<<<",
        "`(",
        "echo é | chpasswd",
        "token:Bearer",
        "hooks.slack.com/services/",
    ] {
        for program in ["", "mysql", "curl"] {
            let words = [text, text, text].map(str::to_owned);
            let _ = hide_secrets(program, &words);
            let script = [text, &format!("{text} {text} '{text} {text}")].map(str::to_owned);
            let _ = hide_secrets(program, &script);
            let script = ["sh", "-c", &format!("{text}é{text}\n{text}")].map(str::to_owned);
            let _ = hide_secrets("sh", &script);
            for other in [" ", "'", "\"", "é", "=", "\\"] {
                let _ = hide_secrets(program, &[text.to_owned(), [other, text, other].concat()]);
            }
        }
    }
}
