//! Random JSON schemas in the style of those that people send, and a checker of values.

use serde_json::{Map, Value, json};

/// Random numbers, the same in every run.
pub struct Draw(u64);

impl Draw {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x7363_6865)
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        ((self.0 >> 33) as usize) % n.max(1)
    }
}

const NAMES: [&str; 8] = ["name", "age", "tags", "the id", "größe", "a\"b", "next", "x"];

/// A schema: usually of an object, now and then with definitions that refer to themselves.
pub fn generate(draw: &mut Draw) -> Value {
    let recursive = draw.below(8) == 0;
    let mut schema = match draw.below(4) {
        0 => node(draw, 2, recursive),
        _ => object(draw, 3, recursive),
    };
    if recursive {
        schema["$defs"] = json!({"node": {
            "type": "object",
            "properties": {"v": {"type": "integer"}, "next": {"anyOf": [
                {"type": "null"}, {"$ref": "#/$defs/node"},
            ]}},
            "required": ["v", "next"],
            "additionalProperties": false,
        }});
    }
    schema
}

fn node(draw: &mut Draw, depth: usize, recursive: bool) -> Value {
    match draw.below(if depth == 0 { 7 } else { 11 }) {
        0 => json!({"type": "boolean"}),
        1 => json!({"type": "null"}),
        2 => {
            let low = draw.below(50) as i64 - 20;
            json!({"type": "integer", "minimum": low, "maximum": low + draw.below(30) as i64})
        }
        3 => json!({"type": "number", "minimum": -1.5, "maximum": 12}),
        4 => {
            let all =
                [json!("red"), json!(3), json!(null), json!(true), json!({"a": 1}), json!("b\"c")];
            json!({"enum": all[..=draw.below(6)]})
        }
        5 => match draw.below(4) {
            0 => json!({"type": "string", "pattern": "^[a-c]{1,3}[0-9]?$"}),
            1 => json!({"type": "string", "format": "date"}),
            2 => json!({"type": "string", "minLength": 1, "maxLength": 4}),
            _ => json!({"type": "string"}),
        },
        6 if recursive => json!({"$ref": "#/$defs/node"}),
        6 => json!({"const": [1, "two"]}),
        7 | 8 => {
            let low = draw.below(3);
            let items = node(draw, depth - 1, recursive);
            let high = low + draw.below(3);
            json!({"type": "array", "items": items, "minItems": low, "maxItems": high})
        }
        9 => {
            let (a, b) = (node(draw, depth - 1, recursive), node(draw, depth - 1, recursive));
            json!({"anyOf": [a, b]})
        }
        _ => object(draw, depth - 1, recursive),
    }
}

fn object(draw: &mut Draw, depth: usize, recursive: bool) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for _ in 0..draw.below(4) {
        let name = NAMES[draw.below(NAMES.len())];
        if draw.below(3) > 0 && !properties.contains_key(name) {
            required.push(json!(name));
        }
        properties.entry(name).or_insert_with(|| node(draw, depth.saturating_sub(1), recursive));
    }
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": draw.below(6) == 0,
    })
}

/// Whether `value` fits `schema`, of the kinds that [`generate`] makes.
pub fn valid(root: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = root.pointer(&reference[1..]).ok_or("a reference to nothing")?;
        return valid(root, target, value);
    }
    let fail = |what: &str| Err(format!("{value} {what} of {schema}"));
    if let Some(any) = schema["anyOf"].as_array()
        && !any.iter().any(|one| valid(root, one, value).is_ok())
    {
        return fail("fits none");
    }
    if schema.get("const").is_some_and(|one| one != value) {
        return fail("is not the constant");
    }
    if schema["enum"].as_array().is_some_and(|list| !list.contains(value)) {
        return fail("is not in the list");
    }
    let fits = match schema["type"].as_str() {
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        Some("integer") => value.as_f64().is_some_and(|v| v.fract() == 0.0),
        Some("number") => value.is_number(),
        Some("string") => value.is_string(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => true,
    };
    if !fits {
        return fail("has not the type");
    }
    let number = value.as_f64();
    let beyond = |key: &str, out: fn(f64, f64) -> bool| {
        number.zip(schema[key].as_f64()).is_some_and(|(v, limit)| out(v, limit))
    };
    if beyond("minimum", |v, low| v < low) || beyond("maximum", |v, high| v > high) {
        return fail("is out of range");
    }
    match value {
        Value::String(text) => string(schema, text).or_else(|what| fail(&what)),
        Value::Array(items) => {
            let count = |key: &str| schema[key].as_u64().map(|n| n as usize);
            if count("minItems").is_some_and(|n| items.len() < n)
                || count("maxItems").is_some_and(|n| items.len() > n)
            {
                return fail("has too few or too many items");
            }
            let of = &schema["items"];
            items.iter().filter(|_| of.is_object()).try_for_each(|item| valid(root, of, item))
        }
        Value::Object(map) => members(root, schema, map).or_else(|what| fail(&what)),
        _ => Ok(()),
    }
}

fn string(schema: &Value, text: &str) -> Result<(), String> {
    let length = text.chars().count() as u64;
    let digits = |part: &str, n: usize| part.len() == n && part.bytes().all(|b| b.is_ascii_digit());
    let date = || {
        let parts: Vec<&str> = text.split('-').collect();
        parts.len() == 3 && digits(parts[0], 4) && digits(parts[1], 2) && digits(parts[2], 2)
    };
    let pattern = || {
        let letters = text.trim_end_matches(|c: char| c.is_ascii_digit());
        (1..=3).contains(&letters.len())
            && letters.bytes().all(|b| (b'a'..=b'c').contains(&b))
            && text.len() - letters.len() <= 1
    };
    if schema["minLength"].as_u64().is_some_and(|n| length < n)
        || schema["maxLength"].as_u64().is_some_and(|n| length > n)
        || (schema["format"] == "date" && !date())
        || (schema["pattern"].is_string() && !pattern())
    {
        return Err("is not a text".to_string());
    }
    Ok(())
}

fn members(root: &Value, schema: &Value, map: &Map<String, Value>) -> Result<(), String> {
    for name in schema["required"].as_array().into_iter().flatten() {
        if !map.contains_key(name.as_str().unwrap_or_default()) {
            return Err(format!("lacks {name}"));
        }
    }
    for (name, value) in map {
        match schema["properties"].get(name) {
            Some(of) => valid(root, of, value)?,
            None if schema["additionalProperties"] == false => {
                return Err(format!("has a {name:?} too many"));
            }
            None => {}
        }
    }
    Ok(())
}
