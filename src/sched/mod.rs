//! Stub of the floor `sched`; see ARCHITECTURE.md.
