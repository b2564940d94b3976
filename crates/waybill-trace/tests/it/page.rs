//! The page of `waybill trace --serve`.

mod colours;
mod crowd;
mod door;
mod findings;
mod hostile;
mod incident;
mod keyboard;
mod live;
mod logic;
mod pictures;
mod served;
