//! (room artifacts)
