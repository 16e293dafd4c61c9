//! A store that misbehaves: calls go on to an embedded store, but for those that a rule keeps, delays or changes.

use super::site::loopback;
use clockwork_wire::rpc;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Treat {
    Pass,
    /// It is never answered.
    Swallow,
    /// Its reply comes so much later.
    Delay(Duration),
    /// Refused with AUTH_TOOWEAK.
    Refuse,
    /// The connection that it came over is closed, and with it the replies to whatever else came over it.
    HangUp,
    /// The reply's bytes from here on are others.
    Change(usize),
}

/// Decides by caller, program and procedure.
pub(crate) type Rule = Arc<dyn Fn(SocketAddr, u32, u32) -> Treat + Send + Sync>;

/// Starts a relay to `store`; it ends with the test.
pub(crate) async fn relay(store: SocketAddr, rule: Rule) -> SocketAddr {
    let listener = TcpListener::bind(loopback(0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, peer)) = listener.accept().await {
            tokio::spawn(connection(stream, peer, store, Arc::clone(&rule)));
        }
    });
    address
}

async fn record(from: &mut OwnedReadHalf) -> Option<Vec<u8>> {
    let mut mark = [0; 4];
    from.read_exact(&mut mark).await.ok()?;
    let length = usize::try_from(u32::from_be_bytes(mark) & 0x7fff_ffff).unwrap();
    let mut bytes = mark.to_vec();
    bytes.resize(4 + length, 0);
    from.read_exact(&mut bytes[4..]).await.ok()?;
    Some(bytes)
}

async fn connection(stream: TcpStream, peer: SocketAddr, store: SocketAddr, rule: Rule) -> Option<()> {
    let (mut from_client, to_client) = stream.into_split();
    let to_client = Arc::new(tokio::sync::Mutex::new(to_client));
    let (mut from_store, mut to_store) = TcpStream::connect(store).await.ok()?.into_split();
    let treats: Arc<Mutex<HashMap<u32, Treat>>> = Arc::default();
    let known = Arc::clone(&treats);
    let replies = Arc::clone(&to_client);
    tokio::spawn(async move {
        while let Some(mut reply) = record(&mut from_store).await {
            let xid = rpc::xid(&reply[4..]).unwrap();
            let treat = known.lock().unwrap().remove(&xid).unwrap_or(Treat::Pass);
            let delay = match treat {
                Treat::Swallow => continue,
                Treat::Delay(delay) => delay,
                Treat::Change(at) => {
                    reply[4 + at..].iter_mut().take(8).for_each(|byte| *byte ^= 0x55);
                    Duration::ZERO
                }
                Treat::Pass | Treat::Refuse | Treat::HangUp => Duration::ZERO,
            };
            let replies = Arc::clone(&replies);
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                let _ = replies.lock().await.write_all(&reply).await;
            });
        }
        let _ = replies.lock().await.shutdown().await;
    });
    while let Some(call) = record(&mut from_client).await {
        let parsed = rpc::parse_call(&call[4..]).unwrap();
        let treat = rule(peer, parsed.program, parsed.procedure);
        if treat == Treat::HangUp {
            to_client.lock().await.shutdown().await.ok()?;
            return None;
        }
        if treat == Treat::Refuse {
            let mut reply = vec![0; 4];
            clockwork_wire::answer::auth_error(&mut reply, parsed.xid, clockwork_wire::answer::AUTH_TOOWEAK);
            let mark = clockwork_wire::record::mark(reply.len() - 4);
            reply[..4].copy_from_slice(&mark);
            to_client.lock().await.write_all(&reply).await.ok()?;
            continue;
        }
        treats.lock().unwrap().insert(parsed.xid, treat);
        to_store.write_all(&call).await.ok()?;
    }
    Some(())
}
