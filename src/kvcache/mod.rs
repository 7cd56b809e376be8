//! (room kvcache)
