//! Any bytes as a safetensors file: an error, or a file whose every tensor can be read to its last
//! byte.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tilewright::weights::Weights;

fuzz_target!(|data: &[u8]| {
    let files = vec![
        ("model.safetensors", data.to_vec().into()),
        ("config.json", b"{}".as_slice().into()),
    ];
    let Ok(weights) = Weights::from_folder_bytes("fuzz", files) else { return };
    for tensor in weights.tensors().values() {
        let rows = weights.read_rows(tensor, 0, tensor.rows()).expect("the header was checked");
        assert_eq!(rows.len() as u64, tensor.bytes);
    }
});
