//! (room stats)
