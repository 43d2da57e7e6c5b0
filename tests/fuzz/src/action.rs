//! An action: the tree that a container runs.

use schemas::action::Action;

use crate::message::travels;

/// What is read as an action is written and read again as the same, in both forms.
///
/// # Panics
/// Where that doesn't hold.
pub fn check(bytes: &[u8]) {
    travels::<Action>(bytes);
}
