//! Which mirrors are made and deleted.

use super::*;

fn static_pod(uid: &str) -> StaticPod {
    StaticPod { key: key(), uid: PodUid::parse(uid).unwrap(), object: json!({"metadata": {}}) }
}

fn key() -> Key {
    Key { namespace: "ns".to_owned(), name: "p".to_owned() }
}

fn seen(hash: &str) -> Seen {
    Seen { key: key(), uid: "m".to_owned(), hash: hash.to_owned(), deleting: false }
}

#[track_caller]
fn check(told: impl IntoIterator<Item = Told>, expected: &[&str]) {
    let mut plan = Plan { files_unread: true, list_unread: true, ..Plan::default() };
    told.into_iter().for_each(|told| plan.take(told));
    let steps: Vec<_> = plan
        .steps()
        .iter()
        .map(|step| match step {
            Step::Create(pod) => format!("create {}", pod.uid),
            Step::Delete(seen) => format!("delete {}", seen.hash),
        })
        .collect();
    assert_eq!(steps, expected);
}

const READ: [Told; 2] = [Told::FilesRead, Told::ListEnds];

#[test]
fn nothing_is_done_before_both_sides_are_known() {
    check([Told::File(static_pod("x")), Told::FilesRead], &[]);
    check([Told::Seen(seen("x")), Told::ListEnds], &[]);
    let again = READ.into_iter().chain([Told::File(static_pod("x")), Told::ListBegins]);
    check(again, &[]);
}

#[test]
fn what_is_missing_is_made_and_what_is_left_over_goes() {
    let with = |told: Vec<Told>| READ.into_iter().chain(told);
    check(with(vec![Told::File(static_pod("x"))]), &["create x"]);
    check(with(vec![Told::Seen(seen("x"))]), &["delete x"]);
    check(with(vec![Told::File(static_pod("x")), Told::Seen(seen("x"))]), &[]);
    check(with(vec![Told::File(static_pod("y")), Told::Seen(seen("x"))]), &["delete x"]);
    let gone = vec![Told::File(static_pod("x")), Told::Seen(seen("x")), Told::Deleted(seen("x"))];
    check(with(gone), &["create x"]);
    let file_gone = vec![Told::File(static_pod("x")), Told::Seen(seen("x")), Told::FileGone(key())];
    check(with(file_gone), &["delete x"]);
    let deleting = Seen { deleting: true, ..seen("x") };
    check(with(vec![Told::File(static_pod("x")), Told::Seen(deleting)]), &["delete x"]);
}

#[test]
fn the_deletion_of_an_older_mirror_is_no_news() {
    let newer = Seen { uid: "newer".to_owned(), ..seen("x") };
    let told = [Told::File(static_pod("x")), Told::Seen(newer), Told::Deleted(seen("x"))];
    check(READ.into_iter().chain(told), &[]);
}

#[test]
fn pods_of_users_are_no_mirrors() {
    assert_eq!(Seen::of(&ObjectMeta::default()), None);
}
