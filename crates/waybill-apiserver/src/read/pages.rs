//! Lists in pages: each page is a piece of the same moment.
//!
//! The first page keeps the whole list, which is a vector of pointers, and hands out a token for the
//! rest. Tokens live for a few minutes; after that the client may start again, or go on with what there is then. When there are
//! too many lists, whoever began the most pays, so nobody ends the lists of others.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use uuid::Uuid;
use waybill_api::status::Status;
use waybill_core::id::ResourceVersion;

use crate::{
    cache::{CachedObject, Listing, ObjectKey},
    document::{at, put, text},
};

/// Lists that can be in progress at once.
const KEPT: usize = 256;

/// How long the rest of a list can be asked for.
const LIFE: SignedDuration = SignedDuration::from_secs(300);

/// Upstream's words.
const EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start a \
    new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
    results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or \
    deleted between the time the first chunk was returned and now may show up in the list.";

/// The rest of lists that were begun.
#[derive(Default)]
pub(crate) struct Pages(Mutex<VecDeque<Begun>>);

struct Begun {
    id: Uuid,
    /// Who began it.
    user: String,
    /// What was listed; the rest of it is of no use to whoever may list something else.
    subject: String,
    until: Timestamp,
    listing: Arc<[Arc<CachedObject>]>,
    revision: ResourceVersion,
}

/// What comes next in a list.
pub(crate) enum Rest {
    Page(Page),
    /// Of what there is now, all after this object: its client knows that the list is not of one moment.
    After(ObjectKey),
}

/// One page of a list.
pub(crate) struct Page {
    pub(crate) objects: Vec<Arc<CachedObject>>,
    pub(crate) revision: ResourceVersion,
    /// Where the next page starts; empty on the last.
    pub(crate) next: String,
    pub(crate) remaining: usize,
}

impl Pages {
    /// The first page of a list of `subject` that `user` begins.
    pub(crate) fn first(
        &self,
        user: &str,
        subject: String,
        listing: Listing,
        limit: usize,
        now: Timestamp,
    ) -> Page {
        let Listing { objects, revision } = listing;
        if limit == 0 || objects.len() <= limit {
            return Page { objects, revision, next: String::new(), remaining: 0 };
        }
        let begun = Begun {
            id: Uuid::new_v4(),
            user: user.to_owned(),
            subject,
            until: now.checked_add(LIFE).unwrap_or(now),
            listing: objects.into(),
            revision,
        };
        let page = begun.page(0, limit);
        let mut all = self.lock();
        all.retain(|begun| begun.until > now);
        if all.len() >= KEPT
            && let Some(given_up) = given_up(&all, user)
        {
            all.remove(given_up);
        }
        all.push_back(begun);
        page
    }

    /// What `token` asks for, if that is a page of a list of `subject`.
    pub(crate) fn next(
        &self,
        subject: &str,
        token: &str,
        limit: usize,
        now: Timestamp,
    ) -> Result<Rest, Status> {
        let invalid = || Status::bad_request("continue key is not valid");
        let Token { list, after } = Token::parse(token).ok_or_else(invalid)?;
        let Some((id, start)) = list else { return Ok(Rest::After(after)) };
        let mut all = self.lock();
        all.retain(|begun| begun.until > now);
        let Some(begun) = all.iter().find(|begun| begun.id == id) else {
            let newest = Token { list: None, after };
            return Err(Status::expired_list(EXPIRED, newest.to_string()));
        };
        if begun.subject != subject {
            return Err(invalid());
        }
        Ok(Rest::Page(begun.page(start, limit)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Begun>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Begun {
    fn page(&self, start: usize, limit: usize) -> Page {
        let rest = self.listing.get(start..).unwrap_or_default();
        let length = if limit == 0 { rest.len() } else { limit.min(rest.len()) };
        let remaining = rest.len() - length;
        let objects: Vec<_> = rest.iter().take(length).cloned().collect();
        let next = objects
            .last()
            .filter(|_| remaining > 0)
            .map(|last| Token { list: Some((self.id, start + length)), after: last.key.clone() });
        let next = next.as_ref().map(Token::to_string).unwrap_or_default();
        Page { objects, revision: self.revision, next, remaining }
    }
}

/// Which list ends so that `user` can begin another: the oldest of those who have the most, and of
/// their own if they are among them.
fn given_up(all: &VecDeque<Begun>, user: &str) -> Option<usize> {
    let mut counts = HashMap::from([(user, 1)]);
    for begun in all {
        *counts.entry(&begun.user).or_default() += 1;
    }
    let most = counts.values().max().copied();
    let has_most = |begun: &Begun| counts.get(begun.user.as_str()).copied() == most;
    let own = all.iter().position(|begun| begun.user == user && has_most(begun));
    own.or_else(|| all.iter().position(has_most))
}

/// Where a list goes on, as its client is told. Clients can make up any.
struct Token {
    /// In which list, and after how many objects; nothing for what there is now.
    list: Option<(Uuid, usize)>,
    /// After which object, if the list is gone.
    after: ObjectKey,
}

impl Token {
    fn parse(token: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let token: Value = serde_json::from_slice(&bytes).ok()?;
        let said = |field| text(&token, field);
        let list = match said("/list") {
            "" => None,
            id => {
                let start = usize::try_from(at(&token, "/start").as_u64()?).ok()?;
                Some((Uuid::parse_str(id).ok()?, start))
            }
        };
        let after = ObjectKey::new(said("/namespace"), said("/name"));
        // Who names neither a list nor an object names nothing.
        (list.is_some() || !after.name.is_empty()).then_some(Self { list, after })
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ObjectKey { namespace, name } = &self.after;
        let mut token = json!({"namespace": namespace, "name": name});
        if let Some((id, start)) = self.list {
            put(&mut token, "/list", id.to_string());
            put(&mut token, "/start", start);
        }
        f.write_str(&URL_SAFE_NO_PAD.encode(token.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::to_bytes;

    fn listing(count: usize, revision: u64) -> Listing {
        let object = |number: usize| {
            let document = json!({"metadata": {"name": format!("o{number:03}")}});
            Arc::new(
                CachedObject::new(crate::registry::named("pods"), to_bytes(&document), 1.into())
                    .unwrap(),
            )
        };
        Listing { objects: (0..count).map(object).collect(), revision: revision.into() }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[track_caller]
    fn next(pages: &Pages, token: &str, limit: usize, second: i64) -> Page {
        match pages.next("", token, limit, at(second)).unwrap() {
            Rest::Page(page) => page,
            Rest::After(key) => panic!("the list is gone at {key:?}"),
        }
    }

    #[test]
    fn pages_cover_the_list_once() {
        let pages = Pages::default();
        let mut page = pages.first("u", String::new(), listing(25, 7), 10, at(0));
        let mut names = Vec::new();
        let mut sizes = Vec::new();
        loop {
            assert_eq!(page.revision, 7.into());
            sizes.push((page.objects.len(), page.remaining));
            names.extend(page.objects.iter().map(|object| object.key.name.clone()));
            if page.next.is_empty() {
                break;
            }
            page = next(&pages, &page.next, 10, 1);
        }
        assert_eq!(sizes, [(10, 15), (10, 5), (5, 0)]);
        names.dedup();
        assert_eq!(names.len(), 25);
    }

    #[test]
    fn old_and_bad_tokens_are_refused() {
        let pages = Pages::default();
        let page = pages.first("u", String::new(), listing(3, 1), 1, at(0));
        for nonsense in ["nonsense", "e30", "eyJsaXN0IjoieCJ9"] {
            assert_eq!(pages.next("", nonsense, 1, at(0)).err().unwrap().code(), 400, "{nonsense}");
        }
        let expired = pages.next("", &page.next, 1, at(301)).err().unwrap();
        assert_eq!(expired.code(), 410);
        let told = serde_json::to_value(&expired).unwrap();
        match pages.next("", text(&told, "/metadata/continue"), 1, at(301)).unwrap() {
            Rest::After(key) => assert_eq!(&*key.name, "o000"),
            Rest::Page(_) => panic!("the list is gone"),
        }
    }

    #[test]
    fn a_list_that_fits_has_one_page() {
        let pages = Pages::default();
        assert_eq!(pages.first("u", String::new(), listing(3, 1), 3, at(0)).next, "");
        assert_eq!(pages.first("u", String::new(), listing(3, 1), 0, at(0)).next, "");
    }

    #[test]
    fn nobody_ends_the_lists_of_others() {
        let pages = Pages::default();
        let begin = |user: &str| pages.first(user, String::new(), listing(2, 1), 1, at(0)).next;
        let goes_on = |token: &str| pages.next("", token, 1, at(1)).is_ok();
        let modest = begin("modest");
        let first = begin("greedy");
        let tokens: Vec<_> = (0..2 * KEPT).map(|_| begin("greedy")).collect();
        assert!(goes_on(&modest) && !goes_on(&first));
        assert!(goes_on(tokens.last().unwrap()));
        // Others find their place at the cost of whoever has the most.
        let others: Vec<_> = (0..KEPT - 2).map(|number| begin(&format!("u{number}"))).collect();
        assert!(goes_on(&modest) && others.iter().all(|token| goes_on(token)));
        assert!(goes_on(tokens.last().unwrap()));
        assert_eq!(pages.lock().len(), KEPT);
    }

    #[test]
    fn lists_that_are_over_take_nobodys_place() {
        let pages = Pages::default();
        for second in [0, 400] {
            for _ in 0..KEPT {
                pages.first("u", String::new(), listing(2, 1), 1, at(second));
            }
        }
        let kept = pages.first("v", String::new(), listing(2, 1), 1, at(800)).next;
        assert_eq!(pages.lock().len(), 1);
        assert!(pages.next("", &kept, 1, at(801)).is_ok());
    }
}
