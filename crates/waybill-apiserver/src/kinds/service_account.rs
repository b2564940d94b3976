//! ServiceAccounts.

use super::{Kind, Shape};

pub(super) struct ServiceAccount;

impl Kind for ServiceAccount {
    fn shape(&self) -> Shape {
        Shape::NAMESPACED
    }
}
