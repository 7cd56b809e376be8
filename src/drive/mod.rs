//! (room drive)
