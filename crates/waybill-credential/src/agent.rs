//! A cache for all processes of a user: for kubectl and everything else that runs its plugin at every start.
//!
//! Credentials are in the memory of one agent for each user, and nowhere else. Clients run the plugin themselves,
//! with their own environment and terminal, and only while the agent says that nobody else does; the agent never
//! runs anything. Whatever is wrong with the agent, the plugin is run as if there were none.
//!
//! What a client and its agent say to one another is in `wire`, what the agent decides in `store`, without IO.

mod asker;
mod client;
mod invocation;
mod key;
mod place;
mod relative;
mod serve;
mod store;
mod wire;

pub use self::client::{Agent, AgentError, Fetched, Launcher, Notice};
pub use self::invocation::{Holding, Invocation, InvocationError};
pub use self::place::{Place, PlaceError};
pub use self::serve::{AgentStartError, serve};
pub use self::wire::{Failure, HeldCredential, Listing};
