//! [`Recording`]: uploads, dispatches, copies and downloads, in the order they take effect.

/// A buffer of a [`super::Device`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BufferId(pub u32);

/// A row of the variant table in `kernels` (a shader file with its imports and constants chosen).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VariantId(pub u16);

/// A byte range of a buffer as a kernel sees it; `offset` is a multiple of 256.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Binding {
    pub buffer: BufferId,
    pub offset: u64,
    pub bytes: u64,
}

/// Words in the parameter block of one dispatch. A block of 256 bytes is one dynamic-offset slot.
pub const PARAMS_MAX: usize = 64;

/// One kernel launch.
#[derive(Clone, PartialEq, Debug)]
pub struct Dispatch {
    pub variant: VariantId,
    /// Storage bindings 1.. in the shader's order; binding 0 is the parameter block.
    pub bindings: Vec<Binding>,
    /// Range of [`Recording::params`] that holds this launch's parameters.
    pub params: std::ops::Range<usize>,
    /// Workgroups per dimension.
    pub grid: [u32; 3],
}

/// One command. Commands take effect in order.
#[derive(Clone, PartialEq, Debug)]
pub enum Command {
    Dispatch(Dispatch),
    Copy { from: BufferId, from_offset: u64, to: BufferId, to_offset: u64, bytes: u64 },
}

/// A step of device work. Uploads happen before all commands, downloads after them.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Recording {
    /// (buffer, byte offset, range of `data`).
    pub uploads: Vec<(BufferId, u64, std::ops::Range<usize>)>,
    pub data: Vec<u8>,
    pub params: Vec<u32>,
    pub commands: Vec<Command>,
    /// Byte ranges that come back, in this order, in one host buffer.
    pub downloads: Vec<Binding>,
}

impl Recording {
    /// Empties the recording, keeping its memory for the next step.
    pub fn clear(&mut self) {
        self.uploads.clear();
        self.data.clear();
        self.params.clear();
        self.commands.clear();
        self.downloads.clear();
    }

    /// Writes `bytes` (a multiple of 4 long) into `buffer` before the first command.
    pub fn upload(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]) {
        debug_assert_eq!(bytes.len() % 4, 0, "uploads are whole words");
        let start = self.data.len();
        self.data.extend_from_slice(bytes);
        self.uploads.push((buffer, offset, start..self.data.len()));
    }

    /// Launches `variant`; `params` is a plain struct of 32-bit fields, as in the shader.
    pub fn dispatch<P: bytemuck::Pod>(
        &mut self,
        variant: VariantId,
        params: &P,
        bindings: Vec<Binding>,
        grid: [u32; 3],
    ) {
        if grid.contains(&0) {
            return;
        }
        let words: &[u32] = bytemuck::cast_slice(std::slice::from_ref(params));
        debug_assert!(words.len() <= PARAMS_MAX, "parameter block too long");
        let start = self.params.len();
        self.params.extend_from_slice(words);
        let params = start..self.params.len();
        self.commands.push(Command::Dispatch(Dispatch { variant, bindings, params, grid }));
    }

    /// Copies `bytes` from one buffer to another one, each named with a byte offset.
    pub fn copy(&mut self, from: (BufferId, u64), to: (BufferId, u64), bytes: u64) {
        debug_assert_ne!(from.0, to.0, "a buffer cannot be copied into itself");
        let ((from, from_offset), (to, to_offset)) = (from, to);
        self.commands.push(Command::Copy { from, from_offset, to, to_offset, bytes });
    }

    pub fn download(&mut self, binding: Binding) {
        self.downloads.push(binding);
    }
}
