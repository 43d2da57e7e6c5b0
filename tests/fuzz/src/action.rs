//! Actions: the trees that containers run.

use schemas::action::Action;

use crate::message::check_round_trip;

/// Checks that an action is the same after encoding and decoding, in both forms.
///
/// # Panics
/// Panics if it is not.
pub fn check(bytes: &[u8]) {
    check_round_trip::<Action>(bytes);
}
