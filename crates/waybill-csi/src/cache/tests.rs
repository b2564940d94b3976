//! What is found again, by whom, and until when.

use super::*;
use crate::driver::{Call, PodIdentity, PodToken, Sharing};

const TTL: Duration = Duration::from_secs(60);

fn call(namespace: &str, account: &str, uid: &str) -> Call {
    Call {
        class: "class".into(),
        parameters: [("a".to_owned(), "b".to_owned())].into(),
        pod: PodIdentity {
            namespace: namespace.into(),
            service_account: account.into(),
            name: "pod".into(),
            uid: uid.into(),
            node: "node".into(),
        },
        tokens: [].into(),
    }
}

fn query(key: &str) -> Query {
    Query { key: key.into(), parameters: [].into() }
}

fn keep(cache: &Cache, shelf: &Shelf, key: &str, value: &[u8]) {
    keep_for(cache, "n", shelf, key, value);
}

fn keep_for(cache: &Cache, namespace: &str, shelf: &Shelf, key: &str, value: &[u8]) {
    let (value, ends) = (SecretBytes::copy_of(value), Instant::now() + TTL);
    cache.keep(shelf, &query(key), &value, ends, cache.reading(namespace));
}

fn has(cache: &Cache, shelf: &Shelf, key: &str) -> bool {
    cache.find(shelf, &[query(key)], Instant::now()).remove(0).is_some()
}

/// CSI-47
#[tokio::test(start_paused = true)]
async fn a_value_is_found_until_its_time_is_over_csi_47() {
    let cache = Cache::new(10_000);
    let shelf = Shelf::of(&call("n", "a", "u"), Sharing::Class);
    keep(&cache, &shelf, "k", b"value");
    let found = cache.find(&shelf, &[query("x"), query("k")], Instant::now());
    assert!(found[0].is_none());
    assert!(found[1].as_ref().unwrap().constant_time_eq(b"value"));
    tokio::time::advance(TTL).await;
    assert!(!has(&cache, &shelf, "k"));
}

/// CSI-47
#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
async fn old_values_are_wiped_without_being_asked_for_csi_47() {
    let cache = Arc::new(Cache::new(10_000));
    let sweeper = tokio_util::task::AbortOnDropHandle::new(tokio::spawn({
        let cache = Arc::clone(&cache);
        async move { cache.sweep().await }
    }));
    let shelf = Shelf::of(&call("n", "a", "u"), Sharing::Class);
    keep(&cache, &shelf, "k", b"value");
    tokio::time::sleep(TTL / 2).await;
    assert!(cache.bytes() > 0);
    keep(&cache, &shelf, "other", b"value");
    let both = cache.bytes();
    tokio::time::sleep(TTL / 2 + 2 * SWEEP_PAUSE).await;
    assert!(has(&cache, &shelf, "other") && cache.bytes() < both);
    tokio::time::sleep(TTL).await;
    assert_eq!(cache.bytes(), 0);
    drop(sweeper);
}

/// CSI-47
#[test]
fn nobody_finds_what_another_could_not_have_read_csi_47() {
    let cache = Cache::new(10_000);
    let mine = call("n", "a", "u");
    for (sharing, others) in [
        (Sharing::Class, vec![]),
        (Sharing::Identity, vec![call("n", "other", "u"), call("other", "a", "u")]),
        (Sharing::Pod, vec![call("n", "a", "other")]),
    ] {
        keep(&cache, &Shelf::of(&mine, sharing), "k", b"value");
        assert!(has(&cache, &Shelf::of(&call("n", "a", "u"), sharing), "k"));
        for other in &others {
            assert!(!has(&cache, &Shelf::of(other, sharing), "k"), "{sharing:?} {other:?}");
        }
    }
    let mut changed = call("n", "a", "u");
    changed.parameters.insert("a".into(), "c".into());
    assert!(!has(&cache, &Shelf::of(&changed, Sharing::Class), "k"), "a class that changed");
    let mut field = query("k");
    field.parameters.insert("field".into(), "f".into());
    let shelf = Shelf::of(&mine, Sharing::Class);
    assert!(cache.find(&shelf, &[field], Instant::now())[0].is_none(), "another field");
}

/// CSI-47
#[test]
fn what_is_invalidated_is_gone_and_does_not_come_back_csi_47() {
    let cache = Cache::new(10_000);
    let shelf = Shelf::of(&call("n", "a", "u"), Sharing::Class);
    let mut other = call("n", "a", "u");
    other.class = "other".into();
    let other = Shelf::of(&other, Sharing::Class);
    keep(&cache, &shelf, "k", b"value");
    keep(&cache, &other, "k", b"value");
    let read = cache.reading("n");
    cache.invalidate_class("class");
    assert!(!has(&cache, &shelf, "k") && has(&cache, &other, "k"));
    let ends = Instant::now() + TTL;
    cache.keep(&shelf, &query("k"), &SecretBytes::copy_of(b"old"), ends, read);
    assert!(!has(&cache, &shelf, "k"), "it was read before");
    cache.clear();
    assert_eq!(cache.bytes(), 0);
}

/// CSI-48: one account could fill the cache, and nobody else's values were kept.
#[test]
fn a_full_cache_makes_room_for_those_who_hold_less_csi_48() {
    let cache = Cache::new(20_000);
    let shelf = |namespace| Shelf::of(&call(namespace, "a", namespace), Sharing::Identity);
    for key in 0..100 {
        keep_for(&cache, "greedy", &shelf("greedy"), &key.to_string(), &[b'x'; 1000]);
    }
    assert!(cache.bytes() > 18_000);
    for key in ["first", "second", "third"] {
        keep_for(&cache, "modest", &shelf("modest"), key, &[b'x'; 1000]);
    }
    for key in 100..200 {
        keep_for(&cache, "greedy", &shelf("greedy"), &key.to_string(), &[b'x'; 1000]);
    }
    for key in ["first", "second", "third"] {
        assert!(has(&cache, &shelf("modest"), key), "{key}");
    }
    assert!(has(&cache, &shelf("greedy"), "199"), "its newest is there, its oldest is not");
    assert!(!has(&cache, &shelf("greedy"), "0"));
    assert!(cache.bytes() <= 20_000);
}

#[test]
fn what_is_larger_than_the_cache_is_not_kept() {
    let cache = Cache::new(2_000);
    let shelf = Shelf::of(&call("n", "a", "u"), Sharing::Class);
    keep_for(&cache, "n", &shelf, "large", &[b'x'; 2_000]);
    assert!(!has(&cache, &shelf, "large"));
    assert_eq!(cache.bytes(), 0);
}

/// CSI-46, CSI-47: a name is not enough where there are tokens.
#[test]
fn nobody_finds_what_another_token_read_csi_46_csi_47() {
    let with = |token: &[u8]| {
        let mut call = call("n", "a", "u");
        let token = PodToken { token: SecretBytes::copy_of(token), expires: String::new() };
        call.tokens.insert("vault".to_owned(), token);
        call
    };
    for sharing in [Sharing::Identity, Sharing::Pod] {
        let cache = Cache::new(10_000);
        keep(&cache, &Shelf::of(&with(b"good"), sharing), "k", b"value");
        assert!(has(&cache, &Shelf::of(&with(b"good"), sharing), "k"));
        assert!(!has(&cache, &Shelf::of(&with(b"garbage"), sharing), "k"));
        assert!(!has(&cache, &Shelf::of(&call("n", "a", "u"), sharing), "k"));
    }
}
