//! Rows of `trace`: the codec, the sinks, and folding streams that are damaged.

use crate::support::Rows;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use tilewright::base::{BlockHash, BlockId, Limits, Policies, RequestId, SequenceId, Victim};
use tilewright::trace::{
    Asked, BlockList, DelayReason, Event, EvictReason, FeedReader, FileSink, FinishReason,
    HashList, Header, LimitsReason, Picture, PreemptMethod, PreemptReason, Reader, Refusal,
    RingSink, Sink, Stamped, Told, TraceError, Written, fold, read_lines, sentence, write_header,
    write_line,
};

pub fn rows(rows: &mut Rows) {
    rows.add("trace::lines_round_trip", lines_round_trip);
    rows.add("trace::line_format_is_fixed", line_format_is_fixed);
    rows.add("trace::unknown_kinds_are_skipped", unknown_kinds_are_skipped);
    rows.add("trace::bad_files_are_refused", bad_files_are_refused);
    rows.add("trace::ring_keeps_the_newest", ring_keeps_the_newest);
    rows.add("trace::file_sink_writes_all", file_sink_writes_all);
    rows.add("trace::file_sink_counts_what_it_drops", file_sink_counts_what_it_drops);
    rows.add("trace::file_sink_reports_a_full_disk", file_sink_reports_a_full_disk);
    rows.add("trace::fold_survives_losses_and_lies", fold_survives_losses_and_lies);
    rows.add("trace::events_are_small", || assert!(size_of::<Event>() <= 64));
    rows.add("trace::decisions_say_why", decisions_say_why);
    rows.add("trace::feeds_are_read", feeds_are_read);
    rows.add("trace::picture_shows_fill_and_owner", picture_shows_fill_and_owner);
}

fn hashes(hashes: &[u64]) -> HashList {
    let mut list = HashList::default();
    assert!(hashes.iter().all(|hash| list.push(BlockHash(*hash))));
    list
}

fn list(ids: &[u32]) -> BlockList {
    let mut list = BlockList::default();
    assert!(ids.iter().all(|&id| list.push(BlockId(id))));
    list
}

fn arrival(prompt: u32, max_new_tokens: u32) -> Event {
    Event::RequestArrived {
        request: RequestId(4),
        sequence: SequenceId(3),
        prompt,
        max_new_tokens,
        tenant: 2,
        class: 1,
        predicted: 3,
        waiting: 1,
    }
}

/// One of every kind.
/// What a request may ask for, all of it.
fn asked() -> Asked {
    Asked {
        choices: 2,
        seed: u64::MAX,
        temperature: 0.1,
        top_k: 40,
        top_p: 0.95,
        min_p: 0.05,
        repetition_penalty: 1.1,
        presence_penalty: -0.3,
        frequency_penalty: 1e-7,
        logit_bias: vec![(3, -100.0)],
        logprobs: Some(5),
        min_tokens: 1,
        max_tokens: 9,
        stop: vec!["\n\"".to_string()],
        stop_ids: vec![2],
        guided: true,
        shown: vec![5],
        tenant: 7,
        class: 3,
        cache_salt: Some("s".to_string()),
        prompt_logprobs: Some(0),
        pooled: Some("mean".to_string()),
    }
}

/// Of requests before they arrive.
fn requests(request: RequestId, sequence: SequenceId) -> Vec<Event> {
    let refusals = [
        Refusal::Full { waiting: 1, max: 1 },
        Refusal::TooLong { needed: u64::MAX, context: 2 },
        Refusal::NeverFits { blocks_needed: 9, blocks_total: 8 },
        Refusal::Empty,
        Refusal::Repeated { sequence },
    ];
    let mut events = vec![
        Event::TenantWeighted { tenant: 7, weight: 3 },
        Event::RequestAsked { request, sequence, asked: Box::new(asked()) },
        Event::PromptGiven { request, tokens: vec![1, 2, u32::MAX] },
    ];
    let refused = |refusal| Event::RequestRefused { request, sequence, refusal };
    events.extend(refusals.map(refused));
    events
}

fn all_events() -> Vec<Event> {
    let (sequence, request) = (SequenceId(3), RequestId(4));
    let mut events = requests(request, sequence);
    let reasons =
        [FinishReason::Stop, FinishReason::Length, FinishReason::Cancelled, FinishReason::Failed];
    events.extend(reasons.into_iter().map(|reason| Event::SequenceFinished {
        sequence,
        request,
        reason,
        prompt: 5,
        generated: 6,
    }));
    events.extend([
        Event::LimitsChanged { limits: Limits::default(), reason: LimitsReason::Start },
        Event::PoliciesChanged { policies: Policies::default(), reason: LimitsReason::Asked },
        arrival(5, 6),
        Event::AdmissionDelayed { sequence, reason: DelayReason::Peak, needed: 9, available: 8 },
        Event::RowPadded { sequence: None, slot: 3, start: 4, len: 1 },
        Event::RowPadded { sequence: Some(sequence), slot: 3, start: 4, len: 1 },
        Event::SequenceAdmitted {
            sequence,
            slot: 0,
            blocks: 2,
            free: 9,
            kept: 1,
            peak: 3,
            passed: 0,
            waited_micros: u64::MAX,
        },
        Event::BlocksTaken { sequence, from: 1, blocks: list(&[1, 2, 3, 4, 5, 6, 7, 8]), free: 1 },
        Event::BlocksReturned { sequence, from: 0, count: 9, free: 10 },
        Event::StepPlanned {
            step: 1,
            rows: 1,
            decode: 1,
            tokens: 1,
            padding: 0,
            budget: 16,
            waiting: 0,
            free: 3,
            unused: 15,
        },
        Event::RowPlanned { sequence, slot: 0, start: 4, len: 1, samples: true },
        Event::RowDrafted { sequence, start: 5, len: 4 },
        Event::RowDelayed { sequence, free: 0 },
        Event::StepAhead { step: 1, began_micros: 1, plan_micros: 2, build_micros: 3 },
        Event::StepRan { step: 1, plan_micros: 2, build_micros: 3, device_micros: 4 },
        Event::RowDiscarded { sequence, start: 5, len: 1, reason: FinishReason::Stop },
        Event::DraftsTried { sequence, drafted: 4, right: 2 },
        Event::TokenSampled { sequence, position: 5, token: 6 },
    ]);
    events.extend(reuse_events(sequence));
    events.push(Event::RowCut { sequence, wanted: 40, given: 12, budget: 16 });
    events.push(choice(48_000, 3));
    events.push(preempted(sequence));
    events.push(Event::SequenceSwappedIn { sequence, expired: 0, blocks: 3, tokens: 40 });
    events.push(Event::BlocksSwapped { step: 1, out: 0, back: 3, bytes: 3072, micros: 50 });
    let kernel = "mul_q4_1".into();
    events.push(Event::KernelTimed { step: 1, kernel, launches: 30, nanos: 5 });
    events.push(Event::EventsDropped { count: 5 });
    events
}

fn preempted(victim: SequenceId) -> Event {
    Event::SequencePreempted {
        victim,
        gainer: SequenceId(1),
        reason: PreemptReason::OutOfBlocks,
        policy: Victim::LeastLost,
        juniors: 3,
        method: PreemptMethod::Recompute,
        recompute_micros: 8_000,
        swap_micros: 9_000,
        host_free: 6,
        lost: 5,
        blocks: 1,
        times: 2,
    }
}

fn choice(predicted_micros: u64, decode: u32) -> Event {
    Event::BudgetChosen {
        budget: 40,
        decode,
        target_micros: 50_000,
        predicted_micros,
        fixed_micros: 2_000,
        token_nanos: 900,
        pair_picos: 15,
        slack_permille: 40,
    }
}

fn reuse_events(sequence: SequenceId) -> [Event; 7] {
    let (from, to) = (BlockId(7), BlockId(8));
    [
        Event::PrefixMatched { sequence, blocks: list(&[7]), tokens: 16 },
        Event::PromptShared { sequence, sibling: SequenceId(2), blocks: list(&[7]), tokens: 20 },
        Event::BlockCopied { sequence, from, to, tokens: 4 },
        Event::BlocksCached { sequence, from: 0, count: 3 },
        Event::BlocksHashed { sequence, from: 0, hashes: hashes(&[0, 1, u64::MAX, 1 << 63]) },
        Event::BlockMerged { sequence, index: 0, from, to },
        Event::BlockEvicted { block: BlockId(7), reason: EvictReason::Failed, idle_micros: 9 },
    ]
}

fn stamp(events: Vec<Event>) -> Vec<Stamped> {
    let mut next = 0;
    let stamped = events.into_iter().map(|event| {
        let seq = next;
        next += if let Event::EventsDropped { count } = event { count } else { 1 };
        Stamped { seq, step: seq / 3, micros: seq * 10, event }
    });
    stamped.collect()
}

fn encode(events: &[Stamped]) -> Vec<u8> {
    let mut out = Vec::new();
    write_header(&mut out, &Header::default()).expect("memory");
    events.iter().for_each(|e| write_line(&mut out, e).expect("memory"));
    out
}

fn decode(bytes: &[u8]) -> Vec<Stamped> {
    let events: Result<Vec<_>, _> = Reader::new(bytes).expect("header").collect();
    events.expect("sound")
}

fn lines_round_trip() {
    let events = stamp(all_events());
    assert_eq!(decode(&encode(&events)), events);
}

/// Files of today must be read tomorrow: the text itself is pinned.
fn line_format_is_fixed() {
    let blocks = list(&[5, 9]);
    let event = Event::BlocksTaken { sequence: SequenceId(3), from: 0, blocks, free: 7 };
    let stamped = Stamped { seq: 1, step: 2, micros: 3, event };
    let mut line = Vec::new();
    write_line(&mut line, &stamped).expect("memory");
    assert_eq!(
        String::from_utf8(line).expect("text"),
        "{\"seq\":1,\"step\":2,\"micros\":3,\"event\":{\"kind\":\"BlocksTaken\",\"sequence\":3,\
         \"from\":0,\"blocks\":[5,9],\"free\":7}}\n"
    );
    let hashed = Event::BlocksHashed { sequence: SequenceId(3), from: 1, hashes: hashes(&[10]) };
    let text = serde_json::to_string(&hashed).expect("an event is JSON");
    let expected = r#"{"kind":"BlocksHashed","sequence":3,"from":1,"hashes":["000000000000000a"]}"#;
    assert_eq!(text, expected);
    let many = text.replace("[\"", r#"["1","2","3","4",""#);
    assert!(serde_json::from_str::<Event>(&many).is_err(), "five are too many: {many}");
}

fn unknown_kinds_are_skipped() {
    let text = concat!(
        "{\"trace\":\"tilewright\",\"version\":1,\"later\":true}\n",
        "{\"seq\":0,\"step\":0,\"micros\":0,\"event\":{\"kind\":\"MoonRose\",\"at\":[1,{}]}}\n",
        "\n",
        "{\"seq\":1,\"step\":0,\"micros\":0,\"event\":{\"kind\":\"EventsDropped\",\"count\":2,\
         \"later\":\"field\"}}",
    );
    let mut reader = Reader::new(text.as_bytes()).expect("header");
    let event = reader.next().expect("one").expect("sound");
    assert_eq!((event.seq, event.event), (1, Event::EventsDropped { count: 2 }));
    assert!(reader.next().is_none());
    assert_eq!((reader.skipped(), reader.header().writer.as_str()), (1, ""));
    // The same as a part of a stream, without the header.
    let (_, rest) = text.split_once('\n').expect("lines");
    let events: Vec<_> = read_lines(rest.as_bytes()).map(|e| e.expect("sound").seq).collect();
    assert_eq!(events, [1]);
    let damaged = read_lines(b"\n{\"seq\":").next();
    assert!(matches!(damaged, Some(Err(TraceError::Line { line: 2, .. }))), "{damaged:?}");
}

fn bad_files_are_refused() {
    let error = |text: &[u8]| Reader::new(text).err().expect("bad header");
    assert!(matches!(error(b""), TraceError::Header(_)));
    assert!(matches!(error(b"{\"trace\":\"other\",\"version\":1}\n"), TraceError::Header(_)));
    let later = error(b"{\"trace\":\"tilewright\",\"version\":2}\n");
    assert!(matches!(later, TraceError::Version { found: 2, known: 1 }), "{later}");
    assert!(matches!(error(&vec![b'x'; 2 << 20]), TraceError::Line { line: 1, .. }));
    let good = encode(&stamp(all_events()));
    // Cut anywhere: never a panic, at most one damaged line, and it is named.
    for cut in (0..good.len()).step_by(37) {
        let Ok(reader) = Reader::new(&good[..cut]) else { continue };
        let faults: Vec<_> = reader.filter_map(Result::err).map(|e| e.to_string()).collect();
        assert!(faults.len() <= 1, "{faults:?}");
        assert!(faults.iter().all(|f| f.starts_with("line ")), "{faults:?}");
    }
    // Lines that are missing, twice there or out of order.
    let events = stamp(vec![Event::EventsDropped { count: 1 }; 6]);
    for order in [&[0, 1, 3][..], &[0, 1, 1], &[0, 2, 1], &[3, 4, 0]] {
        let some: Vec<_> = order.iter().map(|&n| events[n].clone()).collect();
        let read = Reader::new(&encode(&some)[..]).expect("header").find_map(Result::err);
        let read = read.expect("a gap").to_string();
        assert!(read.contains("is due: lines are missing"), "{read}");
    }
    let nine = "{\"seq\":0,\"step\":0,\"micros\":0,\"event\":{\"kind\":\"BlocksTaken\",\
                \"sequence\":0,\"from\":0,\"blocks\":[0,1,2,3,4,5,6,7,8],\"free\":0}}\n";
    let text = [&encode(&[])[..], nine.as_bytes()].concat();
    let result = Reader::new(&text[..]).expect("header").next().expect("a line");
    assert!(matches!(result, Err(TraceError::Line { line: 2, .. })), "{result:?}");
}

fn ring_keeps_the_newest() {
    let events = stamp(vec![Event::EventsDropped { count: 1 }; 10]);
    let ring = Arc::new(Mutex::new(RingSink::new(4)));
    let mut sink = ring.clone();
    events.iter().for_each(|e| sink.push(e));
    let ring = ring.lock().expect("unpoisoned");
    assert_eq!(ring.events().map(|e| e.seq).collect::<Vec<_>>(), [6, 7, 8, 9]);
    assert_eq!(ring.dropped(), 6);
    let mut out = Vec::new();
    ring.since(8, &mut out);
    assert_eq!(out.iter().map(|e| e.seq).collect::<Vec<_>>(), [8, 9]);
    out.clear();
    ring.since(2, &mut out);
    assert_eq!(out[0].event, Event::EventsDropped { count: 4 });
    assert_eq!(out.len(), 5);
    out.clear();
    ring.since(10, &mut out);
    assert!(out.is_empty());
}

fn file_sink_writes_all() {
    let dir = tempfile::tempdir().expect("folder");
    let path = dir.path().join("run.jsonl");
    let events = stamp(all_events());
    let create = |path: &Path| FileSink::create(path, 1000, &Header::default(), |_| {});
    let mut sink = create(&path).expect("file");
    let second = create(&path).err().expect("two writers");
    assert_eq!(second.to_string(), "another program is writing this file");
    events.iter().for_each(|e| sink.push(e));
    let written = sink.finish().expect("written");
    assert_eq!(written, Written { events: events.len() as u64, dropped: 0 });
    assert_eq!(decode(&std::fs::read(&path).expect("file")), events);
    assert!(create(dir.path()).is_err());
    // A trace gives way to a new one; what is something else stays.
    create(&path).expect("free again").finish().expect("written");
    assert_eq!(decode(&std::fs::read(&path).expect("file")), []);
    let other = dir.path().join("model.gguf");
    std::fs::write(&other, "GGUF weights").expect("a writable folder");
    let refused = create(&other).err().expect("no trace");
    assert!(refused.to_string().contains("is no trace"), "{refused}");
    assert_eq!(std::fs::read(&other).expect("file"), b"GGUF weights");
}

/// A disk that waits for leave.
#[derive(Clone, Default)]
struct Gate(Arc<GateState>);

#[derive(Default)]
struct GateState {
    open: Mutex<bool>,
    opened: Condvar,
    text: Mutex<Vec<u8>>,
}

impl Gate {
    fn open(&self) {
        *self.0.open.lock().expect("unpoisoned") = true;
        self.0.opened.notify_all();
    }
}

impl Write for Gate {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut open = self.0.open.lock().expect("unpoisoned");
        while !*open {
            open = self.0.opened.wait(open).expect("unpoisoned");
        }
        self.0.text.lock().expect("unpoisoned").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn file_sink_counts_what_it_drops() {
    let gate = Gate::default();
    let header = Header::default();
    let mut sink = FileSink::to_writer(gate.clone(), 8, &header, |_| {}).expect("thread");
    let events =
        stamp(vec![Event::TokenSampled { sequence: SequenceId(0), position: 0, token: 0 }; 5000]);
    events[..4990].iter().for_each(|e| sink.push(e));
    let before = sink.dropped();
    assert!(before > 0, "a shut gate lets a few through, not 4990");
    gate.open();
    // Once there is room again, the file tells of the gap.
    for seq in 4990.. {
        let lost = sink.dropped();
        sink.push(&Stamped { seq, ..events[0].clone() });
        if sink.dropped() == lost {
            break;
        }
        std::thread::yield_now();
    }
    let Written { events: count, dropped } = sink.finish().expect("written");
    let text = gate.0.text.lock().expect("unpoisoned").clone();
    let read = decode(&text);
    assert_eq!(read.len() as u64, count);
    let told: u64 = read
        .iter()
        .map(|e| if let Event::EventsDropped { count } = e.event { count } else { 0 })
        .sum();
    assert!(told > 0 && told <= dropped, "{told} told of {dropped}");
}

fn file_sink_reports_a_full_disk() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("disk full"))
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let (told, heard) = std::sync::mpsc::channel();
    let lost = move |error: &std::io::Error| told.send(error.to_string()).expect("heard");
    let mut sink = FileSink::to_writer(Full, 4, &Header::default(), lost).expect("thread");
    stamp(all_events()).iter().for_each(|e| sink.push(e));
    let error = sink.finish().expect_err("full");
    assert_eq!(error.to_string(), "disk full");
    assert_eq!(heard.recv().expect("told when it came"), "disk full");
}

/// Every event out of context, twice, and with numbers that fit nothing.
fn fold_survives_losses_and_lies() {
    let mut picture = Picture::default();
    let mut events = all_events();
    events.extend(all_events().into_iter().rev());
    let sequence = SequenceId(3);
    events.extend([
        arrival(u32::MAX, u32::MAX),
        Event::SequenceAdmitted {
            sequence,
            slot: u32::MAX,
            blocks: 0,
            free: 0,
            kept: 0,
            peak: 0,
            passed: 0,
            waited_micros: 0,
        },
        Event::RowPlanned { sequence, slot: 1, start: u32::MAX, len: u32::MAX, samples: true },
        Event::TokenSampled { sequence, position: u32::MAX, token: 0 },
        Event::BlocksTaken { sequence, from: 0, blocks: list(&[u32::MAX]), free: 0 },
        Event::BlocksReturned { sequence, from: u32::MAX, count: u32::MAX, free: 0 },
        Event::LimitsChanged {
            limits: Limits { blocks: u32::MAX, block_size: 0, ..Limits::default() },
            reason: LimitsReason::Asked,
        },
    ]);
    for event in stamp(events) {
        fold(&mut picture, &event);
        assert_eq!(picture.filled(sequence, u32::MAX), 0);
    }
    let text = serde_json::to_string(&picture).expect("a picture is JSON");
    let back: Picture = serde_json::from_str(&text).expect("and back");
    assert_eq!(back, picture);
}

fn picture_shows_fill_and_owner() {
    let mut picture = Picture::default();
    let sequence = SequenceId(3);
    let events = [
        Event::LimitsChanged { limits: Limits::default(), reason: LimitsReason::Start },
        arrival(20, 2),
        Event::SequenceAdmitted {
            sequence,
            slot: 2,
            blocks: 2,
            free: 1024,
            kept: 0,
            peak: 0,
            passed: 0,
            waited_micros: 5,
        },
        Event::BlocksTaken { sequence, from: 0, blocks: list(&[6, 4]), free: 1022 },
        Event::RowPlanned { sequence, slot: 2, start: 0, len: 19, samples: false },
    ];
    stamp(events.to_vec()).iter().for_each(|e| fold(&mut picture, e));
    assert_eq!(picture.slots, [None, None, Some(sequence)]);
    assert_eq!((picture.blocks[4].owner, picture.blocks[4].index), (Some(sequence), 1));
    assert_eq!([0, 1, 2].map(|index| picture.filled(sequence, index)), [16, 3, 0]);
    assert_eq!((picture.free_blocks(), picture.running()), (1022, 1));
}

/// The numbers in a text.
fn numbers(text: &str) -> Vec<u64> {
    let digits = |c: char| !c.is_ascii_digit();
    text.split(digits).filter_map(|n| n.parse().ok()).collect()
}

/// Every decision is one sentence that names the numbers it was decided on.
fn decisions_say_why() {
    let sequence = SequenceId(77);
    let said = |event: Event| sentence(&event).unwrap_or_else(|| panic!("{event:?}"));
    let text = said(Event::RowCut { sequence, wanted: 40, given: 12, budget: 16 });
    assert_eq!(numbers(&text), [77, 12, 40, 16], "{text}");
    let text = said(preempted(sequence));
    assert_eq!(numbers(&text), [77, 2, 1, 3, 1, 5, 8, 0, 9, 0, 6], "{text}");
    let padded = |len| {
        let sequence = Some(sequence);
        said(Event::RowPadded { sequence, slot: 0, start: 8, len })
    };
    assert!(padded(1).contains("1 position for") && padded(2).contains("2 positions for"));
    for event in all_events() {
        let fact = matches!(
            event,
            Event::RequestArrived { .. }
                | Event::RequestAsked { .. }
                | Event::PromptGiven { .. }
                | Event::BlocksCached { .. }
                | Event::BlocksHashed { .. }
                | Event::BlocksTaken { .. }
                | Event::BlocksReturned { .. }
                | Event::StepPlanned { .. }
                | Event::RowPlanned { .. }
                | Event::RowDrafted { .. }
                | Event::DraftsTried { .. }
                | Event::StepRan { .. }
                | Event::StepAhead { .. }
                | Event::TokenSampled { .. }
                | Event::BlocksSwapped { .. }
                | Event::KernelTimed { .. }
        );
        let text = sentence(&event);
        assert_eq!(text.is_none(), fact, "{event:?}");
        let text = text.unwrap_or_default();
        assert!(fact || text.len() > 20 && !text.contains("  "), "{text}");
    }
    let choice = |predicted, decode| said(choice(predicted, decode));
    assert!(choice(48_000, 3).contains("48.0 ms are predicted"), "{}", choice(48_000, 3));
    let unmet = |predicted, decode| choice(predicted, decode).contains("cannot be met");
    assert!(!unmet(48_000, 3) && unmet(60_000, 3) && !unmet(60_000, 0));
    assert!(choice(60_000, 0).contains("binds nobody"));
}

/// Frames of a server, with the comments and line ends that proxies and servers put between.
fn feeds_are_read() {
    let picture = Picture { seq: 7, step: 3, ..Picture::default() };
    let event = Stamped { seq: 7, step: 3, micros: 9, event: arrival(5, 6) };
    let later = r#"{"seq":8,"step":3,"micros":9,"event":{"kind":"OfALaterVersion"}}"#;
    let (whole, one) = (serde_json::json!(picture), serde_json::json!(event));
    let text = format!(
        ": ping\n\nevent: snapshot\ndata: {whole}\n\n:\nid: 4\ndata:{one}\n\ndata: {later}\n\n\n"
    );
    let mut reader = FeedReader::default();
    let told = text.lines().filter_map(|line| reader.line(line).expect("a feed"));
    assert_eq!(told.collect::<Vec<_>>(), [Told::Snapshot(Box::new(picture)), Told::Event(event)]);
    for damaged in ["event: snapshot\ndata: {}\n\n", "data: [DONE]\n\n", "data: {\n\n"] {
        let mut reader = FeedReader::default();
        let failed = damaged.lines().find_map(|line| reader.line(line).err());
        assert!(matches!(failed, Some(TraceError::Line { .. })), "{damaged}: {failed:?}");
    }
}
