//! Which node a pod goes to.
//!
//! Pure code: the caller feeds changes of pods and nodes in and carries decisions out. A pod that
//! was given a node counts there from that moment, whether or not the store knows it yet, so two
//! decisions never use the same room. Pods are taken in order of priority, then age; each gets the
//! node with the fewest pods among those that fit. Texts are upstream's, since users know them.

mod affinity;
mod decision;
mod drivers;
mod fit;
mod node;
mod pod;
mod resources;
mod state;
mod taint;

pub(crate) use self::{
    decision::{Decision, PodCondition},
    pod::{PodKey, PodRef},
    state::Scheduler,
};
