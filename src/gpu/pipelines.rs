//! Pipelines by variant, their layouts, and the bind groups made for them.

#[cfg(not(target_arch = "wasm32"))]
use super::ahead::Ahead;
use super::buffers::Buffers;
#[cfg(not(target_arch = "wasm32"))]
use super::cache::Cache;
use super::encode::SLOT;
use super::health::{Asked, Health, Open, Scope};
use super::reflect::{Bound, Kind, Reflection, reflect};
use super::texels;
use crate::kernels::assemble::{Target, assemble};
use crate::kernels::variants::{self, Need, Variant};
use crate::record::{Binding, DeviceError, VariantId};
use std::collections::HashMap;
#[cfg(not(target_arch = "wasm32"))]
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bind groups kept at most; shapes that keep changing must not fill memory.
const GROUPS_MAX: usize = 16384;

pub struct Pipeline {
    pub name: String,
    pub pipeline: wgpu::ComputePipeline,
    pub reflection: Reflection,
    layout: usize,
}

struct Layout {
    bound: Vec<Bound>,
    group: wgpu::BindGroupLayout,
    pipeline: wgpu::PipelineLayout,
}

/// The layouts of all pipelines, each once.
#[derive(Clone, Default)]
struct Layouts(Arc<Mutex<Vec<Layout>>>);

impl Layouts {
    fn list(&self) -> MutexGuard<'_, Vec<Layout>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The layout for `bound` and its place; the caller holds an error scope.
    fn of(&self, device: &wgpu::Device, bound: &[Bound]) -> (usize, wgpu::PipelineLayout) {
        let mut list = self.list();
        let at = list.iter().position(|layout| layout.bound == bound);
        let at = at.unwrap_or_else(|| {
            list.push(layout(device, bound));
            list.len() - 1
        });
        (at, list[at].pipeline.clone())
    }
}

fn layout(device: &wgpu::Device, bound: &[Bound]) -> Layout {
    let entry = |binding, ty| wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty,
        count: None,
    };
    let buffer = |ty, dynamic, bytes| wgpu::BindingType::Buffer {
        ty,
        has_dynamic_offset: dynamic,
        min_binding_size: wgpu::BufferSize::new(bytes),
    };
    let mut entries = vec![entry(0, buffer(wgpu::BufferBindingType::Uniform, true, SLOT))];
    for (place, use_) in (1..).zip(bound) {
        let ty = match use_.kind {
            Kind::Storage { writable } => {
                let kind = wgpu::BufferBindingType::Storage { read_only: !writable };
                buffer(kind, false, use_.bytes_min)
            }
            Kind::Uniform => buffer(wgpu::BufferBindingType::Uniform, false, use_.bytes_min),
            Kind::Texels(texel) => wgpu::BindingType::StorageTexture {
                access: wgpu::StorageTextureAccess::ReadOnly,
                format: texels::format(texel),
                view_dimension: wgpu::TextureViewDimension::D2,
            },
        };
        entries.push(entry(place, ty));
    }
    let group = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
        label: None,
        entries: &entries,
    });
    let pipeline = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: None,
        bind_group_layouts: &[Some(&group)],
        immediate_size: 0,
    });
    Layout { bound: bound.to_vec(), group, pipeline }
}

#[derive(Default)]
pub struct Pipelines {
    built: HashMap<VariantId, Result<Pipeline, DeviceError>>,
    #[cfg(not(target_arch = "wasm32"))]
    ahead: Ahead,
    /// Bind groups by the place of their layout.
    groups: Vec<HashMap<Vec<Binding>, wgpu::BindGroup>>,
    kept: usize,
    /// Pipelines that a step had to wait for, because nobody had asked for them before.
    late: usize,
    /// Shaders added from outside the table; their ids count down from the last one.
    added: u16,
}

/// What building a pipeline needs of the device; threads have one each.
#[derive(Clone)]
pub struct Builder {
    device: wgpu::Device,
    health: Health,
    browser: bool,
    checked: bool,
    layouts: Layouts,
    cache: Option<wgpu::PipelineCache>,
}

impl Pipelines {
    pub fn get(&self, id: VariantId) -> Result<&Pipeline, DeviceError> {
        match self.built.get(&id) {
            Some(built) => built.as_ref().map_err(Clone::clone),
            None => Err(DeviceError::Validation(format!("variant {} has no pipeline", id.0))),
        }
    }

    /// Starts to build the pipelines of `ids` on other threads.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn begin(&mut self, ids: &[VariantId], builder: &Builder, cache: Option<&Arc<Cache>>) {
        // One lot at a time.
        for id in self.ahead.coming() {
            self.built.extend(self.ahead.until(id));
        }
        let mut wanted: Vec<_> = ids.to_vec();
        let mut seen = HashSet::new();
        wanted.retain(|id| !self.built.contains_key(id) && seen.insert(*id));
        if !wanted.is_empty() {
            self.ahead = Ahead::begin(wanted, builder.clone(), cache.cloned());
        }
    }

    /// Builds the pipeline of `id` if it is neither there nor on its way.
    pub fn ensure(
        &mut self,
        id: VariantId,
        builder: &Builder,
        open: &mut Vec<Open>,
    ) -> Result<(), DeviceError> {
        #[cfg(not(target_arch = "wasm32"))]
        if !self.built.contains_key(&id) {
            self.built.extend(self.ahead.until(id));
        }
        if let Some(Ok(_)) = self.built.get(&id) {
            return Ok(());
        }
        if let Some(Err(error)) = self.built.remove(&id) {
            return Err(error);
        }
        self.late += 1;
        self.built.insert(id, Ok(builder.of_table(id, open)?));
        Ok(())
    }

    /// Pipelines that were built while a step waited.
    pub fn late(&self) -> usize {
        self.late
    }

    /// Builds a shader that is not in the table.
    pub fn add(
        &mut self,
        (name, text): (&str, &str),
        builder: &Builder,
        open: &mut Vec<Open>,
    ) -> Result<VariantId, DeviceError> {
        let pipeline = builder.build(name, text, text, open)?;
        let id = VariantId(u16::MAX - self.added);
        if variants::get(id).is_some() {
            return Err(fault(name, "all variant ids are used up"));
        }
        self.added += 1;
        self.built.insert(id, Ok(pipeline));
        Ok(id)
    }

    /// The bind group of `id` over `params` and `bindings`; the caller holds an error scope.
    pub fn group(
        &mut self,
        id: VariantId,
        builder: &Builder,
        params: &wgpu::Buffer,
        buffers: &Buffers,
        bindings: &[Binding],
    ) -> Result<wgpu::BindGroup, DeviceError> {
        let pipeline = self.get(id)?;
        let at = pipeline.layout;
        if let Some(group) = self.groups.get(at).and_then(|groups| groups.get(bindings)) {
            return Ok(group.clone());
        }
        check(pipeline, bindings)?;
        let limits = builder.device.limits();
        let uniform =
            wgpu::BufferBinding { buffer: params, offset: 0, size: wgpu::BufferSize::new(SLOT) };
        let mut entries = vec![wgpu::BindGroupEntry {
            binding: 0,
            resource: wgpu::BindingResource::Buffer(uniform),
        }];
        let named = |e| match e {
            DeviceError::Validation(m) => fault(&pipeline.name, &m),
            other => other,
        };
        for ((place, binding), use_) in (1..).zip(bindings).zip(&pipeline.reflection.bound) {
            let resource = buffers.resource(binding, use_.kind, &limits).map_err(named)?;
            entries.push(wgpu::BindGroupEntry { binding: place, resource });
        }
        let group = builder.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &builder.layouts.list()[at].group,
            entries: &entries,
        });
        if self.groups.len() <= at {
            self.groups.resize_with(at + 1, HashMap::new);
        }
        self.groups[at].insert(bindings.to_vec(), group.clone());
        self.kept += 1;
        if self.kept > GROUPS_MAX {
            self.forget_all();
        }
        Ok(group)
    }

    /// Drops the bind groups over a binding that `stale` names.
    pub fn forget(&mut self, stale: impl Fn(&Binding) -> bool) {
        for groups in &mut self.groups {
            groups.retain(|bindings, _| !bindings.iter().any(&stale));
        }
        self.kept = self.groups.iter().map(HashMap::len).sum();
    }

    pub fn forget_all(&mut self) {
        self.groups.clear();
        self.kept = 0;
    }
}

fn fault(name: &str, message: &str) -> DeviceError {
    DeviceError::Validation(format!("`{name}`: {message}"))
}

/// Rules that a bind group must keep; the API's own messages do not name the kernel.
fn check(pipeline: &Pipeline, bindings: &[Binding]) -> Result<(), DeviceError> {
    let fault = |message: String| Err(fault(&pipeline.name, &message));
    let bound = &pipeline.reflection.bound;
    if bound.len() != bindings.len() {
        return fault(format!("{} bindings given, {} bound", bindings.len(), bound.len()));
    }
    for (place, (use_, binding)) in bound.iter().zip(bindings).enumerate() {
        if binding.bytes < use_.bytes_min {
            let (has, needs) = (binding.bytes, use_.bytes_min);
            return fault(format!("binding {} has {has} bytes, needs {needs}", place + 1));
        }
        for (other_use, other) in bound.iter().zip(bindings).take(place) {
            let same = binding.buffer == other.buffer;
            let apart = binding.offset >= other.offset.saturating_add(other.bytes)
                || other.offset >= binding.offset.saturating_add(binding.bytes);
            let both = use_.writable() && other_use.writable();
            if same && (use_.writable() != other_use.writable() || both && !apart) {
                let id = binding.buffer.0;
                return fault(format!("buffer {id} is written while bound a second time"));
            }
        }
    }
    Ok(())
}

impl Builder {
    pub fn new(
        device: &wgpu::Device,
        health: &Health,
        [browser, checked]: [bool; 2],
        cache: Option<wgpu::PipelineCache>,
    ) -> Builder {
        let (device, health, layouts) = (device.clone(), health.clone(), Layouts::default());
        Builder { device, health, browser, checked, layouts, cache }
    }

    /// Builds the variant `id`.
    pub fn of_table(&self, id: VariantId, open: &mut Vec<Open>) -> Result<Pipeline, DeviceError> {
        let unknown = || DeviceError::Validation(format!("there is no variant {}", id.0));
        let variant = variants::get(id).ok_or_else(unknown)?;
        let refused = |message| DeviceError::Shader { variant: variant.name.clone(), message };
        self.has_needs(variant).map_err(refused)?;
        let text = assemble(variant, Target::Naga).map_err(|e| refused(e.to_string()))?;
        let given = if self.browser {
            assemble(variant, Target::Browser).map_err(|e| refused(e.to_string()))?
        } else {
            text.clone()
        };
        self.build(&variant.name, &text, &given, open)
    }

    /// Builds `given`, whose interface is read from its twin `text` written for naga.
    fn build(
        &self,
        name: &str,
        text: &str,
        given: &str,
        open: &mut Vec<Open>,
    ) -> Result<Pipeline, DeviceError> {
        let refused = |message| DeviceError::Shader { variant: name.to_string(), message };
        let reflection = reflect(name, text).map_err(refused)?;
        self.fits(&reflection).map_err(refused)?;
        let scope = Scope::open(&self.device);
        let (layout, of_pipeline) = self.layouts.of(&self.device, &reflection.bound);
        let pipeline = self.pipeline(name, given, &reflection, &of_pipeline);
        let asked = Asked::Pipeline { variant: name.to_string() };
        scope.close(asked, &self.health, open)?;
        Ok(Pipeline { name: name.to_string(), pipeline, reflection, layout })
    }

    fn has_needs(&self, variant: &Variant) -> Result<(), String> {
        let features = self.device.features();
        for need in &variant.needs {
            let feature = match need {
                Need::Subgroups => wgpu::Features::SUBGROUP,
                Need::F16 => wgpu::Features::SHADER_F16,
                Need::Int64 => wgpu::Features::SHADER_INT64,
                // Part of the API.
                Need::Texels => wgpu::Features::empty(),
                Need::Units8 | Need::Units16 => wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX,
            };
            if !features.contains(feature) {
                return Err(format!("it needs `{}`, which this adapter lacks", need.name()));
            }
        }
        Ok(())
    }

    fn fits(&self, reflection: &Reflection) -> Result<(), String> {
        let limits = self.device.limits();
        let storage = |b: &&Bound| matches!(b.kind, Kind::Storage { .. });
        let bound = reflection.bound.iter().filter(storage).count();
        let most = limits.max_storage_buffers_per_shader_stage;
        if bound > most as usize {
            return Err(format!("it binds {bound} storage buffers, this adapter allows {most}"));
        }
        if reflection.params > SLOT {
            return Err(format!("its parameters take {} bytes of {SLOT}", reflection.params));
        }
        Ok(())
    }

    fn pipeline(
        &self,
        name: &str,
        text: &str,
        reflection: &Reflection,
        layout: &wgpu::PipelineLayout,
    ) -> wgpu::ComputePipeline {
        let source = wgpu::ShaderModuleDescriptor {
            label: Some(name),
            source: wgpu::ShaderSource::Wgsl(text.into()),
        };
        let module = if self.checked {
            self.device.create_shader_module(source)
        } else {
            // SAFETY: the texts are this program's own, their loops end, and the test suite runs
            // them with all checks on as well; storage accesses stay checked by the device.
            unsafe {
                let checks = wgpu::ShaderRuntimeChecks::unchecked();
                self.device.create_shader_module_trusted(source, checks)
            }
        };
        self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(name),
            layout: Some(layout),
            module: &module,
            entry_point: Some(&reflection.entry),
            compilation_options: wgpu::PipelineCompilationOptions {
                zero_initialize_workgroup_memory: self.checked,
                ..Default::default()
            },
            cache: self.cache.as_ref(),
        })
    }
}
