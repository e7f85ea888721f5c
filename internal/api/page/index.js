"use strict";
// The page at the root: says whether the server takes runs, and makes its commands easy to copy.

for (const node of document.querySelectorAll(".origin")) node.textContent = location.origin;
for (const node of document.querySelectorAll(".command")) {
  node.querySelector(".bar").append(copyButton(node.querySelector("code").textContent));
}

const state = document.getElementById("status");

function tell(kind, text) {
  const dot = document.createElement("span");
  dot.className = "dot " + kind;
  state.replaceChildren(dot, text);
}

fetch("/health/ready", { cache: "no-store" })
  .then(async (answer) => {
    if (answer.ok) return tell("good", "Ready: it takes runs.");
    const body = await answer.json().catch(() => ({}));
    tell("bad", "Not ready: " + (body.error || "it answered " + answer.status) + ". Its log says why.");
  })
  .catch(() => tell("bad", "The server does not answer any more."));
