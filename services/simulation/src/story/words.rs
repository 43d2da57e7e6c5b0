//! Names of cells and services in stories.

use std::str::FromStr;

use scenario::words::Words;

use crate::layout;
use crate::shape::{Node, Shape};
pub use scenario::words::{Bad, Time};
use schemas::names::CellId;

/// Parses a cell. Returns its number from 0.
pub(super) fn cell(words: &mut Words, shape: Shape) -> Result<usize, Bad> {
    let expected = format!("a cell, c1 to c{}", shape.cells);
    words.read(&expected, |word| numbered(word, "c").filter(|cell| *cell < shape.cells))
}

/// Parses the id of a cell.
pub(super) fn cell_id(words: &mut Words, shape: Shape) -> Result<CellId, Bad> {
    cell(words, shape).map(layout::cell_id)
}

/// Parses the name of a service.
pub(super) fn node(words: &mut Words, shape: Shape) -> Result<Node, Bad> {
    let last = |name: &str, count: usize| format!("{name}1 to {name}{count}");
    let (bbss, auctioneers) = (last("bbs-", shape.bbss), last("auctioneer-", shape.auctioneers));
    let expected = format!("a service, {bbss}, {auctioneers} or {}", last("rep-c", shape.cells));
    words.read(&expected, |word| parse_node(word).filter(|node| shape.nodes().any(|other| other == *node)))
}

fn numbered(word: &str, prefix: &str) -> Option<usize> {
    usize::from_str(word.strip_prefix(prefix)?).ok()?.checked_sub(1)
}

fn parse_node(word: &str) -> Option<Node> {
    let bbs = numbered(word, "bbs-").map(Node::Bbs);
    let auctioneer = || numbered(word, "auctioneer-").map(Node::Auctioneer);
    bbs.or_else(auctioneer).or_else(|| numbered(word, "rep-c").map(Node::Rep))
}
