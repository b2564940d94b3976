//! Probes: asking containers whether they have started, are alive and are ready.
