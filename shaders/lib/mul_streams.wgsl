// What every matmul reads, and what a tile of it is.
#import streams
#import x

// Rows of x that a tile has, and where its weights begin in the streams.
struct Tile {
    first: u32,
    end: u32,
    quants: u32, // vectors
    scales: u32, // words
}
