//! (room analyze)
