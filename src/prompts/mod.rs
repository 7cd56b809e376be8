//! (room prompts)
