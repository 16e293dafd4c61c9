//! The heat's recorder as the switch's meter.

use crate::heat::{FileToken, Recorder};
use clockwork_placement::{HandleHash, StoreId};
use clockwork_switch::meter::{Answered, Meter};
use clockwork_wire::nfs3::Class;

impl Meter for Recorder {
    type Token = FileToken;

    fn call(&mut self, store: StoreId, class: Class, handle: &[u8], hash: HandleHash) -> FileToken {
        Self::call(self, store, class, handle, hash.0)
    }

    fn reply(&mut self, token: FileToken, answered: Answered) {
        let Answered { store, class, response_us, failed, bytes_read, bytes_written } = answered;
        Self::reply(self, token, store, class, response_us, failed, bytes_read, bytes_written);
    }

    fn name(&mut self, directory: &[u8], name: &[u8], handle: &[u8]) {
        Self::name(self, directory, name, handle);
    }
}
