//! Pipelines by variant, their layouts, and the bind groups made for them.

use super::buffers::Buffers;
use super::encode::SLOT;
use super::health::{Asked, Health, Open, Scope};
use super::reflect::{Bound, Kind, Reflection, reflect};
use super::texels;
use crate::kernels::assemble::{Target, assemble};
use crate::kernels::variants::{self, Need, Variant};
use crate::record::{Binding, DeviceError, VariantId};
use std::collections::HashMap;

/// Bind groups kept at most; shapes that keep changing must not fill memory.
const GROUPS_MAX: usize = 16384;

pub struct Pipeline {
    pub name: String,
    pub pipeline: wgpu::ComputePipeline,
    pub reflection: Reflection,
    layout: usize,
}

struct Layout {
    group: wgpu::BindGroupLayout,
    pipeline: wgpu::PipelineLayout,
    groups: HashMap<Vec<Binding>, wgpu::BindGroup>,
}

#[derive(Default)]
pub struct Pipelines {
    built: HashMap<VariantId, Pipeline>,
    layouts: Vec<Layout>,
    layout_of: HashMap<Vec<Bound>, usize>,
    groups: usize,
    /// Shaders added from outside the table; their ids count down from the last one.
    added: u16,
}

/// What building a pipeline needs of the device.
pub struct Builder<'a> {
    pub device: &'a wgpu::Device,
    pub health: &'a Health,
    pub open: &'a mut Vec<Open>,
    pub browser: bool,
    pub checked: bool,
}

impl Pipelines {
    pub fn get(&self, id: VariantId) -> Result<&Pipeline, DeviceError> {
        self.built.get(&id).ok_or_else(|| not_built(id))
    }

    /// Builds the pipeline of `id` if it is not there yet.
    pub fn ensure(&mut self, id: VariantId, builder: &mut Builder<'_>) -> Result<(), DeviceError> {
        if self.built.contains_key(&id) {
            return Ok(());
        }
        let unknown = || DeviceError::Validation(format!("there is no variant {}", id.0));
        let variant = variants::get(id).ok_or_else(unknown)?;
        let refused = |message| DeviceError::Shader { variant: variant.name.clone(), message };
        builder.has_needs(variant).map_err(refused)?;
        let text = assemble(variant, Target::Naga).map_err(|e| refused(e.to_string()))?;
        let given = if builder.browser {
            assemble(variant, Target::Browser).map_err(|e| refused(e.to_string()))?
        } else {
            text.clone()
        };
        let pipeline = self.build(&variant.name, &text, &given, builder)?;
        self.built.insert(id, pipeline);
        Ok(())
    }

    /// Builds a shader that is not in the table.
    pub fn add(
        &mut self,
        name: &str,
        text: &str,
        builder: &mut Builder<'_>,
    ) -> Result<VariantId, DeviceError> {
        let pipeline = self.build(name, text, text, builder)?;
        let id = VariantId(u16::MAX - self.added);
        if variants::get(id).is_some() {
            return Err(fault(name, "all variant ids are used up"));
        }
        self.added += 1;
        self.built.insert(id, pipeline);
        Ok(id)
    }

    /// Builds `given`, whose interface is read from its twin `text` written for naga.
    fn build(
        &mut self,
        name: &str,
        text: &str,
        given: &str,
        builder: &mut Builder<'_>,
    ) -> Result<Pipeline, DeviceError> {
        let refused = |message| DeviceError::Shader { variant: name.to_string(), message };
        let reflection = reflect(name, text).map_err(refused)?;
        builder.fits(&reflection).map_err(refused)?;
        let scope = Scope::open(builder.device);
        let layout = self.layout(builder.device, &reflection.bound);
        let pipeline = builder.pipeline(name, given, &reflection, &self.layouts[layout].pipeline);
        let asked = Asked::Pipeline { variant: name.to_string() };
        scope.close(asked, builder.health, builder.open)?;
        Ok(Pipeline { name: name.to_string(), pipeline, reflection, layout })
    }

    fn layout(&mut self, device: &wgpu::Device, bound: &[Bound]) -> usize {
        if let Some(at) = self.layout_of.get(bound) {
            return *at;
        }
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
        let at = self.layouts.len();
        self.layouts.push(Layout { group, pipeline, groups: HashMap::new() });
        self.layout_of.insert(bound.to_vec(), at);
        at
    }

    /// The bind group of `pipeline` over `params` and `bindings`; the caller holds an error scope.
    pub fn group(
        &mut self,
        id: VariantId,
        device: &wgpu::Device,
        params: &wgpu::Buffer,
        buffers: &Buffers,
        bindings: &[Binding],
    ) -> Result<wgpu::BindGroup, DeviceError> {
        let pipeline = self.built.get(&id).ok_or_else(|| not_built(id))?;
        let layout = &mut self.layouts[pipeline.layout];
        if let Some(group) = layout.groups.get(bindings) {
            return Ok(group.clone());
        }
        check(pipeline, bindings)?;
        let limits = device.limits();
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
        let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &layout.group,
            entries: &entries,
        });
        layout.groups.insert(bindings.to_vec(), group.clone());
        self.groups += 1;
        if self.groups > GROUPS_MAX {
            self.forget_all();
        }
        Ok(group)
    }

    /// Drops the bind groups over a binding that `stale` names.
    pub fn forget(&mut self, stale: impl Fn(&Binding) -> bool) {
        for layout in &mut self.layouts {
            layout.groups.retain(|bindings, _| !bindings.iter().any(&stale));
        }
        self.count();
    }

    pub fn forget_all(&mut self) {
        self.layouts.iter_mut().for_each(|l| l.groups.clear());
        self.count();
    }

    fn count(&mut self) {
        self.groups = self.layouts.iter().map(|l| l.groups.len()).sum();
    }
}

fn fault(name: &str, message: &str) -> DeviceError {
    DeviceError::Validation(format!("`{name}`: {message}"))
}

fn not_built(id: VariantId) -> DeviceError {
    DeviceError::Validation(format!("variant {} has no pipeline", id.0))
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

impl Builder<'_> {
    fn has_needs(&self, variant: &Variant) -> Result<(), String> {
        let features = self.device.features();
        for need in &variant.needs {
            let feature = match need {
                Need::Subgroups => wgpu::Features::SUBGROUP,
                Need::F16 => wgpu::Features::SHADER_F16,
                Need::Int64 => wgpu::Features::SHADER_INT64,
                // Part of the API.
                Need::Texels => wgpu::Features::empty(),
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
            cache: None,
        })
    }
}
