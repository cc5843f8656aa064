//! Stub of the floor `engine`; see ARCHITECTURE.md.
