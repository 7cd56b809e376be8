//! A checked URL of a server, its credentials taken out of it and put into a
//! header.

use std::fmt;

use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Client, RequestBuilder};
use url::Url;

use crate::secret::{Secret, shown_url};
use crate::service::control_error::ControlError;

/// A URL without its credentials, and the header that carries them.
#[derive(Clone)]
pub(super) struct Endpoint {
    pub(super) url: Url,
    pub(super) authorization: Option<HeaderValue>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown_url(self.url.as_str()))
    }
}

impl Endpoint {
    /// Checks the URL that stands in `field`.
    pub(super) fn new(
        field: &'static str,
        text: &str,
        key: &Secret,
        http: &Client,
    ) -> Result<Self, ControlError> {
        let invalid = || ControlError::BadUrl { field };
        let mut url = Url::parse(text).map_err(|_| invalid())?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(invalid());
        }
        let authorization = authorization(&url, key, http)?;
        url.set_username("").map_err(|()| invalid())?;
        url.set_password(None).map_err(|()| invalid())?;
        Ok(Self { url, authorization })
    }

    pub(super) fn post(&self, http: &Client) -> RequestBuilder {
        self.authorized(http.post(self.url.clone()))
    }

    pub(super) fn get(&self, http: &Client) -> RequestBuilder {
        self.authorized(http.get(self.url.clone()))
    }

    fn authorized(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.authorization {
            Some(value) => request.header(AUTHORIZATION, value.clone()),
            None => request,
        }
    }
}

/// The key as a bearer token; without one, the URL's user part.
fn authorization(
    url: &Url,
    key: &Secret,
    http: &Client,
) -> Result<Option<HeaderValue>, ControlError> {
    if let Some(key) = key.expose() {
        let value = HeaderValue::from_str(&format!("Bearer {key}"));
        let mut value = value.map_err(|_| ControlError::BadKey)?;
        value.set_sensitive(true);
        return Ok(Some(value));
    }
    if url.username().is_empty() && url.password().is_none() {
        return Ok(None);
    }
    // The client itself turns a user part into a header.
    let request = http
        .get(url.clone())
        .build()
        .map_err(|_| ControlError::BadKey)?;
    Ok(request.headers().get(AUTHORIZATION).cloned())
}
