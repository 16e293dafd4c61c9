//! Numbers of variable length: LEB128, and zigzag for signed ones.

/// Appends a number, 7 bits a byte, the lowest first.
pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8 & 0x7f) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed number.
pub(super) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

/// Appends a byte string.
pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// What is left of a payload.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    /// The next number; `None` if the payload ends within it or it has more than 64 bits.
    pub(super) fn number(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// The next signed number.
    pub(super) fn signed(&mut self) -> Option<i64> {
        let value = self.number()?;
        Some((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }

    /// The next byte string.
    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(value in any::<u64>(), signed in any::<i64>(), small in 0u64..300) {
            let mut out = Vec::new();
            put(&mut out, value);
            put_signed(&mut out, signed);
            put(&mut out, small);
            let mut fields = Fields(&out);
            prop_assert_eq!(fields.number(), Some(value));
            prop_assert_eq!(fields.signed(), Some(signed));
            prop_assert_eq!(fields.number(), Some(small));
            prop_assert!(fields.0.is_empty());
        }
    }

    #[test]
    fn what_is_too_long_or_cut_is_no_number() {
        assert_eq!(Fields(&[0xff; 10]).number(), None);
        assert_eq!(Fields(&[0x80; 3]).number(), None);
        assert_eq!(Fields(&[]).number(), None);
        assert_eq!(Fields(&[5, 1, 2]).bytes(), None);
    }
}
