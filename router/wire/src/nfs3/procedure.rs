//! The procedures and what they mean for routing and for heat.

use std::fmt;

/// A procedure of NFSv3 (RFC 1813 section 3.3); the discriminant is its number on the wire.
#[expect(missing_docs, reason = "the names are the protocol's own, RFC 1813 section 3.3 describes each")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Procedure {
    Null = 0,
    Getattr,
    Setattr,
    Lookup,
    Access,
    Readlink,
    Read,
    Write,
    Create,
    Mkdir,
    Symlink,
    Mknod,
    Remove,
    Rmdir,
    Rename,
    Link,
    Readdir,
    Readdirplus,
    Fsstat,
    Fsinfo,
    Pathconf,
    Commit = 21,
}

/// What a call asks of a store, coarsely; heat is counted by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// File data from the store: READ.
    Read,
    /// File data to the store: WRITE and COMMIT.
    Write,
    /// All else: attributes, names, directories.
    Metadata,
}

impl Procedure {
    /// All procedures in the order of their numbers.
    pub const ALL: [Self; 22] = [
        Self::Null,
        Self::Getattr,
        Self::Setattr,
        Self::Lookup,
        Self::Access,
        Self::Readlink,
        Self::Read,
        Self::Write,
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

    /// The procedure with that number on the wire; `None` from 22 on.
    #[inline]
    #[must_use]
    pub fn from_u32(number: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// The number on the wire.
    #[inline]
    #[must_use]
    pub fn number(self) -> u32 {
        u32::from(self as u8)
    }

    /// The name as RFC 1813 writes it, without the prefix: `"GETATTR"`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "NULL",
            Self::Getattr => "GETATTR",
            Self::Setattr => "SETATTR",
            Self::Lookup => "LOOKUP",
            Self::Access => "ACCESS",
            Self::Readlink => "READLINK",
            Self::Read => "READ",
            Self::Write => "WRITE",
            Self::Create => "CREATE",
            Self::Mkdir => "MKDIR",
            Self::Symlink => "SYMLINK",
            Self::Mknod => "MKNOD",
            Self::Remove => "REMOVE",
            Self::Rmdir => "RMDIR",
            Self::Rename => "RENAME",
            Self::Link => "LINK",
            Self::Readdir => "READDIR",
            Self::Readdirplus => "READDIRPLUS",
            Self::Fsstat => "FSSTAT",
            Self::Fsinfo => "FSINFO",
            Self::Pathconf => "PATHCONF",
            Self::Commit => "COMMIT",
        }
    }

    /// What the procedure asks of a store.
    #[inline]
    #[must_use]
    pub fn class(self) -> Class {
        match self {
            Self::Read => Class::Read,
            Self::Write | Self::Commit => Class::Write,
            _ => Class::Metadata,
        }
    }

    /// Whether a call may run twice without harm, so that it can be sent again, to another store too, without
    /// asking whether the first transmission ran. WRITE counts as harmful: a late repeat would overwrite newer data.
    #[inline]
    #[must_use]
    pub fn is_idempotent(self) -> bool {
        !matches!(
            self,
            Self::Setattr
                | Self::Write
                | Self::Create
                | Self::Mkdir
                | Self::Symlink
                | Self::Mknod
                | Self::Remove
                | Self::Rmdir
                | Self::Rename
                | Self::Link
        )
    }
}

impl fmt::Display for Procedure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
