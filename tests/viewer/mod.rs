//! Rows of `viewer`: the past of a stream, the window driven as a person does, and its pictures.

mod blocks;
mod chats;
mod drive;
mod out;
mod past;
mod pictures;
mod queue;
mod reading;
mod scene;
mod time;
mod what_if;
mod why;

use crate::support::Rows;

pub fn rows(rows: &mut Rows) {
    past::rows(rows);
    chats::rows(rows);
    drive::rows(rows);
    blocks::rows(rows);
    what_if::rows(rows);
    why::rows(rows);
    time::rows(rows);
    queue::rows(rows);
    out::rows(rows);
    reading::rows(rows);
    pictures::rows(rows);
}
