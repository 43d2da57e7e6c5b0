//! Validation and matching of subjects, patterns and groups. The functions check all messages and
//! subscriptions of the bus.

use schemas::limits::MESSAGE_BYTES;
use schemas::subject::EVENT_ROOT;

use super::{BusError, INBOX_ROOT};
use crate::limits::SUBJECT_BYTES;

/// Checks a message before it is sent.
pub(super) fn check_publish(subject: &str, payload: usize) -> Result<(), BusError> {
    check_subject(subject)?;
    if subject.starts_with(EVENT_ROOT) {
        return Err(BusError::Refused(format!("subject {subject} is reserved for the journal")));
    }
    if payload > MESSAGE_BYTES {
        return Err(BusError::Refused(format!(
            "message of {payload} bytes for {subject} is too large: at most {MESSAGE_BYTES} bytes"
        )));
    }
    Ok(())
}

/// Checks that `text` is the subject of one message: tokens separated by dots, without wildcards.
pub(super) fn check_subject(text: &str) -> Result<(), BusError> {
    check_tokens(text, "subject", |token| !matches!(token, "*" | ">"))
}

/// Checks that `text` is a pattern. `*` matches one token, and `>` at the end matches one or more tokens.
pub(super) fn check_pattern(text: &str) -> Result<(), BusError> {
    let body = text.strip_suffix(".>").unwrap_or(if text == ">" { "*" } else { text });
    check_tokens(body, "pattern", |token| token != ">")?;
    check_tokens(text, "pattern", |_| true)
}

/// Returns `true` if a pattern matches a subject. `*` and `>` in the subject are ordinary tokens, because a
/// server accepts them in subjects.
pub(super) fn matches(pattern: &str, subject: &str) -> bool {
    let (mut pattern, mut subject) = (pattern.split('.'), subject.split('.'));
    loop {
        match (pattern.next(), subject.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some("*"), Some(_)) => {}
            (Some(one), Some(other)) if one == other => {}
            (Some(_) | None, Some(_)) | (Some(_), None) => return false,
        }
    }
}

/// Checks that `text` is the name of a group: one token.
pub(super) fn check_group(text: &str) -> Result<(), BusError> {
    check_tokens(text, "group", |token| token.len() == text.len() && !matches!(token, "*" | ">"))
}

/// Checks that `text` is a valid prefix of reply subjects.
pub(crate) fn check_inbox(text: &str) -> Result<(), BusError> {
    check_subject(text)?;
    if text.starts_with(INBOX_ROOT) {
        return Ok(());
    }
    Err(BusError::Refused(format!("invalid inbox {text:?}: expected a subject below {INBOX_ROOT}")))
}

fn check_tokens(text: &str, what: &str, word: impl Fn(&str) -> bool) -> Result<(), BusError> {
    let plain = |byte: u8| byte > b' ' && byte != 0x7f;
    let is_word = |token: &str| !token.is_empty() && token.bytes().all(plain) && word(token);
    if text.len() <= SUBJECT_BYTES && text.split('.').all(is_word) {
        return Ok(());
    }
    Err(BusError::Refused(format!("{:?} is not a valid {what}", schemas::limits::truncate(text, 80))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subject_requires_tokens_without_wildcards() {
        for good in ["a", "muster.cell.c1.bbs.claim", "a*b.c", "$SYS.x"] {
            assert!(check_subject(good).is_ok(), "{good}");
        }
        for bad in
            ["", ".", "a.", ".a", "a..b", "a b", "a.*", "a.>", "a\r\nPUB b 0", "a\tb", &"x".repeat(600)]
        {
            assert!(check_subject(bad).is_err(), "{bad:?}");
            assert!(check_publish(bad, 0).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn pattern_accepts_wildcards() {
        for good in ["a", "*", ">", "a.*.c", "a.>", "*.>"] {
            assert!(check_pattern(good).is_ok(), "{good}");
        }
        for bad in ["", "a.>.b", ">.>", ">.a", "a..>", "a b"] {
            assert!(check_pattern(bad).is_err(), "{bad:?}");
        }
        assert!(check_group("bbs").is_ok() && check_group("a.b").is_err() && check_group("*").is_err());
    }

    #[test]
    fn pattern_matches_subjects() {
        for (pattern, subject) in
            [("a.b", "a.b"), ("a.*", "a.b"), ("a.>", "a.b.c"), (">", "a"), ("a.*", "a.>"), ("a.*", "a.*")]
        {
            assert!(matches(pattern, subject), "{pattern} {subject}");
        }
        for (pattern, subject) in [("a.b", "a.c"), ("a.*", "a.b.c"), ("a.>", "a"), ("a", "a.b"), ("a.b", "a")]
        {
            assert!(!matches(pattern, subject), "{pattern} {subject}");
        }
    }

    #[test]
    fn journal_subjects_are_refused() {
        assert!(check_publish("muster.event.cluster", 0).is_err());
        assert!(check_publish("muster.query.events.read", 0).is_ok());
        assert!(check_publish("muster.query.events.read", MESSAGE_BYTES + 1).is_err());
        assert!(check_inbox("muster.inbox.bbs").is_ok() && check_inbox("muster.event.x").is_err());
    }
}
