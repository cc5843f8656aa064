//! What a shader binds and how large its workgroup is, read from its text by naga: layouts are
//! never written by hand, so they cannot drift from the shaders.

use naga::{AddressSpace, StorageAccess};

/// How a storage binding is used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Storage {
    pub writable: bool,
    /// Fewest bytes the shader's type needs.
    pub bytes_min: u64,
}

/// The interface of one shader.
#[derive(Clone, PartialEq, Debug)]
pub struct Reflection {
    pub entry: String,
    pub workgroup: [u32; 3],
    /// Bytes of the parameter block at binding 0.
    pub params: u64,
    /// Bindings 1.. in order.
    pub storage: Vec<Storage>,
}

/// Reads the interface of `text`; `name` stands in error messages.
pub fn reflect(name: &str, text: &str) -> Result<Reflection, String> {
    let module =
        naga::front::wgsl::parse_str(text).map_err(|e| e.emit_to_string_with_path(text, name))?;
    let [entry] = module.entry_points.as_slice() else {
        return Err(format!("{} entry points instead of one", module.entry_points.len()));
    };
    let mut params = None;
    let mut storage = Vec::new();
    for (_, variable) in module.global_variables.iter() {
        let Some(place) = variable.binding else { continue };
        let bytes = u64::from(module.types[variable.ty].inner.size(module.to_ctx()));
        match variable.space {
            _ if place.group != 0 => return Err(format!("binding in group {}", place.group)),
            AddressSpace::Uniform if place.binding == 0 => params = Some(bytes),
            AddressSpace::Storage { access } if place.binding > 0 => {
                let writable = access.contains(StorageAccess::STORE);
                storage.push((place.binding, Storage { writable, bytes_min: bytes }));
            }
            _ => return Err(format!("binding {} is of an unknown kind", place.binding)),
        }
    }
    storage.sort_by_key(|s| s.0);
    if storage.iter().zip(1..).any(|(s, place)| s.0 != place) {
        return Err("storage bindings are not numbered 1, 2, 3, ...".into());
    }
    Ok(Reflection {
        entry: entry.name.clone(),
        workgroup: entry.workgroup_size,
        params: params.ok_or("there is no parameter block at binding 0")?,
        storage: storage.into_iter().map(|s| s.1).collect(),
    })
}
