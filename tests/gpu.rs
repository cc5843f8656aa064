//! Rows of the wgpu device.

use crate::support::{Rows, SharedGpu, gpu};
use tilewright::kernels::variants::variant;
use tilewright::record::{Binding, BufferId, Device, Recording, VariantId};

pub fn rows(rows: &mut Rows) {
    rows.add_if(gpu(), "gpu::odd_sizes", odd_sizes);
}

fn copy_words() -> VariantId {
    variant("copy_words").expect("a variant")
}

fn whole(buffer: BufferId, bytes: u64) -> Binding {
    Binding { buffer, offset: 0, bytes }
}

fn odd_sizes(gpu: SharedGpu) {
    let mut gpu = gpu.lock();
    for count in [1_u32, 3, 63, 64, 65, 1000, 4097] {
        let bytes = u64::from(count) * 4;
        let from = gpu.create_buffer("from", bytes).expect("from");
        let to = gpu.create_buffer("to", bytes).expect("to");
        let words: Vec<u32> = (0..count).map(|i| i * 7 + 1).collect();
        gpu.write_buffer(from, 0, bytemuck::cast_slice(&words)).expect("written");
        let mut recording = Recording::default();
        let bindings = vec![whole(from, bytes), whole(to, bytes)];
        recording.dispatch(copy_words(), &[0, 0, count, 0], bindings, [count.div_ceil(64), 1, 1]);
        recording.download(whole(to, bytes));
        let finished = gpu.run(&recording).expect("run");
        assert_eq!(finished.bytes, bytemuck::cast_slice::<u32, u8>(&words), "{count} words");
        gpu.free_buffer(from);
        gpu.free_buffer(to);
    }
}
