//! Whether a store shows at once what is changed at another: tried with a small file of the router's own.

use super::survey::{Asker, SurveyError};
use clockwork_wire::nfs3::{Procedure, Results, status};
use clockwork_wire::xdr::{put_opaque, put_u32, put_u64};

/// What a trial has shown.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Coherence {
    /// Every change was seen at once.
    Coherent,
    /// The file system is read-only for the router, so nothing could be tried.
    NotTried,
}

/// FILE_SYNC (RFC 1813 section 3.3.7).
const FILE_SYNC: u32 = 2;

/// Makes, changes and removes a file through `there`, and looks through `here` each time, after having made `here`
/// remember what was before.
pub(crate) async fn try_coherence(
    other: &str,
    there: &Asker,
    here: &Asker,
    path: &str,
    root: &[u8],
    name: &str,
) -> Result<Coherence, SurveyError> {
    let named = |call: &mut Vec<u8>| put_opaque(call, name.as_bytes());
    let incoherent = |change| SurveyError::Incoherent { other: other.into(), change };
    // What is not there is remembered as well.
    let _ = here.ask(Procedure::Lookup, path, root, named).await;
    let created = there
        .ask(Procedure::Create, path, root, |call| {
            named(call);
            // UNCHECKED, with mode 0600 and nothing else set.
            put_u32(call, 0);
            put_u32(call, 1);
            put_u32(call, 0o600);
            for _ in 0..5 {
                put_u32(call, 0);
            }
        })
        .await;
    match created {
        Ok(_) => {}
        Err(SurveyError::Nfs {
            status: status::ACCES | status::PERM | status::ROFS | status::NOSPC, ..
        }) => {
            return Ok(Coherence::NotTried);
        }
        Err(error) => return Err(error),
    }
    let result = changes_are_seen(there, here, path, root, name).await;
    let removed = there.ask(Procedure::Remove, path, root, named).await;
    if let Some(change) = result? {
        return Err(incoherent(change));
    }
    removed?;
    match here.ask(Procedure::Lookup, path, root, named).await {
        Err(SurveyError::Nfs { status: status::NOENT, .. }) => Ok(Coherence::Coherent),
        Ok(_) => Err(incoherent("removal")),
        Err(error) => Err(error),
    }
}

/// The first change that is not seen.
async fn changes_are_seen(
    there: &Asker,
    here: &Asker,
    path: &str,
    root: &[u8],
    name: &str,
) -> Result<Option<&'static str>, SurveyError> {
    let named = |call: &mut Vec<u8>| put_opaque(call, name.as_bytes());
    let (message, results) = match here.ask(Procedure::Lookup, path, root, named).await {
        Ok(found) => found,
        Err(SurveyError::Nfs { status: status::NOENT, .. }) => return Ok(Some("new file")),
        Err(error) => return Err(error),
    };
    let Results::Lookup { handle, .. } = results else { return Ok(Some("new file")) };
    let handle = &message[handle];
    here.ask(Procedure::Getattr, path, handle, |_| {}).await?;
    let data = b"clockwork looks whether stores agree";
    there
        .ask(Procedure::Write, path, handle, |call| {
            put_u64(call, 0);
            put_u32(call, data.len() as u32);
            put_u32(call, FILE_SYNC);
            put_opaque(call, data);
        })
        .await?;
    let (message, results) = here.ask(Procedure::Getattr, path, handle, |_| {}).await?;
    let size = match results {
        Results::Getattr { attributes_at } => {
            clockwork_wire::nfs3::attributes(&message, attributes_at).map(|a| a.size)
        }
        _ => None,
    };
    Ok((size != Some(data.len() as u64)).then_some("change of size"))
}
