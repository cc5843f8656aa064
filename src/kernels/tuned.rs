//! What was measured on a device (`tilewright tune`), as a file that only this device, driver and
//! build take.

use super::sources::stamp;
use crate::record::{Facts, Tuned};
use serde::{Deserialize, Serialize};

/// A file of choices.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TunedFile {
    pub tilewright: String,
    /// Of the shaders: [`stamp`].
    pub shaders: String,
    pub name: String,
    pub backend: String,
    pub driver: String,
    pub products: Vec<Tuned>,
}

impl TunedFile {
    /// A file for a device with `facts`, empty.
    pub fn of(facts: &Facts) -> Self {
        Self {
            tilewright: env!("CARGO_PKG_VERSION").to_string(),
            shaders: format!("{:016x}", stamp()),
            name: facts.name.clone(),
            backend: facts.backend.clone(),
            driver: facts.driver.clone(),
            products: Vec::new(),
        }
    }

    /// The choices in `text`, if they were measured on a device with `facts` by this build.
    pub fn read(text: &[u8], facts: &Facts) -> Result<Vec<Tuned>, String> {
        let file: Self = serde_json::from_slice(text).map_err(|e| format!("it is damaged: {e}"))?;
        let fits = Self { products: file.products.clone(), ..Self::of(facts) };
        if file != fits {
            return Err("it is of another device, driver or build".to_string());
        }
        Ok(file.products)
    }

    /// Puts `product` in, in place of what was known of its shape.
    pub fn put(&mut self, product: Tuned) {
        let shape = |t: &Tuned| (t.format, t.activations, t.rows, t.cols);
        self.products.retain(|old| shape(old) != shape(&product));
        self.products.push(product);
    }
}
