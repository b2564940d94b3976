//! Pictures of the page, for people to look at and for the guide.

use super::{
    crowd::crowd,
    incident::night,
    served::{Record, Visit},
};

#[test]
fn pictures_of_every_state_are_kept() {
    let Some(visit) = Visit::of(night(), "") else { return };
    let tab = &visit.tab;
    visit.picture("overview-light");
    tab.prefer("dark");
    tab.wait_until("document.getElementById('theme').textContent === 'Light'");
    visit.picture("overview-dark");
    tab.prefer("light");
    visit.go("session=exec-7f21");
    tab.wait_until("document.querySelectorAll('.branch').length > 5");
    visit.picture("session-light");
    tab.prefer("dark");
    tab.wait_until("document.getElementById('theme').textContent === 'Light' && document.querySelectorAll('.branch').length > 5");
    visit.picture("session-dark");
    tab.prefer("light");
    tab.resize(1024, 768);
    visit.picture("session-1024");
    tab.resize(1920, 1080);
    visit.picture("session-wide");
    let _ = crowd();
    let _ = Record::default();
}
