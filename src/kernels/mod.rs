//! Stub of the floor `kernels`; see ARCHITECTURE.md.
