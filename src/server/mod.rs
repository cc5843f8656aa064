//! Stub of the floor `server`; see ARCHITECTURE.md.
