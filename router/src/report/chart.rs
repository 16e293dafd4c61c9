//! Bars of shares. Charts with axes are those of [`fstress_replay::page::chart`].

use super::format::{percent, thousands};
use fstress_replay::page::chart::COLOURS;
use maud::{Markup, html};

/// A bar a store: its share of all requests, with a mark where an even split would be.
pub(super) fn shares(stores: &[(&str, f64, u64)]) -> Markup {
    let even = 1.0 / stores.len().max(1) as f64;
    let most = stores.iter().fold(even, |most, store| most.max(store.1)).max(1e-9);
    let full = |share: f64| format!("{:.2}%", share / most * 100.0);
    html! {
        div class="shares" {
            @for (number, (name, share, requests)) in stores.iter().enumerate() {
                span class="name" { (name) }
                span class="track" title=(format!("{name}: {} requests, {}", thousands(*requests), percent(*share))) {
                    span class=(format!("bar b{}", number % COLOURS)) style=(format!("width:{}", full(*share))) {}
                    span class="even" style=(format!("left:{}", full(even))) {}
                }
                span class="number" { (percent(*share)) }
            }
        }
        p class="small" { "The dashed mark is an even split, " (percent(even)) " each." }
    }
}
