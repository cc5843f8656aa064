//! Stub of the floor `gpu`; see ARCHITECTURE.md.
