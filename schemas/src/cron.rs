//! Cron expressions: the five fields of `crontab`, without extensions. Each field is parsed here, so that a
//! refusal names the field and its valid values. The library that computes the times receives the expression
//! in its simplest form.
//!
//! An item of a field is `*`, a value, or a range, optionally with a step: `*/15`, `5`, `8-18/2`, `MON-FRI`.
//! If both the day of the month and the day of the week are set, a day has to match one of them. If either
//! begins with `*`, a day has to match both, as in cronie.

use std::ops::RangeInclusive;

/// Shorthands for a whole expression.
const SHORTHANDS: [&str; 5] = ["@hourly", "@daily", "@weekly", "@monthly", "@yearly"];

/// A field of an expression.
struct Field {
    name: &'static str,
    range: RangeInclusive<u8>,
    /// Names of the values, starting with the first value of the range.
    names: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field { name: "minute", range: 0..=59, names: &[] },
    Field { name: "hour", range: 0..=23, names: &[] },
    Field { name: "day", range: 1..=31, names: &[] },
    Field {
        name: "month",
        range: 1..=12,
        names: &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
    },
    Field { name: "weekday", range: 0..=7, names: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"] },
];

/// Indices of the fields for days.
const DAY: usize = 2;
const WEEKDAY: usize = 4;

/// Converts an expression to numbers. The weekday gets the prefix `+` if a day has to match both day fields.
///
/// # Errors
///
/// The invalid field and its valid values.
pub(crate) fn to_numeric(cron: &str) -> Result<String, String> {
    if cron.starts_with('@') {
        let known = SHORTHANDS.contains(&cron.to_ascii_lowercase().as_str());
        let all = SHORTHANDS.join(", ");
        return known.then(|| cron.to_owned()).ok_or_else(|| format!("use one of {all}"));
    }
    let parts: Vec<&str> = cron.split_whitespace().collect();
    if parts.len() != FIELDS.len() {
        return Err(format!("it has {} fields", parts.len()));
    }
    let mut fields: Vec<String> =
        FIELDS.iter().zip(&parts).map(|(field, text)| field.to_numeric(text)).collect::<Result<_, _>>()?;
    if parts[DAY].starts_with('*') || parts[WEEKDAY].starts_with('*') {
        fields[WEEKDAY].insert(0, '+');
    }
    Ok(fields.join(" "))
}

impl Field {
    fn to_numeric(&self, text: &str) -> Result<String, String> {
        let items: Vec<String> = text.split(',').map(|item| self.item(item)).collect::<Result<_, _>>()?;
        Ok(items.join(","))
    }

    fn item(&self, item: &str) -> Result<String, String> {
        let (values, step) = match item.split_once('/') {
            None => (item, None),
            Some((values, step)) => (values, Some(self.step(item, step)?)),
        };
        let last = *self.range.end();
        let values = match (values, values.split_once('-'), step) {
            ("*", _, _) => "*".to_owned(),
            (_, Some((from, to)), _) => self.values(item, from, to)?,
            // A step without a range extends to the last value.
            (from, None, Some(_)) => format!("{}-{last}", self.value(item, from)?),
            (value, None, None) => self.value(item, value)?.to_string(),
        };
        Ok(step.map_or_else(|| values.clone(), |step| format!("{values}/{step}")))
    }

    fn values(&self, item: &str, from: &str, to: &str) -> Result<String, String> {
        let (from, to) = (self.value(item, from)?, self.value(item, to)?);
        // Sunday is both 0 and 7: at the end of a range it is 7.
        let to = if to == 0 && *self.range.end() == 7 { 7 } else { to };
        if from > to {
            return Err(format!("the range {item} of the {} ends before it starts", self.name));
        }
        Ok(format!("{from}-{to}"))
    }

    fn value(&self, item: &str, text: &str) -> Result<u8, String> {
        let named = self.names.iter().position(|name| name.eq_ignore_ascii_case(text));
        let named = named.and_then(|at| u8::try_from(at).ok()).map(|at| at + self.range.start());
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = is_number.then(|| text.parse().ok()).flatten();
        named.or(number).filter(|value| self.range.contains(value)).ok_or_else(|| {
            let (from, to) = (self.range.start(), self.range.end());
            let names = match (self.names.first(), self.names.last()) {
                (Some(first), Some(last)) => format!(" or {first} to {last}"),
                (Some(_) | None, _) => String::new(),
            };
            format!("invalid {} {item:?}: use {from} to {to}{names}, a range, a list or *", self.name)
        })
    }

    fn step(&self, item: &str, step: &str) -> Result<u8, String> {
        let most = *self.range.end();
        let number = step.parse().ok().filter(|step| (1..=most).contains(step));
        number.ok_or_else(|| format!("invalid step of the {} {item:?}: use 1 to {most}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::to_numeric;

    #[test]
    fn expressions_parse_like_crontab() {
        for (cron, numbers) in [
            ("*/15 8-18/2 1,15 JAN-mar MON-FRI", "*/15 8-18/2 1,15 1-3 1-5"),
            ("5/10 0 * * *", "5-59/10 0 * * +*"),
            ("0 0 */2 * MON", "0 0 */2 * +1"),
            ("0 0 13 * FRI-SUN", "0 0 13 * 5-7"),
            ("@DAILY", "@DAILY"),
        ] {
            assert_eq!(to_numeric(cron).as_deref(), Ok(numbers), "{cron}");
        }
        for (cron, problem) in [
            ("*/90 * * * *", "invalid step of the minute \"*/90\": use 1 to 59"),
            ("0 24 * * *", "invalid hour \"24\": use 0 to 23, a range, a list or *"),
            ("0 0 1 January *", "invalid month \"January\": use 1 to 12 or JAN to DEC, a range, a list or *"),
            ("0 0 L * *", "invalid day \"L\": use 1 to 31, a range, a list or *"),
            ("0 0 15W * *", "invalid day \"15W\": use 1 to 31, a range, a list or *"),
            ("0 0 * * FRI#2", "invalid weekday \"FRI#2\": use 0 to 7 or SUN to SAT, a range, a list or *"),
            ("0 0 * * +MON", "invalid weekday \"+MON\": use 0 to 7 or SUN to SAT, a range, a list or *"),
            ("0 0 * * FRI-MON", "the range FRI-MON of the weekday ends before it starts"),
            ("@midnight", "use one of @hourly, @daily, @weekly, @monthly, @yearly"),
            ("CRON_TZ=UTC 0 0 * * *", "it has 6 fields"),
        ] {
            assert_eq!(to_numeric(cron), Err(problem.to_owned()), "{cron}");
        }
    }
}
