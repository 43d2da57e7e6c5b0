//! Cursor over the words of a line, and the syntax of each kind of value.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Syntax error of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// Line number, from 1.
    pub line: usize,
    /// Expected and actual words.
    pub why: String,
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl std::error::Error for Bad {}

/// Word, quoted text, or word directly followed by quoted text, such as `result="all is well"`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Token {
    word: String,
    quoted: Option<String>,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.word)?;
        self.quoted.as_ref().map_or(Ok(()), |text| write!(f, "{}", Quoted(text)))
    }
}

/// Cursor over the words of a line, at the first unread word.
#[derive(Clone, Debug)]
pub struct Words {
    line: usize,
    tokens: Vec<Token>,
    at: usize,
}

impl Words {
    /// Splits a line into words, without its comment. A comma and a colon after a word are separate words.
    pub fn new(line: usize, text: &str) -> Result<Self, Bad> {
        let mut tokens = vec![];
        let mut rest = text.trim_start();
        while !rest.is_empty() && !rest.starts_with('#') {
            let ends = |c: char| c.is_whitespace() || c == '"' || c == ',';
            let length = rest.find(ends).unwrap_or(rest.len()).max(usize::from(rest.starts_with(',')));
            let (word, behind) = rest.split_at(length);
            let (quoted, behind) = match behind.strip_prefix('"') {
                Some(text) if word != "," => {
                    let (text, behind) = unquoted(text).ok_or_else(|| Bad {
                        line,
                        why: "a text in quotes has no end, or a \\ that is none of \\\\, \\\" and \\n".into(),
                    })?;
                    (Some(text), behind)
                }
                Some(_) | None => (None, behind),
            };
            let named = word.strip_suffix(':').filter(|word| !word.is_empty() && quoted.is_none());
            tokens.push(Token { word: named.unwrap_or(word).to_owned(), quoted });
            tokens.extend(named.map(|_| Token { word: ":".into(), quoted: None }));
            rest = behind.trim_start();
        }
        Ok(Self { line, tokens, at: 0 })
    }

    /// Returns `true` if the line has no words.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Returns an error for the line.
    pub fn bad(&self, why: impl Into<String>) -> Bad {
        Bad { line: self.line, why: why.into() }
    }

    /// Returns an error that names the next word and the expected one.
    pub fn wrong(&self, expected: &str) -> Bad {
        let found = self.tokens.get(self.at);
        let found = found.map_or_else(|| "the end of the line".to_owned(), |token| format!("`{token}`"));
        let before = self.at.checked_sub(1).and_then(|at| self.tokens.get(at));
        let behind = before.map_or_else(String::new, |token| format!(" behind `{token}`"));
        self.bad(format!("found {found}{behind}, expected {expected}"))
    }

    fn peek_at(&self, ahead: usize) -> Option<&str> {
        let token = self.tokens.get(self.at + ahead)?;
        token.quoted.is_none().then_some(token.word.as_str())
    }

    /// Returns the next word without consuming it.
    #[must_use]
    pub fn peek(&self) -> Option<&str> {
        self.peek_at(0)
    }

    /// Consumes these words if they come next. Returns `true` if it did.
    pub fn take(&mut self, words: &str) -> bool {
        let there = words.split(' ').enumerate().all(|(ahead, word)| self.peek_at(ahead) == Some(word));
        if there {
            self.at += words.split(' ').count();
        }
        there
    }

    /// Consumes these words, or fails if they do not come next.
    pub fn must(&mut self, words: &str) -> Result<(), Bad> {
        if self.take(words) { Ok(()) } else { Err(self.wrong(&format!("`{words}`"))) }
    }

    /// Fails if any words are left.
    pub fn end(&self) -> Result<(), Bad> {
        if self.at == self.tokens.len() { Ok(()) } else { Err(self.wrong("nothing more")) }
    }

    /// Consumes and parses the next word.
    pub fn read<T>(&mut self, expected: &str, read: impl FnOnce(&str) -> Option<T>) -> Result<T, Bad> {
        let value = self.peek().and_then(read).ok_or_else(|| self.wrong(expected))?;
        self.at += 1;
        Ok(value)
    }

    /// Reads a name. `what` names its kind in the error.
    pub fn name<T: FromStr>(&mut self, what: &str) -> Result<T, Bad> {
        self.read(what, |word| word.parse().ok())
    }

    /// Consumes the next word if it is a number.
    pub fn take_number<T: FromStr>(&mut self) -> Option<T> {
        let number = self.peek_at(0)?.parse().ok()?;
        self.at += 1;
        Some(number)
    }

    /// Reads a number.
    pub fn number<T: FromStr>(&mut self) -> Result<T, Bad> {
        self.read("a number", |word| word.parse().ok())
    }

    /// Reads a duration.
    pub fn duration(&mut self) -> Result<Duration, Bad> {
        self.read("a time, as 200ms, 12s or 5m", duration)
    }

    /// Parses `for 10s`.
    pub fn for_time(&mut self) -> Result<Duration, Bad> {
        self.must("for")?;
        self.duration()
    }

    /// Consumes a quoted text if it comes next.
    pub fn take_quoted(&mut self) -> Option<String> {
        let token = self.tokens.get(self.at).filter(|token| token.word.is_empty())?;
        let text = token.quoted.clone()?;
        self.at += 1;
        Some(text)
    }

    /// Consumes the next word and returns it as a separate cursor.
    pub fn take_word(&mut self) -> Option<Self> {
        let token = self.tokens.get(self.at)?.clone();
        self.at += 1;
        Some(Self { line: self.line, tokens: vec![token], at: 0 })
    }

    /// Consumes `name=value` or `name="value"` if it comes next. Returns the value as a separate cursor.
    pub fn take_option(&mut self, name: &str) -> Option<Self> {
        let token = self.tokens.get(self.at)?;
        let value = token.word.strip_prefix(name)?.strip_prefix('=')?;
        let value = Token { word: value.to_owned(), quoted: token.quoted.clone() };
        self.at += 1;
        let given = if value.word.is_empty() && value.quoted.is_none() { vec![] } else { vec![value] };
        Some(Self { line: self.line, tokens: given, at: 0 })
    }
}

/// Returns the text up to its closing quote, and the rest after the quote.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut inner = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((inner, &text[at + 1..])),
            '\\' => inner.push(match characters.next()?.1 {
                'n' => '\n',
                same @ ('\\' | '"') => same,
                _ => return None,
            }),
            other => inner.push(other),
        }
    }
    None
}

/// Text that displays in quotes.
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        write!(f, "\"{text}\"")
    }
}

/// Duration that displays with millisecond precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        match (millis, millis % 1_000) {
            (0, _) => f.write_str("0s"),
            (_, 0) if millis.is_multiple_of(60_000) => write!(f, "{}m", millis / 60_000),
            (_, 0) => write!(f, "{}s", millis / 1_000),
            (..1_000, part) => write!(f, "{part}ms"),
            (_, part) => {
                let part = format!("{part:03}");
                write!(f, "{}.{}s", millis / 1_000, part.trim_end_matches('0'))
            }
        }
    }
}

/// Parses `200ms`, `12s`, `12.4s` or `5m`.
pub fn duration(text: &str) -> Option<Duration> {
    let plain = |number: &str| number.bytes().all(|byte| byte.is_ascii_digit()) && !number.is_empty();
    let whole = |number: &str| number.parse::<u64>().ok().filter(|_| plain(number));
    if let Some(millis) = text.strip_suffix("ms") {
        return whole(millis).map(Duration::from_millis);
    }
    if let Some(minutes) = text.strip_suffix('m') {
        return whole(minutes)?.checked_mul(60).map(Duration::from_secs);
    }
    let seconds = text.strip_suffix('s')?;
    let (seconds, part) = seconds.split_once('.').unwrap_or((seconds, "0"));
    let millis = whole(&format!("{part:0<3}")).filter(|_| part.len() <= 3 && plain(part))?;
    Some(Duration::from_secs(whole(seconds)?) + Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        for millis in [0, 1, 20, 999, 1_000, 1_001, 1_200, 59_999, 60_000, 61_000, 300_000, 7_200_050] {
            let time = Duration::from_millis(millis);
            assert_eq!(duration(&Time(time).to_string()), Some(time), "{}", Time(time));
        }
        assert_eq!(duration("12.4s"), Some(Duration::from_millis(12_400)));
        for bad in ["", "s", "12", "1.2345s", "1.s", ".5s", "-1s", "+1s", "1h", "1.5m", "ms"] {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_line_is_words_and_texts() {
        let mut words = Words::new(3, r#"  a b: 3, result="x \"y\"\n # z" "" # and no more"#).unwrap();
        assert!(words.take("a b :") && !words.take("b"));
        assert_eq!(words.number::<u32>(), Ok(3));
        assert!(words.take(","));
        let mut value = words.take_option("result").unwrap();
        assert_eq!(value.take_quoted().as_deref(), Some("x \"y\"\n # z"));
        assert_eq!(
            words.wrong("x").to_string(),
            r#"line 3: found `""` behind `result="x \"y\"\n # z"`, expected x"#
        );
        assert_eq!(words.take_quoted().as_deref(), Some(""));
        assert_eq!(words.end(), Ok(()));
        assert!(Words::new(1, "\"never").is_err() && Words::new(1, r#""\q""#).is_err());
    }
}
