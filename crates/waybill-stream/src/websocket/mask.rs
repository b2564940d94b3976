//! The mask that a client puts over what it sends.
//!
//! It hides nothing; it keeps proxies from taking a client's bytes for requests.

/// A mask, and how far into it we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mask {
    key: [u8; 4],
}

impl Mask {
    /// From the key of a frame's header.
    pub fn new(key: [u8; 4]) -> Self {
        Self { key }
    }

    /// The key as it stands in the header.
    pub fn key(self) -> [u8; 4] {
        self.key
    }

    /// Masks or unmasks the next `bytes` of a frame.
    pub fn apply(&mut self, bytes: &mut [u8]) {
        // Sixteen at a time, which the compiler turns into one vector instruction.
        let [a, b, c, d] = self.key;
        let wide = [a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d];
        let (blocks, rest) = bytes.as_chunks_mut::<16>();
        for block in blocks {
            for (byte, key) in block.iter_mut().zip(wide) {
                *byte ^= key;
            }
        }
        for (byte, key) in rest.iter_mut().zip(wide) {
            *byte ^= key;
        }
        self.key.rotate_left(rest.len() % 4);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_mask_goes_on_where_it_stopped(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            key in any::<[u8; 4]>(),
            cut in 0_usize..200,
        ) {
            let expected: Vec<_> =
                bytes.iter().enumerate().map(|(at, byte)| byte ^ key[at % 4]).collect();
            let mut masked = bytes.clone();
            let mut mask = Mask::new(key);
            let (first, second) = masked.split_at_mut(cut.min(bytes.len()));
            mask.apply(first);
            mask.apply(second);
            prop_assert_eq!(masked, expected);
        }
    }
}
