//! The importer: lines of logs become blocks of a trace.

use super::capture::{self, End, Packet, Seen};
use super::common::Common;
use super::csv::Table;
use super::json::Json;
use super::lines::{Lines, RawLine};
use super::open::{Detected, LogFormat, PREFIX_BYTES, detect, unpacked};
use super::request::{Line, Parsed, Request, file_of};
use super::summary::{Reason, Summary};
use super::tally::{OTHER_FILES, Tally};
use super::w3c::W3c;
use super::zone::Clock;
use super::{ImportError, ImportOptions};
use crate::trace_file::{
    Block, Client, FILES_MAX, FileCount, Head, PATH_BYTES_MAX, PERIOD_NUMBER_MAX, PERIOD_SECONDS_MAX,
    PERIODS_MAX, Span, TraceWriter,
};
use clockwork_wire::nfs3::Class;
use std::cell::{Cell, RefCell};
use std::io::{Read, Write};

/// Reads logs and writes a trace.
pub struct Importer<W> {
    writer: TraceWriter<W>,
    head: Head,
    options: ImportOptions,
    tally: Tally,
    summary: Summary,
    /// Where a path is decoded.
    scratch: Vec<u8>,
}

/// A reader for the lines of one log.
enum Parser {
    Common(Common),
    Json(Json),
    W3c(W3c),
    Table(Table),
}

impl Parser {
    fn new(format: LogFormat, options: &ImportOptions) -> Self {
        let clock = Clock::new(&options.zone);
        let post = if options.post_reads { Class::Read } else { Class::Write };
        match format {
            LogFormat::Json => Self::Json(Json::new(clock, post)),
            LogFormat::W3c => Self::W3c(W3c::new(clock, post)),
            LogFormat::Requests | LogFormat::Counts => {
                Self::Table(Table::new(format, options.start_s.unwrap_or(0), options.period_s, post))
            }
            _ => Self::Common(Common::new(clock, post)),
        }
    }

    fn parse<'a>(&'a mut self, line: &'a [u8]) -> Parsed<'a> {
        match self {
            Self::Common(log) => log.parse(line),
            Self::Json(log) => log.parse(line),
            Self::W3c(log) => log.parse(line),
            Self::Table(table) => table.parse(line),
        }
    }
}

impl<W: Write> Importer<W> {
    /// Begins a trace.
    ///
    /// # Errors
    /// An option that makes no sense, or what cannot be written.
    pub fn new(out: W, options: ImportOptions) -> Result<Self, ImportError> {
        let head = Head {
            name: options.name.clone(),
            about: "Imported from logs: requests for each file in each period".into(),
            period_s: options.period_s,
            origin_s: options.start_s.unwrap_or(0),
        };
        check(&options)?;
        let writer = TraceWriter::new(out, &head)?;
        Ok(Self::with(writer, head, options))
    }

    /// Goes on with a trace: `old` is copied, and what is read now is added. Length and beginning of periods are those of `old`.
    ///
    /// # Errors
    /// As [`Importer::new`], and what is wrong with the old trace.
    pub fn append(old: impl Read, out: W, mut options: ImportOptions) -> Result<Self, ImportError> {
        let mut names = Vec::new();
        let (mut reach, mut clients) = (None, 0);
        let (writer, head) = TraceWriter::append(old, out, |_, block| match block {
            Block::Files { paths, .. } => names.extend(paths),
            Block::Counts(counts) => reach = Some(extended(reach, counts.period)),
            Block::Clients(known) => clients = known.last().map_or(clients, |last| clients.max(last.number)),
            _ => {}
        })?;
        options.period_s = head.period_s;
        options.name.clone_from(&head.name);
        // An origin of 0 is that of a trace without a start: its periods are those of the calendar.
        options.start_s = options.start_s.or((head.origin_s != 0).then_some(head.origin_s));
        check(&options)?;
        if options.start_s.unwrap_or(0) != head.origin_s {
            return Err(ImportError::Option(
                "--start differs from that of the trace that is appended to".into(),
            ));
        }
        let mut importer = Self::with(writer, head, options);
        for name in &names {
            let number = importer.tally.files.number_beyond_limits(name);
            if name == OTHER_FILES {
                importer.tally.others = number;
            }
        }
        if importer.tally.files.len() != names.len() {
            return Err(ImportError::Option("the trace that is appended to names a file twice".into()));
        }
        importer.tally.clients_before = clients;
        importer.tally.sizes.resize(names.len(), 0);
        importer.tally.reach = reach;
        Ok(importer)
    }

    fn with(writer: TraceWriter<W>, head: Head, options: ImportOptions) -> Self {
        let tally = Tally::new(&options);
        Self { writer, head, options, tally, summary: Summary::default(), scratch: Vec::new() }
    }

    /// Reads one log to its end. `input` is its name, for messages.
    ///
    /// # Errors
    /// What cannot be read, understood or written; the trace is then of no use.
    pub fn read(&mut self, input: &str, bytes: impl Read) -> Result<(), ImportError> {
        let failed = |cause| ImportError::reading(input, 0, 0, cause);
        let mut lines = Lines::new(unpacked(bytes).map_err(failed)?, self.options.line_bytes_max);
        let prefix = lines.peek(PREFIX_BYTES).map_err(failed)?;
        let format = match (detect(prefix), self.options.format) {
            (Detected::Empty, _) => {
                self.summary.empty_inputs.push(input.to_owned());
                return Ok(());
            }
            (Detected::Trace, _) => return Err(ImportError::IsTrace { input: input.to_owned() }),
            (_, Some(format)) | (Detected::Log(format), None) => format,
            (Detected::Unknown, None) => {
                let line = prefix.split(|byte| *byte == b'\n').next().unwrap_or_default();
                let begins = line.get(..line.len().min(60)).unwrap_or_default().escape_ascii().to_string();
                let is_utf16 = prefix.starts_with(b"\xff\xfe") || prefix.starts_with(b"\xfe\xff");
                let hint = if is_utf16 {
                    ". It seems to be UTF-16: `iconv -f UTF-16 -t UTF-8` converts it"
                } else {
                    ""
                };
                return Err(ImportError::Unknown { input: input.to_owned(), begins, hint });
            }
        };
        let is_pcapng = prefix.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]);
        self.summary.inputs.push((input.to_owned(), format.name()));
        if format == LogFormat::Capture {
            return self.read_capture(input, lines.into_rest(), is_pcapng);
        }
        self.read_lines(input, lines, Parser::new(format, &self.options))
    }

    fn read_lines<R: Read>(
        &mut self,
        input: &str,
        mut lines: Lines<R>,
        mut parser: Parser,
    ) -> Result<(), ImportError> {
        let (index, mut number) = (self.summary.inputs.len() - 1, 0);
        loop {
            let at = lines.bytes;
            let line = lines.next().map_err(|cause| ImportError::reading(input, number, at, cause))?;
            let Some(line) = line else { break };
            number += 1;
            let outcome = match line {
                RawLine::TooLong => Err(Reason::TooLong),
                RawLine::Whole(line) => match parser.parse(line) {
                    Ok(Line::Request(request)) => self.count(&request),
                    Ok(Line::Note) => Ok(()),
                    Ok(Line::Left(reason)) | Err(reason) => Err(reason),
                },
            };
            match outcome {
                Ok(()) => self.summary.good_lines += 1,
                Err(reason) => self.summary.left(reason, index, number),
            }
            if self.tally.counts.is_full() {
                self.write_counts()?;
            }
        }
        self.summary.bytes += lines.bytes;
        Ok(())
    }

    /// Reads a packet capture; its packets are what lines are in logs.
    fn read_capture(&mut self, input: &str, bytes: impl Read, is_pcapng: bool) -> Result<(), ImportError> {
        let (index, number) = (self.summary.inputs.len() - 1, Cell::new(0));
        // Both closures count; the calls of a packet are shown before what the packet came to.
        let (shared, fault) = (RefCell::new(&mut *self), Cell::new(None));
        let failure = RefCell::new(None);
        let end = capture::read(
            bytes,
            is_pcapng,
            |seen| {
                let mut importer = shared.borrow_mut();
                match seen {
                    Seen::Call(call) => fault.set(fault.get().or(importer.count(call).err())),
                    other => {
                        let written = importer.writer.files();
                        importer.tally.learn(other, written);
                    }
                }
            },
            |packet| {
                let mut importer = shared.borrow_mut();
                number.set(number.get() + 1);
                match (packet, fault.take()) {
                    (Packet::Bad, _) => importer.summary.left(Reason::Packet, index, number.get()),
                    (_, Some(reason)) => importer.summary.left(reason, index, number.get()),
                    (Packet::Other, None) => importer.summary.left(Reason::OtherRecord, index, number.get()),
                    (Packet::Calls(_), None) => importer.summary.good_lines += 1,
                }
                if importer.tally.counts.is_full() {
                    failure.replace(importer.write_counts().err());
                }
                failure.borrow().is_none()
            },
        );
        if let Some(failure) = failure.take() {
            return Err(failure);
        }
        let number = number.get();
        match end.map_err(|cause| ImportError::reading(input, number, 0, cause))? {
            End::Whole => {}
            End::Cut => self.summary.left(Reason::CutPacket, index, number + 1),
        }
        Ok(())
    }

    /// Counts a request, or says why not.
    fn count(&mut self, request: &Request<'_>) -> Result<(), Reason> {
        let period = self.head.period_of(request.unix_s);
        if self.options.start_s.is_some() && period < 0
            || self.options.periods.is_some_and(|periods| period >= periods.cast_signed())
        {
            return Err(Reason::Outside);
        }
        let reach = extended(self.tally.reach, period);
        if period.abs() > PERIOD_NUMBER_MAX || (reach.1 - reach.0).unsigned_abs() >= self.options.periods_max
        {
            return Err(Reason::FarTime);
        }
        let file =
            if request.is_url { file_of(request.target, &mut self.scratch) } else { Some(request.target) };
        let file = file.filter(|file| file.len() <= PATH_BYTES_MAX).ok_or(Reason::Path)?;
        self.tally.reach = Some(reach);
        if self.tally.counts.last_period().is_some_and(|last| period < last) {
            self.summary.late_lines += 1;
        }
        if request.is_url && request.status >= 400 && !self.options.all_statuses {
            self.tally.counts.saw(period, 0);
            return Err(Reason::Refused);
        }
        if request.count == 0 {
            self.tally.counts.saw(period, 0);
            return Ok(());
        }
        let (number, overflows) = match request.handle {
            [] => self.tally.file(file),
            handle => self.tally.file_of_handle(handle, file),
        };
        if overflows {
            self.summary.overflow_requests += request.count;
        }
        self.tally.size(number, request.size);
        self.tally.client(request);
        let count = FileCount {
            file: number,
            requests: request.count,
            writes: request.writes,
            metadata: request.metadata,
            bytes_read: request.sent,
            bytes_written: request.taken,
        };
        self.tally.counts.add(period, count);
        self.summary.writes = self.summary.writes.saturating_add(request.writes);
        self.summary.metadata = self.summary.metadata.saturating_add(request.metadata);
        self.summary.requests = self.summary.requests.saturating_add(request.count);
        Ok(())
    }

    fn write_counts(&mut self) -> Result<(), ImportError> {
        self.tally.name_handles(self.writer.files());
        let files = &self.tally.files;
        self.writer.name_files((self.writer.files()..files.len()).map(|number| files.get(number)))?;
        for (period, counts) in self.tally.counts.take() {
            self.writer.counts(period, &counts)?;
        }
        Ok(())
    }

    /// Writes what is left, and the end. Gives the output back, and what the import came to.
    ///
    /// # Errors
    /// What cannot be written.
    pub fn finish(mut self) -> Result<(W, Summary), ImportError> {
        self.write_counts()?;
        let with_size =
            |(file, bytes): (usize, &u64)| (*bytes > 0).then(|| (u32::try_from(file).ok(), *bytes));
        let sizes = self.tally.sizes.iter().enumerate().filter_map(with_size);
        let sizes: Vec<(u32, u64)> = sizes.filter_map(|(file, bytes)| Some((file?, bytes))).collect();
        self.writer.sizes(&sizes)?;
        self.write_clients()?;
        self.summarise();
        if let Some((first, periods)) = self.summary.span {
            // A period whose lines were all left out has no counts, but it is known: it had no requests.
            let empty = |(period, sum): (&i64, &u64)| (*sum == 0).then_some(*period);
            let empty: Vec<i64> = self.tally.counts.totals().iter().filter_map(empty).collect();
            for period in empty {
                self.writer.counts(period, &[])?;
            }
            self.writer.span(Span { first, periods, silent_is_zero: self.options.silent_is_zero })?;
        }
        Ok((self.writer.finish()?, self.summary))
    }

    fn write_clients(&mut self) -> Result<(), ImportError> {
        let tally = &self.tally;
        let one = |(number, requests): (usize, &u64)| {
            let keep = self.options.keep_addresses && number > 0;
            let address = if keep { tally.clients.get(number - 1).to_vec() } else { Vec::new() };
            let before = if number == 0 { 0 } else { tally.clients_before };
            let number = u32::try_from(number).ok()?.checked_add(before)?;
            Some(Client { number, requests: *requests, address })
        };
        let clients = tally.client_requests.iter().enumerate().filter(|(_, requests)| **requests > 0);
        let clients: Vec<Client> = clients.filter_map(one).collect();
        Ok(self.writer.clients(&clients)?)
    }

    fn summarise(&mut self) {
        let summary = &mut self.summary;
        summary.files = self.tally.files.len() as u64;
        summary.clients = self.tally.clients.len() as u64;
        summary.overflow_client_requests = self.tally.client_requests.first().copied().unwrap_or(0);
        let totals = self.tally.counts.totals();
        summary.span = match self.options.periods {
            Some(periods) => Some((0, periods)),
            None => totals.first_key_value().zip(totals.last_key_value()).map(|((first, _), (last, _))| {
                let first = if self.options.start_s.is_some() { 0 } else { *first };
                (first, (last + 1 - first).unsigned_abs())
            }),
        };
        let Some((first, periods)) = summary.span else { return };
        let end = first + periods.cast_signed();
        summary.span_s = Some((self.head.period_start_s(first), self.head.period_start_s(end)));
        let known = |period: i64| totals.get(&period).copied();
        let silent = self.options.silent_is_zero.then_some(0);
        summary.totals = (first..end).map(|period| known(period).or(silent)).collect();
        summary.silent_periods = (first..end).filter(|period| known(*period).is_none()).count() as u64;
    }
}

fn extended(reach: Option<(i64, i64)>, period: i64) -> (i64, i64) {
    reach.map_or((period, period), |(first, last)| (first.min(period), last.max(period)))
}

fn check(options: &ImportOptions) -> Result<(), ImportError> {
    let wrong = |what: String| Err(ImportError::Option(what));
    if !(1..=PERIOD_SECONDS_MAX).contains(&options.period_s) {
        return wrong(format!(
            "a period lasts from 1 s to {PERIOD_SECONDS_MAX} s, not {} s",
            options.period_s
        ));
    }
    if options.periods_max == 0 || options.periods_max > PERIODS_MAX {
        return wrong(format!("periods_max is from 1 to {PERIODS_MAX}, not {}", options.periods_max));
    }
    if options.periods.is_some_and(|periods| periods == 0 || periods > options.periods_max) {
        return wrong(format!("the number of periods is from 1 to {}", options.periods_max));
    }
    if options.periods.is_some() && options.start_s.is_none() {
        return wrong("a number of periods needs a start from which they are counted".into());
    }
    if options.files_max == 0 || options.files_max >= FILES_MAX {
        return wrong(format!("files_max is from 1 to {}", FILES_MAX - 1));
    }
    let name_is_fine = !options.name.is_empty()
        && options.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if !name_is_fine {
        return wrong(format!("the name {:?} is not of lower-case letters, digits and '-'", options.name));
    }
    Ok(())
}
