//! The admin interface: HTTP and JSON, for the command line, for metrics and for scripts.
//!
//! | Request | Answer |
//! |---|---|
//! | `GET /v1/status` | [`Status`](types::Status): stores, limits, counters, alarms |
//! | `GET /v1/exceptions?after=HANDLE&limit=N` | [`ExceptionPage`](types::ExceptionPage) |
//! | `PUT /v1/exceptions` with [`Assign`](types::Assign) | [`Moved`](types::Moved) |
//! | `DELETE /v1/exceptions?path=PATH` or `?handle=HANDLE` | [`Moved`](types::Moved) |
//! | `POST /v1/stores/NAME/drain?force=true`, `.../undrain` | [`Drained`](types::Drained) |
//! | `GET /v1/periods?last=N` | [`Periods`](types::Periods) |
//! | `GET /v1/hot?last=N&limit=N&store=NAME` | [`HotFiles`](types::HotFiles) |
//! | `GET /metrics` | the status in Prometheus' text format |
//! | `GET /` | the status as a page for people, loaded anew every 2 s |
//!
//! Every answer that is not a success is a [`Failure`](types::Failure). There are no passwords, so the interface
//! listens on loopback unless the configuration says that something else guards it; pages in a browser are kept out
//! (see [`CHANGE_HEADER`]).
mod api;
mod control;
mod guard;
mod listener;
mod measured;
pub mod metrics;
mod page;
pub mod types;

use std::future::Future;
use std::io;
use std::sync::Arc;

use tokio::net::TcpListener;

pub use api::routes;
pub use control::{ControlError, PlexControl};
pub use guard::CHANGE_HEADER;

/// Longest body of a request, in bytes; longer ones are refused.
pub const BODY_BYTES_MAX: usize = 16 << 10;

/// Longest path of a file in a request, in bytes.
pub const PATH_BYTES_MAX: usize = 4_096;

/// Longest reason for an assignment, in bytes.
pub const REASON_BYTES_MAX: usize = 256;

/// Connections served at once; for a further one, who has waited longest without a whole request is closed, and if all
/// have one, it waits until one ends.
pub const ADMIN_CONNECTIONS_MAX: usize = 64;

/// Serves the admin interface until `stop` is ready.
///
/// # Errors
/// The listener broke.
pub async fn serve<C: PlexControl>(
    listener: TcpListener,
    control: Arc<C>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let listener = listener::Bounded::new(listener, ADMIN_CONNECTIONS_MAX, listener::HEAD_MAX);
    axum::serve(listener, routes(control)).with_graceful_shutdown(stop).await
}

/// The bytes of a handle in hexadecimal: 1 to 64 of them.
#[must_use]
pub fn handle_bytes(text: &str) -> Option<Vec<u8>> {
    if !(2..=128).contains(&text.len()) || text.len() % 2 == 1 || !text.bytes().all(|b| b.is_ascii_hexdigit())
    {
        return None;
    }
    let pairs = (0..text.len()).step_by(2).map(|at| text.get(at..at + 2));
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

/// A handle in hexadecimal, two digits for each byte.
#[must_use]
pub fn handle_text(handle: &[u8]) -> String {
    handle.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_hexadecimal_both_ways() {
        for handle in [&[0_u8][..], &[0xff; 64], &[1, 0x2b, 0xc3]] {
            assert_eq!(handle_bytes(&handle_text(handle)).as_deref(), Some(handle));
        }
        assert_eq!(handle_bytes("0AfF"), Some(vec![0x0a, 0xff]));
        for wrong in ["", "a", "abc", "zz", "+1", "0x", "\u{e9}\u{e9}", &"0".repeat(130)] {
            assert_eq!(handle_bytes(wrong), None, "{wrong}");
        }
    }
}
