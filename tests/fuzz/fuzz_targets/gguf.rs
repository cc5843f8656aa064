//! Any bytes as a GGUF file: an error, or a file whose every tensor and key can be read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tilewright::engine::gguf_vocab;
use tilewright::model::Spec;
use tilewright::text::Tokenizer;
use tilewright::weights::{BytesSource, Meta, Weights};

fuzz_target!(|data: &[u8]| {
    let source = BytesSource::new("fuzz.gguf", data.to_vec());
    let Ok(weights) = Weights::from_gguf_source(Box::new(source)) else { return };
    for tensor in weights.tensors().values() {
        let rows = weights.read_rows(tensor, 0, tensor.rows()).expect("the table was checked");
        assert_eq!(rows.len() as u64, tensor.bytes);
    }
    let _ = Spec::read(&weights);
    if let Meta::Gguf(meta) = weights.meta()
        && let Ok(vocab) = gguf_vocab(meta)
        && let Ok(tokenizer) = Tokenizer::from_vocab(vocab)
    {
        let _ = tokenizer.encode("a b\n1\u{1F600}");
    }
});
