//! The metrics page: vLLM's names, labels, help texts and order, in the
//! single-process form (one rank) and the multi-process form (several), as
//! `prometheus_client` writes them. It refuses to know how values come about.

mod cache_config;
mod catalogue;
mod http_account;
mod number;
mod render;
#[cfg(test)]
mod tests;

pub(super) use http_account::{Exchange, HttpAccount};
pub(super) use render::{Facts, Page, render};
