//! Mutations written into a source beside the code that they replace: one build has them all, and each run has the one
//! that an environment variable names.

use std::ops::Range;

use super::list::Change;

/// The environment variable that names the mutation of a run.
pub const VARIABLE: &str = "MUSTER_MUTATION";

/// What a crate's root gets, so that the places in it can ask.
#[must_use]
pub fn mutated() -> String {
    format!(
        r#"
pub(crate) fn mutated(number: usize) -> bool {{
    static ON: std::sync::OnceLock<Option<usize>> = std::sync::OnceLock::new();
    let read = || std::env::var("{VARIABLE}").ok()?.parse().ok();
    *ON.get_or_init(read) == Some(number)
}}
"#
    )
}

/// A change, with the number and the name of its mutation.
pub type Numbered<'a> = (usize, &'a str, &'a Change);

/// The source with every change in it, each asleep until its number is called.
///
/// # Errors
/// A change whose original isn't where it is said to be, or of which that isn't clear.
pub fn write(source: &str, changes: &[Numbered<'_>]) -> Result<String, String> {
    let mut edits = vec![];
    let mut ranges: Vec<(Range<usize>, &str)> = vec![];
    for (number, name, change) in changes {
        let range = find(source, change).map_err(|problem| format!("{name}: {}: {problem}", change.file))?;
        let (range, replacement) = value_of_arm(source, range, change);
        if let Some((_, other)) = ranges.iter().find(|(known, _)| is_torn(known, &range)) {
            return Err(format!("{name}: {}: it tears what {other} changes", change.file));
        }
        let (open, close) = if is_statement(&source[range.clone()]) { ("", "}") } else { ("(", "})") };
        edits.push(Edit::insert(
            range.start,
            (1, usize::MAX - range.len(), *number),
            format!("{open}if crate::mutated({number}) /* {name} */ {{ {replacement} }} else {{ "),
        ));
        edits.push(Edit::insert(range.end, (0, range.len(), *number), format!(" {close}")));
        edits.extend(constness(source, range.start));
        ranges.push((range, name));
    }
    Ok(apply(source, edits))
}

/// Of the arm of a `match` only the value changes: there can be no `if` around a pattern.
fn value_of_arm<'a>(source: &str, range: Range<usize>, change: &'a Change) -> (Range<usize>, &'a str) {
    const ARROW: &str = " => ";
    let whole = (range.clone(), change.replacement.as_str());
    let Some((pattern, value)) = change.replacement.split_once(ARROW) else { return whole };
    let same = change.original.split_once(ARROW).is_some_and(|(before, _)| before == pattern);
    let code = &source[range.clone()];
    match (code.find(ARROW).filter(|_| same), code.strip_suffix(','), value.strip_suffix(',')) {
        (Some(arrow), Some(arm), Some(value)) => {
            (range.start + arrow + ARROW.len()..range.start + arm.len(), value)
        }
        (Some(_) | None, _, _) => whole,
    }
}

/// Where a change's original stands.
fn find(source: &str, change: &Change) -> Result<Range<usize>, String> {
    let area = if change.after.is_empty() {
        0..source.len()
    } else {
        let anchor = only(places(source, &change.after), &change.after)?;
        anchor.end..end_of_function(source, anchor.start)
    };
    let found = places(&source[area.clone()], &change.original);
    let first = if change.after.is_empty() {
        only(found, &change.original)?
    } else {
        found.into_iter().next().ok_or_else(|| format!("{:?} is not there", change.original))?
    };
    Ok(area.start + first.start..area.start + first.end)
}

fn only(found: Vec<Range<usize>>, text: &str) -> Result<Range<usize>, String> {
    match <[Range<usize>; 1]>::try_from(found) {
        Ok([range]) => Ok(range),
        Err(found) => Err(format!("{text:?} is there {} times, not once", found.len())),
    }
}

/// Where a text stands, however it is broken into lines.
fn places(source: &str, text: &str) -> Vec<Range<usize>> {
    let Some(first) = text.chars().next() else { return vec![] };
    let starts = source.match_indices(first).map(|(at, _)| at);
    let ranges = starts.filter_map(|at| Some(at..end_of(&source[at..], text)? + at));
    ranges.filter(|range| !is_part_of_word(source, range)).collect()
}

/// How far a text reaches into a source that begins with it, blanks aside.
fn end_of(source: &str, text: &str) -> Option<usize> {
    let mut letters = source.char_indices().filter(|(_, letter)| !letter.is_whitespace());
    let mut end = 0;
    for wanted in text.chars().filter(|letter| !letter.is_whitespace()) {
        let (at, letter) = letters.next()?;
        if letter != wanted {
            return None;
        }
        end = at + letter.len_utf8();
    }
    Some(end)
}

/// Whether a range begins or ends within a word.
fn is_part_of_word(source: &str, range: &Range<usize>) -> bool {
    let of_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let joined = |at: usize| {
        let (before, behind) = (source[..at].chars().next_back(), source[at..].chars().next());
        before.is_some_and(of_word) && behind.is_some_and(of_word)
    };
    joined(range.start) || joined(range.end)
}

/// The line that begins the function in which this place is: where it stands, and its text.
fn function(source: &str, place: usize) -> Option<(usize, &str)> {
    let mut before = 0;
    let lines = source.split_inclusive('\n').map(|line| {
        let start = before;
        before += line.len();
        (start, line)
    });
    let begins = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().take(4).collect();
        let name = words.iter().position(|word| *word == "fn");
        name.is_some_and(|name| words[..name].iter().all(|word| *word == "const" || word.starts_with("pub")))
    };
    lines.take_while(|(start, _)| *start <= place).filter(|(_, line)| begins(line)).last()
}

/// Where the function ends in which this place is: at the brace below its first letter.
fn end_of_function(source: &str, place: usize) -> usize {
    let Some((start, line)) = function(source, place) else { return source.len() };
    let indent = &line[..line.len() - line.trim_start().len()];
    let end = source[start..].find(&format!("\n{indent}}}\n"));
    end.map_or(source.len(), |end| start + end)
}

/// A function that asks whether it is mutated is not constant.
fn constness(source: &str, place: usize) -> Option<Edit> {
    let (start, line) = function(source, place)?;
    let at = start + line.find("const fn ")?;
    Some(Edit { range: at..at + "const ".len(), order: (1, 0, 0), insert: String::new() })
}

fn is_statement(code: &str) -> bool {
    code.ends_with([';', '}'])
}

/// Whether two ranges overlap and neither lies in the other.
const fn is_torn(one: &Range<usize>, other: &Range<usize>) -> bool {
    let apart = one.end <= other.start || other.end <= one.start;
    let within = one.start <= other.start && other.end <= one.end;
    let around = other.start <= one.start && one.end <= other.end;
    !(apart || within || around)
}

/// Something to leave out or to put in.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Edit {
    range: Range<usize>,
    /// Which of several at one place comes first: what ends before what begins; the outer begins first, the inner ends
    /// first.
    order: (u8, usize, usize),
    insert: String,
}

impl Edit {
    const fn insert(at: usize, order: (u8, usize, usize), insert: String) -> Self {
        Self { range: at..at, order, insert }
    }
}

fn apply(source: &str, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|edit| (edit.range.start, edit.order));
    edits.dedup();
    let mut written = String::new();
    let mut at = 0;
    for edit in edits {
        written.push_str(&source[at..edit.range.start]);
        written.push_str(&edit.insert);
        at = edit.range.end;
    }
    written + &source[at..]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "pub const fn a(x: u32) -> bool {
    x < 3
}

fn b(x: u32) -> bool {
    if x > 7 {
        return false;
    }
    x < 3 && c(
        x
    )
}
";

    fn change(after: &str, original: &str, replacement: &str) -> Change {
        let [after, original, replacement] = [after, original, replacement].map(str::to_owned);
        Change { file: "x.rs".into(), after, original, replacement }
    }

    #[test]
    fn a_mutation_sleeps_beside_the_code_that_it_replaces() {
        let one = change("fn a", "x < 3", "x < 4");
        let two = change("fn b", "if x > 7 { return false; }", "{}");
        let three = change("", "c( x )", "true");
        let written = write(SOURCE, &[(1, "one", &one), (2, "two", &two), (3, "three", &three)]);
        let expected = "pub fn a(x: u32) -> bool {
    (if crate::mutated(1) /* one */ { x < 4 } else { x < 3 })
}

fn b(x: u32) -> bool {
    if crate::mutated(2) /* two */ { {} } else { if x > 7 {
        return false;
    } }
    x < 3 && (if crate::mutated(3) /* three */ { true } else { c(
        x
    ) })
}
";
        assert_eq!(written.as_deref(), Ok(expected));
    }

    #[test]
    fn one_mutation_may_lie_within_another() {
        let (inner, outer) = (change("fn b", "x < 3", "false"), change("", "x < 3 && c( x )", "true"));
        let written = write(SOURCE, &[(1, "in", &inner), (2, "out", &outer)]).unwrap();
        let inner = "(if crate::mutated(1) /* in */ { false } else { x < 3 })";
        let both = format!("(if crate::mutated(2) /* out */ {{ true }} else {{ {inner} && c(");
        assert!(written.contains(&both), "{written}");
    }

    #[test]
    fn of_an_arm_only_the_value_changes() {
        let source =
            "fn a(x: u32) -> bool {\n    match x {\n        1 | 2 => b(x),\n        _ => false,\n    }\n}\n";
        let arm = change("", "1 | 2 => b(x),", "1 | 2 => true,");
        let written = write(source, &[(1, "arm", &arm)]).unwrap();
        assert!(
            written.contains("1 | 2 => (if crate::mutated(1) /* arm */ { true } else { b(x) }),"),
            "{written}"
        );
    }

    #[test]
    fn an_original_that_is_gone_or_not_alone_is_named() {
        let says = |change: &Change| write(SOURCE, &[(1, "one", change)]).unwrap_err();
        assert_eq!(says(&change("", "x < 5", "1")), "one: x.rs: \"x < 5\" is there 0 times, not once");
        assert_eq!(says(&change("", "x < 3", "1")), "one: x.rs: \"x < 3\" is there 2 times, not once");
        assert_eq!(says(&change("fn a", "x > 7", "1")), "one: x.rs: \"x > 7\" is not there");
    }
}
