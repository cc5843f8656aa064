//! Stub of the floor `cpu`; see ARCHITECTURE.md.
