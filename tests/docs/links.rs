//! Links lead somewhere: to a file that is there, and to a heading in it. The
//! network is not asked.

use std::fs;

use crate::pages::{all, page, prose, root};

/// Targets of `[text](target)` in prose.
fn targets(text: &str) -> Vec<String> {
    let prose = prose(text);
    let parts = prose.split("](").skip(1);
    let ends = parts.filter_map(|part| part.split_once(')'));
    ends.map(|(target, _)| target.to_owned()).collect()
}

/// The anchors of a page's headings, as mdBook and GitHub make them.
fn anchors(text: &str) -> Vec<String> {
    let prose = prose(text);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let letters = title.chars().filter_map(|letter| match letter {
                ' ' => Some('-'),
                '-' | '_' => Some(letter),
                letter if letter.is_alphanumeric() => Some(letter),
                _ => None,
            });
            letters.collect()
        })
        .collect()
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut followed = 0;
    for page in all() {
        for target in targets(&page.text) {
            if target.is_empty() || target.starts_with("http") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = if file.is_empty() {
                page.path.clone()
            } else {
                page.path.parent().unwrap().join(file)
            };
            assert!(path.exists(), "{}: `{target}` is not there", page.name);
            if !anchor.is_empty() {
                let text = fs::read_to_string(&path).unwrap();
                let there = anchors(&text).iter().any(|one| one == anchor);
                assert!(there, "{}: `{target}`: no such heading", page.name);
            }
            followed += 1;
        }
    }
    assert!(followed > 20, "only {followed} links");
}

#[test]
fn every_page_stands_in_the_summary() {
    let listed = targets(&page("docs/src/SUMMARY.md").text);
    for page in all() {
        let Some(name) = page.name.strip_prefix("docs/src/") else {
            continue;
        };
        let there = name == "SUMMARY.md" || listed.iter().any(|target| target == name);
        assert!(there, "docs/src/SUMMARY.md has no line for {name}");
    }
}

#[test]
fn the_book_begins_where_it_says() {
    let text = fs::read_to_string(root().join("docs/book.toml")).unwrap();
    let book: toml::Table = toml::from_str(&text).unwrap();
    assert_eq!(book["book"]["src"].as_str(), Some("src"));
}
