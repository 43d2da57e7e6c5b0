//! What services tell whoever watches them: metrics and probes (docs/operations.md, "Watching").
//!
//! Drivers count here what they see on their way: with atomic additions, whoever watches or not. What a machine holds is
//! asked of it, or of a picture of its World, when somebody looks.
//!
//! | the file | holds |
//! |---|---|
//! | this one | who watches, if anybody does |
//! | [`bbs`], [`auctioneer`], [`rep`], [`projector`] | what each service tells |
//! | [`commands`] | how long commands took, by verb and by outcome |
//! | [`lag`] | how far who follows the journal is behind it |

pub(crate) mod auctioneer;
pub(crate) mod bbs;
pub(crate) mod commands;
mod lag;
pub(crate) mod projector;
pub(crate) mod rep;

use std::sync::Arc;

use metrics::page::{Page, Source};

/// Who watches the services of this program, if anybody does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watching(Option<Page>);

impl Watching {
    /// Somebody reads this page.
    pub(crate) const fn by(page: Page) -> Self {
        Self(Some(page))
    }

    /// Whether anybody does.
    pub(crate) const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Has a service tell how it is.
    pub(super) fn add(&self, source: Arc<dyn Source>) {
        if let Some(page) = &self.0 {
            page.add(source);
        }
    }
}
