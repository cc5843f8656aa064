//! `strftime` as Python writes it in the C locale, in UTC: date lines of prompts and of reports.

use std::fmt::Write;

const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

struct Moment {
    year: i64,
    /// 0..12
    month: usize,
    day: i64,
    /// 0 = Sunday
    weekday: usize,
    /// 1..=366
    year_day: i64,
    hour: i64,
    minute: i64,
    second: i64,
}

/// Writes `seconds` since 1970 as `format` says; an unknown directive is an error naming it.
pub fn strftime(format: &str, seconds: i64) -> Result<String, String> {
    let moment = Moment::of(seconds);
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let directive = chars.next();
        let (unpadded, directive) =
            if directive == Some('-') { (true, chars.next()) } else { (false, directive) };
        let unknown = || format!("strftime_now: unknown directive in `{format}`");
        let text = moment.write(directive.ok_or_else(unknown)?).ok_or_else(unknown)?;
        match unpadded {
            // "00" keeps one digit.
            true => out.push_str(text[..text.len() - 1].trim_start_matches(['0', ' '])),
            false => out.push_str(&text[..text.len() - 1]),
        }
        out.push_str(&text[text.len() - 1..]);
    }
    Ok(out)
}

impl Moment {
    fn of(seconds: i64) -> Self {
        let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        // Days from 0000-03-01, in eras of 400 years (Hinnant's civil_from_days).
        let z = days + 719_468;
        let (era, doe) = (z.div_euclid(146_097), z.rem_euclid(146_097));
        let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
        let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
        let mp = (5 * doy + 2) / 153;
        let month = if mp < 10 { mp + 2 } else { mp - 10 };
        let year = yoe + era * 400 + i64::from(month < 2);
        let leap = i64::from(year % 4 == 0 && (year % 100 != 0 || year % 400 == 0));
        Self {
            year,
            month: usize::try_from(month).unwrap_or(0) % 12,
            day: doy - (153 * mp + 2) / 5 + 1,
            weekday: usize::try_from((days + 4).rem_euclid(7)).unwrap_or(0) % 7,
            year_day: if month < 2 { doy - 305 } else { doy + 60 + leap },
            hour: rest / 3600,
            minute: rest / 60 % 60,
            second: rest % 60,
        }
    }

    fn write(&self, directive: char) -> Option<String> {
        let mut out = String::new();
        let (month, day) = (MONTHS[self.month], DAYS[self.weekday]);
        let (number, hour) = (self.month + 1, (self.hour + 11) % 12 + 1);
        match directive {
            'Y' => write!(out, "{}", self.year),
            'y' => write!(out, "{:02}", self.year.rem_euclid(100)),
            'm' => write!(out, "{number:02}"),
            'd' => write!(out, "{:02}", self.day),
            'e' => write!(out, "{:2}", self.day),
            'j' => write!(out, "{:03}", self.year_day),
            'H' => write!(out, "{:02}", self.hour),
            'I' => write!(out, "{hour:02}"),
            'M' => write!(out, "{:02}", self.minute),
            'S' => write!(out, "{:02}", self.second),
            'p' => write!(out, "{}", if self.hour < 12 { "AM" } else { "PM" }),
            'B' => write!(out, "{month}"),
            'b' | 'h' => write!(out, "{}", &month[..3]),
            'A' => write!(out, "{day}"),
            'a' => write!(out, "{}", &day[..3]),
            'w' => write!(out, "{}", self.weekday),
            'u' => write!(out, "{}", (self.weekday + 6) % 7 + 1),
            'f' => write!(out, "000000"),
            'Z' => write!(out, "UTC"),
            'z' => write!(out, "+0000"),
            '%' => write!(out, "%"),
            'F' => write!(out, "{}-{number:02}-{:02}", self.year, self.day),
            'T' => write!(out, "{:02}:{:02}:{:02}", self.hour, self.minute, self.second),
            'R' => write!(out, "{:02}:{:02}", self.hour, self.minute),
            'D' | 'x' => {
                write!(out, "{number:02}/{:02}/{:02}", self.day, self.year.rem_euclid(100))
            }
            _ => return None,
        }
        .ok()?;
        Some(out)
    }
}
