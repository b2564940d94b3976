//! ServiceAccounts.

use super::{Generation, Kind, NameRule, Scope, Shape, Status};

pub(super) struct ServiceAccount;

impl Kind for ServiceAccount {
    fn shape(&self) -> Shape {
        Shape {
            scope: Scope::Namespaced,
            names: NameRule::Subdomain,
            generation: Generation::Unused,
            status: Status::Absent,
            create_on_update: false,
            unconditional_update: true,
        }
    }
}
