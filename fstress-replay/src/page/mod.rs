//! Pages of HTML for reports, of runs and of a plex: each complete in itself (no script, nothing fetched), readable on a
//! telephone and in the dark.

pub mod chart;
pub mod format;
pub(crate) mod load;
mod scale;

use maud::{DOCTYPE, Markup, PreEscaped, html};

/// A page: title, what it is about, and its body in the style that all pages have.
#[must_use]
pub fn frame(title: &str, about: &str, body: &Markup, footer: &str) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(include_str!("style.css"))) }
            }
            body { main {
                h1 { (title) }
                p class="lead" { (about) }
                (body)
                footer { (footer) }
            } }
        }
    };
    page.into_string()
}

/// The figures that matter, each with what it is; `many`: small ones, more in a row.
#[must_use]
pub fn figures(figures: &[(String, String)], many: bool) -> Markup {
    html! {
        div class=(if many { "figures many" } else { "figures" }) {
            @for (figure, what) in figures { div class="figure" { b { (figure) } span { (what) } } }
        }
    }
}
