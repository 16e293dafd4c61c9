//! Bytes of the history: variable-length integers, and values sealed with a CRC-32.

/// Why bytes could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Damage {
    #[error("it ends early")]
    Short,
    #[error("its checksum is wrong")]
    Checksum,
    #[error("it has format {0}, this program knows {known}", known = super::block::FORMAT)]
    Format(u8),
    #[error("{0} is out of range")]
    Range(&'static str),
    #[error("bytes are left over")]
    Left,
    #[error("text is not UTF-8")]
    Text,
}

/// Appends the CRC-32 of the bytes.
pub(super) fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The bytes without their CRC-32, if it is right.
pub(super) fn unseal(sealed: &[u8]) -> Result<&[u8], Damage> {
    let (bytes, checksum) = sealed.split_last_chunk::<4>().ok_or(Damage::Short)?;
    if crc32fast::hash(bytes) == u32::from_le_bytes(*checksum) { Ok(bytes) } else { Err(Damage::Checksum) }
}

/// Appends an integer, seven bits a byte, the least significant first.
pub(super) fn put(bytes: &mut Vec<u8>, value: impl Into<u128>) {
    let mut value: u128 = value.into();
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Appends a length and bytes.
pub(super) fn put_bytes(bytes: &mut Vec<u8>, value: &[u8]) {
    put(bytes, value.len() as u64);
    bytes.extend_from_slice(value);
}

/// Reads what the functions above wrote; every read is checked.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn byte(&mut self) -> Result<u8, Damage> {
        let (byte, rest) = self.rest.split_first().ok_or(Damage::Short)?;
        self.rest = rest;
        Ok(*byte)
    }

    pub(super) fn u128(&mut self) -> Result<u128, Damage> {
        let mut value = 0u128;
        for shift in (0..128).step_by(7) {
            let byte = self.byte()?;
            let bits = u128::from(byte & 0x7f);
            let shifted = bits << shift;
            if shifted >> shift != bits {
                return Err(Damage::Range("an integer"));
            }
            value |= shifted;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Damage::Range("an integer"))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Damage> {
        u64::try_from(self.u128()?).map_err(|_| Damage::Range("an integer"))
    }

    /// A count of things of which each takes one byte at least, so that a wrong one cannot ask for memory.
    pub(super) fn count(&mut self) -> Result<usize, Damage> {
        let count = usize::try_from(self.u64()?).map_err(|_| Damage::Range("a count"))?;
        if count > self.rest.len() { Err(Damage::Short) } else { Ok(count) }
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Damage> {
        let len = self.count()?;
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(Damage::Short)?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Damage> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Damage::Text)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn end(&self) -> Result<(), Damage> {
        if self.rest.is_empty() { Ok(()) } else { Err(Damage::Left) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn integers_and_bytes_come_back(value in any::<u128>(), bits in 0u32..128, text in ".{0,20}") {
            let value = value >> bits;
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            put_bytes(&mut bytes, text.as_bytes());
            let sealed = seal(bytes);
            let mut reader = Reader::new(unseal(&sealed).unwrap());
            prop_assert_eq!(reader.u128(), Ok(value));
            prop_assert_eq!(reader.text(), Ok(text.as_str()));
            prop_assert_eq!(reader.end(), Ok(()));
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut reader = Reader::new(&bytes);
            while reader.u128().is_ok() && reader.bytes().is_ok() {}
            let _ = unseal(&bytes);
        }
    }
}
