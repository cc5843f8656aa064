//! Stub of the floor `text`; see ARCHITECTURE.md.
