//! What the operating system lets a process have. Knows nothing of loads,
//! servers or protocols.

pub mod descriptors;
