//! (room service)
