//! Everything that happens against a server, in time: the phases around the
//! formal load, and the load itself.

pub mod phases;
