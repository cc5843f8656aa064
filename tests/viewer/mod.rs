//! Rows of `viewer`: the past of a stream, the window driven as a person does, and its pictures.

mod chats;
mod drive;
mod past;
mod pictures;
mod scene;

use crate::support::Rows;

pub fn rows(rows: &mut Rows) {
    past::rows(rows);
    chats::rows(rows);
    drive::rows(rows);
    pictures::rows(rows);
}
