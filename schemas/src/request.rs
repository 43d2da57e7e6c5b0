//! Digests of requests.

/// Returns the digest of a command: its verb, and the 64-bit FNV-1a hash of its body as formatted by
/// [`crate::spec::ClientCommand::body`].
#[must_use]
pub fn digest((noun, verb): (&str, &str), body: &str) -> String {
    format!("{noun}.{verb}#{:016x}", crate::subject::fnv_1a(body))
}
