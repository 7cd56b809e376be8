//! Stop strings and stop tokens of a request. The recorded requests name parts
//! of what the recorded model said; here they name the same parts of what the
//! simulated one says.

use pcload::sim::Server;
use serde_json::{Value, json};

use crate::compare::{self, Same};
use crate::conformance::{config, recorded, request};
use crate::wire::{Answer, metric, post, server};

const V: pcload::sim::Release = pcload::sim::Release::V0_32;

/// What the simulated model says to a request that stops nowhere: ids and
/// texts of its tokens.
async fn said(server: &Server, path: &str, asked: &Value) -> (Vec<u32>, Vec<String>) {
    let mut body = asked.clone();
    let members = body.as_object_mut().unwrap();
    for name in [
        "stop",
        "stop_token_ids",
        "include_stop_str_in_output",
        "min_tokens",
    ] {
        members.remove(name);
    }
    members.insert("stream".to_owned(), json!(true));
    members.insert("return_token_ids".to_owned(), json!(true));
    let answer = post(server, path, &body).await;
    let mut ids = Vec::new();
    let mut texts = Vec::new();
    for event in answer.events() {
        let choice = &event["choices"][0];
        if let Some(id) = choice["token_ids"][0].as_u64() {
            ids.push(u32::try_from(id).unwrap());
            let text = choice["text"]
                .as_str()
                .or(choice["delta"]["content"].as_str());
            texts.push(text.unwrap().to_owned());
        }
    }
    assert!(ids.len() > 7, "{answer:?}");
    (ids, texts)
}

/// The answer with `from` in place of `to` as what stopped it.
fn renamed(mut answer: Answer, from: &Value, to: &Value) -> Answer {
    let reason = |value: &Value| format!("\"stop_reason\":{value}");
    let rename = |bytes: &[u8]| {
        std::str::from_utf8(bytes)
            .unwrap()
            .replace(&reason(from), &reason(to))
            .into_bytes()
    };
    answer.body = rename(&answer.body);
    answer.chunks = answer.chunks.iter().map(|chunk| rename(chunk)).collect();
    answer
}

/// Text of an answer's first choice.
fn text(answer: &Answer, streams: bool) -> String {
    let of = |choice: &Value| {
        let chat = choice["delta"]["content"].as_str();
        let chat = chat.or(choice["message"]["content"].as_str());
        choice["text"].as_str().or(chat).unwrap_or("").to_owned()
    };
    if streams {
        answer
            .events()
            .iter()
            .map(|event| of(&event["choices"][0]))
            .collect()
    } else {
        of(&answer.json()["choices"][0])
    }
}

/// Sends recorded request `name`, whose stop is complete with the token at
/// `last` (from 0), `cut` of whose characters belong to it.
async fn compared(name: &str, last: usize, cut: Cut) -> Same {
    let server = server(config(V)).await;
    let asked = request(V, name);
    let path = asked["path"].as_str().unwrap();
    let (ids, texts) = said(&server, path, &asked["body"]).await;
    post(&server, "/reset_prefix_cache", &json!({})).await;
    warm(&server, name, &asked["body"]).await;
    let whole = texts.concat();
    let mut body = asked["body"].clone();
    let (ours_by, kept) = match cut {
        Cut::Token => {
            body["stop_token_ids"] = json!([ids[last]]);
            (json!(ids[last]), texts[..last].concat())
        }
        Cut::Whole | Cut::Part | Cut::Never => {
            let mut stop = texts[last - 2..last].concat();
            match cut {
                Cut::Whole => stop += &texts[last],
                _ => stop.extend(texts[last].chars().take(1)),
            }
            let at = whole.find(&stop).unwrap();
            let before: usize = texts[..last].iter().map(String::len).sum();
            assert!(
                before < at + stop.len(),
                "no token before {last} completes it"
            );
            let included = body["include_stop_str_in_output"] == json!(true);
            let kept = if cut == Cut::Never {
                let most = usize::try_from(body["max_tokens"].as_u64().unwrap()).unwrap();
                texts[..most].concat()
            } else {
                whole[..if included { at + stop.len() } else { at }].to_owned()
            };
            if cut != Cut::Never || body["min_tokens"].is_u64() {
                match &mut body["stop"] {
                    Value::Array(stops) => *stops.last_mut().unwrap() = json!(stop),
                    one => *one = json!(stop),
                }
            }
            (json!(stop), kept)
        }
    };
    let ours = post(&server, path, &body).await;
    let theirs = recorded(V, name);
    let streams = body["stream"] == json!(true);
    assert_eq!(text(&ours, streams), kept, "{name}");
    let by = |answer: &Answer| {
        let find = |value: &Value| value["choices"][0]["stop_reason"].clone();
        if streams {
            answer.events().iter().map(find).find(|by| !by.is_null())
        } else {
            Some(find(&answer.json())).filter(|by| !by.is_null())
        }
    };
    let ended = (cut != Cut::Never).then_some(ours_by);
    assert_eq!(by(&ours), ended, "{name}");
    let ours = match (&ended, by(&theirs)) {
        (Some(ours_by), Some(theirs_by)) => renamed(ours, ours_by, &theirs_by),
        _ => ours,
    };
    server.shutdown().await;
    compare::head(&ours, &theirs)?;
    if streams {
        compare::stream(&ours, &theirs)
    } else {
        compare::document(&ours, &theirs)
    }
}

/// What the recorded prompt had in the cache, it has here.
async fn warm(server: &Server, name: &str, asked: &Value) {
    if !name.starts_with("chat") {
        let mut body = json!({"model": "tiny", "max_tokens": 1});
        body["prompt"] = asked["prompt"].clone();
        post(server, "/v1/completions", &body).await;
    }
}

/// Where the stop ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// With a token.
    Whole,
    /// Inside a token.
    Part,
    /// Nowhere.
    Never,
    /// It is a token.
    Token,
}

/// Every recorded request that names stops.
pub(crate) async fn all() -> Vec<(String, Same)> {
    let cases = [
        ("stop.stream", 6, Cut::Whole),
        ("stop.stream.string", 6, Cut::Whole),
        ("stop.stream.span", 7, Cut::Part),
        ("stop.stream.unmet", 6, Cut::Never),
        ("stop.stream.token", 6, Cut::Token),
        ("stop.stream.min", 6, Cut::Never),
        ("stop.plain", 7, Cut::Part),
        ("stop.plain.token", 6, Cut::Token),
        ("chat.stop.plain", 7, Cut::Part),
        ("chat.stop.stream", 7, Cut::Part),
    ];
    let mut all = Vec::new();
    for (name, last, cut) in cases {
        all.push((name.to_owned(), compared(name, last, cut).await));
    }
    all.push(("stop.stream.include".to_owned(), included().await));
    all
}

/// The token that completes the string keeps what stands behind it only up to
/// the string's end.
async fn included() -> Same {
    compared("stop.stream.include", 7, Cut::Whole).await
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_the_sequence_in_the_engine_too() {
    let server = server(config(V)).await;
    let asked = request(V, "stop.plain");
    let (_, texts) = said(&server, "/v1/completions", &asked["body"]).await;
    let labels = "{engine=\"0\",finished_reason=\"stop\",model_name=\"tiny\"}";
    let stopped = format!("vllm:request_success_total{labels}");
    let tokens = "vllm:generation_tokens_total{engine=\"0\",model_name=\"tiny\"}";
    let before = metric(&server, tokens).await;
    assert!(metric(&server, &stopped).await.abs() < 1e-12);
    let mut body = asked["body"].clone();
    body["stop"] = json!(texts[3..6].concat());
    let answer = post(&server, "/v1/completions", &body).await;
    assert_eq!(answer.json()["usage"]["completion_tokens"], 6);
    assert!((metric(&server, &stopped).await - 1.0).abs() < 1e-12);
    assert!((metric(&server, tokens).await - before - 6.0).abs() < 1e-12);
    server.shutdown().await;
}
