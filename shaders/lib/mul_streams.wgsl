// What every matmul reads, and what a tile of it is.
#import words

@group(0) @binding(1) var<storage, read> quants: array<Words>;
@group(0) @binding(2) var<storage, read> scales: array<u32>;
@group(0) @binding(3) var<storage, read> x: array<Words>;

// Rows of x that a tile has, and where its weights begin in the streams.
struct Tile {
    first: u32,
    end: u32,
    quants: u32, // vectors
    scales: u32, // words
}
