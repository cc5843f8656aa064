//! The same model in the other kind of file: a Hugging Face folder as one GGUF file, and back.
//!
//! Invariant: what was written is opened again and compared with the source's [`Spec`]; a model
//! that the other kind of file cannot say is an error, and nothing is left behind.

mod keys;
mod tokens;

use crate::base::Format;
use crate::model::{Dialect, ModelError, Pairs, Place, Renamed, Spec, renamed};
use crate::text::TextError;
use crate::weights::{
    GGUF_ALIGNMENT, Meta, Tensor, TensorHead, Weights, WeightsError, blocks, gguf_header,
};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::Path;

#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    #[error(transparent)]
    Weights(#[from] WeightsError),
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Text(#[from] TextError),
    #[error("{path}: {source}")]
    Io { path: String, source: std::io::Error },
    #[error("{file}: {problem}")]
    Cannot { file: String, problem: String },
}

/// A tensor of the target: these rows of each source, one source after the other.
struct Moved<'a> {
    from: Vec<&'a Tensor>,
    rows: Range<u64>,
    what: &'a Renamed,
    head: TensorHead,
}

/// Writes `weights` to `target`: a GGUF file if its name says so, else a new folder.
pub fn convert(weights: &Weights, target: &Path) -> Result<(), ConvertError> {
    let gguf = target.extension().is_some_and(|e| e == "gguf");
    if target.exists() {
        return Err(cannot(&target.display().to_string(), "is there already"));
    }
    let spec = Spec::read(weights)?;
    if gguf == matches!(weights.meta(), Meta::Gguf(_)) {
        let problem = "source and target are of one kind; a GGUF file becomes a folder, a folder a \
                       file whose name ends in `.gguf`";
        return Err(cannot(weights.name(), problem));
    }
    if spec.latent.is_some() {
        return Err(cannot(
            weights.name(),
            format!("{} models are not converted", spec.family.name),
        ));
    }
    let done =
        if gguf { to_gguf(weights, &spec, target) } else { to_folder(weights, &spec, target) };
    let done = done.and_then(|()| compare(&spec, target));
    if done.is_err() {
        // Nothing was there before.
        let _ = if gguf { std::fs::remove_file(target) } else { std::fs::remove_dir_all(target) };
    }
    done
}

fn cannot(file: &str, problem: impl Into<String>) -> ConvertError {
    ConvertError::Cannot { file: file.into(), problem: problem.into() }
}

fn io(path: &Path) -> impl Fn(std::io::Error) -> ConvertError + '_ {
    move |source| ConvertError::Io { path: path.display().to_string(), source }
}

fn to_gguf(weights: &Weights, spec: &Spec, target: &Path) -> Result<(), ConvertError> {
    let renames = renamed(spec, Dialect::Gguf);
    // Norms and biases are f32 in GGUF files.
    let format = |what: &Renamed, t: &Tensor| match what.precise || t.shape.len() < 2 {
        true => Format::F32,
        false => t.format,
    };
    let moved = moves(weights, spec, &renames, format)?;
    let mut keys = keys::to_gguf(weights, spec)?;
    keys.extend(tokens::to_gguf(weights)?);
    let mut heads: Vec<TensorHead> = moved.iter().map(|m| m.head.clone()).collect();
    let divisors = keys::divisors(spec);
    if let Some(divisors) = &divisors {
        heads.push(TensorHead {
            name: "rope_freqs.weight".into(),
            shape: vec![divisors.len() as u64],
            format: Format::F32,
            bytes: divisors.len() as u64 * 4,
        });
    }
    let mut out = BufWriter::new(File::create_new(target).map_err(io(target))?);
    out.write_all(&gguf_header(&keys, &heads)).map_err(io(target))?;
    let pad = |bytes: u64| vec![0u8; (bytes.next_multiple_of(GGUF_ALIGNMENT) - bytes) as usize];
    for one in &moved {
        write_values(weights, one, &mut |bytes| out.write_all(bytes).map_err(io(target)))?;
        out.write_all(&pad(one.head.bytes)).map_err(io(target))?;
    }
    if let Some(divisors) = divisors {
        out.write_all(bytemuck::cast_slice(&divisors)).map_err(io(target))?;
        out.write_all(&pad(divisors.len() as u64 * 4)).map_err(io(target))?;
    }
    out.flush().map_err(io(target))
}

fn to_folder(weights: &Weights, spec: &Spec, target: &Path) -> Result<(), ConvertError> {
    let renames = renamed(spec, Dialect::Hf { prefix: "model." });
    // Safetensors have no blocks: what is quantised becomes f16.
    let format = |_: &Renamed, t: &Tensor| match t.format.block_len() {
        1 => t.format,
        _ => Format::F16,
    };
    let moved = moves(weights, spec, &renames, format)?;
    let mut files = tokens::to_folder(weights)?;
    files.push(("config.json", keys::to_config(weights, spec)?));
    std::fs::create_dir(target).map_err(io(target))?;
    for (name, value) in &files {
        let path = target.join(name);
        std::fs::write(&path, value).map_err(io(&path))?;
    }
    let (mut header, mut at) = (Map::new(), 0u64);
    for Moved { head, .. } in &moved {
        let entry = json!({"dtype": head.format.name().to_uppercase(), "shape": head.shape,
                           "data_offsets": [at, at + head.bytes]});
        at += head.bytes;
        header.insert(head.name.clone(), entry);
    }
    let mut text = Value::Object(header).to_string();
    text.push_str(&" ".repeat(text.len().next_multiple_of(8) - text.len()));
    let path = target.join("model.safetensors");
    let mut out = BufWriter::new(File::create_new(&path).map_err(io(&path))?);
    out.write_all(&(text.len() as u64).to_le_bytes()).map_err(io(&path))?;
    out.write_all(text.as_bytes()).map_err(io(&path))?;
    for one in &moved {
        write_values(weights, one, &mut |bytes| out.write_all(bytes).map_err(io(&path)))?;
    }
    out.flush().map_err(io(&path))
}

/// Every tensor of the target; one of the source that has no place in it is an error.
fn moves<'a>(
    weights: &'a Weights,
    spec: &Spec,
    renames: &'a [Renamed],
    format: impl Fn(&Renamed, &Tensor) -> Format,
) -> Result<Vec<Moved<'a>>, ConvertError> {
    let (mut out, mut used) = (Vec::new(), BTreeSet::new());
    for what in renames {
        for tail in ["", ".weight", ".bias"] {
            let names = what.from.iter().map(|stem| format!("{stem}{tail}"));
            let from: Vec<&Tensor> = names.filter_map(|name| weights.tensor(&name)).collect();
            let Some(first) = from.first() else { continue };
            let again = !used.insert(first.name.clone());
            if again && !matches!(what.place, Place::Entry(_)) {
                continue;
            }
            used.extend(from.iter().map(|tensor| tensor.name.clone()));
            let alike = from.iter().all(|tensor| tensor.shape == first.shape);
            if from.len() != what.from.len() || !alike {
                let problem = "is not there for every expert in one shape";
                return Err(cannot(weights.name(), format!("tensor `{}` {problem}", first.name)));
            }
            let (shape, rows) = placed(weights, spec, what, first)?;
            let format = format(what, first);
            let Some(bytes) = format.bytes_of(shape.iter().product()) else {
                let problem = format!("tensor `{}` is no whole blocks", first.name);
                return Err(cannot(weights.name(), problem));
            };
            let head = TensorHead { name: format!("{}{tail}", what.stem), shape, format, bytes };
            out.push(Moved { from, rows, what, head });
        }
    }
    let placeless = |name: &&String| {
        let tied = spec.tied_head && matches!(name.as_str(), "lm_head.weight" | "output.weight");
        !(used.contains(*name)
            || tied
            || *name == "rope_freqs.weight"
            || name.ends_with("inv_freq"))
    };
    match weights.tensors().keys().find(placeless) {
        Some(name) => {
            Err(cannot(weights.name(), format!("tensor `{name}` has no place in the target")))
        }
        None => Ok(out),
    }
}

/// The shape in the target of what is made of `first` and those like it, and the rows of each that
/// go there; a tensor whose own shape does not say so would be cut short or torn.
fn placed(
    weights: &Weights,
    spec: &Spec,
    what: &Renamed,
    first: &Tensor,
) -> Result<(Vec<u64>, Range<u64>), ConvertError> {
    let refuse = |problem: String| {
        let shape = &first.shape;
        Err(cannot(weights.name(), format!("tensor `{}` of {shape:?} {problem}", first.name)))
    };
    let whole = 0..first.rows();
    match (what.place, first.shape.as_slice()) {
        (Place::Entry(e), [count, rows, cols]) => {
            let experts = spec.moe.as_ref().map_or(0, |moe| u64::from(moe.experts));
            if *count != experts {
                return refuse(format!("is not of {experts} experts"));
            }
            Ok((vec![*rows, *cols], u64::from(e)..u64::from(e) + 1))
        }
        (Place::Entry(_), _) => refuse("is no stack of matrices".into()),
        (Place::Stack, shape) => Ok(([&[what.from.len() as u64], shape].concat(), whole)),
        (Place::Whole, shape) => match what.pairs {
            Some((Pairs { head, .. }, _)) if !whole.end.is_multiple_of(u64::from(head)) => {
                refuse(format!("is not of whole heads of {head}"))
            }
            _ => Ok((shape.to_vec(), whole)),
        },
    }
}

/// Bytes of a tensor read at once, where its rows keep their order.
const CHUNK_BYTES: u64 = 64 << 20;

fn write_values(
    weights: &Weights,
    one: &Moved<'_>,
    out: &mut dyn FnMut(&[u8]) -> Result<(), ConvertError>,
) -> Result<(), ConvertError> {
    for from in &one.from {
        let count = one.rows.end - one.rows.start;
        let step = match one.what.pairs {
            Some(_) => count,
            None => (CHUNK_BYTES / (from.bytes / from.rows().max(1)).max(1)).max(1),
        };
        let mut row = one.rows.start;
        while row < one.rows.end {
            let count = step.min(one.rows.end - row);
            let mut raw = weights.read_rows(from, row, count)?;
            if let Some((pairs, adjacent)) = one.what.pairs {
                raw = pairs.turned(&raw, count as usize, adjacent);
            }
            if one.head.format != from.format || one.what.shift != 0.0 {
                let per_row = from.shape.iter().skip(1).product::<u64>();
                let mut values = vec![0.0; (count * per_row) as usize];
                blocks::decode(from.format, &raw, &mut values);
                values.iter_mut().for_each(|v| *v += one.what.shift);
                raw.clear();
                blocks::encode(one.head.format, &values, &mut raw);
            }
            out(&raw)?;
            row += count;
        }
    }
    Ok(())
}

/// Opens what was written: it must say the same model.
fn compare(spec: &Spec, target: &Path) -> Result<(), ConvertError> {
    let other = Spec::read(&Weights::open(target)?)?;
    let close = |a: f32, b: f32| (a - b).abs() <= a.abs() * 1e-6;
    let same = [
        ("layers and widths", widths(spec) == widths(&other)),
        ("windows", spec.windows == other.windows),
        ("rotations", spec.rotations == other.rotations),
        ("activation", spec.activation == other.activation),
        (
            "soft caps",
            (spec.attention_cap, spec.logit_cap) == (other.attention_cap, other.logit_cap),
        ),
        ("norm epsilon", close(spec.norm_eps, other.norm_eps)),
        ("attention scale", close(spec.attention_scale, other.attention_scale)),
        ("embedding scale", close(spec.embedding_scale, other.embedding_scale)),
        ("residual scale", close(spec.residual_scale, other.residual_scale)),
        ("logit scale", close(spec.logit_scale, other.logit_scale)),
        ("head", spec.tied_head == other.tied_head),
        ("experts", spec.moe == other.moe),
        ("rotary frequencies", {
            let table = |spec: &Spec| {
                let local = spec.local_rope.as_ref().map(|rope| rope.table(2));
                [spec.rope.table(2), local.unwrap_or_default()].concat()
            };
            let (a, b) = (table(spec), table(&other));
            a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-6)
        }),
    ];
    match same.iter().find(|(_, same)| !same) {
        None => Ok(()),
        Some((what, _)) => {
            let problem = format!("its {what} cannot be said in the other kind of file");
            Err(cannot(&target.display().to_string(), problem))
        }
    }
}

fn widths(spec: &Spec) -> [u32; 8] {
    let Spec { layers, hidden, heads, kv_heads, head_dim, ffn, vocab, context, .. } = *spec;
    [layers, hidden, heads, kv_heads, head_dim, ffn, vocab, context]
}
