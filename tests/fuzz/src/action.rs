//! An action: the tree that a container runs.

use schemas::action::Action;
use schemas::codec::{Form, decode, encode};

/// What is read as an action is written and read again as the same, in both forms.
///
/// # Panics
/// Where that doesn't hold.
pub fn check(bytes: &[u8]) {
    let Ok((action, _)) = decode::<Action>(bytes) else { return };
    for form in [Form::Json, Form::Postcard] {
        let (again, read) = decode::<Action>(&encode(form, &action)).expect("what was written is read");
        assert_eq!((again, read), (action.clone(), form));
    }
}
