//! The list of mutations, read from `mutations.txt`: its head says how a mutation is written.

use crate::promises::Promise;

/// A rule, broken on purpose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mutation {
    /// Its name.
    pub name: String,
    /// What is broken, in a sentence.
    pub sentence: String,
    /// The promises of which at least one must be found broken.
    pub breaks: Vec<Promise>,
    /// Why it may take a thousand seeds to find it out; else empty.
    pub rare: String,
    /// Why a run of it never ends; else empty.
    pub endless: String,
    /// What is changed.
    pub changes: Vec<Change>,
}

/// A change of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The file, as the workspace names it.
    pub file: String,
    /// A text that stands once in the file, before what is changed and in the same function; empty: what is changed
    /// stands once in the file.
    pub after: String,
    /// An expression or a statement.
    pub original: String,
    /// What stands there instead.
    pub replacement: String,
}

/// Reads the list.
///
/// # Errors
/// What is wrong, and with which mutation.
pub fn read(text: &str) -> Result<Vec<Mutation>, String> {
    let mut mutations: Vec<Mutation> = vec![];
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        if !line.starts_with(' ') {
            mutations.push(Mutation { name: line.trim().to_owned(), ..Mutation::default() });
            continue;
        }
        let Some(mutation) = mutations.last_mut() else { return Err(format!("no mutation has {line:?}")) };
        mutation.take(line.trim()).map_err(|problem| format!("{}: {problem}", mutation.name))?;
    }
    for mutation in &mutations {
        mutation.check().map_err(|problem| format!("{}: {problem}", mutation.name))?;
    }
    let mut names: Vec<&str> = mutations.iter().map(|mutation| mutation.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("two mutations are called {}", pair[0])),
        None => Ok(mutations),
    }
}

impl Mutation {
    fn take(&mut self, line: &str) -> Result<(), String> {
        match line.split_once(' ') {
            Some(("breaks:", promises)) => {
                for name in promises.split_whitespace() {
                    self.breaks.push(Promise::named(name).ok_or(format!("{name} is not a promise"))?);
                }
            }
            Some(("rare:", why)) => why.trim().clone_into(&mut self.rare),
            Some(("endless:", why)) => why.trim().clone_into(&mut self.endless),
            Some(("at:", place)) => {
                let (file, after) = place.split_once(" after ").unwrap_or((place, ""));
                let (file, after) = (file.trim().to_owned(), after.trim().to_owned());
                self.changes.push(Change { file, after, ..Change::default() });
            }
            Some(("-", code)) => add(&mut self.change()?.original, code),
            Some(("+", code)) => add(&mut self.change()?.replacement, code),
            Some(_) if self.changes.is_empty() && self.breaks.is_empty() => add(&mut self.sentence, line),
            Some(_) | None => return Err(format!("{line:?} means nothing here")),
        }
        Ok(())
    }

    fn change(&mut self) -> Result<&mut Change, String> {
        self.changes.last_mut().ok_or_else(|| "an \"at:\" must come before code".to_owned())
    }

    fn check(&self) -> Result<(), String> {
        let kebab = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let whole = |change: &Change| !change.original.is_empty() && !change.replacement.is_empty();
        let wrong = [
            (!self.name.chars().all(kebab), "a name has small letters, digits and dashes"),
            (self.sentence.is_empty(), "it doesn't say what is broken"),
            (self.breaks.is_empty(), "it doesn't say which promise is broken"),
            (self.changes.is_empty(), "it changes nothing"),
            (!self.changes.iter().all(whole), "a change has an original and a replacement"),
        ];
        wrong.into_iter().find(|(wrong, _)| *wrong).map_or(Ok(()), |(_, problem)| Err(problem.to_owned()))
    }
}

/// Adds a line of code, or of a sentence, to what is there.
fn add(text: &mut String, line: &str) {
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(line.trim());
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "# A remark.

bad-limit
  The limit
  is bad.
  breaks: Quiet OneLife
  rare: two things at once
  endless: it goes round
  at: a/b.rs after fn limit
  - x < 3
  + x <= 3
  at: c.rs
  - a,
  - b
  + c
";

    #[test]
    fn a_mutation_is_read() {
        let change = |file: &str, after: &str, original: &str, replacement: &str| Change {
            file: file.into(),
            after: after.into(),
            original: original.into(),
            replacement: replacement.into(),
        };
        let expected = Mutation {
            name: "bad-limit".into(),
            sentence: "The limit\nis bad.".into(),
            breaks: vec![Promise::Quiet, Promise::OneLife],
            rare: "two things at once".into(),
            endless: "it goes round".into(),
            changes: vec![change("a/b.rs", "fn limit", "x < 3", "x <= 3"), change("c.rs", "", "a,\nb", "c")],
        };
        assert_eq!(read(LIST), Ok(vec![expected]));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let twice = format!("{LIST}\n{LIST}");
        assert_eq!(read(&twice), Err("two mutations are called bad-limit".into()));
        assert_eq!(read("a\n  - x"), Err("a: an \"at:\" must come before code".into()));
        assert_eq!(read("a\n  breaks: Nothing"), Err("a: Nothing is not a promise".into()));
        assert_eq!(read("a\n  It is bad."), Err("a: it doesn't say which promise is broken".into()));
    }
}
