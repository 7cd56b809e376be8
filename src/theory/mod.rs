//! What a perfect cache would serve: plays requests in send order through the
//! watermark rule. `hit = min(shared, watermark)`, then
//! `watermark = max(watermark, shared)`, one watermark a lane.

/// What the theory says of one request, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTheory {
    /// Longest prefix of the group in the lane's cache before the request.
    pub watermark_before: u64,
    /// Tokens served from the cache.
    pub hit_tokens: u64,
    /// Longest prefix in the cache after it.
    pub watermark_after: u64,
}
