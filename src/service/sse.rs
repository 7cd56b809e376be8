//! Server-sent events out of bytes, cut anywhere. It knows lines and fields,
//! never what an event means, and never sends anything again: the `retry` and
//! `id` fields of the standard are read over.
//!
//! Cost per event: one search for a line's end a line and no copy, as long as
//! the event lies in one read; an event that is cut is copied once. No
//! allocation in either case, once the buffers have grown.

use memchr::memchr2;

/// Largest event (its data lines together) and largest line, in bytes. A token
/// needs some hundred; log-probabilities or a repeated prompt some hundred
/// thousand.
pub const EVENT_BYTES_MAX: usize = 8 << 20;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// One event, as it was dispatched by its blank line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// The `event` field, empty when there was none.
    pub name: &'a [u8],
    /// The `data` lines, joined by line feeds.
    pub data: &'a [u8],
}

/// Why a stream cannot be decoded further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    /// A line or an event over [`EVENT_BYTES_MAX`].
    #[error("an event of more than {limit} bytes")]
    EventTooLarge {
        /// The limit that was hit, in bytes.
        limit: usize,
    },
}

/// An incremental decoder of one stream (WHATWG HTML, "event stream
/// interpretation").
#[derive(Debug)]
pub struct SseDecoder {
    /// The unfinished line of earlier reads.
    line: Vec<u8>,
    /// Data lines of the unfinished event, where they could not be borrowed.
    data: Vec<u8>,
    /// Whether the unfinished event has a data line in `data`.
    has_data: bool,
    /// Its `event` field.
    name: Vec<u8>,
    /// The last byte fed was a CR, so an LF that follows belongs to it.
    after_cr: bool,
    /// No line has been read yet; the first may begin with a byte order mark.
    at_start: bool,
    limit: usize,
}

impl Default for SseDecoder {
    fn default() -> Self {
        Self::with_limit(EVENT_BYTES_MAX)
    }
}

/// What a line says, as far as it matters here.
enum Field<'a> {
    Blank,
    Data(&'a [u8]),
    Name(&'a [u8]),
    Ignored,
}

impl SseDecoder {
    /// A decoder that refuses events and lines of more than `limit` bytes.
    pub fn with_limit(limit: usize) -> Self {
        Self {
            line: Vec::new(),
            data: Vec::new(),
            has_data: false,
            name: Vec::new(),
            after_cr: false,
            at_start: true,
            limit,
        }
    }

    /// Decodes the bytes of one read and hands each event that they complete
    /// to `on_event`.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        mut on_event: impl FnMut(SseEvent<'_>),
    ) -> Result<(), SseError> {
        let mut rest = self.skip_second_half_of_crlf(bytes);
        // The only data line of the event so far, while it lies in this read.
        let mut borrowed: Option<&[u8]> = None;
        while let Some(end) = line_end(rest) {
            let (line, next) = (&rest[..end], self.after_terminator(rest, end));
            rest = &rest[next..];
            if self.line.is_empty() {
                self.within_limit(line.len())?;
                match self.field(line) {
                    Field::Blank => self.dispatch(borrowed.take(), &mut on_event),
                    Field::Data(value) if !self.has_data && borrowed.is_none() => {
                        borrowed = Some(value);
                    }
                    Field::Data(value) => {
                        self.keep_borrowed(borrowed.take())?;
                        self.push_data(value)?;
                    }
                    Field::Name(value) => self.set_name(value),
                    Field::Ignored => {}
                }
            } else {
                self.extend_line(line)?;
                self.finish_kept_line(&mut on_event)?;
            }
        }
        self.keep_borrowed(borrowed)?;
        self.extend_line(rest)
    }

    fn skip_second_half_of_crlf<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        if bytes.is_empty() {
            return bytes;
        }
        match (std::mem::take(&mut self.after_cr), bytes) {
            (true, [b'\n', rest @ ..]) => rest,
            _ => bytes,
        }
    }

    /// Index behind the line end at `end`: LF, CR LF or CR. A CR that ends the
    /// read ends its line at once; an LF in the next read is skipped.
    fn after_terminator(&mut self, rest: &[u8], end: usize) -> usize {
        if rest[end] == b'\n' {
            return end + 1;
        }
        match rest.get(end + 1) {
            Some(b'\n') => end + 2,
            Some(_) => end + 1,
            None => {
                self.after_cr = true;
                end + 1
            }
        }
    }

    fn field<'a>(&mut self, line: &'a [u8]) -> Field<'a> {
        let line = if self.at_start {
            self.at_start = false;
            line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line)
        } else {
            line
        };
        let value = |rest: &'a [u8]| match rest {
            [] => Some(rest),
            [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
            _ => None,
        };
        if line.is_empty() {
            return Field::Blank;
        }
        if let Some(data) = line.strip_prefix(b"data").and_then(value) {
            return Field::Data(data);
        }
        if let Some(name) = line.strip_prefix(b"event").and_then(value) {
            return Field::Name(name);
        }
        Field::Ignored
    }

    /// Takes the line in `self.line`, which began in an earlier read.
    fn finish_kept_line(
        &mut self,
        on_event: &mut impl FnMut(SseEvent<'_>),
    ) -> Result<(), SseError> {
        let mut line = std::mem::take(&mut self.line);
        match self.field(&line) {
            // The line was a byte order mark and nothing else.
            Field::Blank => self.dispatch(None, on_event),
            Field::Data(value) => self.push_data(value)?,
            Field::Name(value) => self.set_name(value),
            Field::Ignored => {}
        }
        line.clear();
        self.line = line;
        Ok(())
    }

    fn dispatch(&mut self, borrowed: Option<&[u8]>, on_event: &mut impl FnMut(SseEvent<'_>)) {
        let data = match borrowed {
            Some(data) => Some(data),
            None => self.has_data.then_some(self.data.as_slice()),
        };
        if let Some(data) = data {
            let name = &self.name;
            on_event(SseEvent { name, data });
        }
        self.has_data = false;
        self.data.clear();
        self.name.clear();
    }

    fn set_name(&mut self, name: &[u8]) {
        self.name.clear();
        self.name.extend_from_slice(name);
    }

    fn keep_borrowed(&mut self, borrowed: Option<&[u8]>) -> Result<(), SseError> {
        borrowed.map_or(Ok(()), |data| self.push_data(data))
    }

    fn push_data(&mut self, value: &[u8]) -> Result<(), SseError> {
        self.within_limit(self.data.len() + usize::from(self.has_data) + value.len())?;
        if self.has_data {
            self.data.push(b'\n');
        }
        self.has_data = true;
        self.data.extend_from_slice(value);
        Ok(())
    }

    fn extend_line(&mut self, part: &[u8]) -> Result<(), SseError> {
        self.within_limit(self.line.len() + part.len())?;
        self.line.extend_from_slice(part);
        Ok(())
    }

    fn within_limit(&self, bytes: usize) -> Result<(), SseError> {
        if bytes > self.limit {
            return Err(SseError::EventTooLarge { limit: self.limit });
        }
        Ok(())
    }
}

/// Where the first line of `rest` ends. Every other line is blank and needs no
/// search.
fn line_end(rest: &[u8]) -> Option<usize> {
    match rest {
        [b'\n', ..] => Some(0),
        _ => memchr2(b'\n', b'\r', rest),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Owned = (String, String);

    fn decode(reads: &[&[u8]]) -> Vec<Owned> {
        let mut decoder = SseDecoder::default();
        let mut events = Vec::new();
        for read in reads {
            decoder
                .feed(read, |event| {
                    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                    events.push((text(event.name), text(event.data)));
                })
                .unwrap();
        }
        events
    }

    /// The standard's own steps, one character at a time over the whole text.
    fn reference(stream: &[u8]) -> Vec<Owned> {
        let text = String::from_utf8(stream.to_vec()).unwrap();
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let mut lines: Vec<&str> = text.split('\n').collect();
        lines.pop();
        let (mut name, mut data, mut events) = (String::new(), String::new(), Vec::new());
        for line in lines {
            if line.is_empty() {
                if let Some(data) = data.strip_suffix('\n') {
                    events.push((name.clone(), data.to_owned()));
                }
                name.clear();
                data.clear();
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "data" => data = data + value + "\n",
                "event" => value.clone_into(&mut name),
                _ => {}
            }
        }
        events
    }

    fn check(stream: &str, expected: &[&str]) {
        let expected: Vec<Owned> = expected
            .iter()
            .map(|data| (String::new(), (*data).to_owned()))
            .collect();
        let bytes = stream.as_bytes();
        assert_eq!(decode(&[bytes]), expected, "{stream:?} in one read");
        for cut in 0..=bytes.len() {
            let reads = [&bytes[..cut], &bytes[cut..]];
            assert_eq!(decode(&reads), expected, "{stream:?} cut at {cut}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(decode(&single), expected, "{stream:?} byte by byte");
    }

    #[test]
    fn events_are_the_same_for_every_cut() {
        check("data: a\n\ndata: b\n\n", &["a", "b"]);
        check(
            "data:a\r\n\r\ndata: b\r\n\r\ndata:[DONE]\r\n\r\n",
            &["a", "b", "[DONE]"],
        );
        check(
            "data:a\r\rdata: b\r\rdata:[DONE]\r\r",
            &["a", "b", "[DONE]"],
        );
        check("data: a\ndata:  b\ndata\n\n", &["a\n b\n"]);
        check("\u{feff}data: é€😀\n\n", &["é€😀"]);
        check("\u{feff}\ndata: x\n\n", &["x"]);
        check(
            ": ping\n\n:\n\nid: 1\n\nretry: 10\ndata: a\n\n: keep\n\n",
            &["a"],
        );
        check("data\n\ndata:\n\n", &["", ""]);
        check("database: a\n\n data: b\n\n", &[]);
    }

    #[test]
    fn an_event_without_its_blank_line_is_no_event() {
        check("data: a\n\ndata: {\"choices\":[{\"ind", &["a"]);
        check("data: a\n\ndata: b\n", &["a"]);
    }

    #[test]
    fn a_name_belongs_to_one_event() {
        let stream = b"event: error\ndata: {}\n\ndata: x\n\nevent: lost\n\ndata: y\n\n";
        for cut in 0..stream.len() {
            let named: Vec<Owned> = decode(&[&stream[..cut], &stream[cut..]]);
            let pairs: Vec<(&str, &str)> = named.iter().map(|(n, d)| (&**n, &**d)).collect();
            assert_eq!(pairs, [("error", "{}"), ("", "x"), ("", "y")]);
        }
    }

    #[test]
    fn an_event_in_one_read_is_not_copied() {
        let stream = b"data: abc\n\n".to_vec();
        let mut decoder = SseDecoder::default();
        let mut at = 0;
        decoder
            .feed(&stream, |event| at = event.data.as_ptr().addr())
            .unwrap();
        assert_eq!(at, stream[6..].as_ptr().addr());
    }

    #[test]
    fn events_and_lines_are_bounded_however_they_are_cut() {
        let too_large = Err(SseError::EventTooLarge { limit: 10 });
        for stream in [
            "data:123456789\n\n",
            "data:12345\ndata:67890\n\n",
            ":12345678901",
        ] {
            for cut in 0..stream.len() {
                let mut decoder = SseDecoder::with_limit(10);
                let (one, two) = stream.as_bytes().split_at(cut);
                let result = decoder
                    .feed(one, |_| {})
                    .and_then(|()| decoder.feed(two, |_| {}));
                assert_eq!(result, too_large, "{stream:?} cut at {cut}");
            }
        }
    }

    fn streams() -> impl Strategy<Value = String> {
        let line = prop_oneof![
            Just("data: x".to_owned()),
            Just("data:é😀".to_owned()),
            Just("data".to_owned()),
            Just("event: e".to_owned()),
            Just(": c".to_owned()),
            Just("id: 7".to_owned()),
            Just(String::new()),
            Just(String::new()),
            "[a-d:é \u{feff}]{0,6}",
        ];
        let end = prop_oneof![Just("\n"), Just("\r\n"), Just("\r")];
        proptest::collection::vec((line, end), 0..12).prop_map(|lines| {
            let lines = lines.iter().map(|(line, end)| format!("{line}{end}"));
            lines.collect()
        })
    }

    proptest! {
        #[test]
        fn any_cuts_agree_with_the_standard(stream in streams(), cuts in proptest::collection::vec(0.0..1.0_f64, 0..6)) {
            let bytes = stream.as_bytes();
            let expected = reference(bytes);
            for cut in 0..=bytes.len() {
                prop_assert_eq!(&decode(&[&bytes[..cut], &bytes[cut..]]), &expected);
            }
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index inside the stream")]
            let mut cuts: Vec<usize> = cuts.iter().map(|at| (at * bytes.len() as f64) as usize).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let reads: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(&decode(&reads), &expected);
        }
    }
}
