//! Who may come in and what is exported, for the shards: the access rules, and MOUNT.

use super::state::State;
use super::survey::{Asker, SurveyError};
use crate::exports::{MountOutcome, Walk, Walked};
use crate::net::{Desk, MountReply};
use clockwork_wire::nfs3::{self, Procedure, Results, status};
use clockwork_wire::{rpc, xdr};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Longest wait for a store to be in use, and for its answers when a path below an export is mounted: some clients take
/// a failed MNT as final.
const WALK_MAX: Duration = Duration::from_secs(10);
/// Between two looks whether a store is in use.
const NO_STORE_PAUSE: Duration = Duration::from_millis(100);
/// Lists in MOUNT replies are cut to what a datagram carries.
const REPLY_BYTES_MAX: usize = 60_000;

/// The desk of a plex.
pub(crate) struct PlexDesk(pub(crate) Arc<State>);

impl Desk for PlexDesk {
    fn admits(&self, client: SocketAddr) -> bool {
        self.0.mounts.load().exports().allows(client)
    }

    fn mount(&self, client: SocketAddr, message: &[u8], call: &rpc::Call) -> MountReply {
        let service = self.0.mounts.load_full();
        let mut reply = Vec::new();
        match service.answer(message, call, client, REPLY_BYTES_MAX, &mut reply) {
            MountOutcome::Answered => MountReply::Now(reply),
            MountOutcome::Walk(walk) => {
                let Some(waits) = self.0.mounting.begin() else {
                    service.walked(&walk, Err(status::JUKEBOX), &mut reply);
                    return MountReply::Now(reply);
                };
                let state = Arc::clone(&self.0);
                MountReply::Later(Box::pin(async move {
                    let _waits = waits;
                    let walking = look_up(&state, &walk);
                    let found = tokio::time::timeout(WALK_MAX, walking).await.unwrap_or(Err(status::JUKEBOX));
                    let mut reply = Vec::new();
                    state.mounts.load().walked(&walk, found, &mut reply);
                    reply
                }))
            }
        }
    }
}

/// NF3DIR (RFC 1813 section 2.5).
const DIRECTORY: u32 = 2;

/// Looks a mounted path up, as soon as a store is in use.
async fn look_up(state: &State, walk: &Walk) -> Result<Walked, u32> {
    loop {
        // For the root alone no store has to be asked.
        let root = state.mounts.load().root(walk.export).map(|root| root.handle.clone());
        if let Some(root) = root {
            if walk.components.is_empty() {
                return Ok(Walked { handle: root, directory: true });
            }
            if let Some(asker) = ask_any(state, WALK_MAX).await {
                return walk_down(&asker, &root, &walk.components).await;
            }
        }
        tokio::time::sleep(NO_STORE_PAUSE).await;
    }
}

/// A store that is there, to ask it something: one whose end no probe has noticed yet is passed over.
pub(crate) async fn ask_any(state: &State, timeout: Duration) -> Option<Asker> {
    for store in state.stores_up() {
        match Asker::connect(&state.config.stores[store], state.addresses[store], timeout).await {
            Ok(asker) => return Some(asker),
            Err(error) => {
                tracing::debug!(store = %state.config.stores[store].name, %error, "another is asked")
            }
        }
    }
    None
}

/// Looks a path up, name by name, from a root down. The error is an nfsstat3.
pub(crate) async fn walk_down(asker: &Asker, root: &[u8], components: &[Vec<u8>]) -> Result<Walked, u32> {
    let mut found = Walked { handle: root.to_vec(), directory: true };
    for name in components {
        let arguments = |call: &mut Vec<u8>| xdr::put_opaque(call, name);
        match asker.ask(Procedure::Lookup, "a mounted path", &found.handle, arguments).await {
            Ok((message, Results::Lookup { handle, attributes_at })) => {
                let attributes = attributes_at.and_then(|at| nfs3::attributes(&message, at));
                found.directory = attributes.is_none_or(|a| a.file_type == DIRECTORY);
                found.handle = message[handle].to_vec();
            }
            Err(SurveyError::Nfs { status, .. }) => return Err(status),
            Ok(_) | Err(_) => return Err(status::SERVERFAULT),
        }
    }
    Ok(found)
}
