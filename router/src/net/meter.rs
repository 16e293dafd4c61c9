//! The heat's recorder as the switch's meter.

use crate::heat::{self, FileToken, Recorder};
use clockwork_placement::{HandleHash, StoreId};
use clockwork_switch::meter::{Answered, Meter};
use clockwork_wire::nfs3::Class;

fn class(class: Class) -> heat::Class {
    match class {
        Class::Read => heat::Class::Read,
        Class::Write => heat::Class::Write,
        Class::Metadata => heat::Class::Metadata,
    }
}

impl Meter for Recorder {
    type Token = FileToken;

    fn call(&mut self, store: StoreId, kind: Class, handle: &[u8], hash: HandleHash) -> FileToken {
        Self::call(self, heat::StoreId(store.0), class(kind), handle, hash.0)
    }

    fn reply(&mut self, token: FileToken, answered: Answered) {
        let microseconds = u64::try_from(answered.response.as_micros()).unwrap_or(u64::MAX);
        Self::reply(
            self,
            token,
            heat::StoreId(answered.store.0),
            class(answered.class),
            microseconds,
            answered.failed,
            answered.bytes_read,
            answered.bytes_written,
        );
    }

    fn name(&mut self, directory: &[u8], name: &[u8], handle: &[u8]) {
        Self::name(self, directory, name, handle);
    }
}
