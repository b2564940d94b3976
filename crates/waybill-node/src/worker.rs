//! One worker for each pod: compares what is wanted with what runs, and closes the gap.
