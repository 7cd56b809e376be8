#!/usr/bin/env bash
# Opens HTML reports in headless Chromium at three widths, light and dark:
# takes a screenshot of each, and fails on sideways overflow of the page, a
# console error, or a request to the network.
#
#   tests/html_report.sh OUT_DIR REPORT.html...
#
# Installs Debian's chromium where there is none. Not part of `cargo test`.
set -euo pipefail

out=${1:?usage: html_report.sh OUT_DIR REPORT.html...}
shift
mkdir -p "$out"
if ! command -v chromium >/dev/null; then
    apt-get update -qq && apt-get install -y -qq chromium >/dev/null
fi
profile=$(mktemp -d)
trap 'rm -rf "$profile"' EXIT

# A frame holds the page at each width: a window of headless Chromium is never
# narrower than some 500 pixels.
browse() {
    timeout 120 chromium --headless --no-sandbox --disable-gpu --no-first-run \
        --disable-background-networking --disable-component-update --disable-sync \
        --hide-scrollbars --allow-file-access-from-files --user-data-dir="$profile" \
        --virtual-time-budget=5000 --enable-logging=stderr --v=0 "$@"
}

failed=0
for report in "$@"; do
    path=$(readlink -f "$report")
    name=$(basename "$report" .html)
    if grep -Eoq '(src|href)="https?:|url\(https?:|@import' "$path"; then
        echo "FAILED $name: it refers to the network"
        failed=1
    fi
    for width in 1440 800 390; do
        frame="$profile/$name-$width.html"
        cat >"$frame" <<HTML
<!doctype html><meta name="color-scheme" content="light dark">
<style>body { margin: 0 } iframe { border: 0; display: block; width: ${width}px; height: 2600px }</style>
<iframe src="file://$path"></iframe>
<script>
addEventListener("load", () => {
  const page = document.querySelector("iframe").contentDocument;
  const wide = page.documentElement.scrollWidth;
  const out = document.createElement("p");
  out.id = "found";
  out.textContent = "width=" + wide + " charts=" + page.querySelectorAll("figure svg").length;
  document.body.append(out);
});
</script>
HTML
        found=$(browse --dump-dom "file://$frame" 2>"$profile/log" |
            grep -o 'id="found">[^<]*' | cut -d'>' -f2)
        if grep -q 'CONSOLE' "$profile/log"; then
            echo "FAILED $name at $width: $(grep CONSOLE "$profile/log" | head -3)"
            failed=1
        fi
        if [[ $found != "width=$width "* ]]; then
            echo "FAILED $name at $width: the page overflows, or was not read: '$found'"
            failed=1
        fi
        for scheme in light dark; do
            dark=()
            if [[ $scheme == dark ]]; then
                dark=(--blink-settings=preferredColorScheme=0)
            else
                dark=(--blink-settings=preferredColorScheme=1)
            fi
            browse "${dark[@]}" --window-size="$((width < 500 ? 500 : width)),2600" \
                --screenshot="$out/$name-$width-$scheme.png" "file://$frame" 2>/dev/null
        done
        echo "$name at $width: $found"
    done
done
exit "$failed"
