//! Header blocks: one compressed text in each direction, spread over the frames of a connection.

use flate2::{Decompress, FlushDecompress, Status};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::SpdyError;

/// Headers of streams are a few words.
const LIMIT: usize = 64 * 1024;

/// Reads the header blocks of a peer, which are one zlib stream.
pub(super) struct HeaderBlocks {
    inflate: Decompress,
    /// Whether the zlib header was seen.
    begun: bool,
}

impl HeaderBlocks {
    pub(super) fn new() -> Self {
        Self { inflate: Decompress::new(false), begun: false }
    }

    /// The headers of the next block. Values with several parts keep their separator, a NUL, which no
    /// header may hold; such headers are passed over, for none of ours has several parts.
    pub(super) fn read(&mut self, mut block: &[u8]) -> Result<HeaderMap, SpdyError> {
        if !self.begun {
            block = self.begin(block)?;
            self.begun = true;
        }
        parse(&self.inflate(block)?).ok_or(SpdyError::Headers)
    }

    /// Takes the header of the zlib stream, and puts the dictionary into the window, if it is used.
    fn begin<'a>(&mut self, block: &'a [u8]) -> Result<&'a [u8], SpdyError> {
        let (&[method, flags], rest) = block.split_first_chunk::<2>().ok_or(SpdyError::Headers)?;
        if method & 0x0f != 8 || u16::from_be_bytes([method, flags]) % 31 != 0 {
            return Err(SpdyError::Headers);
        }
        if flags & 0x20 == 0 {
            return Ok(rest);
        }
        let (id, rest) = rest.split_first_chunk::<4>().ok_or(SpdyError::Headers)?;
        if *id != DICTIONARY_ID {
            return Err(SpdyError::Headers);
        }
        // Our library has no call for a dictionary. But text that went through it uncompressed does
        // the same: it stands in the window, and what follows can refer to it.
        self.inflate(&stored(&dictionary()))?;
        Ok(rest)
    }

    fn inflate(&mut self, mut block: &[u8]) -> Result<Vec<u8>, SpdyError> {
        let mut text = Vec::with_capacity(4 * 1024);
        loop {
            if text.len() == text.capacity() {
                if text.len() >= LIMIT {
                    return Err(SpdyError::Headers);
                }
                text.reserve(text.len());
            }
            let before = (self.inflate.total_in(), text.len());
            let status = self.inflate.decompress_vec(block, &mut text, FlushDecompress::Sync);
            let used = usize::try_from(self.inflate.total_in() - before.0);
            block = used.ok().and_then(|used| block.get(used..)).ok_or(SpdyError::Headers)?;
            let has_room = text.len() < text.capacity();
            match status {
                Ok(Status::Ok | Status::BufError) if block.is_empty() && has_room => {
                    return Ok(text);
                }
                // Neither the text nor the input gets anywhere.
                Ok(Status::BufError) if has_room => return Err(SpdyError::Headers),
                Ok(Status::Ok | Status::BufError) => {}
                Ok(Status::StreamEnd) | Err(_) => return Err(SpdyError::Headers),
            }
        }
    }
}

/// A block of our own without headers. It is not compressed, for which no dictionary is needed; the
/// empty block at its end makes the peer's library hand on what it has.
pub(super) fn empty_block(is_first: bool) -> Vec<u8> {
    let mut block = if is_first { vec![0x78, 0x01] } else { Vec::new() };
    block.extend_from_slice(&stored(&0_u32.to_be_bytes()));
    block.extend_from_slice(&stored(&[]));
    block
}

/// A block of deflate (RFC 1951, section 3.2.4) with `text` as it is.
fn stored(text: &[u8]) -> Vec<u8> {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    let mut block = vec![0];
    block.extend_from_slice(&length.to_le_bytes());
    block.extend_from_slice(&(!length).to_le_bytes());
    block.extend_from_slice(text);
    block
}

fn parse(text: &[u8]) -> Option<HeaderMap> {
    let (count, mut rest) = number(text)?;
    let mut headers = HeaderMap::new();
    for _ in 0..count {
        let (name, after_name) = string(rest)?;
        let (value, after_value) = string(after_name)?;
        rest = after_value;
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
        {
            headers.append(name, value);
        }
    }
    rest.is_empty().then_some(headers)
}

fn string(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = number(text)?;
    rest.split_at_checked(length.try_into().ok()?)
}

fn number(text: &[u8]) -> Option<(u32, &[u8])> {
    let (bytes, rest) = text.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*bytes), rest))
}

/// Its Adler-32 checksum, with which a stream says that it uses the dictionary.
const DICTIONARY_ID: [u8; 4] = [0xe3, 0xc6, 0xa7, 0xc2];

/// The dictionary of SPDY/3: words with their lengths, then text.
fn dictionary() -> Vec<u8> {
    let mut dictionary = Vec::with_capacity(1423);
    for word in WORDS {
        let length = u32::try_from(word.len()).unwrap_or(u32::MAX);
        dictionary.extend_from_slice(&length.to_be_bytes());
        dictionary.extend_from_slice(word.as_bytes());
    }
    dictionary.extend_from_slice(TEXT.as_bytes());
    dictionary
}

const WORDS: &[&str] = &[
    "options",
    "head",
    "post",
    "put",
    "delete",
    "trace",
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "connection",
    "content-base",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-md5",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "location",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "retry-after",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "method",
    "get",
    "status",
    "200 OK",
    "version",
    "HTTP/1.1",
    "url",
    "public",
    "set-cookie",
    "keep-alive",
    "origin",
];

const TEXT: &str = concat!(
    "10010120120220520630030230330430530630740240540640740840941041141241341441541641750250",
    "4505203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Reques",
    "t401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemente",
    "d503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon,",
    " Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,appl",
    "ication/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip",
    ",deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.",
);

#[cfg(test)]
mod tests {
    use flate2::{Compress, Compression, FlushCompress};

    use super::*;

    #[test]
    fn the_dictionary_is_the_one_of_the_protocol() {
        let dictionary = dictionary();
        assert_eq!(dictionary.len(), 1423);
        let (mut low, mut high) = (1_u32, 0_u32);
        for byte in dictionary {
            low = (low + u32::from(byte)) % 65_521;
            high = (high + low) % 65_521;
        }
        assert_eq!((high << 16 | low).to_be_bytes(), DICTIONARY_ID);
    }

    fn header(name: &'static str, value: &'static str) -> (HeaderName, HeaderValue) {
        (HeaderName::from_static(name), HeaderValue::from_static(value))
    }

    /// Compressed with zlib itself, as `streamtype: error` and then `streamtype: stdout`.
    #[test]
    fn blocks_that_zlib_compressed_with_the_dictionary_are_read() {
        let mut blocks = HeaderBlocks::new();
        let first = blocks.read(GOLDEN_FIRST).unwrap();
        assert_eq!(first, HeaderMap::from_iter([header("streamtype", "error")]));
        let second = blocks.read(GOLDEN_SECOND).unwrap();
        assert_eq!(second, HeaderMap::from_iter([header("streamtype", "stdout")]));
    }

    const GOLDEN_FIRST: &[u8] = &[
        0x78, 0xf9, 0xe3, 0xc6, 0xa7, 0xc2, 0x02, 0xa6, 0x23, 0x46, 0x70, 0x3a, 0x2b, 0x29, 0x4a,
        0x4d, 0xcc, 0x85, 0x16, 0x25, 0xac, 0xa9, 0xa0, 0x80, 0x06, 0x00, 0x00, 0x00, 0xff, 0xff,
    ];
    const GOLDEN_SECOND: &[u8] =
        &[0xc2, 0x2a, 0x05, 0x4c, 0xcc, 0x29, 0xf9, 0xa5, 0x25, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff];

    #[test]
    fn our_own_blocks_are_read_one_after_the_other() {
        let mut blocks = HeaderBlocks::new();
        for is_first in [true, false, false] {
            assert_eq!(blocks.read(&empty_block(is_first)), Ok(HeaderMap::new()));
        }
    }

    fn compressed(text: &[u8]) -> Vec<u8> {
        let mut block = Vec::with_capacity(text.len() + 1_000);
        let mut compress = Compress::new(Compression::default(), true);
        compress.compress_vec(text, &mut block, FlushCompress::Sync).unwrap();
        block
    }

    #[test]
    fn blocks_that_are_wrong_or_bombs_are_refused() {
        let check = |block: &[u8]| {
            assert_eq!(HeaderBlocks::new().read(block), Err(SpdyError::Headers));
        };
        check(b"");
        check(&[0x78]);
        check(&[0x78, 0xbb, 0, 0, 0, 0]);
        check(&[0x79, 0x01, 0]);
        check(&GOLDEN_FIRST[..GOLDEN_FIRST.len() - 8]);
        check(&compressed(&vec![0; 10_000_000]));
        check(&compressed(b"\0\0\0\x01\0\0\0\x01a\0\0\0\xffb"));
        check(&compressed(b"\xff\xff\xff\xff"));
        assert!(HeaderBlocks::new().read(&compressed(b"\0\0\0\x01\0\0\0\x01a\0\0\0\x01b")).is_ok());
    }
}
