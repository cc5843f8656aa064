//! What a shader binds and how large its workgroup is, read from its text by naga: layouts are
//! never written by hand, so they cannot drift from the shaders.

use crate::record::Texel;
use naga::{AddressSpace, ImageClass, StorageAccess, StorageFormat, TypeInner};

/// What a shader takes a binding for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    Storage { writable: bool },
    Uniform,
    Texels(Texel),
}

/// A binding of a shader.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bound {
    pub kind: Kind,
    /// Fewest bytes the shader's type needs.
    pub bytes_min: u64,
}

impl Bound {
    pub fn writable(&self) -> bool {
        self.kind == Kind::Storage { writable: true }
    }
}

/// The interface of one shader.
#[derive(Clone, PartialEq, Debug)]
pub struct Reflection {
    pub entry: String,
    pub workgroup: [u32; 3],
    /// Bytes of the parameter block at binding 0.
    pub params: u64,
    /// Bindings 1.. in order.
    pub bound: Vec<Bound>,
}

/// Reads the interface of `text`; `name` stands in error messages.
pub fn reflect(name: &str, text: &str) -> Result<Reflection, String> {
    let module =
        naga::front::wgsl::parse_str(text).map_err(|e| e.emit_to_string_with_path(text, name))?;
    let [entry] = module.entry_points.as_slice() else {
        return Err(format!("{} entry points instead of one", module.entry_points.len()));
    };
    let mut params = None;
    let mut bound = Vec::new();
    for (_, variable) in module.global_variables.iter() {
        let Some(place) = variable.binding else { continue };
        let inner = &module.types[variable.ty].inner;
        let bytes = u64::from(inner.size(module.to_ctx()));
        let kind = match variable.space {
            _ if place.group != 0 => return Err(format!("binding in group {}", place.group)),
            AddressSpace::Uniform if place.binding == 0 => {
                params = Some(bytes);
                continue;
            }
            AddressSpace::Uniform => Kind::Uniform,
            AddressSpace::Storage { access } if place.binding > 0 => {
                Kind::Storage { writable: access.contains(StorageAccess::STORE) }
            }
            AddressSpace::Handle if let Some(texel) = texel(inner) => Kind::Texels(texel),
            _ => return Err(format!("binding {} is of an unknown kind", place.binding)),
        };
        bound.push((place.binding, Bound { kind, bytes_min: bytes }));
    }
    bound.sort_by_key(|b| b.0);
    if bound.iter().zip(1..).any(|(b, place)| b.0 != place) {
        return Err("bindings are not numbered 1, 2, 3, ... behind the parameters".into());
    }
    Ok(Reflection {
        entry: entry.name.clone(),
        workgroup: entry.workgroup_size,
        params: params.ok_or("there is no parameter block at binding 0")?,
        bound: bound.into_iter().map(|b| b.1).collect(),
    })
}

/// What a texture that is only read holds, if it is one that we make.
fn texel(inner: &TypeInner) -> Option<Texel> {
    let TypeInner::Image { class: ImageClass::Storage { format, access }, .. } = inner else {
        return None;
    };
    match format {
        _ if access.contains(StorageAccess::STORE) => None,
        StorageFormat::R32Uint => Some(Texel::Word),
        StorageFormat::Rgba32Uint => Some(Texel::Quad),
        _ => None,
    }
}
