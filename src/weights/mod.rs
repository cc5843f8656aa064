//! Stub of the floor `weights`; see ARCHITECTURE.md.
