//! Settings that are one of a few words: their names in one table, for flags, files and variants.

/// `ALL`, `name`, Display and FromStr of an enum by the names of its values.
macro_rules! named {
    ($type:ident, $what:literal, $($value:ident => $name:literal),+) => {
        impl $type {
            pub const ALL: [$type; [$($name),+].len()] = [$($type::$value),+];

            /// The name used in flags, variants and shader files.
            pub fn name(self) -> &'static str {
                match self {
                    $($type::$value => $name),+
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                $type::ALL.into_iter().find(|one| one.name() == text).ok_or_else(|| {
                    let names = $type::ALL.map($type::name).join(", ");
                    format!("`{text}` is not {}; there are {names}", $what)
                })
            }
        }
    };
}

pub(super) use named;
