//! Claims that were run, as one page that needs nothing else: each claim, what was found, the plots
//! and the tables.

use super::claim::Outcome;
use super::plot::escape;
use super::table::Table;
use std::fmt::Write;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;\
padding:0 1rem;color:#222;background:#fff}h1{font-size:1.5rem}h2{font-size:1.15rem;\
margin-top:2.5rem;border-top:1px solid #ddd;padding-top:1rem}blockquote{margin:0;padding-left:1rem;\
border-left:3px solid #0072B2;color:#444}.ground{color:#666;font-size:.85rem}svg{max-width:100%;\
height:auto;display:block;margin:1rem 0}table{border-collapse:collapse;font-size:.85rem;\
font-variant-numeric:tabular-nums}th,td{padding:.15rem .6rem;border-bottom:1px solid #ddd;\
text-align:right}th:first-child,td:first-child{text-align:left}figure{margin:0;overflow-x:auto}";

/// The page. `about` is a line for its head: the version, the machine.
pub fn report(outcomes: &[Outcome], about: &str) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>tilewright: claims, run</title>\n<style>{STYLE}</style></head><body>\n\
         <h1>What the literature claims, run here</h1>\n<p>{}</p>\n<ul>\n",
        escape(about)
    );
    for (number, outcome) in outcomes.iter().enumerate() {
        let (title, ground) = (escape(outcome.claim.title), escape(&outcome.ground));
        let _ = writeln!(
            out,
            "<li><a href=\"#c{number}\">{title}</a> <span class=\"ground\">{ground}</span></li>"
        );
    }
    out += "</ul>\n";
    for (number, outcome) in outcomes.iter().enumerate() {
        section(number, outcome, &mut out);
    }
    out + "</body></html>\n"
}

fn section(number: usize, outcome: &Outcome, out: &mut String) {
    let claim = outcome.claim;
    let _ = writeln!(
        out,
        "<section id=\"c{number}\"><h2>{}</h2>\n<p class=\"ground\">bench {}: {}, {:.1} s</p>\n\
         <blockquote>{}</blockquote>\n<p><strong>Found:</strong> {}</p>",
        escape(claim.title),
        escape(claim.name),
        escape(&outcome.ground),
        outcome.seconds,
        escape(claim.says),
        escape(&outcome.found.told)
    );
    for plot in &outcome.found.plots {
        let _ = writeln!(out, "<figure>{}</figure>", plot.svg());
    }
    for table in &outcome.found.tables {
        let _ = writeln!(out, "<figure>{}</figure>", html(table));
    }
    *out += "</section>\n";
}

fn html(table: &Table) -> String {
    let line = |cells: &[String], tag: &str| -> String {
        cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect()
    };
    let mut out = format!("<table><thead><tr>{}</tr></thead><tbody>", line(&table.head, "th"));
    for row in &table.rows {
        let _ = write!(out, "<tr>{}</tr>", line(row, "td"));
    }
    out + "</tbody></table>"
}
