//! Decompression of layers and archives, chosen by the first bytes and not by what a peer says.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{
    BlockDecodingStrategy, FrameDecoder,
    errors::{FrameDecoderError, ReadFrameHeaderError},
};

const BUFFER: usize = 256 << 10;

/// How some bytes are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// By the magic number. What is neither gzip nor zstd is not compressed.
    pub(super) fn of(start: &[u8]) -> Self {
        match start {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            // A skippable frame may come first.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            _ => Self::None,
        }
    }
}

/// The content of `packed`, whatever it is packed with.
pub(super) fn decompress<'a>(packed: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut packed = BufReader::with_capacity(BUFFER, packed);
    // A pipe gives few bytes at first; these four are worth waiting for.
    let mut start = Vec::with_capacity(4);
    packed.by_ref().take(4).read_to_end(&mut start)?;
    let compression = Compression::of(&start);
    let whole = io::Cursor::new(start).chain(packed);
    Ok(match compression {
        Compression::None => Box::new(whole),
        Compression::Gzip => Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(whole))),
        Compression::Zstd => {
            Box::new(Zstd { source: whole, decoder: FrameDecoder::new(), in_frame: false })
        }
    })
}

/// All frames of a zstd stream, one after the other.
struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    in_frame: bool,
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if self.in_frame {
                let count = self.read_frame(buffer)?;
                if count > 0 {
                    return Ok(count);
                }
                self.in_frame = false;
            }
            if self.source.fill_buf()?.is_empty() {
                return Ok(0);
            }
            self.open_frame()?;
        }
    }
}

impl<R: BufRead> Zstd<R> {
    fn read_frame(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
            let strategy = BlockDecodingStrategy::UptoBlocks(1);
            self.decoder.decode_blocks(&mut self.source, strategy).map_err(invalid)?;
        }
        self.decoder.read(buffer)
    }

    fn open_frame(&mut self) -> io::Result<()> {
        match self.decoder.init(&mut self.source) {
            Ok(()) => self.in_frame = true,
            // zstd:chunked keeps its table of contents in such frames.
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length,
                ..
            })) => {
                let mut frame = self.source.by_ref().take(length.into());
                if io::copy(&mut frame, &mut io::sink())? < u64::from(length) {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            Err(error) => return Err(invalid(error)),
        }
        Ok(())
    }
}

fn invalid(error: FrameDecoderError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::write::GzEncoder;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn read(packed: &[u8]) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        decompress(packed)?.read_to_end(&mut content)?;
        Ok(content)
    }

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(content: &[u8]) -> Vec<u8> {
        compress_to_vec(content, CompressionLevel::Fastest)
    }

    #[test]
    fn content_is_the_same_however_it_is_packed() {
        let content = b"some text ".repeat(100_000);
        assert_eq!(read(&content).unwrap(), content);
        assert_eq!(read(&gzip(&content)).unwrap(), content);
        assert_eq!(read(&zstd(&content)).unwrap(), content);
        assert_eq!(read(b"").unwrap(), b"");
        assert_eq!(read(b"abc").unwrap(), b"abc");
    }

    #[test]
    fn every_member_and_frame_counts() {
        assert_eq!(read(&[gzip(b"a"), gzip(b"b")].concat()).unwrap(), b"ab");
        let skippable = [&0x184d_2a50_u32.to_le_bytes()[..], &2_u32.to_le_bytes(), b"xx"].concat();
        let stream = [&skippable[..], &zstd(b"a"), &skippable, &zstd(b"b"), &skippable].concat();
        assert_eq!(read(&stream).unwrap(), b"ab");
    }

    #[test]
    fn a_cut_stream_is_an_error() {
        for packed in [gzip(b"some text"), zstd(b"some text")] {
            for end in 4..packed.len() {
                // A gzip or zstd stream without its checksum is cut too.
                let cut = &packed[..end];
                let whole = read(cut).is_ok_and(|content| content == b"some text");
                assert!(read(cut).is_err() || whole, "{end}");
            }
        }
        assert!(read(&0x184d_2a50_u32.to_le_bytes()).is_err());
    }
}
