//! What a stress workload asks of a server: an NFS procedure, and for READ and WRITE where in the file.

use clockwork_wire::nfs3::Procedure;
use serde::{Deserialize, Serialize};

/// One kind of call. Named in profiles and reports as here, in lower case with underscores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StressOperation {
    /// The server's RPC alone.
    Null,
    /// Attributes of a file.
    Getattr,
    /// The mode of a file is set to what it is.
    Setattr,
    /// A file's name in its directory.
    Lookup,
    /// What may be done with a file.
    Access,
    /// A symbolic link of the file set.
    Readlink,
    /// The next piece of a file that is read from its beginning to its end.
    ReadSequential,
    /// A piece from anywhere in a file.
    ReadRandom,
    /// The next piece of a file that is written over from its beginning to its end.
    WriteSequential,
    /// A piece anywhere in a file.
    WriteRandom,
    /// A piece behind the end of a file.
    Append,
    /// A new empty file.
    Create,
    /// A new directory.
    Mkdir,
    /// A new symbolic link.
    Symlink,
    /// A new named pipe.
    Mknod,
    /// A file, link or pipe that was made before is removed.
    Remove,
    /// A directory that was made before is removed.
    Rmdir,
    /// A file that was made before gets another name.
    Rename,
    /// A file of the file set gets a second name.
    Link,
    /// The beginning of a directory.
    Readdir,
    /// The beginning of a directory, with attributes and handles.
    Readdirplus,
    /// Space.
    Fsstat,
    /// Sizes.
    Fsinfo,
    /// Limits of names.
    Pathconf,
    /// A file that was written is committed.
    Commit,
}

impl StressOperation {
    /// All of them, in the order of their discriminants.
    pub const ALL: [Self; 25] = [
        Self::Null,
        Self::Getattr,
        Self::Setattr,
        Self::Lookup,
        Self::Access,
        Self::Readlink,
        Self::ReadSequential,
        Self::ReadRandom,
        Self::WriteSequential,
        Self::WriteRandom,
        Self::Append,
        Self::Create,
        Self::Mkdir,
        Self::Symlink,
        Self::Mknod,
        Self::Remove,
        Self::Rmdir,
        Self::Rename,
        Self::Link,
        Self::Readdir,
        Self::Readdirplus,
        Self::Fsstat,
        Self::Fsinfo,
        Self::Pathconf,
        Self::Commit,
    ];

    /// The procedure number of RFC 1813.
    #[must_use]
    pub fn procedure_number(self) -> u32 {
        self.procedure().map_or(0, Procedure::number)
    }

    /// The procedure; `None` for NULL, which has neither arguments nor results.
    #[must_use]
    pub fn procedure(self) -> Option<Procedure> {
        Some(match self {
            Self::Null => return None,
            Self::Getattr => Procedure::Getattr,
            Self::Setattr => Procedure::Setattr,
            Self::Lookup => Procedure::Lookup,
            Self::Access => Procedure::Access,
            Self::Readlink => Procedure::Readlink,
            Self::ReadSequential | Self::ReadRandom => Procedure::Read,
            Self::WriteSequential | Self::WriteRandom | Self::Append => Procedure::Write,
            Self::Create => Procedure::Create,
            Self::Mkdir => Procedure::Mkdir,
            Self::Symlink => Procedure::Symlink,
            Self::Mknod => Procedure::Mknod,
            Self::Remove => Procedure::Remove,
            Self::Rmdir => Procedure::Rmdir,
            Self::Rename => Procedure::Rename,
            Self::Link => Procedure::Link,
            Self::Readdir => Procedure::Readdir,
            Self::Readdirplus => Procedure::Readdirplus,
            Self::Fsstat => Procedure::Fsstat,
            Self::Fsinfo => Procedure::Fsinfo,
            Self::Pathconf => Procedure::Pathconf,
            Self::Commit => Procedure::Commit,
        })
    }

    /// The name in reports: the procedure as RFC 1813 writes it, with `seq`, `random` or `append` where that matters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadSequential => "READ seq",
            Self::ReadRandom => "READ random",
            Self::WriteSequential => "WRITE seq",
            Self::WriteRandom => "WRITE random",
            Self::Append => "WRITE append",
            other => other.procedure().map_or("NULL", Procedure::name),
        }
    }

    /// Whether it depends on what is in the files.
    #[must_use]
    pub fn is_data(self) -> bool {
        matches!(self.procedure(), Some(Procedure::Read | Procedure::Write | Procedure::Commit))
    }

    /// Whether it changes a directory; such calls go to a directory of the run's own.
    #[must_use]
    pub fn is_scratch(self) -> bool {
        use Procedure::{Create, Link, Mkdir, Mknod, Remove, Rename, Rmdir, Symlink};
        matches!(self.procedure(), Some(Create | Link | Mkdir | Mknod | Remove | Rename | Rmdir | Symlink))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discriminants_are_places_and_all_procedures_are_there() {
        for (place, operation) in StressOperation::ALL.iter().enumerate() {
            assert_eq!(*operation as usize, place);
        }
        let mut numbers: Vec<u32> = StressOperation::ALL.iter().map(|op| op.procedure_number()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers, (0..22).collect::<Vec<_>>());
    }
}
