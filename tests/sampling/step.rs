//! A step of sampling on a device: rows of logits in, words of results and the edited logits out.

use crate::kernels::lab::Lab;
use crate::support::On;
use tilewright::kernels::sample::{Edit, OUT_WORDS, Sample, SampleResult, SampleRow};
use tilewright::record::{DeviceKind, Facts, Recording};

/// Rows to sample.
#[derive(Clone, Default)]
pub struct Step {
    pub vocab: usize,
    /// `[row][vocab]`.
    pub logits: Vec<Vec<f32>>,
    pub rows: Vec<SampleRow>,
    pub edits: Vec<Edit>,
    /// Bits of the ids that rows with a mask may take.
    pub masks: Vec<u32>,
}

/// What came back for one row.
#[derive(Clone, PartialEq, Debug)]
pub struct Sampled {
    pub result: SampleResult,
    pub kept: u32,
    /// The row's logits after its edits.
    pub edited: Vec<f32>,
}

impl Step {
    pub fn new(vocab: usize) -> Self {
        Self { vocab, ..Self::default() }
    }

    /// Adds a row; its edits must be those of tokens, `row` is filled in.
    pub fn push(&mut self, logits: &[f32], row: SampleRow, edits: &[Edit]) {
        assert_eq!(logits.len(), self.vocab);
        self.logits.push(logits.to_vec());
        let first_edit = self.edits.len() as u32;
        let index = self.rows.len() as u32;
        self.edits.extend(edits.iter().map(|e| Edit { row: index, ..*e }));
        self.rows.push(SampleRow { first_edit, edits: edits.len() as u32, ..row });
    }

    /// Samples rows `part` in one launch, which has their logits only.
    pub fn run_part(
        &self,
        part: std::ops::Range<usize>,
        facts: &Facts,
        lab: &mut Lab,
    ) -> Vec<Sampled> {
        let stride = (self.vocab + 3).next_multiple_of(4);
        // Beyond the vocabulary lies what would win.
        let mut logits = vec![f32::INFINITY; part.len() * stride];
        for (to, from) in logits.chunks_mut(stride).zip(&self.logits[part.clone()]) {
            to[..self.vocab].copy_from_slice(from);
        }
        let words = OUT_WORDS as usize;
        let inside = |e: &Edit| part.contains(&(e.row as usize));
        let first = self.edits.iter().take_while(|e| (e.row as usize) < part.start).count();
        let edits = self.edits.iter().filter(|e| inside(e)).count();
        let sample = Sample {
            row_base: part.start as u32,
            count: part.len() as u32,
            edit_range: first as u32..(first + edits) as u32,
            masked: self.rows[part.clone()].iter().any(|row| row.mask > 0),
            vocab: self.vocab as u32,
            stride: stride as u32,
            rows: lab.words(bytemuck::cast_slice(&self.rows)),
            edits: lab.words(bytemuck::cast_slice(&self.edits)),
            masks: lab.words(&self.masks),
            logits: lab.floats(&logits),
            weights: lab.floats(&vec![f32::NAN; logits.len()]),
            out: lab.words(&vec![0; self.rows.len() * words]),
        };
        let mut recording = Recording::default();
        sample.record(facts, &mut recording);
        let got = lab.run(recording, &[sample.out, sample.logits]);
        lab.clear();
        let result = |row: usize| {
            let words: Vec<u32> =
                got[0][row * words..][..words].iter().map(|f| f.to_bits()).collect();
            let edited = got[1][(row - part.start) * stride..][..self.vocab].to_vec();
            let result = SampleResult::from_words(&words, self.rows[row].top);
            Sampled { result, kept: words[3], edited }
        };
        part.clone().map(result).collect()
    }

    pub fn run(&self, facts: &Facts, lab: &mut Lab) -> Vec<Sampled> {
        self.run_part(0..self.rows.len(), facts, lab)
    }
}

/// Facts under which each width of the sampling kernels is taken.
pub fn widths(lab: &Lab) -> Vec<Facts> {
    let facts = |kind| Facts { kind, ..lab.facts.clone() };
    match lab.on {
        // The twin is the same for both.
        On::Cpu => vec![lab.facts.clone()],
        On::Gpu => vec![facts(DeviceKind::Software), facts(DeviceKind::Discrete)],
    }
}
