//! Keeps other people's web pages out.
//!
//! The admin interface has no passwords; on loopback, whoever has an account on the machine may use it. A page in the
//! browser of such a person must not: it could send requests to 127.0.0.1 (forged requests), or have its own name
//! point there (DNS rebinding). So every request must name the interface by an IP address or as `localhost`, which a
//! rebound name is not, and every change must carry a header that a browser sends to a strange server only if that
//! server agrees beforehand, which this one never does.
//!
//! And the body of a request has to be whole in time, or its connection would keep its place from others.
use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use super::BODY_BYTES_MAX;
use super::api::failure;

/// The body of a request is whole so long after its head, or the request is refused.
const BODY_MAX: Duration = Duration::from_secs(5);

/// The header that every change has to carry, with any value.
pub const CHANGE_HEADER: &str = "clockwork-admin";

/// Lets a request through or answers what is wrong with it.
pub(super) async fn guard(request: Request, next: Next) -> Response {
    if let Err(message) = check(request.method(), request.headers()) {
        return failure(StatusCode::FORBIDDEN, "forbidden", message.to_owned());
    }
    let (parts, body) = request.into_parts();
    match tokio::time::timeout(BODY_MAX, to_bytes(body, BODY_BYTES_MAX)).await {
        Ok(Ok(body)) => next.run(Request::from_parts(parts, Body::from(body))).await,
        Ok(Err(error)) => {
            let message =
                format!("cannot take the body of the request, of {BODY_BYTES_MAX} bytes at most: {error}");
            failure(StatusCode::BAD_REQUEST, "bad_request", message)
        }
        Err(_) => {
            let message = format!("the body of the request was not whole after {} s", BODY_MAX.as_secs());
            failure(StatusCode::REQUEST_TIMEOUT, "timeout", message)
        }
    }
}

fn check(method: &Method, headers: &HeaderMap) -> Result<(), &'static str> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok());
    if hosts.next().is_some() || !host.is_some_and(names_this_machine) {
        return Err("name the admin interface by its IP address or as localhost (header Host)");
    }
    if method != Method::GET && method != Method::HEAD && !headers.contains_key(CHANGE_HEADER) {
        return Err("changes need the header `Clockwork-Admin: 1`");
    }
    Ok(())
}

/// Whether a Host header is an address or `localhost`, with or without a port.
fn names_this_machine(host: &str) -> bool {
    if host.parse::<SocketAddr>().is_ok() {
        return true;
    }
    if let Some(v6) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return v6.parse::<Ipv6Addr>().is_ok();
    }
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => name,
        Some(_) => return false,
        None => host,
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::Ipv4Addr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_localhost_name_this_machine() {
        for host in ["127.0.0.1", "127.0.0.1:8049", "[::1]", "[::1]:8049", "localhost", "LOCALHOST:8049"] {
            assert!(names_this_machine(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:8049",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "::1",
            "[evil]",
            "localhost:x",
            "localhost:99999",
        ] {
            assert!(!names_this_machine(host), "{host}");
        }
    }
}
