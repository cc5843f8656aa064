//! Stub of the floor `trace`; see ARCHITECTURE.md.
