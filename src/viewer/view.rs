//! The views, and how they are laid out at first.

use egui_tiles::{Container, Linear, LinearDir, Tile, TileId, Tiles, Tree};
use serde::{Deserialize, Serialize};

/// One pane of the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum View {
    Slots,
    Blocks,
    Timeline,
    Steps,
    Queue,
    Counters,
    Text,
    Chats,
    Kernels,
    Why,
    WhatIf,
}

impl View {
    pub const ALL: [Self; 11] = [
        Self::Slots,
        Self::Blocks,
        Self::Timeline,
        Self::Steps,
        Self::Queue,
        Self::Counters,
        Self::Text,
        Self::Chats,
        Self::Kernels,
        Self::Why,
        Self::WhatIf,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Self::Slots => "Slots",
            Self::Blocks => "KV blocks",
            Self::Timeline => "Timeline",
            Self::Steps => "Steps",
            Self::Queue => "Queue",
            Self::Counters => "Counters",
            Self::Text => "Text",
            Self::Chats => "Chats",
            Self::Kernels => "Kernels",
            Self::Why => "Why",
            Self::WhatIf => "What if",
        }
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Slots => "slots",
            Self::Blocks => "blocks",
            Self::Timeline => "timeline",
            Self::Steps => "steps",
            Self::Queue => "queue",
            Self::Counters => "counters",
            Self::Text => "text",
            Self::Chats => "chats",
            Self::Kernels => "kernels",
            Self::Why => "why",
            Self::WhatIf => "what-if",
        }
    }

    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|v| v.name() == name)
    }
}

/// Blocks and slots above, time below, the rest in tabs behind them.
pub fn first_layout() -> Tree<View> {
    let mut tiles = Tiles::default();
    let mut tabs = |views: &[View]| -> TileId {
        let panes = views.iter().map(|v| tiles.insert_pane(*v)).collect();
        tiles.insert_tab_tile(panes)
    };
    let blocks = tabs(&[View::Blocks, View::Kernels]);
    let slots = tabs(&[View::Slots, View::Queue, View::Text, View::Chats]);
    let time = tabs(&[View::Timeline, View::Steps, View::Counters, View::Why, View::WhatIf]);
    let above = Linear::new_binary(LinearDir::Horizontal, [blocks, slots], 0.42);
    let above = tiles.insert_new(Tile::Container(Container::Linear(above)));
    let all = Linear::new_binary(LinearDir::Vertical, [above, time], 0.5);
    let root = tiles.insert_new(Tile::Container(Container::Linear(all)));
    Tree::new(egui::Id::unique("tilewright views"), root, tiles)
}
