//! A spawner for tests: their own program belongs to the test harness and cannot be one.

use waybill_runtime::engine::Spawner;

fn main() {
    Spawner::serve_if_asked();
}
