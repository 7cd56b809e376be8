//! (room corpus)
