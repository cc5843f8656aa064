//! Stub of the floor `model`; see ARCHITECTURE.md.
