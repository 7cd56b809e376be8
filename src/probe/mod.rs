//! (room probe)
