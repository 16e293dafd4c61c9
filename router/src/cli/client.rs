//! The admin interface as seen from the command line.
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use clap::Args;
use serde::de::DeserializeOwned;
use thiserror::Error;
use ureq::{Agent, Body, http::Response};

use crate::config::StoreAddress;
use crate::web::CHANGE_HEADER;
use crate::web::types::{
    Assign, Drained, ExceptionPage, Failure, FileName, HotFiles, Moved, Periods, Status, Weights,
};

/// How long a command waits for its answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Longest answer that is read, in bytes: 10,000 rows of a kilobyte.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// Which plex a command is for.
#[derive(Debug, Clone, Args)]
pub struct AdminArgs {
    /// Where the plex's admin interface is (`admin.listen` in its configuration): an IP address or a host name, and the port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8049", value_parser = admin)]
    pub admin: SocketAddr,
}

/// How long each address of a name is tried where it has several.
const TRY_MAX: Duration = Duration::from_secs(2);

/// Reads where an admin interface is. Of a name with several addresses, as `localhost` often has, it is the first one where
/// somebody listens; the interface itself knows no names but that one.
fn admin(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let named = StoreAddress::parse(text);
    let named = named.ok_or("give an IP address or a host name, and a port, such as 127.0.0.1:8049")?;
    let found = (named.host(), named.port()).to_socket_addrs();
    let found: Vec<SocketAddr> =
        found.map_err(|error| format!("{} cannot be looked up: {error}", named.host()))?.collect();
    let listens = |address: &&SocketAddr| TcpStream::connect_timeout(address, TRY_MAX).is_ok();
    let chosen = if found.len() > 1 { found.iter().find(listens) } else { None };
    chosen.or(found.first()).copied().ok_or_else(|| format!("{} has no address", named.host()))
}

/// Why a command did not get what it wanted.
#[derive(Debug, Error)]
pub enum ClientError {
    /// Nothing answers there.
    #[error(
        "cannot reach a plex at {admin}: {cause}\n  \
         Is it running? Its admin interface is at `admin.listen` of its configuration; name another one with --admin ADDRESS:PORT."
    )]
    Unreachable {
        /// The address that was tried.
        admin: SocketAddr,
        /// What the system said.
        cause: Box<ureq::Error>,
    },
    /// The plex answered that it cannot do it.
    #[error("{message}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// The kind of error.
        error: String,
        /// What is wrong and what to do.
        message: String,
    },
    /// What answers is no plex, or one of another version.
    #[error("what answers at {admin} does not answer like a plex of this version: {why}; check --admin")]
    NotAPlex {
        /// The address.
        admin: SocketAddr,
        /// What was unexpected.
        why: String,
    },
}

/// Asks one plex.
#[derive(Debug)]
pub struct AdminClient {
    agent: Agent,
    admin: SocketAddr,
}

impl AdminClient {
    /// A client of the plex whose admin interface is at this address.
    #[must_use]
    pub fn new(admin: SocketAddr) -> Self {
        let config = Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .max_redirects(0)
            // A proxy from the environment is for the world outside, not for this machine.
            .proxy(None)
            .build();
        Self { agent: config.into(), admin }
    }

    /// The plex now.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn status(&self) -> Result<Status, ClientError> {
        self.get("/v1/status", &[])
    }

    /// Exceptions with handles after `after`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn exceptions(&self, after: Option<&str>, limit: usize) -> Result<ExceptionPage, ClientError> {
        let limit = limit.to_string();
        let after = after.map(|after| ("after", after));
        let query: Vec<(&str, &str)> = after.into_iter().chain([("limit", limit.as_str())]).collect();
        self.get("/v1/exceptions", &query)
    }

    /// The last closed periods.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn periods(&self, last: usize) -> Result<Periods, ClientError> {
        self.get("/v1/periods", &[("last", &last.to_string())])
    }

    /// The hottest files of the last periods.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn hot(&self, last: usize, limit: usize) -> Result<HotFiles, ClientError> {
        self.get("/v1/hot", &[("last", &last.to_string()), ("limit", &limit.to_string())])
    }

    /// A report on the last closed periods, as JSON and as a page.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn report(&self, last: usize) -> Result<(serde_json::Value, String), ClientError> {
        let last = last.to_string();
        let json = self.get("/v1/report", &[("last", &last)])?;
        let request = self.agent.get(self.url("/report")).query("last", &last);
        Ok((json, self.text(request.call())?))
    }

    /// Gives a file to a store.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn assign(&self, assign: &Assign) -> Result<Moved, ClientError> {
        let request = self.agent.put(self.url("/v1/exceptions")).header(CHANGE_HEADER, "1");
        self.read(request.send_json(assign))
    }

    /// Gives a file back to the default rule.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn unassign(&self, file: &FileName) -> Result<Moved, ClientError> {
        let (key, value) = match file {
            FileName::Path(path) => ("path", path),
            FileName::Handle(handle) => ("handle", handle),
        };
        let request = self.agent.delete(self.url("/v1/exceptions")).header(CHANGE_HEADER, "1");
        self.read(request.query(key, value).call())
    }

    /// Takes a store out of service; `force` also the last one.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn drain(&self, store: &str, force: bool) -> Result<Drained, ClientError> {
        self.post(store, "drain", &[("force", if force { "true" } else { "false" })])
    }

    /// Takes a store back into service.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn undrain(&self, store: &str) -> Result<Drained, ClientError> {
        self.post(store, "undrain", &[])
    }

    /// Weights of the default rule.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn weights(&self) -> Result<Weights, ClientError> {
        self.get("/v1/weights", &[])
    }

    /// Puts the configuration's weights in force again.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn reset_weights(&self) -> Result<Weights, ClientError> {
        self.read(self.agent.delete(self.url("/v1/weights")).header(CHANGE_HEADER, "1").call())
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.admin)
    }

    fn get<T: DeserializeOwned>(&self, path: &str, query: &[(&str, &str)]) -> Result<T, ClientError> {
        let request = self.agent.get(self.url(path)).query_pairs(query.iter().copied());
        self.read(request.call())
    }

    fn post<T: DeserializeOwned>(
        &self,
        store: &str,
        action: &str,
        query: &[(&str, &str)],
    ) -> Result<T, ClientError> {
        // Names of stores need no escapes; of anything else the plex would know no store anyway.
        let escape = |byte: u8| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        };
        let store: String = store.bytes().map(escape).collect();
        let request = self.agent.post(self.url(&format!("/v1/stores/{store}/{action}")));
        let request = request.header(CHANGE_HEADER, "1").query_pairs(query.iter().copied());
        self.read(request.send_empty())
    }

    fn read<T: DeserializeOwned>(
        &self,
        response: Result<Response<Body>, ureq::Error>,
    ) -> Result<T, ClientError> {
        let text = self.text(response)?;
        serde_json::from_str(&text)
            .map_err(|error| ClientError::NotAPlex { admin: self.admin, why: error.to_string() })
    }

    /// The body of a success.
    fn text(&self, response: Result<Response<Body>, ureq::Error>) -> Result<String, ClientError> {
        let unreachable = |cause| ClientError::Unreachable { admin: self.admin, cause: Box::new(cause) };
        let mut response = response.map_err(unreachable)?;
        let status = response.status();
        let text = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
        let text = text.map_err(unreachable)?;
        let not_a_plex = |why: String| ClientError::NotAPlex { admin: self.admin, why };
        if status.is_success() {
            return Ok(text);
        }
        match serde_json::from_str::<Failure>(&text) {
            Ok(Failure { error, message }) => {
                Err(ClientError::Refused { status: status.as_u16(), error: error.into_owned(), message })
            }
            Err(_) => Err(not_a_plex(format!("HTTP status {status}"))),
        }
    }
}

/// What became of a change, and whether it would not outlive a restart.
pub(super) fn with_not_kept(text: String, why: Option<&str>) -> String {
    match why {
        Some(why) => format!("{text}in force, but not kept: {why}\n"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admin_interface_is_named_by_address_or_name() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        assert_eq!(admin(&at.to_string()), Ok(at));
        assert_eq!(admin("[::1]:8049"), Ok("[::1]:8049".parse().unwrap()));
        // Whether or not it is ::1 first.
        assert_eq!(admin(&format!("localhost:{}", at.port())), Ok(at));
        for wrong in ["8049", "127.0.0.1", "localhost", "127.0.0.1:x", "http://localhost:8049", ""] {
            assert!(admin(wrong).is_err_and(|why| why.contains("such as 127.0.0.1:8049")), "{wrong}");
        }
    }
}
